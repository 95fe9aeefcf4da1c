package house

import (
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/doctest"
	"github.com/once-lambda/once/tests/engine"
)

var update = flag.Bool("update", false, "write the generated parts of the documents")

const requirementsPage = "docs/requirements.md"

// families are the tables of the page, by the name in their markers.
var families = []struct {
	name string
	ids  *regexp.Regexp
}{
	{"features", regexp.MustCompile(`^F\d\d$`)},
	{"beyond", regexp.MustCompile(`^G\d\d$`)},
	{"invariants", regexp.MustCompile(`^INV-[1-9]\d?$`)},
	{"failure-modes", regexp.MustCompile(`^FM\d\d$`)},
	{"http", regexp.MustCompile(`^HTTP-\d\d$`)},
}

// Every requirement of the page is covered by a test, or by a document that the
// page links to; every id that a test names is on the page; and the page lists
// the tests of each requirement.
func TestEveryRequirementIsShown(t *testing.T) {
	t.Parallel()
	page, tests := read(t, requirementsPage), shownBy(t)
	known := map[string]bool{}
	for _, family := range families {
		const head = "| id | what it asks | shown by |\n| --- | --- | --- |\n"
		_, rest, _ := strings.Cut(page, "<!-- "+family.name+" -->\n"+head)
		rows, _, ok := strings.Cut(rest, "<!-- /"+family.name+" -->\n")
		if !ok {
			t.Fatalf("%s has no table %s", requirementsPage, family.name)
		}
		table := head
		for row := range strings.Lines(rows) {
			cells := strings.Split(strings.TrimSpace(row), "|")
			if len(cells) != 5 {
				t.Fatalf("a row needs three cells: %s", row)
			}
			id, asks, by := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])
			if known[id] || !family.ids.MatchString(id) || asks == "" {
				t.Errorf("%s is there twice, in the wrong table, or has no text: %s", id, row)
			}
			known[id] = true
			switch {
			case len(tests[id]) > 0:
				by = links(tests[id])
			case !document.MatchString(by):
				t.Errorf("%s (%s): no test names it", id, asks)
			case !leads(t, by):
				t.Errorf("%s (%s): %s links to no heading", id, asks, by)
			}
			table += fmt.Sprintf("| %s | %s | %s |\n", id, asks, by)
		}
		doctest.Part(t, filepath.Join(engine.Root(), requirementsPage), family.name, table, *update)
	}
	for id, by := range tests {
		if !known[id] {
			t.Errorf("%s in %s names %s, which is not in %s", by[0].name, by[0].file, id, requirementsPage)
		}
	}
	if len(known) < 150 || len(tests) < 150 {
		t.Errorf("%d requirements, and %d that tests name; they were not parsed", len(known), len(tests))
	}
}

// links names three tests, from different packages if possible, and the number
// of further tests.
func links(tests []shown) string {
	const most = 3
	var chosen []shown
	for round := 0; len(chosen) < min(most, len(tests)); round++ {
		of := map[string]int{} // how many tests of a package were passed
		for _, s := range tests {
			if of[s.dir] == round && len(chosen) < most {
				chosen = append(chosen, s)
			}
			of[s.dir]++
		}
	}
	slices.SortStableFunc(chosen, func(a, b shown) int { return strings.Compare(a.dir, b.dir) })
	var b strings.Builder
	for i, s := range chosen {
		switch {
		case i == 0:
			b.WriteString(s.dir + ": ")
		case chosen[i-1].dir != s.dir:
			b.WriteString("; " + s.dir + ": ")
		default:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "[%s](../%s)", s.name, s.file)
	}
	if more := len(tests) - len(chosen); more > 0 {
		fmt.Fprintf(&b, "; and %d more", more)
	}
	return b.String()
}

// document matches the last cell of a row that refers to a part of a document.
var document = regexp.MustCompile(`^\[[^\]]+\]\(([a-z-]+\.md)#([a-z-]+)\)$`)

// leads reports whether such a cell links to an existing heading.
func leads(t *testing.T, cell string) bool {
	t.Helper()
	to := document.FindStringSubmatch(cell)
	for line := range strings.Lines(read(t, "docs/"+to[1])) {
		heading := strings.TrimLeft(line, "#")
		if heading != line && strings.ReplaceAll(strings.ToLower(strings.TrimSpace(heading)), " ", "-") == to[2] {
			return true
		}
	}
	return false
}
