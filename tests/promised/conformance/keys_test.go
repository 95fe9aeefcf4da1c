// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"crypto/rand"
	"net/http"
	"strings"

)

func unique() string { return strings.ToLower(rand.Text()) }

// How a key is sent, and which requests have one.
var keyRequirements = []requirement{
	of("key-format"),
	of("key-length"),
	of("padded-key"),
	of("uuid-value"),
	of("hostile-key"),
	of("one-key"),
	of("header-only"),
	of("missing-key"),
	of("optional-key"),
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
				if c.profile.Name == "uuid" {
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
	of("read-with-key"),
	of("put-delete"),
	of("put-delete-opt-in"),
	of("patch"),
}
