// SPDX-License-Identifier: Apache-2.0

// Package audit writes one JSON line for every settled operation, for every step
// that evidence settled, and for every outcome that was discarded: the operation,
// its time and its outcome, and who discarded it. The table of idempotency keys is
// not an audit log, because its records expire.
//
//	settled := audit.New(os.Stdout)
//	guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Observer = settled })
//
// A line contains no key, no payload and no result. Use the key's hash and the
// request id to find the rest in other logs.
package audit

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/logs"
)

// Line is one line of the log.
type Line struct {
	Time      time.Time `json:"timestamp"`
	Level     string    `json:"level"` // INFO, or that of the function's log filter if it is above: see [New]
	Kind      string    `json:"kind"`  // audit
	Operation string    `json:"operation"`
	KeyHash   string    `json:"key_hash"`
	Outcome   string    `json:"outcome"` // completed, retryable, unknown, resolved, step_resolved, forgotten, contradicted, lease_lost, exhausted
	Reason    string    `json:"reason,omitempty"`
	Step      string    `json:"step,omitempty"`  // only for step_resolved: the step that the evidence is about
	Actor     string    `json:"actor,omitempty"` // of forgotten and of a corrected outcome: who did it
	Note      string    `json:"note,omitempty"`  // why, in the words of the actor
	Recovery  string    `json:"recovery"`
	Attempt   int       `json:"attempt"`
	RequestID string    `json:"request_id,omitempty"`
}

// outcomeOf returns the outcome of an event that settles an operation, or that
// contradicts its settled outcome.
func outcomeOf(kind event.Kind) string {
	switch kind {
	case event.Completed, event.LateCompletion:
		return "completed"
	case event.Retryable:
		return "retryable"
	case event.MarkedUnknown:
		return "unknown"
	case event.Resolved:
		return "resolved"
	case event.Forgotten:
		return "forgotten"
	case event.Contradicted:
		return "contradicted"
	case event.LeaseLost:
		return "lease_lost"
	case event.ReconcileExhausted:
		return "exhausted"
	case event.Reserved, event.TakenOver, event.ExpiredReplaced, event.Replayed, event.ReplayFailed, event.InProgress,
		event.Mismatch, event.Unresolved, event.CompletionFailed, event.KeyMissing, event.StoreError, event.StepDone,
		event.StepReplayed, event.ReconcileScheduled, event.ReconcileFailed, event.ReleasedGivenUp, event.NoOutcome, event.RequestEnded,
		event.ShadowRun, event.ShadowTakenOver, event.ShadowKilled, event.ShadowReplayed, event.ShadowDiffers, event.ShadowUncompared,
		event.ShadowInProgress, event.ShadowMismatch, event.ShadowUnresolved, event.ShadowNoKey, event.ShadowFailed:
	}
	return ""
}

// Observer writes lines. Make one with [New]; it is safe for concurrent use.
type Observer struct {
	failed func(error) // nil: no call
	level  string

	mu sync.Mutex
	w  io.Writer
}

// Options are the options of [New]. The zero value of each field is its documented
// default.
type Options struct {
	// Failed is called with the error if a line could not be written. The
	// operation is settled anyway. Default: no call.
	Failed func(error)
}

// New returns an observer that writes to w, one line per call of Write. It panics
// if w is nil.
//
// New reads AWS_LAMBDA_LOG_FORMAT and AWS_LAMBDA_LOG_LEVEL. If the function's log
// filter is above INFO, each line has the filter's level, so that Lambda does not drop
// it. Such a level does not mean that something is wrong.
func New(w io.Writer, optFns ...func(*Options)) *Observer {
	if w == nil {
		panic("audit: New: missing writer")
	}
	var o Options
	for _, f := range optFns {
		f(&o)
	}
	return &Observer{w: w, failed: o.Failed, level: logs.Kept()}
}

// Observe writes a line if e settles an operation, or a step by evidence.
func (o *Observer) Observe(_ context.Context, e event.Event) {
	outcome := outcomeOf(e.Kind)
	if outcome == "" {
		return
	}
	if e.Kind == event.Resolved && e.Step != "" {
		outcome = "step_resolved" // the operation may still be open
	}
	line, err := json.Marshal(Line{
		Time: e.Time, Level: o.level, Kind: "audit",
		Operation: e.Operation, KeyHash: e.KeyHash, Outcome: outcome, Reason: string(e.Reason), Step: e.Step, Actor: e.Actor, Note: e.Note,
		Recovery: e.Recovery.String(), Attempt: e.Attempt, RequestID: e.RequestID,
	})
	if err == nil {
		err = o.write(append(line, '\n'))
	}
	if err != nil && o.failed != nil {
		o.failed(err)
	}
}

func (o *Observer) write(line []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock() // unlock also if the writer panics
	_, err := o.w.Write(line)
	return err
}

var _ event.Observer = (*Observer)(nil)
