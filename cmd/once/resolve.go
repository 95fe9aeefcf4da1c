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
	"time"

	"github.com/alecthomas/kong"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

type resolveCmd struct {
	target
	Completed   *string   `xor:"evidence" placeholder:"RESULT" help:"It was done, and this is what retries get: JSON, or @FILE, or @- for standard input."`
	Final       finalFlag `xor:"evidence" placeholder:"CODE MESSAGE" help:"It ended in this business outcome, as idempotent.Final has it."`
	NotExecuted bool      `xor:"evidence" help:"Proven: nothing happened, and nothing can happen any more. The next request runs."`

	HTTP          bool     `name:"http" help:"The handler is behind lambdahttp: --completed is the body of its response."`
	Status        int      `help:"With --http: the status of the response."`
	Header        []string `sep:"none" placeholder:"NAME: VALUE" help:"With --http: a header of the response. Repeatable. Default: a JSON body gets its Content-Type."`
	Encoding      string   `help:"How the operation stores results, if by a codec of its own: --completed is stored as it is. Default: json."`
	ResultVersion string   `help:"Options.ResultVersion of the operation."`
	Force         bool     `help:"Store the result although the operation's other records hold theirs in another form."`
	resultFlags

	Reason string `required:"" placeholder:"TEXT" help:"Why you know. It goes into the audit."`
	Yes    bool   `help:"Write without asking."`
	auditFlags
}

// resultFlags say how outcomes are kept.
type resultFlags struct {
	Retention time.Duration `help:"How long the outcome is kept. Default: as the operation's other records, or 24h."`
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
	return `Look first: once show has the keys to ask the provider by. Evidence is not taken back, and the first one stands.

--completed and --final may come while a request is still running. --not-executed is refused until the lease has ended; say it only of a worker that is dead, not merely late. If the effect did happen after all, it happens twice.

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
	others := o.peersOf(ctx, r.ID.Operation())
	if !c.Force {
		if err := others.contradict(ev, c.ResultVersion); err != nil {
			return err
		}
	}
	if c.Retention == 0 {
		c.Retention = others.retention
	}
	a, err := e.audit(ctx, c.auditFlags, o)
	if err != nil {
		return err
	}
	defer a.close()
	if !c.Yes {
		if err := c.ask(ctx, e, o, r, ev, others); err != nil {
			return err
		}
	}
	return c.settle(ctx, e, o, r, ev, a)
}

// evidence reads what the command line says happened.
func (c *resolveCmd) evidence(e *env) (ev *evidence, err error) {
	http := c.HTTP || c.Status != 0 || len(c.Header) > 0
	switch {
	case c.Completed == nil && !c.Final.set && !c.NotExecuted:
		return nil, usage("say what is known: --completed, --final or --not-executed")
	case c.Completed == nil && (http || c.Encoding != ""):
		return nil, usage("--http, --status, --header and --encoding are for --completed")
	case c.NotExecuted:
		return notExecuted(), nil
	case c.Final.set:
		ev, err = completedFinal(c.Final.final)
	case http && c.Encoding != "":
		return nil, usage("--http and --encoding exclude each other")
	default:
		ev, err = c.completed(e, http)
	}
	if err != nil {
		return nil, usage("%v", err)
	}
	return ev, nil
}

func (c *resolveCmd) completed(e *env, http bool) (*evidence, error) {
	data, err := c.value(e)
	if err != nil {
		return nil, err
	}
	if !http {
		if c.Encoding == "" {
			return completed(jsonEncoding, data)
		}
		return completed(c.Encoding, data)
	}
	if c.Status == 0 {
		return nil, errors.New("--http wants the --status of the response")
	}
	header, err := parseHeader(c.Header)
	if err != nil {
		return nil, err
	}
	return completedHTTP(c.Status, header, data)
}

// value returns what --completed says, or the file that it names.
func (c *resolveCmd) value(e *env) ([]byte, error) {
	name, isFile := strings.CutPrefix(*c.Completed, "@")
	switch {
	case !isFile:
		return []byte(*c.Completed), nil
	case name != "-":
		return os.ReadFile(name)
	case !c.Yes:
		return nil, errors.New("--completed @- takes standard input, where the answer to its question would come from; say --yes")
	}
	return io.ReadAll(e.stdin)
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
func (c *resolveCmd) ask(ctx context.Context, e *env, o *opened, r *driver.Record, ev *evidence, others *peers) error {
	facts := [][2]string{
		{"record", short(r.ID)},
		{"in", oneLine(o.name)},
		{"is", fmt.Sprintf("%s (%s), created %s", r.State, oneLine(string(r.Reason)), when(r.Created, e.now()))},
		{"becomes", ev.text},
	}
	if ev.encoding != "" {
		facts = append(facts, [2]string{"form", others.describe(ev)})
	}
	if err := writeFacts(e.stderr, facts); err != nil {
		return err
	}
	word := "yes"
	if ev.kind == "not_executed" {
		word = r.ID.KeyHash()
		fmt.Fprintln(e.stderr, "The next request with this key runs. If the effect did happen, it happens twice.")
	} else {
		fmt.Fprintln(e.stderr, "Every retry gets this. It cannot be taken back.")
	}
	return e.confirm(ctx, word)
}

// settle writes the evidence, if the record is still what was shown.
func (c *resolveCmd) settle(ctx context.Context, e *env, o *opened, shown *driver.Record, ev *evidence, a *auditor) error {
	line := auditLine{
		Action: "resolve", Record: shown.ID, From: shown.State.String(), To: shown.State.String(), Reason: c.Reason,
		Evidence: ev.kind, Code: ev.code, Encoding: ev.encoding, Bytes: len(ev.data), SHA256: ev.sum(), Outcome: "unchanged",
	}
	written, err := c.write(ctx, e, o, shown, ev)
	switch {
	case written:
		line.To, line.Outcome = ev.state().String(), "written"
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

// write lets the guard judge and write the evidence. It reports whether that
// changed the record: it may hold the same outcome already.
func (c *resolveCmd) write(ctx context.Context, e *env, o *opened, shown *driver.Record, ev *evidence) (written bool, err error) {
	g, err := e.guard(o, func(opts *idempotent.Options) {
		opts.Retention, opts.ResultVersion = c.Retention, c.ResultVersion
		opts.Observer = idempotent.ObserverFunc(func(_ context.Context, event idempotent.Event) {
			written = written || event.Kind == idempotent.EventResolved
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
		return false, refuse("the record has changed since it was shown: it is %s (%s) now; look again", current.State, oneLine(string(current.Reason)))
	}
	err = g.Resolve(ctx, shown.ID, ev.resolution)
	return written, err
}

// printResolved says what came of it.
func (e *env) printResolved(line auditLine) error {
	if e.json {
		return e.document(map[string]any{"record": line.Record, "from": line.From, "to": line.To, "outcome": line.Outcome})
	}
	text := fmt.Sprintf("was %s and is %s", line.From, line.To)
	if line.Outcome == "unchanged" {
		text = "holds this outcome already; nothing was written"
	}
	_, err := fmt.Fprintf(e.stdout, "%s %s\n", short(line.Record), text)
	return err
}
