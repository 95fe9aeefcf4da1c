// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	each := flag.Duration("time", time.Minute, "how long each target is fuzzed")
	guided := flag.Bool("guided", true, "prefer inputs that reach new code; every package and its dependencies are compiled again for that")
	flag.Parse()
	failed, err := fuzz(*each, *guided, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

// fuzz runs every target of the packages for d, and reports whether one failed.
func fuzz(d time.Duration, guided bool, patterns []string) (failed bool, err error) {
	suites, err := find(patterns)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "fuzz-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	goCache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return false, fmt.Errorf("go env: %w", err)
	}
	cache := filepath.Join(strings.TrimSpace(string(goCache)), "fuzz") // where go test -fuzz has it too
	targets, inputs, failures := 0, 0, 0
	for i, s := range suites {
		binary := filepath.Join(dir, fmt.Sprintf("%d.test", i))
		if err := s.build(binary, guided); err != nil {
			return false, err
		}
		for _, name := range s.targets {
			r := s.run(binary, name, cache, d)
			fmt.Printf("%s %s: %s\n", s.pkg, name, r)
			targets, inputs = targets+1, inputs+r.inputs
			if r.failure != "" {
				failures++
			}
		}
	}
	fmt.Printf("%d targets, %d inputs, %d failed\n", targets, inputs, failures)
	if targets == 0 {
		return false, errors.New("no package has a fuzz target")
	}
	return failures > 0, nil
}
