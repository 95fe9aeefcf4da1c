// SPDX-License-Identifier: Apache-2.0

package idempotencyclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
)

// Transport is an http.RoundTripper that gives a request one key and repeats it
// until it has an answer. It is safe for concurrent use.
type Transport struct {
	opts    Options
	pending *pending // nil without PendingDir
}

// New returns a Transport. It returns an error if an option is invalid, or if
// PendingDir cannot be created.
func New(optFns ...func(*Options)) (*Transport, error) {
	t := &Transport{}
	for _, f := range optFns {
		f(&t.opts)
	}
	if err := t.opts.complete(); err != nil {
		return nil, err
	}
	if t.opts.PendingDir != "" {
		t.pending = &pending{t.opts.PendingDir, t.opts.Retention, syncDir}
		if err := t.pending.open(); err != nil {
			return nil, fmt.Errorf("idempotencyclient: open PendingDir: %w", err)
		}
	}
	return t, nil
}

// RoundTrip sends the request with a key until it has an answer, or until the
// options or the context end it. Then it returns the last response, or an [*Error]
// if the last attempt had no complete response.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	switch {
	case !slices.Contains(t.opts.Methods, req.Method):
		return t.opts.Base.RoundTrip(req)
	case !t.opts.lists(req):
		return t.once(req)
	}
	c := &call{opts: &t.opts, req: req}
	if err := t.prepare(c); err != nil {
		return nil, refused(req, err)
	}
	return c.run()
}

// Forget removes the stored key of a name. Call it when the program has recorded the
// outcome of the request, and no process will send the request again: the next
// request of that name gets a new key.
func (t *Transport) Forget(name string) error {
	err := errNoPendingDir
	if t.pending != nil {
		err = t.pending.forget(name)
	}
	if err != nil {
		return fmt.Errorf("idempotencyclient: forget a key: %w", err)
	}
	return nil
}

var errNoPendingDir = errors.New("a name needs Options.PendingDir, which is not set")

// once sends a request to a server that may not know keys. http.Transport repeats it
// only if the caller has set a key.
func (t *Transport) once(req *http.Request) (*http.Response, error) {
	const hint = "Options.Hosts does not list this host; list it if it honours keys"
	_, named := nameOf(req.Context())
	if named || t.opts.ContextKey != nil || t.before(req) != "" {
		return nil, refused(req, errors.New("the request needs a key, and "+hint))
	}
	var sent atomic.Bool
	resp, err := t.opts.send(req, &sent)
	if err != nil {
		return nil, &Error{Method: req.Method, Host: req.URL.Host, Attempts: 1, Sent: sent.Load(), Err: err, hint: "not repeated, because " + hint}
	}
	return resp, nil
}

// prepare sets the key and the body of a call.
func (t *Transport) prepare(c *call) (err error) {
	c.value = cmp.Or(c.req.Header.Get(t.opts.Header), t.before(c.req))
	if c.value == "" {
		key, err := t.key(c.req.Context())
		if err != nil {
			return err
		}
		if c.value, err = t.opts.Form.write(key); err != nil {
			return err
		}
	}
	c.body, c.length, err = repeatable(c.req, t.opts.MaxRequestBody)
	return err
}

// before returns the header's value of the request that was redirected to this one,
// or "". It is the same logical request.
func (t *Transport) before(req *http.Request) string {
	if req.Response == nil || req.Response.Request == nil {
		return ""
	}
	return req.Response.Request.Header.Get(t.opts.Header)
}

// key returns the key of a context, or a new one.
func (t *Transport) key(ctx context.Context) (string, error) {
	name, named := nameOf(ctx)
	switch {
	case named && t.pending == nil:
		return "", errNoPendingDir
	case named:
		return t.pending.key(name)
	case t.opts.ContextKey != nil:
		return cmp.Or(t.opts.ContextKey(ctx), newKey()), nil
	}
	return newKey(), nil
}

// refused returns the error of a request that is not sent, and closes its body.
func refused(req *http.Request, err error) error {
	if req.Body != nil {
		req.Body.Close()
	}
	return &Error{Method: req.Method, Host: req.URL.Host, Err: err}
}
