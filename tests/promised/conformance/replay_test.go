// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net/http"
	"strings"
)

// What a retry gets after the first request.
var replayRequirements = []requirement{
	of("replay"),
	{
		name: "replayed-headers", text: "Location, request id and all other headers are repeated; cookies are not", asks: "R3", on: shops,
		run: func(c *check) {
			key := c.newKey()
			first, again := c.created(c.charge(key)), c.charge(key)
			for _, name := range []string{"Location", "Etag", "Cache-Control", "Vary", "Request-Id", "Stripe-Request-Id", "X-Charge-Number", "Content-Type"} {
				if v := first.header.Get(name); v == "" || again.header.Get(name) != v {
					c.failf("%s was %q and is %q", name, v, again.header.Get(name))
				}
			}
			if first.header.Get("Set-Cookie") == "" || again.header.Get("Set-Cookie") != "" {
				c.failf("the cookie was %q and is %q", first.header.Get("Set-Cookie"), again.header.Get("Set-Cookie"))
			}
		},
	},
	{
		name: "refusal", text: "An error of the business is a result: it is stored and repeated", asks: "D2.6 B5 B7",
		run: func(c *check) {
			c.treat(conduct{status: declined})
			key := c.newKey()
			first := c.charge(key)
			c.want(first, http.StatusPaymentRequired)
			if !strings.Contains(first.body, "card_declined") {
				c.failf("got %s, want card_declined", first)
			}
			c.treat(conduct{})
			c.replays(c.charge(key), first)
			c.effects(0, 1)
		},
	},
	{
		name: "restart", text: "Results survive the end of the process", asks: "B0 B6 B7 P6 Pa", alone: true,
		run: func(c *check) {
			key, refusedKey := c.newKey(), c.newKey()
			first := c.created(c.charge(key))
			c.treat(conduct{status: declined})
			refused := c.charge(refusedKey)
			c.crash()
			c.replays(c.charge(key), first)
			c.replays(c.charge(refusedKey), refused)
			c.problem(c.charge(key, withBody(c.body(9000))), "key-reused")
			c.effects(1, 2)
		},
	},
	of("retention"),
	{
		name: "gone", text: "If the resource is gone, a retry gets 409 with the reason, and nothing is executed", asks: "O4 O5 O6", on: shops, checked: true,
		run: func(c *check) {
			key := c.newKey()
			first := c.created(c.charge(key))
			c.replays(c.charge(key), first)
			c.ask("DELETE", first.header.Get("Location"))
			again := c.charge(key)
			c.problem(again, "replay-unavailable")
			if !strings.Contains(again.body, "The charge was deleted.") {
				c.failf("the reason is missing: %s", again)
			}
			c.effects(0, 1)
		},
	},
	{
		name: "secret", text: "If the response is not stored, a retry gets 409 with advice, and nothing is executed", asks: "O4 O6", on: shops,
		run: func(c *check) {
			c.customer = secret + c.customer
			key := c.newKey()
			first := c.created(c.charge(key))
			again := c.charge(key)
			c.problem(again, "replay-unavailable")
			if !strings.Contains(again.body, "Roll the key") {
				c.failf("the advice is missing: %s", again)
			}
			if strings.Contains(c.stored(), c.id(first)) {
				c.failf("the store contains the response")
			}
			c.effects(1, 1)
		},
	},
	{
		name: "other-version", text: "A response of another version of the service is not misread: 409", asks: "B5", on: shops,
		run: func(c *check) {
			key := c.newKey()
			first := c.created(c.charge(key))
			c.crash(func(l *life) { l.version = "2" })
			c.problem(c.charge(key), "replay-unavailable")
			c.crash()
			c.replays(c.charge(key), first)
			c.effects(1, 1)
		},
	},
	{
		name: "corrected", text: "A request that is refused before it is executed leaves its key unused", asks: "D2.7 O6",
		run: func(c *check) {
			key := c.newKey()
			for _, invalid := range []string{c.body(0), `{"amount":`, `[]`} {
				a := c.charge(key, withBody(invalid))
				c.want(a, http.StatusBadRequest)
				if a.header.Get("Idempotent-Replayed") != "" {
					c.failf("a replay: %s", a)
				}
			}
			c.effects(0, 0)
			first := c.created(c.charge(key))
			c.replays(c.charge(key), first)
			c.effects(1, 1)
		},
	},
	of("uncorrected"),
}
