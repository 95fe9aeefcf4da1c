// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/view"
)

func TestShow(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	show := func(k idempotent.Key, more ...string) said {
		return d.once(append([]string{"show", string(k.RecordID())}, more...)...).ok()
	}
	show(chargeKey).golden("show-unknown")
	show(transferKey, "--step", "notify", "--step", "pay").golden("show-steps")
	show(transferKey, "--result").says(`"hold": "h_1"`)
	show(refundKey).says("given up", "after 10 attempts")
	show(runningKey).says("A request is executing", "(in 8s)").saysNot("WHAT TO DO")
	show(strandedKey).says("Its owner never reported")
	show(retryKey).says("The next request with this key runs.")
	show(oldKey).says("It has expired", "omitted")
	show(declinedKey, "--result").says("RESULT\ncard_declined: The card was declined.\n")
	show(invoiceKey, "--result").says("RESULT\n{\n  \"number\": 7,", "25 B as json", "results as json, version 2, kept 24h")
	show(paidKey, "--result").golden("show-result")
	show(paidKey, "--result", "--json").golden("show-json")
	d.once("show", string(oldKey.RecordID()), "--result").exits(exitFailure).says("the result could not be stored")

	// Results are private: they are printed only on request.
	for _, k := range []idempotent.Key{paidKey, invoiceKey, declinedKey, transferKey} {
		for _, s := range []said{show(k), show(k, "--json")} {
			s.saysNot(`"id"`, `id\"`, `"number"`, "The card", "hold")
		}
	}
}

// A record that was released under Resume after some of its effects is shown,
// listed and counted as resumable, and not as merely retryable.
func TestResumable(t *testing.T) {
	t.Parallel()
	r := record(transferKey, 12*time.Minute, func(r *driver.Record) {
		settled(r, driver.StateRetryable, driver.ReasonLeaseEnded, 10*time.Minute)
		r.Recovery, r.StepNames = idempotent.Resume, []string{"reserve", "pay"}
		r.Expires, r.Due, r.OpenSince = time.Time{}, before(9*time.Minute), before(12*time.Minute)
		r.UnresolvedRetention = 30 * 24 * time.Hour
		r.PredecessorAnswered = true
	})
	d := newDesk(t, append(aNight(t)[:1], r, record(retryKey, time.Hour, func(r *driver.Record) {
		settled(r, driver.StateRetryable, driver.ReasonHandlerError, time.Hour)
	}))...)
	d.once("show", string(r.ID)).ok().golden("show-resumable")
	d.once("show", string(r.ID), "--json").ok().
		says(`"state": "retryable"`, `"resumable": true`, `"open_since": "2026-11-21T03:00:00.000Z"`, `"unresolved_retention": "720h0m0s"`)
	d.once("list").ok().golden("list-resumable")
	if got := d.once("list", "--state", "resumable", "--json").ok().out; strings.Count(got, "\n") != 1 || !strings.Contains(got, string(r.ID)) {
		t.Errorf("listed as resumable:\n%s", got)
	}
	d.once("list", "--state", "retryable").ok().saysNot("transfer").says("invoice")
	d.once("stats").ok().says("transfer       resumable  1", "resumable   1\n")
}

// The printed keys are those that the handler sent to the provider.
func TestShow_Keys(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	id := transferKey.RecordID()
	for key, uuid := range map[string]string{
		id.DownstreamKey():   idempotent.AsUUID(id.DownstreamKey()),
		id.StepKey("pay"):    idempotent.AsUUID(id.StepKey("pay")),
		id.StepKey("notify"): idempotent.AsUUID(id.StepKey("notify")),
	} {
		d.once("show", string(id), "--step", "notify").ok().says(key + "\n" + strings.Repeat(" ", 9) + uuid)
		d.once("show", string(id), "--step", "notify", "--json").ok().says(`"`+key+`"`, `"`+uuid+`"`)
	}
}

// Text in a record cannot move the operator's cursor.
func TestShow_Plain(t *testing.T) {
	t.Parallel()
	const evil = "\x1b]0;pwned\x07\x1b[2J\r\nfake line\u202e"
	r := record(key("op", "s", "k"), 0, func(r *driver.Record) {
		settled(r, driver.StateCompleted, evil, 0)
		r.Ref, r.RequestID, r.ResultVersion, r.TraceParent = evil, evil, evil, evil
		r.Encoding, r.Result = "text", []byte(evil)
	})
	d := newDesk(t, r)
	d.world.width = 0 // a pipe: all columns
	for _, args := range [][]string{{"list"}, {"show", string(r.ID), "--result"}, {"stats"}} {
		got := d.once(args...).ok().saysNot("\x1b", "\x07", "\r", "\u202e")
		if args[0] != "stats" {
			got.says(`\x1b[2J`)
		}
	}
	// JSON contains the whole text, escaped by the rules of JSON.
	var doc struct {
		Ref    string
		Result []byte `json:"result_base64"`
	}
	if err := json.Unmarshal([]byte(d.once("show", string(r.ID), "--result", "--json").ok().out), &doc); err != nil || doc.Ref != evil || string(doc.Result) != evil {
		t.Errorf("got %+v, %v", doc, err)
	}
}

// A binary response, and bytes of an unknown codec.
func TestShow_Binary(t *testing.T) {
	t.Parallel()
	o := &view.Outcome{Response: &view.Response{Status: 200, BodyBase64: []byte{0xff, 0}}}
	if got := outcomeText(o); got != "200 OK\n\n(2 B of binary data; use --json for base64)\n" {
		t.Errorf("got %q", got)
	}
	if got := outcomeText(&view.Outcome{Bytes: []byte{0xff}}); !strings.Contains(got, "1 B of binary data") {
		t.Errorf("got %q", got)
	}
}

// sealedRecords returns a completed record and one that waits for evidence, of an
// operation that seals its results, and the sealed bytes.
func sealedRecords() (done, open driver.Record, sealed string) {
	sealed = "\x00\xffciphertext\x1b[2J"
	done = record(invoiceKey, 3*time.Hour, func(r *driver.Record) {
		settled(r, driver.StateCompleted, driver.ReasonResult, 3*time.Hour)
		r.Codec, r.Encoding, r.Result, r.Ref = "json+sealed", "json+gzip+sealed", []byte(sealed), "invoices/7"
	})
	open = record(transferKey, 40*time.Minute, func(r *driver.Record) {
		settled(r, driver.StateUnknown, driver.ReasonInterrupted, 39*time.Minute)
		r.Codec, r.Recovery = "json+sealed", idempotent.Resume
		r.Steps = []driver.StepRecord{
			{Name: "pay", Mode: driver.AtMostOnce, Attempt: 1, At: before(39 * time.Minute)},
			{Name: "reserve", Finished: true, By: driver.StepByRun, Attempt: 1, At: before(39 * time.Minute), Encoding: "json+sealed", Result: []byte(sealed)},
		}
	})
	return done, open, sealed
}

// A sealed result is described, and its bytes are never shown: only programs with
// the operation's key can read it.
func TestShow_Sealed(t *testing.T) {
	t.Parallel()
	done, open, sealed := sealedRecords()
	d := newDesk(t, done, open)
	for _, more := range [][]string{nil, {"--result"}} {
		d.once(append([]string{"show", string(done.ID)}, more...)...).ok().
			says("results as json, sealed, kept 24h", "16 B as json+gzip+sealed: only a program that has the operation's key can read it", "invoices/7").
			saysNot(sealed, "ciphertext", "--result prints it", "RESULT")
		d.once(append([]string{"show", string(open.ID)}, more...)...).ok().
			says("reserve: finished by run at 02:33:00Z, 16 B kept, sealed", "WHAT TO DO", "--without-result, if it was done", "--not-executed --token", "Results of this operation are sealed").
			saysNot(sealed, "ciphertext", "--completed", "--final", "--step")

		var doc struct {
			Codec, Encoding string
			Seals, Sealed   bool
			Result          json.RawMessage
			Bytes           []byte `json:"result_base64"`
			Steps           []struct {
				Name   string
				Sealed bool
				Result json.RawMessage
			}
		}
		read := func(id idempotent.RecordID) {
			doc.Seals, doc.Sealed = false, false
			out := d.once(append([]string{"show", string(id), "--json"}, more...)...).ok().saysNot("ciphertext").out
			if err := json.Unmarshal([]byte(out), &doc); err != nil {
				t.Fatal(err)
			}
		}
		if read(done.ID); doc.Codec != "json" || doc.Encoding != "json+gzip+sealed" || !doc.Seals || !doc.Sealed || doc.Result != nil || doc.Bytes != nil {
			t.Errorf("%v: got %+v", more, doc)
		}
		if read(open.ID); !doc.Seals || doc.Sealed || len(doc.Steps) != 2 || doc.Steps[0].Sealed || !doc.Steps[1].Sealed || doc.Steps[1].Result != nil {
			t.Errorf("%v: got %+v", more, doc)
		}
	}
}
