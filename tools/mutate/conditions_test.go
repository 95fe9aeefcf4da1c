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
