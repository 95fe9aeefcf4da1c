// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/once-lambda/once/lambdahttp"
)

// profile is what a client knows about a profile of the header.
type profile struct {
	name  string
	value lambdahttp.Profile
	spell func(key string) string // in the header
	// valid and invalid are values of the header. A '*' is replaced by a new UUID.
	valid, invalid []string
	status         map[string]int // of problems that differ from the draft's
	checkProblem   func(c *check, a answer, code string)
}

var profiles = []*profile{
	{
		name: "ietf", value: lambdahttp.IETF, spell: quoted, checkProblem: checkProblem,
		valid: []string{
			`"*"`, `"clkyoesmbgybucifusbbtdsbohtyuuwz"`, `"8e03978e-40d5-43e8-bc93-6894a57f9324"`,
			`"\"quoted\"-and-\\-*"`, `"with spaces *"`, `"*";version=1`,
		},
		invalid: []string{
			`*`, `'*'`, `"*`, `*"`, `"*" "*"`, `"*"x`, `:MTIzNDU2Nzg5MDEyMzQ1Ng==:`, `1234567890123456`, `?1`, `""`, ``,
			`"schlüssel-*"`, "\"tab\t*\"", `"unfinished \x escape *"`,
		},
	},
	{
		name: "stripe", value: lambdahttp.Stripe, spell: bare, checkProblem: checkStripe,
		valid:   []string{`*`, `order-2026-*`, `A`, `clkyoesmbgybucifusbbtdsbohtyuuwz`, `"*"`},
		invalid: []string{`*,*`, ``, `schlüssel-*`},
		status:  map[string]int{"key-reused": 400},
	},
	{
		name: "uuid", value: lambdahttp.UUID, spell: bare, checkProblem: checkProblem,
		valid: []string{`*`, `"*"`, `018f3c5e-7b1a-7cc2-9f7d-3a5b8c9d0e1f`, `8e03978e-40d5-43e8-bc93-6894a57f9324`},
		invalid: []string{
			`8e03978e-40d5-13e8-bc93-6894a57f9324`, `8e03978e-40d5-53e8-bc93-6894a57f9324`, `8e03978e-40d5-43e8-cc93-6894a57f9324`,
			`00000000-0000-0000-0000-000000000000`, `{*}`, `urn:uuid:*`, `8e03978e40d543e8bc936894a57f9324`, `*0`, `"*`, ``,
			`8e03978e-40d5-43e8-bc93-6894a57f932`, `8e03978e-40d5-43e8-bc93-6894a57f932g`, `clkyoesmbgybucifusbbtdsbohtyuuwz`,
		},
	},
}

func quoted(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}
func bare(key string) string { return key }

// statusOf returns the status of a problem.
func (p *profile) statusOf(code string) int {
	return cmp.Or(p.status[code], map[string]int{
		"missing-key": 400, "invalid-key": 400, "key-not-allowed": 400, "invalid-digest": 400, "unknown-caller": 403,
		"in-progress": 409, "outcome-unknown": 409, "replay-unavailable": 409, "key-reused": 422, "store-unavailable": 503, "accepted": 202,
	}[code])
}

// checkProblem checks a problem document (RFC 9457).
func checkProblem(c *check, a answer, code string) {
	p := members(c, a)
	media := "application/problem+json"
	if a.status < 400 {
		media = "application/json"
	}
	if a.header.Get("Content-Type") != media || a.header.Get("Content-Language") != "en" ||
		p["type"] != page+"#"+code || p["code"] != code || p["status"] != float64(a.status) {
		c.failf("got %s, want a problem of the type %s#%s", a, page, code)
	}
	if title, _ := p["title"].(string); title == "" {
		c.failf("the problem has no title: %s", a)
	}
	if detail, _ := p["detail"].(string); !strings.HasSuffix(detail, ".") {
		c.failf("the problem's detail is not a sentence: %s", a)
	}
}

func members(c *check, a answer) (m map[string]any) {
	if err := json.Unmarshal([]byte(a.body), &m); err != nil {
		c.failf("the body is not a JSON object: %s", a)
	}
	return m
}

// checkStripe checks an error in the form of Stripe's API.
func checkStripe(c *check, a answer, code string) {
	var body struct {
		Error struct{ Type, Code, Message string }
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil {
		c.failf("the body is not an error: %s", a)
	}
	want, ok := map[string]string{
		"missing-key": "idempotency_key_missing", "invalid-key": "idempotency_key_invalid", "invalid-digest": "content_digest_invalid",
		"unknown-caller": "caller_unknown", "in-progress": "idempotency_key_in_use", "accepted": "idempotency_key_in_use",
		"outcome-unknown": "idempotency_outcome_unknown", "replay-unavailable": "idempotency_replay_unavailable",
		"key-reused": "idempotency_key_reused", "store-unavailable": "idempotency_store_unavailable",
	}[code]
	kind := "invalid_request_error"
	switch {
	case code == "key-reused":
		kind = "idempotency_error"
	case a.status >= 500:
		kind = "api_error"
	}
	if e := body.Error; !ok || e.Type != kind || e.Code != want || !strings.HasSuffix(e.Message, ".") || a.header.Get("Content-Type") != "application/json" {
		c.failf("got %s, want the error %s %s", a, kind, want)
	}
}
