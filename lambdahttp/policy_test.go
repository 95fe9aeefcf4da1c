// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"fmt"
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
