// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/idempotent"
)

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
// store failed.
func refusal(err error) error {
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
		return "Check the table and its index with once table check."
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
