package dynamostore_test

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// commits runs one guarded handler over fake.
func commits(t *testing.T, client dynamostore.Client, key idempotent.Key, h func(context.Context) (string, error)) (string, error) {
	t.Helper()
	g, err := idempotent.New(newStore(t, client), func(o *idempotent.Options) {
		o.Recovery, o.Steps = idempotent.Resume, []string{"order"}
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return idempotent.Do(ctx, g, key, h)
}

func aKey() idempotent.Key {
	r := someRecord()
	return idempotent.Key{Operation: "charge", Scope: "tenant", ID: string(r.ID), Fingerprint: r.Fingerprint}
}

func order(id string, more ...string) types.TransactWriteItem {
	it := item{"pk": &types.AttributeValueMemberS{Value: id}}
	for _, name := range more {
		it[name] = &types.AttributeValueMemberS{Value: strings.Repeat("x", 380<<10)}
	}
	return types.TransactWriteItem{Put: &types.Put{
		TableName: aws.String("orders"), Item: it, ConditionExpression: aws.String("attribute_not_exists(pk)"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// F45: item 0 of the request is the record, on the version that was read, and
// the token is the id of the write.
func TestCommit_Request(t *testing.T) {
	t.Parallel()
	fake, key := newFake(), aKey()
	if v, err := commits(t, fake, key, func(ctx context.Context) (string, error) {
		return "done", dynamostore.Commit(ctx, "done", order("o-1"), order("o-2"))
	}); v != "done" || err != nil {
		t.Fatal(v, err)
	}
	in, claim := fake.transactions[0], fake.puts[0]
	record := in.TransactItems[0].Put
	wid := record.Item["wid"].(*types.AttributeValueMemberB).Value
	if len(in.TransactItems) != 3 || *record.TableName != tableName || *in.ClientRequestToken != hex.EncodeToString(wid) ||
		record.ReturnValuesOnConditionCheckFailure != types.ReturnValuesOnConditionCheckFailureAllOld {
		t.Errorf("the request is %+v", in)
	}
	if was := record.ExpressionAttributeValues[":was"].(*types.AttributeValueMemberB).Value; string(was) != string(claim.Item["wid"].(*types.AttributeValueMemberB).Value) {
		t.Error("the record is not replaced on the version of the claim")
	}
	if fake.count("PutItem") != 1 || fake.items["o-2"] == nil || fake.items[string(key.RecordID())]["st"].(*types.AttributeValueMemberS).Value != "C" {
		t.Errorf("%d puts, items %v", fake.count("PutItem"), fake.items)
	}
}

// FM27: an item's refusal is told with its place and what stands there; a record
// that is somebody else's is not one of them.
func TestFM27_WhoRefused(t *testing.T) {
	t.Parallel()
	fake := newFake()
	fake.items["o-2"] = item{"pk": &types.AttributeValueMemberS{Value: "o-2"}}
	_, err := commits(t, fake, aKey(), func(ctx context.Context) (string, error) {
		return "", dynamostore.Commit(ctx, "done", order("o-1"), order("o-2"))
	})
	var refused *dynamostore.ConditionError
	if !errors.As(err, &refused) || refused.Index != 1 || refused.Code != "ConditionalCheckFailed" || pkOf(refused.Item) != "o-2" {
		t.Fatalf("got %+v", err)
	}
	for _, want := range []error{dynamostore.ErrCondition, idempotent.ErrNotApplied} {
		if !errors.Is(err, want) {
			t.Errorf("it is not %v", want)
		}
	}
	if _, ok := errors.AsType[*types.TransactionCanceledException](err); !ok || !strings.Contains(err.Error(), "item 1 ") || errors.Is(err, idempotent.ErrStore) {
		t.Errorf("it says %q", err)
	}
	if fake.items["o-1"] != nil {
		t.Error("half of it was written")
	}

	for name, take := range map[string]func(pk string){
		"gone":           func(pk string) { delete(fake.items, pk) },
		"somebody's":     func(pk string) { fake.items[pk]["wid"], fake.items[pk]["own"] = aVersion(), aVersion() },
		"not to be read": func(pk string) { fake.items[pk]["wid"] = &types.AttributeValueMemberS{Value: "?"} },
	} {
		key := aKey()
		_, err := commits(t, fake, key, func(ctx context.Context) (string, error) {
			take(string(key.RecordID()))
			err := dynamostore.Commit(ctx, "done", order("o-1"), order("o-2"))
			if errors.Is(err, dynamostore.ErrCondition) {
				t.Errorf("%s: taken for a refused item", name)
			}
			return "", err
		})
		if want := map[bool]error{true: idempotent.ErrLeaseLost, false: idempotent.ErrStore}[name != "not to be read"]; !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	if fake.items["o-1"] != nil {
		t.Error("it was written without its record")
	}
}

func aVersion() types.AttributeValue {
	v := newVersion()
	return &types.AttributeValueMemberB{Value: v[:]}
}

func cancelled(codes ...string) error {
	e := &types.TransactionCanceledException{}
	for _, c := range codes {
		e.CancellationReasons = append(e.CancellationReasons, types.CancellationReason{Code: aws.String(c)})
	}
	return e
}

// What passes is waited for, as with a single item, with one and the same
// request; what does not pass ends it at once.
func TestTransact_Retries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		ends error // nil: it is tried again, and succeeds
	}{
		"a conflict of an item":         {cancelled("None", "TransactionConflict"), nil},
		"a conflict of the record":      {cancelled("TransactionConflict", "None"), nil},
		"throttled":                     {cancelled("None", "ThrottlingError"), nil},
		"out of throughput":             {cancelled("ProvisionedThroughputExceeded", "None"), nil},
		"no reasons":                    {cancelled(), nil},
		"reasons without a code":        {cancelled("", ""), nil},
		"the same request is under way": {&types.TransactionInProgressException{}, nil},
		"a conflict as an error":        {&types.TransactionConflictException{}, nil},
		"an item is too large":          {cancelled("None", "ValidationError"), dynamostore.ErrCondition},
		"the record is":                 {cancelled("ValidationError", "None"), idempotent.ErrNotApplied},
		"anything else":                 {validation("no"), idempotent.ErrStore},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.refuse = func(operation string, n int) error {
					if operation == "TransactWriteItems" && n < 3 {
						return c.err
					}
					return nil
				}
				v, err := commits(t, fake, aKey(), func(ctx context.Context) (string, error) {
					err := dynamostore.Commit(ctx, "done", order("o-1"))
					if c.ends != nil && fake.count("TransactWriteItems") != 1 {
						t.Errorf("%d calls, want one", fake.count("TransactWriteItems"))
					}
					return "done", err
				})
				switch {
				case c.ends == nil && (v != "done" || err != nil || fake.count("TransactWriteItems") != 3):
					t.Errorf("got %q, %v after %d calls", v, err, fake.count("TransactWriteItems"))
				case name == "the record is" && errors.Is(err, dynamostore.ErrCondition):
					t.Errorf("taken for an item: %v", err)
				case c.ends != nil && !errors.Is(err, c.ends):
					t.Errorf("got %v, want %v", err, c.ends)
				case c.ends == idempotent.ErrStore && !strings.Contains(err.Error(), "TransactWriteItems on table"):
					t.Errorf("the error does not say what failed: %v", err)
				}
			})
		})
	}
}

// A conflict that does not pass is told in the end, and leaves it open.
func TestTransact_GivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		fake.refuse = func(operation string, n int) error {
			if operation == "TransactWriteItems" {
				return cancelled("None", "TransactionConflict")
			}
			return nil
		}
		_, err := commits(t, fake, aKey(), func(ctx context.Context) (string, error) {
			return "", dynamostore.Commit(ctx, "done", order("o-1"))
		})
		if !errors.Is(err, idempotent.ErrStore) || !strings.Contains(err.Error(), "another writer was in the way at each of") || fake.count("TransactWriteItems") != 20 {
			t.Errorf("got %v after %d calls", err, fake.count("TransactWriteItems"))
		}
		_, err = commits(t, fake, aKey(), func(ctx context.Context) (string, error) {
			calls := fake.count("TransactWriteItems")
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			err := dynamostore.Commit(ctx, "done", order("o-1"))
			if fake.count("TransactWriteItems") != calls {
				t.Error("it was sent under a context that had ended")
			}
			return "", err
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// The limits are looked at before anything is sent.
func TestTransact_Limits(t *testing.T) {
	t.Parallel()
	many := func(n int, more ...string) (items []types.TransactWriteItem) {
		for range n {
			items = append(items, order(string(someRecord().ID), more...))
		}
		return items
	}
	big := &types.AttributeValueMemberS{Value: strings.Repeat("x", 4<<20)}
	key := item{"pk": big}
	for name, c := range map[string]struct {
		items []types.TransactWriteItem
		fits  bool
	}{
		"99 items":         {many(99), true},
		"100 items":        {many(100), false},
		"ten of 380 KB":    {many(10, "a"), true},
		"eleven of 380 KB": {many(11, "a"), false},
		"an update":        {[]types.TransactWriteItem{{Update: &types.Update{Key: item{"pk": aVersion()}, ExpressionAttributeValues: item{":v": big}}}}, false},
		"the key of one":   {[]types.TransactWriteItem{{Update: &types.Update{Key: key}}}, false},
		"a deletion":       {[]types.TransactWriteItem{{Delete: &types.Delete{Key: key}}}, false},
		"a check":          {[]types.TransactWriteItem{{ConditionCheck: &types.ConditionCheck{Key: key}}}, false},
	} {
		fake := newFake()
		_, err := commits(t, fake, aKey(), func(ctx context.Context) (string, error) {
			return "done", dynamostore.Commit(ctx, "done", c.items...)
		})
		switch {
		case c.fits && err != nil:
			t.Errorf("%s: %v", name, err)
		case !c.fits && (!errors.Is(err, idempotent.ErrNotApplied) || errors.Is(err, idempotent.ErrStore) || len(fake.transactions) != 0):
			t.Errorf("%s: got %v after %d requests", name, err, len(fake.transactions))
		}
	}
}

// Where there can be no transaction, nothing is applied.
func TestTransact_Elsewhere(t *testing.T) {
	t.Parallel()
	if err := dynamostore.Commit(t.Context(), "x"); !errors.Is(err, idempotent.ErrNotApplied) {
		t.Errorf("outside of a handler: %v", err)
	}
	if v, err := dynamostore.CommitStep(t.Context(), "order", "x"); !errors.Is(err, idempotent.ErrNotApplied) || v != "x" {
		t.Errorf("a step outside of a handler: %v, %v", v, err)
	}
	for name, store := range map[string]driver.Store{
		"another store":  struct{ driver.Store }{newStore(t, newFake())},
		"another client": newStore(t, struct{ dynamostore.Client }{newFake()}),
	} {
		g, err := idempotent.New(store)
		if err != nil {
			t.Fatal(err)
		}
		for what, commit := range map[string]func(context.Context) error{
			"Commit":     func(ctx context.Context) error { return dynamostore.Commit(ctx, "x") },
			"CommitStep": func(ctx context.Context) error { _, err := dynamostore.CommitStep(ctx, "order", "x"); return err },
		} {
			_, err = idempotent.Do(t.Context(), g, aKey(), func(ctx context.Context) (string, error) {
				err := commit(ctx)
				if !errors.Is(err, idempotent.ErrNotApplied) || !strings.Contains(err.Error(), "transaction wants") {
					t.Errorf("%s, %s: %v", name, what, err)
				}
				return "", idempotent.NotExecuted(err)
			})
			if !errors.Is(err, idempotent.ErrNotApplied) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
}

// wrapped is a store with one embedded, as tests and tools make them.
type wrapped struct{ *dynamostore.Store }

// A step and its items are one write, and a later run gets it back.
func TestCommitStep(t *testing.T) {
	t.Parallel()
	fake, key := newFake(), aKey()
	g, err := idempotent.New(wrapped{newStore(t, fake)}, func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, []string{"order"} })
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		_, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
			v, err := dynamostore.CommitStep(ctx, "order", "o-1", order("o-1"))
			if v != "o-1" || err != nil {
				t.Errorf("run %d: %q, %v", i, v, err)
			}
			if i == 0 {
				return "", errors.New("the receipt failed")
			}
			return v, nil
		})
		if (err == nil) != (i == 1) {
			t.Errorf("run %d: %v", i, err)
		}
	}
	if len(fake.transactions) != 1 || len(fake.transactions[0].TransactItems) != 2 {
		t.Errorf("%d transactions", len(fake.transactions))
	}
}
