// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/tests/documents/exports"
)

// A reader can read a package from top to bottom: the file with the package comment
// lists the files, and each file refers only to files below it.
func TestFilesReferDownward(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"idempotent", "idempotent/idempotenttest", "lambdahttp", "lambdabatch", "lambdadurable", "idempotencyclient", "dynamostore", "dynamostore/dynamotest", "boltstore", "infra", "cmd/once", "cmd/once/internal/console", "cmd/once/internal/operate"} {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			p := loadPackage(t, dir)
			documented := p.documented()
			if len(documented) != 1 {
				t.Fatalf("the files %v have a package comment, want one", documented)
			}
			listed := chapters(read(t, dir+"/"+documented[0]))
			if files := p.names(); !slices.Equal(slices.Sorted(slices.Values(listed)), files) {
				t.Errorf("%s lists the chapters %v; the files are %v", documented[0], listed, files)
			}
			references := p.references()
			for _, r := range references {
				if slices.Index(listed, r.from) > slices.Index(listed, r.to) {
					t.Errorf("%s: %s refers to %s in %s, which is above it", r.at, r.from, r.name, r.to)
				}
			}
			if len(references) < 10 {
				t.Errorf("only %d references were found", len(references))
			}
		})
	}
}

// Authors of handlers meet few names: package idempotent/driver has those of stores, and
// idempotent/event those of observers. A new name takes the place of another one.
func TestSurfaceOfHandlers(t *testing.T) {
	t.Parallel()
	for dir, most := range map[string]int{"idempotent": 74, "dynamostore": 18, "lambdahttp": 70, "lambdabatch": 36, "idempotent/idempotenttest": 22} {
		var exported []string
		for _, name := range loadPackage(t, dir).pkg.Scope().Names() {
			if token.IsExported(name) {
				exported = append(exported, name)
			}
		}
		if n := len(exported); n > most || n < most/2 {
			t.Errorf("package %s exports %d names, want at most %d: %v", dir, n, most, exported)
		}
	}
}

// chapters returns the files that the text of a file lists, in their order.
func chapters(text string) (files []string) {
	_, list, _ := strings.Cut(text, "// Chapters,")
	for _, line := range regexp.MustCompile(`(?m)^//\t(\S+\.go) `).FindAllStringSubmatch(list, -1) {
		files = append(files, line[1])
	}
	return files
}

// sources is a package with its types.
type sources struct {
	fset  *token.FileSet
	files []*ast.File
	pkg   *types.Package
	info  types.Info
}

var loaded sync.Map // by folder: of func() (*sources, error)

// loadPackage returns the package in dir, without its tests. Several tests share it.
func loadPackage(t *testing.T, dir string) *sources {
	t.Helper()
	load, _ := loaded.LoadOrStore(dir, sync.OnceValues(func() (*sources, error) { return newSources(filepath.Join(engine.Root(), dir)) }))
	s, err := load.(func() (*sources, error))()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newSources parses and checks a package. The types of its imports come from the
// compiler's export data.
func newSources(dir string) (*sources, error) {
	s := &sources{fset: token.NewFileSet(), info: types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}}
	list, imports, err := exports.List(s.fset, dir, ".")
	if err != nil {
		return nil, err
	}
	self := list[len(list)-1]
	for _, name := range self.GoFiles {
		file, err := parser.ParseFile(s.fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, file)
	}
	config := types.Config{Importer: imports}
	s.pkg, err = config.Check(self.ImportPath, s.fset, s.files, &s.info)
	return s, err
}

func (s *sources) fileOf(pos token.Pos) string { return filepath.Base(s.fset.Position(pos).Filename) }

// documented returns the files with a package comment.
func (s *sources) documented() (names []string) {
	for _, file := range s.files {
		if file.Doc != nil {
			names = append(names, s.fileOf(file.Pos()))
		}
	}
	return names
}

// names returns the files with code, sorted.
func (s *sources) names() (names []string) {
	for _, file := range s.files {
		if len(file.Decls) > 0 {
			names = append(names, s.fileOf(file.Pos()))
		}
	}
	slices.Sort(names)
	return names
}

// use is a mention of a name in another file than its declaration's.
type use struct{ from, to, name, at string }

func (s *sources) references() (list []use) {
	for id, object := range s.info.Uses {
		if object.Pkg() != s.pkg {
			continue
		}
		if from, to := s.fileOf(id.Pos()), s.fileOf(object.Pos()); from != to {
			list = append(list, use{from, to, object.Name(), fmt.Sprint(s.fset.Position(id.Pos()).Line)})
		}
	}
	return list
}

// docLink is a name in brackets, with or without its package.
var docLink = regexp.MustCompile(`(?:^|\W)\[\*?(?:([a-z]\w*)\.)?([A-Z]\w*)(?:\.([A-Z]\w*))?\]`)

// Every link in a comment leads to a name that exists. The documentation shows
// other links as plain text with brackets.
func TestDocLinks(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{
		"idempotent", "idempotent/driver", "idempotent/event", "idempotent/idempotenttest", "idempotent/memstore",
		"lambdahttp", "lambdahttp/policy", "lambdabatch", "lambdadurable", "idempotencyclient", "dynamostore", "dynamostore/dynamotest", "boltstore",
		"telemetry/emf", "telemetry/audit", "telemetry/otelonce", "oncevet", "infra", "examples/kmsseal", "examples/redisstore",
	} {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			p, seen := loadPackage(t, dir), 0
			for _, file := range p.files {
				for _, comment := range file.Comments {
					for _, link := range docLink.FindAllStringSubmatch(comment.Text(), -1) {
						seen++
						if !p.has(link[1], link[2], link[3]) {
							t.Errorf("%s: %s leads nowhere", p.fset.Position(comment.Pos()), strings.TrimSpace(link[0]))
						}
					}
				}
			}
			if seen == 0 {
				t.Error("no link was found")
			}
		})
	}
}

// has reports whether the package, or one that it imports, declares the name and
// its member.
func (s *sources) has(pkg, name, member string) bool {
	scope := s.pkg.Scope()
	if pkg != "" {
		scope = nil
		for _, imported := range s.pkg.Imports() {
			if imported.Name() == pkg && imported.Scope().Lookup(name) != nil { // two can have that name
				scope = imported.Scope()
			}
		}
	}
	if scope == nil || scope.Lookup(name) == nil {
		return false
	}
	found, _, _ := types.LookupFieldOrMethod(scope.Lookup(name).Type(), true, s.pkg, member)
	return member == "" || found != nil
}
