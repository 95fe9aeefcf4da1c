// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/invariant"
	"github.com/once-lambda/once/internal/kit"
)

// fixture is what a test works with: a store, a clock, a key, and a guard whose calls to
// the store it sees and can change. Another guard is another party: see with.
type fixture struct {
	*memstore.Store // as it is, without hooks
	t               *testing.T
	clock           *idempotenttest.Clock
	key             idempotent.Key
	guard           *idempotent.Guard
	events          *idempotenttest.Recorder // about records: see aboutRecords

	mu    sync.Mutex
	calls []string // of the guard to its store: "insert", "replace" and "get", in order
	hooks map[driver.Op]func(*call)
	made  map[driver.Op]int // calls since their hook was set
}

// start is when the clock of every fixture begins: so late that no context of a test
// ends at its deadline.
var start = time.Now().Add(1000 * time.Hour).UTC().Truncate(time.Millisecond)

func newFixture(t *testing.T, optFns ...func(*idempotent.Options)) *fixture {
	t.Helper()
	f := &fixture{Store: memstore.New(), t: t, clock: new(idempotenttest.Clock), key: newKey()}
	f.clock.Advance(start.Sub(f.clock.Now()))
	return f.with(optFns...)
}

// with returns f with another guard, which has its own events, calls and hooks.
func (f *fixture) with(optFns ...func(*idempotent.Options)) *fixture {
	f.t.Helper()
	return f.over(f.Store, optFns...)
}

// over returns f with another guard, whose store is s around that of f.
func (f *fixture) over(s driver.Store, optFns ...func(*idempotent.Options)) *fixture {
	f.t.Helper()
	other := &fixture{Store: f.Store, t: f.t, clock: f.clock, key: f.key, hooks: map[driver.Op]func(*call){}, made: map[driver.Op]int{}}
	clocked := func(o *idempotent.Options) { o.Now = f.clock.Now }
	other.guard, other.events = newGuardOver(f.t, idempotenttest.Intercept(s, other.call), append([]func(*idempotent.Options){clocked}, optFns...)...)
	return other
}

// call is a call of the guard to its store. A hook makes it with do, or answers in its
// place.
type call struct {
	*idempotenttest.StoreCall
	*fixture
	ctx context.Context
	n   int // how many calls of its kind came since the hook was set, with this one
}

func (c *call) do() { c.Do(c.ctx) }

func (f *fixture) call(ctx context.Context, c *idempotenttest.StoreCall) {
	f.mu.Lock()
	f.calls = append(f.calls, string(c.Op))
	f.made[c.Op]++
	hook, n := f.hooks[c.Op], f.made[c.Op]
	f.mu.Unlock()
	if hook == nil {
		c.Do(ctx)
		return
	}
	hook(&call{c, f, ctx, n})
}

// on sets the hook of calls of op. Without a hook the store gets them.
func (f *fixture) on(op driver.Op, hook func(*call)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hooks[op], f.made[op] = hook, 0
}

// fail is a hook: the calls fail with err.
func fail(err error) func(*call) { return func(c *call) { c.Err = err } }

// lose is a hook: the calls are made, and fail with err.
func lose(err error) func(*call) {
	return func(c *call) {
		c.do()
		c.Current, c.Err = nil, err
	}
}

// first is a hook: only the first call meets that hook.
func first(hook func(*call)) func(*call) {
	return func(c *call) {
		if c.n > 1 {
			c.do()
			return
		}
		hook(c)
	}
}

// after is a hook: before the call, another party has changed the record.
func after(change func(*driver.Record)) func(*call) {
	return func(c *call) {
		c.change(change)
		c.do()
	}
}

// meets is a hook: the call meets the record r of the key, which the store need not have.
func meets(r driver.Record) func(*call) {
	return func(c *call) {
		r.ID, r.Fingerprint = c.key.RecordID(), invariant.StoredFingerprint(c.key)
		c.Current = r.Clone()
	}
}

// slow is a hook: the call takes d by the clock.
func slow(d time.Duration) func(*call) {
	return func(c *call) {
		c.clock.Advance(d)
		c.do()
	}
}

type handlerFunc = func(context.Context) (string, error)

// invocation returns the context of an invocation of ten seconds.
func (f *fixture) invocation() context.Context {
	return f.clock.Invocation(f.t.Context(), 10*time.Second)
}

// do sends a request.
func (f *fixture) do(h handlerFunc, optFns ...func(*idempotent.Operation)) (string, error) {
	return idempotent.Do(f.invocation(), f.guard, f.key, h, optFns...)
}

// outcome sends a request, too.
func (f *fixture) outcome(h handlerFunc, optFns ...func(*idempotent.Operation)) (idempotent.Outcome[string], error) {
	return idempotent.DoOutcome(f.invocation(), f.guard, f.key, h, optFns...)
}

// panics sends a request whose handler may panic, and returns what it panicked with.
func (f *fixture) panics(h handlerFunc) any { return panics(func() { _, _ = f.do(h) }) }

// panics returns what f panicked with.
func panics(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

// dies leaves the record as a process does that is killed at the end of during.
func (f *fixture) dies(during func(ctx context.Context), optFns ...func(*idempotent.Operation)) {
	f.t.Helper()
	_, _ = f.do(func(ctx context.Context) (string, error) {
		if during != nil {
			during(ctx)
		}
		f.on(driver.OpReplace, fail(errDown))
		return "", errDown
	}, optFns...)
	f.on(driver.OpReplace, nil)
}

// record returns the stored record.
func (f *fixture) record() *driver.Record {
	f.t.Helper()
	return record(f.t, f.Store, f.key)
}

// holds inserts a record of the key, as another party wrote it.
func (f *fixture) holds(r driver.Record) {
	f.t.Helper()
	r.ID, r.Version = f.key.RecordID(), driver.Version{1}
	if r.Fingerprint == (idempotent.Fingerprint{}) {
		r.Fingerprint = invariant.StoredFingerprint(f.key)
	}
	if met, err := f.Insert(f.t.Context(), r, time.Unix(0, 0)); met != nil || err != nil {
		f.t.Fatal(met, err)
	}
}

// change writes the record as another party.
func (f *fixture) change(change func(*driver.Record)) {
	f.t.Helper()
	r := f.record()
	was := r.Version
	rand.Read(r.Version[:])
	change(r)
	if met, err := f.Replace(f.t.Context(), *r, was); met != nil || err != nil {
		f.t.Fatal(met, err)
	}
}

func (f *fixture) resolve(r idempotent.Resolution) error {
	return f.guard.Resolve(f.t.Context(), f.key.RecordID(), r)
}

// mustResolve fails the test if the evidence is refused.
func (f *fixture) mustResolve(r idempotent.Resolution) {
	f.t.Helper()
	if err := f.resolve(r); err != nil {
		f.t.Error(err)
	}
}

// notExecuted is evidence that the current attempt had no effect.
func (f *fixture) notExecuted() idempotent.Resolution {
	f.t.Helper()
	return idempotent.ProvenNotExecuted(f.record().Token())
}

// reconcile runs in a bubble, in which workers that wait without end fail at once.
func (f *fixture) reconcile(resolve idempotent.ResolveFunc, optFns ...func(*idempotent.ReconcileOptions)) (report idempotent.Report) {
	f.t.Helper()
	synctest.Test(f.t, func(t *testing.T) {
		var err error
		if report, err = kit.Reconcile(t.Context(), f.guard, resolve, optFns...); err != nil {
			t.Fatal(err)
		}
	})
	return report
}

// sweep processes the ends of leases.
func (f *fixture) sweep() idempotent.Report {
	f.t.Helper()
	return f.reconcile(nil, sweepOnly)
}

func sweepOnly(o *idempotent.ReconcileOptions) { o.SweepOnly = true }

// kinds returns the kinds of all events, and forgets them.
func (f *fixture) kinds() string {
	kinds := fmt.Sprint(f.events.Kinds())
	*f.events = idempotenttest.Recorder{}
	return strings.Trim(kinds, "[]")
}

var errDown = errors.New("the provider is down")

func record(t *testing.T, s driver.Store, key idempotent.Key) *driver.Record {
	t.Helper()
	r, err := s.Get(t.Context(), key.RecordID())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// unknowns leaves n records unknown and due, and returns their keys, of which the last one
// becomes the key of f.
func (f *fixture) unknowns(n int) (keys []idempotent.Key) {
	f.t.Helper()
	for range n {
		f.key = newKey()
		f.dies(nil)
		keys = append(keys, f.key)
	}
	f.clock.Advance(time.Minute)
	f.sweep()
	f.clock.Advance(time.Hour)
	return keys
}

// giveUp gives up every record that is due.
func (f *fixture) giveUp() {
	f.t.Helper()
	f.reconcile(answer(idempotent.Later(0)), func(o *idempotent.ReconcileOptions) {
		o.GiveUpAfter, o.ReleasedFor = ms, ms
	})
}

// newGuard returns a guard over a new memory store and the recorder of its
// events, except that a request ended: see TestRequestEnded.
func newGuard(t *testing.T, optFns ...func(*idempotent.Options)) (*idempotent.Guard, *idempotenttest.Recorder) {
	t.Helper()
	return newGuardOver(t, memstore.New(), optFns...)
}

func newGuardOver(t *testing.T, s driver.Store, optFns ...func(*idempotent.Options)) (*idempotent.Guard, *idempotenttest.Recorder) {
	t.Helper()
	events := &idempotenttest.Recorder{}
	g, err := idempotent.New(s, append([]func(*idempotent.Options){func(o *idempotent.Options) {
		o.Observer, o.Logger = aboutRecords(events), slog.New(slog.DiscardHandler)
	}}, optFns...)...)
	if err != nil {
		t.Fatal(err)
	}
	return g, events
}

// aboutRecords returns an observer that passes the events about records to o.
func aboutRecords(o event.Observer) event.Observer {
	return event.ObserverFunc(func(ctx context.Context, e event.Event) {
		if e.Kind != event.RequestEnded && e.Kind != event.NoOutcome {
			o.Observe(ctx, e)
		}
	})
}

// newKey returns a key that no other test uses.
func newKey() idempotent.Key {
	return idempotent.Key{
		Operation:   "charge",
		Scope:       "acme",
		ID:          rand.Text(),
		Fingerprint: idempotent.FingerprintBytes([]byte("request")),
	}
}

// quiet is a logger for examples.
var quiet = slog.New(slog.DiscardHandler)

// chunked is a memory store that stores large results beside their records.
type chunked struct {
	*memstore.Store
	mu     sync.Mutex
	chunks map[string][]byte
}

func newChunked(s *memstore.Store) *chunked {
	return &chunked{Store: s, chunks: map[string][]byte{}}
}

// pieceSize is small, so that a result has several pieces.
const pieceSize = 10_000

func piece(id idempotent.RecordID, v driver.Version, i int) string {
	return fmt.Sprintf("%s#%x#%d", id, v, i)
}

func (c *chunked) PutChunks(_ context.Context, id idempotent.RecordID, v driver.Version, data []byte, _ time.Time) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := 0
	for part := range slices.Chunk(data, pieceSize) {
		c.chunks[piece(id, v, count)] = slices.Clone(part)
		count++
	}
	return count, nil
}

func (c *chunked) GetChunks(_ context.Context, id idempotent.RecordID, v driver.Version, count int) (data []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range count {
		part, ok := c.chunks[piece(id, v, i)]
		if !ok {
			return nil, idempotent.ErrNoRecord
		}
		data = append(data, part...)
	}
	return data, nil
}

// fixed sets the clock to a fixed time.
func fixed(now time.Time) func(*idempotent.Options) {
	return func(o *idempotent.Options) { o.Now = func() time.Time { return now } }
}

// now returns the current time as records store it.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// forbidden returns a handler that must not be entered.
func forbidden(t *testing.T) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		t.Error("the handler was entered")
		return "", nil
	}
}
