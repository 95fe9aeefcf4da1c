// SPDX-License-Identifier: Apache-2.0

// Package provider has what handlers of other packages call. Nothing here is wrong
// by itself.
package provider

import (
	"context"
	"net/http"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/uuid"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
)

type Order struct{ ID string }

// Pay sends a request without a key.
func Pay(ctx context.Context, o Order) (string, error) {
	return talk(ctx, http.MethodPost, o.ID)
}

// Find sends a request that changes nothing.
func Find(ctx context.Context, o Order) (string, error) {
	return talk(ctx, http.MethodGet, o.ID)
}

// FindOrPay sends one request or two.
func FindOrPay(ctx context.Context, o Order) error {
	if _, err := Find(ctx, o); err == nil {
		return nil
	}
	_, err := Pay(ctx, o)
	return err
}

// Box has a method of a generic type.
type Box[T any] struct{ Content T }

// Pay sends a request without a key.
func (b Box[T]) Pay(ctx context.Context, o Order) (string, error) { return Pay(ctx, o) }

// PayWithKey sends the downstream key.
func PayWithKey(ctx context.Context, o Order) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.test/"+o.ID, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Idempotency-Key", idempotent.DownstreamKey(ctx))
	return send(req)
}

func talk(ctx context.Context, method, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, "https://bank.test/"+path, nil)
	if err != nil {
		return "", err
	}
	return "ch_1", send(req)
}

func send(req *http.Request) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Handler is a handler with a request and two steps.
func Handler(ctx context.Context, o Order) (string, error) {
	if err := step(ctx, "charge", o); err != nil {
		return "", err
	}
	if err := step2(ctx, o); err != nil {
		return "", err
	}
	return Pay(ctx, o)
}

func step(ctx context.Context, name string, o Order) error {
	_, err := idempotent.Step(ctx, name, func(ctx context.Context) (string, error) { return "ch_1", PayWithKey(ctx, o) })
	return err
}

func step2(ctx context.Context, o Order) error {
	_, err := idempotent.Step(ctx, "ship", func(ctx context.Context) (string, error) { return "sh_1", PayWithKey(ctx, o) })
	return err
}

// Ship runs a step.
func Ship(ctx context.Context, o Order) error { return step2(ctx, o) }

// Detached works in a new context.
func Detached(_ context.Context, o Order) error { return detached(o) }

func detached(o Order) error { return PayWithKey(context.Background(), o) }

// Later leaves a goroutine behind.
func Later(ctx context.Context, o Order) {
	go func() { _ = PayWithKey(ctx, o) }()
}

// NewID returns a new id.
func NewID() string { return "order-" + uuid.NewString() }

// Declined returns an outcome.
func Declined() error { return idempotent.Final("declined", "The card was declined.") }

// Save commits.
func Save(ctx context.Context, result string) error { return dynamostore.Commit(ctx, result) }

// ByMessage is a key without a fingerprint.
func ByMessage(_ context.Context, e events.SQSEvent) (idempotent.Key, error) {
	return idempotent.Key{Operation: "order", Scope: idempotent.Global, ID: e.Records[0].Body}, nil
}

// Day sets options.
func Day(o *idempotent.Operation) { o.Retention = 24 * time.Hour }
