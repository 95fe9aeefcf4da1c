// SPDX-License-Identifier: Apache-2.0

package first

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// Without the lists, each of which sends 64 queries: tests/engines/integration runs the
// whole suite on DynamoDB Local.
func TestStore(t *testing.T) {
	t.Parallel()
	open := func(t testing.TB) driver.Store {
		s := newStore(t)
		return struct {
			driver.Store
			driver.ChunkStore
		}{s, s}
	}
	idempotenttest.RunStore(t, idempotenttest.Fixture{Open: open, Reopen: func(t testing.TB, _ driver.Store) driver.Store { return open(t) }})
}

func newStore(t testing.TB) *dynamostore.Store {
	t.Helper()
	s, err := dynamostore.New(database, records)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A wrapped handler runs once for two events of an order, each with a new store and guard,
// and refuses an event that differs.
func TestWrap(t *testing.T) {
	t.Parallel()
	type order struct {
		ID     string
		Amount int
	}
	runs := 0
	handle := func(o order) (string, error) {
		g, err := idempotent.New(newStore(t))
		if err != nil {
			t.Fatal(err)
		}
		key := idempotent.KeyFrom("charge", func(o order) (scope, id string) { return "acme", o.ID })
		return idempotent.Wrap(g, key, func(context.Context, order) (string, error) {
			runs++
			return "ch_1", nil
		})(t.Context(), o)
	}
	id := rand.Text()
	for range 2 {
		if got, err := handle(order{id, 4200}); got != "ch_1" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if _, err := handle(order{id, 9000}); !errors.As(err, new(*idempotent.MismatchError)) {
		t.Errorf("got %v for another amount, want a refusal", err)
	}
	if runs != 1 {
		t.Errorf("the handler ran %d times, want once", runs)
	}
}
