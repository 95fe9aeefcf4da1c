// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/once-lambda/once/internal/jsontypes"
)

// errSuspendable refuses the event of a durable execution. Its handler is invoked
// many times for one execution, and returns {"Status":"PENDING"} whenever the
// execution is suspended. As a stored outcome, a suspension would end the
// execution: every later invocation would get it as a replay.
var errSuspendable = errors.New("idempotent: the event belongs to a durable execution, and the result of its handler can be a suspension, which is not an outcome; " +
	"do not wrap the handler of a durable function: guard its start with package lambdadurable, or call Do inside its steps")

// The members of an event that Lambda sends to a durable function. The handlers of
// all durable execution SDKs require both.
const (
	executionMember  = "DurableExecutionArn"
	checkpointMember = "CheckpointToken"
)

// suspendable returns an error if values of type t are events of durable
// executions, and otherwise whether they can be, so that each has to be inspected.
func suspendable(t reflect.Type) (inspected bool, err error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Interface, reflect.Map, reflect.Slice:
		return true, nil
	case reflect.Struct:
		if members := jsontypes.Members(t); slices.Contains(members, executionMember) && slices.Contains(members, checkpointMember) {
			return false, fmt.Errorf("idempotent: Wrap: unsupported request type %s: %w", t, errSuspendable)
		}
	}
	return false, nil
}

// suspends reports whether req is the event of a durable execution, as JSON or as
// a map.
func suspends(req any) bool {
	v := reflect.ValueOf(req)
	for v.Kind() == reflect.Pointer {
		v = v.Elem() // of nil: a value of no kind
	}
	switch {
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		if !bytes.Contains(v.Bytes(), []byte(executionMember)) {
			return false
		}
		var members struct {
			Execution  *json.RawMessage `json:"DurableExecutionArn"`
			Checkpoint *json.RawMessage `json:"CheckpointToken"`
		}
		_ = json.Unmarshal(v.Bytes(), &members) // if it is no JSON object, it has no members
		return members.Execution != nil && members.Checkpoint != nil
	case v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String:
		has := func(name string) bool { return v.MapIndex(reflect.ValueOf(name).Convert(v.Type().Key())).IsValid() }
		return has(executionMember) && has(checkpointMember)
	}
	return false
}
