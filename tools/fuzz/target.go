// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// suite is a package with fuzz targets.
type suite struct {
	pkg, dir string
	targets  []string
}

// find returns the packages that match the patterns and have fuzz targets. It
// reads their test files, because go test -list would link all of their tests.
func find(patterns []string) ([]suite, error) {
	list := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}, patterns...)...)
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var suites []suite
	for packages := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Dir           string
			TestGoFiles, XTestGoFiles []string
		}
		if err := packages.Decode(&p); errors.Is(err, io.EOF) {
			return suites, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		s := suite{pkg: p.ImportPath, dir: p.Dir}
		for _, file := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			code, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				return nil, err
			}
			for _, name := range declared.FindAllSubmatch(code, -1) {
				s.targets = append(s.targets, string(name[1]))
			}
		}
		if len(s.targets) > 0 {
			suites = append(suites, s)
		}
	}
}

// declared matches the declaration of a target.
var declared = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(\w+ \*testing\.F\)`)

// build links the tests of the package, once for all of its targets. Guided
// fuzzing requires instrumented code.
func (s suite) build(binary string, guided bool) error {
	args := []string{"test", "-c", "-o", binary}
	if guided {
		args = append(args, "-fuzz", "^"+s.targets[0]+"$")
	}
	build := exec.Command("go", append(args, s.pkg)...)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", s.pkg, err, out)
	}
	return nil
}

// run fuzzes a target for d. If that is over before the first new input, as on a loaded
// machine, it tries again three times, each for four times as long. New inputs go to a folder
// below cache, failing ones to the package's testdata/fuzz.
func (s suite) run(binary, target, cache string, d time.Duration) result {
	for longest := 64 * d; ; d *= 4 {
		cmd := exec.Command(binary, "-test.run", "^$", "-test.fuzz", "^"+target+"$", "-test.fuzztime", d.String(),
			"-test.fuzzminimizetime", minimize, "-test.fuzzcachedir", filepath.Join(cache, s.pkg))
		cmd.Dir = s.dir
		out, err := cmd.CombinedOutput()
		r := resultOf(string(out), err)
		if !r.untried || d == longest {
			return r
		}
	}
}

// result is the result of fuzzing a target.
type result struct {
	inputs  int  // inputs tried
	corpus  int  // inputs in the corpus, including those of earlier runs; 0 if unguided
	untried bool // the time was up before the first new input
	failure string
}

func (r result) String() string {
	if r.failure != "" {
		return "FAILED\n" + r.failure
	}
	if r.corpus == 0 {
		return fmt.Sprintf("%d inputs", r.inputs)
	}
	return fmt.Sprintf("%d inputs, a corpus of %d", r.inputs, r.corpus)
}

// minimize limits how often go test tries to shorten an input that it adds to
// the corpus. By default it tries for a minute per input, and so uses most of
// the time for that.
const minimize = "100x"

var (
	progress = regexp.MustCompile(`(?m)^fuzz: elapsed: .*?(?:, execs: (\d+) \(\d+/sec\)(?:, .*\(total: (\d+)\))?)?$`)
	// late matches the output of a target that was in the middle of an input
	// when its time was up. go test reports that as a failure
	// (go.dev/issue/75804, until Go 1.27).
	late = regexp.MustCompile(`^--- FAIL: \S+ \(\S+\)\n +context deadline exceeded\nFAIL\n$`)
)

// resultOf parses the output of go test -fuzz and the error of its process.
func resultOf(output string, err error) (r result) {
	rest := output
	for _, m := range progress.FindAllStringSubmatchIndex(output, -1) {
		if m[2] >= 0 {
			r.inputs, _ = strconv.Atoi(output[m[2]:m[3]])
		}
		if m[4] >= 0 {
			r.corpus, _ = strconv.Atoi(output[m[4]:m[5]])
		}
		rest = strings.TrimPrefix(output[m[1]:], "\n")
	}
	switch {
	case err != nil && !late.MatchString(rest):
		r.failure = output
	case r.inputs == 0:
		r.untried = true
		r.failure = "no input was tried:\n" + output
	}
	return r
}
