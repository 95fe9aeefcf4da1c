// SPDX-License-Identifier: Apache-2.0

package order_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/examples/charge-lambda/order"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

func byKey(id string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: id}}
}

// services is a provider and a mailer. Both honour keys, and fail on request.
type services struct {
	charges map[string]charge.Charge
	mails   map[string]string
	before  error // fails before the effect
	after   error // fails after the effect
	forgets bool  // does not recognise earlier keys
}

func (b *services) Charge(_ context.Context, key string, _ idempotent.RecordID, r charge.Request) (charge.Charge, error) {
	if b.before != nil {
		return charge.Charge{}, b.before
	}
	if _, made := b.charges[key]; made && b.forgets {
		b.charges[key+" again"] = charge.Charge{ID: "ch_again"}
	} else if !made {
		b.charges[key] = charge.Charge{ID: "ch_" + string(rune('a'+len(b.charges))), Amount: r.Amount, Currency: r.Currency, Customer: r.Customer}
	}
	return b.charges[key], b.after
}

func (b *services) Find(_ context.Context, key string) (charge.Charge, error) {
	if b.before != nil {
		return charge.Charge{}, b.before
	}
	c, made := b.charges[key]
	if !made {
		return c, charge.ErrNoCharge
	}
	return c, nil
}

func (b *services) Mail(_ context.Context, key, id string) (string, error) {
	b.mails[key] = id
	return "rc_1", nil
}

// fixture is a shop with all its services.
type fixture struct {
	*order.Shop
	store    *dynamostore.Store
	tables   *dynamotest.DB
	services *services
	clock    *idempotenttest.Clock
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{
		tables: dynamotest.New("records", "orders", "outbox"), clock: &idempotenttest.Clock{},
		services: &services{charges: map[string]charge.Charge{}, mails: map[string]string{}},
	}
	store, err := dynamostore.New(w.tables, "records")
	if err != nil {
		t.Fatal(err)
	}
	guard, err := idempotent.New(store, func(o *idempotent.Options) {
		o.Now, o.Logger = w.clock.Now, slog.New(slog.NewTextHandler(io.Discard, nil))
	})
	if err != nil {
		t.Fatal(err)
	}
	w.store = store
	w.Shop = &order.Shop{Guard: guard, Client: w.tables, Provider: w.services, Mailer: w.services, Orders: "orders", Outbox: "outbox"}
	return w
}

func (w *fixture) send(t *testing.T, h order.Handler) (order.Confirmation, error) {
	t.Helper()
	return h(w.clock.Invocation(t.Context(), 10*time.Second),
		order.Request{Number: "o-1", Request: charge.Request{Amount: 4200, Currency: "usd", Customer: "cus_1"}})
}

func record(operation string) idempotent.RecordID {
	return idempotent.Key{Operation: operation, Scope: "cus_1", ID: "o-1"}.RecordID()
}

// has reports whether a table has an item of the order.
func (w *fixture) has(t *testing.T, table, operation string) bool {
	t.Helper()
	out, err := w.tables.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &table, Key: byKey(order.ID(record(operation)))})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item != nil
}

// resolve resolves an order as the reconciler does.
func (w *fixture) resolve(t *testing.T, operation string, resolver idempotent.ResolveFunc) error {
	t.Helper()
	r, err := w.store.Get(t.Context(), record(operation))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := resolver(t.Context(), w.Guard.Pending(*r))
	if err != nil {
		return err
	}
	return w.Guard.Resolve(t.Context(), r.ID, answer)
}

var errBroken = errors.New("the connection broke")
