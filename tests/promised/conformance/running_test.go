// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// What requests get while another one with their key runs.
var runningRequirements = []requirement{
	of("at-once"),
	{
		name: "many-at-once", text: "Of many equal requests at once, exactly one is executed", asks: "D1 O1 O2 P1 P4 Pn Pq B6 R7",
		run: func(c *check) {
			c.oneOfMany(c.newKey())
			c.effects(1, 1)
		},
	},
	{
		name: "retry-after", text: "The 409 says how long to wait, and when the first request has ended in any case", asks: "B1 B7 O6", on: shops,
		run: func(c *check) {
			key := c.newKey()
			h, pending := c.held(key)
			ends := c.now().Add(lease)
			for _, row := range []struct {
				later time.Duration
				wait  string
			}{{0, "1"}, {20 * time.Second, "20"}, {15 * time.Second, "28"}, {27 * time.Second, "1"}} {
				c.advance(row.later)
				a := c.charge(key)
				c.problem(a, "in-progress")
				if got := a.header.Get("Retry-After"); got != row.wait {
					c.failf("Retry-After is %s at %s before the end of the lease, want %s", got, ends.Sub(c.now()), row.wait)
				}
				if !strings.Contains(a.body, `"until":"`+ends.UTC().Format(time.RFC3339Nano)+`"`) {
					c.failf("the problem does not say that the first request has ended at %s: %s", ends, a)
				}
			}
			h.release()
			c.created(c.finish(pending))
		},
	},
	{
		name: "wait", text: "A server can let the second request wait for the first one's response", asks: "D2.6(04) R7", on: shops,
		options: guarded(func(o *idempotent.Options) { o.WaitFor = 20 * time.Second }),
		run: func(c *check) {
			key := c.newKey()
			h, pending := c.held(key)
			second := c.start(key)
			c.wait(c.refused)
			select {
			case a := <-second:
				c.failf("the second request did not wait: %s", a)
			default:
			}
			h.release()
			c.replays(c.finish(second), c.created(c.finish(pending)))
			c.effects(1, 1)
		},
	},
	of("accepted"),
	{
		name: "client-gone", text: "If the client disconnects, the request has one effect, and a retry gets its response", asks: "D1 B0 Pn R1",
		run: func(c *check) {
			key := c.newKey()
			h := c.hold()
			ctx, disconnect := context.WithCancel(c.t.Context())
			pending := c.startIn(ctx, key)
			c.wait(h.entered)
			disconnect()
			if a := <-pending; a.err == nil {
				c.failf("the client got %s", a)
			}
			if c.gone != nil {
				c.wait(c.gone)
			}
			h.release()
			again := c.eventually(key)
			c.want(again, http.StatusCreated)
			if again.header.Get("Idempotent-Replayed") != "true" || again.header.Get("Location") != "/charges/"+c.id(again) {
				c.failf("got %s, want the response to the first request", again)
			}
			c.effects(1, 1)
		},
	},
}

// eventually repeats a request until the first one, which takes a moment to end
// after its client has its answer, has ended.
func (c *check) eventually(key string, mods ...func(*call)) answer {
	for {
		a := c.charge(key, mods...)
		if !strings.Contains(a.body, "in-progress") && !strings.Contains(a.body, "key_in_use") && a.status != http.StatusAccepted {
			return a
		}
		c.must(c.t.Context().Err())
	}
}

// oneOfMany sends eight requests at once, and checks that one is executed while
// the others get 409. It returns the one's answer.
func (c *check) oneOfMany(key string) answer {
	h := c.hold()
	answers := make(chan answer)
	for range 8 {
		pending := c.start(key)
		go func() { answers <- <-pending }()
	}
	for range 7 {
		a := <-answers
		c.must(a.err)
		c.problem(a, "in-progress")
	}
	c.wait(h.entered)
	h.release()
	a := <-answers
	c.must(a.err)
	return c.created(a)
}
