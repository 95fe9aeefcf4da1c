// SPDX-License-Identifier: Apache-2.0

package frozen

import (
	"fmt"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/telemetry"
	"github.com/once-lambda/once/tests/documents/exports"
)

const project = "github.com/once-lambda/once/"

// The exported names of each module are those in its file, with their types, and with
// the values of constants: the words of events, metrics and settings are among them.
func TestAPI(t *testing.T) {
	t.Parallel()
	for file, dir := range map[string]string{
		"once": ".", "boltstore": "boltstore", "idempotencyclient": "idempotencyclient", "lambdadurable": "lambdadurable",
		"oncevet": "oncevet", "otelonce": "telemetry/otelonce", "infra": "infra",
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			compare(t, filepath.Join("api", file+".txt"), exported(t, dir))
		})
	}
}

// The metrics have their names. Dashboards and alarms of users contain them.
func TestMetrics(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for _, m := range telemetry.Metrics() {
		fmt.Fprintln(&text, m.Name)
	}
	compare(t, "metrics.txt", text.String())
}

// compare compares got with a file, line by line.
func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || len(want) == 0 {
		t.Fatalf("%s has %d bytes, %v", file, len(want), err)
	}
	lines := func(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }
	for _, line := range lines(string(want)) {
		if !slices.Contains(lines(got), line) {
			t.Errorf("%s: this is gone or has changed: %s", file, line)
		}
	}
	for _, line := range lines(got) {
		if !slices.Contains(lines(string(want)), line) {
			t.Errorf("%s: this is new: %s", file, line)
		}
	}
}

// exported returns a line for each exported name in the packages of a module.
func exported(t *testing.T, dir string) string {
	t.Helper()
	dir = filepath.Join(engine.Root(), dir)
	list, imports, err := exports.List(token.NewFileSet(), dir, "./...")
	if err != nil {
		t.Fatal(err)
	}
	var own []string
	for _, p := range list {
		if p.Module.Dir == dir && !strings.Contains(p.ImportPath, "/internal/") {
			own = append(own, p.ImportPath)
		}
	}
	var text strings.Builder
	for _, path := range slices.Sorted(slices.Values(own)) {
		p, err := imports.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		if p.Name() != "main" {
			describe(&text, p)
		}
	}
	return text.String()
}

// describe writes the exported names of a package.
func describe(w io.Writer, p *types.Package) {
	pkg := strings.TrimPrefix(p.Path(), project)
	short := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return other.Name()
	}
	for _, name := range p.Scope().Names() {
		if !token.IsExported(name) {
			continue
		}
		switch object := p.Scope().Lookup(name).(type) {
		case *types.Const:
			fmt.Fprintf(w, "%s: const %s %s = %s\n", pkg, name, types.TypeString(object.Type(), short), object.Val().ExactString())
		case *types.TypeName:
			fmt.Fprintf(w, "%s: type %s\n", pkg, declaration(object, short))
			describeType(w, pkg, object, short)
		default:
			fmt.Fprintf(w, "%s: %s\n", pkg, types.ObjectString(object, short))
		}
	}
}

// declaration returns a type without its fields, which have their own lines.
func declaration(object *types.TypeName, short types.Qualifier) string {
	text := types.ObjectString(object, short)
	if at := strings.Index(text, "struct{"); at >= 0 && !object.IsAlias() {
		text = text[:at] + "struct"
	}
	return strings.TrimPrefix(text, "type ")
}

// describeType writes the exported fields of a struct, and the exported methods of
// a type.
func describeType(w io.Writer, pkg string, object *types.TypeName, short types.Qualifier) {
	if object.IsAlias() {
		return
	}
	if s, ok := object.Type().Underlying().(*types.Struct); ok {
		for field := range s.Fields() {
			if field.Exported() {
				fmt.Fprintf(w, "%s: %s.%s %s\n", pkg, object.Name(), field.Name(), types.TypeString(field.Type(), short))
			}
		}
	}
	if types.IsInterface(object.Type()) {
		return // its line has the methods
	}
	methods := types.NewMethodSet(types.NewPointer(object.Type()))
	for selection := range methods.Methods() {
		if method := selection.Obj(); method.Exported() {
			receiver := "*"
			if types.NewMethodSet(object.Type()).Lookup(method.Pkg(), method.Name()) != nil {
				receiver = ""
			}
			fmt.Fprintf(w, "%s: (%s%s) %s%s\n", pkg, receiver, object.Name(), method.Name(), strings.TrimPrefix(types.TypeString(method.Type(), short), "func"))
		}
	}
}
