// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// mutants are worlds with one broken clause, and the invariants that notice it,
// each checked alone. A store that returns a record other than the stored one
// makes the guard behave as it would without the clause.
var mutants = []struct {
	name string
	Scenario
	caughtBy []string
}{
	{"an insert does not check for a record",
		Scenario{Attempts: 2, Store: overwriting},
		[]string{"INV-1", "INV-2", "INV-3", "INV-4", "INV-5", "INV-8", "INV-9"}},
	{"a record expires with its lease",
		Scenario{Attempts: 1, Clock: clock{WholeLease}, Store: hasty},
		[]string{"INV-2", "INV-3", "INV-4", "INV-5", "INV-8"}},
	{"a write does not check the write id",
		Scenario{Attempts: 1, Resolvers: 1, Clock: clock{WholeLease}, Faults: 1, Store: blind},
		[]string{"INV-3", "INV-4", "INV-5"}},
	{"a write creates the record",
		Scenario{Attempts: 1, Faults: 1, Store: upserting},
		[]string{"INV-12"}},
	{"a write with the own token is taken for the own write (FM62)",
		Scenario{Attempts: 1, Sweepers: 1, Clock: clock{WholeLease}, Store: familiar},
		[]string{"INV-3"}},
	{"the own write is not recognised",
		Scenario{Attempts: 1, Faults: 1, Store: showing(func(r *driver.Record, asked driver.Record) {
			if r.Version == asked.Version {
				r.Version[0]++
			}
		})},
		[]string{"FM01", "INV-3"}},
	{"an outcome is acknowledged but not stored",
		Scenario{Attempts: 1, Store: forgetful},
		[]string{"INV-3", "INV-9"}},
	{"a handler is entered without a claim",
		Scenario{Attempts: 2, Store: generous},
		[]string{"INV-10", "INV-9"}},
	{"fingerprints are not compared",
		Scenario{Attempts: 1, Strangers: 1, Store: showing(func(r *driver.Record, asked driver.Record) { r.Fingerprint = asked.Fingerprint })},
		[]string{"INV-6"}},
	{"scopes are not distinguished",
		Scenario{Attempts: 1, Neighbours: 1, Store: keeping(func(r *driver.Record) { r.ID = keyID })},
		[]string{"INV-7"}},
	{"an unknown record may run again",
		Scenario{Attempts: 1, Store: showing(func(r *driver.Record, _ driver.Record) {
			if r.State == driver.StateUnknown {
				r.State = driver.StateRetryable
			}
		})},
		[]string{"INV-2", "INV-5", "INV-8"}},
	{"an unknown record expires",
		Scenario{Attempts: 1, Store: keeping(func(r *driver.Record) {
			if r.State == driver.StateUnknown {
				r.Expires = r.Since.Add(retention)
			}
		})},
		[]string{"INV-8", "INV-9"}},
	{"a record that waits for evidence is not listed",
		Scenario{Attempts: 1, Store: keeping(func(r *driver.Record) { r.Due = time.Time{} })},
		[]string{"INV-9"}},
	{"leases never end",
		Scenario{Recovery: idempotent.Rerun, Attempts: 1, Faults: 1, Store: showing(func(r *driver.Record, _ driver.Record) { r.LeaseEnd = r.LeaseEnd.Add(PastRetention) })},
		[]string{"INV-9"}},
	{"leases end at once, under rerun",
		Scenario{Recovery: idempotent.Rerun, Attempts: 2, Resolvers: 1, Store: showing(func(r *driver.Record, _ driver.Record) { r.LeaseEnd = began })},
		[]string{"INV-1", "INV-5", "FM48"}},
	{"leases end at once, under reconcile",
		Scenario{Attempts: 1, Resolvers: 1, Faults: 1, Store: showing(func(r *driver.Record, _ driver.Record) { r.LeaseEnd = began })},
		[]string{"INV-2", "FM48"}},
	{"a completed record is stored for a second too long",
		Scenario{Attempts: 1, Store: keeping(func(r *driver.Record) {
			if r.State == driver.StateCompleted {
				r.Expires = r.Expires.Add(time.Second)
			}
		})},
		[]string{"model"}},
	{"an unknown record is due at once",
		Scenario{Attempts: 1, Store: keeping(func(r *driver.Record) {
			if r.State == driver.StateUnknown {
				r.Due = r.Since
			}
		})},
		[]string{"model"}},
	{"a takeover forgets since when effects are open",
		Scenario{Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 1, Faults: 1, Clock: clock{WholeLease}, Store: keeping(func(r *driver.Record) {
			if r.Attempt > 1 && r.State == driver.StateInProgress {
				r.OpenSince = r.LeaseEnd
			}
		})},
		[]string{"model"}},
	{"attempts are not counted",
		Scenario{Attempts: 2, Store: keeping(func(r *driver.Record) { r.Attempt = 1 })},
		[]string{"INV-11"}},
	{"a takeover drops the steps",
		Scenario{Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 1, Faults: 1, Store: keeping(func(r *driver.Record) {
			if r.Attempt > 1 {
				r.Steps = nil
			}
		})},
		[]string{"INV-11"}},
	{"a step that may run once is not marked",
		Scenario{Recovery: idempotent.Resume, Step: &mostOnce, Attempts: 1, Faults: 1, Store: keeping(func(r *driver.Record) {
			if s, _ := r.Step(stepName); !s.Finished {
				r.Steps = nil
			}
		})},
		[]string{"INV-2"}},
	{"an interrupted step runs again",
		Scenario{Recovery: idempotent.Resume, Step: &mostOnce, Attempts: 1, Faults: 1, Store: showing(func(r *driver.Record, _ driver.Record) {
			if s, _ := r.Step(stepName); !s.Finished {
				r.Steps = nil
			}
		})},
		[]string{"INV-2", "INV-5"}},
	{"a resolver reports 'not executed' about a running worker",
		Scenario{Attempts: 1, Resolvers: 1, Clock: clock{WholeLease}, Rash: true},
		[]string{"INV-2"}},
	{"a handler reports 'not executed' after its effect",
		Scenario{Attempts: 1, Plans: []plan{lie}},
		[]string{"INV-2"}},
	{"evidence of no effect does not name an attempt",
		Scenario{Attempts: 2, Plans: []plan{succeed, fail}, Resolvers: 1, Couriers: 1, Clock: clock{WholeLease, WholeLease}, Faults: 1,
			Seen: func(a *actor, s driver.Store) driver.Store { return believing(s, a.evidence.attempt) }},
		[]string{"INV-2"}},
	{"evidence about the whole operation does not wait for the lease",
		Scenario{Attempts: 1, Plans: []plan{succeed}, Resolvers: 1, Seen: func(_ *actor, s driver.Store) driver.Store { return impatient(s) }},
		[]string{"FM48"}},
	{"a record that was released under resume is not due",
		Scenario{Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 1, Reapers: 1, Clock: clock{WholeLease}, Faults: 1, Store: keeping(func(r *driver.Record) {
			if r.State == driver.StateRetryable && len(r.Steps) == 0 && !r.OpenSince.IsZero() {
				r.Due, r.Expires = time.Time{}, r.Since.Add(retention)
			}
		})},
		[]string{"INV-9"}},
	{"the retention is that of the guard that settles",
		Scenario{Attempts: 1, Resolvers: 1, Clock: clock{WholeLease}, Foreign: true, Store: keeping(func(r *driver.Record) { r.Retention = 0 })},
		[]string{"declared"}},
	{"the recovery is that of the guard that sweeps",
		Scenario{Attempts: 1, Reapers: 1, Clock: clock{WholeLease}, Foreign: true, Store: keeping(func(r *driver.Record) {
			if r.Attempt == 1 && r.State != driver.StateInProgress {
				r.Recovery = idempotent.Rerun
			}
		})},
		[]string{"declared"}},
	{"the same state counts as agreed, without a check of the steps",
		Scenario{Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 1, Plans: []plan{stumble}, Reapers: 1, Clock: clock{WholeLease}, Store: showing(func(r *driver.Record, asked driver.Record) {
			if r.Owner == asked.Owner && r.State == driver.StateRetryable {
				r.Steps, r.Ref = asked.Steps, asked.Ref
			}
		})},
		[]string{"INV-11"}},
	{"a step runs again with a key that the provider has forgotten",
		Scenario{Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 2, Plans: []plan{succeed, fail}, Clock: clock{PastRetention}, Store: showing(func(r *driver.Record, _ driver.Record) { r.OpenSince = time.Time{} })},
		[]string{"INV-2"}},
	{"a transaction has its effect although its record is refused",
		Scenario{Recovery: idempotent.Rerun, Commit: true, Attempts: 2, Clock: clock{WholeLease}, Torn: true},
		[]string{"INV-2"}},
	{"the predecessor is asked again after its outcome was discarded",
		Scenario{Predecessor: true, Attempts: 2, Plans: []plan{succeed}, Forgetters: 1, Clock: clock{WholeLease}, Store: keeping(func(r *driver.Record) { r.PredecessorAnswered = false })},
		[]string{"discarded"}},
	{"a step of a run drops its announcement",
		Scenario{Announce: true, Recovery: idempotent.Resume, Step: &leastOnce, Attempts: 1, Plans: []plan{succeed}, Clock: clock{PastContext}, Store: keeping(func(r *driver.Record) {
			if s, _ := r.Step(stepName); s.Finished {
				r.Announced = false
			}
		})},
		[]string{"announced", "model"}},
	{"a record that is no longer in progress stays announced",
		Scenario{Announce: true, Attempts: 1, Plans: []plan{fail}, Clock: clock{PastContext}, Store: keeping(func(r *driver.Record) {
			r.Announced = r.Announced || r.State == driver.StateUnknown
		})},
		[]string{"announced", "model"}},
	{"the deadline is known too late",
		Scenario{Attempts: 1, Late: true},
		[]string{"in time"}},
	{"a transaction is refused although it is applied",
		Scenario{Commit: true, Attempts: 1, Faults: 1, Liar: true},
		[]string{"told"}},
}

// The search finds each broken clause, names the invariant and shows a short
// schedule; and every invariant finds at least one.
func TestBrokenWorldsAreCaught(t *testing.T) {
	t.Parallel()
	const long = 30 // steps, the end counting as one
	caught := map[string]bool{}
	for _, m := range mutants {
		for _, name := range m.caughtBy {
			caught[name] = true
			t.Run(name+", "+m.name, func(t *testing.T) {
				t.Parallel()
				m.Ask = []string{name}
				var r Report
				var err error
				if inBubble(t, m.Announce || m.Late, func() { r, err = Search(m.Scenario, limit) }); err != nil {
					t.Fatal(err)
				}
				if r.Violation == nil {
					t.Fatalf("%d schedules, but no violation", r.Schedules)
				}
				t.Logf("schedule %d: %v", r.Schedules, r.Violation)
				if r.Violation.Invariant != name || len(r.Violation.steps) > long {
					t.Errorf("the violation names %s and shows %d steps", r.Violation.Invariant, len(r.Violation.steps))
				}
			})
		}
		if len(m.caughtBy) == 0 {
			t.Errorf("%s: no invariant caught it", m.name)
		}
	}
	for _, i := range invariants {
		if !caught[i.name] {
			t.Errorf("%s catches nothing", i.name)
		}
	}
}

// A schedule that breaks an invariant is shortened until every step is needed, and
// it fails in the same way when it is run again.
func TestShortenedSchedules(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		inBubble(t, m.Announce || m.Late, func() {
			x := &search{setUp: m.setUp, limit: limit, merge: true}
			r, err := x.run()
			if err != nil || r.Violation == nil {
				t.Error(m.name, err)
				return
			}
			v := r.Violation
			x.fibers = fibers{}
			defer x.fibers.end()
			if again := x.retry(v.steps); again == nil || again.Wrong != v.Wrong {
				t.Errorf("%s: a second run gives %v, want %v", m.name, again, v)
			}
			for i := range v.steps {
				if x.retry(slices.Delete(slices.Clone(v.steps), i, i+1)) != nil {
					t.Errorf("%s: step %d can be left out of %v", m.name, i+1, v)
				}
			}
		})
	}
}

// blind replaces the current record without checking its version.
func blind(s driver.Store) driver.Store {
	return on(driver.OpReplace, s, func(ctx context.Context, c *idempotenttest.StoreCall) { overwrite(ctx, s, c) })
}

// overwriting inserts over a record that has not expired.
func overwriting(s driver.Store) driver.Store {
	return on(driver.OpInsert, s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		if c.Do(ctx); c.Current != nil {
			overwrite(ctx, s, c)
		}
	})
}

// hasty treats a record as expired as soon as its lease has ended.
func hasty(s driver.Store) driver.Store {
	return on(driver.OpInsert, s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		if c.Do(ctx); c.Current != nil && !c.Now.Before(c.Current.LeaseEnd) {
			overwrite(ctx, s, c)
		}
	})
}

// upserting creates the record that Replace did not find.
func upserting(s driver.Store) driver.Store {
	return on(driver.OpReplace, s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		if c.Do(ctx); errors.Is(c.Err, idempotent.ErrNoRecord) {
			c.Current, c.Err = s.Insert(ctx, c.Record, time.Time{})
		}
	})
}

// familiar treats every record with the writer's owner token as the writer's
// own write, and returns it with the writer's version.
func familiar(s driver.Store) driver.Store {
	return idempotenttest.Intercept(s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		if c.Do(ctx); c.Op != driver.OpGet && c.Current != nil && c.Current.Owner == c.Record.Owner {
			c.Current.Version = c.Record.Version
		}
	})
}

// forgetful acknowledges the outcome of a handler and does not store it.
func forgetful(s driver.Store) driver.Store {
	return on(driver.OpReplace, s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		stands, err := s.Get(ctx, c.Record.ID)
		if dropped := err == nil && c.Record.State == driver.StateCompleted && stands.Version == c.Was; !dropped {
			c.Do(ctx)
		}
	})
}

// overwrite writes over the current record.
func overwrite(ctx context.Context, s driver.Store, c *idempotenttest.StoreCall) {
	for c.Current = nil; ; {
		stands, err := s.Get(ctx, c.Record.ID)
		if c.Err = err; err != nil {
			return
		}
		if met, err := s.Replace(ctx, c.Record, stands.Version); met == nil || err != nil {
			c.Err = err
			return
		}
	}
}

// on replaces one method of a store.
func on(op driver.Op, s driver.Store, f func(context.Context, *idempotenttest.StoreCall)) driver.Store {
	return idempotenttest.Intercept(s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		if c.Op == op {
			f(ctx, c)
		} else {
			c.Do(ctx)
		}
	})
}

// believing shows every record as one of the attempt named.
func believing(s driver.Store, named driver.Owner) driver.Store {
	var stands driver.Owner
	return idempotenttest.Intercept(s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		if c.Op == driver.OpReplace {
			c.Record.Owner = stands
		}
		if c.Do(ctx); c.Op != driver.OpInsert && c.Current != nil {
			stands, c.Current = c.Current.Owner, c.Current.Clone()
			c.Current.Owner = named
		}
	})
}

// impatient shows every lease as ended.
func impatient(s driver.Store) driver.Store {
	var leaseEnd time.Time
	return idempotenttest.Intercept(s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		if c.Op == driver.OpReplace {
			c.Record.LeaseEnd = leaseEnd
		}
		if c.Do(ctx); c.Op != driver.OpInsert && c.Current != nil {
			leaseEnd, c.Current = c.Current.LeaseEnd, c.Current.Clone()
			c.Current.LeaseEnd = began
		}
	})
}

// generous returns success for every insert.
func generous(s driver.Store) driver.Store {
	return idempotenttest.Intercept(s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		if c.Do(ctx); c.Op == driver.OpInsert {
			c.Current = nil
		}
	})
}

// keeping is a store that changes a record before it stores it.
func keeping(change func(*driver.Record)) func(driver.Store) driver.Store {
	return altered(func(ctx context.Context, c *idempotenttest.StoreCall) {
		if c.Op != driver.OpGet {
			change(&c.Record)
		}
		c.Do(ctx)
	})
}

// showing is a store that changes a record before it returns it to a writer.
func showing(change func(stands *driver.Record, asked driver.Record)) func(driver.Store) driver.Store {
	return altered(func(ctx context.Context, c *idempotenttest.StoreCall) {
		if c.Do(ctx); c.Current != nil {
			change(c.Current, c.Record)
		}
	})
}

func altered(f func(context.Context, *idempotenttest.StoreCall)) func(driver.Store) driver.Store {
	return func(s driver.Store) driver.Store { return idempotenttest.Intercept(s, f) }
}
