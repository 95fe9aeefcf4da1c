// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/idempotent/driver"
)

// statsCmd is the command once stats.
type statsCmd struct{ *operate.Env }

func statsCommand(e *operate.Env) *cobra.Command {
	return exits(&cobra.Command{
		Use:   "stats",
		Short: "Count records and their sizes",
		Long: `It reads the whole table, including large results, and prints what the read
cost. To count only unknown or due records, use once list with --state unknown
or --due, which costs 64 queries.`,
		Example: `  once stats
  once stats --json`,
		RunE: onStore(e, (&statsCmd{e}).run),
	}, operate.ExitOK, operate.ExitFailure, operate.ExitUsage)
}

func (c *statsCmd) run(ctx context.Context, o operate.Store) error {
	s, err := operate.CountAll(ctx, c.Env, o, func(*driver.Record) {})
	if err != nil {
		return err
	}
	if c.JSON {
		err = c.Document(s)
	} else {
		err = c.print(s, o.Scheduled() != nil)
	}
	if s.Unreadable > 0 {
		err = errors.Join(err, fmt.Errorf("%s could not be read; once list shows which", output.Count(s.Unreadable, "record")))
	}
	return err
}

func (c *statsCmd) print(s *operate.Stats, scans bool) error {
	now := c.Now()
	if len(s.Groups) > 0 {
		t := c.Table(0, "OPERATION", "STATE", "RECORDS", "OLDEST", "RESULTS")
		for _, g := range s.Groups {
			t.Add(nil, output.OneLine(g.Operation), g.State, output.Grouped(g.Records), output.Span(now.Sub(g.Oldest.Time)), output.Size(g.Bytes))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(c.Stdout)
	}
	unknown := output.Grouped(s.Unknown)
	if s.Unknown > 0 {
		unknown += fmt.Sprintf("\nthe oldest is %s\ncreated %s", output.Short(s.OldestUnknown), output.When(s.OldestSince.Time, now))
	}
	facts := [][2]string{
		{"records", fmt.Sprintf("%s, with results of %s", output.Grouped(s.Records), output.Size(s.Bytes))},
		{"unknown", unknown},
		{"resumable", output.Grouped(s.Resumable)},
		{"due", fmt.Sprintf("%s now, and %s given up", output.Grouped(s.Due), output.Grouped(s.Exhausted))},
		{"lease over", fmt.Sprintf("%s in progress without an outcome", output.Grouped(s.Ended))},
		{"expired", output.Grouped(s.Expired)},
	}
	if scans {
		facts = append(facts, [2]string{"last scan", lastScan(s.ScanBegan.Time, s.ScanEnded.Time, now)})
	}
	if s.ReadUnits > 0 {
		facts = append(facts, [2]string{"this read", fmt.Sprintf("%s, %.1f read units, about $%.6f (on demand, us-east-1)", output.Count(s.Items, "item"), s.ReadUnits, s.USD)})
	}
	_, err := fmt.Fprint(c.Stdout, output.Labelled(facts))
	return err
}

// lastScan describes the last scan for abandoned runs.
func lastScan(began, ended, now time.Time) string {
	switch {
	case began.IsZero():
		return "none has begun: a reconciler makes them"
	case ended.IsZero():
		return "none has ended; the first one began " + output.When(began, now)
	case began.After(ended):
		return "ended " + output.When(ended, now) + "\nthe next one began " + output.When(began, now)
	default:
		return "ended " + output.When(ended, now)
	}
}
