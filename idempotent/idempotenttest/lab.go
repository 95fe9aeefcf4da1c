// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/internal/faults"
)

// Invocation times of the scenarios: a deadline of 10 s and a margin of 30 s, so
// a lease of 40 s. A write after the deadline has the margin, in real time: a store on a
// busy machine takes seconds for large results.
const (
	timeout = 10 * time.Second
	margin  = 30 * time.Second
	lease   = timeout + margin
)

// lab is one key with its store and its clock, which a scenario controls.
type lab struct {
	testing.TB
	fixture Fixture
	store   driver.Store // without faults, to check the current record
	line    driver.Store // with faults, for the workers
	weather *weather     // the faults of line
	clock   *Clock
	key     idempotent.Key
	events  *Recorder
	effects atomic.Int32 // at the provider
	history *history
}

// newLab returns a lab without faults.
func newLab(t testing.TB, f Fixture) *lab {
	store, clock := f.Open(t), &Clock{}
	return &lab{TB: t, fixture: f, store: store, line: store, weather: newWeather(nil, clock, 0),
		clock: clock, key: newKey(), events: &Recorder{}, history: newHistory()}
}

// errNoReply is the error of a handler that got no reply from the provider.
var errNoReply = errors.New("no reply from the provider")

// worker is one process: a guard with its own connection to the store.
type worker struct {
	*lab
	faults *faults.Injector
	hooks  map[driver.Op]func(context.Context, *StoreCall) // between the guard and the faults
	calls  atomic.Int32                                    // of the guard to its store
	chunks bool                                            // whether the store is a driver.ChunkStore
	puts   []driver.Record                                 // arguments of PutChunks
	guard  *idempotent.Guard
	process
}

func (l *lab) worker(optFns ...func(*idempotent.Options)) *worker {
	l.Helper()
	w := &worker{lab: l, faults: &faults.Injector{}, hooks: make(map[driver.Op]func(context.Context, *StoreCall))}
	store := Intercept(faulty(Intercept(l.line, w.remember), w.faults), w.hook)
	_, w.chunks = store.(driver.ChunkStore)
	base := func(o *idempotent.Options) {
		o.Now, o.Observer, o.LeaseMargin = l.clock.Now, l.events, margin
		o.Logger = discard
	}
	optFns = append([]func(*idempotent.Options){base}, optFns...)
	optFns = append(optFns, func(o *idempotent.Options) { w.now = o.Now })
	if mutation := l.fixture.mutation; mutation.options != nil {
		optFns = append(optFns, mutation.options)
	}
	if mutation := l.fixture.mutation; mutation.calls != nil {
		store = Intercept(store, mutation.calls(func() time.Time { return w.now() }))
	}
	guard, err := idempotent.New(store, optFns...)
	if err != nil {
		l.Fatal(err)
	}
	w.guard = guard
	return w
}

// inject sets the plans for faults between the worker and the store.
func (w *worker) inject(plans ...faults.Plan) { w.faults.Plan = faults.FirstOf(plans...) }

func rerun(o *idempotent.Options) { o.Recovery = idempotent.Rerun }

// charge returns a handler that has its effect and answers id.
func (l *lab) charge(id string) handler {
	return func(context.Context) (string, error) {
		l.effects.Add(1)
		return id, nil
	}
}

// never returns a handler that must not be entered.
func (l *lab) never() handler {
	return func(context.Context) (string, error) {
		l.Error("the handler was entered")
		return "", nil
	}
}

// do sends one request with the lab's key through the worker, as an invocation
// with the usual time-out.
func (w *worker) do(h handler) (idempotent.Outcome[string], error) {
	return w.doKey(w.key, h)
}

func (w *worker) doKey(key idempotent.Key, h handler) (idempotent.Outcome[string], error) {
	return w.doIn(w.clock.Invocation(context.Background(), timeout), key, h)
}

func (w *worker) doIn(ctx context.Context, key idempotent.Key, h handler) (idempotent.Outcome[string], error) {
	a := w.history.asks(&w.process, key)
	r := asked{ctx, key, w.history.watch(a, h)}
	if mutation := w.fixture.mutation; mutation.request != nil {
		mutation.request(&r)
	}
	out, err := idempotent.DoOutcome(r.ctx, w.guard, r.key, r.handler)
	if mutation := w.fixture.mutation; mutation.answer != nil {
		mutation.answer(&out, &err)
	}
	w.history.answered(a, out, err)
	return out, err
}

// record returns what the store holds for the lab's key, or nil.
func (l *lab) record() *driver.Record {
	l.Helper()
	r, err := l.store.Get(context.Background(), l.key.RecordID())
	if errors.Is(err, idempotent.ErrNoRecord) {
		return nil
	}
	if err != nil {
		l.Fatalf("Get: %v", err)
	}
	return r
}

func (l *lab) wantState(want driver.State) {
	l.Helper()
	r := l.record()
	if r == nil {
		l.Fatalf("there is no record, want one that is %s", want)
	}
	if r.State != want {
		l.Fatalf("the record is %s (%s), want %s", r.State, r.Reason, want)
	}
}

func (l *lab) wantEffects(want int32) {
	l.Helper()
	if got := l.effects.Load(); got != want {
		l.Fatalf("the provider saw %d effects, want %d", got, want)
	}
}

func (l *lab) wantEvents(kinds ...event.Kind) {
	l.Helper()
	got := l.events.Kinds()
	for _, k := range kinds {
		if !slices.Contains(got, k) {
			l.Fatalf("no event %q among %v", k, got)
		}
	}
}

// wantReplay sends another request and checks that it gets the stored outcome.
func (w *worker) wantReplay(want string) {
	w.Helper()
	out, err := w.do(w.never())
	if err != nil || out.Value != want || !out.Replayed {
		w.Fatalf("a retry got %s, replayed: %t, and error %v; want the replay of %s", brief([]byte(out.Value)), out.Replayed, err, brief([]byte(want)))
	}
}

// wantRefused sends another request and checks that it is refused.
func (w *worker) wantRefused(want error) {
	w.Helper()
	if out, err := w.do(w.never()); !errtype.Matches(err, want) {
		w.Fatalf("a retry got %s, replayed: %t, and error %v; want %v", brief([]byte(out.Value)), out.Replayed, err, want)
	}
}

// wantRuns sends another request and checks that it is executed.
func (w *worker) wantRuns(id string) {
	w.Helper()
	out, err := w.do(w.charge(id))
	if err != nil || out.Value != id || out.Replayed {
		w.Fatalf("a retry got %s, replayed: %t, and error %v; want it to run and return %q", brief([]byte(out.Value)), out.Replayed, err, id)
	}
}

// endLease moves the clock to the end of the current lease.
func (l *lab) endLease() {
	l.Helper()
	r := l.record()
	if r == nil {
		l.Fatal("there is no record whose lease could end")
	}
	l.clock.advanceTo(r.LeaseEnd)
}

// wantListed fails the scenario unless the record is in the list of due records, if
// the store has one.
func (l *lab) wantListed() {
	l.Helper()
	lister, ok := l.store.(driver.DueLister)
	if !ok {
		return
	}
	time.Sleep(l.fixture.ListLag)
	for e, err := range lister.Due(context.Background(), time.Time{}) {
		switch e.ID {
		case l.key.RecordID():
			return
		case "":
			l.Fatal(err)
		}
	}
	l.Fatal("the record is not in the list of due records")
}

func (w *worker) resolve(r idempotent.Resolution) error {
	return w.guard.Resolve(context.Background(), w.key.RecordID(), r)
}

// found resolves the record by evidence of its result.
func (w *worker) found(result string) error {
	w.history.says(result)
	if w.record().Codec == (rawCodec{}).Name() {
		return w.resolve(idempotent.ResolvedWith(rawCodec{}, result))
	}
	return w.resolve(idempotent.Resolved(result))
}

// commit completes the record with value in a transaction that holds nothing
// else.
func (w *worker) commit(ctx context.Context, value string) error {
	w.Helper()
	execution, ok := idempotent.FromContext(ctx)
	if !ok {
		w.Fatal("the handler's context carries no execution")
	}
	w.history.says(value)
	return execution.Commit(ctx, value, execution.Store().Replace)
}

// remove deletes the record without the store.
func (l *lab) remove() {
	l.Helper()
	l.history.removes(l.record().Version)
	l.must(l.fixture.Remove(context.Background(), l.store, l.key.RecordID()))
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// mustBe checks that err matches want.
func (l *lab) mustBe(err, want error) {
	l.Helper()
	if !errtype.Matches(err, want) {
		l.Fatalf("got error %v, want %v", err, want)
	}
}

// notExecuted resolves the record by proof that its current attempt had no
// effect.
func (w *worker) notExecuted() error {
	return w.resolve(idempotent.ProvenNotExecuted(w.record().Token()))
}

// forget discards the record's outcome as an operator does.
func (w *worker) forget(token string) error {
	w.history.forgets(token)
	return w.guard.Forget(context.Background(), w.key.RecordID(), idempotent.Correction{Token: token, Actor: "operator", Reason: "the outcome is wrong"})
}

// Crashes, panics and lost leases of scenarios.

// crashAfterEffect leaves the record as a process does that was killed between
// its effect and the write of the outcome.
func (l *lab) crashAfterEffect() {
	l.Helper()
	a := l.worker()
	a.inject(faults.On(driver.OpReplace, faults.LostRequest))
	_, err := a.do(l.charge("ch_a"))
	l.must(err)
}

// crash leaves the record as a process does that was killed after during returned,
// while its handler ran: without an outcome.
func (l *lab) crash(during func(context.Context), optFns ...func(*idempotent.Options)) {
	l.Helper()
	a := l.worker(optFns...)
	l.exits(a, func(ctx context.Context) {
		during(ctx)
		a.inject(faults.On(driver.OpReplace, faults.LostRequest))
	})
}

// exits sends a request whose handler ends its goroutine, as testing's FailNow
// does.
func (l *lab) exits(w *worker, during func(context.Context)) {
	l.Helper()
	done, returned := make(chan struct{}), error(nil)
	go func() {
		defer close(done)
		_, err := w.do(func(ctx context.Context) (string, error) {
			during(ctx)
			runtime.Goexit()
			return "", nil
		})
		returned = errors.Join(errors.New("runtime.Goexit was swallowed"), err)
	}()
	<-done
	l.must(returned)
}

// panics sends a request whose handler panics and returns the recovered value.
func (l *lab) panics(h handler, optFns ...func(*idempotent.Options)) (raised any) {
	l.Helper()
	defer func() { raised = recover() }()
	l.worker(optFns...).do(h)
	l.Error("the panic was swallowed")
	return nil
}

// twoOwners lets A outlive its lease under Rerun, B take over and work, and A
// report while B is still working. A's report must not change B's record.
func (l *lab) twoOwners(report handler, own error) {
	l.Helper()
	a, b := l.worker(rerun), l.worker(rerun)
	working, reported := make(chan struct{}), make(chan struct{})
	var second sync.WaitGroup
	var errB error
	_, errA := a.do(func(ctx context.Context) (string, error) {
		l.endLease()
		begun := sync.OnceFunc(func() { close(working) })
		second.Go(func() {
			defer begun() // it was not admitted
			_, errB = b.do(func(ctx context.Context) (string, error) {
				begun()
				<-reported
				return l.charge("ch_b")(ctx)
			})
		})
		<-working
		return report(ctx)
	})
	close(reported)
	second.Wait()
	l.must(errB)
	l.mustBe(errA, new(idempotent.LeaseLostError))
	l.mustBe(errA, own)
	l.wantEvents(event.LeaseLost)
	l.worker(rerun).wantReplay("ch_b")
}

// hook passes a call of the guard to the scenario's hook, if there is one: for cases
// that package faults does not cover. It also records in the history which claims were
// acknowledged to the guard.
func (w *worker) hook(ctx context.Context, c *StoreCall) {
	w.calls.Add(1)
	var held func()
	if c.Record.State == driver.StateInProgress {
		held = w.history.claims(&w.process, c.Record)
	}
	if hook := w.hooks[c.Op]; hook != nil {
		hook(ctx, c)
	} else {
		c.Do(ctx)
	}
	if held != nil && c.Err == nil && (c.Current == nil || c.Current.Version == c.Record.Version) {
		held()
	}
}

// remember records a call in the history. It is above the unreliable part of the
// connection, and notices when a call fails.
func (w *worker) remember(ctx context.Context, c *StoreCall) {
	made := write{by: &w.process, record: c.Record, insert: c.Op == driver.OpInsert, was: c.Was, at: cmp.Or(c.Now, w.now())}
	c.Do(ctx)
	switch c.Op {
	case driver.OpInsert, driver.OpReplace:
		w.history.wrote(made, c.Current, c.Err)
	case driver.OpGet:
		w.history.saw(c.Current)
	case driver.OpPutChunks:
		w.puts = append(w.puts, c.Record)
		w.history.putsChunks(c.Record.Expires)
	default: // it is about no record of the history
	}
	w.weather.feel(c.Err)
}

// faulty returns s with the faults of f in its calls.
func faulty(s driver.Store, f *faults.Injector) driver.Store {
	return Intercept(s, func(ctx context.Context, c *StoreCall) {
		c.Err = f.Do(ctx, c.Op, func() error {
			c.Do(ctx)
			return c.Err
		})
	})
}

// weather holds the faults of a lab's calls, until they are over.
type weather struct {
	*faults.Injector
	wire bool // the faults are below a client of the store
	over atomic.Bool

	// felt reports whether a guard got an error, or lost time. A fault that the
	// client recovers from is not felt.
	felt atomic.Bool
}

// newWeather returns the weather of a plan. A slow call advances the clock.
func newWeather(plan faults.Plan, clock *Clock, seed uint64) *weather {
	w := &weather{Injector: &faults.Injector{}}
	w.Plan = func(c faults.Call) faults.Fault {
		if plan == nil || w.over.Load() {
			return faults.NoFault
		}
		return plan(c)
	}
	w.Slow = func(_ context.Context, c faults.Call) {
		w.felt.Store(true)
		clock.Advance(delay(seed, c))
	}
	return w
}

// delay returns how long a slow call takes: a negligible time, or longer than
// what is left to the handler, the deadline or the lease.
func delay(seed uint64, c faults.Call) time.Duration {
	delays := []time.Duration{100 * time.Millisecond, timeout / 3, timeout - 100*time.Millisecond, timeout + time.Second, lease + time.Second}
	return delays[rand.New(rand.NewPCG(seed, uint64(c.N))).IntN(len(delays))]
}

// feel records whether a fault caused err, the error of a call. If the faults are below a client, any error may be the client's own form of
// the fault; otherwise only the injected error counts.
func (w *weather) feel(err error) {
	reply := err == nil || errors.Is(err, idempotent.ErrNoRecord) || errors.Is(err, driver.ErrTooLarge)
	if !reply && len(w.Injected()) > 0 && (w.wire || errors.Is(err, faults.ErrInjected)) {
		w.felt.Store(true)
	}
}

// getsOn checks that the key recovers after the faults: it has a stored outcome,
// or gets one when the lease has ended and evidence was given.
func (l *lab) getsOn() {
	l.Helper()
	w := l.worker()
	for range 4 {
		out, err := w.do(l.charge("ch_calm"))
		switch {
		case err == nil:
			w.wantReplay(out.Value)
			return
		case errtype.Matches(err, new(idempotent.FinalError)), errtype.Matches(err, new(idempotent.ReplayUnavailableError)):
			w.wantRefused(err)
			return
		case errors.As(err, new(*idempotent.InProgressError)):
			l.endLease()
		case errors.As(err, new(*idempotent.UnresolvedError)):
			l.must(w.found("ch_found"))
		default:
			l.Fatalf("a request got error %v, although the faults are over", err)
		}
	}
	l.Fatal("the key does not recover, although the faults are over")
}

// rawCodec stores text unchanged. Compression or JSON would detect damage before
// the checksum does, and would change the size.
type rawCodec struct{}

func (rawCodec) Name() string { return "raw" }

func (rawCodec) Encode(v any) ([]byte, error) { return []byte(v.(string)), nil }

func (rawCodec) Decode(data []byte, v any) error {
	*v.(*string) = string(data)
	return nil
}

// scenario is one row of the failure modes, or one variant of a row.
type scenario struct {
	name string
	run  func(l *lab)
}

// discard drops the guard's log lines.
var discard = slog.New(slog.DiscardHandler)

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
