// SPDX-License-Identifier: Apache-2.0

package idempotencyclient

import (
	"context"
	"fmt"
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
