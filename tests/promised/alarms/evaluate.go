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
