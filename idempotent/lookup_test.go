// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// Lookup returns what Do would have met: the outcome, or the error that says why
// it is missing. It reads the record once, and neither writes nor reports anything.
func TestLookup(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	store := watchOver(s.Store)
	g, events := newGuardOver(t, store, func(o *idempotent.Options) { o.Now = s.clock.Now })
	do := func(key idempotent.Key, h func(context.Context) (string, error), optFns ...func(*idempotent.Options)) {
		_, _ = idempotent.Do(s.clock.Invocation(t.Context(), 10*time.Second), s.guard, key, h, optFns...) // the record shows what happened
	}
	rerun := func(o *idempotent.Options) { o.Recovery = idempotent.Rerun }
	failing := func(context.Context) (string, error) { return "", errDown }

	done, final, freed, unknown, late, other := newKey(), newKey(), newKey(), newKey(), newKey(), newKey()
	do(done, func(ctx context.Context) (string, error) {
		e, _ := idempotent.FromContext(ctx)
		return "ch_1", e.SetRef("orders/1")
	})
	do(final, func(context.Context) (string, error) {
		return "", idempotent.Final("declined", "The card was declined.")
	})
	do(freed, failing, rerun)
	do(unknown, failing)
	running := s.leave(t, atOnce)
	do(late, failing, func(o *idempotent.Options) { o.Retention = time.Minute; o.Recovery = idempotent.Rerun })
	other.ID, other.Fingerprint = done.ID, idempotent.FingerprintBytes([]byte("another request"))
	unbound := done
	unbound.Fingerprint = idempotent.Fingerprint{}

	out, err := idempotent.Lookup[string](t.Context(), g, done)
	want := idempotent.Outcome[string]{Value: "ch_1", RecordID: done.RecordID(), Replayed: true, Stored: true, Expires: record(t, s, done).Expires, Ref: "orders/1"}
	if err != nil || out != want {
		t.Errorf("completed: got %+v, %v, want %+v", out, err, want)
	}
	if out, err := idempotent.Lookup[string](t.Context(), g, unbound); err != nil || out != want {
		t.Errorf("without a fingerprint: got %+v, %v", out, err)
	}
	out, err = idempotent.Lookup[string](t.Context(), g, final)
	if e := (*idempotent.FinalError)(nil); !errors.As(err, &e) || e.Code != "declined" || !out.Stored || !out.Replayed {
		t.Errorf("final: got %+v, %v", out, err)
	}
	is := func(target any) func(error) bool { return func(err error) bool { return errors.As(err, target) } }
	missing := func(err error) bool { return errors.Is(err, idempotent.ErrNoRecord) }
	check := func(name string, key idempotent.Key, want func(error) bool) {
		t.Helper()
		if out, err := idempotent.Lookup[string](t.Context(), g, key); err == nil || !want(err) || out != (idempotent.Outcome[string]{RecordID: key.RecordID()}) {
			t.Errorf("%s: got %+v, error %v", name, out, err)
		}
	}
	store.calls = nil
	check("new", newKey(), missing)
	check("retryable", freed, is(new(*idempotent.RetryableError)))
	check("unknown", unknown, is(new(*idempotent.UnresolvedError)))
	check("running", running, is(new(*idempotent.InProgressError)))
	check("another payload", other, is(new(*idempotent.MismatchError)))
	if got, want := strings.Join(store.calls, " "), "get get get get get"; got != want {
		t.Errorf("calls %s, want %s", got, want)
	}
	s.clock.Advance(time.Hour)
	check("its lease has ended", running, is(new(*idempotent.UnresolvedError)))
	check("its retention has ended", late, missing)
	if r := record(t, s, running); r.State != driver.StateInProgress {
		t.Errorf("Lookup changed a record to %s", r.State)
	}
	if kinds := events.Kinds(); len(kinds) != 0 {
		t.Errorf("events %s", kinds)
	}
}

// Lookup decodes with the options of the operation: a sealed result, one of another
// version, one that was omitted, and one that is stored beside its record.
func TestLookupDecodes(t *testing.T) {
	t.Parallel()
	store := newChunked()
	g, _ := newGuardOver(t, store)
	key := newKey()
	versioned := func(o *idempotent.Options) { o.ResultVersion = "2" }
	large := letters(100_000)
	plain := func(o *idempotent.Options) { o.Codec = plainText{} }
	if _, err := idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return large, nil }, versioned, plain); err != nil {
		t.Fatal(err)
	}
	if out, err := idempotent.Lookup[string](t.Context(), g, key, versioned, plain); err != nil || out.Value != large || len(store.chunks) == 0 {
		t.Errorf("got %d bytes of %d chunks, error %v", len(out.Value), len(store.chunks), err)
	}
	for name, optFns := range map[string][]func(*idempotent.Options){"another version": {plain}, "another codec": {versioned}} {
		if out, err := idempotent.Lookup[string](t.Context(), g, key, optFns...); !errors.As(err, new(*idempotent.ReplayUnavailableError)) || out.Stored {
			t.Errorf("%s: got %+v, error %v", name, out, err)
		}
	}
	clear(store.chunks)
	if out, err := idempotent.Lookup[string](t.Context(), g, key, versioned, plain); err == nil || !strings.Contains(err.Error(), "a chunk of the stored result is missing") || out.Stored || out.Value != "" {
		t.Errorf("without the chunks: got %d bytes, stored %v, error %v", len(out.Value), out.Stored, err)
	}
}

// plainText stores a string as it is.
type plainText struct{}

func (plainText) Name() string                    { return "text" }
func (plainText) Encode(v any) ([]byte, error)    { return []byte(v.(string)), nil }
func (plainText) Decode(data []byte, v any) error { *v.(*string) = string(data); return nil }

// Lookup refuses an invalid key, option and record, and reports a store that fails.
func TestLookupRefuses(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	noID, noScope := newKey(), newKey()
	noID.ID, noScope.Scope = "", ""
	if _, err := idempotent.Lookup[string](t.Context(), g, noID); !errors.As(err, new(*idempotent.NoKeyError)) {
		t.Errorf("no id: got error %v", err)
	}
	if _, err := idempotent.Lookup[string](t.Context(), g, noScope); !errors.As(err, new(*idempotent.InvalidKeyError)) {
		t.Errorf("no scope: got error %v", err)
	}
	if _, err := idempotent.Lookup[string](t.Context(), g, newKey(), func(o *idempotent.Options) { o.Retention = -1 }); err == nil || !strings.Contains(err.Error(), "Retention") {
		t.Errorf("an invalid option: got error %v", err)
	}
	broken := watch()
	g, events := newGuardOver(t, broken)
	broken.get = func() (*driver.Record, error) { return nil, errDown }
	if _, err := idempotent.Lookup[string](t.Context(), g, newKey()); !errors.As(err, new(*idempotent.StoreError)) || events.Count(event.StoreError) != 1 {
		t.Errorf("the store is down: got error %v, events %s", err, events.Kinds())
	}
	key := newKey()
	broken.get = func() (*driver.Record, error) {
		return &driver.Record{ID: key.RecordID(), State: 9}, nil
	}
	key.Fingerprint = idempotent.Fingerprint{}
	if _, err := idempotent.Lookup[string](t.Context(), g, key); !errors.As(err, new(*idempotent.StoreError)) {
		t.Errorf("an unknown state: got error %v", err)
	}
}
