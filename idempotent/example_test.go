// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
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

// An operation with several effects, each in its own step. The second effect
// fails at first; the next attempt continues after the first one.
func ExampleStep() {
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Logger = quiet })
	if err != nil {
		panic(err)
	}
	printer := &labelPrinter{broken: true}

	fulfil := func(ctx context.Context, r Req) (Resp, error) {
		charge, err := idempotent.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			fmt.Println("charging", r.Amount)
			return "ch_1", nil // the provider gets idempotent.DownstreamKey(ctx)
		})
		if err != nil {
			return Resp{}, err
		}
		_, err = idempotent.Step(ctx, "label", func(ctx context.Context) (string, error) {
			return printer.Print(r.OrderID)
		})
		return Resp{ChargeID: charge}, err
	}

	byOrder := idempotent.KeyFrom("fulfil", func(r Req) (scope, id string) { return r.Merchant, r.OrderID })
	handler := idempotent.Wrap(guard, byOrder, fulfil, func(o *idempotent.Operation) {
		o.Recovery = idempotent.Resume
		o.Steps = []string{"charge", "label"}
	})
	for range 3 {
		fmt.Println(handler(context.Background(), Req{"acme", "order-1", 4200}))
	}
	// Output:
	// charging 4200
	// {} the printer is out of paper
	// printing order-1
	// {ch_1} <nil>
	// {ch_1} <nil>
}

// G02: a scheduled function that asks the provider about charges whose handlers
// never reported an outcome.
func ExampleReconciler() {
	provider := books{}
	resolvers := map[string]idempotent.ResolveFunc{
		"charge": func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
			id, err := provider.Find(ctx, r.ID.DownstreamKey())
			switch {
			case errors.Is(err, errNoSuchCharge): // and none can follow: the worker is dead
				return idempotent.ProvenNotExecuted(r.Token), nil
			case err != nil:
				return idempotent.Later(5 * time.Minute), nil
			}
			return idempotent.Resolved(Resp{ChargeID: id}), nil
		},
	}

	clock := &idempotenttest.Clock{}
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Logger, o.Now = quiet, clock.Now })
	if err != nil {
		panic(err)
	}
	byOrder := idempotent.KeyFrom("charge", func(r Req) (scope, id string) { return r.Merchant, r.OrderID })
	charge := idempotent.Wrap(guard, byOrder, func(ctx context.Context, r Req) (Resp, error) {
		provider[idempotent.DownstreamKey(ctx)] = "ch_1"
		return Resp{}, errors.New("the connection broke")
	})
	ctx, order := context.Background(), Req{"acme", "order-1", 4200}
	_, err = charge(ctx, order)
	fmt.Println(err)
	_, err = charge(ctx, order)
	fmt.Println(errors.As(err, new(*idempotent.UnresolvedError)))

	clock.Advance(time.Hour)
	reconcile := idempotent.Reconciler(guard, resolvers) // for lambda.Start
	report, err := reconcile(ctx)
	fmt.Println(report, err)
	fmt.Println(charge(ctx, order))
	// Output:
	// the connection broke
	// true
	// 1 due, 1 completed <nil>
	// {ch_1} <nil>
}

// F41, G02: a provider's webhook names the record, because the charge was sent
// with the record id as metadata. The webhook may come before the handler
// returns.
func ExampleGuard_Resolve_webhook() {
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Logger = quiet })
	if err != nil {
		panic(err)
	}
	webhook := func(ctx context.Context, metadata map[string]string, charge string) error {
		id, err := idempotent.ParseRecordID(metadata["once_record"])
		if err != nil {
			return err // not sent by this operation
		}
		err = guard.Resolve(ctx, id, idempotent.Resolved(Resp{ChargeID: charge}))
		if errors.As(err, new(*idempotent.SettledError)) || errors.Is(err, idempotent.ErrNoRecord) {
			return nil // the outcome is already stored, or the record has expired
		}
		return err // for example InProgressError: the provider sends the webhook again
	}

	byOrder := idempotent.KeyFrom("charge", func(r Req) (scope, id string) { return r.Merchant, r.OrderID })
	metadata := map[string]string{}
	charge := idempotent.Wrap(guard, byOrder, func(ctx context.Context, r Req) (Resp, error) {
		execution, _ := idempotent.FromContext(ctx)
		metadata["once_record"] = string(execution.RecordID())
		err := webhook(ctx, metadata, "ch_1") // the webhook is faster than the provider's reply
		fmt.Println("while the handler runs:", errors.As(err, new(*idempotent.InProgressError)))
		return Resp{}, errors.New("the reply was lost")
	})
	ctx, order := context.Background(), Req{"acme", "order-1", 4200}
	_, err = charge(ctx, order)
	fmt.Println(err)
	fmt.Println("again:", webhook(ctx, metadata, "ch_1"))
	fmt.Println(charge(ctx, order))
	// Output:
	// while the handler runs: true
	// the reply was lost
	// again: <nil>
	// {ch_1} <nil>
}

// Some providers accept only UUIDs.
func ExampleAsUUID() {
	id := idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1"}.RecordID()
	fmt.Println(idempotent.AsUUID(id.StepKey("charge")))
	// Output: 22fb0280-52be-4997-b846-1917f5d6ded3
}

// books is what a provider has booked, by idempotency key.
type books map[string]string

var errNoSuchCharge = errors.New("no such charge")

func (b books) Find(_ context.Context, key string) (string, error) {
	if id, found := b[key]; found {
		return id, nil
	}
	return "", errNoSuchCharge
}

type labelPrinter struct{ broken bool }

func (p *labelPrinter) Print(order string) (string, error) {
	if p.broken {
		p.broken = false
		return "", errors.New("the printer is out of paper")
	}
	fmt.Println("printing", order)
	return "label of " + order, nil
}

// A status page, or a support tool, asks for the outcome of a key without running
// anything.
func ExampleLookup() {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	ctx, key := context.Background(), idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-1"}
	status := func(ctx context.Context) string {
		out, err := idempotent.Lookup[Resp](ctx, guard, key)
		var final *idempotent.FinalError
		switch {
		case err == nil:
			return "charged: " + out.Value.ChargeID
		case errors.As(err, &final):
			return "refused: " + final.Code
		case errors.As(err, new(*idempotent.InProgressError)), errors.As(err, new(*idempotent.UnresolvedError)):
			return "pending"
		case errors.Is(err, idempotent.ErrNoRecord):
			return "not charged"
		default:
			return "try again"
		}
	}

	fmt.Println(status(ctx))
	bound := key
	bound.Fingerprint = idempotent.FingerprintBytes([]byte("4200"))
	_, err = idempotent.Do(ctx, guard, bound, func(ctx context.Context) (Resp, error) {
		fmt.Println(status(ctx))
		return Resp{ChargeID: "ch_1"}, nil
	})
	fmt.Println(status(ctx), err)
	// Output:
	// not charged
	// pending
	// charged: ch_1 <nil>
}

// A nightly job has no id: the whole request is its key, and the day is part of it.
func ExampleWholePayload() {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	type Report struct{ Tenant, Day string }
	key := idempotent.WholePayload("report", func(r Report) string { return r.Tenant })
	handler := idempotent.Wrap(guard, key, func(_ context.Context, r Report) (string, error) {
		fmt.Println("sending the report of", r.Day)
		return "sent", nil
	})

	for _, day := range []string{"2026-10-30", "2026-10-30", "2026-10-31"} {
		if _, err := handler(context.Background(), Report{"acme", day}); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// sending the report of 2026-10-30
	// sending the report of 2026-10-31
}

// The retention is the window: one synchronisation for each account and minute. The
// fingerprint covers the account only, so that any request in the window gets the
// first result.
func ExampleDo_window() {
	var clock idempotenttest.Clock
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Now = clock.Now })
	if err != nil {
		panic(err)
	}
	syncAccount := func(ctx context.Context, account string) (string, error) {
		key := idempotent.Key{
			Operation: "sync", Scope: account, ID: "window",
			Fingerprint: idempotent.FingerprintBytes([]byte(account)),
		}
		return idempotent.Do(ctx, guard, key, func(context.Context) (string, error) {
			fmt.Println("reading", account)
			return "42 entries", nil
		}, func(o *idempotent.Operation) {
			o.Recovery = idempotent.Rerun
			o.Retention = time.Minute
		})
	}

	for _, pause := range []time.Duration{0, 30 * time.Second, 30 * time.Second} {
		clock.Advance(pause)
		entries, err := syncAccount(clock.Invocation(context.Background(), 10*time.Second), "acme")
		fmt.Println(entries, err)
	}
	// Output:
	// reading acme
	// 42 entries <nil>
	// 42 entries <nil>
	// reading acme
	// 42 entries <nil>
}
