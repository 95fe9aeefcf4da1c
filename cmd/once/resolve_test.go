// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// typing connects the desk to a terminal with that input.
func (d *desk) typing(text string) {
	d.world.stdin, d.world.stdinTTY = strings.NewReader(text), true
}

// kept returns the stored response of a record.
func (d *desk) kept(id idempotent.RecordID) (encoding, data string, r *driver.Record) {
	d.t.Helper()
	d.store(func(s *boltstore.Store) {
		g, err := idempotent.New(s)
		if err != nil {
			d.t.Fatal(err)
		}
		if r, err = s.Get(d.t.Context(), id); err != nil {
			d.t.Fatal(err)
		}
		if encoding = r.Encoding; r.State == driver.StateCompleted && encoding != driver.EncodingOmitted {
			var b []byte
			if encoding, b, err = g.StoredOutcome(d.t.Context(), *r); err != nil {
				d.t.Fatal(err)
			}
			data = string(b)
		}
	})
	return encoding, data, r
}

const why = "--reason=the provider's ledger has it"

func charge(more ...string) []string {
	return append([]string{"resolve", string(chargeKey.RecordID()), why}, more...)
}

// unknownWith returns an unknown charge whose operation declared a codec.
func unknownWith(codec string) driver.Record {
	r := unknownCharge()
	r.Codec = codec
	return r
}

// tokenOf returns the token of the attempt of r.
func tokenOf(r driver.Record) string { return r.Token() }

// noEffect returns the evidence that the attempt of r did nothing, as a script
// gives it.
func noEffect(r driver.Record) []string { return []string{"--not-executed", "--token", r.Token()} }

// Each kind of evidence is stored as the handler itself would have stored it.
func TestResolve(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "result.json")
	if err := os.WriteFile(file, []byte("{\n  \"id\": \"ch_5\",\n  \"amount\": 9007199254740993\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		codec    string // of the record
		args     []string
		stdin    string
		state    driver.State
		encoding string
		data     string
	}{
		"file":       {"", []string{"--completed", "@" + file}, "", driver.StateCompleted, "json", `{"id":"ch_5","amount":9007199254740993}`},
		"literal":    {"", []string{"--completed", ` "ch_5" `}, "", driver.StateCompleted, "json", `"ch_5"`},
		"null":       {"", []string{"--completed", `null`}, "", driver.StateCompleted, "json", `null`},
		"input":      {"", []string{"--completed", "@-"}, `[1]`, driver.StateCompleted, "json", `[1]`},
		"own codec":  {"text", []string{"--completed", "@-"}, " as it is\n", driver.StateCompleted, "text", " as it is\n"},
		"large":      {"", []string{"--completed", "@-"}, `"` + strings.Repeat("x", 5000) + `"`, driver.StateCompleted, "json", `"` + strings.Repeat("x", 5000) + `"`},
		"http":       {"http1", []string{"--status", "201", "--header", "location: /charges/ch_5", "--header", "Link: </a>", "--header", "Link: </b>", "--completed", `{"id":"ch_5"}`}, "", driver.StateCompleted, "http1", `{"s":201,"h":{"Content-Type":["application/json"],"Link":["</a>","</b>"],"Location":["/charges/ch_5"]}}` + "\n" + `{"id":"ch_5"}`},
		"empty body": {"http1", []string{"--status", "204", "--completed", ""}, "", driver.StateCompleted, "http1", `{"s":204}` + "\n"},
		"final":      {"http1", []string{"--final", "card_declined", "--message", "The card was --declined."}, "", driver.StateCompleted, "final", `{"code":"card_declined","message":"The card was --declined."}`},
		"no result":  {"text", []string{"--without-result"}, "", driver.StateCompleted, "omitted", ""},
		"nothing":    {"http1", noEffect(unknownCharge()), "", driver.StateRetryable, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, unknownWith(row.codec))
			d.world.stdin = strings.NewReader(row.stdin)
			got := d.once(charge(append(row.args, "--yes")...)...).ok().says("POST /charges#4RexMqXSY3Lf was unknown and is " + row.state.String())
			encoding, data, r := d.kept(chargeKey.RecordID())
			if r.State != row.state || r.Reason != driver.ReasonResolved || encoding != row.encoding || data != row.data {
				t.Errorf("the record is %s (%s) with %q as %q", r.State, r.Reason, data, encoding)
			}
			if want := night.Add(24 * time.Hour); !r.Expires.Equal(want) {
				t.Errorf("it expires %s, want %s", r.Expires, want)
			}
			if strings.Contains(got.err, "ch_5") {
				t.Errorf("the audit contains the result: %s", got.err)
			}
			// The same evidence again is not an error, and writes nothing.
			d.world.stdin = strings.NewReader(row.stdin)
			d.once(charge(append(row.args, "--yes")...)...).ok().says("already holds this outcome", `"outcome":"unchanged"`)
			if again := d.get(r.ID); again.Version != r.Version {
				t.Error("it was written again")
			}
		})
	}
}

// An operator's session: show, answer the question, and repeat after a typing
// error.
func TestResolve_Asks(t *testing.T) {
	t.Parallel()
	d := newDesk(t, unknownCharge())
	for _, slip := range []string{"", "\n", "no\n", "y\n", "YES\n", "4RexMqXSY3Lf\n"} {
		d.typing(slip)
		d.once(charge("--without-result")...).exits(exitRefused).says("not confirmed; nothing was written")
	}
	d.typing("yes\n") // which is not enough here
	d.once(charge("--not-executed")...).exits(exitRefused).golden("resolve-not-executed")
	if r := d.get(chargeKey.RecordID()); r.State != driver.StateUnknown {
		t.Fatalf("the record is %s", r.State)
	}
	d.typing("4RexMqXSY3Lf\n")
	d.once(charge("--not-executed")...).ok()

	d = newDesk(t, unknownCharge())
	d.typing("yes\n")
	d.extra = []string{"--audit", filepath.Join(t.TempDir(), "audit.jsonl")}
	d.once(charge("--status", "201", "--header", "Location: /charges/ch_5", "--completed", `{"id":"ch_5"}`)...).ok().golden("resolve")
	if r := d.get(chargeKey.RecordID()); r.State != driver.StateCompleted {
		t.Errorf("the record is %s", r.State)
	}
}

// After an interruption at the question nothing is written.
func TestResolve_Interrupted(t *testing.T) {
	t.Parallel()
	d := newDesk(t, unknownCharge())
	hang, end := io.Pipe()
	defer end.Close()
	d.world.stdin, d.world.stdinTTY = hang, true
	w := d.world
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.stdout = io.Discard
	w.stderr = writerFunc(func(text string) {
		if strings.Contains(text, "Type yes") {
			cancel()
		}
	})
	code := run(ctx, &w, charge("--without-result", "--file", d.file))
	if code != exitRefused || d.get(chargeKey.RecordID()).State != driver.StateUnknown {
		t.Errorf("exit code %d", code)
	}
}

type writerFunc func(string)

func (f writerFunc) Write(p []byte) (int, error) { f(string(p)); return len(p), nil }

func TestResolve_Usage(t *testing.T) {
	t.Parallel()
	d := newDesk(t, unknownCharge())
	for _, row := range []struct {
		says string
		args []string
	}{
		{"missing evidence", charge("--yes")},
		{"[completed not-executed] were all set", charge("--yes", "--completed", "1", "--not-executed")},
		{"[final not-executed] were all set", charge("--yes", "--final", "a", "--message", "b", "--not-executed")},
		{"[step without-result] were all set", charge("--yes", "--step", "a=1", "--without-result")},
		{`"reason" not set`, append([]string{"resolve", string(chargeKey.RecordID()), "--yes"}, noEffect(unknownCharge())...)},
		{"--reason is empty", append([]string{"resolve", string(chargeKey.RecordID()), "--yes", "--reason", " "}, noEffect(unknownCharge())...)},
		{"no such file", charge("--yes", "--completed", `@/nowhere/at/all`)},
		{"needs the --status", charge("--yes", "--header", "A: b", "--completed", `{}`)},
		{"200 to 599", charge("--yes", "--status", "199", "--completed", `{}`)},
		{"NAME: VALUE", charge("--yes", "--status", "200", "--header", "Location", "--completed", `{}`)},
		{"are for --completed", charge("--yes", "--status", "200", "--not-executed")},
		{"are for --completed", charge("--yes", "--result-version", "2", "--without-result")},
		{"--token is for --not-executed", charge("--yes", "--token", "aa", "--without-result")},
		{"missing [message]", charge("--yes", "--final", "code")},
		{"needs a code", charge("--yes", "--final", "", "--message", "text")},
		{"want NAME=JSON", charge("--yes", "--step", "pay")},
		{"want NAME=JSON", charge("--yes", "--correct-step", "=1")},
		{"not valid JSON", charge("--yes", "--step", "pay={")},
		{"needs a terminal as standard input; use --yes", charge("--not-executed")},
	} {
		d.once(row.args...).exits(exitUsage).says(row.says)
	}
	d.typing("yes\n")
	d.once(charge("--completed", "@-")...).exits(exitUsage).says("use --yes")
	d.once(charge("--step", "pay=@-")...).exits(exitUsage).says("use --yes")
	if r := d.get(chargeKey.RecordID()); r.State != driver.StateUnknown {
		t.Errorf("the record is %s", r.State)
	}
}

// The record refuses another outcome, and "not executed" while a request may be
// executing.
func TestResolve_Refused(t *testing.T) {
	t.Parallel()
	night := aNight(t)
	d := newDesk(t, night...)
	d.extra = []string{"--yes"}
	resolve := func(k idempotent.Key, more ...string) said {
		return d.once(append([]string{"resolve", string(k.RecordID()), why}, more...)...)
	}
	token := func(k idempotent.Key) []string { return noEffect(*d.get(k.RecordID())) }
	resolve(runningKey, token(runningKey)...).exits(exitRefused).says("in progress; retry after 4s; its lease ends at 2026-11-21T03:12:08Z", `"outcome":"refused"`)
	resolve(paidKey, token(paidKey)...).exits(exitRefused).says("completed with another outcome", `"from":"completed","to":"completed"`)
	resolve(paidKey, "--final", "a", "--message", "b").exits(exitRefused)
	resolve(oldKey, token(oldKey)...).exits(exitNotFound).says("expired")
}

// The record defines how its operation stores results. A form that it could not
// replay is refused, with an error that names the right form.
func TestResolve_RefusesAnotherForm(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		codec string
		says  string
		args  []string
	}{
		{"http1", `stores results with the codec "http1": give the HTTP response: --status`, []string{"--completed", "{}"}},
		{"", `stores results with the codec "json": give the result as JSON`, []string{"--status", "200", "--completed", "{}"}},
		{"", `stores results with the codec "json": the result is not valid JSON`, []string{"--completed", `{"a":`}},
		{"", `stores results with the codec "json": the result is not valid JSON`, []string{"--completed", ``}},
		{"text", `stores results with the codec "text": give the bytes`, []string{"--completed", "{}"}},
		{"text", `stores results with the codec "text": give the bytes`, []string{"--status", "200", "--completed", "@-"}},
	} {
		d := newDesk(t, unknownWith(row.codec))
		d.once(charge(append(row.args, "--yes")...)...).exits(exitRefused).says(row.says)
		if r := d.get(chargeKey.RecordID()); r.State != driver.StateUnknown {
			t.Errorf("%s %q: the record is %s", row.codec, row.args, r.State)
		}
	}
}

// Evidence is stored for as long as the operation declared, and with the version
// of its results. Only an operator knows that the code has changed since.
func TestResolve_KeepsWhatTheRecordDeclares(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		more    []string
		version string
	}{{nil, "2"}, {[]string{"--result-version", "3"}, "3"}} {
		r := unknownWith("")
		r.Retention, r.ResultVersion = 30*24*time.Hour, "2"
		d := newDesk(t, r)
		d.once(charge(append(row.more, "--completed", "{}", "--yes")...)...).ok()
		_, _, got := d.kept(r.ID)
		if want := night.Add(r.Retention); !got.Expires.Equal(want) || got.ResultVersion != row.version || got.Retention != r.Retention {
			t.Errorf("it expires %s, want %s; version %q, want %q", got.Expires, want, got.ResultVersion, row.version)
		}
	}
}

// "Not executed" is about one attempt. A script passes the token that it read
// before it asked the provider; if another attempt has begun, nothing is written.
func TestResolve_OneAttempt(t *testing.T) {
	t.Parallel()
	looked := unknownCharge()
	later := looked
	later.Attempt, later.Owner = 2, driver.Owner{9}
	d := newDesk(t, later)
	d.once(charge("--not-executed", "--yes")...).exits(exitUsage).says("needs --token")
	d.once(charge(append(noEffect(looked), "--yes")...)...).exits(exitRefused).
		says("is not that of its current attempt (attempt 2); run once show again", `"outcome":"refused"`, `"token":"`+looked.Token()+`"`)
	d.typing("4RexMqXSY3Lf\n") // also at a terminal
	d.once(charge(noEffect(looked)...)...).exits(exitRefused).says("run once show again")
	if r := d.get(looked.ID); r.State != driver.StateUnknown {
		t.Fatalf("the record is %s", r.State)
	}
	d.world.stdinTTY = false
	d.once(charge(append(noEffect(later), "--yes")...)...).ok().says("is retryable")
}

// Evidence about one step is stored as such: other steps stay open, or the next
// request continues.
func TestResolve_Step(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "result.json")
	if err := os.WriteFile(file, []byte(` {"transfer": "tr_17"} `), 0o600); err != nil {
		t.Fatal(err)
	}
	step := func(d *desk, more ...string) said {
		return d.once(append([]string{"resolve", string(transferKey.RecordID()), why, "--yes"}, more...)...)
	}
	pay := func(d *desk) (*driver.Record, string) {
		r := d.get(transferKey.RecordID())
		s, _ := r.Step("pay")
		return r, string(s.Result)
	}
	d := newDesk(t, aNight(t)...)
	step(d, "--step", `refund={}`).exits(exitRefused).says("not declared", `"outcome":"refused"`, `"step":"refund"`)
	step(d, "--step", `notify={}`).ok().says("has a result for notify; it was unknown and is unknown")
	if r, result := pay(d); r.State != driver.StateUnknown || result != "" {
		t.Errorf("the record is %s, and pay has %q", r.State, result)
	}
	step(d, "--step", "pay=@"+file).ok().
		says("has a result for pay; it was unknown and is retryable", `"evidence":"step","step":"pay"`, `"to":"retryable"`)
	if r, result := pay(d); r.State != driver.StateRetryable || result != `{"transfer":"tr_17"}` {
		t.Errorf("the record is %s, and pay has %q", r.State, result)
	}
	step(d, "--step", "pay=@"+file).ok().says(`"outcome":"unchanged"`)
	step(d, "--step", `pay="tr_18"`).exits(exitRefused).says("already has another recorded result", `"outcome":"refused"`)
	step(d, "--correct-step", `pay="tr_18"`).ok().says(`"evidence":"corrected_step"`)
	if _, result := pay(d); result != `"tr_18"` {
		t.Errorf("pay has %q", result)
	}
	d.once("show", string(transferKey.RecordID())).ok().says("pay: finished by evidence", "reserve: finished by run")

	d = newDesk(t, aNight(t)...)
	d.typing("yes\n")
	d.extra = []string{"--audit", filepath.Join(t.TempDir(), "audit.jsonl")}
	d.once("resolve", string(transferKey.RecordID()), why, "--step", `pay={}`).ok().golden("resolve-step")
}

// While a request may be executing, only the result of a step is accepted.
func TestResolve_WhileRunning(t *testing.T) {
	t.Parallel()
	running := record(transferKey, 4*time.Second, func(r *driver.Record) {
		r.Recovery, r.StepNames, r.Due = idempotent.Resume, []string{"pay"}, r.LeaseEnd
	})
	d := newDesk(t, running)
	resolve := func(more ...string) said {
		return d.once(append([]string{"resolve", string(running.ID), why, "--yes"}, more...)...)
	}
	for _, more := range [][]string{{"--completed", "{}"}, {"--without-result"}, {"--final", "a", "--message", "b"}, {"--correct-step", "pay={}"}, noEffect(running)} {
		resolve(more...).exits(exitRefused).says("in progress; retry after 4s; its lease ends at 2026-11-21T03:12:08Z", `"outcome":"refused"`)
	}
	resolve("--step", "pay={}").ok().says("it was in_progress and is in_progress")
}

// Only the record that was shown is settled.
func TestResolve_ChangedMeanwhile(t *testing.T) {
	t.Parallel()
	d := newDesk(t, unknownCharge())
	shown := unknownCharge()
	var o *opened
	e := &env{world: &d.world, store: storeFlags{File: d.file}}
	o, err := e.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	next := shown
	next.Version[0]++
	if met, err := o.Replace(t.Context(), next, shown.Version); met != nil || err != nil {
		t.Fatal(met, err)
	}
	ev := &evidence{kind: kindWithoutResult}
	if err := ev.fit(&shown); err != nil {
		t.Fatal(err)
	}
	_, err = (&settler{env: e}).settle(t.Context(), o, piece{&shown, ev}, "any", &auditor{env: e, to: io.Discard})
	if current, _ := o.Get(t.Context(), shown.ID); exitCode(err) != exitRefused || !strings.Contains(err.Error(), "has changed") || current.Version != next.Version {
		t.Errorf("got %v, and the record %+v", err, current)
	}
}

// The audit has the operator, the action, the record and the reason, and no
// private data.
func TestAudit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	d := newDesk(t, unknownCharge())
	d.world.getenv = func(name string) string {
		if name == "ONCE_AUDIT" {
			return file
		}
		return ""
	}
	d.once(charge("--status", "201", "--completed", `{"id":"ch_5"}`, "--yes")...).ok()
	d.once(charge(append(noEffect(unknownCharge()), "--yes")...)...).exits(exitRefused)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var lines []map[string]any
	for line := range strings.Lines(string(data)) {
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	want := []map[string]any{
		{
			"time": "2026-11-21T03:12:00.000Z", "action": "resolve", "user": "ada", "host": "ops-1", "store": "file " + d.file,
			"record": string(chargeKey.RecordID()), "from": "unknown", "to": "completed", "evidence": "completed", "codec": "http1", "bytes": 13.0,
			"sha256": fmt.Sprintf("%x", sha256.Sum256([]byte(`{"id":"ch_5"}`))),
			"reason": "the provider's ledger has it", "outcome": "written",
		},
		{
			"time": "2026-11-21T03:12:00.000Z", "action": "resolve", "user": "ada", "host": "ops-1", "store": "file " + d.file,
			"record": string(chargeKey.RecordID()), "from": "completed", "to": "completed", "evidence": "not_executed", "token": tokenOf(unknownCharge()),
			"reason": "the provider's ledger has it", "outcome": "refused",
			"error": "idempotent: POST /charges#4RexMqXSY3Lf: the record is already completed with another outcome",
		},
	}
	if !reflect.DeepEqual(lines, want) {
		t.Errorf("got\n%v\nwant\n%v", lines, want)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}

	// A line that is not durable is an error. A device has nothing to sync.
	d = newDesk(t, unknownCharge())
	d.once(charge("--without-result", "--yes", "--audit", os.DevNull)...).exits(exitFailure).says("the audit could not be written", `"outcome":"written"`)

	// Nothing is written without an audit.
	d = newDesk(t, unknownCharge())
	d.once(charge("--without-result", "--yes", "--audit", t.TempDir())...).exits(exitFailure).says("the audit cannot be written, so nothing was written")
	if r := d.get(chargeKey.RecordID()); r.State != driver.StateUnknown {
		t.Errorf("the record is %s", r.State)
	}
}

// A result is not accepted about an operation that seals its results: it would be
// stored in clear. Evidence without a result is.
func TestResolve_Sealed(t *testing.T) {
	t.Parallel()
	_, open, _ := sealedRecords()
	for _, more := range [][]string{
		{"--completed", "{}"}, {"--final", "a", "--message", "b"}, {"--step", "pay={}"}, {"--correct-step", "reserve={}"}, {"--without-result"}, noEffect(open),
	} {
		d := newDesk(t, open)
		got := d.once(append([]string{"resolve", string(open.ID), why, "--yes"}, more...)...)
		if more[0] == "--without-result" || more[0] == "--not-executed" {
			got.ok()
			continue
		}
		got.exits(exitRefused).says("its operation seals its results", "use --without-result or --not-executed")
		if r := d.get(open.ID); r.Version != open.Version {
			t.Errorf("%v: the record was written", more)
		}
	}
}
