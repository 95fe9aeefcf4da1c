// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"

	"github.com/once-lambda/once/internal/kit/exchange"
)

// page is the path of the page about keys.
const page = "/idempotency"

// What a service publishes about its keys.
var publishedRequirements = []requirement{
	of("problems"),
	{
		name: "links", text: "Errors of 400, 409 and 422 link to documentation, which exists and explains each of them", asks: "D2.7",
		run: func(c *check) {
			key := c.newKey()
			h, pending := c.held(key)
			text := c.rules()
			for code, a := range map[string]answer{
				"missing-key": c.charge(""), "invalid-key": c.charge("", withLines("")), "in-progress": c.charge(key), "key-reused": c.charge(key, withBody(c.body(9000))),
			} {
				c.problem(a, code) // its type and its link lead to the page
				if !strings.Contains(text, `id="`+code+`"`) {
					c.failf("the page has no anchor %s", code)
				}
			}
			h.release()
			c.created(c.finish(pending))
		},
	},
	{
		name: "published", text: "The API publishes: header, format, scope, comparison, retention, and each status with its meaning", asks: "D2.2 D2.3 D2.5 D2.7 D5 O4 B1 B5 B7 P2 Pq R5",
		run: func(c *check) {
			text := c.rules()
			statuses := "400 403 409 413 422 503"
			if !c.routes {
				statuses = strings.Replace(statuses, "403 ", "", 1) // the example has one caller
			}
			if c.profile.Name == "stripe" {
				statuses = strings.Replace(statuses, "422", "402", 1)
			}
			for _, want := range append(strings.Fields(statuses),
				"Idempotency-Key", "it is required", "a key is", "pattern", "for example", "guarded methods", "valid for", "belongs to", "compared",
				"retention", "24 h after", "an unknown outcome", "a response of 5xx", "Idempotent-Replayed", "Retry-After",
			) {
				if !strings.Contains(text, want) {
					c.failf("the page does not contain %q:\n%s", want, text)
				}
			}
		},
	},
	{
		name: "advice", text: "Clients are asked for a new random key for each operation, without personal data", asks: "D2.2 D2.5 B0 B5 B10 Pa R7",
		run: func(c *check) {
			text := c.rules()
			for _, want := range []string{"new random key for each operation", "personal data"} {
				if !strings.Contains(text, want) {
					c.failf("the page does not contain %q", want)
				}
			}
		},
	},
	{
		name: "openapi", text: "The pattern in the API's description accepts the keys that the API accepts, and no others", asks: "D5 O4 O7",
		run: func(c *check) {
			var document struct {
				Components struct {
					Parameters struct {
						IdempotencyKey struct {
							Name, In string
							Required bool
						}
					}
					Schemas struct {
						IdempotencyKey struct{ Pattern string }
					}
				}
			}
			c.must(json.Unmarshal(c.document(), &document))
			if p := document.Components.Parameters.IdempotencyKey; p.Name != "Idempotency-Key" || p.In != "header" || !p.Required {
				c.failf("the parameter is %+v", p)
			}
			pattern, err := regexp.Compile(document.Components.Schemas.IdempotencyKey.Pattern)
			c.must(err)
			for _, v := range exchange.Valid[c.profile.Name] {
				if strings.ContainsAny(v, "; ") {
					continue // accepted, and not recommended to clients
				}
				if v = strings.ReplaceAll(v, "*", c.newKey()); !pattern.MatchString(v) {
					c.failf("the pattern %s refuses %s", pattern, v)
				}
			}
			for _, v := range exchange.Invalid[c.profile.Name] {
				if v = strings.ReplaceAll(v, "*", c.newKey()); pattern.MatchString(v) {
					c.failf("the pattern %s accepts %s", pattern, v)
				}
			}
		},
	},
	{
		name: "silent", text: "No answer contains the key", asks: "B5",
		rule: "An example of R shows the key in the problem. B treats keys as confidential, and wins.",
		run: func(c *check) {
			// Every answer of every case is searched for the keys that were sent. These are
			// the kinds of answers.
			key := c.newKey()
			h, pending := c.held(key)
			for _, a := range []answer{
				c.charge(key), c.charge(key, withBody(c.body(9000))), c.charge("", withLines(key+", x")), c.charge(key, withBody(`{"amount":`)),
				c.read("GET", "/charges/"+key[:8], key),
			} {
				if a.status < 400 {
					c.failf("got %s, want an error", a)
				}
			}
			h.release()
			c.created(c.finish(pending))
		},
	},
}

// rules returns the published page.
func (c *check) rules() string {
	a := c.read("GET", page, "")
	c.want(a, http.StatusOK)
	text := html.UnescapeString(a.body)
	if len(text) < 1000 {
		c.failf("the page is too short: %s", fmt.Sprint(a))
	}
	return text
}
