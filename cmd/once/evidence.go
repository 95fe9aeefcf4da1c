package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

// evidence is what is said of a record, from a command line or by a program.
type evidence struct {
	resolution idempotent.Resolution
	kind       string // completed, final or not_executed
	code       string // of a final outcome
	encoding   string // of what is completed
	data       []byte // of what is completed, as clients get it
	text       string // for people
}

// verbatim is a codec for results that are encoded already.
type verbatim string

// Name is the encoding that is said of them.
func (c verbatim) Name() string { return string(c) }

// Encode returns the bytes that v is.
func (verbatim) Encode(v any) ([]byte, error) {
	data, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("only bytes are stored as they are, not a %T", v)
	}
	return data, nil
}

// Decode is never called: nothing is replayed here.
func (verbatim) Decode([]byte, any) error {
	return fmt.Errorf("what is stored as it is cannot be decoded")
}

// jsonEncoding is what idempotent.Wrap and Do store.
const jsonEncoding = "json"

// completed is evidence of a result in an encoding. JSON is stored without the
// space around it, as the handler's own result would be; everything else as it
// is.
func completed(encoding string, data []byte) (*evidence, error) {
	switch {
	case encoding == lambdahttp.Encoding:
		return nil, fmt.Errorf("a response is not given in its stored form; say --http and --status")
	case encoding == driver.EncodingFinal, encoding == driver.EncodingOmitted, encoding != unpacked(encoding):
		return nil, fmt.Errorf("%q is no encoding of a result", encoding)
	case encoding == jsonEncoding:
		var b bytes.Buffer
		if err := json.Compact(&b, data); err != nil {
			return nil, fmt.Errorf("the result is no JSON: %v", err)
		}
		data = b.Bytes()
	}
	return &evidence{
		resolution: idempotent.ResolvedWith(verbatim(encoding), data),
		kind:       "completed", encoding: encoding, data: data,
		text: fmt.Sprintf("completed, with a result of %s as %s", size(len(data)), encoding),
	}, nil
}

// completedHTTP is evidence of the response that a client has to get. A body of
// JSON is said to be one.
func completedHTTP(status int, header http.Header, body []byte) (*evidence, error) {
	if status < 200 || status > 599 {
		return nil, fmt.Errorf("the status is %d; it has to be 200 to 599", status)
	}
	if header == nil {
		header = http.Header{}
	}
	if header.Get("Content-Type") == "" && json.Valid(body) {
		header.Set("Content-Type", "application/json")
	}
	return &evidence{
		resolution: lambdahttp.Resolved(lambdahttp.Response{Status: status, Header: header, Body: body}),
		kind:       "completed", encoding: lambdahttp.Encoding, data: body,
		text: fmt.Sprintf("completed, with the HTTP response %d and a body of %s", status, size(len(body))),
	}, nil
}

// completedFinal is evidence of a business outcome, which retries get like a
// result.
func completedFinal(f final) (*evidence, error) {
	if f.Code == "" {
		return nil, fmt.Errorf("a final outcome needs a code")
	}
	return &evidence{
		resolution: idempotent.ResolvedFinal(f.Code, f.Message),
		kind:       "final", code: f.Code,
		text: fmt.Sprintf("ended for good, with the outcome %s: %s", oneLine(f.Code), oneLine(f.Message)),
	}, nil
}

// notExecuted is the proof that nothing happened.
func notExecuted() *evidence {
	return &evidence{
		resolution: idempotent.ProvenNotExecuted(),
		kind:       "not_executed",
		text:       "not executed: nothing happened, and nothing can happen any more",
	}
}

// state returns what the evidence makes of a record.
func (ev *evidence) state() driver.State {
	if ev.kind == "not_executed" {
		return driver.StateRetryable
	}
	return driver.StateCompleted
}

// sum returns the hash of what clients get, so that an audit can prove it
// without telling it.
func (ev *evidence) sum() string {
	if ev.data == nil {
		return ""
	}
	sum := sha256.Sum256(ev.data)
	return hex.EncodeToString(sum[:])
}
