package idempotent_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
)

type Req struct {
	Merchant string `json:"merchant"`
	OrderID  string `json:"order_id"`
	Amount   int    `json:"amount"`
}

type Resp struct {
	ChargeID string `json:"charge_id"`
}

var errBusy = errors.New("the provider did not take the call")

// The quick start: a handler that charges a card. With dynamostore in place of
// memstore and lambda.StartHandlerFunc around Wrap it is a Lambda function.
func Example() {
	provider := &cardProvider{busy: 1}

	charge := func(ctx context.Context, r Req) (Resp, error) {
		id, err := provider.Charge(idempotent.DownstreamKey(ctx), r.Amount)
		switch {
		case errors.Is(err, errBusy): // nothing was sent: the key may run again
			return Resp{}, idempotent.NotExecuted(err)
		case errors.Is(err, errDeclined): // a business outcome: stored and replayed
			return Resp{}, idempotent.Final("card_declined", "The card was declined.")
		case err != nil: // an effect may have happened: the record becomes unknown
			return Resp{}, err
		}
		return Resp{ChargeID: id}, nil
	}

	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	byOrder := idempotent.KeyFrom("charge", func(r Req) (scope, id string) { return r.Merchant, r.OrderID })
	handler := idempotent.Wrap(guard, byOrder, charge)

	ctx := context.Background()
	for _, r := range []Req{
		{"acme", "order-1", 4200}, // the provider is busy
		{"acme", "order-1", 4200}, // the retry runs
		{"acme", "order-1", 4200}, // a replay
		{"acme", "order-1", 9000}, // another request under the same key
		{"acme", "order-2", 666},  // declined
		{"acme", "order-2", 666},  // a replay
	} {
		resp, err := handler(ctx, r)
		var final *idempotent.FinalError
		switch {
		case errors.As(err, new(*idempotent.MismatchError)):
			fmt.Println("refused: the key was used for another request")
		case errors.As(err, &final):
			fmt.Println("final:", final.Code)
		case err != nil:
			fmt.Println("error:", err)
		default:
			fmt.Println("charged:", resp.ChargeID)
		}
	}
	fmt.Println("charges at the provider:", provider.charges)
	// Output:
	// error: the provider did not take the call
	// charged: ch_1
	// charged: ch_1
	// refused: the key was used for another request
	// final: card_declined
	// final: card_declined
	// charges at the provider: 1
}

var errDeclined = errors.New("declined")

// cardProvider stands in for a payment provider.
type cardProvider struct{ busy, charges int }

func (p *cardProvider) Charge(_ string, amount int) (string, error) {
	if p.busy > 0 {
		p.busy--
		return "", errBusy
	}
	if amount == 666 {
		return "", errDeclined
	}
	p.charges++
	return fmt.Sprintf("ch_%d", p.charges), nil
}

// Any function can be guarded, not only a handler. The fingerprint binds the key
// to the relevant input.
func ExampleDo() {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	fingerprint, err := idempotent.FingerprintOf(map[string]any{"report": "2026-10"})
	if err != nil {
		panic(err)
	}
	key := idempotent.Key{Operation: "monthly-report", Scope: idempotent.Global, ID: "2026-10", Fingerprint: fingerprint}

	for range 2 {
		sent, err := idempotent.Do(context.Background(), guard, key, func(context.Context) (string, error) {
			fmt.Println("sending")
			return "sent", nil
		})
		fmt.Println(sent, err)
	}
	// Output:
	// sending
	// sent <nil>
	// sent <nil>
}

// The guard does not guess an unknown outcome: it refuses the key until evidence
// resolves it.
func ExampleGuard_Resolve() {
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
		o.Logger = quiet // suppress the guard's hint about NotExecuted
	})
	if err != nil {
		panic(err)
	}
	key := idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1", Fingerprint: idempotent.FingerprintBytes([]byte("4200 usd"))}
	charge := func() {
		id, err := idempotent.Do(context.Background(), guard, key, func(context.Context) (string, error) {
			return "", errors.New("no reply from the provider")
		})
		fmt.Println(id, errors.As(err, new(*idempotent.UnresolvedError)), err != nil)
	}
	charge() // the call may or may not have reached the provider
	charge() // refused

	// The provider's webhook returns the record id that it received as metadata.
	if err := guard.Resolve(context.Background(), key.RecordID(), idempotent.Resolved("ch_1")); err != nil {
		panic(err)
	}
	charge() // replays the webhook's result
	// Output:
	//  false true
	//  true true
	// ch_1 false false
}
