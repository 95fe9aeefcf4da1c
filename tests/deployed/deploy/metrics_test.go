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
)

// watched is what an alarm of the stack watches: the metrics of an operation, or of
// all if it is empty, in the namespace of a function.
type watched struct{ namespace, operation string }

// G12: each alarm is about metrics that a function of the stack prints to its
// log, which CloudWatch reads. An alarm about others would never fire.
func TestAlarmsWatchWhatIsPrinted(t *testing.T) {
	t.Parallel()
	asked := alarms(t)
	if len(asked) < 3 {
		t.Fatalf("the alarms are about %v", asked)
	}
	customer := newCustomer()
	if r := byFunctionURL().post(t, rand.Text(), aCharge(customer)); r.status != http.StatusCreated {
		t.Fatalf("got %v, want a charge", r)
	}
	s := &shift{sku: "sku-" + rand.Text()}
	s.putStock(t)
	eventually(t, time.Minute, "an order is taken, unless another test kills its process", func() bool {
		text, _ := json.Marshal(order{ID: "order-" + rand.Text(), Customer: customer, SKU: s.sku, Quantity: 1, Amount: 100})
		event, _ := json.Marshal(map[string]any{"Records": []any{map[string]any{
			"messageId": rand.Text(), "body": string(text), "eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:" + region + ":" + account + ":orders",
		}}})
		answer, failure := stack.invoke(t, stack.ordersFunction, event)
		return failure == "" && !strings.Contains(string(answer), "itemIdentifier")
	})
	stack.reconcile(t)

	var prints map[watched]bool
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("there are metrics of %v", slices.Collect(maps.Keys(prints)))
		}
	})
	eventually(t, 30*time.Second, "logs have a line for each alarm", func() bool {
		prints = map[watched]bool{}
		for _, function := range []string{stack.chargesURL, stack.chargesREST, stack.ordersFunction, stack.reconciler} {
			for _, line := range logs(t, function) {
				maps.Copy(prints, metricsIn(line))
			}
		}
		for one := range asked {
			if !prints[one] {
				return false
			}
		}
		return true
	})
	for one := range prints {
		if all := (watched{one.namespace, ""}); !asked[one] && !asked[all] {
			t.Errorf("no alarm is about %v", one)
		}
	}
}

// alarms returns what the alarms of the deployed template watch, except the
// service's own metrics.
func alarms(t *testing.T) map[watched]bool {
	t.Helper()
	type metric struct {
		Namespace  string
		Dimensions []struct {
			Name  string
			Value json.RawMessage // or a reference
		}
	}
	about := map[watched]bool{}
	for _, r := range stack.resources(t, "AWS::CloudWatch::Alarm") {
		var alarm struct {
			metric
			Metrics []struct{ MetricStat struct{ Metric metric } }
		}
		if err := json.Unmarshal(r.Properties, &alarm); err != nil {
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
			about[watched{m.Namespace, operation}] = true
		}
	}
	return about
}

// metricsIn returns what a line in the embedded metric format has metrics of.
func metricsIn(line string) map[watched]bool {
	var printed struct {
		AWS struct {
			CloudWatchMetrics []struct {
				Namespace  string
				Dimensions [][]string
			}
		} `json:"_aws"`
		Operation string
	}
	found := map[watched]bool{}
	if json.Unmarshal([]byte(line), &printed) == nil {
		for _, m := range printed.AWS.CloudWatchMetrics {
			for _, set := range m.Dimensions {
				operation := printed.Operation
				if len(set) == 0 {
					operation = ""
				}
				found[watched{m.Namespace, operation}] = true
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
		if strings.Contains(string(text), "ResourceNotFoundException") {
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
