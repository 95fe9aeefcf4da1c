// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdahttp"
)

func unique() string { return strings.ToLower(rand.Text()) }

// How a key is sent, and which requests have one.
var keyRequirements = []requirement{
	{
		name: "key-format", text: "A key in the format of the profile is accepted, any other text is not", asks: "D2.1 D2.2 D5 D6 O4 O5 O7 B1",
		rule: "The draft asks for a quoted String, B leaves the choice, O fixes UUIDs. Each profile has one syntax and publishes it. Parameters after a String are ignored, and UUIDs may be quoted.",
		run: func(c *check) {
			for i, v := range c.profile.valid {
				lines := withLines(strings.ReplaceAll(v, "*", c.newKey()))
				first := c.created(c.charge("", lines))
				c.replays(c.charge("", lines), first)
				c.effects(i+1, i+1)
			}
			for _, v := range c.profile.invalid {
				c.problem(c.charge("", withLines(strings.ReplaceAll(v, "*", c.newKey()))), "invalid-key")
			}
			c.effects(len(c.profile.valid), len(c.profile.valid))
		},
	},
	{
		name: "key-length", text: "A key has at most 255 characters, and in the draft's profile at least 16", asks: "D5 B3 P2", profiles: "ietf stripe",
		rule: "B refuses less than 16 characters, P describes Stripe, which does not. The minimum holds in the profiles ietf and uuid.",
		run: func(c *check) {
			long := strings.Repeat("k", 255-26) + unique()
			first := c.created(c.charge(long))
			c.replays(c.charge(long), first)
			c.problem(c.charge(long+"k"), "invalid-key")
			short := unique()[:15]
			if c.profile.name == "stripe" {
				c.created(c.charge(short))
			} else {
				c.problem(c.charge(short), "invalid-key")
				c.created(c.charge(short + "k"))
			}
			c.effects(2, 2)
		},
	},
	{
		name: "padded-key", text: "Spaces do not make a short key long enough", asks: "B3", profiles: "ietf",
		run: func(c *check) {
			c.problem(c.charge(unique()[:8]+strings.Repeat(" ", 8)), "invalid-key")
			c.problem(c.charge(strings.Repeat(" ", 16)), "invalid-key")
			c.effects(0, 0)
		},
	},
	{
		name: "uuid-value", text: "A UUID is one key in upper and lower case, quoted or not", asks: "O4", profiles: "uuid",
		run: func(c *check) {
			key := c.newKey()
			first := c.created(c.charge(key))
			for _, line := range []string{quoted(key), strings.ToUpper(key), quoted(strings.ToUpper(key))} {
				c.replays(c.charge("", withLines(line)), first)
			}
			c.effects(1, 1)
		},
	},
	{
		name: "hostile-key", text: "Code in a key has no effect: it is refused, or it is text", asks: "D5",
		run: func(c *check) {
			accepted := 0
			for _, text := range []string{`'; DROP TABLE charges; --`, `../../../etc/passwd?`, `{"$ne": null}<script>`, `${jndi:ldap://127.0.0.1/a}`, `%00%0d%0aSet-Cookie: a=1`} {
				key := text + unique()
				a := c.charge(key)
				if c.profile.name == "uuid" || c.profile.name == "stripe" && strings.Contains(key, ",") {
					c.problem(a, "invalid-key")
					continue
				}
				c.replays(c.charge(key), c.created(a))
				accepted++
			}
			c.effects(accepted, accepted)
		},
	},
	{
		name: "one-key", text: "A request with more than one key is refused", asks: "D2.1",
		run: func(c *check) {
			one, two := c.profile.spell(c.newKey()), c.profile.spell(c.newKey())
			for _, lines := range [][]string{{one, two}, {one, one}, {one + ", " + two}} {
				c.problem(c.charge("", withLines(lines...)), "invalid-key")
			}
			c.effects(0, 0)
		},
	},
	{
		name: "header-only", text: "The key is in the header Idempotency-Key, in any letter case, and not in the body", asks: "D2.5 O4",
		run: func(c *check) {
			key := c.newKey()
			inBody := withBody(strings.Replace(c.body(4200), "{", fmt.Sprintf(`{"idempotency_key":%q,"Idempotency-Key":%[1]q,`, key), 1))
			c.problem(c.charge("", inBody), "missing-key")
			first := c.created(c.charge("", withHeader("idempotency-key", c.profile.spell(key))))
			c.replays(c.charge("", withHeader("IDEMPOTENCY-KEY", c.profile.spell(key))), first)
			c.effects(1, 1)
		},
	},
	{
		name: "missing-key", text: "Where a key is required, a request without one gets 400; the server does not make one up", asks: "D2.7 O5 P2 Pa",
		run: func(c *check) {
			a := c.charge("")
			c.problem(a, "missing-key")
			if a.header.Get("Idempotency-Key") != "" {
				c.failf("the server has made up a key: %s", a)
			}
			c.effects(0, 0)
		},
	},
	{
		name: "optional-key", text: "Keys can be optional: without one, a request is executed each time", asks: "O4", on: shops,
		rule:    "O prefers optional keys; all documents want payments to have one. They are required unless AllowMissingKey is set.",
		options: guarded(func(o *idempotent.Options) { o.AllowMissingKey = true }),
		run: func(c *check) {
			c.created(c.charge(""))
			c.created(c.charge(""))
			key := c.newKey()
			first := c.created(c.charge(key))
			c.replays(c.charge(key), first)
			c.effects(3, 3)
		},
	},
	{
		name: "safe-methods", text: "GET, HEAD and OPTIONS need no key, and nothing is stored for them", asks: "O3 O4 Pq Pa R6",
		run: func(c *check) {
			key := c.newKey()
			location := c.created(c.charge(key)).header.Get("Location")
			methods := []string{"GET"}
			if c.routes {
				methods = append(methods, "HEAD")
			}
			for _, method := range methods {
				c.want(c.read(method, location, ""), http.StatusOK)
				if c.profile.name == "uuid" {
					continue // see read-with-key
				}
				for range 2 {
					a := c.read(method, location, key)
					c.want(a, http.StatusOK)
					if a.header.Get("Idempotent-Replayed") != "" || a.header.Get("Location") != "" {
						c.failf("%s got a replay: %s", method, a)
					}
				}
			}
			if c.routes {
				c.created(c.charge("", at("OPTIONS", "/charges"))) // the shop's OPTIONS does what POST does
				c.created(c.charge(key, at("OPTIONS", "/charges")))
				c.effects(3, 3)
			}
		},
	},
	{
		name: "read-with-key", text: "GET and HEAD refuse a key", asks: "O3 O4", profiles: "uuid",
		rule: "Only O refuses the key. The other profiles ignore it.",
		run: func(c *check) {
			key := c.newKey()
			location := c.created(c.charge(key)).header.Get("Location")
			c.problem(c.read("GET", location, key), "key-not-allowed")
			c.problem(c.read("GET", location, c.newKey()), "key-not-allowed")
			if c.routes {
				c.want(c.read("HEAD", location, key), http.StatusBadRequest)
			}
		},
	},
	{
		name: "put-delete", text: "PUT and DELETE need no key, and ignore one", asks: "D2.5(04) Pq Pa R6", on: shops,
		run: func(c *check) {
			for i, method := range []string{"PUT", "DELETE"} {
				key := c.newKey()
				c.created(c.charge("", at(method, "/charges")))
				c.created(c.charge(key, at(method, "/charges")))
				c.created(c.charge(key, at(method, "/charges")))
				c.effects(3*i+3, 3*i+3)
			}
		},
	},
	{
		name: "put-delete-opt-in", text: "An API can guard PUT and DELETE too", asks: "D2.2(05) O3", on: shops,
		options: func(o *lambdahttp.Options) {
			o.Profile.Methods = append(slices.Clone(o.Profile.Methods), "PUT", "DELETE")
		},
		run: func(c *check) {
			for i, method := range []string{"PUT", "DELETE"} {
				key := c.newKey()
				first := c.created(c.charge(key, at(method, "/charges")))
				c.replays(c.charge(key, at(method, "/charges")), first)
				c.effects(i+1, i+1)
			}
		},
	},
	{
		name: "patch", text: "PATCH takes keys like POST", asks: "D1 D2.2(05) O3 R6", on: shops, profiles: "ietf uuid",
		rule: "Stripe, P and R need keys for POST alone. The profile stripe ignores them on PATCH.",
		run: func(c *check) {
			key := c.newKey()
			first := c.created(c.charge(key, at("PATCH", "/charges")))
			c.replays(c.charge(key, at("PATCH", "/charges")), first)
			c.effects(1, 1)
		},
	},
}
