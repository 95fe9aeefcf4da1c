// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/telemetry"
	"github.com/once-lambda/once/telemetry/emf"
)

// watched is what an alarm of the stack watches: the metrics of an operation, or of
// all if it is empty, in the namespace of a function.
type watched struct{ namespace, operation string }

// G12: each alarm is about metrics that a function of the stack prints to its
// log, which CloudWatch reads. An alarm about others would never fire.
func TestAlarmsWatchWhatIsPrinted(t *testing.T) {
	t.Parallel()
	if asked := alarms(t, stack.cdk.template()); len(asked) < 3 {
		t.Fatalf("the alarms are about %v", asked)
	}
	customer := newCustomer()
	if r := byFunctionURL().post(t, rand.Text(), aCharge(customer)); r.status != http.StatusCreated {
		t.Fatalf("got %v, want a charge", r)
	}
	s := &shift{sku: "sku-" + rand.Text()}
	s.putStock(t)
	kit.Eventually(t, "an order is taken, unless another test kills its process", func() bool {
		text, _ := json.Marshal(order{ID: "order-" + rand.Text(), Customer: customer, SKU: s.sku, Quantity: 1, Amount: 100})
		event, _ := json.Marshal(map[string]any{"Records": []any{map[string]any{
			"messageId": rand.Text(), "body": string(text), "eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:" + region + ":" + account + ":orders",
		}}})
		answer, failure := stack.invoke(t, stack.ordersFunction, event)
		return failure == "" && !strings.Contains(string(answer), "itemIdentifier")
	})
	stack.reconcile(t)

	wantWatched(t, stack.cdk.template(), stack.chargesURL, stack.chargesREST, stack.ordersFunction, stack.reconciler)
}

// wantWatched checks that the functions print what the alarms of a template watch, and
// nothing that no alarm watches.
func wantWatched(t *testing.T, template string, functions ...string) {
	t.Helper()
	asked, prints, names := alarms(t, template), map[watched]bool{}, namesOfMetrics(t)
	if len(asked) == 0 {
		t.Fatal("no alarm watches a metric of the functions")
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("there are metrics of %v", slices.Collect(maps.Keys(prints)))
		}
	})
	kit.Eventually(t, "logs have a line for each alarm", func() bool {
		for _, function := range functions {
			for _, line := range logs(t, function) {
				for one := range metricsIn(line) {
					prints[one] = true
				}
			}
		}
		for one := range asked {
			if !prints[one] {
				return false
			}
		}
		return true
	})
	for one, metrics := range asked {
		for name := range metrics {
			if !names[name] {
				t.Errorf("an alarm watches %s of %v, and package emf prints no such metric", name, one)
			}
		}
	}
	for one := range prints {
		if asked[one] == nil && asked[watched{one.namespace, ""}] == nil {
			t.Errorf("no alarm is about %v", one)
		}
	}
}

// namesOfMetrics returns the names that package emf prints if every kind of event
// happens: a test cannot wait for some of them.
func namesOfMetrics(t *testing.T) map[string]bool {
	t.Helper()
	var out bytes.Buffer
	observer, err := emf.New(&out, "All")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range telemetry.Metrics() {
		observer.Observe(t.Context(), event.Event{Kind: m.Kind, Operation: "op"})
	}
	observer.Reconciled(t.Context(), idempotent.Report{Listed: true, Scan: driver.Scanned{Ended: time.Now()}})
	names := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		for _, of := range metricsIn(line) {
			maps.Copy(names, of)
		}
	}
	return names
}

// alarms returns the names of the metrics that the alarms of a template watch, except
// those of AWS.
func alarms(t *testing.T, template string) map[watched]map[string]bool {
	t.Helper()
	type metric struct {
		Namespace  string
		MetricName string
		Dimensions []struct {
			Name  string
			Value json.RawMessage // or a reference
		}
	}
	about := map[watched]map[string]bool{}
	for _, properties := range resourcesIn(t, template, "AWS::CloudWatch::Alarm") {
		var alarm struct {
			metric
			Metrics []struct{ MetricStat struct{ Metric metric } }
		}
		if err := json.Unmarshal(properties, &alarm); err != nil {
			t.Fatal(err)
		}
		list := []metric{alarm.metric}
		for _, m := range alarm.Metrics {
			list = append(list, m.MetricStat.Metric)
		}
		for _, m := range list {
			if m.Namespace == "" || strings.HasPrefix(m.Namespace, "AWS/") {
				continue
			}
			var operation string
			if len(m.Dimensions) > 0 && (len(m.Dimensions) > 1 || m.Dimensions[0].Name != "operation" || json.Unmarshal(m.Dimensions[0].Value, &operation) != nil) {
				t.Fatalf("an alarm has the dimensions %+v", m.Dimensions)
			}
			add(about, watched{m.Namespace, operation}, m.MetricName)
		}
	}
	return about
}

func add(to map[watched]map[string]bool, of watched, name string) {
	if to[of] == nil {
		to[of] = map[string]bool{}
	}
	to[of][name] = true
}

// metricsIn returns the names of the metrics of a line in the embedded metric format.
func metricsIn(line string) map[watched]map[string]bool {
	var printed struct {
		AWS struct {
			CloudWatchMetrics []struct {
				Namespace  string
				Dimensions [][]string
				Metrics    []struct{ Name string }
			}
		} `json:"_aws"`
		Operation string
	}
	found := map[watched]map[string]bool{}
	if json.Unmarshal([]byte(line), &printed) == nil {
		for _, m := range printed.AWS.CloudWatchMetrics {
			for _, set := range m.Dimensions {
				operation := printed.Operation
				if len(set) == 0 {
					operation = ""
				}
				for _, metric := range m.Metrics {
					add(found, watched{m.Namespace, operation}, metric.Name)
				}
			}
		}
	}
	return found
}

// logs returns what a function has printed.
func logs(t *testing.T, function string) (lines []string) {
	t.Helper()
	for token := ""; ; {
		query := map[string]any{"logGroupName": "/aws/lambda/" + function}
		if token != "" {
			query["nextToken"] = token
		}
		body, _ := json.Marshal(query)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, stack.cdk.endpoint, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-amz-json-1.1")
		req.Header.Set("X-Amz-Target", "Logs_20140328.FilterLogEvents")
		status, text, err := ask("logs", req)
		if err != nil {
			t.Fatal(err)
		}
		if status == http.StatusBadRequest && strings.Contains(string(text), "ResourceNotFoundException") {
			return nil // the function has printed nothing yet
		}
		var page struct {
			Events    []struct{ Message string }
			NextToken string
		}
		if err := json.Unmarshal(text, &page); err != nil || status != http.StatusOK {
			t.Fatalf("%d: %s", status, text)
		}
		for _, e := range page.Events {
			lines = append(lines, strings.TrimSpace(e.Message))
		}
		if token = page.NextToken; token == "" {
			return lines
		}
	}
}
