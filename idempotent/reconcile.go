// SPDX-License-Identifier: Apache-2.0

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
	"github.com/once-lambda/once/internal/logs"
)

// Reconciler returns [ReconcileDue] as a handler for lambda.Start, to be invoked
// on a schedule, usually every minute. The resolvers are listed by operation,
// because several operations can share a table; do not change the map afterwards.
// The handler ignores its event and returns the report, for the log. It returns
// an error if listing the due records fails, or if every record failed, so that
// an alarm on errors reports an outage.
//
// Like [Wrap], it panics if an argument is nil or an option is invalid.
func Reconciler(g *Guard, resolvers map[string]ResolveFunc, optFns ...func(*ReconcileOptions)) func(context.Context) (Report, error) {
	for operation, resolve := range resolvers {
		if resolve == nil {
			panic(fmt.Errorf("idempotent: Reconciler: the resolver for operation %q must not be nil", operation))
		}
	}
	// A record of an operation without a resolver fails and is eventually listed as
	// exhausted.
	resolve := func(ctx context.Context, r PendingRecord) (Resolution, error) {
		resolve := resolvers[r.ID.Operation()]
		if resolve == nil {
			return Resolution{}, logs.Error(fmt.Sprintf("idempotent: no resolver for operation %q", r.ID.Operation()))
		}
		return resolve(ctx, r)
	}
	if _, err := newReconciler(g, resolve, optFns); err != nil {
		panic(err)
	}
	return func(ctx context.Context) (Report, error) {
		report, err := ReconcileDue(ctx, g, resolve, optFns...)
		if err == nil && report.Due > 0 && report.Failed >= report.Due {
			err = errors.New("idempotent: reconciliation failed for every record that was due")
		}
		return report, err
	}
}

// PendingRecord is the view of a record waiting for evidence that a [ResolveFunc]
// gets. It shares no memory with the record.
type PendingRecord struct {
	// ID is the record's id. ID.DownstreamKey and ID.StepKey return the keys that
	// the handler sent to the provider.
	ID       RecordID
	Token    string // identifies the current attempt, for [ProvenNotExecuted]
	Attempt  int    // number of the current attempt, from 1
	Recovery Recovery
	// Released reports that the record may continue under [Resume], and that no
	// request has continued it yet. If it is false, the outcome is unknown.
	Released bool
	Ref      string    // resource reference set by the handler, if any
	Created  time.Time // time of the first claim
	Since    time.Time // when the outcome became unknown, or the record was released
	LeaseEnd time.Time // end of the current attempt's lease
	Asked    int       // number of earlier calls of a resolver

	record *driver.Record
	sealer Sealer
}

// Pending returns the record r as a [ResolveFunc] gets it. It is for tools that
// show records, and for tests of resolvers.
func (g *Guard) Pending(r driver.Record) PendingRecord {
	g.mustExist("Pending")
	stored := &r
	return PendingRecord{
		ID: r.ID, Token: r.Token(), Attempt: r.Attempt, Recovery: r.Recovery, Released: r.State == driver.StateRetryable,
		Ref: r.Ref, Created: r.Created, Since: r.Since, LeaseEnd: r.LeaseEnd, Asked: r.ReconcileAttempts,
		record: stored.Clone(), sealer: g.opts.Seal,
	}
}

// Step decodes the result of the named step into the value that v points to, and
// reports whether the step has a result. The error is a [*StoreError] if the
// result is sealed and a later call may open it, and otherwise a [*StepError].
func (p PendingRecord) Step(ctx context.Context, name string, v any) (finished bool, err error) {
	stored := p.Stored()
	s, _ := stored.Step(name)
	if !s.Finished {
		return false, nil
	}
	return true, decodeStep(ctx, p.sealer, p.ID, s, v)
}

// Stored returns the record as it is stored, for tools. In a PendingRecord built
// by a test it is the zero value.
func (p PendingRecord) Stored() driver.Record {
	if p.record == nil {
		return driver.Record{}
	}
	return *p.record
}

// ResolveFunc finds out the outcome of a record, for example by querying the
// provider with the record's keys. It returns [Resolved], [ResolvedFinal],
// [ResolvedStep], [ProvenNotExecuted] or [Later]. An error counts as Later and is
// reported to the observer. It is called concurrently.
//
// If the record was released, the function can do the rest of the work itself, or
// have the request sent again and return Later.
type ResolveFunc func(ctx context.Context, r PendingRecord) (Resolution, error)

// ReconcileOptions configure [ReconcileDue]. The zero value of each field selects
// its documented default.
type ReconcileOptions struct {
	// MaxAttempts is how often a resolver is called for a record before
	// reconciliation gives up: OnExhausted gets the record, and it is then listed as
	// exhausted, not as due. It stays unknown. Default: 10.
	MaxAttempts int

	// Backoff is the pause after the first attempt without an answer. It doubles
	// after each further attempt, up to MaxBackoff. Default: 1 min.
	Backoff time.Duration

	// MaxBackoff is the longest pause. Default: 1 h.
	MaxBackoff time.Duration

	// Timeout limits one call of the resolver. Default: 10 s.
	Timeout time.Duration

	// Concurrency is how many records are reconciled at the same time. If it is 1,
	// this happens in the caller's goroutine. Default: 8.
	Concurrency int

	// Operations limits the run to these operations. Default: all.
	Operations []string

	// ReleasedFor is how long after its creation reconciliation gives up a record
	// that was released under [Resume] and lists it as exhausted. The next request
	// with its key can still continue it. MaxAttempts and OnExhausted do not apply
	// to such a record, because it needs no action by an operator. Default: 24 h.
	ReleasedFor time.Duration

	// OnExhausted is called with each record that reconciliation gives up, for
	// example to send it to a queue for operators. If it returns an error, the
	// record stays due. It may be called twice for a record. Default: no call; the
	// record is only listed as exhausted.
	OnExhausted func(ctx context.Context, r PendingRecord) error

	// DryRun calls the resolver but writes nothing. Default: false.
	DryRun bool

	// SweepOnly only marks or releases records whose lease has ended. It does not
	// call the resolver, which may be nil, and counts no attempt. Default: false.
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
// record whose lease had ended counts twice: as marked or released, and by the
// resolver's answer.
type Report struct {
	Due           int // records that were listed and due
	MarkedUnknown int // no outcome was reported, and an effect may have happened
	Released      int // no outcome was reported, and they may be continued
	Completed     int // resolved with a result or a Final error
	NotExecuted   int // resolved: they may run again
	Steps         int // resolved: evidence recorded a step
	Postponed     int // due again later
	Exhausted     int // given up
	Stale         int // another writer was faster
	Failed        int // the resolver or the store failed; after a resolver's failure the record is also postponed

	// Listed reports that the list of waiting records was read to its end. If it is
	// false, the next four fields do not cover all of them.
	Listed bool
	// Pending is how many records are left whose outcome is unknown, due or not,
	// except those given up.
	Pending int
	// Oldest is when the oldest of them became unknown, or its lease ended if that
	// was earlier. Zero if Pending is 0.
	Oldest time.Time
	// PendingReleased is how many records are left that were released under [Resume]
	// and wait for a request to continue them, due or not, except those given up.
	PendingReleased int
	// OldestReleased is since when the oldest of them has waited. Zero if
	// PendingReleased is 0.
	OldestReleased time.Time

	// Incomplete reports that the time ended before every due record was worked on.
	Incomplete bool
}

// String returns the nonzero counts on one line.
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
		s += "; incomplete: the time ended before every due record was worked on"
	}
	return s
}

// ReconcileDue reconciles all records that are due. A record whose owner never
// reported an outcome first becomes unknown, or retryable with its steps under
// [Resume]. ReconcileDue then calls resolve and writes its answer. Every write is
// a compare-and-swap, so any number of reconcilers, handlers and webhooks can
// work on one table.
//
// It begins no further record if less than Timeout is left until the deadline of
// ctx. It returns an error if the guard's store is not a [driver.DueLister] or if
// the list fails, which it also reports to the observer. A failure of one record
// is counted and reported to the observer, and does not stop the others.
//
// It lists the records that are due later too, and counts them in the report, so
// that a long pause between two attempts does not hide a record.
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
		return nil, errors.New("idempotent: reconciliation: the guard and the resolver must not be nil")
	}
	lister, ok := g.store.(driver.DueLister)
	if !ok {
		return nil, fmt.Errorf("idempotent: reconciliation: the store %T does not implement driver.DueLister", g.store)
	}
	r.lister = lister
	r.opts.setDefaults()
	return r, r.opts.validate()
}

// walk reconciles the listed records.
func (r *reconciler) walk(ctx context.Context) (Report, error) {
	var (
		workers sync.WaitGroup
		slots   = make(chan struct{}, r.opts.Concurrency)
		failure error
	)
	now := r.guard.opts.now()
	for record, err := range r.lister.Due(ctx, endOfTime) {
		if err != nil && record.ID == "" {
			failure = fmt.Errorf("idempotent: list due records: %w", err)
			// An event about no operation.
			r.guard.opts.observe(ctx, event.StoreError, "", nil, &StoreError{Op: driver.OpListDue, Err: err})
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
		if record.Due.After(now) {
			r.waits(&record, now)
			continue
		}
		if !r.timeFor(ctx) {
			r.count(func(p *Report) { p.Incomplete = true })
			r.waits(&record, now)
			continue
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
	r.report.Listed = failure == nil
	return r.report, failure
}

// endOfTime is later than every time in a record.
var endOfTime = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)

func (r *reconciler) concerns(record *driver.Record) bool {
	return len(r.opts.Operations) == 0 || slices.Contains(r.opts.Operations, record.ID.Operation())
}

// timeFor reports whether there is time to begin another record.
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

// one reconciles a listed record.
func (r *reconciler) one(ctx context.Context, record *driver.Record) {
	o := &r.guard.opts
	now := o.now()
	switch decideSweep(record, now) {
	case sweepStale:
		r.count(func(p *Report) { p.Stale++ })
		return
	case sweepMarkUnknown:
		r.count(func(p *Report) { p.Due++; p.MarkedUnknown++ })
		record = r.sweep(ctx, record, driver.StateUnknown, event.MarkedUnknown, now)
	case sweepRelease:
		r.count(func(p *Report) { p.Due++; p.Released++ })
		record = r.sweep(ctx, record, driver.StateRetryable, event.Retryable, now)
	default:
		r.count(func(p *Report) { p.Due++ })
	}
	// A released record without effects does not wait for anything.
	switch {
	case record == nil || record.Due.IsZero():
	case r.opts.SweepOnly:
		r.waits(record, now)
	default:
		r.ask(ctx, record)
	}
}

// waits counts a record that is left waiting. A lease that has not ended is not
// waiting.
func (r *reconciler) waits(record *driver.Record, now time.Time) {
	since, released := record.Since, record.State == driver.StateRetryable
	if record.State == driver.StateInProgress {
		if !leaseEnded(record, now) {
			return
		}
		since, released = record.LeaseEnd, runsAgain(record)
	}
	if !record.LeaseEnd.IsZero() && record.LeaseEnd.Before(since) {
		since = record.LeaseEnd // the sweep came later
	}
	r.count(func(p *Report) {
		pending, oldest := &p.Pending, &p.Oldest
		if released {
			pending, oldest = &p.PendingReleased, &p.OldestReleased
		}
		*pending++
		if oldest.IsZero() || since.Before(*oldest) {
			*oldest = since
		}
	})
}

// sweep writes the state that follows from an ended lease. It returns nil if it
// was not written.
func (r *reconciler) sweep(ctx context.Context, record *driver.Record, state driver.State, kind event.Kind, now time.Time) *driver.Record {
	next := r.guard.opts.transition(record, state, driver.ReasonLeaseEnded, now)
	written, err := r.write(ctx, &next, record)
	if err != nil {
		r.waits(record, now)
	}
	if !written {
		return nil
	}
	r.observe(ctx, kind, &next, nil)
	return &next
}

// write replaces record with next, sets next's version, and reports whether it
// did. It returns an error if the store failed.
func (r *reconciler) write(ctx context.Context, next, record *driver.Record) (written bool, err error) {
	if r.opts.DryRun {
		return true, nil
	}
	c := change{
		opts:   &r.guard.opts,
		rounds: 1, // after another write, next no longer applies
		by:     judgeFunc(func(*driver.Record, time.Time) judgement { return judgement{next: *next} }),
	}
	switch w := r.guard.apply(ctx, record, &c); w.end {
	case endWritten:
		*next = *w.record
		return true, nil
	case endLost, endContended:
		r.count(func(p *Report) { p.Stale++ })
		return false, nil
	default:
		err := storeError(record.ID, driver.OpReplace, w.err)
		r.count(func(p *Report) { p.Failed++ })
		r.guard.opts.observe(ctx, event.StoreError, next.ID.Operation(), next, err)
		return false, err
	}
}

// ask calls the resolver and writes its answer.
func (r *reconciler) ask(ctx context.Context, record *driver.Record) {
	answer, err := r.callResolver(ctx, record)
	if err == nil && answer.what != 0 {
		var waits bool
		if waits, err = r.settle(ctx, record, answer); err == nil && !waits {
			return
		}
	}
	if err != nil {
		r.count(func(p *Report) { p.Failed++ })
		r.observe(ctx, event.ReconcileFailed, record, err)
	}
	r.postpone(ctx, record, answer.later)
}

// callResolver calls the resolver with a timeout and recovers a panic.
func (r *reconciler) callResolver(ctx context.Context, record *driver.Record) (answer Resolution, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = logs.Error(fmt.Sprintf("idempotent: the resolver panicked with a %T", p))
		}
	}()
	return r.resolve(ctx, r.guard.Pending(*record))
}

// settle writes evidence. It reports whether the record already said so and still
// waits. An error means that the evidence cannot be used.
func (r *reconciler) settle(ctx context.Context, record *driver.Record, answer Resolution) (waits bool, err error) {
	done := func(p *Report) { p.Completed++ }
	switch answer.what {
	case claimsNotExecuted:
		done = func(p *Report) { p.NotExecuted++ }
	case claimsStep, claimsCorrection:
		done = func(p *Report) { p.Steps++ }
	case claimsOutcome:
	}
	if r.opts.DryRun {
		if _, err := r.guard.encodeEvidence(ctx, record, answer); err != nil {
			return false, err
		}
		r.count(done)
		return false, nil
	}
	settled, err := r.guard.settleByEvidence(ctx, record, answer)
	switch {
	case err == nil && settled.Version == record.Version:
		return true, nil
	case err == nil:
		r.count(done)
		if !settled.Due.IsZero() {
			r.waits(settled, r.guard.opts.now())
		}
	case errors.As(err, new(*SettledError)), errors.As(err, new(*InProgressError)), errors.Is(err, ErrNoRecord),
		errors.As(err, new(*StaleEvidenceError)) && answer.token == record.Token():
		r.count(func(p *Report) { p.Stale++ })
	case errors.As(err, new(*StoreError)): // already reported to the observer; the record is still due
		r.count(func(p *Report) { p.Failed++ })
		r.waits(record, r.guard.opts.now())
	default:
		return false, err
	}
	return false, nil
}

// postpone writes when the record is due again, or gives the record up.
func (r *reconciler) postpone(ctx context.Context, record *driver.Record, later time.Duration) {
	o := &r.guard.opts
	now := o.now()
	next := *record
	givenUp := record.ReconcileAttempts+1 >= r.opts.MaxAttempts
	if record.State == driver.StateRetryable {
		givenUp = !now.Before(record.Created.Add(r.opts.ReleasedFor))
	}
	if givenUp && r.exhaust(ctx, record, next, now) {
		return
	}
	r.waits(record, now)
	next.ReconcileAttempts = min(record.ReconcileAttempts+1, r.opts.MaxAttempts-1)
	if later <= 0 {
		later = r.pause(next.ReconcileAttempts)
	}
	next.Due = now.Add(later).Truncate(time.Millisecond)
	if written, _ := r.write(ctx, &next, record); written {
		r.count(func(p *Report) { p.Postponed++ })
		r.observe(ctx, event.ReconcileScheduled, &next, nil)
	}
}

// pause returns the pause after that many attempts.
func (r *reconciler) pause(attempts int) time.Duration {
	pause := r.opts.Backoff
	for range attempts - 1 {
		if pause *= 2; pause >= r.opts.MaxBackoff {
			return r.opts.MaxBackoff
		}
	}
	return pause
}

// exhaust gives a record up and reports whether it did. It calls OnExhausted
// before the write, so that the record is always in a list.
func (r *reconciler) exhaust(ctx context.Context, record *driver.Record, next driver.Record, now time.Time) bool {
	given := &next // the caller's copy does not change
	given.ReconcileAttempts++
	given.Due, given.Exhausted = now, true
	kind, handOver := event.ReconcileExhausted, r.opts.OnExhausted
	if record.State == driver.StateRetryable {
		kind, handOver = event.ReleasedGivenUp, nil
	}
	if handOver != nil && !r.opts.DryRun {
		if err := handOver(ctx, r.guard.Pending(*given)); err != nil {
			r.count(func(p *Report) { p.Failed++ })
			r.observe(ctx, event.ReconcileFailed, record, err)
			return false
		}
	}
	written, err := r.write(ctx, given, record)
	if err != nil {
		r.waits(record, now)
	}
	if written {
		r.count(func(p *Report) { p.Exhausted++ })
		r.observe(ctx, kind, given, nil)
	}
	return true
}

// observe reports an event to the observer, except in a dry run.
func (r *reconciler) observe(ctx context.Context, kind event.Kind, record *driver.Record, err error) {
	if !r.opts.DryRun {
		r.guard.opts.observe(ctx, kind, record.ID.Operation(), record, err)
	}
}
