// SPDX-License-Identifier: Apache-2.0

package order_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/examples/charge-lambda/order"
	"github.com/once-lambda/once/idempotent"
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

// If the provider got no request, the next one runs. TestEveryCrash loses requests and
// replies of the provider and of the table.
func TestNotSent(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	h := w.AtOnce()
	w.services.before = charge.ErrNotSent
	if _, err := w.send(t, h); !errors.Is(err, charge.ErrNotSent) {
		t.Fatal(err)
	}
	w.services.before = nil
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
