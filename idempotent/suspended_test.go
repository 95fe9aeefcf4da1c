// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
)

// The event that Lambda sends for each invocation of a durable execution.
const durableEvent = `{
	"DurableExecutionArn": "arn:aws:lambda:eu-west-1:123456789012:function:order:7/durable-execution/once-1/8f2a",
	"CheckpointToken": "t-1",
	"InitialExecutionState": {"Operations": [{"Id": "0", "Type": "EXECUTION", "ExecutionDetails": {"InputPayload": "{\"order\":1}"}}]}
}`

// A durable handler is invoked for every part of an execution, with one key. If
// the suspension of the first part was stored as the outcome, the execution would
// never continue. So Wrap refuses such an event before it does anything.
func TestWrapRefusesDurableExecutions(t *testing.T) {
	t.Parallel()
	t.Run("json.RawMessage", func(t *testing.T) {
		refusesDurable(t, func(event []byte) json.RawMessage { return event })
	})
	t.Run("bytes", func(t *testing.T) {
		refusesDurable(t, func(event []byte) []byte { return event })
	})
	t.Run("pointer", func(t *testing.T) {
		refusesDurable(t, func(event []byte) *json.RawMessage { return (*json.RawMessage)(&event) })
	})
	t.Run("map", func(t *testing.T) { refusesDurable(t, decoded[map[string]any]) })
	t.Run("map of raw values", func(t *testing.T) { refusesDurable(t, decoded[map[string]json.RawMessage]) })
	t.Run("any", func(t *testing.T) { refusesDurable(t, decoded[any]) })
}

// Other requests are not inspected, or are of other kinds.
func TestWrapAcceptsOtherRequests(t *testing.T) {
	t.Parallel()
	type name string
	accepts(t, []string{"DurableExecutionArn", "CheckpointToken"})
	accepts(t, map[int]string{1: "DurableExecutionArn"})
	accepts(t, map[name]int{"DurableExecutionArn": 1})
	accepts(t, []byte(`DurableExecutionArn and CheckpointToken`))
	accepts(t, []byte(`["DurableExecutionArn", "CheckpointToken"]`))
	accepts[*map[string]any](t, nil)
	for _, v := range []any{nil, 5, "DurableExecutionArn", []any{"CheckpointToken"}, struct{}{}} {
		accepts(t, v)
	}
}

func accepts[Req any](t *testing.T, req Req) {
	t.Helper()
	g, _ := newGuard(t)
	handler := idempotent.Wrap(g,
		func(context.Context, Req) (idempotent.Key, error) { return newKey(), nil },
		func(context.Context, Req) (string, error) { return "done", nil })
	if answer, err := handler(t.Context(), req); answer != "done" || err != nil {
		t.Errorf("%#v: %q, %v", req, answer, err)
	}
}

func decoded[T any](event []byte) (v T) {
	if err := json.Unmarshal(event, &v); err != nil {
		panic(err)
	}
	return v
}

func refusesDurable[Req any](t *testing.T, event func([]byte) Req) {
	t.Helper()
	g, events := newGuard(t)
	runs, key := 0, newKey()
	handler := idempotent.Wrap(g,
		func(context.Context, Req) (idempotent.Key, error) { return key, nil },
		func(context.Context, Req) (json.RawMessage, error) {
			runs++
			return json.RawMessage(`{"Status":"PENDING"}`), nil
		})

	for range 2 {
		answer, err := handler(t.Context(), event([]byte(durableEvent)))
		if err == nil || !strings.Contains(err.Error(), "durable") || !strings.Contains(err.Error(), "lambdadurable") || answer != nil {
			t.Errorf("the handler returned %s, %v", answer, err)
		}
	}
	if runs != 0 || len(events.Events()) != 0 {
		t.Errorf("the durable handler ran %d times, and there were the events %v", runs, events.Events())
	}

	// Other events with one of these members, or with neither, are not refused.
	for i, other := range []string{`{"order":1}`, `{"DurableExecutionArn":"arn"}`, `{"CheckpointToken":"t","order":1}`, `{"CheckpointToken":"DurableExecutionArn"}`} {
		key = newKey()
		if _, err := handler(t.Context(), event([]byte(other))); err != nil || runs != i+1 {
			t.Errorf("%s: %v after %d runs", other, err, runs)
		}
	}
}

// A request type with the members of such an event is refused at start-up.
func TestWrapRefusesTypesOfDurableEvents(t *testing.T) {
	t.Parallel()
	type invocation struct {
		DurableExecutionArn string
		Token               string `json:"CheckpointToken"`
	}
	type first struct{ DurableExecutionArn string }
	type second struct{ CheckpointToken string }
	g, _ := newGuard(t)
	if err := wrapPanic[invocation](g); err == nil || !strings.Contains(err.Error(), "durable") {
		t.Errorf("a struct: %v", err)
	}
	if err := wrapPanic[*invocation](g); err == nil || !strings.Contains(err.Error(), "durable") {
		t.Errorf("a pointer: %v", err)
	}
	if err := errors.Join(wrapPanic[first](g), wrapPanic[second](g)); err != nil {
		t.Errorf("a struct with one of the members: %v", err)
	}
}

func wrapPanic[Req any](g *idempotent.Guard) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New(fmt.Sprint(p))
		}
	}()
	idempotent.Wrap(g,
		func(context.Context, Req) (idempotent.Key, error) { return newKey(), nil },
		func(context.Context, Req) (string, error) { return "", nil })
	return nil
}
