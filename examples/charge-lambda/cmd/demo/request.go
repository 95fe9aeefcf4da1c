package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/examples/charge-lambda/order"
	"github.com/once-lambda/once/idempotent"
)

// The environment of a request's process.
const (
	envFlow     = "DEMO_FLOW"
	envNumber   = "DEMO_NUMBER" // of the order
	envMoment   = "DEMO_MOMENT" // the moment at which to wait for the kill; empty: none
	envEngine   = "DEMO_ENGINE"
	envTables   = "DEMO_TABLES"
	envServices = "DEMO_SERVICES"
)

// reached is what a process prints when it has reached its moment.
const reached = "reached"

// customer is the customer of all orders.
const customer = "cus_1"

// timeout is the time-out of the function, at which a platform would kill it.
const timeout = 2 * time.Second

// reply is what a request's process prints.
type reply struct {
	order.Confirmation
	Error      string        `json:"error,omitempty"`
	Again      bool          `json:"again,omitempty"`      // the client has to repeat the request
	Unresolved bool          `json:"unresolved,omitempty"` // the outcome has to be resolved first
	RetryAfter time.Duration `json:"retry_after,omitempty"`
}

// request is the process of one request.
func request(ctx context.Context, _ []string) error {
	f, err := flowOf(os.Getenv(envFlow))
	if err != nil {
		return err
	}
	shop, _, err := open(os.Getenv(envEngine), os.Getenv(envTables), os.Getenv(envServices), killer(os.Getenv(envMoment)))
	if err != nil {
		return err
	}
	r := order.Request{Number: os.Getenv(envNumber), Request: charge.Request{Amount: 4200, Currency: "usd", Customer: customer}}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var answer reply
	answer.Confirmation, err = f.handler(shop)(ctx, r)
	killer(os.Getenv(envMoment)).at(beforeAnswer)
	answer.tell(err)
	return json.NewEncoder(os.Stdout).Encode(answer)
}

// Translates an error into what the client has to do.
func (r *reply) tell(err error) {
	if err == nil {
		return
	}
	r.Error = err.Error()
	var running *idempotent.InProgressError
	switch {
	case errors.As(err, &running):
		r.Again, r.RetryAfter = true, running.RetryAfter
	case errors.As(err, new(*idempotent.UnresolvedError)):
		r.Again, r.Unresolved = true, true
	case errors.As(err, new(*idempotent.StoreError)), errors.As(err, new(*idempotent.NoTimeError)), errors.Is(err, context.DeadlineExceeded):
		r.Again = true // on a busy machine
	}
}

// killer waits at a moment to be killed.
type killer string

func (k killer) at(moment string) {
	if string(k) == moment {
		fmt.Println(reached)
		select {}
	}
}

// around runs f between two moments.
func around[T any](k killer, before, after string, f func() (T, error)) (T, error) {
	k.at(before)
	v, err := f()
	k.at(after)
	return v, err
}

// The shop's services, each between its moments.

type haltingProvider struct {
	order.Provider
	killer
}

func (p *haltingProvider) Charge(ctx context.Context, key string, record idempotent.RecordID, r charge.Request) (charge.Charge, error) {
	return around(p.killer, beforePayment, afterPayment, func() (charge.Charge, error) { return p.Provider.Charge(ctx, key, record, r) })
}

type haltingMailer struct {
	order.Mailer
	killer
}

func (m *haltingMailer) Mail(ctx context.Context, key, id string) (string, error) {
	return around(m.killer, beforeReceipt, afterReceipt, func() (string, error) { return m.Mailer.Mail(ctx, key, id) })
}

type haltingClient struct {
	*dynamodb.Client
	killer
}

// TransactWriteItems writes the order with the other items of its transaction.
func (c *haltingClient) TransactWriteItems(
	ctx context.Context, in *dynamodb.TransactWriteItemsInput, optFns ...func(*dynamodb.Options),
) (*dynamodb.TransactWriteItemsOutput, error) {
	return around(c.killer, beforeOrder, afterOrder, func() (*dynamodb.TransactWriteItemsOutput, error) {
		return c.Client.TransactWriteItems(ctx, in, optFns...)
	})
}
