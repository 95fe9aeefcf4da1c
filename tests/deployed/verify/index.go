// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

// indexAnswers are about records with an unknown outcome.
type indexAnswers struct {
	Written, Listed, Settled int
	LagMS                    int64  // from the last write to the beginning of the list that had all
	SettledMS                int64  // from then until all were settled
	Refused                  string `json:",omitempty"` // why DynamoDB refuses the list
}

// index writes records with an unknown outcome, waits until the index lists them and
// until a reconciler has settled them.
var index = of(claim{
	name: "index", expected: "all unknown records are listed within 10 s, and settled", source: "docs/reports/scale.md", local: true,
}, func(ctx context.Context, w *world) (indexAnswers, error) {
	total, each, atOnce, patience := 2000, 50, 5, 5*time.Minute // each: records of an invocation
	if w.Local {
		total, each, atOnce, patience = 50, 10, 1, kit.Patience
	}
	a := indexAnswers{Written: total}
	if err := w.budget.spend(8 * total); err != nil {
		return a, err
	}
	missing := map[idempotent.RecordID]bool{} // of the index
	var mu sync.Mutex
	var failed error
	var invocations sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for range total / each {
		keys := make([]string, each)
		for i := range keys {
			keys[i] = rand.Text()
			missing[recordID(wire.Operation, keys[i])] = true
		}
		slots <- struct{}{}
		invocations.Go(func() {
			defer func() { <-slots }()
			err := w.ask(ctx, "Handler", wire.Request{Do: wire.Unknown, Keys: keys}, nil)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
		})
	}
	written := make(chan struct{})
	go func() { invocations.Wait(); close(written) }()
	all := make([]idempotent.RecordID, 0, total)
	for id := range missing {
		all = append(all, id)
	}
	// The list is read while records are written, because those that are settled
	// leave it.
	var wroteAt, lookedAt time.Time
	for len(missing) > 0 && (wroteAt.IsZero() || time.Since(wroteAt) < 20*time.Second) {
		lookedAt = time.Now()
		for listed, err := range w.store.Due(ctx, time.Time{}) {
			if failure, ok := errors.AsType[smithy.APIError](err); ok && failure.ErrorCode() == "ValidationException" {
				a.Refused = failure.ErrorMessage()
				<-written
				return a, nil
			}
			if err != nil {
				return a, err
			}
			delete(missing, listed.ID)
		}
		select {
		case <-written:
			if wroteAt.IsZero() {
				wroteAt = time.Now()
			}
		default:
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return a, err
		}
	}
	<-written
	listedAt := time.Now()
	if a.Listed = total - len(missing); !wroteAt.IsZero() {
		a.LagMS = max(0, lookedAt.Sub(wroteAt).Milliseconds())
	}
	if failed != nil {
		return a, failed
	}
	for settled := map[idempotent.RecordID]bool{}; len(missing) == 0 && a.Settled < total && time.Since(listedAt) < patience; {
		if err := pause(ctx, 5*time.Second); err != nil {
			return a, err
		}
		if err := w.ask(ctx, "Reconcile", nil, nil); err != nil {
			return a, err
		}
		for _, id := range all {
			if settled[id] {
				continue
			}
			record, err := w.store.Get(ctx, id)
			if err != nil {
				return a, err
			}
			settled[id] = record != nil && record.State == driver.StateCompleted
			if !settled[id] {
				break // the next round looks again
			}
			a.Settled++
		}
		a.SettledMS = time.Since(listedAt).Milliseconds()
	}
	return a, nil
}, func(a indexAnswers) (string, verdict) {
	if a.Refused != "" {
		return "the list is refused: " + a.Refused, fails
	}
	seen := fmt.Sprintf("%d of %d listed after %d ms, %d settled after %d ms", a.Listed, a.Written, a.LagMS, a.Settled, a.SettledMS)
	return seen, when(a.Written > 0 && a.Listed == a.Written && a.LagMS < 10_000 && a.Settled == a.Written)
})
