package idempotent_test

import (
	"testing"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

func TestFailureModes(t *testing.T) {
	idempotenttest.RunFailureModes(t, idempotenttest.Fixture{
		Open: func(testing.TB) driver.Store { return memstore.New() },
	})
}

// The same over a store that stores large results beside their records.
func TestFailureModesWithChunks(t *testing.T) {
	idempotenttest.RunFailureModes(t, idempotenttest.Fixture{
		Open: func(testing.TB) driver.Store { return newChunked() },
	})
}
