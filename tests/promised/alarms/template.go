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
// commas. A value that refers to a resource is its logical id.
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
	Topic       string // logical id of the topic that is notified; empty without one

	Queries    map[string]Query // by id
	Expression string           // empty: the only query is compared
	Operator   string
	Threshold  float64
	N, M       int // M of N periods must be breaching
	Missing    string

	parsed expression // of Expression, once it was evaluated
}

// Load reads the alarms of a file that a test of package infra writes: resources
// by type and logical id.
func Load(path string) ([]*Alarm, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file map[string]map[string]struct{ Properties properties }
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("alarms: %s: %w", path, err)
	}
	resources := file["AWS::CloudWatch::Alarm"]
	var all []*Alarm
	for _, id := range slices.Sorted(maps.Keys(resources)) {
		r := resources[id]
		a, err := r.Properties.alarm(id)
		if err != nil {
			return nil, fmt.Errorf("alarms: %s: %s: %w", path, id, err)
		}
		all = append(all, a)
	}
	return all, nil
}

// properties are those of an AWS::CloudWatch::Alarm, as CloudFormation names them.
type properties struct {
	metricProperties
	Statistic          string
	Period             float64
	Metrics            []query
	AlarmDescription   string
	AlarmActions       []reference
	ComparisonOperator string
	Threshold          *float64
	EvaluationPeriods  int
	DatapointsToAlarm  int
	TreatMissingData   string
}

type metricProperties struct {
	Namespace, MetricName string
	Dimensions            []struct {
		Name  string
		Value reference
	}
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
		a.Topic = string(action)
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
		dimensions = append(dimensions, d.Name, string(d.Value))
	}
	return Query{MetricOf(p.Namespace, p.MetricName, dimensions...), stat, time.Duration(seconds) * time.Second}
}

// reference is a text, or the logical id of the resource that is referred to.
type reference string

func (r *reference) UnmarshalJSON(data []byte) error {
	var to struct {
		Ref    string
		GetAtt []string `json:"Fn::GetAtt"`
	}
	if json.Unmarshal(data, (*string)(r)) == nil {
		return nil
	}
	if err := json.Unmarshal(data, &to); err != nil {
		return err
	}
	if *r = reference(to.Ref); len(to.GetAtt) > 0 {
		*r = reference(to.GetAtt[0])
	}
	return nil
}
