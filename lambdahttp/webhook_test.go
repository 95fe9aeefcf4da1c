// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdahttp"
)

func ExampleWebhook() {
	guard, err := idempotent.New(memstore.New()) // in production: dynamostore
	if err != nil {
		panic(err)
	}
	paid := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("shipping the order")
		w.WriteHeader(http.StatusOK)
	})
	verified := verifier("whsec_1")
	mux := http.NewServeMux()

	guarded := lambdahttp.Middleware(guard, func(o *lambdahttp.Options) {
		o.Profile = lambdahttp.Webhook
		o.KeyFrom = lambdahttp.BodyField("/id")
		o.Scope = lambdahttp.SingleTenant // one sender, whose signature was verified
	})
	mux.Handle("POST /webhooks/stripe", verified(guarded(paid)))

	deliver := func(secret, at, body string) {
		r := httptest.NewRequest("POST", "/webhooks/stripe", strings.NewReader(body))
		r.Header.Set("Stripe-Signature", "t="+at+",v1="+signature(secret, at+"."+body))
		a := httptest.NewRecorder()
		mux.ServeHTTP(a, r)
		fmt.Println(a.Code, a.Header()["Idempotent-Replayed"])
	}
	deliver("whsec_1", "1767225600", `{"id":"evt_1","type":"invoice.paid","pending_webhooks":2}`)
	deliver("whsec_1", "1767229200", `{"id":"evt_1","type":"invoice.paid","pending_webhooks":1}`)
	deliver("forged", "1767232800", `{"id":"evt_2","type":"invoice.paid","pending_webhooks":1}`)
	// Output:
	// shipping the order
	// 200 []
	// 200 [true]
	// 401 []
}

// verifier returns a layer that lets only deliveries with a signature in Stripe's form pass.
func verifier(secret string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
			at, sent, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Stripe-Signature"), "t="), ",v1=")
			if err != nil || !hmac.Equal([]byte(sent), []byte(signature(secret, at+"."+string(body)))) {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
		})
	}
}

func signature(secret, text string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

func successful(status int) bool { return status/100 == 2 }

// webhooks are senders as their documentation describes them: what a repeated delivery
// has in common with the first one, for how long the sender repeats it, and what it
// takes for success. Sources are on docs/webhooks.md.
var webhooks = map[string]struct {
	options func(*lambdahttp.Options)
	// deliver returns a delivery of an event, the n-th one.
	deliver func(event string, n int) request
	repeats time.Duration
	success func(status int) bool
}{
	// The counter is that of the endpoints that have not answered yet.
	"Stripe": {func(o *lambdahttp.Options) { o.KeyFrom = lambdahttp.BodyField("/id") }, func(event string, n int) request {
		body := fmt.Sprintf(`{"id":"evt_%s","object":"event","type":"invoice.paid","pending_webhooks":%d}`, event, 9-n)
		at := fmt.Sprint(1767225600 + n)
		return delivery("/webhooks/stripe", body, "stripe-signature", "t="+at+",v1="+signature("whsec_1", at+"."+body))
	}, 3 * 24 * time.Hour, successful},

	// A redelivery is the first delivery, on request.
	"GitHub": {func(o *lambdahttp.Options) { o.Profile.Header = "X-GitHub-Delivery" }, func(event string, _ int) request {
		return delivery("/webhooks/github", `{"action":"opened","number":1}`, "x-github-event", "pull_request",
			"x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc095"+event)
	}, 3 * 24 * time.Hour, successful},

	// The id is an integer.
	"Telegram": {func(o *lambdahttp.Options) { o.KeyFrom = lambdahttp.BodyField("/update_id") }, func(event string, n int) request {
		return delivery("/webhooks/telegram", fmt.Sprintf(`{"update_id":87654321%s,"message":{"message_id":7,"text":"hi"}}`, event))
	}, 24 * time.Hour, successful},

	// Two topics of one event share X-Shopify-Event-Id.
	"Shopify": {func(o *lambdahttp.Options) { o.Profile.Header = "X-Shopify-Webhook-Id" }, func(event string, n int) request {
		return delivery("/webhooks/shopify", `{"id":820982911946154508}`, "x-shopify-topic", "orders/"+event, "x-shopify-event-id", "98880550-7158-44d4-b7cd-2c97c8a091b5",
			"x-shopify-webhook-id", "b54557e4-bdd9-4b37-8a5f-bf7d70bcd04"+event)
	}, 4 * time.Hour, successful},

	// The signature is in the body, and each delivery has another one.
	"Mailgun": {func(o *lambdahttp.Options) {
		o.KeyFrom = lambdahttp.BodyField("/event-data/id")
		o.Profile.Answers[lambdahttp.FinalOutcome].Status = 406 // Mailgun does not repeat what gets 406
	}, func(event string, n int) request {
		at, token := fmt.Sprint(1767225600+n), strings.Repeat(fmt.Sprint(n), 50)
		return delivery("/webhooks/mailgun", fmt.Sprintf(`{"signature":{"timestamp":%q,"token":%q,"signature":%q},"event-data":{"id":"CPgfbmQMTCKtHW6uIWtuV%s","event":"delivered"}}`,
			at, token, signature("key-1", at+token), event))
	}, 8 * time.Hour, func(status int) bool { return status == 200 || status == 406 }},
}

// delivery returns a POST of a JSON body with header lines.
func delivery(path, body string, lines ...string) request {
	r := request{method: "POST", path: path, route: path, body: body, header: map[string]string{"content-type": "application/json"}}
	for line := range slices.Chunk(lines, 2) {
		r.header[line[0]] = line[1]
	}
	return r
}

// Each sender's own form of repetition is recognised for as long as it repeats: the event is
// processed once, and the sender gets what makes it stop, and before that what makes it
// repeat.
func TestWebhookSenders(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for name, s := range webhooks {
			w := newFixture(t, on, single, func(o *lambdahttp.Options) { o.Profile = lambdahttp.Webhook }, s.options)
			var early reply
			w.becomes(func(context.Context, request) (reply, error) {
				early = w.post(s.deliver("1", 2))
				return reply{status: 200}, nil
			})
			first := w.post(s.deliver("1", 1))
			if early.status != 503 || early.header["Retry-After"] == "" || s.success(early.status) {
				t.Errorf("%s: while the event is processed: %d %v", name, early.status, early.header)
			}
			w.clock.Advance(s.repeats - time.Second)
			again := w.post(s.deliver("1", 3))
			if !s.success(first.status) || !s.success(again.status) || again.header["Idempotent-Replayed"] != "true" || w.runs != 1 {
				t.Errorf("%s: got %d, then %d %v %s, after %d runs", name, first.status, again.status, again.header, again.body, w.runs)
			}
			w.becomes(answers(0, idempotent.Final("unknown_order", "There is no such order.")))
			refused := w.post(s.deliver("2", 1))
			if again := w.post(s.deliver("2", 2)); w.runs != 2 || again.status != refused.status || s.success(refused.status) != (name == "Mailgun") {
				t.Errorf("%s: another event got %d and %d, after %d runs", name, refused.status, again.status, w.runs)
			}
		}
	})
}

// notification is a delivery of Adyen.
type notification struct {
	Items []struct {
		Event struct {
			Code      string `json:"eventCode"`
			Reference string `json:"pspReference"`
			Account   string `json:"merchantAccountCode"`
		} `json:"NotificationRequestItem"`
	} `json:"notificationItems"`
}

// Adyen: the sender cuts its batches anew, and a date of a repeated event can differ. Each
// event is processed once, for as long as Adyen repeats.
func TestWebhookBatches(t *testing.T) {
	t.Parallel()
	var clock idempotenttest.Clock
	guard := newGuard(t, func(o *idempotent.Options) { o.Now = clock.Now })
	booked, down := []string{}, true
	book := func(_ context.Context, code, reference string) error {
		if reference == "B" && down {
			return idempotent.NotExecuted(errDown)
		}
		booked = append(booked, code+" "+reference)
		return nil
	}
	receive := func(w http.ResponseWriter, r *http.Request) {
		var n notification
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		failed := false
		for _, item := range n.Items {
			e := item.Event
			id := e.Code + " " + e.Reference // a date of the repetition can differ
			key := idempotent.Key{Operation: "adyen event", Scope: e.Account, ID: id, Fingerprint: idempotent.FingerprintBytes([]byte(id))}
			_, err := idempotent.Do(r.Context(), guard, key, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, book(ctx, e.Code, e.Reference)
			}, func(o *idempotent.Operation) { o.Retention = 30 * 24 * time.Hour }) // as long as Adyen repeats
			failed = failed || err != nil
		}
		if failed {
			w.WriteHeader(http.StatusInternalServerError) // Adyen repeats the delivery
		}
	}
	deliver := func(date string, events ...string) int {
		var items []string
		for _, event := range events {
			code, reference, _ := strings.Cut(event, " ")
			items = append(items, fmt.Sprintf(`{"NotificationRequestItem":{"eventCode":%q,"pspReference":%q,"merchantAccountCode":"shop","eventDate":%q}}`, code, reference, date))
		}
		a := httptest.NewRecorder()
		receive(a, httptest.NewRequestWithContext(t.Context(), "POST", "/webhooks/adyen", strings.NewReader(`{"live":"true","notificationItems":[`+strings.Join(items, ",")+`]}`)))
		return a.Code
	}
	if got := deliver("2026-01-01T12:00:00+01:00", "AUTHORISATION B", "AUTHORISATION A"); got != 500 {
		t.Errorf("a batch that was processed in part got %d", got)
	}
	down = false
	for _, batch := range [][]string{{"AUTHORISATION A"}, {"AUTHORISATION B", "CHARGEBACK A"}, {"CHARGEBACK A", "AUTHORISATION A"}} {
		clock.Advance(30*24*time.Hour/3 - time.Second)
		if got := deliver("2026-01-01T12:00:09+01:00", batch...); got != 200 {
			t.Errorf("%q got %d", batch, got)
		}
	}
	if got, want := booked, []string{"AUTHORISATION A", "AUTHORISATION B", "CHARGEBACK A"}; !slices.Equal(got, want) {
		t.Errorf("booked are %q, want %q", got, want)
	}
}

// A sender repeats an event until it gets a 2xx. It gets a 5xx for as long as the outcome can
// change, and a 2xx for each event that was processed, even if the response is gone.
func TestWebhookAnswers(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for name, row := range map[string]struct {
			play   func(*fixture) reply
			status int
			waits  bool
		}{
			"no id":                    {once(without("idempotency-key")), 400, false},
			"a list of ids":            {once(withKey("a, b")), 400, false},
			"the same again":           {twice(), 201, false},
			"another body":             {both(charge(), charge(withBody(`{"amount":1}`))), 201, false},
			"another query, no type":   {both(charge(), charge(without("content-type"), func(r *request) { r.query = "" })), 201, false},
			"in progress":              {meanwhile(), 503, true},
			"unknown":                  {vanished, 500, true},
			"no store":                 {over(down, once()), 503, true},
			"processed, not stored":    {with(secret(""), twice()), 200, false},
			"processed, and refused":   {with(answers(0, idempotent.Final("gone", "It is gone.")), twice()), 422, false},
			"not executed, runs again": {with(refusal(500), then(created)), 201, false},
		} {
			w := newFixture(t, on, func(o *lambdahttp.Options) {
				o.Profile, o.Profile.Header = lambdahttp.Webhook, "Idempotency-Key"
			})
			if a := row.play(w); a.status != row.status || (a.header["Retry-After"] != "") != row.waits {
				t.Errorf("%s: got %d %v %s, want %d", name, a.status, a.header, a.body, row.status)
			}
		}
		w := newFixture(t, on, func(o *lambdahttp.Options) {
			o.Profile, o.Profile.Header = lambdahttp.Webhook, "Idempotency-Key"
		})
		for _, path := range []string{"/hooks/1", "/hooks/2", "/hooks/2"} {
			w.post(charge(to("/hooks/{shop}", path)))
		}
		if w.runs != 2 {
			t.Errorf("at two paths: %d runs, want 2", w.runs)
		}
	})
}

// The texts are for a sender: none asks for a key, and those about the id say where it is.
func TestWebhookTexts(t *testing.T) {
	t.Parallel()
	for place, from := range map[string]lambdahttp.KeySource{"Webhook-Id header": {}, `field "/event-data/id" of the body`: lambdahttp.BodyField("/event-data/id")} {
		webhook := func(o *lambdahttp.Options) {
			o.Profile, o.KeyFrom = lambdahttp.Webhook, from
			o.Scope, o.Fingerprint = lambdahttp.Claim("sub"), lambdahttp.RawBody
		}
		policy := lambdahttp.PolicyOf(newGuard(t), webhook)
		all := append(policy.Answers, lambdahttp.PolicyOf(newGuard(t), webhook, accepting("/progress/")).Answers...)
		for _, a := range all {
			for _, word := range []string{"Idempotency", "key", "new", "random", "{"} {
				if strings.Contains(a.Title+a.Detail, word) {
					t.Errorf("%s: %q is no text for a sender: %s. %s", a.Situation, word, a.Title, a.Detail)
				}
			}
			if about := a.Situation == "missing-key" || a.Situation == "invalid-key"; strings.Contains(a.Detail, place) != about {
				t.Errorf("%s: %s", a.Situation, a.Detail)
			}
		}
		if policy.Retention != 72*time.Hour || len(all) != 26 {
			t.Errorf("the retention is %s, with %d answers", policy.Retention, len(all))
		}
	}
}
