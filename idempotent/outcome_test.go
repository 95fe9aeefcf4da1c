// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"bytes"
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

// A declaration in the error of an inner guarded call does not apply to the
// operation around it: the inner NotExecuted is not about the outer handler's own
// effects. Inside the outer handler it can be examined as usual.
func TestInnerErrorsDeclareNothing(t *testing.T) {
	t.Parallel()
	for recovery, want := range map[idempotent.Recovery]driver.State{idempotent.Reconcile: driver.StateUnknown, idempotent.Rerun: driver.StateRetryable} {
		for _, declared := range []error{idempotent.NotExecuted(errDown), idempotent.Final("declined", "no funds"), idempotent.Unknown(errDown)} {
			for call, inner := range map[string]func(*idempotent.Guard) handlerFunc{
				"Do": func(g *idempotent.Guard) handlerFunc {
					return func(ctx context.Context) (string, error) { return idempotent.Do(ctx, g, newKey(), returns(declared)) }
				},
				"Wrap":                wrapped(newKey(), nil, declared),
				"the KeyFunc of Wrap": wrapped(newKey(), declared, nil),
			} {
				f := newFixture(t, func(o *idempotent.Options) { o.Recovery = recovery })
				_, err := f.do(func(ctx context.Context) (string, error) {
					v, err := inner(f.guard)(ctx)
					if final := new(idempotent.FinalError); err.Error() != declared.Error() || errors.As(declared, &final) && !errors.As(err, &final) {
						t.Errorf("%T of %s: the inner call returned %v", declared, call, err)
					}
					return v, err
				})
				if r := f.record(); r.State != want || r.Reason != driver.ReasonHandlerError {
					t.Errorf("%T of %s under %s: the outer record is %s (%s), want %s", declared, call, recovery, r.State, r.Reason, want)
				}
				// The outermost caller gets the bare error, because Lambda reports its type.
				if fmt.Sprintf("%T", err) != fmt.Sprintf("%T", declared) || !errors.Is(err, declared) {
					t.Errorf("%T of %s: the caller gets a %T", declared, call, err)
				}
			}
		}
	}
}

// wrapped returns a handler that Wrap returns, whose KeyFunc and whose function return
// these errors.
func wrapped(key idempotent.Key, keyErr, err error) func(*idempotent.Guard) handlerFunc {
	return func(g *idempotent.Guard) handlerFunc {
		h := idempotent.Wrap(g, func(context.Context, string) (idempotent.Key, error) { return key, keyErr }, func(context.Context, string) (string, error) { return "", err })
		return func(ctx context.Context) (string, error) { return h(ctx, "x") }
	}
}

// The log names an ignored declaration, or that none was made, and what to return instead,
// once per guard and kind, and never contains the error's text.
func TestIgnoredDeclarationsAreLogged(t *testing.T) {
	t.Parallel()
	inner := func(ctx context.Context) (string, error) {
		e, _ := idempotent.FromContext(ctx)
		g, err := idempotent.New(e.Store(), func(o *idempotent.Options) { o.Logger = quiet })
		return idempotent.Do(ctx, g, newKey(), returns(errors.Join(err, idempotent.NotExecuted(errDown))))
	}
	commitsAnotherType := func(ctx context.Context) (string, error) {
		e, _ := idempotent.FromContext(ctx)
		return "", e.Commit(ctx, []string{"secret"}, e.Store().Replace)
	}
	const reconcile, reruns = idempotent.Reconcile, idempotent.Rerun
	none := idempotent.NotExecuted(errDown)
	for name, row := range map[string]struct {
		recovery idempotent.Recovery
		handler  handlerFunc
		says     string // empty: nothing is logged
	}{
		"wrapped":                            {reruns, returns(fmt.Errorf("secret: %w", none)), "counts only as the outermost error"},
		"joined":                             {reruns, returns(errors.Join(errDown, none)), "counts only as the outermost error"},
		"after a step":                       {reruns, stepping(nil, instead(none)), "before any step has begun"},
		"of an inner operation":              {reruns, inner, "the outermost error of the handler itself"},
		"of a step":                          {reruns, stepping(none, same), "return idempotent.NotExecuted(err)"},
		"no declaration":                     {reconcile, returns(errors.New("secret")), "left its record unknown"},
		"a refused transaction":              {reconcile, refused(same), "declare Rerun, or return idempotent.NotExecuted(err)"},
		"a refused transaction under Rerun":  {reruns, refused(same), ""},
		"a Commit of another type":           {reconcile, commitsAnotherType, `error="Commit got a []string, and the handler's result is a string`},
		"a refused transaction, declared":    {reconcile, refused(idempotent.NotExecuted), ""},
		"declared":                           {reconcile, returns(none), ""},
		"declared Unknown":                   {reconcile, returns(idempotent.Unknown(errDown)), ""},
		"no declaration, which Rerun allows": {reruns, returns(errDown), ""},
	} {
		var log bytes.Buffer
		f := newFixture(t, func(o *idempotent.Options) {
			o.Recovery, o.Logger = row.recovery, slog.New(slog.NewTextHandler(&log, nil))
		})
		for range 2 {
			f.key = newKey()
			_, _ = f.do(row.handler)
		}
		text := log.String()
		if lines := strings.Count(text, "\n"); (row.says == "") != (lines == 0) || lines > 1 || !strings.Contains(text, row.says) || strings.Contains(text, "secret") {
			t.Errorf("%s: logged %q, want one line that contains %q", name, text, row.says)
		}
		if name == "no declaration" && (!strings.Contains(text, "operation=charge") || !strings.Contains(text, "*errors.errorString") || !strings.Contains(text, "NotExecuted")) {
			t.Errorf("logged %q", text)
		}
	}
}

// The functions that examine a handler's error agree with what the guard stores
// for it.
func TestDeclarationOfAnError(t *testing.T) {
	t.Parallel()
	final := idempotent.Final("declined", "")
	for name, row := range map[string]struct {
		err                         error
		notExecuted, unknown, final bool
	}{
		"nil":                         {nil, false, false, false},
		"plain":                       {errDown, false, false, false},
		"NotExecuted":                 {idempotent.NotExecuted(errDown), true, false, false},
		"NotExecuted, wrapped":        {fmt.Errorf("w: %w", idempotent.NotExecuted(errDown)), false, false, false},
		"NotExecuted around Unknown":  {idempotent.NotExecuted(idempotent.Unknown(errDown)), false, true, false},
		"NotExecuted around Final":    {idempotent.NotExecuted(final), true, false, false},
		"Unknown":                     {idempotent.Unknown(errDown), false, true, false},
		"Unknown, joined":             {errors.Join(errDown, idempotent.Unknown(errDown)), false, true, false},
		"Unknown around Final":        {idempotent.Unknown(final), false, true, false},
		"Final":                       {final, false, false, true},
		"Final, wrapped":              {fmt.Errorf("w: %w", final), false, false, true},
		"Final, joined":               {errors.Join(final, errDown), false, false, false},
		"a nil pointer to FinalError": {(*idempotent.FinalError)(nil), false, false, false},
	} {
		got, isFinal := idempotent.AsFinal(row.err)
		if isFinal && got != final || isFinal != row.final || idempotent.IsNotExecuted(row.err) != row.notExecuted || idempotent.IsUnknown(row.err) != row.unknown {
			t.Errorf("%s: IsNotExecuted returned %t, IsUnknown %t, AsFinal %v, %t", name, idempotent.IsNotExecuted(row.err), idempotent.IsUnknown(row.err), got, isFinal)
		}
	}
}

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
		{&idempotent.SettledError{RecordID: "charge#AAAAAAAAAAAAAAAA", State: driver.StateCompleted}, "idempotent: charge#AAAAAAAAAAAA: the record is already completed with another outcome; if that one is wrong, correct it with InsteadOf (once resolve --instead-of), or discard it with Forget (once forget)"},
		{&idempotent.UnresolvedError{RecordID: "charge#AAAA"}, "idempotent: charge#AAAA: the outcome of an earlier request is unknown; the key does not run again until evidence settles the outcome"},
		{&idempotent.LeaseLostError{RecordID: "charge#AAAA"}, "idempotent: charge#AAAA: this run no longer owns the record: it was taken over, settled by another party, or removed; this result is not stored"},
		{&idempotent.ReplayUnavailableError{RecordID: "charge#AAAA", Reason: "it is gone"}, "idempotent: charge#AAAA: the request is completed, but its result cannot be replayed: it is gone"},
		{&idempotent.ReplayUnavailableError{RecordID: "charge#AAAA", Reason: "it is old", Uncompared: true}, "idempotent: charge#AAAA: the key was used before, and its record cannot be compared with this request: it is old"},
		{&idempotent.SettledError{RecordID: "charge#AAAA", Step: "pay"}, `idempotent: charge#AAAA: step "pay" already has another recorded result; if that one is wrong, correct it with CorrectedStep (once resolve --correct-step)`},
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
			"idempotent: #: a request with this key is in progress; retry after 1.5s; its lease ends at 2040-01-02T02:04:05Z"},
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
