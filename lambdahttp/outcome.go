// SPDX-License-Identifier: Apache-2.0

package lambdahttp

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"sync"
	"unicode/utf8"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/httpform"
)

// NoStore excludes the handler's response from the store, for example because
// it contains a secret that is shown once: a new API key, a one-time password.
// The outcome itself is stored: the key never runs again, and a retry gets
// [ReplayUnavailable] with the hint as its detail. The hint should say how the
// client can continue: "Roll the key to get a new secret." An empty hint leaves
// the standard text.
//
// Behind [Middleware] it also allows the handler to stream: a flush after NoStore
// sends the response that was written so far, and each later write passes to the
// client. Without a flush the response is sent when the outcome is stored.
//
// It has no effect outside a guarded request.
func NoStore(ctx context.Context, hint string) {
	d, ok := ctx.Value(declarationKey{}).(*declaration)
	if !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.withheld, d.hint = true, hint
}

// Resolved returns the evidence that a request had its effect, with its
// response, for [idempotent.Guard.Resolve] on a record of this package. Retries
// get the response as if the handler had returned it; headers that are not
// replayed are removed. The status must be 200 to 599.
func Resolved(r Response) idempotent.Resolution {
	return idempotent.ResolvedWith(codec{}, r)
}

// declaration holds what a handler declares about its own response. It is
// passed in the handler's context and is safe for concurrent use.
type declaration struct {
	opts      *Options              // whose rules apply to the response
	translate translator            // of the handler's event type
	tooLarge  func(*Response) error // see work; nil: the response belongs to no request

	mu       sync.Mutex
	withheld bool
	hint     string
	passed   bool // the handler passed a response to a transaction
}

func (d *declaration) pass() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.passed = true
}

// hasPassed reports whether the handler passed a response to a transaction.
func (d *declaration) hasPassed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.passed
}

// translator converts a response of the type from, the handler's own. response returns
// false for a value of another type; it is nil if handlers return no response.
type translator struct {
	from     reflect.Type
	response func(any) (r Response, ok bool, err error)
}

// translates returns the translator of T.
func translates[T any](response func(any) (Response, bool, error)) translator {
	return translator{reflect.TypeFor[T](), response}
}

type declarationKey struct{}

func withDeclaration(ctx context.Context, d *declaration) context.Context {
	return context.WithValue(ctx, declarationKey{}, d)
}

// outcome returns what is stored of the handler's response, or the error that
// settles the record instead.
func (d *declaration) outcome(r Response, undeliverable error) (stored, error) {
	s, err := d.storable(r, undeliverable)
	switch {
	case err == nil:
		return s, nil
	case d.opts.ServerErrors == ReleaseServerErrors:
		err = idempotent.NotExecuted(err)
	case d.opts.ServerErrors == UnknownServerErrors:
		err = idempotent.Unknown(err)
	}
	return stored{}, err
}

// storable returns what is stored of a handler's response, or an error if the
// response is not stored. Every response passes here, whether the handler
// returns it or passes it to a transaction. The error undeliverable means that
// no gateway can send r.
func (d *declaration) storable(r Response, undeliverable error) (stored, error) {
	withheld, hint := d.said()
	var large error
	if d.tooLarge != nil {
		large = d.tooLarge(&r)
	}
	switch {
	case undeliverable != nil:
		return stored{}, fmt.Errorf("lambdahttp: no gateway can deliver the handler's response: %w", undeliverable)
	case !httpform.Deliverable(r.Status), r.Status >= 500 && !d.opts.ServerErrors.stores(r.Status):
		return stored{}, &statusError{r.Status}
	case withheld, large != nil:
		return stored{Response: Response{Status: r.Status}, withheld: true, hint: hint, tooLarge: large}, nil
	}
	r.Header = d.opts.replayed.filter(r.Header)
	return stored{Response: r}, nil
}

// statusError reports a response whose status is not stored. It reaches
// observers, and a handler that passes such a response to a transaction.
type statusError struct{ status int }

func (e *statusError) Error() string {
	return fmt.Sprintf("lambdahttp: response not stored: the handler returned status %d", e.status)
}

// said returns what the handler declared so far.
func (d *declaration) said() (withheld bool, hint string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.withheld, d.hint
}

// stored is what a record contains of a response.
type stored struct {
	Response
	withheld bool   // only the status is stored: NoStore, or it is too large to be sent
	hint     string // the detail that the client gets instead
	tooLarge error  // why the first caller gets that too; not stored
}

// equal reports whether two responses, of which s has been stored, are stored as the same
// bytes.
func (r stored) equal(s stored) bool {
	a, _ := codec{}.Encode(r)
	b, _ := codec{}.Encode(s)
	return bytes.Equal(a, b)
}

// codec stores a response in the form of [httpform.Response].
type codec struct {
	handler *declaration // of the handler whose response this is; nil: Resolved's
}

func (codec) Name() string { return httpform.Encoding }

func (c codec) Encode(v any) ([]byte, error) {
	r, err := c.stored(v)
	if err != nil {
		return nil, err
	}
	if r.unstored != nil {
		return nil, r.unstored // the guard completes the record without a result
	}
	return (&httpform.Response{Status: r.Status, Base64: r.Base64, Header: r.Header, Body: r.Body, Withheld: r.withheld, Hint: r.hint}).Encode()
}

// stored returns what is stored of v. A handler passes its response to a
// transaction before it returns it, so the rules for returned responses apply
// here too.
func (c codec) stored(v any) (stored, error) {
	if s, ok := v.(stored); ok {
		return s, nil // the rules were applied
	}
	if c.handler != nil {
		c.handler.pass()
	}
	if r, ok := responseIn(v); ok {
		if c.handler == nil {
			return stored{Response: r}, nil
		}
		r.Header = httpform.CanonicalHeaders(r.Header)
		return c.handler.storable(r, nil)
	}
	want := "a Response"
	if c.handler != nil && c.handler.translate.response != nil {
		if r, ok, err := c.handler.translate.response(v); ok {
			return c.handler.storable(r, err)
		}
		want = fmt.Sprintf("a %s, which the handler returns, or %s", c.handler.translate.from, want)
	}
	return stored{}, fmt.Errorf("lambdahttp: cannot store a %T as a response: pass %s", v, want)
}

// responseIn returns the Response that v is, or points to.
func responseIn(v any) (Response, bool) {
	r, ok := in[Response](v)
	r.Base64 = r.Base64 || !utf8.Valid(r.Body)
	return r, ok
}

// in returns the T that v is, or points to.
func in[T any](v any) (t T, ok bool) {
	if p, _ := v.(*T); p != nil {
		return *p, true
	}
	t, ok = v.(T)
	return t, ok
}

func (codec) Decode(data []byte, v any) error {
	out, ok := v.(*stored)
	if !ok {
		return fmt.Errorf("lambdahttp: cannot decode a stored response into a %T; use *stored", v)
	}
	r, err := httpform.Decode(data)
	*out = stored{
		Response: Response{Status: r.Status, Base64: r.Base64, Header: r.Header, Body: r.Body}, withheld: r.Withheld, hint: r.Hint,
	}
	return err
}
