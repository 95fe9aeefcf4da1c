package idempotent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// PendingRecord is what a [ResolveFunc] gets of a record that waits for evidence.
// It shares no memory with the record.
type PendingRecord struct {
	// ID names the record. ID.DownstreamKey and ID.StepKey are the keys that the
	// handler sent to the provider.
	ID       RecordID
	Token    string // names the current attempt, for [ProvenNotExecuted]
	Attempt  int    // number of the current attempt, from 1
	Recovery Recovery
	// Released: the record is free to continue under [Resume], and no request has
	// continued it yet. Otherwise its outcome is unknown.
	Released bool
	Ref      string    // what the handler set as resource reference, if anything
	Created  time.Time // the first claim
	Since    time.Time // when the outcome became unknown, or the record was released
	LeaseEnd time.Time // end of the current attempt's lease
	Asked    int       // how often a resolver has been asked before

	record *driver.Record
}

// Pending returns the record r as a [ResolveFunc] gets it. It is for tools that show
// records, and for tests of resolvers.
func (*Guard) Pending(r driver.Record) PendingRecord {
	stored := &r
	return PendingRecord{
		ID: r.ID, Token: r.Token(), Attempt: r.Attempt, Recovery: r.Recovery, Released: r.State == driver.StateRetryable,
		Ref: r.Ref, Created: r.Created, Since: r.Settled, LeaseEnd: r.LeaseEnd, Asked: r.ReconcileAttempts,
		record: stored.Clone(),
	}
}

// Step decodes the result of the step of that name into the value that v points
// to, and reports whether the step has a result. The error is a [*StepError].
func (p PendingRecord) Step(name string, v any) (finished bool, err error) {
	stored := p.Stored()
	s, _ := stored.Step(name)
	if !s.Finished {
		return false, nil
	}
	return true, decodeStep(s, v)
}

// Stored returns the record as it is stored, for tools. It is the zero value in a
// PendingRecord that a test has made.
func (p PendingRecord) Stored() driver.Record {
	if p.record == nil {
		return driver.Record{}
	}
	return *p.record
}

// ResolveFunc finds out what became of a record, for example by asking the
// provider about its keys. It answers with [Resolved], [ResolvedFinal],
// [ResolvedStep], [ProvenNotExecuted] or [Later]. An error counts as Later, and is
// reported to the observer. It is called by several goroutines at once.
//
// If the record was released, it may do the rest of the work itself, or have the
// request sent again and answer Later.
type ResolveFunc func(ctx context.Context, r PendingRecord) (Resolution, error)

// ReconcileOptions are given to [ReconcileDue]. The zero value of each field is
// its documented default.
type ReconcileOptions struct {
	// MaxAttempts is how often a resolver is asked about a record before it is
	// given up: OnExhausted gets it, and it moves from the list of the due to
	// that of the exhausted. It stays unknown. Default: 10.
	MaxAttempts int

	// Backoff is the pause after the first attempt that brought no answer; each
	// later one is twice as long, up to MaxBackoff. Default: 1 min.
	Backoff time.Duration

	// MaxBackoff bounds the pause. Default: 1 h.
	MaxBackoff time.Duration

	// Timeout bounds one call of the resolver. Default: 10 s.
	Timeout time.Duration

	// Concurrency is how many records are worked on side by side; with 1 it is the
	// caller's goroutine that does it. Default: 8.
	Concurrency int

	// Operations limits the run to these operations. Default: all.
	Operations []string

	// ReleasedFor is how long after its creation a record that was released under
	// [Resume] is given up: it moves to the list of the exhausted. The next
	// request with its key may still continue it. MaxAttempts and OnExhausted do
	// not concern such a record: nobody has to act on it. Default: 24 h.
	ReleasedFor time.Duration

	// OnExhausted hands a record over that is being given up, for example to a
	// queue that people look at. If it fails the record stays due. It may see a
	// record twice. Default: nothing; the record is in the list of the exhausted.
	OnExhausted func(ctx context.Context, r PendingRecord) error

	// DryRun asks the resolver and writes nothing.
	DryRun bool

	// SweepOnly does what follows from a lease that ended and asks nobody: no
	// attempt is counted. The resolver may be nil then.
	SweepOnly bool
}

func (o *ReconcileOptions) setDefaults() {
	if o.MaxAttempts == 0 {
		o.MaxAttempts = 10
	}
	if o.Concurrency == 0 {
		o.Concurrency = 8
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&o.Backoff, time.Minute}, {&o.MaxBackoff, time.Hour}, {&o.Timeout, 10 * time.Second}, {&o.ReleasedFor, 24 * time.Hour}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
}

func (o *ReconcileOptions) validate() error {
	if o.MaxAttempts < 1 || o.Concurrency < 1 {
		return errors.New("idempotent: ReconcileOptions.MaxAttempts and Concurrency must be at least 1 (or zero for the default)")
	}
	if o.ReleasedFor < 0 {
		return errors.New("idempotent: ReconcileOptions.ReleasedFor must be positive (or zero for the default)")
	}
	if o.Backoff < time.Millisecond || o.Timeout < time.Millisecond || o.MaxBackoff < o.Backoff {
		return errors.New("idempotent: ReconcileOptions.Backoff and Timeout must be at least 1ms (or zero for the default), and MaxBackoff not below Backoff")
	}
	return nil
}

// Report counts what [ReconcileDue] did, or in a dry run would have done. A
// record whose lease had ended counts twice: for that, and for what the resolver
// said.
type Report struct {
	Due           int // records that were listed and due
	MarkedUnknown int // their owner never reported, and an effect may have happened
	Released      int // their owner never reported, and they may be continued
	Completed     int // resolved with a result or a Final error
	NotExecuted   int // resolved: they may run again
	Steps         int // of which evidence recorded a step
	Postponed     int // to be asked about again later
	Exhausted     int // given up
	Stale         int // somebody else was quicker
	Failed        int // the resolver or the store failed; a resolver's failure is postponed, too
	// Oldest is when the oldest record was created whose outcome is still unknown;
	// zero if there is none.
	Oldest time.Time
	// OldestReleased is when the oldest record was created that was released under
	// [Resume] and still waits for a request to continue it; zero if there is none.
	OldestReleased time.Time
	// Incomplete: the time was up before the list was.
	Incomplete bool
}

// String returns the counts that are not zero, on one line.
func (r Report) String() string {
	s := fmt.Sprintf("%d due", r.Due)
	for _, c := range []struct {
		count int
		what  string
	}{
		{r.MarkedUnknown, "marked unknown"}, {r.Released, "released"}, {r.Completed, "completed"},
		{r.NotExecuted, "not executed"}, {r.Steps, "with a step recorded"}, {r.Postponed, "postponed"}, {r.Exhausted, "exhausted"},
		{r.Stale, "stale"}, {r.Failed, "failed"},
	} {
		if c.count > 0 {
			s += fmt.Sprintf(", %d %s", c.count, c.what)
		}
	}
	if r.Incomplete {
		s += "; the time was up before the list was"
	}
	return s
}

// ReconcileDue walks through the records that are due. One whose owner never
// reported becomes unknown first, or retryable with its steps under [Resume].
// Then resolve is asked, and its answer written. Every write is a
// compare-and-swap: any number of reconcilers, handlers and webhooks may work
// on one table.
//
// It begins no further record when less than Timeout is left until the deadline
// of ctx. The guard's store has to be a [driver.DueLister]; the error says so, or that
// the list failed. What fails for one record is counted, told to the observer,
// and does not stop the others.
func ReconcileDue(ctx context.Context, g *Guard, resolve ResolveFunc, optFns ...func(*ReconcileOptions)) (Report, error) {
	r, err := newReconciler(g, resolve, optFns)
	if err != nil {
		return Report{}, err
	}
	return r.walk(ctx)
}

// reconciler is one run of ReconcileDue.
type reconciler struct {
	guard   *Guard
	lister  driver.DueLister
	resolve ResolveFunc
	opts    ReconcileOptions

	mu     sync.Mutex
	report Report
}

func newReconciler(g *Guard, resolve ResolveFunc, optFns []func(*ReconcileOptions)) (*reconciler, error) {
	r := &reconciler{guard: g, resolve: resolve}
	for _, f := range optFns {
		f(&r.opts)
	}
	if g == nil || resolve == nil && !r.opts.SweepOnly {
		return nil, errors.New("idempotent: reconciliation wants a guard and a resolver, got nil")
	}
	lister, ok := g.store.(driver.DueLister)
	if !ok {
		return nil, fmt.Errorf("idempotent: reconciliation needs a store that lists what is due; a %T does not", g.store)
	}
	r.lister = lister
	r.opts.setDefaults()
	return r, r.opts.validate()
}

// walk works through the list.
func (r *reconciler) walk(ctx context.Context) (Report, error) {
	var (
		workers sync.WaitGroup
		slots   = make(chan struct{}, r.opts.Concurrency)
		failure error
	)
	for record, err := range r.lister.Due(ctx, r.guard.opts.now()) {
		if err != nil && record.ID == "" {
			failure = fmt.Errorf("idempotent: the list of due records failed: %w", err)
			break
		}
		if !r.concerns(&record) {
			continue
		}
		if err != nil {
			r.count(func(p *Report) { p.Due++; p.Failed++ })
			r.guard.opts.observe(ctx, event.StoreError, record.ID.Operation(), &record, err)
			continue
		}
		if !r.timeFor(ctx) {
			r.count(func(p *Report) { p.Incomplete = true })
			break
		}
		if r.opts.Concurrency == 1 {
			r.one(ctx, &record)
			continue
		}
		slots <- struct{}{}
		workers.Go(func() {
			defer func() { <-slots }()
			r.one(ctx, &record)
		})
	}
	workers.Wait()
	return r.report, failure
}

func (r *reconciler) concerns(record *driver.Record) bool {
	return len(r.opts.Operations) == 0 || slices.Contains(r.opts.Operations, record.ID.Operation())
}

// timeFor reports whether another record can be begun.
func (r *reconciler) timeFor(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	deadline, ok := ctx.Deadline()
	return !ok || deadline.Sub(r.guard.opts.Now()) >= r.opts.Timeout
}

func (r *reconciler) count(f func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.report)
}
