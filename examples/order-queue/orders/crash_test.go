// SPDX-License-Identifier: Apache-2.0

package orders

import (
	"context"
	"net/http"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit"
)

// F46, G04: wherever the function is killed, and whatever is lost, the goods leave the stock
// once, the customer is charged once, and there is one order. If the customer cannot pay, the
// goods are given back once.
func TestEveryCrash(t *testing.T) {
	for name, declines := range map[string]bool{"paid": false, "declined": true} {
		t.Run(name, func(t *testing.T) {
			idempotenttest.Explore(t, func(w *idempotenttest.World) {
				bank := &kit.Provider{}
				w.Provider(bank)
				db := shop(w)
				if declines {
					bank.Before = func(*http.Request) int { return http.StatusPaymentRequired }
					w.ExactlyOnce("two cups beyond eight", func() int { return (cups(db) - 8) / 2 })
				} else {
					w.ExactlyOnce("charge", bank.Charges)
					w.ExactlyOnce("order", func() int { return min(1, len(get(db, "order#o-1"))) })
					w.ExactlyOnce("two cups taken", func() int { return (10 - cups(db)) / 2 })
				}
				idempotenttest.Handle(w, message("m-1"), func(g *idempotent.Guard) HandlerFunc {
					return New(g, "shop", Provider("http://bank.test"), nil)
				})
			}, func(o *idempotenttest.ExploreOptions) { o.Schedules = kit.Short(1000, 200) })
		})
	}
}

// shop returns the database of a shop with ten cups.
func shop(w *idempotenttest.World) dynamostore.Client {
	db := dynamotest.In(w, "once", []string{"shop"})
	if _, err := db.PutItem(context.Background(), &dynamodb.PutItemInput{
		TableName: aws.String("shop"), Item: item{"pk": text("stock#cup"), "available": number(10)},
	}); err != nil {
		panic(err)
	}
	return db
}

func get(db dynamostore.Client, key string) item {
	out, err := db.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: aws.String("shop"), Key: item{"pk": text(key)}})
	if err != nil {
		panic(err)
	}
	return out.Item
}

func cups(db dynamostore.Client) int {
	n, err := strconv.Atoi(get(db, "stock#cup")["available"].(*types.AttributeValueMemberN).Value)
	if err != nil {
		panic(err)
	}
	return n
}
