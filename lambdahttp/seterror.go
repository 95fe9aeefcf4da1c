package lambdahttp

import (
	"context"
	"errors"
	"sync"

	"github.com/once-lambda/once/idempotent"
)

// SetError sets the error that an http.Handler behind [Middleware] cannot
// return. It has the same meaning as the error that an event handler returns,
// see the package's documentation:
//
//   - idempotent.NotExecuted(err): nothing happened, the key may run again.
//     Write the response too. [NotExecuted] is a short form.
//   - idempotent.Unknown(err): the outcome is unknown. Write the response
//     too.
//   - idempotent.Final(code, message): a business outcome. It is sent as a
//     problem document instead of the handler's response; write none.
//   - any other error: the operation's Recovery decides about the key. The
//     caller gets what the handler wrote; if it wrote nothing,
//     Options.ErrorHandler responds. A status below 400 is replaced by 409,
//     outcome-unknown, if the error is or wraps that of a transaction in doubt
//     (a StoreError with Entered).
//
// The last call wins, and nil cancels the earlier ones. With the context of
// another operation inside the handler, the error fails the handler and
// declares neither NotExecuted nor Final. If ctx belongs to no request behind
// Middleware, SetError does nothing. It is safe for concurrent use.
func SetError(ctx context.Context, err error) {
	d, ok := ctx.Value(handlerErrorKey{}).(*handlerError)
	if !ok {
		return
	}
	if execution, _ := idempotent.FromContext(ctx); execution != d.execution {
		err = errors.Join(err) // a joined error declares neither; nil stays nil
	}
	d.set(err)
}

type handlerErrorKey struct{}

// handlerError is the error that was set.
type handlerError struct {
	execution *idempotent.Execution // the handler's run; nil: unguarded

	mu  sync.Mutex
	err error
}

func (d *handlerError) set(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *handlerError) get() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
