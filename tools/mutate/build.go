// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// maxBuilds limits how often a package is built. Each build leaves out the
// mutants that the compiler refused before.
const maxBuilds = 6

// binary are the test binaries that hold all mutants of a package, one for each folder of
// tests.
type binary struct {
	*source
	work       string       // the folder of the binaries
	refused    map[int]bool // by id: mutants that do not compile
	favourites sync.Map     // by entry: the test that noticed the last mutant of the function
}

// build weaves the mutants into the package and builds its tests.
func (s *source) build(work string) (*binary, error) {
	b := &binary{source: s, work: work, refused: map[int]bool{}}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, err
	}
	for range maxBuilds {
		refused, err := b.try(work)
		if err != nil || len(refused) == 0 {
			return b, err
		}
		for _, id := range refused {
			b.refused[id] = true
		}
	}
	return nil, fmt.Errorf("%s still does not compile after %d builds", s.folder(), maxBuilds)
}

// try builds once and returns the mutants that the compiler refused.
func (b *binary) try(work string) (refused []int, err error) {
	spans := map[string][]span{}
	overlay := map[string]string{}
	write := func(name, text string) error {
		path := filepath.Join(work, name)
		overlay[filepath.Join(b.dir, name)] = path
		return os.WriteFile(path, []byte(text), 0o644)
	}
	pkg := ""
	for name, f := range b.files {
		pkg = f.ast.Name.Name
		w := b.weave(f, func(id int) bool { return !b.refused[id] })
		if len(w.lines) == 0 {
			continue
		}
		spans[name] = w.lines
		if err := write(name, w.text); err != nil {
			return nil, err
		}
	}
	if err := write("once_mutant_selector.go", fmt.Sprintf(selector, pkg, len(b.mutants)+1)); err != nil {
		return nil, err
	}
	doc, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return nil, err
	}
	list := filepath.Join(work, "overlay.json")
	if err := os.WriteFile(list, doc, 0o644); err != nil {
		return nil, err
	}
	for _, tests := range b.suites() {
		// -e: print every error, not only the first ten.
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", list, "-gcflags=-e", "-o", b.path(tests), "./"+tests)
		cmd.Dir = b.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			if refused = whose(string(out), spans); len(refused) == 0 {
				return nil, fmt.Errorf("%s does not compile, and not because of a mutant:\n%s", b.folder(), out)
			}
			return refused, nil
		}
	}
	return nil, nil
}

// suites returns the folders in the package whose tests run.
func (s *source) suites() []string {
	if s.tests == nil {
		return []string{""}
	}
	return s.tests
}

// path returns the binary of a folder of tests.
func (b *binary) path(tests string) string {
	return filepath.Join(b.work, fmt.Sprintf("test%d", slices.Index(b.suites(), tests)))
}

var compileError = regexp.MustCompile(`(?m)^(\S*?)([^/\s]+\.go):(\d+):\d+: `)

// whose returns the mutants in whose lines the compiler found errors.
func whose(output string, spans map[string][]span) (ids []int) {
	seen := map[int]bool{}
	for _, m := range compileError.FindAllStringSubmatch(output, -1) {
		line, _ := strconv.Atoi(m[3])
		for _, s := range spans[strings.TrimSpace(m[2])] {
			if s.from <= line && line <= s.to && s.id != 0 && !seen[s.id] {
				seen[s.id] = true
				ids = append(ids, s.id)
			}
		}
	}
	return ids
}
