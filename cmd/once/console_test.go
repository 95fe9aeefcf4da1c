// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

const consoleHost = "127.0.0.1:4711"

// browser is the page of a console, in the one session.
type browser struct {
	t       *testing.T
	handler http.Handler
	ticket  string
	cookie  *http.Cookie
	session string
	audit   *sharedBuffer
	site    *site
	close   func() error
}

// newBrowser returns the page of a console over the file of the desk.
func newBrowser(d *desk, allow bool) *browser {
	d.t.Helper()
	w := d.world
	b := &browser{t: d.t, audit: &sharedBuffer{}}
	w.stdout, w.stderr = io.Discard, b.audit
	e := &env{world: &w, store: storeFlags{File: d.file}}
	o, err := e.open(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	b.close = o.close
	var a *auditor
	if allow {
		if a, err = e.openAudit(d.t.Context(), "", o); err != nil {
			d.t.Fatal(err)
		}
	}
	b.open(newSite(d.t.Context(), e, o, a))
	return b
}

// open opens the session of a site.
func (b *browser) open(s *site) {
	b.t.Helper()
	b.site = s
	var d *door
	d, b.ticket = newDoor(consoleHost)
	b.handler = s.handler(d)
	reply := b.send(http.MethodPost, "/api/session", `{"ticket":"`+b.ticket+`"}`)
	cookies := reply.Result().Cookies()
	if reply.Code != http.StatusOK || len(cookies) != 1 {
		b.t.Fatalf("the session: %d %s", reply.Code, reply.Body)
	}
	var opened struct{ Session string }
	if err := json.Unmarshal(reply.Body.Bytes(), &opened); err != nil {
		b.t.Fatal(err)
	}
	b.cookie, b.session = cookies[0], opened.Session
}

// send sends a request as the page does, after the changes.
func (b *browser) send(method, path, body string, changes ...func(*http.Request)) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequestWithContext(b.t.Context(), method, "http://"+consoleHost+path, strings.NewReader(body))
	if method == http.MethodPost {
		r.Header.Set("Origin", "http://"+consoleHost)
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if b.cookie != nil {
		r.AddCookie(b.cookie)
	}
	r.Header.Set(sessionHeader, b.session)
	for _, change := range changes {
		change(r)
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w
}

// get decodes the answer to a GET into v.
func (b *browser) get(path string, v any) {
	b.t.Helper()
	b.decode(b.send(http.MethodGet, path, ""), http.StatusOK, v)
}

func (b *browser) decode(reply *httptest.ResponseRecorder, status int, v any) {
	b.t.Helper()
	if reply.Code != status {
		b.t.Fatalf("status %d, want %d: %s", reply.Code, status, reply.Body)
	}
	if err := json.Unmarshal(reply.Body.Bytes(), v); err != nil {
		b.t.Fatal(err)
	}
}

// show returns a record as the page shows it.
func (b *browser) show(id idempotent.RecordID) (shown struct {
	Record  struct{ State, Token string }
	Version string
}) {
	b.t.Helper()
	b.get("/api/record?id="+escape(string(id)), &shown)
	return shown
}

func escape(s string) string {
	return strings.NewReplacer("#", "%23", " ", "%20", "/", "%2F").Replace(s)
}

// post posts the members of an order, and returns the answer if it has the status.
func (b *browser) post(path string, members map[string]any, status int) (answer map[string]any) {
	b.t.Helper()
	body, err := json.Marshal(members)
	if err != nil {
		b.t.Fatal(err)
	}
	b.decode(b.send(http.MethodPost, path, string(body)), status, &answer)
	return answer
}

const anyReason = "the provider's ledger has it"

// order returns the members of an order about a record as the page shows it.
func (b *browser) order(id idempotent.RecordID, more ...any) map[string]any {
	b.t.Helper()
	shown := b.show(id)
	members := map[string]any{"record": id, "version": shown.Version, "reason": anyReason}
	for i := 0; i < len(more); i += 2 {
		members[more[i].(string)] = more[i+1]
	}
	return members
}

// changePaths are the paths that change records.
var changePaths = []string{"/api/resolve", "/api/requeue", "/api/forget"}

// Only the page of the console can ask, from this machine, by its address.
func TestConsole_Door(t *testing.T) {
	t.Parallel()
	b := newBrowser(newDesk(t, aNight(t)...), true)
	defer b.close()
	without := func(name string) func(*http.Request) { return func(r *http.Request) { r.Header.Del(name) } }
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	body, err := json.Marshal(b.order(refundKey.RecordID()))
	if err != nil {
		t.Fatal(err)
	}
	requeue := string(body)
	for _, row := range []struct {
		name, method, path string
		status             int
		change             func(*http.Request)
	}{
		{"a name that points here", "GET", "/", 421, host("evil.example:4711")},
		{"a name that points here, for data", "GET", "/api/overview", 421, host("evil.example:4711")},
		{"localhost", "GET", "/api/overview", 421, host("localhost:4711")},
		{"another port", "GET", "/api/overview", 421, host("127.0.0.1:80")},
		{"no port", "GET", "/api/overview", 421, host("127.0.0.1")},
		{"a foreign origin", "POST", "/api/requeue", 403, set("Origin", "https://evil.example")},
		{"another port's origin", "POST", "/api/requeue", 403, set("Origin", "http://127.0.0.1:8080")},
		{"https", "POST", "/api/requeue", 403, set("Origin", "https://"+consoleHost)},
		{"a sandboxed frame", "POST", "/api/requeue", 403, set("Origin", "null")},
		{"no origin", "POST", "/api/requeue", 403, without("Origin")},
		{"a foreign origin that reads", "GET", "/api/overview", 403, set("Origin", "https://evil.example")},
		{"a page of another port that reads", "GET", "/api/overview", 403, set("Sec-Fetch-Site", "same-site")},
		{"a link from another site", "GET", "/api/overview", 403, set("Sec-Fetch-Site", "cross-site")},
		{"a form", "POST", "/api/requeue", 415, set("Content-Type", "text/plain")},
		{"no content type", "POST", "/api/requeue", 415, without("Content-Type")},
		{"no session header", "GET", "/api/overview", 401, without(sessionHeader)},
		{"no session header, changing", "POST", "/api/requeue", 401, without(sessionHeader)},
		{"another session header", "POST", "/api/requeue", 401, set(sessionHeader, b.session+"A")},
		{"no cookie", "GET", "/api/overview", 401, without("Cookie")},
		{"no cookie, changing", "POST", "/api/requeue", 401, without("Cookie")},
		{"another cookie", "POST", "/api/requeue", 401, set("Cookie", b.cookie.Name+"="+b.session)},
		{"the cookie of another console", "POST", "/api/requeue", 401, set("Cookie", "once-console-80="+b.cookie.Value)},
	} {
		reply := b.send(row.method, row.path, requeue, row.change)
		if reply.Code != row.status {
			t.Errorf("%s: status %d, want %d: %s", row.name, reply.Code, row.status, reply.Body)
		}
	}
	if b.audit.String() != "" {
		t.Errorf("something was written:\n%s", b.audit)
	}
	b.decode(b.send("POST", "/api/requeue", requeue), http.StatusOK, &map[string]any{}) // the request of the rows is a good one
}

// The address works once, and what it gives is no use elsewhere.
func TestConsole_Session(t *testing.T) {
	t.Parallel()
	b := newBrowser(newDesk(t), false)
	defer b.close()
	c := b.cookie
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/api/" || c.Domain != "" || c.Name != "once-console-4711" {
		t.Errorf("the cookie is %s", c)
	}
	if len(b.ticket) < 26 || len(c.Value) < 26 || len(b.session) < 26 || c.Value == b.session || b.ticket == b.session {
		t.Errorf("the secrets are %q, %q, %q", b.ticket, c.Value, b.session)
	}
	for _, ticket := range []string{b.ticket, "", b.ticket[:25], b.session} {
		reply := b.send("POST", "/api/session", `{"ticket":"`+ticket+`"}`)
		if reply.Code != http.StatusUnauthorized || len(reply.Result().Cookies()) != 0 {
			t.Errorf("the ticket %q: %d %s", ticket, reply.Code, reply.Body)
		}
	}
	b.get("/api/overview", &struct{}{}) // the session is still open

	d, ticket := newDoor(consoleHost)
	closed := &browser{t: t, handler: b.site.handler(d)}
	for _, ticket := range []string{"", "A", ticket + "A"} { // a wrong ticket does not use the right one up
		if reply := closed.send("POST", "/api/session", `{"ticket":"`+ticket+`"}`); reply.Code != http.StatusUnauthorized {
			t.Errorf("the ticket %q: %d", ticket, reply.Code)
		}
	}
	if reply := closed.send("GET", "/api/overview", ""); reply.Code != http.StatusUnauthorized {
		t.Errorf("before a session: %d %s", reply.Code, reply.Body)
	}
	closed.open(b.site)
}

// The page loads nothing from elsewhere, has no inline script or style, and fits no
// frame. No answer is kept by the browser.
func TestConsole_Page(t *testing.T) {
	t.Parallel()
	b := newBrowser(newDesk(t, aNight(t)...), false)
	defer b.close()
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/console.js": "text/javascript; charset=utf-8", "/record.js": "text/javascript; charset=utf-8",
		"/style.css": "text/css; charset=utf-8", "/console.css": "text/css; charset=utf-8", "/icon.svg": "image/svg+xml", "/api/overview": "application/json",
	} {
		reply := b.send("GET", path, "")
		h := reply.Header()
		csp := h.Get("Content-Security-Policy")
		if reply.Code != 200 || h.Get("Content-Type") != kind || h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.Contains(csp, "default-src 'self'") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: %d %v", path, reply.Code, h)
		}
		text := reply.Body.String()
		for _, not := range []string{"<script>", "<style", " style=", " onclick", " onload", "innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "https://", "document.write"} {
			if strings.Contains(text, not) {
				t.Errorf("%s contains %s", path, not)
			}
		}
	}
}

// Without --allow-resolve nothing changes, and never by GET.
func TestConsole_ReadOnly(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	before, err := os.ReadFile(d.file)
	if err != nil {
		t.Fatal(err)
	}
	b := newBrowser(d, false)
	for _, path := range changePaths {
		for _, more := range [][]any{{}, {"confirm", "yes"}, {"exhausted", true, "confirm", "1"}} {
			if answer := b.post(path, b.order(refundKey.RecordID(), more...), http.StatusForbidden); !strings.Contains(fmt.Sprint(answer["error"]), "read-only") {
				t.Errorf("%s: %v", path, answer)
			}
		}
	}
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(d.file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed (%v)", err)
	}
	b = newBrowser(d, true)
	defer b.close()
	for _, path := range append(changePaths, "/api/session", "/api/find", "/api/count") {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete} {
			reply := b.send(method, path+"?record="+escape(string(refundKey.RecordID()))+"&reason=any&confirm=yes", "", func(r *http.Request) {
				r.Header.Set("Origin", "http://"+consoleHost)
				r.Header.Set("Content-Type", "application/json")
			})
			if reply.Code != http.StatusNotFound && reply.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, reply.Code)
			}
		}
	}
	if b.audit.String() != "" {
		t.Errorf("something was written:\n%s", b.audit)
	}
}

// auditedBy returns the one line of an audit, without the name of the file.
func auditedBy(t *testing.T, text, file string) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(text, file, "once.db")) {
		if strings.HasPrefix(line, "{") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 {
		t.Fatalf("want one line of the audit, got\n%s", text)
	}
	return lines[0]
}

// The console writes what the command line writes: the same record, and the same
// line of the audit.
func TestConsole_LikeTheCommandLine(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, path string
		key        idempotent.Key
		more       []any
		confirm    string // "" for the record's hash
		args       []string
	}{
		{"result", "/api/resolve", transferKey, []any{"evidence", map[string]any{"completed": map[string]any{"id": "tr_17"}}}, "yes", []string{"resolve", "--completed", `{"id":"tr_17"}`}},
		{"response", "/api/resolve", chargeKey, []any{"evidence", map[string]any{"response": map[string]any{"status": 201, "header": map[string][]string{"Location": {"/charges/ch_5"}}, "body": `{"id":"ch_5"}`}}, "force", true}, "yes",
			[]string{"resolve", "--status", "201", "--header", "Location: /charges/ch_5", "--completed", `{"id":"ch_5"}`}},
		{"final", "/api/resolve", chargeKey, []any{"evidence", map[string]any{"final": map[string]any{"code": "refused", "message": "no"}}}, "yes", []string{"resolve", "--final", "refused", "--message", "no"}},
		{"without result", "/api/resolve", refundKey, []any{"evidence", map[string]any{"without_result": true}}, "yes", []string{"resolve", "--without-result"}},
		{"step", "/api/resolve", transferKey, []any{"evidence", map[string]any{"step": map[string]any{"name": "pay", "result": map[string]any{"id": 1}}}}, "yes", []string{"resolve", "--step", `pay={"id":1}`}},
		{"corrected step", "/api/resolve", transferKey, []any{"evidence", map[string]any{"corrected_step": map[string]any{"name": "reserve", "result": 2}}}, "yes", []string{"resolve", "--correct-step", `reserve=2`}},
		{"not executed", "/api/resolve", chargeKey, []any{"evidence", map[string]any{"not_executed": tokenOf(unknownCharge())}}, "", []string{"resolve", "--not-executed", "--token", tokenOf(unknownCharge())}},
		{"forget", "/api/forget", paidKey, []any{"token", "TOKEN"}, "", []string{"forget", "--token", "TOKEN"}},
		{"requeue", "/api/requeue", refundKey, nil, "", []string{"requeue"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			id := row.key.RecordID()
			typed, pressed := newDesk(t, aNight(t)...), newDesk(t, aNight(t)...)
			token := typed.get(id)
			for i := range row.args {
				row.args[i] = strings.ReplaceAll(row.args[i], "TOKEN", token.Token())
			}
			for i := range row.more {
				if row.more[i] == "TOKEN" {
					row.more[i] = token.Token()
				}
			}
			typed.world.stdinTTY = true
			args := append(slices.Clone(row.args), string(id), "--reason", anyReason, "--yes")
			line := auditedBy(t, typed.once(args...).ok().err, typed.file)

			b := newBrowser(pressed, true)
			members := b.order(id, row.more...)
			if row.name != "requeue" {
				word := row.confirm
				if word == "" {
					word = id.KeyHash()
				}
				asked := b.post(row.path, members, http.StatusOK)
				if asked["word"] != word || asked["outcome"] != outcomeWouldWrite || len(asked["facts"].([]any)) < 4 || asked["warning"] == "" {
					t.Errorf("the question is %v", asked)
				}
				for _, wrong := range []string{"", "no", word + "!"} {
					members["confirm"] = wrong
					b.post(row.path, members, http.StatusConflict)
				}
				if b.audit.String() != "" || b.show(id).Version != members["version"] {
					t.Errorf("without a confirmation: the audit has\n%s", b.audit)
				}
				members["confirm"] = word
			}
			written := b.post(row.path, members, http.StatusOK)
			if written["outcome"] != outcomeWritten {
				t.Errorf("the answer is %v", written)
			}
			if got := auditedBy(t, b.audit.String(), pressed.file); got != line {
				t.Errorf("the audit has\n%swant\n%s", got, line)
			}
			if err := b.close(); err != nil {
				t.Fatal(err)
			}
			want, got := typed.get(id), pressed.get(id)
			want.Version, got.Version = driver.Version{}, driver.Version{} // drawn by chance
			if fmt.Sprintf("%+v", want) != fmt.Sprintf("%+v", got) {
				t.Errorf("the record is\n%+v\nwant\n%+v", got, want)
			}
		})
	}
}

// The checks of the command line refuse what they refuse there.
func TestConsole_Refusals(t *testing.T) {
	t.Parallel()
	b := newBrowser(newDesk(t, aNight(t)...), true)
	defer b.close()
	evidence := func(name string, value any) []any {
		return []any{"evidence", map[string]any{name: value}, "confirm", "yes"}
	}
	stale := b.order(transferKey.RecordID(), evidence("without_result", true)...)
	stale["version"] = strings.Repeat("0", 32)
	for _, row := range []struct {
		name, path string
		order      map[string]any
		status     int
		says       string
	}{
		{"no reason", "/api/resolve", b.order(chargeKey.RecordID(), append(evidence("without_result", true), "reason", " ")...), 400, "write how you know"},
		{"no reason to requeue", "/api/requeue", b.order(refundKey.RecordID(), "reason", ""), 400, "write how you know"},
		{"another record than shown", "/api/resolve", stale, 409, "has changed since it was shown"},
		{"no evidence", "/api/resolve", b.order(chargeKey.RecordID(), "confirm", "yes"), 400, "exactly one of"},
		{"two kinds", "/api/resolve", b.order(chargeKey.RecordID(), "evidence", map[string]any{"without_result": true, "not_executed": "x"}), 400, "exactly one of"},
		{"later", "/api/resolve", b.order(chargeKey.RecordID(), evidence("later", "5m")...), 400, "not evidence"},
		{"another form", "/api/resolve", b.order(chargeKey.RecordID(), evidence("completed", map[string]any{})...), 409, `stores results with the codec`},
		{"another shape", "/api/resolve", b.order(chargeKey.RecordID(), evidence("response", map[string]any{"status": 201, "body": `[1]`})...), 409, "differs from 1 stored result"},
		{"a live lease", "/api/resolve", b.order(runningKey.RecordID(), evidence("without_result", true)...), 409, "in progress"},
		{"a settled record", "/api/resolve", b.order(paidKey.RecordID(), evidence("without_result", true)...), 409, "another outcome"},
		{"the token of another attempt", "/api/resolve", b.order(chargeKey.RecordID(), "evidence", map[string]any{"not_executed": "00"}, "confirm", chargeKey.RecordID().KeyHash()), 409, "the token is not that of its current attempt"},
		{"forget with another token", "/api/forget", b.order(paidKey.RecordID(), "token", "00", "confirm", paidKey.RecordID().KeyHash()), 409, "the token is not that of its current attempt"},
		{"forget what has no outcome", "/api/forget", b.order(chargeKey.RecordID(), "token", tokenOf(unknownCharge()), "confirm", chargeKey.RecordID().KeyHash()), 409, "has no stored outcome"},
		{"requeue what does not wait", "/api/requeue", b.order(paidKey.RecordID()), 409, "does not wait for evidence"},
		{"a record that does not exist", "/api/requeue", map[string]any{"record": key("no", "such", "key").RecordID(), "reason": "any"}, 404, "no such record"},
		{"no record", "/api/requeue", map[string]any{"record": "charge", "reason": "any"}, 400, "invalid"},
		{"an unknown member", "/api/requeue", map[string]any{"why": "any"}, 400, "unknown field"},
	} {
		if answer := b.post(row.path, row.order, row.status); !strings.Contains(fmt.Sprint(answer["error"]), row.says) {
			t.Errorf("%s: %v, want %q", row.name, answer, row.says)
		}
	}
	for id, state := range map[idempotent.RecordID]string{chargeKey.RecordID(): "unknown", transferKey.RecordID(): "unknown", paidKey.RecordID(): "completed", runningKey.RecordID(): "in_progress"} {
		if got := b.show(id).Record.State; got != state {
			t.Errorf("%s is %s, want %s", id, got, state)
		}
	}
	if strings.Contains(b.audit.String(), outcomeWritten) {
		t.Errorf("the audit has\n%s", b.audit)
	}
	// What could not be compared is a note on the page, and not a line of the audit.
	asked := b.post("/api/resolve", b.order(transferKey.RecordID(), "evidence", map[string]any{"completed": 1}), http.StatusOK)
	if fmt.Sprint(asked["notes"]) != "[not compared: no stored result of transfer in 10 records]" || strings.Contains(b.audit.String(), "not compared") {
		t.Errorf("the notes are %v, and the audit\n%s", asked["notes"], b.audit)
	}
}

// All records that were given up are requeued after their number was confirmed.
func TestConsole_RequeueAll(t *testing.T) {
	t.Parallel()
	given := func(id string) driver.Record {
		return record(key("refund", "acme", id), 60*time.Hour, func(r *driver.Record) {
			settled(r, driver.StateUnknown, driver.ReasonUnknown, 60*time.Hour)
			r.Exhausted, r.ReconcileAttempts = true, 9
		})
	}
	d := newDesk(t, append(aNight(t), given("a"), given("b"))...)
	b := newBrowser(d, true)
	defer b.close()
	b.get("/api/overview", &counts{}) // what is shown is not kept over a change
	all := map[string]any{"exhausted": true, "operations": []string{"refund"}, "reason": anyReason}
	if asked := b.post("/api/requeue", all, http.StatusOK); asked["word"] != "3" {
		t.Errorf("the question is %v", asked)
	}
	all["operations"] = []string{"mail"}
	if asked := b.post("/api/requeue", all, http.StatusOK); asked["word"] != "0" {
		t.Errorf("of another operation: the question is %v", asked)
	}
	delete(all, "operations")
	all["confirm"] = "2" // one was given up since
	b.post("/api/requeue", all, http.StatusConflict)
	all["confirm"] = "3"
	done := b.post("/api/requeue", all, http.StatusOK)
	if s := done["summary"].(map[string]any); s["written"] != 3.0 || s["records"] != 3.0 || done["problems"] != nil {
		t.Errorf("the answer is %v", done)
	}
	if n := strings.Count(b.audit.String(), `"action":"requeue"`); n != 3 {
		t.Errorf("the audit has\n%s", b.audit)
	}
	var left counts
	b.get("/api/overview", &left)
	if left.Exhausted != 0 || left.Unknown != 5 {
		t.Errorf("afterwards: %+v", left)
	}
}

// After a change the lists are read again, although they were read just before.
func TestConsole_ShowsItsChanges(t *testing.T) {
	t.Parallel()
	b := newBrowser(newDesk(t, aNight(t)...), true)
	defer b.close()
	var shown counts
	if b.get("/api/overview", &shown); shown.Exhausted != 1 {
		t.Fatalf("before: %+v", shown)
	}
	b.post("/api/requeue", b.order(refundKey.RecordID()), http.StatusOK)
	if b.get("/api/overview", &shown); shown.Exhausted != 0 {
		t.Errorf("after a requeue: %+v", shown)
	}
}

// failingWriter is an audit on a full disk.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// After a line of the audit was lost, the console changes nothing more.
func TestConsole_BrokenAudit(t *testing.T) {
	t.Parallel()
	b := newBrowser(newDesk(t, aNight(t)...), true)
	defer b.close()
	b.site.audit.to = failingWriter{}
	b.post("/api/requeue", b.order(refundKey.RecordID()), http.StatusBadGateway)
	before := b.show(transferKey.RecordID()).Version
	for _, path := range changePaths {
		if answer := b.post(path, b.order(transferKey.RecordID(), "evidence", map[string]any{"without_result": true}, "confirm", "yes"), http.StatusConflict); !strings.Contains(fmt.Sprint(answer["error"]), "audit") {
			t.Errorf("%s: %v", path, answer)
		}
	}
	if after := b.show(transferKey.RecordID()).Version; after != before {
		t.Error("the record was changed")
	}
}

// The lists have each record once, the oldest first, in pages.
func TestConsole_Lists(t *testing.T) {
	t.Parallel()
	list := aNight(t)
	for i := range 120 {
		list = append(list, record(key("order", "acme", fmt.Sprint(i)), time.Duration(i+1)*time.Minute, func(r *driver.Record) {
			settled(r, driver.StateUnknown, driver.ReasonInterrupted, time.Duration(i+1)*time.Minute)
			if i%2 == 0 {
				r.State, r.Recovery = driver.StateRetryable, idempotent.Resume
				r.Due = night.Add(time.Hour)
			}
		}))
	}
	b := newBrowser(newDesk(t, list...), false)
	defer b.close()
	var first struct {
		counts
		Store        string
		AllowResolve bool `json:"allow_resolve"`
		Operator     string
	}
	b.get("/api/overview", &first)
	if first.Unknown != 63 || first.Exhausted != 1 || first.Resumable != 60 || !first.Complete || first.AllowResolve || !strings.HasPrefix(first.Store, "file ") || first.Operator != "ada@ops-1" || !first.Oldest.Equal(before(50*time.Hour)) {
		t.Errorf("got %+v", first)
	}
	if got := fmt.Sprint(first.Ages); got != "[{5m 2} {1h 29} {6h 31} {1d 0} {7d 1} { 0}]" {
		t.Errorf("the ages are %s", got)
	}
	var groups []string
	for _, g := range first.Groups {
		groups = append(groups, fmt.Sprintf("%s %s %d %d", g.Operation, g.State, g.Records, g.Exhausted))
	}
	if got := strings.Join(groups, ", "); got != "POST /charges in_progress 1 0, POST /charges unknown 1 0, mail in_progress 1 0, order resumable 60 0, order unknown 60 0, refund unknown 1 1, transfer unknown 1 0" {
		t.Errorf("the groups are %s", got)
	}
	var seen []row
	for offset := 0; ; {
		var p listPage
		b.get(fmt.Sprintf("/api/list?list=unknown&offset=%d", offset), &p)
		if p.Total != 63 || !p.Complete || len(p.Rows) > 20 {
			t.Fatalf("at %d: %d of %d rows", offset, len(p.Rows), p.Total)
		}
		if len(p.Rows) == 0 {
			break
		}
		seen = append(seen, p.Rows...)
		offset += len(p.Rows)
	}
	if len(seen) != 63 || seen[0].Record != refundKey.RecordID() || !seen[0].Exhausted || !slices.IsSortedFunc(seen, func(a, b row) int { return a.Since.Compare(b.Since.Time) }) {
		t.Errorf("%d rows, the first %+v", len(seen), seen[0])
	}
	for query, want := range map[string]int{"list=exhausted": 1, "list=resumable": 60, "list=unknown&operation=transfer": 1, "list=unknown&operation=no": 0} {
		var p listPage
		if b.get("/api/list?offset=0&"+query, &p); p.Total != want || len(p.Rows) != min(want, 20) {
			t.Errorf("%s: %d of %d rows, want %d", query, len(p.Rows), p.Total, want)
		}
	}
	for _, query := range []string{"", "list=all&offset=0", "list=unknown&offset=-1", "list=unknown&offset=many"} {
		if reply := b.send("GET", "/api/list?"+query, ""); reply.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", query, reply.Code)
		}
	}
}

// moving is a store in which a record moves to the list of those that were given up,
// between the reads of the two lists.
type moving struct{ records }

// Exhausted also lists the records that are due.
func (m moving) Exhausted(ctx context.Context) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		for e, err := range m.Due(ctx) {
			e.Due = e.Due.Add(time.Hour)
			if !yield(e, err) {
				return
			}
		}
	}
}

// A record that moves from one list to the other meanwhile is counted once, as it is
// in the later one.
func TestConsole_Moving(t *testing.T) {
	t.Parallel()
	b := newBrowser(newDesk(t, unknownCharge()), false)
	defer b.close()
	b.site.store.records = moving{b.site.store.records}
	var first counts
	if b.get("/api/overview", &first); first.Unknown != 1 || first.Exhausted != 1 || len(first.Groups) != 1 || first.Groups[0].Records != 1 {
		t.Errorf("got %+v", first)
	}
}

// A record is found as by once lookup. The key is in no output.
func TestConsole_Find(t *testing.T) {
	t.Parallel()
	b := newBrowser(newDesk(t, aNight(t)...), true)
	defer b.close()
	for _, members := range []map[string]any{
		{"record": "POST /charges", "global": true, "key": chargeKey.ID},
		{"record": string(chargeKey.RecordID())},
		{"record": "#4RexMqXSY3Lf"},
	} {
		if answer := b.post("/api/find", members, http.StatusOK); len(answer) != 1 || answer["record"] != string(chargeKey.RecordID()) {
			t.Errorf("%v: %v", members, answer)
		}
	}
	const secret = "0a9e7d52-4c1b-4f83-b6a0-3e8d15c7f294"
	missing := b.post("/api/find", map[string]any{"record": "POST /charges", "global": true, "key": secret}, http.StatusNotFound)
	invalid := b.post("/api/find", map[string]any{"record": "POST /charges", "key": secret}, http.StatusBadRequest)
	if text := fmt.Sprint(missing, invalid, b.audit); strings.Contains(text, secret) || strings.Contains(text, chargeKey.ID) {
		t.Errorf("the key is in %s", text)
	}
	b.post("/api/find", map[string]any{"record": "charge"}, http.StatusBadRequest)
	if reply := b.send("GET", "/api/record?id="+escape(string(key("no", "such", "key").RecordID())), ""); reply.Code != http.StatusNotFound {
		t.Errorf("no such record: %d", reply.Code)
	}
	if reply := b.send("POST", "/api/find", strings.Repeat(" ", maxAnswer)+"{}"); reply.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a large request: %d", reply.Code)
	}
}

// Results are shown only on request.
func TestConsole_Results(t *testing.T) {
	t.Parallel()
	b := newBrowser(newDesk(t, aNight(t)...), false)
	defer b.close()
	path := "/api/record?id=" + escape(string(transferKey.RecordID())) + "&step=extra"
	if text := b.send("GET", path, "").Body.String(); strings.Contains(text, "h_1") || !strings.Contains(text, `"name":"extra"`) {
		t.Errorf("got %s", text)
	}
	if text := b.send("GET", path+"&results=true", "").Body.String(); !strings.Contains(text, `"result":{"hold":"h_1"}`) {
		t.Errorf("got %s", text)
	}
	if text := b.send("GET", "/api/record?id="+escape(string(paidKey.RecordID()))+"&results=true", "").Body.String(); !strings.Contains(text, `"body":"{\"id\":\"ch_1\"}"`) {
		t.Errorf("got %s", text)
	}
}

// HTML in a record is data: it leaves the console as JSON, which no browser reads as
// a page.
func TestConsole_Escapes(t *testing.T) {
	t.Parallel()
	const evil = `<img src=x onerror=alert(1)></script>`
	r := record(key("refund"+evil, "acme", "r"), time.Hour, func(r *driver.Record) {
		settled(r, driver.StateUnknown, driver.ReasonUnknown, time.Hour)
		r.Ref, r.RequestID, r.TraceParent, r.Reason, r.ResultVersion, r.StepNames = evil, evil, evil, evil, evil, []string{evil}
		r.Steps = []driver.StepRecord{{Name: evil, Finished: true, Attempt: 1, At: night, Encoding: "json", Result: []byte(`"` + evil + `"`)}}
	})
	b := newBrowser(newDesk(t, r), true)
	defer b.close()
	body, err := json.Marshal(b.order(r.ID, "evidence", map[string]any{"final": map[string]string{"code": evil, "message": evil}}))
	if err != nil {
		t.Fatal(err)
	}
	for name, reply := range map[string]*httptest.ResponseRecorder{
		"record":   b.send("GET", "/api/record?results=true&id="+strings.NewReplacer("<", "%3C", ">", "%3E", "=", "%3D").Replace(escape(string(r.ID))), ""),
		"overview": b.send("GET", "/api/overview", ""),
		"list":     b.send("GET", "/api/list?list=unknown&offset=0", ""),
		"question": b.send("POST", "/api/resolve", string(body)),
		"error":    b.send("POST", "/api/find", `{"record":"`+evil+`"}`),
	} {
		h := reply.Header()
		if h.Get("Content-Type") != "application/json" || h.Get("X-Content-Type-Options") != "nosniff" || strings.Contains(reply.Body.String(), "<img") || !strings.Contains(reply.Body.String(), `\u003cimg`) {
			t.Errorf("%s: %d %v\n%s", name, reply.Code, h, reply.Body)
		}
	}
}

// A count of all records costs what its price says, and is that of once stats.
func TestConsole_Count(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	want := d.once("stats", "--json").ok().out
	b := newBrowser(d, false)
	defer b.close()
	var got, stats any
	b.decode(b.send("POST", "/api/count", "{}"), http.StatusOK, &got)
	if err := json.Unmarshal([]byte(want), &stats); err != nil || fmt.Sprint(got) != fmt.Sprint(stats) {
		t.Errorf("got %v, want %v (%v)", got, stats, err)
	}
	b.site.store.items = func(context.Context) int { return 1000 }
	b.site.store.bytes = func(context.Context) int { return 8192 * 1000 }
	var price struct {
		Items int
		Units float64 `json:"read_units"`
		USD   float64
	}
	b.get("/api/price", &price)
	if price.Items != 1000 || price.Units != 1000 || price.USD != 1000*readUnitUSD {
		t.Errorf("the price is %+v", price)
	}
	b.site.counting.Lock()
	if reply := b.send("POST", "/api/count", "{}"); reply.Code != http.StatusConflict {
		t.Errorf("during another count: %d", reply.Code)
	}
}

// million is a table whose index has many unknown records. It answers only bounded
// queries of the index: any other call ends the test.
type million struct {
	dynamostore.Client
	perShard int

	mu      sync.Mutex
	queries int
	entries int
}

// Query returns a page of a shard.
func (m *million) Query(_ context.Context, in *dynamodb.QueryInput, _ ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	if aws.ToString(in.IndexName) != dynamostore.IndexName || in.Limit == nil {
		return nil, fmt.Errorf("not a bounded query of the index: %+v", in)
	}
	shard := in.ExpressionAttributeValues[":shard"].(*types.AttributeValueMemberS).Value
	out := &dynamodb.QueryOutput{}
	if strings.HasPrefix(shard, "u#") { // due, not given up
		from := 0
		if start, ok := in.ExclusiveStartKey["n"].(*types.AttributeValueMemberN); ok {
			from, _ = strconv.Atoi(start.Value)
		}
		to := min(m.perShard, from+int(*in.Limit))
		for n := from; n < to; n++ {
			at := &types.AttributeValueMemberN{Value: fmt.Sprint(before(100*time.Hour).UnixMilli() + int64(n))}
			out.Items = append(out.Items, map[string]types.AttributeValue{
				dynamostore.PartitionKey: &types.AttributeValueMemberS{Value: fmt.Sprintf("charge#%s%041d", shard[2:], n)},
				dynamostore.IndexSortKey: at, dynamostore.IndexAttributes()[1]: at,
				dynamostore.IndexAttributes()[0]: &types.AttributeValueMemberS{Value: driver.StateUnknown.Code()},
			})
		}
		if to < m.perShard {
			out.LastEvaluatedKey = map[string]types.AttributeValue{"n": &types.AttributeValueMemberN{Value: strconv.Itoa(to)}}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queries, m.entries = m.queries+1, m.entries+len(out.Items)
	return out, nil
}

// The first screen of a table in which a million records are unknown takes a
// bounded number of queries of the index, and reads no record.
func TestConsole_Million(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		perShard, queries, entries, unknown int
		complete                            bool
	}{
		{0, 128, 0, 0, true},
		{50, 128, 64 * 50, 64 * 50, true},
		{1_000_000 / 64, 3 * 64, 64 * 2 * 250, listedAtMost, false}, // a page of each shard, and one page ahead
	} {
		table := &million{perShard: row.perShard}
		s, err := dynamostore.New(table, "once")
		if err != nil {
			t.Fatal(err)
		}
		w := newDesk(t).world
		b := &browser{t: t}
		b.open(newSite(t.Context(), &env{world: &w}, &opened{records: s, whole: s, name: "table once"}, nil))
		var first counts
		b.get("/api/overview", &first)
		var p listPage
		b.get("/api/list?list=unknown&offset=0", &p)
		if first.Unknown != row.unknown || first.Complete != row.complete || p.Total != row.unknown || p.Complete != row.complete || len(p.Rows) != min(row.unknown, 20) {
			t.Errorf("%d in each shard: %d unknown (complete: %t), %d of %d rows", row.perShard, first.Unknown, first.Complete, len(p.Rows), p.Total)
		}
		if table.queries > row.queries || table.entries > row.entries || table.queries == 0 {
			t.Errorf("%d in each shard: %d queries of %d entries, want at most %d of %d", row.perShard, table.queries, table.entries, row.queries, row.entries)
		}
	}
}

// The command prints an address that works, and ends with its context.
func TestConsole_Command(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	for _, row := range []struct {
		args []string
		mode string
	}{{nil, "read-only"}, {[]string{"--json"}, ""}, {[]string{"--allow-resolve", "--audit", audit}, "it can change records"}} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := d.world
		printed, out := io.Pipe()
		var errs sharedBuffer
		w.stdout, w.stderr = out, &errs
		code := make(chan int, 1)
		go func() { code <- run(ctx, &w, append([]string{"console", "--file", d.file}, row.args...)) }()
		address, err := bufio.NewReader(printed).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(row.args, "--json") {
			var doc struct {
				URL   string
				Allow bool `json:"allow_resolve"`
			}
			if err := json.Unmarshal([]byte(address), &doc); err != nil || doc.Allow {
				t.Errorf("%s: %v", address, err)
			}
			address = doc.URL
		}
		base, ticket, _ := strings.Cut(strings.TrimSpace(address), "/#")
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/api/session", strings.NewReader(`{"ticket":"`+ticket+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Origin", base)
		request.Header.Set("Content-Type", "application/json")
		reply, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		if reply.StatusCode != http.StatusOK || !strings.HasPrefix(base, "http://127.0.0.1:") || !strings.Contains(errs.String(), row.mode) || strings.Contains(errs.String(), ticket) {
			t.Errorf("%s: %d\n%s", address, reply.StatusCode, &errs)
		}
		cancel()
		if got := <-code; got != exitOK {
			t.Errorf("exit code %d: %s", got, &errs)
		}
		if _, err := http.Get(base); err == nil {
			t.Error("the console still answers")
		}
	}
	if info, err := os.Stat(audit); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the audit: %v, %v", info, err)
	}
	d.once("list").ok() // the file is closed
	d.once("console", "--no-index").exits(exitUsage).says("reads the index")
	d.once("console", "--port", "70000").exits(exitUsage).says("0 to 65535")
	d.once("console", "--allow-resolve", "--audit", filepath.Join(audit, "no")).exits(exitFailure).says("the audit cannot be written")
}
