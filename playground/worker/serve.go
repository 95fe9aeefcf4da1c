// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent/driver"
)

// Handler is a Lambda handler for an HTTP API.
type Handler = func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error)

// Serve handles requests of the parent, which is a [Pool]. When the parent ends, the
// process ends at once, also in the middle of a request. makeHandler is called once,
// with the store. Serve ignores Ctrl-C, which a
// terminal sends to all processes: the parent waits for running requests.
func Serve(makeHandler func(driver.Store) (Handler, error)) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	h, err := makeHandler(&remoteStore{newWire(os.NewFile(3, "store"), os.NewFile(4, "store"))})
	if err != nil {
		return err
	}
	f, parent, next := &function{h}, newWire(os.Stdin, os.Stdout), make(chan invocation)
	go func() {
		for {
			var in invocation
			if err := parent.in.Decode(&in); err != nil {
				os.Exit(0) // the parent has ended, perhaps in the middle of a request
			}
			next <- in
		}
	}()
	for {
		if err := parent.out.Encode(f.invoke(<-next)); err != nil {
			return err
		}
	}
}

// invocation is a request to the handler.
type invocation struct {
	Event     events.APIGatewayV2HTTPRequest
	Deadline  time.Time
	RequestID string
}

// outcome is what the handler returned.
type outcome struct {
	Response events.APIGatewayV2HTTPResponse
	Error    string
}

type function struct{ handler Handler }

// invoke handles a request. A panic of the handler ends the process, as on Lambda.
func (f *function) invoke(in invocation) (out outcome) {
	ctx, cancel := context.WithDeadline(context.Background(), in.Deadline)
	defer cancel()
	ctx = lambdacontext.NewContext(ctx, &lambdacontext.LambdaContext{AwsRequestID: in.RequestID})
	var err error
	if out.Response, err = f.handler(ctx, in.Event); err != nil {
		out.Error = err.Error()
	}
	return out
}
