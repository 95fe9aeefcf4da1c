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
	name string
	// caught names the requirements of RunStore and the rows of RunFailureModes
	// that have to fail. Others may fail too.
	caught string
	// says is a regular expression that the failures of these rows match.
	says   string
	spoil  func(*shelf)      // breaks the store
	chunks func(*chunkShelf) // or its handling of large results
	lists  func(*listShelf)  // or its lists
	// running breaks the lists of a store that lists running records apart.
	running func(*abandonedShelf)
	guard   *mutation // or the guard
}

func (b broken) fixture() Fixture {
	var m mutation
	if b.guard != nil {
		m, b.chunks = *b.guard, func(*chunkShelf) {}
	}
	return Fixture{
		mutation: m,
		Open: func(testing.TB) driver.Store {
			switch {
			case b.running != nil:
				return spoiled(newAbandonedShelf(), b.running)
			case b.lists != nil:
				return spoiled(newListShelf(), b.lists)
			case b.chunks != nil:
				return spoiled(newChunkShelf(), b.chunks)
			case b.spoil != nil:
				return spoiled(newShelf(), b.spoil)
			}
			return newShelf()
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

func spoiled[S any](s S, spoil func(S)) S {
	spoil(s)
	return s
}

var (
	brokenStores = slices.Concat(brokenInserts, brokenReplaces, brokenKeeping, brokenChunks, brokenLists)
	allBroken    = slices.Concat(brokenStores, brokenGuards)
)

// forgetfulStores returns stores that lose one field of a record, or of its
// steps: on every write, on a Replace that should have changed it, or on an
// Insert over an expired record. It reads the fields from the type, so new
// fields are covered automatically.
func forgetfulStores() (stores []broken) {
	add := func(name, caught string, spoil func(*shelf)) {
		stores = append(stores, broken{name: name, caught: caught, spoil: spoil})
	}
	record := reflect.TypeFor[driver.Record]()
	for i := range record.NumField() {
		field := record.Field(i).Name
		if !record.Field(i).IsExported() {
			continue // brokenKeeping has the stores that lose what is in Extra
		}
		add(field+" is lost", "EveryFieldIsKept", kept(func(r *driver.Record) { reflect.ValueOf(r).Elem().Field(i).SetZero() }))
		if field == "ID" {
			continue // equal in both records
		}
		retains := func(inserts bool) func(*shelf) {
			return writing(func(p put) *driver.Record {
				r := p.r.Clone()
				if p.old != nil && p.inserts == inserts {
					reflect.ValueOf(r).Elem().Field(i).Set(reflect.ValueOf(p.old).Elem().Field(i))
				}
				return r
			})
		}
		add("Replace retains the old "+field, "ReplaceWrites", retains(false))
		add("Insert retains the expired "+field, "InsertReplacesExpired", retains(true))
	}
	step := reflect.TypeFor[driver.StepRecord]()
	for i := range step.NumField() {
		add(step.Field(i).Name+" of a step is lost", "EveryFieldIsKept", kept(func(r *driver.Record) {
			for s := range r.Steps {
				reflect.ValueOf(&r.Steps[s]).Elem().Field(i).SetZero()
			}
		}))
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

// Each of these replaces a decision of a shelf, see there.

func standing(f func(put) bool) func(*shelf)                   { return func(s *shelf) { s.stands = f } }
func fitting(f func(put) bool) func(*shelf)                    { return func(s *shelf) { s.fits = f } }
func writing(f func(put) *driver.Record) func(*shelf)          { return func(s *shelf) { s.write = f } }
func naming(f func(idempotent.RecordID) string) func(*shelf)   { return func(s *shelf) { s.name = f } }
func telling(f func(error, *driver.Record) error) func(*shelf) { return func(s *shelf) { s.tell = f } }

func refusing(f func(put) (*driver.Record, error)) func(*shelf) {
	return func(s *shelf) { s.loser = f }
}

// reading makes Get return give(record).
func reading(give func(*driver.Record) (*driver.Record, error)) func(*shelf) {
	return func(s *shelf) {
		right := s.read
		s.read = func(r *driver.Record) (*driver.Record, error) {
			if r == nil {
				return right(nil)
			}
			return give(r)
		}
	}
}

// kept changes every record before it is stored.
func kept(spoil func(*driver.Record)) func(*shelf) {
	return writing(func(p put) *driver.Record {
		r := p.r.Clone()
		spoil(r)
		return r
	})
}

// sharing stores a copy that shares something with the caller's record.
func sharing(share func(r, given *driver.Record)) func(*shelf) {
	return writing(func(p put) *driver.Record {
		r := p.r.Clone()
		share(r, &p.r)
		return r
	})
}

// everyTime changes each time of a record.
func everyTime(spoil func(time.Time) time.Time) func(*shelf) {
	return kept(func(r *driver.Record) {
		for _, t := range timesOf(r) {
			*t = spoil(*t)
		}
	})
}

func timesOf(r *driver.Record) []*time.Time {
	return []*time.Time{&r.LeaseEnd, &r.Expires, &r.Created, &r.Since, &r.OpenSince, &r.Due}
}

// forgets makes the selected writes lose what is in Record.Extra.
func forgets(writes func(put) bool) func(*shelf) {
	return writing(func(p put) *driver.Record {
		if writes(p) {
			p.r.SetExtra(nil)
		}
		return p.r.Clone()
	})
}

// crowded makes admit refuse large results.
func crowded(refuse func(*shelf, driver.Record) error) func(*shelf) {
	return func(s *shelf) {
		s.admit = func(r driver.Record) error {
			if len(r.Result) <= 400<<10 {
				return nil
			}
			return refuse(s, r)
		}
	}
}

// heedless checks the context, except for the given operations. Without any, it
// never checks.
func heedless(ops ...driver.Op) func(*shelf) {
	return func(s *shelf) {
		s.begin = func(ctx context.Context, op driver.Op) error {
			if len(ops) == 0 || slices.Contains(ops, op) {
				return nil
			}
			return ctx.Err()
		}
	}
}

// failingAfter makes one operation fail after it was done.
func failingAfter(op driver.Op) func(context.Context, driver.Op) error {
	return func(_ context.Context, done driver.Op) error {
		if done == op {
			return errors.New("connection reset")
		}
		return nil
	}
}

// unsafely makes the selected writes non-atomic. Between the check and the write, a
// writer sleeps, and the clock of a synctest bubble moves only when each other
// goroutine waits, too. Every writer that can has checked by then.
func unsafely(writes func(put) bool) func(*shelf) {
	return func(s *shelf) {
		s.gap = func(p put) {
			if writes(p) {
				s.mu.Unlock()
				defer s.mu.Lock()
				time.Sleep(time.Nanosecond)
			}
		}
	}
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
	unsafely(func(p put) bool { return p.old != nil })(s)
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

// lasts reports whether the record that p meets has no expiry, or is kept by one that
// the function accepts.
func (p put) lasts(accepted func(expires time.Time) bool) bool {
	return p.old != nil && (p.old.Expires.IsZero() || accepted(p.old.Expires))
}

// outlives reports whether a write meets a record that has not expired by the wall clock.
func (p put) outlives() bool {
	return p.lasts(func(expires time.Time) bool { return expires.After(time.Now()) })
}

// brokenInserts are faults in Insert, and in what it returns to a caller that
// did not win.
var brokenInserts = []broken{
	{name: "Insert fails after its write", caught: "InsertCreates DueLists", lists: func(s *listShelf) {
		s.end = failingAfter(driver.OpInsert)
	}},
	{name: "Insert ignores a live record", caught: `InsertRefuses InsertReplacesExpired NoExpiryNeverExpires OneInserterWins
		FM01_InsertReplyLost FM02_InsertGivenUp_NotReleased FM37_TwinLeavesNothing`,
		spoil: standing(func(put) bool { return false })},
	{name: "Insert never replaces", caught: "InsertReplacesExpired OneInserterReplacesExpired FM19_ExpiredButStillThere",
		spoil: standing(func(p put) bool { return p.old != nil })},
	{name: "Insert replaces only after the millisecond of the expiry", caught: "InsertReplacesExpired",
		spoil: standing(func(p put) bool { return p.lasts(func(e time.Time) bool { return !e.Before(p.now) }) })},
	{name: "Insert replaces a millisecond too early", caught: "InsertReplacesExpired",
		spoil: standing(func(p put) bool {
			return p.lasts(func(e time.Time) bool { return e.After(p.now.Add(time.Millisecond)) })
		})},
	{name: "Insert compares the expiry in seconds", caught: "InsertReplacesExpired",
		spoil: standing(func(p put) bool { return p.lasts(func(e time.Time) bool { return e.Unix() > p.now.Unix() }) })},
	{name: "Insert compares the expiry with the wall clock", caught: "InsertReplacesExpired FM19_ExpiredButStillThere",
		spoil: standing(put.outlives)},
	{name: "Insert compares in the wrong direction", caught: "InsertRefuses InsertReplacesExpired",
		spoil: standing(func(p put) bool { return p.lasts(p.now.After) })},
	{name: "Insert checks the new record's expiry", caught: "InsertReplacesExpired",
		spoil: standing(func(p put) bool { return p.old != nil && (p.r.Expires.IsZero() || p.r.Expires.After(p.now)) })},
	{name: "Insert treats a record without expiry as expired", caught: "NoExpiryNeverExpires OneInserterWins FM59_CrashedNeverExpires",
		spoil: standing(func(p put) bool { return p.old != nil && p.old.Expires.After(p.now) })},
	{name: "A record without expiry expires after ten years", caught: "NoExpiryNeverExpires", spoil: standing(func(p put) bool {
		return p.old != nil && (p.old.Expires.IsZero() && p.old.Created.AddDate(10, 0, 0).After(p.now) || p.old.Expires.After(p.now))
	})},
	{name: "Insert takes over any record that is not completed", caught: "OneInserterWins NoExpiryNeverExpires FM01_TakeoverReplyLost",
		spoil: standing(func(p put) bool {
			return p.lasts(func(e time.Time) bool { return e.After(p.now) }) && p.old.State == driver.StateCompleted
		})},
	{name: "A refused Insert returns no record", caught: "InsertRefuses ReplaceRefuses OneInserterWins OneReplacerWins",
		spoil: refusing(func(put) (*driver.Record, error) { return nil, nil })},
	{name: "A refused Insert returns its own record", caught: `InsertRefuses ReplaceRefuses OneInserterWins OneReplacerWins
		FM10_CrashBeforeCompletion`,
		spoil: refusing(func(p put) (*driver.Record, error) { return p.r.Clone(), nil })},
	{name: "A refused Insert returns an error", caught: "InsertRefuses ReplaceRefuses OneInserterWins OneReplacerWins",
		spoil: refusing(func(put) (*driver.Record, error) { return nil, errors.New("conditional check failed") })},
	{name: "A refused Insert returns the record and an error", caught: "InsertRefuses ReplaceRefuses OneInserterWins OneReplacerWins",
		spoil: refusing(func(p put) (*driver.Record, error) { return p.old.Clone(), errors.New("conditional check failed") })},
	{name: "A refused Insert returns the record without its result", caught: "InsertRefuses ReplaceRefuses",
		spoil: refusing(func(p put) (*driver.Record, error) {
			head := p.old.Clone()
			head.Result = nil
			return head, nil
		})},
	{name: "A repeated Insert returns an error", caught: "InsertAgain FM01_InsertReplyLost", spoil: refusing(func(p put) (*driver.Record, error) {
		if p.old.Version == p.r.Version && p.old.Attempt == 1 {
			return nil, errors.New("duplicate write id")
		}
		return p.old.Clone(), nil
	})},
	{name: "Insert checks and writes in two steps", caught: `OneInserterWins FM05_SimultaneousRequests FM51_ManyLoopsOneProcess
		FM51_ManyLoopsOneProcessWithACache`,
		spoil: unsafely(func(p put) bool { return p.inserts && p.old == nil && p.r.State == driver.StateInProgress })},
	{name: "Insert over an expired record checks and writes in two steps",
		caught: "OneInserterReplacesExpired FM21_SimultaneousReplacersOfAnExpiredRecord",
		spoil:  unsafely(func(p put) bool { return p.inserts && p.old != nil && p.old.State == driver.StateCompleted })},
	{name: "Insert and Replace have separate locks", caught: "OneWriterWins", spoil: twoLocks},
	{name: "A write fails during another one", caught: "OneInserterWins FM05_SimultaneousRequests FM51_ManyLoopsOneProcess",
		spoil: func(s *shelf) {
			unsafely(func(put) bool { return true })(s)
			var busy atomic.Bool
			s.begin = func(ctx context.Context, op driver.Op) error {
				if op != driver.OpGet && !busy.CompareAndSwap(false, true) {
					return errors.New("database is locked")
				}
				return ctx.Err()
			}
			s.end = func(context.Context, driver.Op) error {
				busy.Store(false)
				return nil
			}
		}},
}

// brokenReplaces are faults in Replace.
var brokenReplaces = []broken{
	{name: "Replace is unconditional", caught: `ReplaceRefuses OneReplacerWins FM13_TakenOverAndCompleted FM13_TakenOverAndRunning
		FM46_TwoReconcilers_TwoResults FM47_WebhookBeforeTheOwner_SameResult FM60_OutcomeAgainstTakeover_Error
		FM60_OutcomeAgainstTakeover_NotExecuted FM60_StepAgainstTakeover FM62_SweptWhileTheCompletionIsOnTheWire
		FM62_OwnUnknownMeetsTheSweepers FM66_ExpiryWhileTakingOver`,
		spoil: fitting(func(put) bool { return true })},
	{name: "Replace fails after its write", caught: "ReplaceWrites ListsFollowWrites", lists: func(s *listShelf) {
		s.end = failingAfter(driver.OpReplace)
	}},
	{name: "Replace returns the record that it wrote", caught: "ReplaceWrites", spoil: func(s *shelf) {
		fits := s.fits
		s.fits = func(put) bool { return false }
		s.loser = func(p put) (*driver.Record, error) {
			if !p.inserts && fits(p) {
				s.records[s.name(p.r.ID)] = p.r.Clone()
			}
			return s.records[s.name(p.r.ID)].Clone(), nil
		}
	}},
	{name: "Replace compares only the owner", caught: "ReplaceRefuses FM14_LateOwnerCompletesUnknown",
		spoil: fitting(func(p put) bool { return p.old.Version == p.was || p.old.Owner == p.r.Owner })},
	{name: "Replace compares the owner instead of the version", caught: "ReplaceWrites ReplaceRefuses",
		spoil: fitting(func(p put) bool { return p.old.Owner == p.r.Owner })},
	{name: "Replace also compares the state", caught: "ReplaceWrites",
		spoil: fitting(func(p put) bool { return p.old.Version == p.was && p.old.State == driver.StateInProgress })},
	{name: "Replace refuses an expired record", caught: "ReplaceIgnoresExpiry",
		spoil: fitting(func(p put) bool { return p.old.Version == p.was && p.outlives() })},
	{name: "Replace refuses to complete an expired record", caught: "ReplaceIgnoresExpiry",
		spoil: fitting(func(p put) bool {
			return p.old.Version == p.was && (p.r.State != driver.StateCompleted || p.outlives())
		})},
	{name: "Replace creates a missing record", caught: "ReplaceNeverCreates FM20_RecordDeletedMeanwhile", spoil: func(s *shelf) { s.creates = true }},
	{name: "Replace only adds fields", caught: "ReplaceWrites", spoil: writing(func(p put) *driver.Record {
		if p.old == nil || p.inserts {
			return p.r.Clone()
		}
		return merged(p.old, p.r)
	})},
	{name: "Replace retains a result that the new record does not have", caught: "ReplaceWrites", spoil: writing(func(p put) *driver.Record {
		r := p.r.Clone()
		if !p.inserts && p.old != nil && r.Result == nil {
			r.Result = p.old.Result
		}
		return r
	})},
	{name: "A repeated Replace returns an error", caught: "ReplaceAgain FM01_TakeoverReplyLost FM08_CompletionReplyLost",
		spoil: refusing(func(p put) (*driver.Record, error) {
			if p.old.Version == p.r.Version && (p.old.Attempt > 1 || p.old.State != driver.StateInProgress) {
				return nil, errors.New("conditional check failed")
			}
			return p.old.Clone(), nil
		})},
	{name: "Replace checks and writes in two steps", caught: "OneReplacerWins FM33_SimultaneousTakeovers", spoil: unsafely(func(p put) bool {
		return !p.inserts && p.old != nil && (p.old.Expires.IsZero() || p.old.State == driver.StateRetryable)
	})},
}

// brokenKeeping are faults in how a store holds records.
var brokenKeeping = []broken{
	{name: "Insert loses attributes of a later version", caught: "LaterAttributesAreKept",
		spoil: forgets(func(p put) bool { return p.inserts })},
	{name: "Replace loses attributes of a later version", caught: "LaterAttributesAreKept",
		spoil: forgets(func(p put) bool { return !p.inserts })},
	{name: "A completion loses attributes of a later version", caught: "LaterAttributesAreKept",
		spoil: forgets(func(p put) bool { return !p.inserts && p.r.State == driver.StateCompleted })},
	{name: "Attributes of a later version in steps are lost", caught: "LaterAttributesAreKept", spoil: kept(func(r *driver.Record) {
		if extra := r.Extra(); extra != nil {
			r.SetExtra(map[string]map[string]json.RawMessage{"": extra[""]})
		}
	})},
	{name: "A refused write returns no attributes of a later version", caught: "LaterAttributesAreKept",
		spoil: refusing(func(p put) (*driver.Record, error) {
			head := p.old.Clone()
			head.SetExtra(nil)
			return head, nil
		})},
	{name: "A new record has the attributes of a later version of an expired one", caught: "LaterAttributesAreKept",
		spoil: writing(func(p put) *driver.Record {
			if p.old != nil && p.r.Extra() == nil {
				p.r.SetExtra(p.old.Extra())
			}
			return p.r.Clone()
		})},
	{name: "Times are stored in seconds", caught: "EveryFieldIsKept",
		spoil: everyTime(func(t time.Time) time.Time { return t.Truncate(time.Second) })},
	{name: "Times are returned in another zone", caught: "EveryFieldIsKept",
		spoil: everyTime(func(t time.Time) time.Time { return t.In(time.FixedZone("CET", 3600)) })},
	{name: "A missing time becomes the epoch", caught: "EveryFieldIsKept", spoil: everyTime(func(t time.Time) time.Time {
		if t.IsZero() {
			return time.UnixMilli(0).UTC()
		}
		return t
	})},
	{name: "A missing result becomes an empty one", caught: "EveryFieldIsKept",
		spoil: kept(func(r *driver.Record) { r.Result = append([]byte{}, r.Result...) })},
	{name: "Text loses its non-ASCII characters", caught: "EveryFieldIsKept", spoil: kept(func(r *driver.Record) {
		r.Ref = strings.Map(func(c rune) rune { return min(c, '~') }, r.Ref)
	})},
	{name: "A result ends at its first zero byte", caught: "EveryFieldIsKept FM34_ResultOf4KB", spoil: kept(func(r *driver.Record) {
		if i := bytes.IndexByte(r.Result, 0); i >= 0 {
			r.Result = r.Result[:i]
		}
	})},
	{name: "A retryable record loses its recovery", caught: "EveryFieldIsKept", spoil: kept(func(r *driver.Record) {
		if r.State == driver.StateRetryable {
			r.Recovery = 0
		}
	})},
	{name: "Get returns the previous write", caught: "ReplaceWrites InsertReplacesExpired OneReplacerWins FM31_PanicAfterTheEffect",
		spoil: func(s *shelf) {
			before := map[string]*driver.Record{}
			s.write = func(p put) *driver.Record {
				if p.old != nil {
					before[s.name(p.r.ID)] = p.old
				}
				return p.r.Clone()
			}
			reading(func(r *driver.Record) (*driver.Record, error) {
				return cmp.Or(before[s.name(r.ID)], r).Clone(), nil
			})(s)
		}},
	{name: "Get hides expired records", caught: "GetExpired", spoil: reading(func(r *driver.Record) (*driver.Record, error) {
		if !r.Expires.IsZero() && r.Expires.Before(time.Now()) {
			return nil, idempotent.ErrNoRecord
		}
		return r.Clone(), nil
	})},
	{name: "Get fails before the first write", caught: "GetNothing", spoil: func(s *shelf) {
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
	}},
	{name: "Get returns neither a record nor an error", caught: "GetNothing ReplaceNeverCreates", spoil: func(s *shelf) {
		right := s.read
		s.read = func(r *driver.Record) (*driver.Record, error) {
			if r == nil {
				return nil, nil
			}
			return right(r)
		}
	}},
	{name: "Keys are compared case-insensitively", caught: "KeysAreApart",
		spoil: naming(func(id idempotent.RecordID) string { return strings.ToLower(string(id)) })},
	{name: "Keys end at the first #", caught: "KeysAreApart EveryFieldIsKept",
		spoil: naming(func(id idempotent.RecordID) string { name, _, _ := strings.Cut(string(id), "#"); return name })},
	{name: "Keys are truncated to 200 characters", caught: "KeysAreApart",
		spoil: naming(func(id idempotent.RecordID) string { return string(id)[:min(200, len(id))] })},
	{name: "Insert retains the caller's record", caught: "RecordsAreCopies",
		spoil: writing(func(p put) *driver.Record { return &p.r })},
	{name: "Replace retains the caller's record", caught: "RecordsAreCopies", spoil: writing(func(p put) *driver.Record {
		if p.inserts {
			return p.r.Clone()
		}
		return &p.r
	})},
	{name: "The result is the caller's", caught: "RecordsAreCopies", spoil: sharing(func(r, given *driver.Record) { r.Result = given.Result })},
	{name: "The steps are the caller's", caught: "RecordsAreCopies", spoil: sharing(func(r, given *driver.Record) { r.Steps = given.Steps })},
	{name: "The names of the steps are the caller's", caught: "RecordsAreCopies", spoil: sharing(func(r, given *driver.Record) { r.StepNames = given.StepNames })},
	{name: "The results of the steps are the caller's", caught: "RecordsAreCopies", spoil: sharing(func(r, given *driver.Record) {
		for i := range r.Steps {
			r.Steps[i].Result = given.Steps[i].Result
		}
	})},
	{name: "Get returns the stored record without a copy", caught: "RecordsAreCopies",
		spoil: reading(func(r *driver.Record) (*driver.Record, error) { return r, nil })},
	{name: "Get returns a copy that shares the result", caught: "RecordsAreCopies",
		spoil: reading(func(r *driver.Record) (*driver.Record, error) { c := *r; return &c, nil })},
	{name: "Insert returns the stored record without a copy", caught: "RecordsAreCopies",
		spoil: refusing(func(p put) (*driver.Record, error) { return own(p, p.inserts), nil })},
	{name: "Replace returns the stored record without a copy", caught: "RecordsAreCopies",
		spoil: refusing(func(p put) (*driver.Record, error) { return own(p, !p.inserts), nil })},
	{name: "The context is ignored", caught: "ContextEnds", spoil: heedless()},
	{name: "Insert ignores the context", caught: "ContextEnds", spoil: heedless(driver.OpInsert)},
	{name: "Replace ignores the context", caught: "ContextEnds", spoil: heedless(driver.OpReplace)},
	{name: "Get ignores the context", caught: "ContextEnds", spoil: heedless(driver.OpGet)},
	{name: "Insert checks the context after the write", caught: "ContextEnds", spoil: func(s *shelf) {
		s.end = s.begin
		heedless(driver.OpInsert)(s)
	}},
	{name: "Errors contain the record", caught: "ErrorsTellNothing",
		spoil: telling(func(err error, r *driver.Record) error { return fmt.Errorf("%w: %+v", err, *r) })},
	{name: "Errors contain the result", caught: "ErrorsTellNothing",
		spoil: telling(func(err error, r *driver.Record) error { return fmt.Errorf("%w: %q", err, r.Result) })},
	{name: "A large result is truncated", caught: "WholeOrNotAtAll",
		spoil: kept(func(r *driver.Record) { r.Result = r.Result[:min(len(r.Result), 400<<10)] })},
	{name: "A large result is dropped", caught: "WholeOrNotAtAll", spoil: kept(func(r *driver.Record) {
		if len(r.Result) > 400<<10 {
			r.Result = nil
		}
	})},
	{name: "A record that is too large returns an error other than ErrTooLarge", caught: "WholeOrNotAtAll",
		spoil: crowded(func(*shelf, driver.Record) error { return errors.New("413") })},
	{name: "A record that is too large returns ErrTooLarge and is written", caught: "WholeOrNotAtAll",
		spoil: crowded(func(s *shelf, r driver.Record) error {
			s.records[s.name(r.ID)] = r.Clone()
			return driver.ErrTooLarge
		})},
	{name: "Records are lost when the process ends", caught: "Reopen", spoil: func(s *shelf) { s.reopen = newShelf }},
	{name: "Replaces are lost when the process ends", caught: "Reopen", spoil: func(s *shelf) {
		first := newShelf()
		s.write = func(p put) *driver.Record {
			if p.old == nil {
				first.records[s.name(p.r.ID)] = p.r.Clone()
			}
			return p.r.Clone()
		}
		s.reopen = func() *shelf { return first }
	}},
}

// own returns the record that p meets, or a copy.
func own(p put, shares bool) *driver.Record {
	if shares {
		return p.old
	}
	return p.old.Clone()
}

// listing returns lists of due records that a condition narrows.
func listing(also func(*driver.Record) bool) func(*listShelf) {
	return func(s *listShelf) {
		due := s.due
		s.due = func(r *driver.Record) bool { return due(r) && also(r) }
	}
}

// collecting changes a list before it is returned.
func collecting(f func(list string, found []listed) []listed) func(*listShelf) {
	return func(s *listShelf) { s.collected = f }
}

// showing changes an entry before it is returned.
func showing(spoil func(*driver.Listed)) func(*listShelf) {
	return func(s *listShelf) {
		s.show = func(r *driver.Record) driver.Listed {
			l := r.Listed()
			spoil(&l)
			return l
		}
	}
}

// brokenLists are faults in how a store lists due records.
var brokenLists = []broken{
	{name: "A record that will be due is not listed", caught: "DueLists",
		lists: listing(func(r *driver.Record) bool { return r.State == driver.StateInProgress || !r.Due.After(time.Now()) })},
	{name: "A running record that will be due is not listed", caught: "RunningAreListed",
		lists: listing(func(r *driver.Record) bool { return r.State != driver.StateInProgress || !r.Due.After(time.Now()) })},
	{name: "Announced records are in no list", caught: "RunningAreListed FM11_KilledAtItsDeadline", says: "not in the list of due records",
		lists: listing(func(r *driver.Record) bool { return !r.Announced })},
	{name: "A list ends with an error", caught: "DueLists", lists: collecting(func(_ string, found []listed) []listed {
		return append(found, listed{err: errors.New("connection reset")})
	})},
	{name: "The first entry of a list has an error", caught: "DueLists", lists: collecting(func(_ string, found []listed) []listed {
		if len(found) > 0 {
			found[0].err = errors.New("connection reset")
		}
		return found
	})},
	{name: "Running records are in no list", caught: "RunningAreListed ListedAsStored",
		lists: listing(func(r *driver.Record) bool { return r.State != driver.StateInProgress })},
	{name: "Running records are in both lists", caught: "RunningAreListed", running: func(s *abandonedShelf) {
		s.due = func(r *driver.Record) bool { return !r.Exhausted && !r.Due.IsZero() }
		s.running = func(r *driver.Record) bool { return s.due(r) && r.State == driver.StateInProgress }
	}},
	{name: "Announced records are listed as running", caught: "RunningAreListed", running: func(s *abandonedShelf) {
		due, running := s.due, s.running
		s.due = func(r *driver.Record) bool { return due(r) && !r.Announced }
		s.running = func(r *driver.Record) bool { return running(r) || r.Announced }
	}},
	{name: "Unknown records are listed as running", caught: "RunningAreListed", running: func(s *abandonedShelf) {
		running := s.running
		s.running = func(r *driver.Record) bool { return running(r) || r.State == driver.StateUnknown }
	}},
	{name: "Running records that are never due are listed", caught: "RunningAreListed", running: func(s *abandonedShelf) {
		s.running = func(r *driver.Record) bool { return r.State == driver.StateInProgress }
	}},
	{name: "A record that is never due is listed", caught: "DueLists ListsFollowWrites",
		lists: func(s *listShelf) { s.due = func(r *driver.Record) bool { return !r.Exhausted } }},
	{name: "Lists are in the order of IDs", caught: "EarliestFirst",
		lists: func(s *listShelf) { s.order = func(a, b listed) int { return cmp.Compare(a.entry.ID, b.entry.ID) } }},
	{name: "Exhausted records are in the opposite order", caught: "EarliestFirst", lists: collecting(func(list string, found []listed) []listed {
		if list == "exhausted" {
			slices.Reverse(found)
		}
		return found
	})},
	{name: "Due times are compared in seconds", caught: "EarliestFirst", lists: func(s *listShelf) {
		s.order = func(a, b listed) int { return cmp.Compare(a.entry.Due.Unix(), b.entry.Due.Unix()) }
	}},
	{name: "Due begins at the start", caught: "DueContinues",
		lists: func(s *listShelf) { s.later = func(time.Time, time.Time) bool { return true } }},
	{name: "Due includes the time", caught: "DueContinues",
		lists: func(s *listShelf) { s.later = func(due, t time.Time) bool { return !due.Before(t) } }},
	{name: "Pages overlap", caught: "DueLists ListsLetWrite", lists: collecting(func(_ string, found []listed) []listed {
		if len(found) > 1 {
			found = append(found, found[0])
		}
		return found
	})},
	{name: "An exhausted record stays due", caught: "ExhaustedAreApart",
		lists: func(s *listShelf) { s.due = func(r *driver.Record) bool { return !r.Due.IsZero() } }},
	{name: "Every due record is exhausted", caught: "ExhaustedAreApart",
		lists: func(s *listShelf) { s.given = func(r *driver.Record) bool { return !r.Due.IsZero() } }},
	{name: "At most one record is exhausted", caught: "ExhaustedAreApart", lists: collecting(func(list string, found []listed) []listed {
		if list == "exhausted" {
			return found[:min(1, len(found))]
		}
		return found
	})},
	{name: "A list always returns its first result", caught: "ListsFollowWrites", lists: func(s *listShelf) {
		first := map[string][]listed{}
		s.collected = func(list string, found []listed) []listed {
			if first[list] == nil {
				first[list] = found
			}
			return first[list]
		}
	}},
	{name: "An entry has no state", caught: "ListedAsStored", lists: showing(func(l *driver.Listed) { l.State = 0 })},
	{name: "An entry has no time since when it has its state", caught: "ListedAsStored",
		lists: showing(func(l *driver.Listed) { l.Since = time.Time{} })},
	{name: "An entry has no end of its lease", caught: "ListedAsStored",
		lists: showing(func(l *driver.Listed) { l.LeaseEnd = time.Time{} })},
	{name: "An entry has no due time", caught: "ListedAsStored", lists: showing(func(l *driver.Listed) { l.Due = time.Time{} })},
	{name: "A write ends every list", caught: "ListsLetWrite", lists: func(s *listShelf) {
		s.between = func(ctx context.Context, writes int) error {
			if writes > 0 {
				return errors.New("changed meanwhile")
			}
			return ctx.Err()
		}
	}},
	{name: "A list does not stop when its reader stops", caught: "ListsStop", lists: func(s *listShelf) { s.stops = false }},
	{name: "A cancelled list ends without an error", caught: "ListsEnd",
		lists: func(s *listShelf) { s.between = func(context.Context, int) error { return nil } }},
	{name: "An unreadable record ends the list", caught: "UnreadableIsListed", lists: func(s *listShelf) {
		s.unreadable = func(idempotent.RecordID) (driver.Listed, error, bool) {
			return driver.Listed{}, errors.New("cannot be read"), true
		}
	}},
	{name: "An unreadable record is not listed", caught: "UnreadableIsListed", lists: func(s *listShelf) {
		s.unreadable = func(idempotent.RecordID) (driver.Listed, error, bool) { return driver.Listed{}, nil, false }
	}},
}

// keeping replaces what a store keeps of a chunk, and giving changes what it returns.
func keeping(f func(old, piece []byte) []byte) func(*chunkShelf) {
	return func(s *chunkShelf) { s.keep = f }
}

func giving(f func(pieces [][]byte, right func([][]byte) []byte) []byte) func(*chunkShelf) {
	return func(s *chunkShelf) {
		right := s.give
		s.give = func(pieces [][]byte) []byte { return f(pieces, right) }
	}
}

// brokenChunks are faults in how a store handles large results.
var brokenChunks = []broken{
	{name: "The last chunk is missing", caught: `ChunksAreWhole FM34_ResultOf4KBAndOneByte FM34_ResultOf399KB FM34_ResultOf400KB
		FM34_ResultOf401KB FM34_ResultOf1MB FM34_ResultOf6MB`, chunks: func(s *chunkShelf) {
		s.keep = func(_, piece []byte) []byte {
			if len(piece) < s.size {
				return nil
			}
			return bytes.Clone(piece)
		}
	}},
	{name: "Large results are truncated at 400 KB", caught: "ChunksAreWhole",
		chunks: giving(func(pieces [][]byte, right func([][]byte) []byte) []byte {
			return right(pieces[:min(len(pieces), 401)])
		})},
	{name: "A byte of a large result is altered", caught: "ChunksAreWhole",
		chunks: giving(func(pieces [][]byte, right func([][]byte) []byte) []byte {
			data := right(pieces)
			if len(pieces) > 100 {
				data[len(data)/2] ^= 1
			}
			return data
		})},
	{name: "Ten chunks or more are out of order", caught: "ChunksAreWhole FM35_ChunkDeletedOrAltered",
		chunks: giving(func(pieces [][]byte, right func([][]byte) []byte) []byte {
			if len(pieces) > 11 {
				pieces[1], pieces[10] = pieces[10], pieces[1]
			}
			return right(pieces)
		})},
	{name: "Chunks of all writes share their names", caught: "ChunksAreApart ChunkMissing FM63_LateChunksAgainstAResolution",
		chunks: func(s *chunkShelf) {
			s.piece = func(id idempotent.RecordID, _ driver.Version, i int) string { return fmt.Sprint(id, i) }
		}},
	{name: "Chunks of all records share their names", caught: "ChunksAreApart", chunks: func(s *chunkShelf) {
		s.piece = func(_ idempotent.RecordID, v driver.Version, i int) string { return fmt.Sprint(v, i) }
	}},
	{name: "A missing chunk is skipped", caught: "ChunkMissing",
		chunks: func(s *chunkShelf) { s.missing = func() error { return nil } }},
	{name: "A missing chunk returns an error other than ErrNoRecord", caught: "ChunkMissing",
		chunks: func(s *chunkShelf) { s.missing = func() error { return errors.New("404") } }},
	{name: "A repeated put appends to the chunks", caught: "ChunksAgain",
		chunks: keeping(func(old, piece []byte) []byte { return slices.Concat(old, piece) })},
	{name: "A repeated put empties the chunks", caught: "ChunksAgain", chunks: keeping(func(old, piece []byte) []byte {
		if old != nil {
			return nil
		}
		return bytes.Clone(piece)
	})},
	{name: "A chunk is returned as a record", caught: "ChunksAreApart", chunks: func(s *chunkShelf) {
		right := s.piece
		s.piece = func(id idempotent.RecordID, v driver.Version, i int) string {
			if s.records[s.name(id)] == nil {
				s.records[s.name(id)] = &driver.Record{ID: id}
			}
			return right(id, v, i)
		}
	}},
	{name: "PutChunks fails after its write", caught: "ChunksAreWhole", chunks: func(s *chunkShelf) { s.end = failingAfter(driver.OpPutChunks) }},
	{name: "GetChunks returns the data and an error", caught: "ChunksAreWhole", chunks: func(s *chunkShelf) { s.end = failingAfter(driver.OpGetChunks) }},
	{name: "The store retains the caller's data", caught: "ChunksAreCopies",
		chunks: keeping(func(_, piece []byte) []byte { return piece })},
	{name: "The store returns its own data without a copy", caught: "ChunksAreCopies", chunks: func(s *chunkShelf) {
		s.size = 1 << 20
		giving(func(pieces [][]byte, right func([][]byte) []byte) []byte {
			if len(pieces) == 1 {
				return pieces[0]
			}
			return right(pieces)
		})(s)
	}},
	{name: "PutChunks ignores the context", caught: "ChunksContextEnds", chunks: func(s *chunkShelf) { heedless(driver.OpPutChunks)(s.shelf) }},
	{name: "GetChunks ignores the context", caught: "ChunksContextEnds", chunks: func(s *chunkShelf) { heedless(driver.OpGetChunks)(s.shelf) }},
}
