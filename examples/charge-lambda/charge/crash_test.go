// SPDX-License-Identifier: Apache-2.0

package charge_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/examples/charge-lambda/provider"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// Wherever the function is killed, and whatever is lost, the customer is charged once, and
// the client gets the 201 in the end. Another amount with the same key is refused.
func TestEveryCrash(t *testing.T) {
	request := func(body string) (r events.APIGatewayV2HTTPRequest) {
		r.RequestContext.HTTP.Method, r.RawPath, r.Body = "POST", "/charges", body
		r.Headers = map[string]string{"idempotency-key": `"` + key + `"`, "content-type": "application/json"}
		return r
	}
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
		idempotenttest.Handle(w, request(aCharge), func(g *idempotent.Guard) charge.HandlerFunc {
			return charge.New(g, client)
		}, request(`{"amount":1,"currency":"usd","customer":"cus_1"}`))
	})
}
