// SPDX-License-Identifier: Apache-2.0

package gclplugin

import (
	"testing"

	"github.com/golangci/plugin-module-register/register"
)

// golangci-lint finds the plugin by the name in docs/oncevet.md, and gets the analyzer.
func TestPlugin(t *testing.T) {
	t.Parallel()
	create, err := register.GetPlugin("oncevet")
	if err != nil {
		t.Fatal(err)
	}
	linter, err := create(nil)
	if err != nil {
		t.Fatal(err)
	}
	analyzers, err := linter.BuildAnalyzers()
	if err != nil || len(analyzers) != 1 || analyzers[0].Name != "oncevet" || linter.GetLoadMode() != register.LoadModeTypesInfo {
		t.Errorf("got %v, %v, %s", analyzers, err, linter.GetLoadMode())
	}
}
