// SPDX-License-Identifier: Apache-2.0

package dynamotest_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
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

// Every method passes its call on, by Do, to the same method of the client, and
// returns what the function leaves as the reply.
func TestIntercept(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for method := range reflect.TypeFor[dynamostore.Client]().Methods() {
		in, out := reflect.New(method.Type.In(1).Elem()), reflect.New(method.Type.Out(0).Elem()).Interface()
		for name, row := range map[string]struct {
			out  any
			err  error
			f    func(context.Context, *dynamotest.Call)
			fail string
		}{
			"passed on":          {out, nil, func(ctx context.Context, c *dynamotest.Call) { c.Do(ctx) }, ""},
			"refused":            {nil, down, func(ctx context.Context, c *dynamotest.Call) { c.Do(ctx) }, "down"},
			"reply lost":         {out, nil, func(ctx context.Context, c *dynamotest.Call) { c.Do(ctx); c.Err = down }, "down"},
			"second try":         {out, nil, func(ctx context.Context, c *dynamotest.Call) { c.Err = down; c.Do(ctx) }, ""},
			"answered":           {nil, down, func(_ context.Context, c *dynamotest.Call) { c.Out = out }, ""},
			"left without reply": {out, nil, func(context.Context, *dynamotest.Call) {}, "dynamotest: " + method.Name + " was intercepted, and its output is a <nil>: call Do, or set Out or Err"},
		} {
			made := ""
			inner := dynamotest.Intercept(nil, func(_ context.Context, c *dynamotest.Call) { made, c.Out, c.Err = c.Op, row.out, row.err })
			client := dynamotest.Intercept(inner, func(ctx context.Context, c *dynamotest.Call) {
				if c.Op != method.Name || c.In != in.Interface() {
					t.Errorf("%s, %s: intercepted as %s with %v", method.Name, name, c.Op, c.In)
				}
				row.f(ctx, c)
				if made != "" && made != c.Op {
					t.Errorf("%s, %s: made as %s", method.Name, name, made)
				}
			})
			reply := reflect.ValueOf(client).MethodByName(method.Name).Call([]reflect.Value{reflect.ValueOf(t.Context()), in})
			err, _ := reply[1].Interface().(error)
			good := err == nil && reply[0].Interface() == out
			if row.fail != "" {
				good = err != nil && err.Error() == row.fail && reply[0].IsNil()
			}
			if !good {
				t.Errorf("%s, %s: got %v, %v", method.Name, name, reply[0], err)
			}
		}
	}
}
