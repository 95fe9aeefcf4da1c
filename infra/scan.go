// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// ScanProps are how a reconciler finds runs that were abandoned: their process was
// killed, and no request came again. It reads the whole table, part by part, in its
// runs. A table with IndexRunning needs no scan.
type ScanProps struct {
	// Every is the interval between two scans. An abandoned run is found at the latest
	// after its lease, this interval and the time of a scan. Default: an hour, or the
	// interval between two runs if that is longer.
	Every awscdk.Duration

	// Segments is how many parts of the table are read in parallel, each at 8 MB a
	// second. Default: 1.
	Segments *float64

	// RequestsPerMonth, KeptFor and RecordBytes estimate the size of the table: how
	// many first requests there are, how long DynamoDB holds a record, and its average
	// size with its result, if that is in the same table. They decide whether the
	// segments can keep to the interval, and the price that synthesis prints. Defaults:
	// one million, 25 hours (a retention of 24 hours), and 450 bytes.
	RequestsPerMonth *float64
	KeptFor          awscdk.Duration
	RecordBytes      *float64

	// OtherBytes is the size of the other items in a table with a TableLayout, because
	// a scan reads all items. Synthesis warns without it. Default: 0.
	OtherBytes *float64
}

const (
	// scanUnits is how many read units a segment takes in a second, see
	// dynamostore.Options.ScanUnits.
	scanUnits = 1000
	// defaultScanEvery is the default of dynamostore.Options.ScanEvery.
	defaultScanEvery = time.Hour
	// unitBytes is what an eventually consistent read unit reads.
	unitBytes = 8 << 10
	// month has 730 hours.
	month = 730 * time.Hour
	// inline is the largest result that is in its record.
	inline = 4 << 10
	// Prices of a million units, in dollars, on demand, us-east-1, 2026-11-21.
	writePrice, readPrice = 0.625, 0.125
	// listUnits is what a run of the reconciler reads if nothing is due.
	listUnits = 32.5
)

// scheduleScan passes the settings of the scan that are not the store's defaults to
// the function, which runs at that interval. It refuses those that cannot work, and
// prints the price. It judges only what is known at synthesis.
func scheduleScan(c constructs.Construct, function awslambda.IFunction, table *IdempotencyTable, props *ScanProps, interval length) {
	scan := ScanProps{}
	if props != nil {
		scan = *props
	}
	every, kept, timeOut := lengthOf(scan.Every, max(defaultScanEvery, interval.Duration)), lengthOf(scan.KeptFor, 25*time.Hour), length{unknown: true}
	if fn := functionBehind(function); fn != nil {
		timeOut = lengthOf(fn.Timeout(), defaultTimeout)
	}
	estimated := !interval.unknown && !kept.unknown
	for _, n := range []*float64{scan.RequestsPerMonth, scan.RecordBytes, scan.OtherBytes, scan.Segments} {
		estimated = estimated && (n == nil || !isToken(n))
	}
	requests, size, segments := or(scan.RequestsPerMonth, 1e6), or(scan.RecordBytes, 450), or(scan.Segments, 1)
	lists := readPrice / 1e6 * listUnits * per(month, max(interval.Duration, time.Minute))
	if table.indexRunning {
		if props != nil {
			refuse(c, "Scan is set and the table has IndexRunning, so no scan is needed: remove one of them")
		}
		if estimated {
			printPrice(c, "in the index (IndexRunning), found within a minute after the lease", writePrice/1e6*2*requests, lists)
		}
		return
	}
	switch {
	case every.unknown || scan.Segments != nil && isToken(scan.Segments):
		refuse(c, "Scan.Every or Scan.Segments is known only at the deployment: set it to a value that synthesis can check")
		return
	case segments < 1 || segments > 1000 || segments != math.Trunc(segments):
		refuse(c, fmt.Sprintf("Scan.Segments is %v: set it to a whole number from 1 to 1,000", segments))
		return
	case every.under(interval.Duration):
		refuse(c, fmt.Sprintf("Scan.Every is %s, which is shorter than the interval between two runs (%s): set it to that at least", inWords(every.Duration), inWords(interval.Duration)))
		return
	}
	if every.Duration != defaultScanEvery {
		setVariable(function, "ONCE_SCAN_EVERY", jsii.String(every.String()))
	}
	if segments > 1 {
		setVariable(function, "ONCE_SCAN_SEGMENTS", jsii.String(strconv.Itoa(int(segments))))
	}
	if size > inline && table.Chunks == nil && estimated {
		warn(c, "once:scan", fmt.Sprintf(
			"results are large (RecordBytes is %v), and each scan reads them: call KeepLargeResultsIn of the table and set RecordBytes without the results, or call IndexRunning", size))
	}
	if *table.layout.Prefix != "" && scan.OtherBytes == nil {
		warn(c, "once:other-items", "the table has other items, and each scan reads them: call IndexRunning of the table, or set Scan.OtherBytes to their size")
	}
	if !estimated {
		return
	}
	units := (requests*per(kept.Duration, month)*size + or(scan.OtherBytes, 0)) / unitBytes
	takes := ""
	if !timeOut.unknown {
		// A run scans for half of its time.
		speed := segments * scanUnits * per(min(timeOut.Duration, interval.Duration)/2, interval.Duration)
		needs := time.Duration(units / speed * float64(time.Second))
		if needs > every.Duration {
			enough, atLeast := math.Ceil(segments*per(needs, every.Duration)), needs.Truncate(time.Minute)+time.Minute
			refuse(c, fmt.Sprintf("a scan of %s takes %s, which is longer than Scan.Every (%s): set Scan.Segments to %.0f or more, or Scan.Every to %s or more, or call IndexRunning of the table",
				inBytes(units*unitBytes), inWords(needs.Round(time.Minute)), inWords(every.Duration), enough, inWords(atLeast)))
			return
		}
		takes = ", which takes " + inWords(needs.Round(time.Second))
	}
	printPrice(c, fmt.Sprintf("found by a scan every %s of %s%s", inWords(every.Duration), inBytes(units*unitBytes), takes),
		readPrice/1e6*units*per(month, every.Duration), lists)
}

// printPrice prints what finding abandoned runs costs a month.
func printPrice(c constructs.Construct, how string, finding, lists float64) {
	awscdk.Annotations_Of(c).AddInfoV2(jsii.String("once:price"), jsii.String(fmt.Sprintf(
		"abandoned runs are %s: about $%.2f a month; the lists of the reconciler cost $%.2f (on demand, us-east-1; see docs/cost.md)", how, finding, lists)))
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
