// SPDX-License-Identifier: Apache-2.0

package order_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/examples/charge-lambda/order"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// atPoints makes each call of a service a point.
type atPoints struct {
	*services
	w *idempotenttest.World
}

func (s atPoints) Charge(ctx context.Context, key string, id idempotent.RecordID, r charge.Request) (c charge.Charge, err error) {
	err = s.w.Do(ctx, "charge", func() (err error) {
		c, err = s.services.Charge(ctx, key, id, r)
		return err
	})
	return c, err
}

func (s atPoints) Find(ctx context.Context, key string) (c charge.Charge, err error) {
	err = s.w.Do(ctx, "find a charge", func() (err error) {
		c, err = s.services.Find(ctx, key)
		return err
	})
	return c, err
}

func (s atPoints) Mail(ctx context.Context, key, id string) (receipt string, err error) {
	err = s.w.Do(ctx, "mail", func() (err error) {
		receipt, err = s.services.Mail(ctx, key, id)
		return err
	})
	return receipt, err
}

// F43: wherever the function is killed, and whatever is lost, the customer is charged once,
// there is one order, and one receipt is mailed, or is in the outbox.
func TestEveryCrash(t *testing.T) {
	for operation, of := range map[string]struct {
		handler  func(*order.Shop) order.Handler
		resolver func(*order.Shop) idempotent.ResolveFunc
	}{
		order.InSteps: {(*order.Shop).InSteps, func(s *order.Shop) idempotent.ResolveFunc { return s.ResolveSteps }},
		order.AtOnce:  {(*order.Shop).AtOnce, func(s *order.Shop) idempotent.ResolveFunc { return s.Resolve }},
	} {
		t.Run(operation, func(t *testing.T) {
			idempotenttest.Explore(t, func(w *idempotenttest.World) {
				db := dynamotest.In(w, "records", []string{"orders", "outbox"})
				b := &services{charges: map[string]charge.Charge{}, mails: map[string]string{}}
				shop := func(g *idempotent.Guard) *order.Shop {
					return &order.Shop{Guard: g, Client: db, Provider: atPoints{b, w}, Mailer: atPoints{b, w}, Orders: "orders", Outbox: "outbox"}
				}
				rows := func(table string) int {
					out, err := db.Scan(context.Background(), &dynamodb.ScanInput{TableName: aws.String(table)})
					if err != nil {
						panic(err)
					}
					return len(out.Items)
				}
				w.ExactlyOnce("charge", func() int { return len(b.charges) })
				w.ExactlyOnce("order", func() int { return rows("orders") })
				w.ExactlyOnce("receipt", func() int { return len(b.mails) + rows("outbox") })
				w.Reconciler(func(g *idempotent.Guard) func(context.Context) (idempotent.Report, error) {
					return idempotent.Reconciler(g, map[string]idempotent.ResolveFunc{operation: of.resolver(shop(g))})
				})
				idempotenttest.Handle(w, order.Request{Number: "o-1", Request: charge.Request{Amount: 4200, Currency: "usd", Customer: "cus_1"}},
					func(g *idempotent.Guard) order.Handler { return of.handler(shop(g)) })
			})
		})
	}
}
