// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/memstore"
)

// The way of one request through the product: a first request, its replay, and the
// takeover of a run that was killed. make count counts the files that these three enter,
// which a reader of the core meets first, without those that only New and Wrap enter.
func TestWayOfOneRequest(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	clock := func(o *idempotent.Options) { o.Now, o.Recovery = func() time.Time { return now }, idempotent.Rerun }
	payload := idempotent.FingerprintBytes([]byte("4200 EUR"))
	key := idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1", Fingerprint: payload}
	keyOf := func(context.Context, string) (idempotent.Key, error) { return key, nil }
	var left *driver.Record // as a process leaves it that is killed in its handler
	runs := 0
	handler := func(store driver.Store) func(context.Context, string) (string, error) {
		g, err := idempotent.New(store, clock)
		if err != nil {
			t.Fatal(err)
		}
		return idempotent.Wrap(g, keyOf, func(ctx context.Context, _ string) (string, error) {
			runs++
			left, err = store.Get(ctx, key.RecordID())
			return "ch_1", err
		})
	}
	first, second := memstore.New(), memstore.New()
	charge, afterwards := handler(first), handler(second)
	request := func(what string, h func(context.Context, string) (string, error), wantRuns int) {
		t.Helper()
		if got, err := h(t.Context(), "4200 EUR"); got != "ch_1" || err != nil || runs != wantRuns {
			t.Errorf("%s: got %q, %v after %d runs, want ch_1 after %d", what, got, err, runs, wantRuns)
		}
	}
	t.Run("requests", func(t *testing.T) {
		request("a first request", charge, 1)
		request("its replay", charge, 1)
		if _, err := second.Insert(t.Context(), *left, now); err != nil {
			t.Fatal(err)
		}
		now = left.LeaseEnd
		request("a takeover", afterwards, 2)
		if left.Attempt != 2 {
			t.Errorf("attempt %d, want 2", left.Attempt)
		}
	})
}
