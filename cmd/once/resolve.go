package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

type resolveCmd struct {
	target
	Completed     *string   `xor:"evidence" placeholder:"RESULT" help:"It was done, and retries get this result: a literal, or @FILE, or @- for standard input."`
	WithoutResult bool      `xor:"evidence" help:"It was done, and its result is not known. Retries learn that it was done; nothing runs."`
	Final         finalFlag `xor:"evidence" placeholder:"CODE MESSAGE" help:"It ended in this business outcome, as with idempotent.Final."`
	Step          string    `xor:"evidence" placeholder:"NAME=JSON" help:"This step was done, with this result (or NAME=@FILE, NAME=@-). The next attempt does not repeat it."`
	CorrectStep   string    `xor:"evidence" placeholder:"NAME=JSON" help:"Like --step, but replaces a stored result that is wrong."`
	NotExecuted   bool      `xor:"evidence" help:"Proven: the attempt did nothing and can no longer do anything. The next request runs."`
	Token         string    `placeholder:"TOKEN" help:"With --not-executed: the token of the attempt, as once show printed it before you asked the provider. Required with --yes."`

	Status        int      `help:"With --completed, for a handler behind lambdahttp: the status of its response. RESULT is the body."`
	Header        []string `sep:"none" placeholder:"NAME: VALUE" help:"With --status: a header of the response. Repeatable. Default: a JSON body gets its Content-Type."`
	ResultVersion string   `help:"With --completed: the current Options.ResultVersion of the handler, if it was raised since the record's attempt. Default: the record's."`

	Reason string `required:"" placeholder:"TEXT" help:"How you know. It is written to the audit."`
	Yes    bool   `help:"Write without asking."`
	auditFlags
}

// finalFlag has two arguments: --final CODE MESSAGE.
type finalFlag struct {
	set bool
	final
}

// Decode reads the two arguments.
func (f *finalFlag) Decode(ctx *kong.DecodeContext) error {
	f.set = true
	if err := ctx.Scan.PopValueInto("CODE", &f.Code); err != nil {
		return err
	}
	return ctx.Scan.PopValueInto("MESSAGE", &f.Message)
}

// Help returns the additional text of once resolve --help.
func (*resolveCmd) Help() string {
	return `First run once show: it prints the keys for the provider and the token of the attempt. Evidence cannot be changed later; only a step's result can be corrected.

The record defines in which form its operation stores results, and for how long; another form is refused. While the lease is live, a request may be executing: only --step is accepted, so repeat the others later.

Use --not-executed only for an attempt that is dead, not merely late. If its effect did happen, it will happen twice. The write compares the token: if another attempt has begun, nothing is written.

Every write, and every refusal by the record, adds a line to the audit.`
}

// Run settles one record.
func (c *resolveCmd) Run(ctx context.Context, e *env) error {
	ev, err := c.evidence(e)
	if err != nil {
		return err
	}
	if strings.TrimSpace(c.Reason) == "" {
		return usage("--reason is empty; write how you know")
	}
	if !c.Yes && !e.stdinTTY {
		return usage("confirmation needs a terminal as standard input; use --yes to write without asking")
	}
	o, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer o.close()
	r, err := c.find(ctx, e, o)
	if err != nil {
		return err
	}
	if err := ev.fit(r); err != nil {
		return err
	}
	a, err := e.audit(ctx, c.auditFlags, o)
	if err != nil {
		return err
	}
	defer a.close()
	if !c.Yes {
		if err := c.ask(ctx, e, o, r, ev); err != nil {
			return err
		}
	}
	return c.settle(ctx, e, o, r, ev, a)
}

// evidence returns the evidence of the command line.
func (c *resolveCmd) evidence(e *env) (ev *evidence, err error) {
	switch {
	case c.Completed == nil && (c.Status != 0 || len(c.Header) > 0 || c.ResultVersion != ""):
		return nil, usage("--status, --header and --result-version are for --completed")
	case !c.NotExecuted && c.Token != "":
		return nil, usage("--token is for --not-executed")
	case c.Completed != nil:
		ev, err = c.completed(e)
	case c.WithoutResult:
		ev = &evidence{kind: kindWithoutResult}
	case c.Final.set:
		ev, err = completedFinal(c.Final.final)
	case c.Step != "":
		ev, err = c.stepDone(e, kindStep, c.Step)
	case c.CorrectStep != "":
		ev, err = c.stepDone(e, kindCorrectedStep, c.CorrectStep)
	case c.NotExecuted && c.Yes && c.Token == "":
		return nil, usage("--not-executed with --yes needs --token: the token that once show printed before you asked the provider")
	case c.NotExecuted:
		ev = &evidence{kind: kindNotExecuted, token: c.Token}
	default:
		return nil, usage("missing evidence: use --completed, --without-result, --final, --step, --correct-step or --not-executed")
	}
	if err != nil {
		return nil, usage("%v", err)
	}
	return ev, nil
}

func (c *resolveCmd) completed(e *env) (*evidence, error) {
	data, file, err := c.value(e, *c.Completed)
	switch {
	case err != nil:
		return nil, err
	case c.Status == 0 && len(c.Header) > 0:
		return nil, errors.New("--header needs the --status of the response")
	case c.Status == 0:
		return completedWith(data, file), nil
	}
	header, err := parseHeader(c.Header)
	if err != nil {
		return nil, err
	}
	return completedHTTP(c.Status, header, data)
}

func (c *resolveCmd) stepDone(e *env, kind, text string) (*evidence, error) {
	name, result, found := strings.Cut(text, "=")
	if !found || name == "" {
		return nil, fmt.Errorf("invalid step %q: want NAME=JSON", text)
	}
	data, _, err := c.value(e, result)
	if err != nil {
		return nil, err
	}
	return stepDone(kind, name, data)
}

// value returns a result, or the content of the file that it names.
func (c *resolveCmd) value(e *env, text string) (data []byte, file bool, err error) {
	name, file := strings.CutPrefix(text, "@")
	switch {
	case !file:
		return []byte(text), false, nil
	case name != "-":
		data, err = os.ReadFile(name)
	case !c.Yes:
		err = errors.New("@- reads standard input, which the confirmation needs; use --yes to write without asking")
	default:
		data, err = io.ReadAll(e.stdin)
	}
	return data, true, err
}

func parseHeader(lines []string) (http.Header, error) {
	h := http.Header{}
	for _, line := range lines {
		name, value, found := strings.Cut(line, ":")
		if name = textproto.TrimString(name); !found || name == "" {
			return nil, fmt.Errorf("invalid header %q: want NAME: VALUE", line)
		}
		h.Add(name, textproto.TrimString(value))
	}
	return h, nil
}

// ask prints what will be written and asks the operator to confirm it: with a
// word, or with the record's hash if an effect may happen again.
func (c *resolveCmd) ask(ctx context.Context, e *env, o *opened, r *driver.Record, ev *evidence) error {
	facts := [][2]string{
		{"record", short(r.ID)},
		{"in", oneLine(o.name)},
		{"is", fmt.Sprintf("%s (%s), created %s", r.State, oneLine(string(r.Reason)), when(r.Created, e.now()))},
		{"attempt", fmt.Sprintf("%d, token %s", r.Attempt, r.Token())},
	}
	if s, recorded := r.Step(ev.step); recorded {
		v := stepViewOf(r.ID, s)
		facts = append(facts, [2]string{"step", v.describe()})
	}
	if err := writeFacts(e.stderr, append(facts, [2]string{"becomes", ev.text})); err != nil {
		return err
	}
	word, warning := "yes", "Every retry gets this. It cannot be undone."
	switch {
	case ev.aboutStep():
		warning = "The next attempt gets this result and does not repeat the step."
	case ev.kind == kindNotExecuted:
		word = r.ID.KeyHash()
		warning = "The next request with this key runs. If the effect did happen, it happens twice."
	}
	fmt.Fprintln(e.stderr, warning)
	return e.confirm(ctx, word)
}

// settle writes the evidence if the record has not changed since it was shown.
func (c *resolveCmd) settle(ctx context.Context, e *env, o *opened, shown *driver.Record, ev *evidence, a *auditor) error {
	line := ev.auditLine("resolve", shown)
	line.Reason, line.Outcome = c.Reason, "unchanged"
	written, err := c.write(ctx, e, o, shown, ev)
	switch {
	case written:
		line.To, line.Outcome = o.stateAfter(ctx, shown, ev).String(), "written"
	case exitCode(err) == exitFailure:
		line.Outcome = "failed"
	case err != nil:
		line.Outcome = "refused"
	}
	if err != nil {
		line.Error = err.Error()
	}
	if err := errors.Join(err, a.write(line)); err != nil {
		return err
	}
	return e.printResolved(line)
}

// stateAfter returns the state of a record after evidence was written. If the
// store cannot be read, it returns the state that the evidence implies.
func (o *opened) stateAfter(ctx context.Context, before *driver.Record, ev *evidence) driver.State {
	if ev.aboutStep() {
		if r, err := o.Get(ctx, before.ID); err == nil {
			return ev.state(r)
		}
	}
	return ev.state(before)
}

// write lets the guard check and write the evidence. It reports whether the record
// changed: it may already hold the same outcome.
func (c *resolveCmd) write(ctx context.Context, e *env, o *opened, shown *driver.Record, ev *evidence) (written bool, err error) {
	g, err := e.guard(o, func(opts *idempotent.Options) {
		opts.ResultVersion = c.ResultVersion
		opts.Observer = event.ObserverFunc(func(_ context.Context, e event.Event) {
			written = written || e.Kind == event.Resolved
		})
	})
	if err != nil {
		return false, err
	}
	current, err := o.Get(ctx, shown.ID)
	if err != nil {
		return false, err
	}
	if current.Version != shown.Version {
		return false, refuse("%s: the record has changed since it was shown: it is %s (%s) now, attempt %d; run once show again", short(shown.ID), current.State, oneLine(string(current.Reason)), current.Attempt)
	}
	err = g.Resolve(ctx, shown.ID, ev.resolution)
	if stale, ok := errors.AsType[*idempotent.StaleEvidenceError](err); ok {
		err = refuse("%s: the token is not that of its current attempt (attempt %d); run once show again, then ask the provider again", short(shown.ID), stale.Attempt)
	}
	return written, err
}

// printResolved prints the outcome of the command.
func (e *env) printResolved(line auditLine) error {
	if e.json {
		doc := map[string]any{"record": line.Record, "from": line.From, "to": line.To, "outcome": line.Outcome}
		if line.Step != "" {
			doc["step"] = line.Step
		}
		return e.document(doc)
	}
	text := fmt.Sprintf("was %s and is %s", line.From, line.To)
	if line.Step != "" {
		text = fmt.Sprintf("has a result for %s; it %s", oneLine(line.Step), text)
	}
	if line.Outcome == "unchanged" {
		text = "already holds this outcome; nothing was written"
	}
	_, err := fmt.Fprintf(e.stdout, "%s %s\n", short(line.Record), text)
	return err
}
