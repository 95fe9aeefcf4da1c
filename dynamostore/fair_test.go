// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"hash/crc32"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// With twice as many records as a reconciler can handle, every run handles the
// oldest ones of all shards, and no shard starves.
func TestReconcile_IsFair(t *testing.T) {
	t.Parallel()
	const runs, arrivals = 40, 48
	db := dynamotest.New(tableName)
	s, err := dynamostore.New(db, tableName)
	if err != nil {
		t.Fatal(err)
	}
	// This clock only moves when the resolver is called, and between runs. It stays ahead of the real one.
	now := time.Now()
	guard, err := idempotent.New(s, func(o *idempotent.Options) {
		o.Now, o.Logger = func() time.Time { return now }, slog.New(slog.DiscardHandler)
	})
	if err != nil {
		t.Fatal(err)
	}
	shardOf := func(id idempotent.RecordID) uint32 { return crc32.ChecksumIEEE([]byte(id)) % 64 }
	due := map[idempotent.RecordID]time.Time{} // of the records that wait
	served := map[uint32]int{}
	oldest := time.Duration(0)
	for run := range runs {
		for i := range arrivals {
			r := someRecord()
			r.ID = idOf("charge")
			r.State, r.Due = driver.StateUnknown, now.UTC().Truncate(time.Millisecond).Add(-time.Duration(i)*time.Second)
			if met, err := s.Insert(t.Context(), r, r.Due); met != nil || err != nil {
				t.Fatal(met, err)
			}
			due[r.ID] = r.Due
		}
		var asked []idempotent.RecordID
		ctx, cancel := context.WithDeadline(t.Context(), now.Add(36*time.Second))
		report, err := idempotent.ReconcileDue(ctx, guard, func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
			now = now.Add(time.Second) // so a run handles 24 or 25
			asked = append(asked, r.ID)
			return idempotent.ResolvedFinal("a", "b"), nil
		}, func(o *idempotent.ReconcileOptions) { o.Concurrency = 1 })
		cancel()
		if err != nil || len(asked) < 24 || len(asked) > 25 || !report.Incomplete {
			t.Fatalf("run %d: %s, %v", run, report, err)
		}
		var last time.Time
		for _, id := range asked {
			if due[id].Before(last) {
				t.Fatalf("run %d handled a record of %s after one of %s", run, due[id], last)
			}
			last = due[id]
			oldest = max(oldest, now.Sub(last))
			served[shardOf(id)]++
			delete(due, id)
		}
		for id, at := range due {
			if at.Before(last) {
				t.Fatalf("run %d handled a record of %s and left one of %s in shard %d", run, last, at, shardOf(id))
			}
		}
		now = now.Add(24 * time.Second)
	}
	counts := make([]int, 64)
	for shard, n := range served {
		counts[shard] = n
	}
	slices.Sort(counts)
	t.Logf("records handled by shard: %v; %d are left; the longest wait was %s", counts, len(due), oldest.Round(time.Second))
	if counts[0] == 0 {
		t.Error("a shard was never served")
	}
}
