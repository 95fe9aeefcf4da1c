package main

import (
	"errors"
	"strings"
	"testing"
)

func TestFate(t *testing.T) {
	t.Parallel()
	exit := errors.New("exit status 2")
	for output, want := range map[string]fate{
		"\x16--- FAIL: TestA/one (0.00s)\n\x16--- FAIL: TestA/two (0.00s)\n\x16--- FAIL: TestA (0.00s)\nFAIL": {true, "TestA/one", false},
		"--- FAIL: TestA (0.00s)\n--- FAIL: TestB (0.00s)\n":                                                  {true, "TestA", false},
		"panic: test timed out after 5s\n\trunning tests:\n\t\tTestA (5s)\n\t\tTestB (2s)\n":                  {true, "a time-out in TestA", true},
		"--- FAIL: TestA (0.00s)\npanic: boom\n":                                                              {true, "TestA", false},
		"panic: boom\n":                                                                                       {true, "a crash (boom)", false},
		"fatal error: all goroutines are asleep - deadlock!\n":                                                {true, "a crash (all goroutines are asleep - deadlock!)", false},
		"": {true, "exit status 2", false},
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

func TestSlowTests(t *testing.T) {
	t.Parallel()
	const output = "\x16--- PASS: TestA/quick (0.00s)\n\x16--- PASS: TestA/slow.one (0.40s)\n--- PASS: TestA (0.90s)\n--- PASS: TestB (0.05s)\n--- PASS: TestC (0.04s)\n"
	if got, want := slowTests(output), `^TestA$/^slow\.one$|^TestB$`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
