// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdahttp"
	"github.com/once-lambda/once/lambdahttp/internal/describe"
)

func newGuard(t testing.TB, optFns ...func(*idempotent.Options)) *idempotent.Guard {
	t.Helper()
	g, err := idempotent.New(memstore.New(), append([]func(*idempotent.Options){
		func(o *idempotent.Options) { o.Logger = slog.New(slog.DiscardHandler) },
	}, optFns...)...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// panics returns the value that f panics with, as text.
func panics(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}

// F09: construction fails without a scope, and with any other invalid option.
func TestConstructionPanics(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		g := newGuard(t)
		for want, change := range map[string]func(*lambdahttp.Options){
			"Options.Scope":                                          func(o *lambdahttp.Options) { o.Scope = lambdahttp.ScopeRule{Description: "no caller"} },
			"Options.ServerErrors is 5":                              func(o *lambdahttp.Options) { o.ServerErrors = 5 },
			`Options.ReplayHeaders: "a b"`:                           func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"a b"} },
			"Options.ReplayHeaders: idempotency-key carries the key": func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"idempotency-key"} },
			"Options.ReplayHeaders: X-REQUEST-KEY carries the key": func(o *lambdahttp.Options) {
				o.Profile.Header, o.ReplayHeaders = "X-Request-Key", []string{"*", "X-REQUEST-KEY"}
			},
			`Options.ReplayHeaders: "X-*"`:           func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"*", "X-*"} },
			`Options.ReplayHeaders: ""`:              func(o *lambdahttp.Options) { o.ReplayHeaders = []string{""} },
			"Options.ReplayHeaders: set-cookie":      func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"set-cookie"} },
			"Options.ReplayHeaders: ratelimit-reset": func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"ratelimit-reset"} },
			"Profile.Header":                         func(o *lambdahttp.Options) { o.Profile.Header = "a b" },
			"Profile.MinKeyLength (-1)":              func(o *lambdahttp.Options) { o.Profile.MinKeyLength = -1 },
			"Profile.MaxKeyLength (8)":               func(o *lambdahttp.Options) { o.Profile.MaxKeyLength = 8 },
			`Profile.ResponseHeaders: "Link" is not an optional header; use Idempotency-Status, `: func(o *lambdahttp.Options) { o.Profile.ResponseHeaders = []string{"Link"} },
			"Profile.Methods is empty":                                                 func(o *lambdahttp.Options) { o.Profile.Methods = []string{} },
			`Profile.Methods: "PO ST"`:                                                 func(o *lambdahttp.Options) { o.Profile.Methods = []string{"PO ST"} },
			"Profile.Answers[key-reused].Status is 42":                                 func(o *lambdahttp.Options) { o.Profile.Answers[lambdahttp.KeyReused].Status = 42 },
			"Profile.Answers[replay-unavailable].Status is 199; it must be 200 to 599": func(o *lambdahttp.Options) { o.Profile.Answers[lambdahttp.ReplayUnavailable].Status = 199 },
			"Profile.Answers[outcome-unknown].Status is 200; it must be 400 to 599":    func(o *lambdahttp.Options) { o.Profile.Answers[lambdahttp.OutcomeUnknown].Status = 200 },
			"idempotent: Operation.Retention":                                          func(o *lambdahttp.Options) { o.Guard = func(o *idempotent.Operation) { o.Retention = -time.Hour } },
			"Options.KeyFrom":                                                          func(o *lambdahttp.Options) { o.Profile, o.KeyFrom = lambdahttp.UUID, lambdahttp.BodyField("/k") },
			"Options.GatewayTimeout":                                                   func(o *lambdahttp.Options) { o.GatewayTimeout = -1 },
			`Options.DocsURL "docs"`:                                                   func(o *lambdahttp.Options) { o.DocsURL = "docs" },
			`Options.DocsURL "//example.com/keys"`:                                     func(o *lambdahttp.Options) { o.DocsURL = "//example.com/keys" },
			`Options.DocsURL "https://x/\"keys\""`:                                     func(o *lambdahttp.Options) { o.DocsURL = `https://x/"keys"` },
			`Options.DocsURL "https://x/?<keys>"`:                                      func(o *lambdahttp.Options) { o.DocsURL = "https://x/?<keys>" },
			`Options.DocsURL "https://x/>"`:                                            func(o *lambdahttp.Options) { o.DocsURL = "https://x/>" },
			`Options.DocsURL "https://%zz"`:                                            func(o *lambdahttp.Options) { o.DocsURL = "https://%zz" },
			"Profile.ServerErrors is 5":                                                func(o *lambdahttp.Options) { o.Profile.ServerErrors = 5 },
			"Profile.MinRetention is 59m59s":                                           func(o *lambdahttp.Options) { o.Profile.MinRetention = time.Hour - time.Second },
			"Profile.ForbiddenMethods contains POST":                                   func(o *lambdahttp.Options) { o.Profile.ForbiddenMethods = []string{"POST"} },
			`Profile.ForbiddenMethods: ""`:                                             func(o *lambdahttp.Options) { o.Profile.ForbiddenMethods = []string{""} },
			"Profile.Answers[accepted].Status is 409":                                  func(o *lambdahttp.Options) { o.Profile.Answers[lambdahttp.Accepted].Status = 409 },
			`Profile.Answers[final].Header: "a b"`: func(o *lambdahttp.Options) {
				o.Profile.Answers[lambdahttp.FinalOutcome].Header = map[string]string{"a b": ""}
			},
			"Options.ReplayHeaders: idempotency-expires": func(o *lambdahttp.Options) { o.ReplayHeaders = []string{"idempotency-expires"} },
		} {
			got := panics(func() {
				on.build(g, created, func(o *lambdahttp.Options) { o.Scope = lambdahttp.SingleTenant }, change)
			})
			if !strings.Contains(got, want) {
				t.Errorf("got panic %q, want %q in it", got, want)
			}
		}
		if got := panics(func() { on.build(nil, created) }); !strings.Contains(got, on.constructor+": the guard") {
			t.Errorf("without a guard: panic %q", got)
		}
	})
	if got := panics(func() { lambdahttp.APIGatewayV2(newGuard(t), nil) }); !strings.Contains(got, "APIGatewayV2") {
		t.Errorf("without a handler: panic %q", got)
	}
}

// F70, HTTP-30: known and unknown outcomes are retained for at least as long as
// clients retry.
func TestHTTP30ShortRetentionIsRefused(t *testing.T) {
	t.Parallel()
	const almost = time.Hour - time.Millisecond
	known := func(d time.Duration) func(*idempotent.Operation) {
		return func(o *idempotent.Operation) { o.Retention = d }
	}
	unknown := func(d time.Duration) func(*idempotent.Operation) {
		return func(o *idempotent.Operation) { o.UnresolvedRetention = d }
	}
	onEachWire(t, func(t *testing.T, on wire) {
		for i, c := range []struct {
			profile lambdahttp.Profile
			keeps   func(*idempotent.Operation)
			refused string // the option that the panic names; "": accepted
		}{
			{lambdahttp.IETF, known(almost), "Retention is 59m59.999s"}, {lambdahttp.IETF, known(time.Hour), ""},
			{lambdahttp.UUID, known(almost), "Retention is"}, {lambdahttp.UUID, known(time.Hour), ""},
			{lambdahttp.Stripe, known(23*time.Hour + almost), "Retention is"}, {lambdahttp.Stripe, known(24 * time.Hour), ""},
			{lambdahttp.Stripe, known(0), ""}, // the default
			{lambdahttp.Profile{MinRetention: 2 * time.Hour}, known(time.Hour), "Retention is"},
			{lambdahttp.IETF, unknown(time.Minute), "UnresolvedRetention is"}, {lambdahttp.IETF, unknown(time.Hour), ""},
		} {
			got := panics(func() {
				on.build(newGuard(t), created, single, guard(c.keeps), func(o *lambdahttp.Options) { o.Profile = c.profile })
			})
			if (got == "") != (c.refused == "") || c.refused != "" && !strings.Contains(got, "idempotent.Operation."+c.refused) {
				t.Errorf("row %d: panic %q, want %q in it", i, got, c.refused)
			}
		}
	})
}

// The type of a problem depends on DocsURL. Its code does not.
func TestProblemType(t *testing.T) {
	t.Parallel()
	for docs, want := range map[string]string{
		"": "about:blank", "https://a.example/keys": "https://a.example/keys#missing-key",
		"https://a.example/keys#top": "https://a.example/keys#missing-key", "/docs/keys": "/docs/keys#missing-key",
	} {
		w := newFixture(t, wires[0], func(o *lambdahttp.Options) { o.DocsURL = docs })
		var got struct{ Type, Code string }
		if a := w.post(charge(without("idempotency-key"))); json.Unmarshal([]byte(a.body), &got) != nil || got.Type != want || got.Code != "missing-key" {
			t.Errorf("docs %q: got %s, want the type %s", docs, a.body, want)
		}
	}
}

// A problem that exposes headers itself keeps them exposed.
func TestExposedByAProblem(t *testing.T) {
	t.Parallel()
	w := newFixture(t, wires[0], exposing, func(o *lambdahttp.Options) {
		o.Profile.Answers[lambdahttp.OutcomeUnknown].Header = map[string]string{"Access-Control-Expose-Headers": "X-Trace"}
	})
	if got := vanished(w).header["Access-Control-Expose-Headers"]; got != "X-Trace, Access-Control-Expose-Headers, Retry-After" {
		t.Errorf("exposed are %q", got)
	}
}

// A custom profile is plain data, and does not change the standard one.
func TestOwnProfile(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on, func(o *lambdahttp.Options) {
			o.Profile = lambdahttp.Profile{
				Header: "X-Operation-Id",
				Syntax: lambdahttp.KeySyntax{
					Parse: func(v string) (string, error) { return v, nil },
					Canonical: func(v string) (string, error) {
						if !strings.HasPrefix(v, "op-") {
							return "", errors.New("it must begin with op-")
						}
						return v, nil
					},
				},
				MinKeyLength: 4,
				MaxKeyLength: 8,
				Methods:      []string{"PUT"},
				Render: func(p lambdahttp.Problem) lambdahttp.Response {
					return lambdahttp.Response{Status: p.Status, Body: []byte(p.Type + "|" + p.Title + "|" + p.Detail)}
				},
			}
			o.Profile.Answers[lambdahttp.KeyReused] = lambdahttp.Answer{Status: 400, Title: "Reused"}
			o.DocsURL = "https://example.com/keys"
		})
		put := func(mods ...func(*request)) request {
			return charge(append([]func(*request){withMethod("PUT"), withHeader("x-operation-id", "op-1")}, mods...)...)
		}
		for name, c := range map[string]struct {
			r      request
			status int
			body   string
		}{
			"first":         {put(), 201, `{"id"`},
			"POST":          {charge(), 201, `{"id"`},
			"missing":       {put(without("x-operation-id")), 400, "https://example.com/keys#missing-key|Idempotency-Key is missing|"},
			"syntax":        {put(withHeader("x-operation-id", "1")), 400, "https://example.com/keys#invalid-key|Idempotency-Key is invalid|The X-Operation-Id header cannot be used: it must begin with op-."},
			"long":          {put(withHeader("x-operation-id", "op-456789")), 400, "https://example.com/keys#invalid-key|Idempotency-Key is invalid|The X-Operation-Id header cannot be used: a key must have 4 to 8 characters."},
			"longest, once": {put(withHeader("x-operation-id", "op-45678")), 201, `{"id"`},
		} {
			if a := w.post(c.r); a.status != c.status || !strings.HasPrefix(a.body, c.body) {
				t.Errorf("%s: got %d %s, want %d %s", name, a.status, a.body, c.status, c.body)
			}
		}
		if a := w.post(put(withBody("{}"))); a.status != 400 || !strings.HasPrefix(a.body, "https://example.com/keys#key-reused|Reused|This Idempotency-Key was used") {
			t.Errorf("reused: got %d %s", a.status, a.body)
		}
		// Render returned no headers; the engine sets its own.
		w.becomes(duringRun(func() {
			if a := w.post(put(withHeader("x-operation-id", "op-2"))); a.status != 409 || a.header["Retry-After"] == "" {
				t.Errorf("in progress: got %d %v", a.status, a.header)
			}
		}))
		w.post(put(withHeader("x-operation-id", "op-2")))
		// A 501 of the handler is stored, as with IETF.
		w.becomes(answers(501, nil))
		runs := w.runs
		for range 2 {
			if a := w.post(put(withHeader("x-operation-id", "op-5"))); a.status != 501 || w.runs != runs+1 {
				t.Errorf("a 501 of the handler: got %d %s after %d runs", a.status, a.body, w.runs-runs)
			}
		}
	})
	if lambdahttp.IETF.Header != "Idempotency-Key" || lambdahttp.IETF.Answers[lambdahttp.KeyReused].Status != 422 {
		t.Error("a profile of one handler changed IETF")
	}
}

// A situation of a later version has a number.
func TestSituationNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for s := lambdahttp.MissingKey; s <= lambdahttp.FinalOutcome; s++ {
		if seen[s.String()] || strings.HasPrefix(s.String(), "situation-") {
			t.Errorf("the name of situation %d is %q", s, s)
		}
		seen[s.String()] = true
	}
	later := lambdahttp.FinalOutcome + 1
	if got := string(lambdahttp.StripeJSON(lambdahttp.Problem{Situation: later, Status: 500, Code: later.String()}).Body); !strings.Contains(got, `"type":"api_error","code":"situation-16"`) {
		t.Errorf("got %s", got)
	}
}

func TestRequestView(t *testing.T) {
	t.Parallel()
	r := viewOf(t, lambdahttp.APIGatewayV2, load[v2Event](t, "apigatewayv2/post"))
	body, err := r.Body()
	if r.Method != "POST" || r.Path != "/charges" || r.Route != "/charges" || r.RawQuery != "expand=customer&dry_run=false" ||
		r.RequestID != "JKJaXmPLvHcESHA=" || r.Claim("iss") != "https://login.example.com/" || r.Claim("none") != "" ||
		len(r.Header("HOST")) != 1 || r.Header("none") != nil || len(body) != 35 || err != nil || r.Event.(*v2Event).RequestContext.AccountID == "" {
		t.Errorf("the view is %+v, its body %q %v", r, body, err)
	}
}

// A policy shows the final options of the guard.
func TestPolicyOfOptions(t *testing.T) {
	t.Parallel()
	made := func(optFns ...func(*lambdahttp.Options)) *describe.Policy {
		return lambdahttp.PolicyOf(newGuard(t), append([]func(*lambdahttp.Options){single}, optFns...)...)
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
		patient := made(guard(func(o *idempotent.Operation) { o.WaitFor = time.Hour }), func(o *lambdahttp.Options) { o.GatewayTimeout = timeout })
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
		o.Profile.ResponseHeaders = []string{"Idempotency-Expires", "Access-Control-Expose-Headers", "Idempotency-Status"}
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
		o.Accepted = func(context.Context, *lambdahttp.Request, idempotent.RecordID) string { return "" }
	}
	for _, a := range append(made(accepting).Answers, made().Answers...) {
		body, location := string(a.Example.Body), a.Example.Header.Get("Location")
		waiting := a.Situation == "in-progress" || a.Situation == "accepted"
		named := waiting || a.Situation == "outcome-unknown" || a.Situation == "replay-unavailable"
		if strings.Contains(body, `"until"`) != waiting || strings.Contains(body, `"resource"`) != named || (location != "") != (a.Situation == "accepted") {
			t.Errorf("the example of %s is %s, with the location %q", a.Situation, body, location)
		}
	}
	if p := made(); !slices.Equal(p.ReplayedHeaders, []string{"*"}) || !slices.Contains(p.OmittedHeaders, "Set-Cookie") || !slices.Contains(p.OmittedHeaders, "*-Token") {
		t.Errorf("by default %v are replayed, except %v", p.ReplayedHeaders, p.OmittedHeaders)
	}
}

var update = flag.Bool("update", false, "rewrite golden files, and the tables in docs/")

// The page for clients has a heading for each problem.
func TestProblemsHaveAHeading(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/http-answers.md")
	if err != nil {
		t.Fatal(err)
	}
	for s := lambdahttp.MissingKey; s <= lambdahttp.FinalOutcome; s++ {
		if !strings.Contains(string(text), "\n### "+s.String()+"\n") {
			t.Errorf("docs/http-answers.md has no heading for the problem %s", s)
		}
	}
}

// docs/http-keys.md compares the profiles by their data, and docs/reports/limits.md their
// answers.
func TestProfilesInDocs(t *testing.T) {
	t.Parallel()
	profiles, answers := profilesTables(t)
	kit.Part(t, "../docs/http-keys.md", "profiles", profiles, *update)
	kit.Part(t, "../docs/reports/limits.md", "answers", answers, *update)
}

// docs/reports/limits.md lists the headers that are never stored.
func TestHeadersInDocs(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("| never stored | headers |\n|---|---|\n")
	for why, names := range lambdahttp.ExchangeHeaders {
		fmt.Fprintf(&b, "| %s | `%s` |\n", why, strings.Join(names, "`, `"))
	}
	b.WriteString("| the key, if the handler repeats it | `Idempotency-Key`, or the profile's header |\n")
	b.WriteString("| a challenge that can be answered once | `Www-Authenticate` with a nonce, of the scheme Digest, or with data of Negotiate or NTLM |\n")
	kit.Part(t, "../docs/reports/limits.md", "headers", b.String(), *update)
}

// profilesTables returns what a profile declares besides its answers, and these.
func profilesTables(t *testing.T) (profiles, answers string) {
	const head = "| | `IETF` | `Stripe` | `UUID` | `Webhook` |\n|---|---|---|---|---|\n"
	var b strings.Builder
	b.WriteString(head)
	line := func(name string, of func(p *lambdahttp.Profile) string) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, of(&lambdahttp.IETF), of(&lambdahttp.Stripe), of(&lambdahttp.UUID), of(&lambdahttp.Webhook))
	}
	line("a key is", func(p *lambdahttp.Profile) string { return strings.ReplaceAll(p.Syntax.Description, "|", `\|`) })
	line("for example", func(p *lambdahttp.Profile) string { return "`" + p.Syntax.Example + "`" })
	line("characters", func(p *lambdahttp.Profile) string {
		if p.MinKeyLength == p.MaxKeyLength {
			return fmt.Sprint(p.MinKeyLength)
		}
		return fmt.Sprintf("%d to %d", p.MinKeyLength, p.MaxKeyLength)
	})
	line("in a body field", func(p *lambdahttp.Profile) string {
		return map[bool]string{true: "refused", false: "`KeyFrom`"}[p.HeaderOnly]
	})
	line("its header", func(p *lambdahttp.Profile) string { return "`" + p.Header + "`" })
	line("guards", func(p *lambdahttp.Profile) string { return strings.Join(p.Methods, ", ") })
	line("refuses a key on", func(p *lambdahttp.Profile) string { return cmp.Or(strings.Join(p.ForbiddenMethods, ", "), "–") })
	line("a key belongs to", func(p *lambdahttp.Profile) string {
		return lambdahttp.PolicyOf(newGuard(t), single, func(o *lambdahttp.Options) { o.Profile = *p }).Extent
	})
	line("compares the body", func(p *lambdahttp.Profile) string {
		return map[bool]string{true: "no", false: "yes"}[strings.HasPrefix(p.Fingerprint.Description, "nothing else")]
	})
	line("a 5xx of the handler", func(p *lambdahttp.Profile) string {
		return map[lambdahttp.ServerErrors]string{
			lambdahttp.FollowRecovery:    "follows the recovery: unknown, or runs again",
			lambdahttp.StoreServerErrors: "is stored",
		}[p.ServerErrors]
	})
	line("minimum retention", func(p *lambdahttp.Profile) string { return fmt.Sprintf("%g h", p.MinRetention.Hours()) })
	line("optional headers", func(p *lambdahttp.Profile) string { return cmp.Or(strings.Join(p.ResponseHeaders, ", "), "–") })
	line("a problem is", func(p *lambdahttp.Profile) string {
		return "`" + p.Render(lambdahttp.Problem{Status: 400}).Header.Get("Content-Type") + "`"
	})
	profiles = b.String()
	b.Reset()
	b.WriteString(head)
	for s := lambdahttp.MissingKey; s <= lambdahttp.FinalOutcome; s++ {
		line(s.String(), func(p *lambdahttp.Profile) string {
			a := p.Answers[s]
			text := fmt.Sprint(cmp.Or(a.Status, lambdahttp.IETF.Answers[s].Status))
			for _, name := range slices.Sorted(maps.Keys(a.Header)) {
				text += fmt.Sprintf(", `%s: %s`", name, a.Header[name])
			}
			return text
		})
	}
	return profiles, b.String()
}

// The reference of a request is stored when it claims its key, and the others get it while
// it runs. A rule that panics costs the reference, and the log says so.
func TestRef(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		rule func(*lambdahttp.Request) string
		want string
		log  string
	}{
		"none": {nil, "", ""},
		"from the body": {func(r *lambdahttp.Request) string {
			body, err := r.Body()
			return fmt.Sprint("order of ", len(body), " bytes, error ", err != nil)
		}, `"resource":"order of 32 bytes, error false"`, ""},
		"that panics": {func(*lambdahttp.Request) string { panic("no") }, "", "Options.Ref panicked"},
	} {
		onEachWire(t, func(t *testing.T, on wire) {
			var log bytes.Buffer
			w := newFixtureWith(t, on, logsTo(&log),
				func(o *lambdahttp.Options) { o.Ref = row.rule })
			var meanwhile reply
			w.becomes(func(ctx context.Context, r request) (reply, error) {
				meanwhile = w.post(charge())
				return reply{status: 201}, nil
			})
			if a := w.post(charge()); a.status != 201 {
				t.Errorf("%s: got %d %s", name, a.status, a.body)
			}
			if meanwhile.status != 409 || !strings.Contains(meanwhile.body, row.want) || row.want == "" && strings.Contains(meanwhile.body, "resource") {
				t.Errorf("%s: meanwhile: %d %s", name, meanwhile.status, meanwhile.body)
			}
			if strings.Contains(log.String(), "Options.Ref") != (row.log != "") || !strings.Contains(log.String(), row.log) {
				t.Errorf("%s: the log:\n%s", name, log.String())
			}
		})
	}
}
