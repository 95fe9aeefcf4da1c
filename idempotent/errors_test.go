// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

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

// The texts of errors say what to do, and each error unwraps to its cause.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for _, row := range []struct {
		err  error
		want string
	}{
		{idempotent.NotExecuted(cause), "cause"},
		{idempotent.NotExecuted(nil), "idempotent: not executed"},
		{idempotent.Unknown(cause), "cause"},
		{idempotent.Unknown(nil), "idempotent: outcome unknown"},
		{idempotent.Final("declined", "no funds"), "declined: no funds"},
		{&idempotent.SettledError{RecordID: "charge#AAAAAAAAAAAAAAAA", State: driver.StateCompleted}, "idempotent: charge#AAAAAAAAAAAA: the record is already completed with another outcome; if that one is wrong, correct it with InsteadOf (once resolve --instead-of)"},
		{&idempotent.UnresolvedError{RecordID: "charge#AAAA"}, "idempotent: charge#AAAA: the outcome of an earlier request is unknown; the key does not run again until evidence settles the outcome"},
		{&idempotent.LeaseLostError{RecordID: "charge#AAAA"}, "idempotent: charge#AAAA: this run no longer owns the record: it was taken over, settled by another party, or removed; this result is not stored"},
		{&idempotent.ReplayUnavailableError{RecordID: "charge#AAAA", Reason: "it is gone"}, "idempotent: charge#AAAA: the request is completed, but its result cannot be replayed: it is gone"},
		{&idempotent.ReplayUnavailableError{RecordID: "charge#AAAA", Reason: "it is old", Uncompared: true}, "idempotent: charge#AAAA: the key was used before, and its record cannot be compared with this request: it is old"},
		{&idempotent.SettledError{RecordID: "charge#AAAA", Step: "pay"}, `idempotent: charge#AAAA: step "pay" already has another recorded result; use CorrectedStep if that result is wrong`},
		{&idempotent.InvalidKeyError{Field: "Scope", Problem: "is empty"}, "idempotent: invalid Scope: is empty"},
		{&idempotent.InvalidKeyError{Field: "Fingerprint", Problem: "cannot be computed", Err: cause}, "idempotent: invalid Fingerprint: cannot be computed: cause"},
		{&idempotent.NoTimeError{Remaining: -time.Second, Err: context.Canceled}, "idempotent: the handler was not executed: -1s left before the deadline (context canceled); a retry is safe"},
		{&idempotent.MismatchError{RecordID: "charge#AAAA"}, "idempotent: charge#AAAA: the key was used for a different request; send a new key, or repeat the first request unchanged"},
		{&idempotent.StoreError{RecordID: "charge#AAAA", Op: driver.OpInsert, Err: cause}, "idempotent: charge#AAAA: store: insert failed: cause; nothing was executed, and a retry is safe"},
		{&idempotent.StoreError{RecordID: "charge#AAAA", Op: driver.OpOpen, Err: cause}, "idempotent: charge#AAAA: Operation.Seal: open failed: cause; nothing was executed, and a retry is safe"},
		{&idempotent.StoreError{RecordID: "charge#AAAA", Op: driver.OpSeal, Err: cause, Entered: true}, "idempotent: charge#AAAA: Operation.Seal: seal failed: cause; the handler was entered, and its outcome may not be stored"},
		{&idempotent.StoreError{Op: driver.OpListDue, Err: cause}, "idempotent: store: list_due failed: cause"},
		{&idempotent.StepError{Step: "ship", Problem: "it was not declared"}, `idempotent: step "ship": it was not declared`},
		{&idempotent.StepError{Step: "ship", Problem: "the result cannot be recorded", Err: cause}, `idempotent: step "ship": the result cannot be recorded: cause`},
		{&idempotent.InProgressError{RecordID: "x", RetryAfter: 1_500_400 * time.Microsecond, Until: time.Date(2040, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))},
			"idempotent: #: another request with this key is in progress; retry after 1.5s; its lease ends at 2040-01-02T02:04:05Z"},
	} {
		if got := row.err.Error(); got != row.want {
			t.Errorf("got %q, want %q", got, row.want)
		}
	}
	for _, err := range []error{idempotent.NotExecuted(cause), idempotent.Unknown(cause), &idempotent.StoreError{Err: cause}, &idempotent.LeaseLostError{Err: cause}, &idempotent.NoTimeError{Err: cause}, &idempotent.InvalidKeyError{Err: cause}} {
		if !errors.Is(err, cause) {
			t.Errorf("%T does not unwrap to its cause", err)
		}
	}
}
