// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// A policy needs the same valid options as a handler, and shows the final
// options of the guard.
func TestPolicyOfOptions(t *testing.T) {
	t.Parallel()
	if _, err := lambdahttp.NewPolicy(newGuard(t), single, guard(func(o *idempotent.Options) { o.Retention = time.Minute })); err == nil {
		t.Error("a retention of a minute was published")
	}
	made := func(optFns ...func(*lambdahttp.Options)) *lambdahttp.Policy {
		t.Helper()
		p, err := lambdahttp.NewPolicy(newGuard(t), append([]func(*lambdahttp.Options){single}, optFns...)...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	made(func(o *lambdahttp.Options) { // the last that are valid
		o.Profile.ServerErrors, o.Profile.Answers[lambdahttp.NoTimeLeft].Status = lambdahttp.ReleaseServerErrors, 599
	})
	if got := made().Retention; got != 24*time.Hour {
		t.Errorf("the default retention is %s", got)
	}
	if got := made().WaitFor; got != 0 {
		t.Errorf("by default a request waits %s", got)
	}
	for timeout, want := range map[time.Duration]time.Duration{0: 26 * time.Second, time.Second: 0} {
		patient := made(guard(func(o *idempotent.Options) { o.WaitFor = time.Hour }), func(o *lambdahttp.Options) { o.GatewayTimeout = timeout })
		if got := patient.WaitFor; got != want {
			t.Errorf("a request waits %s, want %s, the gateway's limit", got, want)
		}
	}
	if p := made(func(o *lambdahttp.Options) {
		o.Scope.Description, o.Fingerprint = "", lambdahttp.FingerprintRule{Of: lambdahttp.WholeRequest.Of}
	}); p.Scope != "the authenticated caller" || !strings.HasPrefix(p.Fingerprint, "the method, the path") {
		t.Errorf("without descriptions: %q, %q", p.Scope, p.Fingerprint)
	}
	for want, names := range map[string][]string{
		"* X-Csrf-Token": {"*", "X-CSRF-Token", "Location"},
		"Content-Encoding Content-Range Content-Type X-Csrf-Token": {"x-csrf-token", "content-type"},
	} {
		p := made(func(o *lambdahttp.Options) { o.ReplayHeaders = names })
		if strings.Join(p.ReplayedHeaders, " ") != want || (p.OmittedHeaders == nil) == strings.Contains(want, "*") {
			t.Errorf("ReplayHeaders %q: %q are replayed, want %s, except %q", names, p.ReplayedHeaders, want, p.OmittedHeaders)
		}
		if all := p.OmittedHeaders; all != nil && (!slices.IsSorted(all) || !slices.Contains(all, "Idempotency-Key")) {
			t.Errorf("ReplayHeaders %q: omitted are %q", names, all)
		}
	}
	all := func(o *lambdahttp.Options) {
		o.Profile.StatusHeader, o.ExpiresHeader, o.ExposeHeaders = true, true, true
	}
	for want, optFns := range map[string][]func(*lambdahttp.Options){
		"Idempotent-Replayed[true] Idempotency-Status[not-stored]": nil,
		"Idempotent-Replayed[true] Idempotency-Status[created replayed conflict mismatch unknown ignored not-stored] Idempotency-Expires[] Access-Control-Expose-Headers[]": {all},
	} {
		var added []string
		for _, h := range made(optFns...).AddedHeaders {
			added = append(added, fmt.Sprint(h.Name, h.Values))
		}
		if got := strings.Join(added, " "); got != want {
			t.Errorf("the added headers are %s, want %s", got, want)
		}
	}
	accepting := func(o *lambdahttp.Options) {
		o.Accepted = func(*lambdahttp.Request, idempotent.RecordID) string { return "" }
	}
	for _, a := range append(made(accepting).Answers, made().Answers...) {
		body, location := string(a.Example.Body), a.Example.Header.Get("Location")
		waiting := a.Situation == lambdahttp.InProgress || a.Situation == lambdahttp.Accepted
		named := waiting || a.Situation == lambdahttp.OutcomeUnknown || a.Situation == lambdahttp.ReplayUnavailable
		if strings.Contains(body, `"until"`) != waiting || strings.Contains(body, `"resource"`) != named || (location != "") != (a.Situation == lambdahttp.Accepted) {
			t.Errorf("the example of %s is %s, with the location %q", a.Situation, body, location)
		}
	}
	if p := made(); !slices.Equal(p.ReplayedHeaders, []string{"*"}) || !slices.Contains(p.OmittedHeaders, "Set-Cookie") || !slices.Contains(p.OmittedHeaders, "*-Token") {
		t.Errorf("by default %v are replayed, except %v", p.ReplayedHeaders, p.OmittedHeaders)
	}
}

// checkPublished compares a response with the policy of its handler: everything
// that a client can get must be published.
func (r row) checkPublished(t *testing.T, g *idempotent.Guard, a reply, optFns ...func(*lambdahttp.Options)) {
	t.Helper()
	p, err := lambdahttp.NewPolicy(g, optFns...)
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string][]string{"Content-Type": nil, "Content-Language": nil} // by name; nil: any value
	for _, h := range p.AddedHeaders {
		allowed[h.Name] = h.Values
	}
	if r.problem == "" && r.stripe == "" {
		for _, name := range []string{"Location", "X-Charge-Id", "Date"} { // the handler's own
			allowed[name] = nil
		}
	} else if i := slices.IndexFunc(p.Answers, func(published lambdahttp.PolicyAnswer) bool { return r.is(published, a) }); i < 0 {
		t.Errorf("the policy has no response %d %s", a.status, a.body)
	} else {
		for _, h := range p.Answers[i].Headers {
			allowed[h.Name] = h.Values
			if h.Name == "Idempotency-Status" {
				allowed[h.Name] = append(allowed[h.Name], "replayed") // a Final outcome
			}
			if h.Always && a.header[h.Name] == "" {
				t.Errorf("the response has no %s, which is published", h.Name)
			}
		}
		if p.Answers[i].RetryAfter != (a.header["Retry-After"] != "") {
			t.Errorf("got Retry-After %q, published: %t", a.header["Retry-After"], p.Answers[i].RetryAfter)
		}
	}
	for name, value := range a.header {
		if values, ok := allowed[http.CanonicalHeaderKey(name)]; value != "" && (!ok || values != nil && !slices.Contains(values, value)) {
			t.Errorf("%s: got %s, but the published values are %q", name, value, values)
		}
	}
}

// is reports whether a is the published response: its status, and the members
// by which a program identifies the situation, are the same.
func (r row) is(published lambdahttp.PolicyAnswer, a reply) bool {
	told := func(body []byte) map[string]any {
		var members map[string]any
		if json.Unmarshal(body, &members) != nil {
			return nil
		}
		if e, ok := members["error"].(map[string]any); ok {
			members = e
		}
		if published.Situation == lambdahttp.FinalOutcome {
			members["code"] = "" // the handler's
		}
		return map[string]any{"type": members["type"], "title": members["title"], "code": members["code"]}
	}
	got := told([]byte(a.body))
	return published.Status == a.status && got != nil && maps.Equal(got, told(published.Example.Body))
}
