// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/httpform"
	"github.com/once-lambda/once/internal/view"
)

// lookupCmd is the command once lookup.
type lookupCmd struct {
	*operate.Env
	operate.Target
}

func lookupCommand(e *operate.Env) *cobra.Command {
	c := &lookupCmd{Env: e}
	cmd := &cobra.Command{
		Use:   "lookup RECORD",
		Short: "Print in one line what happened to a key",
		Long: recordHelp + `

The exit code is the state: 0 completed, 3 no record, 5 in progress, 6 unknown,
7 retryable (the next request runs), 8 resumable (the next request continues).
With --json, it prints the document of once show. It reads one record and
changes nothing.`,
		Example: `  once lookup 'POST /charges' --scope acme --key KEY
  once lookup transfer --scope acme --key t-17 >/dev/null && echo completed`,
		RunE: command(e, c.run),
	}
	recordFlags(cmd, &c.Target)
	return exits(cmd, operate.ExitOK, operate.ExitFailure, operate.ExitUsage, operate.ExitNotFound, exitInProgress, exitUnknown, exitRetryable, exitResumable)
}

func (c *lookupCmd) run(ctx context.Context, args []string) error {
	o, r, err := c.OpenRecord(ctx, c.Env, args[0])
	if err != nil {
		return err
	}
	defer o.Close()
	now := c.Now()
	if r.Expired(now) {
		return fmt.Errorf("%w: %s expired at %s, so the key is new", idempotent.ErrNoRecord, output.Short(r.ID), output.When(r.Expires, now))
	}
	if c.JSON {
		err = c.Encoder().Encode(view.Of(r))
	} else {
		_, err = fmt.Fprintf(c.Stdout, "%s %s (%s) since %s\n", output.Short(r.ID), view.StateOf(r), output.OneLine(string(r.Reason)), r.StateSince().Format("2006-01-02 15:04:05Z"))
	}
	if err == nil {
		err = operate.WithCode(errors.New(""), stateExits[view.StateOf(r)])
	}
	return err
}

// The exit codes that only once lookup returns, besides 0 for a completed record.
const (
	exitInProgress = 5
	exitUnknown    = 6
	exitRetryable  = 7
	exitResumable  = 8
)

// stateExits are the exit codes of states.
var stateExits = map[string]int{
	"in_progress": exitInProgress, "unknown": exitUnknown, "retryable": exitRetryable, view.StateResumable: exitResumable, "completed": operate.ExitOK,
}

// showCmd is the command once show.
type showCmd struct {
	*operate.Env
	operate.Target
	steps  []string
	result bool
}

func showCommand(e *operate.Env) *cobra.Command {
	c := &showCmd{Env: e}
	cmd := &cobra.Command{
		Use:   "show RECORD",
		Short: "Show one record, and its keys at the provider",
		Long: recordHelp + `

The token identifies the attempt: note it before you ask the provider, and pass
it to once resolve with --not-executed.

The downstream keys are the idempotency keys that the handler sent to the
provider: use them to look up the effect. A step that may run more than once is
recorded only when it has ended; for one that was interrupted, --step NAME shows
the key. Declared steps are always shown.`,
		Example: `  once show 'POST /charges' --global --key b7a36f90-1e4d-4d52-8c7f-92e5d0ab4613
  once show '#4RexMqXSY3Lf'
  once show --ref order-1033 --scan
  once show transfer --scope acme --key t-17 --step pay --result`,
		RunE: command(e, c.run),
		Args: func(cmd *cobra.Command, args []string) error {
			if c.Ref == "" {
				return oneRecord(cmd, args)
			}
			if len(args) > 0 || c.Key != "" || c.Scope != "" || c.Global || c.Path != "" {
				return errors.New("--ref stands for the RECORD: leave out the other one")
			}
			return nil
		},
	}
	recordFlags(cmd, &c.Target)
	f := cmd.Flags()
	f.StringVar(&c.Ref, "ref", "", "in place of RECORD: the whole `REFERENCE` of the record")
	f.StringArrayVar(&c.steps, "step", nil, "show the keys of the step `NAME` too, even if it is not\nrecorded (repeatable)")
	f.BoolVar(&c.result, "result", false, "print the stored result, and those of the steps;\nthey may be private")
	return exits(cmd, operate.ExitOK, operate.ExitFailure, operate.ExitUsage, operate.ExitNotFound)
}

func (c *showCmd) run(ctx context.Context, args []string) error {
	o, r, err := c.OpenRecord(ctx, c.Env, strings.Join(args, ""))
	if err != nil {
		return err
	}
	defer o.Close()
	v := view.Of(r, c.steps...)
	if c.result {
		if err := operate.AddResults(ctx, c.Env, o, r, v); err != nil {
			return err
		}
	}
	if c.JSON {
		return c.Document(v)
	}
	_, err = fmt.Fprint(c.Stdout, c.text(r, v))
	return err
}

// text returns a record as text.
func (c *showCmd) text(r *driver.Record, v *view.Record) string {
	text := output.Labelled(c.facts(r, v)) + keys(v)
	if v.Outcome != nil {
		text += "\nRESULT\n" + output.Plain(outcomeText(v.Outcome))
	}
	for _, s := range v.Steps {
		if s.Result != nil {
			text += fmt.Sprintf("\nRESULT of step %s\n%s", output.OneLine(s.Name), output.Plain(outcomeText(&view.Outcome{Result: s.Result})))
		}
	}
	return text + whatToDo(r)
}

// whatToDo returns how to settle a record that needs evidence.
func whatToDo(r *driver.Record) string {
	if !r.Waits() {
		return ""
	}
	look := "Look the effect up at the provider by the keys above."
	result, step, note := "--completed, --final or --without-result", "", ""
	switch codec, seals := r.DeclaredCodec(); {
	case seals:
		result, note = "--without-result", "Results of this operation are sealed. Only a program that has its key, such as\nthe operation's reconciler, can give one.\n"
	case codec == httpform.Encoding:
		result = "--status and " + result
	case codec != driver.DefaultCodec:
		result = "--completed @FILE, --final or --without-result"
	}
	if note == "" && (len(r.Steps) > 0 || len(r.StepNames) > 0) {
		step = "  --step, if one step was done\n"
	}
	if r.Reason == driver.ReasonPredecessor {
		look = "Another system began it, and did not send the keys above: look the effect up at\nthe provider by your own reference."
		note += "After --not-executed the next request asks the other system again.\n"
	}
	return fmt.Sprintf(`
WHAT TO DO
%s Then settle the record:
  once resolve %s
with one of these (see once resolve --help):
  %s, if it was done
%s  --not-executed --token %s,
    if nothing happened and this attempt is dead, not merely late
%s`, look, shell(string(r.ID)), result, step, r.Token(), note)
}

// facts returns the facts of a record, without its steps and keys.
func (c *showCmd) facts(r *driver.Record, v *view.Record) [][2]string {
	now := c.Now()
	facts := [][2]string{
		{"record", output.OneLine(string(r.ID))},
		{"state", fmt.Sprintf("%s (%s)\n%s", view.StateOf(r), output.OneLine(string(r.Reason)), meaning(r, now))},
		{"declared", declared(v)},
		{"created", output.When(r.Created, now)},
	}
	add := func(label, text string) {
		if text != "" {
			facts = append(facts, [2]string{label, text})
		}
	}
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return output.When(t, now)
	}
	add("since", at(r.Since))
	add("attempt", fmt.Sprintf("%d\ntoken %s", r.Attempt, v.Token))
	add("lease end", at(r.LeaseEnd))
	if r.Exhausted {
		add("given up", fmt.Sprintf("%s, after %s to reconcile it", output.When(r.Due, now), output.Count(r.ReconcileAttempts, "attempt")))
	} else {
		add("due", at(r.Due))
	}
	if !r.OpenSince.IsZero() {
		add("open since", output.When(r.OpenSince, now)+"\nA step may have had its effect without a recorded result.")
	}
	if r.Announced {
		add("announced", "Its handler was still at work shortly before its deadline.")
	}
	if r.PredecessorAnswered {
		add("predecessor", "It has answered and is not asked again.")
	}
	if r.ReconcileAttempts > 0 && !r.Exhausted {
		add("reconciled", output.Count(r.ReconcileAttempts, "attempt")+" without an answer")
	}
	add("expires", cmp.Or(at(r.Expires), "never"))
	add("ref", output.OneLine(r.Ref))
	add("request id", output.OneLine(r.RequestID))
	add("trace", output.OneLine(r.TraceParent))
	if r.State == driver.StateCompleted {
		add("result", output.DescribeResult(v))
	}
	return facts
}

// meaning returns what the state of r means for clients and operators.
func meaning(r *driver.Record, now time.Time) string {
	if r.Expired(now) {
		return "It has expired and counts as missing."
	}
	switch {
	case r.Reason == driver.ReasonShadow:
		return "Written in shadow mode, where each request runs; nothing to settle.\nThe provider got other keys than those below."
	case r.Abandoned(now):
		return "Its owner never reported; the next request or reconciliation decides."
	case r.State == driver.StateInProgress:
		return "A request is executing, or its process died; the lease is still live."
	case r.State == driver.StateCompleted && r.Encoding == driver.EncodingOmitted:
		return "It was done, and nothing runs again; retries get an error."
	case r.State == driver.StateCompleted:
		return "Retries get the stored outcome."
	case r.Resumable():
		return "The next request continues it, or evidence settles it."
	case r.State == driver.StateRetryable:
		return "The next request with this key runs."
	}
	return "It may have happened or not; nothing runs until evidence settles it."
}

// declared returns what the operation declared when the attempt began.
func declared(v *view.Record) string {
	text := fmt.Sprintf("%s; results as %s", v.Recovery, output.OneLine(v.Codec))
	if v.Seals {
		text += ", sealed"
	}
	if v.ResultVersion != "" {
		text += ", version " + output.OneLine(v.ResultVersion)
	}
	text += ", kept " + output.Span(time.Duration(v.Retention))
	if v.UnresolvedRetention != 0 {
		text += fmt.Sprintf("\nwithout evidence kept %s, then the key is new", output.Span(time.Duration(v.UnresolvedRetention)))
	}
	if len(v.DeclaredSteps) > 0 {
		text += "\nsteps " + output.OneLine(strings.Join(v.DeclaredSteps, ", "))
	}
	return text
}

// keys returns the keys for looking up effects at the provider: the handler's key
// outside of steps, and the key of each step.
func keys(v *view.Record) string {
	facts := [][2]string{{"handler", "outside of its steps\n" + v.DownstreamKey + "\n" + v.DownstreamUUID}}
	for _, s := range v.Steps {
		facts = append(facts, [2]string{"step", output.DescribeStep(&s) + "\n" + s.DownstreamKey + "\n" + s.DownstreamUUID})
	}
	return "\nDOWNSTREAM KEYS, and below each its UUID\n" + output.Labelled(facts)
}

// outcomeText returns the outcome as text: a response looks as in HTTP/1.1.
func outcomeText(o *view.Outcome) string {
	switch {
	case o.Final != nil:
		return fmt.Sprintf("%s: %s\n", o.Final.Code, o.Final.Message)
	case o.Response != nil:
		r := o.Response
		var b strings.Builder
		fmt.Fprintf(&b, "%d %s\n", r.Status, http.StatusText(r.Status))
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			for _, value := range r.Header[name] {
				fmt.Fprintf(&b, "%s: %s\n", name, value)
			}
		}
		return b.String() + "\n" + ended(r.Body+binary(r.BodyBase64))
	case o.Result != nil:
		var b bytes.Buffer
		json.Indent(&b, o.Result, "", "  ") // it is valid
		return ended(b.String())
	case utf8.Valid(o.Bytes):
		return ended(string(o.Bytes))
	}
	return ended(binary(o.Bytes))
}

func binary(data []byte) string {
	if data == nil {
		return ""
	}
	return fmt.Sprintf("(%s of binary data; use --json for base64)", output.Size(len(data)))
}

// ended adds a newline to a text that is not empty and has none at its end.
func ended(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}

// shell quotes s for a shell.
func shell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
