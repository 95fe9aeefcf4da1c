package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// journal notes what happens to the records of a run, prints it as it comes, and
// audits what is settled. It is the guard's observer.
type journal struct {
	env   *env
	dry   bool
	audit *auditor // nil: nothing is settled in this run

	mu      sync.Mutex
	entries []entry
	answers map[string]auditLine // by record, until they are written
	failed  error                // of the audit
}

// entry is one fact about a record.
type entry struct {
	Record string `json:"record"` // the operation, # and 12 characters
	What   string `json:"what"`
	Error  string `json:"error,omitempty"`
}

func (j *journal) note(record, what string, err error) {
	en := entry{Record: record, What: what}
	if err != nil {
		en.Error = err.Error()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, en)
	if j.env.json {
		return
	}
	line := record + "  " + what
	if err != nil {
		line += ": " + en.Error
	}
	fmt.Fprintln(j.env.stdout, oneLine(line))
}

// told are the events that people want to read, and what they read.
var told = map[idempotent.EventKind]string{
	idempotent.EventMarkedUnknown:      "its lease ended without an outcome: unknown",
	idempotent.EventRetryable:          "its lease ended without an outcome: retryable",
	idempotent.EventContradicted:       "its outcome contradicts the answer",
	idempotent.EventReconcileExhausted: "given up: it waits for you (once list --exhausted)",
	idempotent.EventReconcileFailed:    "no answer",
	idempotent.EventStoreError:         "the store failed",
}

// Observe notes what the core does. A dry run observes nothing.
func (j *journal) Observe(_ context.Context, event idempotent.Event) {
	record := oneLine(event.Operation) + "#" + event.KeyHash
	if what := told[event.Kind]; what != "" {
		j.note(record, what, event.Err)
	}
	if event.Kind == idempotent.EventResolved {
		j.written(record)
	}
}

// answered notes what the program said of a record.
func (j *journal) answered(r *driver.Record, ev *evidence) {
	j.note(short(r.ID), ev.text, nil)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.answers == nil {
		j.answers = map[string]auditLine{}
	}
	j.answers[short(r.ID)] = auditLine{
		Action: "reconcile", Record: r.ID, From: r.State.String(), To: ev.state().String(), Reason: "the answer of --exec",
		Evidence: ev.kind, Code: ev.code, Encoding: ev.encoding, Bytes: len(ev.data), SHA256: ev.sum(), Outcome: "written",
	}
}

// written audits that the answer about a record was written.
func (j *journal) written(record string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	line, found := j.answers[record]
	if !found || j.audit == nil {
		return
	}
	delete(j.answers, record)
	j.failed = errors.Join(j.failed, j.audit.write(line))
}

func (j *journal) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failed
}
