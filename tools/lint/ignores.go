// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/token"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// directive is a comment //lint:ignore NAMES reason.
type directive struct {
	pos   token.Pos
	names []string
	used  bool
}

// directives are those of the package at work, by file and line.
var directives map[string]map[int]*directive

func directivesOf(pass *analysis.Pass) map[string]map[int]*directive {
	if directives != nil {
		return directives
	}
	directives = map[string]map[int]*directive{}
	for _, file := range pass.Files {
		lines := map[int]*directive{}
		for _, group := range file.Comments {
			for _, c := range group.List {
				if text, ok := strings.CutPrefix(c.Text, "//lint:ignore "); ok {
					at := pass.Fset.Position(c.Pos())
					names, reason, _ := strings.Cut(strings.TrimSpace(text), " ")
					if reason == "" {
						names = "" // it ignores nothing, and is reported
					}
					lines[at.Line] = &directive{pos: c.Pos(), names: strings.Split(names, ",")}
					directives[at.Filename] = lines
				}
			}
		}
	}
	return directives
}

// heedIgnores makes an analyzer name itself in its findings, and keep those for
// itself that a directive ignores.
func heedIgnores(a *analysis.Analyzer) {
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		report := pass.Report
		pass.Report = func(d analysis.Diagnostic) {
			at := pass.Fset.Position(d.Pos)
			lines := directivesOf(pass)[at.Filename]
			for _, on := range []*directive{lines[at.Line], lines[at.Line-1]} {
				if on != nil && slices.Contains(on.names, a.Name) {
					on.used = true
					return
				}
			}
			d.Message = a.Name + ": " + d.Message
			report(d)
		}
		return run(pass)
	}
}

// ignores reports directives without a reason, and those that match no finding
// of the other analyzers.
func ignores(others []*analysis.Analyzer) *analysis.Analyzer {
	return &analysis.Analyzer{
		Name:     "ignores",
		Doc:      "report directives that ignore nothing",
		Requires: others, // they run first
		Run: func(pass *analysis.Pass) (any, error) {
			for _, lines := range directivesOf(pass) {
				for _, d := range lines {
					if !d.used {
						pass.Reportf(d.pos, "ignores: want //lint:ignore NAME reason, and a finding that it matches")
					}
				}
			}
			return nil, nil
		},
	}
}
