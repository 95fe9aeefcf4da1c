// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestResult(t *testing.T) {
	t.Parallel()
	const seeds = "fuzz: elapsed: 0s, gathering baseline coverage: 0/3 completed\n"
	const ran = seeds +
		"fuzz: elapsed: 3s, execs: 1000 (333/sec), new interesting: 1 (total: 4)\n" +
		"fuzz: elapsed: 5s, execs: 2000 (400/sec), new interesting: 2 (total: 5)\n"
	const ended = "FAIL\n"
	exit := errors.New("exit status 1")
	for name, row := range map[string]struct {
		output string
		err    error
		fails  bool
	}{
		"done":           {ran + "PASS\n", nil, false},
		"late":           {ran + "--- FAIL: FuzzA (5.01s)\n    context deadline exceeded\n" + ended, exit, false},
		"an input":       {ran + "--- FAIL: FuzzA (5.01s)\n    --- FAIL: FuzzA (0.00s)\n        a_test.go:5: bad\n    \n    Failing input written to testdata/fuzz/FuzzA/1\n" + ended, exit, true},
		"an input, late": {ran + "--- FAIL: FuzzA (5.01s)\n    context deadline exceeded\n    Failing input written to testdata/fuzz/FuzzA/1\n" + ended, exit, true},
		"a seed":         {seeds + "--- FAIL: FuzzA (0.01s)\n    --- FAIL: FuzzA (0.00s)\n        a_test.go:5: bad\n" + ended, exit, true},
		"a seed, late":   {seeds + "--- FAIL: FuzzA (5.01s)\n    context deadline exceeded\n" + ended, exit, true},
		"nothing tried":  {"PASS\n", nil, true},
	} {
		got := resultOf(row.output, row.err)
		if (got.failure != "") != row.fails || strings.Contains(got.String(), "FAILED") != row.fails || !row.fails && (got.inputs != 2000 || got.corpus != 5) {
			t.Errorf("%s: got %+v, want a failure: %v", name, got, row.fails)
		}
		if untried := name == "a seed, late" || name == "nothing tried"; got.untried != untried {
			t.Errorf("%s: got %+v, want untried: %v", name, got, untried)
		}
	}
}

// End to end, with a target that fails after some inputs.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.test/m\n\ngo 1.26\n",
		"m_test.go": `package m

import (
	"testing"
	"time"
)

func FuzzSlowSeed(f *testing.F) {
	f.Add("slow")
	f.Fuzz(func(_ *testing.T, s string) {
		if s == "slow" {
			for began := time.Now(); time.Since(began) < 300*time.Millisecond; {
			}
		}
	})
}

func FuzzSound(f *testing.F) { f.Fuzz(func(*testing.T, string) {}) }

func FuzzBroken(f *testing.F) {
	f.Fuzz(func(t *testing.T, n uint8) {
		if n > 100 {
			t.Error("more than a hundred")
		}
	})
}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	suites, err := find([]string{"./..."})
	if err != nil || len(suites) != 1 || !slices.Equal(suites[0].targets, []string{"FuzzSlowSeed", "FuzzSound", "FuzzBroken"}) {
		t.Fatalf("found %v, %v", suites, err)
	}
	for _, guided := range []bool{true, false} {
		binary := filepath.Join(t.TempDir(), "m.test")
		if err := suites[0].build(binary, guided); err != nil {
			t.Fatal(err)
		}
		for _, target := range suites[0].targets {
			d := time.Second
			if target == "FuzzSlowSeed" {
				d = 100 * time.Millisecond // less than the seed takes
			}
			r := suites[0].run(binary, target, t.TempDir(), d)
			if broken := target == "FuzzBroken"; broken != strings.Contains(r.failure, "more than a hundred") || broken == (r.failure == "") {
				t.Errorf("guided %v, %s: %s", guided, target, r)
			}
			if !guided && r.corpus != 0 {
				t.Errorf("%s: a corpus of %d without guidance", target, r.corpus)
			}
		}
		r := suites[0].run(binary, "FuzzSlowSeed", t.TempDir(), time.Millisecond)
		if !strings.Contains(r.failure, "no input was tried") {
			t.Errorf("guided %v: %s after a seed that took longer than the last try", guided, r)
		}
	}
	written, err := os.ReadDir(filepath.Join(dir, "testdata/fuzz/FuzzBroken"))
	if err != nil || len(written) == 0 {
		t.Errorf("%d failing inputs were written (%v), want at least 1", len(written), err)
	}
}
