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
	"github.com/once-lambda/once/internal/httpform"
	"github.com/once-lambda/once/internal/view"
)

const id = idempotent.RecordID("POST /charges#ty7jY4HjuNMRhz5RUjPEN9zRSKhuGw-LbU_gYlHo1uc")

var at = time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)

// Every member has the name that programs rely on, and no member has a result.
func TestOf(t *testing.T) {
	t.Parallel()
	r := driver.Record{
		ID: id, State: driver.StateRetryable, Reason: driver.ReasonHandlerError, Attempt: 2, Recovery: idempotent.Resume,
		Codec: "proto" + driver.EncodingSealed, ResultVersion: "3", UnresolvedRetention: time.Hour, StepNames: append(make([]string, 0, 4), "reserve", "pay", "ship"),
		Created: at.In(time.FixedZone("", 3600)), Since: at.Add(time.Second), LeaseEnd: at.Add(2 * time.Second), Expires: at.Add(3 * time.Second), Due: at.Add(4 * time.Second), OpenSince: at.Add(5 * time.Second),
		Announced: true, PredecessorAnswered: true, ReconcileAttempts: 7, Exhausted: true, Ref: "ref", RequestID: "request", TraceParent: "trace",
		Encoding: "json" + driver.EncodingSealed, Result: []byte("private"),
		Steps: []driver.StepRecord{{Name: "reserve", Mode: driver.AtMostOnce, Finished: true, By: driver.StepByEvidence, Attempt: 1, At: at, Encoding: "json", Result: []byte(`"private"`)}, {Name: "pay/1"}},
	}
	r.Owner[0] = 0xab
	const want = `{
		"record": "POST /charges#ty7jY4HjuNMRhz5RUjPEN9zRSKhuGw-LbU_gYlHo1uc", "operation": "POST /charges", "key_hash": "ty7jY4HjuNMR",
		"state": "retryable", "reason": "handler_error", "resumable": true, "attempt": 2, "token": "ab000000000000000000000000000000",
		"recovery": "resume", "codec": "proto", "seals": true, "result_version": "3", "retention": "24h0m0s", "unresolved_retention": "1h0m0s",
		"declared_steps": ["reserve", "pay", "ship"],
		"created": "2026-11-21T03:00:00.000Z", "since": "2026-11-21T03:00:01.000Z", "lease_end": "2026-11-21T03:00:02.000Z",
		"expires": "2026-11-21T03:00:03.000Z", "due": "2026-11-21T03:00:04.000Z", "open_since": "2026-11-21T03:00:05.000Z",
		"announced": true, "predecessor_answered": true, "reconcile_attempts": 7, "exhausted": true, "ref": "ref", "request_id": "request", "trace_parent": "trace",
		"encoding": "json+sealed", "sealed": true, "result_bytes": 7,
		"downstream_key": "once-CRl3eSa3xRrPT5nUgd2ETJ1iXbs8wT8xp-rMkf8gDtI", "downstream_uuid": "6ea7c1a2-54fa-483a-9800-aed95c195374",
		"steps": [
			{"name": "reserve", "state": "finished", "mode": "at_most_once", "attempt": 1, "at": "2026-11-21T03:00:00.000Z", "finished_by": "evidence",
			 "downstream_key": "KEY1", "downstream_uuid": "UUID1", "result_bytes": 9},
			{"name": "pay/1", "state": "begun", "mode": "at_least_once", "downstream_key": "KEY2", "downstream_uuid": "UUID2"},
			{"name": "ship", "state": "not_recorded", "downstream_key": "KEY3", "downstream_uuid": "UUID3"},
			{"name": "notify", "state": "not_recorded", "downstream_key": "KEY4", "downstream_uuid": "UUID4"}
		]
	}`
	var names []string
	for i, name := range []string{"reserve", "pay/1", "ship", "notify"} {
		key := id.StepKey(name)
		names = append(names, fmt.Sprint("KEY", i+1), key, fmt.Sprint("UUID", i+1), idempotent.AsUUID(key))
	}
	expected := compact(t, json.RawMessage(strings.NewReplacer(names...).Replace(want)))
	if got := compact(t, view.Of(&r, "notify")); got != expected {
		t.Errorf("got\n%s\nwant\n%s", got, expected)
	}
	if beyond := r.StepNames[:4][3]; beyond != "" {
		t.Errorf("it wrote %q behind the names of the record", beyond)
	}
}

// A record is resumable if it is retryable and has a time when it is due.
func TestStateOf(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		state driver.State
		due   time.Time
		want  string
	}{{driver.StateRetryable, at, "resumable"}, {driver.StateRetryable, time.Time{}, "retryable"}, {driver.StateUnknown, at, "unknown"}} {
		r := driver.Record{ID: id, State: row.state, Due: row.due}
		if got, name := view.StateOf(&r), view.Of(&r).StateName(); got != row.want || name != row.want {
			t.Errorf("the state is %s and %s, want %s", got, name, row.want)
		}
	}
}

// Results are read on request, and never those that are sealed.
func TestResults(t *testing.T) {
	t.Parallel()
	g, err := idempotent.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	r := driver.Record{ID: id, State: driver.StateCompleted, Reason: driver.ReasonResult, Encoding: "json", Result: []byte(`{"id":"ch_1"}`), StepNames: []string{"never begun"}, Steps: []driver.StepRecord{
		{Name: "pay", Finished: true, Encoding: "json", Result: []byte(`{"id":"tr_1"}`)},
		{Name: "seal", Finished: true, Encoding: "json" + driver.EncodingSealed, Result: []byte("ciphertext")},
		{Name: "ship", Finished: true, Encoding: "json", Result: []byte(`{"id":"sh_1"}`)},
	}}
	v := view.Of(&r)
	if text := compact(t, v); strings.Contains(text, "ch_1") || strings.Contains(text, "tr_1") {
		t.Errorf("without a request: %s", text)
	}
	if len(v.Steps) != 3 || v.Codec != "json" || v.Seals {
		t.Errorf("the steps are %+v, the codec %s, sealed: %v", v.Steps, v.Codec, v.Seals)
	}
	if err := v.AddStepResults(t.Context(), g, &r); err != nil {
		t.Fatal(err)
	}
	if v.Outcome, err = view.OutcomeOf(t.Context(), g, &r); err != nil {
		t.Fatal(err)
	}
	text := compact(t, v)
	for _, want := range []string{`"result":{"id":"ch_1"}`, `"result_bytes":13,"result":{"id":"tr_1"}`, `"result_bytes":13,"result":{"id":"sh_1"}`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if !v.Steps[1].Sealed || v.Steps[1].Result != nil {
		t.Errorf("the sealed step is %+v", v.Steps[1])
	}
	r.Steps[0].Result = []byte("{")
	if err := v.AddStepResults(t.Context(), g, &r); err == nil {
		t.Error("a damaged result of a step is not an error")
	}
	if n := view.ResultBytes(&driver.Record{Chunks: driver.Chunks{Count: 2, Length: 400}}); n != 400 {
		t.Errorf("a result in chunks has %d bytes, want 400", n)
	}
}

// An outcome is shown in the form that its encoding allows.
func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	g, err := idempotent.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	const damaged = "POST /charges#ty7jY4HjuNMR: the stored result is damaged"
	for _, row := range []struct{ encoding, result, want string }{
		{"json", `{"id":1}`, `{"result":{"id":1}}`},
		{"json", `{`, `{"result_base64":"ew=="}`},
		{"proto", `1`, `{"result_base64":"MQ=="}`},
		{driver.EncodingFinal, `{"code":"declined","message":"no"}`, `{"final":{"code":"declined","message":"no"}}`},
		{driver.EncodingFinal, `{`, damaged},
		{httpform.Encoding, `{"s":201}` + "\npaid", `{"response":{"status":201,"body":"paid"}}`},
		{httpform.Encoding, `{"s":201,"b":true}` + "\n\xff", `{"response":{"status":201,"body_base64":"/w=="}}`},
		{httpform.Encoding, `{`, damaged},
		{driver.EncodingOmitted, ``, "idempotent: POST /charges#ty7jY4HjuNMR: the request is completed, but its result cannot be replayed"},
	} {
		o, err := view.OutcomeOf(t.Context(), g, &driver.Record{ID: id, State: driver.StateCompleted, Encoding: row.encoding, Result: []byte(row.result)})
		got := fmt.Sprint(err)
		if err == nil {
			got = compact(t, o)
		}
		if !strings.HasPrefix(got, row.want) {
			t.Errorf("%s %s: got %s, want %s", row.encoding, row.result, got, row.want)
		}
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
