// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
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

// A mutant runs with the tests that enter its function, the fastest first.
func TestRuns(t *testing.T) {
	t.Parallel()
	in := map[int]bool{7: true}
	tests := []test{{"A", 60 * time.Millisecond, in}, {"B", 70 * time.Millisecond, nil}, {"C", 80 * time.Millisecond, in},
		{"D", 100 * time.Millisecond, in}, {"E", time.Second, in}, {"F", 3 * time.Second, in}, {"G", 9 * time.Second, in}}
	for _, row := range []struct {
		m       mutant
		without []string
		want    string
	}{
		{mutant{id: 9, entry: 7}, nil, "^(A|C)$ ^(D|E)$ ^(F|G)$"},
		{mutant{id: 9, entry: 7}, []string{"A", "F"}, "^(C)$ ^(D|E)$ ^(G)$"},
		{mutant{id: 9}, nil, "^(A|B)$ ^(C|D|E)$ ^(F|G)$"},
		{mutant{id: 9, entry: 8}, nil, ""},
	} {
		var got []string
		for _, run := range runs(tests, row.m, row.without) {
			got = append(got, pattern(run))
		}
		if strings.Join(got, " ") != row.want {
			t.Errorf("%+v without %q: got %q, want %q", row.m, row.without, got, row.want)
		}
	}
}
