package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fate is what the tests said of a mutant.
type fate struct {
	noticed  bool
	by       string // the test that failed first, or how the run ended
	timedOut bool   // no test failed, and not all of them ended
}

// plan is how the mutants of a package are run: first without the tests that
// take long, which most mutants do not survive, then with them.
type plan struct {
	skip         string        // pattern of the tests that take long; empty: there are none
	first, whole time.Duration // the most that each of the two runs may take
}

// slow is from when on a test is left for the second run.
const slow = 50 * time.Millisecond

// rehearse runs the tests without a mutant and plans accordingly.
func (b *binary) rehearse() (p plan, err error) {
	out, whole, err := b.timed()
	if err != nil {
		return p, err
	}
	for _, name := range b.quoting {
		if !strings.Contains(out, "--- PASS: "+name+" (") {
			return p, fmt.Errorf("%s has no test %s; correct targets.go", b.folder(), name)
		}
	}
	p.skip = slowTests(out)
	_, first, err := b.timed("-test.skip=" + p.skip)
	if err != nil {
		return p, err
	}
	// What takes ten times as long as without a mutant does not end.
	p.first, p.whole = max(10*time.Second, 10*first).Round(time.Second), max(20*time.Second, 10*whole).Round(time.Second)
	return p, nil
}

func (b *binary) timed(flags ...string) (output string, took time.Duration, err error) {
	start := time.Now()
	output, f := b.exec(0, time.Minute, flags...)
	if f.noticed {
		return "", 0, b.unsound(f)
	}
	return output, time.Since(start), nil
}

func (b *binary) unsound(f fate) error {
	return fmt.Errorf("the tests of %s fail without any mutant: %s", b.folder(), f.by)
}

// slowTests returns the pattern of the tests without subtests that took long.
func slowTests(output string) string {
	var patterns []string
	tests := passed.FindAllStringSubmatch(output, -1)
	for _, m := range tests {
		seconds, err := strconv.ParseFloat(m[2], 64)
		parent := slices.ContainsFunc(tests, func(o []string) bool { return strings.HasPrefix(o[1], m[1]+"/") })
		if err != nil || parent || seconds < slow.Seconds() {
			continue
		}
		var levels []string
		for level := range strings.SplitSeq(m[1], "/") {
			levels = append(levels, "^"+regexp.QuoteMeta(level)+"$")
		}
		patterns = append(patterns, strings.Join(levels, "/"))
	}
	return strings.Join(patterns, "|")
}

// run runs the tests with the mutant id switched on, without those that the
// names say; 0 is no mutant.
func (b *binary) run(id int, p plan, without ...string) fate {
	skip := make([]string, len(without))
	for i, name := range without {
		skip[i] = "^" + name + "$"
	}
	if p.skip != "" {
		if _, f := b.exec(id, p.first, "-test.skip="+strings.Join(append(skip, p.skip), "|")); f.noticed {
			return f
		}
	}
	_, f := b.exec(id, p.whole, "-test.skip="+strings.Join(skip, "|"))
	return f
}

// exec runs the test binary once. It ends with the first test that fails:
// others may wait for ever for what the mutant has kept from happening.
func (b *binary) exec(id int, limit time.Duration, flags ...string) (output string, f fate) {
	ctx, stop := context.WithTimeout(context.Background(), limit+5*time.Second)
	defer stop()
	// In the form for test2json the fate of a subtest is told at once, and not
	// with its parent's.
	flags = append([]string{"-test.v=test2json", "-test.failfast", "-test.timeout=" + limit.String()}, flags...)
	cmd := exec.CommandContext(ctx, b.path, flags...)
	cmd.Dir = b.dir
	// One processor each: several runs go on at once.
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", variable, id), "GOMAXPROCS=1", "GOMEMLIMIT=1GiB")
	cmd.WaitDelay = time.Second
	out := &transcript{failed: stop}
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	return out.String(), fateOf(out.String(), err)
}

// transcript keeps what a test binary says, and calls failed once a test has.
type transcript struct {
	bytes.Buffer
	seen   int // up to here no test has failed
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

// The lines of a test binary in the form for test2json. A subtest's comes
// before its parent's.
var (
	passed  = regexp.MustCompile(`(?m)^\x16?--- PASS: (\S+) \(([0-9.]+)s\)`)
	failure = regexp.MustCompile(`(?m)^\x16?--- FAIL: (\S+)`)
	crash   = regexp.MustCompile(`(?m)^(?:panic|fatal error): (.*)`)
	running = regexp.MustCompile(`(?m)^panic: test timed out after .*\n\trunning tests:\n\t\t(\S+)`)
)

// fateOf says how a run ended, from its output and the error of its process.
func fateOf(output string, err error) fate {
	if err == nil {
		return fate{}
	}
	f := fate{noticed: true}
	if m := failure.FindStringSubmatch(output); m != nil {
		f.by = m[1]
	} else if m := running.FindStringSubmatch(output); m != nil {
		f.by, f.timedOut = "a time-out in "+m[1], true
	} else if m := crash.FindStringSubmatch(output); m != nil {
		f.by = "a crash (" + m[1] + ")"
	} else {
		f.by, f.timedOut = err.Error(), strings.Contains(err.Error(), "signal")
	}
	return f
}
