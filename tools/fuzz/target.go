// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// target is one fuzz test.
type target struct{ pkg, name string }

// find returns the targets in the packages that match the patterns.
func find(patterns []string) ([]target, error) {
	out, err := exec.Command("go", append([]string{"test", "-list", "^Fuzz"}, patterns...)...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test -list: %w\n%s", err, out)
	}
	return targetsIn(string(out)), nil
}

// targetsIn parses the output of go test -list: the names in a package, then
// the package.
func targetsIn(output string) (targets []target) {
	var names []string
	for line := range strings.Lines(output) {
		switch fields := strings.Fields(line); {
		case len(fields) == 1:
			names = append(names, fields[0])
		case len(fields) > 1 && fields[0] == "ok":
			for _, name := range names {
				targets = append(targets, target{fields[1], name})
			}
			names = nil
		}
	}
	return targets
}

// result is the result of fuzzing a target.
type result struct {
	inputs  int // inputs tried
	corpus  int // inputs in the corpus, including those of earlier runs
	failure string
}

func (r result) String() string {
	if r.failure != "" {
		return "FAILED\n" + r.failure
	}
	return fmt.Sprintf("%d inputs, a corpus of %d", r.inputs, r.corpus)
}

// minimize limits how often go test tries to shorten an input that it adds to
// the corpus. By default it tries for a minute per input, and so uses most of
// the time for that.
const minimize = "100x"

// run fuzzes the target for d.
func (t target) run(d time.Duration) result {
	out, err := exec.Command("go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", d.String(), "-fuzzminimizetime", minimize, t.pkg).CombinedOutput()
	return resultOf(string(out), err)
}

var (
	progress = regexp.MustCompile(`(?m)^fuzz: elapsed: .*, execs: (\d+) .*\(total: (\d+)\)`)
	// late matches the output of a target that was in the middle of an input
	// when its time was up. go test reports that as a failure
	// (go.dev/issue/75804, until Go 1.27).
	late = regexp.MustCompile(`^--- FAIL: \S+ \(\S+\)\n +context deadline exceeded\nFAIL\nexit status 1\nFAIL\t\S+\t\S+\n(FAIL\n)?$`)
)

// resultOf parses the output of go test -fuzz and the error of its process.
func resultOf(output string, err error) (r result) {
	rest := output
	for _, m := range progress.FindAllStringSubmatchIndex(output, -1) {
		r.inputs, _ = strconv.Atoi(output[m[2]:m[3]])
		r.corpus, _ = strconv.Atoi(output[m[4]:m[5]])
		rest = strings.TrimPrefix(output[m[1]:], "\n")
	}
	switch {
	case err != nil && (r.inputs == 0 || !late.MatchString(rest)):
		r.failure = output
	case r.inputs == 0:
		r.failure = "no input was tried:\n" + output
	}
	return r
}
