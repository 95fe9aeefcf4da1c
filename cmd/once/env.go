// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
)

// environment is everything outside of the program that a command uses.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer // several programs write to stderr in parallel
	getenv         func(string) string
	now            func() time.Time

	stdinTTY, stderrTTY bool
	width               int // of a line on stdout, in columns; 0: unlimited

	user, host string // the operator, for the audit

	dynamo func(aws.Config) dynamostore.Client
}

// env is what a command works with: its environment, and the flags of all commands.
type env struct {
	*environment
	store    storeFlags
	json     bool
	begun    bool // the command line is valid, and the command runs
	progress bool // show how far a long read is
}

// storeFlags select the store.
type storeFlags struct {
	Table, File               string
	Name                      string // of the store, in the names of its variables
	Region, Profile, Endpoint string
	NoIndex                   bool

	ChunkTable, PartitionKey, SortKey, Prefix, TTLAttribute, Consistency string // see setting
}

// command returns f as the function of a cobra command.
func (e *env) command(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		e.begun, e.progress = true, e.stderrTTY
		if f := cmd.Flags().Lookup("operation"); f != nil && slices.Contains(f.Value.(pflag.SliceValue).GetSlice(), "") {
			return usage("--operation is empty; name an operation, or leave it out for all")
		}
		return f(cmd.Context(), args)
	}
}

// encoder returns an encoder of JSON for stdout.
func (e *env) encoder() *json.Encoder {
	out := json.NewEncoder(e.stdout)
	out.SetEscapeHTML(false)
	return out
}

// document prints the one JSON document of a command.
func (e *env) document(v any) error {
	out := e.encoder()
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// answer reads a line from standard input. It is empty if ctx ends first.
func (e *env) answer(ctx context.Context) string {
	line := make(chan string, 1)
	go func() {
		s, _ := bufio.NewReader(e.stdin).ReadString('\n') // what was typed before an error counts
		line <- s
	}()
	select {
	case s := <-line:
		return s
	case <-ctx.Done():
		fmt.Fprintln(e.stderr)
		return ""
	}
}

// The exit codes. exitCodes describes them for users.
const (
	exitOK       = 0
	exitFailure  = 1
	exitUsage    = 2
	exitNotFound = 3
	exitRefused  = 4

	// Only once lookup returns these, and 0 for a completed record.
	exitInProgress = 5
	exitUnknown    = 6
	exitRetryable  = 7
	exitResumable  = 8
)

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

// coded is an error with its own exit code.
type coded struct {
	error
	code int
}

// usage reports an invalid command line.
func usage(format string, args ...any) error {
	return &coded{fmt.Errorf(format, args...), exitUsage}
}

// actor names the operator, for records of who did something.
func (e *env) actor() string { return cmp.Or(e.user, "unknown") + "@" + e.host }

// refuse reports that something is not allowed or not confirmed.
func refuse(format string, args ...any) error {
	return &coded{fmt.Errorf(format, args...), exitRefused}
}

// refusal marks an error of a guard as a refusal by the record, unless the store
// failed.
func refusal(err error) error {
	if exitCode(err) != exitFailure || errors.As(err, new(*idempotent.StoreError)) {
		return err
	}
	return &coded{err, exitRefused}
}

// exitCode returns the exit code for the error of a command.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if c, ok := errors.AsType[*coded](err); ok {
		return c.code
	}
	switch {
	case errors.Is(err, idempotent.ErrNoRecord):
		return exitNotFound
	case errors.As(err, new(*idempotent.SettledError)), errors.As(err, new(*idempotent.InProgressError)),
		errors.As(err, new(*idempotent.StaleEvidenceError)), errors.As(err, new(*idempotent.StepError)):
		return exitRefused
	}
	return exitFailure
}

// advice returns what to do on this command line about an error of AWS, or "". The
// texts of the store itself are for Go programmers.
func advice(err error) string {
	if _, ok := errors.AsType[*url.Error](err); ok {
		return "Check --region, --endpoint and the network."
	}
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return ""
	}
	operation := ""
	if op, ok := errors.AsType[*smithy.OperationError](err); ok {
		operation = op.OperationName
	}
	switch code := api.ErrorCode(); {
	case code == "ResourceNotFoundException" && operation == "Query":
		return "Check the table and its index with once table check."
	case code == "ResourceNotFoundException":
		return "Check --table, --region, --profile and --endpoint. For tests and local use, create\nthe table with once table create."
	case code == "ValidationException" && operation == "Query":
		return "Check the table's index with once table check, or use --no-index."
	case code == "ValidationException" && operation != "UpdateTable":
		return "Check the table's keys with once table check."
	case code == "AccessDeniedException" && operation == "Query":
		return "The permission is needed on the table's index too (table/NAME/index/*), or use --no-index.\nSection \"Grant the permissions\" of docs/operate.md lists those of each command."
	case code == "AccessDeniedException":
		return "Use --profile for another identity. Section \"Grant the permissions\" of docs/operate.md\nlists those of each command."
	case strings.HasPrefix(code, "ExpiredToken"), code == "UnrecognizedClientException", code == "InvalidSignatureException":
		return "The credentials were refused: log in again, or use --profile."
	}
	return ""
}
