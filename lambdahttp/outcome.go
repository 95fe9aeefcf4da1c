package lambdahttp

import (
	"errors"
	"fmt"

	"github.com/once-lambda/once/idempotent"
)

// outcome returns what of the handler's response is stored, or the error that
// settles the record in place of it.
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

// storable returns what is kept of a response of the handler's, if it is one to
// keep. It is the one place for that rule: what a handler returns comes here,
// and what it hands to a transaction. The error undeliverable says that no
// gateway can answer with r.
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

// statusError stands for a response whose status is not to be stored. It
// reaches observers, and a handler that hands such a response to a transaction.
type statusError struct{ status int }

func (e *statusError) Error() string {
	return fmt.Sprintf("lambdahttp: the handler's response has the status %d, which is not stored", e.status)
}
