package lambdahttp

import (
	"context"
	"errors"
	"sync"

	"github.com/once-lambda/once/idempotent"
)

// declaration is what a handler says about its own response. It travels in the
// handler's context and is safe for concurrent use.
type declaration struct {
	engine    *engine               // whose rules hold for the response
	execution *idempotent.Execution // the handler's run

	mu          sync.Mutex
	withheld    bool
	hint        string
	notExecuted bool
}

type declarationKey struct{}

func withDeclaration(ctx context.Context, d *declaration) context.Context {
	return context.WithValue(ctx, declarationKey{}, d)
}

// declare changes the declaration of the handler that ctx belongs to. Where a
// request runs unguarded there is none, and nothing to declare.
func declare(ctx context.Context, change func(*declaration)) {
	d, ok := ctx.Value(declarationKey{}).(*declaration)
	if !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

// said returns what was declared so far.
func (d *declaration) said() (withheld bool, hint string, notExecuted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.withheld, d.hint, d.notExecuted
}

// NoStore keeps the response that the handler is going to return out of the
// store, because it holds a secret that is shown once: a new API key, a one-time
// password. The outcome itself is stored: the key is never run again, and a
// retry gets [ReplayUnavailable] with the hint, which should tell the client
// how to go on: "Roll the key to get a new secret." An empty hint leaves the
// standard text.
//
// It has no effect outside a guarded request.
func NoStore(ctx context.Context, hint string) {
	declare(ctx, func(d *declaration) { d.withheld, d.hint = true, hint })
}

// NotExecuted declares that the response which the handler is going to return
// refuses the request, and that nothing has happened: an invalid field, a
// caller who has to slow down. It is answered, but not stored, and the key may
// run again for the same request. It is what
//
//	return response, idempotent.NotExecuted(err)
//
// is, for handlers without an error to return, such as [http.Handler]s. A call
// of [NoStore] wins over it.
//
// It has no effect outside a guarded request, and none with the context of
// another operation inside the handler: what that one did not execute says
// nothing of the rest.
func NotExecuted(ctx context.Context) {
	execution, _ := idempotent.FromContext(ctx)
	declare(ctx, func(d *declaration) { d.notExecuted = d.notExecuted || d.execution == execution })
}

var errDeclared = errors.New("lambdahttp: the handler refused the request with its response")
