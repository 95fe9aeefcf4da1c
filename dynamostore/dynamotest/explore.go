// SPDX-License-Identifier: Apache-2.0

package dynamotest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// In returns a database for a handler that [idempotenttest.Explore] crashes, for example
// one with a Commit: the guards of w use table, and more are the handler's own tables.
// Each call is a point, but for lists (Query and Scan). Optional functions change the options of the store.
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
			err = denied(c.Op)
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

// denied returns the refusal of a call without permission: it had no effect for certain.
func denied(operation string) error {
	err := &smithy.GenericAPIError{Code: "AccessDeniedException", Message: "refused by a schedule of idempotenttest.Explore", Fault: smithy.FaultClient}
	return &smithy.OperationError{ServiceID: "DynamoDB", OperationName: operation, Err: &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: http.StatusBadRequest}}, Err: err,
	}}
}
