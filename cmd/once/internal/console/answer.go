// SPDX-License-Identifier: Apache-2.0

package console

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/internal/page"
)

// answered returns the handler that answers with what f returns.
func answered(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			fail(w, err)
			return
		}
		page.Reply(w, http.StatusOK, v)
	}
}

// failure is the answer about an error.
type failure struct {
	Error  string `json:"error"`
	Advice string `json:"advice,omitempty"`
}

// fail answers with an error. It writes nothing elsewhere: an error may contain
// what the operator entered.
func fail(w http.ResponseWriter, err error) {
	status := map[int]int{
		operate.ExitUsage: http.StatusBadRequest, operate.ExitNotFound: http.StatusNotFound, operate.ExitRefused: http.StatusConflict,
	}[operate.ExitCode(err)]
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		status = http.StatusRequestEntityTooLarge
	case status == 0:
		status = http.StatusBadGateway // the store failed
	}
	page.Reply(w, status, failure{onPage.Replace(err.Error()), onPage.Replace(operate.Advice(err, false))})
}

// onPage replaces the words of the command line, which texts share, by those of the
// page.
var onPage = strings.NewReplacer(
	"--reason is empty", "the reason is empty",
	"add --key and --scope (or --global)", "enter the client's key and its scope, too",
	"--scope, --global and --path need the client's key: add --key", "a scope or a path needs the client's key: enter it, too",
	"--global means no scope, but --scope is set", "clear the scope, or the mark that the operation has none",
	"--key needs the scope: add --scope, or --global if the operation has none", "the key needs its scope: enter it, or mark that the operation has none",
	"and --path if the key", "and the path if the key",
	" with --scan, or use the full id or the key", " by its reference, or enter the full id or the key",
	"; run once show again, then ask", "; open the record again, then ask",
	"; run once show again", "; open the record again",
	"; --result prints it", "; the record shows it",
	"store it anyway with --force", "store it anyway, see More options",
	`give the HTTP response: --status (and --header) with --completed, or "response" in a program's answer`, "settle this record by itself, with the status and the body of its response",
	`give the bytes of the encoded result: --completed @FILE, or "completed_base64" in a program's answer; or use --without-result`, "settle this record by itself, with a file of its encoded result, or without its result",
	"use --without-result or --not-executed, or give the result", "settle it without its result or as not executed, or give the result",
	"and run the command again", "and start the console again",
	"correct --table, --region or --profile; once table check lists the differences", "start the console again with another table, region or profile",
	": --instead-of, or once forget", ", open the record again: correct its outcome, or discard it",
	"correct it with InsteadOf (once resolve --instead-of)", "open the record again and correct its outcome",
	"; use the same evidence without InsteadOf", "; open the record again and settle it by evidence",
	"Check --region, --endpoint and the network", "Check the region, the endpoint and the network of the console",
	"Check --table, --region, --profile and --endpoint", "Check the table, the region, the profile and the endpoint of the console",
	", or use --no-index", "",
	"Use --profile for another identity", "Start the console again as another identity",
	"log in again, or use --profile", "log in again, and start the console again",
)

// readJSON reads the body of a request. The error says that it is malformed.
func readJSON(r *http.Request, v any) error {
	data, err := io.ReadAll(r.Body)
	if errors.As(err, new(*http.MaxBytesError)) {
		return fmt.Errorf("the request is larger than %s: %w", output.Size(operate.MaxAnswer), err)
	}
	if err == nil {
		err = operate.DecodeOne(data, v)
	}
	if err != nil {
		return operate.Usage("invalid request: %v", err)
	}
	return nil
}
