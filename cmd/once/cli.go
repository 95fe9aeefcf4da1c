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
	JSON     bool             `name:"json" group:"In every command:" help:"Print JSON: one document, or for a list one per line."`
	Progress bool             `group:"In every command:" help:"Show progress on stderr (default on a terminal)."`
	Version  kong.VersionFlag `group:"In every command:" help:"Print the version."`

	List      listCmd      `cmd:"" help:"List records, for example those that are unknown, due or given up."`
	Show      showCmd      `cmd:"" help:"Show one record, and its keys at the provider."`
	Resolve   resolveCmd   `cmd:"" help:"Settle a record by evidence from outside the store."`
	Reconcile reconcileCmd `cmd:"" help:"Reconcile the records that are due."`
	Purge     purgeCmd     `cmd:"" help:"Remove settled records that have expired."`
	Stats     statsCmd     `cmd:"" help:"Count records and their sizes. Reads all of them."`
	Table     tableCmd     `cmd:"" help:"Create or check the table (or the file)."`
}

const description = `The operator's command line of once (github.com/once-lambda/once).

Name the store with --table or --file, or with ONCE_TABLE or ONCE_FILE. Access to a table uses the AWS configuration of the environment.

` + exitCodes

// env is the environment of a command: the world, and the options of all commands.
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

// exited is the exit code after kong's help: a panic that run recovers.
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
		panic(err) // the grammar above is invalid
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
