// SPDX-License-Identifier: Apache-2.0

package dynamotest

import (
	"context"
	"errors"
	"fmt"
	"net"

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
