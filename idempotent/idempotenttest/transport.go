package idempotenttest

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Transport returns base with requests that go wrong as planned: for the
// client of a real AWS SDK, with its own serialisation and its own retries in
// between. The Op of a request is the operation that its X-Amz-Target header
// names, for example "PutItem", or else its method. A nil base is [http.DefaultTransport].
//
// A request or reply that is lost is a reset connection ([ErrInjected]). A
// fault that is the name of an exception is answered with it in the AWS JSON
// protocol, without asking the service: InternalError with status 500, all
// others with 400.
func (f *Faults) Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &faultyTransport{f, base}
}

type faultyTransport struct {
	faults *Faults
	base   http.RoundTripper
}

func (t *faultyTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := readBody(req)
	if err != nil {
		return nil, err
	}
	return through(req.Context(), t.faults, operation(req), line[*http.Response]{
		make:   func() (*http.Response, error) { return t.base.RoundTrip(withBody(req, body)) },
		heard:  func(error) bool { return false },
		lose:   drop,
		refuse: func(fault Fault) (*http.Response, error) { return exception(req, fault), nil },
	})
}

// operation returns what comes after the dot in "DynamoDB_20120810.PutItem",
// or the method of a request that names no operation.
func operation(req *http.Request) Op {
	target := req.Header.Get("X-Amz-Target")
	if target == "" {
		return Op(req.Method)
	}
	return Op(target[strings.LastIndexByte(target, '.')+1:])
}

// readBody takes the body out of a request, whatever becomes of it: that is a
// RoundTripper's duty.
func readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(req.Body)
	if closeErr := req.Body.Close(); err == nil {
		err = closeErr
	}
	return body, err
}

// withBody returns a request that can be sent once.
func withBody(req *http.Request, body []byte) *http.Request {
	again := req.Clone(req.Context())
	if body != nil {
		again.Body = io.NopCloser(bytes.NewReader(body))
	}
	return again
}

// drop reads a reply to its end, so that it is sure to have been sent.
func drop(resp *http.Response) {
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

// exception is how DynamoDB refuses a request.
func exception(req *http.Request, fault Fault) *http.Response {
	status := http.StatusBadRequest
	if fault == InternalError {
		status = http.StatusInternalServerError
	}
	body := `{"__type":"com.amazonaws.dynamodb.v20120810#` + string(fault) + `","message":"injected"}`
	return &http.Response{
		Status:     strconv.Itoa(status) + " " + http.StatusText(status),
		StatusCode: status,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body:          io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       req,
	}
}
