// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"text/tabwriter"
)

// cost is a part of the price, at the list prices of us-east-1 of 2026-11-21.
type cost struct {
	what   string
	amount float64
	price  float64 // of one, in dollars
}

// writeUnits limits the write units of a run: about twice what the claims take.
const writeUnits = 40_000

// estimate returns the parts of the price of a run, each at most.
func estimate(kms bool) []cost {
	const month = 730 // hours
	all := []cost{
		{"write units", writeUnits, 0.625e-6},
		{"read units", 40_000, 0.125e-6},
		{"GB-seconds of Lambda", 500 * 3 * 0.128, 16.6667e-6},
		{"requests to Lambda, SQS, SNS, S3 and CloudWatch", 5_000, 5e-6},
		{"hours of a custom metric", 100 * 2, 0.30 / month},
		{"hours of a metric of an alarm", 60 * 2, 0.10 / month},
		{"GB of logs", 0.02, 0.50},
	}
	if kms {
		all = append(all, cost{"hours of a key", 2, 1.0 / month}, cost{"requests to KMS", 1_000, 3e-6})
	}
	return all
}

func sum(all []cost) (dollars float64) {
	for _, c := range all {
		dollars += c.amount * c.price
	}
	return dollars
}

func printCosts(w io.Writer, all []cost) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "AT MOST\tAMOUNT\tDOLLARS")
	for _, c := range all {
		fmt.Fprintf(table, "%s\t%g\t%.4f\n", c.what, c.amount, c.amount*c.price)
	}
	fmt.Fprintf(table, "total\t\t%.4f\n", sum(all))
	return table.Flush()
}

// budget counts write units, so that no loop spends more than the estimate.
type budget struct {
	spent atomic.Int64
	limit int64
}

// spend is called before calls that take n write units. It returns an error if there
// are not as many left.
func (b *budget) spend(n int) error {
	if total := b.spent.Add(int64(n)); total > b.limit {
		return fmt.Errorf("the run would spend %d write units, more than the %d of its estimate: it stops", total, b.limit)
	}
	return nil
}
