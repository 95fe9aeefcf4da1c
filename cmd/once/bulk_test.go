// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// evidenceLine returns a line of a file of evidence about a record.
func evidenceLine(k idempotent.Key, answer string) string {
	return fmt.Sprintf(`{"record": %q, %s}`, k.RecordID(), answer)
}

// outage returns the charge, the transfer and the refund of the night, and the
// evidence about them.
func outage(t *testing.T) (*desk, string) {
	t.Helper()
	d := newDesk(t, aNight(t)...)
	lines := []string{
		evidenceLine(chargeKey, `"response": {"status": 201, "header": {"Location": ["/charges/ch_5"]}, "body": "{\"id\":\"ch_5\"}"}`),
		"",
		evidenceLine(transferKey, `"step": {"name": "notify", "result": {"secret": 1}}, "reason": "the mail is in the archive"`),
		evidenceLine(refundKey, `"not_executed": "`+tokenOf(*d.get(refundKey.RecordID()))+`"`),
	}
	return d, d.write(lines...)
}

// write writes a file of lines.
func (d *desk) write(lines ...string) (file string) {
	d.t.Helper()
	file = filepath.Join(d.t.TempDir(), "evidence.jsonl")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return file
}

func (d *desk) bulk(file string, more ...string) said {
	d.t.Helper()
	return d.once(append([]string{"resolve", "--from", file, why}, more...)...)
}

// versions returns the versions of all records.
func (d *desk) versions() map[idempotent.RecordID]driver.Version {
	d.t.Helper()
	all := map[idempotent.RecordID]driver.Version{}
	d.store(func(s *boltstore.Store) {
		for r, err := range s.All(d.t.Context()) {
			if err != nil {
				d.t.Fatal(err)
			}
			all[r.ID] = r.Version
		}
	})
	return all
}

// unchanged fails the test if f changes a record.
func (d *desk) unchanged(f func()) {
	d.t.Helper()
	before := d.versions()
	f()
	for id, v := range d.versions() {
		if v != before[id] {
			d.t.Errorf("%s was written", id)
		}
	}
}

// A dry run shows what would be written, the run writes it, and a second run
// changes nothing.
func TestBulk(t *testing.T) {
	t.Parallel()
	d, file := outage(t)
	d.unchanged(func() {
		d.bulk(file, "--dry-run").ok().golden("bulk-dry-run").saysNot("audit", "secret")
	})
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	d.bulk(file, "--yes", "--audit", audit).ok().golden("bulk")
	for k, state := range map[idempotent.Key]driver.State{chargeKey: driver.StateCompleted, transferKey: driver.StateUnknown, refundKey: driver.StateRetryable} {
		if r := d.get(k.RecordID()); r.State != state {
			t.Errorf("%s is %s, want %s", r.ID, r.State, state)
		}
	}
	if s, found := d.get(transferKey.RecordID()).Step("notify"); !found || !s.Finished {
		t.Errorf("the step is %+v", s)
	}
	lines, err := os.ReadFile(audit)
	if err != nil || bytes.Count(lines, []byte("\n")) != 3 {
		t.Fatalf("%v, the audit is\n%s", err, lines)
	}
	for i, want := range []string{
		`"evidence":"completed"`, `"reason":"the mail is in the archive"`, `"evidence":"not_executed"`,
	} {
		line := string(bytes.Split(lines, []byte("\n"))[i])
		for _, w := range []string{want, `"action":"resolve"`, `"user":"ada"`, `"host":"ops-1"`, `"outcome":"written"`, `"record":"`, `"reason":"the `} {
			if !strings.Contains(line, w) {
				t.Errorf("no %s in %s", w, line)
			}
		}
	}
	if bytes.Contains(lines, []byte("secret")) || bytes.Contains(lines, []byte("ch_5")) {
		t.Errorf("the audit contains a result:\n%s", lines)
	}
	d.unchanged(func() { d.bulk(file, "--yes").ok().says("3 records: 3 unchanged") })
}

// The file in the guide fits the records of the night.
func TestBulk_Guide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "operate-bulk.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(guide), "<<'LINES'\n")
	lines, _, found := strings.Cut(rest, "LINES\n")
	if !found {
		t.Fatal("the guide has no file of evidence")
	}
	var open []driver.Record // without results to compare with
	for _, r := range aNight(t) {
		if r.State == driver.StateUnknown {
			open = append(open, r)
		}
	}
	d := newDesk(t, open...)
	d.bulk(d.write(lines), "--dry-run", "--force").ok().golden("bulk-guide")
}

// The documents of --json have one line for each record and a summary.
func TestBulk_JSON(t *testing.T) {
	t.Parallel()
	d, file := outage(t)
	for _, row := range []struct{ flag, outcome string }{{"--dry-run", "would_write"}, {"--yes", "written"}, {"--yes", "unchanged"}} {
		got := d.bulk(file, row.flag, "--json").ok()
		decoder := json.NewDecoder(strings.NewReader(got.out))
		for i := range 3 {
			var one result
			if err := decoder.Decode(&one); err != nil || one.Outcome != row.outcome || one.Line != []int{1, 3, 4}[i] || one.Record == "" || one.Error != "" {
				t.Errorf("%s: %+v, %v", row.flag, one, err)
			}
		}
		var last struct{ Summary map[string]int }
		if err := decoder.Decode(&last); err != nil || last.Summary["records"] != 3 || last.Summary[row.outcome] != 3 {
			t.Errorf("%s: %+v, %v", row.flag, last, err)
		}
	}
}

// A malformed line, or one that its record cannot use, refuses the whole file
// before the first write.
func TestBulk_Malformed(t *testing.T) {
	t.Parallel()
	d, _ := outage(t)
	good := evidenceLine(refundKey, `"without_result": true`)
	for _, row := range []struct {
		code int
		line string
		says string
	}{
		{exitUsage, `{"record": `, "line 2: unexpected EOF"},
		{exitUsage, good + good, "line 2: more than one answer"},
		{exitUsage, `{"record": "refund", "without_result": true}`, `invalid record "refund"`},
		{exitUsage, evidenceLine(chargeKey, `"without_result": true, "results": 1`), `unknown field "results"`},
		{exitUsage, evidenceLine(chargeKey, `"reason": "why"`), "needs exactly one of"},
		{exitUsage, evidenceLine(chargeKey, `"without_result": true, "completed": 1`), "needs exactly one of"},
		{exitUsage, evidenceLine(chargeKey, `"later": "5m"`), "is not evidence"},
		{exitUsage, evidenceLine(chargeKey, `"response": {"status": 99}`), "200 to 599"},
		{exitUsage, good, "line 1 is about the same record"},
		{exitRefused, evidenceLine(chargeKey, `"completed": {}`), `line 2: POST /charges#4RexMqXSY3Lf: its operation stores results with the codec "http1"`},
		{exitRefused, evidenceLine(transferKey, `"response": {"status": 200}`), `line 2: transfer#j1o1vmzLBDDD: its operation stores results with the codec "json"`},
	} {
		d.unchanged(func() {
			d.bulk(d.write(good, row.line), "--yes").exits(row.code).says("1 line ", "nothing was written", row.says).saysNot(`"action"`)
		})
	}
	var many []string
	for range maxShown + 2 {
		many = append(many, "x")
	}
	d.bulk(d.write(many...), "--yes").exits(exitUsage).says("22 lines malformed", "line 20: ", "and 2 more").saysNot("line 21")
	d.bulk(d.write("", " "), "--yes").exits(exitUsage).says("has no lines")
	d.bulk(filepath.Join(t.TempDir(), "missing"), "--yes").exits(exitUsage).says("no such file")
}

// A record that was settled otherwise, is gone or is running is refused, and does
// not stop the others.
func TestBulk_Refused(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	gone := key("no", "such", "key")
	file := d.write(
		evidenceLine(paidKey, `"without_result": true`),
		evidenceLine(runningKey, `"without_result": true`),
		evidenceLine(gone, `"without_result": true`),
		evidenceLine(chargeKey, `"not_executed": "00"`),
		evidenceLine(refundKey, `"without_result": true`),
	)
	d.unchanged(func() {
		d.bulk(file, "--dry-run").exits(exitRefused).says("5 records: 1 would be written, 4 refused")
	})
	d.bulk(file, "--yes").exits(exitRefused).says(
		"5 records: 1 written, 4 refused", "line 1: POST /charges#ty7jY4HjuNMR: the record is already completed with another outcome",
		"line 2: ", "in progress", "line 3: no#lZvLO-rslAx0: no such record", "line 4: ", "the token is not that of its current attempt",
	)
	if r := d.get(refundKey.RecordID()); r.State != driver.StateCompleted {
		t.Errorf("the refund is %s", r.State)
	}
	d.unchanged(func() { d.bulk(file, "--yes").exits(exitRefused).says("1 unchanged, 4 refused") })
}

// At a terminal the operator types the number of records that change. Without one,
// --yes is needed, as it is if the file is standard input.
func TestBulk_Asks(t *testing.T) {
	t.Parallel()
	d, file := outage(t)
	d.bulk(file).exits(exitUsage).says("needs a terminal")
	d.bulk("-").exits(exitUsage).says("use --yes")
	d.unchanged(func() {
		d.typing("yes\n")
		d.bulk(file).exits(exitRefused).says("3 records", "The next requests of 1 record run", "Type 3 to write it", "not confirmed")
	})
	d.typing("3\n")
	d.bulk(file).ok().says("3 records: 3 written")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d.world.stdin, d.world.stdinTTY = bytes.NewReader(data), false
	d.bulk("-", "--yes").ok().says("3 records: 3 unchanged")
}

// The flags of one record do not go with a file.
func TestBulk_Usage(t *testing.T) {
	t.Parallel()
	d, file := outage(t)
	for _, row := range []struct {
		says string
		args []string
	}{
		{"omit RECORD", []string{string(chargeKey.RecordID())}},
		{"were all set", []string{"--without-result"}},
		{"were all set", []string{"--key", "k"}},
		{"were all set", []string{"--status", "200"}},
	} {
		d.bulk(file, append(row.args, "--yes")...).exits(exitUsage).says(row.says)
	}
	d.once("resolve", "--from", file, "--yes", "--reason", " ").exits(exitUsage).says("--reason is empty")
	d.once("resolve", "--from", file, "--yes").exits(exitUsage).says(`"reason" not set`)
}

// cancelling is an audit that ends the context at its first line.
type cancelling struct {
	cancel context.CancelFunc
	buf    bytes.Buffer
}

func (c *cancelling) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(`"action"`)) {
		c.cancel()
	}
	return c.buf.Write(p)
}

// twoBatches returns more records than are written at the same time, and the
// evidence about them.
func twoBatches(t *testing.T) (d *desk, file string) {
	t.Helper()
	var records []driver.Record
	var lines []string
	for i := range 2*writeParallel + 1 {
		k := key("refund", "acme", fmt.Sprint(i))
		records = append(records, record(k, time.Hour, func(r *driver.Record) { settled(r, driver.StateUnknown, driver.ReasonUnknown, time.Hour) }))
		lines = append(lines, evidenceLine(k, `"without_result": true`))
	}
	d = newDesk(t, records...)
	return d, d.write(lines...)
}

// After an interruption, the records that were not tried are listed, and the
// command can be repeated.
func TestBulk_Interrupted(t *testing.T) {
	t.Parallel()
	d, file := twoBatches(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out bytes.Buffer
	w := d.world
	w.stdin, w.stdout, w.stderr = strings.NewReader(""), &out, &cancelling{cancel: cancel}
	code := run(ctx, &w, []string{"resolve", "--from", file, why, "--yes", "--file", d.file})
	if code != exitFailure || !strings.Contains(out.String(), "17 records: 8 written, 9 not tried") {
		t.Errorf("exit code %d\n%s", code, &out)
	}
	d.bulk(file, "--yes").ok().says("17 records: 9 written, 8 unchanged")
}

// Nothing more is written if the audit fails.
func TestBulk_AuditFails(t *testing.T) {
	t.Parallel()
	d, file := twoBatches(t)
	var out bytes.Buffer
	w := d.world
	w.stdin, w.stdout = strings.NewReader(""), &out
	w.stderr = writerThat(func(p []byte) error {
		if bytes.Contains(p, []byte(`"action"`)) {
			return io.ErrShortWrite
		}
		return nil
	})
	if code := run(t.Context(), &w, []string{"resolve", "--from", file, why, "--yes", "--file", d.file}); code != exitFailure || !strings.Contains(out.String(), "17 records: 8 written, 9 not tried") {
		t.Errorf("exit code %d\n%s", code, &out)
	}
}

type writerThat func([]byte) error

func (f writerThat) Write(p []byte) (int, error) {
	if err := f(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// One record can be rehearsed too.
func TestResolve_DryRun(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	d.unchanged(func() {
		d.once(charge("--without-result", "--dry-run")...).ok().says("is unknown and would become completed; nothing was written").saysNot(`"action"`)
		d.once(charge("--without-result", "--dry-run", "--json")...).ok().says(`"outcome": "would_write"`)
		d.once(charge("--not-executed", "--token", "00", "--dry-run")...).exits(exitRefused).says("the token is not")
		d.once("resolve", string(paidKey.RecordID()), why, "--without-result", "--dry-run").exits(exitRefused).says("another outcome")
	})
}
