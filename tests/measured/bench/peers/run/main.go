// SPDX-License-Identifier: Apache-2.0

// Command run measures the contestants and writes results.json.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"time"

	"github.com/once-lambda/once/tests/measured/bench/peers"
)

func main() {
	var o peers.Options
	flag.IntVar(&o.Runs, "runs", 5, "comparisons, each with new processes")
	flag.IntVar(&o.Rounds, "rounds", 12, "turns of each contestant at the lightest works, in a run")
	flag.IntVar(&o.Starts, "starts", 31, "starts of each contestant")
	name := flag.String("name", time.Now().UTC().Format("2006-01-02 15:04"), "the name of the run")
	out := flag.String("o", "results.json", "the file for the results")
	flag.Parse()
	o.Log = os.Stderr
	r, err := peers.Measure(context.Background(), o)
	if err != nil {
		log.Fatal(err)
	}
	r.Run = *name
	data, err := r.Encode()
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*out, data, 0o644); err != nil {
		log.Fatal(err)
	}
}
