// SPDX-License-Identifier: Apache-2.0

// Command mutate breaks the protocol's code on purpose, one small change at a
// time, and runs the tests that have to notice. If a clause of a condition can
// be removed and no test fails, that clause is untested.
//
//	make mutate                       # every mutant
//	make mutate ARGS='-run decide'    # those whose name matches
//	make mutate ARGS='-survivors'     # print only those that a person has to look at
//	make mutate ARGS='-list'          # list the mutants without running them
//	make mutate ARGS='-matrix'        # find every test that notices a mutant; takes much longer
//
// targets.go lists the files to break, operators.go and conditions.go define
// the changes, and declared.go lists the changes that are not observable, with the
// reasons, and those that survive for now. For each package the tool builds one test
// binary with all mutants: every function to be broken begins with a switch to its
// broken copies, and an environment variable selects one. The broken sources exist
// only in a temporary folder (go build -overlay); the tree is never changed.
//
// With -matrix it also prints, for each test, how many mutants it notices and how many of
// them no other test does, and the tests that could go together: every mutant that one of
// them notices is noticed by a test that stays. Such a test may still show a requirement,
// a line of a log or a race.
//
// The tool prints one line with the result of each mutant, and a summary of each
// package and of all, with the time that it took. The
// exit status is 1 if a mutant survived, if it only timed out and is not
// declared to be endless, if it was declared equivalent but killed, if it
// does not compile, or if a declaration matches no mutant. It is 2 if the tests fail
// without any mutant, because then the run shows nothing.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

func main() {
	root := flag.String("root", "..", "the folder of the repository")
	pattern := flag.String("run", "", "run only the mutants whose name matches this regular expression")
	list := flag.Bool("list", false, "list the mutants without running them")
	survivors := flag.Bool("survivors", false, "print only the mutants that a person has to look at")
	matrix := flag.Bool("matrix", false, "find every test that notices a mutant, and print the tests that no mutant needs")
	flag.Parse()
	ok, err := start(*root, *pattern, *list, *survivors, *matrix)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func start(root, pattern string, list, survivors, matrix bool) (ok bool, err error) {
	only, err := regexp.Compile(pattern)
	if err != nil {
		return false, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return false, err
	}
	c := campaign{
		root: root, targets: targets, equivalents: equivalents, endless: endless,
		only: only, survivors: survivors, matrix: matrix, out: os.Stdout,
	}
	if list {
		return true, c.list()
	}
	return c.run()
}
