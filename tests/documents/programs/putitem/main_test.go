// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// bank is a payment provider that knows no keys: each request is a charge.
type bank struct{ charges int }

func (b *bank) count() int { return b.charges }

func (b *bank) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	b.charges++
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"charge":"ch_%d"}`, b.charges)
}

// fixture is an old table in use, and both versions of the function.
type fixture struct {
	t            *testing.T
	bank         *bank
	db           *dynamotest.DB
	clock        idempotenttest.Clock // of the guard
	store        *dynamostore.Store
	guard        *idempotent.Guard
	old, guarded func(context.Context, order) (receipt, error)
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, bank: &bank{}, db: dynamotest.New("once", "orders")}
	server := httptest.NewServer(f.bank)
	t.Cleanup(server.Close)
	t.Setenv("PROVIDER_URL", server.URL)
	var err error
	if f.store, err = dynamostore.New(f.db, "once"); err != nil {
		t.Fatal(err)
	}
	if f.guard, err = idempotent.New(f.store, func(o *idempotent.Options) { o.Now = f.clock.Now }); err != nil {
		t.Fatal(err)
	}
	f.old, f.guarded = before(f.db, "orders"), after(f.guard, f.db, "orders")
	return f
}

// put writes the item of an order that the old function began so long ago, and what more
// the item has.
func (f *fixture) put(age time.Duration, more ...string) {
	f.t.Helper()
	started := time.Now().Add(-age)
	item := map[string]types.AttributeValue{"pk": text("o-1"), "started": seconds(started), "expires": seconds(started.Add(24 * time.Hour))}
	for i := 0; i < len(more); i += 2 {
		item[more[i]] = text(more[i+1])
	}
	if _, err := f.db.PutItem(f.t.Context(), &dynamodb.PutItemInput{TableName: aws.String("orders"), Item: item}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) delete() {
	f.t.Helper()
	if _, err := f.db.DeleteItem(f.t.Context(), &dynamodb.DeleteItemInput{TableName: aws.String("orders"), Key: map[string]types.AttributeValue{"pk": text("o-1")}}); err != nil {
		f.t.Fatal(err)
	}
}

var order1 = order{ID: "o-1", Amount: 4200}

// wants sends the order, and checks the answer and how many charges there are then.
func (f *fixture) wants(to func(context.Context, order) (receipt, error), want string, charges int) {
	f.t.Helper()
	r, err := to(f.t.Context(), order1)
	got := r.Charge
	switch {
	case errors.As(err, new(*idempotent.InProgressError)), errors.Is(err, errInProgress):
		got = "in progress"
	case errors.As(err, new(*idempotent.UnresolvedError)):
		got = "unknown"
	case err != nil:
		got = err.Error()
	}
	if got != want || f.bank.count() != charges {
		f.t.Errorf("got %q and %d charges, want %q and %d", got, f.bank.count(), want, charges)
	}
}

// What is in the old table, and what a request gets from the new function, and then from
// the old one. No order is charged twice.
func TestOldItems(t *testing.T) {
	for name, row := range map[string]struct {
		age      time.Duration
		item     []string // what more it has; nil: there is no item
		new, old string
		charges  int
	}{
		"no item":                   {0, nil, "ch_1", "in progress", 1},
		"done":                      {time.Hour, []string{"charge", "ch_old"}, "ch_old", "ch_old", 0},
		"done, expired":             {25 * time.Hour, []string{"charge", "ch_old"}, "ch_1", "in progress", 1},
		"running":                   {time.Second, []string{}, "in progress", "in progress", 0},
		"at its time-out":           {30 * time.Second, []string{}, "in progress", "in progress", 0},
		"half done":                 {time.Minute, []string{}, "unknown", "in progress", 0},
		"half done, expired":        {25 * time.Hour, []string{}, "unknown", "ch_1", 1}, // as it always did
		"of an earlier new attempt": {time.Hour, []string{"once", string(orderID)}, "ch_1", "in progress", 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if row.item != nil {
				f.put(row.age, row.item...)
			}
			before := row.charges
			if row.old == "ch_1" {
				before = 0
			}
			for range 2 {
				f.wants(f.guarded, row.new, before)
			}
			for range 2 {
				f.wants(f.old, row.old, row.charges)
			}
			f.wants(f.guarded, row.new, row.charges)
		})
	}
}

// orderID is the id of the record of order1.
var orderID = idempotent.Key{Operation: "charge", Scope: idempotent.Global, ID: "o-1"}.RecordID()

// An order that the old function left half done is settled by evidence. If nothing was
// charged, its item is deleted too.
func TestHalfDone(t *testing.T) {
	t.Run("charged", func(t *testing.T) {
		f := newFixture(t)
		f.put(time.Minute)
		f.wants(f.guarded, "unknown", 0)
		f.settle(func(string) idempotent.Resolution { return idempotent.Resolved(receipt{Charge: "ch_old"}) })
		f.wants(f.guarded, "ch_old", 0)
	})
	t.Run("not charged", func(t *testing.T) {
		f := newFixture(t)
		f.put(time.Minute)
		f.wants(f.guarded, "unknown", 0)
		f.settle(idempotent.ProvenNotExecuted)
		f.wants(f.guarded, "unknown", 0) // its item is still there
		f.delete()
		f.settle(idempotent.ProvenNotExecuted)
		f.wants(f.guarded, "ch_1", 1)
		f.wants(f.old, "in progress", 1)
	})
}

// settle gives evidence about the current attempt of a record, after its lease.
func (f *fixture) settle(evidence func(token string) idempotent.Resolution) {
	f.t.Helper()
	f.clock.Advance(time.Hour)
	record, err := f.store.Get(f.t.Context(), orderID)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.guard.Resolve(f.t.Context(), orderID, evidence(record.Token())); err != nil {
		f.t.Fatal(err)
	}
}

// Wherever the new function is killed, and whatever is lost, an order is charged at most
// once.
func TestEveryCrash(t *testing.T) {
	t.Setenv("PROVIDER_URL", "http://bank.test/charges")
	idempotenttest.Explore(t, func(w *idempotenttest.World) {
		b := &bank{}
		w.Provider(b)
		w.AtMostOnce("charge", b.count)
		db := dynamotest.In(w, "once", []string{"orders"})
		idempotenttest.Handle(w, order1, func(guard *idempotent.Guard) func(context.Context, order) (receipt, error) {
			return after(guard, db, "orders")
		})
	})
}

// While both versions are deployed, requests for an order reach them in any order, also
// at the same time.
func TestEveryDeployment(t *testing.T) {
	t.Setenv("PROVIDER_URL", "http://bank.test/charges")
	for name, isOld := range map[string]func(n int) bool{
		"old, then new": func(n int) bool { return n == 1 },
		"new, then old": func(n int) bool { return n > 1 },
		"old and new":   func(n int) bool { return n%2 == 1 },
		"new and old":   func(n int) bool { return n%2 == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			idempotenttest.Explore(t, func(w *idempotenttest.World) {
				b, n := &bank{}, 0
				w.Provider(b)
				w.AtMostOnce("charge", b.count)
				db := dynamotest.In(w, "once", []string{"orders"})
				idempotenttest.Handle(w, order1, func(guard *idempotent.Guard) func(context.Context, order) (receipt, error) {
					old, guarded := before(db, "orders"), after(guard, db, "orders")
					return func(ctx context.Context, o order) (receipt, error) {
						if n++; isOld(n) {
							ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // its clients give up then
							defer cancel()
							return old(ctx, o)
						}
						return guarded(ctx, o)
					}
				})
			})
		})
	}
}
