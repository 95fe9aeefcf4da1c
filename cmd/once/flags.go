// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/once-lambda/once/cmd/once/internal/operate"
)

// command returns f as the function of a cobra command.
func command(e *operate.Env, f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		e.Start()
		if f := cmd.Flags().Lookup("operation"); f != nil && slices.Contains(f.Value.(pflag.SliceValue).GetSlice(), "") {
			return operate.Usage("--operation is empty; name an operation, or leave it out for all")
		}
		return f(cmd.Context(), args)
	}
}

// onStore is command for a function that uses the store.
func onStore(e *operate.Env, f func(ctx context.Context, o operate.Store) error) func(*cobra.Command, []string) error {
	return command(e, func(ctx context.Context, _ []string) error {
		o, err := e.Open(ctx)
		if err != nil {
			return err
		}
		defer o.Close()
		return f(ctx, o)
	})
}

// exitCodes is the description of the exit codes in the help. A test compares it
// with the table in docs/operate.md.
const exitCodes = `Exit codes:

    0  done; for once lookup: completed
    1  failed: the store, the table's schema, or a part of the work
    2  invalid command line, or a malformed file; nothing was done
    3  record not found, or expired
    4  refused: other outcome, live lease, stale token, wrong form, unconfirmed
    5  once lookup: in progress
    6  once lookup: unknown
    7  once lookup: retryable
    8  once lookup: resumable`

// exits documents the exit codes of a command, in its help and for the table in
// docs/operate.md. A command has no arguments unless it says so.
func exits(cmd *cobra.Command, codes ...int) *cobra.Command {
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	text := strings.Trim(fmt.Sprint(codes), "[]")
	cmd.Annotations = map[string]string{exitsNote: text}
	cmd.Long = strings.TrimSpace(cmd.Short+".\n\n"+cmd.Long) + "\n\nExit codes: " + strings.ReplaceAll(text, " ", ", ") + " (once --help explains them)."
	return cmd
}

const exitsNote = "exit codes" // the name of the annotation

// recordHelp describes the argument RECORD.
const recordHelp = `RECORD is a record id; or a shortened id from a list or a log, at least # and
12 characters; or an operation, with --key and --scope or --global.`

// oneRecord checks the arguments of a command about one record.
func oneRecord(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want one RECORD, got %d arguments; quote a record that contains spaces", len(args))
	}
	return nil
}

// recordFlags adds the flags of a command about one record, if it does not check its arguments.
func recordFlags(cmd *cobra.Command, t *operate.Target) {
	if cmd.Args == nil {
		cmd.Args = oneRecord
	}
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	f := cmd.Flags()
	f.StringVar(&t.Scope, "scope", "", "with an operation: the `SCOPE` of the key, a\ntenant or principal")
	f.BoolVar(&t.Global, "global", false, "with an operation: its scope is\nidempotent.Global (lambdahttp.SingleTenant)")
	f.StringVar(&t.Key, "key", "", "with an operation: the client's idempotency\n`KEY`, without quotes")
	f.StringVar(&t.Path, "path", "", "with --key: the `PATH` of an HTTP request whose\nkey belongs to a path (see docs/http-keys.md)")
	f.BoolVar(&t.Scan, "scan", false, "search the whole table for a shortened id, not\nonly the records that wait for reconciliation")
}

// writingFlags adds the flags of a command that writes. The reason is required.
func writingFlags(cmd *cobra.Command, w *operate.Writing, dryRun, reason, yes string) {
	f := cmd.Flags()
	f.BoolVar(&w.DryRun, "dry-run", false, dryRun)
	f.StringVar(&w.Reason, "reason", "", reason)
	f.BoolVar(&w.Yes, "yes", false, yes)
	auditFlag(cmd, &w.Audit)
	cmd.MarkFlagRequired("reason")
}

// checkAndWrite is the help of --dry-run.
const checkAndWrite = "check everything, print what would be written,\nand write nothing"

func auditFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "audit", "", "append the audit line to this `FILE`\n(default: ONCE_AUDIT, or standard error)")
}

// noScanFlag adds the flag --no-scan.
func noScanFlag(cmd *cobra.Command, noScan *bool) {
	cmd.Flags().BoolVar(noScan, "no-scan", false, "only records in the index of the table: not\nabandoned runs that still count as in progress")
}
