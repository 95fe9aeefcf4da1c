package dynamostore_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// bothWays runs f for writing and for reading a result of 16 chunks. The faults
// that f injects are for that operation; call makes the operation and returns its
// error.
func bothWays(t *testing.T, f func(t *testing.T, operation string, fake *fakeDynamoDB, call func(context.Context) error)) {
	data := noise(6 << 20)
	newCall := func(t *testing.T, fake *fakeDynamoDB, put bool, optFns ...func(*dynamostore.Options)) func(context.Context) error {
		s := newStore(t, fake, optFns...)
		id, v := someRecord().ID, newVersion()
		check := func() error {
			got, err := newStore(t, fake).GetChunks(context.Background(), id, v, 16)
			if err == nil && !bytes.Equal(got, data) {
				t.Errorf("got %d bytes that differ from the %d written", len(got), len(data))
			}
			return err
		}
		if put {
			return func(ctx context.Context) error {
				_, err := s.PutChunks(ctx, id, v, data, chunksExpire)
				if err == nil {
					fake.leave, fake.refuse = nil, nil
					err = check()
				}
				return err
			}
		}
		if _, err := s.PutChunks(t.Context(), id, v, data, chunksExpire); err != nil {
			t.Fatal(err)
		}
		return func(ctx context.Context) error {
			got, err := s.GetChunks(ctx, id, v, 16)
			if err == nil && !bytes.Equal(got, data) {
				t.Errorf("got %d bytes that differ from the %d written", len(got), len(data))
			}
			return err
		}
	}
	for operation, put := range map[string]bool{"BatchWriteItem": true, "BatchGetItem": false} {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				f(t, operation, fake, newCall(t, fake, put))
			})
		})
	}
}

// DynamoDB leaves a part of each batch unprocessed, until nothing is left.
func TestBatch_PartsLeft(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, operation string, fake *fakeDynamoDB, call func(context.Context) error) {
		sizes := []int{}
		fake.leave = func(_ string, _, size int) int {
			sizes = append(sizes, size)
			return size - 1
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := call(ctx); err != nil {
			t.Fatal(err)
		}
		for i, size := range sizes {
			if size != 16-i {
				t.Fatalf("batches of %d, want 16 and then only the items that were left", sizes)
			}
		}
		// Every call makes progress, so each of the 15 pauses is the shortest one.
		if took := time.Since(began); len(sizes) != 16 || took < 75*time.Millisecond || took > 150*time.Millisecond {
			t.Errorf("%d calls within %s, want 16 with a pause of up to 10ms before each but the first", len(sizes), took)
		}
	})
}

// DynamoDB processes nothing of a batch for a while, and reports it in each
// possible way.
func TestBatch_NothingDoneForAWhile(t *testing.T) {
	t.Parallel()
	for name, order := range nothingDone() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothWays(t, func(t *testing.T, operation string, fake *fakeDynamoDB, call func(context.Context) error) {
				first := fake.count(operation)
				order(fake, func(n int) bool { return n <= first+5 })
				began := time.Now()
				if err := call(t.Context()); err != nil {
					t.Fatal(err)
				}
				// Pauses of 10, 20, 40, 80 and 160 ms, each shortened by up to a
				// half.
				if took := time.Since(began); took < 155*time.Millisecond || took > 310*time.Millisecond {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// nothingDone returns the ways in which DynamoDB processes nothing of a batch.
// Each injects the fault for the calls that during selects.
func nothingDone() map[string]func(fake *fakeDynamoDB, during func(n int) bool) {
	refuse := func(err error) func(*fakeDynamoDB, func(int) bool) {
		return func(fake *fakeDynamoDB, during func(int) bool) {
			fake.refuse = func(_ string, n int) error {
				if during(n) {
					return err
				}
				return nil
			}
		}
	}
	return map[string]func(*fakeDynamoDB, func(int) bool){
		"all left": func(fake *fakeDynamoDB, during func(int) bool) {
			fake.leave = func(_ string, n, size int) int {
				if during(n) {
					return size
				}
				return 0
			}
		},
		"throughput exceeded":  refuse(&types.ProvisionedThroughputExceededException{Message: aws.String("slow down")}),
		"throttled":            refuse(&smithy.GenericAPIError{Code: "ThrottlingException", Message: "slow down"}),
		"account limit":        refuse(&types.RequestLimitExceeded{Message: aws.String("slow down")}),
		"transaction conflict": refuse(transactionConflict),
		"replicated conflict":  refuse(replicatedConflict),
	}
}

// DynamoDB processes nothing of a batch before the deadline: the call fails while
// some time is left.
func TestBatch_NothingDoneInTime(t *testing.T) {
	t.Parallel()
	for name, order := range nothingDone() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothWays(t, func(t *testing.T, operation string, fake *fakeDynamoDB, call func(context.Context) error) {
				first := fake.count(operation)
				order(fake, func(int) bool { return true })
				const budget = 2 * time.Second
				ctx, cancel := context.WithTimeout(t.Context(), budget)
				defer cancel()
				began := time.Now()
				err := call(ctx)
				took := time.Since(began)
				if err == nil || ctx.Err() != nil || !strings.HasPrefix(err.Error(), "dynamostore: "+operation+" on table") {
					t.Errorf("got %v with context %v, want an error before the deadline", err, ctx.Err())
				}
				if errors.Is(err, idempotent.ErrNoRecord) || errors.Is(err, driver.ErrTooLarge) {
					t.Errorf("%v is definite", err)
				}
				if took >= budget || took < budget-500*time.Millisecond {
					t.Errorf("it took %s of %s", took, budget)
				}
				if n := fake.count(operation) - first; n < 6 || n > 19 {
					t.Errorf("%d attempts in %s", n, took)
				}
			})
		})
	}
}

// Without a deadline the call fails after twenty attempts without progress, with
// the cause.
func TestBatch_NothingDoneEver(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, operation string, fake *fakeDynamoDB, call func(context.Context) error) {
		first := fake.count(operation)
		fake.leave = func(_ string, n, size int) int {
			if n-first <= 10 { // one item is processed now and then
				return size - n%2
			}
			return size
		}
		err := call(t.Context())
		if err == nil || !strings.Contains(err.Error(), "at each of 20 attempts") || !strings.Contains(err.Error(), "throttling metrics") {
			t.Errorf("got %v", err)
		}
		// The last progress was in the ninth or tenth call.
		if n := fake.count(operation) - first; n < 28 || n > 29 {
			t.Errorf("%d calls, want 20 from the last one with progress", n)
		}
	})
}

func TestBatch_CancelledMeanwhile(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, operation string, fake *fakeDynamoDB, call func(context.Context) error) {
		fake.leave = func(_ string, _, size int) int { return size }
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		time.AfterFunc(100*time.Millisecond, cancel)
		err := call(ctx)
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "not all of the batch") {
			t.Errorf("got %v, want both causes", err)
		}
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("it ended after %s, want the end of the context at 100ms", took)
		}
	})
}

// An error that is neither throttling nor a conflict ends the call at once, also
// within a batch and between two batches.
func TestBatch_OtherErrors(t *testing.T) {
	t.Parallel()
	reset := errors.New("connection reset")
	t.Run("in the midst", func(t *testing.T) {
		t.Parallel()
		bothWays(t, func(t *testing.T, operation string, fake *fakeDynamoDB, call func(context.Context) error) {
			first := fake.count(operation)
			fake.leave = func(_ string, _, size int) int { return size / 2 }
			fake.refuse = func(_ string, n int) error {
				if n == first+2 {
					return reset
				}
				return nil
			}
			if err := call(t.Context()); !errors.Is(err, reset) || fake.count(operation) != first+2 {
				t.Errorf("got %v after %d calls, want %v after 2", err, fake.count(operation)-first, reset)
			}
		})
	})
	t.Run("between two", func(t *testing.T) {
		t.Parallel()
		fake := newFake()
		s := newStore(t, fake)
		id, v, count := putChunks(t, s, noise(41*chunkSize))
		first := map[string]int{"BatchWriteItem": fake.count("BatchWriteItem")}
		fake.refuse = func(operation string, n int) error {
			if n == first[operation]+2 {
				return reset
			}
			return nil
		}
		if n, err := s.PutChunks(t.Context(), id, v, noise(41*chunkSize), chunksExpire); n != 0 || !errors.Is(err, reset) {
			t.Errorf("PutChunks: %d, %v, want %v", n, err, reset)
		}
		if got, err := s.GetChunks(t.Context(), id, v, count); got != nil || !errors.Is(err, reset) {
			t.Errorf("GetChunks: %d bytes, %v, want %v", len(got), err, reset)
		}
	})
}
