package idempotenttest

import (
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

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
		s.write = func(op Op, old *driver.Record, r driver.Record) *driver.Record {
			if old == nil || op == OpInsert {
				return r.Clone()
			}
			return merged(old, r)
		}
	}, caught: []string{"ReplaceWrites"}},
	{name: "Replace retains a result that the new record does not have", spoil: func(s *shelf) {
		s.write = func(op Op, old *driver.Record, r driver.Record) *driver.Record {
			c := r.Clone()
			if op == OpReplace && old != nil && c.Result == nil {
				c.Result = old.Result
			}
			return c
		}
	}, caught: []string{"ReplaceWrites"}},
	{name: "A repeated Replace returns an error", spoil: func(s *shelf) {
		s.loser = func(_ Op, old *driver.Record, r driver.Record) (*driver.Record, error) {
			if old.Version == r.Version && (old.Attempt > 1 || old.State != driver.StateInProgress) {
				return nil, errors.New("conditional check failed")
			}
			return old.Clone(), nil
		}
	}, caught: []string{"ReplaceAgain", "FM01_TakeoverReplyLost", "FM08_CompletionReplyLost"}},
	{name: "Replace checks and writes in two steps", spoil: func(s *shelf) {
		s.unsafely(func(op Op, old, _ *driver.Record) bool {
			return op == OpReplace && old != nil && (old.Expires.IsZero() || old.State == driver.StateRetryable)
		})
	}, caught: []string{"OneReplacerWins", "FM33_SimultaneousTakeovers"}},
}
