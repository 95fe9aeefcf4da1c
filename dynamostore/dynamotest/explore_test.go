// SPDX-License-Identifier: Apache-2.0

package dynamotest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// Each call but a list is a point: it can be refused, as by DynamoDB, or lose its reply.
func TestIn(t *testing.T) {
	denied, lost := 0, 0
	idempotenttest.Explore(t, func(w *idempotenttest.World) {
		db := dynamotest.In(w, "once", []string{"orders"})
		w.ExactlyOnce("order", func() int {
			out, err := db.Scan(context.Background(), &dynamodb.ScanInput{TableName: aws.String("orders")})
			if err != nil {
				t.Fatal(err)
			}
			return len(out.Items)
		})
		idempotenttest.Handle(w, "order-1", func(g *idempotent.Guard) func(context.Context, string) (string, error) {
			key := idempotent.KeyFrom("order", func(id string) (string, string) { return "acme", id })
			return idempotent.Wrap(g, key, func(ctx context.Context, id string) (string, error) {
				if _, err := db.Query(ctx, &dynamodb.QueryInput{TableName: aws.String("orders"), KeyConditionExpression: aws.String("pk = :pk"), ExpressionAttributeValues: item{":pk": text(id)}}); err != nil {
					t.Errorf("a list: %v", err)
				}
				if _, err := db.Scan(ctx, &dynamodb.ScanInput{TableName: aws.String("orders")}); err != nil {
					t.Errorf("a list: %v", err)
				}
				out, err := db.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String("orders"), Key: map[string]types.AttributeValue{"pk": text(id)}})
				switch {
				case err == nil:
				case out != nil:
					t.Errorf("got %v and %v", out, err)
				case code(err) == "AccessDeniedException":
					denied++
				default:
					lost++
				}
				return id, dynamostore.Commit(ctx, id, types.TransactWriteItem{Put: &types.Put{TableName: aws.String("orders"), Item: map[string]types.AttributeValue{"pk": text(id)}}})
			}, func(o *idempotent.Operation) { o.Recovery = idempotent.Rerun })
		})
	}, func(o *idempotenttest.ExploreOptions) { o.Schedules = 200 })
	if denied == 0 || lost == 0 {
		t.Errorf("%d calls were refused, and %d lost their reply", denied, lost)
	}
	defer func() {
		if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "dynamotest: In: ") {
			t.Errorf("got %s", p)
		}
	}()
	dynamotest.In(&idempotenttest.World{}, "once", nil, func(o *dynamostore.Options) { o.Name = "once" })
}
