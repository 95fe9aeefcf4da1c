package idempotenttest

import (
	"context"
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// brokenLists are faults in how a store lists due records.
var brokenLists = []broken{
	{name: "A record that is due now is not listed", lists: func(s *listShelf) {
		s.due = func(r *driver.Record, before time.Time) bool {
			return !r.Exhausted && !r.Due.IsZero() && r.Due.Before(before)
		}
	}, caught: []string{"DueLists"}},
	{name: "A record that is due later is listed", lists: func(s *listShelf) {
		s.due = func(r *driver.Record, _ time.Time) bool { return !r.Exhausted && !r.Due.IsZero() }
	}, caught: []string{"DueLists"}},
	{name: "A record that is never due is listed", lists: func(s *listShelf) {
		s.due = func(r *driver.Record, before time.Time) bool { return !r.Exhausted && !r.Due.After(before) }
	}, caught: []string{"DueLists", "ListsFollowWrites"}},
	{name: "Due is compared in seconds", lists: func(s *listShelf) {
		s.due = func(r *driver.Record, before time.Time) bool {
			return !r.Exhausted && !r.Due.IsZero() && r.Due.Unix() <= before.Unix()
		}
	}},
	{name: "Pages overlap", lists: func(s *listShelf) {
		s.collected = func(_ string, found []listed) []listed {
			if len(found) > 1 {
				found = append(found, found[0])
			}
			return found
		}
	}, caught: []string{"DueLists", "ListsLetWrite"}},
	{name: "An exhausted record stays due", lists: func(s *listShelf) {
		s.due = func(r *driver.Record, before time.Time) bool { return !r.Due.IsZero() && !r.Due.After(before) }
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
	{name: "The list returns only the fields of the index", lists: func(s *listShelf) {
		s.show = func(r *driver.Record) driver.Record {
			return driver.Record{ID: r.ID, Due: r.Due, Exhausted: r.Exhausted}
		}
	}, caught: []string{"ListedWhole"}},
	{name: "The list returns the stored record without a copy", lists: func(s *listShelf) {
		s.show = func(r *driver.Record) driver.Record { return *r }
	}, caught: []string{"ListedWhole"}},
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
		s.unreadable = func(idempotent.RecordID) (driver.Record, error, bool) {
			return driver.Record{}, errors.New("cannot be read"), true
		}
	}, caught: []string{"UnreadableIsListed"}},
	{name: "An unreadable record is not listed", lists: func(s *listShelf) {
		s.unreadable = func(idempotent.RecordID) (driver.Record, error, bool) { return driver.Record{}, nil, false }
	}, caught: []string{"UnreadableIsListed"}},
}
