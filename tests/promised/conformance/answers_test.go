// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit/exchange"
	"github.com/once-lambda/once/lambdahttp"
)

// What requests get while another one with their key runs.
var runningRequirements = slices.Concat(
	of("at-once"),
	[]requirement{{
		name: "many-at-once", text: "Of many equal requests at once, exactly one is executed", asks: "D1(–04) O1 O2 P1 P4 Pn Pq B6 R7",
		run: func(c *check) {
			c.oneOfMany(c.newKey())
			c.effects(1, 1)
		},
	}, {
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
	}, {
		name: "wait", text: "A server can let the second request wait for the first one's response", asks: "D2.6(04) R7", on: shops,
		options: guarded(func(o *idempotent.Operation) { o.WaitFor = 20 * time.Second }),
		run: func(c *check) {
			key := c.newKey()
			h, pending := c.held(key)
			second := c.start(key)
			select {
			case a := <-second:
				c.failf("the second request did not wait: %s", a)
			case <-c.refused:
			}
			h.release()
			c.replays(c.finish(second), c.created(c.finish(pending)))
			c.effects(1, 1)
		},
	}},
	of("accepted"),
	[]requirement{{
		name: "client-gone", text: "If the client disconnects, the request has one effect, and a retry gets its response", asks: "D1(–04) B0 Pn R1",
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
	}},
)

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

// What a retry gets after the first request.
var replayRequirements = slices.Concat(
	of("replay"),
	[]requirement{{
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
	}, {
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
	}, {
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
	}},
	of("retention"),
	[]requirement{{
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
	}, {
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
	}, {
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
	}, {
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
	}},
	of("uncorrected"),
)

// What happens after failures.
var outcomeRequirements = []requirement{
	{
		name: "lost-answer", text: "If the work may have been done, no retry does it again; evidence ends that, and retries get the response", asks: "D1(–04) B0 B1 B3 B5 B7 Pn R1",
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
		name: "time-out", text: "If the time runs out while the work may be done, the outcome is unknown", asks: "B0 B3 R1", on: example, alone: true, env: []string{"TIMEOUT=10s"},
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
		options: guarded(func(o *idempotent.Operation) { o.Recovery, o.Steps = idempotent.Resume, []string{"charge", "second"} }),
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

// page is the path of the page about keys.
const page = "/idempotency"

// What a service publishes about its keys.
var publishedRequirements = slices.Concat(
	of("problems"),
	[]requirement{{
		name: "links", text: "If the API names a page (`DocsURL`), errors of 400, 409 and 422 link to it, and it explains each of them", asks: "D2.7",
		rule: "The draft asks for the link always. Without `DocsURL` there is no page to link to; see no-page.",
		run: func(c *check) {
			text := c.rules() // the type and the link of every problem lead there
			for _, code := range []string{"missing-key", "invalid-key", "in-progress", "key-reused"} {
				if !strings.Contains(text, `id="`+code+`"`) {
					c.failf("the page has no anchor %s", code)
				}
			}
		},
	}, {
		name: "no-page", text: "If it names none, no error has a link, and the code alone names the problem", asks: "–", on: shops,
		options: func(o *lambdahttp.Options) { o.DocsURL = "" },
		run: func(c *check) {
			missing := c.charge("")
			first := c.created(c.charge(c.newKey()))
			misuse := c.charge(c.keys[0], withBody(c.body(9000)))
			c.want(first, http.StatusCreated)
			for code, a := range map[string]answer{"missing-key": missing, "key-reused": misuse} {
				c.want(a, c.profile.Status(code))
				named := `"type":"about:blank"`
				if c.profile.Name == "stripe" {
					_, named = exchange.StripeError(code)
				}
				if a.header.Get("Link") != "" || !strings.Contains(a.body, named) {
					c.failf("got %s, want no link, and %s", a, named)
				}
			}
		},
	}, {
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
	}, {
		name: "advice", text: "Clients are asked for a new random key for each operation, without personal data", asks: "D2.2 D2.5 B0 B5 B10 Pa R7",
		run: func(c *check) {
			text := c.rules()
			for _, want := range []string{"new random key for each operation", "personal data"} {
				if !strings.Contains(text, want) {
					c.failf("the page does not contain %q", want)
				}
			}
		},
	}, {
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
	}},
	of("silent"),
)

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
