// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// module is a package for the tool, with tests that miss some of its mutants.
var module = map[string]string{
	"go.mod": "module example.test/m\n\ngo 1.26\n",
	"m/f.go": `package m

const keepCondition = "wid = :was"

func f(a, b bool, n int) int {
	if a && b {
		return 1
	}
	for i := 0; i < n; i++ {
		g(keepCondition)
	}
	return 0
}

func g(string) {}

type one struct{}

func (*one) sign(n int, _, _ string) int {
	if n > 0 {
		return 1
	}
	return 0
}
`,
	"m/f_test.go": `package m

import "testing"

func TestF(t *testing.T) {
	if (*one)(nil).sign(2, "", "") != 1 {
		t.Error("sign is broken")
	}
	if f(true, true, 1) != 1 || f(false, true, 1) != 0 {
		t.Error("f is broken")
	}
}

func TestQuotes(t *testing.T) {
	if keepCondition != "wid = :was" {
		t.Error("the condition has changed")
	}
}
`,
}

func campaignOver(t *testing.T, files map[string]string) (c *campaign, out *bytes.Buffer) {
	t.Helper()
	c = &campaign{root: t.TempDir(), only: regexp.MustCompile(""), out: &bytes.Buffer{},
		targets: []target{{module: ".", pkg: "m", breaks: []string{"f.go"}, conditions: true, quoting: []string{"TestQuotes"}}}}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(c.root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(c.root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return c, c.out.(*bytes.Buffer)
}

// End to end: weave, build, run and report.
func TestCampaign(t *testing.T) {
	t.Parallel()
	c, out := campaignOver(t, module)
	c.equivalents = map[string]string{
		"m.f: i < n is negated":     "the number does not matter",
		"m.f: a && b is never true": "wrong",
	}
	c.endless = map[string]string{"m.f: i++ is gone": "the loop never ends", "m.f: no such": "x"}
	c.only = regexp.MustCompile(`a && b|i < n is neg|n > 0 is neg|g\(|never true|condition is gone`)
	ok, err := c.run()
	if err != nil || ok {
		t.Errorf("ok %v, error %v; want not ok", ok, err)
	}
	for _, want := range []string{
		"m.f: a && b is always true (f.go:6): killed by TestF\n",
		"m.f: a && b is never true (f.go:6): DECLARED EQUIVALENT, but killed by TestF\n",
		"m.f: a && b loses && b (f.go:6): SURVIVED\n",
		"m.f: a && b loses a && (f.go:6): killed by TestF\n",
		"m.f: i < n is negated (f.go:9): equivalent: the number does not matter\n",
		"m.one.sign: n > 0 is negated (f.go:20): killed by TestF\n",
		"m.f: g(keepCondition) is not called (f.go:10): SURVIVED\n",
		"m.keepCondition: the condition is gone (f.go:3): SURVIVED\n",
		"names a mutant that does not exist: m.f: no such\n",
		"\nm: 11 mutants: ",
		" 1 wrongly declared in ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant %q in it", out, want)
		}
	}
}

// A matrix names every test that notices a mutant, also beside one that crashes and in
// another folder, and the tests that no mutant needs.
func TestCampaign_Matrix(t *testing.T) {
	t.Parallel()
	c, out := campaignOver(t, map[string]string{"go.mod": module["go.mod"], "m/f.go": module["m/f.go"], "m/f_test.go": `package m

import "testing"

func TestCrash(t *testing.T) {
	if f(true, true, 1) != 1 {
		panic("f is broken")
	}
}

func TestTwin(t *testing.T) {
	if f(true, true, 1) != 1 {
		t.Error("f is broken")
		t.Log("and longer than what follows")
	}
	if f(false, false, 1) != 0 {
		t.Error("f is broken")
	}
}

func TestOther(t *testing.T) { f(true, false, 0) }
`, "m/open.go": `package m

var F = f
`, "m/outer/outer_test.go": `package outer

import (
	"testing"

	"example.test/m/m"
)

func TestWide(t *testing.T) {
	if m.F(true, true, 1) != 1 || m.F(false, true, 1) != 0 {
		t.Error("f is broken")
	}
}
`})
	c.targets[0].tests = []string{".", "outer"}
	c.only, c.matrix, c.targets[0].quoting = regexp.MustCompile(`a && b is never|loses a`), true, nil
	if ok, err := c.run(); err != nil || !ok {
		t.Errorf("ok %v, error %v", ok, err)
	}
	for _, want := range []string{
		"m.f: a && b is never true (f.go:6): killed by TestCrash TestTwin TestWide\n",
		"m.f: a && b loses a && (f.go:6): killed by TestWide\n",
		"m.TestTwin could go: 9 lines, ",
		" s, notices 1 mutants, 0 of them alone\n",
		"m.TestCrash could go: 5 lines, ",
		"m.TestOther could go: 1 lines, ",
		"m.TestWide stays: 5 lines, ",
		" s, notices 2 mutants, 1 of them alone\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant %q in it", out, want)
		}
	}
}

// A test that does not end leaves the decision to the others.
func TestCampaignOverTestsThatDoNotEnd(t *testing.T) {
	shortestLimit = 2 * time.Second
	defer func() { shortestLimit = 10 * time.Second }()
	c, out := campaignOver(t, map[string]string{"go.mod": module["go.mod"], "m/f.go": module["m/f.go"], "m/f_test.go": `package m

import "testing"

func TestA(t *testing.T) {
	for f(true, true, 1) != 1 {
	}
	for f(false, true, 1) != 0 {
	}
}

func TestZ(t *testing.T) {
	if f(true, true, 1) != 1 {
		t.Error("f is broken")
	}
}
`})
	c.only = regexp.MustCompile(`a && b is|loses`)
	c.targets[0].quoting = nil
	if _, err := c.run(); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"m.f: a && b is never true (f.go:6): killed by TestZ\n",
		"m.f: a && b is always true (f.go:6): HUNG, ended by a time-out in TestA",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant %q in it", out, want)
		}
	}
}

// If the tests fail without a mutant, the run is an error.
func TestCampaignOverFailingTests(t *testing.T) {
	t.Parallel()
	files := map[string]string{"go.mod": module["go.mod"], "m/f.go": module["m/f.go"],
		"m/f_test.go": strings.Replace(module["m/f_test.go"], "!= 1", "!= 2", 1)}
	c, out := campaignOver(t, files)
	if ok, err := c.run(); ok || err == nil || !strings.Contains(err.Error(), "TestF") {
		t.Errorf("ok %v, error %v, output %q; want an error about TestF", ok, err, out)
	}
}

// The name of a missing file or test is an error.
func TestCampaignOverOldNames(t *testing.T) {
	t.Parallel()
	c, _ := campaignOver(t, module)
	c.targets[0].breaks = []string{"gone.go"}
	if _, err := c.run(); err == nil || !strings.Contains(err.Error(), "gone.go") {
		t.Errorf("got error %v", err)
	}
	c, _ = campaignOver(t, module)
	c.targets[0].quoting = []string{"TestGone"}
	if _, err := c.run(); err == nil || !strings.Contains(err.Error(), "TestGone") {
		t.Errorf("got error %v", err)
	}
}

// declared.go and targets.go match this repository.
func TestDeclaredNamesAreMutants(t *testing.T) {
	t.Parallel()
	c := campaign{root: filepath.Join("..", ".."), targets: targets, equivalents: equivalents, endless: endless}
	sources, err := c.sources()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range c.stale(sources) {
		t.Errorf("declared.go names a mutant that does not exist: %s", name)
	}
}

// The verdict for each fate of a mutant, and for repeated names.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	mutants := []mutant{{where: "f", what: "x"}, {where: "f", what: "x"}, {where: "g", what: "x"}}
	number(mutants)
	if mutants[0].name() != ".f: x" || mutants[1].name() != ".f: x (2)" || mutants[2].name() != ".g: x" {
		t.Errorf("got %q, %q, %q", mutants[0].name(), mutants[1].name(), mutants[2].name())
	}
	c := campaign{equivalents: map[string]string{".f: x (2)": "because"}, endless: map[string]string{".g: x": "loops"}}
	lives, dies, hangs := fate{}, fate{noticed: true, by: "TestA"}, fate{noticed: true, by: "a time-out in TestA", timedOut: true}
	for _, row := range []struct {
		m    mutant
		f    fate
		want outcome
		ok   bool
	}{
		{mutants[0], lives, survived, false},
		{mutants[0], dies, killed, true},
		{mutants[0], hangs, hung, false},
		{mutants[1], lives, equivalent, true},
		{mutants[1], dies, wronglyDeclared, false},
		{mutants[1], hangs, wronglyDeclared, false},
		{mutants[2], lives, survived, false},
		{mutants[2], dies, killed, true},
		{mutants[2], hangs, neverEnds, true},
	} {
		var sum summary
		v := c.verdict(row.m, row.f)
		sum[v.outcome]++
		if v.outcome != row.want || sum.ok() != row.ok || v.fine() != row.ok {
			t.Errorf("%s that met %+v: %s", row.m.name(), row.f, v)
		}
	}
	if (summary{refused: 1}).ok() {
		t.Error("a mutant that does not compile is accepted")
	}
}

func TestFate(t *testing.T) {
	t.Parallel()
	exit := errors.New("exit status 2")
	for output, want := range map[string]fate{
		"\x16--- FAIL: TestA/one (0.00s)\n\x16--- FAIL: TestA/two (0.00s)\n\x16--- FAIL: TestA (0.00s)\nFAIL": {true, "TestA/one", false, ""},
		"--- FAIL: TestA (0.00s)\n--- FAIL: TestB (0.00s)\n":                                                  {true, "TestA", false, ""},
		"panic: test timed out after 5s\n\trunning tests:\n\t\tTestA/one (5s)\n\t\tTestB (2s)\n":              {true, "a time-out in TestA/one", true, "TestA"},
		"--- FAIL: TestA (0.00s)\npanic: boom\n":                                                              {true, "TestA", false, ""},
		"panic: boom\n":                                                                                       {true, "a crash (boom)", false, ""},
		"fatal error: all goroutines are asleep - deadlock!\n":                                                {true, "a crash (all goroutines are asleep - deadlock!)", false, ""},
		"": {true, "exit status 2", false, ""},
	} {
		if got := fateOf(output, exit); got != want {
			t.Errorf("%q: got %+v, want %+v", output, got, want)
		}
	}
	if got := fateOf("", errors.New("signal: killed")); !got.timedOut {
		t.Errorf("killed from outside: got %+v, want a time-out", got)
	}
	if got := fateOf("--- FAIL: TestA (0.00s)\n", nil); got != (fate{}) {
		t.Errorf("a process that succeeded: got %+v", got)
	}
}

// The first failure ends a run, at the end of its line and not before.
func TestTranscript(t *testing.T) {
	t.Parallel()
	ended := 0
	out := transcript{failed: func() { ended++ }}
	for i, part := range []string{"=== RUN   TestA\n", "\x16--- FA", "IL: TestA/one (0.00s)"} {
		if out.Write([]byte(part)); ended != 0 {
			t.Errorf("ended after part %d", i)
		}
	}
	if out.Write([]byte("\n")); ended != 1 || !strings.HasSuffix(out.String(), "TestA/one (0.00s)\n") {
		t.Errorf("ended %d times after %q", ended, out.String())
	}
}

// A mutant runs with the tests that enter its function: the favourite first, then
// the fastest.
func TestRuns(t *testing.T) {
	t.Parallel()
	in := map[int]bool{7: true}
	tests := []test{{"A", "", 60 * time.Millisecond, in}, {"B", "", 70 * time.Millisecond, nil}, {"C", "", 80 * time.Millisecond, in},
		{"D", "", 100 * time.Millisecond, in}, {"E", "", time.Second, in}, {"F", "", 3 * time.Second, in}, {"G", "", 9 * time.Second, in}}
	for _, row := range []struct {
		m         mutant
		favourite string
		without   []string
		want      string
	}{
		{mutant{id: 9, entry: 7}, "", nil, "^(A|C)$ ^(D|E)$ ^(F|G)$"},
		{mutant{id: 9, entry: 7}, "", []string{"A", "", "F"}, "^(C)$ ^(D|E)$ ^(G)$"},
		{mutant{id: 9, entry: 7}, "F", nil, "^(F)$ ^(A|C)$ ^(D|E)$ ^(G)$"},
		{mutant{id: 9, entry: 7}, "G", []string{"G"}, "^(A|C)$ ^(D|E)$ ^(F)$"},
		{mutant{id: 9, entry: 7}, "B", nil, "^(A|C)$ ^(D|E)$ ^(F|G)$"},
		{mutant{id: 9}, "", nil, "^(A|B)$ ^(C|D|E)$ ^(F|G)$"},
		{mutant{id: 9, entry: 8}, "", nil, ""},
	} {
		var got []string
		for _, run := range runs(tests, row.m, row.favourite, row.without) {
			got = append(got, pattern(run))
		}
		if strings.Join(got, " ") != row.want {
			t.Errorf("%+v, %q first, without %q: got %q, want %q", row.m, row.favourite, row.without, got, row.want)
		}
	}
}

// The test that noticed a mutant of a function runs first for the next one. It is
// not parallel: a script that another process still inherits for writing cannot be
// executed.
func TestFavourites(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	// Instead of a test binary: TestSlow notices every mutant.
	script := "#!/bin/sh\necho $ONCE_MUTANT $4 >> " + log + "\ncase $4 in *Slow*) echo '--- FAIL: TestSlow/row (0.00s)'; exit 1; esac\n"
	if err := os.WriteFile(filepath.Join(dir, "test0"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	b := &binary{source: &source{dir: dir}, work: dir}
	tests := []test{{"TestFast", "", time.Millisecond, map[int]bool{7: true, 8: true}}, {"TestSlow", "", time.Second, map[int]bool{7: true, 8: true}}}
	for _, m := range []mutant{{id: 1, entry: 7}, {id: 2, entry: 7}, {id: 3, entry: 8}} {
		if f := b.run(m, tests); f.by != "TestSlow/row" {
			t.Errorf("mutant %d was noticed by %q, want TestSlow/row", m.id, f.by)
		}
	}
	got, err := os.ReadFile(log)
	want := "1 -test.run=^(TestFast)$\n1 -test.run=^(TestSlow)$\n2 -test.run=^(TestSlow)$\n3 -test.run=^(TestFast)$\n3 -test.run=^(TestSlow)$\n"
	if err != nil || string(got) != want {
		t.Errorf("got %q (error %v), want %q", got, err, want)
	}
}
