// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	each := flag.Duration("time", time.Minute, "how long each target is fuzzed")
	flag.Parse()
	targets, err := find(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(2)
	}
	inputs, failures := 0, 0
	for _, t := range targets {
		r := t.run(*each)
		fmt.Printf("%s %s: %s\n", t.pkg, t.name, r)
		inputs += r.inputs
		if r.failure != "" {
			failures++
		}
	}
	fmt.Printf("%d targets, %d inputs, %d failed\n", len(targets), inputs, failures)
	if failures > 0 || len(targets) == 0 {
		os.Exit(1)
	}
}
