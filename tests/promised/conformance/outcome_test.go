// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// What happens after failures.
var outcomeRequirements = []requirement{
	{
		name: "lost-answer", text: "If the work may have been done, no retry does it again; evidence ends that, and retries get the response", asks: "D1 B0 B1 B3 B5 B7 Pn R1",
		rule: "P resumes such work. B does not, without evidence, and B wins by default; see resume.",
		run: func(c *check) {
			c.treat(conduct{cut: true})
			key := c.newKey()
			c.unconfirmed(c.charge(key))
			c.treat(conduct{})
			for range 3 {
				c.problem(c.charge(key), "outcome-unknown")
			}
			c.effects(1, 1)
			c.settle(key)
			c.settled(key)
		},
	},
	{
		name: "webhook", text: "The provider's event about the work is such evidence; a forged one is not", asks: "B7", on: example,
		run: func(c *check) {
			c.treat(conduct{cut: true})
			key := c.newKey()
			c.unconfirmed(c.charge(key))
			report := func(charge string) answer {
				return c.charge("", at("POST", "/webhooks/provider"), withBody(fmt.Sprintf(`{"type":"charge.succeeded","charge":%q}`, charge)))
			}
			c.want(report("ch_forged"), http.StatusNotFound)
			c.problem(c.charge(key), "outcome-unknown")
			for range 2 {
				c.want(report(c.entriesOf(c.customer)[0].ID), http.StatusNoContent)
			}
			c.settled(key)
		},
	},
	{
		name: "not-done", text: "Evidence that nothing was done lets the key run again", asks: "B0 B7", on: shops, // such evidence counts after the lease
		run: func(c *check) {
			c.treat(conduct{cut: true, status: lost})
			key := c.newKey()
			c.unconfirmed(c.charge(key))
			c.treat(conduct{})
			c.problem(c.charge(key), "outcome-unknown")
			c.effects(0, 1)
			c.settle(key)
			first := c.created(c.charge(key))
			c.replays(c.charge(key), first)
			c.effects(1, 2)
		},
	},
	{
		name: "not-executed", text: "A failure that certainly had no effect leaves the key usable", asks: "B0 B1 B3 B7", alone: true, unreachable: true,
		run: func(c *check) {
			key := c.newKey()
			c.unavailable(c.charge(key))
			c.unavailable(c.charge(key))
			c.effects(0, 0)
			c.crash() // the next process reaches the provider
			first := c.created(c.charge(key))
			c.replays(c.charge(key), first)
			c.effects(1, 1)
		},
	},
	{
		name: "take-over", text: "Of many retries at once after such a failure, exactly one is executed", asks: "B7", alone: true, unreachable: true,
		run: func(c *check) {
			key := c.newKey()
			c.unavailable(c.charge(key))
			c.crash()
			c.oneOfMany(key)
			c.effects(1, 1)
		},
	},
	{
		name: "time-out", text: "If the time runs out while the work may be done, the outcome is unknown", asks: "B0 B3 R1", on: example, alone: true, env: []string{"TIMEOUT=2s"},
		run: func(c *check) {
			key := c.newKey()
			h := c.hold()
			c.want(c.charge(key), http.StatusGatewayTimeout)
			c.problem(c.eventually(key), "outcome-unknown")
			h.release()
			c.problem(c.charge(key), "outcome-unknown")
			c.effects(1, 1)
			c.settle(key)
			c.settled(key)
		},
	},
	{
		name: "crash", text: "A process that dies during the work leaves its key reserved", asks: "B3 B6 Pa Pq R7", alone: true, env: []string{"TIMEOUT=1m"},
		run: func(c *check) {
			key := c.newKey()
			_, pending := c.held(key)
			c.crash()
			if a := <-pending; a.err == nil {
				c.failf("a dead process has answered: %s", a)
			}
			for range 3 {
				c.problem(c.charge(key), "in-progress")
			}
			c.problem(c.charge(key, withBody(c.body(9000))), "key-reused")
			c.effects(1, 1)
		},
	},
	{
		name: "lease-end", text: "A key does not stay in progress: when its time is over the outcome is unknown, and is not repeated", asks: "D2.5 B0 B5 B7 P4 Pa", on: shops,
		rule: "P lets the next request run again after 90 s. B forbids it for payments, and wins.",
		run: func(c *check) {
			key := c.newKey()
			_, pending := c.held(key)
			c.crash()
			<-pending
			c.advance(lease - time.Millisecond)
			c.problem(c.charge(key), "in-progress")
			c.advance(time.Millisecond)
			c.problem(c.charge(key), "outcome-unknown")
			c.advance(30 * 24 * time.Hour)
			c.problem(c.charge(key), "outcome-unknown")
			c.effects(1, 1)
			c.settle(key)
			c.settled(key)
		},
	},
	{
		name: "resume", text: "Work of several effects can continue after the last one that was recorded", asks: "P1 P5 Pa Pq", on: shops, steps: true,
		options: guarded(func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, []string{"charge", "second"} }),
		run: func(c *check) {
			key := c.newKey()
			h := c.newHold()
			c.provider.treat(second(c.customer), conduct{early: true, hold: h})
			pending := c.start(key)
			c.wait(h.entered) // the first effect is recorded, and the second has not happened
			c.crash()
			<-pending
			c.provider.treat(second(c.customer), conduct{})
			c.advance(lease)
			first := c.created(c.charge(key))
			c.replays(c.charge(key), first)
			c.effects(1, 1)
			if n := len(c.entriesOf(second(c.customer))); n != 1 {
				c.failf("the second effect happened %d times", n)
			}
		},
	},
	{
		name: "server-error", text: "After a 500 of the service the outcome is unknown; Stripe stores the 500", asks: "B3 B5", on: shops,
		rule: "B describes both. The profile stripe follows Stripe.",
		run: func(c *check) {
			c.customer = failing + c.customer
			key := c.newKey()
			first := c.charge(key)
			c.want(first, http.StatusInternalServerError)
			again := c.charge(key)
			if c.profile.Name == "stripe" {
				c.replays(again, first)
			} else {
				c.problem(again, "outcome-unknown")
			}
			c.effects(1, 1)
		},
	},
	{
		name: "store-down", text: "If the store does not answer, nothing is executed: 503", asks: "B3 B5", on: shops,
		run: func(c *check) {
			key := c.newKey()
			c.breakStore(true)
			c.problem(c.charge(key), "store-unavailable")
			c.effects(0, 0)
			c.breakStore(false)
			first := c.created(c.charge(key))
			c.breakStore(true)
			c.problem(c.charge(key), "store-unavailable")
			c.breakStore(false)
			c.replays(c.charge(key), first)
			c.effects(1, 1)
		},
	},
	{
		name: "distinct", text: "Conflict, misuse, refusal and failure have different answers", asks: "B5 B10 P2",
		run: func(c *check) {
			key := c.newKey()
			h, pending := c.held(key)
			running, misuse := c.charge(key), c.charge(key, withBody(c.body(9000)))
			h.release()
			c.created(c.finish(pending))
			c.treat(conduct{status: declined})
			refused := c.charge(c.newKey())
			c.treat(conduct{cut: true})
			failed := c.charge(c.newKey())
			seen := map[string]bool{}
			for _, a := range []answer{running, misuse, refused, failed} {
				seen[fmt.Sprint(a.status)] = true
			}
			if len(seen) != 4 {
				c.failf("got %s; %s; %s; %s", running, misuse, refused, failed)
			}
		},
	},
}

// unconfirmed checks the service's answer if the provider did not answer.
func (c *check) unconfirmed(a answer) {
	c.want(a, http.StatusBadGateway)
	if !strings.Contains(a.body, "charge_unconfirmed") {
		c.failf("got %s, want charge_unconfirmed", a)
	}
}

// unavailable checks the service's answer if the provider cannot be reached.
func (c *check) unavailable(a answer) {
	c.want(a, http.StatusServiceUnavailable)
	if !strings.Contains(a.body, "provider_unavailable") || a.header.Get("Idempotent-Replayed") != "" {
		c.failf("got %s, want provider_unavailable", a)
	}
}

// settled checks that retries get the charge that the provider has booked.
func (c *check) settled(key string) {
	a := c.charge(key)
	c.want(a, http.StatusCreated)
	entries := c.entriesOf(c.customer)
	if len(entries) != 1 || a.header.Get("Location") != "/charges/"+entries[0].ID || c.id(a) != entries[0].ID || a.header.Get("Idempotent-Replayed") != "true" {
		c.failf("got %s, want the charge %v", a, entries)
	}
	c.replays(c.charge(key), a)
	c.effects(1, 1)
}
