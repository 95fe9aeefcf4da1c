// SPDX-License-Identifier: Apache-2.0

package alarms

import (
	"encoding/json"
	"fmt"
	"time"
)

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
