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
	Completed     *string   `xor:"evidence" placeholder:"RESULT" help:"It was done, and this is what retries get: as it stands here, or @FILE, or @- for standard input."`
	WithoutResult bool      `xor:"evidence" help:"It was done, and its result is not known. Retries learn that it was done; nothing runs."`
	Final         finalFlag `xor:"evidence" placeholder:"CODE MESSAGE" help:"It ended in this business outcome, as idempotent.Final has it."`
	Step          string    `xor:"evidence" placeholder:"NAME=JSON" help:"This one step was done, with this result (or NAME=@FILE, NAME=@-). The next run does not repeat it."`
	CorrectStep   string    `xor:"evidence" placeholder:"NAME=JSON" help:"As --step, in place of a result that is recorded and wrong."`
	NotExecuted   bool      `xor:"evidence" help:"Proven: the attempt did nothing and can do nothing any more. The next request runs."`
	Token         string    `placeholder:"TOKEN" help:"With --not-executed: the attempt that it is about, as once show had it before you asked the provider. Needed with --yes."`

	Status        int      `help:"With --completed, for a handler behind lambdahttp: the status of its response. RESULT is the body."`
	Header        []string `sep:"none" placeholder:"NAME: VALUE" help:"With --status: a header of the response. Repeatable. Default: a JSON body gets its Content-Type."`
	ResultVersion string   `help:"With --completed: the Options.ResultVersion of the code that answers retries now, if it was raised since the record's run. Default: the record's."`

	Reason string `required:"" placeholder:"TEXT" help:"Why you know. It goes into the audit."`
	Yes    bool   `help:"Write without asking."`
	auditFlags
}

// finalFlag takes two words: --final CODE MESSAGE.
type finalFlag struct {
	set bool
	final
}

// Decode reads the two words.
func (f *finalFlag) Decode(ctx *kong.DecodeContext) error {
	f.set = true
	if err := ctx.Scan.PopValueInto("CODE", &f.Code); err != nil {
		return err
	}
	return ctx.Scan.PopValueInto("MESSAGE", &f.Message)
}

// Help is what once resolve --help says besides the flags.
func (*resolveCmd) Help() string {
	return `Look first: once show has the keys to ask the provider by, and the token of the attempt. The first evidence stands; only a step's result can be corrected.

The record says in which form its operation stores results, and how long: another form is refused. While the lease is live a request may be at work, and only --step is taken: the others are refused, so repeat them later.

Say --not-executed only of an attempt that is dead, not merely late. If the effect did happen after all, it happens twice. The token is compared in the write: if another attempt began meanwhile, nothing is written.

What is written, and what the record refuses, leaves a line in the audit.`
}

// Run settles one record.
func (c *resolveCmd) Run(ctx context.Context, e *env) error {
	ev, err := c.evidence(e)
	if err != nil {
		return err
	}
	if strings.TrimSpace(c.Reason) == "" {
		return usage("--reason is empty; say how you know")
	}
	if !c.Yes && !e.stdinTTY {
		return usage("it asks before it writes, and standard input is no terminal; say --yes")
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

// evidence reads what the command line says happened.
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
		return nil, usage("--not-executed with --yes needs --token: the token that once show had before you asked the provider")
	case c.NotExecuted:
		ev = &evidence{kind: kindNotExecuted, token: c.Token}
	default:
		return nil, usage("say what is known: --completed, --without-result, --final, --step, --correct-step or --not-executed")
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
		return nil, fmt.Errorf("the step %q is not NAME=JSON", text)
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
		err = errors.New("@- takes standard input, where the answer to the question would come from; say --yes")
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
			return nil, fmt.Errorf("the header %q is not NAME: VALUE", line)
		}
		h.Add(name, textproto.TrimString(value))
	}
	return h, nil
}

// ask shows what is going to be written and lets the operator confirm it: by a
// word, and where an effect may happen again by the name of the record.
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
	word, warning := "yes", "Every retry gets this. It cannot be taken back."
	switch {
	case ev.aboutStep():
		warning = "The next run gets this result and does not repeat the step."
	case ev.kind == kindNotExecuted:
		word = r.ID.KeyHash()
		warning = "The next request with this key runs. If the effect did happen, it happens twice."
	}
	fmt.Fprintln(e.stderr, warning)
	return e.confirm(ctx, word)
}

// settle writes the evidence, if the record is still what was shown.
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

// stateAfter returns the state of a record that evidence was written into: as it
// was if the store cannot be read.
func (o *opened) stateAfter(ctx context.Context, before *driver.Record, ev *evidence) driver.State {
	if ev.aboutStep() {
		if r, err := o.Get(ctx, before.ID); err == nil {
			return ev.state(r)
		}
	}
	return ev.state(before)
}

// write lets the guard judge and write the evidence. It reports whether that
// changed the record: it may hold the same outcome already.
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
		return false, refuse("%s: the record has changed since it was shown: it is %s (%s) now, attempt %d; look again", short(shown.ID), current.State, oneLine(string(current.Reason)), current.Attempt)
	}
	err = g.Resolve(ctx, shown.ID, ev.resolution)
	if stale, ok := errors.AsType[*idempotent.StaleEvidenceError](err); ok {
		err = refuse("%s: the token is not that of its current attempt (attempt %d); look again with once show, then ask the provider again", short(shown.ID), stale.Attempt)
	}
	return written, err
}

// printResolved says what came of it.
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
		text = "holds this outcome already; nothing was written"
	}
	_, err := fmt.Fprintf(e.stdout, "%s %s\n", short(line.Record), text)
	return err
}
