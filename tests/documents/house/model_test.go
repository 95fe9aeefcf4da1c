// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit/engine"
)

// notInModel are the verdicts that the protocol of one key, in one version of
// the code, does not need.
var notInModel = []string{
	"Incomparable", // a fingerprint of another version of the code
	"Unreadable",   // a state of another version of the code
	"Undeclared",   // a step of another version of the code; the model has one step
}

// outsideModel are the types of decide.go that the model leaves out.
var outsideModel = []string{
	"forgetVerdict", // an operator's permission to run again; the model is about what runs without one
}

// judgements maps the operators of the model to the types of decide.go.
var judgements = map[string]string{
	"verdict":        "Decide",
	"lateVerdict":    "DecideLate",
	"resolveVerdict": "DecideResolution",
	"correctVerdict": "DecideCorrection",
	"stepVerdict":    "DecideStep",
	"sweepVerdict":   "DecideSweep",
}

// definition returns the text of an operator of the model, up to the next one.
func definition(t *testing.T, spec, name string) string {
	t.Helper()
	start := regexp.MustCompile(`(?m)^` + name + `(\([^)]*\))? *==`).FindStringIndex(spec)
	if start == nil {
		t.Fatalf("docs/model/Once.tla does not define %s", name)
	}
	rest := spec[start[1]:]
	if end := regexp.MustCompile(`(?m)^[A-Za-z0-9_]+(\([^)]*\))? *==`).FindStringIndex(rest); end != nil {
		rest = rest[:end[0]]
	}
	return rest
}

// The model has exactly the verdicts of decide.go.
func TestModelHasTheVerdictsOfTheCode(t *testing.T) {
	t.Parallel()
	spec := read(t, "docs/model/Once.tla")
	verdicts := map[string][]string{} // by type
	for _, decl := range parse(t, "idempotent/decide.go").Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		kind := group.Specs[0].(*ast.ValueSpec).Type.(*ast.Ident).Name
		if !strings.HasSuffix(strings.ToLower(kind), "verdict") {
			continue
		}
		for _, s := range group.Specs {
			name := s.(*ast.ValueSpec).Names[0].Name
			verdicts[kind] = append(verdicts[kind], strings.TrimPrefix(name, strings.TrimSuffix(kind, "Verdict")))
		}
	}
	for kind := range verdicts {
		if judgements[kind] == "" && !slices.Contains(outsideModel, kind) {
			t.Errorf("decide.go has the type %s, which is not in the model", kind)
		}
	}
	quoted := regexp.MustCompile(`(?:->|THEN|ELSE) *"([A-Za-z]+)"`)
	for kind, operator := range judgements {
		var modelled []string
		for _, m := range quoted.FindAllStringSubmatch(definition(t, spec, operator), -1) {
			modelled = append(modelled, m[1])
		}
		if len(modelled) == 0 || len(verdicts[kind]) == 0 {
			t.Fatalf("%s has %d verdicts in the model and %d in decide.go", kind, len(modelled), len(verdicts[kind]))
		}
		for _, v := range verdicts[kind] {
			if !slices.Contains(modelled, v) && !slices.Contains(notInModel, v) {
				t.Errorf("%s: the code has %s, but %s of the model does not", kind, v, operator)
			}
		}
		for _, v := range modelled {
			if !slices.Contains(verdicts[kind], v) {
				t.Errorf("%s of the model has %s, but %s of the code does not", operator, v, kind)
			}
		}
	}
}

// The model has the states and the recoveries of the code.
func TestModelHasTheStatesOfTheCode(t *testing.T) {
	t.Parallel()
	spec := read(t, "docs/model/Once.tla")
	for s := driver.StateInProgress; !strings.HasPrefix(s.String(), "State("); s++ {
		if !strings.Contains(spec, s.Code()+" "+s.String()) {
			t.Errorf("the model does not map %s to %s", s.Code(), s)
		}
	}
	for r := idempotent.Recovery(0); !strings.HasPrefix(r.String(), "Recovery("); r++ {
		if name := strings.ToUpper(r.String()[:1]) + r.String()[1:]; !strings.Contains(spec, `"`+name+`"`) {
			t.Errorf("the recovery %s is not in the model", name)
		}
	}
}

var (
	actionRow = regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\| (.*?) \\|")
	reference = regexp.MustCompile("`([a-z_/]+\\.go)`: ((?:`[A-Za-z.]+`(?:, )?)+)")
	operator  = regexp.MustCompile(`\b[A-Z][A-Za-z]+\b`)
)

// The README of the model names the code for every action, and that code
// exists.
func TestModelNamesTheCode(t *testing.T) {
	t.Parallel()
	spec, readme := read(t, "docs/model/Once.tla"), read(t, "docs/model/README.md")
	_, table, found := strings.Cut(readme, "<!-- actions -->")
	table, _, closed := strings.Cut(table, "<!-- /actions -->")
	if !found || !closed {
		t.Fatal("docs/model/README.md has no table of actions")
	}
	rows := map[string]bool{}
	references := 0
	for _, row := range actionRow.FindAllStringSubmatch(table, -1) {
		rows[row[1]] = true
		definition(t, spec, row[1])
		for _, ref := range reference.FindAllStringSubmatch(row[2], -1) {
			file := ref[1]
			if !strings.HasPrefix(file, "internal/") {
				file = "idempotent/" + file
			}
			declared := declarations(parse(t, file))
			for name := range strings.SplitSeq(ref[2], ", ") {
				references++
				if !slices.Contains(declared, strings.Trim(name, "`")) {
					t.Errorf("the model's %s should be %s in %s, which does not exist", row[1], name, file)
				}
			}
		}
	}
	for _, name := range operator.FindAllString(definition(t, spec, "Next"), -1) {
		if defined := regexp.MustCompile(`(?m)^` + name + `(\([^)]*\))? *==`).MatchString(spec); defined && name != "Awaited" && !rows[name] {
			t.Errorf("docs/model/README.md does not name the code for %s", name)
		}
	}
	if len(rows) < 10 || references < 20 {
		t.Errorf("the table of actions has %d rows and %d references; it was not parsed", len(rows), references)
	}
}

func parse(t *testing.T, name string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(engine.Root(), name), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// declarations returns the functions of a file, methods as Type.name, and its
// types.
func declarations(file *ast.File) []string {
	var names []string
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				receiver := d.Recv.List[0].Type
				if pointer, ok := receiver.(*ast.StarExpr); ok {
					receiver = pointer.X
				}
				if generic, ok := receiver.(*ast.IndexExpr); ok {
					receiver = generic.X
				}
				name = receiver.(*ast.Ident).Name + "." + name
			}
			names = append(names, name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					names = append(names, s.Name.Name)
				}
			}
		}
	}
	return names
}
