// SPDX-License-Identifier: Apache-2.0

package conformance

// For whom and for what a key is valid.
var scopeRequirements = []requirement{
	of("new-key"),
	of("other-caller"),
	of("no-caller"),
	of("other-endpoint"),
	of("other-method"),
	of("other-resource"),
	{
		name: "other-path", text: "At another path, a key never gets the first path's response", asks: "R2", on: shops,
		run: func(c *check) {
			key := c.newKey()
			first := c.created(c.charge(key, at("POST", "/accounts/1/charges")))
			switch other := c.charge(key, at("POST", "/accounts/2/charges")); other.status {
			case 201:
				if c.created(other); c.profile.Name == "stripe" {
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
	of("catch-all"),
}
