// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// row is one situation: the requests to send, and what the last response must
// be.
type row struct {
	id        string
	profile   string // a key of profiles; "": IETF
	situation string
	options   func(*lambdahttp.Options)
	play      func(*fixture) reply

	status     int
	base       string // of the problem's type; "": the default
	problem    string // suffix of the problem's type; "": not a problem
	title      string
	stripe     string            // type and code of an error in Stripe's form
	member     map[string]string // members besides the standard ones
	retryAfter string
	replayed   bool
	says       string            // Idempotency-Status
	header     map[string]string // further headers; "*" is any value
	runs       int               // of the handler, in total
	record     string            // its state afterwards; "": no record
}

var profiles = map[string]lambdahttp.Profile{"": {}, "Stripe": lambdahttp.Stripe, "UUID": lambdahttp.UUID}

// strict are headers that a response must not have unless its row names them.
var strict = []string{"Link", "Idempotency-Expires", "Access-Control-Expose-Headers", "Stripe-Should-Retry"}

const (
	titleMissing     = "Idempotency-Key is missing"
	titleInvalid     = "Idempotency-Key is invalid"
	titleReused      = "Idempotency-Key is already used"
	titleOutstanding = "A request is outstanding for this Idempotency-Key"
	titleUnknown     = "The outcome for this Idempotency-Key is unknown"
	titleUnavailable = "The response for this Idempotency-Key cannot be repeated"
	titleStore       = "Idempotency cannot be guaranteed at the moment"
)

var rows = slices.Concat(keyRows, answerRows, outcomeRows, optionRows)

// optional lets requests without a key run.
func optional(o *lambdahttp.Options) {
	o.Guard = func(g *idempotent.Options) { g.AllowMissingKey = true }
}

func guard(f func(*idempotent.Options)) func(*lambdahttp.Options) {
	return func(o *lambdahttp.Options) { o.Guard = f }
}

var rerun = guard(func(o *idempotent.Options) { o.Recovery = idempotent.Rerun })

// resume declares the step that resumed takes.
var resume = guard(func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, []string{"charge"} })

func serverErrors(p lambdahttp.ServerErrors, also ...func(*lambdahttp.Options)) func(*lambdahttp.Options) {
	return func(o *lambdahttp.Options) {
		o.ServerErrors = p
		for _, f := range also {
			f(o)
		}
	}
}

// once sends one request, and twice sends the same request two times.
func once(mods ...func(*request)) func(*fixture) reply {
	return func(w *fixture) reply { return w.post(charge(mods...)) }
}

func twice(mods ...func(*request)) func(*fixture) reply {
	return func(w *fixture) reply {
		w.post(charge(mods...))
		return w.post(charge(mods...))
	}
}

// twiceWith is twice, with the headers that the replay must have.
func twiceWith(headers map[string]string) func(*fixture) reply {
	return func(w *fixture) reply {
		a := twice()(w)
		if !maps.Equal(a.header, headers) || len(a.cookies) != 0 {
			w.t.Errorf("the replay has the headers %v and the cookies %v, want %v", a.header, a.cookies, headers)
		}
		return a
	}
}

// then sends a request to the handler h, and the same request again to a
// handler that succeeds.
func then(h handler) func(*fixture) reply {
	return func(w *fixture) reply {
		w.becomes(h)
		w.post(charge())
		w.becomes(created)
		return w.post(charge())
	}
}

// meanwhile sends a second request while the first one's handler runs.
func meanwhile(mods ...func(*request)) func(*fixture) reply {
	return func(w *fixture) (second reply) {
		w.becomes(duringRun(func() { second = w.post(charge(mods...)) }))
		w.post(charge())
		return second
	}
}

// G07: every row, for each event type.
func TestRows(t *testing.T) {
	t.Parallel()
	for chunk := range rowsByID() {
		t.Run(chunk[0].id, func(t *testing.T) {
			t.Parallel()
			for _, r := range chunk {
				t.Run(r.situation, func(t *testing.T) {
					t.Parallel()
					onEachWire(t, r.test)
				})
			}
		})
	}
}

// rowsByID yields the rows of one id together.
func rowsByID() func(func([]row) bool) {
	return func(yield func([]row) bool) {
		for i := 0; i < len(rows); {
			end := i + 1
			for end < len(rows) && rows[end].id == rows[i].id {
				end++
			}
			if !yield(rows[i:end]) {
				return
			}
			i = end
		}
	}
}

// test runs the row in a synctest bubble, in which times are exact and waiting
// takes no real time.
func (r row) test(t *testing.T, on wire) {
	synctest.Test(t, func(t *testing.T) { r.check(t, on) })
}

func (r row) check(t *testing.T, on wire) {
	options := func(o *lambdahttp.Options) {
		o.Profile = profiles[r.profile]
		if r.options != nil {
			r.options(o)
		}
	}
	w := newFixture(t, on, options)
	a := r.play(w)
	r.checkPublished(t, w.guard, a, func(o *lambdahttp.Options) { o.Scope = on.scope }, options)

	if a.status != r.status {
		t.Errorf("status %d, want %d", a.status, r.status)
	}
	if got := a.header["Idempotent-Replayed"]; (got == "true") != r.replayed || got != "" && got != "true" {
		t.Errorf("Idempotent-Replayed %q, want replayed: %t", got, r.replayed)
	}
	want := map[string]string{"Idempotency-Status": r.says, "Retry-After": r.retryAfter}
	for _, name := range strict {
		want[name] = ""
	}
	maps.Copy(want, r.header)
	for name, value := range want {
		if got := a.header[name]; got != value && (value != "*" || got == "") {
			t.Errorf("%s %q, want %q", name, got, value)
		}
	}
	if w.runs != r.runs {
		t.Errorf("the handler ran %d times, want %d", w.runs, r.runs)
	}
	state := ""
	if rec := w.store.record(t); rec != nil {
		state = rec.State.String()
	}
	if state != r.record {
		t.Errorf("the record is %q, want %q", state, r.record)
	}
	switch {
	case r.stripe != "":
		r.checkStripe(t, a)
	case r.problem != "":
		r.checkProblem(t, a)
	case a.body != `{"id":"ch_1"}`:
		t.Errorf("got the body %q, want the handler's", a.body)
	}
	for name, value := range a.header {
		if strings.Contains(value, keyA) {
			t.Errorf("the key is in the header %s", name)
		}
	}
	if strings.Contains(a.body, keyA) {
		t.Errorf("the key is in the body %s", a.body)
	}
}

// leaseEnd is DefaultLease after the time at which the clock of a fixture starts.
const leaseEnd = "2000-01-01T00:15:00Z"

// checkProblem compares the response with the exact members of its problem.
func (r row) checkProblem(t *testing.T, a reply) {
	t.Helper()
	media := "application/problem+json"
	if r.status < 400 {
		media = "application/json"
	}
	if a.header["Content-Type"] != media || a.header["Content-Language"] != "en" {
		t.Errorf("headers %v are not those of a problem", a.header)
	}
	var members map[string]any
	if err := json.Unmarshal([]byte(a.body), &members); err != nil {
		t.Fatalf("body %q: %v", a.body, err)
	}
	if detail, _ := members["detail"].(string); detail == "" || !strings.HasSuffix(detail, ".") {
		t.Errorf("detail %q is not a sentence", members["detail"])
	}
	if r.member["detail"] == "" {
		delete(members, "detail")
	}
	want := map[string]any{"type": "about:blank", "title": r.title, "status": float64(r.status), "code": r.problem}
	if r.base != "" {
		want["type"] = r.base + r.problem
	}
	if r.problem == "in-progress" || r.problem == "accepted" {
		want["until"] = leaseEnd
	}
	for k, v := range r.member {
		want[k] = v
	}
	if want["until"] == "" { // the row says that it is not known
		delete(want, "until")
	}
	if !maps.Equal(members, want) {
		t.Errorf("members %v, want %v", members, want)
	}
}

// checkStripe compares the response with the exact members of a Stripe error.
func (r row) checkStripe(t *testing.T, a reply) {
	t.Helper()
	if a.header["Content-Type"] != "application/json" {
		t.Errorf("Content-Type is %q", a.header["Content-Type"])
	}
	var body map[string]map[string]string
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || len(body) != 1 {
		t.Fatalf("body %q: %v", a.body, err)
	}
	got := body["error"]
	if message := got["message"]; !strings.HasSuffix(message, ".") {
		t.Errorf("message %q is not a sentence", message)
	}
	delete(got, "message")
	kind, code, _ := strings.Cut(r.stripe, " ")
	want := map[string]string{"type": kind, "code": code}
	if code == "idempotency_key_in_use" {
		want["until"] = leaseEnd
	}
	maps.Copy(want, r.member)
	if !maps.Equal(got, want) {
		t.Errorf("error %v, want %v", got, want)
	}
}

// Every row of the design has a test, and one for each profile if profiles
// differ.
func TestEveryRowIsTested(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, r := range rows {
		tested[r.id], tested[r.id+r.profile] = true, true
	}
	for n := 1; n <= 33; n++ {
		if id := fmt.Sprintf("HTTP-%02d", n); !tested[id] {
			t.Errorf("requirement %s has no row", id)
		}
	}
	for _, n := range []int{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 31} {
		for _, profile := range []string{"Stripe", "UUID"} {
			if id := fmt.Sprintf("HTTP-%02d", n); !tested[id+profile] {
				t.Errorf("requirement %s has no row for the profile %s", id, profile)
			}
		}
	}
}

// The options and request sequences that several rows share.

func bodyKey(o *lambdahttp.Options) { o.KeyFrom = lambdahttp.BodyField("idempotency_key") }

func withBodyKey(member string) func(*request) {
	return withBody(`{"amount":1250,"idempotency_key":` + member + `}`)
}

func at(path string) func(*request) {
	return func(r *request) { r.path, r.route = path, path }
}

// to sends a request to a path that a route has matched, and mounted behind a
// stage or base path.
func to(route, path string) func(*request) {
	return func(r *request) { r.route, r.path = route, path }
}

func mounted(mount string) func(*request) { return func(r *request) { r.mount = mount } }

// vanished sends a request whose process ends before it reports its outcome,
// and the same request again after the lease.
func vanished(w *fixture) reply {
	w.store.set(func(s *faultyStore) { s.replaceErr = errDown })
	w.post(charge())
	w.store.set(func(s *faultyStore) { s.replaceErr = nil })
	w.clock.Advance(16 * time.Minute)
	return w.post(charge())
}

// overtaken sends a request whose handler fails after its lease, when another request
// has run over the store as set makes it.
func overtaken(set func(*faultyStore)) func(*fixture) reply {
	return func(w *fixture) reply {
		w.becomes(func(context.Context, request) (reply, error) {
			w.clock.Advance(16 * time.Minute)
			w.becomes(duringRun(func() { w.store.set(set) }))
			w.post(charge())
			w.store.set(func(s *faultyStore) { s.replaceErr, s.noResults = nil, false })
			return reply{}, errDown
		})
		return w.post(charge())
	}
}

// resumed sends a request that charges in a step and whose process ends after
// the step. It sends the same request again after the lease, which must not
// charge again.
func resumed(w *fixture) reply {
	charges := 0
	w.becomes(func(ctx context.Context, r request) (reply, error) {
		if _, err := idempotent.Step(ctx, "charge", func(context.Context) (string, error) {
			charges++
			return "ch_1", nil
		}); err != nil {
			return reply{}, err
		}
		if w.runs == 1 {
			w.store.set(func(s *faultyStore) { s.replaceErr = errDown })
		}
		return created(ctx, r)
	})
	w.post(charge())
	w.store.set(func(s *faultyStore) { s.replaceErr = nil })
	w.clock.Advance(16 * time.Minute)
	a := w.post(charge())
	if charges != 1 {
		w.t.Errorf("charged %d times, want once", charges)
	}
	return a
}

// unheard sends a request whose handler returns an unknown outcome, and the
// same request again 20 s later.
func unheard(w *fixture) reply {
	w.becomes(answers(0, idempotent.Unknown(errDown)))
	if _, err := w.send(w.t.Context(), charge()); err == nil {
		w.t.Error("the handler's error did not reach Lambda")
	}
	w.clock.Advance(20 * time.Second)
	return w.post(charge())
}

// secret is a handler whose response must not be stored.
func secret(hint string) handler {
	return func(ctx context.Context, r request) (reply, error) {
		lambdahttp.NoStore(ctx, hint)
		return created(ctx, r)
	}
}

// refusal is a handler that does nothing and declares NotExecuted.
func refusal(status int) handler {
	return answers(status, idempotent.NotExecuted(errDown))
}

func refusing(err error) func(*lambdahttp.Options) {
	return func(o *lambdahttp.Options) {
		o.BeforeReplay = func(context.Context, *lambdahttp.Request, lambdahttp.Response) error { return err }
	}
}

// inFront sends a request that a layer in front of the guarded handler refuses,
// and the same request again without that layer.
func inFront(status int) func(*fixture) reply {
	return func(w *fixture) reply {
		open := false
		front := func(r request) reply {
			if !open {
				return reply{status: status}
			}
			return w.post(r)
		}
		if a := front(charge()); a.status != status || w.runs != 0 || w.store.calls != 0 {
			w.t.Errorf("status %d after %d runs and %d calls of the store", a.status, w.runs, w.store.calls)
		}
		open = true
		return front(charge())
	}
}

func waitFor(d time.Duration) func(*lambdahttp.Options) {
	return guard(func(o *idempotent.Options) {
		still, began := o.Now(), time.Now()
		o.WaitFor, o.Now = d, func() time.Time { return still.Add(time.Since(began)) }
	})
}

// waiting sends a request that takes some time, and a second one at the same
// time that must get its response after least to most.
func waiting(takes, least, most time.Duration) func(*fixture) reply {
	return func(w *fixture) reply { return w.waits(takes, 0, least, most) }
}

// waits is waiting with a second request that has a deadline, unless it is 0.
func (w *fixture) waits(takes, deadline, least, most time.Duration) (second reply) {
	ctx := w.t.Context()
	if deadline != 0 {
		ctx = w.clock.Invocation(ctx, deadline)
	}
	done := make(chan struct{})
	w.becomes(duringRun(func() {
		w.becomes(created)
		go func() {
			defer close(done)
			begun := time.Now()
			var err error
			if second, err = w.send(ctx, charge()); err != nil {
				w.t.Error(err)
			}
			if waited := time.Since(begun).Truncate(time.Millisecond); waited < least || waited > most {
				w.t.Errorf("the response took %s, want %s to %s", waited, least, most)
			}
		}()
		<-time.After(takes)
	}))
	w.post(charge())
	<-done
	return second
}

func accepting(o *lambdahttp.Options) {
	o.Accepted = func(r *lambdahttp.Request, _ idempotent.RecordID) string { return "/work" + r.Path }
}

func telling(o *lambdahttp.Options)  { o.Profile.StatusHeader = true }
func expiring(o *lambdahttp.Options) { o.ExpiresHeader = true }
func exposing(o *lambdahttp.Options) { o.ExposeHeaders = true }

func documented(o *lambdahttp.Options) { o.DocsURL = "https://api.example.com/docs/keys" }

var docsLink = map[string]string{"Link": `<https://api.example.com/docs/keys>; rel="describedby"; type="text/html"`}

// expiresIn sends a request and checks that its outcome expires after d, within
// the second that an HTTP date rounds off.
func expiresIn(d time.Duration) func(*fixture) reply {
	return func(w *fixture) reply {
		a := w.post(charge())
		at, err := http.ParseTime(a.header["Idempotency-Expires"])
		if left := at.Sub(w.clock.Now()); err != nil || left > d || left < d-10*time.Second {
			w.t.Errorf("Idempotency-Expires %q is in %s (%v), want %s", a.header["Idempotency-Expires"], left, err, d)
		}
		return a
	}
}
