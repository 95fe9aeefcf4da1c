// SPDX-License-Identifier: Apache-2.0

// Package emf counts the facts of package idempotent in CloudWatch's embedded
// metric format: log lines that CloudWatch turns into metrics, without a call and
// without an agent (CloudWatch user guide, "Specification: Embedded metric
// format").
//
//	metrics, err := emf.New(os.Stdout, "Charges")
//	guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Observer = metrics })
//	lambda.StartHandlerFunc(emf.Flushed(metrics, handler))
//
// The counts are written at the end of an invocation: one line for each operation
// with facts. Package telemetry has the names of the metrics.
package emf

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/telemetry"
)

// maxOperations limits how many operations are counted separately, because each is
// billed as a separate metric. Facts of further operations are counted as "other".
const maxOperations = 100

const (
	other = "other" // the operation of facts beyond maxOperations
	all   = "all"   // the operation of metrics about all operations
)

// Observer counts facts. Make one with [New]; it is safe for concurrent use.
type Observer struct {
	w   io.Writer
	now func() time.Time

	mu         sync.Mutex
	operations map[string]*counts
	order      []*counts // in the order of their first facts
	line       []byte    // buffer, reused for every line
	before     []byte    // the line's beginning, before the names of the metrics
}

// counts are the facts of one operation since the last flush.
type counts struct {
	operation  []byte // as a JSON string
	facts      [metricCount]uint32
	reconciled bool          // the gauges have been set
	unknown    time.Duration // telemetry.OldestUnresolved
	released   time.Duration // telemetry.OldestReleased
	any        bool
}

// metricCount is the size of the array of metrics. If it is too small, the program
// panics at its start.
const metricCount = 32

// fragments are the two parts of a line for each metric: its declaration, and the
// member with its value.
var fragments = func() (f [metricCount]struct{ declared, member string }) {
	for i, m := range telemetry.Metrics() {
		f[i].declared = `{"Name":"` + m.Name + `","Unit":"Count"}`
		f[i].member = `,"` + m.Name + `":`
	}
	return f
}()

// Options are the options of [New]. The zero value of each field is its documented
// default.
type Options struct {
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// New returns an observer that writes to w. In a function w is usually os.Stdout,
// which Lambda sends to CloudWatch Logs. The namespace of the metrics has 1 to 255
// printable ASCII characters (CloudWatch API reference, PutMetricData).
func New(w io.Writer, namespace string, optFns ...func(*Options)) (*Observer, error) {
	if w == nil {
		return nil, errors.New("emf: New: missing writer: usually os.Stdout")
	}
	if namespace == "" || len(namespace) > 255 || strings.ContainsFunc(namespace, unprintable) ||
		strings.HasPrefix(namespace, "AWS/") || strings.HasPrefix(namespace, ":") {
		return nil, errors.New("emf: invalid namespace: want 1 to 255 printable ASCII characters that begin neither with ':' nor with AWS/")
	}
	o := Options{Now: time.Now}
	for _, f := range optFns {
		f(&o)
	}
	e := &Observer{w: w, now: o.Now, operations: map[string]*counts{}}
	e.before = append(quote([]byte(`,"CloudWatchMetrics":[{"Namespace":`), namespace), `,"Dimensions":[["operation"]],"Metrics":[`...)
	return e, nil
}

// Observe counts e.
func (o *Observer) Observe(_ context.Context, e event.Event) {
	i := telemetry.Index(e.Kind)
	if i < 0 {
		return // of a later version
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.of(e.Operation)
	c.facts[i]++
	c.any = true
}

// Reconciled sets two metrics of the operation "all": the ages of the oldest
// records that r counts as unknown, and as released. Call it with every report.
func (o *Observer) Reconciled(r idempotent.Report) {
	now := o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.of(all)
	c.unknown, c.released = telemetry.Age(r.Oldest, now), telemetry.Age(r.OldestReleased, now)
	c.reconciled, c.any = true, true
}

// of returns the counts of an operation. The caller holds the lock.
func (o *Observer) of(operation string) *counts {
	c := o.operations[operation]
	switch {
	case c != nil:
		return c
	case len(o.operations) >= maxOperations && operation != other && operation != all:
		return o.of(other)
	}
	c = &counts{operation: quote(nil, dimension(operation))}
	o.operations[operation] = c
	o.order = append(o.order, c)
	return c
}

// Flush writes the counts since the last flush, one line for each operation, and
// returns the writer's error. Counts that could not be written are lost, so that a
// metric cannot fail an invocation.
func (o *Observer) Flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var failed error
	for _, c := range o.order {
		if !c.any {
			continue
		}
		o.line = c.append(o.line[:0], o.before, o.now())
		if _, err := o.w.Write(o.line); err != nil {
			failed = err
		}
		c.facts, c.reconciled, c.any = [metricCount]uint32{}, false, false
	}
	return failed
}

// append appends one line.
func (c *counts) append(line, before []byte, now time.Time) []byte {
	line = append(line, `{"_aws":{"Timestamp":`...)
	line = strconv.AppendInt(line, now.UnixMilli(), 10)
	line = append(line, before...)
	comma := false
	for i, n := range c.facts {
		if n > 0 {
			line = separated(line, comma, fragments[i].declared)
			comma = true
		}
	}
	if c.reconciled {
		line = separated(line, comma, `{"Name":"`+telemetry.OldestUnresolved+`","Unit":"Seconds"},{"Name":"`+telemetry.OldestReleased+`","Unit":"Seconds"}`)
	}
	line = append(line, `]}]},"operation":`...)
	line = append(line, c.operation...)
	for i, n := range c.facts {
		if n > 0 {
			line = append(line, fragments[i].member...)
			line = strconv.AppendUint(line, uint64(n), 10)
		}
	}
	if c.reconciled {
		line = append(line, `,"`+telemetry.OldestUnresolved+`":`...)
		line = strconv.AppendFloat(line, c.unknown.Seconds(), 'f', 3, 64)
		line = append(line, `,"`+telemetry.OldestReleased+`":`...)
		line = strconv.AppendFloat(line, c.released.Seconds(), 'f', 3, 64)
	}
	return append(line, "}\n"...)
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

func separated(line []byte, comma bool, s string) []byte {
	if comma {
		line = append(line, ',')
	}
	return append(line, s...)
}

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
