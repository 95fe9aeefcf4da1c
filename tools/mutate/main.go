package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

func main() {
	root := flag.String("root", "..", "the repository's folder")
	pattern := flag.String("run", "", "only the mutants whose name matches this expression")
	list := flag.Bool("list", false, "list the mutants without running them")
	survivors := flag.Bool("survivors", false, "print only what needs a person's attention")
	flag.Parse()
	ok, err := start(*root, *pattern, *list, *survivors)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func start(root, pattern string, list, survivors bool) (ok bool, err error) {
	only, err := regexp.Compile(pattern)
	if err != nil {
		return false, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return false, err
	}
	c := campaign{
		root: root, targets: targets, equivalents: equivalents, endless: endless,
		only: only, survivors: survivors, out: os.Stdout,
	}
	if list {
		return true, c.list()
	}
	return c.run()
}
