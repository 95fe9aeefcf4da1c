// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// run runs one command line and returns the exit code.
func run(ctx context.Context, w *environment, args []string) int {
	e := &env{environment: w}
	root := rootCommand(e)
	root.SetArgs(append([]string{}, args...)) // nil would be the arguments of the process
	root.SetOut(w.stdout)
	root.SetErr(w.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !e.begun {
		err = misspelt(err) // cobra refused the command line
	}
	if err != nil && err.Error() != "" { // without a text, only the exit code counts
		fmt.Fprintf(w.stderr, "once: %s\n", plain(strings.TrimSpace(err.Error())))
		if text := advice(err); text != "" {
			fmt.Fprintln(w.stderr, text)
		}
	}
	code := exitCode(err)
	if code == exitUsage {
		fmt.Fprintf(w.stderr, "See %s --help.\n", cmd.CommandPath())
	}
	return code
}

// misspelt returns the error of a command line that cobra refused. What cobra says of a
// flag's value is that of a Go parser.
func misspelt(err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		kinds := map[string]string{"duration": "a duration, such as 36h or 90m", "float64": "a number", "int": "a whole number"}
		if kind := kinds[invalid.GetFlag().Value.Type()]; kind != "" {
			return usage("--%s is %q; it must be %s", invalid.GetFlag().Name, invalid.GetValue(), kind)
		}
	}
	return usage("%v", err)
}

func rootCommand(e *env) *cobra.Command {
	root := &cobra.Command{
		Use: "once",
		Long: `The operator's command line of once (github.com/once-lambda/once): it lists and
shows the records of idempotency keys, and settles unknown outcomes.

Name the store with --table or --file, or with ONCE_TABLE or ONCE_FILE. If a
function has several tables, --store selects the variables of one. Access to a
table uses the AWS configuration of the environment.

` + exitCodes,
		Example: `  once lookup 'POST /charges' --scope acme --key KEY
  once list --state unknown --table once-records
  once show charge --scope acme --key order-17
  once resolve charge --scope acme --key order-17 --without-result --reason '…'`,
		// No templates for help, usage or version: they would add 4 MB to the binary.
		Version:       version(),
		SilenceErrors: true, // run prints them
		SilenceUsage:  true,
	}
	f := root.PersistentFlags()
	f.StringVar(&e.store.Table, "table", "", "DynamoDB table: `NAME` or ARN (default: ONCE_TABLE)")
	f.StringVar(&e.store.ChunkTable, "chunk-table", "", "the table's `NAME` of large results\n(default: with ONCE_TABLE, ONCE_CHUNK_TABLE)")
	f.StringVar(&e.store.PartitionKey, "partition-key", "", "the `NAME` of the table's partition key: pk\n(default: with ONCE_TABLE, ONCE_PARTITION_KEY)")
	f.StringVar(&e.store.SortKey, "sort-key", "", "the `NAME` of the table's sort key, if it has one\n(default: with ONCE_TABLE, ONCE_SORT_KEY)")
	f.StringVar(&e.store.Prefix, "prefix", "", "`TEXT` with which the keys of records begin\n(default: with ONCE_TABLE, ONCE_PREFIX)")
	f.StringVar(&e.store.TTLAttribute, "ttl-attribute", "", "the `NAME` of its attribute for time to live: ttl\n(default: with ONCE_TABLE, ONCE_TTL_ATTRIBUTE)")
	f.StringVar(&e.store.Consistency, "consistency", "", "`MODE` of a table in several regions: strong\n(default: with ONCE_TABLE, ONCE_CONSISTENCY)")
	f.StringVar(&e.store.File, "file", "", "`PATH` of a file of boltstore (default: ONCE_FILE)")
	f.StringVar(&e.store.Name, "store", "", "the `NAME` with which the variables of a second\nstore end: orders for ONCE_TABLE_ORDERS")
	f.StringVar(&e.store.Region, "region", "", "AWS `REGION` (default: the environment's)")
	f.StringVar(&e.store.Profile, "profile", "", "AWS `PROFILE` (default: the environment's)")
	f.StringVar(&e.store.Endpoint, "endpoint", "", "`URL` of LocalStack or DynamoDB Local (default: AWS)")
	f.BoolVar(&e.store.NoIndex, "no-index", false, "the table has no index \"recovery\": read the\nwhole table for every list")
	f.BoolVar(&e.json, "json", false, "print one JSON document, or for a list one per line")
	root.AddCommand(lookupCommand(e), listCommand(e), showCommand(e), consoleCommand(e), resolveCommand(e), requeueCommand(e), forgetCommand(e),
		reconcileCommand(e), scanCommand(e), purgeCommand(e), statsCommand(e), costCommand(e), tableCommand(e), versionCommand(e))
	root.InitDefaultHelpFlag() // otherwise cobra reads once --help --file PATH as --help=--file
	root.InitDefaultVersionFlag()
	for _, cmd := range root.Commands() {
		cmd.Flags().SortFlags = false // the help shows them in the order of use
	}
	return root
}

// version returns the version of the module that the binary was built from.
func version() string {
	info, _ := debug.ReadBuildInfo() // nil if the binary was built without modules
	return cmp.Or(cmp.Or(info, &debug.BuildInfo{}).Main.Version, "(unknown)")
}

// versionCommand returns the command once version, for scripts and error reports.
func versionCommand(e *env) *cobra.Command {
	return exits(&cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  once version\n  once version --json",
		RunE: e.command(func(context.Context, []string) error {
			if e.json {
				return e.document(map[string]string{"version": version(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Fprintf(e.stdout, "once version %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		}),
	}, exitOK, exitFailure, exitUsage)
}
