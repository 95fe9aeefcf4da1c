// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/internal/tabledef"
)

// ScanProps are how a reconciler finds runs whose process ended without a warning,
// and whose request never came again. It reads the whole table, part by part, in its
// runs. It finds a run that was killed at its deadline without a scan.
type ScanProps struct {
	// Every is the longest pause between two scans. After one that found such a run, the
	// next one begins after an hour, and each that finds none doubles the pause. In a
	// table with a Prefix the pause is always Every. Zero: no scans, and no permission
	// for them; the next request with the key finds the run. Default: a day, or the
	// interval between two runs if that is longer. It must not be zero in a table with
	// strong consistency across regions, where the scan also deletes expired items.
	Every awscdk.Duration

	// Segments is how many parts of the table are read in parallel, each at 8 MB a
	// second. Default: 1.
	Segments *float64

	// RequestsPerMonth, Retention and RecordBytes estimate the size of the table: how
	// many first requests there are, for how long the functions store outcomes, and the
	// average size of a record with its result, if that is in the same table. A longer
	// Retention of an event source counts, if its function has a grant of the table. They
	// decide whether the segments can keep to the interval, and the price that synthesis
	// prints. Defaults: one million, 24 hours, and 450 bytes.
	RequestsPerMonth *float64
	Retention        awscdk.Duration
	RecordBytes      *float64

	// OtherBytes is the size of the other items in a table with a TableLayout, because
	// a scan reads all items. Synthesis warns without it. Default: 0.
	OtherBytes *float64
}

const (
	// scanUnits is how many read units a segment takes in a second, see
	// dynamostore.Store.Abandoned.
	scanUnits = 1000
	// defaultScanEvery is the default of dynamostore.Options.ScanEvery, and
	// pauseAfterFind the pause after a scan that found something.
	defaultScanEvery, pauseAfterFind = 24 * time.Hour, time.Hour
	// defaultRetention is the default of idempotent.Operation.Retention, and
	// deletedWithin is how long DynamoDB keeps an expired item: it "typically deletes
	// expired items within 48 hours" (AWS Knowledge Center, 2022-08-26; the developer
	// guide says "within a few days" since).
	defaultRetention, deletedWithin = 24 * time.Hour, 48 * time.Hour
	// unitBytes is what an eventually consistent read unit reads.
	unitBytes = 8 << 10
	// month has 730 hours.
	month = 730 * time.Hour
	// inline is the largest result that is in its record.
	inline = 4 << 10
	// The price of a million read units, in dollars, on demand, us-east-1, 2026-11-21.
	readPrice = 0.125
	// listUnits is what a run of the reconciler reads if nothing is due.
	listUnits = 32.5
)

// scan is the scan of a reconciler's table.
type scan struct {
	on       constructs.Construct // the reconciler
	props    ScanProps
	function awslambda.IFunction
	table    *IdempotencyTable
	runs     length // the interval between two runs, at least a minute
	every    length
	segments float64

	scheduled bool // the settings can work
}

func newScan(on constructs.Construct, function awslambda.IFunction, table *IdempotencyTable, props *ScanProps, runs length) *scan {
	s := &scan{on: on, props: or(props, ScanProps{}), function: function, table: table, runs: runs}
	s.runs.Duration = max(s.runs.Duration, time.Minute)
	s.segments = or(s.props.Segments, 1)
	s.every = lengthOf(s.props.Every, max(defaultScanEvery, s.runs.Duration))
	return s
}

// off reports whether there are no scans.
func (s *scan) off() bool { return !s.every.unknown && s.every.Duration == 0 }

// schedule passes the settings that are not the store's defaults to the function. It
// refuses those that cannot work, as far as they are known at synthesis.
func (s *scan) schedule() {
	whenComplete(s.on, s.judgeAll)
	switch {
	case s.off() && s.props != ScanProps{Every: s.props.Every}:
		refuse(s.on, "Scan.Every is zero, so there are no scans, and another property of Scan is set: remove it, or set Scan.Every")
		return
	case s.off() && s.table.strong:
		refuse(s.on, "Scan.Every is zero, and the table has strong consistency across regions, so it has no time to live and only the scan deletes expired items: remove it, or set another interval")
		return
	case s.off():
		s.set("off", 1)
		return
	case s.every.unknown || s.props.Segments != nil && isToken(s.props.Segments):
		refuse(s.on, "Scan.Every or Scan.Segments is known only at the deployment: set it to a value that synthesis can check")
		return
	case s.segments < 1 || s.segments > 1000 || s.segments != math.Trunc(s.segments):
		refuse(s.on, fmt.Sprintf("Scan.Segments is %v: set it to a whole number from 1 to 1,000", s.segments))
		return
	case s.every.under(s.runs.Duration):
		refuse(s.on, fmt.Sprintf("Scan.Every is %s, which is shorter than the interval between two runs (%s): set it to that at least", inWords(s.every.Duration), inWords(s.runs.Duration)))
		return
	}
	s.set(s.every.String(), int(s.segments))
	if s.besideOthers() && s.props.OtherBytes == nil {
		warn(s.on, "once:other-items", "the table has other items, and each scan reads them: set Scan.OtherBytes to their size, or Scan.Every to zero")
	}
	s.scheduled = true
}

// set sets the variables of the function, without those that have the store's
// defaults.
func (s *scan) set(every string, segments int) {
	setVariables(s.on, s.function,
		unless(defaultScanEvery.String(), s.table.variable("ONCE_SCAN_EVERY"), every),
		unless("1", s.table.variable("ONCE_SCAN_SEGMENTS"), strconv.Itoa(segments)))
}

// besideOthers reports whether the table has other items.
func (s *scan) besideOthers() bool { return *s.table.layout.Prefix != "" }

// judgeAll judges the table when its indexes and every source of its functions are known.
func (s *scan) judgeAll() {
	if s.table.lacksIndex() {
		refuse(s.on, "the table has no index "+tabledef.IndexName+", in which a reconciler finds due records: add it, see docs/deploy-company.md")
	}
	if s.scheduled {
		s.judge()
	}
}

// judge refuses segments that cannot keep to the interval, and prints the price.
func (s *scan) judge() {
	retention := lengthOf(s.props.Retention, defaultRetention)
	for _, fn := range s.table.functions {
		of := retentionOf(fn)
		retention = length{max(retention.Duration, of.Duration), retention.unknown || of.unknown}
	}
	if retention.unknown || s.anyToken() {
		return
	}
	requests, size := or(s.props.RequestsPerMonth, 1e6), or(s.props.RecordBytes, 450)
	if size > inline && s.table.Chunks == nil && !s.table.strong {
		warn(s.on, "once:scan", fmt.Sprintf(
			"results are large (RecordBytes is %v), and each scan reads them: call KeepLargeResultsIn of the table and set RecordBytes without the results", size))
	}
	kept := retention.Duration + deletedWithin
	if s.table.strong { // the scan deletes expired items
		kept = retention.Duration + s.every.Duration
	}
	units := (requests*per(kept, month)*size + or(s.props.OtherBytes, 0)) / unitBytes
	takes := ""
	if fn := functionBehind(s.function); fn != nil {
		if timeOut := lengthOf(fn.Timeout(), defaultTimeout); !timeOut.unknown {
			// A run scans for half of its time.
			speed := s.segments * scanUnits * per(min(timeOut.Duration, s.runs.Duration)/2, s.runs.Duration)
			needs := time.Duration(units / speed * float64(time.Second))
			if needs > s.every.Duration {
				enough, atLeast := math.Ceil(s.segments*per(needs, s.every.Duration)), needs.Truncate(time.Minute)+time.Minute
				refuse(s.on, fmt.Sprintf("a scan of %s takes %s, which is longer than Scan.Every (%s): set Scan.Segments to %.0f or more, or Scan.Every to %s or more",
					inBytes(units*unitBytes), inWords(needs.Round(time.Minute)), inWords(s.every.Duration), enough, inWords(atLeast)))
				return
			}
			takes = ", which takes " + inWords(needs.Round(time.Second))
		}
	}
	monthly := func(every time.Duration) float64 { return readPrice / 1e6 * units * per(month, every) }
	price := fmt.Sprintf("about $%.2f a month", monthly(s.every.Duration))
	if s.every.Duration > pauseAfterFind && !s.besideOthers() {
		price += fmt.Sprintf(", and $%.2f if each finds one", monthly(pauseAfterFind))
	}
	awscdk.Annotations_Of(s.on).AddInfoV2(jsii.String("once:price"), jsii.String(fmt.Sprintf(
		"a scan for runs that ended without a warning reads %s (outcomes of %s) every %s%s: %s; the lists of the reconciler cost $%.2f (on demand, us-east-1; see docs/cost.md)",
		inBytes(units*unitBytes), inWords(kept), inWords(s.every.Duration), takes, price, readPrice/1e6*listUnits*per(month, s.runs.Duration))))
}

// anyToken reports whether a number of the estimate is known only at the deployment.
func (s *scan) anyToken() bool {
	return s.runs.unknown || slices.ContainsFunc([]*float64{s.props.RequestsPerMonth, s.props.RecordBytes, s.props.OtherBytes},
		func(n *float64) bool { return n != nil && isToken(n) })
}

// per returns how often b is in a.
func per(a, b time.Duration) float64 { return float64(a) / float64(b) }

// inBytes formats a size.
func inBytes(n float64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.0f MB", n/(1<<20))
	}
	return fmt.Sprintf("%.1f GB", n/(1<<30))
}
