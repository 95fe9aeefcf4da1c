// SPDX-License-Identifier: Apache-2.0

package alarms

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/telemetry/emf"
)

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
