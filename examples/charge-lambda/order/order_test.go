// SPDX-License-Identifier: Apache-2.0

package order_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/examples/charge-lambda/order"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit"
)

func (w *fixture) wantDone(t *testing.T, operation string, h order.Handler) {
	t.Helper()
	first, err := w.send(t, h)
	if err != nil || first.Order != order.ID(record(operation)) || first.Charge != "ch_a" {
		t.Fatalf("got %+v, %v", first, err)
	}
	if again, err := w.send(t, h); err != nil || again != first {
		t.Errorf("a retry got %+v, %v", again, err)
	}
	if len(w.services.charges) != 1 || !w.has(t, "orders", operation) {
		t.Errorf("%d charges, and an order: %t", len(w.services.charges), w.has(t, "orders", operation))
	}
	if mailed, wanted := len(w.services.mails), w.has(t, "outbox", operation); mailed+map[bool]int{true: 1}[wanted] != 1 {
		t.Errorf("%d receipts mailed, and one to mail: %t", mailed, wanted)
	}
}

// A declined card is the outcome of both handlers, and nothing is written.
func TestDeclined(t *testing.T) {
	t.Parallel()
	for operation, handler := range map[string]func(*order.Shop) order.Handler{order.InSteps: (*order.Shop).InSteps, order.AtOnce: (*order.Shop).AtOnce} {
		w := newFixture(t)
		w.services.before = charge.ErrDeclined
		h := handler(w.Shop)
		for range 2 {
			var final *idempotent.FinalError
			if _, err := w.send(t, h); !errors.As(err, &final) || final.Code != "card_declined" {
				t.Errorf("%s: got %v", operation, err)
			}
			w.services.before = errBroken // the provider gets no second request
		}
		if w.has(t, "orders", operation) {
			t.Errorf("%s: there is an order", operation)
		}
	}
}

// If the provider got no request, the next one runs. Without an answer of the provider,
// the outcome is unknown until the resolver gets one. TestEveryCrash loses the others.
func TestResolve(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := w.AtOnce()
	w.services.before = charge.ErrNotSent
	if _, err := w.send(t, h); !errors.Is(err, charge.ErrNotSent) {
		t.Fatal(err)
	}
	w.services.before, w.services.after = nil, errBroken
	if _, err := w.send(t, h); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	w.clock.Advance(time.Minute)
	w.services.before, w.services.after = errBroken, nil
	if err := w.resolve(t, order.AtOnce, w.Resolve); !errors.Is(err, errBroken) {
		t.Errorf("without the provider: %v", err)
	}
	w.services.before = nil
	if err := w.resolve(t, order.AtOnce, w.Resolve); err != nil {
		t.Error(err)
	}
	w.wantDone(t, order.AtOnce, h)
}

// An attempt in steps died before the payment, so the resolver releases it. Another one
// died after the payment, before the step was recorded. The resolver records it: the
// next request uses that payment, although the provider has forgotten the key by now,
// and continues with the order.
func TestResolveSteps(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := w.InSteps()
	w.services.before = errBroken
	if _, err := w.send(t, h); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	w.services.before = nil
	w.clock.Advance(time.Minute)
	if err := w.resolve(t, order.InSteps, w.ResolveSteps); err != nil {
		t.Fatal(err)
	}
	if r, err := w.store.Get(t.Context(), record(order.InSteps)); err != nil || !r.Due.IsZero() || r.Expires.IsZero() {
		t.Errorf("it is due %s and expires %s, %v", r.Due, r.Expires, err)
	}
	w.services.after = errBroken
	if _, err := w.send(t, h); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	w.services.after = nil
	r, err := w.store.Get(t.Context(), record(order.InSteps))
	if err != nil || r.Due.IsZero() {
		t.Fatalf("the record is due %s, %v", r.Due, err)
	}
	w.clock.Advance(time.Minute)
	w.services.before = errBroken
	if err := w.resolve(t, order.InSteps, w.ResolveSteps); !errors.Is(err, errBroken) {
		t.Errorf("without the provider: %v", err)
	}
	w.services.before = nil
	for range 3 { // the payment; no effect after it; and the same again
		if err := w.resolve(t, order.InSteps, w.ResolveSteps); err != nil {
			t.Fatal(err)
		}
	}
	w.clock.Advance(48 * time.Hour)
	w.services.forgets = true
	w.wantDone(t, order.InSteps, h)
}

// The payment was made, but an order of another origin has its number: the resolver
// has no evidence, and only a person can decide what to do.
func TestForeignOrder(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	if _, err := w.tables.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &w.Orders, Item: byKey(order.ID(record(order.InSteps)))}); err != nil {
		t.Fatal(err)
	}
	h := w.InSteps()
	var unknown *idempotent.UnknownError
	if _, err := w.send(t, h); !errors.As(err, &unknown) {
		t.Errorf("got %v", err)
	}
	if _, err := w.send(t, h); !errors.As(err, new(*idempotent.UnresolvedError)) {
		t.Errorf("a retry got %v", err)
	}
	r, err := w.store.Get(t.Context(), record(order.InSteps))
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := w.ResolveSteps(t.Context(), w.Guard.Pending(*r)); err != nil || answer != idempotent.Later(0) {
		t.Errorf("the resolver returns %+v, %v", answer, err)
	}
}

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

func (b *services) Charge(_ context.Context, key string, r charge.Request) (charge.Charge, error) {
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
	w.Shop = &order.Shop{Guard: guard, Client: w.tables, Provider: w.services, Mail: w.services.Mail, Orders: "orders", Outbox: "outbox", Now: w.clock.Now}
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

// atPoints makes each call of a service a point.
type atPoints struct {
	*services
	w *idempotenttest.World
}

func (s atPoints) Charge(ctx context.Context, key string, r charge.Request) (c charge.Charge, err error) {
	err = s.w.Do(ctx, "charge", func() (err error) {
		c, err = s.services.Charge(ctx, key, r)
		return err
	})
	return c, err
}

func (s atPoints) Find(ctx context.Context, key string) (c charge.Charge, err error) {
	err = s.w.Do(ctx, "find a charge", func() (err error) {
		c, err = s.services.Find(ctx, key)
		return err
	})
	return c, err
}

func (s atPoints) Mail(ctx context.Context, key, id string) (receipt string, err error) {
	err = s.w.Do(ctx, "mail", func() (err error) {
		receipt, err = s.services.Mail(ctx, key, id)
		return err
	})
	return receipt, err
}

// F43: wherever the function is killed, and whatever is lost, the customer is charged once,
// there is one order, and one receipt is mailed, or is in the outbox.
func TestEveryCrash(t *testing.T) {
	for operation, of := range map[string]struct {
		handler  func(*order.Shop) order.Handler
		resolver func(*order.Shop) idempotent.ResolveFunc
	}{
		order.InSteps: {(*order.Shop).InSteps, func(s *order.Shop) idempotent.ResolveFunc { return s.ResolveSteps }},
		order.AtOnce:  {(*order.Shop).AtOnce, func(s *order.Shop) idempotent.ResolveFunc { return s.Resolve }},
	} {
		t.Run(operation, func(t *testing.T) {
			idempotenttest.Explore(t, func(w *idempotenttest.World) {
				db := dynamotest.In(w, "records", []string{"orders", "outbox"})
				b := &services{charges: map[string]charge.Charge{}, mails: map[string]string{}}
				shop := func(g *idempotent.Guard) *order.Shop {
					return &order.Shop{Guard: g, Client: db, Provider: atPoints{b, w}, Mail: atPoints{b, w}.Mail, Orders: "orders", Outbox: "outbox", Now: time.Now}
				}
				rows := func(table string) int {
					out, err := db.Scan(context.Background(), &dynamodb.ScanInput{TableName: aws.String(table)})
					if err != nil {
						panic(err)
					}
					return len(out.Items)
				}
				w.ExactlyOnce("charge", func() int { return len(b.charges) })
				w.ExactlyOnce("order", func() int { return rows("orders") })
				w.ExactlyOnce("receipt", func() int { return len(b.mails) + rows("outbox") })
				w.Reconciler(func(g *idempotent.Guard) func(context.Context) (idempotent.Report, error) {
					return idempotent.Reconciler(g, map[string]idempotent.ResolveFunc{operation: of.resolver(shop(g))})
				})
				idempotenttest.Handle(w, order.Request{Number: "o-1", Request: charge.Request{Amount: 4200, Currency: "usd", Customer: "cus_1"}},
					func(g *idempotent.Guard) order.Handler { return of.handler(shop(g)) })
			}, func(o *idempotenttest.ExploreOptions) { o.Schedules = kit.Short(1000, 200) })
		})
	}
}
