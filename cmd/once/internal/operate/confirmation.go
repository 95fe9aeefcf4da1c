// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/view"
)

// Writing are the flags of commands that write.
type Writing struct {
	Reason string
	DryRun bool
	Yes    bool
	Audit  string
}

// Ready returns an error if the command must not begin to write.
func (w *Writing) Ready(e *Env) error {
	switch {
	case strings.TrimSpace(w.Reason) == "":
		return Usage("--reason is empty; write how you know")
	case !w.Yes && !w.DryRun && !e.StdinTTY:
		return Usage("confirmation needs a terminal as standard input; use --yes to write without asking")
	}
	return nil
}

// Begin opens the audit, and asks for the confirmation. In a dry run it does neither, and
// returns a rehearsal of the store.
func (w *Writing) Begin(ctx context.Context, e *Env, o Store, q Question) (Store, *Auditor, error) {
	if w.DryRun {
		return Rehearse(o), nil, nil
	}
	a, err := e.OpenAudit(ctx, w.Audit, o)
	if err == nil && !w.Yes {
		err = e.ask(ctx, q)
	}
	return o, a, err
}

// Question is what an operator confirms before a write.
type Question struct {
	Facts   [][2]string // what will be written, with labels
	Warning string
	Word    string // the answer that confirms it
}

// Check returns nil if the answer confirms the write.
func (q *Question) Check(answer string) error {
	if strings.TrimSpace(answer) == q.Word {
		return nil
	}
	return Refuse("not confirmed; nothing was written")
}

// ask asks on the terminal, and returns nil if the answer confirms the write.
func (e *Env) ask(ctx context.Context, q Question) error {
	fmt.Fprintf(e.Stderr, "%s%s\nType %s to write it: ", output.Labelled(output.Folded(q.Facts)), q.Warning, q.Word)
	return q.Check(e.answer(ctx))
}

// about returns the facts about a record before a write, and since when it is as it is.
func about(o Store, r *driver.Record, since string) [][2]string {
	return [][2]string{
		{"record", output.Short(r.ID)},
		{"in", output.OneLine(o.Name())},
		{"is", fmt.Sprintf("%s (%s), %s", r.State, output.OneLine(string(r.Reason)), since)},
		{"attempt", fmt.Sprintf("%d, token %s", r.Attempt, r.Token())},
	}
}

// becoming describes what becomes of a record: of it alone, and of it among others to which
// the same happens.
type becoming struct{ one, each string }

// writes returns the fact of what will be written, in one sentence: what becomes of how many
// records, and the reason that the audit gets.
func writes(list []becoming, reason string) [2]string {
	var parts []string
	of := map[string][]becoming{}
	for _, b := range list {
		if of[b.each] = append(of[b.each], b); len(of[b.each]) == 1 {
			parts = append(parts, b.each)
		}
	}
	for i, text := range parts {
		same := of[text]
		if len(same) == 1 {
			text = same[0].one
		}
		parts[i] = output.Count(len(same), "record") + ": " + text
	}
	if len(parts) == 0 {
		return [2]string{"write", "nothing"}
	}
	return [2]string{"write", strings.Join(append(parts, "reason: "+output.OneLine(reason)), "; ")}
}

// stale explains the error of a write with the token of an earlier attempt.
func stale(id idempotent.RecordID, err error, then string) error {
	if stale, ok := errors.AsType[*idempotent.StaleEvidenceError](err); ok {
		return Refuse("%s: the token is not that of its current attempt (attempt %d); run once show again%s", output.Short(id), stale.Attempt, then)
	}
	return err
}

// AuditLine is one line of JSON about a write or a refusal. It contains no key and
// no result.
type AuditLine struct {
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

// ended returns the line with the outcome of a write to the store.
func (l AuditLine) ended(o Store, written bool, err error) AuditLine {
	if l.Outcome = outcomeOf(written, err); err != nil {
		l.Error = err.Error()
	}
	if _, dry := o.(rehearsal); dry && written {
		l.Outcome = OutcomeWouldWrite
	}
	return l
}

// The outcomes of a write about one record, in the audit and in results.
const (
	OutcomeWritten    = "written"
	OutcomeUnchanged  = "unchanged" // the record already said so
	outcomeRefused    = "refused"
	outcomeFailed     = "failed"
	OutcomeWouldWrite = "would_write" // over a rehearsal
	outcomeNotTried   = "not_tried"   // after an interruption
)

// outcomeOf returns the outcome of a write.
func outcomeOf(written bool, err error) string {
	switch code := ExitCode(err); {
	case written:
		return OutcomeWritten
	case err == nil:
		return OutcomeUnchanged
	case code == ExitRefused || code == ExitNotFound:
		return outcomeRefused
	}
	return outcomeFailed
}

// Auditor writes audit lines. Without one, nothing is written: a dry run has none.
type Auditor struct {
	env   *Env
	to    io.Writer
	file  *os.File // nil: standard error
	store string
	AWS   string

	mu     sync.Mutex
	failed bool // a line is missing
}

// OpenAudit opens the audit until the process ends. Commands call it before the first
// write, so that nothing is done without an audit.
func (e *Env) OpenAudit(ctx context.Context, file string, o Store) (*Auditor, error) {
	a := &Auditor{env: e, to: e.Stderr, store: o.Name()}
	if path := cmp.Or(file, e.Getenv("ONCE_AUDIT")); path != "" {
		var err error
		if a.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			return nil, fmt.Errorf("the audit cannot be written, so nothing was written: %w", err)
		}
		a.to = a.file
	}
	a.AWS = o.Caller(ctx)
	return a, nil
}

// Write appends a line. In a file it makes the line durable.
func (a *Auditor) Write(l AuditLine) error {
	if a == nil {
		return nil
	}
	l.Time, l.User, l.Host, l.AWS, l.Store = view.Time{Time: a.env.Now()}, a.env.User, a.env.Host, a.AWS, a.store
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

// Check refuses further writes after a line that could not be written.
func (a *Auditor) Check() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed {
		return Refuse("a line of the audit could not be written, so nothing more is: correct the audit, and run the command again")
	}
	return nil
}
