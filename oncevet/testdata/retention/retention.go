// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"example.com/vet/provider"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdabatch"
)

type bridge = func(context.Context, events.EventBridgeEvent) (string, error)

func short(o *idempotent.Operation) { o.Retention = time.Hour }

func unknown(guard *idempotent.Guard, h bridge, d time.Duration) {
	idempotent.Wrap(guard, lambdabatch.EventBridge("ship"), h, func(o *idempotent.Operation) { o.Retention = d })
}

func handlers(guard *idempotent.Guard, h bridge, topic func(context.Context, events.SNSEvent) (string, error)) {
	idempotent.Wrap(guard, lambdabatch.EventBridge("ship"), h, func(o *idempotent.Operation) { o.Retention = 24 * time.Hour }) // want `retention: outcomes expire after 24h0m0s, and the source delivers again for up to 30h0m0s`
	idempotent.Wrap(guard, lambdabatch.EventBridge("ship"), h, short)                                                          // want `retention: outcomes expire after 1h`
	idempotent.Wrap(guard, lambdabatch.SNS("ship"), topic, provider.Day)                                                       // want `retention: .* lambdabatch.SNSRedelivery`
	idempotent.Wrap(guard, lambdabatch.EventBridge("ship"), h)                                                                 // the guard may set it
	idempotent.Wrap(guard, lambdabatch.EventBridge("ship"), h, func(o *idempotent.Operation) { o.Retention = lambdabatch.EventBridgeRedelivery })
}

func withDefaults(h bridge, optFns []func(*idempotent.Operation)) error {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		return err
	}
	idempotent.Wrap(guard, lambdabatch.EventBridge("ship"), h) // want `retention: outcomes expire after 24h`
	idempotent.Wrap(guard, lambdabatch.EventBridge("ship"), h, optFns...)
	week, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Retention = 7 * 24 * time.Hour })
	if err != nil {
		return err
	}
	idempotent.Wrap(week, lambdabatch.EventBridge("ship"), h)
	return nil
}
