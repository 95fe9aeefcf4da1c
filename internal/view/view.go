// SPDX-License-Identifier: Apache-2.0

// Package view makes the JSON of a record, for the command line and for pages in a
// browser.
package view

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/httpform"
)

// Record is a record as once prints it with --json and as the program of reconcile --exec
// reads it. The names of its members do not change. It contains results only on
// request, because they may be private.
type Record struct {
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
	Retention           Period   `json:"retention"`
	UnresolvedRetention Period   `json:"unresolved_retention,omitempty"` // missing: no limit
	DeclaredSteps       []string `json:"declared_steps,omitempty"`       // missing: any step

	Created  Time `json:"created,omitzero"`
	Since    Time `json:"since,omitzero"`
	LeaseEnd Time `json:"lease_end,omitzero"`
	Expires  Time `json:"expires,omitzero"` // missing: never
	Due      Time `json:"due,omitzero"`
	// OpenSince is the start of the first attempt whose unfinished steps may have
	// had an effect.
	OpenSince Time `json:"open_since,omitzero"`

	Announced bool `json:"announced,omitempty"` // it ran until its deadline, and the list of due records has it

	PredecessorAnswered bool `json:"predecessor_answered,omitempty"` // it is not asked again

	ReconcileAttempts int  `json:"reconcile_attempts,omitempty"`
	Exhausted         bool `json:"exhausted,omitempty"`

	Ref         string `json:"ref,omitempty"`
	RequestID   string `json:"request_id,omitempty"`
	TraceParent string `json:"trace_parent,omitempty"`

	Encoding    string `json:"encoding,omitempty"`
	Sealed      bool   `json:"sealed,omitempty"`       // the result is encrypted, and not shown
	ResultBytes int    `json:"result_bytes,omitempty"` // as stored, possibly compressed

	DownstreamKey  string `json:"downstream_key"`
	DownstreamUUID string `json:"downstream_uuid"`
	Steps          []Step `json:"steps,omitempty"`

	*Outcome
}

// Step is a step of a record, or only its name and keys if it is not recorded.
type Step struct {
	Name           string          `json:"name"`
	State          string          `json:"state"` // finished, begun or not_recorded
	Mode           string          `json:"mode,omitempty"`
	Attempt        int             `json:"attempt,omitempty"`
	At             Time            `json:"at,omitzero"`
	FinishedBy     string          `json:"finished_by,omitempty"` // run, transaction or evidence
	DownstreamKey  string          `json:"downstream_key"`
	DownstreamUUID string          `json:"downstream_uuid"`
	Sealed         bool            `json:"sealed,omitempty"` // the result is encrypted, and not shown
	ResultBytes    int             `json:"result_bytes,omitempty"`
	Result         json.RawMessage `json:"result,omitempty"`
}

// Of returns the view of r, without results. Its steps are the recorded ones, the declared ones
// if r is not completed, and the further ones.
func Of(r *driver.Record, further ...string) *Record {
	key := r.ID.DownstreamKey()
	codec, seals := r.DeclaredCodec()
	v := &Record{
		Record: r.ID, Operation: r.ID.Operation(), KeyHash: r.ID.KeyHash(),
		State: r.State.String(), Reason: r.Reason, Resumable: r.Resumable(), Attempt: r.Attempt, Token: r.Token(),
		Recovery: r.Recovery.String(), Codec: codec, Seals: seals, ResultVersion: r.ResultVersion, Retention: Period(r.DeclaredRetention()),
		UnresolvedRetention: Period(r.UnresolvedRetention), DeclaredSteps: r.StepNames,
		Created: Time{r.Created}, Since: Time{r.Since}, LeaseEnd: Time{r.LeaseEnd},
		Expires: Time{r.Expires}, Due: Time{r.Due}, OpenSince: Time{r.OpenSince},
		Announced: r.Announced, PredecessorAnswered: r.PredecessorAnswered, ReconcileAttempts: r.ReconcileAttempts, Exhausted: r.Exhausted,
		Ref: r.Ref, RequestID: r.RequestID, TraceParent: r.TraceParent,
		Encoding: r.Encoding, Sealed: r.Sealed(), ResultBytes: ResultBytes(r),
		DownstreamKey: key, DownstreamUUID: idempotent.AsUUID(key),
	}
	for _, s := range r.Steps {
		v.Steps = append(v.Steps, StepOf(r.ID, s))
	}
	if r.State != driver.StateCompleted {
		further = append(slices.Clone(r.StepNames), further...)
	}
	for _, name := range further {
		if !slices.ContainsFunc(v.Steps, func(s Step) bool { return s.Name == name || strings.HasPrefix(s.Name, name+"/") }) {
			s := StepOf(r.ID, driver.StepRecord{Name: name})
			s.State, s.Mode = "not_recorded", ""
			v.Steps = append(v.Steps, s)
		}
	}
	return v
}

// StepOf returns the view of one step of the record id, without its result.
func StepOf(id idempotent.RecordID, s driver.StepRecord) Step {
	key := id.StepKey(s.Name)
	v := Step{
		Name: s.Name, State: "begun", Mode: "at_least_once", Attempt: s.Attempt, At: Time{s.At},
		DownstreamKey: key, DownstreamUUID: idempotent.AsUUID(key), Sealed: s.Sealed(), ResultBytes: len(s.Result),
	}
	if s.Finished {
		v.State, v.FinishedBy = "finished", sources[s.By]
	}
	if s.Mode == driver.AtMostOnce {
		v.Mode = "at_most_once"
	}
	return v
}

// sources are the names of the sources of a step's result.
var sources = map[driver.StepSource]string{
	driver.StepByRun: "run", driver.StepByTransaction: "transaction", driver.StepByEvidence: "evidence",
}

// AddStepResults adds the results of the finished steps to the view, except those
// that are sealed.
func (v *Record) AddStepResults(ctx context.Context, g *idempotent.Guard, r *driver.Record) error {
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

// StateResumable is the state of a resumable record in lists and counts.
const StateResumable = "resumable"

// StateOf returns the name of the state of r.
func StateOf(r *driver.Record) string {
	if r.Resumable() {
		return StateResumable
	}
	return r.State.String()
}

// StateName returns the name of the state of the record, as StateOf does.
func (v *Record) StateName() string {
	if v.Resumable {
		return StateResumable
	}
	return v.State
}

// ResultBytes returns the stored size of the result of r.
func ResultBytes(r *driver.Record) int {
	if r.Chunks.Count > 0 {
		return r.Chunks.Length
	}
	return len(r.Result)
}

// Time is a time in RFC 3339, UTC, with milliseconds.
type Time struct{ time.Time }

// MarshalJSON returns the time in the form that all documents use.
func (s Time) MarshalJSON() ([]byte, error) {
	return []byte(s.UTC().Format(`"2006-01-02T15:04:05.000Z"`)), nil
}

// Period is a duration in the form of [time.Duration.String].
type Period time.Duration

// MarshalText returns the period in the form that time.ParseDuration reads.
func (p Period) MarshalText() ([]byte, error) { return []byte(time.Duration(p).String()), nil }

// Outcome is the stored outcome of a completed record, decoded if this package
// knows its encoding: one of the members is set.
type Outcome struct {
	Result   json.RawMessage `json:"result,omitempty"`
	Response *Response       `json:"response,omitempty"`
	Final    *Final          `json:"final,omitempty"`
	Bytes    []byte          `json:"result_base64,omitempty"`
}

// Final is a business outcome: see idempotent.Final.
type Final struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Response is an HTTP response. At most one of the two bodies is set.
type Response struct {
	Status     int         `json:"status"`
	Header     http.Header `json:"header,omitempty"`
	Body       string      `json:"body,omitempty"`
	BodyBase64 []byte      `json:"body_base64,omitempty"`
}

// OutcomeOf reads and decodes the stored outcome of r.
func OutcomeOf(ctx context.Context, g *idempotent.Guard, r *driver.Record) (*Outcome, error) {
	encoding, data, err := g.StoredOutcome(ctx, *r)
	if err != nil {
		return nil, err
	}
	o := &Outcome{}
	switch {
	case encoding == driver.EncodingFinal:
		o.Final = &Final{}
		err = json.Unmarshal(data, o.Final)
	case encoding == httpform.Encoding:
		var stored httpform.Response
		stored, err = httpform.Decode(data)
		o.Response = responseOf(stored)
	case encoding == driver.DefaultCodec && json.Valid(data):
		o.Result = data
	default:
		o.Bytes = data
	}
	if err != nil {
		return nil, fmt.Errorf("%s#%s: the stored result is damaged: %w", r.ID.Operation(), r.ID.KeyHash(), err)
	}
	return o, nil
}

func responseOf(r httpform.Response) *Response {
	out := &Response{Status: r.Status, Header: r.Header}
	if utf8.Valid(r.Body) {
		out.Body = string(r.Body)
	} else {
		out.BodyBase64 = r.Body
	}
	return out
}
