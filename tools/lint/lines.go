// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/token"
	"strings"
	"unicode/utf8"

	"golang.org/x/tools/go/analysis"
)

const (
	longest  = 160 // columns
	tabWidth = 4
)

// lll reports long lines. Texts do not count: a message is found by searching for
// it, so it is not broken into two literals. Tests have tables.
var lll = &analysis.Analyzer{
	Name: "lll",
	Doc:  "report lines that are too long",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, file := range pass.Files {
			in := pass.Fset.File(file.FileStart)
			if strings.HasSuffix(in.Name(), "_test.go") {
				continue
			}
			source, err := pass.ReadFile(in.Name())
			if err != nil {
				return nil, err
			}
			code := withoutTexts(in, file, source)
			for i, line := range strings.Split(code, "\n") {
				columns := utf8.RuneCountInString(line) + (tabWidth-1)*strings.Count(line, "\t")
				if columns > longest {
					pass.Reportf(in.LineStart(i+1), "a line of %d columns without its texts, want %d at most", columns, longest)
				}
			}
		}
		return nil, nil
	},
}

// withoutTexts returns the source without the contents of its string literals;
// their line ends remain.
func withoutTexts(in *token.File, file *ast.File, source []byte) string {
	var b strings.Builder
	at := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
			from, to := in.Offset(text.Pos()), in.Offset(text.End())
			if from >= at { // Inspect follows the source
				b.Write(source[at:from])
				b.WriteString(strings.Repeat("\n", strings.Count(string(source[from:to]), "\n")))
				at = to
			}
		}
		return true
	})
	b.Write(source[at:])
	return b.String()
}

// position finds a position of another file set by its file and line.
func position(pass *analysis.Pass, at token.Position) token.Pos {
	for _, file := range pass.Files {
		if in := pass.Fset.File(file.FileStart); in.Name() == at.Filename {
			return in.LineStart(at.Line) + token.Pos(at.Column-1)
		}
	}
	return token.NoPos
}
