// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/telemetry"
	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

// counted is what CloudWatch made of log lines.
type counted struct {
	Sent         int
	Sum, Settled float64 // as soon as there are enough, and two minutes later
	DelayMS      int64   // from the last answer to the sum
}

// metrics sends requests to a function whose log filter is WARN.
var metrics = of(claim{
	name: "metrics", expected: "each log line is counted once, within 5 minutes, with logs at WARN", source: "docs/observe.md", units: 2 * 100,
}, func(ctx context.Context, w *world) (counted, error) {
	const invocations = 5
	a := counted{Sent: 100}
	began := time.Now()
	for range invocations {
		if _, err := w.ask(ctx, "Handler", wire.Request{Do: wire.Run, Operation: wire.Counted, Count: a.Sent / invocations}); err != nil {
			return a, err
		}
	}
	answered := time.Now()
	metric := cwtypes.Metric{
		Namespace: aws.String(nameOf(w.ID)), MetricName: aws.String(telemetry.Prefix + string(event.Reserved)),
		Dimensions: []cwtypes.Dimension{{Name: aws.String("operation"), Value: aws.String(wire.Counted)}},
	}
	var err error
	if a.Sum, err = w.sumUntil(ctx, began, 10*time.Minute, metric, float64(a.Sent)); err != nil {
		return a, err
	}
	a.DelayMS = time.Since(answered).Milliseconds()
	a.Settled, err = w.sumUntil(ctx, began, 2*time.Minute, metric, float64(a.Sent+1))
	return a, err
}, func(a counted) (string, verdict) {
	return fmt.Sprintf("%g of %d after %d ms, %g two minutes later", a.Sum, a.Sent, a.DelayMS, a.Settled),
		when(a.Sent > 0 && a.Sum == float64(a.Sent) && a.Settled == a.Sum && a.DelayMS < 5*60*1000)
})

// rung is what an alarm's topic delivered.
type rung struct {
	Requests        int
	RangMS, EndedMS int64    // after the first request, and after the last one; zero: never
	Others          []string // other alarms of the operation that rang: their metrics have no data
}

// alarms sends one request a minute whose operation the role does not allow.
var alarms = of(claim{
	name: "alarms", expected: "one refused request a minute rings within 7 minutes, and the end is reported", source: "docs/alarms.md", units: 10,
}, func(ctx context.Context, w *world) (rung, error) {
	var a rung
	began, pages := time.Now(), aws.String(w.outputs["Pages"])
	stopped, next, patience := began, began, 14*time.Minute
	if w.Local { // where no alarm rings
		patience = time.Second
	}
	for a.EndedMS == 0 && time.Since(began) < patience {
		if a.RangMS == 0 && !time.Now().Before(next) && a.Requests < 10 {
			_, err := w.ask(ctx, "Handler", wire.Request{Do: wire.Run, Operation: wire.Refused, Count: 1})
			if err != nil && !errors.As(err, new(*functionError)) {
				return a, err
			}
			a.Requests++
			stopped, next = time.Now(), next.Add(time.Minute)
		}
		out, err := w.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: pages, WaitTimeSeconds: 5, MaxNumberOfMessages: 10})
		if err != nil {
			return a, err
		}
		for _, m := range out.Messages {
			if err := a.note(*m.Body, began, stopped); err != nil {
				return a, err
			}
			if _, err := w.sqs.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: pages, ReceiptHandle: m.ReceiptHandle}); err != nil {
				return a, err
			}
		}
	}
	return a, nil
}, func(a rung) (string, verdict) {
	seen := fmt.Sprintf("rang %d ms after the first of %d requests, ended %d ms after the last", a.RangMS, a.Requests, a.EndedMS)
	if len(a.Others) > 0 {
		seen += ", and without data " + strings.Join(a.Others, ", ")
	}
	return seen, when(a.RangMS > 0 && a.RangMS <= 7*60*1000 && a.EndedMS > 0 && len(a.Others) == 0)
})

// note reads a notification. The name of an alarm contains those of its condition and
// its operation.
func (a *rung) note(text string, began, stopped time.Time) error {
	var n struct{ AlarmName, NewStateValue string }
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return err
	}
	rings := n.NewStateValue == "ALARM"
	switch {
	case strings.Contains(n.AlarmName, "StoreErrors"+wire.Refused):
		if rings {
			a.RangMS = time.Since(began).Milliseconds()
		} else if a.RangMS > 0 && n.NewStateValue == "OK" {
			a.EndedMS = time.Since(stopped).Milliseconds()
		}
	case rings && strings.Contains(n.AlarmName, wire.Refused) && !slices.Contains(a.Others, n.AlarmName):
		a.Others = append(a.Others, n.AlarmName)
	}
	return nil
}
