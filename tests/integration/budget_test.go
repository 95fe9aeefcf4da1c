package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// meter counts the calls of a store and the capacity that DynamoDB reports. A
// refused write reports none. It is billed as one write of the current item, by
// its size (Developer Guide, "Working with items and attributes"), and counted
// as that here.
type meter struct {
	dynamostore.Client
	t       *testing.T
	calls   int
	writes  float64 // write units of the table, refused ones included
	indexes float64 // write units of the index
}

func (m *meter) PutItem(ctx context.Context, in *dynamodb.PutItemInput, optFns ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	m.calls++
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityIndexes
	out, err := m.Client.PutItem(ctx, in, optFns...)
	if err != nil {
		var refused *types.ConditionalCheckFailedException
		if errors.As(err, &refused) {
			m.writes++
		}
		return out, err
	}
	used := out.ConsumedCapacity
	m.writes += *used.Table.CapacityUnits
	for _, index := range used.GlobalSecondaryIndexes {
		m.indexes += *index.CapacityUnits
	}
	return out, nil
}

func (m *meter) GetItem(ctx context.Context, in *dynamodb.GetItemInput, optFns ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	m.calls++
	m.t.Error("GetItem on the path of a request")
	return m.Client.GetItem(ctx, in, optFns...)
}

// The budget of the design, for records of at most 1 KB: calls, write units of
// the table, and additional write units of the index.
func TestBudget(t *testing.T) {
	t.Parallel()
	ok := func(context.Context) (string, error) { return "ch_1", nil }
	busy := func(context.Context) (string, error) { return "", idempotent.NotExecuted(errors.New("busy")) }
	fails := func(context.Context) (string, error) { return "", errors.New("no reply") }
	other := func(k *idempotent.Key) { k.Fingerprint = idempotent.FingerprintBytes([]byte("other")) }
	type budget struct {
		calls           int
		writes, indexes float64
	}
	for _, path := range []struct {
		name     string
		recovery idempotent.Recovery
		before   func(context.Context) (string, error) // the earlier request, if any
		crash    bool                                  // the earlier request never reported, and its lease ended
		change   func(*idempotent.Key)
		h        func(context.Context) (string, error)
		want     budget
	}{
		{name: "first request, Rerun", recovery: idempotent.Rerun, h: ok, want: budget{2, 2, 0}},
		{name: "first request, Reconcile", h: ok, want: budget{2, 2, 2}},
		{name: "replay, Rerun", recovery: idempotent.Rerun, before: ok, h: ok, want: budget{1, 1, 0}},
		{name: "replay, Reconcile", before: ok, h: ok, want: budget{1, 1, 0}},
		{name: "mismatch", before: ok, change: other, h: ok, want: budget{1, 1, 0}},
		{name: "unresolved", before: fails, h: ok, want: budget{1, 1, 0}},
		{name: "takeover of a retryable record, Rerun", recovery: idempotent.Rerun, before: busy, h: ok, want: budget{3, 3, 0}},
		{name: "takeover of a retryable record, Reconcile", before: busy, h: ok, want: budget{3, 3, 2}},
		{name: "takeover of an ended record, Rerun", recovery: idempotent.Rerun, crash: true, h: ok, want: budget{3, 3, 0}},
		{name: "ended lease marked unknown", crash: true, h: ok, want: budget{2, 2, 2}},
		{name: "first request that ends unknown, Reconcile", h: fails, want: budget{2, 2, 3}},
		{name: "first request that ends unknown, Rerun", recovery: idempotent.Rerun,
			h:    func(context.Context) (string, error) { return "", idempotent.Unknown(errors.New("no reply")) },
			want: budget{2, 2, 1}},
	} {
		t.Run(path.name, func(t *testing.T) {
			t.Parallel()
			clock := &idempotenttest.Clock{}
			key := newKey()
			send := func(s driver.Store, h func(context.Context) (string, error)) {
				t.Helper()
				g, err := idempotent.New(s, func(o *idempotent.Options) { o.Recovery, o.Now = path.recovery, clock.Now })
				if err != nil {
					t.Fatal(err)
				}
				idempotent.Do(clock.Invocation(t.Context(), 10*time.Second), g, key, h)
			}
			if path.before != nil {
				send(local.store(t), path.before)
			}
			if path.crash {
				send(local.storeOver(t, &crashing{Client: local.client()}), ok)
				clock.Advance(time.Minute)
			}
			if path.change != nil {
				path.change(&key)
			}
			m := &meter{Client: local.client(), t: t}
			send(local.storeOver(t, m), path.h)
			got := budget{m.calls, m.writes, m.indexes}
			t.Logf("%d calls, %v write units, %v on the index", got.calls, got.writes, got.indexes)
			if got != path.want {
				t.Errorf("got %+v, want %+v", got, path.want)
			}
		})
	}
}

// The in-progress path needs a request inside another.
func TestBudgetInProgress(t *testing.T) {
	t.Parallel()
	key := newKey()
	m := &meter{Client: local.client(), t: t}
	outer, err := idempotent.New(local.store(t))
	if err != nil {
		t.Fatal(err)
	}
	inner, err := idempotent.New(local.storeOver(t, m))
	if err != nil {
		t.Fatal(err)
	}
	_, err = idempotent.Do(t.Context(), outer, key, func(ctx context.Context) (int, error) {
		_, err := idempotent.Do(ctx, inner, key, func(context.Context) (int, error) { return 0, nil })
		if !errors.As(err, new(*idempotent.InProgressError)) {
			t.Errorf("got error %v, want InProgressError", err)
		}
		return 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if m.calls != 1 || m.writes != 1 || m.indexes != 0 {
		t.Errorf("%d calls, %v write units, %v on the index; want 1, 1, 0", m.calls, m.writes, m.indexes)
	}
}

// crashing lets the claim through, and no later call.
type crashing struct {
	dynamostore.Client
	calls int
}

func (c *crashing) PutItem(ctx context.Context, in *dynamodb.PutItemInput, optFns ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	if c.calls++; c.calls > 1 {
		return nil, idempotenttest.ErrInjected
	}
	return c.Client.PutItem(ctx, in, optFns...)
}
