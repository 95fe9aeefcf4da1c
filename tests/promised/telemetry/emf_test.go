// SPDX-License-Identifier: Apache-2.0

// Package telemetry checks that CloudWatch can read what is printed for it.
package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/telemetry"
	"github.com/once-lambda/once/telemetry/emf"
)

// maxLine is the limit of a log event.
const maxLine = 256 << 10

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	data, err := os.ReadFile("testdata/emf.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("emf.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("emf.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// document is the part of a line for rules that the schema does not contain.
type document struct {
	AWS struct {
		CloudWatchMetrics []struct {
			Dimensions [][]string
			Metrics    []struct{ Name string }
		}
	} `json:"_aws"`
}

// valid returns the first violation in a line, or nil.
func valid(s *jsonschema.Schema, line []byte) error {
	if len(line) > maxLine {
		return fmt.Errorf("%d bytes", len(line))
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
	if err != nil {
		return err
	}
	if err := s.Validate(instance); err != nil {
		return err
	}
	var doc document
	var members map[string]any
	if err := json.Unmarshal(line, &doc); err != nil {
		return err
	}
	if err := json.Unmarshal(line, &members); err != nil {
		return err
	}
	for _, d := range doc.AWS.CloudWatchMetrics {
		for _, set := range d.Dimensions {
			for _, name := range set {
				if v, ok := members[name].(string); !ok || v == "" || len(v) > 1024 {
					return fmt.Errorf("the dimension %s is %v", name, members[name])
				}
			}
		}
		seen := map[string]bool{}
		for _, m := range d.Metrics {
			values, several := members[m.Name].([]any)
			if _, single := members[m.Name].(float64); !single && !several || len(values) > 100 || seen[m.Name] {
				return fmt.Errorf("the metric %s is %v, or is declared twice", m.Name, members[m.Name])
			}
			for _, v := range values {
				if _, ok := v.(float64); !ok {
					return fmt.Errorf("the metric %s is %v", m.Name, values)
				}
			}
			seen[m.Name] = true
		}
	}
	return nil
}

// Every line is a valid document of the format: for every single event, for all
// together, for every valid operation name, and with the age of the oldest
// record.
func TestEMFIsValid(t *testing.T) {
	t.Parallel()
	s := schema(t)
	checked := 0
	check := func(what string, facts func(*emf.Observer)) {
		t.Helper()
		var w bytes.Buffer
		o, err := emf.New(&w, `Shop/"Charges" \ 1`)
		if err != nil {
			t.Fatal(err)
		}
		facts(o)
		if err := o.Flush(); err != nil || w.Len() == 0 {
			t.Errorf("%s: nothing was written, %v", what, err)
		}
		for line := range bytes.Lines(w.Bytes()) {
			checked++
			if err := valid(s, line); err != nil {
				t.Errorf("%s: %v\n%s", what, err, line)
			}
		}
	}
	observe := func(o *emf.Observer, kind event.Kind, operation string) {
		o.Observe(context.Background(), event.Event{Kind: kind, Operation: operation, Durations: event.Durations{Claim: time.Millisecond, Handler: time.Hour, Settle: 1}})
	}
	for _, m := range telemetry.Metrics() {
		check(m.Name, func(o *emf.Observer) { observe(o, m.Kind, "charge") })
	}
	all := func(o *emf.Observer, operation string) {
		for _, m := range telemetry.Metrics() {
			observe(o, m.Kind, operation)
		}
		o.Reconciled(t.Context(), idempotent.Report{Listed: true, Pending: 1, Oldest: time.Now().Add(-time.Hour)})
	}
	for _, operation := range []string{"charge", "all", "", ":", "POST /ä", "\x00\n\"\\", strings.Repeat("ä", 128), "\xff"} {
		check(fmt.Sprintf("operation %q", operation), func(o *emf.Observer) { all(o, operation) })
	}
	check("more than 100 requests", func(o *emf.Observer) {
		for range 250 {
			all(o, "charge")
		}
	})
	check("many", func(o *emf.Observer) {
		for i := range 300 {
			all(o, fmt.Sprint(i))
		}
	})
	t.Logf("%d lines are valid", checked)
	if checked < 130 {
		t.Error("too few lines for a result")
	}
}

// The rules reject what is not in the format.
func TestEMFRulesNotice(t *testing.T) {
	t.Parallel()
	s := schema(t)
	const good = `{"_aws":{"Timestamp":1,"CloudWatchMetrics":[{"Namespace":"n","Dimensions":[["operation"],[]],"Metrics":[{"Name":"m","Unit":"Count"}]}]},"operation":"charge","m":1}`
	if err := valid(s, []byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{`"Timestamp":1`, `"Timestamp":"1"`}, {`"Timestamp":1,`, ``}, {`"Timestamp":1`, `"Timestamp":1.5`},
		{`"Namespace":"n"`, `"Namespace":""`}, {`"Namespace":"n",`, ``}, {`[["operation"],[]]`, `["operation"]`}, {`[["operation"],[]]`, `[[""]]`}, {`[["operation"],[]]`, `[]`},
		{`"Unit":"Count"`, `"Unit":"count"`}, {`"Unit":"Count"`, `"Value":1`}, {`"Name":"m"`, `"Name":""`}, {`"Name":"m",`, ``},
		{`"m":1`, `"m":"1"`}, {`"m":1`, `"k":1`}, {`"m":1`, `"m":["1"]`}, {`"m":1`, `"m":[` + strings.Repeat("1,", 100) + `1]`}, {`"operation":"charge"`, `"operation":""`}, {`"operation":"charge",`, ``}, {`"_aws"`, `"aws"`},
		{`{"Name":"m","Unit":"Count"}`, `{"Name":"m"},{"Name":"m"}`}, {`"m":1`, `"m":1,"x":"` + strings.Repeat("x", maxLine) + `"`},
	} {
		bad := strings.Replace(good, change[0], change[1], 1)
		if bad == good || valid(s, []byte(bad)) == nil {
			t.Errorf("the rules accept %.100s", bad)
		}
	}
}
