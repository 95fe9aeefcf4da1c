// SPDX-License-Identifier: Apache-2.0

package charge_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/playground/provider"
)

func TestCharge(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	first := w.post(key, aCharge)
	w.want(first, http.StatusCreated, `"amount":4200,"currency":"usd","customer":"cus_1","status":"succeeded"}`)
	location := first.header.Get("Location")
	if id, ok := strings.CutPrefix(location, "/charges/"); !ok || !strings.HasPrefix(first.body, `{"id":"`+id+`",`) || !strings.HasPrefix(id, "ch_") {
		t.Errorf("got Location %q and %s", location, first.body)
	}
	w.wantReplay(w.post(key, aCharge), first)
	w.wantReplay(w.post(key, ` { "customer":"cus_1", "currency":"usd", "amount":4.2e3 } `), first)
	w.wantProblem(w.post(key, another), http.StatusUnprocessableEntity, "key-reused")
	w.wantCharges(1)

	read := w.send("GET", location, "", "")
	w.want(read, http.StatusOK)
	if read.body != first.body {
		t.Errorf("got %s, want %s", read.body, first.body)
	}
	w.want(w.post("2f1c5a0e-6b7d-4c38-9a41-d05e8f3b7c62", aCharge), http.StatusCreated)
	w.wantCharges(2)
}

func TestDeclined(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	first := w.post(key, declined)
	w.wantProblem(first, http.StatusPaymentRequired, "card_declined", "Nothing was charged")
	w.wantReplay(w.post(key, declined), first)
	w.wantCharges(0)
}

func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	for i, row := range []struct {
		method, path, key, body string
		status                  int
		says                    []string
	}{
		{"GET", "/", "", "", 404, []string{"/charges"}},
		{"GET", "/charges/", "", "", 404, nil},
		{"GET", "/charges/ch_1/refunds", "", "", 404, nil},
		{"POST", "/refunds", key, aCharge, 404, nil},
		{"GET", "/charges/ch_none", "", "", 404, []string{"no charge"}},
		{"GET", "/charges", "", "", 405, []string{"POST"}},
		{"PATCH", "/charges", key, aCharge, 405, []string{"POST"}},
		{"DELETE", "/charges/ch_1", "", "", 405, []string{"GET"}},
		{"POST", "/charges/ch_1", key, aCharge, 405, []string{"GET"}},
		{"POST", "/charges", "", aCharge, 400, []string{"missing-key"}},
		{"POST", "/charges", "short", aCharge, 400, []string{"invalid-key", "16"}},
	} {
		r := w.send(row.method, row.path, row.key, row.body)
		if w.wantProblem(r, row.status, row.says...); row.status == 405 && r.header.Get("Allow") != row.says[0] {
			t.Errorf("row %d: got Allow %q", i, r.header.Get("Allow"))
		}
	}
	w.wantCharges(0)
}

// An invalid charge gets an answer that names the field and the correction, on
// every attempt, and leaves its key free for the corrected request.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	field := func(name, value string) string {
		fields := map[string]string{"amount": "4200", "currency": `"usd"`, "customer": `"cus_1"`}
		fields[name] = value
		return fmt.Sprintf(`{"amount":%s,"currency":%s,"customer":%s}`, fields["amount"], fields["currency"], fields["customer"])
	}
	for _, row := range []struct{ body, says string }{
		{"", "is incomplete"},
		{"{", "is incomplete"},
		{"[]", "not a JSON object"},
		{"null", "is null"},
		{`"amount"`, "not a JSON object"},
		{`{"amount"}`, "invalid JSON"},
		{`{"amount":1,}`, "invalid JSON"},
		{aCharge + "x", "invalid JSON"},
		{aCharge + aCharge, "invalid JSON"},
		{strings.Replace(aCharge, "cus_1", "\xff", 1), "invalid UTF-8"},
		{strings.Replace(aCharge, "amount", "Amount", 1), `\"amount\" is missing`},
		{`{"currency":"usd","customer":"cus_1"}`, `\"amount\" is missing`},
		{`{"amount":1,"customer":"cus_1"}`, `\"currency\" is missing`},
		{`{"amount":1,"currency":"usd"}`, `\"customer\" is missing`},
		{strings.Replace(aCharge, "{", `{"tip":1,`, 1), `\"tip\" is unknown`},
		{strings.Replace(aCharge, "{", `{"amount":1,`, 1), "duplicate member name"},
		{field("amount", "0"), `\"amount\" has to be a whole number`},
		{field("amount", "-1"), `\"amount\" has to be a whole number`},
		{field("amount", "0.5"), `\"amount\" has to be a whole number`},
		{field("amount", "42.001"), `\"amount\" has to be a whole number`},
		{field("amount", "1000000000000"), `\"amount\" has to be a whole number`},
		{field("amount", "1e999999999"), `\"amount\" has to be a whole number`},
		{field("amount", "1e-999999999"), `\"amount\" has to be a whole number`},
		{field("amount", `"4200"`), `\"amount\" has to be a whole number`},
		{field("amount", "null"), `\"amount\" has to be a whole number`},
		{field("currency", `""`), `\"currency\" has to be`},
		{field("currency", `"USD"`), `\"currency\" has to be`},
		{field("currency", "1"), `\"currency\" has to be`},
		{field("customer", `""`), `\"customer\" has to be`},
		{field("customer", "{}"), `\"customer\" has to be`},
		{field("customer", `"`+strings.Repeat("x", 256)+`"`), `\"customer\" has to be`},
	} {
		w.wantProblem(w.post(key, row.body), http.StatusBadRequest, row.says)
	}
	w.wantCharges(0)
	w.want(w.post(key, aCharge), http.StatusCreated)
}

// API Gateway encodes a body in base64 if its media type is not text. Both
// kinds of API accept it as the same charge. A body that is not base64 is
// invalid.
func TestBase64Bodies(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	plain := w.post(key, aCharge)
	encoded := base64.StdEncoding.EncodeToString([]byte(aCharge))
	for body, want := range map[string]int{encoded: http.StatusCreated, "{": http.StatusBadRequest} {
		v2 := request("POST", "/charges", key, body)
		v2.IsBase64Encoded = true
		got, err := w.function(t.Context(), v2)
		if err != nil || got.StatusCode != want || want == http.StatusCreated && got.Body != plain.body {
			t.Errorf("HTTP API, %s: got %d %s, %v", body, got.StatusCode, got.Body, err)
		}
		v1 := events.APIGatewayProxyRequest{Path: "/charges", HTTPMethod: http.MethodPost, Headers: v2.Headers, Body: body, IsBase64Encoded: true}
		rest, err := w.rest(t.Context(), v1)
		if err != nil || rest.StatusCode != want || want == http.StatusCreated && rest.Body != plain.body {
			t.Errorf("REST API, %s: got %d %s, %v", body, rest.StatusCode, rest.Body, err)
		}
	}
	w.wantCharges(1)
}

// If nothing was sent to the provider, the key may run again.
func TestProviderIsAway(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.serve("http://127.0.0.1:1") // no server listens there
	for range 2 {
		w.wantProblem(w.post(key, aCharge), http.StatusServiceUnavailable, "Nothing was charged")
	}
	w.wantProblem(w.send("GET", "/charges/ch_1", "", ""), http.StatusBadGateway)
	w.serve(w.upstream)
	w.want(w.post(key, aCharge), http.StatusCreated)
	w.wantCharges(1)
}

// Without a clear answer of the provider, the key is not run again before it is
// resolved from the provider's ledger. TestEveryCrash loses requests and replies.
func TestNobodyKnows(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		fault    fault
		resolved driver.State
		charges  int // before the resolution
	}{
		"the reply is not JSON": {fault{true, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) }}, driver.StateCompleted, 1},
		"the reply is truncated": {fault{true, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			w.Write([]byte("{}"))
		}}, driver.StateCompleted, 1},
		"the reply redirects": {fault{true, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}}, driver.StateCompleted, 1},
		"the provider fails":           {fault{false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }}, driver.StateRetryable, 0},
		"the provider lost the charge": {fault{false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.Write([]byte("{}")) }}, driver.StateRetryable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.fault.Store(&row.fault)
			w.wantProblem(w.post(key, aCharge), http.StatusBadGateway, "not known whether the customer was charged")
			w.fault.Store(nil)
			for range 2 {
				r := w.post(key, aCharge)
				w.wantProblem(r, http.StatusConflict, "outcome-unknown")
				if r.header.Get("Retry-After") == "" {
					t.Error("got no Retry-After")
				}
			}
			w.wantCharges(row.charges)

			w.clock.Advance(2 * time.Minute) // past the lease
			for range 2 {
				if err := w.reconcile(key); err != nil || w.record(key).State != row.resolved {
					t.Fatalf("the record is %s, %v; want %s", w.record(key).State, err, row.resolved)
				}
			}
			w.clock.Advance(-2 * time.Minute) // back to the time of the deadlines
			r := w.post(key, aCharge)
			w.want(r, http.StatusCreated)
			if replayed := r.header.Get("Idempotent-Replayed") == "true"; replayed != (row.charges == 1) {
				t.Errorf("replayed: %t", replayed)
			}
			if !strings.HasPrefix(r.header.Get("Location"), "/charges/ch_") {
				t.Errorf("got Location %q", r.header.Get("Location"))
			}
			w.wantReplay(w.post(key, aCharge), r)
			w.wantCharges(1)
		})
	}
}

// While the handler runs, only the handler reports its outcome. A charge in the
// ledger is not evidence yet.
func TestResolveWhileRunning(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	first := make(chan reply)
	go func() { first <- w.post(key, slow) }()
	<-w.booked
	if err := w.reconcile(key); !errors.As(err, new(*idempotent.InProgressError)) {
		t.Fatalf("got %v, want InProgressError", err)
	}
	close(w.release)
	answer := <-first
	w.want(answer, http.StatusCreated)
	if err := w.reconcile(key); err != nil { // it agrees
		t.Error(err)
	}
	w.wantReplay(w.post(key, slow), answer)
	w.wantCharges(1)
}

func TestNewClientRefuses(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "127.0.0.1:8080", "ftp://x/", "http://", "http://[::1"} {
		if _, err := charge.NewClient(bad); err == nil || !strings.Contains(err.Error(), "http://127.0.0.1:8080/provider") {
			t.Errorf("%q: got error %v", bad, err)
		}
	}
}

// Wherever the function is killed, and whatever is lost, the customer is charged once, and
// the client gets the 201 in the end. Another amount with the same key is refused.
func TestEveryCrash(t *testing.T) {
	client, err := charge.NewClient("http://bank.test")
	if err != nil {
		t.Fatal(err)
	}
	var bank *provider.Provider
	idempotenttest.Explore(t, func(w *idempotenttest.World) {
		if bank != nil { // of the schedule before
			bank.Close()
		}
		bank, err = provider.New(filepath.Join(t.TempDir(), "ledger.jsonl"))
		if err != nil {
			panic(err)
		}
		w.Provider(bank)
		w.ExactlyOnce("charge", func() int { return len(bank.Charges()) })
		w.Reconciler(func(g *idempotent.Guard) func(context.Context) (idempotent.Report, error) {
			return idempotent.Reconciler(g, map[string]idempotent.ResolveFunc{charge.Operation: charge.Reconcile(client, time.Now)})
		})
		idempotenttest.Handle(w, request("POST", "/charges", key, aCharge), func(g *idempotent.Guard) charge.HandlerFunc {
			return charge.New(g, client)
		}, request("POST", "/charges", key, `{"amount":1,"currency":"usd","customer":"cus_1"}`))
	}, func(o *idempotenttest.ExploreOptions) { o.Schedules = kit.Short(1000, 200) })
}

// A charge names its record; otherwise no event of the provider could settle it. If the
// provider does not answer in time, the handler's answer is earlier than the deadline.
func TestTimeOut(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	r := w.sendFor(3*time.Second, "POST", "/charges", key, slow)
	<-w.booked
	w.wantProblem(r, http.StatusGatewayTimeout, "not known whether the customer was charged")
	w.wantProblem(w.post(key, slow), http.StatusConflict, "outcome-unknown")
	if got, want := w.ledger()[0].Metadata["record"], string(charge.RecordIDOf(key)); got != want {
		t.Errorf("the metadata names the record %q, want %q", got, want)
	}
}
