// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Delete removes only completed and retryable records, and only in the given
// version.
func TestDelete(t *testing.T) {
	t.Parallel()
	for state, goes := range map[driver.State]bool{
		driver.StateInProgress: false,
		driver.StateCompleted:  true,
		driver.StateRetryable:  true,
		driver.StateUnknown:    false,
	} {
		fake := newFake()
		s := newStore(t, fake)
		r := someRecord()
		r.State = state
		insert(t, s, r)
		current, err := s.Delete(t.Context(), r.ID, newVersion())
		if err != nil || current == nil || current.Version != r.Version || len(fake.all()) != 1 {
			t.Errorf("%s, another version: got %v, %v", state, current, err)
		}
		current, err = s.Delete(t.Context(), r.ID, r.Version)
		if gone := err == nil && current == nil && len(fake.all()) == 0; gone != goes {
			t.Errorf("%s: got %v, %v with %d items left; gone should be %t", state, current, err, len(fake.all()), goes)
		}
		if !goes && (current == nil || current.State != state) {
			t.Errorf("%s: the current record is %v", state, current)
		}
		if n := fake.count("GetItem"); n != 0 {
			t.Errorf("%s: %d reads of a record that the refusal returned", state, n)
		}
	}
	if current, err := newStore(t, newFake()).Delete(t.Context(), "charge#key", newVersion()); current != nil || !errors.Is(err, idempotent.ErrNoRecord) {
		t.Errorf("no record: got %v, %v, want ErrNoRecord", current, err)
	}
}

// The chunks of a deleted record are deleted with it; chunks of other records
// stay.
func TestDelete_Chunks(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	r := someRecord()
	r.State = driver.StateCompleted
	data := noise(30 * chunkSize) // more than one batch
	count, err := s.PutChunks(t.Context(), r.ID, r.Version, data, chunksExpire)
	if err != nil {
		t.Fatal(err)
	}
	r.Chunks = driver.Chunks{Count: count, Length: len(data)}
	insert(t, s, r)
	_, other, _ := putChunks(t, s, noise(10))
	fake.leave = func(operation string, n, size int) int {
		if operation == "BatchWriteItem" && n == 4 {
			return size / 2
		}
		return 0
	}
	if current, err := s.Delete(t.Context(), r.ID, r.Version); current != nil || err != nil {
		t.Fatal(current, err)
	}
	if len(fake.all()) != 1 || count != 30 {
		t.Errorf("%d items are left, want the one of the other result (%x)", len(fake.all()), other)
	}
	if n := fake.count("BatchWriteItem"); n != 2+1+3 {
		t.Errorf("%d batches; everything was processed at once: the test is void", n)
	}
}

func TestDelete_Errors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // pauses between tries take no time
		for name, count := range map[string]int{"a negative count": -1, "a count above the limit": 1 << 40} {
			fake := newFake()
			s, r := newStore(t, fake), someRecord()
			r.State = driver.StateCompleted
			insert(t, s, r)
			fake.change(string(r.ID), func(it item) { it["cn"] = &types.AttributeValueMemberN{Value: strconv.Itoa(count)} })
			if current, err := s.Delete(t.Context(), r.ID, r.Version); current != nil || err != nil || fake.count("BatchWriteItem") > 1000 {
				t.Errorf("%s: %v, %v after %d batches", name, current, err, fake.count("BatchWriteItem"))
			}
		}
		broken := newFake()
		large := someRecord()
		large.State, large.Chunks = driver.StateCompleted, driver.Chunks{Count: 1, Length: 10}
		insert(t, newStore(t, broken), large)
		broken.refuse = refusing("BatchWriteItem", validation("no"))
		if _, err := newStore(t, broken).Delete(t.Context(), large.ID, large.Version); err == nil || !strings.Contains(err.Error(), "BatchWriteItem") {
			t.Errorf("its chunks stay, and the error is %v", err)
		}
		fake := newFake()
		fake.refuse = func(operation string, n int) error { return validation("no") }
		if _, err := newStore(t, fake).Delete(t.Context(), "charge#key", newVersion()); err == nil || !strings.Contains(err.Error(), "DeleteItem on table") {
			t.Errorf("got %v", err)
		}
	})
}

// PurgeChunks removes chunks past their time to live that no record refers to, and
// nothing else.
func TestPurgeChunks(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	expires := at(1_700_000_000_000)
	now := expires.Add(3 * time.Hour) // a chunk expires two hours after its record
	chunks := func(id driver.RecordID, v driver.Version, expires time.Time) (count int) {
		count, err := s.PutChunks(t.Context(), id, v, noise(2*chunkSize+1), expires)
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	insert := func(r driver.Record) {
		insert(t, s, r)
	}
	named := someRecord()
	named.State, named.Expires = driver.StateCompleted, expires
	named.Chunks = driver.Chunks{Count: chunks(named.ID, named.Version, expires), Length: 1}
	insert(named)
	chunks(named.ID, newVersion(), expires) // of a write that lost against the one above
	damaged := someRecord()
	chunks(damaged.ID, damaged.Version, expires)
	insert(damaged)
	fake.change(string(damaged.ID), func(it item) { it["v"] = &types.AttributeValueMemberN{Value: "77"} })
	chunks("c", newVersion(), expires) // of the shortest record id
	chunks("charge#gone", newVersion(), expires)
	chunks("refund#gone", newVersion(), expires)
	chunks("charge#fresh", newVersion(), now.Add(-2*time.Hour))
	chunks("charge#forever", newVersion(), time.Time{})
	behind := fmt.Sprintf("%s#%x#%d", named.ID, named.Version[:], named.Chunks.Count) // after the last chunk that the record refers to
	foreign := item{"pk": &types.AttributeValueMemberS{Value: "charge#x#0"}, "part": &types.AttributeValueMemberB{Value: []byte{}}, "ttl": &types.AttributeValueMemberN{Value: "1"}}
	for _, key := range []string{behind, "foreign", "a#b", "#b", "#" + strings.Repeat("00", 16) + "#0", "charge#x#00#0", "charge#x#" + strings.Repeat("00", 15) + "0x#0", "charge#x#" + strings.Repeat("00", 17) + "#0", "charge#x#" + strings.Repeat("00", 16) + "#00", "charge#x#" + strings.Repeat("00", 16) + "#x"} {
		foreign["pk"] = &types.AttributeValueMemberS{Value: key}
		fake.store(foreign)
	}
	fake.store(item{ // named like a chunk, and without a part
		"pk": &types.AttributeValueMemberS{Value: "charge#x#" + strings.Repeat("00", 16) + "#0"}, "ttl": &types.AttributeValueMemberN{Value: "1"},
	})
	all := len(fake.all())
	purge := func(want, left int, optFns ...func(*dynamostore.PurgeOptions)) {
		t.Helper()
		if n, err := s.PurgeChunks(t.Context(), now, optFns...); n != want || err != nil || len(fake.all()) != left {
			t.Errorf("%d chunks, %v, %d items are left; want %d, and %d left", n, err, len(fake.all()), want, left)
		}
	}
	purge(13, all, func(o *dynamostore.PurgeOptions) { o.DryRun = true })
	purge(3, all-3, func(o *dynamostore.PurgeOptions) { o.Operations, o.Segments = []string{"refund"}, 1 })
	purge(10, all-13)
	purge(0, all-13)
	if _, err := s.GetChunks(t.Context(), named.ID, named.Version, named.Chunks.Count); err != nil {
		t.Errorf("the result that a record refers to: %v", err)
	}
	if _, err := s.GetChunks(t.Context(), damaged.ID, damaged.Version, 3); err != nil {
		t.Errorf("the result of a record that cannot be read: %v", err)
	}

	other := newFake() // with one item, which only looks like a chunk
	other.store(foreign)
	if n, err := newStore(t, other).PurgeChunks(t.Context(), now); n != 0 || err != nil || len(other.all()) != 1 {
		t.Errorf("a table without chunks: %d chunks, %v, %d items are left", n, err, len(other.all()))
	}
}

func TestPurgeChunks_Errors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // pauses between tries take no time
		for _, operation := range []string{"Scan", "BatchGetItem", "BatchWriteItem"} {
			fake := newFake()
			s := newStore(t, fake)
			if _, err := s.PutChunks(t.Context(), "charge#gone", newVersion(), noise(10), at(1)); err != nil {
				t.Fatal(err)
			}
			fake.refuse = func(o string, _ int) error {
				if o == operation {
					return validation("no")
				}
				return nil
			}
			if n, err := s.PurgeChunks(t.Context(), time.Now()); n != 0 || err == nil || !strings.Contains(err.Error(), operation+" on table") {
				t.Errorf("%s: %d, %v", operation, n, err)
			}
		}
		s := newStore(t, newFake())
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.PurgeChunks(ended, time.Now()); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the context's error", err)
		}
		for _, n := range []int{-1, 1_000_001} {
			if _, err := s.PurgeChunks(t.Context(), time.Now(), func(o *dynamostore.PurgeOptions) { o.Segments = n }); err == nil {
				t.Errorf("%d segments were accepted", n)
			}
		}
	})
}
