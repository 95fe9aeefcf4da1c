// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/view"
)

const id = idempotent.RecordID("POST /charges#ty7jY4HjuNMRhz5RUjPEN9zRSKhuGw-LbU_gYlHo1uc")

var at = time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)

// Every member has the name that programs rely on, and no member has a result.
func TestOf(t *testing.T) {
	t.Parallel()
	r := driver.Record{
		ID: id, State: driver.StateRetryable, Reason: driver.ReasonHandlerError, Attempt: 2, Recovery: idempotent.Resume,
		Codec: "json" + driver.EncodingSealed, ResultVersion: "3", UnresolvedRetention: time.Hour, StepNames: []string{"reserve", "pay"},
		Created: at, Since: at.Add(time.Second), LeaseEnd: at.Add(2 * time.Second), Expires: at.Add(3 * time.Second), Due: at.Add(4 * time.Second), OpenSince: at.Add(5 * time.Second),
		PredecessorAnswered: true, ReconcileAttempts: 7, Exhausted: true, Ref: "ref", RequestID: "request", TraceParent: "trace",
		Encoding: "json" + driver.EncodingSealed, Result: []byte("private"),
		Steps: []driver.StepRecord{{Name: "reserve", Mode: driver.AtMostOnce, Finished: true, By: driver.StepByEvidence, Attempt: 1, At: at, Encoding: "json", Result: []byte(`"private"`)}},
	}
	r.Owner[0] = 0xab
	const want = `{
		"record": "POST /charges#ty7jY4HjuNMRhz5RUjPEN9zRSKhuGw-LbU_gYlHo1uc", "operation": "POST /charges", "key_hash": "ty7jY4HjuNMR",
		"state": "retryable", "reason": "handler_error", "resumable": true, "attempt": 2, "token": "ab000000000000000000000000000000",
		"recovery": "resume", "codec": "json", "seals": true, "result_version": "3", "retention": "24h0m0s", "unresolved_retention": "1h0m0s",
		"declared_steps": ["reserve", "pay"],
		"created": "2026-11-21T03:00:00.000Z", "since": "2026-11-21T03:00:01.000Z", "lease_end": "2026-11-21T03:00:02.000Z",
		"expires": "2026-11-21T03:00:03.000Z", "due": "2026-11-21T03:00:04.000Z", "open_since": "2026-11-21T03:00:05.000Z",
		"predecessor_answered": true, "reconcile_attempts": 7, "exhausted": true, "ref": "ref", "request_id": "request", "trace_parent": "trace",
		"encoding": "json+sealed", "sealed": true, "result_bytes": 7,
		"downstream_key": "once-CRl3eSa3xRrPT5nUgd2ETJ1iXbs8wT8xp-rMkf8gDtI", "downstream_uuid": "6ea7c1a2-54fa-483a-9800-aed95c195374",
		"steps": [
			{"name": "reserve", "state": "finished", "mode": "at_most_once", "attempt": 1, "at": "2026-11-21T03:00:00.000Z", "finished_by": "evidence",
			 "downstream_key": "KEY1", "downstream_uuid": "UUID1", "result_bytes": 9},
			{"name": "pay", "state": "not_recorded", "downstream_key": "KEY2", "downstream_uuid": "UUID2"},
			{"name": "notify", "state": "not_recorded", "downstream_key": "KEY3", "downstream_uuid": "UUID3"}
		]
	}`
	var names []string
	for i, name := range []string{"reserve", "pay", "notify"} {
		key := id.StepKey(name)
		names = append(names, fmt.Sprint("KEY", i+1), key, fmt.Sprint("UUID", i+1), idempotent.AsUUID(key))
	}
	expected := compact(t, json.RawMessage(strings.NewReplacer(names...).Replace(want)))
	if got := compact(t, view.Of(&r, "notify")); got != expected {
		t.Errorf("got\n%s\nwant\n%s", got, expected)
	}
	if view.StateOf(&r) != view.Of(&r).StateName() || view.StateOf(&r) != "resumable" {
		t.Errorf("the state is %s and %s, want resumable", view.StateOf(&r), view.Of(&r).StateName())
	}
	r.Due = time.Time{}
	if view.StateOf(&r) != view.Of(&r).StateName() || view.StateOf(&r) != "retryable" {
		t.Errorf("without a time when it is due: the state is %s and %s, want retryable", view.StateOf(&r), view.Of(&r).StateName())
	}
}

// Results are read on request, and never those that are sealed.
func TestResults(t *testing.T) {
	t.Parallel()
	g, err := idempotent.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	r := driver.Record{ID: id, State: driver.StateCompleted, Reason: driver.ReasonResult, Encoding: "json", Result: []byte(`{"id":"ch_1"}`), Steps: []driver.StepRecord{
		{Name: "pay", Finished: true, Encoding: "json", Result: []byte(`{"id":"tr_1"}`)},
		{Name: "seal", Finished: true, Encoding: "json" + driver.EncodingSealed, Result: []byte("ciphertext")},
	}}
	v := view.Of(&r)
	if text := compact(t, v); strings.Contains(text, "ch_1") || strings.Contains(text, "tr_1") {
		t.Errorf("without a request: %s", text)
	}
	if err := v.AddStepResults(t.Context(), g, &r); err != nil {
		t.Fatal(err)
	}
	if v.Outcome, err = view.OutcomeOf(t.Context(), g, &r); err != nil {
		t.Fatal(err)
	}
	text := compact(t, v)
	for _, want := range []string{`"result":{"id":"ch_1"}`, `"result_bytes":13,"result":{"id":"tr_1"}`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if !v.Steps[1].Sealed || v.Steps[1].Result != nil {
		t.Errorf("the sealed step is %+v", v.Steps[1])
	}
	r.Encoding, r.Result = driver.EncodingFinal, []byte("{")
	if _, err := view.OutcomeOf(t.Context(), g, &r); err == nil || !strings.Contains(err.Error(), "POST /charges#ty7jY4HjuNMR: the stored result is damaged") {
		t.Errorf("a damaged result: %v", err)
	}
}

func compact(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, data); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
