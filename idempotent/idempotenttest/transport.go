package idempotenttest

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Transport returns base with the planned faults in its requests, for the client of a real
// AWS SDK, which serialises and retries as usual. The Op of a request is the operation in
// its X-Amz-Target header, for example "PutItem", or else its HTTP method. A nil base is
// [http.DefaultTransport].
//
// A lost request or reply is a reset connection ([ErrInjected]). A fault with the name of
// an exception is answered with that exception in the AWS JSON protocol, without a call to
// the service: InternalError with status 500, all others with 400.
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

// readBody reads and closes the body of a request. A RoundTripper must always close it.
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

// drop reads a reply to its end, to be sure that it was sent.
func drop(resp *http.Response) {
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

// exception returns the reply with which DynamoDB refuses a request.
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
