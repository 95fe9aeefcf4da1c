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

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/view"
)

// program asks another program for the outcomes of records.
type program struct {
	command string
	env     *env
	guard   *idempotent.Guard
	journal *journal
}

const (
	// maxAnswer limits a program's answer, in bytes: Lambda's largest result as
	// base64 in JSON.
	maxAnswer = 16 << 20
	// killDelay is how long a stopped program may hold its output open.
	killDelay = time.Second
)

// resolve is an [idempotent.ResolveFunc].
func (p *program) resolve(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
	ev, later, err := p.evidence(ctx, r)
	switch {
	case err == nil && ev == nil:
		p.journal.note(short(r.ID), "no answer yet", nil)
		return idempotent.Later(later), nil
	case err == nil:
		stored := r.Stored()
		p.journal.answered(&stored, ev)
		return ev.resolution, nil
	case p.journal.dry: // without writes there are no events
		p.journal.note(short(r.ID), "no answer", err)
	}
	return idempotent.Resolution{}, err
}

// evidence asks the program about r. Without evidence it returns when to ask
// again.
func (p *program) evidence(ctx context.Context, r idempotent.PendingRecord) (ev *evidence, later time.Duration, err error) {
	said, err := p.ask(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	if ev, later, err = parseAnswer(said); ev == nil {
		return nil, later, err
	}
	if ev.kind == kindNotExecuted && ev.token != r.Token {
		return nil, 0, errors.New(`the program's answer "not_executed" has another token than the record`)
	}
	stored := r.Stored()
	return ev, 0, ev.fit(&stored)
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
	said := &limited{left: maxAnswer}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &question, said, p.env.stderr
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, errors.New("the program took too long and was stopped")
	case said.left < 0:
		return nil, fmt.Errorf("the program wrote more than %s", size(maxAnswer))
	case err != nil:
		return nil, fmt.Errorf("the program failed: %w", err)
	}
	return said.buf.Bytes(), nil
}

// answer is a program's answer: one of the members is set.
type answer struct {
	Completed       json.RawMessage `json:"completed"`
	CompletedBase64 []byte          `json:"completed_base64"`
	WithoutResult   bool            `json:"without_result"`
	Response        *view.Response  `json:"response"`
	Final           *view.Final     `json:"final"`
	Step            *stepAnswer     `json:"step"`
	CorrectedStep   *stepAnswer     `json:"corrected_step"`
	NotExecuted     string          `json:"not_executed"` // the token of the attempt
	Later           string          `json:"later"`
}

// stepAnswer is a program's answer about one step.
type stepAnswer struct {
	Name   string          `json:"name"`
	Result json.RawMessage `json:"result"`
}

// parseAnswer parses a program's answer. Without evidence it returns the pause
// before the next attempt; zero means the backoff's pause.
func parseAnswer(said []byte) (ev *evidence, later time.Duration, err error) {
	var a answer
	if err := decodeOne(said, &a); err != nil {
		return nil, 0, fmt.Errorf("invalid answer of the program: %w", err)
	}
	if a.Later == "" || a.count() != 1 {
		ev, err = a.evidence()
		return ev, 0, err
	}
	if later, err = time.ParseDuration(a.Later); err == nil && later <= 0 {
		err = fmt.Errorf("invalid later %s: must be positive", a.Later)
	}
	return nil, later, err
}

// decodeOne decodes one JSON document with known members.
func decodeOne(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one answer")
	}
	return nil
}

// count returns how many of the members are set.
func (a *answer) count() (given int) {
	for _, is := range []bool{
		a.Completed != nil, a.CompletedBase64 != nil, a.WithoutResult, a.Response != nil, a.Final != nil,
		a.Step != nil, a.CorrectedStep != nil, a.NotExecuted != "", a.Later != "",
	} {
		if is {
			given++
		}
	}
	return given
}

// evidence returns the evidence of an answer.
func (a *answer) evidence() (ev *evidence, err error) {
	if a.count() != 1 {
		return nil, errors.New(`it needs exactly one of "completed", "completed_base64", "without_result", "response", "final", "step", "corrected_step", "not_executed" and "later"`)
	}
	switch {
	case a.Completed != nil:
		ev = completedWith(a.Completed, false)
	case a.CompletedBase64 != nil:
		ev = completedWith(a.CompletedBase64, true)
	case a.WithoutResult:
		ev = &evidence{kind: kindWithoutResult}
	case a.Response != nil:
		ev, err = responseEvidence(a.Response)
	case a.Final != nil:
		ev, err = completedFinal(*a.Final)
	case a.Step != nil:
		ev, err = a.Step.evidence(kindStep)
	case a.CorrectedStep != nil:
		ev, err = a.CorrectedStep.evidence(kindCorrectedStep)
	case a.NotExecuted != "":
		ev = &evidence{kind: kindNotExecuted, token: a.NotExecuted}
	default:
		err = errors.New(`"later" is not evidence`)
	}
	return ev, err
}

func responseEvidence(r *view.Response) (*evidence, error) {
	body := r.BodyBase64
	switch {
	case body == nil:
		body = []byte(r.Body)
	case r.Body != "":
		return nil, errors.New(`the response has both "body" and "body_base64"`)
	}
	return completedHTTP(r.Status, r.Header, body)
}

func (s *stepAnswer) evidence(kind string) (*evidence, error) {
	if s.Name == "" || s.Result == nil {
		return nil, errors.New(`evidence about a step needs its "name" and its "result"`)
	}
	return stepDone(kind, s.Name, s.Result)
}

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
	env   *env
	store *opened
	dry   bool
	audit *auditor // nil: this run settles no record

	mu      sync.Mutex
	entries []entry
	answers map[string]piece // by record, until they are written
	failed  error            // error of the audit
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
	if j.env.json {
		return
	}
	line := strings.TrimSpace(record + "  " + what)
	if err != nil {
		line += ": " + en.Error
	}
	fmt.Fprintln(j.env.stdout, oneLine(line))
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
		record = oneLine(e.Operation) + "#" + e.KeyHash
	}
	if what := eventTexts[e.Kind]; what != "" {
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
	j.answers[short(r.ID)] = piece{r, ev}
}

// written audits that the answer about a record was written.
func (j *journal) written(ctx context.Context, record string) {
	j.mu.Lock()
	a := j.answers[record]
	delete(j.answers, record)
	j.mu.Unlock()
	line := a.wrote(ctx, j.store, "reconcile", "the answer of --exec", true, nil)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failed = errors.Join(j.failed, j.audit.write(line))
}

func (j *journal) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failed
}
