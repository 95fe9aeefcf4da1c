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
	name: "metrics", expected: "each log line is counted once, within 5 minutes, with logs at WARN", source: "docs/observe.md",
}, func(ctx context.Context, w *world) (counted, error) {
	const invocations, each = 5, 20
	a := counted{Sent: invocations * each}
	if err := w.budget.spend(2 * a.Sent); err != nil {
		return a, err
	}
	began := time.Now()
	for range invocations {
		if err := w.ask(ctx, "Handler", wire.Request{Do: wire.Count, Count: each}, nil); err != nil {
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
	WithoutData     []string // alarms that rang although their metrics have no data
}

// alarm is the alarm on requests that the store refuses.
const alarm = "StoreErrors" + wire.Refused

// alarms sends one request a minute whose operation the role does not allow.
var alarms = of(claim{
	name: "alarms", expected: "one refused request a minute rings within 7 minutes, and the end is reported", source: "docs/alarms.md",
}, func(ctx context.Context, w *world) (rung, error) {
	var a rung
	began := time.Now()
	stopped := began
	next := began
	for a.EndedMS == 0 && time.Since(began) < 14*time.Minute {
		if a.RangMS == 0 && !time.Now().Before(next) && a.Requests < 10 {
			if err := w.budget.spend(1); err != nil {
				return a, err
			}
			if err := w.ask(ctx, "Handler", wire.Request{Do: wire.Refuse}, nil); err != nil {
				return a, err
			}
			a.Requests++
			stopped, next = time.Now(), next.Add(time.Minute)
		}
		if a.RangMS == 0 && time.Since(stopped) > 5*time.Minute {
			break // it never rings
		}
		out, err := w.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: aws.String(w.outputs["Pages"]), WaitTimeSeconds: 5, MaxNumberOfMessages: 10,
		})
		if err != nil {
			return a, err
		}
		for _, m := range out.Messages {
			if err := a.note(*m.Body, began, stopped); err != nil {
				return a, err
			}
			if _, err := w.sqs.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: aws.String(w.outputs["Pages"]), ReceiptHandle: m.ReceiptHandle}); err != nil {
				return a, err
			}
		}
	}
	return a, nil
}, func(a rung) (string, verdict) {
	seen := fmt.Sprintf("rang %d ms after the first of %d requests, ended %d ms after the last", a.RangMS, a.Requests, a.EndedMS)
	if len(a.WithoutData) > 0 {
		seen += ", and without data " + strings.Join(a.WithoutData, ", ")
	}
	return seen, when(a.RangMS > 0 && a.RangMS <= 7*60*1000 && a.EndedMS > 0 && len(a.WithoutData) == 0)
})

// note reads a notification.
func (a *rung) note(text string, began, stopped time.Time) error {
	var n struct{ AlarmName, NewStateValue string }
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return err
	}
	compact := strings.Map(func(r rune) rune {
		if r == '-' {
			return -1
		}
		return r
	}, n.AlarmName)
	of := strings.ReplaceAll(wire.Refused, "-", "")
	switch {
	case strings.Contains(compact, strings.ReplaceAll(alarm, "-", "")):
		switch n.NewStateValue {
		case "ALARM":
			a.RangMS = time.Since(began).Milliseconds()
		case "OK":
			if a.RangMS > 0 {
				a.EndedMS = time.Since(stopped).Milliseconds()
			}
		}
	// No record of this operation exists, so these metrics have no data.
	case strings.Contains(compact, of) && n.NewStateValue == "ALARM":
		for _, name := range []string{"Contradicted", "ReplayFailed", "NotStored", "Late", "Unknown", "Exhausted", "Misuse"} {
			if strings.Contains(compact, name+of) && !slices.Contains(a.WithoutData, name) {
				a.WithoutData = append(a.WithoutData, name)
			}
		}
	}
	return nil
}

// skew is what the environments of a function say about their clocks.
type skew struct {
	Environments int
	AheadMS      int64 // the most that one is surely ahead of DynamoDB
	BehindMS     int64
}

// clocks compares the clocks of many environments with DynamoDB's.
var clocks = of(claim{
	name: "clocks", expected: "no clock of 50 environments is surely off by a second", source: "idempotent.Options.Now",
}, func(ctx context.Context, w *world) (skew, error) {
	const environments = 50
	type answer struct {
		wire.Answer
		err error
	}
	answers := make(chan answer)
	for range environments {
		go func() {
			var a answer
			a.err = w.ask(ctx, "Handler", wire.Request{Do: wire.Clock}, &a.Answer)
			answers <- a
		}()
	}
	var s skew
	var failed error
	seen := map[string]bool{}
	for range environments {
		a := <-answers
		failed = errors.Join(failed, a.err)
		seen[a.Environment] = a.err == nil
		s.AheadMS = max(s.AheadMS, a.Early.Milliseconds())
		s.BehindMS = max(s.BehindMS, -a.Late.Milliseconds())
	}
	s.Environments = len(seen)
	return s, failed
}, func(s skew) (string, verdict) {
	seen := fmt.Sprintf("%d environments, at most %d ms ahead and %d ms behind", s.Environments, s.AheadMS, s.BehindMS)
	if s.Environments < 25 && s.AheadMS < 1000 && s.BehindMS < 1000 {
		return seen + ": too few, for the quota of concurrent executions is low", notJudged
	}
	return seen, when(s.AheadMS < 1000 && s.BehindMS < 1000)
})
