// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
)

// cost is a part of the price, at the list prices of us-east-1 of 2026-11-21.
type cost struct {
	what   string
	amount float64
	price  float64 // of one, in dollars
}

// estimate returns the parts of the price of a run that checks these claims, each at
// most.
func estimate(claims []claim) []cost {
	const month = 730 // hours
	units := 0
	for _, c := range claims {
		units += c.units
	}
	return []cost{
		{"write units", float64(units), 0.625e-6},
		{"read units", 2_000, 0.125e-6},
		{"GB-seconds of Lambda", 200 * 5 * 0.128, 16.6667e-6},
		{"requests to Lambda, SQS, SNS, S3 and CloudWatch", 2_000, 5e-6},
		{"hours of a custom metric", 100 * 2, 0.30 / month},
		{"hours of a metric of an alarm", 60 * 2, 0.10 / month},
		{"GB of logs", 0.02, 0.50},
		{"hours of a key", 2, 1.0 / month},
		{"requests to KMS", 1_000, 3e-6},
		{"GB between regions", 0.001, 0.02},
	}
}

// printCosts prints the parts, and returns their sum.
func printCosts(out io.Writer, all []cost) (dollars float64) {
	fmt.Fprintf(out, "%-50s %8s %8s\n", "AT MOST", "AMOUNT", "DOLLARS")
	for _, c := range all {
		fmt.Fprintf(out, "%-50s %8g %8.4f\n", c.what, c.amount, c.amount*c.price)
		dollars += c.amount * c.price
	}
	fmt.Fprintf(out, "%-50s %17.4f\n", "total", dollars)
	return dollars
}
