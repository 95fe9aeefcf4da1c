package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// journal is the guard's observer. It prints the events of a run as they arrive,
// and audits those that settle a record.
type journal struct {
	env   *env
	store *opened
	dry   bool
	audit *auditor // nil: this run settles no record

	mu      sync.Mutex
	entries []entry
	answers map[string]answered // by record, until they are written
	failed  error               // error of the audit
}

// entry is one event of a record.
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

// The texts of the events that are printed.
//
//lint:ignore exhaustive only what an operator has to know while records are settled
var told = map[event.Kind]string{
	event.MarkedUnknown:      "its lease ended without an outcome: unknown",
	event.Retryable:          "its lease ended without an outcome: retryable",
	event.Contradicted:       "its outcome contradicts the answer",
	event.ReleasedGivenUp:    "given up: no request continued it; the next request still can",
	event.ReconcileExhausted: "given up: settle it by hand (once list --exhausted)",
	event.ReconcileFailed:    "no answer",
	event.StoreError:         "the store failed",
}

// Observe prints and audits an event. In a dry run there are no events.
func (j *journal) Observe(ctx context.Context, e event.Event) {
	record := oneLine(e.Operation) + "#" + e.KeyHash
	if what := told[e.Kind]; what != "" {
		j.note(record, what, e.Err)
	}
	if e.Kind == event.Resolved {
		j.written(ctx, record)
	}
}

// answered stores the program's answer about a record.
func (j *journal) answered(r *driver.Record, ev *evidence) {
	j.note(short(r.ID), ev.text, nil)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.answers == nil {
		j.answers = map[string]answered{}
	}
	j.answers[short(r.ID)] = answered{r, ev}
}

// answered is an answer about a record.
type answered struct {
	record   *driver.Record
	evidence *evidence
}

// written audits that the answer about a record was written.
func (j *journal) written(ctx context.Context, record string) {
	j.mu.Lock()
	a, found := j.answers[record]
	delete(j.answers, record)
	j.mu.Unlock()
	if !found || j.audit == nil {
		return
	}
	line := a.evidence.auditLine("reconcile", a.record)
	line.To = j.store.stateAfter(ctx, a.record, a.evidence).String()
	line.Reason, line.Outcome = "the answer of --exec", "written"
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed = errors.Join(j.failed, j.audit.write(line))
}

func (j *journal) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failed
}
