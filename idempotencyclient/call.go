// SPDX-License-Identifier: Apache-2.0

package idempotencyclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// call is a logical request.
type call struct {
	opts   *Options
	req    *http.Request
	value  string // of the header
	body   newBody
	length int64 // of the body

	deadline time.Time // by Timeout
	attempts int
	sent     atomic.Bool // by any attempt
}

// run sends the request until it has an answer.
func (c *call) run() (*http.Response, error) {
	ctx := c.req.Context()
	c.deadline = time.Now().Add(c.opts.Timeout)
	for {
		resp, err := c.attempt()
		asked := time.Duration(0)
		switch {
		case permanent(err):
			return nil, c.failed(err)
		case err != nil:
		case becomesGet(resp) && !c.opts.RedirectToGet:
			resp.Body.Close()
			return nil, c.failed(fmt.Errorf("the server redirects with %d, which http.Client follows with a GET; use the new URL, or set Options.RedirectToGet", resp.StatusCode))
		default:
			p := readProblem(resp)
			if !repeats(resp, p) {
				return resp, nil
			}
			asked = p.RetryAfter
		}
		wait, left := c.opts.delay(c.attempts, asked), time.Until(c.deadline)
		if deadline, ok := ctx.Deadline(); ok {
			left = min(left, time.Until(deadline))
		}
		if c.attempts >= c.opts.MaxAttempts || left <= wait {
			if err != nil {
				return nil, c.failed(err)
			}
			return resp, nil
		}
		if err == nil {
			resp.Body.Close()
		}
		select {
		case <-ctx.Done():
			return nil, c.failed(context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

// attempt sends the request once. Its error means that there is no complete
// response.
func (c *call) attempt() (*http.Response, error) {
	c.attempts++
	body, err := c.body()
	if err != nil {
		return nil, fmt.Errorf("get the request body again: %w", err)
	}
	ctx, cancel := context.WithCancelCause(c.req.Context())
	limit := min(c.opts.AttemptTimeout, time.Until(c.deadline))
	timer := time.AfterFunc(limit, func() {
		cancel(fmt.Errorf("time-out after %v: %w", limit.Round(time.Millisecond), context.DeadlineExceeded))
	})
	defer timer.Stop()

	sent := c.req.WithContext(ctx)
	sent.Header, sent.Body, sent.ContentLength = c.req.Header.Clone(), body, c.length
	if sent.Header == nil {
		sent.Header = http.Header{}
	}
	sent.Header.Set(c.opts.Header, c.value)
	resp, err := c.opts.send(sent, &c.sent)
	if err == nil {
		resp.Request = sent // for a redirect, which has to have the same key
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, nil // the connection is the caller's
		}
		err = readAhead(resp, c.opts.MaxResponseBody, func() { cancel(nil) })
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	return resp, nil
}

// send sends a request, and sets sent if the server may have received it.
// http.Transport repeats a request with a key on another connection, and returns the
// last error only, so each connection that gets the request counts.
func (o *Options) send(req *http.Request, sent *atomic.Bool) (*http.Response, error) {
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	resp, err := o.Base.RoundTrip(req.WithContext(ctx))
	if !unsent(err) {
		sent.Store(true)
	}
	return resp, err
}

func (c *call) failed(err error) *Error {
	e := &Error{Method: c.req.Method, Host: c.req.URL.Host, Attempts: c.attempts, Sent: c.sent.Load(), Err: err}
	if e.Sent {
		e.hint = "it may have been executed; send it again with the same key only"
	}
	return e
}

// repeats reports whether a request with a key is sent again after that answer.
func repeats(resp *http.Response, p *Problem) bool {
	switch resp.Header.Get("Stripe-Should-Retry") {
	case "true":
		return true
	case "false":
		return false
	}
	return p.repeatable()
}

// permanent reports whether a request without an answer would fail again.
func permanent(err error) bool {
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate)
}

// unsent reports whether an error proves that its connection was not established.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || permanent(err)
}

// becomesGet reports whether http.Client follows that answer with a GET that is not
// the request.
func becomesGet(resp *http.Response) bool {
	return resp.StatusCode == http.StatusMovedPermanently || resp.StatusCode == http.StatusFound
}

// delay returns the wait after an attempt, the first of which is 1. asked is the
// Retry-After of its answer, or 0.
func (o *Options) delay(attempt int, asked time.Duration) time.Duration {
	wait := min(o.MinDelay, o.MaxDelay)
	for range attempt - 1 {
		wait = min(2*wait, o.MaxDelay)
	}
	random := time.Duration(rand.Float64() * o.Jitter * float64(wait))
	if asked > 0 {
		return max(asked, asked+random) // never earlier, also if the sum overflows
	}
	return wait - random
}

// newBody returns the body of a request from its beginning.
type newBody func() (io.ReadCloser, error)

// repeatable returns a function that returns the request's body anew, and the
// length of the body. It closes the body of req. A body without GetBody is read, up
// to limit bytes.
func repeatable(req *http.Request, limit int64) (body newBody, length int64, err error) {
	if req.Body == nil {
		return func() (io.ReadCloser, error) { return nil, nil }, req.ContentLength, nil
	}
	defer req.Body.Close()
	if req.GetBody != nil {
		return req.GetBody, req.ContentLength, nil
	}
	data, err := io.ReadAll(io.LimitReader(req.Body, limit+1))
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("read the request body: %w", err)
	case int64(len(data)) > limit:
		return nil, 0, fmt.Errorf("the request body has more than %d bytes, so it cannot be sent again; set GetBody, or Options.MaxRequestBody", limit)
	case req.ContentLength > 0 && int64(len(data)) != req.ContentLength:
		return nil, 0, fmt.Errorf("the request body has %d bytes, and ContentLength is %d", len(data), req.ContentLength)
	}
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }, int64(len(data)), nil
}

// readAhead reads up to limit bytes of the body, and puts them back. It returns an
// error if the body breaks off before. Closing the body calls closed.
func readAhead(resp *http.Response, limit int64, closed func()) error {
	body := resp.Body
	resp.Body = &closing{body, body, closed}
	data, err := io.ReadAll(io.LimitReader(body, limit)) // nothing, if the limit is negative
	if err != nil {
		resp.Body.Close()
		return err
	}
	resp.Body = prefixed(data, resp.Body)
	return nil
}

// closing is a body whose Close also calls closed.
type closing struct {
	io.Reader
	body   io.Closer
	closed func()
}

func (c *closing) Close() error {
	defer c.closed()
	return c.body.Close()
}
