// SPDX-License-Identifier: Apache-2.0

package scale

import "time"

// Backlog is a number of records that wait for evidence, and what settles them: one
// or several reconcilers, whose runs begin together.
type Backlog struct {
	Records     int
	Reconcilers int
	Concurrency int
	Provider    time.Duration // of a call of the resolver
	Call        time.Duration // of a call of the store; a record needs three
	Entry       time.Duration // for an entry of the list

	Timeout  time.Duration // of the function: at least 24 s
	Interval time.Duration // from the beginning of a run to the next one, which waits for the last run
	Scan     time.Duration // of a run's time: for a part of the scan for abandoned runs; at most half
}

const (
	// firstEntries is how many entries a run reads before it works.
	firstEntries = 100_000
	// perRecord is the time that a run needs to begin a record.
	perRecord = 12 * time.Second
)

// Rate returns how many records are settled a second while the runs work.
func (b Backlog) Rate() float64 {
	// Each reconciler also reads what the others have claimed.
	each := b.Provider + time.Duration(3+b.Reconcilers-1)*b.Call
	return float64(b.Reconcilers*b.Concurrency) / each.Seconds()
}

// Settle returns after what time no record waits, if the provider answers, and how
// many runs each reconciler needs.
func (b Backlog) Settle() (after time.Duration, runs int) {
	left, rate := float64(b.Records), b.Rate()
	for {
		runs++
		run := b.Scan
		for run < b.Timeout-perRecord {
			held := min(left, firstEntries)
			run += time.Duration(held * float64(b.Entry))
			settled := min(held, rate*(b.Timeout-perRecord-run).Seconds())
			run += time.Duration(settled / rate * float64(time.Second))
			if left -= settled; left < 1 {
				return after + run, runs
			}
		}
		after += max(b.Interval, run)
	}
}
