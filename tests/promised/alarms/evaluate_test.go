// SPDX-License-Identifier: Apache-2.0

package alarms

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/telemetry/emf"
)

// The examples of the user guide, "Configuring how CloudWatch alarms treat missing
// data", with the newest period on the right. An alarm that retains its state was
// OK.
func TestPublishedExamples(t *testing.T) {
	t.Parallel()
	const retained = OK
	for _, c := range []struct {
		m                                        int // of 3
		points                                   string
		missing, ignore, breaching, notBreaching State
	}{
		{3, "0-X-X", OK, OK, OK, OK},
		{3, "0----", OK, OK, OK, OK},
		{3, "-----", InsufficientData, retained, InAlarm, OK},
		{3, "0XX-X", InAlarm, InAlarm, InAlarm, InAlarm},
		{3, "--X--", InAlarm, retained, InAlarm, OK},
		{3, "----X", InsufficientData, retained, InAlarm, OK},
		{3, "X----", InAlarm, retained, InAlarm, OK},
		{2, "0-X-X", InAlarm, InAlarm, InAlarm, InAlarm},
		{2, "00X0X", InAlarm, InAlarm, InAlarm, InAlarm},
		{2, "0-X--", OK, OK, InAlarm, OK},
		{2, "----0", OK, OK, InAlarm, OK},
		{2, "---X-", InAlarm, retained, InAlarm, OK},
		{2, "----X", InsufficientData, retained, InAlarm, OK},
	} {
		for treat, want := range map[string]State{"missing": c.missing, "ignore": c.ignore, "breaching": c.breaching, "notBreaching": c.notBreaching} {
			a := Alarm{N: 3, M: c.m, Missing: treat}
			if got := a.judge(c.points, OK); got != want {
				t.Errorf("%d of 3, %s treated as %s: %s, want %s", c.m, c.points, treat, got, want)
			}
		}
	}
	ignoring := Alarm{N: 3, M: 3, Missing: "ignore"}
	if got := ignoring.judge("--X--", InAlarm); got != InAlarm {
		t.Errorf("an alarm that ignores missing data changes to %s", got)
	}
}

// An alarm on a metric of DynamoDB ignores missing data, whatever it declares. A
// metric that only exists while something is wrong must be filled with zeros.
func TestDynamoDBIgnoresMissingData(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	throttles := Query{MetricOf("AWS/DynamoDB", "WriteThrottleEvents", "TableName", "records"), "Sum", time.Minute}
	plain := &Alarm{Queries: map[string]Query{"metric": throttles}, Operator: "GreaterThanThreshold", N: 1, M: 1, Missing: "notBreaching"}
	filled := &Alarm{Queries: map[string]Query{"m": throttles}, Expression: "FILL(m, 0)", Operator: "GreaterThanThreshold", N: 1, M: 1, Missing: "notBreaching"}
	c := NewCloud(start)
	c.Put(throttles.Metric, start.Add(30*time.Second), 5)
	e := &Evaluator{Extra: 2}
	for _, a := range []*Alarm{plain, filled} {
		if got := e.Evaluate(c, a, start.Add(time.Minute), OK); got != InAlarm {
			t.Errorf("with throttles: %s", got)
		}
	}
	later := start.Add(time.Hour)
	if got := e.Evaluate(c, plain, later, InAlarm); got != InAlarm {
		t.Errorf("an hour later the plain metric is %s", got)
	}
	if got := e.Evaluate(c, filled, later, InAlarm); got != OK {
		t.Errorf("an hour later the filled metric is %s", got)
	}
}

// The window slides each minute; late values are seen late; values of one period
// are summed, or their maximum is taken.
func TestWindow(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	m := MetricOf("Charges", "once.store_error", "operation", "charge")
	c := NewCloud(start)
	c.Put(m, at(12), 3)
	c.Put(m, at(10), 2) // as Lambda reports a long invocation after a short one
	for _, row := range []struct {
		stat      string
		period    time.Duration
		now       int
		delay     time.Duration
		threshold float64
		want      State
	}{
		{"Sum", 5 * time.Minute, 13, 0, 4, InAlarm},
		{"Sum", 5 * time.Minute, 13, time.Minute, 4, OK},
		{"Sum", 5 * time.Minute, 14, time.Minute, 4, InAlarm},
		{"Sum", 5 * time.Minute, 15, 0, 4, InAlarm},
		{"Sum", 5 * time.Minute, 16, 0, 4, OK},
		{"Sum", 5 * time.Minute, 17, 0, 2, InAlarm},
		{"Sum", 5 * time.Minute, 18, 0, 2, OK},
		{"Maximum", 5 * time.Minute, 13, 0, 3, OK},
		{"Maximum", 5 * time.Minute, 13, 0, 2, InAlarm},
	} {
		a := &Alarm{Queries: map[string]Query{"q": {m, row.stat, row.period}}, Expression: "FILL(q, 0)", Operator: "GreaterThanThreshold", Threshold: row.threshold, N: 1, M: 1, Missing: "notBreaching"}
		e := &Evaluator{Extra: 2, Delay: row.delay}
		if got := e.Evaluate(c, a, at(row.now), OK); got != row.want {
			t.Errorf("%s over %s > %v at minute %d, %s late: %s, want %s", row.stat, row.period, row.threshold, row.now, row.delay, got, row.want)
		}
	}
}

// Math expressions, with the user guide's rules for missing values ("Basic
// arithmetic functions", "Using IF expressions").
func TestExpressions(t *testing.T) {
	t.Parallel()
	none := series(0, false)
	values := map[string]value{"two": series(2, true), "ten": series(10, true), "zero": series(0, true), "none": none}
	for text, want := range map[string]value{
		"ten + two * 3":                       series(16, true),
		"(ten + two) * 3":                     series(36, true),
		"ten - two - 1":                       series(7, true),
		"100 * two / ten":                     series(20, true),
		"ten + none":                          series(10, true),
		"none + none":                         none,
		"none + 1":                            none,
		"ten / zero":                          none,
		"FILL(none, 7)":                       series(7, true),
		"FILL(two, 7)":                        series(2, true),
		"IF(two > 1, ten, two)":               series(10, true),
		"IF(two > 2, ten, two)":               series(2, true),
		"IF(none > 0, ten, two)":              series(2, true).without(),
		"IF(FILL(none, 0) > 0, ten, two)":     series(2, true),
		"IF(zero > 0, ten / zero, 100 * two)": series(200, true),
		"two <= 2":                            series(1, true),
		"two == 3":                            series(0, true),
		"1.5 + two":                           series(3.5, true),
	} {
		e, err := parse(text)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := e(values); got.missing != want.missing || !got.missing && got.number != want.number {
			t.Errorf("%s is %+v, want %+v", text, got, want)
		}
	}
	for _, text := range []string{"", "two +", "two two", "FILL(two)", "IF(two, ten)", "SUM(two)", "two & ten", "(two"} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func (v value) without() value { v.missing = true; return v }

// A template's alarms are read with all that is evaluated, as the parameters say; an alarm
// that lacks it is an error.
func TestLoad(t *testing.T) {
	t.Parallel()
	load := func(properties string, parameters map[string]string) ([]*Alarm, error) {
		path := filepath.Join(t.TempDir(), "alarms.json")
		text := `{"Parameters": {"Fn": {}, "Of": {"Default": ""}}, "Conditions": {"All": {"Fn::Equals": [{"Ref": "Of"}, ""]}, "One": {"Fn::Not": [{"Fn::Equals": [{"Ref": "Of"}, ""]}]}},
			"Resources": {"A": {"Properties": {` + properties + `}}, "B": {"Condition": "One", "Properties": {` + properties + `}}}}`
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Load(path, parameters)
	}
	const valid = `"Namespace": "AWS/Lambda", "MetricName": "Errors", "Dimensions": [{"Name": "FunctionName", "Value": {"Ref": "Fn"}}, {"Name": "A", "Value": {"Fn::If": ["All", "x", "y"]}}],
		"Statistic": "Sum", "Period": 60, "Threshold": 0, "EvaluationPeriods": 3, "ComparisonOperator": "GreaterThanThreshold", "AlarmActions": ["Topic"],
		"AlarmDescription": {"Fn::Sub": "${Of}: ${Fn} fails"}, "DatapointsToAlarm": {"Fn::If": ["One", 2, {"Ref": "AWS::NoValue"}]}`
	for _, row := range []struct {
		of, dimension, description string
		alarms, m                  int
	}{{"", "x", ": charge fails", 1, 3}, {"refund", "y", "refund: charge fails", 2, 2}} {
		got, err := load(valid, map[string]string{"Fn": "charge", "Of": row.of})
		if err != nil || len(got) != row.alarms {
			t.Fatal(got, err)
		}
		a := got[0]
		want := Query{MetricOf("AWS/Lambda", "Errors", "A", row.dimension, "FunctionName", "charge"), "Sum", time.Minute}
		if a.Queries["metric"] != want || a.N != 3 || a.M != row.m || a.Missing != "missing" || a.Topic != "Topic" || a.Description != row.description {
			t.Errorf("got %+v", a)
		}
	}
	for _, bad := range []string{
		`"MetricName": "Errors", "EvaluationPeriods": 1`, `"MetricName": "Errors", "Threshold": 0`, `"Threshold": 0, "EvaluationPeriods": 1`,
		`"Threshold": 0, "EvaluationPeriods": 1, "Metrics": [{"Id": "a", "Expression": "b"}, {"Id": "c", "Expression": "d"}]`,
	} {
		if _, err := load(bad, nil); err == nil || !strings.Contains(err.Error(), "A") {
			t.Errorf("%s: got error %v", bad, err)
		}
	}
}

// meter counts the bytes that go to CloudWatch Logs.
type meter struct {
	*Cloud
	bytes int
}

func (m *meter) Write(line []byte) (int, error) {
	m.bytes += len(line)
	for one := range bytes.Lines(line) {
		if _, err := m.Cloud.Write(one); err != nil {
			return 0, err
		}
	}
	return len(line), nil
}

// set is a set of alarms, and how many metrics they read: CloudWatch charges each.
type set struct{ alarms, metrics int }

func (s *set) add(a *Alarm) {
	s.alarms++
	s.metrics += len(a.Queries)
}

// The parts of docs/reports/cost.md and docs/reports/alarms.md about CloudWatch: list prices of us-east-1, times what a
// service with one operation publishes.
func TestCostOfWatching(t *testing.T) {
	t.Parallel()
	const metricUSD, alarmUSD, gigabyteUSD = 0.30, 0.10, 0.50
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	m := &meter{Cloud: NewCloud(now)}
	output, err := emf.New(m, "Charges", func(o *emf.Options) { o.Now = func() time.Time { return now } })
	if err != nil {
		t.Fatal(err)
	}
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
		o.Now, o.Observer, o.Logger = func() time.Time { return now }, output, slog.New(slog.DiscardHandler)
	})
	if err != nil {
		t.Fatal(err)
	}
	size := func(id string) int {
		before := m.bytes
		key := idempotent.Key{Operation: "POST /charges", Scope: "acme", ID: id, Fingerprint: idempotent.FingerprintBytes(nil)}
		if _, err := idempotent.Do(invocation{t.Context(), now.Add(10 * time.Second)}, guard, key, func(context.Context) (int, error) { return 1, nil }); err != nil {
			t.Fatal(err)
		}
		if err := output.Flush(); err != nil {
			t.Fatal(err)
		}
		return m.bytes - before
	}
	first, replay := size("a"), size("a")
	output.Reconciled(t.Context(), idempotent.Report{Listed: true})
	if err := output.Flush(); err != nil {
		t.Fatal(err)
	}
	of := map[string]*set{}
	service := &set{}
	for _, a := range shipped(t) {
		name, _, _ := strings.Cut(a.ID, " ")
		if name == "Charges" {
			service.add(a)
		}
		part := name
		for _, q := range a.Queries {
			switch {
			case q.Dimensions == "FunctionName=Reconcile", q.Dimensions == "operation=all":
				part = "reconciler"
			case q.Namespace != name:
				part = name + " " + q.Namespace
			}
		}
		if of[part] == nil {
			of[part] = &set{}
		}
		of[part].add(a)
	}
	var prices strings.Builder
	prices.WriteString("| alarms on | alarms | metrics in them | a month |\n| --- | --: | --: | --: |\n")
	for _, row := range [][2]string{
		{"the requests of all operations", "Charges"}, {"or of each operation, without a reconciler", "Orders"},
		{"each function", "Charges AWS/Lambda"}, {"the reconciler", "reconciler"}, {"the table and its index", "Charges AWS/DynamoDB"}, {"each queue", "Orders AWS/SQS"},
	} {
		s := of[row[1]]
		if s == nil {
			t.Fatalf("there are no alarms on %s", row[0])
		}
		fmt.Fprintf(&prices, "| %s | %d | %d | $%.2f |\n", row[0], s.alarms, s.metrics, float64(s.metrics)*alarmUSD)
	}
	fmt.Fprintf(&prices, "| a service with a function, a reconciler and its two queues | %d | %d | $%.2f |\n", service.alarms, service.metrics, float64(service.metrics)*alarmUSD)
	kit.Part(t, "../../../docs/reports/alarms.md", "price", prices.String(), *update)
	alarms, metrics := service.alarms, service.metrics
	if first < 200 || first > 2000 || replay < 100 || replay > first || len(m.points) < 8 || alarms < 10 || metrics < alarms {
		t.Fatalf("%d and %d bytes, %d metrics, %d alarms with %d metrics", first, replay, len(m.points), alarms, metrics)
	}
	var text strings.Builder
	text.WriteString("| CloudWatch | measured | price | a month |\n| --- | --: | --: | --: |\n")
	fmt.Fprintf(&text, "| metrics of one operation and the reconciler (`telemetry/emf`) | %d | $%.2f each | $%.2f |\n", len(m.points), metricUSD, float64(len(m.points))*metricUSD)
	fmt.Fprintf(&text, "| alarms of a service (`NewIdempotencyAlarms`), %d with %d metrics | %d | $%.2f each | $%.2f |\n", alarms, metrics, metrics, alarmUSD, float64(metrics)*alarmUSD)
	fmt.Fprintf(&text, "| line of metrics of a first request | %d B | $%.2f for a GB | $%.2f for a million |\n", first, gigabyteUSD, float64(first)*1e6/1e9*gigabyteUSD)
	fmt.Fprintf(&text, "| line of metrics of a replay | %d B | $%.2f for a GB | $%.2f for a million |\n", replay, gigabyteUSD, float64(replay)*1e6/1e9*gigabyteUSD)
	kit.Part(t, "../../../docs/reports/cost.md", "watching", text.String(), *update)
}
