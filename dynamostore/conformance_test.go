package dynamostore_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// The suites with a DynamoDB in memory, which evaluates the conditions as they are
// sent. They run with real engines in tests/integration.

func fixture(t *testing.T) idempotenttest.Fixture {
	fake := newFake()
	open := func(t testing.TB) driver.Store { return newStore(t, fake) }
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

func TestConformance(t *testing.T) { idempotenttest.RunStore(t, fixture(t)) }

// Without the index the lists come from a scan.
func TestConformance_WithoutIndex(t *testing.T) {
	t.Parallel()
	f := fixture(t)
	open := f.Open
	f.Open = func(t testing.TB) driver.Store { return open(t).(*dynamostore.Store).WithoutIndex() }
	f.Reopen = func(t testing.TB, _ driver.Store) driver.Store { return f.Open(t) }
	idempotenttest.RunStore(t, f)
}

func TestFailureModes(t *testing.T) { idempotenttest.RunFailureModes(t, fixture(t)) }
