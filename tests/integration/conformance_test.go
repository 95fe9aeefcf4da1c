package integration

import (
	"testing"

	"github.com/once-lambda/once/idempotent/idempotenttest"
)

func TestStore(t *testing.T) {
	for _, db := range []database{local, cloud} {
		t.Run(db.name, func(t *testing.T) { idempotenttest.RunStore(t, db.fixture()) })
	}
}

func TestFailureModes(t *testing.T) {
	for _, db := range []database{local, cloud} {
		t.Run(db.name, func(t *testing.T) { idempotenttest.RunFailureModes(t, db.fixture()) })
	}
}

// INV-1, INV-2, INV-3, INV-4, INV-5, INV-6, INV-8, INV-10, INV-12: on DynamoDB
// Local only. LocalStack runs the same engine behind another server.
func TestFailureModesUnderFaults(t *testing.T) {
	idempotenttest.RunFailureModesUnderFaults(t, local.fixture(), func(o *idempotenttest.FaultOptions) { o.Seeds = 4 })
}
