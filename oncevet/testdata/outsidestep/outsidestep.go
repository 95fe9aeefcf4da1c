// SPDX-License-Identifier: Apache-2.0

package outsidestep

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"example.com/vet/provider"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/lambdahttp"
)

func resume(o *idempotent.Operation) {
	o.Recovery, o.Steps = idempotent.Resume, []string{"charge", "ship"}
}

func handlers(guard *idempotent.Guard, key idempotent.KeyFunc[provider.Order]) {
	idempotent.Wrap(guard, key, direct, resume)
	idempotent.Wrap(guard, key, right, resume)
	idempotent.Wrap(guard, key, byValue, resume)
	idempotent.Wrap(guard, key, reconciled)
	idempotent.Wrap(guard, key, provider.Handler, resume) // want `outsidestep: Client.Do \(provider.go:\d+\) sends a request outside a step`
	lambdabatch.SQS(guard, batch, func(o *lambdabatch.Options) {
		o.Operation, o.ID = "order", lambdabatch.Field("/id")
		o.Guard = resume
	})
	pay := lambdahttp.JSON[provider.Order, string]{Handle: fromHTTP}
	pay.APIGatewayV2(guard, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.Claim("sub")
		o.Guard = func(o *idempotent.Operation) { o.Recovery = idempotent.Resume }
	})
	made := newAPI(2)
	made.FunctionURL(guard)
	apiGateway := made.ALB
	apiGateway(guard, func(o *lambdahttp.Options) { o.Guard = resume })
	made.APIGatewayV2(guard, func(o *lambdahttp.Options) { o.Guard = resume })
	var captured lambdahttp.JSON[provider.Order, string]
	captured.Handle = fromClosure
	func() { captured.FunctionURL(guard, func(o *lambdahttp.Options) { o.Guard = resume }) }()
	free := lambdahttp.JSON[provider.Order, string]{Handle: reconciledHTTP}
	free.APIGatewayV1(guard)
	checked := lambdahttp.JSON[provider.Order, string]{Check: check}
	checked.ALB(guard, func(o *lambdahttp.Options) { o.Guard = resume })
	lambdabatch.SQS(guard, rerun, func(*lambdabatch.Options) { defaults = resume })
	api.APIGatewayV2(guard, func(o *lambdahttp.Options) { o.Guard = resume })
	settings := resumed()
	idempotent.Wrap(guard, key, methods, settings)
	idempotent.Wrap(guard, key, chosen, settings)
	idempotent.Wrap(guard, key, timed(right), resume)
	other(guard, func(o *lambdahttp.Options) { o.Guard = resume })(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		http.Post("https://bank.test", "", nil)
	}))
	lambdahttp.Middleware(guard, func(o *lambdahttp.Options) { o.Guard = resume })(http.HandlerFunc(serve))
}

var defaults func(*idempotent.Operation)

func rerun(context.Context, provider.Order) error {
	_, err := http.Post("https://bank.test", "", nil)
	return err
}

func resumed() func(*idempotent.Operation) { return resume }

// timed is a wrapper: what it does itself is not known.
func timed(h handler) handler {
	return func(ctx context.Context, o provider.Order) (string, error) {
		http.Post("https://metrics.test", "", nil)
		return h(ctx, o)
	}
}

func fromClosure(_ context.Context, o provider.Order) (string, error) {
	req, err := http.NewRequest(http.MethodPost, "https://bank.test/"+o.ID, nil)
	pending = &req
	func() { _, err = http.DefaultClient.Do(req) }() // want `outsidestep: `
	return "", err
}

var pending **http.Request

func reconciledHTTP(context.Context, provider.Order) (string, error) {
	_, err := http.Post("https://bank.test", "", nil)
	return "", err
}

func check(context.Context, *lambdahttp.Request, *provider.Order) error {
	_, err := http.Post("https://bank.test", "", nil)
	return err
}

// each calls its function with another method.
func each(_ string, f func(method string) error) error { return f(http.MethodGet) }

func either(method, other string, swap bool) error {
	if swap {
		method = other
	}
	req, err := http.NewRequest(method, "https://bank.test", nil)
	if err != nil {
		return err
	}
	_, err = http.DefaultClient.Do(req)
	return err
}

// label is text that a function writes.
type label func() error

func (label) String() string { return "label" }

func unknownMethods(ctx context.Context, o provider.Order) (string, error) {
	if err := each(http.MethodPost, func(method string) error { return put(ctx, method, o) }); err != nil {
		return "", err
	}
	var by func(context.Context, string, provider.Order) error
	if o.ID == "2" {
		by = put
	}
	if err := by(ctx, http.MethodPost, o); err != nil {
		return "", err
	}
	if err := errors.Join(either(http.MethodPost, http.MethodGet, o.ID == "1"), either(http.MethodGet, http.MethodPost, o.ID == "2")); err != nil {
		return "", err
	}
	var text fmt.Stringer = label(func() error { return send(o) })
	return text.String(), nil
}

func chosen(ctx context.Context, o provider.Order) (string, error) {
	pay, box := provider.Pay, provider.Box[int]{}
	if o.ID == "" {
		pay = provider.Find
	}
	if _, err := pay(ctx, o); err != nil { // want `outsidestep: `
		return "", err
	}
	if o.ID == "1" {
		return chosen(ctx, provider.Order{}) // want `outsidestep: `
	}
	if err := send(o); err != nil { // want `outsidestep: `
		return "", err
	}
	return box.Pay(ctx, o) // want `outsidestep: `
}

func send[T any](T) error {
	_, err := http.Post("https://bank.test", "", nil)
	return err
}

// other guards nothing.
func other(*idempotent.Guard, ...func(*lambdahttp.Options)) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler { return h }
}

// byGuard has the options of its guard, unless its own ones change them.
func byGuard(key idempotent.KeyFunc[provider.Order]) error {
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
		o.Recovery, o.Steps = idempotent.Resume, []string{"charge"}
	})
	if err != nil {
		return err
	}
	idempotent.Wrap(guard, key, func(context.Context, provider.Order) (string, error) {
		_, err := http.Post("https://bank.test", "", nil) // want `outsidestep: `
		return "", err
	})
	idempotent.Wrap(guard, key, reconciled, func(o *idempotent.Operation) { o.Recovery = idempotent.Reconcile })
	_, err = idempotent.Do(context.Background(), guard, idempotent.Key{}, func(context.Context) (string, error) {
		_, err := http.Post("https://bank.test", "", nil) // want `outsidestep: `
		return "", err
	})
	return err
}

// unknown has options that the package does not decide.
func unknown(guard *idempotent.Guard, key idempotent.KeyFunc[provider.Order], optFns []func(*idempotent.Operation), recovery idempotent.Recovery, guards map[string]*idempotent.Guard, api func() lambdahttp.JSON[provider.Order, string], h func() handler) {
	other, _ := guards["other"]
	idempotent.Wrap(other, key, reconciled)
	api().ALB(guard, func(o *lambdahttp.Options) { o.Guard = resume })
	idempotent.Wrap(guard, key, h(), resume)
	idempotent.Wrap(guard, key, unknownMethods, resume)
	idempotent.Wrap(guard, key, reconciled, optFns...)
	idempotent.Wrap(guard, key, reconciled, optFns[:1]...)
	idempotent.Wrap(guard, key, reconciled, func(o *idempotent.Operation) { o.Recovery = recovery })
}

func newAPI(n int) lambdahttp.JSON[provider.Order, string] {
	if n > 0 {
		return newAPI(n - 1)
	}
	return lambdahttp.JSON[provider.Order, string]{Handle: fromFunction}
}

func fromFunction(_ context.Context, o provider.Order) (string, error) {
	_, err := http.Post("https://bank.test/"+o.ID, "", nil) // want `outsidestep: `
	return "", err
}

var api = lambdahttp.JSON[provider.Order, string]{Handle: fromVariable}

func fromVariable(_ context.Context, o provider.Order) (string, error) {
	_, err := http.Post("https://bank.test/"+o.ID, "", nil) // want `outsidestep: `
	return "", err
}

func methods(ctx context.Context, o provider.Order) (string, error) {
	var req *http.Request
	if o.ID != "" {
		req, _ = http.NewRequest(http.MethodPost, "https://bank.test", nil)
	}
	http.DefaultClient.Do(req) // want `outsidestep: `
	req, _ = http.NewRequest("", "https://bank.test", nil)
	http.DefaultClient.Do(req)
	method := http.MethodGet
	if o.ID != "" {
		method = http.MethodPost
	}
	req, _ = http.NewRequest(method, "https://bank.test", nil) // unknown
	http.DefaultClient.Do(req)
	req, _ = http.NewRequest(http.MethodHead, "https://bank.test", nil)
	http.DefaultClient.Do(req.Clone(ctx))
	req, _ = http.NewRequest(http.MethodOptions, "https://bank.test", nil)
	http.DefaultClient.Do(req)
	_, err := http.PostForm("https://bank.test", nil) // want `outsidestep: `
	return "", err
}

// chained puts layers around a handler, in a loop.
func chained(guard *idempotent.Guard, key idempotent.KeyFunc[provider.Order], layers []func(handler) handler) {
	h := handler(func(context.Context, provider.Order) (string, error) {
		_, err := http.Post("https://bank.test", "", nil) // want `outsidestep: `
		return "", err
	})
	for _, layer := range layers {
		h = layer(h)
	}
	idempotent.Wrap(guard, key, h, resume)
	idempotent.Wrap(guard, key, layers[0](fromLayer), resume)
}

func fromLayer(context.Context, provider.Order) (string, error) {
	_, err := http.Post("https://bank.test", "", nil) // want `outsidestep: `
	return "", err
}

type handler func(context.Context, provider.Order) (string, error)

func again(ctx context.Context, o provider.Order) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://bank.test/"+o.ID, nil)
	for range 3 {
		req = req.WithContext(ctx)
	}
	if err == nil {
		_, err = http.DefaultClient.Do(req.Clone(ctx))
	}
	return err
}

func direct(ctx context.Context, o provider.Order) (string, error) {
	if _, err := provider.Find(ctx, o); err != nil { // reads
		return "", err
	}
	if _, err := http.Post("https://bank.test", "", nil); err != nil { // want `outsidestep: Post \(outsidestep.go:\d+\) sends a request outside a step under Resume`
		return "", err
	}
	if err := again(ctx, o); err != nil { // want `outsidestep: `
		return "", err
	}
	return inner(ctx, o) // want `outsidestep: Client.Do \(provider.go:\d+\)`
}

func inner(ctx context.Context, o provider.Order) (string, error) {
	return provider.Pay(ctx, o)
}

func right(ctx context.Context, o provider.Order) (string, error) {
	return idempotent.Step(ctx, "charge", func(ctx context.Context) (string, error) { return "ch_1", provider.PayWithKey(ctx, o) })
}

func reconciled(ctx context.Context, o provider.Order) (string, error) { return provider.Pay(ctx, o) }

func batch(ctx context.Context, o provider.Order) error {
	return put(ctx, http.MethodPut, o) // want `outsidestep: `
}

func put(ctx context.Context, method string, o provider.Order) error {
	req, err := http.NewRequestWithContext(ctx, method, "https://bank.test/"+o.ID, nil)
	if err != nil {
		return err
	}
	_, err = http.DefaultClient.Do(req)
	return err
}

func fromHTTP(_ context.Context, o provider.Order) (string, error) {
	_, err := http.Post("https://bank.test/"+o.ID, "", nil) // want `outsidestep: `
	return "", err
}

func serve(w http.ResponseWriter, r *http.Request) {
	if _, err := provider.Pay(r.Context(), provider.Order{}); err != nil { // want `outsidestep: `
		w.WriteHeader(http.StatusBadGateway)
	}
}

type client struct{ base string }

func (c client) send(ctx context.Context, method string) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base, nil)
	if err != nil {
		return err
	}
	_, err = http.DefaultClient.Do(req.WithContext(ctx))
	return err
}

func byValue(ctx context.Context, _ provider.Order) (string, error) {
	send := client{"https://bank.test"}.send
	if err := send(ctx, http.MethodGet); err != nil {
		return "", err
	}
	return "", send(ctx, http.MethodPut) // want `outsidestep: `
}
