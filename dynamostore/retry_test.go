package dynamostore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
)

var (
	transactionConflict = &types.TransactionConflictException{Message: aws.String("Transaction is ongoing for the item")}
	replicatedConflict  = &types.ReplicatedWriteConflictException{Message: aws.String("modified in another region")}
)

func always(err error) func(string, int) error { return func(string, int) error { return err } }

func TestFM22_TransactionConflict(t *testing.T) {
	t.Parallel()
	testConflict(t, transactionConflict)
}

func TestFM23_ReplicatedWriteConflict(t *testing.T) {
	t.Parallel()
	testConflict(t, replicatedConflict)
}

// testConflict: callers do not notice a conflict that ends within the budget, for
// the claim, the outcome and the read. With a longer conflict the handler does not
// run.
func testConflict(t *testing.T, conflict error) {
	key := idempotent.Key{Operation: "charge", Scope: "tenant", ID: "1", Fingerprint: idempotent.FingerprintBytes(nil)}

	t.Run("passes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			fake := newFake()
			fake.refuse = func(_ string, n int) error {
				if n%4 != 0 { // three conflicts before each write
					return conflict
				}
				return nil
			}
			guard, err := idempotent.New(newStore(t, fake))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			for range 2 {
				runs := 0
				out, err := idempotent.DoOutcome(ctx, guard, key, func(context.Context) (string, error) {
					runs++
					return "ch_1", nil
				})
				if err != nil || out.Value != "ch_1" || !out.Stored || out.Replayed != (runs == 0) {
					t.Fatalf("got %+v after %d runs, %v", out, runs, err)
				}
			}
			if n := fake.count("PutItem"); n != 3*4 {
				t.Errorf("%d PutItem, want claim, outcome and replay with three conflicts each", n)
			}
			if _, err := newStore(t, fake).Get(ctx, key.RecordID()); err != nil || fake.count("GetItem") != 4 {
				t.Errorf("Get: %v after %d calls, want success after 4", err, fake.count("GetItem"))
			}
		})
	})

	t.Run("too long for the deadline", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			fake := newFake()
			fake.refuse = always(conflict)
			s := newStore(t, fake)
			const budget = 2 * time.Second
			ctx, cancel := context.WithTimeout(t.Context(), budget)
			defer cancel()
			began := time.Now()
			_, err := s.Insert(ctx, someRecord(), at(0))
			took := time.Since(began)
			if !errors.Is(err, conflict) || ctx.Err() != nil {
				t.Errorf("got %v with context %v; want the conflict, before the deadline", err, ctx.Err())
			}
			// It ends before the pause that would not fit, which is at most
			// 500 ms.
			if took >= budget || took < budget-500*time.Millisecond {
				t.Errorf("it took %s of %s", took, budget)
			}
			if n := fake.count("PutItem"); n < 6 || n > 19 {
				t.Errorf("%d attempts in %s", n, took)
			}
		})
	})

	t.Run("too long for the attempts", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			for _, want := range []int{20, 1, 3} {
				fake := newFake()
				fake.refuse = always(conflict)
				s := newStore(t, fake, func(o *dynamostore.Options) {
					if want != 20 { // the default
						o.ConflictAttempts = want
					}
				})
				began := time.Now()
				ctx := context.WithoutCancel(t.Context())
				if want == 20 { // a distant deadline changes nothing
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 15*time.Minute)
					defer cancel()
				}
				_, err := s.Insert(ctx, someRecord(), at(0))
				if !errors.Is(err, conflict) || fake.count("PutItem") != want {
					t.Errorf("got %v after %d attempts, want the conflict after %d", err, fake.count("PutItem"), want)
				}
				if took := time.Since(began); took > 7200*time.Millisecond {
					t.Errorf("it took %s", took)
				}
			}
		})
	})

	t.Run("handler not entered", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			fake := newFake()
			fake.refuse = always(conflict)
			guard, err := idempotent.New(newStore(t, fake))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = idempotent.Do(ctx, guard, key, func(context.Context) (string, error) {
				t.Error("the handler was entered")
				return "", nil
			})
			if !errors.As(err, new(*idempotent.StoreError)) || !errors.Is(err, conflict) {
				t.Errorf("got %v, want StoreError for the conflict", err)
			}
		})
	})

	t.Run("cancelled during a pause", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			fake := newFake()
			fake.refuse = always(conflict)
			ctx, cancel := context.WithCancel(t.Context())
			began := time.Now()
			time.AfterFunc(100*time.Millisecond, cancel)
			_, err := newStore(t, fake).Insert(ctx, someRecord(), at(0))
			if !errors.Is(err, context.Canceled) || !errors.Is(err, conflict) {
				t.Errorf("got %v, want both causes", err)
			}
			if took := time.Since(began); took != 100*time.Millisecond {
				t.Errorf("it ended %s after the start, want the end of the context at 100ms", took)
			}
		})
	})
}

// The store retries only conflicts: the client has retried other errors.
func TestOtherErrorsAreNotRetried(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		errors.New("connection reset"),
		&types.ProvisionedThroughputExceededException{},
		&types.TransactionCanceledException{},
		&types.InternalServerError{},
	} {
		fake := newFake()
		fake.refuse = always(err)
		if _, got := newStore(t, fake).Insert(t.Context(), someRecord(), at(0)); !errors.Is(got, err) || fake.count("PutItem") != 1 {
			t.Errorf("%T: got %v after %d calls, want it after one", err, got, fake.count("PutItem"))
		}
	}
}

// A conflict on a retried write may hide that an earlier try was applied: the
// returned record is the store's own.
func TestConflictThenOwnWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		s := newStore(t, fake)
		r := someRecord()
		fake.refuse = func(_ string, n int) error {
			if n == 2 {
				return transactionConflict
			}
			return nil
		}
		if met, err := s.Insert(t.Context(), r, at(0)); met != nil || err != nil {
			t.Fatal(met, err)
		}
		met, err := s.Insert(t.Context(), r, at(0))
		if err != nil || met == nil || met.Version != r.Version {
			t.Errorf("got %+v, %v, want our own record", met, err)
		}
	})
}
