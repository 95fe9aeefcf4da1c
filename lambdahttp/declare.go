package lambdahttp

import (
	"context"
	"sync"
)

// Declare says what an http.Handler behind [Middleware] has no return value
// for: how its run ended. It counts like the error that a handler of an event
// returns, see the package's documentation:
//
//   - idempotent.NotExecuted(err): nothing happened, the key may run again.
//     Write the response too.
//   - idempotent.Unknown(err): nobody can know. Write the response too.
//   - idempotent.Final(code, message): a business outcome. It is answered as a
//     problem document in place of the handler's response; write none.
//   - any other error: the operation's Recovery decides about the key. What the
//     handler wrote is the answer; if it wrote nothing, Options.ErrorHandler
//     answers.
//
// The last call counts, and nil takes back the ones before. Where ctx belongs
// to no request behind Middleware there is no key, and it does nothing. It is
// safe for concurrent use.
func Declare(ctx context.Context, err error) {
	if d, ok := ctx.Value(declarationKey{}).(*declaration); ok {
		d.set(err)
	}
}

type declarationKey struct{}

// declaration is what a handler said with Declare.
type declaration struct {
	mu  sync.Mutex
	err error
}

func (d *declaration) set(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *declaration) get() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
