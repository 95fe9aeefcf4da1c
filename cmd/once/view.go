// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

// view is a record as --json prints it and as the program of reconcile --exec
// reads it. The names of its members do not change. It contains results only on
// request, because they may be private.
type view struct {
	Record    idempotent.RecordID `json:"record"`
	Operation string              `json:"operation"`
	KeyHash   string              `json:"key_hash"`
	State     string              `json:"state"`
	Reason    driver.Reason       `json:"reason,omitempty"`
	Resumable bool                `json:"resumable,omitempty"` // retryable, after some of its effects
	Attempt   int                 `json:"attempt"`
	Token     string              `json:"token"` // of the attempt

	// What the operation declared when the attempt began.
	Recovery            string   `json:"recovery"`
	Codec               string   `json:"codec"`
	Seals               bool     `json:"seals,omitempty"` // results are encrypted
	ResultVersion       string   `json:"result_version,omitempty"`
	Retention           period   `json:"retention"`
	UnresolvedRetention period   `json:"unresolved_retention,omitempty"` // missing: for ever
	DeclaredSteps       []string `json:"declared_steps,omitempty"`       // missing: any step

	Created  stamp `json:"created,omitzero"`
	Since    stamp `json:"since,omitzero"`
	LeaseEnd stamp `json:"lease_end,omitzero"`
	Expires  stamp `json:"expires,omitzero"` // missing: never
	Due      stamp `json:"due,omitzero"`
	// OpenSince is the start of the first attempt whose unfinished steps may have
	// had an effect.
	OpenSince stamp `json:"open_since,omitzero"`

	ReconcileAttempts int  `json:"reconcile_attempts,omitempty"`
	Exhausted         bool `json:"exhausted,omitempty"`

	Ref         string `json:"ref,omitempty"`
	RequestID   string `json:"request_id,omitempty"`
	TraceParent string `json:"trace_parent,omitempty"`

	Encoding    string `json:"encoding,omitempty"`
	Sealed      bool   `json:"sealed,omitempty"`       // the result is encrypted, and not shown
	ResultBytes int    `json:"result_bytes,omitempty"` // as stored, possibly compressed

	DownstreamKey  string     `json:"downstream_key"`
	DownstreamUUID string     `json:"downstream_uuid"`
	Steps          []stepView `json:"steps,omitempty"`

	*outcome
}

// stepView is a step of a record, or only its name and keys if it is not recorded.
type stepView struct {
	Name           string          `json:"name"`
	State          string          `json:"state"` // finished, begun or not_recorded
	Mode           string          `json:"mode,omitempty"`
	Attempt        int             `json:"attempt,omitempty"`
	At             stamp           `json:"at,omitzero"`
	FinishedBy     string          `json:"finished_by,omitempty"` // run, transaction or evidence
	DownstreamKey  string          `json:"downstream_key"`
	DownstreamUUID string          `json:"downstream_uuid"`
	Sealed         bool            `json:"sealed,omitempty"` // the result is encrypted, and not shown
	ResultBytes    int             `json:"result_bytes,omitempty"`
	Result         json.RawMessage `json:"result,omitempty"`
}

// stamp is a time in RFC 3339, UTC, with milliseconds.
type stamp struct{ time.Time }

// MarshalJSON returns the time in the form that all documents use.
func (s stamp) MarshalJSON() ([]byte, error) {
	return []byte(s.UTC().Format(`"2006-01-02T15:04:05.000Z"`)), nil
}

// period is a duration in the form of [time.Duration.String].
type period time.Duration

// MarshalText returns the period in the form that time.ParseDuration reads.
func (p period) MarshalText() ([]byte, error) { return []byte(time.Duration(p).String()), nil }

// defaultRetention is the retention of a record that declares none.
const defaultRetention = 24 * time.Hour

// resumable reports whether a record waits for its next request, or for evidence,
// after some of its effects: it was released under Resume and is still due.
func resumable(r *driver.Record) bool {
	return r.State == driver.StateRetryable && !r.Due.IsZero()
}

// stateOf returns the name of the state of r.
func stateOf(r *driver.Record) string {
	if resumable(r) {
		return stateResumable
	}
	return r.State.String()
}

// stateResumable is the state of a resumable record in lists and counts.
const stateResumable = "resumable"

// state returns the name of the state of the record.
func (v *view) state() string {
	if v.Resumable {
		return stateResumable
	}
	return v.State
}

// viewOf returns the view of r. Its steps are the recorded ones, the declared ones
// if r is not completed, and the further ones.
func viewOf(r *driver.Record, further ...string) *view {
	key := r.ID.DownstreamKey()
	codec, seals := codecOf(r)
	v := &view{
		Record: r.ID, Operation: r.ID.Operation(), KeyHash: r.ID.KeyHash(),
		State: r.State.String(), Reason: r.Reason, Resumable: resumable(r), Attempt: r.Attempt, Token: r.Token(),
		Recovery: r.Recovery.String(), Codec: codec, Seals: seals, ResultVersion: r.ResultVersion, Retention: period(cmp.Or(r.Retention, defaultRetention)),
		UnresolvedRetention: period(r.UnresolvedRetention), DeclaredSteps: r.StepNames,
		Created: stamp{r.Created}, Since: stamp{r.Since}, LeaseEnd: stamp{r.LeaseEnd},
		Expires: stamp{r.Expires}, Due: stamp{r.Due}, OpenSince: stamp{r.OpenSince},
		ReconcileAttempts: r.ReconcileAttempts, Exhausted: r.Exhausted,
		Ref: r.Ref, RequestID: r.RequestID, TraceParent: r.TraceParent,
		Encoding: r.Encoding, Sealed: isSealed(r.Encoding), ResultBytes: resultBytes(r),
		DownstreamKey: key, DownstreamUUID: idempotent.AsUUID(key),
	}
	for _, s := range r.Steps {
		v.Steps = append(v.Steps, stepViewOf(r.ID, s))
	}
	if r.State != driver.StateCompleted {
		further = append(slices.Clone(r.StepNames), further...)
	}
	for _, name := range further {
		if !slices.ContainsFunc(v.Steps, func(s stepView) bool { return s.Name == name || strings.HasPrefix(s.Name, name+"/") }) {
			s := stepViewOf(r.ID, driver.StepRecord{Name: name})
			s.State, s.Mode = "not_recorded", ""
			v.Steps = append(v.Steps, s)
		}
	}
	return v
}

// sources are the names of the sources of a step's result.
var sources = map[driver.StepSource]string{
	driver.StepByRun: "run", driver.StepByTransaction: "transaction", driver.StepByEvidence: "evidence",
}

func stepViewOf(id idempotent.RecordID, s driver.StepRecord) stepView {
	key := id.StepKey(s.Name)
	v := stepView{
		Name: s.Name, State: "begun", Mode: "at_least_once", Attempt: s.Attempt, At: stamp{s.At},
		DownstreamKey: key, DownstreamUUID: idempotent.AsUUID(key), Sealed: isSealed(s.Encoding), ResultBytes: len(s.Result),
	}
	if s.Finished {
		v.State, v.FinishedBy = "finished", sources[s.By]
	}
	if s.Mode == driver.AtMostOnce {
		v.Mode = "at_most_once"
	}
	return v
}

// describe returns the progress of a step.
func (s *stepView) describe() string {
	name := oneLine(s.Name)
	switch s.State {
	case "finished":
		by := ""
		if s.FinishedBy != "" {
			by = " by " + s.FinishedBy
		}
		kept := "kept"
		if s.Sealed {
			kept = "kept, sealed"
		}
		return fmt.Sprintf("%s: finished%s at %s, %s %s", name, by, s.At.UTC().Format(time.TimeOnly+"Z"), size(s.ResultBytes), kept)
	case "begun":
		return fmt.Sprintf("%s: begun at %s and not finished (%s)", name, s.At.UTC().Format(time.TimeOnly+"Z"), s.Mode)
	}
	return name + ": not recorded"
}

// describeResult describes the stored result without its content.
func (v *view) describeResult() string {
	if v.Encoding == driver.EncodingOmitted {
		return "omitted: it could not be stored; retries get an error"
	}
	text := fmt.Sprintf("%s as %s", size(v.ResultBytes), oneLine(v.Encoding))
	switch {
	case v.Sealed:
		text += ": only a program that has the operation's key can read it"
	case v.outcome == nil:
		text += "; --result prints it"
	}
	return text
}

// addStepResults adds the results of the finished steps to the view, except those
// that are sealed.
func (v *view) addStepResults(ctx context.Context, g *idempotent.Guard, r *driver.Record) error {
	record := g.Pending(*r)
	for i := range v.Steps {
		if v.Steps[i].Sealed {
			continue
		}
		if _, err := record.Step(ctx, v.Steps[i].Name, &v.Steps[i].Result); err != nil {
			return err
		}
	}
	return nil
}

// jsonCodec is the default codec of records.
const jsonCodec = "json"

// codecOf returns the name of the codec that the operation of r declared, and
// whether it seals results.
func codecOf(r *driver.Record) (name string, seals bool) {
	name, seals = strings.CutSuffix(r.Codec, driver.EncodingSealed)
	return cmp.Or(name, jsonCodec), seals
}

// isSealed reports whether a result is stored such that only a program with the
// operation's key can read it.
func isSealed(encoding string) bool { return strings.HasSuffix(encoding, driver.EncodingSealed) }

// resultBytes returns the stored size of the result of r.
func resultBytes(r *driver.Record) int {
	if r.Chunks.Count > 0 {
		return r.Chunks.Length
	}
	return len(r.Result)
}

// short returns a record id with a shortened hash that still identifies the
// record.
func short(id idempotent.RecordID) string {
	return oneLine(id.Operation()) + "#" + id.KeyHash()
}

// shell quotes s for a shell.
func shell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// outcome is the stored outcome of a completed record, decoded if this program
// knows its encoding: one of the members is set.
type outcome struct {
	Result   json.RawMessage `json:"result,omitempty"`
	Response *response       `json:"response,omitempty"`
	Final    *final          `json:"final,omitempty"`
	Bytes    []byte          `json:"result_base64,omitempty"`
}

// final is a business outcome: see idempotent.Final.
type final struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// response is an HTTP response. At most one of the two bodies is set.
type response struct {
	Status     int         `json:"status"`
	Header     http.Header `json:"header,omitempty"`
	Body       string      `json:"body,omitempty"`
	BodyBase64 []byte      `json:"body_base64,omitempty"`
}

// storedOutcome reads and decodes the stored outcome of r.
func storedOutcome(ctx context.Context, g *idempotent.Guard, r *driver.Record) (*outcome, error) {
	encoding, data, err := g.StoredOutcome(ctx, *r)
	if err != nil {
		return nil, err
	}
	o := &outcome{}
	switch {
	case encoding == driver.EncodingFinal:
		o.Final = &final{}
		err = json.Unmarshal(data, o.Final)
	case encoding == lambdahttp.Encoding:
		var stored lambdahttp.Response
		if stored, err = lambdahttp.DecodeStored(data); err == nil {
			o.Response = responseOf(stored)
		}
	case encoding == "json" && json.Valid(data):
		o.Result = data
	default:
		o.Bytes = data
	}
	if err != nil {
		return nil, fmt.Errorf("%s: the stored result is damaged: %w", short(r.ID), err)
	}
	return o, nil
}

func responseOf(r lambdahttp.Response) *response {
	out := &response{Status: r.Status, Header: r.Header}
	if utf8.Valid(r.Body) {
		out.Body = string(r.Body)
	} else {
		out.BodyBase64 = r.Body
	}
	return out
}

// text returns the outcome as text: a response looks as in HTTP/1.1.
func (o *outcome) text() string {
	switch {
	case o.Final != nil:
		return fmt.Sprintf("%s: %s\n", o.Final.Code, o.Final.Message)
	case o.Response != nil:
		r := o.Response
		var b strings.Builder
		fmt.Fprintf(&b, "%d %s\n", r.Status, http.StatusText(r.Status))
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			for _, value := range r.Header[name] {
				fmt.Fprintf(&b, "%s: %s\n", name, value)
			}
		}
		return b.String() + "\n" + ended(r.Body+binary(r.BodyBase64))
	case o.Result != nil:
		var b bytes.Buffer
		if json.Indent(&b, o.Result, "", "  ") != nil {
			return ended(string(o.Result))
		}
		return ended(b.String())
	case utf8.Valid(o.Bytes):
		return ended(string(o.Bytes))
	}
	return ended(binary(o.Bytes))
}

func binary(data []byte) string {
	if data == nil {
		return ""
	}
	return fmt.Sprintf("(%s of binary data; use --json for base64)", size(len(data)))
}

// ended adds a newline to a text that is not empty and has none at its end.
func ended(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}
