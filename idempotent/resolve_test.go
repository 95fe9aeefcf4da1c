// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/errtype"
)

// done is a completed record with a result of that version.
func done(encoding, result, version string) driver.Record {
	return driver.Record{State: driver.StateCompleted, Encoding: encoding, Result: []byte(result), ResultVersion: version}
}

// What evidence meets, what becomes of it, and which events follow. Only a failure of the
// store is a StoreError.
func TestResolve(t *testing.T) {
	t.Parallel()
	var (
		unknown   = driver.Record{State: driver.StateUnknown, LeaseEnd: start}
		failed    = new(idempotent.StoreError)
		settled   = new(idempotent.SettledError)
		busy      = new(idempotent.InProgressError)
		stale     = new(idempotent.StaleEvidenceError)
		x, y      = idempotent.Resolved("x"), idempotent.Resolved("y")
		final     = idempotent.ResolvedFinal("a", "b")
		noResult  = idempotent.ResolvedWithoutResult()
		version   = func(v string) func(*idempotent.Options) { return func(o *idempotent.Options) { o.ResultVersion = v } }
		nextOwner = func(lease time.Duration) func(*call) {
			return first(after(func(r *driver.Record) { r.Owner[0]++; r.Attempt = 2; r.LeaseEnd = start.Add(lease) }))
		}
	)
	for name, c := range map[string]struct {
		stands       driver.Record
		option       func(*idempotent.Options)
		get, replace func(*call)
		evidence     idempotent.Resolution
		want         error
		says         string // part of the error
		wait         time.Duration
		state        driver.State // afterwards
		events       string
	}{
		"a result":              {stands: unknown, evidence: x, state: driver.StateCompleted, events: "resolved"},
		"not executed":          {stands: unknown, evidence: notExecuted, state: driver.StateRetryable, events: "resolved"},
		"of a lease that ended": {stands: *running(0), evidence: x, state: driver.StateCompleted, events: "resolved"},
		"of a running handler": {
			stands: *running(time.Hour), evidence: x,
			want: busy, says: "a request with this key is in progress; retry", wait: time.Second, state: driver.StateInProgress,
		},
		"Final, while it runs":     {stands: *running(time.Hour), evidence: final, want: busy, wait: time.Second, state: driver.StateInProgress},
		"no result, while it runs": {stands: *running(time.Hour), evidence: noResult, want: busy, wait: time.Second, state: driver.StateInProgress},
		"nothing, while it runs":   {stands: *running(time.Hour), evidence: notExecuted, want: busy, wait: time.Second, state: driver.StateInProgress},
		"nothing, within a lease": {
			stands: driver.Record{State: driver.StateUnknown, Since: start, LeaseEnd: start.Add(time.Minute)}, evidence: notExecuted,
			want: busy, says: "its handler may still be running; retry", wait: time.Minute, state: driver.StateUnknown,
		},
		"nothing, of a retryable": {stands: *free, evidence: notExecuted, state: driver.StateRetryable},
		"of a retryable":          {stands: *free, evidence: x, state: driver.StateCompleted, events: "contradicted resolved"},
		"a later owner":           {stands: *running(0), replace: nextOwner(time.Second), evidence: notExecuted, want: stale, state: driver.StateInProgress},
		"a later owner, ended":    {stands: *running(0), replace: nextOwner(-1), evidence: notExecuted, want: stale, state: driver.StateInProgress},

		"again":   {stands: done("json", `"x"`, ""), evidence: x, state: driver.StateCompleted},
		"another": {stands: done("json", `"x"`, ""), evidence: y, want: settled, state: driver.StateCompleted, events: "contradicted"},
		"of another version": {
			stands: done("json", `"x"`, "1"), option: version("2"), evidence: x,
			want: settled, state: driver.StateCompleted, events: "contradicted",
		},
		"of the same version":       {stands: done("json", `"x"`, "2"), option: version("2"), evidence: x, state: driver.StateCompleted},
		"Final, of another version": {stands: done("final", `{"code":"a","message":"b"}`, "1"), option: version("2"), evidence: final, state: driver.StateCompleted},
		"none, of another version":  {stands: done("omitted", "", "1"), option: version("2"), evidence: noResult, state: driver.StateCompleted},
		"a result, and then none":   {stands: done("json", `"x"`, ""), evidence: noResult, want: settled, state: driver.StateCompleted, events: "contradicted"},
		"nothing, after an outcome": {stands: done("json", `"x"`, ""), evidence: notExecuted, want: settled, state: driver.StateCompleted, events: "contradicted"},
		"past its retention": {
			stands: driver.Record{State: driver.StateCompleted, Expires: start}, evidence: x,
			want: idempotent.ErrNoRecord, says: "expired", state: driver.StateCompleted,
		},
		"no record": {
			stands: unknown, get: fail(idempotent.ErrNoRecord), evidence: x,
			want: idempotent.ErrNoRecord, says: "charge#", state: driver.StateUnknown,
		},
		"no evidence":           {stands: unknown, evidence: idempotent.Resolution{}, says: "contains no evidence", state: driver.StateUnknown},
		"later":                 {stands: unknown, evidence: idempotent.Later(0), says: "contains no evidence", state: driver.StateUnknown},
		"it does not encode":    {stands: unknown, evidence: idempotent.Resolved(math.NaN()), says: "cannot encode", state: driver.StateUnknown},
		"the store cannot read": {stands: unknown, get: fail(errDown), evidence: x, want: failed, says: "get", state: driver.StateUnknown, events: "store_error"},
		"the store cannot write": {
			stands: unknown, replace: fail(errDown), evidence: x,
			want: failed, says: "replace", state: driver.StateUnknown, events: "store_error",
		},
		"gone before the write": {stands: unknown, replace: fail(idempotent.ErrNoRecord), evidence: x, want: idempotent.ErrNoRecord, state: driver.StateUnknown},
		"too large": {
			stands: unknown, replace: fail(driver.ErrTooLarge), evidence: x,
			want: driver.ErrTooLarge, says: "evidence", state: driver.StateUnknown,
		},
		"another write, every time": {
			stands: unknown, replace: after(func(*driver.Record) {}), evidence: x,
			want: failed, says: "conflict persisted", state: driver.StateUnknown, events: "store_error",
		},
		"another write before the one": {stands: unknown, replace: first(after(func(*driver.Record) {})), evidence: x, state: driver.StateCompleted, events: "resolved"},
	} {
		f := newFixture(t, func(o *idempotent.Options) {
			if c.option != nil {
				c.option(o)
			}
		})
		f.holds(c.stands)
		f.on(driver.OpGet, c.get)
		f.on(driver.OpReplace, c.replace)
		if reflect.DeepEqual(c.evidence, notExecuted) {
			c.evidence = f.notExecuted()
		}
		err := f.resolve(c.evidence)
		refused := c.want != nil || c.says != ""
		if (err != nil) != refused || c.want != nil && !errtype.Matches(err, c.want) || refused && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got error %v, want %v that contains %q", name, err, c.want, c.says)
		}
		if busy := new(idempotent.InProgressError); errors.As(err, &busy) && (busy.RetryAfter != c.wait || !busy.Until.Equal(f.record().LeaseEnd)) {
			t.Errorf("%s: got %#v, want to wait %s", name, err, c.wait)
		}
		if stale := new(idempotent.StaleEvidenceError); errors.As(err, &stale) && stale.Attempt != 2 {
			t.Errorf("%s: got %#v, want that of attempt 2", name, err)
		}
		isStore := errors.As(err, new(*idempotent.StoreError))
		if r, kinds := f.record(), f.kinds(); r.State != c.state || kinds != c.events ||
			isStore != (c.want == failed) || isStore && strings.Count(err.Error(), "store: ") > 1 {
			t.Errorf("%s: the record is %s, events %q; want %s, %q; %v", name, r.State, kinds, c.state, c.events, err)
		}
	}
	f := newFixture(t)
	if err := f.guard.Resolve(t.Context(), "charge", x); !errors.As(err, new(*idempotent.InvalidKeyError)) || !strings.Contains(err.Error(), "RecordID") {
		t.Errorf("no id: got error %v", err)
	}
}

// A resolution preserves what the owner wrote, and keeps the record for the lease, however
// short the retention is: a handler may still be at work.
func TestResolveKeepsTheRest(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *idempotent.Options) { o.Retention = time.Second })
	_, _ = f.do(func(ctx context.Context) (string, error) {
		e, _ := idempotent.FromContext(ctx)
		return "", errors.Join(e.SetRef("orders/7"), errDown)
	})
	before := f.record()
	f.mustResolve(idempotent.Resolved(7))
	r := f.record()
	if r.Version == before.Version || r.Owner != before.Owner || r.Attempt != 1 || r.Ref != "orders/7" ||
		!r.Created.Equal(start) || r.Reason != driver.ReasonResolved || !r.Due.IsZero() || !r.Expires.Equal(r.LeaseEnd) {
		t.Errorf("before %+v\nafter %+v", before, r)
	}
}

// Evidence that nothing happened has no result. It drops unfinished steps and preserves
// finished ones, and the record is due as long as it has any.
func TestNotExecutedKeepsFinishedSteps(t *testing.T) {
	t.Parallel()
	finished := driver.StepRecord{Name: "charge", Finished: true, Encoding: "json", Result: []byte("1")}
	begun := driver.StepRecord{Name: "inform", Mode: driver.AtMostOnce}
	for _, steps := range [][]driver.StepRecord{{finished, begun}, {begun}} {
		f := newFixture(t, func(o *idempotent.Options) { o.ResultVersion = "2" })
		f.holds(driver.Record{State: driver.StateUnknown, Recovery: idempotent.Resume, Steps: steps})
		f.mustResolve(f.notExecuted())
		r, listed := f.record(), len(steps) > 1
		if r.State != driver.StateRetryable || len(r.Steps) != len(steps)-1 ||
			listed && r.Steps[0].Name != "charge" || r.Due.IsZero() == listed || r.Expires.IsZero() != listed {
			t.Errorf("the record is %s with %v, due %v, expires %v", r.State, r.Steps, r.Due, r.Expires)
		}
		if r.Encoding != "" || r.Result != nil || r.ResultVersion != "" {
			t.Errorf("the record is %+v, want no result in it", r)
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
// that the guard's own options declare, in the version that the operation's replays read,
// or refused. Evidence without a result can always be recorded.
func TestEvidenceCodecs(t *testing.T) {
	t.Parallel()
	declares := func(c idempotent.Codec, version string) func(*idempotent.Options) {
		return func(o *idempotent.Options) {
			if o.ResultVersion = version; c != nil {
				o.Codec = c
			}
		}
	}
	a, b, c, likeJSON := alias{name: "a"}, alias{name: "b"}, alias{name: "c"}, alias{name: "json"}
	const unknown, mismatch = `codec "a", which this guard does not have`, `could not replay a result of the codec "`
	for name, row := range map[string]struct {
		operation, guard idempotent.Codec // nil: JSON
		versions         [2]string        // of the operation and the guard
		evidence         idempotent.Resolution
		stored           string // encoding of the result; empty: refused
		declared         string // the record's codec afterwards
		refused          string
	}{
		"JSON":                             {nil, nil, [2]string{"", ""}, idempotent.Resolved("x"), "json", "", ""},
		"the record's version":             {nil, nil, [2]string{"2", ""}, idempotent.Resolved("x"), "json", "", ""},
		"a newer version of the code":      {nil, nil, [2]string{"1", "2"}, idempotent.Resolved("x"), "json", "", ""},
		"the operation's, by the guard":    {a, a, [2]string{"", ""}, idempotent.Resolved("x"), "a", "a", ""},
		"the operation's, by the evidence": {a, nil, [2]string{"", ""}, idempotent.ResolvedWith(a, "x"), "a", "a", ""},
		"another one of the guard":         {a, b, [2]string{"", ""}, idempotent.Resolved("x"), "b", "b", ""},
		"another one, named by both":       {a, b, [2]string{"", ""}, idempotent.ResolvedWith(b, "x"), "b", "b", ""},
		"one of the guard, for JSON":       {nil, b, [2]string{"", ""}, idempotent.ResolvedWith(b, "x"), "b", "b", ""},
		"one named json":                   {a, likeJSON, [2]string{"", ""}, idempotent.Resolved("x"), "json", "", ""},
		"JSON for another":                 {a, nil, [2]string{"", ""}, idempotent.Resolved("x"), "", "a", unknown},
		"one named json for another":       {a, nil, [2]string{"", ""}, idempotent.ResolvedWith(likeJSON, "x"), "", "a", mismatch + `json"`},
		"neither's":                        {a, b, [2]string{"", ""}, idempotent.ResolvedWith(c, "x"), "", "a", mismatch + `c"`},
		"not JSON":                         {nil, nil, [2]string{"", ""}, idempotent.ResolvedWith(c, "x"), "", "", mismatch + `c"`},
	} {
		f := newFixture(t, declares(row.operation, row.versions[0]))
		_, _ = f.do(noAnswer)
		settling := f.with(declares(row.guard, row.versions[1]))
		err := settling.resolve(row.evidence)
		if r := f.record(); (err == nil) != (row.stored != "") || err != nil && !strings.Contains(err.Error(), row.refused) ||
			r.Encoding != row.stored || r.Codec != row.declared {
			t.Errorf("%s: error %v, the result is stored as %q by an operation of codec %q; want %q and %q", name, err, r.Encoding, r.Codec, row.stored, row.declared)
		}
		if err != nil {
			if !errors.As(err, new(slog.LogValuer)) {
				t.Errorf("%s: a log leaves out the text of %v", name, err)
			}
			settling.mustResolve(idempotent.ResolvedWithoutResult())
			if _, err := f.do(forbidden(t)); !errors.As(err, new(*idempotent.ReplayUnavailableError)) {
				t.Errorf("%s: a retry got error %v", name, err)
			}
			continue
		}
		// The code that knows the stored form replays it.
		replaying := settling
		if row.guard == nil {
			replaying = f.with(declares(row.operation, max(row.versions[0], row.versions[1])))
		}
		if got, err := replaying.do(forbidden(t)); got != "x" || err != nil {
			t.Errorf("%s: a retry got %q, %v", name, got, err)
		}
	}
}

// A large result from evidence is stored like a handler's, beside the record. If there is
// no room for it, nothing is written, so that the evidence can be given again.
func TestResolveLargeResult(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f = f.over(newChunked(f.Store))
	_, _ = f.do(noAnswer)
	f.kinds()
	large := letters(20_000)
	f.on(driver.OpPutChunks, fail(errDown))
	err := f.resolve(idempotent.Resolved(large))
	if failed := new(idempotent.StoreError); !errors.As(err, &failed) || failed.Op != driver.OpPutChunks ||
		strings.Count(err.Error(), errDown.Error()) != 1 || f.kinds() != "store_error" || f.record().State != driver.StateUnknown {
		t.Errorf("without room: got error %v, and the record is %s", err, f.record().State)
	}
	f.on(driver.OpPutChunks, nil)
	f.mustResolve(idempotent.Resolved(large))
	if got, err := f.do(forbidden(t)); err != nil || got != large || f.record().Chunks.Count == 0 {
		t.Errorf("got %d bytes and error %v", len(got), err)
	}
}

// A tool gets the bytes that the codec wrote, in whatever form they are stored.
func TestStored(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f = f.over(newChunked(f.Store))
	quoted := func(s string) string { return `"` + s + `"` }
	for name, row := range map[string]struct {
		value, encoding, want string
		err                   error
	}{
		"small":      {"ch_1", "json", quoted("ch_1"), nil},
		"compressed": {strings.Repeat("x", 3000), "json", quoted(strings.Repeat("x", 3000)), nil},
		"large":      {letters(50_000), "json", quoted(letters(50_000)), nil},
		"final":      {"", "final", `{"code":"declined","message":"no"}`, idempotent.Final("declined", "no")},
	} {
		f.key = newKey()
		_, _ = f.do(func(context.Context) (string, error) { return row.value, row.err })
		r := f.record()
		if name == "large" && (r.Chunks.Count == 0 || r.Result != nil) || name == "compressed" && !strings.HasSuffix(r.Encoding, "+br") {
			t.Errorf("%s: stored as %q with %d chunks: the test proves nothing", name, r.Encoding, r.Chunks.Count)
		}
		encoding, data, err := f.guard.StoredOutcome(t.Context(), *r)
		if err != nil || encoding != row.encoding || string(data) != row.want {
			t.Errorf("%s: got %q, %.60q, %v", name, encoding, data, err)
		}
		if name == "large" {
			r.Chunks.Sum[0]++
			if _, data, err := f.guard.StoredOutcome(t.Context(), *r); data != nil || !errors.As(err, new(*idempotent.ReplayUnavailableError)) {
				t.Errorf("altered chunks: %d bytes, %v", len(data), err)
			}
		}
	}
	for name, r := range map[string]driver.Record{
		"unknown":   {State: driver.StateUnknown},
		"omitted":   done(driver.EncodingOmitted, "", ""),
		"damaged":   done("json+br", "no frame", ""),
		"in chunks": {State: driver.StateCompleted, Encoding: "json", Chunks: driver.Chunks{Count: 1, Length: 1}},
	} {
		r.ID = newKey().RecordID()
		if encoding, data, err := newFixture(t).guard.StoredOutcome(t.Context(), r); encoding != "" ||
			data != nil || !errors.As(err, new(*idempotent.ReplayUnavailableError)) {
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
