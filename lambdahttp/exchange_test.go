// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/once-lambda/once/internal/kit/exchange"
	"github.com/once-lambda/once/lambdahttp"
	"github.com/once-lambda/once/lambdahttp/internal/describe"
)

// F01, F03, F04, F09, F10, F12, F13, F20, F24, F50, F60, F65, F90, G07, G08: what clients
// send and get, for each event type and profile, and what is stored of it.
func TestExchanges(t *testing.T) {
	t.Parallel()
	for _, c := range exchange.Cases {
		for i, row := range c.Rows {
			inEachProfile(t, fmt.Sprint(c.Name, i), row.Profiles, func(t *testing.T, p *exchange.Profile) {
				onEachWire(t, func(t *testing.T, on wire) {
					synctest.Test(t, func(t *testing.T) { playExchange(t, on, p, row) })
				})
			})
		}
	}
}

// inEachProfile calls f for the profiles with these names, or for all.
func inEachProfile(t *testing.T, name, profiles string, f func(*testing.T, *exchange.Profile)) {
	for _, p := range exchange.Profiles {
		if p.In(profiles) {
			t.Run(name+"/"+p.Name, func(t *testing.T) {
				t.Parallel()
				f(t, p)
			})
		}
	}
}

func playExchange(t *testing.T, on wire, p *exchange.Profile, row exchange.Row) {
	w := newFixture(t, on, documented, func(o *lambdahttp.Options) { o.Profile = p.Value }, optionally(row.Options))
	numbered := func(context.Context, request) (reply, error) {
		id := fmt.Sprint("ch_", w.runs)
		return reply{status: 201, header: map[string]string{"Content-Type": "application/json", "Location": "/charges/" + id}, body: `{"id":"` + id + `"}`}, nil
	}
	got := make([]reply, len(row.Sends))
	for i, s := range row.Sends {
		if s.During {
			continue // is sent while the one before runs
		}
		w.becomes(func(ctx context.Context, r request) (reply, error) {
			w.becomes(numbered)
			own, err := numbered(ctx, r)
			for j := i + 1; j < len(row.Sends) && row.Sends[j].During; j++ {
				got[j] = w.post(sent(p, row.Sends[j]))
			}
			return own, err
		})
		w.clock.Advance(s.Later)
		got[i] = w.post(sent(p, s))
	}
	for i, s := range row.Sends {
		want := want{gets: s.Gets, base: "https://api.example.com/docs/keys#", header: map[string]string{}}
		if status := p.Status(s.Gets); status == 400 || status == 409 || status == 422 {
			want.header = maps.Clone(docsLink)
		}
		if s.NoKey && s.Gets == exchange.Passed {
			want.says = none
		}
		if s.Gets == "accepted" {
			want.header["Location"] = "/progress/1"
		}
		want.check(w, p, got[i])
		if s.Gets == exchange.Replay {
			wantReplay(t, got[i], got[s.Of])
		}
		if i > 0 && reflect.DeepEqual(s, row.Sends[i-1]) && exchange.Title(s.Gets) != "" && got[i].body != got[i-1].body {
			t.Errorf("request %d got %s, want %s again", i, got[i].body, got[i-1].body)
		}
	}
	w.wantRecord(row.Runs, row.Record)
}

// sent returns a request of the table.
func sent(p *exchange.Profile, s exchange.Send) request {
	key, other := keyA, keyV7
	if s.Other {
		key = keyV7
	}
	r := charge(withCaller(cmp.Or(s.Caller, exchange.Somebody)))
	r.method, r.path, r.body = s.Target("cus_1", key)
	r.path, r.query, _ = strings.Cut(r.path, "?")
	r.route = cmp.Or(s.Route, r.path)
	if s.Caller == exchange.Nobody {
		r.caller = ""
	}
	delete(r.header, "idempotency-key")
	lines := s.Lines
	switch {
	case s.NoKey:
		return r
	case lines == nil:
		lines = []string{"KEY"}
	}
	for i, line := range lines { // a second line has another spelling of the name
		name := []string{cmp.Or(s.Name, "idempotency-key"), "Idempotency-Key"}[i]
		r.header[name] = p.Line(line, key, other)
	}
	return r
}

// wantReplay checks that a is the response first again.
func wantReplay(t *testing.T, a, first reply) {
	t.Helper()
	a.header, first.header = lower(a.header), lower(first.header)
	for _, mark := range []string{"idempotent-replayed", "idempotency-status"} {
		delete(a.header, mark)
		delete(first.header, mark)
	}
	if a.status != first.status || a.body != first.body || !maps.Equal(a.header, first.header) {
		t.Errorf("got %+v, want the response %+v", a, first)
	}
}

// wantRecord checks how often the handler ran, and the record.
func (w *fixture) wantRecord(runs int, record string) {
	w.t.Helper()
	w.mu.Lock() // a server may run the handler
	ran := w.runs
	w.mu.Unlock()
	if ran != runs {
		w.t.Errorf("the handler ran %d times, want %d", ran, runs)
	}
	state := ""
	if rec := w.store.record(w.t); rec != nil {
		state = rec.State.String()
	}
	if state != record {
		w.t.Errorf("the record is %q, want %q", state, record)
	}
}

// want is what a response must be.
type want struct {
	gets       string            // see exchange.Send
	status     int               // of the handler's response; 0: 201
	replayed   bool              // a problem, see exchange.Replay
	base       string            // of the problem's type; "": the default
	stripe     string            // the code in Stripe's form; "": that of the problem
	member     map[string]string // members besides the standard ones
	retryAfter string            // "": any value, if the problem has one
	says       string            // Idempotency-Status; "": as in exchange.Says, if the profile has it
	header     map[string]string // further headers; "*" is any value
}

const none = "none"

// strict are headers that a response must not have unless it is wanted.
var strict = []string{"Link", "Idempotency-Expires", "Access-Control-Expose-Headers"}

// check compares a response in everything but the handler's own part.
func (want want) check(w *fixture, p *exchange.Profile, a reply) {
	w.t.Helper()
	want.checkPublished(w, a)
	problem := exchange.Title(want.gets) != ""
	status := cmp.Or(want.status, 201)
	if problem {
		status = p.Status(want.gets)
	}
	if a.status != status {
		w.t.Errorf("status %d, want %d", a.status, status)
	}
	replayed := map[bool]string{true: "true"}[want.replayed || want.gets == exchange.Replay]
	headers := map[string]string{"Idempotent-Replayed": replayed, "Idempotency-Status": want.says, "Retry-After": want.retryAfter, "Stripe-Should-Retry": ""}
	switch {
	case want.says == none:
		headers["Idempotency-Status"] = ""
	case want.says == "" && p.Name == "uuid":
		headers["Idempotency-Status"] = exchange.Says(want.gets)
	}
	if exchange.Waits(want.gets) {
		headers["Retry-After"] = cmp.Or(want.retryAfter, "*")
	}
	if p.Name == "stripe" && (want.gets == "outcome-unknown" || want.gets == "replay-unavailable") {
		headers["Stripe-Should-Retry"] = "false"
	}
	for _, name := range strict {
		headers[name] = ""
	}
	maps.Copy(headers, want.header)
	for name, value := range headers {
		if got := a.header[name]; got != value && (value != "*" || got == "") {
			w.t.Errorf("%s %q, want %q", name, got, value)
		}
	}
	for where, text := range map[string]string{"headers": fmt.Sprint(a.header), "body": a.body} {
		if strings.Contains(text, keyA) {
			w.t.Errorf("the key is in the %s: %s", where, text)
		}
	}
	switch {
	case !problem:
	case p.Name == "stripe":
		want.checkStripe(w, a)
	default:
		want.checkProblem(w, a)
	}
}

// leaseEnd is DefaultLease after the time at which the clock of a fixture starts.
const leaseEnd = "2000-01-01T00:15:00Z"

// checkProblem compares the response with the exact members of its problem.
func (want want) checkProblem(w *fixture, a reply) {
	w.t.Helper()
	media := "application/problem+json"
	if a.status < 400 {
		media = "application/json"
	}
	if a.header["Content-Type"] != media || a.header["Content-Language"] != "en" {
		w.t.Errorf("headers %v are not those of a problem", a.header)
	}
	var members map[string]any
	if err := json.Unmarshal([]byte(a.body), &members); err != nil {
		w.t.Fatalf("body %q: %v", a.body, err)
	}
	if detail, _ := members["detail"].(string); detail == "" || !strings.HasSuffix(detail, ".") {
		w.t.Errorf("detail %q is not a sentence", members["detail"])
	}
	if want.member["detail"] == "" {
		delete(members, "detail")
	}
	all := map[string]any{"type": "about:blank", "title": exchange.Title(want.gets), "status": float64(a.status), "code": want.gets}
	if want.base != "" {
		all["type"] = want.base + want.gets
	}
	if want.gets == "in-progress" || want.gets == "accepted" {
		all["until"] = leaseEnd
	}
	for k, v := range want.member {
		all[k] = v
	}
	if all["until"] == "" { // the row says that it is not known
		delete(all, "until")
	}
	if !maps.Equal(members, all) {
		w.t.Errorf("members %v, want %v", members, all)
	}
}

// checkStripe compares the response with the exact members of a Stripe error.
func (want want) checkStripe(w *fixture, a reply) {
	w.t.Helper()
	if a.header["Content-Type"] != "application/json" {
		w.t.Errorf("Content-Type is %q", a.header["Content-Type"])
	}
	var body map[string]map[string]string
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || len(body) != 1 {
		w.t.Fatalf("body %q: %v", a.body, err)
	}
	got := body["error"]
	if message := got["message"]; !strings.HasSuffix(message, ".") {
		w.t.Errorf("message %q is not a sentence", message)
	}
	delete(got, "message")
	kind, code := exchange.StripeError(want.gets)
	all := map[string]string{"type": kind, "code": cmp.Or(want.stripe, code)}
	if code == "idempotency_key_in_use" {
		all["until"] = leaseEnd
	}
	maps.Copy(all, want.member)
	delete(all, "detail") // is the message
	if !maps.Equal(got, all) {
		w.t.Errorf("error %v, want %v", got, all)
	}
}

// checkPublished compares a response with the policy of its handler: everything
// that a client can get must be published.
func (want want) checkPublished(w *fixture, a reply) {
	w.t.Helper()
	p := lambdahttp.PolicyOf(w.guard, w.options...)
	allowed := map[string][]string{"Content-Type": nil, "Content-Language": nil} // by name; nil: any value
	for _, h := range p.AddedHeaders {
		allowed[h.Name] = h.Values
	}
	if exchange.Title(want.gets) == "" {
		for _, name := range []string{"Location", "X-Charge-Id", "Date"} { // the handler's own
			allowed[name] = nil
		}
	} else if i := slices.IndexFunc(p.Answers, func(published describe.Answer) bool { return isPublished(published, a) }); i < 0 {
		w.t.Errorf("the policy has no response %d %s", a.status, a.body)
	} else {
		for _, h := range p.Answers[i].Headers {
			allowed[h.Name] = h.Values
			if h.Name == "Idempotency-Status" {
				allowed[h.Name] = append(allowed[h.Name], "replayed") // a Final outcome
			}
			if h.Always && a.header[h.Name] == "" {
				w.t.Errorf("the response has no %s, which is published", h.Name)
			}
		}
		if p.Answers[i].RetryAfter != (a.header["Retry-After"] != "") {
			w.t.Errorf("got Retry-After %q, published: %t", a.header["Retry-After"], p.Answers[i].RetryAfter)
		}
	}
	for name, value := range a.header {
		if values, ok := allowed[http.CanonicalHeaderKey(name)]; value != "" && (!ok || values != nil && !slices.Contains(values, value)) {
			w.t.Errorf("%s: got %s, but the published values are %q", name, value, values)
		}
	}
}

// isPublished reports whether a is the published response: its status, and the members
// by which a program identifies the situation, are the same.
func isPublished(published describe.Answer, a reply) bool {
	told := func(body []byte) map[string]any {
		var members map[string]any
		if json.Unmarshal(body, &members) != nil {
			return nil
		}
		if e, ok := members["error"].(map[string]any); ok {
			members = e
		}
		if published.Situation == "final" {
			members["code"] = "" // the handler's
		}
		return map[string]any{"type": members["type"], "title": members["title"], "code": members["code"]}
	}
	got := told([]byte(a.body))
	return published.Status == a.status && got != nil && maps.Equal(got, told(published.Example.Body))
}
