// SPDX-License-Identifier: Apache-2.0

// Package page has the code of docs/oncevet.md.
package page

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/uuid"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
)

type order struct {
	ID, Customer string
}

type client struct{}

// charge sends a request to a payment provider.
func (client) charge(ctx context.Context, key string, o order) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.test/charges", strings.NewReader(o.ID))
	if err != nil {
		return "", err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	_, err = http.DefaultClient.Do(req)
	return "ch_1", err
}

func (client) mail(ctx context.Context, o order) (string, error) {
	_, err := http.Post("https://mail.test/receipts", "text/plain", strings.NewReader(o.ID))
	return "m_1", err
}

var (
	bank       client
	item       types.TransactWriteItem
	errNotSent = errors.New("no connection")
)

func lostcontext(ctx context.Context, o order) (string, error) {
	return idempotent.Step(ctx, "charge", func(ctx context.Context) (string, error) {
		return bank.charge(context.Background(), idempotent.DownstreamKey(ctx), o) // want "lostcontext"
	})
}

func lostcontextRight(ctx context.Context, o order) (string, error) {
	return idempotent.Step(ctx, "charge", func(ctx context.Context) (string, error) {
		return bank.charge(ctx, idempotent.DownstreamKey(ctx), o)
	})
}

func downstreamkey(ctx context.Context, o order) error {
	_, err := idempotent.Step(ctx, "mail", func(ctx context.Context) (string, error) { // the provider knows no keys
		_, err := http.Post("https://mail.test/receipts", "text/plain", strings.NewReader(o.ID)) // want "downstreamkey"
		return "", err
	})
	return err
}

func downstreamkeyRight(ctx context.Context, o order) error {
	_, err := idempotent.Step(ctx, "mail", func(ctx context.Context) (string, error) {
		return bank.mail(ctx, o)
	}, func(o *idempotent.StepOptions) { o.AtMostOnce = true })
	return err
}

func outsidestep(guard *idempotent.Guard, byID idempotent.KeyFunc[order]) {
	resume := func(o *idempotent.Operation) { o.Recovery, o.Steps = idempotent.Resume, []string{"charge"} }
	idempotent.Wrap(guard, byID, func(ctx context.Context, o order) (string, error) {
		return bank.charge(ctx, idempotent.DownstreamKey(ctx), o) // want "outsidestep"
	}, resume)
	idempotent.Wrap(guard, byID, func(ctx context.Context, o order) (string, error) {
		return idempotent.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			return bank.charge(ctx, idempotent.DownstreamKey(ctx), o)
		})
	}, resume)
}

func notexecuted(ctx context.Context, o order) (string, error) {
	id, err := bank.charge(ctx, idempotent.DownstreamKey(ctx), o)
	if err != nil {
		return "", idempotent.NotExecuted(err) // want "notexecuted"
	}
	return id, nil
}

func notexecutedRight(ctx context.Context, o order) (string, error) {
	id, err := bank.charge(ctx, idempotent.DownstreamKey(ctx), o)
	if errors.Is(err, errNotSent) {
		return "", idempotent.NotExecuted(err)
	}
	return id, err
}

func ignored(ctx context.Context) (string, error) {
	if err := dynamostore.Commit(ctx, "placed", item); err != nil { // want "ignored"
		log.Print(err)
	}
	return "placed", nil
}

func ignoredRight(ctx context.Context) (string, error) {
	return "placed", dynamostore.Commit(ctx, "placed", item)
}

func afterexit(guard *idempotent.Guard, byID idempotent.KeyFunc[order]) {
	idempotent.Wrap(guard, byID, func(ctx context.Context, o order) (string, error) {
		go bank.mail(ctx, o) // want "afterexit"
		return "placed", nil
	})
	idempotent.Wrap(guard, byID, func(ctx context.Context, o order) (string, error) {
		mailed := make(chan error, 1)
		go func() {
			_, err := bank.mail(ctx, o)
			mailed <- err
		}()
		return "placed", <-mailed
	})
}

func unstablekey(o order) []idempotent.Key {
	return []idempotent.Key{
		{Operation: "order", Scope: o.Customer, ID: uuid.NewString()}, // want "unstablekey"
		{Operation: "order", Scope: o.Customer, ID: o.ID},
	}
}

func stepname(ctx context.Context, orders []order) error {
	for _, o := range orders {
		ship := func(ctx context.Context) (string, error) { return bank.charge(ctx, idempotent.DownstreamKey(ctx), o) }
		if _, err := idempotent.Step(ctx, "ship", ship); err != nil { // want "stepname"
			return err
		}
		if _, err := idempotent.Step(ctx, "bill/"+o.ID, ship); err != nil {
			return err
		}
	}
	return nil
}

func joined(err error) []error {
	return []error{
		fmt.Errorf("take order: %w", idempotent.NotExecuted(err)), // want "joined"
		idempotent.NotExecuted(fmt.Errorf("take order: %w", err)),
	}
}

func aftercommit(ctx context.Context, o order) error {
	if err := dynamostore.Commit(ctx, "placed", item); err != nil {
		return err
	}
	_, err := bank.mail(ctx, o) // want "aftercommit"
	return err
}

func aftercommitRight(ctx context.Context, outbox types.TransactWriteItem) error {
	return dynamostore.Commit(ctx, "placed", item, outbox)
}

func committype(guard *idempotent.Guard, byID idempotent.KeyFunc[order]) {
	idempotent.Wrap(guard, byID, func(ctx context.Context, o order) (order, error) {
		return o, dynamostore.Commit(ctx, "placed", item) // want "committype"
	})
}

func committypeRight(guard *idempotent.Guard, byID idempotent.KeyFunc[order]) {
	idempotent.Wrap(guard, byID, func(ctx context.Context, o order) (order, error) {
		return o, dynamostore.Commit(ctx, o, item)
	})
}

func wholeevent(guard *idempotent.Guard, take func(context.Context, events.SQSEvent) (string, error)) {
	idempotent.Wrap(guard, func(_ context.Context, e events.SQSEvent) (idempotent.Key, error) { // want "wholeevent"
		return idempotent.Key{Operation: "order", Scope: idempotent.Global, ID: e.Records[0].Body}, nil
	}, take)
}

func wholeeventRight(guard *idempotent.Guard, take func(context.Context, order) error) {
	lambdabatch.SQS(guard, take, func(o *lambdabatch.Options) {
		o.Operation, o.ID = "order", lambdabatch.Field("/order_id")
	})
}

func retention(guard *idempotent.Guard, ship func(context.Context, events.EventBridgeEvent) (string, error)) {
	idempotent.Wrap(guard, lambdabatch.EventBridge("ship"), ship, func(o *idempotent.Operation) { // want "retention"
		o.Retention = 24 * time.Hour
	})
	idempotent.Wrap(guard, lambdabatch.EventBridge("ship"), ship, func(o *idempotent.Operation) {
		o.Retention = lambdabatch.EventBridgeRedelivery
	})
}

func accepted(ctx context.Context, guard *idempotent.Guard, id idempotent.RecordID) {
	//oncevet:ignore ignored the provider sends the webhook again, and its next answer counts
	_ = guard.Resolve(ctx, id, idempotent.Resolved("placed"))
}
