// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"
)

// campaign is one run of the tool.
type campaign struct {
	root    string // absolute
	targets []target
	// equivalents and endless are the declarations of declared.go, by mutant name.
	equivalents, endless map[string]string

	only      *regexp.Regexp // of the mutants' names
	survivors bool           // print only the mutants that a person has to look at
	matrix    bool           // find every test that notices a mutant, and the tests that none needs
	out       io.Writer
}

// list prints the mutants.
func (c *campaign) list() error {
	sources, err := c.sources()
	if err != nil {
		return err
	}
	for _, s := range sources {
		for _, m := range c.chosen(s) {
			fmt.Fprintf(c.out, "%s (%s:%d)\n", m.name(), m.file, m.line)
		}
	}
	return nil
}

// run runs the mutants, prints the fate of each, and reports whether all are as
// expected.
func (c *campaign) run() (ok bool, err error) {
	began := time.Now()
	sources, err := c.sources()
	if err != nil {
		return false, err
	}
	work, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(work)
	var sum summary
	for i, s := range sources {
		if len(c.chosen(s)) == 0 {
			continue
		}
		start, before := time.Now(), sum
		b, err := s.build(filepath.Join(work, fmt.Sprint(i)))
		if err != nil {
			return false, err
		}
		if err := c.judge(b, &sum); err != nil {
			return false, err
		}
		fmt.Fprintf(c.out, "%s: %s in %s\n", s.folder(), sum.since(before), time.Since(start).Round(time.Second))
	}
	stale := c.stale(sources)
	for _, name := range stale {
		fmt.Fprintf(c.out, "declared.go names a mutant that does not exist: %s\n", name)
	}
	fmt.Fprintf(c.out, "%s in %s\n", sum, time.Since(began).Round(time.Second))
	return sum.ok() && len(stale) == 0, nil
}

func (c *campaign) sources() (sources []*source, err error) {
	for _, t := range c.targets {
		s, err := readSource(c.root, t)
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// chosen returns the mutants of a package that the run is about.
func (c *campaign) chosen(s *source) (out []mutant) {
	for _, m := range s.mutants {
		if c.only.MatchString(m.name()) {
			out = append(out, m)
		}
	}
	return out
}

// controlEvery is the number of mutants per run of the intact code.
const controlEvery = 100

// judge runs the mutants of a package, several at once, and counts and prints each
// verdict when it is known. Now and then it also runs the intact code: if that
// fails, the result is an error too, because the failures may not be caused by the
// mutants. A survivor stays one.
func (c *campaign) judge(b *binary, sum *summary) error {
	tests, err := b.rehearse()
	if err != nil {
		return err
	}
	var mu sync.Mutex
	noticed := matrix{}
	note := func(v verdict) {
		mu.Lock()
		defer mu.Unlock()
		sum[v.outcome]++
		noticed.add(v)
		if !c.survivors || !v.fine() {
			fmt.Fprintln(c.out, v)
		}
	}
	chosen := c.chosen(b.source)
	controls := make([]fate, 1+len(chosen)/controlEvery)
	slots := make(chan struct{}, 2*runtime.NumCPU()) // tests also wait
	var wg sync.WaitGroup
	start := func(work func()) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			work()
		})
	}
	for i, m := range chosen {
		if i%controlEvery == 0 {
			start(func() { controls[i/controlEvery] = b.run(mutant{}, tests) })
		}
		if b.refused[m.id] {
			note(verdict{mutant: m, outcome: refused})
			continue
		}
		var without []string
		if m.condition {
			without = b.quoting
		}
		start(func() { note(c.verdict(m, c.try(b, m, tests, without))) })
	}
	wg.Wait()
	for _, f := range controls {
		if f.noticed {
			err = b.unsound(f)
		}
	}
	if c.matrix && err == nil {
		err = noticed.report(c.out, b, tests)
	}
	return err
}

// try runs the tests that can notice the mutant m. A test that does not end
// decides nothing: others may fail. So it is left out and the others run again, a
// few times, unless m is declared endless.
func (c *campaign) try(b *binary, m mutant, tests []test, without []string) fate {
	_, loops := c.endless[m.name()]
	if c.matrix && !loops {
		return b.runAll(m, tests, without)
	}
	first := b.run(m, tests, without...)
	if loops {
		return first
	}
	f := first
	for range 5 {
		if f.stuck == "" {
			break
		}
		without = append(without, f.stuck)
		if f = b.run(m, tests, without...); f.noticed && !f.timedOut {
			return f
		}
	}
	return first
}

// verdict returns the verdict about a mutant with the given fate.
func (c *campaign) verdict(m mutant, f fate) verdict {
	reason, declared := c.equivalents[m.name()]
	_, loops := c.endless[m.name()]
	v := verdict{mutant: m, fate: f, reason: reason}
	switch {
	case declared && f.noticed:
		v.outcome = wronglyDeclared
	case declared:
		v.outcome = equivalent
	case f.timedOut && loops:
		v.outcome = neverEnds
	case f.timedOut:
		v.outcome = hung
	case f.noticed:
		v.outcome = killed
	default:
		v.outcome = survived
	}
	return v
}

// stale returns the declared names that match no mutant.
func (c *campaign) stale(sources []*source) (names []string) {
	found := map[string]bool{}
	for _, s := range sources {
		for _, m := range s.mutants {
			found[m.name()] = true
		}
	}
	for _, declared := range []map[string]string{c.equivalents, c.endless} {
		for name := range declared {
			if !found[name] {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}
