package dynamostore_test

import (
	"context"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// The suites on a DynamoDB in memory, which evaluates the conditions as they
// are sent. On real engines they run in tests/integration.

func fixture(t *testing.T) idempotenttest.Fixture {
	fake := newFake()
	open := func(t testing.TB) idempotent.Store { return newStore(t, fake) }
	return idempotenttest.Fixture{
		Open:   open,
		Reopen: func(t testing.TB, _ idempotent.Store) idempotent.Store { return open(t) },
		Remove: func(_ context.Context, _ idempotent.Store, id idempotent.RecordID) error {
			fake.mu.Lock()
			defer fake.mu.Unlock()
			delete(fake.items, string(id))
			return nil
		},
	}
}

func TestConformance(t *testing.T)  { idempotenttest.RunStore(t, fixture(t)) }
func TestFailureModes(t *testing.T) { idempotenttest.RunFailureModes(t, fixture(t)) }
