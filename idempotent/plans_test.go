// SPDX-License-Identifier: Apache-2.0

//go:build !race

// Nothing here runs concurrently, and the race detector makes it ten times as
// slow, so the plans run without it (make cover).

package idempotent_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

// The tests in this file run every plan of faults of a given length, each
// followed by a recovery without faults, and count the effects.

// fate is what happens to one call of the store.
type fate byte

const (
	answered        fate = iota // the call is applied, and its caller gets the reply
	refused                     // the call is not applied, and its caller gets an error
	replyLost                   // the call is applied, and its caller gets an error
	cancelledBefore             // the request is canceled, then the store is called
	cancelledAfter              // the store is called, then the request is canceled
	requestLost                 // of a transaction: as refused, but its caller cannot know that
	appliedLater                // of a transaction: its caller gets an error; it is applied after the next write
)

func (f fate) String() string {
	return [...]string{"answered", "refused", "reply lost", "canceled before", "canceled after", "request lost", "applied later"}[f]
}

// plans yields every sequence of n of the fates.
func plans(n int, fates ...fate) iter.Seq[[]fate] {
	return func(yield func([]fate) bool) {
		digits := make([]int, n)
		for {
			plan := make([]fate, n)
			for i, d := range digits {
				plan[i] = fates[d]
			}
			if !yield(plan) {
				return
			}
			i := n - 1
			for ; i >= 0 && digits[i] == len(fates)-1; i-- {
				digits[i] = 0
			}
			if i < 0 {
				return
			}
			digits[i]++
		}
	}
}

// faults returns the number of faults in a plan.
func faults(plan []fate) (n int) {
	for _, f := range plan {
		if f != answered {
			n++
		}
	}
	return n
}

// tryAll runs every plan and reports the failed plan with the fewest faults.
func tryAll(t *testing.T, plans iter.Seq[[]fate], run func(plan []fate) (wrong string)) (tried int) {
	t.Helper()
	failed, smallest, why := 0, []fate(nil), ""
	for plan := range plans {
		tried++
		wrong := run(slices.Clone(plan))
		if wrong == "" {
			continue
		}
		if failed++; smallest == nil || cmp.Or(faults(plan)-faults(smallest), slices.Compare(plan, smallest)) < 0 {
			smallest, why = plan, wrong
		}
	}
	if failed > 0 {
		t.Errorf("%d of %d plans went wrong, the smallest is %v: %s", failed, tried, smallest, why)
	}
	return tried
}

// trial is one key, its store, its provider and the handler, under one plan.
type trial struct {
	*memstore.Store
	calls        []fate // of the coming store calls
	transactions []fate // of the coming transactions
	landing      func() // a transaction that may still be applied
	cancel       context.CancelFunc
	clock        idempotenttest.Clock
	guard        *idempotent.Guard
	key          idempotent.Key
	handler      func(context.Context) (string, error)

	entries int
	effects int            // of handlers and steps, whatever their key
	keys    map[string]int // effects by downstream key
	rows    int            // written by transactions
	refused bool           // the last transaction was refused
	told    string         // the outcome that a caller got as stored
	wrong   string
	story   []string
}

// The times of a trial: an invocation has 10 s, and its lease ends 2 s later.
const (
	trialTimeout = 10 * time.Second
	trialLease   = trialTimeout + 2*time.Second
)

func newTrial(recovery idempotent.Recovery) *trial {
	tr := &trial{
		Store: memstore.New(), cancel: func() {}, keys: map[string]int{},
		key: idempotent.Key{Operation: "charge", Scope: "acme", ID: "1", Fingerprint: idempotent.FingerprintBytes([]byte("request"))},
	}
	tr.clock.Advance(1000 * time.Hour) // no context ends at its deadline
	var err error
	tr.guard, err = idempotent.New(idempotenttest.Intercept(tr.Store, tr.planned), func(o *idempotent.Options) {
		o.Recovery, o.Steps = recovery, []string{"charge"}
		o.Now, o.Logger = tr.clock.Now, slog.New(slog.DiscardHandler)
		o.ReconcileAfter = time.Second
	})
	if err != nil {
		panic(err)
	}
	return tr
}

// planned is a store call of the guard.
func (tr *trial) planned(ctx context.Context, c *idempotenttest.StoreCall) {
	c.Current, c.Err = tr.call(c.Op != driver.OpGet, errDown, func() (*driver.Record, error) {
		c.Do(ctx)
		return c.Current, c.Err
	})
}

// call makes one store call according to the plan.
func (tr *trial) call(writes bool, refusal error, do func() (*driver.Record, error)) (*driver.Record, error) {
	f := next(&tr.calls)
	if writes {
		defer tr.land()
	}
	switch f {
	case refused:
		tr.refused = tr.refused || refusal == errRefused
		return nil, refusal
	case replyLost:
		_, _ = do()
		return nil, errLost
	case cancelledBefore:
		tr.cancel()
	case cancelledAfter:
		defer tr.cancel()
	case answered, requestLost, appliedLater:
	}
	return do()
}

func next(plan *[]fate) fate {
	if len(*plan) == 0 {
		return answered
	}
	f := (*plan)[0]
	*plan = (*plan)[1:]
	return f
}

// land applies the pending transaction if the record still has the version that
// it names.
func (tr *trial) land() {
	if late := tr.landing; late != nil {
		tr.landing = nil
		late()
	}
}

// transact is the transaction of the handler: it writes a row with the record.
func (tr *trial) transact(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	apply := func() (*driver.Record, error) {
		met, err := tr.Store.Replace(ctx, r, was)
		if met == nil && err == nil {
			tr.rows++
		}
		return met, err
	}
	f := next(&tr.transactions)
	tr.refused = false
	if f == appliedLater {
		tr.land()
		tr.landing = func() {
			if met, err := tr.Store.Replace(context.Background(), r, was); met == nil && err == nil {
				tr.rows++
			}
		}
		return nil, errLost
	}
	defer tr.land()
	switch f {
	case refused:
		tr.refused = true
		return nil, errRefused
	case requestLost:
		return nil, errLost
	case replyLost:
		_, _ = apply()
		return nil, errLost
	case answered, cancelledBefore, cancelledAfter, appliedLater:
	}
	return tr.call(false, errRefused, apply)
}

// charge is an effect at a provider.
func (tr *trial) charge(ctx context.Context) (string, error) {
	tr.effects++
	tr.keys[idempotent.DownstreamKey(ctx)]++
	return fmt.Sprintf("ch_%d", tr.effects), nil
}

// invoke sends one request.
func (tr *trial) invoke() (idempotent.Outcome[string], error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tr.cancel = cancel
	out, err := idempotent.DoOutcome(tr.clock.Invocation(ctx, trialTimeout), tr.guard, tr.key, func(ctx context.Context) (string, error) {
		tr.entries++
		if tr.told != "" {
			tr.fail("the handler was entered after a caller got %q as stored", tr.told)
		}
		return tr.handler(ctx)
	})
	tr.story = append(tr.story, fmt.Sprintf("request: %q %v", out.Value, err))
	if err == nil && out.Stored {
		if tr.told != "" && tr.told != out.Value {
			tr.fail("a caller got %q after another one got %q", out.Value, tr.told)
		}
		tr.told = out.Value
	}
	return out, err
}

func (tr *trial) fail(format string, args ...any) {
	if tr.wrong == "" {
		tr.wrong = fmt.Sprintf(format, args...)
	}
}

// reconcile runs a reconciler over the due records.
func (tr *trial) reconcile(resolve idempotent.ResolveFunc) {
	report, err := idempotent.ReconcileDue(context.Background(), tr.guard, resolve, func(o *idempotent.ReconcileOptions) { o.Concurrency = 1 })
	tr.story = append(tr.story, fmt.Sprintf("reconciled: %d completed, %d steps, %d not executed, %v", report.Completed, report.Steps, report.NotExecuted, err))
}

// recover sends requests without faults, each after the lease of the one before,
// until one is answered. In between it calls resolve, if not nil. Then the
// outcome must be stored.
func (tr *trial) recover(resolve idempotent.ResolveFunc) {
	tr.calls, tr.transactions = nil, nil
	for range 6 {
		tr.clock.Advance(trialLease)
		if resolve != nil {
			tr.reconcile(resolve)
			tr.clock.Advance(time.Minute)
		}
		if _, err := tr.invoke(); err == nil {
			break
		}
	}
	tr.land()
	out, err := tr.invoke()
	if r, _ := tr.Store.Get(context.Background(), tr.key.RecordID()); err != nil || !out.Replayed || r.State != driver.StateCompleted {
		tr.fail("in the end the record is %s, and the last request got %q, %v", r.State, out.Value, err)
	}
}

// verdict returns what went wrong, with the log of the trial.
func (tr *trial) verdict() string {
	if tr.wrong == "" {
		return ""
	}
	return tr.wrong + "\n" + strings.Join(tr.story, "\n")
}

// modes are the ways in which a handler has its effect.
var modes = map[string]func(*trial) func(context.Context) (string, error){
	"no step":         func(tr *trial) func(context.Context) (string, error) { return tr.charge },
	"at least once":   func(tr *trial) func(context.Context) (string, error) { return tr.step(driver.AtLeastOnce) },
	"at most once":    func(tr *trial) func(context.Context) (string, error) { return tr.step(driver.AtMostOnce) },
	"in a CommitStep": func(tr *trial) func(context.Context) (string, error) { return tr.commitStep },
}

func (tr *trial) step(mode driver.StepMode) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		return idempotent.Step(ctx, "charge", tr.charge, func(o *idempotent.StepOptions) { o.AtMostOnce = mode == driver.AtMostOnce })
	}
}

func (tr *trial) commitStep(ctx context.Context) (string, error) {
	return idempotent.CommitStep(ctx, "charge", "row", tr.transact)
}

// evidence are the ways in which a truthful resolver answers: it reads the
// provider's ledger after every process that could still have an effect has died.
var evidence = map[string]func(*trial) idempotent.ResolveFunc{
	"about the whole": func(tr *trial) idempotent.ResolveFunc {
		return func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
			switch {
			case tr.rows > 0:
				return idempotent.Resolved("row"), nil
			case tr.effects > 0:
				return idempotent.Resolved("ch_1"), nil
			}
			return idempotent.ProvenNotExecuted(r.Token), nil
		}
	},
	"about the step": func(tr *trial) idempotent.ResolveFunc {
		return func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
			if finished, _ := r.Step(ctx, "charge", new(string)); tr.effects > 0 && !finished {
				return idempotent.ResolvedStep("charge", "ch_1"), nil
			}
			return idempotent.ProvenNotExecuted(r.Token), nil
		}
	},
}

var recoveries = []idempotent.Recovery{idempotent.Reconcile, idempotent.Resume, idempotent.Rerun}

// Whatever happens to five store calls: under Reconcile, in an AtMostOnce step
// and in a CommitStep an effect happens at most once, it has one downstream key,
// and after the recovery an outcome is stored.
func TestEveryPlanOfFiveStoreCalls(t *testing.T) {
	t.Parallel()
	for _, recovery := range recoveries {
		for _, mode := range slices.Sorted(maps.Keys(modes)) {
			for _, about := range slices.Sorted(maps.Keys(evidence)) {
				if stepless := mode == "no step" || mode == "in a CommitStep"; stepless && about == "about the step" {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, evidence %s", recovery, mode, about), func(t *testing.T) {
					t.Parallel()
					tried := tryAll(t, plans(5, answered, refused, replyLost, cancelledBefore, cancelledAfter), func(plan []fate) string {
						tr := newTrial(recovery)
						tr.calls, tr.handler = plan, modes[mode](tr)
						tr.survive(evidence[about](tr))
						once := recovery == idempotent.Reconcile || mode != "no step" && mode != "at least once"
						switch done := tr.effects + tr.rows; {
						case done == 0:
							tr.fail("the effect never happened")
						case once && done > 1:
							tr.fail("the effect happened %d times", done)
						case done > tr.entries:
							tr.fail("the effect happened %d times in %d runs", done, tr.entries)
						case len(tr.keys) > 1:
							tr.fail("the provider saw %d downstream keys", len(tr.keys))
						}
						return tr.verdict()
					})
					if tried < 3000 {
						t.Errorf("%d plans, want 3,000", tried)
					}
				})
			}
		}
	}
}

// survive sends requests under the plan, at once and after the lease, runs a
// reconciler, and recovers.
func (tr *trial) survive(resolve idempotent.ResolveFunc) {
	_, _ = tr.invoke()
	_, _ = tr.invoke()
	tr.clock.Advance(trialLease)
	_, _ = tr.invoke()
	tr.clock.Advance(trialLease)
	tr.reconcile(resolve)
	tr.recover(resolve)
}

// variants are what a handler does with the error of its transaction.
var variants = map[string]func(try func() error) error{
	"returns the error": func(try func() error) error { return try() },
	"ignores the error": func(try func() error) error {
		_ = try()
		return nil
	},
	"tries again": func(try func() error) error {
		err := try()
		for range 2 {
			if err == nil || errors.Is(err, idempotent.ErrExecutionEnded) {
				break
			}
			err = try()
		}
		return err
	},
	"returns NotExecuted": func(try func() error) error {
		if err := try(); err != nil {
			return idempotent.NotExecuted(err)
		}
		return nil
	},
}

// transacting are the two kinds of transactions.
var transacting = map[string]func(*trial, context.Context) error{
	"Commit": func(tr *trial, ctx context.Context) error { return commit(ctx, "row", tr.transact) },
	"CommitStep": func(tr *trial, ctx context.Context) error {
		_, err := tr.commitStep(ctx)
		return err
	},
}

// Whatever happens to four transactions, and whatever their handler does with the
// error: under Rerun and Resume their rows are written exactly once, without
// evidence; under Reconcile at most once, and exactly once with evidence.
func TestEveryPlanOfFourTransactions(t *testing.T) {
	t.Parallel()
	everyTransaction(t, func(t *testing.T, run func(transactions, calls []fate) string) int {
		return tryAll(t, plans(4, answered, refused, replyLost, requestLost, appliedLater), func(plan []fate) string {
			return run(plan, nil)
		})
	})
}

// The same holds if other store calls also fail.
func TestEveryPlanOfTwoTransactionsAndThreeStoreCalls(t *testing.T) {
	t.Parallel()
	everyTransaction(t, func(t *testing.T, run func(transactions, calls []fate) string) (tried int) {
		for transactions := range plans(2, answered, refused, replyLost, requestLost, appliedLater) {
			tried += tryAll(t, plans(3, answered, refused, replyLost), func(calls []fate) string {
				wrong := run(slices.Clone(transactions), calls)
				if wrong != "" {
					wrong = fmt.Sprintf("transactions %v: %s", transactions, wrong)
				}
				return wrong
			})
		}
		return tried
	})
}

// everyTransaction calls try with a function that runs one plan, for each
// recovery, kind of transaction and handler.
func everyTransaction(t *testing.T, try func(*testing.T, func(transactions, calls []fate) string) int) {
	for _, recovery := range recoveries {
		for _, kind := range slices.Sorted(maps.Keys(transacting)) {
			for _, variant := range slices.Sorted(maps.Keys(variants)) {
				t.Run(fmt.Sprintf("%s, %s, handler %s", recovery, kind, variant), func(t *testing.T) {
					t.Parallel()
					tried := try(t, func(transactions, calls []fate) string {
						tr := newTrial(recovery)
						tr.transactions, tr.calls = transactions, calls
						tr.handler = func(ctx context.Context) (string, error) {
							return "row", variants[variant](func() error { return transacting[kind](tr, ctx) })
						}
						var resolve idempotent.ResolveFunc
						if recovery == idempotent.Reconcile {
							resolve = evidence["about the whole"](tr)
						}
						_, _ = tr.invoke()
						tr.clock.Advance(trialLease)
						_, _ = tr.invoke()
						tr.recover(resolve)
						want := 1
						if tr.refused && variant == "ignores the error" {
							want = 0 // the handler got the error and ignored it
						}
						if tr.rows != want {
							tr.fail("the rows were written %d times, want %d", tr.rows, want)
						}
						return tr.verdict()
					})
					if tried < 600 { // of each of four handlers
						t.Errorf("%d plans, want 600", tried)
					}
				})
			}
		}
	}
}
