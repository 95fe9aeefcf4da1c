// SPDX-License-Identifier: Apache-2.0

package operate

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
	"time"
	"unicode/utf8"

	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/httpform"
	"github.com/once-lambda/once/internal/view"
)

// MaxAnswer limits a program's answer, in bytes: Lambda's largest result as
// base64 in JSON.
const MaxAnswer = 16 << 20

// Answer is a program's answer: one of the members is set.
type Answer struct {
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

// ParseAnswer parses a program's answer. Without evidence it returns the pause
// before the next attempt; zero means the backoff's pause.
func ParseAnswer(said []byte) (ev *Evidence, later time.Duration, err error) {
	var a Answer
	if err := DecodeOne(said, &a); err != nil {
		return nil, 0, fmt.Errorf("invalid answer of the program: %w", err)
	}
	if a.Later == "" || a.count() != 1 {
		ev, err = a.Evidence()
		return ev, 0, err
	}
	if later, err = time.ParseDuration(a.Later); err == nil && later <= 0 {
		err = fmt.Errorf("invalid later %s: must be positive", a.Later)
	}
	return nil, later, err
}

// DecodeOne decodes one JSON document with known members.
func DecodeOne(data []byte, v any) error {
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
func (a *Answer) count() (given int) {
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

// Evidence returns the evidence of an answer.
func (a *Answer) Evidence() (ev *Evidence, err error) {
	if a.count() != 1 {
		return nil, errors.New(`it needs exactly one of "completed", "completed_base64", "without_result", "response", "final", "step", "corrected_step", "not_executed" and "later"`)
	}
	switch {
	case a.Completed != nil:
		ev = CompletedWith(a.Completed, false)
	case a.CompletedBase64 != nil:
		ev = CompletedWith(a.CompletedBase64, true)
	case a.WithoutResult:
		ev = &Evidence{Kind: KindWithoutResult}
	case a.Response != nil:
		ev, err = responseEvidence(a.Response)
	case a.Final != nil:
		ev, err = CompletedFinal(*a.Final)
	case a.Step != nil:
		ev, err = a.Step.evidence(KindStep)
	case a.CorrectedStep != nil:
		ev, err = a.CorrectedStep.evidence(KindCorrectedStep)
	case a.NotExecuted != "":
		ev = &Evidence{Kind: KindNotExecuted, Token: a.NotExecuted}
	default:
		err = errors.New(`"later" is not evidence`)
	}
	return ev, err
}

func responseEvidence(r *view.Response) (*Evidence, error) {
	body := r.BodyBase64
	switch {
	case body == nil:
		body = []byte(r.Body)
	case r.Body != "":
		return nil, errors.New(`the response has both "body" and "body_base64"`)
	}
	return CompletedHTTP(r.Status, r.Header, body)
}

func (s *stepAnswer) evidence(kind string) (*Evidence, error) {
	if s.Name == "" || s.Result == nil {
		return nil, errors.New(`evidence about a step needs its "name" and its "result"`)
	}
	return StepDone(kind, s.Name, s.Result)
}

// The kinds of evidence, as the audit names them.
const (
	kindCompleted     = "completed"
	KindWithoutResult = "without_result"
	kindFinal         = "final"
	KindStep          = "step"
	KindCorrectedStep = "corrected_step"
	KindNotExecuted   = "not_executed"
)

// Evidence is the evidence of an operator or a program about a record.
type Evidence struct {
	Kind  string
	Token string // of the attempt that was not executed, or whose outcome is corrected
	Step  string
	// Instead is set if the evidence replaces a stored outcome.
	Instead bool
	final   view.Final

	data  []byte // result of the operation or of the step, as callers get it
	raw   bool   // data comes from a file or from base64: it can have any encoding
	reply *httpform.Response

	// fit sets the following fields.

	codec      string // of the stored result
	Text       string // description for operators
	each       string // the same, of one of several records with evidence of this kind
	Resolution idempotent.Resolution
}

// CompletedWith returns the evidence that the operation completed with a result.
func CompletedWith(data []byte, raw bool) *Evidence {
	return &Evidence{Kind: kindCompleted, data: data, raw: raw}
}

// CompletedHTTP returns the evidence that the operation completed with an HTTP
// response.
func CompletedHTTP(status int, header http.Header, body []byte) (*Evidence, error) {
	if status < 200 || status > 599 {
		return nil, fmt.Errorf("invalid status %d: must be 200 to 599", status)
	}
	return &Evidence{Kind: kindCompleted, data: body, reply: &httpform.Response{Status: status, Base64: !utf8.Valid(body), Header: header, Body: body}}, nil
}

// CompletedFinal returns the evidence of a business outcome, which replays return
// like a result.
func CompletedFinal(f view.Final) (*Evidence, error) {
	if f.Code == "" {
		return nil, fmt.Errorf("a final outcome needs a code")
	}
	return &Evidence{Kind: kindFinal, final: f}, nil
}

// StepDone returns the evidence that a step was done with a result in JSON.
func StepDone(kind, name string, result []byte) (*Evidence, error) {
	data, err := compact(result)
	if err != nil {
		return nil, err
	}
	return &Evidence{Kind: kind, Step: name, data: data}, nil
}

// Correct makes the evidence replace the outcome that the attempt with this token left.
func (ev *Evidence) Correct(token string) error {
	if ev.Kind != kindCompleted && ev.Kind != kindFinal && ev.Kind != KindWithoutResult {
		return errors.New("only an outcome replaces a stored one: the completed result, a final outcome, or none")
	}
	ev.Token, ev.Instead = token, true
	return nil
}

// forms convert a result into the form of a codec that this program knows. Results
// of other codecs are stored unchanged.
var forms = map[string]func(*Evidence) error{
	driver.DefaultCodec: (*Evidence).asJSON,
	httpform.Encoding:   (*Evidence).asResponse,
}

// Fit converts the evidence into the form in which the operation of r stores its
// results. It refuses a form that the operation could not replay.
func (ev *Evidence) Fit(r *driver.Record) error {
	codec, seals := r.DeclaredCodec()
	if seals && ev.Kind != KindWithoutResult && ev.Kind != KindNotExecuted {
		if r.State == driver.StateCompleted {
			return Refuse("%s: it is completed, and its operation seals its results, for which this program has no key: "+
				"if that outcome is wrong, use --instead-of with --without-result, or correct it with a program that has the key", output.Short(r.ID))
		}
		return Refuse("%s: its operation seals its results, for which this program has no key: "+
			"use --without-result or --not-executed, or give the result with a program that has the key", output.Short(r.ID))
	}
	switch ev.Kind {
	case kindCompleted:
		ev.codec = codec
		form := forms[ev.codec]
		if form == nil {
			form = (*Evidence).asBytes
		}
		if err := form(ev); err != nil {
			return Refuse("%s: its operation stores results with the codec %q: %v", output.Short(r.ID), ev.codec, err)
		}
	case KindWithoutResult:
		ev.Resolution = idempotent.ResolvedWithoutResult()
		ev.Text = "completed, without its result: a retry learns that it was done"
		ev.each = "completed, without their results: a retry learns that it was done"
	case kindFinal:
		ev.Resolution = idempotent.ResolvedFinal(ev.final.Code, ev.final.Message)
		ev.Text = fmt.Sprintf("completed with the final outcome %s: %s", output.OneLine(ev.final.Code), output.OneLine(ev.final.Message))
		ev.each = ev.Text
	case KindStep:
		ev.Resolution = idempotent.ResolvedStep(ev.Step, json.RawMessage(ev.data))
		ev.Text = fmt.Sprintf("the step %s is stored as done, with a result of %s", output.OneLine(ev.Step), output.Size(len(ev.data)))
		ev.each = fmt.Sprintf("the step %s is stored as done, each with its own result", output.OneLine(ev.Step))
	case KindCorrectedStep:
		ev.Resolution = idempotent.CorrectedStep(ev.Step, json.RawMessage(ev.data))
		ev.Text = fmt.Sprintf("the step %s gets another result, of %s", output.OneLine(ev.Step), output.Size(len(ev.data)))
		ev.each = fmt.Sprintf("the step %s gets another result, each its own", output.OneLine(ev.Step))
	case KindNotExecuted:
		ev.Token = cmp.Or(ev.Token, r.Token())
		ev.Resolution = idempotent.ProvenNotExecuted(ev.Token)
		ev.Text = "not executed: nothing happened, and nothing can happen any more"
		ev.each = ev.Text
	}
	return nil
}

// asJSON is the form of idempotent.Wrap and Do: JSON without insignificant white
// space.
func (ev *Evidence) asJSON() error {
	if ev.reply != nil {
		return fmt.Errorf("give the result as JSON; a status, headers and a body are for handlers behind lambdahttp")
	}
	data, err := compact(ev.data)
	if err != nil {
		return err
	}
	ev.data = data
	ev.Resolution = idempotent.ResolvedWith(verbatim(driver.DefaultCodec), data)
	ev.Text = fmt.Sprintf("completed, with a result of %s as JSON", output.Size(len(data)))
	ev.each = "completed, each with its own result as JSON"
	return nil
}

// asResponse is the form of lambdahttp. A JSON body gets its Content-Type.
func (ev *Evidence) asResponse() error {
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
	data, _ := r.Encode() // CompletedHTTP has checked the status
	ev.Resolution = idempotent.ResolvedWith(verbatim(httpform.Encoding), data)
	ev.Text = fmt.Sprintf("completed, with the HTTP response %d and a body of %s", r.Status, output.Size(len(r.Body)))
	ev.each = fmt.Sprintf("completed, each with its own HTTP response %d", r.Status)
	return nil
}

// asBytes is the form of a codec that this program does not know.
func (ev *Evidence) asBytes() error {
	if !ev.raw {
		return fmt.Errorf(`give the bytes of the encoded result: --completed @FILE, or "completed_base64" in a program's answer; or use --without-result`)
	}
	ev.Resolution = idempotent.ResolvedWith(verbatim(ev.codec), ev.data)
	ev.Text = fmt.Sprintf("completed, with a result of %s, stored unchanged", output.Size(len(ev.data)))
	ev.each = "completed, each with its own result, stored unchanged"
	return nil
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

// becoming describes what becomes of a record by the evidence.
func (ev *Evidence) becoming() becoming {
	if ev.Instead {
		const instead = ", instead of the stored outcome"
		return becoming{ev.Text + instead, ev.each + instead}
	}
	return becoming{ev.Text, ev.each}
}

// stateAfter returns the state of a record after the evidence was written. Evidence about
// a step may leave the state unchanged: then the store has it, if it can be read.
func (ev *Evidence) stateAfter(ctx context.Context, store driver.Store, r *driver.Record) driver.State {
	switch {
	case ev.Step != "":
		if now, err := store.Get(ctx, r.ID); err == nil {
			return now.State
		}
		return r.State
	case ev.Kind == KindNotExecuted:
		return driver.StateRetryable
	}
	return driver.StateCompleted
}

// sum returns the hash of the result, by which an audit can prove the result
// without containing it.
func (ev *Evidence) sum() string {
	if ev.data == nil {
		return ""
	}
	sum := sha256.Sum256(ev.data)
	return hex.EncodeToString(sum[:])
}

// Piece is evidence about a record, as it was when it was read.
type Piece struct {
	Record   *driver.Record
	Evidence *Evidence
}

// AuditLine returns the line about the evidence, without the outcome of the write.
func (p Piece) AuditLine(action, reason string) AuditLine {
	ev, state := p.Evidence, ""
	if p.Record.State != 0 { // the record exists
		state = p.Record.State.String()
	}
	return AuditLine{
		Action: action, Record: p.Record.ID, From: state, To: state,
		Evidence: ev.Kind, Step: ev.Step, Token: ev.Token, Code: ev.final.Code,
		Codec: ev.codec, Bytes: len(ev.data), SHA256: ev.sum(), Reason: reason,
	}
}

// Wrote returns the line about a write of the evidence.
func (p Piece) Wrote(ctx context.Context, store Store, action, reason string, written bool, err error) AuditLine {
	line := p.AuditLine(action, reason)
	if written {
		line.To = p.Evidence.stateAfter(ctx, store, p.Record).String()
	}
	return line.ended(store, written, err)
}
