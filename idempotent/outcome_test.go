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

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// A declaration in the error of an inner guarded call does not apply to the
// operation around it: the inner NotExecuted is not about the outer handler's own
// effects.
func TestInnerErrorsDeclareNothing(t *testing.T) {
	t.Parallel()
	for name, declared := range map[string]error{
		"NotExecuted": idempotent.NotExecuted(errDown),
		"Final":       idempotent.Final("declined", ""),
		"Unknown":     idempotent.Unknown(errDown),
	} {
		for _, recovery := range []idempotent.Recovery{idempotent.Reconcile, idempotent.Rerun} {
			w := newOldFixture()
			g := w.guard(t, func(o *idempotent.Options) { o.Recovery = recovery })
			inner := newKey()
			h := func(context.Context, string) (string, error) { return "", declared }
			for call, outer := range map[string]func(context.Context) (string, error){
				"Do":   func(ctx context.Context) (string, error) { return idempotent.Do(ctx, g, inner, returns(declared)) },
				"Wrap": func(ctx context.Context) (string, error) { return idempotent.Wrap(g, keyOf(inner, nil), h)(ctx, "x") },
				"the KeyFunc of Wrap": func(ctx context.Context) (string, error) {
					return idempotent.Wrap(g, keyOf(inner, declared), h)(ctx, "x")
				},
			} {
				w.key, inner = newKey(), newKey()
				_, err := w.do(t, g, outer)
				want := driver.StateUnknown
				if recovery == idempotent.Rerun {
					want = driver.StateRetryable
				}
				if r := w.record(t); r.State != want || r.Reason != driver.ReasonHandlerError {
					t.Errorf("inner %s of %s under %s: the outer record is %s (%s), want %s", name, call, recovery, r.State, r.Reason, want)
				}
				// The outermost caller gets the bare error, because Lambda reports its type.
				if fmt.Sprintf("%T", err) != fmt.Sprintf("%T", declared) || !errors.Is(err, declared) {
					t.Errorf("inner %s of %s: the caller gets a %T", name, call, err)
				}
			}
		}
	}
}

// keyOf returns a KeyFunc that returns key and err.
func keyOf(key idempotent.Key, err error) idempotent.KeyFunc[string] {
	return func(context.Context, string) (idempotent.Key, error) { return key, err }
}

// Inside the outer handler the inner error can be examined as usual.
func TestInnerErrorsCanBeExamined(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	_, _ = idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (string, error) {
		_, err := idempotent.Do(ctx, g, newKey(), func(context.Context) (string, error) { return "", idempotent.Final("declined", "no funds") })
		var final *idempotent.FinalError
		if !errors.As(err, &final) || final.Code != "declined" || err.Error() != "declined: no funds" {
			t.Errorf("the inner call returned %v", err)
		}
		key := newKey()
		key.Fingerprint = idempotent.FingerprintBytes([]byte("first"))
		_, _ = idempotent.Do(ctx, g, key, charged)
		key.Fingerprint = idempotent.FingerprintBytes([]byte("second"))
		if _, err := idempotent.Do(ctx, g, key, charged); !errors.As(err, new(*idempotent.MismatchError)) {
			t.Errorf("the guard's own error: %v", err)
		}
		return "", nil
	})
}

// The log names an ignored declaration and what to return instead, once per guard
// and kind, and never contains the error's text.
func TestIgnoredDeclarationsAreLogged(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("%w: sold out", idempotent.ErrNotApplied)
	for _, row := range []struct {
		name     string
		recovery idempotent.Recovery
		handler  func(context.Context) (string, error)
		says     string // empty: nothing is logged
	}{
		{"wrapped", idempotent.Rerun, returns(fmt.Errorf("secret: %w", idempotent.NotExecuted(errDown))), "counts only as the outermost error"},
		{"joined", idempotent.Rerun, returns(errors.Join(errDown, idempotent.NotExecuted(errDown))), "counts only as the outermost error"},
		{"after a step", idempotent.Rerun, func(ctx context.Context) (string, error) {
			_, _ = idempotent.Step(ctx, "s", charged)
			return "", idempotent.NotExecuted(errDown)
		}, "before any step has begun"},
		{"of an inner operation", idempotent.Rerun, func(ctx context.Context) (string, error) {
			e, _ := idempotent.FromContext(ctx)
			g, err := idempotent.New(e.Store(), func(o *idempotent.Options) { o.Logger = quiet })
			if err != nil {
				t.Error(err)
			}
			return idempotent.Do(ctx, g, newKey(), returns(idempotent.NotExecuted(errDown)))
		}, "the outermost error of the handler itself"},
		{"of a step", idempotent.Rerun, func(ctx context.Context) (string, error) {
			return idempotent.Step(ctx, "s", returns(idempotent.NotExecuted(errDown)))
		}, "return idempotent.NotExecuted(err)"},
		{"no declaration", idempotent.Reconcile, returns(errDown), "left its record unknown"},
		{"a refused transaction", idempotent.Reconcile, returns(refused), "declare Rerun, or return idempotent.NotExecuted(err)"},
		{"a refused transaction under Rerun", idempotent.Rerun, returns(refused), ""},
		{"declared", idempotent.Reconcile, returns(idempotent.NotExecuted(refused)), ""},
		{"no declaration under Rerun", idempotent.Rerun, returns(errDown), ""},
	} {
		var log bytes.Buffer
		w := newOldFixture()
		g := w.guard(t, func(o *idempotent.Options) {
			o.Recovery, o.Logger = row.recovery, slog.New(slog.NewTextHandler(&log, nil))
		})
		for range 2 {
			w.key = newKey()
			_, _ = w.do(t, g, row.handler)
		}
		text := log.String()
		if lines := strings.Count(text, "\n"); (row.says == "") != (lines == 0) || lines > 1 || !strings.Contains(text, row.says) || strings.Contains(text, "secret") {
			t.Errorf("%s: logged %q, want one line that contains %q", row.name, text, row.says)
		}
	}
}

// A disabled guard logs that once.
func TestDisabledIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	g, _ := newGuard(t, func(o *idempotent.Options) { o.Disabled, o.Logger = true, slog.New(slog.NewTextHandler(&log, nil)) })
	for range 2 {
		if _, err := idempotent.Do(t.Context(), g, newKey(), charged); err != nil {
			t.Fatal(err)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "Options.Disabled") {
			t.Errorf("logged %q", text)
		}
	}
}

// A nil guard panics with a message that says what to do.
func TestNilGuard(t *testing.T) {
	t.Parallel()
	var g *idempotent.Guard
	for name, use := range map[string]func(){
		"Do":               func() { _, _ = idempotent.Do(t.Context(), g, newKey(), charged) },
		"With":             func() { _, _ = g.With() },
		"Resolve":          func() { _ = g.Resolve(t.Context(), newKey().RecordID(), idempotent.Resolved(1)) },
		"Pending":          func() { _ = g.Pending(driver.Record{}) },
		"StoredOutcome":    func() { _, _, _ = g.StoredOutcome(t.Context(), driver.Record{}) },
		"Forget":           func() { _ = g.Forget(t.Context(), newKey().RecordID(), idempotent.ForgetRequest{}) },
		"Requeue":          func() { _ = g.Requeue(t.Context(), newKey().RecordID()) },
		"RequeueExhausted": func() { _, _ = g.RequeueExhausted(t.Context()) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, name+": the guard is nil; create one with New") {
					t.Errorf("%s: panicked with %q", name, text)
				}
			}()
			use()
		}()
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
		if got := idempotent.IsNotExecuted(row.err); got != row.notExecuted {
			t.Errorf("%s: IsNotExecuted returned %t", name, got)
		}
		if got := idempotent.IsUnknown(row.err); got != row.unknown {
			t.Errorf("%s: IsUnknown returned %t", name, got)
		}
		if got, ok := idempotent.AsFinal(row.err); ok != row.final || ok && got != final {
			t.Errorf("%s: AsFinal returned %v, %t", name, got, ok)
		}
	}
}
