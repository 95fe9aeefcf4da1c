package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// The pause before a retry after a conflict: about conflictBase after the first
// attempt, doubled each time, at most conflictMax. A transaction or a replicated
// write holds an item for some milliseconds.
const (
	conflictBase = 10 * time.Millisecond
	conflictMax  = 500 * time.Millisecond
)

// persist repeats a call while DynamoDB refuses it because of another writer: a
// transaction on the item, or a write to it in another region. Such a refusal
// wrote nothing and soon passes, but the SDK does not retry it.
//
// persist makes at most Options.ConflictAttempts attempts and ends with the
// context. It does not start a pause that the deadline would cut short, so that
// the caller can use that time to answer.
func (s *Store) persist(ctx context.Context, call func() error) error {
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := call()
		if !isConflict(err) {
			return err
		}
		if err := s.pause(ctx, attempt, "another writer was in the way", err); err != nil {
			return err
		}
	}
}

// pause waits until the next attempt is allowed. If no further attempt is allowed,
// it returns an error with what happened at each attempt, and err.
func (s *Store) pause(ctx context.Context, attempt int, happened string, err error) error {
	switch again, cause := s.waits(ctx, attempt); {
	case cause != nil:
		return fmt.Errorf("%w after %s at each of %d attempts: %w", cause, happened, attempt, err)
	case !again:
		return fmt.Errorf("%s at each of %d attempts: %w", happened, attempt, err)
	}
	return nil
}

// waits waits until the next attempt, and reports whether it is allowed: the
// number of attempts is limited, and a pause that the deadline would cut short
// does not start. The error is the context's if it ended during the pause.
func (s *Store) waits(ctx context.Context, attempt int) (again bool, err error) {
	delay := conflictDelay(attempt)
	deadline, ok := ctx.Deadline()
	if attempt >= s.opts.ConflictAttempts || ok && time.Until(deadline) <= delay {
		return false, nil
	}
	if err := sleep(ctx, delay); err != nil {
		return false, err
	}
	return true, nil
}

// isConflict reports whether err is one of the two refusals that persist retries
// (API reference, PutItem, Errors).
func isConflict(err error) bool {
	if _, ok := errors.AsType[*types.TransactionConflictException](err); ok {
		return true
	}
	_, ok := errors.AsType[*types.ReplicatedWriteConflictException](err)
	return ok
}

// conflictDelay returns the pause after a failed attempt, counted from 1.
func conflictDelay(attempt int) time.Duration {
	return backoff(conflictBase, conflictMax, attempt-1)
}

// backoff returns base doubled so many times, at most limit, shortened at random
// by up to a half, so that writers that collided do not collide again.
func backoff(base, limit time.Duration, doublings int) time.Duration {
	d := limit
	if doublings < 32 {
		d = min(base<<doublings, limit)
	}
	return d - rand.N(d/2)
}

// sleep waits for d, or until ctx ends, and then returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
