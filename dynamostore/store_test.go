// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit/engine"
)

// F30, F90: one conditional write claims a key: the table refuses the second
// claim.
func TestInsert_SendsTheCondition(t *testing.T) {
	t.Parallel()
	fake := newFake()
	r := someRecord()
	if met, err := newStore(t, fake).Insert(t.Context(), r, at(1_700_000_000_123)); met != nil || err != nil {
		t.Fatal(met, err)
	}
	wantPut(t, fake, "attribute_not_exists(pk) OR exp <= :now", item{":now": &types.AttributeValueMemberN{Value: "1700000000123"}})
}

// G01: a write replaces only the version that was read.
func TestReplace_SendsTheCondition(t *testing.T) {
	t.Parallel()
	fake := newFake()
	r, was := someRecord(), newVersion()
	newStore(t, fake).Replace(t.Context(), r, was)
	wantPut(t, fake, "wid = :was", item{":was": &types.AttributeValueMemberB{Value: was[:]}})
}

func wantPut(t *testing.T, fake *fakeDynamoDB, condition string, values item) {
	t.Helper()
	if fake.count("PutItem") != 1 {
		t.Fatalf("%d PutItem, want 1", fake.count("PutItem"))
	}
	in := sent[dynamodb.PutItemInput](fake)[0]
	if got := aws.ToString(in.TableName); got != tableName {
		t.Errorf("table %q", got)
	}
	if got := aws.ToString(in.ConditionExpression); got != condition {
		t.Errorf("condition %q, want %q", got, condition)
	}
	if !reflect.DeepEqual(item(in.ExpressionAttributeValues), values) {
		t.Errorf("values %s, want %s", show(in.ExpressionAttributeValues), show(values))
	}
	if in.ExpressionAttributeNames != nil {
		t.Errorf("names %v", in.ExpressionAttributeNames)
	}
	if in.ReturnValuesOnConditionCheckFailure != types.ReturnValuesOnConditionCheckFailureAllOld {
		t.Errorf("ReturnValuesOnConditionCheckFailure is %q, want ALL_OLD", in.ReturnValuesOnConditionCheckFailure)
	}
}

func TestInsert_ReturnsTheRecordThatStands(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	old := fullRecord()
	insert(t, s, old)
	r := someRecord()
	r.ID = old.ID
	met, err := s.Insert(t.Context(), r, old.Expires.Add(-1))
	if err != nil || met == nil || !reflect.DeepEqual(*met, old) {
		t.Fatalf("got %+v, %v, want %+v", met, err, old)
	}
	if fake.count("PutItem") != 2 || fake.count("GetItem") != 0 {
		t.Errorf("%d PutItem and %d GetItem, want 2 and 0", fake.count("PutItem"), fake.count("GetItem"))
	}
	// The store's own write, found by a retry, is returned like any other record.
	if met, err = s.Insert(t.Context(), old, at(0)); err != nil || met == nil || met.Version != old.Version {
		t.Fatalf("got %+v, %v, want our own record", met, err)
	}
	// At the millisecond of its expiry the record counts as missing.
	if met, err = s.Insert(t.Context(), r, old.Expires); err != nil || met != nil {
		t.Fatalf("got %+v, %v, want the expired record replaced", met, err)
	}
}

func TestInsert_NothingReturned(t *testing.T) {
	t.Parallel()
	fake := newFake()
	fake.forgetful = true
	s := newStore(t, fake)
	r := someRecord()
	insert(t, s, r)
	met, err := s.Insert(t.Context(), r, at(0))
	if met != nil || err == nil || !strings.Contains(err.Error(), "ReturnValuesOnConditionCheckFailure") || errors.Is(err, idempotent.ErrNoRecord) {
		t.Fatalf("got %+v, %v; want an error that names the missing feature and is not ErrNoRecord", met, err)
	}
}

func TestContextEnded(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := someRecord()
	_, insertErr := s.Insert(ctx, r, at(0))
	_, replaceErr := s.Replace(ctx, r, r.Version)
	_, getErr := s.Get(ctx, r.ID)
	_, putChunksErr := s.PutChunks(ctx, r.ID, r.Version, []byte("result"), at(0))
	_, getChunksErr := s.GetChunks(ctx, r.ID, r.Version, 1)
	for _, err := range []error{insertErr, replaceErr, getErr, putChunksErr, getChunksErr} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	}
	if len(fake.calls) != 0 {
		t.Errorf("it was sent: %v", fake.calls)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	cause := func(code, message string) error { return &smithy.GenericAPIError{Code: code, Message: message} }
	for _, tt := range []struct {
		name string
		err  error
		want []string
	}{
		{"missing table", &types.ResourceNotFoundException{Message: aws.String("Requested resource not found")}, []string{`table "once"`, "CreateTable", "region", "endpoint"}},
		{"key schema", cause("ValidationException", "The provided key element does not match the schema"), []string{"Check"}},
		{"denied", cause("AccessDeniedException", "User: arn:aws:sts::1:assumed-role/x is not authorized"), []string{"allow dynamodb:OPERATION"}},
		{"other API error", cause("ProvisionedThroughputExceededException", "slow down"), []string{"slow down"}},
		{"network", errors.New("connection reset"), []string{"connection reset"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // retries of a throttled batch take time
				fake := newFake()
				fake.refuse = func(string, int) error { return tt.err }
				s := newStore(t, fake)
				r := fullRecord()
				_, insertErr := s.Insert(t.Context(), r, at(0))
				_, replaceErr := s.Replace(t.Context(), r, r.Version)
				_, getErr := s.Get(t.Context(), r.ID)
				_, putChunksErr := s.PutChunks(t.Context(), r.ID, r.Version, r.Result, r.Expires)
				_, getChunksErr := s.GetChunks(t.Context(), r.ID, r.Version, 1)
				for operation, err := range map[string]error{
					"PutItem": errors.Join(insertErr, replaceErr), "GetItem": getErr,
					"BatchWriteItem": putChunksErr, "BatchGetItem": getChunksErr,
				} {
					if !errors.Is(err, tt.err) {
						t.Fatalf("%v does not wrap its cause", err)
					}
					if errors.Is(err, driver.ErrTooLarge) || errors.Is(err, idempotent.ErrNoRecord) {
						t.Errorf("%v reports that nothing was written", err)
					}
					for line := range strings.SplitSeq(err.Error(), "\n") {
						if !strings.HasPrefix(line, "dynamostore: "+operation+" on table") {
							t.Errorf("%q does not begin with the package name", line)
						}
						for _, want := range tt.want {
							if want = strings.ReplaceAll(want, "OPERATION", operation); !strings.Contains(line, want) {
								t.Errorf("%q does not contain %q", line, want)
							}
						}
						for _, secret := range []string{string(r.ID), r.ID.KeyHash(), r.Ref, "ch_1"} {
							if strings.Contains(line, secret) {
								t.Errorf("%q contains %q", line, secret)
							}
						}
					}
				}
			})
		})
	}
}

func TestTooLarge_SaidByDynamoDB(t *testing.T) {
	t.Parallel()
	for _, message := range []string{
		"Item size has exceeded the maximum allowed size",
		"Item size to update has exceeded the maximum allowed size",
	} {
		synctest.Test(t, func(t *testing.T) { // pauses between tries take no time
			fake := newFake()
			fake.refuse = func(string, int) error { return validation(message) }
			s := newStore(t, fake)
			if _, err := s.Insert(t.Context(), someRecord(), at(0)); !errors.Is(err, driver.ErrTooLarge) {
				t.Errorf("%q became %v, want ErrTooLarge", message, err)
			}
			if _, err := s.PutChunks(t.Context(), "charge#key", newVersion(), []byte("result"), at(0)); !errors.Is(err, driver.ErrTooLarge) {
				t.Errorf("%q became %v, want ErrTooLarge", message, err)
			}
		})
	}
}

// The advice fits what DynamoDB refused, in which operation.
func TestErrors_Advice(t *testing.T) {
	t.Parallel()
	index, keys, grant := "Options.NoIndex", "check the table's keys", "allow dynamodb:"
	for _, tt := range []struct {
		code, message string
		put, query    string // the advice; empty: none
	}{
		{"ValidationException", "The table does not have the specified index", keys, index},
		{"ValidationException", "Item size is unknown", keys, index},
		{"ValidationException", "The provisioned throughput was exceeded", keys, index},
		{"LimitExceededException", "Item size has exceeded the maximum allowed size", "", ""},
		{"LimitExceededException", "no", "", ""},
		{"AccessDeniedException", "no", grant + "PutItem on the table", grant + "Query on the table's index"},
		{"ResourceNotFoundException", "no", "the table does not exist", "the table or its index"},
	} {
		fake := newFake()
		fake.refuse = func(string, int) error { return &smithy.GenericAPIError{Code: tt.code, Message: tt.message} }
		s := newStore(t, fake)
		_, put := s.Insert(t.Context(), someRecord(), at(0))
		_, query := idsOf(s.Due(t.Context(), time.Time{}))
		for _, c := range []struct {
			err  error
			want string
		}{{put, tt.put}, {query, tt.query}} {
			if errors.Is(c.err, driver.ErrTooLarge) {
				t.Errorf("%s, %s: %v reports that the item is too large", tt.code, tt.message, c.err)
			}
			for _, advice := range []string{index, keys, grant} {
				if strings.Contains(c.err.Error(), advice) != (c.want != "" && strings.HasPrefix(c.want, advice)) || !strings.Contains(c.err.Error(), c.want) {
					t.Errorf("%s, %s: %v, want the advice %q", tt.code, tt.message, c.err, c.want)
				}
			}
		}
	}
}

// An item of exactly 409,600 bytes is sent; one more byte is refused by the store.
func TestTooLarge_AtTheBoundary(t *testing.T) {
	t.Parallel()
	fake := newFake()
	s := newStore(t, fake)
	// pk 2+10, v 1+2, st 2+1, rec 3+5, own 3+16, wid 3+16, att 3+2, fp 2+33,
	// lease 5+8, res 3.
	r := driver.Record{ID: "charge#key", State: driver.StateCompleted, Recovery: idempotent.Rerun, Attempt: 1, LeaseEnd: at(1_700_000_000_001)}
	const rest = 12 + 3 + 3 + 8 + 19 + 19 + 5 + 35 + 13 + 3
	r.Result = make([]byte, 409_600-rest)
	insert(t, s, r)
	r.Result = append(r.Result, 0)
	if _, err := s.Insert(t.Context(), r, at(0)); !errors.Is(err, driver.ErrTooLarge) {
		t.Errorf("Insert: %v, want ErrTooLarge", err)
	}
	if _, err := s.Replace(t.Context(), r, r.Version); !errors.Is(err, driver.ErrTooLarge) {
		t.Errorf("Replace: %v, want ErrTooLarge", err)
	}
	if n := fake.count("PutItem"); n != 1 {
		t.Errorf("%d PutItem, want only the first", n)
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	for _, table := range []string{
		"abc", "Once_1.records-x", strings.Repeat("a", 255),
		"arn:aws:dynamodb:eu-central-1:123456789012:table/once",
		"arn:aws-cn:dynamodb:cn-north-1:123456789012:table/once",
	} {
		s, err := dynamostore.New(newFake(), table)
		if err != nil || s.Table() != table {
			t.Errorf("New(%q): %v", table, err)
		}
	}
	if _, err := dynamostore.New(newFake(), ""); err == nil || !strings.Contains(err.Error(), "environment variable") {
		t.Errorf("an empty name: %v, want advice about the environment", err)
	}
	for _, table := range []string{
		"ab", "a b", "once/records", "önce", strings.Repeat("a", 256), " once",
		"arn:aws:s3:eu-central-1:123456789012:table/once",
		"arn:aws:dynamodb::123456789012:table/once",
		"arn:aws:dynamodb:eu-central-1::table/once",
		"arn:aws:dynamodb:eu-central-1:123456789012:table/once/index/recovery",
		"arn:aws:dynamodb:eu-central-1:123456789012:table/x",
		"arn:aws:dynamodb:eu-central-1:123456789012:global-table/once",
		"arn:aws:dynamodb:eu-central-1:123456789012:once",
		"arn:aws:dynamodb",
	} {
		if s, err := dynamostore.New(newFake(), table); err == nil || s != nil || !strings.HasPrefix(err.Error(), "dynamostore: ") {
			t.Errorf("New(%q): %v, want an error", table, err)
		}
	}
	if _, err := dynamostore.New(nil, "once"); err == nil {
		t.Error("New accepted a nil client")
	}
}

var (
	transactionConflict = &types.TransactionConflictException{Message: aws.String("Transaction is ongoing for the item")}
	replicatedConflict  = &types.ReplicatedWriteConflictException{Message: aws.String("modified in another region")}
)

func always(err error) func(string, int) error { return func(string, int) error { return err } }

// FM22.
func TestTransactionConflict(t *testing.T) {
	t.Parallel()
	testConflict(t, transactionConflict)
}

// FM23.
func TestReplicatedWriteConflict(t *testing.T) {
	t.Parallel()
	testConflict(t, replicatedConflict)
}

// testConflict: callers do not notice a conflict that ends within the budget, for
// the claim, the outcome and the read.
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

	for name, row := range map[string]struct {
		budget      time.Duration // until the deadline; 0: none
		cancel      time.Duration // 0: never
		least, most int           // attempts
		from, to    time.Duration
	}{
		// It ends before the pause that would not fit, which is at most 500 ms.
		"too long for the deadline": {budget: 2 * time.Second, least: 6, most: 19, from: 1500 * time.Millisecond, to: 2*time.Second - 1},
		"too long for the attempts": {least: 20, most: 20, to: 7200 * time.Millisecond},
		"before a distant deadline": {budget: 15 * time.Minute, least: 20, most: 20, to: 7200 * time.Millisecond},
		"cancelled during a pause":  {cancel: 100 * time.Millisecond, least: 2, most: 19, from: 100 * time.Millisecond, to: 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.refuse = always(conflict)
				s := newStore(t, fake)
				ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
				defer cancel()
				if row.budget > 0 {
					ctx, cancel = context.WithTimeout(ctx, row.budget)
					defer cancel()
				}
				if row.cancel > 0 {
					time.AfterFunc(row.cancel, cancel)
				}
				began := time.Now()
				_, err := s.Insert(ctx, someRecord(), at(0))
				if took := time.Since(began); took < row.from || took > row.to {
					t.Errorf("it took %s, want %s to %s", took, row.from, row.to)
				}
				if cancelled := row.cancel > 0; !errors.Is(err, conflict) || errors.Is(err, context.Canceled) != cancelled || (ctx.Err() != nil) != cancelled {
					t.Errorf("got %v with context %v; want the conflict, before the deadline", err, ctx.Err())
				}
				if n := fake.count("PutItem"); n < row.least || n > row.most {
					t.Errorf("%d attempts, want %d to %d", n, row.least, row.most)
				}
			})
		})
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
		insert(t, s, r)
		met, err := s.Insert(t.Context(), r, at(0))
		if err != nil || met == nil || met.Version != r.Version {
			t.Errorf("got %+v, %v, want our own record", met, err)
		}
	})
}

// The suites with a DynamoDB in memory, which evaluates the conditions as they are
// sent. They run with real engines in tests/engines/integration.

func fixture(fake *fakeDynamoDB, optFns ...func(*dynamostore.Options)) idempotenttest.Fixture {
	open := func(t testing.TB) driver.Store { return newStore(t, fake, optFns...) }
	return idempotenttest.Fixture{
		Open:   open,
		Reopen: func(t testing.TB, _ driver.Store) driver.Store { return open(t) },
		Remove: func(_ context.Context, _ driver.Store, id idempotent.RecordID) error {
			fake.remove(string(id))
			return nil
		},
		Damage: func(_ context.Context, _ driver.Store, id idempotent.RecordID) error {
			fake.change(string(id), func(it item) { it["v"] = &types.AttributeValueMemberN{Value: "77"} })
			return nil
		},
	}
}

func TestConformance(t *testing.T) { idempotenttest.RunStore(t, fixture(newFake())) }

// Without the index the lists come from a scan.
func TestConformance_WithoutIndex(t *testing.T) {
	t.Parallel()
	idempotenttest.RunStore(t, fixture(newFake(), noIndex))
}

func TestFailureModes(t *testing.T) { idempotenttest.RunFailureModes(t, fixture(newFake())) }

// In a global table with strong consistency, in which the next process is in the other
// region, and one write in ten is rejected because of it.
func TestRegions(t *testing.T) {
	t.Parallel()
	table := engine.NewStrong(engine.Faults{Seed: 1, Conflicts: 0.1}, tableName, "orders")
	fake := fakeOn(table.DB)
	f := fixture(fake)
	f.Open = func(t testing.TB) driver.Store { return newStore(t, table.Client(0), strong) }
	f.Reopen = func(t testing.TB, _ driver.Store) driver.Store { return newStore(t, table.Client(1), strong) }
	t.Run("Store", func(t *testing.T) { idempotenttest.RunStore(t, f) })
	t.Run("FailureModes", func(t *testing.T) {
		idempotenttest.RunFailureModes(t, f, func(o *idempotenttest.FailureModesOptions) { o.Seeds = 2 })
	})
}
