// SPDX-License-Identifier: Apache-2.0

// Command way counts the files of the product that the way of one request enters, and
// their lines: neither blank nor only a comment. It runs the test TestWayOfOneRequest
// of package idempotent twice, without and with its requests, and compares how often
// each statement ran. Run it in the root of the repository.
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/once-lambda/once/"

// packages are those that a request on memstore can enter.
const packages = "./idempotent,./idempotent/driver,./idempotent/event,./idempotent/memstore,./internal/canonical,./internal/jsontypes,./internal/logs"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "way:", err)
		os.Exit(1)
	}
}

func run() error {
	starts, err := profile("^TestWayOfOneRequest$/^no request$")
	if err != nil {
		return err
	}
	requests, err := profile("^TestWayOfOneRequest$")
	if err != nil {
		return err
	}
	var files []string
	for block, count := range requests {
		file, _, _ := strings.Cut(strings.TrimPrefix(block, module), ":")
		if count != starts[block] && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	slices.Sort(files)
	total := 0
	for _, file := range files {
		n, err := lines(file)
		if err != nil {
			return err
		}
		total += n
		fmt.Printf("%5d %s\n", n, file)
	}
	fmt.Printf("way of one request: %d files, %d lines\n", len(files), total)
	return nil
}

// profile runs the test and returns how often each block of statements ran.
func profile(test string) (map[string]string, error) {
	dir, err := os.MkdirTemp("", "way")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "cover.out")
	cmd := exec.Command("go", "test", "-count=1", "-run", test, "-covermode=count", "-coverpkg="+packages, "-coverprofile="+out, "./idempotent")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	counts := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if block, count, found := strings.Cut(strings.TrimSpace(line), " "); found && strings.HasPrefix(block, module) {
			counts[block] = count
		}
	}
	return counts, nil
}

// lines counts the lines with code of a file.
func lines(file string) (n int, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		if line := strings.TrimSpace(s.Text()); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n, s.Err()
}
