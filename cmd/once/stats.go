// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
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
or --due --no-scan, which costs 64 queries.`,
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

// costCmd is the command once cost.
type costCmd struct {
	*operate.Env
	service
}

// service is what a month of a service looks like.
type service struct {
	Requests float64 // first requests
	Retries  float64 // for each of them
	Unknown  float64 // share of them

	Retention  time.Duration
	Result     int // bytes, compressed
	Steps      int
	StepResult int // bytes
	Commit     int // items of a handler's own, 1 KB each

	Reconcile time.Duration // between two runs of the reconciler
	Scan      time.Duration // between two scans
}

func costCommand(e *operate.Env) *cobra.Command {
	c := costCmd{Env: e}
	cmd := exits(&cobra.Command{
		Use:   "cost",
		Short: "Compute what DynamoDB costs in a month",
		Long: `It needs no table. Prices are those of on-demand capacity in us-east-1, Standard
table class. Lambda, CloudWatch, keys of KMS, backups and replicas are not
included: see docs/cost.md.`,
		Example: `  once cost --requests 100e6
  once cost --requests 100e6 --retries 0.1 --retention 48h --result 2000`,
		RunE: command(e, c.run),
	}, operate.ExitOK, operate.ExitFailure, operate.ExitUsage)
	f := cmd.Flags()
	f.Float64Var(&c.Requests, "requests", 1e6, "`NUMBER` of first requests in a month")
	f.Float64Var(&c.Retries, "retries", 0.05, "`NUMBER` of retries of each request")
	f.Float64Var(&c.Unknown, "unknown", 0.0001, "`SHARE` of requests whose outcome is\nunknown")
	f.DurationVar(&c.Retention, "retention", 24*time.Hour, "`TIME` for which outcomes are kept")
	f.IntVar(&c.Result, "result", 200, "compressed size of a result in `BYTES`")
	f.IntVar(&c.Steps, "steps", 0, "`NUMBER` of steps of a handler")
	f.IntVar(&c.StepResult, "step-result", 200, "size of a step's result in `BYTES`")
	f.IntVar(&c.Commit, "commit", 0, "`NUMBER` of items of 1 KB that Commit writes")
	f.DurationVar(&c.Reconcile, "reconcile", time.Minute, "`TIME` between two runs of the reconciler;\n0: none")
	f.DurationVar(&c.Scan, "scan", 24*time.Hour, "`TIME` between two scans for abandoned runs\nwithout a warning; 0: none")
	return cmd
}

func (c *costCmd) run(context.Context, []string) error {
	if err := c.check(); err != nil {
		return err
	}
	bill := c.bill()
	total := 0.0
	for _, p := range bill {
		total += p.USD
	}
	if c.JSON {
		return c.Document(struct {
			Positions []position `json:"positions"`
			USD       float64    `json:"usd"`
		}{bill, total})
	}
	t := c.Table(0, "IN A MONTH", "WRITE UNITS", "READ UNITS", "$")
	for _, p := range bill {
		t.Add(nil, p.What, millions(p.Writes), millions(p.Reads), fmt.Sprintf("%.2f", p.USD))
	}
	t.Add(nil, "total", "", "", fmt.Sprintf("%.2f", total))
	return t.Flush()
}

func (s *service) check() error {
	for name, v := range map[string]float64{
		"requests": s.Requests, "retries": s.Retries, "retention": s.Retention.Seconds(), "result": float64(s.Result),
		"steps": float64(s.Steps), "step-result": float64(s.StepResult), "commit": float64(s.Commit),
	} {
		if !(v >= 0) || math.IsInf(v, 0) {
			return operate.Usage("--%s must be a number that is not negative", name)
		}
	}
	if !(s.Unknown >= 0 && s.Unknown <= 1) {
		return operate.Usage("--unknown must be a share between 0 and 1")
	}
	for name, d := range map[string]time.Duration{"reconcile": s.Reconcile, "scan": s.Scan} {
		if d != 0 && d < time.Minute {
			return operate.Usage("--%s must be 0 or at least 1m", name)
		}
	}
	return nil
}

// position is a line of a bill.
type position struct {
	What   string  `json:"what"`
	Writes float64 `json:"write_units,omitempty"`
	Reads  float64 `json:"read_units,omitempty"`
	Bytes  float64 `json:"bytes,omitempty"`
	USD    float64 `json:"usd"`
}

// Prices like readUnitUSD.
const (
	writeUnitUSD = 0.625 / 1e6
	gigabyteUSD  = 0.25 // in a month
	month        = 730 * time.Hour
)

const (
	recordBytes = 450            // of a record without its result
	inRecord    = 4 << 10        // a larger result is in chunks
	chunkBytes  = 396 << 10      // at most
	ttlDelay    = 48 * time.Hour // within which DynamoDB typically deletes an expired item
)

// units returns the write units of an item.
func units(bytes int) float64 { return math.Ceil(float64(bytes) / 1024) }

// bill computes the price by the units of docs/reports/cost.md.
func (s *service) bill() []position {
	record, chunks, parts := recordBytes+s.Result, 0.0, 0.0
	if s.Result > inRecord {
		parts = math.Ceil(float64(s.Result) / chunkBytes)
		record, chunks = recordBytes, math.Ceil(float64(s.Result)/1024)+parts
	}
	steps := 0.0
	for i := range s.Steps {
		steps += units(recordBytes + (i+1)*s.StepResult)
	}
	record += s.Steps * s.StepResult
	outcome := units(record)
	if s.Commit > 0 {
		outcome = 2 * (outcome + float64(s.Commit))
	}
	perRetry := units(record) // of the refused claim
	readsPerRetry := 0.0
	if chunks > 0 {
		readsPerRetry = math.Ceil(float64(s.Result)/4096) + parts
	}
	unknown := s.Requests * s.Unknown
	positions := []position{
		{What: "claims and outcomes", Writes: s.Requests * (1 + outcome)},
		{What: "large results", Writes: s.Requests * chunks},
		{What: "steps", Writes: s.Requests * steps},
		{What: "retries", Writes: s.Requests * s.Retries * perRetry, Reads: s.Requests * s.Retries * readsPerRetry},
		{What: "unknown outcomes", Writes: unknown * (1 + 2 + 3), Reads: unknown}, // in the index; settled; moved and removed
	}
	if s.Reconcile > 0 {
		positions = append(positions, position{What: "runs of the reconciler", Reads: month.Seconds() / s.Reconcile.Seconds() * 32.5})
	}
	stored := s.Requests / month.Seconds() * (s.Retention + ttlDelay).Seconds() * (float64(record) + chunks*1024)
	if s.Scan > 0 {
		positions = append(positions, position{What: "scans for abandoned runs", Reads: month.Seconds() / s.Scan.Seconds() * operate.ScanUnits(stored)})
	}
	positions = append(positions, position{What: "storage, " + output.Size(int(stored)), Bytes: stored})
	bill := positions[:0]
	for _, p := range positions {
		if p.USD = p.Writes*writeUnitUSD + p.Reads*operate.ReadUnitUSD + p.Bytes/1e9*gigabyteUSD; p.USD > 0 {
			bill = append(bill, p)
		}
	}
	return bill
}

// millions returns a number of units.
func millions(units float64) string {
	if units == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f M", units/1e6)
}
