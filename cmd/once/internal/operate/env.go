// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/tabledef"
)

// Env is what a command works with: everything outside of the program that it uses, and
// the flags of all commands.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer // several programs write to stderr in parallel
	Getenv         func(string) string
	Now            func() time.Time

	StdinTTY, StderrTTY bool
	Width               int // of a line on stdout, in columns; 0: unlimited

	User, Host string // the operator, for the audit

	Dynamo func(aws.Config) dynamostore.Client

	Flags    StoreFlags
	JSON     bool
	Begun    bool           // the command line is valid, and the command runs
	Progress bool           // show how far long work is
	screen   *output.Screen // nil: standard error is no terminal
}

// StoreFlags select the store.
type StoreFlags struct {
	Table, File               string
	Name                      string // of the store, in the names of its variables
	Region, Profile, Endpoint string
	NoIndex                   bool

	ChunkTable, PartitionKey, SortKey, Prefix, TTLAttribute, Consistency string // see setting
}

// Variable returns the environment variable of the store that --store names.
func (f StoreFlags) Variable(name string) string { return tabledef.Variable(name, f.Name) }

// Encoder returns an encoder of JSON for stdout.
func (e *Env) Encoder() *json.Encoder {
	out := json.NewEncoder(e.Stdout)
	out.SetEscapeHTML(false)
	return out
}

// Document prints the one JSON document of a command.
func (e *Env) Document(v any) error {
	out := e.Encoder()
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// answer reads a line from standard input. It is empty if ctx ends first.
func (e *Env) answer(ctx context.Context) string {
	line := make(chan string, 1)
	go func() {
		s, _ := bufio.NewReader(e.Stdin).ReadString('\n') // what was typed before an error counts
		line <- s
	}()
	select {
	case s := <-line:
		return s
	case <-ctx.Done():
		fmt.Fprintln(e.Stderr)
		return ""
	}
}

// ReadFile returns the content of a file, or of standard input if its name is -.
func (e *Env) ReadFile(name string) ([]byte, error) {
	from := e.Stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	data, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	if len(data) > maxFile {
		err = fmt.Errorf("%s is larger than %s", name, output.Size(maxFile))
	}
	return data, err
}

// maxFile limits a file of evidence, or of one result, in bytes: it is held in memory.
const maxFile = 64 << 20

// actor names the operator, for records of who did something.
func (e *Env) actor() string { return cmp.Or(e.User, "unknown") + "@" + e.Host }

// Table returns a table on stdout. Its last columns, spare of them, are omitted before
// lines get too long.
func (e *Env) Table(spare int, titles ...string) *output.Table {
	t := &output.Table{W: e.Stdout, Width: e.Width, Titles: titles, Spare: spare}
	if e.JSON {
		t.JSON = e.Encoder()
	}
	return t
}

// Start makes the environment ready for a command: standard error has the progress of long
// work, on a terminal below what the command prints.
func (e *Env) Start() {
	e.Begun, e.Progress = true, true
	if e.StderrTTY {
		e.screen = output.NewScreen(e.Stderr)
		e.Stdout, e.Stderr = e.screen.Over(e.Stdout), e.screen.Over(e.Stderr)
	}
}

// reading returns a meter for a read of about so many items; 0: unknown.
func (e *Env) reading(what string, about int) *output.Meter { return e.meter(what, "items", about) }

// Meter returns a meter for work on so many records; 0: unknown.
func (e *Env) Meter(what string, records int) *output.Meter { return e.meter(what, "records", records) }

func (e *Env) meter(what, unit string, about int) *output.Meter {
	if !e.Progress {
		return output.NewMeter(nil, nil, e.Now, what, unit, about)
	}
	return output.NewMeter(e.screen, e.Stderr, e.Now, what, unit, about)
}

// The exit codes. exitCodes describes them for users.
const (
	ExitOK       = 0
	ExitFailure  = 1
	ExitUsage    = 2
	ExitNotFound = 3
	ExitRefused  = 4
)

// coded is an error with its own exit code.
type coded struct {
	error
	code int
}

// WithCode returns err with the exit code.
func WithCode(err error, code int) error { return &coded{err, code} }

// Usage reports an invalid command line.
func Usage(format string, args ...any) error {
	return &coded{fmt.Errorf(format, args...), ExitUsage}
}

// Refuse reports that something is not allowed or not confirmed.
func Refuse(format string, args ...any) error {
	return &coded{fmt.Errorf(format, args...), ExitRefused}
}

// refusal marks an error of a write by a guard as a refusal by the record, unless the
// store failed. A client retries a request soon; an operator waits for the end of the lease.
func refusal(err error) error {
	if e, ok := errors.AsType[*idempotent.InProgressError](err); ok {
		return Refuse("idempotent: %s: a request with this key may be in progress until its lease ends at %s; try again then", output.Short(e.RecordID), e.Until.UTC().Format(time.RFC3339))
	}
	if ExitCode(err) != ExitFailure || errors.As(err, new(*idempotent.StoreError)) {
		return err
	}
	return &coded{err, ExitRefused}
}

// ExitCode returns the exit code for the error of a command.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if c, ok := errors.AsType[*coded](err); ok {
		return c.code
	}
	if errors.Is(err, idempotent.ErrNoRecord) {
		return ExitNotFound
	}
	return ExitFailure
}

// Advice returns what to do on this command line about an error of AWS, or "". The
// texts of the store itself are for Go programmers. The console needs the index.
func Advice(err error, console bool) string {
	if _, ok := errors.AsType[*url.Error](err); ok {
		return "Check --region, --endpoint and the network."
	}
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return ""
	}
	operation, noIndex := "", ", or use --no-index."
	if console {
		noIndex = ".\nWithout an index there is no console: use once list --no-index."
	}
	if op, ok := errors.AsType[*smithy.OperationError](err); ok {
		operation = op.OperationName
	}
	switch code := api.ErrorCode(); {
	case code == "ResourceNotFoundException" && operation == "Query":
		return "Check --table, --region, --profile and --endpoint, and the index\nwith once table check."
	case code == "ResourceNotFoundException":
		return "Check --table, --region, --profile and --endpoint. For tests and local use, create\nthe table with once table create."
	case code == "ValidationException" && operation == "Query":
		return "Check the table's index with once table check" + noIndex
	case code == "ValidationException" && operation != "UpdateTable":
		return "Check the table's keys with once table check."
	case code == "AccessDeniedException" && operation == "Query":
		return "The permission is needed on the table's index too (table/NAME/index/*)" + noIndex + "\nSection \"Grant the permissions\" of docs/operate.md lists those of each command."
	case code == "AccessDeniedException":
		return "Use --profile for another identity. Section \"Grant the permissions\" of docs/operate.md\nlists those of each command."
	case strings.HasPrefix(code, "ExpiredToken"), code == "UnrecognizedClientException", code == "InvalidSignatureException":
		return "The credentials were refused: log in again, or use --profile."
	}
	return ""
}
