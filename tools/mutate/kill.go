// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// fate is the result of the tests of a mutant.
type fate struct {
	noticed  bool
	by       string // the test that failed first, or how the run ended
	timedOut bool   // no test failed, and not all of them ended
	stuck    string // the test that did not end, if known
}

// test is a test, example or fuzz target of a package.
type test struct {
	name   string
	suite  string // the folder in the package
	took   time.Duration
	enters map[int]bool // the functions with mutants that it enters, by their entry
}

// rehearse runs each test by itself, without a mutant, and records which
// functions it enters: only those tests can notice a mutant of a function.
func (b *binary) rehearse() ([]test, error) {
	var tests []test
	for _, suite := range b.suites() {
		list, f := b.exec(suite, 0, time.Minute, "", "-test.list=.")
		if f.noticed {
			return nil, b.unsound(f)
		}
		for _, name := range listed.FindAllString(list, -1) {
			if slices.ContainsFunc(tests, func(t test) bool { return t.name == name }) {
				return nil, fmt.Errorf("%s has two tests %s: rename one", b.folder(), name)
			}
			tests = append(tests, test{name: name, suite: suite})
		}
	}
	for _, name := range slices.Concat(b.quoting, b.skipped) {
		if !slices.ContainsFunc(tests, func(t test) bool { return t.name == name }) {
			return nil, fmt.Errorf("%s has no test %s; correct targets.go", b.folder(), name)
		}
	}
	tests = slices.DeleteFunc(tests, func(t test) bool { return slices.Contains(b.skipped, t.name) })
	failures := make([]error, len(tests))
	slots := make(chan struct{}, runtime.NumCPU())
	var wg sync.WaitGroup
	for i := range tests {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			failures[i] = b.watch(&tests[i])
		})
	}
	wg.Wait()
	slices.SortFunc(tests, func(x, y test) int {
		return cmp.Or(cmp.Compare(slices.Index(b.suites(), x.suite), slices.Index(b.suites(), y.suite)), cmp.Compare(x.took, y.took))
	})
	return tests, errors.Join(failures...)
}

// listed matches the names that a test binary lists, except benchmarks.
var listed = regexp.MustCompile(`(?m)^(?:Test|Example|Fuzz)\S*$`)

// longestTest limits the duration of one test without a mutant. It is generous,
// because the machine may be busy.
const longestTest = 5 * time.Minute

// watch runs one test and records its duration and the functions that it enters.
func (b *binary) watch(t *test) error {
	path := filepath.Join(b.work, t.name+".entered")
	begun := time.Now()
	if _, f := b.exec(t.suite, noteEntries, longestTest, path, failFast, "-test.run="+pattern([]test{*t})); f.noticed {
		return b.unsound(f)
	}
	t.took, t.enters = time.Since(begun), map[int]bool{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the test enters no such function
	}
	for line := range strings.Lines(string(text)) {
		entry, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return err
		}
		t.enters[entry] = true
	}
	return err
}

func (b *binary) unsound(f fate) error {
	return fmt.Errorf("the tests of %s fail without any mutant: %s", b.folder(), f.by)
}

// firstRuns limits the total duration of the tests in the first two runs of a
// mutant. Most mutants do not survive the first.
var firstRuns = [...]time.Duration{150 * time.Millisecond, 2 * time.Second}

// runs returns the tests that can notice the mutant m, sorted by duration and
// split into up to three runs, and the tests of another folder into one more. The test named favourite runs before them, by
// itself, if it is one of them. without are names of tests to leave out.
func runs(tests []test, m mutant, favourite string, without []string) (out [][]test) {
	var first, run []test
	together := time.Duration(0)
	for _, t := range tests {
		switch {
		case m.entry != 0 && !t.enters[m.entry] || slices.Contains(without, t.name):
			continue
		case t.name == favourite:
			first = []test{t}
			continue
		case len(run) > 0 && (t.suite != run[0].suite || len(out) < len(firstRuns) && together+t.took > firstRuns[len(out)]):
			out, run, together = append(out, run), nil, 0
		}
		run, together = append(run, t), together+t.took
	}
	if len(run) > 0 {
		out = append(out, run)
	}
	if first != nil {
		out = slices.Insert(out, 0, first)
	}
	return out
}

// shortestLimit is the time that every run may take.
var shortestLimit = 10 * time.Second

// run runs the tests that can notice the mutant m with it switched on, except
// those named in without. The test that noticed the mutant before it in the same
// function runs first: it often notices this one too, and then the others, which
// may take minutes, need not run.
func (b *binary) run(m mutant, tests []test, without ...string) fate {
	favourite, _ := b.favourites.Load(m.entry)
	name, _ := favourite.(string)
	for _, run := range runs(tests, m, name, without) {
		if _, f := b.exec(run[0].suite, m.id, limitOf(run), "", failFast, "-test.run="+pattern(run)); f.noticed {
			by, _, _ := strings.Cut(f.by, "/")
			b.favourites.Store(m.entry, by)
			return f
		}
	}
	return fate{}
}

// limitOf returns the time after which a run of these tests counts as endless: ten times
// what they take without a mutant.
func limitOf(tests []test) time.Duration {
	together := time.Duration(0)
	for _, t := range tests {
		together += t.took
	}
	return max(shortestLimit, 10*together).Round(time.Second)
}

// pattern returns a regular expression that matches exactly these tests.
func pattern(tests []test) string {
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = t.name
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// failFast ends a run with the first test that fails: others may wait for something that the
// mutant prevents.
const failFast = "-test.failfast"

// exec runs the test binary of a folder once with the mutant id, or with id 0 without a
// mutant. The functions that it enters are noted in the file entries, unless that is "".
func (b *binary) exec(suite string, id int, limit time.Duration, entries string, flags ...string) (output string, f fate) {
	ctx, stop := context.WithTimeout(context.Background(), limit+5*time.Second)
	defer stop()
	// What the tests leave in the temporary folder goes with it.
	temp, err := os.MkdirTemp(b.work, "temp")
	if err != nil {
		return "", fate{noticed: true, by: err.Error()}
	}
	defer os.RemoveAll(temp)
	// In the format for test2json a subtest's result is printed at once, and not
	// with its parent's.
	cmd := exec.CommandContext(ctx, b.path(suite), slices.Concat([]string{"-test.v=test2json", "-test.timeout=" + limit.String()}, flags, []string{fmt.Sprint("-test.short=", b.short)})...)
	cmd.Dir = filepath.Join(b.dir, suite)
	// One processor each, because several runs are active at once.
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", variable, id), "GOMAXPROCS=1", "GOMEMLIMIT=1GiB", "TMPDIR="+temp, entered+"="+entries)
	cmd.WaitDelay = time.Second
	out := &transcript{failed: func() {}}
	if slices.Contains(flags, failFast) {
		out.failed = stop
	}
	cmd.Stdout, cmd.Stderr = out, out
	// Processes that the tests started end with them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = end
	err = cmd.Run()
	if cmd.Process != nil {
		_ = end() // an error if all have ended
	}
	f = fateOf(out.String(), err)
	if id <= 0 && f.noticed { // It should not fail: say why it did.
		const shown = 4000
		f.by += "\n" + out.String()[max(0, out.Len()-shown):]
	}
	return out.String(), f
}

// transcript stores the output of a test binary, and calls failed once a test
// has failed.
type transcript struct {
	bytes.Buffer
	seen   int // no test has failed before this offset
	failed func()
}

func (t *transcript) Write(p []byte) (int, error) {
	t.Buffer.Write(p)
	rest := t.Bytes()[t.seen:]
	complete := bytes.LastIndexByte(rest, '\n') + 1
	t.seen += complete
	if failure.Match(rest[:complete]) {
		t.failed()
	}
	return len(p), nil
}

// The lines of a test binary in the format for test2json. A subtest's line comes
// before its parent's.
var (
	failure = regexp.MustCompile(`(?m)^\x16?--- FAIL: (\S+)`)
	crash   = regexp.MustCompile(`(?m)^(?:panic|fatal error): (.*)`)
	running = regexp.MustCompile(`(?m)^panic: test timed out after .*\n\trunning tests:\n\t\t(\S+)`)
)

// fateOf returns how a run ended, from its output and the error of its process.
func fateOf(output string, err error) fate {
	if err == nil {
		return fate{}
	}
	f := fate{noticed: true}
	if m := failure.FindStringSubmatch(output); m != nil {
		f.by = m[1]
	} else if m := running.FindStringSubmatch(output); m != nil {
		f.by, f.timedOut = "a time-out in "+m[1], true
		f.stuck, _, _ = strings.Cut(m[1], "/")
	} else if m := crash.FindStringSubmatch(output); m != nil {
		f.by = "a crash (" + m[1] + ")"
	} else {
		f.by, f.timedOut = err.Error(), strings.Contains(err.Error(), "signal")
	}
	return f
}
