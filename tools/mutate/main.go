// SPDX-License-Identifier: Apache-2.0

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
		root: root, targets: targets, equivalents: equivalents, endless: endless, left: leftOver,
		only: only, survivors: survivors, matrix: matrix, out: os.Stdout,
	}
	if list {
		return true, c.list()
	}
	return c.run()
}
