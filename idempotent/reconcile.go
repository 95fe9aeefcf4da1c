// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/outage"
)

// Reconciler returns a handler for lambda.Start that reconciles all records that are due,
// those that have been due for longest first. Invoke it on a schedule, usually every
// minute. It ignores its event and returns the report, for the log.
//
// Each resolver is for one operation, because several operations can share a table. That
// of "*", if any, is for every other operation. Do not change the map afterwards. Records of
// an operation without a resolver wait for another reconciler or an operator: the handler
// neither reads them nor asks about them. It counts them in Report.Operations, and logs
// once that they exist.
//
// A record whose owner never reported an outcome first becomes unknown, or retryable with
// its steps under [Resume], whatever its operation. A store can need a scan to find such
// records: if it is a [driver.AbandonedLister], each run continues that scan, for at most
// half of its time. The run then lists what is due, calls the resolvers and writes their
// answers. Every write is a compare-and-swap, so any number of reconcilers, handlers and
// webhooks can work on one table. Before a run asks about a record, it writes that the
// record is due again later. So no two reconcilers ask about one record at the same time.
//
// The work begins when the list ends, when 100,000 entries have been read, or when
// half of the time has passed. Behind 100,000 entries, the run reads on while it
// works, until a quarter of its time has passed: for records of other operations, and
// to count. The next run of the same handler reads its first 100,000 entries and then
// continues where this one ended.
//
// If five calls for records of one operation fail in a row, the run leaves the
// other records of that operation to the next run, unchanged. So a provider that
// is down gets five calls from each run, and all records are due when it is back.
//
// A record needs Timeout and two seconds. A run with less than twice that time
// until the deadline of ctx uses half of its time for each record, and shortens
// Timeout in proportion. It begins no record that does not fit.
//
// The handler returns an error, so that an alarm on errors reports an outage, if the list
// or the scan fails, if the time ended before it began the first record, if the calls of a
// resolver kept failing, or if every record failed. Otherwise the failure of a record is
// counted and reported to the observer, and does not stop the others.
//
// Like [Wrap], it panics if the guard or a resolver is nil, if an option is invalid, or if
// the guard's store is not a [driver.DueLister].
func Reconciler(g *Guard, resolvers map[string]ResolveFunc, optFns ...func(*ReconcileOptions)) func(context.Context) (Report, error) {
	return reconcilerOf(&progress{first: maxExact}, g, resolvers, optFns)
}

func reconcilerOf(p *progress, g *Guard, resolvers map[string]ResolveFunc, optFns []func(*ReconcileOptions)) func(context.Context) (Report, error) {
	newRun, err := newReconciler(p, g, resolvers, optFns)
	if err != nil {
		panic(err)
	}
	warned := &sync.Map{}
	return func(ctx context.Context) (Report, error) {
		r := newRun()
		err := r.run(ctx)
		if err == nil {
			err = r.outage()
		}
		r.reportUnasked(ctx, warned)
		r.reportLate(ctx, warned)
		return r.report, err
	}
}

// newReconciler returns a function that returns a new run.
func newReconciler(p *progress, g *Guard, resolvers map[string]ResolveFunc, optFns []func(*ReconcileOptions)) (func() *reconciler, error) {
	if g == nil {
		return nil, errors.New("idempotent: Reconciler: the guard must not be nil")
	}
	for operation, resolve := range resolvers {
		if resolve == nil {
			return nil, fmt.Errorf("idempotent: Reconciler: the resolver for operation %q must not be nil", operation)
		}
	}
	lister, ok := g.store.(driver.DueLister)
	if !ok {
		return nil, fmt.Errorf("idempotent: Reconciler: the store %T does not implement driver.DueLister", g.store)
	}
	var o ReconcileOptions
	for _, f := range optFns {
		f(&o)
	}
	o.setDefaults()
	resolverOf := func(operation string) ResolveFunc {
		switch resolve, known := resolvers[operation]; {
		case o.SweepOnly:
			return nil
		case known:
			return resolve
		}
		return resolvers["*"]
	}
	return func() *reconciler {
		return &reconciler{
			guard: g, progress: p, lister: lister, resolverOf: resolverOf, opts: o,
			broken: map[string]bool{}, failed: map[RecordID]bool{},
		}
	}, o.validate()
}

// run reconciles the records that are due. What the scan finds is due at its end.
func (r *reconciler) run(ctx context.Context) error {
	err := r.scan(ctx)
	r.plan(ctx)
	err = errors.Join(r.rounds(ctx), err)
	if !r.opts.DryRun {
		r.report.observe(ctx, &r.guard.opts)
	}
	return err
}

// scan processes the ended leases of records that the list of due records does not
// show. It calls no resolver, so that no provider can delay it.
func (r *reconciler) scan(ctx context.Context) (err error) {
	lister, ok := r.lister.(driver.AbandonedLister)
	if !ok {
		return nil
	}
	r.scanning, r.scanned = true, map[RecordID]driver.Listed{}
	defer func() { r.scanning = false }()
	part, cancel := r.half(ctx)
	defer cancel()
	sweep := func(page []driver.Listed) bool {
		q := newQueue("", nil)
		q.entries, q.closed = page, true
		for _, e := range page {
			if r.selects(e.ID.Operation()) {
				r.report.Due++
			}
		}
		r.drain(part, q)
		r.countLeft(q)
		return len(q.entries) == 0
	}
	if now := r.guard.opts.now(); r.opts.DryRun {
		err = listRunning(part.Context, lister, now, sweep)
	} else {
		r.report.Scan, err = lister.Abandoned(part.Context, now, sweep)
		r.reportReplaced(ctx)
	}
	if err != nil {
		err = &StoreError{Op: driver.OpListDue, Err: err}
		r.guard.opts.observe(ctx, event.StoreError, "", nil, err)
	}
	return err
}

// reportReplaced reports that the scan began again because its position could not
// be used.
func (r *reconciler) reportReplaced(ctx context.Context) {
	if r.report.Scan.Replaced == "" {
		return
	}
	err := fmt.Errorf("the position of the scan for abandoned runs could not be used, and a new scan has begun: %s", r.report.Scan.Replaced)
	r.guard.opts.observe(ctx, event.StoreError, "", nil, &StoreError{Op: driver.OpListDue, Err: err})
	r.guard.opts.logger().LogAttrs(ctx, slog.LevelWarn, "idempotent: "+err.Error())
}

// listRunning is a scan that the store does not remember, for a dry run.
func listRunning(ctx context.Context, lister driver.AbandonedLister, now time.Time, sweep func([]driver.Listed) bool) error {
	for e, err := range lister.Running(ctx) {
		switch {
		case err != nil && e.ID == "":
			return err
		case e.Due.After(now):
		case !sweep([]driver.Listed{e}):
			return nil
		}
	}
	return nil
}

// outage returns an error if a resolver kept failing, or if every record failed.
func (r *reconciler) outage() error {
	switch {
	case len(r.broken) > 0:
		names := make([]string, 0, len(r.broken))
		for _, operation := range slices.Sorted(maps.Keys(r.broken)) {
			names = append(names, fmt.Sprintf("%q", operation))
		}
		return &outage.Error{Err: fmt.Errorf("idempotent: reconciliation: %d calls in a row of the resolver for %s failed; %d due records wait for the next run", maxFailures, strings.Join(names, " and "), r.report.Skipped)}
	case r.report.Failed > 0 && r.report.Failed >= r.worked+r.unreadable:
		return &outage.Error{Err: errors.New("idempotent: reconciliation failed for every record that was due")}
	}
	return nil
}

// reportUnasked marks the operations without a resolver whose records wait, and logs
// each once.
func (r *reconciler) reportUnasked(ctx context.Context, warned *sync.Map) {
	for operation, w := range r.report.Operations {
		if r.opts.SweepOnly || r.resolverOf(operation) != nil {
			continue
		}
		w.NoResolver = true
		r.report.Operations[operation] = w
		if _, already := warned.LoadOrStore(operation, true); !already {
			r.guard.opts.logger().LogAttrs(ctx, slog.LevelWarn, "idempotent: records with an unknown outcome wait, and this reconciler has no resolver for their operation: another reconciler or an operator must settle them. This is logged once.",
				slog.String("operation", operation), slog.Int("records", w.Pending))
		}
	}
}

// reportLate logs, once, that a scan does not keep up with its interval.
func (r *reconciler) reportLate(ctx context.Context, warned *sync.Map) {
	if !r.report.Scan.Late {
		return
	}
	if _, already := warned.LoadOrStore(lateScan{}, true); !already {
		r.guard.opts.logger().LogAttrs(ctx, slog.LevelWarn, "idempotent: the scan for abandoned runs takes longer than its interval, so they are found later: use more segments or a longer interval. This is logged once.",
			slog.Time("began", r.report.Scan.Began))
	}
}

// lateScan is the key of a warning.
type lateScan struct{}
