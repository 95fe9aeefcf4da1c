// SPDX-License-Identifier: Apache-2.0

// Package house checks the rules of the repository that no compiler checks.
package house

import (
	"go/types"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/kit/engine"
)

// tracked returns the files of the repository with one of the endings.
func tracked(t *testing.T, endings ...string) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard")
	cmd.Dir = engine.Root()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for line := range strings.Lines(string(out)) {
		name := strings.TrimSpace(line)
		for _, e := range endings {
			if strings.HasSuffix(name, e) {
				files = append(files, name)
			}
		}
	}
	return files
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(engine.Root(), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var fence = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// flat removes the differences in white space between a snippet and its source.
func flat(code string) string { return strings.Join(strings.Fields(code), " ") }

// Every snippet of Go or TypeScript in the documents is part of a file that is compiled.
func TestSnippetsAreCompiled(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, name := range tracked(t, ".go", ".ts") {
		code.WriteString(flat(read(t, name)))
		code.WriteByte('\n')
	}
	all, seen := code.String(), 0
	for _, name := range tracked(t, ".md") {
		for _, block := range fence.FindAllStringSubmatch(read(t, name), -1) {
			if block[1] != "go" && block[1] != "ts" {
				continue
			}
			seen++
			if !strings.Contains(all, flat(block[2])) {
				t.Errorf("%s: this snippet is in no file:\n%s", name, block[2])
			}
		}
	}
	if seen == 0 {
		t.Error("no Go snippet was found")
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]+))?\)`)
	picture = regexp.MustCompile(`\bsrc(?:set)?="([^"]+)"()`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	omitted = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Every link to a file of the repository has a target, and every link to a
// heading has that heading.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	files, anchors := 0, 0
	for _, name := range tracked(t, ".md") {
		text := fenced.ReplaceAllString(read(t, name), "")
		for _, m := range append(link.FindAllStringSubmatch(text, -1), picture.FindAllStringSubmatch(text, -1)...) {
			if strings.Contains(m[1], "://") {
				continue
			}
			files++
			target := name
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(name), m[1])
			}
			if _, err := os.Stat(filepath.Join(engine.Root(), target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, m[1])
				continue
			}
			if m[2] == "" {
				continue
			}
			anchors++
			if !anchorsOf(read(t, target))[m[2]] {
				t.Errorf("%s links to %s#%s, and %s has no such heading", name, m[1], m[2], target)
			}
		}
	}
	if files < 100 || anchors < 20 {
		t.Errorf("only %d links to files and %d to headings were found", files, anchors)
	}
}

// anchorsOf returns the anchors that a Markdown page has on GitHub.
func anchorsOf(page string) map[string]bool {
	anchors := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		text := omitted.ReplaceAllString(strings.ToLower(linked.ReplaceAllString(m[1], "$1")), "")
		anchors[strings.ReplaceAll(text, " ", "-")] = true
	}
	return anchors
}

var anErrorRow = regexp.MustCompile("(?m)^\\| (`[a-z]+\\.\\w+`(?:, `[a-z]+\\.\\w+`)*) \\|")

// The page about errors has each error that the packages export for their users, and no
// other.
func TestErrorsAreExplained(t *testing.T) {
	t.Parallel()
	explained, exported := map[string]bool{}, map[string]bool{}
	for _, row := range anErrorRow.FindAllStringSubmatch(read(t, "docs/errors.md"), -1) {
		for _, name := range strings.Split(row[1], ", ") {
			explained[strings.Trim(name, "`")] = true
		}
	}
	failure := types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
	for _, dir := range []string{"idempotent", "idempotent/driver", "idempotent/memstore", "dynamostore", "dynamostore/powertools", "lambdahttp", "lambdabatch", "idempotencyclient", "lambdadurable", "boltstore"} {
		pkg := loadPackage(t, dir).pkg
		for _, name := range pkg.Scope().Names() {
			object, is := pkg.Scope().Lookup(name), false
			switch object.(type) {
			case *types.Var:
				is = types.Implements(object.Type(), failure)
			case *types.TypeName:
				is = !types.IsInterface(object.Type()) && types.Implements(types.NewPointer(object.Type()), failure)
			}
			if is && object.Exported() {
				exported[pkg.Name()+"."+name] = true
			}
		}
	}
	if !maps.Equal(explained, exported) {
		t.Errorf("docs/errors.md explains %v\nwant %v", slices.Sorted(maps.Keys(explained)), slices.Sorted(maps.Keys(exported)))
	}
}

// The README of each folder of the documents links to every page in it.
func TestPagesAreOnTheMap(t *testing.T) {
	t.Parallel()
	pages := 0
	for _, name := range tracked(t, ".md") {
		if !strings.HasPrefix(name, "docs/") || path.Base(name) == "README.md" {
			continue
		}
		pages++
		if index := path.Join(path.Dir(name), "README.md"); !strings.Contains(read(t, index), "]("+path.Base(name)+")") {
			t.Errorf("%s does not link to %s", index, name)
		}
	}
	if pages < 30 {
		t.Errorf("only %d pages were found", pages)
	}
}

// replaced matches the numbers of the decisions that a decision replaces.
var replaced = regexp.MustCompile(`(?m)^Accepted .*\. Replaces ((?:\d{4}(?:, | and )?)+)\.$`)

// A page is short enough to be read at once, the first one is half as long, and a decision
// fits on a screen. A decision that replaces three others, which are gone, may be longer.
func TestPagesAreShort(t *testing.T) {
	t.Parallel()
	const longestPage, longestFirst, longestDecision, longestMerged = 2000, 1000, 400, 600 // words
	generated := regexp.MustCompile(`(?s)<!-- (\w+) -->\n.*?<!-- /\w+ -->`)                // tables that tests write into a page
	pages := 0
	for _, name := range tracked(t, ".md") {
		if strings.Contains(name, "testdata/") || name == requirementsPage || name == "CHANGELOG.md" {
			continue // written by tests, or lists that are not read from top to bottom
		}
		pages++
		most := longestPage
		if name == "README.md" {
			most = longestFirst
		}
		if strings.HasPrefix(name, "docs/adr/0") {
			most = longestDecision
			if others := numbersReplaced(t, name); len(others) >= 3 {
				most = longestMerged
			}
		}
		words := slices.DeleteFunc(strings.Fields(generated.ReplaceAllString(read(t, name), "")), func(s string) bool { return strings.Trim(s, "|-") == "" })
		if n := len(words); n > most { // the lines of tables do not count
			t.Errorf("%s has %d words, want %d at most", name, n, most)
		}
	}
	if pages < 30 {
		t.Errorf("only %d pages were found", pages)
	}
}

// numbersReplaced returns the numbers of the decisions that the decision of that file
// replaces.
func numbersReplaced(t *testing.T, name string) (numbers []string) {
	t.Helper()
	if m := replaced.FindStringSubmatch(read(t, name)); m != nil {
		numbers = regexp.MustCompile(`\d{4}`).FindAllString(m[1], -1)
	}
	for _, number := range numbers {
		if there, _ := filepath.Glob(filepath.Join(engine.Root(), "docs/adr", number+"-*")); len(there) > 0 {
			t.Errorf("%s replaces %s, which still exists", name, number)
		}
	}
	return numbers
}

const header = "// SPDX-License-Identifier: Apache-2.0\n\n"

// Every file keeps the rules that a look at its text shows.
func TestFiles(t *testing.T) {
	t.Parallel()
	undone := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b|not imple` + `mented|\bt\.Sk` + `ip`)
	marks := regexp.MustCompile(`(?m)^(<<<<<<<|>>>>>>>) `)
	for _, rule := range []struct {
		says    string // if a file breaks it
		endings []string
		broken  func(name, text string) bool
	}{
		{"lacks the licence (make fmt)", []string{".go"}, func(_, text string) bool { return !strings.HasPrefix(text, header) }},
		{"is another licence than the header's", []string{"LICENSE"}, func(_, text string) bool { return !strings.Contains(text, "Apache License") }},
		{"has the marks of a merge", []string{""}, func(_, text string) bool { return marks.MatchString(text) }},
		// A built program, for example. A picture is smaller, because each version of it stays in the history.
		{"is large: make it smaller, remove it, or add it to .gitignore", []string{""}, func(name, text string) bool {
			return len(text) > 512<<10 || strings.HasSuffix(name, ".png") && len(text) > 200<<10
		}},
		{"is unfinished, or skips a test", []string{".go", ".sh", ".py", "localstack/up", "localstack/down", "Makefile", ".md"}, func(name, text string) bool {
			if strings.HasPrefix(name, "oncevet/") {
				text = strings.ReplaceAll(text, "context.TO"+"DO", "") // it reports calls of it
			}
			return undone.MatchString(text)
		}},
		// Tests outside this module use a clock or a signal, not Sleep. In a synctest bubble Sleep takes no time.
		{"sleeps", []string{"_test.go"}, func(name, text string) bool {
			return !strings.HasPrefix(name, "tests/") && strings.Contains(text, "time.Sleep(") && !strings.Contains(text, `"testing/synctest"`)
		}},
	} {
		for _, name := range tracked(t, rule.endings...) {
			if rule.broken(name, read(t, name)) {
				t.Errorf("%s %s", name, rule.says)
			}
		}
	}
}

// Every package with tests below tests is run by a target of the Makefile: by test-apart,
// or by name if ELSE leaves it out there. Every module of the workspace is built.
func TestEverySuiteIsRun(t *testing.T) {
	t.Parallel()
	makefile := read(t, "Makefile")
	line := regexp.MustCompile(`(?m)^ELSE := (.*)$`).FindStringSubmatch(makefile)
	if line == nil {
		t.Fatal("the Makefile has no ELSE")
	}
	named := strings.Fields(strings.Replace(makefile, line[0], "", 1))
	elsewhere := regexp.MustCompile(strings.ReplaceAll(line[1], "$$", "$"))
	suites := 0
	for _, name := range tracked(t, "_test.go") {
		dir := path.Dir(name)
		if !strings.HasPrefix(dir, "tests/") || strings.Contains(dir, "/testdata") || !elsewhere.MatchString("/"+dir) {
			continue
		}
		if suites++; !slices.Contains(named, "./"+dir) {
			t.Errorf("no target runs the tests of %s", dir)
		}
	}
	for _, module := range regexp.MustCompile(`(?m)^\t(\./\S+)$`).FindAllStringSubmatch(read(t, "go.work"), -1) {
		if suites++; !slices.ContainsFunc(named, func(word string) bool { return word == module[1] || word == module[1]+"/..." || word == module[1][2:] }) {
			t.Errorf("no target builds the module %s", module[1])
		}
	}
	if suites < 20 {
		t.Errorf("only %d suites and modules were found", suites)
	}
}

// What keeps versions current knows everything that it has to: docs/reports/versions.md has
// the rows of its table, Dependabot the folder of each list of dependencies, and RELEASING.md
// each job of the workflow that a merge waits for, whose failures count.
func TestVersionsAreWatched(t *testing.T) {
	t.Parallel()
	var want, got []string
	for _, row := range regexp.MustCompile(`(?m)^([^#|]+) \| ([^|]+) \| `).FindAllStringSubmatch(read(t, "tools/versions.txt"), -1) {
		want = append(want, row[1]+", "+row[2])
	}
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| [^|]*\| (?:\d{4}-| ?\| not tried)`).FindAllStringSubmatch(read(t, "docs/reports/versions.md"), -1) {
		got = append(got, row[1]+", "+row[2])
	}
	if !slices.Equal(got, want) || len(want) < 30 {
		t.Errorf("docs/reports/versions.md has results of %q, want %q: make versions", got, want)
	}
	watched := regexp.MustCompile(`[\s\[](/[^\s,\]]*)`).FindAllStringSubmatch(read(t, ".github/dependabot.yml"), -1)
	for _, name := range tracked(t, "/go.mod", "/package.json", "/requirements.txt", "/lint.txt", "/sam.txt", "/uv.txt", "/pom.xml", "/main.tf") {
		dir := "/" + path.Dir(name)
		if !strings.Contains(dir, "/testdata") && !slices.ContainsFunc(watched, func(w []string) bool { return w[1] == dir }) {
			t.Errorf(".github/dependabot.yml has no directory %s, where %s is", dir, path.Base(name))
		}
	}
	workflow, releasing := read(t, ".github/workflows/test.yml"), read(t, "RELEASING.md")
	if strings.Contains(workflow, "continue-on-error") {
		t.Error("a job of the workflow test may fail")
	}
	_, jobs, _ := strings.Cut(workflow, "\njobs:\n")
	for _, job := range regexp.MustCompile(`(?m)^  (\w+):\n    `).FindAllStringSubmatch(jobs, -1) {
		if !regexp.MustCompile("(?m)^\\| .*`" + job[1] + "\\b").MatchString(releasing) {
			t.Errorf("RELEASING.md does not list the check of the job %s", job[1])
		}
	}
}
