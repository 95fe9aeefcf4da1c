// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdahttp"
	"github.com/once-lambda/once/lambdahttp/policy"
)

var update = flag.Bool("update", false, "rewrite the policies in testdata")

// policyOf returns the policy of a handler with the options.
func policyOf(t *testing.T, optFns ...func(*lambdahttp.Options)) *policy.Policy {
	t.Helper()
	g, err := idempotent.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	return policy.New(g, optFns...)
}

func single(o *lambdahttp.Options) { o.Scope = lambdahttp.SingleTenant }

func optional(o *lambdahttp.Options) {
	o.Guard = func(g *idempotent.Operation) { g.AllowMissingKey = true }
}

// allOptions sets everything that a policy can have besides a profile.
func allOptions(o *lambdahttp.Options) {
	o.Scope = lambdahttp.Claim("sub")
	o.KeyFrom = lambdahttp.BodyField("/idempotency_key")
	o.Operation = func(*lambdahttp.Request) string { return "charge" }
	o.Fingerprint = lambdahttp.VerifiedDigest
	o.Profile.ResponseHeaders = []string{"Idempotency-Status", "Idempotency-Expires"}
	o.Profile.ForbiddenMethods = []string{"GET"}
	o.Profile.Answers[lambdahttp.BodyTooLarge].Header = map[string]string{"x-limit": "6 MiB | 0*_`"}
	o.ReplayHeaders = []string{"x-charge-id", "etag"}
	o.Accepted = func(context.Context, *lambdahttp.Request, idempotent.RecordID) string { return "" }
	o.DocsURL = "https://api.example.com/docs/keys"
	o.Guard = func(o *idempotent.Operation) {
		o.Recovery, o.AllowMissingKey = idempotent.Rerun, true
		o.Retention, o.UnresolvedRetention, o.WaitFor = 36*time.Hour, 90*time.Hour+30*time.Minute, 1500*time.Millisecond
	}
}

// TestPolicy compares the policies of the profiles, and one with all options,
// with reviewed files. F65, F70, F90, G07: they describe how long an outcome is
// stored, what a replay contains and what each refusal looks like. Of the OpenAPI
// documents only the first profile's is a file; the others are its differences.
func TestPolicy(t *testing.T) {
	t.Parallel()
	ietf := policyOf(t, single)
	compareGolden(t, "ietf.md", ietf.Markdown())
	compareGolden(t, "ietf.json", string(ietf.OpenAPI()))
	for name, optFns := range map[string][]func(*lambdahttp.Options){
		"stripe": {single, optional, func(o *lambdahttp.Options) { o.Profile = lambdahttp.Stripe }},
		"uuid":   {func(o *lambdahttp.Options) { o.Profile, o.Scope = lambdahttp.UUID, lambdahttp.Claim("sub") }},
		"all":    {allOptions},
	} {
		p := policyOf(t, optFns...)
		compareGolden(t, name+".md", p.Markdown())
		compareGolden(t, name+".txt", differences(t, ietf.OpenAPI(), p.OpenAPI()))
	}
}

// differences returns a line for each value that only one of two JSON documents has: a minus for the first, a plus
// for the second, the path, and the value.
func differences(t *testing.T, first, second []byte) string {
	t.Helper()
	signs := map[string]int{}
	for i, document := range [][]byte{first, second} {
		var v any
		if err := json.Unmarshal(document, &v); err != nil {
			t.Fatal(err)
		}
		values(t, "", v, func(line string) { signs[line] += 2*i - 1 })
	}
	var b strings.Builder
	for _, line := range slices.Sorted(maps.Keys(signs)) {
		if sign := signs[line]; sign != 0 {
			b.WriteString(map[int]string{-1: "- ", 1: "+ "}[sign] + line)
		}
	}
	return b.String()
}

// values yields a line with the path and the text of each value, and of each list and object without further ones.
// It leaves out descriptions and examples of responses, which the pages have too.
func values(t *testing.T, path string, v any, yield func(line string)) {
	t.Helper()
	members := map[string]any{}
	switch v := v.(type) {
	case map[string]any:
		members = v
	case []any:
		for i, member := range v {
			name := strconv.Itoa(i)
			if answer, ok := member.(map[string]any); ok {
				name = fmt.Sprint(answer["situation"])
			}
			members[name] = member
		}
	}
	for _, member := range members {
		switch member.(type) {
		case map[string]any, []any:
			for name, member := range members {
				if name != "description" && !(name == "examples" && strings.Contains(path, "/content/")) {
					values(t, path+"/"+name, member, yield)
				}
			}
			return
		}
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	yield(path + " " + b.String())
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	file = "testdata/" + file
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
		t.Errorf("%s differs from the rendered policy; check the difference, and run: go test ./lambdahttp/policy -run TestPolicy -update\n%s", file, got)
	}
}

// F10: a policy says to what a key belongs, what a response of 5xx does to the key, and
// which headers a replay has: all, all and named ones, or only named ones.
func TestPolicySays(t *testing.T) {
	t.Parallel()
	type option = func(*lambdahttp.Options)
	replaying := func(names ...string) option { return func(o *lambdahttp.Options) { o.ReplayHeaders = names } }
	answering := func(e lambdahttp.ServerErrors, r idempotent.Recovery) option {
		return func(o *lambdahttp.Options) {
			o.ServerErrors, o.Guard = e, func(o *idempotent.Operation) { o.Recovery = r }
		}
	}
	named := func(o *lambdahttp.Options) { o.Operation = func(*lambdahttp.Request) string { return "charge" } }
	perResource := func(o *lambdahttp.Options) { o.Profile.PerResource = true }
	whole := func(o *lambdahttp.Options) { o.Profile = lambdahttp.Stripe }
	const (
		replayed = "A replayed response has the stored status and body, and "
		refused  = "; at another path it can be refused as already used"
		another  = "; at another path it is another key"
		unknown  = "| a response of 5xx | leaves the outcome unknown"
		again    = "| a response of 5xx | is not stored: the same request runs again"
	)
	for _, c := range []struct {
		optFns []option
		says   string
	}{
		{nil, replayed + "its headers except `*-Nonce`, `*-Secret`, `*-Token`, `Age`, `Alt-Svc`, "},
		{[]option{replaying("*", "x-next-token", "X-CSRF-Token", "Location")}, "`X-Ratelimit*`. It also has `X-Csrf-Token`, `X-Next-Token`.\n"},
		{[]option{replaying("x-next-token", "content-type")}, replayed + "these of its headers: `Content-Encoding`, `Content-Range`, `Content-Type`, `X-Next-Token`.\n"},
		{[]option{answering(lambdahttp.ServerErrorsByProfile, idempotent.Reconcile)}, unknown},
		{[]option{answering(lambdahttp.FollowRecovery, idempotent.Rerun)}, again},
		{[]option{answering(lambdahttp.StoreServerErrors, idempotent.Rerun)}, "| a response of 5xx | is stored"},
		{[]option{answering(lambdahttp.UnknownServerErrors, idempotent.Rerun)}, unknown},
		{[]option{answering(lambdahttp.ReleaseServerErrors, idempotent.Reconcile)}, again},
		{nil, "one request of a method and endpoint" + refused},
		{[]option{perResource}, "one request of a method and path" + another},
		{[]option{named}, "one request of an operation" + refused},
		{[]option{named, perResource}, "one request of an operation and path" + another},
		{[]option{whole}, "one request of the whole API" + refused},
		{[]option{whole, perResource}, "one request of a path" + another},
		{[]option{whole, named}, "one request of an operation" + refused},
	} {
		if page := policyOf(t, append(c.optFns, single)...).Markdown(); !strings.Contains(page, c.says) {
			t.Errorf("the page has no %q:\n%s", c.says, page)
		}
	}
}

// A policy needs the same valid options as a handler.
func TestPolicyOfInvalidOptions(t *testing.T) {
	t.Parallel()
	defer func() {
		if p := recover(); !strings.Contains(fmt.Sprint(p), "idempotent.Operation.Retention is 1m0s") {
			t.Errorf("got the panic %v", p)
		}
	}()
	policyOf(t, single, func(o *lambdahttp.Options) { o.Guard = func(o *idempotent.Operation) { o.Retention = time.Minute } })
}

// A policy can have a syntax and rules without descriptions.
func TestPolicyWithoutDescriptions(t *testing.T) {
	t.Parallel()
	p := policyOf(t, single, func(o *lambdahttp.Options) {
		o.Profile.Syntax = lambdahttp.KeySyntax{Parse: func(value string) (string, error) { return value, nil }}
		o.Scope.Description, o.DocsURL = "", "/docs/my_keys"
		o.Fingerprint = lambdahttp.FingerprintRule{Of: lambdahttp.WholeRequest.Of}
		o.Profile.Render = func(p lambdahttp.Problem) lambdahttp.Response {
			return lambdahttp.Response{Status: p.Status, Header: map[string][]string{"Content-Type": {"text/plain"}}, Body: []byte(p.Title)}
		}
	})
	if page := p.Markdown(); strings.Contains(page, "| pattern |") || !strings.Contains(page, "the authenticated caller") || !strings.Contains(page, "what the operation depends on") {
		t.Errorf("the page is\n%s", page)
	}
	if page := p.Markdown(); !strings.Contains(page, `[/docs/my\_keys](</docs/my_keys>)`) {
		t.Errorf("the page does not link to its documentation:\n%s", page)
	}
	if d := string(p.OpenAPI()); strings.Contains(d, "IdempotencyAnswer") || !strings.Contains(d, `"text/plain"`) {
		t.Errorf("the document is\n%s", d)
	}
}

// The schema of a problem response is derived from what Profile.Render writes,
// in any form.
func TestPolicyOfAnyForm(t *testing.T) {
	t.Parallel()
	p := policyOf(t, single, func(o *lambdahttp.Options) {
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

// A policy is rendered from the options of the handler, so the two agree.
func Example() {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	options := func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.Claim("sub")
		o.DocsURL = "https://api.example.com/docs/idempotency"
	}
	handler := lambdahttp.APIGatewayV2(guard, pay, options)
	rules := policy.New(guard, options)
	page, document := rules.Markdown(), rules.OpenAPI()

	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "| retention") || strings.HasPrefix(line, "| 422") {
			fmt.Println(line[:46])
		}
	}
	fmt.Println(json.Valid(document))
	_ = handler // in main: lambda.StartHandlerFunc(handler)
	// Output:
	// | retention | 24 h after the response was stor
	// | 422 Unprocessable Entity | <a id="key-reused
	// | 422 Unprocessable Entity | <a id="final"></a
	// true
}

// pay is the handler of the example.
func pay(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	return events.APIGatewayV2HTTPResponse{StatusCode: 201, Body: `{"id":"ch_1"}`}, nil
}
