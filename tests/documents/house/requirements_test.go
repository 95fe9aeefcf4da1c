// SPDX-License-Identifier: Apache-2.0

package house

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/kit/engine"
)

const requirementsPage = "docs/reports/requirements.md"

// requirement matches a row of the page: an id, and what it asks.
var requirement = regexp.MustCompile(`(?m)^\| (F\d\d|G\d\d|FM\d\d|INV-[1-9]\d?|HTTP-\d\d) \| (.+) \|$`)

// Every requirement of the page has a test, or links to a document with advice;
// and every id that a test names is on the page.
func TestEveryRequirementHasATest(t *testing.T) {
	t.Parallel()
	known, tests := requirements(t), shownBy(t)
	for id, asks := range known {
		advice := strings.HasPrefix(asks, "[") && strings.Contains(asks, "](../") && !strings.Contains(asks, "](../../")
		if len(tests[id]) == 0 && !advice {
			t.Errorf("%s (%s): no test names it", id, asks)
		}
	}
	for id, by := range tests {
		if known[id] == "" {
			t.Errorf("%s in %s names %s, which is not in %s", by[0].name, by[0].file, id, requirementsPage)
		}
	}
	if len(tests) < 150 {
		t.Errorf("tests name %d requirements; they were not parsed", len(tests))
	}
}

// requirements returns what each requirement of the page asks, by its id.
func requirements(t *testing.T) map[string]string {
	t.Helper()
	known := map[string]string{}
	for _, row := range requirement.FindAllStringSubmatch(read(t, requirementsPage), -1) {
		if known[row[1]] != "" {
			t.Errorf("%s has two rows for %s", requirementsPage, row[1])
		}
		known[row[1]] = row[2]
	}
	if len(known) < 150 {
		t.Errorf("%s has %d requirements; it was not parsed", requirementsPage, len(known))
	}
	return known
}

// withoutName separates the number from the rest of a test's name.
var withoutName = regexp.MustCompile(`\b(?:Test)?(FM\d\d|INV-?\d+)_`)

// Users do not meet the numbers: neither in pages, nor in the comments and texts
// of the code. The suites of idempotenttest name them in failures, for authors
// of stores, and the model in docs/model has an invariant for each.
func TestRequirementNumbersStayInTests(t *testing.T) {
	t.Parallel()
	pages := 0
	for _, name := range tracked(t, ".md", ".go") {
		var prose []passage
		switch {
		case strings.HasSuffix(name, "_test.go"), strings.HasPrefix(name, "idempotent/idempotenttest/"),
			strings.HasPrefix(name, "internal/invariant/"), strings.HasPrefix(name, "tests/"), strings.HasPrefix(name, "docs/model/"),
			name == requirementsPage:
			continue
		case strings.HasSuffix(name, ".go"):
			prose = proseOfGo(t, name)
		default:
			prose = []passage{{line: 1, text: read(t, name)}}
		}
		pages++
		for _, p := range prose {
			if found := inComment.FindString(withoutName.ReplaceAllString(p.text, "$1 ")); found != "" {
				t.Errorf("%s:%d: %s: say what it means instead", name, p.line, found)
			}
		}
	}
	if pages < 200 {
		t.Errorf("only %d files were found", pages)
	}
}

// unlisted are failure modes that docs/reports/failure-modes.md does not name a test of,
// each with the reason.
var unlisted = map[string]string{
	"FM04": "inside a claim: to the caller, its reply never arrives",
	"FM45": "inside a sweep: an outdated index changes nothing",
	"FM50": "advice without a test: the page links to the steps for a restore",
	"FM63": "inside the store: to the caller, evidence settled the record",
	"FM66": "inside a claim: the key is free, and is claimed",
}

// example matches a link to a test: its name without Test and without the
// requirement, and its file.
var example = regexp.MustCompile(`\[(\w+)\]\(\.\./\.\./(\S+\.go)\)`)

// numbered is what docs/reports/failure-modes.md omits from the name of a test.
var numbered = regexp.MustCompile(`^(Test|Fuzz)?((FM|INV|HTTP)\d+_?)?`)

// Each test that docs/reports/failure-modes.md names is in the linked file, and every
// failure mode has a test on the page or a reason why not.
func TestFailureModesAreOnThePage(t *testing.T) {
	t.Parallel()
	page, tests := read(t, "docs/reports/failure-modes.md"), shownBy(t)
	files := map[string][]string{} // by name, for the message
	for _, by := range tests {
		for _, s := range by {
			name := numbered.ReplaceAllString(s.name, "")
			if !slices.Contains(files[name], s.file) {
				files[name] = append(files[name], s.file)
			}
		}
	}
	named := map[string]bool{} // file and name
	for _, m := range example.FindAllStringSubmatch(page, -1) {
		file, err := os.ReadFile(filepath.Join(engine.Root(), m[2]))
		test := regexp.MustCompile(`(\bfunc Test|")((FM|INV|HTTP)\d+_?)?` + m[1] + `["(]`)
		if err != nil || !test.Match(file) {
			t.Errorf("%s has no test %s; tests of that name are in %q", m[2], m[1], files[m[1]])
		}
		named[path.Join(m[2], m[1])] = true
	}
	for id := range requirements(t) {
		if !strings.HasPrefix(id, "FM") {
			continue
		}
		listed := false
		for _, s := range tests[id] {
			listed = listed || named[path.Join(s.file, numbered.ReplaceAllString(s.name, ""))]
		}
		if listed == (unlisted[id] != "") {
			t.Errorf("%s: on docs/reports/failure-modes.md: %t; among the unlisted: %q", id, listed, unlisted[id])
		}
	}
	if len(named) < 60 {
		t.Errorf("docs/reports/failure-modes.md names %d tests; it was not parsed", len(named))
	}
}
