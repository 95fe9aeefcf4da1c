// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/internal/kit"
)

var (
	errLost    = errors.New("the reply was lost")
	errRefused = fmt.Errorf("%w: sold out", idempotent.ErrNotApplied)
)

// ledger books an entry in each transaction of its handlers.
type ledger struct {
	*fixture
	plan   []fate // of the next transactions; later ones are applied
	booked int
	sent   int
}

// fate is what happens to a transaction.
type fate func(l *ledger, ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error)

func (l *ledger) book(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
	happens := fate(applied)
	if l.sent++; len(l.plan) > 0 {
		happens, l.plan = l.plan[0], l.plan[1:]
	}
	return happens(l, ctx, next, was)
}

func applied(l *ledger, ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
	met, err := l.Replace(ctx, next, was)
	if met == nil && err == nil {
		l.booked++
	}
	return met, err
}

// replyLost is applied, and its caller does not learn that.
func replyLost(l *ledger, ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
	_, _ = applied(l, ctx, next, was)
	return nil, errLost
}

// sentTwice is applied, and sent again by the SDK.
func sentTwice(l *ledger, ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
	_, _ = applied(l, ctx, next, was)
	return applied(l, ctx, next, was)
}

// fails is not applied, and its caller gets err.
func fails(err error) fate {
	return func(*ledger, context.Context, driver.Record, driver.Version) (*driver.Record, error) { return nil, err }
}

// comesAfter is sent after another party has changed the record.
func comesAfter(change func(*driver.Record)) fate {
	return func(l *ledger, ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
		l.change(change)
		return applied(l, ctx, next, was)
	}
}

func plan(fates ...fate) []fate { return fates }

// maxTries is how often a transaction is sent that finds another write each time.
const maxTries = 4

var (
	requestLost = fails(errLost)
	contended   = slices.Repeat(plan(comesAfter(func(*driver.Record) {})), maxTries)
)

func swept(r *driver.Record)    { r.State = driver.StateUnknown }
func released(r *driver.Record) { r.State = driver.StateRetryable }
func stolen(r *driver.Record)   { r.Owner[0]++ }

func byWebhook(r *driver.Record) {
	r.State, r.Encoding, r.Result = driver.StateCompleted, "json", []byte(`"by the webhook"`)
}

func commit(ctx context.Context, result any, write idempotent.Transaction) error {
	e, _ := idempotent.FromContext(ctx)
	return e.Commit(ctx, result, write)
}

// try is a call of Commit or CommitStep, and the error that it returns.
type try struct {
	result any
	want   error
}

// check fails the test if err is not what the try should return.
func (c try) check(t *testing.T, name string, err error) {
	t.Helper()
	failed, isStore := (*idempotent.StoreError)(nil), errors.As(err, new(*idempotent.StoreError))
	if !errtype.Matches(err, c.want) || isStore && errors.Is(err, idempotent.ErrNotApplied) {
		t.Errorf("%s: %v returned %v, want %v", name, c.result, err, c.want)
	}
	if errors.As(err, &failed) && (failed.Op != driver.OpTransact || !failed.Entered) {
		t.Errorf("%s: %v returned %#v", name, c.result, err)
	}
}

// What happens to the transactions of a handler, what it makes of that, and the outcome:
// that its caller gets, the record, the entries, and the events.
func TestCommit(t *testing.T) {
	t.Parallel()
	var (
		final   = idempotent.Final("declined", "")
		failed  = new(idempotent.StoreError)
		settled = new(idempotent.SettledError)
		lost    = new(idempotent.LeaseLostError)
	)
	const completed, unknown, retryable = driver.StateCompleted, driver.StateUnknown, driver.StateRetryable
	for _, c := range []struct {
		name   string
		plan   []fate
		tries  []try
		own    func(error) error // what the handler returns, with "ok", after its last try; nil: its error
		value  string            // that the caller gets
		err    error
		state  driver.State
		booked int
		events string // after reserved
	}{
		{"applied", nil, []try{{"ok", nil}}, nil, "ok", nil, completed, 1, "completed"},
		{"an error after it changes nothing", nil, []try{{"ok", nil}}, instead(errDown), "ok", nil, completed, 1, "completed contradicted replayed"},
		{"another result after it changes nothing", nil, []try{{"a", nil}}, nil, "a", nil, completed, 1, "completed"},
		{"a second one", nil, []try{{"ok", nil}, {"ok", idempotent.ErrExecutionEnded}}, instead(nil), "ok", nil, completed, 1, "completed"},
		{"sent again by the SDK", plan(sentTwice), []try{{"ok", nil}}, nil, "ok", nil, completed, 1, "completed"},
		{"it does not encode", nil, []try{{make(chan int), idempotent.ErrNotApplied}}, nil, "", idempotent.ErrNotApplied, unknown, 0, "marked_unknown"},
		{"refused, and declared", plan(fails(errRefused)), []try{{"ok", errRefused}}, idempotent.NotExecuted, "", errRefused, retryable, 0, "retryable"},
		{"refused, and another one", plan(fails(errRefused)), []try{{"ok", errRefused}, {"a", nil}}, nil, "a", nil, completed, 1, "completed"},
		{"too large", plan(fails(driver.ErrTooLarge)), []try{{"ok", idempotent.ErrNotApplied}}, nil, "", driver.ErrTooLarge, unknown, 0, "marked_unknown"},
		{"another write every time", contended, []try{{"ok", idempotent.ErrNotApplied}}, nil, "", idempotent.ErrNotApplied, unknown, 0, "marked_unknown"},
		{"the record is gone", plan(fails(idempotent.ErrNoRecord)), []try{{"ok", lost}}, nil, "", lost, unknown, 0, "lease_lost marked_unknown"},
		{"a Final error may come after it was applied", plan(fails(final)), []try{{"ok", failed}}, nil, "", failed, unknown, 0, "store_error marked_unknown"},

		{"request lost", plan(requestLost), []try{{"ok", errLost}}, nil, "", errLost, unknown, 0, "store_error marked_unknown"},
		{"request lost, ignored", plan(requestLost), []try{{"ok", failed}}, instead(nil), "", errLost, unknown, 0, "store_error marked_unknown"},
		{"request lost, another error", plan(requestLost), []try{{"ok", failed}}, instead(errDown), "", errDown, unknown, 0, "store_error marked_unknown"},
		{"request lost, Final", plan(requestLost), []try{{"ok", failed}}, instead(final), "", errLost, unknown, 0, "store_error marked_unknown"},
		{"request lost, NotExecuted", plan(requestLost), []try{{"ok", failed}}, idempotent.NotExecuted, "", errLost, unknown, 0, "store_error marked_unknown"},
		{"request lost, NotExecuted of another error", plan(requestLost), []try{{"ok", failed}}, instead(idempotent.NotExecuted(errDown)), "", errLost, unknown, 0, "store_error marked_unknown"},
		{"request lost, then refused, ignored", plan(requestLost, fails(errRefused)), []try{{"ok", failed}, {"ok", failed}},
			instead(nil), "", errLost, unknown, 0, "store_error marked_unknown"},
		{"request lost, again", plan(requestLost), []try{{"ok", failed}, {"ok", nil}}, nil, "ok", nil, completed, 1, "store_error completed"},
		{"request lost, again after a sweep", plan(requestLost, comesAfter(swept)), []try{{"ok", failed}, {"ok", nil}},
			nil, "ok", nil, completed, 1, "store_error late_completion"},
		{"reply lost", plan(replyLost), []try{{"ok", failed}}, nil, "ok", nil, completed, 1, "store_error completed replayed"},
		{"reply lost, again", plan(replyLost), []try{{"ok", failed}, {"ok", nil}, {"ok", idempotent.ErrExecutionEnded}},
			instead(nil), "ok", nil, completed, 1, "store_error completed"},
		{"reply lost, then another result", plan(replyLost), []try{{"a", failed}, {"b", settled}},
			instead(nil), "a", nil, completed, 1, "store_error completed replayed"},
		{"reply lost, request lost, again", plan(replyLost, requestLost), []try{{"ok", failed}, {"ok", failed}, {"ok", nil}},
			nil, "ok", nil, completed, 1, "store_error store_error completed"},

		{"a step of its own", plan(comesAfter(func(*driver.Record) {})), []try{{"ok", nil}}, nil, "ok", nil, completed, 1, "completed"},
		{"a sweeper", plan(comesAfter(swept)), []try{{"ok", nil}}, nil, "ok", nil, completed, 1, "late_completion"},
		{"a resolver that found nothing", plan(comesAfter(released)), []try{{"ok", nil}}, nil, "ok", nil, completed, 1, "contradicted late_completion"},
		{"evidence", plan(comesAfter(byWebhook)), []try{{"ok", settled}}, nil, "by the webhook", nil, completed, 0, "contradicted replayed"},
		{"equal evidence, twice", plan(comesAfter(byWebhook)), []try{{"by the webhook", settled}, {"by the webhook", settled}},
			instead(nil), "by the webhook", nil, completed, 0, "replayed"},
		{"another owner", plan(comesAfter(stolen)), []try{{"ok", lost}}, nil, "", lost, driver.StateInProgress, 0, "lease_lost lease_lost"},
	} {
		l := &ledger{fixture: newFixture(t), plan: c.plan}
		value, err := l.do(func(ctx context.Context) (string, error) {
			var last error
			for _, try := range c.tries {
				last = commit(ctx, try.result, l.book)
				try.check(t, c.name, last)
				if last != nil && strings.Count(last.Error(), idempotent.ErrNotApplied.Error()) > 1 {
					t.Errorf("%s: the error repeats itself: %v", c.name, last)
				}
			}
			if c.own != nil {
				last = c.own(last)
			}
			return "ok", last
		})
		if value != c.value && c.err == nil || !errtype.Matches(err, c.err) || idempotent.IsNotExecuted(err) && c.state != retryable {
			t.Errorf("%s: the caller gets %q, %v; want %q, %v", c.name, value, err, c.value, c.err)
		}
		if r := l.record(); r.State != c.state || l.booked != c.booked || (c.booked > 0) != (l.sent > 0 && l.booked == 1) {
			t.Errorf("%s: the record is %s (%s) and %d entries are booked, want %s and %d", c.name, r.State, r.Reason, l.booked, c.state, c.booked)
		}
		if kinds := l.kinds(); kinds != "reserved "+c.events {
			t.Errorf("%s: events %s, want %s", c.name, kinds, c.events)
		}
		if c.state != completed {
			continue
		}
		if again, err := l.do(never[string]); again != c.value || err != nil {
			t.Errorf("%s: a retry gets %q, %v; want %q", c.name, again, err, c.value)
		}
	}
}

// passes runs a handler that commits pass and returns own, twice. It returns what both
// callers got, and the error of the Commit.
func passes[T any](t *testing.T, own T, pass any, optFns ...func(*idempotent.Options)) (got [2]string, err error) {
	t.Helper()
	f, runs := newFixture(t, optFns...), 0
	for i := range got {
		v, failed := idempotent.Do(f.invocation(), f.guard, f.key, func(ctx context.Context) (T, error) {
			runs++
			e, _ := idempotent.FromContext(ctx)
			err = e.Commit(ctx, pass, e.Store().Replace)
			return own, nil
		})
		if failed != nil || runs != 1 {
			t.Errorf("request %d: got error %v after %d runs", i+1, failed, runs)
		}
		got[i] = encodedByLambda(t, v)
	}
	return got, err
}

// Every caller gets what was committed, or Commit says which type it wants instead.
func TestCommitOfAnotherType(t *testing.T) {
	t.Parallel()
	type receipt struct {
		ID   string `json:"id"`
		Note string `json:"note,omitempty"`
	}
	own := receipt{ID: "own"}
	gets := func(got [2]string, err error) string {
		if err != nil {
			if !errors.Is(err, idempotent.ErrNotApplied) || got[0] != got[1] || !strings.Contains(err.Error(), "return NotExecuted") {
				t.Errorf("%q, error %v", got, err)
			}
			_, says, _ := strings.Cut(err.Error(), "Commit got a ")
			return says
		}
		if got[0] != got[1] {
			t.Errorf("the first caller got %s, the retry %s", got[0], got[1])
		}
		return got[0]
	}
	const wants = ", and the handler's result is a "
	for name, row := range map[string]struct{ got, want string }{
		"a value":         {gets(passes(t, own, receipt{ID: "r"})), `{"id":"r"}`},
		"a pointer":       {gets(passes(t, own, &receipt{ID: "r"})), `{"id":"r"}`},
		"a nil pointer":   {gets(passes(t, own, (*receipt)(nil))), "*idempotent_test.receipt" + wants + "idempotent_test.receipt"},
		"nothing":         {gets(passes(t, own, nil)), "<nil>" + wants + "idempotent_test.receipt"},
		"all its members": {gets(passes(t, own, map[string]any{"note": "n", "id": "r"})), `{"id":"r","note":"n"}`},
		"the members it needs": {gets(passes(t, own, struct {
			ID string `json:"id"`
		}{"r"})), `{"id":"r"}`},
		"other members":         {gets(passes(t, own, struct{ Ref string }{"r"})), "struct { Ref string }" + wants},
		"one more":              {gets(passes(t, own, map[string]any{"id": "r", "total": 1})), "map[string]interface {}" + wants},
		"text":                  {gets(passes(t, own, "r")), "string" + wants + "idempotent_test.receipt, which a retry would get instead; pass a idempotent_test.receipt, and return NotExecuted if nothing else happened: json: "},
		"raw JSON":              {gets(passes(t, own, json.RawMessage(` {"note":"n", "id":"\u0072"}`))), `{"id":"r","note":"n"}`},
		"raw JSON of another":   {gets(passes(t, own, json.RawMessage(`[1]`))), "json"},
		"text to a pointer":     {gets(passes(t, new("own"), "r")), `"r"`},
		"nothing to a pointer":  {gets(passes(t, new("own"), nil)), `null`},
		"anything to any":       {gets(passes[any](t, own, receipt{ID: "r"})), `{"id":"r"}`},
		"a number to any":       {gets(passes[any](t, own, json.RawMessage("1.50"))), `1.50`},
		"a large map":           {gets(passes(t, map[string]string{}, json.RawMessage(`{"b":"`+strings.Repeat("x", 5000)+`","a":""}`))), `{"a":"","b":"` + strings.Repeat("x", 5000) + `"}`},
		"its own, changed":      {gets(passes(t, "own", "R", func(o *idempotent.Options) { o.Codec = texts{} })), `"r"`},
		"a pointer to it":       {gets(passes(t, "own", new("R"), func(o *idempotent.Options) { o.Codec = texts{} })), `"r"`},
		"JSON of another codec": {gets(passes(t, "own", named("1E2"), func(o *idempotent.Options) { o.Codec = texts{} })), "idempotent_test.named" + wants + "string"},
		"an int to a float":     {gets(passes(t, 0.5, 7)), `7`},
		"a float to an int":     {gets(passes(t, 7, 0.5)), "float64" + wants + "int"},
		"to no result":          {gets(passes(t, struct{}{}, "placed")), "string" + wants + "struct {}"},
		"another codec's value": {gets(passes(t, "own", named("r"), func(o *idempotent.Options) { o.Codec = texts{} })), `"r"`},
		"a value it changes":    {gets(passes(t, "own", named("R"), func(o *idempotent.Options) { o.Codec = texts{} })), "idempotent_test.named" + wants + "string"},
	} {
		if row.got != row.want && (!strings.Contains(row.want, wants) && row.want != "json" || !strings.HasPrefix(row.got, row.want)) {
			t.Errorf("%s: got %.200s, want %s", name, row.got, row.want)
		}
	}
	if _, err := passes(t, 0.5, math.NaN()); !errors.Is(err, idempotent.ErrNotApplied) || !strings.Contains(err.Error(), "NaN") {
		t.Errorf("a value that cannot be stored: got error %v", err)
	}
	f := newFixture(t) // that the execution has ended is said first
	var e *idempotent.Execution
	if _, err := f.do(func(ctx context.Context) (string, error) {
		e, _ = idempotent.FromContext(ctx)
		if err := e.Commit(ctx, "ok", e.Store().Replace); err != nil {
			t.Errorf("got error %v", err)
		}
		if err := e.Commit(ctx, 1, e.Store().Replace); err != idempotent.ErrExecutionEnded {
			t.Errorf("after a Commit: got error %v", err)
		}
		return "", nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := e.Commit(t.Context(), 1, e.Store().Replace); err != idempotent.ErrExecutionEnded {
		t.Errorf("after the end: got error %v", err)
	}
}

// texts is a codec that stores text in lower case.
type texts struct{ raw }

func (texts) Encode(v any) ([]byte, error) {
	return []byte(reflect.Indirect(reflect.ValueOf(v)).String()), nil
}
func (texts) Decode(b []byte, v any) error { *v.(*string) = strings.ToLower(string(b)); return nil }

// A Commit in doubt keeps a record under Resume open and due, without a step too.
func TestCommitInDoubtIsResumable(t *testing.T) {
	t.Parallel()
	l := &ledger{fixture: newFixture(t, resume("pay")), plan: plan(requestLost)}
	_, _ = l.do(func(ctx context.Context) (string, error) { return "", commit(ctx, "ok", l.book) })
	if r := l.record(); r.State != driver.StateRetryable || r.OpenSince.IsZero() || r.Due.IsZero() {
		t.Errorf("the record is %s, open since %s, due %s", r.State, r.OpenSince, r.Due)
	}
}

// FM60, FM14: a worker that outlived its lease commits, with the domain write, on
// the current record while it still owns it; never after a takeover.
func TestLateCommit(t *testing.T) {
	t.Parallel()
	for recovery, c := range map[idempotent.Recovery]struct {
		want   error
		booked int
		kind   event.Kind
	}{
		idempotent.Reconcile: {nil, 1, event.LateCompletion},
		idempotent.Rerun:     {new(idempotent.SettledError), 0, event.LeaseLost},
	} {
		l := &ledger{fixture: newFixture(t, func(o *idempotent.Options) { o.Recovery = recovery })}
		_, err := l.do(func(ctx context.Context) (string, error) {
			l.clock.Advance(time.Hour)
			other, err := l.do(charged)
			if reruns := recovery == idempotent.Rerun; reruns && (other != "ch_1" || err != nil) || !reruns && !errors.As(err, new(*idempotent.UnresolvedError)) {
				t.Errorf("%s: the second request gets %q, %v", recovery, other, err)
			}
			err = commit(ctx, "late", l.book)
			try{"late", c.want}.check(t, recovery.String(), err)
			return "late", err
		})
		// A late owner that is refused contradicts nothing.
		if err != nil || l.booked != c.booked || l.events.Count(c.kind) == 0 || l.events.Count(event.Contradicted) != 0 {
			t.Errorf("%s: the caller gets error %v; %d entries are booked, want %d; events %s", recovery, err, l.booked, c.booked, l.events.Kinds())
		}
	}
}

// What cannot be sent is not: under an ended context, and a result of a step that is too
// large. After the outcome, nothing is.
func TestCommitIsNotSent(t *testing.T) {
	t.Parallel()
	l := &ledger{fixture: newFixture(t)}
	_, _ = l.do(func(ctx context.Context) (string, error) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := commit(ended, "x", l.book); !errors.Is(err, context.Canceled) || !errors.Is(err, idempotent.ErrNotApplied) {
			t.Errorf("under an ended context: %v", err)
		}
		if _, err := idempotent.CommitStep(ctx, "x", letters(200_000), l.book); !errors.As(err, new(*idempotent.StepError)) || !errors.Is(err, idempotent.ErrNotApplied) {
			t.Errorf("a large result of a step: %v", err)
		}
		return "", errDown
	})
	if l.sent != 0 {
		t.Errorf("%d transactions were sent", l.sent)
	}
	if _, err := idempotent.CommitStep(t.Context(), "order", 1, l.book); !errors.As(err, new(*idempotent.StepError)) {
		t.Errorf("outside an execution: got error %v", err)
	}
}

// A panic after a commit does not change the record, and is reported.
func TestPanicAfterCommit(t *testing.T) {
	t.Parallel()
	l := &ledger{fixture: newFixture(t)}
	l.panics(func(ctx context.Context) (string, error) {
		if err := commit(ctx, "ch_1", l.book); err != nil {
			t.Error(err)
		}
		panic("afterwards")
	})
	if kinds := l.kinds(); l.record().State != driver.StateCompleted || kinds != "reserved completed contradicted" || len(l.calls) != 1 {
		t.Errorf("the record is %s, calls %v, events %s", l.record().State, l.calls, kinds)
	}
}

// writeOnly stores chunks but never returns them.
type writeOnly struct{ driver.ChunkStore }

func (writeOnly) GetChunks(context.Context, idempotent.RecordID, driver.Version, int) ([]byte, error) {
	return nil, errDown
}

// A large result is stored beside the record before the transaction, or the transaction is
// not sent. If it found another write, it is sent again as a new request: with another
// version, and with the chunks under that version.
func TestCommitLargeResult(t *testing.T) {
	t.Parallel()
	l := &ledger{fixture: newFixture(t), plan: plan(comesAfter(func(*driver.Record) {}))}
	store, large := newChunked(l.Store), noise(50_000)
	l.fixture = l.over(store, func(o *idempotent.Options) { o.Codec = raw{} })
	var versions []driver.Version
	if _, err := l.do(func(ctx context.Context) (string, error) {
		return large, commit(ctx, large, func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
			versions = append(versions, next.Version)
			return l.book(ctx, next, was)
		})
	}); err != nil || len(versions) != 2 || versions[0] == versions[1] {
		t.Errorf("error %v; the transaction was sent with the versions %x", err, versions)
	}
	if r := l.record(); r.Chunks.Count == 0 || r.Result != nil {
		t.Errorf("the result is not in chunks: %+v", r.Chunks)
	}
	if got, err := l.do(forbidden(t)); got != large || err != nil {
		t.Errorf("a retry gets %d bytes, error %v", len(got), err)
	}

	l.key = newKey()
	l.on(driver.OpPutChunks, fail(errDown))
	_, err := l.do(func(ctx context.Context) (string, error) {
		err := commit(ctx, large, l.book)
		if !errors.Is(err, idempotent.ErrNotApplied) || !errors.Is(err, errDown) {
			t.Errorf("without room for chunks: %v", err)
		}
		return "", idempotent.NotExecuted(err)
	})
	if !errors.Is(err, errDown) || l.events.Count(event.StoreError) != 1 || l.booked != 1 {
		t.Errorf("without room for chunks: %v, events %s", err, l.events.Kinds())
	}
}

// A retry in the same process gets a large committed result from the cache, whatever the
// handler returned after its Commit.
func TestCommitLargeResultAtHand(t *testing.T) {
	t.Parallel()
	large := letters(20_000)
	for _, after := range []error{nil, errDown} {
		l := &ledger{fixture: newFixture(t)}
		l.fixture = l.over(struct {
			driver.Store
			driver.ChunkStore
		}{l.Store, writeOnly{newChunked(memstore.New())}}, func(o *idempotent.Options) { o.CacheEntries, o.CacheBytes = 1, 1<<20 })
		for range 2 {
			if v, err := l.do(func(ctx context.Context) (string, error) {
				return "", errors.Join(commit(ctx, large, l.book), after)
			}); err != nil || v != large {
				t.Errorf("%v after Commit: %d bytes, %v", after, len(v), err)
			}
		}
		if want := []string{"insert", "put_chunks"}; !slices.Equal(l.calls, want) {
			t.Errorf("%v; want a retry to use the cache", l.calls)
		}
	}
}

// A step's transaction is recorded once, with its writes, however often it is tried. One
// that was not applied has no effect: the handler can continue without it, or try again. A
// step in doubt is not done, because its writes may be missing.
func TestCommitStep(t *testing.T) {
	t.Parallel()
	var (
		failed = new(idempotent.StoreError)
		lost   = new(idempotent.LeaseLostError)
		wrong  = new(idempotent.StepError)
	)
	const completed, retryable = driver.StateCompleted, driver.StateRetryable
	for _, c := range []struct {
		name    string
		plan    []fate
		steps   []string
		tries   []try             // of the steps, in order
		own     func(error) error // what the handler returns, with "done", after its last try
		err     error             // that the caller gets
		state   driver.State
		booked  int
		finally int // after a second run without faults
	}{
		{"applied", nil, []string{"a"}, []try{{"x", nil}}, instead(errDown), errDown, retryable, 1, 1},
		{"sent again by the SDK", plan(sentTwice), []string{"a"}, []try{{"x", nil}}, same, nil, completed, 1, 1},
		{"refused", plan(fails(errRefused)), []string{"a"}, []try{{"x", errRefused}}, same, errRefused, retryable, 0, 1},
		{"refused, ignored", plan(fails(errRefused)), []string{"a"}, []try{{"x", errRefused}}, instead(nil), nil, completed, 0, 0},
		{"refused, again", plan(fails(errRefused)), []string{"a", "a"}, []try{{"x", errRefused}, {"y", nil}}, same, nil, completed, 1, 1},
		{"too large, ignored", plan(fails(driver.ErrTooLarge)), []string{"a"}, []try{{"x", idempotent.ErrNotApplied}}, instead(nil), nil, completed, 0, 0},
		{"too large, again", plan(fails(driver.ErrTooLarge)), []string{"a", "a"}, []try{{"x", idempotent.ErrNotApplied}, {"y", nil}}, same, nil, completed, 1, 1},
		{"another write every time", contended[:maxTries], []string{"a", "a"}, []try{{"x", idempotent.ErrNotApplied}, {"y", nil}}, same, nil, completed, 1, 1},
		{"it does not encode", nil, []string{"a", "a"}, []try{{math.NaN(), wrong}, {"y", nil}}, same, nil, completed, 1, 1},
		{"not declared", nil, []string{"mail"}, []try{{"x", wrong}}, instead(errDown), errDown, retryable, 0, 1},
		{"request lost", plan(requestLost), []string{"a"}, []try{{"x", errLost}}, same, errLost, retryable, 0, 1},
		{"request lost, ignored", plan(requestLost), []string{"a"}, []try{{"x", failed}}, instead(nil), errLost, retryable, 0, 1},
		{"request lost, then refused, ignored", plan(requestLost, fails(errRefused)), []string{"a", "a"}, []try{{"x", failed}, {"x", failed}},
			instead(nil), errLost, retryable, 0, 1},
		{"request lost, again", plan(requestLost), []string{"a", "a"}, []try{{"x", failed}, {"x", nil}}, instead(errDown), errDown, retryable, 1, 1},
		{"request lost twice, and one again", plan(requestLost, requestLost), []string{"a", "b", "b"}, []try{{"x", failed}, {"x", failed}, {"x", nil}},
			instead(nil), errLost, retryable, 1, 2},
		{"reply lost", plan(replyLost), []string{"a"}, []try{{"x", failed}}, same, errLost, retryable, 1, 1},
		{"reply lost, again", plan(replyLost), []string{"a", "a"}, []try{{"x", failed}, {"x", nil}}, same, nil, completed, 1, 1},
		{"another owner", plan(comesAfter(stolen)), []string{"a"}, []try{{"x", lost}}, same, lost, driver.StateInProgress, 0, 0},
	} {
		l := &ledger{fixture: newFixture(t, resume("a", "b")), plan: c.plan}
		value, err := l.do(func(ctx context.Context) (string, error) {
			var last error
			for i, try := range c.tries {
				_, last = idempotent.CommitStep(ctx, c.steps[i], try.result, l.book)
				try.check(t, c.name, last)
			}
			return "done", c.own(last)
		})
		if !errtype.Matches(err, c.err) || (value == "done") != (err == nil) {
			t.Errorf("%s: got %q and error %v, want %v", c.name, value, err, c.err)
		}
		if r := l.record(); r.State != c.state || l.booked != c.booked {
			t.Errorf("%s: the record is %s and %d entries are booked, want %s and %d", c.name, r.State, l.booked, c.state, c.booked)
		}
		if c.state == driver.StateInProgress {
			continue
		}
		l.plan = nil
		if v, err := l.do(func(ctx context.Context) (string, error) {
			for _, step := range slices.Compact(slices.Clone(c.steps)) {
				if step == "mail" {
					step = "a"
				}
				if _, err := idempotent.CommitStep(ctx, step, any("x"), l.book); err != nil {
					return "", err
				}
			}
			return "done", nil
		}); v != "done" || err != nil || l.booked != c.finally {
			t.Errorf("%s: the second run: %q, %v; %d entries are booked, want %d", c.name, v, err, l.booked, c.finally)
		}
	}
}

// While a step's transaction is in doubt, the handler cannot commit.
func TestCommitAfterAStepInDoubt(t *testing.T) {
	t.Parallel()
	l := &ledger{fixture: newFixture(t, resume("a")), plan: plan(requestLost)}
	if v, err := l.do(func(ctx context.Context) (string, error) {
		for call, want := range []error{errLost, nil} {
			_, err := idempotent.CommitStep(ctx, "a", "x", l.book)
			try{"the step", want}.check(t, "CommitStep", err)
			err = commit(ctx, "done", l.book)
			if refused := err != nil && strings.Contains(err.Error(), "call CommitStep again first"); refused != (call == 0) {
				t.Errorf("Commit after call %d: %v", call+1, err)
			}
		}
		return "done", nil
	}); v != "done" || err != nil || l.booked != 2 || l.sent != 3 {
		t.Errorf("%q, %v; %d entries are booked in %d transactions", v, err, l.booked, l.sent)
	}
}

// The result of a step is the recorded one, not a mixture with this run's value.
func TestCommitStepGivesWhatIsRecorded(t *testing.T) {
	t.Parallel()
	l := &ledger{fixture: newFixture(t, resume("order"))}
	for i := range 2 {
		_, _ = l.do(func(ctx context.Context) (string, error) {
			got, err := idempotent.CommitStep(ctx, "order", map[int]string{i: "x"}, l.book)
			if err != nil || len(got) != 1 || got[0] != "x" {
				t.Errorf("run %d: %v, %v", i, got, err)
			}
			return "", errDown
		})
	}
	if kinds := l.kinds(); kinds != "reserved step_done retryable taken_over step_replayed retryable" {
		t.Errorf("events %s", kinds)
	}

	// The first try was applied and its reply lost; the second has another result.
	l.key, l.plan = newKey(), plan(replyLost)
	_, err := l.do(func(ctx context.Context) (string, error) {
		_, err := idempotent.CommitStep(ctx, "order", map[int]string{1: "x"}, l.book)
		try{"the lost reply", errLost}.check(t, "", err)
		got, err := idempotent.CommitStep(ctx, "order", map[int]string{2: "x"}, l.book)
		if err != nil || len(got) != 1 || got[1] != "x" {
			t.Errorf("the next try: %v, %v", got, err)
		}
		return "done", err
	})
	if kinds := l.kinds(); err != nil || l.booked != 2 || kinds != "reserved store_error step_done completed" {
		t.Errorf("%v, booked %d, events %s", err, l.booked, kinds)
	}
}

// A step of another owner is not a step of this run.
func TestStepOfAnotherOwnerIsNotReplayed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, resume("a", "b"))
	f.on(driver.OpReplace, first(after(func(r *driver.Record) {
		stolen(r)
		r.Steps = []driver.StepRecord{{Name: "b", Finished: true, Encoding: "json", Result: []byte(`"theirs"`)}}
	})))
	_, _ = f.do(func(ctx context.Context) (string, error) {
		for _, name := range []string{"a", "b"} {
			if v, err := idempotent.Step(ctx, name, charged); !errors.As(err, new(*idempotent.LeaseLostError)) {
				t.Errorf("step %s: %q, %v", name, v, err)
			}
		}
		return "", errDown
	})
}

// A Commit whose reply was lost can be tried again with the same result, also after a step
// found what it had written. No later step runs, and every caller gets that, whatever the
// handler returns.
func TestStepFindsTheCommit(t *testing.T) {
	t.Parallel()
	for _, mode := range [][]func(*idempotent.StepOptions){nil, {atMostOnce}} {
		for _, again := range []bool{false, true} {
			for _, own := range []error{nil, errDown} {
				l := &ledger{fixture: newFixture(t, resume("a")), plan: plan(replyLost)}
				var ended context.Context
				value, err := l.do(func(ctx context.Context) (string, error) {
					ended = context.WithoutCancel(ctx)
					try{"the lost reply", errLost}.check(t, "Commit", commit(ctx, "x", l.book))
					for i, h := range []handlerFunc{charged, never[string]} {
						if _, err := idempotent.Step(ctx, fmt.Sprint("a/", i), h, mode...); err != idempotent.ErrExecutionEnded {
							t.Errorf("step %d: %v", i, err)
						}
					}
					if again {
						try{"another result", new(idempotent.SettledError)}.check(t, "Commit", commit(ctx, "y", l.book))
						try{"the same result", nil}.check(t, "Commit", commit(ctx, "x", l.book))
					}
					return "y", own
				})
				if err := commit(ended, "x", l.book); err != idempotent.ErrExecutionEnded {
					t.Errorf("a Commit after the end of the handler: %v", err)
				}
				if value != "x" || err != nil || l.booked != 1 || l.events.Count(event.Completed) != 1 {
					t.Errorf("again %t, the handler returned %v: %q, %v, booked %d, events %s", again, own, value, err, l.booked, l.events.Kinds())
				}
			}
		}
	}
}

// A second Commit that cannot open the stored result is in doubt, too.
func TestCommitAgainCannotRead(t *testing.T) {
	t.Parallel()
	sealer := kit.NewSealer()
	sealer.BeforeOpen = func(context.Context, []byte, []byte) error { return errDown }
	l := &ledger{fixture: newFixture(t, sealer.Option), plan: plan(replyLost)}
	_, _ = l.do(func(ctx context.Context) (string, error) {
		for call := range 2 {
			if err := commit(ctx, "x", l.book); !errors.As(err, new(*idempotent.StoreError)) {
				t.Errorf("Commit %d: %v", call, err)
			}
		}
		return "x", nil
	})
}
