package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

// cli is the grammar of the command line.
type cli struct {
	Store    storeFlags       `embed:"" group:"The store:"`
	JSON     bool             `name:"json" group:"In every command:" help:"Print JSON: one document, or for a list one a line."`
	Progress bool             `group:"In every command:" help:"Tell on standard error how far a long read has come. Done anyway on a terminal."`
	Version  kong.VersionFlag `group:"In every command:" help:"Print the version."`

	List      listCmd      `cmd:"" help:"List records: which are unknown, due, given up."`
	Show      showCmd      `cmd:"" help:"Show what is known of one record, and its keys at the provider."`
	Resolve   resolveCmd   `cmd:"" help:"Settle a record by evidence from outside."`
	Reconcile reconcileCmd `cmd:"" help:"Work through the records that are due."`
	Purge     purgeCmd     `cmd:"" help:"Remove settled records that have expired."`
	Stats     statsCmd     `cmd:"" help:"Count records and their sizes, by reading all of them."`
	Table     tableCmd     `cmd:"" help:"Create or check the table (or the file)."`
}

const description = `The operator's command line of once (github.com/once-lambda/once).

Name a store with --table or --file, or in ONCE_TABLE or ONCE_FILE. A table is found by the AWS configuration of the environment.

` + exitCodes

// env is what a command works with: the world, and what all commands share.
type env struct {
	*world
	store    storeFlags
	json     bool
	progress bool
}

// document prints the one JSON document of a command.
func (e *env) document(v any) error {
	out := json.NewEncoder(e.stdout)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// exited is how kong's help leaves: a panic that ends in run.
type exited int

// run runs one command line and returns the exit code.
func run(ctx context.Context, w *world, args []string) (code int) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case exited:
			code = int(p)
		default:
			panic(p)
		}
	}()
	var c cli
	parser, err := kong.New(&c,
		kong.Name("once"), kong.Description(description),
		kong.Vars{"version": "once " + version()},
		kong.Writers(w.stdout, w.stderr),
		kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 80, NoExpandSubcommands: true}),
	)
	if err != nil {
		panic(err) // the grammar above is wrong
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if err == nil {
		e := &env{world: w, store: c.Store, json: c.JSON, progress: c.Progress || w.stderrTTY}
		parsed.BindTo(ctx, (*context.Context)(nil))
		err = parsed.Run(e)
	}
	if err != nil {
		fmt.Fprintf(w.stderr, "once: %s\n", plain(err.Error()))
		if text := advice(err); text != "" {
			fmt.Fprintln(w.stderr, text)
		}
	}
	if code = exitCode(err); code == exitUsage {
		fmt.Fprintln(w.stderr, "See once --help.")
	}
	return code
}

// version returns the version of the module that the binary was built from.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown version)"
}
