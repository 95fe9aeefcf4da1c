// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

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
