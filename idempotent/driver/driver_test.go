// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// id is a record id of the right form.
const id driver.RecordID = "charge#AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

func TestStateCodesAndNames(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		state      driver.State
		code, name string
		known      bool
	}{
		{0, "?", "State(0)", false},
		{driver.StateInProgress, "I", "in_progress", true},
		{driver.StateCompleted, "C", "completed", true},
		{driver.StateRetryable, "R", "retryable", true},
		{driver.StateUnknown, "U", "unknown", true},
		{driver.StateUnknown + 1, "?", "State(5)", false},
	} {
		if got := row.state.Code(); got != row.code {
			t.Errorf("%d: got code %q, want %q", row.state, got, row.code)
		}
		if got := row.state.String(); got != row.name {
			t.Errorf("%d: got name %q, want %q", row.state, got, row.name)
		}
		if !row.known {
			continue
		}
		if got, err := driver.ParseState(row.code); err != nil || got != row.state {
			t.Errorf("code %q: got %v, %v, want %v", row.code, got, err, row.state)
		}
	}
}

func TestRecoveryNames(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		recovery driver.Recovery
		name     string
		known    bool
	}{
		{driver.Reconcile, "reconcile", true},
		{driver.Resume, "resume", true},
		{driver.Rerun, "rerun", true},
		{driver.Rerun + 1, "Recovery(3)", false},
	} {
		if got := row.recovery.String(); got != row.name {
			t.Errorf("%d: got name %q, want %q", row.recovery, got, row.name)
		}
		if got, err := driver.ParseRecovery(row.name); (err == nil) != row.known || row.known && got != row.recovery {
			t.Errorf("name %q: got %v, %v, want %v, known: %v", row.name, got, err, row.recovery, row.known)
		}
	}
}

func TestStepModeCodes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		mode  driver.StepMode
		code  string
		known bool
	}{
		{driver.AtLeastOnce, "L", true},
		{driver.AtMostOnce, "M", true},
		{driver.AtMostOnce + 1, "?", false},
	} {
		if got := row.mode.Code(); got != row.code {
			t.Errorf("%d: got code %q, want %q", row.mode, got, row.code)
		}
		if !row.known {
			continue
		}
		if got, err := driver.ParseStepMode(row.code); err != nil || got != row.mode {
			t.Errorf("code %q: got %v, %v, want %v", row.code, got, err, row.mode)
		}
	}
}

func TestStepSourceCodes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		source driver.StepSource
		code   string
		known  bool
	}{
		{0, "?", false},
		{driver.StepByRun, "R", true},
		{driver.StepByTransaction, "T", true},
		{driver.StepByEvidence, "E", true},
		{driver.StepByEvidence + 1, "?", false},
	} {
		if got := row.source.Code(); got != row.code {
			t.Errorf("%d: got code %q, want %q", row.source, got, row.code)
		}
		if !row.known {
			continue
		}
		if got, err := driver.ParseStepSource(row.code); err != nil || got != row.source {
			t.Errorf("code %q: got %v, %v, want %v", row.code, got, err, row.source)
		}
	}
}

// A store fails closed: a code that this version does not know is an error, and so
// is the empty one of a missing attribute and the "?" of an unknown value.
func TestUnknownCodesAreErrors(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"", "?", "X", "i", "IC"} {
		if got, err := driver.ParseState(code); got != 0 || err == nil {
			t.Errorf("state %q: got %v, %v, want an error", code, got, err)
		}
		if got, err := driver.ParseRecovery(code); got != 0 || err == nil {
			t.Errorf("recovery %q: got %v, %v, want an error", code, got, err)
		}
		if got, err := driver.ParseStepMode(code); got != 0 || err == nil {
			t.Errorf("step mode %q: got %v, %v, want an error", code, got, err)
		}
		if got, err := driver.ParseStepSource(code); got != 0 || err == nil {
			t.Errorf("step source %q: got %v, %v, want an error", code, got, err)
		}
	}
}

// The operation ends at the last "#". Text that is not a record id has no
// operation and no hash, and a short hash is returned as it is.
func TestPartsOfARecordID(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		id              driver.RecordID
		operation, hash string
	}{
		{"charge#abcdefghijklmnop", "charge", "abcdefghijkl"},
		{"charge#abcdefghijkl", "charge", "abcdefghijkl"},
		{"charge#abc", "charge", "abc"},
		{"a#b#abc", "a#b", "abc"},
		{"#abc", "", "abc"},
		{"charge#", "charge", ""},
		{"charge", "", ""},
		{"", "", ""},
	} {
		if got := row.id.Operation(); got != row.operation {
			t.Errorf("%q: got operation %q, want %q", row.id, got, row.operation)
		}
		if got := row.id.KeyHash(); got != row.hash {
			t.Errorf("%q: got hash %q, want %q", row.id, got, row.hash)
		}
	}
}

// Providers remember the downstream keys, so they never change. The wanted keys
// are SHA-256 sums that were computed by another program.
func TestDownstreamKeysNeverChange(t *testing.T) {
	t.Parallel()
	const (
		handler = "once-UsbMh_IpkNEw9m_2qwQvUz9Mau6wuFJ4U1Zf7umI_xk"
		capture = "once-PkBZhMfPxwOL8A45ilDkGy5t9Xfz-wejaJXeIJB58jI"
	)
	if got := id.DownstreamKey(); got != handler {
		t.Errorf("the handler: got %q, want %q", got, handler)
	}
	if got := id.StepKey("capture"); got != capture {
		t.Errorf("the step: got %q, want %q", got, capture)
	}
}

func TestStepIsFoundByItsName(t *testing.T) {
	t.Parallel()
	r := driver.Record{Steps: []driver.StepRecord{{Name: "authorise", Attempt: 1}, {Name: "capture", Attempt: 2}, {Name: "ship", Attempt: 3}}}
	for i, name := range []string{"authorise", "capture", "ship"} {
		if got, found := r.Step(name); !found || got.Name != name || got.Attempt != i+1 {
			t.Errorf("%q: got %+v, %t", name, got, found)
		}
	}
	for _, name := range []string{"", "book", "zip"} {
		if got, found := r.Step(name); found || got.Name != "" || got.Attempt != 0 {
			t.Errorf("%q: got %+v, %t, want no step", name, got, found)
		}
	}
}

// A store and its callers may write into their records: neither sees what the
// other writes.
func TestCloneSharesNoMemory(t *testing.T) {
	t.Parallel()
	full := func() *driver.Record {
		return &driver.Record{
			ID: id, State: driver.StateRetryable, Created: time.UnixMilli(1),
			Result:    []byte("result"),
			StepNames: []string{"authorise", "capture"},
			Steps:     []driver.StepRecord{{Name: "authorise", Result: []byte("yes")}, {Name: "capture"}},
		}
	}
	same := func(what string, r *driver.Record) {
		t.Helper()
		if r.ID != id || r.State != driver.StateRetryable || !r.Created.Equal(time.UnixMilli(1)) {
			t.Errorf("%s: got record %+v", what, r)
		}
		if string(r.Result) != "result" {
			t.Errorf("%s: got result %q", what, r.Result)
		}
		if len(r.StepNames) != 2 || r.StepNames[0] != "authorise" || r.StepNames[1] != "capture" {
			t.Errorf("%s: got step names %q", what, r.StepNames)
		}
		if len(r.Steps) != 2 || r.Steps[0].Name != "authorise" || string(r.Steps[0].Result) != "yes" || r.Steps[1].Name != "capture" || r.Steps[1].Result != nil {
			t.Errorf("%s: got steps %+v", what, r.Steps)
		}
	}
	overwrite := func(r *driver.Record) {
		r.ID, r.State, r.Created = "other", driver.StateUnknown, time.Time{}
		copy(r.Result, "RESULT")
		r.StepNames[0] = "changed"
		copy(r.Steps[0].Result, "YES")
		r.Steps[1] = driver.StepRecord{Name: "changed"}
	}
	r := full()
	c := r.Clone()
	same("the copy", c)
	overwrite(c)
	same("the record after a change of its copy", r)
	c = r.Clone()
	overwrite(r)
	same("the copy after a change of the record", c)
}

// No result and an empty result are different: only the second was returned by a
// handler.
func TestCloneKeepsAnEmptyResultApartFromNone(t *testing.T) {
	t.Parallel()
	for _, result := range [][]byte{nil, {}} {
		r := &driver.Record{Result: result, Steps: []driver.StepRecord{{Name: "a", Result: result}}}
		c := r.Clone()
		if (c.Result == nil) != (result == nil) || !bytes.Equal(c.Result, result) {
			t.Errorf("the result %#v became %#v", result, c.Result)
		}
		if got := c.Steps[0].Result; (got == nil) != (result == nil) || !bytes.Equal(got, result) {
			t.Errorf("the step's result %#v became %#v", result, got)
		}
	}
}
