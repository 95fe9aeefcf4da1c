// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/httpform"
	"github.com/once-lambda/once/internal/view"
)

// The kinds of evidence, as the audit names them.
const (
	kindCompleted     = "completed"
	kindWithoutResult = "without_result"
	kindFinal         = "final"
	kindStep          = "step"
	kindCorrectedStep = "corrected_step"
	kindNotExecuted   = "not_executed"
)

// evidence is the evidence of an operator or a program about a record.
type evidence struct {
	kind  string
	token string // of the attempt that was not executed, or whose outcome is corrected
	step  string
	// instead is set if the evidence replaces a stored outcome.
	instead bool
	final   view.Final

	data  []byte // result of the operation or of the step, as callers get it
	raw   bool   // data comes from a file or from base64: it can have any encoding
	reply *httpform.Response

	// fit sets the following fields.

	codec      string // of the stored result
	text       string // description for operators
	resolution idempotent.Resolution
}

// verbatim is a codec for results that are already encoded.
type verbatim string

// Name returns the name of the codec that the record declares.
func (c verbatim) Name() string { return string(c) }

// Encode returns v, which has to be a []byte.
func (verbatim) Encode(v any) ([]byte, error) {
	return v.([]byte), nil
}

// Decode is never called, because this program replays nothing.
func (verbatim) Decode([]byte, any) error {
	return fmt.Errorf("verbatim: results cannot be decoded")
}

// forms convert a result into the form of a codec that this program knows. Results
// of other codecs are stored unchanged.
var forms = map[string]func(*evidence) error{
	driver.DefaultCodec: (*evidence).asJSON,
	httpform.Encoding:   (*evidence).asResponse,
}

// fit converts the evidence into the form in which the operation of r stores its
// results. It refuses a form that the operation could not replay.
func (ev *evidence) fit(r *driver.Record) error {
	codec, seals := r.DeclaredCodec()
	if seals && ev.kind != kindWithoutResult && ev.kind != kindNotExecuted {
		return refuse("%s: its operation seals its results, for which this program has no key: "+
			"use --without-result or --not-executed, or give the result with a program that has the key", short(r.ID))
	}
	switch ev.kind {
	case kindCompleted:
		ev.codec = codec
		form := forms[ev.codec]
		if form == nil {
			form = (*evidence).asBytes
		}
		if err := form(ev); err != nil {
			return refuse("%s: its operation stores results with the codec %q: %v", short(r.ID), ev.codec, err)
		}
	case kindWithoutResult:
		ev.resolution = idempotent.ResolvedWithoutResult()
		ev.text = "completed, without its result: a retry learns that it was done"
	case kindFinal:
		ev.resolution = idempotent.ResolvedFinal(ev.final.Code, ev.final.Message)
		ev.text = fmt.Sprintf("completed with the final outcome %s: %s", oneLine(ev.final.Code), oneLine(ev.final.Message))
	case kindStep:
		ev.resolution = idempotent.ResolvedStep(ev.step, json.RawMessage(ev.data))
		ev.text = fmt.Sprintf("the step %s is stored as done, with a result of %s", oneLine(ev.step), size(len(ev.data)))
	case kindCorrectedStep:
		ev.resolution = idempotent.CorrectedStep(ev.step, json.RawMessage(ev.data))
		ev.text = fmt.Sprintf("the step %s gets another result, of %s", oneLine(ev.step), size(len(ev.data)))
	case kindNotExecuted:
		ev.token = cmp.Or(ev.token, r.Token())
		ev.resolution = idempotent.ProvenNotExecuted(ev.token)
		ev.text = "not executed: nothing happened, and nothing can happen any more"
	}
	return nil
}

// asJSON is the form of idempotent.Wrap and Do: JSON without insignificant white
// space.
func (ev *evidence) asJSON() error {
	if ev.reply != nil {
		return fmt.Errorf("give the result as JSON; a status, headers and a body are for handlers behind lambdahttp")
	}
	data, err := compact(ev.data)
	if err != nil {
		return err
	}
	ev.data = data
	ev.resolution = idempotent.ResolvedWith(verbatim(driver.DefaultCodec), data)
	ev.text = fmt.Sprintf("completed, with a result of %s as JSON", size(len(data)))
	return nil
}

// asResponse is the form of lambdahttp. A JSON body gets its Content-Type.
func (ev *evidence) asResponse() error {
	if ev.reply == nil {
		return fmt.Errorf(`give the HTTP response: --status (and --header) with --completed, or "response" in a program's answer`)
	}
	r := *ev.reply
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if r.Header.Get("Content-Type") == "" && json.Valid(r.Body) {
		r.Header.Set("Content-Type", "application/json")
	}
	data, err := r.Encode()
	if err != nil {
		return err
	}
	ev.resolution = idempotent.ResolvedWith(verbatim(httpform.Encoding), data)
	ev.text = fmt.Sprintf("completed, with the HTTP response %d and a body of %s", r.Status, size(len(r.Body)))
	return nil
}

// asBytes is the form of a codec that this program does not know.
func (ev *evidence) asBytes() error {
	if !ev.raw {
		return fmt.Errorf(`give the bytes of the encoded result: --completed @FILE, or "completed_base64" in a program's answer; or use --without-result`)
	}
	ev.resolution = idempotent.ResolvedWith(verbatim(ev.codec), ev.data)
	ev.text = fmt.Sprintf("completed, with a result of %s, stored unchanged", size(len(ev.data)))
	return nil
}

// correct makes the evidence replace the outcome that the attempt with this token left.
func (ev *evidence) correct(token string) error {
	if ev.kind != kindCompleted && ev.kind != kindFinal && ev.kind != kindWithoutResult {
		return errors.New("only an outcome replaces a stored one: the completed result, a final outcome, or none")
	}
	ev.token, ev.instead = token, true
	return nil
}

// completedWith returns the evidence that the operation completed with a result.
func completedWith(data []byte, raw bool) *evidence {
	return &evidence{kind: kindCompleted, data: data, raw: raw}
}

// completedHTTP returns the evidence that the operation completed with an HTTP
// response.
func completedHTTP(status int, header http.Header, body []byte) (*evidence, error) {
	if status < 200 || status > 599 {
		return nil, fmt.Errorf("invalid status %d: must be 200 to 599", status)
	}
	return &evidence{kind: kindCompleted, data: body, reply: &httpform.Response{Status: status, Base64: !utf8.Valid(body), Header: header, Body: body}}, nil
}

// completedFinal returns the evidence of a business outcome, which replays return
// like a result.
func completedFinal(f view.Final) (*evidence, error) {
	if f.Code == "" {
		return nil, fmt.Errorf("a final outcome needs a code")
	}
	return &evidence{kind: kindFinal, final: f}, nil
}

// stepDone returns the evidence that a step was done with a result in JSON.
func stepDone(kind, name string, result []byte) (*evidence, error) {
	data, err := compact(result)
	if err != nil {
		return nil, err
	}
	return &evidence{kind: kind, step: name, data: data}, nil
}

// compact returns JSON without insignificant white space, as the handler would
// store it.
func compact(data []byte) ([]byte, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, data); err != nil {
		return nil, fmt.Errorf("the result is not valid JSON: %w", err)
	}
	return b.Bytes(), nil
}

// aboutStep reports whether the evidence is about one step of the record.
func (ev *evidence) aboutStep() bool { return ev.step != "" }

// state returns the state of the record r after the evidence was written. Evidence
// about a step may leave the state unchanged.
func (ev *evidence) state(r *driver.Record) driver.State {
	switch {
	case ev.aboutStep():
		return r.State
	case ev.kind == kindNotExecuted:
		return driver.StateRetryable
	}
	return driver.StateCompleted
}

// stateAfter returns the state of a record after the evidence was written. If the
// store cannot be read, it returns the state that the evidence implies.
func (ev *evidence) stateAfter(ctx context.Context, store driver.Store, before *driver.Record) driver.State {
	if ev.aboutStep() {
		if r, err := store.Get(ctx, before.ID); err == nil {
			return ev.state(r)
		}
	}
	return ev.state(before)
}

// sum returns the hash of the result, by which an audit can prove the result
// without containing it.
func (ev *evidence) sum() string {
	if ev.data == nil {
		return ""
	}
	sum := sha256.Sum256(ev.data)
	return hex.EncodeToString(sum[:])
}

// piece is evidence about a record, as it was when it was read.
type piece struct {
	record *driver.Record
	ev     *evidence
}

// auditLine returns the line about the evidence, without the outcome of the write.
func (p piece) auditLine(action, reason string) auditLine {
	ev, state := p.ev, ""
	if p.record.State != 0 { // the record exists
		state = p.record.State.String()
	}
	return auditLine{
		Action: action, Record: p.record.ID, From: state, To: state,
		Evidence: ev.kind, Step: ev.step, Token: ev.token, Code: ev.final.Code,
		Codec: ev.codec, Bytes: len(ev.data), SHA256: ev.sum(), Reason: reason,
	}
}

// wrote returns the line about a write of the evidence.
func (p piece) wrote(ctx context.Context, store driver.Store, action, reason string, written bool, err error) auditLine {
	line := p.auditLine(action, reason)
	if written {
		line.To = p.ev.stateAfter(ctx, store, p.record).String()
	}
	return line.ended(written, err)
}

// task is one of the records that a command settles or requeues, such as the one of a
// line of a file.
type task struct {
	piece
	id     idempotent.RecordID
	number int // of the line
	reason string

	// The last write or rehearsal.
	written bool
	err     error
	line    auditLine
}

// result returns the result of the last write or rehearsal.
func (t *task) result() result {
	l := &t.line
	return result{Line: t.number, Record: t.id, Evidence: l.Evidence, Step: l.Step, From: l.From, To: l.To, Outcome: l.Outcome, Error: l.Error}
}

// carryOut calls do for the tasks, some of them at the same time, writes their lines to
// the audit, and adds their results, until a line cannot be written or ctx ends. It
// returns the errors of the audit, which a dry run does not have.
func (r *results) carryOut(ctx context.Context, tasks []*task, a *auditor, do func(*task)) (audit error) {
	for len(tasks) > 0 && (a == nil || a.check() == nil) && ctx.Err() == nil {
		batch := tasks[:min(writeParallel, len(tasks))]
		tasks = tasks[len(batch):]
		parallel(slices.All(batch), writeParallel, func(_ int, t *task) { do(t) })
		for _, t := range batch {
			if a != nil {
				audit = errors.Join(audit, a.write(t.line))
			}
			r.add(t.result())
		}
	}
	for _, t := range tasks {
		one := t.result()
		one.To, one.Outcome, one.Error = one.From, outcomeNotTried, ""
		r.add(one)
	}
	return audit
}

// stale explains the error of a write with the token of an earlier attempt.
func stale(id idempotent.RecordID, err error, then string) error {
	if stale, ok := errors.AsType[*idempotent.StaleEvidenceError](err); ok {
		return refuse("%s: the token is not that of its current attempt (attempt %d); run once show again%s", short(id), stale.Attempt, then)
	}
	return err
}

// about returns the facts about a record before a write, and since when it is as it is.
func about(o *opened, r *driver.Record, since string) [][2]string {
	return [][2]string{
		{"record", short(r.ID)},
		{"in", oneLine(o.name)},
		{"is", fmt.Sprintf("%s (%s), %s", r.State, oneLine(string(r.Reason)), since)},
		{"attempt", fmt.Sprintf("%d, token %s", r.Attempt, r.Token())},
	}
}

// writing are the flags of commands that write.
type writing struct {
	reason string
	dryRun bool
	yes    bool
	audit  string
}

// flags adds the flags. The reason is required.
func (w *writing) flags(cmd *cobra.Command, dryRun, reason, yes string) {
	f := cmd.Flags()
	f.BoolVar(&w.dryRun, "dry-run", false, dryRun)
	f.StringVar(&w.reason, "reason", "", reason)
	f.BoolVar(&w.yes, "yes", false, yes)
	auditFlag(cmd, &w.audit)
	cmd.MarkFlagRequired("reason")
}

// checkAndWrite is the help of --dry-run.
const checkAndWrite = "check everything, print what would be written,\nand write nothing"

// ready returns an error if the command must not begin to write.
func (w *writing) ready(e *env) error {
	switch {
	case strings.TrimSpace(w.reason) == "":
		return usage("--reason is empty; write how you know")
	case !w.yes && !w.dryRun && !e.stdinTTY:
		return usage("confirmation needs a terminal as standard input; use --yes to write without asking")
	}
	return nil
}

// begin opens the audit, and asks for the confirmation.
func (w *writing) begin(ctx context.Context, e *env, o *opened, q question) (*auditor, error) {
	a, err := e.openAudit(ctx, w.audit, o)
	if err != nil || w.yes {
		return a, err
	}
	return a, e.ask(ctx, q)
}

// question is what an operator confirms before a write.
type question struct {
	facts   [][2]string // what will be written, with labels
	warning string
	word    string // the answer that confirms it
}

// check returns nil if the answer confirms the write.
func (q *question) check(answer string) error {
	if strings.TrimSpace(answer) == q.word {
		return nil
	}
	return refuse("not confirmed; nothing was written")
}

// ask asks on the terminal, and returns nil if the answer confirms the write.
func (e *env) ask(ctx context.Context, q question) error {
	fmt.Fprintf(e.stderr, "%s%s\nType %s to write it: ", labelled(q.facts), q.warning, q.word)
	return q.check(e.answer(ctx))
}

func auditFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "audit", "", "append the audit line to this `FILE`\n(default: ONCE_AUDIT, or standard error)")
}

// auditLine is one line of JSON about a write or a refusal. It contains no key and
// no result.
type auditLine struct {
	Time     view.Time           `json:"time"`
	Action   string              `json:"action"`
	User     string              `json:"user,omitempty"`
	Host     string              `json:"host,omitempty"`
	AWS      string              `json:"aws,omitempty"` // the user's ARN
	Store    string              `json:"store"`
	Record   idempotent.RecordID `json:"record,omitempty"`
	From     string              `json:"from,omitempty"`
	To       string              `json:"to,omitempty"`
	Evidence string              `json:"evidence,omitempty"`
	Step     string              `json:"step,omitempty"`
	Token    string              `json:"token,omitempty"` // of the attempt that was not executed
	Code     string              `json:"code,omitempty"`
	Codec    string              `json:"codec,omitempty"`
	Bytes    int                 `json:"bytes,omitempty"`
	SHA256   string              `json:"sha256,omitempty"`
	Count    int                 `json:"count,omitempty"`
	Reason   string              `json:"reason,omitempty"`
	Outcome  string              `json:"outcome"` // written, unchanged, refused or failed
	Error    string              `json:"error,omitempty"`
}

// ended returns the line with the outcome of a write.
func (l auditLine) ended(written bool, err error) auditLine {
	if l.Outcome = outcomeOf(written, err); err != nil {
		l.Error = err.Error()
	}
	return l
}

// auditor writes audit lines.
type auditor struct {
	env   *env
	to    io.Writer
	file  *os.File // nil: standard error
	store string
	aws   string

	mu     sync.Mutex
	failed bool // a line is missing
}

// openAudit opens the audit until the process ends. Commands call it before the first
// write, so that nothing is done without an audit.
func (e *env) openAudit(ctx context.Context, file string, o *opened) (*auditor, error) {
	a := &auditor{env: e, to: e.stderr, store: o.name}
	if path := cmp.Or(file, e.getenv("ONCE_AUDIT")); path != "" {
		var err error
		if a.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			return nil, fmt.Errorf("the audit cannot be written, so nothing was written: %w", err)
		}
		a.to = a.file
	}
	a.aws = o.who(ctx)
	return a, nil
}

// write appends a line. In a file it makes the line durable.
func (a *auditor) write(l auditLine) error {
	l.Time, l.User, l.Host, l.AWS, l.Store = view.Time{Time: a.env.now()}, a.env.user, a.env.host, a.aws, a.store
	line, _ := json.Marshal(l) // its types can be encoded
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.to.Write(append(line, '\n'))
	if err == nil && a.file != nil {
		err = a.file.Sync()
	}
	if err != nil {
		a.failed = true
		return fmt.Errorf("the audit could not be written: %w; the line is %s", err, line)
	}
	return nil
}

// check refuses further writes after a line that could not be written.
func (a *auditor) check() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed {
		return refuse("a line of the audit could not be written, so nothing more is: correct the audit, and run the command again")
	}
	return nil
}
