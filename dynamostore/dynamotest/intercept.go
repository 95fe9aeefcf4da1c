// SPDX-License-Identifier: Apache-2.0

package dynamotest

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// In returns a database for a handler that [idempotenttest.Explore] crashes, for example
// one with a Commit: the guards of w use table, and more are the handler's own tables.
// Each call is a point, but for lists (Query and Scan). Optional functions change the
// options of the store.
func In(w *idempotenttest.World, table string, more []string, optFns ...func(*dynamostore.Options)) dynamostore.Client {
	client := Intercept(New(append(more, table)...), func(ctx context.Context, c *Call) {
		if c.Op == "Query" || c.Op == "Scan" {
			c.Do(ctx)
			return
		}
		err := w.Do(ctx, "DynamoDB: "+c.Op, func() error {
			c.Do(ctx)
			return c.Err
		})
		if refused := (*net.OpError)(nil); errors.As(err, &refused) {
			err = asTheSDK(c.Op, &smithy.GenericAPIError{
				Code: "AccessDeniedException", Message: "refused by a schedule of idempotenttest.Explore", Fault: smithy.FaultClient,
			})
		}
		if err != nil {
			c.Out, c.Err = nil, err
		}
	})
	store, err := dynamostore.New(client, table, optFns...)
	if err != nil {
		panic(fmt.Errorf("dynamotest: In: %w", err))
	}
	w.Store(store)
	return client
}

// Call is a call to DynamoDB, with its input and its reply.
type Call struct {
	// Op is the name of the operation, such as "PutItem".
	Op string
	// In is the input, such as a *dynamodb.PutItemInput. The caller owns what it points
	// to: to change it, set In to a changed copy.
	In any
	// Out is the output, such as a *dynamodb.PutItemOutput, and Err the error. [Call.Do]
	// sets both, and one of them is nil.
	Out any
	Err error

	do func(context.Context) (any, error)
}

// Do makes the call with the input that c has now, and sets Out and Err.
func (c *Call) Do(ctx context.Context) { c.Out, c.Err = c.do(ctx) }

// Intercept returns a client that calls f in place of each call to client. f can make
// the call with [Call.Do], once, twice or never, change the input before it and the
// reply after it, and block at each point. If f leaves c.Err nil, c.Out must have the
// type of the operation's output. f is called concurrently if the client is.
//
//	lossy := dynamotest.Intercept(db, func(ctx context.Context, c *dynamotest.Call) {
//		c.Do(ctx)
//		if c.Op == "TransactWriteItems" {
//			c.Err = errors.New("connection reset") // it is applied, and its reply is lost
//		}
//	})
//
// The client can be a [*DB] or that of the SDK. It may be nil if f never calls Do.
func Intercept(client dynamostore.Client, f func(ctx context.Context, c *Call)) dynamostore.Client {
	return &intercepted{client, f}
}

type option = func(*dynamodb.Options)

type intercepted struct {
	client dynamostore.Client
	f      func(context.Context, *Call)
}

func (i *intercepted) GetItem(ctx context.Context, in *dynamodb.GetItemInput, o ...option) (*dynamodb.GetItemOutput, error) {
	return intercept(ctx, i, "GetItem", in, o, dynamostore.Client.GetItem)
}

func (i *intercepted) PutItem(ctx context.Context, in *dynamodb.PutItemInput, o ...option) (*dynamodb.PutItemOutput, error) {
	return intercept(ctx, i, "PutItem", in, o, dynamostore.Client.PutItem)
}

func (i *intercepted) DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput, o ...option) (*dynamodb.DeleteItemOutput, error) {
	return intercept(ctx, i, "DeleteItem", in, o, dynamostore.Client.DeleteItem)
}

func (i *intercepted) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, o ...option) (*dynamodb.BatchGetItemOutput, error) {
	return intercept(ctx, i, "BatchGetItem", in, o, dynamostore.Client.BatchGetItem)
}

func (i *intercepted) BatchWriteItem(ctx context.Context, in *dynamodb.BatchWriteItemInput, o ...option) (*dynamodb.BatchWriteItemOutput, error) {
	return intercept(ctx, i, "BatchWriteItem", in, o, dynamostore.Client.BatchWriteItem)
}

func (i *intercepted) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, o ...option) (*dynamodb.TransactWriteItemsOutput, error) {
	return intercept(ctx, i, "TransactWriteItems", in, o, dynamostore.Client.TransactWriteItems)
}

func (i *intercepted) Query(ctx context.Context, in *dynamodb.QueryInput, o ...option) (*dynamodb.QueryOutput, error) {
	return intercept(ctx, i, "Query", in, o, dynamostore.Client.Query)
}

func (i *intercepted) Scan(ctx context.Context, in *dynamodb.ScanInput, o ...option) (*dynamodb.ScanOutput, error) {
	return intercept(ctx, i, "Scan", in, o, dynamostore.Client.Scan)
}

func (i *intercepted) CreateTable(ctx context.Context, in *dynamodb.CreateTableInput, o ...option) (*dynamodb.CreateTableOutput, error) {
	return intercept(ctx, i, "CreateTable", in, o, dynamostore.Client.CreateTable)
}

func (i *intercepted) DescribeTable(ctx context.Context, in *dynamodb.DescribeTableInput, o ...option) (*dynamodb.DescribeTableOutput, error) {
	return intercept(ctx, i, "DescribeTable", in, o, dynamostore.Client.DescribeTable)
}

func (i *intercepted) UpdateTable(ctx context.Context, in *dynamodb.UpdateTableInput, o ...option) (*dynamodb.UpdateTableOutput, error) {
	return intercept(ctx, i, "UpdateTable", in, o, dynamostore.Client.UpdateTable)
}

func (i *intercepted) UpdateTimeToLive(ctx context.Context, in *dynamodb.UpdateTimeToLiveInput, o ...option) (*dynamodb.UpdateTimeToLiveOutput, error) {
	return intercept(ctx, i, "UpdateTimeToLive", in, o, dynamostore.Client.UpdateTimeToLive)
}

func (i *intercepted) DescribeTimeToLive(ctx context.Context, in *dynamodb.DescribeTimeToLiveInput, o ...option) (*dynamodb.DescribeTimeToLiveOutput, error) {
	return intercept(ctx, i, "DescribeTimeToLive", in, o, dynamostore.Client.DescribeTimeToLive)
}

// intercept passes one call to f, and returns its reply. method makes the call.
func intercept[I, O any](ctx context.Context, i *intercepted, op string, in *I, optFns []option,
	method func(dynamostore.Client, context.Context, *I, ...option) (*O, error)) (*O, error) {
	c := &Call{Op: op, In: in}
	c.do = func(ctx context.Context) (any, error) {
		out, err := method(i.client, ctx, c.In.(*I), optFns...)
		if err != nil {
			return nil, err
		}
		return out, nil
	}
	i.f(ctx, c)
	if c.Err != nil {
		return nil, c.Err
	}
	out, ok := c.Out.(*O)
	if !ok {
		return nil, fmt.Errorf("dynamotest: %s was intercepted, and its output is a %T: call Do, or set Out or Err", op, c.Out)
	}
	return out, nil
}
