package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
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

// typing puts the desk at a terminal where somebody types.
func (d *desk) typing(text string) {
	d.world.stdin, d.world.stdinTTY = strings.NewReader(text), true
}

// kept returns what a record's clients get.
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
		if r.State == driver.StateCompleted {
			var b []byte
			if encoding, b, err = g.Stored(d.t.Context(), *r); err != nil {
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

// Each kind of evidence becomes what the handler itself would have stored.
func TestResolve(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "result.json")
	if err := os.WriteFile(file, []byte("{\n  \"id\": \"ch_5\",\n  \"amount\": 9007199254740993\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		args     []string
		stdin    string
		state    driver.State
		encoding string
		data     string
	}{
		"file":       {[]string{"--completed", "@" + file}, "", driver.StateCompleted, "json", `{"id":"ch_5","amount":9007199254740993}`},
		"literal":    {[]string{"--completed", ` "ch_5" `}, "", driver.StateCompleted, "json", `"ch_5"`},
		"null":       {[]string{"--completed", `null`}, "", driver.StateCompleted, "json", `null`},
		"input":      {[]string{"--completed", "@-"}, `[1]`, driver.StateCompleted, "json", `[1]`},
		"own codec":  {[]string{"--completed", " as it is\n", "--encoding", "text"}, "", driver.StateCompleted, "text", " as it is\n"},
		"large":      {[]string{"--completed", "@-"}, `"` + strings.Repeat("x", 5000) + `"`, driver.StateCompleted, "json", `"` + strings.Repeat("x", 5000) + `"`},
		"http":       {[]string{"--http", "--status", "201", "--header", "location: /charges/ch_5", "--header", "Link: </a>", "--header", "Link: </b>", "--completed", `{"id":"ch_5"}`}, "", driver.StateCompleted, "http1", `{"s":201,"h":{"Content-Type":["application/json"],"Link":["</a>","</b>"],"Location":["/charges/ch_5"]}}` + "\n" + `{"id":"ch_5"}`},
		"empty body": {[]string{"--status", "204", "--completed", ""}, "", driver.StateCompleted, "http1", `{"s":204}` + "\n"},
		"final":      {[]string{"--final", "card_declined", "The card was --declined."}, "", driver.StateCompleted, "final", `{"code":"card_declined","message":"The card was --declined."}`},
		"nothing":    {[]string{"--not-executed"}, "", driver.StateRetryable, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, unknownCharge())
			d.world.stdin = strings.NewReader(row.stdin)
			got := d.once(charge(append(row.args, "--yes")...)...).ok().says("POST /charges#wiF9Nlkg_8wN was unknown and is " + row.state.String())
			encoding, data, r := d.kept(chargeKey.RecordID())
			if r.State != row.state || r.Reason != driver.ReasonResolved || encoding != row.encoding || data != row.data {
				t.Errorf("the record is %s (%s) with %q as %q", r.State, r.Reason, data, encoding)
			}
			if want := night.Add(24 * time.Hour); !r.Expires.Equal(want) {
				t.Errorf("it expires %s, want %s", r.Expires, want)
			}
			if strings.Contains(got.err, "ch_5") {
				t.Errorf("the audit has the result: %s", got.err)
			}
			// The same again is no error, and writes nothing.
			d.world.stdin = strings.NewReader(row.stdin)
			d.once(charge(append(row.args, "--yes")...)...).ok().says("holds this outcome already", `"outcome":"unchanged"`)
			if again := d.get(r.ID); again.Version != r.Version {
				t.Error("it was written again")
			}
		})
	}
}

// As an operator does it: look, answer the question, and be asked again after a
// slip.
func TestResolve_Asks(t *testing.T) {
	t.Parallel()
	d := newDesk(t, unknownCharge())
	for _, slip := range []string{"", "\n", "no\n", "y\n", "YES\n", "wiF9Nlkg_8wN\n"} {
		d.typing(slip)
		d.once(charge("--completed", "{}")...).exits(exitRefused).says("not confirmed; nothing was written")
	}
	d.typing("yes\n") // which is not enough here
	d.once(charge("--not-executed")...).exits(exitRefused).golden("resolve-not-executed")
	if r := d.get(chargeKey.RecordID()); r.State != driver.StateUnknown {
		t.Fatalf("the record is %s", r.State)
	}
	d.typing("wiF9Nlkg_8wN\n")
	d.once(charge("--not-executed")...).ok()

	d = newDesk(t, unknownCharge())
	d.typing("yes\n")
	d.extra = []string{"--audit", filepath.Join(t.TempDir(), "audit.jsonl")}
	d.once(charge("--http", "--status", "201", "--header", "Location: /charges/ch_5", "--completed", `{"id":"ch_5"}`)...).ok().golden("resolve")
	if r := d.get(chargeKey.RecordID()); r.State != driver.StateCompleted {
		t.Errorf("the record is %s", r.State)
	}
}

// Interrupted at the question: nothing is written.
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
	code := run(ctx, &w, charge("--completed", "{}", "--file", d.file))
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
		{"say what is known", charge("--yes")},
		{"can't be used together", charge("--yes", "--completed", "1", "--not-executed")},
		{"can't be used together", charge("--yes", "--final", "a", "b", "--not-executed")},
		{"--reason", []string{"resolve", string(chargeKey.RecordID()), "--yes", "--not-executed"}},
		{"--reason is empty", []string{"resolve", string(chargeKey.RecordID()), "--yes", "--not-executed", "--reason", " "}},
		{"no JSON", charge("--yes", "--completed", `{"a":`)},
		{"no JSON", charge("--yes", "--completed", ``)},
		{"no such file", charge("--yes", "--completed", `@/nowhere/at/all`)},
		{"--status", charge("--yes", "--http", "--completed", `{}`)},
		{"200 to 599", charge("--yes", "--status", "199", "--completed", `{}`)},
		{"NAME: VALUE", charge("--yes", "--status", "200", "--header", "Location", "--completed", `{}`)},
		{"exclude", charge("--yes", "--status", "200", "--encoding", "json", "--completed", `{}`)},
		{"are for --completed", charge("--yes", "--status", "200", "--not-executed")},
		{"--http and --status", charge("--yes", "--encoding", "http1", "--completed", `{}`)},
		{"no encoding", charge("--yes", "--encoding", "final", "--completed", `{}`)},
		{"no encoding", charge("--yes", "--encoding", "a+b", "--completed", `{}`)},
		{"MESSAGE", charge("--yes", "--final", "code")},
		{"needs a code", charge("--yes", "--final", "", "message")},
		{"standard input is no terminal; say --yes", charge("--not-executed")},
		{"Retention", charge("--yes", "--not-executed", "--retention=-1s")},
	} {
		d.once(row.args...).exits(exitUsage).says(row.says)
	}
	d.typing("yes\n")
	d.once(charge("--completed", "@-")...).exits(exitUsage).says("say --yes")
	if r := d.get(chargeKey.RecordID()); r.State != driver.StateUnknown {
		t.Errorf("the record is %s", r.State)
	}
}

// What the record refuses: another outcome, and "nothing happened" while a
// request may be executing.
func TestResolve_Refused(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	d.extra = []string{"--yes"}
	running, paid := string(runningKey.RecordID()), string(paidKey.RecordID())
	d.once("resolve", running, why, "--not-executed").exits(exitRefused).says("in progress; retry within 8s", `"outcome":"refused"`)
	d.once("resolve", paid, why, "--not-executed").exits(exitRefused).says("completed with another outcome", `"from":"completed","to":"completed"`)
	d.once("resolve", paid, why, "--final", "a", "b").exits(exitRefused)
	d.once("resolve", string(oldKey.RecordID()), why, "--not-executed").exits(exitNotFound).says("expired")
	// A result may be told of a running one.
	d.once("resolve", running, why, "--status", "201", "--completed", "{}").ok().says("was in_progress and is completed")
}

// A result that retries could not be answered with is refused: other records of
// the operation tell.
func TestResolve_LikeTheOthers(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	d.extra = []string{"--yes"}
	d.once(charge("--completed", "{}")...).exits(exitRefused).says("as http1", "given as json", "--http --status")
	invoice := record(key("invoice", "acme", "i-9"), time.Hour, func(r *driver.Record) {
		settled(r, driver.StateUnknown, driver.ReasonPanic, time.Hour)
	})
	d.store(func(s *boltstore.Store) {
		if met, err := s.Insert(t.Context(), invoice, night); met != nil || err != nil {
			t.Fatal(met, err)
		}
	})
	resolve := func(more ...string) said {
		return d.once(append([]string{"resolve", string(invoice.ID), why}, more...)...)
	}
	resolve("--completed", "{}").exits(exitRefused).says(`version "2"`, "--result-version '2'")
	resolve("--status", "200", "--completed", "{}").exits(exitRefused).says("--encoding json")
	if r := d.get(invoice.ID); r.State != driver.StateUnknown {
		t.Fatalf("the record is %s", r.State)
	}
	resolve("--completed", "{}", "--result-version", "2").ok()
	// Whoever knows better may insist.
	d.once(charge("--completed", "{}", "--force", "--retention", "48h")...).ok()
	if _, _, r := d.kept(chargeKey.RecordID()); !r.Expires.Equal(night.Add(48 * time.Hour)) {
		t.Errorf("it expires %s", r.Expires)
	}
}

// How long an outcome is kept is learned from the others, too.
func TestPeers(t *testing.T) {
	t.Parallel()
	p := &peers{operation: "charge"}
	for i, r := range []driver.Record{
		{State: driver.StateCompleted, Encoding: "json+gzip", ResultVersion: "2", Settled: before(time.Hour), Expires: before(time.Hour).Add(72 * time.Hour)},
		{State: driver.StateCompleted, Encoding: "http1", ResultVersion: "1", Settled: before(2 * time.Hour), Expires: before(time.Hour)},
		{State: driver.StateCompleted, Encoding: "final", Settled: night},
		{State: driver.StateCompleted, Encoding: "omitted", Settled: night},
		{State: driver.StateCompleted, Encoding: "text", Reason: driver.ReasonResolved, Settled: night},
		{State: driver.StateUnknown, Settled: night},
	} {
		p.note(&r)
		if p.encoding != "json" || p.version != "2" || p.retention != 72*time.Hour || p.seen != min(i+1, 2) {
			t.Errorf("after %d: %+v", i, p)
		}
	}
}

// The record that is settled is the one that was shown.
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
	written, err := (&resolveCmd{}).write(t.Context(), e, o, &shown, notExecuted())
	if written || !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "has changed") {
		t.Errorf("got %t, %v", written, err)
	}
}

// The audit says who did what to which record and why, and nothing private.
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
	d.once(charge("--not-executed", "--yes")...).exits(exitRefused)
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
			"record": string(chargeKey.RecordID()), "from": "unknown", "to": "completed", "evidence": "completed", "encoding": "http1", "bytes": 13.0,
			"sha256": fmt.Sprintf("%x", sha256.Sum256([]byte(`{"id":"ch_5"}`))),
			"reason": "the provider's ledger has it", "outcome": "written",
		},
		{
			"time": "2026-11-21T03:12:00.000Z", "action": "resolve", "user": "ada", "host": "ops-1", "store": "file " + d.file,
			"record": string(chargeKey.RecordID()), "from": "completed", "to": "completed", "evidence": "not_executed",
			"reason": "the provider's ledger has it", "outcome": "refused",
			"error": "idempotent: POST /charges#wiF9Nlkg_8wN: the record is completed with another outcome; the resolution was not written",
		},
	}
	if !reflect.DeepEqual(lines, want) {
		t.Errorf("got\n%v\nwant\n%v", lines, want)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}

	// What cannot be audited is not done.
	d = newDesk(t, unknownCharge())
	d.once(charge("--not-executed", "--yes", "--audit", t.TempDir())...).exits(exitFailure).says("the audit cannot be written, so nothing else is")
	if r := d.get(chargeKey.RecordID()); r.State != driver.StateUnknown {
		t.Errorf("the record is %s", r.State)
	}
}
