// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

// night is the current time of the tests.
var night = time.Date(2026, 11, 21, 3, 12, 0, 0, time.UTC)

// before returns the time that long before the night, as records store it.
func before(d time.Duration) time.Time { return night.Add(-d) }

// desk is an operator's environment: a store file and a command line for it.
type desk struct {
	t     *testing.T
	file  string
	world world
	extra []string // further arguments
}

// newDesk returns a desk with the records in its file.
func newDesk(t *testing.T, list ...driver.Record) *desk {
	t.Helper()
	d := &desk{t: t, file: filepath.Join(t.TempDir(), "once.db")}
	d.world = world{
		getenv: func(string) string { return "" },
		now:    func() time.Time { return night },
		width:  80,
		user:   "ada", host: "ops-1",
	}
	d.store(func(s *boltstore.Store) {
		for _, r := range list {
			if met, err := s.Insert(t.Context(), r, night); met != nil || err != nil {
				t.Fatal(met, err)
			}
		}
	})
	return d
}

// store opens the file for f. Use it only between two commands.
func (d *desk) store(f func(*boltstore.Store)) {
	d.t.Helper()
	s, err := boltstore.Open(d.file, func(o *boltstore.Options) { o.KeepExpired = true })
	if err != nil {
		d.t.Fatal(err)
	}
	defer s.Close()
	f(s)
}

func (d *desk) get(id idempotent.RecordID) (r *driver.Record) {
	d.t.Helper()
	d.store(func(s *boltstore.Store) {
		var err error
		if r, err = s.Get(d.t.Context(), id); err != nil {
			d.t.Fatal(err)
		}
	})
	return r
}

// said is the output of a command.
type said struct {
	t        *testing.T
	code     int
	out, err string
}

// sharedBuffer is a buffer that several programs can write to at once, like a
// file.
type sharedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *sharedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *sharedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (d *desk) once(args ...string) said {
	d.t.Helper()
	var stdout bytes.Buffer
	var stderr sharedBuffer
	w := d.world
	if w.stdin == nil {
		w.stdin = strings.NewReader("")
	}
	w.stdout, w.stderr = &stdout, &stderr
	code := run(d.t.Context(), &w, append(append(args, "--file", d.file), d.extra...))
	if cmd, _, err := rootCommand(&env{}).Find(args); err == nil && cmd.Annotations != nil && !slices.Contains(strings.Fields(cmd.Annotations[exitsNote]), fmt.Sprint(code)) {
		d.t.Errorf("the help of %s does not have the exit code %d", cmd.CommandPath(), code)
	}
	return said{d.t, code, strings.ReplaceAll(stdout.String(), d.file, "once.db"), strings.ReplaceAll(stderr.String(), d.file, "once.db")}
}

// ok fails the test unless the command succeeded.
func (s said) ok() said {
	s.t.Helper()
	return s.exits(exitOK)
}

func (s said) exits(code int) said {
	s.t.Helper()
	if s.code != code {
		s.t.Fatalf("exit code %d, want %d\n%s%s", s.code, code, s.out, s.err)
	}
	return s
}

func (s said) says(words ...string) said {
	s.t.Helper()
	for _, w := range words {
		if !strings.Contains(s.out+s.err, w) {
			s.t.Errorf("no %q in\n%s%s", w, s.out, s.err)
		}
	}
	return s
}

// narrow fails the test unless every line fits.
func (s said) narrow(columns int) said {
	s.t.Helper()
	for line := range strings.Lines(s.out) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > columns {
			s.t.Errorf("a line of %d columns: %s", n, line)
		}
	}
	return s
}

func (s said) saysNot(words ...string) said {
	s.t.Helper()
	for _, w := range words {
		if strings.Contains(s.out+s.err, w) {
			s.t.Errorf("%q in\n%s%s", w, s.out, s.err)
		}
	}
	return s
}

// golden fails the test unless the output equals the file, in lines of at most 80
// columns.
func (s said) golden(name string) said {
	s.t.Helper()
	got := s.out + s.err
	for line := range strings.Lines(got) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 && line[0] != '{' {
			s.t.Errorf("%s: a line of %d columns: %s", name, n, line)
		}
	}
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	if got != string(want) {
		s.t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
	return s
}

// The records of one night.

func key(operation, scope, id string) idempotent.Key {
	return idempotent.Key{Operation: operation, Scope: scope, ID: id}
}

var (
	chargeKey   = key("POST /charges", idempotent.Global, "b7a36f90-1e4d-4d52-8c7f-92e5d0ab4613")
	runningKey  = key("POST /charges", idempotent.Global, "41f0c8d3-9b62-4a17-a5e8-6d3f7b20c9e4")
	paidKey     = key("POST /charges", idempotent.Global, "8e03978e-40d5-43e8-bc93-6894a57f9324")
	declinedKey = key("POST /charges", idempotent.Global, "2f1c5a0e-6b7d-4c38-9a41-d05e8f3b7c62")
	transferKey = key("transfer", "acme", "t-17")
	refundKey   = key("refund", "acme", "r-9")
	invoiceKey  = key("invoice", "acme", "i-1")
	retryKey    = key("invoice", "acme", "i-2")
	oldKey      = key("invoice", "acme", "i-0")
	strandedKey = key("mail", "acme", "m-3")
)

// record returns a record of k that was claimed that long before the night.
func record(k idempotent.Key, age time.Duration, change func(*driver.Record)) driver.Record {
	r := driver.Record{
		ID: k.RecordID(), State: driver.StateInProgress, Reason: driver.ReasonClaimed, Attempt: 1,
		Fingerprint: idempotent.FingerprintBytes([]byte(k.ID)), Created: before(age), LeaseEnd: before(age - 12*time.Second),
	}
	if k.Operation == "POST /charges" {
		r.Codec = lambdahttp.Encoding
	}
	sum := sha256.Sum256([]byte(r.ID))
	copy(r.Version[:], sum[:])
	copy(r.Owner[:], sum[16:])
	change(&r)
	return r
}

// settled puts r into a state, that long before the night.
func settled(r *driver.Record, s driver.State, why driver.Reason, age time.Duration) {
	r.State, r.Reason, r.Since = s, why, before(age)
	if s != driver.StateUnknown {
		r.Expires = before(age).Add(24 * time.Hour)
	} else {
		r.Due = before(age).Add(time.Minute)
	}
}

func unknownCharge() driver.Record {
	return record(chargeKey, 12*time.Minute, func(r *driver.Record) {
		settled(r, driver.StateUnknown, driver.ReasonLeaseEnded, 11*time.Minute+40*time.Second)
		r.RequestID = "JKJaXmPLvHcESHA="
	})
}

// aNight returns one record of every kind.
func aNight(t testing.TB) []driver.Record {
	t.Helper()
	return []driver.Record{
		unknownCharge(),
		record(runningKey, 4*time.Second, func(r *driver.Record) { r.Due = r.LeaseEnd }),
		record(paidKey, 3*time.Hour, func(r *driver.Record) {
			settled(r, driver.StateCompleted, driver.ReasonResult, 3*time.Hour)
			r.Encoding = lambdahttp.Encoding
			r.Result = stored(t, lambdahttp.Response{
				Status: 201, Header: http.Header{"Content-Type": {"application/json"}, "Location": {"/charges/ch_1"}}, Body: []byte(`{"id":"ch_1"}`),
			})
			r.Ref = "/charges/ch_1"
		}),
		record(declinedKey, 2*time.Hour, func(r *driver.Record) {
			settled(r, driver.StateCompleted, driver.ReasonFinal, 2*time.Hour)
			r.Encoding, r.Result = driver.EncodingFinal, []byte(`{"code":"card_declined","message":"The card was declined."}`)
		}),
		record(transferKey, 40*time.Minute, func(r *driver.Record) {
			settled(r, driver.StateUnknown, driver.ReasonInterrupted, 39*time.Minute)
			r.Recovery, r.Attempt, r.ReconcileAttempts, r.Ref = idempotent.Resume, 2, 5, "transfers/17"
			r.Due = night.Add(9 * time.Minute)
			r.Retention, r.StepNames = 72*time.Hour, []string{"reserve", "pay", "notify"}
			r.Steps = []driver.StepRecord{
				{Name: "pay", Mode: driver.AtMostOnce, Attempt: 2, At: before(39*time.Minute + 20*time.Second)},
				{Name: "reserve", Finished: true, By: driver.StepByRun, Attempt: 1, At: before(39*time.Minute + 58*time.Second), Encoding: "json", Result: []byte(`{"hold":"h_1"}`)},
			}
		}),
		record(refundKey, 50*time.Hour, func(r *driver.Record) {
			settled(r, driver.StateUnknown, driver.ReasonUnknown, 50*time.Hour)
			r.ReconcileAttempts, r.Exhausted, r.Due = 10, true, before(42*time.Hour)
			r.Ref = "refunds/2026/11/19/a-very-long-name-of-a-refund"
		}),
		record(invoiceKey, 5*time.Hour, func(r *driver.Record) {
			settled(r, driver.StateCompleted, driver.ReasonResult, 5*time.Hour)
			r.Encoding, r.Result, r.ResultVersion = "json", []byte(`{"number":7,"paid":false}`), "2"
		}),
		record(retryKey, time.Hour, func(r *driver.Record) {
			settled(r, driver.StateRetryable, driver.ReasonHandlerError, time.Hour)
			r.Recovery = idempotent.Rerun
		}),
		record(oldKey, 90*24*time.Hour, func(r *driver.Record) {
			settled(r, driver.StateCompleted, driver.ReasonOmitted, 90*24*time.Hour)
			r.Encoding = driver.EncodingOmitted
		}),
		record(strandedKey, 20*time.Minute, func(r *driver.Record) { r.Due = r.LeaseEnd }),
	}
}

// stored returns a response as a handler's record stores it.
func stored(t testing.TB, response lambdahttp.Response) (data []byte) {
	t.Helper()
	s, err := boltstore.Open(filepath.Join(t.TempDir(), "stored.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	g, err := idempotent.New(s, func(o *idempotent.Options) { o.Retention = 1000 * time.Hour })
	if err != nil {
		t.Fatal(err)
	}
	r := record(key("any", "any", "any"), time.Minute, func(r *driver.Record) { r.Codec = lambdahttp.Encoding })
	if _, err := s.Insert(t.Context(), r, night); err != nil {
		t.Fatal(err)
	}
	if err := g.Resolve(context.Background(), r.ID, lambdahttp.Resolved(response)); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Get(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	return resolved.Result
}
