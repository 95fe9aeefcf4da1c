// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/errtype"
)

func TestResolveRefusals(t *testing.T) {
	t.Parallel()
	id := newKey().RecordID()
	down := errors.New("store down")
	unknown := driver.Record{ID: id, State: driver.StateUnknown, Expires: time.Time{}}
	changing := answering(holding(t, unknown), driver.OpReplace, func(r driver.Record) (*driver.Record, error) {
		r = unknown
		return &r, nil
	})
	for name, row := range map[string]struct {
		store      driver.Store
		id         idempotent.RecordID
		resolution idempotent.Resolution
		want       error
		says       string
	}{
		"no record":       {memstore.New(), id, idempotent.Resolved(1), idempotent.ErrNoRecord, "charge#"},
		"no id":           {memstore.New(), "charge", idempotent.Resolved(1), new(idempotent.InvalidKeyError), "RecordID"},
		"no evidence":     {memstore.New(), id, idempotent.Resolution{}, nil, "contains no evidence"},
		"not encodable":   {holding(t, unknown), id, idempotent.Resolved(math.NaN()), nil, "cannot encode"},
		"get fails":       {failing(memstore.New(), driver.OpGet, down), id, idempotent.Resolved(1), new(idempotent.StoreError), "get"},
		"replace fails":   {failing(holding(t, unknown), driver.OpReplace, down), id, idempotent.Resolved(1), down, "replace"},
		"record vanishes": {failing(holding(t, unknown), driver.OpReplace, idempotent.ErrNoRecord), id, idempotent.Resolved(1), idempotent.ErrNoRecord, ""},
		"too large":       {small(holding(t, unknown), 1), id, idempotent.Resolved("long"), driver.ErrTooLarge, "evidence"},
		"changes forever": {changing, id, idempotent.Resolved(1), new(idempotent.StoreError), "conflict persisted"},
		"expired":         {holding(t, driver.Record{ID: id, State: driver.StateCompleted, Expires: time.Unix(1, 0)}), id, idempotent.Resolved(1), idempotent.ErrNoRecord, "expired"},
	} {
		g, events := newGuardOver(t, row.store)
		err := g.Resolve(t.Context(), row.id, row.resolution)
		if err == nil || row.want != nil && !errtype.Matches(err, row.want) || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: got error %v, want %v that contains %q", name, err, row.want, row.says)
		}
		// Only a failure of the store is a StoreError and an event.
		var failed, twice *idempotent.StoreError
		isStore := errors.As(err, &failed)
		if want := errors.As(row.want, new(*idempotent.StoreError)) || row.want == down; isStore != want || (events.Count(event.StoreError) == 1) != want {
			t.Errorf("%s: got error %v and events %v", name, err, events.Kinds())
		}
		if isStore && errors.As(failed.Err, &twice) {
			t.Errorf("%s: got error %v, which names the store twice", name, err)
		}
	}
}

func holding(t *testing.T, r driver.Record) *memstore.Store {
	t.Helper()
	s := memstore.New()
	if met, err := s.Insert(t.Context(), r, time.Now()); met != nil || err != nil {
		t.Fatal(met, err)
	}
	return s
}

// The resolver's result is replayed through the codec of the handler that it
// replaces.
func TestResolvedWith(t *testing.T) {
	t.Parallel()
	clock := &idempotenttest.Clock{}
	g, _ := newGuard(t, func(o *idempotent.Options) { o.Now = clock.Now })
	key := newKey()
	useRaw := func(o *idempotent.Options) { o.Codec = raw{} }
	do := func() (string, error) {
		return idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return "", errors.New("no reply") }, useRaw)
	}
	if _, err := do(); err == nil {
		t.Fatal("got no error")
	}
	if err := g.Resolve(t.Context(), key.RecordID(), idempotent.ResolvedWith(raw{}, "ch_1")); err != nil {
		t.Fatal(err)
	}
	if got, err := do(); got != "ch_1" || err != nil {
		t.Errorf("the retry got %q and error %v, want the resolver's result", got, err)
	}
}

// A resolution preserves what the owner wrote.
func TestResolveKeepsTheRest(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	g, _ := newGuardOver(t, s)
	key := newKey()
	idempotent.Do(t.Context(), g, key, func(ctx context.Context) (int, error) {
		e, _ := idempotent.FromContext(ctx)
		return 0, errors.Join(e.SetRef("orders/7"), errors.New("no reply"))
	})
	before, err := s.Get(t.Context(), key.RecordID())
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Resolve(t.Context(), key.RecordID(), idempotent.Resolved(7)); err != nil {
		t.Fatal(err)
	}
	after, err := s.Get(t.Context(), key.RecordID())
	if err != nil {
		t.Fatal(err)
	}
	if after.Version == before.Version || after.Owner != before.Owner || after.Attempt != 1 || after.Ref != "orders/7" ||
		!after.Created.Equal(before.Created) || after.Reason != driver.ReasonResolved || !after.Due.IsZero() || after.Expires.IsZero() {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
}

// unknownRecord returns a guard over s and the key of a record in it whose
// outcome is unknown.
func unknownRecord(t *testing.T, s driver.Store, optFns ...func(*idempotent.Options)) (*idempotent.Guard, idempotent.Key) {
	t.Helper()
	g, _ := newGuardOver(t, s, optFns...)
	key := newKey()
	idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return "", idempotent.Unknown(errors.New("no reply")) })
	return g, key
}

// A result from evidence is stored like a handler's: with the version of its
// shape, and beside the record if it is large.
func TestResolvedResultIsReplayed(t *testing.T) {
	t.Parallel()
	version := func(o *idempotent.Options) { o.ResultVersion, o.Codec = "2", raw{} }
	for name, value := range map[string]string{"small": "ch_1", "large": noise(10_000)} {
		s := newChunked()
		g, key := unknownRecord(t, s, version)
		if err := g.Resolve(t.Context(), key.RecordID(), idempotent.Resolved(value)); err != nil {
			t.Fatal(err)
		}
		r, err := s.Get(t.Context(), key.RecordID())
		if err != nil || r.ResultVersion != "2" || (r.Chunks.Count > 0) != (name == "large") {
			t.Errorf("%s: the record has version %q and %d chunks (%v)", name, r.ResultVersion, r.Chunks.Count, err)
		}
		if got, err := idempotent.Do(t.Context(), g, key, forbidden(t)); err != nil || got != value {
			t.Errorf("%s: got %d bytes and error %v", name, len(got), err)
		}
	}
}

// Work that did not happen has no result.
func TestNotExecutedHasNoResult(t *testing.T) {
	t.Parallel()
	s := watch()
	g, key := unknownRecord(t, s)
	s.change(t, key, func(r *driver.Record) { r.LeaseEnd = r.Created })
	if err := g.Resolve(t.Context(), key.RecordID(), idempotent.ProvenNotExecuted(s.record(t, key).Token())); err != nil {
		t.Fatal(err)
	}
	if r := s.record(t, key); r.State != driver.StateRetryable || r.Encoding != "" || r.Result != nil || r.ResultVersion != "" {
		t.Errorf("the record is %+v, want no result in it", r)
	}
}

// A write id of a resolution is reused under the same rule as an owner's.
func TestWriteIDsOfLaterResolutions(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		resolution idempotent.Resolution
		same       bool
	}{
		"completed":    {idempotent.Resolved("ch_1"), true},
		"not executed": {idempotent.ProvenNotExecuted((&driver.Record{}).Token()), false},
	} {
		s, key := watch(), newKey()
		s.holds(t, key, driver.Record{State: driver.StateUnknown})
		ids := s.interrupted(t, key, func(r *driver.Record) { r.ReconcileAttempts++ })
		g, _ := newGuardOver(t, s)
		if err := g.Resolve(t.Context(), key.RecordID(), row.resolution); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(*ids) != 2 || ((*ids)[0] == (*ids)[1]) != row.same {
			t.Errorf("%s: the resolution was written under %x; want twice, and the same id: %v", name, *ids, row.same)
		}
	}
}

// Evidence that nothing happened waits for the end of the lease and reports the
// remaining time. It is about one attempt: a later attempt is not released, even
// if it begins between the read of the record and the write.
func TestNotExecutedIsAboutOneAttempt(t *testing.T) {
	t.Parallel()
	now := now()
	for name, row := range map[string]struct {
		state       driver.State
		lease, next time.Time // next: of another owner that comes in between
		wait        time.Duration
		says        string
	}{
		"running":           {driver.StateInProgress, now.Add(time.Minute), time.Time{}, 2 * time.Second, "another request with this key is in progress; retry"},
		"already unknown":   {driver.StateUnknown, now.Add(time.Minute), time.Time{}, time.Minute, "its handler may still be running; retry"},
		"a later owner":     {driver.StateInProgress, now.Add(-time.Minute), now.Add(time.Second), 0, ""},
		"a later one ended": {driver.StateInProgress, now.Add(-time.Minute), now.Add(-time.Second), 0, ""},
	} {
		s, key := watch(), newKey()
		s.holds(t, key, driver.Record{State: row.state, Created: now.Add(-2 * time.Second), LeaseEnd: row.lease})
		token := s.record(t, key).Token()
		if !row.next.IsZero() {
			s.interrupted(t, key, func(r *driver.Record) { r.Owner[0]++; r.Attempt = 2; r.LeaseEnd = row.next })
		}
		g, _ := newGuardOver(t, s, fixed(now))
		err := g.Resolve(t.Context(), key.RecordID(), idempotent.ProvenNotExecuted(token))
		var busy *idempotent.InProgressError
		var stale *idempotent.StaleEvidenceError
		switch {
		case row.next.IsZero():
			if !errors.As(err, &busy) || busy.RetryAfter != row.wait || !strings.Contains(err.Error(), row.says) {
				t.Errorf("%s: got error %v, want to wait %s and %q", name, err, row.wait, row.says)
			}
		case !errors.As(err, new(*idempotent.StaleEvidenceError)) || !errors.As(err, &stale) || stale.Attempt != 2:
			t.Errorf("%s: got error %#v, want StaleEvidenceError of attempt 2", name, err)
		}
		if got := s.record(t, key); got.State != row.state {
			t.Errorf("%s: the record is %s", name, got.State)
		}
	}
}

// Evidence that nothing happened drops unfinished steps and preserves finished
// ones. The record is due as long as it has any.
func TestNotExecutedKeepsFinishedSteps(t *testing.T) {
	t.Parallel()
	finished := driver.StepRecord{Name: "charge", Finished: true, Encoding: "json", Result: []byte("1")}
	begun := driver.StepRecord{Name: "inform", Mode: driver.AtMostOnce}
	for _, row := range []struct{ before, after []driver.StepRecord }{
		{[]driver.StepRecord{finished, begun}, []driver.StepRecord{finished}},
		{[]driver.StepRecord{begun}, nil},
	} {
		s, key := watch(), newKey()
		s.holds(t, key, driver.Record{State: driver.StateUnknown, Recovery: idempotent.Resume, Steps: row.before})
		g, _ := newGuardOver(t, s)
		if err := g.Resolve(t.Context(), key.RecordID(), idempotent.ProvenNotExecuted(s.record(t, key).Token())); err != nil {
			t.Fatal(err)
		}
		r := s.record(t, key)
		same := slices.EqualFunc(r.Steps, row.after, func(a, b driver.StepRecord) bool { return a.Name == b.Name && a.Finished == b.Finished })
		if listed := len(row.after) > 0; r.State != driver.StateRetryable || !same || r.Due.IsZero() == listed || r.Expires.IsZero() != listed {
			t.Errorf("the record is %s with %v, due %v, expires %v", r.State, r.Steps, r.Due, r.Expires)
		}
	}
}

// alias is the codec raw under another name.
type alias struct {
	raw
	name string
}

func (n alias) Name() string { return n.name }

// Evidence is encoded with the codec that the operation declared, or with one
// that the guard's own options declare.
func TestEvidenceCodecs(t *testing.T) {
	t.Parallel()
	codec := func(c idempotent.Codec) func(*idempotent.Options) {
		return func(o *idempotent.Options) {
			if c != nil {
				o.Codec = c
			}
		}
	}
	a, b, c, likeJSON := alias{name: "a"}, alias{name: "b"}, alias{name: "c"}, alias{name: "json"}
	for name, row := range map[string]struct {
		operation, guard idempotent.Codec // nil: JSON
		evidence         idempotent.Resolution
		stored           string // encoding of the result; empty: refused
		declared         string // the record's codec afterwards
	}{
		"JSON":                             {nil, nil, idempotent.Resolved("x"), "json", ""},
		"the operation's, by the guard":    {a, a, idempotent.Resolved("x"), "a", "a"},
		"the operation's, by the evidence": {a, nil, idempotent.ResolvedWith(a, "x"), "a", "a"},
		"another one of the guard":         {a, b, idempotent.Resolved("x"), "b", "b"},
		"another one, named by both":       {a, b, idempotent.ResolvedWith(b, "x"), "b", "b"},
		"one of the guard, for JSON":       {nil, b, idempotent.ResolvedWith(b, "x"), "b", "b"},
		"one named json":                   {a, likeJSON, idempotent.Resolved("x"), "json", ""},
		"JSON for another":                 {a, nil, idempotent.Resolved("x"), "", "a"},
		"one named json for another":       {a, nil, idempotent.ResolvedWith(likeJSON, "x"), "", "a"},
		"neither's":                        {a, b, idempotent.ResolvedWith(c, "x"), "", "a"},
		"not JSON":                         {nil, nil, idempotent.ResolvedWith(c, "x"), "", ""},
		"without a result":                 {a, nil, idempotent.ResolvedWithoutResult(), driver.EncodingOmitted, "a"},
	} {
		w := newOldFixture()
		if _, err := w.do(t, w.guard(t, codec(row.operation)), noAnswer); err == nil {
			t.Fatal("the error was swallowed")
		}
		err := w.guard(t, codec(row.guard)).Resolve(t.Context(), w.key.RecordID(), row.evidence)
		r := w.record(t)
		if (err == nil) != (row.stored != "") || r.Encoding != row.stored || r.Codec != row.declared {
			t.Errorf("%s: error %v, the result is stored as %q by an operation of codec %q; want %q and %q", name, err, r.Encoding, r.Codec, row.stored, row.declared)
		}
	}
}

// The same evidence again is not a contradiction; with another result version it
// is, if there is a result to decode.
func TestEvidenceAgain(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		evidence, again idempotent.Resolution
		version         string // of the second guard
		agrees          bool
	}{
		"a result":                             {idempotent.Resolved("x"), idempotent.Resolved("x"), "1", true},
		"another result":                       {idempotent.Resolved("x"), idempotent.Resolved("y"), "1", false},
		"a result of another version":          {idempotent.Resolved("x"), idempotent.Resolved("x"), "2", false},
		"Final, from another version":          {idempotent.ResolvedFinal("a", "b"), idempotent.ResolvedFinal("a", "b"), "2", true},
		"without a result, by another version": {idempotent.ResolvedWithoutResult(), idempotent.ResolvedWithoutResult(), "2", true},
		"a result, then none":                  {idempotent.Resolved("x"), idempotent.ResolvedWithoutResult(), "1", false},
	} {
		w := newOldFixture()
		version := func(v string) func(*idempotent.Options) {
			return func(o *idempotent.Options) { o.ResultVersion = v }
		}
		g := w.guard(t, version("1"))
		if _, err := w.do(t, g, noAnswer); err == nil {
			t.Fatal("the error was swallowed")
		}
		if err := g.Resolve(t.Context(), w.key.RecordID(), row.evidence); err != nil {
			t.Fatal(name, err)
		}
		before := w.record(t).Version
		err := w.guard(t, version(row.version)).Resolve(t.Context(), w.key.RecordID(), row.again)
		if row.agrees != (err == nil) || !row.agrees && !errors.As(err, new(*idempotent.SettledError)) || w.record(t).Version != before {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

// Evidence while the lease is live keeps the record for the lease, however short
// the retention is: a handler may still be at work.
func TestEvidenceKeepsTheRecordForTheLease(t *testing.T) {
	t.Parallel()
	w := newOldFixture()
	g := w.guard(t, func(o *idempotent.Options) { o.Retention = time.Second })
	if _, err := w.do(t, g, func(context.Context) (string, error) { return "", idempotent.Unknown(errDown) }); err == nil {
		t.Fatal("the error was swallowed")
	}
	if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.Resolved("x")); err != nil {
		t.Fatal(err)
	}
	if r := w.record(t); r.State != driver.StateCompleted || r.Expires.Before(r.LeaseEnd) {
		t.Errorf("the record is %s and expires %s before its lease ends", r.State, r.LeaseEnd.Sub(r.Expires))
	}
}

// What evidence about a step writes: when, in which mode, and nothing else of the
// record. The same evidence again writes nothing.
func TestStepEvidenceIsRecorded(t *testing.T) {
	t.Parallel()
	w := newOldFixture()
	declare := func(o *idempotent.Options) { o.Steps = []string{"charge"} }
	w.dies(t, declare, func(ctx context.Context) {
		_, _ = idempotent.Step(ctx, "charge", func(context.Context) (string, error) { return "", errDown }, atMostOnce)
	})
	w.clock.Advance(time.Hour)
	g, events := newGuardOver(t, w.Store, declare, func(o *idempotent.Options) { o.Now = w.clock.Now })
	if _, err := idempotent.ReconcileDue(t.Context(), g, answer(idempotent.Later(time.Minute))); err != nil {
		t.Fatal(err)
	}
	before := w.record(t)
	for range 2 {
		if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep("charge", "ch_1")); err != nil {
			t.Fatal(err)
		}
	}
	r := w.record(t)
	s, _ := r.Step("charge")
	if !s.Finished || s.Mode != driver.AtMostOnce || s.By != driver.StepByEvidence || s.At.Before(before.Since) {
		t.Errorf("the step: %+v", s)
	}
	if r.State != driver.StateUnknown || r.ReconcileAttempts != 1 || !r.Since.Equal(before.Since) {
		t.Errorf("the record is %s after %d attempts of reconciliation, since %s; want unknown, 1, %s", r.State, r.ReconcileAttempts, r.Since, before.Since)
	}
	var steps []string
	for _, e := range events.Events() {
		if e.Kind == event.Resolved {
			steps = append(steps, e.Step)
		}
	}
	if !slices.Equal(steps, []string{"charge"}) {
		t.Errorf("events of evidence about the steps %q, want one about charge", steps)
	}
}

// Evidence that cannot be used is refused, and its error says only what is wrong.
func TestEvidenceErrors(t *testing.T) {
	t.Parallel()
	w := newOldFixture()
	g := w.guard(t)
	w.dies(t, func(*idempotent.Options) {}, func(ctx context.Context) {
		// The handler is at work.
		err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.Resolved("x"))
		if early, ok := err.(*idempotent.InProgressError); !ok || early.RetryAfter < time.Second || !early.Until.Equal(w.record(t).LeaseEnd) {
			t.Errorf("while the handler runs: %T %v", err, err)
		}
	})
	before := w.record(t).Version
	if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep("a b", "x")); !errors.As(err, new(*idempotent.StepError)) {
		t.Errorf("a step whose name is invalid: %v", err)
	}
	if w.record(t).Version != before {
		t.Error("the record was written")
	}
	for i := range 5 {
		if err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep(fmt.Sprint("s", i), letters(80_000))); err != nil {
			t.Fatal(err)
		}
	}
	before = w.record(t).Version
	err := g.Resolve(t.Context(), w.key.RecordID(), idempotent.ResolvedStep("s5", letters(80_000)))
	if !errors.As(err, new(*idempotent.StepError)) || !strings.Contains(err.Error(), "all steps") || w.record(t).Version != before {
		t.Errorf("results of more than 320 KB together: %v", err)
	}
}

// A tool gets the bytes that the codec wrote, in whatever form they are stored.
func TestStored(t *testing.T) {
	t.Parallel()
	s := newChunked()
	g, _ := newGuardOver(t, s)
	large := letters(50_000)
	for name, row := range map[string]struct {
		value    any
		err      error
		encoding string
		want     string
	}{
		"small":      {"ch_1", nil, "json", `"ch_1"`},
		"compressed": {strings.Repeat("x", 3000), nil, "json", `"` + strings.Repeat("x", 3000) + `"`},
		"large":      {large, nil, "json", string(encoded(t, large))},
		"final":      {nil, idempotent.Final("declined", "no"), "final", `{"code":"declined","message":"no"}`},
	} {
		key := newKey()
		if _, err := idempotent.Do(t.Context(), g, key, func(context.Context) (any, error) { return row.value, row.err }); !errors.Is(err, row.err) {
			t.Fatal(err)
		}
		r, err := s.Get(t.Context(), key.RecordID())
		if err != nil {
			t.Fatal(err)
		}
		if name == "large" && (r.Chunks.Count == 0 || r.Result != nil) || name == "compressed" && !strings.HasSuffix(r.Encoding, "+br") {
			t.Errorf("%s: stored as %q with %d chunks: the test proves nothing", name, r.Encoding, r.Chunks.Count)
		}
		encoding, data, err := g.StoredOutcome(t.Context(), *r)
		if err != nil || encoding != row.encoding || string(data) != row.want {
			t.Errorf("%s: got %q, %.60q, %v", name, encoding, data, err)
		}
		if name == "large" {
			altered := *r
			altered.Chunks.Sum[0]++
			if _, data, err := g.StoredOutcome(t.Context(), altered); data != nil || !errors.As(err, new(*idempotent.ReplayUnavailableError)) {
				t.Errorf("altered chunks: %d bytes, %v", len(data), err)
			}
		}
	}
}

func TestStored_Unavailable(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	for name, r := range map[string]driver.Record{
		"unknown":   {State: driver.StateUnknown},
		"omitted":   {State: driver.StateCompleted, Encoding: driver.EncodingOmitted},
		"damaged":   {State: driver.StateCompleted, Encoding: "json+br", Result: []byte("no frame")},
		"in chunks": {State: driver.StateCompleted, Encoding: "json", Chunks: driver.Chunks{Count: 1, Length: 1}},
	} {
		r.ID = newKey().RecordID()
		if encoding, data, err := g.StoredOutcome(t.Context(), r); encoding != "" || data != nil || !errors.As(err, new(*idempotent.ReplayUnavailableError)) {
			t.Errorf("%s: got %q, %q, %v", name, encoding, data, err)
		}
	}
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
