package lambdahttp_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

func required(o *lambdahttp.Options) { o.RequireKey = true }

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
func once(mods ...func(*request)) func(*world) reply {
	return func(w *world) reply { return w.post(charge(mods...)) }
}

func twice(mods ...func(*request)) func(*world) reply {
	return func(w *world) reply {
		w.post(charge(mods...))
		return w.post(charge(mods...))
	}
}

// then sends a request to the handler h, and the same request again to a
// handler that succeeds.
func then(h handler) func(*world) reply {
	return func(w *world) reply {
		w.becomes(h)
		w.post(charge())
		w.becomes(created)
		return w.post(charge())
	}
}

// meanwhile sends a second request while the first one's handler runs.
func meanwhile(mods ...func(*request)) func(*world) reply {
	return func(w *world) (second reply) {
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
	w := newWorld(t, on, options)
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
	want := map[string]any{
		"type":   cmp.Or(r.base, "https://github.com/once-lambda/once/blob/main/docs/http.md#") + r.problem,
		"title":  r.title,
		"status": float64(r.status),
	}
	for k, v := range r.member {
		want[k] = v
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
