// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	randv2 "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit/engine"
)

// operator settles records while the storm rages, with the command line and the
// console of once. It answers from the same evidence as the reconciler.
type operator struct {
	storm  *storm
	binary string
	env    []string
	ask    fixture
}

const (
	// envEvidence is the address of the harness, for the program of once reconcile
	// --exec, which is this test binary.
	envEvidence = "ONCE_CHAOS_EVIDENCE"
	// operateEvery is the mean time between two commands.
	operateEvery = time.Second
	// settledAtOnce limits the records that one command settles.
	settledAtOnce = 5
)

func newOperator(t *testing.T, s *storm) (*operator, error) {
	binary := filepath.Join(t.TempDir(), "once")
	return &operator{
		storm: s, binary: binary, ask: fixture{provider: s.settings.Provider},
		env: []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "USER=operator", "AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
			"AWS_EC2_METADATA_DISABLED=true", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_REGION=us-east-1",
			"ONCE_TABLE=" + s.settings.Table, envEvidence + "=" + s.settings.Provider,
		},
	}, engine.Build(binary, "./cmd/once")
}

// work gives one command after the other until ctx ends.
func (o *operator) work(ctx context.Context, r *randv2.Rand) {
	verbs := []func(context.Context, *randv2.Rand){o.resolve, o.requeue, o.resolve, o.reconcile, o.resolve, o.forget, o.correct, o.console, o.count}
	for n := 0; soon(ctx, r, operateEvery); n++ {
		verbs[n%len(verbs)](ctx, r)
	}
}

// once runs one command line. A command line that once refuses as malformed is a
// mistake of this file.
func (o *operator) once(ctx context.Context, stdin []byte, args ...string) (stdout []byte, code int) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.binary, append(args, "--endpoint", o.storm.settings.Endpoint)...)
	var stderr bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stderr, cmd.WaitDelay = o.env, bytes.NewReader(stdin), &stderr, time.Second
	stdout, err := cmd.Output()
	code = cmd.ProcessState.ExitCode()
	if code == 2 || code < 0 && ctx.Err() == nil {
		o.storm.t.Errorf("once %s: %v, %s", strings.Join(args, " "), err, &stderr)
	}
	o.storm.seen.Add(factCommands, 1)
	return stdout, code
}

// pending is what the operator reads of a record: a part of its JSON form.
type pending struct {
	Record                          idempotent.RecordID
	Version, Token, Recovery, State string
	RequestID                       string `json:"request_id"`
}

// answers returns the evidence about records, each as a program of once reconcile --exec
// answers, for as many as one command settles.
func (o *operator) answers(ctx context.Context, records []pending) (settled []pending, answers []map[string]any) {
	for _, p := range records {
		answer, err := o.answer(ctx, p)
		if err == nil && answer["later"] == nil && len(settled) < settledAtOnce {
			settled, answers = append(settled, p), append(answers, answer)
		}
	}
	return settled, answers
}

func (o *operator) answer(ctx context.Context, p pending) (map[string]any, error) {
	recovery, state := idempotent.Resume, driver.StateRetryable
	if p.Recovery == idempotent.Reconcile.String() {
		recovery = idempotent.Reconcile
	}
	switch p.State {
	case driver.StateUnknown.String():
		state = driver.StateUnknown
	case driver.StateInProgress.String():
		state = driver.StateInProgress
	}
	said, err := o.ask.evidence(ctx, p.Record, recovery, state, p.RequestID)
	if err != nil {
		return nil, err
	}
	switch operation := p.Record.Operation(); {
	case said == saidLater:
		return map[string]any{"later": "1s"}, nil
	case said == saidNotExecuted:
		return map[string]any{"not_executed": p.Token}, nil
	case operation == operations[atMostOnce]:
		return map[string]any{"step": map[string]any{"name": steps[0], "result": resultOf(p.Record, said)}}, nil
	case operation == operations[inBatches]:
		return map[string]any{"without_result": true}, nil
	case operation == operations[overHTTP]:
		r := responseOf(resultOf(p.Record, said))
		return map[string]any{"response": map[string]any{"status": r.Status, "header": r.Header, "body": string(r.Body)}}, nil
	default:
		return map[string]any{"completed": resultOf(p.Record, said)}, nil
	}
}

// answerProgram is the main function of the program of once reconcile --exec.
func answerProgram() error {
	var p pending
	if err := json.NewDecoder(os.Stdin).Decode(&p); err != nil {
		return err
	}
	o := operator{ask: fixture{provider: os.Getenv(envEvidence)}}
	answer, err := o.answer(context.Background(), p)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

// resolve settles unknown records with a file of evidence.
func (o *operator) resolve(ctx context.Context, _ *randv2.Rand) {
	out, _ := o.once(ctx, nil, "list", "--state", "unknown", "--json")
	var records []pending
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var listed, p pending
		if len(records) == settledAtOnce || dec.Decode(&listed) != nil {
			break // the end, or what a killed engine cut
		}
		if shown, _ := o.once(ctx, nil, "show", string(listed.Record), "--json"); json.Unmarshal(shown, &p) == nil { // the index has no request id
			records = append(records, p)
		}
	}
	settled, answers := o.answers(ctx, records)
	if len(settled) == 0 {
		return
	}
	var file bytes.Buffer
	for i, p := range settled {
		answers[i]["record"] = p.Record
		_ = json.NewEncoder(&file).Encode(answers[i]) // its types encode
	}
	out, _ = o.once(ctx, file.Bytes(), "resolve", "--from", "-", "--reason", "the ledger", "--yes", "--json")
	o.storm.seen.Add(factSettledByHand, bytes.Count(out, []byte(`"outcome":"written"`)))
}

func (o *operator) requeue(ctx context.Context, _ *randv2.Rand) {
	o.once(ctx, nil, "requeue", "--exhausted", "--reason", "the storm", "--yes")
}

func (o *operator) reconcile(ctx context.Context, _ *randv2.Rand) {
	o.once(ctx, nil, "reconcile", "--exec", os.Args[0], "--timeout", "2s", "--give-up-after", "20s")
}

// count reads only.
func (o *operator) count(ctx context.Context, _ *randv2.Rand) { o.once(ctx, nil, "stats", "--json") }

// forget discards the outcome of a key: its next request runs again.
func (o *operator) forget(ctx context.Context, r *randv2.Rand) {
	w := o.storm.book.any(commit, r)
	if w == nil {
		return
	}
	out, code := o.once(ctx, nil, "show", string(w.record), "--json")
	var p pending
	if code != 0 || json.Unmarshal(out, &p) != nil || p.State != driver.StateCompleted.String() {
		return
	}
	o.storm.book.forget(w) // before the write, whose reply can be lost
	if _, code := o.once(ctx, nil, "forget", string(w.record), "--token", p.Token, "--reason", "the storm", "--yes"); code == 0 {
		o.storm.seen.Add(factForgotten, 1)
	}
}

// correct replaces the stored outcome of a key.
func (o *operator) correct(ctx context.Context, r *randv2.Rand) {
	w := o.storm.book.any(resume, r)
	if w == nil {
		return
	}
	out, code := o.once(ctx, nil, "show", string(w.record), "--result", "--json")
	var p struct {
		pending
		Result json.RawMessage
	}
	var right result
	if code != 0 || json.Unmarshal(out, &p) != nil || p.State != driver.StateCompleted.String() || json.Unmarshal(p.Result, &right) != nil {
		return // a large result is not always kept
	}
	right.Corrected = true
	value, err := json.Marshal(right)
	if err != nil {
		o.storm.t.Error(err)
		return
	}
	if _, code := o.once(ctx, value, "resolve", string(w.record), "--completed", "@-", "--instead-of", p.Token, "--reason", "the storm", "--yes"); code == 0 {
		o.storm.book.correct(w)
		o.storm.seen.Add(factCorrected, 1)
	}
}

// console opens the console, settles what it lists, and closes it.
func (o *operator) console(ctx context.Context, _ *randv2.Rand) {
	cmd := exec.Command(o.binary, "console", "--allow-resolve", "--json", "--endpoint", o.storm.settings.Endpoint)
	cmd.Env = o.env
	engine.EndWithParent(cmd)
	p, first, err := engine.StartUntil(cmd, "{")
	if err != nil {
		return // the engine is dead
	}
	defer p.End(os.Interrupt)
	o.storm.seen.Add(factConsoles, 1)
	c, err := engine.OpenConsole(ctx, "{"+first)
	if err != nil {
		if ctx.Err() == nil {
			o.storm.t.Errorf("the session of the console: %v", err)
		}
		return
	}
	var list struct{ Rows []pending }
	if c.Call(ctx, "GET", "/api/list?list=unknown&offset=0", nil, &list) != nil {
		return // the store failed
	}
	settled, answers := o.answers(ctx, list.Rows)
	if len(settled) == 0 {
		return
	}
	var items []map[string]any
	for i, row := range settled {
		items = append(items, map[string]any{"record": row.Record, "version": row.Version, "token": row.Token, "evidence": answers[i]})
	}
	order := map[string]any{"items": items, "reason": "the ledger", "confirm": fmt.Sprint(len(items))}
	if c.Call(ctx, "POST", "/api/settle", order, nil) == nil {
		o.storm.seen.Add(factSettledOnPage, len(items))
	}
}
