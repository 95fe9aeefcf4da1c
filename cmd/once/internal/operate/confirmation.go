// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
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
