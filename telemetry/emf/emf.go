// SPDX-License-Identifier: Apache-2.0

// Package emf counts the events of package idempotent in CloudWatch's embedded
// metric format: log lines that CloudWatch turns into metrics, without a call and
// without an agent (CloudWatch user guide, "Specification: Embedded metric
// format").
//
//	metrics, err := emf.New(os.Stdout, os.Getenv("ONCE_METRICS_NAMESPACE"))
//	guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Observer = metrics })
//	lambda.StartHandlerFunc(emf.Flushed(metrics, handler))
//
// The metrics are written at the end of an invocation: one line for each
// operation with events. Package telemetry has their names. Each count of an operation
// is a metric with the dimension operation and a metric without dimensions, which alarms
// on all operations read.
//
// A line has the member kind with the value "metric", and the level INFO, or that of
// the function's log filter if it is above: see [New].
package emf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/logs"
	"github.com/once-lambda/once/telemetry"
)

// maxOperations limits how many operations are counted separately, because each is
// billed as a separate metric. Events of further operations are counted as "other".
const maxOperations = 100

const (
	other = "other" // the operation of events beyond maxOperations
	all   = "all"   // the operation of metrics about all operations
)

// Observer counts events. Make one with [New]; it is safe for concurrent use.
type Observer struct {
	w   io.Writer
	now func() time.Time

	mu         sync.Mutex
	operations map[string]*metrics
	order      []*metrics // in the order of their first events
	line       []byte     // buffer, reused for every line
	parts      parts
	failed     error // of a line that was written before the flush
}

// parts are the parts of a line that are the same in every line.
type parts struct {
	counted  []byte // the beginning of the declaration of an operation's counts
	measured []byte // and that of its histograms, and of what is about no operation
	kind     []byte // the members level and kind
}

// metrics are the values of one operation since the last line.
type metrics struct {
	operation []byte // as a JSON string
	general   bool   // the metrics are about no operation
	counts    [metricCount]uint32
	durations [len(histograms)][]time.Duration
	gauges    [len(gauges)]float64
	gauged    int // how many of the gauges have been set, from the first on
	any       bool
}

// metricCount is the size of the array of counts. If it is too small, the program
// panics at its start.
const metricCount = 40

// maxValues is how many values of a histogram fit in a line (CloudWatch user
// guide, "Specification: Embedded metric format": an array of at most 100).
const maxValues = 100

// fragment are the two parts of a line for a metric: its declaration, and the
// member with its value.
type fragment struct{ declared, member string }

func fragmentOf(name, unit string) fragment {
	return fragment{`{"Name":"` + name + `","Unit":"` + unit + `"}`, `,"` + name + `":`}
}

var (
	counts = func() (f [metricCount]fragment) {
		for i, m := range telemetry.Metrics() {
			f[i] = fragmentOf(m.Name, "Count")
		}
		return f
	}()
	histograms = [...]fragment{
		fragmentOf(telemetry.ClaimDuration, "Seconds"), fragmentOf(telemetry.HandlerDuration, "Seconds"), fragmentOf(telemetry.SettleDuration, "Seconds"),
	}
	gauges = [...]fragment{
		fragmentOf(telemetry.UnknownRecords, "Count"), fragmentOf(telemetry.UnknownOldestAge, "Seconds"),
		fragmentOf(telemetry.ReleasedRecords, "Count"), fragmentOf(telemetry.ReleasedOldestAge, "Seconds"),
		fragmentOf(telemetry.ScanAge, "Seconds"), // the last one, because it can be missing
	}
)

// Options are the options of [New]. The zero value of each field is its documented
// default.
type Options struct {
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// New returns an observer that writes to w. In a function w is usually os.Stdout,
// which Lambda sends to CloudWatch Logs. The namespace of the metrics has 1 to 255
// printable ASCII characters (CloudWatch API reference, PutMetricData).
//
// New reads AWS_LAMBDA_LOG_FORMAT and AWS_LAMBDA_LOG_LEVEL. If the function's log
// filter is above INFO, each line has the filter's level, so that Lambda does not drop
// it. Such a level does not mean that something is wrong.
func New(w io.Writer, namespace string, optFns ...func(*Options)) (*Observer, error) {
	if w == nil {
		return nil, errors.New("emf: New: missing writer: usually os.Stdout")
	}
	if namespace == "" || len(namespace) > 255 || strings.ContainsFunc(namespace, unprintable) ||
		strings.HasPrefix(namespace, "AWS/") || strings.HasPrefix(namespace, ":") {
		return nil, fmt.Errorf("emf: New: invalid namespace %q: want 1 to 255 printable ASCII characters that begin neither with ':' nor with AWS/: if it is the value of ONCE_METRICS_NAMESPACE, set that to the namespace of the alarms", namespace)
	}
	var o Options
	for _, f := range optFns {
		f(&o)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	e := &Observer{w: w, now: o.Now, operations: map[string]*metrics{}}
	begin := quote([]byte(`{"Namespace":`), namespace)
	e.parts = parts{
		counted:  slices.Concat(begin, []byte(`,"Dimensions":[["operation"],[]],"Metrics":[`)),
		measured: slices.Concat(begin, []byte(`,"Dimensions":[["operation"]],"Metrics":[`)),
		kind:     []byte(`,"level":"` + logs.Kept() + `","kind":"metric"`),
	}
	return e, nil
}

// Observe counts e and collects its durations. An event about no operation, such
// as a list of due records that failed, counts for the operation "all".
func (o *Observer) Observe(_ context.Context, e event.Event) {
	i := telemetry.Index(e.Kind)
	if i < 0 {
		return // of a later version
	}
	operation := e.Operation
	if operation == "" {
		operation = all
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	m := o.of(operation)
	m.counts[i]++
	m.any = true
	full := false
	for i, d := range [...]time.Duration{e.Durations.Claim, e.Durations.Handler, e.Durations.Settle} {
		if d > 0 {
			m.durations[i] = append(m.durations[i], d)
			full = full || len(m.durations[i]) == maxValues
		}
	}
	if full {
		o.write(m)
	}
}

// Reconciled sets the gauges of the operation "all" and writes all metrics, as
// [Observer.Flush] does: how many records wait, and for how long. The guard calls it
// with every report, so a reconciler needs no [Flushed]. It sets no gauge if the
// report does not cover all records ([idempotent.Report.Listed]), so that a metric
// without data shows a reconciler that fails.
func (o *Observer) Reconciled(_ context.Context, r idempotent.Report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.Listed {
		o.gauge(r)
	}
	o.flush()
}

// gauge sets the gauges. The caller holds the lock.
func (o *Observer) gauge(r idempotent.Report) {
	m, now := o.of(all), o.now()
	scanned := cmp.Or(r.Scan.Ended, r.Scan.Began)
	age := func(since time.Time) float64 { return telemetry.Age(since, now).Round(time.Millisecond).Seconds() }
	m.gauges = [...]float64{
		float64(r.Pending), age(r.Oldest), float64(r.PendingReleased), age(r.OldestReleased), age(scanned),
	}
	m.gauged, m.any = len(gauges), true
	if scanned.IsZero() {
		m.gauged--
	}
}

// of returns the metrics of an operation. The caller holds the lock.
func (o *Observer) of(operation string) *metrics {
	m := o.operations[operation]
	switch {
	case m != nil:
		return m
	case len(o.operations) >= maxOperations && operation != other && operation != all:
		return o.of(other)
	}
	m = &metrics{operation: quote(nil, dimension(operation)), general: operation == all}
	o.operations[operation] = m
	o.order = append(o.order, m)
	return m
}

// Flush writes the metrics since the last flush, one line for each operation, and
// returns an error of the writer since then. Metrics that could not be written
// are lost, so that a metric cannot fail an invocation. After 100 requests of an
// operation its line is written without a flush.
func (o *Observer) Flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flush()
	failed := o.failed
	o.failed = nil
	return failed
}

// flush writes the lines. The caller holds the lock.
func (o *Observer) flush() {
	for _, m := range o.order {
		if m.any {
			o.write(m)
		}
	}
}

// write writes the line of an operation. The caller holds the lock.
func (o *Observer) write(m *metrics) {
	o.line = m.append(o.line[:0], &o.parts, o.now())
	m.counts, m.gauged, m.any = [metricCount]uint32{}, 0, false
	for i := range m.durations {
		m.durations[i] = m.durations[i][:0]
	}
	if _, err := o.w.Write(o.line); err != nil {
		o.failed = err
	}
}

// append appends one line.
func (m *metrics) append(line []byte, p *parts, now time.Time) []byte {
	line = append(line, `{"_aws":{"Timestamp":`...)
	line = strconv.AppendInt(line, now.UnixMilli(), 10)
	line = append(line, `,"CloudWatchMetrics":[`...)
	var declaring []byte // the beginning of the declaration that is open
	declare := func(begin []byte, f *fragment) {
		switch {
		case declaring == nil:
			line = append(line, begin...)
		case &declaring[0] != &begin[0]:
			line = append(append(line, "]},"...), begin...)
		default:
			line = append(line, ',')
		}
		declaring = begin
		line = append(line, f.declared...)
	}
	counted := p.counted
	if m.general {
		counted = p.measured
	}
	for i, n := range m.counts {
		if n > 0 {
			declare(counted, &counts[i])
		}
	}
	for i, values := range m.durations {
		if len(values) > 0 {
			declare(p.measured, &histograms[i])
		}
	}
	for i := range m.gauged {
		declare(p.measured, &gauges[i])
	}
	line = append(line, `]}]},"timestamp":"`...)
	line = appendTime(line, now.UTC())
	line = append(append(line, '"'), p.kind...)
	line = append(line, `,"operation":`...)
	line = append(line, m.operation...)
	for i, n := range m.counts {
		if n > 0 {
			line = append(line, counts[i].member...)
			line = strconv.AppendUint(line, uint64(n), 10)
		}
	}
	for i, values := range m.durations {
		if len(values) > 0 {
			line = appendValues(append(line, histograms[i].member...), values)
		}
	}
	for i, v := range m.gauges[:m.gauged] {
		line = append(line, gauges[i].member...)
		line = strconv.AppendFloat(line, v, 'f', -1, 64)
	}
	return append(line, "}\n"...)
}

// appendTime appends a time of UTC in the format of RFC 3339, in milliseconds. Package
// time formats the layout without a fraction in half of the time.
func appendTime(line []byte, t time.Time) []byte {
	line = t.AppendFormat(line, time.RFC3339)
	milliseconds := t.Nanosecond() / int(time.Millisecond)
	return append(line[:len(line)-len("Z")], '.', byte('0'+milliseconds/100), byte('0'+milliseconds/10%10), byte('0'+milliseconds%10), 'Z')
}

// appendValues appends durations as an array of seconds.
func appendValues(line []byte, values []time.Duration) []byte {
	line = append(line, '[')
	for i, d := range values {
		if i > 0 {
			line = append(line, ',')
		}
		line = strconv.AppendFloat(line, d.Seconds(), 'f', 6, 64)
	}
	return append(line, ']')
}

// dimension returns an operation as the value of a dimension. CloudWatch drops a
// metric unless the value is printable ASCII, is not blank, and does not begin
// with a colon (CloudWatch API reference, Dimension).
func dimension(operation string) string {
	if strings.TrimSpace(operation) == "" {
		return other
	}
	var b strings.Builder
	for i, r := range operation {
		if unprintable(r) || i == 0 && r == ':' {
			b.WriteString(url.QueryEscape(string(r)))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }

// quote appends s, which is printable ASCII, as a JSON string.
func quote(line []byte, s string) []byte {
	line = append(line, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			line = append(line, '\\')
		}
		line = append(line, s[i])
	}
	return append(line, '"')
}

// Flushed returns h wrapped so that o is flushed after each call, even if the call
// fails or panics. It logs an error of the flush.
func Flushed[Req, Resp any](o *Observer, h func(context.Context, Req) (Resp, error)) func(context.Context, Req) (Resp, error) {
	return func(ctx context.Context, req Req) (Resp, error) {
		defer func() {
			if err := o.Flush(); err != nil {
				slog.Default().LogAttrs(ctx, slog.LevelWarn, "emf: metrics were lost", slog.Any("error", err))
			}
		}()
		return h(ctx, req)
	}
}

var _ event.Observer = (*Observer)(nil)
