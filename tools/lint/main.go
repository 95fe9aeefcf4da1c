// SPDX-License-Identifier: Apache-2.0

// Lint checks one package for [go vet -vettool]. The go command runs it, and
// caches the result.
//
// It holds the analyzers of go vet, staticcheck, exhaustive, errorlint, dupword and
// oncevet, and three others: imports, lll and ignores. The reasons are in
// docs/adr/0028-linters-and-oncevet.md.
//
// A finding that is right to stay has the comment
//
//	//lint:ignore NAME reason
//
// on its line or on the line above.
//
// [go vet -vettool]: https://pkg.go.dev/cmd/go#hdr-Report_likely_mistakes_in_packages
package main

import (
	"encoding/json"
	"os"
	"strings"

	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/unitchecker"
	"honnef.co/go/tools/analysis/facts/deprecated"
)

// root is the path of the modules that are linted.
const root = "github.com/once-lambda/once"

func main() {
	if dependency(os.Args[len(os.Args)-1]) {
		unitchecker.Main(printf.Analyzer, deprecated.Analyzer)
	}
	unitchecker.Main(suite()...)
}

// dependency reports whether a file configures a run over a package of another
// module. Of these only two facts are needed: what is deprecated, and what formats
// its arguments. To compute the others takes longer than to compile the package.
func dependency(file string) bool {
	if !strings.HasSuffix(file, ".cfg") {
		return false
	}
	var config unitchecker.Config
	data, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(data, &config) != nil {
		return false // unitchecker reports it
	}
	return config.VetxOnly && !within(config.ImportPath, root)
}

func within(pkg, tree string) bool { return pkg == tree || strings.HasPrefix(pkg, tree+"/") }
