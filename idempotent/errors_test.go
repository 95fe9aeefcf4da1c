// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// The text that a log shows of an error is the error's own, without the texts of
// handlers, key functions, encoders and transactions.
func TestErrorsInLogs(t *testing.T) {
	t.Parallel()
	id, secret := newKey().RecordID(), errors.New("secret")
	for _, c := range []struct {
		err  error
		want string // part of the text; empty: the error's own text
	}{
		{&idempotent.InProgressError{RecordID: id}, ""},
		{&idempotent.MismatchError{RecordID: id}, ""},
		{&idempotent.UnresolvedError{RecordID: id}, ""},
		{&idempotent.RetryableError{RecordID: id}, ""},
		{&idempotent.NoKeyError{Operation: "charge"}, ""},
		{&idempotent.LeaseLostError{RecordID: id, Err: secret}, ""},
		{&idempotent.ReplayUnavailableError{RecordID: id, Reason: "it is damaged"}, ""},
		{&idempotent.NoTimeError{Err: errDown}, ""},
		{&idempotent.StoreError{RecordID: id, Op: driver.OpInsert, Err: errDown}, ""},
		{&idempotent.StoreError{Op: driver.OpListDue, Err: errDown}, ""},
		{&idempotent.StoreError{RecordID: id, Op: driver.OpTransact, Err: secret}, "transact failed: error of type *errors.errorString"},
		{&idempotent.StoreError{RecordID: id, Op: driver.OpPredecessor, Err: secret}, "error of type *errors.errorString"},
		{&idempotent.SettledError{RecordID: id}, ""},
		{&idempotent.StaleEvidenceError{RecordID: id}, ""},
		{&idempotent.InvalidKeyError{Field: "Fingerprint", Problem: "cannot be computed", Err: secret}, "invalid Fingerprint: cannot be computed"},
		{&idempotent.StepError{Step: "ship", Problem: "the result cannot be recorded", Err: secret}, `step "ship": the result cannot be recorded`},
	} {
		safe, ok := c.err.(slog.LogValuer)
		if !ok {
			t.Errorf("%T has no text for logs", c.err)
			continue
		}
		want := c.want
		if want == "" {
			want = c.err.Error()
		}
		if got := safe.LogValue().String(); !strings.Contains(got, want) || strings.Contains(got, "secret") {
			t.Errorf("%T: got %q, want %q in it", c.err, got, want)
		}
	}
	for _, err := range []error{
		idempotent.Final("declined", "secret"), idempotent.NotExecuted(secret), idempotent.Unknown(secret), fmt.Errorf("%w", secret),
	} {
		if _, shown := err.(slog.LogValuer); shown {
			t.Errorf("a log shows the text of %T", err)
		}
	}
}
