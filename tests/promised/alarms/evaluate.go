// SPDX-License-Identifier: Apache-2.0

// Package alarms evaluates the alarms of a synthesised template as CloudWatch
// does, on metrics that a simulation writes.
//
// The rules are those of the CloudWatch user guide: "Alarm evaluation" (the most
// recent M of N periods, in a sliding window), "Configuring how CloudWatch alarms
// treat missing data" (with its tables of examples) and "Using math expressions".
// Two things are not published, and are settings of an [Evaluator]: how many
// periods CloudWatch retrieves beyond N, and how late data arrives.
package alarms

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/token"
	"strings"
	"time"
)

// State is the state of an alarm.
type State string

// The states of an alarm.
const (
	OK               State = "OK"
	InAlarm          State = "ALARM"
	InsufficientData State = "INSUFFICIENT_DATA"
)

// Evaluator evaluates alarms once a minute.
type Evaluator struct {
	// Extra is how many periods are retrieved beyond those that an alarm evaluates.
	// In the examples of the user guide it is 2.
	Extra int
	// Delay is how late the values of a metric arrive.
	Delay time.Duration
}

// Evaluate returns the state of an alarm at the end of a minute, after the state
// before.
func (e *Evaluator) Evaluate(c *Cloud, a *Alarm, now time.Time, before State) State {
	x := a.expression()
	values := make(map[string]value, len(a.Queries))
	points := make([]byte, a.N+e.Extra) // the newest last
	for i := range points {
		for id, q := range a.Queries {
			end := now.Add(-time.Duration(len(points)-1-i) * q.Period) // CloudWatch requires the same period of all
			values[id] = c.value(q, end, now.Add(-e.Delay))
		}
		points[i] = a.breaches(x(values))
	}
	return a.judge(string(points), before)
}

// expression returns what the alarm compares.
func (a *Alarm) expression() expression {
	if a.parsed == nil {
		text := a.Expression
		for id := range a.Queries {
			text = cmp.Or(text, id) // the only one
		}
		var err error
		if a.parsed, err = parse(text); err != nil {
			panic(err)
		}
	}
	return a.parsed
}

// A period is breaching, not breaching, or has no data, as in the tables of the
// user guide.
const (
	breaching = 'X'
	good      = '0'
	missing   = '-'
)

func (a *Alarm) breaches(v value) byte {
	compare := operators[map[string]token.Token{
		"GreaterThanThreshold": token.GTR, "GreaterThanOrEqualToThreshold": token.GEQ,
		"LessThanThreshold": token.LSS, "LessThanOrEqualToThreshold": token.LEQ,
	}[a.Operator]]
	if compare == nil {
		panic("alarms: operator " + a.Operator + " is unknown")
	}
	switch {
	case v.missing:
		return missing
	case compare(v.number, a.Threshold) == 1:
		return breaching
	default:
		return good
	}
}

// judge returns the state that follows from the periods of the evaluation range,
// the newest last.
func (a *Alarm) judge(points string, before State) State {
	existing := strings.ReplaceAll(points, string(missing), "")
	existing = existing[max(0, len(existing)-a.N):] // the most recent ones, from wherever in the range
	bad, fill := strings.Count(existing, string(breaching)), a.N-len(existing)
	treat := a.Missing
	if a.ofDynamoDB() {
		treat = "ignore"
	}
	switch {
	case bad >= a.M:
		return InAlarm
	case fill == 0 || treat == "notBreaching":
		return OK
	case treat == "breaching":
		if bad+fill >= a.M {
			return InAlarm
		}
		return OK
	case strings.Contains(existing, string(good)):
		return OK
	case treat == "ignore":
		return before
	case existing != "" && len(points)-strings.IndexByte(points, breaching) >= a.M:
		// "Avoiding premature transitions": the oldest breaching period is old enough, and
		// all later ones are breaching or missing.
		return InAlarm
	default:
		return InsufficientData
	}
}

// ofDynamoDB reports whether the alarm evaluates a metric of DynamoDB itself.
// Such alarms ignore missing data, whatever they declare (API reference,
// PutMetricAlarm).
func (a *Alarm) ofDynamoDB() bool {
	for _, q := range a.Queries {
		if q.Namespace == "AWS/DynamoDB" {
			return true
		}
	}
	return false
}

// Cloud holds metrics, with a point for each minute. It is not safe for concurrent
// use.
type Cloud struct {
	start  time.Time
	points map[Metric][]point
}

// point is what a metric has in one minute, and in all minutes before.
type point struct {
	max      float64 // of the minute
	n        int     // values in the minute
	sumUntil float64
	nUntil   int
}

// NewCloud returns a cloud without metrics before start.
func NewCloud(start time.Time) *Cloud {
	return &Cloud{start.Truncate(time.Minute), map[Metric][]point{}}
}

// Put adds a value to a metric. Its time can be in the past: Lambda reports an
// invocation after its end, with the time of its start (Lambda developer guide, "Types
// of metrics for Lambda functions").
func (c *Cloud) Put(m Metric, at time.Time, v float64) {
	points, i := c.points[m], c.minute(at)
	for len(points) <= i {
		last := point{}
		if len(points) > 0 {
			last = points[len(points)-1]
		}
		points = append(points, point{sumUntil: last.sumUntil, nUntil: last.nUntil})
	}
	if p := &points[i]; p.n == 0 || v > p.max {
		p.max = v
	}
	points[i].n++
	for later := i; later < len(points); later++ {
		points[later].nUntil++
		points[later].sumUntil += v
	}
	c.points[m] = points
}

func (c *Cloud) minute(at time.Time) int { return int(at.Sub(c.start) / time.Minute) }

// Write takes lines in the embedded metric format, one for each call, as
// CloudWatch Logs does.
func (c *Cloud) Write(line []byte) (int, error) {
	var doc struct {
		AWS struct {
			Timestamp         int64
			CloudWatchMetrics []struct {
				Namespace  string
				Dimensions [][]string
				Metrics    []struct{ Name string }
			}
		} `json:"_aws"`
	}
	var members map[string]any
	if err := json.Unmarshal(line, &doc); err != nil {
		return 0, err
	}
	if err := json.Unmarshal(line, &members); err != nil {
		return 0, err
	}
	at := time.UnixMilli(doc.AWS.Timestamp)
	for _, d := range doc.AWS.CloudWatchMetrics {
		for _, set := range d.Dimensions {
			var dimensions []string
			for _, name := range set {
				dimensions = append(dimensions, name, fmt.Sprint(members[name]))
			}
			for _, m := range d.Metrics {
				values, several := members[m.Name].([]any)
				if !several {
					values = []any{members[m.Name]}
				}
				for _, v := range values {
					c.Put(MetricOf(d.Namespace, m.Name, dimensions...), at, v.(float64))
				}
			}
		}
	}
	return len(line), nil
}

// value returns a statistic over the period that ends at end, of the values that
// are visible: those before visible.
func (c *Cloud) value(q Query, end, visible time.Time) value {
	points := c.points[q.Metric]
	first, last := max(0, c.minute(end.Add(-q.Period))), min(len(points), c.minute(end), c.minute(visible))
	if first >= last {
		return series(0, false)
	}
	before, until := point{}, points[last-1]
	if first > 0 {
		before = points[first-1]
	}
	found := until.nUntil > before.nUntil
	switch q.Stat {
	case "Sum":
		return series(until.sumUntil-before.sumUntil, found)
	case "Maximum":
		v := series(0, false)
		for _, p := range points[first:last] {
			if p.n > 0 && (v.missing || p.max > v.number) {
				v = series(p.max, true)
			}
		}
		return v
	default:
		panic("alarms: statistic " + q.Stat + " is unknown")
	}
}
