// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

const sample = `package p

func f(a, b int, on bool, t T) bool {
	if a < b && !on {
		a = b
		go1()
		list[b].go2(a)
	}
	switch a {
	case 1, 2:
		a++
	default:
		return t.Before(u)
	}
	return a != b
}
`

// broken returns the mutants of a source's first function: the description and
// the changed text of each.
func broken(t *testing.T, src string) map[string]string {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "f.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, m := range breakFunction(fset, []byte(src), file.Decls[0].(*ast.FuncDecl)) {
		text := apply(src, []edit{m.edit})
		if _, err := parser.ParseFile(token.NewFileSet(), "m.go", text, 0); err != nil {
			t.Errorf("%s: %v\n%s", m.what, err, text)
		}
		out[m.what] = text
	}
	return out
}

func TestOperators(t *testing.T) {
	t.Parallel()
	got := broken(t, sample)
	for what, want := range map[string]string{
		"a < b && !on is always true":         "if (a < b && !on) || true {",
		"a < b && !on is never true":          "if (a < b && !on) && false {",
		"a < b && !on loses && !on":           "if (a < b) || (false && (!on)) {",
		"a < b && !on loses a < b &&":         "if (!on) || (false && (a < b)) {",
		"a < b has <=":                        "if a <= b && !on {",
		"a < b is negated":                    "if !(a < b) && !on {",
		"!on is not negated":                  "if a < b && on {",
		"a is not set to b":                   "*onceNowhere(a) = b",
		"go1() is not called":                 "func(...any) {}()",
		"list[b].go2(a) is not called":        "func(...any) {}(list[b], a)",
		"case 1 is gone":                      "case 2:",
		"case 2 is gone":                      "case 1:",
		"a++ is gone":                         "case 1, 2:\n\t\t_ = a\n",
		"the default clause is gone":          `default: panic("no clause")`,
		"t.Before(u) includes the equal time": "return !t.After(u)",
		"t.Before(u) is never true":           "return (t.Before(u)) && false",
		"a != b is negated":                   "return !(a != b)",
	} {
		if !strings.Contains(got[what], want) {
			t.Errorf("%q gives\n%s\nwant %q in it", what, got[what], want)
		}
		delete(got, what)
	}
	for _, what := range []string{"a != b is always true", "a != b is never true", "t.Before(u) is always true", "t.Before(u) is negated"} {
		delete(got, what)
	}
	for what := range got {
		t.Errorf("%q was not expected", what)
	}
}

// A clause without statements is a mutant only if a default clause would run in
// its place.
func TestEmptyClauses(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		clauses string
		want    bool
	}{
		"no default":            {"case 1: b++\n case 2, 3:\n", false},
		"an empty default":      {"case 1: b++\n case 2, 3:\n default:\n", false},
		"a default that writes": {"case 1: b++\n case 2, 3:\n default: b--\n", true},
	} {
		got := broken(t, "package p\n\nfunc f(a, b int) {\n switch a {\n "+row.clauses+" }\n}\n")
		if _, mutant := got["case 2 is gone"]; mutant != row.want {
			t.Errorf("%s: case 2 is a mutant: %t, want %t", name, mutant, row.want)
		}
		if _, mutant := got["case 1 is gone"]; !mutant {
			t.Errorf("%s: case 1 is no mutant", name)
		}
	}
}

// Without its fallthrough, a function must still compile that ends in a switch.
func TestFallthrough(t *testing.T) {
	t.Parallel()
	for otherwise, want := range map[string]string{
		"default: return 2": "case 1:\n\tpanic(\"no fallthrough\")\n",
		"default: b++":      "case 1:\n\t\n",
		"case 2: return 2":  "case 1:\n\t\n",
	} {
		got := broken(t, "package p\n\nfunc f(a, b int) int {\n switch a {\n case 1:\n\tfallthrough\n "+otherwise+"\n }\n return b\n}\n")
		if text := got["fallthrough is gone"]; !strings.Contains(text, want) {
			t.Errorf("before %s: got\n%s\nwant %q in it", otherwise, text, want)
		}
	}
}

func TestConditions(t *testing.T) {
	t.Parallel()
	texts, what, err := breakCondition("attribute_not_exists(pk) OR exp <= :now")
	if err != nil {
		t.Fatal(err)
	}
	for i, words := range what {
		if !strings.Contains(texts[i], ":now") {
			t.Errorf("%s: %s has lost its placeholder", words, texts[i])
		}
	}
	for _, want := range []string{"the condition is gone", "attribute_not_exists(pk) is gone", "exp <= :now is gone", "<= becomes <"} {
		if !slices.Contains(what, want) {
			t.Errorf("no mutant %q among %q", want, what)
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "c.go", `package p
const key, op = "pk", " = "
const someCondition = key + op + ":was"
const notText = 1 + 2
`, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := constants([]*ast.File{file})
	if got["someCondition"] != "pk = :was" || len(got) != 3 {
		t.Errorf("got %q", got)
	}
}

// A condition that the tool cannot break is an error.
func TestConditionsThatAreNotRead(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{"a = :a OR b = :b AND c = :c", "NOT a = :a", "a BETWEEN :b AND :c"} {
		if _, _, err := breakCondition(expr); err == nil {
			t.Errorf("%q was accepted", expr)
		}
	}
	for text, want := range map[string]bool{
		`const putCondition = "wid = :was"`:                       false,
		`const put = "wid = :was"`:                                true,
		`func f() { g("exp<:now") }`:                              true,
		`func f() { g("attribute_exists(" + pk + ")") }`:          true,
		`func f() { g(":now", "a: b", "see https://x", a <= b) }`: false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "c.go", "package p\n"+text, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := stray(file) != token.NoPos; got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}
