package idempotenttest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/errtype"
)

// Invocation times of the scenarios: a deadline of 10 s and a margin of 2 s, so
// a lease of 12 s.
const (
	timeout = 10 * time.Second
	margin  = 2 * time.Second
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
	faults *Faults
	tap    *tap      // between the guard and the faults
	chunks *chunkTap // nil: the store stores large results in the record
	guard  *idempotent.Guard
	now    func() time.Time // the clock of the process
}

func (l *lab) worker(optFns ...func(*idempotent.Options)) *worker {
	l.Helper()
	w := &worker{lab: l, faults: &Faults{}}
	line := w.faults.Store(l.witness(w, l.line))
	w.tap = &tap{Store: line, by: w}
	base := func(o *idempotent.Options) {
		o.Now, o.Observer, o.LeaseMargin = l.clock.Now, l.events, margin
		o.Logger = discard
	}
	var store driver.Store = w.tap
	if chunks, ok := line.(driver.ChunkStore); ok {
		w.chunks = &chunkTap{tap: w.tap, chunks: chunks}
		store = w.chunks
	}
	optFns = append([]func(*idempotent.Options){base}, optFns...)
	optFns = append(optFns, func(o *idempotent.Options) { w.now = o.Now })
	if mutation := l.fixture.mutation; mutation.options != nil {
		optFns = append(optFns, mutation.options)
	}
	if mutation := l.fixture.mutation; mutation.store != nil {
		store = mutation.store(w, store)
	}
	guard, err := idempotent.New(store, optFns...)
	if err != nil {
		l.Fatal(err)
	}
	w.guard = guard
	return w
}

// inject sets the plans for faults between the worker and the store.
func (w *worker) inject(plans ...Plan) { w.faults.Plan = FirstOf(plans...) }

func rerun(o *idempotent.Options) { o.Recovery = idempotent.Rerun }

// handler is the guarded function of the scenarios.
type handler = func(context.Context) (string, error)

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
	a := w.history.asks(w, key)
	watched := w.history.watch(a, h)
	if mutation := w.fixture.mutation; mutation.request != nil {
		ctx, key, watched = mutation.request(ctx, key, watched)
	}
	out, err := idempotent.DoOutcome(ctx, w.guard, key, watched)
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
	l.clock.AdvanceTo(r.LeaseEnd.Add(time.Millisecond))
}

func (w *worker) resolve(r idempotent.Resolution) error {
	return w.guard.Resolve(context.Background(), w.key.RecordID(), r)
}

// found resolves the record by evidence of its result.
func (w *worker) found(result string) error {
	w.history.says(result)
	if r := w.record(); r != nil && r.Codec == (rawCodec{}).Name() {
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
