// SPDX-License-Identifier: Apache-2.0

// Package gclplugin registers oncevet as a module plugin of golangci-lint.
// docs/oncevet.md has the configuration.
package gclplugin

import (
	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis"

	"github.com/once-lambda/once/oncevet"
)

func init() {
	register.Plugin(oncevet.Analyzer.Name, func(any) (register.LinterPlugin, error) { return plugin{}, nil })
}

type plugin struct{}

// BuildAnalyzers implements [register.LinterPlugin].
func (plugin) BuildAnalyzers() ([]*analysis.Analyzer, error) {
	return []*analysis.Analyzer{oncevet.Analyzer}, nil
}

// GetLoadMode implements [register.LinterPlugin]. The checks need types.
func (plugin) GetLoadMode() string { return register.LoadModeTypesInfo }
