package lambdahttp_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

// allOptions sets everything that a policy can have besides a profile.
func allOptions(o *lambdahttp.Options) {
	o.Scope = lambdahttp.Claim("sub")
	o.KeyFrom = lambdahttp.BodyField("idempotency_key")
	o.Operation = func(*lambdahttp.Request) string { return "charge" }
	o.Fingerprint = lambdahttp.VerifiedDigest
	o.Profile.StatusHeader = true
	o.Profile.ForbiddenMethods = []string{"GET"}
	o.Profile.Answers[lambdahttp.BodyTooLarge].Header = map[string]string{"x-limit": "6 MiB | 0*_`"}
	o.ReplayHeaders = []string{"x-charge-id", "etag"}
	o.Accepted = func(*lambdahttp.Request, idempotent.RecordID) string { return "" }
	o.ExpiresHeader = true
	o.DocsURL = "https://api.example.com/docs/keys"
	o.Guard = func(o *idempotent.Options) {
		o.Recovery = idempotent.Rerun
		o.Retention, o.UnresolvedRetention, o.WaitFor = 36*time.Hour, 90*time.Hour+30*time.Minute, 1500*time.Millisecond
	}
}

// TestPolicy compares the policies of the profiles, and one with all options,
// with reviewed files. F65, F70, F90, G07: they describe how long an outcome is
// stored, what a replay contains and what each refusal looks like.
func TestPolicy(t *testing.T) {
	t.Parallel()
	for name, optFns := range map[string][]func(*lambdahttp.Options){
		"ietf":   {single, required},
		"stripe": {single, func(o *lambdahttp.Options) { o.Profile = lambdahttp.Stripe }},
		"uuid":   {func(o *lambdahttp.Options) { o.Profile, o.Scope = lambdahttp.UUID, lambdahttp.Claim("sub") }, required},
		"all":    {allOptions},
	} {
		p, err := lambdahttp.NewPolicy(newGuard(t), optFns...)
		if err != nil {
			t.Fatal(err)
		}
		for file, got := range map[string]string{name + ".md": p.Markdown(), name + ".json": string(p.OpenAPI())} {
			compareGolden(t, file, got)
		}
	}
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	file = "testdata/policy/" + file
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs from the rendered policy; check the difference, and run: go test ./lambdahttp -run TestPolicy -update\n%s", file, got)
	}
}

// A policy needs the same valid options as a handler, and shows the final
// options of the guard.
func TestPolicyOfOptions(t *testing.T) {
	t.Parallel()
	if _, err := lambdahttp.NewPolicy(newGuard(t)); err == nil || !strings.Contains(err.Error(), "Options.Scope") {
		t.Errorf("without a scope: got the error %v", err)
	}
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
	if got := made().Retention; got != 24*time.Hour {
		t.Errorf("the default retention is %s", got)
	}
	if got := made(guard(func(o *idempotent.Options) { o.WaitFor = time.Hour })).WaitFor; got != 27*time.Second {
		t.Errorf("a request waits %s, want the gateway's limit", got)
	}
	const unknown, again, stored = "leaves the outcome unknown", "runs again", "is stored"
	for _, c := range []struct {
		optFn func(*lambdahttp.Options)
		want  string
	}{
		{serverErrors(lambdahttp.ServerErrorsByProfile), unknown},
		{rerun, again},
		{serverErrors(lambdahttp.StoreServerErrors, rerun), stored},
		{serverErrors(lambdahttp.UnknownServerErrors, rerun), unknown},
		{serverErrors(lambdahttp.ReleaseServerErrors), again},
	} {
		if got := made(c.optFn).ServerErrors; !strings.Contains(got, c.want) {
			t.Errorf("a 5xx %q, want %q in it", got, c.want)
		}
	}
	// A syntax and rules without descriptions.
	p := made(func(o *lambdahttp.Options) {
		o.Profile.Syntax = lambdahttp.KeySyntax{Parse: func(value string) (string, error) { return value, nil }}
		o.Scope.Description = ""
		o.Fingerprint = lambdahttp.FingerprintRule{Of: lambdahttp.WholeRequest.Of}
		o.Profile.Render = func(p lambdahttp.Problem) lambdahttp.Response {
			return lambdahttp.Response{Status: p.Status, Header: map[string][]string{"Content-Type": {"text/plain"}}, Body: []byte(p.Title)}
		}
	})
	if page := p.Markdown(); strings.Contains(page, "| pattern |") || !strings.Contains(page, "the authenticated caller") || !strings.Contains(page, "what the operation depends on") {
		t.Errorf("the page is\n%s", page)
	}
	if d := string(p.OpenAPI()); strings.Contains(d, "IdempotencyAnswer") || !strings.Contains(d, `"text/plain"`) {
		t.Errorf("the document is\n%s", d)
	}
}

// The schema of a problem response is derived from what Profile.Render writes,
// in any form.
func TestPolicyOfAnyForm(t *testing.T) {
	t.Parallel()
	p, err := lambdahttp.NewPolicy(newGuard(t), single, func(o *lambdahttp.Options) {
		o.Profile.Render = func(p lambdahttp.Problem) lambdahttp.Response {
			body := map[string]any{
				"text": p.Title, "whole": p.Status, "fraction": 0.5, "flag": true, "nothing": nil,
				"list": []any{map[string]any{"code": p.Code}, map[string]any{"code": "b", "more": 1}}, "mixed": []any{"a", 1}, "empty": []any{},
			}
			if p.Resource != "" {
				body["resource"] = p.Resource
			}
			if p.Situation == lambdahttp.InProgress {
				body["text"] = 1
			}
			data, err := json.Marshal(body)
			if err != nil {
				t.Error(err)
			}
			return lambdahttp.Response{Status: p.Status, Header: http.Header{"Content-Type": {"application/vnd.x+json; charset=utf-8"}}, Body: data}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Components struct {
			Schemas   map[string]json.RawMessage
			Responses map[string]struct{ Content map[string]any }
		}
	}
	if err := json.Unmarshal(p.OpenAPI(), &d); err != nil {
		t.Fatal(err)
	}
	const want = `{"type":"object","properties":{"empty":{"type":"array","items":{}},"flag":{"type":"boolean"},"fraction":{"type":"number"},` +
		`"list":{"type":"array","items":{"type":"object","properties":{"code":{"type":"string"},"more":{"type":"integer"}},"required":["code"]}},` +
		`"mixed":{"type":"array","items":{}},"nothing":{"type":"null"},"resource":{"type":"string"},"text":{},"whole":{"type":"integer"}},` +
		`"required":["empty","flag","fraction","list","mixed","nothing","text","whole"]}`
	var got bytes.Buffer
	if err := json.Compact(&got, d.Components.Schemas["IdempotencyAnswer"]); err != nil || got.String() != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, &got, want)
	}
	if content := d.Components.Responses["Idempotency409"].Content; len(content) != 1 || content["application/vnd.x+json"] == nil {
		t.Errorf("the content is %v", content)
	}
}

// Changing a policy does not change the handler.
func TestPolicyIsACopy(t *testing.T) {
	t.Parallel()
	p, err := lambdahttp.NewPolicy(newGuard(t), single, func(o *lambdahttp.Options) { o.Profile = lambdahttp.UUID })
	if err != nil {
		t.Fatal(err)
	}
	p.Methods[0], p.ForbiddenMethods[0], p.ReplayedHeaders[0] = "x", "x", "x"
	p.Marks[0].Values[0], p.Marks[1].Values[0] = "x", "x"
	again, err := lambdahttp.NewPolicy(newGuard(t), single, func(o *lambdahttp.Options) { o.Profile = lambdahttp.UUID })
	if err != nil || strings.Contains(again.Markdown(), "`x`") || again.Methods[0] != "POST" || again.ForbiddenMethods[0] != "GET" {
		t.Errorf("%v\n%s", err, again.Markdown())
	}
}

// publishedHeaders are headers that a response must not have unless its policy
// names them.
var publishedHeaders = append([]string{"Retry-After", "Location", "Idempotent-Replayed", "Idempotency-Status"}, strict...)

// checkPublished compares a response with the policy of its handler: everything
// that a client can get must be published.
func (r row) checkPublished(t *testing.T, g *idempotent.Guard, a reply, optFns ...func(*lambdahttp.Options)) {
	t.Helper()
	p, err := lambdahttp.NewPolicy(g, optFns...)
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string][]string{"Access-Control-Expose-Headers": nil} // by name; nil: any value
	for _, h := range p.Marks {
		allowed[h.Name] = h.Values
	}
	if r.problem == "" && r.stripe == "" {
		allowed["Location"] = nil // the handler's own
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
	for _, name := range publishedHeaders {
		value := a.header[name]
		if values, ok := allowed[name]; value != "" && (!ok || values != nil && !slices.Contains(values, value)) {
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
