package lambdahttp

import (
	"errors"
	"fmt"

	"github.com/once-lambda/once/idempotent"
)

// outcome returns what is stored of the handler's response, or the error that
// settles the record instead.
func (e *engine) outcome(w work, d *declaration) (stored, error) {
	r, err := w.response()
	s, err := e.storable(r, err, d)
	switch {
	case err == nil:
		return s, nil
	case errors.Is(err, errDeclared), e.opts.ServerErrors == ReleaseServerErrors:
		err = idempotent.NotExecuted(err)
	case e.opts.ServerErrors == UnknownServerErrors:
		err = idempotent.Unknown(err)
	}
	return stored{}, err
}

// storable returns what is stored of a handler's response, or an error if the
// response is not stored. Every response passes here, whether the handler
// returns it or passes it to a transaction. The error undeliverable means that
// no gateway can send r.
func (e *engine) storable(r Response, undeliverable error, d *declaration) (stored, error) {
	withheld, hint, notExecuted := d.said()
	switch {
	case notExecuted && !withheld:
		return stored{}, errDeclared
	case undeliverable != nil:
		return stored{}, fmt.Errorf("lambdahttp: no gateway can deliver the handler's response: %w", undeliverable)
	case !deliverable(r.Status), r.Status >= 500 && e.opts.ServerErrors != StoreServerErrors:
		return stored{}, &statusError{r.Status}
	case withheld:
		return stored{Response: Response{Status: r.Status}, withheld: true, hint: hint}, nil
	}
	r.Header = only(r.Header, e.replayHeaders)
	return stored{Response: r}, nil
}

// statusError reports a response whose status is not stored. It reaches
// observers, and a handler that passes such a response to a transaction.
type statusError struct{ status int }

func (e *statusError) Error() string {
	return fmt.Sprintf("lambdahttp: response not stored: the handler returned status %d", e.status)
}
