// SPDX-License-Identifier: Apache-2.0

package alarms

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// Metric identifies a metric. Dimensions is "name=value", sorted and joined with
// commas.
type Metric struct{ Namespace, Name, Dimensions string }

// MetricOf returns a metric with these dimensions: names and values in turn.
func MetricOf(namespace, name string, dimensions ...string) Metric {
	var pairs []string
	for pair := range slices.Chunk(dimensions, 2) {
		pairs = append(pairs, pair[0]+"="+pair[1])
	}
	slices.Sort(pairs)
	return Metric{namespace, name, strings.Join(pairs, ",")}
}

// Query is a metric with a statistic over a period.
type Query struct {
	Metric
	Stat   string // Sum or Maximum
	Period time.Duration
}

// Alarm is an alarm of a template.
type Alarm struct {
	ID          string // logical id
	Description string
	Topic       string // that is notified; empty without one

	Queries    map[string]Query // by id
	Expression string           // empty: the only query is compared
	Operator   string
	Threshold  float64
	N, M       int // M of N periods must be breaching
	Missing    string

	parsed expression // of Expression, once it was evaluated
}

// Load reads the alarms that a template of CloudFormation has with these parameters.
func Load(path string, parameters map[string]string) ([]*Alarm, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t := template{given: parameters}
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, fmt.Errorf("alarms: %s: %w", path, err)
	}
	var all []*Alarm
	for _, id := range slices.Sorted(maps.Keys(t.Resources)) {
		r := t.Resources[id]
		if r.Condition != "" && t.value(t.Conditions[r.Condition]) != true {
			continue
		}
		var p properties
		text, err := json.Marshal(t.value(r.Properties))
		if err == nil {
			err = json.Unmarshal(text, &p)
		}
		if err != nil {
			return nil, fmt.Errorf("alarms: %s: %s: %w", path, id, err)
		}
		a, err := p.alarm(id)
		if err != nil {
			return nil, fmt.Errorf("alarms: %s: %s: %w", path, id, err)
		}
		all = append(all, a)
	}
	return all, nil
}

// template is a template of CloudFormation that has only alarms.
type template struct {
	Parameters map[string]struct{ Default any }
	Conditions map[string]any
	Resources  map[string]struct {
		Condition  string
		Properties any
	}
	given map[string]string // parameters
}

// value returns v with the values of its functions. A member without a value is left out.
func (t *template) value(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = t.value(v[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for name, member := range v {
			switch name {
			case "Ref":
				return t.parameter(member.(string))
			case "Fn::Sub":
				return os.Expand(member.(string), func(name string) string { return t.parameter(name).(string) })
			case "Fn::Equals":
				both := t.value(member).([]any)
				return both[0] == both[1]
			case "Fn::Not":
				return t.value(member.([]any)[0]) != true
			case "Fn::If":
				choice := member.([]any)
				if t.value(t.Conditions[choice[0].(string)]) == true {
					return t.value(choice[1])
				}
				return t.value(choice[2])
			}
			if of := t.value(member); of != nil {
				out[name] = of
			}
		}
		return out
	}
	return v
}

// parameter returns the value of a parameter. AWS::NoValue has none.
func (t *template) parameter(name string) any {
	if value, ok := t.given[name]; ok {
		return value
	}
	return t.Parameters[name].Default
}

// properties are those of an AWS::CloudWatch::Alarm, as CloudFormation names them.
type properties struct {
	metricProperties
	Statistic          string
	Period             float64
	Metrics            []query
	AlarmDescription   string
	AlarmActions       []string
	ComparisonOperator string
	Threshold          *float64
	EvaluationPeriods  int
	DatapointsToAlarm  int
	TreatMissingData   string
}

type metricProperties struct {
	Namespace, MetricName string
	Dimensions            []struct{ Name, Value string }
}

type query struct {
	ID, Expression string
	ReturnData     *bool
	MetricStat     *struct {
		Metric metricProperties
		Period float64
		Stat   string
	}
}

func (p *properties) alarm(id string) (*Alarm, error) {
	a := &Alarm{
		ID: id, Description: p.AlarmDescription, Queries: map[string]Query{}, Operator: p.ComparisonOperator,
		N: p.EvaluationPeriods, M: p.DatapointsToAlarm, Missing: p.TreatMissingData,
	}
	switch {
	case p.Threshold == nil || a.N == 0:
		return nil, fmt.Errorf("no threshold or no periods")
	case a.M == 0:
		a.M = a.N
	}
	a.Threshold = *p.Threshold
	if a.Missing == "" {
		a.Missing = "missing"
	}
	for _, action := range p.AlarmActions {
		a.Topic = action
	}
	if p.MetricName != "" {
		a.Queries["metric"] = p.query(p.Statistic, p.Period)
		return a, nil
	}
	for _, q := range p.Metrics {
		switch {
		case q.MetricStat != nil:
			a.Queries[q.ID] = q.MetricStat.Metric.query(q.MetricStat.Stat, q.MetricStat.Period)
		case a.Expression != "":
			return nil, fmt.Errorf("two expressions")
		default:
			a.Expression = q.Expression
		}
	}
	if a.Expression == "" && len(a.Queries) != 1 {
		return nil, fmt.Errorf("%d metrics and no expression", len(a.Queries))
	}
	return a, nil
}

func (p *metricProperties) query(stat string, seconds float64) Query {
	var dimensions []string
	for _, d := range p.Dimensions {
		dimensions = append(dimensions, d.Name, d.Value)
	}
	return Query{MetricOf(p.Namespace, p.MetricName, dimensions...), stat, time.Duration(seconds) * time.Second}
}
