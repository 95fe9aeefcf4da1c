// SPDX-License-Identifier: Apache-2.0

package conformance

// For whom and for what a key is valid.
var scopeRequirements = []requirement{
	{
		name: "new-key", text: "The same request with another key is another request", asks: "D2.5 B5 R7",
		run: func(c *check) {
			first, other := c.newKey(), c.newKey()
			a := c.created(c.charge(first))
			b := c.created(c.charge(other))
			if c.id(a) == c.id(b) {
				c.failf("two keys have one charge: %s", b)
			}
			c.replays(c.charge(first), a)
			c.replays(c.charge(other), b)
			c.effects(2, 2)
		},
	},
	{
		name: "other-caller", text: "A key is valid for one caller, and does not show another caller's response", asks: "D5 B5 P3 Pa", on: shops,
		run: func(c *check) {
			key := c.newKey()
			a := c.created(c.charge(key))
			b := c.created(c.charge(key, withCaller("merchant-2")))
			if c.id(a) == c.id(b) {
				c.failf("two callers have one charge: %s", b)
			}
			c.replays(c.charge(key), a)
			c.replays(c.charge(key, withCaller("merchant-2")), b)
			c.effects(2, 2)
		},
	},
	{
		name: "no-caller", text: "A key grants nothing: a caller that is not identified is refused", asks: "B5", on: shops,
		run: func(c *check) {
			key := c.newKey()
			c.created(c.charge(key))
			c.problem(c.charge(key, withCaller("")), "unknown-caller")
			c.problem(c.charge(c.newKey(), withCaller("")), "unknown-caller")
			c.effects(1, 1)
		},
	},
	{
		name: "other-endpoint", text: "At another endpoint, a key is another key", asks: "O4 B5", on: shops,
		rule: "O and B separate endpoints. With Stripe a key belongs to the whole API, so another endpoint is another request: 400.",
		run: func(c *check) {
			key := c.newKey()
			first := c.created(c.charge(key))
			other := c.charge(key, at("POST", "/refunds"))
			if c.profile.name == "stripe" {
				c.problem(other, "key-reused")
				c.effects(1, 1)
			} else {
				c.replays(c.charge(key, at("POST", "/refunds")), c.created(other))
				c.effects(2, 2)
			}
			c.replays(c.charge(key), first)
		},
	},
	{
		name: "other-method", text: "With another method, a key is another key", asks: "O4", on: shops, profiles: "ietf uuid",
		run: func(c *check) {
			key := c.newKey()
			first := c.created(c.charge(key))
			other := c.created(c.charge(key, at("PATCH", "/charges")))
			c.replays(c.charge(key, at("PATCH", "/charges")), other)
			c.replays(c.charge(key), first)
			c.effects(2, 2)
		},
	},
	{
		name: "other-resource", text: "At another resource of an endpoint, a key is another key", asks: "O4", on: shops, profiles: "uuid",
		rule: "Only O separates resources. In the other profiles another path can be refused; see other-path.",
		run: func(c *check) {
			key := c.newKey()
			first := c.created(c.charge(key, at("POST", "/accounts/1/charges")))
			other := c.created(c.charge(key, at("POST", "/accounts/2/charges")))
			c.replays(c.charge(key, at("POST", "/accounts/1/charges")), first)
			c.replays(c.charge(key, at("POST", "/accounts/2/charges")), other)
			c.effects(2, 2)
		},
	},
	{
		name: "other-path", text: "At another path, a key never gets the first path's response", asks: "R2", on: shops,
		run: func(c *check) {
			key := c.newKey()
			first := c.created(c.charge(key, at("POST", "/accounts/1/charges")))
			switch other := c.charge(key, at("POST", "/accounts/2/charges")); other.status {
			case 201:
				if c.created(other); c.profile.name == "stripe" {
					c.failf("got %s, want a refusal: a key of Stripe belongs to the whole API", other)
				}
				c.effects(2, 2)
			default:
				c.problem(other, "key-reused")
				c.effects(1, 1)
			}
			c.replays(c.charge(key, at("POST", "/accounts/1/charges")), first)
		},
	},
	{
		name: "catch-all", text: "Behind one route for all endpoints, each endpoint has its own keys", asks: "O4 B5", on: shops, profiles: "ietf uuid",
		run: func(c *check) {
			key := c.newKey()
			first := c.created(c.charge(key, at("POST", "/any/orders")))
			other := c.created(c.charge(key, at("POST", "/any/payments")))
			c.replays(c.charge(key, at("POST", "/any/orders")), first)
			c.replays(c.charge(key, at("POST", "/any/payments")), other)
			c.effects(2, 2)
		},
	},
}
