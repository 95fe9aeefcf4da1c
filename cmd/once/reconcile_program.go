// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/outage"
	"github.com/once-lambda/once/internal/view"
)

// program asks another program for the outcomes of records.
type program struct {
	command string
	env     *operate.Env
	guard   *idempotent.Guard
	journal *journal
}

// resolve is an [idempotent.ResolveFunc]. An error says that the program is down: whatever
// the age of a record, it is not the record that has no answer.
func (p *program) resolve(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
	defer p.journal.done(1)
	ev, later, err := p.evidence(ctx, r)
	switch {
	case err == nil && ev == nil:
		p.journal.note(output.Short(r.ID), "no answer yet", nil)
		return idempotent.Later(later), nil
	case err == nil:
		stored := r.Stored()
		p.journal.answered(&stored, ev)
		return ev.Resolution, nil
	case p.journal.dry: // without writes there are no events
		p.journal.note(output.Short(r.ID), "no answer", err)
	}
	return idempotent.Resolution{}, &outage.Error{Err: err}
}

// evidence asks the program about r. Without evidence it returns when to ask
// again.
func (p *program) evidence(ctx context.Context, r idempotent.PendingRecord) (ev *operate.Evidence, later time.Duration, err error) {
	said, err := p.ask(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	if ev, later, err = operate.ParseAnswer(said); ev == nil {
		return nil, later, err
	}
	if ev.Kind == operate.KindNotExecuted && ev.Token != r.Token {
		return nil, 0, errors.New(`the program's answer "not_executed" has another token than the record`)
	}
	stored := r.Stored()
	return ev, 0, ev.Fit(&stored)
}

// ask runs the program for one record and returns its output.
func (p *program) ask(ctx context.Context, r idempotent.PendingRecord) ([]byte, error) {
	stored := r.Stored()
	v := view.Of(&stored)
	if err := v.AddStepResults(ctx, p.guard, &stored); err != nil {
		return nil, err
	}
	var question bytes.Buffer
	json.NewEncoder(&question).Encode(v) // its types can be encoded
	cmd := exec.CommandContext(ctx, "sh", "-c", p.command)
	stopWithChildren(cmd)
	cmd.WaitDelay = killDelay
	said := &limited{left: operate.MaxAnswer}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &question, said, p.env.Stderr
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, errors.New("the program took too long and was stopped")
	case said.left < 0:
		return nil, fmt.Errorf("the program wrote more than %s", output.Size(operate.MaxAnswer))
	case err != nil:
		return nil, fmt.Errorf("the program failed: %w", err)
	}
	return said.buf.Bytes(), nil
}

// killDelay is how long a stopped program may hold its output open. It is shorter than the
// second after which a run leaves a call behind.
const killDelay = time.Second / 2

// limited is a buffer with a maximum size.
type limited struct {
	buf  bytes.Buffer
	left int
}

// Write stores data, or fails if the buffer would become too large, which ends the
// program's output.
func (l *limited) Write(data []byte) (int, error) {
	if l.left -= len(data); l.left < 0 {
		return 0, io.ErrShortWrite
	}
	return l.buf.Write(data)
}

// journal is the guard's observer. It prints the events of a run as they arrive,
// and audits those that settle a record.
type journal struct {
	env   *operate.Env
	store operate.Store
	dry   bool
	done  func(records int)
	audit *operate.Auditor // nil: this run settles no record

	mu      sync.Mutex
	entries []entry
	answers map[string]operate.Piece // by record, until they are written
	failed  error                    // error of the audit
}

// entry is one event of a record.
type entry struct {
	Record string `json:"record,omitempty"` // the operation, # and 12 characters; none if a list failed
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
	if j.env.JSON {
		return
	}
	line := strings.TrimSpace(record + "  " + what)
	if err != nil {
		line += ": " + en.Error
	}
	fmt.Fprintln(j.env.Stdout, output.OneLine(line))
}

// eventTexts has the events that are printed.
//
//lint:ignore exhaustive only what an operator has to know while records are settled
var eventTexts = map[event.Kind]string{
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
	record := ""
	if e.Operation != "" {
		record = output.OneLine(e.Operation) + "#" + e.KeyHash
	}
	if what := eventTexts[e.Kind]; what != "" {
		j.note(record, what, e.Err)
	}
	switch {
	case e.Kind == event.Resolved:
		j.written(ctx, record)
	case j.audit == nil && (e.Kind == event.MarkedUnknown || e.Kind == event.Retryable):
		j.done(1) // no program is asked about it
	}
}

// answered stores the program's answer about a record.
func (j *journal) answered(r *driver.Record, ev *operate.Evidence) {
	j.note(output.Short(r.ID), ev.Text, nil)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.answers[output.Short(r.ID)] = operate.Piece{Record: r, Evidence: ev}
}

// written audits that the answer about a record was written.
func (j *journal) written(ctx context.Context, record string) {
	j.mu.Lock()
	a := j.answers[record]
	delete(j.answers, record)
	j.mu.Unlock()
	line := a.Wrote(ctx, j.store, "reconcile", "the answer of --exec", true, nil)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed = errors.Join(j.failed, j.audit.Write(line))
}
