package lambdahttp

import (
	"context"
	"errors"
	"sync"

	"github.com/once-lambda/once/idempotent"
)

// declaration holds what a handler declares about its own response. It is
// passed in the handler's context and is safe for concurrent use.
type declaration struct {
	engine    *engine               // whose rules apply to the response
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

// declare changes the declaration of the handler that ctx belongs to. An
// unguarded request has no declaration, and declare does nothing.
func declare(ctx context.Context, change func(*declaration)) {
	d, ok := ctx.Value(declarationKey{}).(*declaration)
	if !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

// said returns the declarations so far.
func (d *declaration) said() (withheld bool, hint string, notExecuted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.withheld, d.hint, d.notExecuted
}

// NoStore excludes the handler's response from the store, for example because
// it contains a secret that is shown once: a new API key, a one-time password.
// The outcome itself is stored: the key never runs again, and a retry gets
// [ReplayUnavailable] with the hint as its detail. The hint should say how the
// client can continue: "Roll the key to get a new secret." An empty hint leaves
// the standard text.
//
// It has no effect outside a guarded request.
func NoStore(ctx context.Context, hint string) {
	declare(ctx, func(d *declaration) { d.withheld, d.hint = true, hint })
}

// NotExecuted declares that the handler's response refuses the request and that
// nothing has happened, for example because of an invalid field or a rate
// limit. The response is sent but not stored, and the key may run again for the
// same request. It is the equivalent of
//
//	return response, idempotent.NotExecuted(err)
//
// for handlers that cannot return an error, such as [http.Handler]s. A call of
// [NoStore] overrides it.
//
// It has no effect outside a guarded request. It also has no effect with the
// context of another operation inside the handler, because the rest of the
// handler may have had effects.
func NotExecuted(ctx context.Context) {
	execution, _ := idempotent.FromContext(ctx)
	declare(ctx, func(d *declaration) { d.notExecuted = d.notExecuted || d.execution == execution })
}

var errDeclared = errors.New("lambdahttp: the handler refused the request with its response")
