// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// broken is a store that breaks one rule of the contract, or a broken guard
// over a sound store.
type broken struct {
	name   string
	spoil  func(*shelf)      // breaks the store
	chunks func(*chunkShelf) // or its handling of large results
	lists  func(*listShelf)  // or its lists
	// running breaks the lists of a store that lists running records apart.
	running func(*abandonedShelf)
	guard   *mutation // or the guard
	// caught names the requirements of RunStore and the rows of RunFailureModes
	// that have to fail. Others may fail too.
	caught []string
}

func (b broken) fixture() Fixture {
	var m mutation
	if b.guard != nil {
		m, b.chunks = *b.guard, func(*chunkShelf) {}
	}
	return Fixture{
		mutation: m,
		Open: func(testing.TB) driver.Store {
			if b.running != nil {
				s := newAbandonedShelf()
				b.running(s)
				return s
			}
			if b.lists != nil {
				s := newListShelf()
				b.lists(s)
				return s
			}
			if b.chunks != nil {
				s := newChunkShelf()
				b.chunks(s)
				return s
			}
			s := newShelf()
			if b.spoil != nil {
				b.spoil(s)
			}
			return s
		},
		Reopen: func(_ testing.TB, s driver.Store) driver.Store {
			if plain, ok := s.(*shelf); ok {
				return plain.reopen()
			}
			return s
		},
		Remove: func(_ context.Context, s driver.Store, id idempotent.RecordID) error {
			s.(interface{ remove(idempotent.RecordID) }).remove(id)
			return nil
		},
		Damage: func(_ context.Context, s driver.Store, id idempotent.RecordID) error {
			if running, ok := s.(*abandonedShelf); ok {
				s = running.listShelf
			}
			s.(*listShelf).damaged[id] = true
			return nil
		},
	}
}

var (
	brokenStores = slices.Concat(brokenInserts, brokenReplaces, brokenKeeping, brokenChunks, brokenLists)
	allBroken    = slices.Concat(brokenStores, brokenGuards)
)

// forgetfulStores returns stores that lose one field of a record, or of its
// steps: on every write, on a Replace that should have changed it, or on an
// Insert over an expired record. It reads the fields from the type, so new
// fields are covered automatically.
func forgetfulStores() []broken {
	var stores []broken
	record := reflect.TypeFor[driver.Record]()
	for i := range record.NumField() {
		field := record.Field(i).Name
		if !record.Field(i).IsExported() {
			continue // brokenKeeping has the stores that lose what is in Extra
		}
		stores = append(stores, broken{name: field + " is lost", caught: []string{"EveryFieldIsKept"},
			spoil: kept(func(r *driver.Record) { reflect.ValueOf(r).Elem().Field(i).SetZero() })})
		if field == "ID" {
			continue // equal in both records
		}
		keep := func(old *driver.Record, r driver.Record) *driver.Record {
			r = *r.Clone()
			reflect.ValueOf(&r).Elem().Field(i).Set(reflect.ValueOf(old).Elem().Field(i))
			return &r
		}
		stores = append(stores, broken{name: "Replace retains the old " + field, caught: []string{"ReplaceWrites"},
			spoil: func(s *shelf) {
				s.write = func(op driver.Op, old *driver.Record, r driver.Record) *driver.Record {
					if old == nil || op == driver.OpInsert {
						return r.Clone()
					}
					return keep(old, r)
				}
			}},
			broken{name: "Insert retains the expired " + field, caught: []string{"InsertReplacesExpired"},
				spoil: func(s *shelf) {
					s.write = func(op driver.Op, old *driver.Record, r driver.Record) *driver.Record {
						if old == nil || op != driver.OpInsert {
							return r.Clone()
						}
						return keep(old, r)
					}
				}})
	}
	step := reflect.TypeFor[driver.StepRecord]()
	for i := range step.NumField() {
		stores = append(stores, broken{name: step.Field(i).Name + " of a step is lost", caught: []string{"EveryFieldIsKept"},
			spoil: kept(func(r *driver.Record) {
				for s := range r.Steps {
					reflect.ValueOf(&r.Steps[s]).Elem().Field(i).SetZero()
				}
			})})
	}
	return stores
}

// failing returns the names of the requirements that a store does not meet, of
// those given, or of all.
func failing(f Fixture, among ...string) (names []string) {
	probe := f.Open(nil)
	for _, r := range requirements {
		if r.needs != nil && !r.needs(f, probe) || among != nil && !slices.Contains(among, r.name) {
			continue
		}
		s := f.Open(nil)
		if r.run(context.Background(), nil, f, s) != nil {
			names = append(names, r.name)
		}
	}
	return names
}

// verdicts returns the failed requirements of each broken store, in a synctest bubble,
// as the stores that lose a race need one.
func verdicts(t *testing.T) map[string][]string {
	t.Helper()
	judged.once.Do(func() {
		judged.found = map[string][]string{}
		for _, b := range brokenStores {
			synctest.Test(t, func(*testing.T) { judged.found[b.name] = failing(b.fixture()) })
		}
	})
	return judged.found
}

var judged struct {
	once  sync.Once
	found map[string][]string
}

// twoLocks uses one lock for Inserts and another one for Replaces, so that an
// Insert and a Replace do not exclude each other. The locks are channels, because the
// clock of a bubble does not move while a goroutine waits for a Mutex.
func twoLocks(s *shelf) {
	locks := map[driver.Op]chan struct{}{driver.OpInsert: make(chan struct{}, 1), driver.OpReplace: make(chan struct{}, 1)}
	right := s.begin
	s.begin = func(ctx context.Context, op driver.Op) error {
		if err := right(ctx, op); err != nil || op == driver.OpGet {
			return err
		}
		locks[op] <- struct{}{}
		return nil
	}
	s.end = func(_ context.Context, op driver.Op) error {
		<-locks[op]
		return nil
	}
	s.unsafely(func(_ driver.Op, old, _ *driver.Record) bool { return old != nil })
}

// ignoring returns a begin hook that checks the context, except for the given
// operations. Without any, it never checks.
func ignoring(ops ...driver.Op) func(context.Context, driver.Op) error {
	return func(ctx context.Context, op driver.Op) error {
		if len(ops) == 0 || slices.Contains(ops, op) {
			return nil
		}
		return ctx.Err()
	}
}

// reading makes Get return give(record).
func reading(give func(*driver.Record) *driver.Record) func(*driver.Record) (*driver.Record, error) {
	return func(r *driver.Record) (*driver.Record, error) {
		if r == nil {
			return nil, idempotent.ErrNoRecord
		}
		return give(r), nil
	}
}

// unsafely makes the selected writes of a shelf non-atomic. Between the check and the
// write, a writer sleeps, and the clock of a synctest bubble moves only when each
// other goroutine waits, too. Every writer that can has checked by then.
func (s *shelf) unsafely(writes func(op driver.Op, old, r *driver.Record) bool) {
	s.gap = func(op driver.Op, old, r *driver.Record) {
		if writes(op, old, r) {
			s.mu.Unlock()
			defer s.mu.Lock()
			time.Sleep(time.Nanosecond)
		}
	}
}

// kept changes every record before it is stored.
func kept(spoil func(*driver.Record)) func(*shelf) {
	return func(s *shelf) {
		s.write = func(_ driver.Op, _ *driver.Record, r driver.Record) *driver.Record {
			c := r.Clone()
			spoil(c)
			return c
		}
	}
}

// everyTime changes each time of a record.
func everyTime(spoil func(time.Time) time.Time) func(*shelf) {
	return kept(func(r *driver.Record) {
		for _, t := range []*time.Time{&r.LeaseEnd, &r.Expires, &r.Created, &r.Since, &r.OpenSince, &r.Due} {
			*t = spoil(*t)
		}
	})
}

// merged returns old with the fields that r sets, like an update of single
// attributes.
func merged(old *driver.Record, r driver.Record) *driver.Record {
	c := old.Clone()
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(*r.Clone())
	for i := range from.NumField() {
		if !from.Field(i).IsZero() && from.Type().Field(i).IsExported() {
			to.Field(i).Set(from.Field(i))
		}
	}
	return c
}

// brokenInserts are faults in Insert, and in what it returns to a caller that
// did not win.
var brokenInserts = []broken{
	{name: "Insert fails after its write", spoil: func(s *shelf) {
		s.end = func(_ context.Context, op driver.Op) error {
			if op == driver.OpInsert {
				return errors.New("connection reset")
			}
			return nil
		}
	}, caught: []string{"InsertCreates"}},
	{name: "Insert ignores a live record", spoil: func(s *shelf) {
		s.stands = func(*driver.Record, driver.Record, time.Time) bool { return false }
	}, caught: []string{"InsertRefuses", "InsertReplacesExpired", "NoExpiryNeverExpires", "OneInserterWins", "FM01_InsertReplyLost", "FM02_InsertGivenUp_NotReleased", "FM37_TwinLeavesNothing"}},
	{name: "Insert never replaces", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, _ time.Time) bool { return old != nil }
	}, caught: []string{"InsertReplacesExpired", "OneInserterReplacesExpired", "FM19_ExpiredButStillThere"}},
	{name: "Insert replaces only after the millisecond of the expiry", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, now time.Time) bool {
			return old != nil && (old.Expires.IsZero() || !old.Expires.Before(now))
		}
	}, caught: []string{"InsertReplacesExpired"}},
	{name: "Insert replaces a millisecond too early", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, now time.Time) bool {
			return old != nil && (old.Expires.IsZero() || old.Expires.After(now.Add(time.Millisecond)))
		}
	}, caught: []string{"InsertReplacesExpired"}},
	{name: "Insert compares the expiry in seconds", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, now time.Time) bool {
			return old != nil && (old.Expires.IsZero() || old.Expires.Unix() > now.Unix())
		}
	}, caught: []string{"InsertReplacesExpired"}},
	{name: "Insert compares the expiry with the wall clock", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, _ time.Time) bool {
			return old != nil && (old.Expires.IsZero() || old.Expires.After(time.Now()))
		}
	}, caught: []string{"InsertReplacesExpired", "FM19_ExpiredButStillThere"}},
	{name: "Insert compares in the wrong direction", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, now time.Time) bool {
			return old != nil && (old.Expires.IsZero() || old.Expires.Before(now))
		}
	}, caught: []string{"InsertRefuses", "InsertReplacesExpired"}},
	{name: "Insert checks the new record's expiry", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, r driver.Record, now time.Time) bool {
			return old != nil && (r.Expires.IsZero() || r.Expires.After(now))
		}
	}, caught: []string{"InsertReplacesExpired"}},
	{name: "Insert treats a record without expiry as expired", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, now time.Time) bool {
			return old != nil && old.Expires.After(now)
		}
	}, caught: []string{"NoExpiryNeverExpires", "OneInserterWins", "FM59_CrashedNeverExpires"}},
	{name: "A record without expiry expires after ten years", spoil: func(s *shelf) {
		s.stands = func(old *driver.Record, _ driver.Record, now time.Time) bool {
			return old != nil && (old.Expires.IsZero() && old.Created.AddDate(10, 0, 0).After(now) || old.Expires.After(now))
		}
	}, caught: []string{"NoExpiryNeverExpires"}},
	{name: "Insert takes over any record that is not completed", spoil: func(s *shelf) {
		right := s.stands
		s.stands = func(old *driver.Record, r driver.Record, now time.Time) bool {
			return right(old, r, now) && old.State == driver.StateCompleted
		}
	}, caught: []string{"OneInserterWins", "NoExpiryNeverExpires", "FM01_TakeoverReplyLost"}},
	{name: "A refused Insert returns no record", spoil: func(s *shelf) {
		s.loser = func(driver.Op, *driver.Record, driver.Record) (*driver.Record, error) { return nil, nil }
	}, caught: []string{"InsertRefuses", "ReplaceRefuses", "OneInserterWins", "OneReplacerWins"}},
	{name: "A refused Insert returns its own record", spoil: func(s *shelf) {
		s.loser = func(_ driver.Op, _ *driver.Record, r driver.Record) (*driver.Record, error) {
			return r.Clone(), nil
		}
	}, caught: []string{"InsertRefuses", "ReplaceRefuses", "OneInserterWins", "OneReplacerWins", "FM10_CrashBeforeCompletion"}},
	{name: "A refused Insert returns an error", spoil: func(s *shelf) {
		s.loser = func(driver.Op, *driver.Record, driver.Record) (*driver.Record, error) {
			return nil, errors.New("conditional check failed")
		}
	}, caught: []string{"InsertRefuses", "ReplaceRefuses", "OneInserterWins", "OneReplacerWins"}},
	{name: "A refused Insert returns the record without its result", spoil: func(s *shelf) {
		s.loser = func(_ driver.Op, old *driver.Record, _ driver.Record) (*driver.Record, error) {
			head := old.Clone()
			head.Result = nil
			return head, nil
		}
	}, caught: []string{"InsertRefuses", "ReplaceRefuses"}},
	{name: "A repeated Insert returns an error", spoil: func(s *shelf) {
		s.loser = func(_ driver.Op, old *driver.Record, r driver.Record) (*driver.Record, error) {
			if old.Version == r.Version && old.Attempt == 1 {
				return nil, errors.New("duplicate write id")
			}
			return old.Clone(), nil
		}
	}, caught: []string{"InsertAgain", "FM01_InsertReplyLost"}},
	{name: "Insert checks and writes in two steps", spoil: func(s *shelf) {
		s.unsafely(func(op driver.Op, old, r *driver.Record) bool {
			return op == driver.OpInsert && old == nil && r.State == driver.StateInProgress
		})
	}, caught: []string{"OneInserterWins", "FM05_SimultaneousRequests", "FM51_ManyLoopsOneProcess", "FM51_ManyLoopsOneProcessWithACache"}},
	{name: "Insert over an expired record checks and writes in two steps", spoil: func(s *shelf) {
		s.unsafely(func(op driver.Op, old, _ *driver.Record) bool {
			return op == driver.OpInsert && old != nil && old.State == driver.StateCompleted
		})
	}, caught: []string{"OneInserterReplacesExpired", "FM21_SimultaneousReplacersOfAnExpiredRecord"}},
	{name: "Insert and Replace have separate locks", spoil: twoLocks, caught: []string{"OneWriterWins"}},
}

// brokenReplaces are faults in Replace.
var brokenReplaces = []broken{
	{name: "Replace is unconditional", spoil: func(s *shelf) {
		s.fits = func(*driver.Record, driver.Record, driver.Version) bool { return true }
	}, caught: []string{"ReplaceRefuses", "OneReplacerWins", "FM13_TakenOverAndCompleted", "FM13_TakenOverAndRunning", "FM46_TwoReconcilers_TwoResults", "FM47_WebhookBeforeTheOwner_SameResult", "FM60_OutcomeAgainstTakeover_Error", "FM60_OutcomeAgainstTakeover_NotExecuted", "FM60_StepAgainstTakeover", "FM62_SweptWhileTheCompletionIsOnTheWire", "FM62_OwnUnknownMeetsTheSweepers", "FM66_ExpiryWhileTakingOver"}},
	{name: "Replace compares only the owner", spoil: func(s *shelf) {
		s.fits = func(old *driver.Record, r driver.Record, was driver.Version) bool {
			return old.Version == was || old.Owner == r.Owner
		}
	}, caught: []string{"ReplaceRefuses", "FM14_LateOwnerCompletesUnknown"}},
	{name: "Replace compares the owner instead of the version", spoil: func(s *shelf) {
		s.fits = func(old *driver.Record, r driver.Record, _ driver.Version) bool {
			return old.Owner == r.Owner
		}
	}, caught: []string{"ReplaceWrites", "ReplaceRefuses"}},
	{name: "Replace also compares the state", spoil: func(s *shelf) {
		right := s.fits
		s.fits = func(old *driver.Record, r driver.Record, was driver.Version) bool {
			return right(old, r, was) && old.State == driver.StateInProgress
		}
	}, caught: []string{"ReplaceWrites"}},
	{name: "Replace refuses an expired record", spoil: func(s *shelf) {
		right := s.fits
		s.fits = func(old *driver.Record, r driver.Record, was driver.Version) bool {
			return right(old, r, was) && (old.Expires.IsZero() || old.Expires.After(time.Now()))
		}
	}, caught: []string{"ReplaceIgnoresExpiry"}},
	{name: "Replace refuses to complete an expired record", spoil: func(s *shelf) {
		right := s.fits
		s.fits = func(old *driver.Record, r driver.Record, was driver.Version) bool {
			return right(old, r, was) && (r.State != driver.StateCompleted || old.Expires.IsZero() || old.Expires.After(time.Now()))
		}
	}, caught: []string{"ReplaceIgnoresExpiry"}},
	{name: "Replace creates a missing record", spoil: func(s *shelf) { s.creates = true }, caught: []string{"ReplaceNeverCreates", "FM20_RecordDeletedMeanwhile"}},
	{name: "Replace only adds fields", spoil: func(s *shelf) {
		s.write = func(op driver.Op, old *driver.Record, r driver.Record) *driver.Record {
			if old == nil || op == driver.OpInsert {
				return r.Clone()
			}
			return merged(old, r)
		}
	}, caught: []string{"ReplaceWrites"}},
	{name: "Replace retains a result that the new record does not have", spoil: func(s *shelf) {
		s.write = func(op driver.Op, old *driver.Record, r driver.Record) *driver.Record {
			c := r.Clone()
			if op == driver.OpReplace && old != nil && c.Result == nil {
				c.Result = old.Result
			}
			return c
		}
	}, caught: []string{"ReplaceWrites"}},
	{name: "A repeated Replace returns an error", spoil: func(s *shelf) {
		s.loser = func(_ driver.Op, old *driver.Record, r driver.Record) (*driver.Record, error) {
			if old.Version == r.Version && (old.Attempt > 1 || old.State != driver.StateInProgress) {
				return nil, errors.New("conditional check failed")
			}
			return old.Clone(), nil
		}
	}, caught: []string{"ReplaceAgain", "FM01_TakeoverReplyLost", "FM08_CompletionReplyLost"}},
	{name: "Replace checks and writes in two steps", spoil: func(s *shelf) {
		s.unsafely(func(op driver.Op, old, _ *driver.Record) bool {
			return op == driver.OpReplace && old != nil && (old.Expires.IsZero() || old.State == driver.StateRetryable)
		})
	}, caught: []string{"OneReplacerWins", "FM33_SimultaneousTakeovers"}},
}

// forgets makes the selected writes lose what is in Record.Extra.
func forgets(writes func(op driver.Op, r *driver.Record) bool) func(*shelf) {
	return func(s *shelf) {
		s.write = func(op driver.Op, _ *driver.Record, r driver.Record) *driver.Record {
			if writes(op, &r) {
				r.SetExtra(nil)
			}
			return r.Clone()
		}
	}
}

// brokenKeeping are faults in how a store holds records.
var brokenKeeping = []broken{
	{name: "Insert loses attributes of a later version", spoil: forgets(func(op driver.Op, _ *driver.Record) bool {
		return op == driver.OpInsert
	}), caught: []string{"LaterAttributesAreKept"}},
	{name: "Replace loses attributes of a later version", spoil: forgets(func(op driver.Op, _ *driver.Record) bool {
		return op == driver.OpReplace
	}), caught: []string{"LaterAttributesAreKept"}},
	{name: "A completion loses attributes of a later version", spoil: forgets(func(op driver.Op, r *driver.Record) bool {
		return op == driver.OpReplace && r.State == driver.StateCompleted
	}), caught: []string{"LaterAttributesAreKept"}},
	{name: "Attributes of a later version in steps are lost", spoil: kept(func(r *driver.Record) {
		if extra := r.Extra(); extra != nil {
			r.SetExtra(map[string]map[string]json.RawMessage{"": extra[""]})
		}
	}), caught: []string{"LaterAttributesAreKept"}},
	{name: "A refused write returns no attributes of a later version", spoil: func(s *shelf) {
		s.loser = func(_ driver.Op, old *driver.Record, _ driver.Record) (*driver.Record, error) {
			head := old.Clone()
			head.SetExtra(nil)
			return head, nil
		}
	}, caught: []string{"LaterAttributesAreKept"}},
	{name: "A new record has the attributes of a later version of an expired one", spoil: func(s *shelf) {
		s.write = func(_ driver.Op, old *driver.Record, r driver.Record) *driver.Record {
			if old != nil && r.Extra() == nil {
				r.SetExtra(old.Extra())
			}
			return r.Clone()
		}
	}, caught: []string{"LaterAttributesAreKept"}},
	{name: "Times are stored in seconds", spoil: everyTime(func(t time.Time) time.Time { return t.Truncate(time.Second) }), caught: []string{"EveryFieldIsKept"}},
	{name: "Times are returned in another zone", spoil: everyTime(func(t time.Time) time.Time {
		return t.In(time.FixedZone("CET", 3600))
	}), caught: []string{"EveryFieldIsKept"}},
	{name: "A missing time becomes the epoch", spoil: everyTime(func(t time.Time) time.Time {
		if t.IsZero() {
			return time.UnixMilli(0).UTC()
		}
		return t
	}), caught: []string{"EveryFieldIsKept"}},
	{name: "A missing result becomes an empty one", spoil: kept(func(r *driver.Record) {
		if r.Result == nil {
			r.Result = []byte{}
		}
	}), caught: []string{"EveryFieldIsKept"}},
	{name: "Text loses its non-ASCII characters", spoil: kept(func(r *driver.Record) {
		r.Ref = strings.ToValidUTF8(strings.Map(func(c rune) rune {
			if c > 127 {
				return '?'
			}
			return c
		}, r.Ref), "?")
	}), caught: []string{"EveryFieldIsKept"}},
	{name: "A result ends at its first zero byte", spoil: kept(func(r *driver.Record) {
		if i := bytes.IndexByte(r.Result, 0); i >= 0 {
			r.Result = r.Result[:i]
		}
	}), caught: []string{"EveryFieldIsKept", "FM34_ResultOf4KB"}},
	{name: "A retryable record loses its recovery", spoil: kept(func(r *driver.Record) {
		if r.State == driver.StateRetryable {
			r.Recovery = 0
		}
	}), caught: []string{"EveryFieldIsKept"}},
	{name: "Get returns the previous write", spoil: func(s *shelf) {
		before := map[string]*driver.Record{}
		s.write = func(_ driver.Op, old *driver.Record, r driver.Record) *driver.Record {
			if old != nil {
				before[s.name(r.ID)] = old
			}
			return r.Clone()
		}
		right := s.read
		s.read = func(r *driver.Record) (*driver.Record, error) {
			if r != nil && before[s.name(r.ID)] != nil {
				r = before[s.name(r.ID)]
			}
			return right(r)
		}
	}, caught: []string{"ReplaceWrites", "InsertReplacesExpired", "OneReplacerWins", "FM31_PanicAfterTheEffect"}},
	{name: "Get hides expired records", spoil: func(s *shelf) {
		right := s.read
		s.read = func(r *driver.Record) (*driver.Record, error) {
			if r != nil && !r.Expires.IsZero() && r.Expires.Before(time.Now()) {
				return nil, idempotent.ErrNoRecord
			}
			return right(r)
		}
	}, caught: []string{"GetExpired"}},
	{name: "Get fails before the first write", spoil: func(s *shelf) {
		var table atomic.Bool
		s.begin = func(ctx context.Context, op driver.Op) error {
			if op != driver.OpGet {
				table.Store(true)
			}
			if !table.Load() {
				return errors.New("no such table")
			}
			return ctx.Err()
		}
	}, caught: []string{"GetNothing"}},
	{name: "Get returns neither a record nor an error", spoil: func(s *shelf) {
		s.read = func(r *driver.Record) (*driver.Record, error) {
			if r == nil {
				return nil, nil
			}
			return r.Clone(), nil
		}
	}, caught: []string{"GetNothing", "ReplaceNeverCreates"}},
	{name: "Keys are compared case-insensitively", spoil: func(s *shelf) {
		s.name = func(id idempotent.RecordID) string { return strings.ToLower(string(id)) }
	}, caught: []string{"KeysAreApart"}},
	{name: "Keys end at the first #", spoil: func(s *shelf) {
		s.name = func(id idempotent.RecordID) string { name, _, _ := strings.Cut(string(id), "#"); return name }
	}, caught: []string{"KeysAreApart", "EveryFieldIsKept"}},
	{name: "Keys are truncated to 200 characters", spoil: func(s *shelf) {
		s.name = func(id idempotent.RecordID) string { return string(id)[:min(200, len(id))] }
	}, caught: []string{"KeysAreApart"}},
	{name: "Insert retains the caller's record", spoil: func(s *shelf) {
		s.write = func(_ driver.Op, _ *driver.Record, r driver.Record) *driver.Record { return &r }
	}, caught: []string{"RecordsAreCopies"}},
	{name: "Replace retains the caller's record", spoil: func(s *shelf) {
		s.write = func(op driver.Op, _ *driver.Record, r driver.Record) *driver.Record {
			if op == driver.OpInsert {
				return r.Clone()
			}
			return &r
		}
	}, caught: []string{"RecordsAreCopies"}},
	{name: "Get returns the stored record without a copy", spoil: func(s *shelf) {
		s.read = reading(func(r *driver.Record) *driver.Record { return r })
	}, caught: []string{"RecordsAreCopies"}},
	{name: "Get returns a copy that shares the result", spoil: func(s *shelf) {
		s.read = reading(func(r *driver.Record) *driver.Record { c := *r; return &c })
	}, caught: []string{"RecordsAreCopies"}},
	{name: "Insert returns the stored record without a copy", spoil: func(s *shelf) {
		s.loser = func(op driver.Op, old *driver.Record, _ driver.Record) (*driver.Record, error) {
			if op == driver.OpInsert {
				return old, nil
			}
			return old.Clone(), nil
		}
	}, caught: []string{"RecordsAreCopies"}},
	{name: "Replace returns the stored record without a copy", spoil: func(s *shelf) {
		s.loser = func(op driver.Op, old *driver.Record, _ driver.Record) (*driver.Record, error) {
			if op == driver.OpInsert {
				return old.Clone(), nil
			}
			return old, nil
		}
	}, caught: []string{"RecordsAreCopies"}},
	{name: "The context is ignored", spoil: func(s *shelf) { s.begin = ignoring() }, caught: []string{"ContextEnds"}},
	{name: "Insert ignores the context", spoil: func(s *shelf) { s.begin = ignoring(driver.OpInsert) }, caught: []string{"ContextEnds"}},
	{name: "Replace ignores the context", spoil: func(s *shelf) { s.begin = ignoring(driver.OpReplace) }, caught: []string{"ContextEnds"}},
	{name: "Get ignores the context", spoil: func(s *shelf) { s.begin = ignoring(driver.OpGet) }, caught: []string{"ContextEnds"}},
	{name: "Insert checks the context after the write", spoil: func(s *shelf) {
		s.begin, s.end = ignoring(driver.OpInsert), s.begin
	}, caught: []string{"ContextEnds"}},
	{name: "Errors contain the record", spoil: func(s *shelf) {
		s.tell = func(err error, r *driver.Record) error { return fmt.Errorf("%w: %+v", err, *r) }
	}, caught: []string{"ErrorsTellNothing"}},
	{name: "Errors contain the result", spoil: func(s *shelf) {
		s.tell = func(err error, r *driver.Record) error { return fmt.Errorf("%w: %q", err, r.Result) }
	}, caught: []string{"ErrorsTellNothing"}},
	{name: "A large result is truncated", spoil: kept(func(r *driver.Record) { r.Result = r.Result[:min(len(r.Result), 400<<10)] }),
		caught: []string{"WholeOrNotAtAll"}},
	{name: "A large result is dropped", spoil: kept(func(r *driver.Record) {
		if len(r.Result) > 400<<10 {
			r.Result = nil
		}
	}), caught: []string{"WholeOrNotAtAll"}},
	{name: "A record that is too large returns an error other than ErrTooLarge", spoil: func(s *shelf) {
		s.admit = func(r driver.Record) error {
			if len(r.Result) > 400<<10 {
				return errors.New("413")
			}
			return nil
		}
	}, caught: []string{"WholeOrNotAtAll"}},
	{name: "A record that is too large returns ErrTooLarge and is written", spoil: func(s *shelf) {
		s.admit = func(r driver.Record) error {
			if len(r.Result) > 400<<10 {
				s.records[s.name(r.ID)] = r.Clone()
				return driver.ErrTooLarge
			}
			return nil
		}
	}, caught: []string{"WholeOrNotAtAll"}},
	{name: "Records are lost when the process ends", spoil: func(s *shelf) {
		s.reopen = func() *shelf { return newShelf() }
	}, caught: []string{"Reopen"}},
	{name: "Replaces are lost when the process ends", spoil: func(s *shelf) {
		first := newShelf()
		s.write = func(_ driver.Op, old *driver.Record, r driver.Record) *driver.Record {
			if old == nil {
				first.records[s.name(r.ID)] = r.Clone()
			}
			return r.Clone()
		}
		s.reopen = func() *shelf { return first }
	}, caught: []string{"Reopen"}},
}

// brokenLists are faults in how a store lists due records.
var brokenLists = []broken{
	{name: "A record that will be due is not listed", lists: func(s *listShelf) {
		due := s.due
		s.due = func(r *driver.Record) bool {
			return due(r) && (r.State == driver.StateInProgress || !r.Due.After(time.Now()))
		}
	}, caught: []string{"DueLists"}},
	{name: "A running record that will be due is not listed", lists: func(s *listShelf) {
		due := s.due
		s.due = func(r *driver.Record) bool {
			return due(r) && (r.State != driver.StateInProgress || !r.Due.After(time.Now()))
		}
	}, caught: []string{"RunningAreListed"}},
	{name: "Running records are in no list", lists: func(s *listShelf) {
		due := s.due
		s.due = func(r *driver.Record) bool { return due(r) && r.State != driver.StateInProgress }
	}, caught: []string{"RunningAreListed", "ListedAsStored"}},
	{name: "Running records are in both lists", running: func(s *abandonedShelf) {
		s.due = func(r *driver.Record) bool { return !r.Exhausted && !r.Due.IsZero() }
		s.running = func(r *driver.Record) bool { return s.due(r) && r.State == driver.StateInProgress }
	}, caught: []string{"RunningAreListed"}},
	{name: "Announced records are listed as running", running: func(s *abandonedShelf) {
		due, running := s.due, s.running
		s.due = func(r *driver.Record) bool { return due(r) && !r.Announced }
		s.running = func(r *driver.Record) bool { return running(r) || r.Announced }
	}, caught: []string{"RunningAreListed"}},
	{name: "Unknown records are listed as running", running: func(s *abandonedShelf) {
		running := s.running
		s.running = func(r *driver.Record) bool { return running(r) || r.State == driver.StateUnknown }
	}, caught: []string{"RunningAreListed"}},
	{name: "Running records that are never due are listed", running: func(s *abandonedShelf) {
		s.running = func(r *driver.Record) bool { return r.State == driver.StateInProgress }
	}, caught: []string{"RunningAreListed"}},
	{name: "A record that is never due is listed", lists: func(s *listShelf) {
		s.due = func(r *driver.Record) bool { return !r.Exhausted }
	}, caught: []string{"DueLists", "ListsFollowWrites"}},
	{name: "Lists are in the order of IDs", lists: func(s *listShelf) {
		s.order = func(a, b listed) int { return cmp.Compare(a.entry.ID, b.entry.ID) }
	}, caught: []string{"EarliestFirst"}},
	{name: "Exhausted records are in the opposite order", lists: func(s *listShelf) {
		s.collected = func(list string, found []listed) []listed {
			if list == "exhausted" {
				slices.Reverse(found)
			}
			return found
		}
	}, caught: []string{"EarliestFirst"}},
	{name: "Due times are compared in seconds", lists: func(s *listShelf) {
		s.order = func(a, b listed) int { return cmp.Compare(a.entry.Due.Unix(), b.entry.Due.Unix()) }
	}, caught: []string{"EarliestFirst"}},
	{name: "DueAfter begins at the start", lists: func(s *listShelf) {
		s.later = func(time.Time, time.Time) bool { return true }
	}, caught: []string{"DueAfterContinues"}},
	{name: "DueAfter includes the time", lists: func(s *listShelf) {
		s.later = func(due, t time.Time) bool { return !due.Before(t) }
	}, caught: []string{"DueAfterContinues"}},
	{name: "Pages overlap", lists: func(s *listShelf) {
		s.collected = func(_ string, found []listed) []listed {
			if len(found) > 1 {
				found = append(found, found[0])
			}
			return found
		}
	}, caught: []string{"DueLists", "ListsLetWrite"}},
	{name: "An exhausted record stays due", lists: func(s *listShelf) {
		s.due = func(r *driver.Record) bool { return !r.Due.IsZero() }
	}, caught: []string{"ExhaustedAreApart"}},
	{name: "Every due record is exhausted", lists: func(s *listShelf) {
		s.given = func(r *driver.Record) bool { return !r.Due.IsZero() }
	}, caught: []string{"ExhaustedAreApart"}},
	{name: "At most one record is exhausted", lists: func(s *listShelf) {
		s.collected = func(list string, found []listed) []listed {
			if list == "exhausted" {
				return found[:min(1, len(found))]
			}
			return found
		}
	}, caught: []string{"ExhaustedAreApart"}},
	{name: "A list always returns its first result", lists: func(s *listShelf) {
		first := map[string][]listed{}
		s.collected = func(list string, found []listed) []listed {
			if first[list] == nil {
				first[list] = found
			}
			return first[list]
		}
	}, caught: []string{"ListsFollowWrites"}},
	{name: "An entry has no state", lists: func(s *listShelf) {
		s.show = func(r *driver.Record) driver.Listed {
			l := r.Listed()
			l.State = 0
			return l
		}
	}, caught: []string{"ListedAsStored"}},
	{name: "An entry has no time since when it has its state", lists: func(s *listShelf) {
		s.show = func(r *driver.Record) driver.Listed {
			l := r.Listed()
			l.Since = time.Time{}
			return l
		}
	}, caught: []string{"ListedAsStored"}},
	{name: "An entry has no end of its lease", lists: func(s *listShelf) {
		s.show = func(r *driver.Record) driver.Listed {
			l := r.Listed()
			l.LeaseEnd = time.Time{}
			return l
		}
	}, caught: []string{"ListedAsStored"}},
	{name: "An entry has no due time", lists: func(s *listShelf) {
		s.show = func(r *driver.Record) driver.Listed {
			l := r.Listed()
			l.Due = time.Time{}
			return l
		}
	}, caught: []string{"ListedAsStored"}},
	{name: "A write ends every list", lists: func(s *listShelf) {
		s.between = func(ctx context.Context, writes int) error {
			if writes > 0 {
				return errors.New("changed meanwhile")
			}
			return ctx.Err()
		}
	}, caught: []string{"ListsLetWrite"}},
	{name: "A list does not stop when its reader stops", lists: func(s *listShelf) { s.stops = false }, caught: []string{"ListsStop"}},
	{name: "A cancelled list ends without an error", lists: func(s *listShelf) {
		s.between = func(context.Context, int) error { return nil }
	}, caught: []string{"ListsEnd"}},
	{name: "An unreadable record ends the list", lists: func(s *listShelf) {
		s.unreadable = func(idempotent.RecordID) (driver.Listed, error, bool) {
			return driver.Listed{}, errors.New("cannot be read"), true
		}
	}, caught: []string{"UnreadableIsListed"}},
	{name: "An unreadable record is not listed", lists: func(s *listShelf) {
		s.unreadable = func(idempotent.RecordID) (driver.Listed, error, bool) { return driver.Listed{}, nil, false }
	}, caught: []string{"UnreadableIsListed"}},
}

// brokenChunks are faults in how a store handles large results.
var brokenChunks = []broken{
	{name: "The last chunk is missing", chunks: func(s *chunkShelf) {
		s.keep = func(_, piece []byte) []byte {
			if len(piece) < s.size {
				return nil
			}
			return bytes.Clone(piece)
		}
	}, caught: []string{"ChunksAreWhole", "FM34_ResultOf4KBAndOneByte", "FM34_ResultOf399KB", "FM34_ResultOf400KB", "FM34_ResultOf401KB", "FM34_ResultOf1MB", "FM34_ResultOf6MB"}},
	{name: "Large results are truncated at 400 KB", chunks: func(s *chunkShelf) {
		right := s.give
		s.give = func(pieces [][]byte) []byte { return right(pieces[:min(len(pieces), 401)]) }
	}, caught: []string{"ChunksAreWhole"}},
	{name: "A byte of a large result is altered", chunks: func(s *chunkShelf) {
		right := s.give
		s.give = func(pieces [][]byte) []byte {
			data := right(pieces)
			if len(pieces) > 100 {
				data[len(data)/2] ^= 1
			}
			return data
		}
	}, caught: []string{"ChunksAreWhole"}},
	{name: "Ten chunks or more are out of order", chunks: func(s *chunkShelf) {
		right := s.give
		s.give = func(pieces [][]byte) []byte {
			if len(pieces) > 11 {
				pieces[1], pieces[10] = pieces[10], pieces[1]
			}
			return right(pieces)
		}
	}, caught: []string{"ChunksAreWhole", "FM35_ChunkDeletedOrAltered"}},
	{name: "Chunks of all writes share their names", chunks: func(s *chunkShelf) {
		s.piece = func(id idempotent.RecordID, _ driver.Version, i int) string { return fmt.Sprint(id, i) }
	}, caught: []string{"ChunksAreApart", "ChunkMissing", "FM63_LateChunksAgainstAResolution"}},
	{name: "Chunks of all records share their names", chunks: func(s *chunkShelf) {
		s.piece = func(_ idempotent.RecordID, v driver.Version, i int) string { return fmt.Sprint(v, i) }
	}, caught: []string{"ChunksAreApart"}},
	{name: "A missing chunk is skipped", chunks: func(s *chunkShelf) {
		s.missing = func() error { return nil }
	}, caught: []string{"ChunkMissing"}},
	{name: "A missing chunk returns an error other than ErrNoRecord", chunks: func(s *chunkShelf) {
		s.missing = func() error { return errors.New("404") }
	}, caught: []string{"ChunkMissing"}},
	{name: "A repeated put appends to the chunks", chunks: func(s *chunkShelf) {
		s.keep = func(old, piece []byte) []byte { return slices.Concat(old, piece) }
	}, caught: []string{"ChunksAgain"}},
	{name: "A repeated put empties the chunks", chunks: func(s *chunkShelf) {
		s.keep = func(old, piece []byte) []byte {
			if old != nil {
				return nil
			}
			return bytes.Clone(piece)
		}
	}, caught: []string{"ChunksAgain"}},
	{name: "A chunk is returned as a record", chunks: func(s *chunkShelf) {
		right := s.piece
		s.piece = func(id idempotent.RecordID, v driver.Version, i int) string {
			if s.records[s.name(id)] == nil {
				s.records[s.name(id)] = &driver.Record{ID: id}
			}
			return right(id, v, i)
		}
	}, caught: []string{"ChunksAreApart"}},
	{name: "The store retains the caller's data", chunks: func(s *chunkShelf) {
		s.keep = func(_, piece []byte) []byte { return piece }
	}, caught: []string{"ChunksAreCopies"}},
	{name: "The store returns its own data without a copy", chunks: func(s *chunkShelf) {
		right := s.give
		s.size = 1 << 20
		s.give = func(pieces [][]byte) []byte {
			if len(pieces) == 1 {
				return pieces[0]
			}
			return right(pieces)
		}
	}, caught: []string{"ChunksAreCopies"}},
	{name: "PutChunks ignores the context", chunks: func(s *chunkShelf) { s.begin = ignoring(driver.OpPutChunks) }, caught: []string{"ChunksContextEnds"}},
	{name: "GetChunks ignores the context", chunks: func(s *chunkShelf) { s.begin = ignoring(driver.OpGetChunks) }, caught: []string{"ChunksContextEnds"}},
}
