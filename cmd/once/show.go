package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

type showCmd struct {
	target
	Step   []string `help:"Show the keys of this step too, even if it is not recorded. Repeatable."`
	Result bool     `help:"Print the stored result, and those of the steps. They may be private."`
}

// Help returns the additional text of once show --help.
func (*showCmd) Help() string {
	return `The token identifies the attempt: note it before you ask the provider, and pass it to once resolve with --not-executed.

The downstream keys are the idempotency keys that the handler sent to the provider: use them to look up the effect. A step that may run more than once is recorded only when it has ended; for one that was interrupted, --step NAME shows the key. Declared steps are always shown.`
}

// Run shows one record.
func (c *showCmd) Run(ctx context.Context, e *env) error {
	o, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	r, err := c.find(ctx, e, o)
	if err != nil {
		return err
	}
	v := viewOf(r, c.Step...)
	if c.Result {
		if err := c.addResults(ctx, e, o, r, v); err != nil {
			return err
		}
	}
	if e.json {
		return e.document(v)
	}
	return e.printRecord(r, v)
}

// addResults reads the stored results of the record and its steps.
func (c *showCmd) addResults(ctx context.Context, e *env, o *opened, r *driver.Record, v *view) error {
	g, err := e.guard(o)
	if err != nil {
		return err
	}
	if err := v.addStepResults(g, r); err != nil {
		return err
	}
	if r.State == driver.StateCompleted {
		v.outcome, err = outcomeOf(ctx, g, r)
	}
	return err
}

// printRecord prints a record as text.
func (e *env) printRecord(r *driver.Record, v *view) error {
	if err := writeFacts(e.stdout, e.facts(r, v)); err != nil {
		return err
	}
	if err := e.printKeys(v); err != nil {
		return err
	}
	if v.outcome != nil {
		if _, err := fmt.Fprintf(e.stdout, "\nRESULT\n%s", plain(v.outcome.text())); err != nil {
			return err
		}
	}
	for _, s := range v.Steps {
		if s.Result != nil {
			text := (&outcome{Result: s.Result}).text()
			if _, err := fmt.Fprintf(e.stdout, "\nRESULT of step %s\n%s", oneLine(s.Name), plain(text)); err != nil {
				return err
			}
		}
	}
	return e.printAdvice(r)
}

// printAdvice prints how to settle a record that needs evidence.
func (e *env) printAdvice(r *driver.Record) error {
	if r.State != driver.StateUnknown && !resumable(r) {
		return nil
	}
	result := "--completed"
	switch codecOf(r) {
	case jsonCodec:
	case lambdahttp.Encoding:
		result = "--status and --completed"
	default:
		result = "--completed @FILE"
	}
	step := ""
	if len(r.Steps) > 0 || len(r.StepNames) > 0 {
		step = "  --step, if one step was done\n"
	}
	_, err := fmt.Fprintf(e.stdout, `
WHAT TO DO
Look the effect up at the provider by the keys above. Then settle the record:
  once resolve %s
with one of these (see once resolve --help):
  %s, --final or --without-result, if it was done
%s  --not-executed --token %s,
    if nothing happened and this attempt is dead, not merely late
`, shell(string(r.ID)), result, step, r.Token())
	return err
}

// facts returns the facts of a record, without its steps and keys.
func (e *env) facts(r *driver.Record, v *view) [][2]string {
	now := e.now()
	facts := [][2]string{
		{"record", oneLine(string(r.ID))},
		{"state", fmt.Sprintf("%s (%s)\n%s", stateOf(r), oneLine(string(r.Reason)), meaning(r, now))},
		{"declared", v.declared()},
		{"created", when(r.Created, now)},
	}
	add := func(label, text string) { facts = append(facts, [2]string{label, text}) }
	if !r.Settled.IsZero() {
		add("since", when(r.Settled, now))
	}
	add("attempt", fmt.Sprintf("%d\ntoken %s", r.Attempt, v.Token))
	if !r.LeaseEnd.IsZero() {
		add("lease end", when(r.LeaseEnd, now))
	}
	switch {
	case r.Exhausted:
		add("given up", fmt.Sprintf("%s, after %s to reconcile it", when(r.Due, now), count(r.ReconcileAttempts, "attempt")))
	case !r.Due.IsZero():
		add("due", when(r.Due, now))
	}
	if !r.OpenSince.IsZero() {
		add("open since", when(r.OpenSince, now)+"\nA step may have had its effect without a recorded result.")
	}
	if r.ReconcileAttempts > 0 && !r.Exhausted {
		add("reconciled", count(r.ReconcileAttempts, "attempt")+" without an answer")
	}
	if r.Expires.IsZero() {
		add("expires", "never")
	} else {
		add("expires", when(r.Expires, now))
	}
	if r.Ref != "" {
		add("ref", oneLine(r.Ref))
	}
	if r.RequestID != "" {
		add("request id", oneLine(r.RequestID))
	}
	if r.State == driver.StateCompleted {
		add("result", v.describeResult())
	}
	return facts
}

// meaning returns what the state of r means for clients and operators.
func meaning(r *driver.Record, now time.Time) string {
	if !r.Expires.IsZero() && !now.Before(r.Expires) {
		return "It has expired and counts as missing."
	}
	switch r.State {
	case driver.StateInProgress:
		if now.Before(r.LeaseEnd) {
			return "A request is executing, or its process died; the lease is still live."
		}
		return "Its owner never reported; the next request or reconciliation decides."
	case driver.StateCompleted:
		return "Retries get the stored outcome."
	case driver.StateRetryable:
		if resumable(r) {
			return "The next request continues it, or evidence settles it."
		}
		return "The next request with this key runs."
	case driver.StateUnknown:
	}
	return "It may have happened or not; nothing runs until it is resolved."
}

// declared returns what the operation declared when the attempt began.
func (v *view) declared() string {
	text := fmt.Sprintf("%s; results as %s", v.Recovery, oneLine(v.Codec))
	if v.ResultVersion != "" {
		text += ", version " + oneLine(v.ResultVersion)
	}
	text += ", kept " + span(time.Duration(v.Retention))
	if v.UnresolvedRetention != 0 {
		text += fmt.Sprintf("\nwithout evidence kept %s, then the key is new", span(time.Duration(v.UnresolvedRetention)))
	}
	if len(v.DeclaredSteps) > 0 {
		text += "\nsteps " + oneLine(strings.Join(v.DeclaredSteps, ", "))
	}
	return text
}

// describeResult describes the stored result without its content.
func (v *view) describeResult() string {
	if v.Encoding == driver.EncodingOmitted {
		return "omitted: it could not be stored; retries get an error"
	}
	text := fmt.Sprintf("%s as %s", size(v.ResultBytes), oneLine(v.Encoding))
	if v.outcome == nil {
		text += "; --result prints it"
	}
	return text
}

// printKeys prints the keys for looking up effects at the provider: the handler's
// key outside of steps, and the key of each step.
func (e *env) printKeys(v *view) error {
	facts := [][2]string{{"handler", "outside of its steps\n" + v.DownstreamKey + "\n" + v.DownstreamUUID}}
	for _, s := range v.Steps {
		facts = append(facts, [2]string{"step", s.describe() + "\n" + s.DownstreamKey + "\n" + s.DownstreamUUID})
	}
	if _, err := fmt.Fprintf(e.stdout, "\nDOWNSTREAM KEYS, and below each its UUID\n"); err != nil {
		return err
	}
	return writeFacts(e.stdout, facts)
}

// describe returns the progress of a step.
func (s *stepView) describe() string {
	name := oneLine(s.Name)
	switch s.State {
	case "finished":
		by := ""
		if s.FinishedBy != "" {
			by = " by " + s.FinishedBy
		}
		return fmt.Sprintf("%s: finished%s at %s, %s kept", name, by, s.At.UTC().Format(time.TimeOnly+"Z"), size(s.ResultBytes))
	case "begun":
		return fmt.Sprintf("%s: begun at %s and not finished (%s)", name, s.At.UTC().Format(time.TimeOnly+"Z"), s.Mode)
	}
	return name + ": not recorded"
}
