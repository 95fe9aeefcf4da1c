// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Without a program, a run applies ended leases and counts no attempt. A dry run
// writes nothing.
func TestReconcile_Sweep(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	before := d.get(strandedKey.RecordID())
	d.once("reconcile", "--dry-run").ok().golden("reconcile-dry-run")
	if r := d.get(strandedKey.RecordID()); r.Version != before.Version {
		t.Error("a dry run wrote")
	}
	d.once("reconcile").ok().golden("reconcile")
	if r := d.get(strandedKey.RecordID()); r.State != driver.StateUnknown || r.Reason != driver.ReasonLeaseEnded {
		t.Errorf("the record is %s (%s)", r.State, r.Reason)
	}
	for _, k := range []idempotent.Key{strandedKey, chargeKey} {
		if r := d.get(k.RecordID()); r.ReconcileAttempts != 0 || r.Exhausted {
			t.Errorf("%s: %d attempts", k.Operation, r.ReconcileAttempts)
		}
	}
	d.once("reconcile", "--operation", "refund").ok().says("0 due")
}

// exec returns a program that writes its input into a file and answers.
func (d *desk) exec(answer string) (args []string, asked func() []map[string]any) {
	d.t.Helper()
	dir := d.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "answer"), []byte(answer), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return []string{"reconcile", "--exec", fmt.Sprintf("cat > %s/asked.$$ && cat %s/answer", dir, dir), "--timeout", "1m"}, func() (all []map[string]any) {
		files, err := filepath.Glob(filepath.Join(dir, "asked.*"))
		if err != nil {
			d.t.Fatal(err)
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			var doc map[string]any
			if err == nil {
				err = json.Unmarshal(data, &doc)
			}
			if err != nil {
				d.t.Fatal(err)
			}
			all = append(all, doc)
		}
		return all
	}
}

// A program's answer has the same effect as the same words on a command line.
func TestReconcile_Answers(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		codec    string // of the record
		report   string
		encoding string
		data     string
	}{
		`{"completed": {"id": "ch_5"}}`: {"", "1 completed", "json", `{"id":"ch_5"}`},
		`{"completed": null}`:           {"", "1 completed", "json", `null`},
		`{"completed_base64": "/w=="}`:  {"text", "1 completed", "text", "\xff"},
		`{"without_result": true}`:      {"text", "1 completed", "omitted", ""},
		`{"response": {"status": 201, "header": {"Location": ["/charges/ch_5"]}, "body": "{}"}}`: {"http1", "1 completed", "http1", `{"s":201,"h":{"Content-Type":["application/json"],"Location":["/charges/ch_5"]}}` + "\n{}"},
		`{"response": {"status": 200, "body_base64": "/w=="}}`:                                   {"http1", "1 completed", "http1", "{\"s\":200,\"b\":true}\n\xff"},
		`{"final": {"code": "card_declined", "message": "no"}}`:                                  {"http1", "1 completed", "final", `{"code":"card_declined","message":"no"}`},
		`{"not_executed": "` + tokenOf(unknownCharge()) + `"}`:                                   {"http1", "1 not executed", "", ""},
		`{"step": {"name": "pay", "result": {"id": 1}}}`:                                         {"http1", "1 with a step recorded", "", ""},
		`{"corrected_step": {"name": "pay", "result": {"id": 1}}}`:                               {"http1", "1 with a step recorded", "", ""},
		`{"later": "5m"}`: {"http1", "1 postponed", "", ""},
	} {
		d := newDesk(t, unknownWith(want.codec))
		audit := filepath.Join(t.TempDir(), "audit.jsonl")
		args, _ := d.exec(answer)
		dry := d.once(append(args, "--dry-run")...).ok().says("1 due, "+want.report, "nothing was written")
		if dry.err != "" {
			t.Errorf("a dry run wrote to the audit: %s", dry.err)
		}
		if r := d.get(chargeKey.RecordID()); r.Version != unknownCharge().Version {
			t.Fatalf("%s: a dry run wrote", answer)
		}
		got := d.once(append(args, "--audit", audit)...).ok().says("1 due, " + want.report)
		encoding, data, r := d.kept(chargeKey.RecordID())
		if encoding != want.encoding || data != want.data {
			t.Errorf("%s: stored %q as %q\n%s", answer, data, encoding, got.out)
		}
		lines, err := os.ReadFile(audit)
		if err != nil {
			t.Fatal(err)
		}
		if settled := want.report != "1 postponed"; strings.Count(string(lines), "\n") != map[bool]int{true: 1}[settled] ||
			settled && !strings.Contains(string(lines), `"from":"unknown","to":"`+r.State.String()+`"`) {
			t.Errorf("%s: the audit is %q", answer, lines)
		}
		if s, _ := r.Step("pay"); s.Finished != strings.Contains(answer, "step") || s.Finished && string(s.Result) != `{"id":1}` {
			t.Errorf("%s: the step is %+v", answer, s)
		}
		if want.report == "1 postponed" && (r.ReconcileAttempts != 1 || !r.Due.Equal(night.Add(5*time.Minute))) {
			t.Errorf("it is due %s after %d attempts", r.Due, r.ReconcileAttempts)
		}
	}
}

// The program gets what a resolver in Go would get: the keys, and the recorded
// steps.
func TestReconcile_Asks(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	d.world.now = func() time.Time { return night.Add(time.Hour) } // the transfer is due then
	args, asked := d.exec(`{"later": "1m"}`)
	d.once(append(args, "--operation", "transfer")...).ok()
	questions := asked()
	if len(questions) != 1 {
		t.Fatalf("asked %d times", len(questions))
	}
	id := transferKey.RecordID()
	q := questions[0]
	steps, _ := q["steps"].([]any)
	if q["record"] != string(id) || q["downstream_key"] != id.DownstreamKey() || q["ref"] != "transfers/17" || len(steps) != 3 {
		t.Fatalf("asked %v", q)
	}
	// For a step that is not recorded, the declaration gives the key.
	if notify := steps[2].(map[string]any); notify["state"] != "not_recorded" || notify["downstream_key"] != id.StepKey("notify") {
		t.Errorf("asked about the step %v", notify)
	}
	if q["token"] != d.get(id).Token() {
		t.Errorf("asked with the token %v", q["token"])
	}
	reserve := steps[1].(map[string]any)
	if reserve["downstream_key"] != id.StepKey("reserve") || fmt.Sprint(reserve["result"]) != "map[hold:h_1]" {
		t.Errorf("asked about the step %v", reserve)
	}
}

// If a program fails, writes an invalid answer or hangs, the record stays
// unresolved and an error is printed. All processes that the program started end.
func TestReconcile_ProgramFails(t *testing.T) {
	t.Parallel()
	for command, says := range map[string]string{
		"echo broken >&2; exit 3": "the program failed: exit status 3",
		"true":                    "invalid answer",
		"echo ok":                 "invalid answer",
		`echo '{"done": true}'`:   `unknown field "done"`,
		`echo '{}'`:               "needs exactly one of",
		`echo '{"not_executed": "aa", "later": "1m"}'`:                             "needs exactly one of",
		`echo '{"without_result": true}{"without_result": true}'`:                  "more than one answer",
		`echo '{"not_executed": true}'`:                                            "invalid answer",
		`echo '{"not_executed": "aa"}'`:                                            "has another token than the record",
		`echo '{"completed": {}}'`:                                                 `stores results with the codec "http1"`,
		`echo '{"step": {"name": "pay"}}'`:                                         `its "name" and its "result"`,
		`echo '{"later": "soon"}'`:                                                 "invalid duration",
		`echo '{"later": "-1m"}'`:                                                  "must be positive",
		`echo '{"response": {"status": 99}}'`:                                      "200 to 599",
		`echo '{"response": {"status": 200, "body": "a", "body_base64": "YQ=="}}'`: "both",
		`echo '{"final": {"message": "no code"}}'`:                                 "needs a code",
		`head -c 20000000 /dev/zero`:                                               "wrote more than 16.8 MB",
		"sleep 600 & sleep 600":                                                    "took too long",
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, unknownCharge())
			timeout := "1m"
			if strings.HasPrefix(command, "sleep") {
				timeout = "100ms"
			}
			for _, more := range [][]string{{"--dry-run"}, nil} {
				d.once(append([]string{"reconcile", "--exec", command, "--timeout", timeout}, more...)...).exits(exitFailure).says("POST /charges#4RexMqXSY3Lf  no answer: ", says, "1 record of 1 failed")
			}
			if r := d.get(chargeKey.RecordID()); r.State != driver.StateUnknown || r.ReconcileAttempts != 1 {
				t.Errorf("the record is %s after %d attempts", r.State, r.ReconcileAttempts)
			}
		})
	}
}

// A program's children end with it.
func TestReconcile_StopsChildren(t *testing.T) {
	t.Parallel()
	d := newDesk(t, unknownCharge())
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	// The child holds the pipe open while it runs, so its end is the end of the file.
	ended := make(chan error, 1)
	go func() { _, err := os.ReadFile(pipe); ended <- err }()
	d.once("reconcile", "--exec", "sleep 600 >"+pipe+" & wait", "--timeout", "500ms").exits(exitFailure).says("took too long")
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the program's child is still running")
	}
}

// A result that the record's operation could replay is stored for as long as that
// operation declared.
func TestReconcile_KeepsWhatTheRecordDeclares(t *testing.T) {
	t.Parallel()
	r := unknownWith("")
	r.Retention, r.ResultVersion = 30*24*time.Hour, "2"
	d := newDesk(t, r)
	args, _ := d.exec(`{"completed": {}}`)
	d.once(args...).ok()
	if _, _, got := d.kept(r.ID); !got.Expires.Equal(night.Add(r.Retention)) || got.ResultVersion != "2" {
		t.Errorf("it expires %s, with version %q", got.Expires, got.ResultVersion)
	}
}

// A record without an answer is given up, and the output says so.
func TestReconcile_GivesUp(t *testing.T) {
	t.Parallel()
	d := newDesk(t, unknownCharge())
	d.once("reconcile", "--exec", `echo '{"later": "1s"}'`, "--give-up-after", "1m").ok().golden("reconcile-given-up")
	d.once("list", "--exhausted").ok().says("POST /charges#4RexMqXSY3Lf", "given up")
}

func TestReconcile_JSON(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	d.once("reconcile", "--json").ok().golden("reconcile-json")
	for _, wrong := range []string{"--give-up-after=-1s", "--concurrency=-1", "--timeout=-1s"} {
		d.once("reconcile", wrong).exits(exitUsage)
	}
}

// If a webhook settles the record before the program, its evidence stays, and only
// writes are audited.
func TestReconcile_Stale(t *testing.T) {
	t.Parallel()
	d := newDesk(t, unknownCharge())
	e := &env{world: &d.world, store: storeFlags{File: d.file}}
	e.stdout, e.stderr = writerFunc(func(string) {}), writerFunc(func(s string) { t.Errorf("audited: %s", s) })
	o, err := e.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	j := &journal{env: e, store: o, audit: &auditor{env: e, to: e.stderr}}
	g, err := e.guard(o, func(opts *idempotent.Options) { opts.Observer = j })
	if err != nil {
		t.Fatal(err)
	}
	p := &program{command: `echo '{"without_result": true}'`, env: e, guard: g, journal: j}
	webhook, err := idempotent.New(o.records.(*boltstore.Store))
	if err != nil {
		t.Fatal(err)
	}
	report, err := idempotent.ReconcileDue(t.Context(), g, func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
		if err := webhook.Resolve(ctx, r.ID, idempotent.ResolvedFinal("by", "the webhook")); err != nil {
			t.Error(err)
		}
		return p.resolve(ctx, r)
	})
	if err != nil || report.String() != "1 due, 1 stale" {
		t.Errorf("%s, %v", report, err)
	}
}

// The program is asked about a record with sealed results, and does not get them.
// It cannot give a result either.
func TestReconcile_Sealed(t *testing.T) {
	t.Parallel()
	_, open, _ := sealedRecords()
	d := newDesk(t, open)
	args, asked := d.exec(`{"completed": {}}`)
	d.once(args...).exits(exitFailure).says("its operation seals its results")
	if r := d.get(open.ID); r.State != driver.StateUnknown || r.ReconcileAttempts != 1 {
		t.Errorf("the record is %s after %d attempts", r.State, r.ReconcileAttempts)
	}
	for _, q := range asked() {
		reserve := q["steps"].([]any)[1].(map[string]any)
		if _, shown := reserve["result"]; shown || reserve["sealed"] != true || reserve["state"] != "finished" {
			t.Errorf("asked about the step %v", reserve)
		}
	}
	args, _ = d.exec(`{"without_result": true}`)
	d.world.now = func() time.Time { return night.Add(time.Hour) }
	d.once(args...).ok()
	if r := d.get(open.ID); r.State != driver.StateCompleted {
		t.Errorf("the record is %s", r.State)
	}
}
