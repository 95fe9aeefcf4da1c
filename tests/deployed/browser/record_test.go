// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/page"
	"github.com/once-lambda/once/internal/view"
	"github.com/once-lambda/once/tests/deployed/browser"
)

// openDrawing opens a page that has only a drawing, as window.drawing. Another one
// is added with window.another.
func openDrawing(t *testing.T, v browser.View) *browser.Page {
	t.Helper()
	server := httptest.NewServer(page.Handler(fstest.MapFS{
		"index.html": {Data: []byte(`<!doctype html><html lang="en"><title>Record</title><meta name="viewport" content="width=device-width">
			<link rel="stylesheet" href="style.css"><link rel="icon" href="icon.svg"><script type="module" src="page.js"></script>
			<main><h1>Record</h1><div class="panel"><div class="body" id="record"></div></div></main>`)},
		"page.js": {Data: []byte(`import { RecordView } from "./record.js"; 
			window.drawing = new RecordView(document.getElementById("record"), 2);
			window.another = () => {
				const copy = document.getElementById("record").cloneNode();
				document.getElementById("record").removeAttribute("id");
				document.querySelector("main").append(copy);
				window.drawing = new RecordView(copy, 2);
			};`)},
		"icon.svg": {Data: []byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`)},
	}))
	t.Cleanup(server.Close)
	p := chromium.Open(t, server.URL+"/", v)
	p.Wait(`window.drawing`)
	return p
}

// show draws a record at the time now.
func show(p *browser.Page, r *driver.Record, now time.Time) {
	data, err := json.Marshal(view.Of(r))
	if err != nil {
		panic(err) // a record of these tests has only valid text
	}
	p.Eval(fmt.Sprintf(`drawing.show(%s, {now: %d})`, data, now.UnixMilli()), nil)
}

func aRecord(now time.Time) *driver.Record {
	return &driver.Record{
		ID:    idempotent.Key{Operation: "POST /charges", Scope: "tenant", ID: "1"}.RecordID(),
		State: driver.StateInProgress, Reason: driver.ReasonClaimed, Recovery: idempotent.Reconcile, Attempt: 1,
		Created: now.Add(-time.Second), LeaseEnd: now.Add(10 * time.Second), Due: now.Add(10 * time.Second),
	}
}

// Each state has its sentence, is lit in the diagram, and is free of what axe
// refuses, in dark and light.
func TestRecordStates(t *testing.T) {
	t.Parallel()
	p := openDrawing(t, browser.View{})
	now := time.Now().UTC().Truncate(time.Millisecond)
	drawn := map[driver.State]bool{}
	for _, c := range []struct {
		name   string
		change func(*driver.Record)
		lit    string
		says   string
	}{
		{"running", func(*driver.Record) {}, "in progress", "Until its lease ends, no other request runs this key."},
		{"abandoned", func(r *driver.Record) { r.LeaseEnd = now.Add(-time.Minute) }, "in progress", "its lease has ended"},
		{"completed", func(r *driver.Record) {
			r.State, r.Reason, r.Result, r.Encoding, r.Expires = driver.StateCompleted, driver.ReasonResult, []byte(`{}`), "json", now.Add(24*time.Hour)
		}, "completed", "Every retry gets the stored answer"},
		{"expired", func(r *driver.Record) { r.State, r.Expires = driver.StateCompleted, now.Add(-time.Hour) }, "completed", "It has expired"},
		{"retryable", func(r *driver.Record) {
			r.State, r.Reason, r.Due = driver.StateRetryable, driver.ReasonNotExecuted, time.Time{}
		}, "retryable", "The next request with this key runs."},
		{"resumable", func(r *driver.Record) {
			r.State, r.Reason = driver.StateRetryable, driver.ReasonHandlerError
			r.Steps = []driver.StepRecord{
				{Name: "authorise", Finished: true, By: driver.StepByRun, Attempt: 1, At: now, Result: []byte(`1`)},
				{Name: "order", Mode: driver.AtMostOnce, Attempt: 1, At: now},
			}
			r.StepNames = []string{"authorise", "order", "receipt"}
		}, "retryable", "continues where the last one stopped"},
		{"unknown", func(r *driver.Record) { r.State, r.Reason = driver.StateUnknown, driver.ReasonLeaseEnded }, "unknown", "Nothing runs again until evidence settles it."},
		{"given up", func(r *driver.Record) {
			r.State, r.Reason, r.Exhausted, r.ReconcileAttempts = driver.StateUnknown, driver.ReasonUnknown, true, 20
		}, "unknown", "an operator has to settle it"},
	} {
		r := aRecord(now)
		c.change(r)
		drawn[r.State] = true
		show(p, r, now)
		var lit []string
		p.Eval(`[...document.querySelectorAll("#record .diagram .lit text")].map((e) => e.textContent)`, &lit)
		if len(lit) != 1 || lit[0] != c.lit {
			t.Errorf("%s: lit is %q, want %q", c.name, lit, c.lit)
		}
		text := p.Text("#record")
		for _, part := range []string{c.says, r.ID.DownstreamKey(), idempotent.AsUUID(r.ID.DownstreamKey()), r.ID.KeyHash()} {
			if !strings.Contains(text, part) {
				t.Errorf("%s: the drawing does not contain %q:\n%s", c.name, part, text)
			}
		}
		for _, s := range r.Steps {
			if !strings.Contains(text, r.ID.StepKey(s.Name)) {
				t.Errorf("%s: the drawing does not contain the key of step %s:\n%s", c.name, s.Name, text)
			}
		}
		p.Eval(`another()`, nil)
	}
	for s := driver.StateInProgress; s.Code() != "?"; s++ {
		if !drawn[s] {
			t.Errorf("the state %s has no row in this table", s)
		}
	}
	for _, dark := range []bool{false, true} {
		p.Show(browser.View{Dark: dark})
		p.Axe()
	}
}

// A record in progress counts down to the end of its lease. Another one, whose lease ends
// at once, then says so without another record.
func TestLeaseCountsDown(t *testing.T) {
	t.Parallel()
	p := openDrawing(t, browser.View{})
	now := time.Now()
	r := aRecord(now)
	r.LeaseEnd = now.Add(time.Hour)
	show(p, r, now)
	var left float64
	p.Eval(`document.querySelector("#record progress").value`, &left)
	if hour := float64(time.Hour.Milliseconds()); left <= 0 || left > hour {
		t.Errorf("%v ms are left of the lease, want at most %v", left, hour)
	}
	p.Wait(fmt.Sprintf(`document.querySelector("#record progress").value < %v`, left))
	r.LeaseEnd = now.Add(700 * time.Millisecond)
	show(p, r, now)
	p.Wait(`document.querySelector("#record .sentence").innerText.includes("its lease has ended")`)
	p.Wait(`document.querySelector("#record .lease").innerText.includes("ended")`)
}

// Text of a record is never HTML.
func TestRecordIsText(t *testing.T) {
	t.Parallel()
	p := openDrawing(t, browser.View{})
	const hostile = `<img src=x onerror="window.owned = true"><script>window.owned = true</script>`
	now := time.Now()
	r := aRecord(now)
	r.ID = idempotent.Key{Operation: hostile, Scope: hostile, ID: "1"}.RecordID()
	r.Ref, r.RequestID, r.TraceParent, r.ResultVersion, r.Reason = hostile, hostile, hostile, hostile, hostile
	r.Steps = []driver.StepRecord{{Name: hostile, At: now}}
	show(p, r, now)
	if text := p.Text("#record"); strings.Count(text, hostile) < 5 {
		t.Errorf("the drawing shows\n%s", text)
	}
	var elements int
	p.Eval(`document.querySelectorAll("#record img, #record script").length`, &elements)
	var owned bool
	p.Eval(`window.owned === true`, &owned)
	if elements > 0 || owned {
		t.Errorf("%d elements came from text; a script ran: %t", elements, owned)
	}
}

// A change of state is animated, unless the reader prefers reduced motion.
func TestMotion(t *testing.T) {
	t.Parallel()
	for _, animated := range []bool{false, true} {
		p := openDrawing(t, browser.View{Animated: animated})
		now := time.Now()
		r := aRecord(now)
		show(p, r, now)
		r.State, r.Reason = driver.StateUnknown, driver.ReasonUnknown
		show(p, r, now)
		var running int
		p.Eval(`document.getAnimations().length`, &running)
		if (running > 0) != animated {
			t.Errorf("animations allowed: %t; running: %d", animated, running)
		}
		var taken []string
		p.Eval(`[...document.querySelectorAll(".diagram .taken text")].map((e) => e.textContent)`, &taken)
		if len(taken) != 1 || taken[0] != "no outcome" {
			t.Errorf("the transition is %q", taken)
		}
	}
}
