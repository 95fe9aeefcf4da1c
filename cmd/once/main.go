// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
)

// run runs one command line and returns the exit code.
func run(ctx context.Context, e *operate.Env, args []string) int {
	root := rootCommand(e)
	root.SetArgs(append([]string{}, args...)) // nil would be the arguments of the process
	root.SetOut(e.Stdout)
	root.SetErr(e.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !e.Begun {
		err = misspelt(err) // cobra refused the command line
	}
	if err != nil && err.Error() != "" { // without a text, only the exit code counts
		fmt.Fprintf(e.Stderr, "once: %s\n", output.Plain(strings.TrimSpace(err.Error())))
		if text := operate.Advice(err, cmd.Name() == "console"); text != "" {
			fmt.Fprintln(e.Stderr, text)
		}
	}
	code := operate.ExitCode(err)
	if code == operate.ExitUsage {
		fmt.Fprintf(e.Stderr, "See %s --help.\n", cmd.CommandPath())
	}
	return code
}

// misspelt returns the error of a command line that cobra refused. What cobra says of a
// flag's value is that of a Go parser, and of flags that exclude each other, a list of all.
func misspelt(err error) error {
	if set := excluding.FindStringSubmatch(err.Error()); set != nil {
		return operate.Usage("--%s cannot be combined", strings.Join(strings.Fields(set[1]), " and --"))
	}
	if flags := together.FindStringSubmatch(err.Error()); flags != nil {
		return operate.Usage("--%s belong together: --%s is missing", strings.Join(strings.Fields(flags[1]), " and --"), flags[2])
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		kinds := map[string]string{"duration": "a duration, such as 36h or 90m", "float64": "a number", "int": "a whole number"}
		if kind := kinds[invalid.GetFlag().Value.Type()]; kind != "" {
			return operate.Usage("--%s is %q; it must be %s", invalid.GetFlag().Name, invalid.GetValue(), kind)
		}
	}
	return operate.Usage("%v", err)
}

var (
	excluding = regexp.MustCompile(`others can be; \[(.+)\] were all set$`)
	together  = regexp.MustCompile(`the group \[(.+)\] are set they must all be set; missing \[(.+)\]$`)
)

func rootCommand(e *operate.Env) *cobra.Command {
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
	f.StringVar(&e.Flags.Table, "table", "", "DynamoDB table: `NAME` or ARN (default: ONCE_TABLE)")
	f.StringVar(&e.Flags.ChunkTable, "chunk-table", "", "the table's `NAME` of large results\n(default: with ONCE_TABLE, ONCE_CHUNK_TABLE)")
	f.StringVar(&e.Flags.PartitionKey, "partition-key", "", "the `NAME` of the table's partition key: pk\n(default: with ONCE_TABLE, ONCE_PARTITION_KEY)")
	f.StringVar(&e.Flags.SortKey, "sort-key", "", "the `NAME` of the table's sort key, if it has one\n(default: with ONCE_TABLE, ONCE_SORT_KEY)")
	f.StringVar(&e.Flags.Prefix, "prefix", "", "`TEXT` with which the keys of records begin\n(default: with ONCE_TABLE, ONCE_PREFIX)")
	f.StringVar(&e.Flags.TTLAttribute, "ttl-attribute", "", "the `NAME` of its attribute for time to live: ttl\n(default: with ONCE_TABLE, ONCE_TTL_ATTRIBUTE)")
	f.StringVar(&e.Flags.Consistency, "consistency", "", "`MODE` of a table in several regions: strong\n(default: with ONCE_TABLE, ONCE_CONSISTENCY)")
	f.StringVar(&e.Flags.File, "file", "", "`PATH` of a file of boltstore (default: ONCE_FILE)")
	f.StringVar(&e.Flags.Name, "store", "", "the `NAME` with which the variables of a second\nstore end: orders for ONCE_TABLE_ORDERS")
	f.StringVar(&e.Flags.Region, "region", "", "AWS `REGION` (default: the environment's)")
	f.StringVar(&e.Flags.Profile, "profile", "", "AWS `PROFILE` (default: the environment's)")
	f.StringVar(&e.Flags.Endpoint, "endpoint", "", "`URL` of LocalStack or DynamoDB Local (default: AWS)")
	f.BoolVar(&e.Flags.NoIndex, "no-index", false, "the table has no index \"recovery\": read the\nwhole table for every list")
	f.BoolVar(&e.JSON, "json", false, "print one JSON document, or for a list one per line")
	root.AddCommand(lookupCommand(e), listCommand(e), showCommand(e), consoleCommand(e), resolveCommand(e), requeueCommand(e), forgetCommand(e),
		reconcileCommand(e), scanCommand(e), purgeCommand(e), statsCommand(e), costCommand(e), tableCommand(e), versionCommand(e))
	root.InitDefaultHelpFlag() // otherwise cobra reads once --help --file PATH as --help=--file
	root.InitDefaultVersionFlag()
	for _, cmd := range root.Commands() {
		cmd.Flags().SortFlags = false // the help shows them in the order of use
	}
	return root
}

// versionCommand returns the command once version, for scripts and error reports.
func versionCommand(e *operate.Env) *cobra.Command {
	return exits(&cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  once version\n  once version --json",
		RunE: command(e, func(context.Context, []string) error {
			if e.JSON {
				return e.Document(map[string]string{"version": version(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Fprintf(e.Stdout, "once version %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		}),
	}, operate.ExitOK, operate.ExitFailure, operate.ExitUsage)
}

// version returns the version of the module that the binary was built from.
func version() string {
	info, _ := debug.ReadBuildInfo() // nil if the binary was built without modules
	return cmp.Or(cmp.Or(info, &debug.BuildInfo{}).Main.Version, "(unknown)")
}
