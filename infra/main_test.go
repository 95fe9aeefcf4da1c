package infra_test

import (
	"os"
	"testing"

	"github.com/once-lambda/once/infra/internal/node"
)

func TestMain(m *testing.M) {
	code := m.Run()
	node.End()
	os.Exit(code)
}
