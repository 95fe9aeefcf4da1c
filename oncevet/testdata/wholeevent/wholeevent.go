// SPDX-License-Identifier: Apache-2.0

package wholeevent

import (
	"context"
	"encoding/json"

	"github.com/aws/aws-lambda-go/events"

	"example.com/vet/provider"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
)

type task struct {
	Event events.APIGatewayV2HTTPRequest
}

func handlers(guard *idempotent.Guard, h func(context.Context, events.SQSEvent) (string, error), api func(context.Context, task) (string, error), bridge func(context.Context, events.EventBridgeEvent) (string, error)) {
	idempotent.Wrap(guard, byBody, h)                                                                                    // want `wholeevent: the key sets no fingerprint, so it is that of the whole SQSEvent`
	idempotent.Wrap(guard, provider.ByMessage, h)                                                                        // want `wholeevent: `
	idempotent.Wrap(guard, idempotent.KeyFrom("api", func(t task) (scope, id string) { return "s", t.Event.Body }), api) // want `wholeevent: .* APIGatewayV2HTTPRequest`
	idempotent.WholePayload("report", func(events.SQSEvent) string { return "s" })                                       // want `wholeevent: the key is a whole SQSEvent`

	idempotent.Wrap(guard, withFingerprint, h)
	idempotent.Wrap(guard, through, h)
	idempotent.Wrap(guard, lambdabatch.EventBridge("ship"), bridge)
}

type tagged struct {
	Event events.SQSEvent `json:"-"`
	ID    string
}

func withoutEvent(guard *idempotent.Guard, h func(context.Context, tagged) (string, error)) {
	idempotent.Wrap(guard, idempotent.KeyFrom("order", func(t tagged) (scope, id string) { return "s", t.ID }), h)
}

// wrap has a type parameter for the event.
func wrap[E any](guard *idempotent.Guard, key idempotent.KeyFunc[E], h func(context.Context, E) (string, error)) {
	idempotent.Wrap(guard, key, h)
	idempotent.WholePayload("report", func(E) string { return "s" })
}

func byBody(_ context.Context, e events.SQSEvent) (idempotent.Key, error) {
	return idempotent.Key{Operation: "order", Scope: "s", ID: e.Records[0].Body}, nil
}

func withFingerprint(_ context.Context, e events.SQSEvent) (k idempotent.Key, err error) {
	k = idempotent.Key{Operation: "order", Scope: "s", ID: "1"}
	k.Fingerprint, err = idempotent.FingerprintOf(e.Records[0].Body)
	return k, err
}

type (
	aliased = events.SQSEvent
	mixed   struct {
		ID       string
		Messages []*events.SQSMessage
	}
	node struct {
		ID   string
		Next *node
	}
)

func contained(a aliased, m mixed, n node) {
	idempotent.FingerprintOf(a) // want `wholeevent: the fingerprint is that of a whole SQSEvent`
	idempotent.FingerprintOf(m) // want `wholeevent: the fingerprint is that of a whole SQSMessage`
	idempotent.FingerprintOf(n)
}

func encode(e any) ([]byte, error) { return []byte("{}"), nil }

func otherDocuments(e events.SQSEvent, stored map[string][]byte) {
	doc, _ := encode(e)
	idempotent.FingerprintJSON(doc)
	doc, _ = stored["{}"]
	idempotent.FingerprintJSON(doc)
}

func through(ctx context.Context, e events.SQSEvent) (idempotent.Key, error) {
	return withFingerprint(ctx, e)
}

func fingerprints(e events.SQSEvent) error {
	if _, err := idempotent.FingerprintOf(e); err != nil { // want `wholeevent: the fingerprint is that of a whole SQSEvent`
		return err
	}
	doc, err := json.Marshal(e.Records[0])
	if err != nil {
		return err
	}
	_, err = idempotent.FingerprintJSON(doc) // want `wholeevent: the fingerprint is that of a whole SQSMessage`
	return err
}
