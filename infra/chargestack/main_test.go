package chargestack_test

import (
	"testing"

	"github.com/once-lambda/once/infra/internal/node"
)

func TestMain(m *testing.M) { node.Run(m.Run) }
