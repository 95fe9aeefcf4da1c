// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
)

// wrong returns the request to discard the outcome of the attempt with that token.
func wrong(token string) idempotent.ForgetRequest {
	return idempotent.ForgetRequest{Token: token, Actor: "mia@desk", Reason: "ch_1 belongs to another order"}
}

// complete leaves a completed record whose lease has ended, with that result.
func (s *stranded) complete(t *testing.T, result string) (key idempotent.Key, token string) {
	t.Helper()
	key = newKey()
	if _, err := idempotent.Do(s.clock.Invocation(t.Context(), 10*time.Second), s.guard, key, func(ctx context.Context) (string, error) {
		if e, ok := idempotent.FromContext(ctx); ok {
			e.SetRef("orders/1")
		}
		return result, nil
	}); err != nil {
		t.Fatal(err)
	}
	s.clock.Advance(time.Minute)
	return key, record(t, s, key).Token()
}

// Forget leaves nothing of the outcome, and the next request runs as the next
// attempt. What is left expires like any settled record.
func TestForget(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	key, token := s.complete(t, "wrong")
	if err := s.guard.Forget(t.Context(), key.RecordID(), wrong(token)); err != nil {
		t.Fatal(err)
	}
	r := record(t, s, key)
	if r.State != driver.StateRetryable || r.Reason != driver.ReasonForgotten || r.Result != nil || r.Encoding != "" || r.Ref != "" || !r.Due.IsZero() || r.Since.Before(r.LeaseEnd) {
		t.Errorf("the record is %+v", r)
	}
	if want := s.clock.Now().Add(24 * time.Hour); r.Expires.Before(want.Add(-time.Minute)) || r.Expires.After(want) {
		t.Errorf("it expires at %s, want about %s", r.Expires, want)
	}
	out, err := idempotent.DoOutcome(s.clock.Invocation(t.Context(), 10*time.Second), s.guard, key, func(context.Context) (string, error) { return "right", nil })
	if err != nil || out.Value != "right" || out.Replayed || record(t, s, key).Attempt != 2 {
		t.Errorf("the next request got %+v, %v", out, err)
	}
	if n := s.events.Count(event.Forgotten); n != 1 {
		t.Errorf("events %s", s.events.Kinds())
	}
}

// The event says who discarded the outcome and why. A request that does not say so,
// or says too much, changes nothing.
func TestForgetStatesActorAndReason(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	key, token := s.complete(t, "wrong")
	var seen []event.Event
	g, _ := newGuardOver(t, s.Store, func(o *idempotent.Options) {
		o.Now = s.clock.Now
		o.Observer = event.ObserverFunc(func(_ context.Context, e event.Event) { seen = append(seen, e) })
	})
	for name, c := range map[string]struct {
		change func(*idempotent.ForgetRequest)
		want   string
	}{
		"no actor":     {func(r *idempotent.ForgetRequest) { r.Actor = "" }, "missing Actor: state who"},
		"no reason":    {func(r *idempotent.ForgetRequest) { r.Reason = " \n" }, "missing Reason: state how"},
		"long actor":   {func(r *idempotent.ForgetRequest) { r.Actor = strings.Repeat("a", 1025) }, "invalid Actor: want at most 1024 bytes"},
		"broken UTF-8": {func(r *idempotent.ForgetRequest) { r.Reason = "\xff" }, "invalid Reason: want"},
	} {
		r := wrong(token)
		c.change(&r)
		if err := g.Forget(t.Context(), key.RecordID(), r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
	if r := record(t, s, key); r.State != driver.StateCompleted || len(seen) != 0 {
		t.Fatalf("the record is %s, events %v", r.State, seen)
	}
	longest := wrong(token)
	longest.Reason = strings.Repeat("r", 1024)
	if err := g.Forget(t.Context(), key.RecordID(), longest); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 1 || seen[0].Kind != event.Forgotten || seen[0].Actor != longest.Actor || seen[0].Note != longest.Reason || seen[0].Reason != driver.ReasonForgotten {
		t.Errorf("events %+v", seen)
	}
}

// The pieces of a large result are no longer named, and expire by themselves.
func TestForgetLargeResult(t *testing.T) {
	t.Parallel()
	store, key := newChunked(), newKey()
	g, _ := newGuardOver(t, store)
	var text strings.Builder // that cannot be compressed
	for text.Len() < 3*pieceSize {
		text.WriteString(rand.Text())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := idempotent.Do(ctx, g, key, func(context.Context) (string, error) { return text.String(), nil }); err != nil {
		t.Fatal(err)
	}
	r := record(t, store, key)
	if r.Chunks.Count == 0 {
		t.Fatal("the result is in the record")
	}
	later, _ := newGuardOver(t, store, func(o *idempotent.Options) { o.Now = func() time.Time { return time.Now().Add(time.Hour) } })
	if err := later.Forget(ctx, key.RecordID(), wrong(r.Token())); err != nil {
		t.Fatal(err)
	}
	if r := record(t, store, key); r.Chunks != (driver.Chunks{}) {
		t.Errorf("the record names %+v", r.Chunks)
	}
}

// An outcome that is stored after Forget gets another write id: the one of the
// discarded outcome was used, although its owner never learned it.
func TestForgetThenTheLostOutcome(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	key := newKey()
	var first driver.Version
	store := answering(s.Store, driver.OpReplace, func(r driver.Record) (*driver.Record, error) {
		if r.State != driver.StateCompleted || first != (driver.Version{}) {
			return nil, nil
		}
		first = r.Version
		if met, err := s.Store.Replace(t.Context(), r, record(t, s, key).Version); met != nil || err != nil {
			t.Fatal(met, err)
		}
		s.clock.Advance(time.Hour) // the reply is lost, and the SDK sends it again
		if err := s.guard.Forget(t.Context(), key.RecordID(), wrong(r.Token())); err != nil {
			t.Fatal(err)
		}
		return nil, nil
	})
	g, events := newGuardOver(t, store, func(o *idempotent.Options) { o.Now = s.clock.Now })
	if _, err := idempotent.Do(s.clock.Invocation(t.Context(), 10*time.Second), g, key, func(context.Context) (string, error) { return "late", nil }); err != nil {
		t.Fatal(err)
	}
	if r := record(t, s, key); r.State != driver.StateCompleted || r.Version == first {
		t.Errorf("the record is %s, with a new write id: %t", r.State, r.Version != first)
	}
	if n := events.Count(event.Contradicted); n != 1 {
		t.Errorf("events %s", events.Kinds())
	}
}

// A discarded outcome of the predecessor does not come back: the predecessor is not
// asked again while the record exists, whatever becomes of the runs after Forget.
func TestForgetOutcomeOfPredecessor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result any
		err    error
		seal   idempotent.Sealer
		late   bool // the record is marked unknown while the predecessor is asked
	}{
		"a value":                     {result: "wrong"},
		"a final error":               {err: idempotent.Final("declined", "The card was declined.")},
		"a result that is not stored": {result: "wrong", seal: sealedSize(-1)},
		"an answer after the lease":   {result: "wrong", late: true},
	} {
		s := newStranded(t)
		key := newKey()
		questions := 0
		do := func(fn func(context.Context) (string, error), seal idempotent.Sealer) (string, error) {
			return idempotent.Do(s.clock.Invocation(t.Context(), 10*time.Second), s.guard, key, fn, asked(func(ctx context.Context, _ idempotent.Key) (any, bool, error) {
				if questions++; c.late {
					s.clock.Advance(time.Minute)
					if _, err := idempotent.Do(t.Context(), s.guard, key, forbidden(t)); !errors.As(err, new(*idempotent.UnresolvedError)) {
						t.Errorf("%s: another request got error %v", name, err)
					}
				}
				return c.result, true, c.err
			}), func(o *idempotent.Options) { o.Seal = seal })
		}
		_, _ = do(forbidden(t), c.seal)
		s.clock.Advance(time.Minute)
		if err := s.guard.Forget(t.Context(), key.RecordID(), wrong(record(t, s, key).Token())); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, want := range []struct {
			value string
			err   error
		}{{"", idempotent.NotExecuted(errDown)}, {"", idempotent.Unknown(errDown)}, {"right", nil}} {
			if r := record(t, s, key); r.State == driver.StateUnknown {
				s.clock.Advance(time.Minute)
				if err := s.guard.Resolve(t.Context(), key.RecordID(), idempotent.ProvenNotExecuted(r.Token())); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			ran := false
			got, err := do(func(context.Context) (string, error) { ran = true; return want.value, want.err }, nil)
			if !ran || got != want.value || !errors.Is(err, want.err) {
				t.Errorf("%s: run %d: the handler ran: %t; got %q, %v", name, i+1, ran, got, err)
			}
		}
		if questions != 1 {
			t.Errorf("%s: the predecessor was asked %d times", name, questions)
		}
		s.clock.Advance(25 * time.Hour)
		if _, _ = do(forbidden(t), nil); questions != 2 {
			t.Errorf("%s: after the record expired, the predecessor was asked %d times", name, questions)
		}
	}
}

// A record without an outcome of that attempt is refused.
func TestForgetRefused(t *testing.T) {
	t.Parallel()
	s := newStranded(t)
	done, token := s.complete(t, "done")
	unknown := s.unknowns(t, 1)
	running := s.leave(t, atOnce)
	fresh := newKey()
	if _, err := idempotent.Do(s.clock.Invocation(t.Context(), 10*time.Second), s.guard, fresh, charged); err != nil {
		t.Fatal(err)
	}
	old := s.clock.Now()
	for name, c := range map[string]struct {
		id    idempotent.RecordID
		token string
		want  func(error) bool
	}{
		"no id":     {"charge", token, func(err error) bool { return strings.Contains(err.Error(), "RecordID") }},
		"no record": {newKey().RecordID(), token, func(err error) bool { return errors.Is(err, idempotent.ErrNoRecord) }},
		"no token":  {done.RecordID(), "", func(err error) bool { return errors.As(err, new(*idempotent.StaleEvidenceError)) }},
		"running":   {running.RecordID(), record(t, s, running).Token(), func(err error) bool { return errors.As(err, new(*idempotent.InProgressError)) }},
		"its lease": {fresh.RecordID(), record(t, s, fresh).Token(), func(err error) bool {
			return errors.As(err, new(*idempotent.InProgressError)) && strings.Contains(err.Error(), "its handler may still be running; retry after 1")
		}},
		"unknown": {unknown.RecordID(), record(t, s, unknown).Token(), func(err error) bool { return strings.Contains(err.Error(), "is unknown and has no stored outcome") }},
	} {
		if err := s.guard.Forget(t.Context(), c.id, wrong(c.token)); err == nil || !c.want(err) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
	s.clock.Advance(25 * time.Hour)
	if err := s.guard.Forget(t.Context(), done.RecordID(), wrong(token)); !errors.Is(err, idempotent.ErrNoRecord) {
		t.Errorf("expired at %s: got error %v", old, err)
	}
	if n := s.events.Count(event.Forgotten); n != 0 {
		t.Errorf("%d events", n)
	}
}

// unreadableStore is a store that cannot read.
type unreadableStore struct{ *memstore.Store }

func (unreadableStore) Get(context.Context, idempotent.RecordID) (*driver.Record, error) {
	return nil, errDown
}

// A failure of the store is a StoreError and an event, and another write is judged
// again.
func TestForgetStore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		met    func(driver.Record) (*driver.Record, error)
		want   func(error) bool
		failed int // events of a failed store
	}{
		"down":      {down, func(err error) bool { return errors.As(err, new(*idempotent.StoreError)) }, 1},
		"gone":      {gone, func(err error) bool { return errors.Is(err, idempotent.ErrNoRecord) }, 0},
		"too large": {func(driver.Record) (*driver.Record, error) { return nil, driver.ErrTooLarge }, func(err error) bool { return errors.As(err, new(*idempotent.StoreError)) }, 1},
		"ran again": {func(r driver.Record) (*driver.Record, error) {
			r.Version, r.State, r.Owner = driver.Version{7}, driver.StateInProgress, driver.Owner{8}
			return &r, nil
		}, func(err error) bool { return errors.As(err, new(*idempotent.StaleEvidenceError)) }, 0},
	} {
		s := newStranded(t)
		key, token := s.complete(t, "done")
		g, events := newGuardOver(t, answering(s.Store, driver.OpReplace, c.met), func(o *idempotent.Options) { o.Now = s.clock.Now })
		if err := g.Forget(t.Context(), key.RecordID(), wrong(token)); err == nil || !c.want(err) || events.Count(event.StoreError) != c.failed || events.Count(event.Forgotten) != 0 {
			t.Errorf("%s: got error %v, events %s", name, err, events.Kinds())
		}
	}
	g, events := newGuardOver(t, unreadableStore{memstore.New()})
	if err := g.Forget(t.Context(), newKey().RecordID(), wrong("00")); !errors.As(err, new(*idempotent.StoreError)) || events.Count(event.StoreError) != 1 {
		t.Errorf("a store that cannot read: got error %v", err)
	}
}
