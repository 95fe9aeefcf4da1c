// SPDX-License-Identifier: Apache-2.0

package idempotencyclient

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

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
