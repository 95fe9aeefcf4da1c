package dynamostore_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

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
		if met, err := s.Insert(t.Context(), r, at(0)); met != nil || err != nil {
			t.Fatal(met, err)
		}
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
	if met, err := s.Insert(t.Context(), r, at(0)); met != nil || err != nil {
		t.Fatal(met, err)
	}
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
	synctest.Test(t, testDeleteErrors) // pauses between tries take no time
}

func testDeleteErrors(t *testing.T) {
	for name, count := range map[string]int{"a negative count": -1, "a count above the limit": 1 << 40} {
		fake := newFake()
		s, r := newStore(t, fake), someRecord()
		r.State = driver.StateCompleted
		if met, err := s.Insert(t.Context(), r, at(0)); met != nil || err != nil {
			t.Fatal(met, err)
		}
		fake.change(string(r.ID), func(it item) { it["cn"] = &types.AttributeValueMemberN{Value: strconv.Itoa(count)} })
		if current, err := s.Delete(t.Context(), r.ID, r.Version); current != nil || err != nil || fake.count("BatchWriteItem") > 1000 {
			t.Errorf("%s: %v, %v after %d batches", name, current, err, fake.count("BatchWriteItem"))
		}
	}
	broken := newFake()
	large := someRecord()
	large.State, large.Chunks = driver.StateCompleted, driver.Chunks{Count: 1, Length: 10}
	if met, err := newStore(t, broken).Insert(t.Context(), large, at(0)); met != nil || err != nil {
		t.Fatal(met, err)
	}
	broken.refuse = func(operation string, n int) error {
		if operation == "BatchWriteItem" {
			return validation("no")
		}
		return nil
	}
	if _, err := newStore(t, broken).Delete(t.Context(), large.ID, large.Version); err == nil || !strings.Contains(err.Error(), "BatchWriteItem") {
		t.Errorf("its chunks stay, and the error is %v", err)
	}
	fake := newFake()
	fake.refuse = func(operation string, n int) error { return validation("no") }
	if _, err := newStore(t, fake).Delete(t.Context(), "charge#key", newVersion()); err == nil || !strings.Contains(err.Error(), "DeleteItem on table") {
		t.Errorf("got %v", err)
	}
}
