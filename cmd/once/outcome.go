package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

// outcome is the stored outcome of a completed record, decoded if this program
// knows its encoding: one of the members is set.
type outcome struct {
	Result   json.RawMessage `json:"result,omitempty"`
	Response *response       `json:"response,omitempty"`
	Final    *final          `json:"final,omitempty"`
	Bytes    []byte          `json:"result_base64,omitempty"`
}

// final is a business outcome: see idempotent.Final.
type final struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// response is an HTTP response. At most one of the two bodies is set.
type response struct {
	Status     int         `json:"status"`
	Header     http.Header `json:"header,omitempty"`
	Body       string      `json:"body,omitempty"`
	BodyBase64 []byte      `json:"body_base64,omitempty"`
}

// outcomeOf reads and decodes the stored outcome of r.
func outcomeOf(ctx context.Context, g *idempotent.Guard, r *driver.Record) (*outcome, error) {
	encoding, data, err := g.StoredOutcome(ctx, *r)
	if err != nil {
		return nil, err
	}
	o := &outcome{}
	switch {
	case encoding == driver.EncodingFinal:
		o.Final = &final{}
		err = json.Unmarshal(data, o.Final)
	case encoding == lambdahttp.Encoding:
		var stored lambdahttp.Response
		if stored, err = lambdahttp.DecodeStored(data); err == nil {
			o.Response = responseOf(stored)
		}
	case encoding == "json" && json.Valid(data):
		o.Result = data
	default:
		o.Bytes = data
	}
	if err != nil {
		return nil, fmt.Errorf("%s: the stored result is damaged: %w", short(r.ID), err)
	}
	return o, nil
}

func responseOf(r lambdahttp.Response) *response {
	out := &response{Status: r.Status, Header: r.Header}
	if utf8.Valid(r.Body) {
		out.Body = string(r.Body)
	} else {
		out.BodyBase64 = r.Body
	}
	return out
}

// text returns the outcome as text: a response looks as in HTTP/1.1.
func (o *outcome) text() string {
	switch {
	case o.Final != nil:
		return fmt.Sprintf("%s: %s\n", o.Final.Code, o.Final.Message)
	case o.Response != nil:
		r := o.Response
		var b strings.Builder
		fmt.Fprintf(&b, "%d %s\n", r.Status, http.StatusText(r.Status))
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			for _, value := range r.Header[name] {
				fmt.Fprintf(&b, "%s: %s\n", name, value)
			}
		}
		return b.String() + "\n" + ended(r.Body+binary(r.BodyBase64))
	case o.Result != nil:
		var b bytes.Buffer
		if json.Indent(&b, o.Result, "", "  ") != nil {
			return ended(string(o.Result))
		}
		return ended(b.String())
	case utf8.Valid(o.Bytes):
		return ended(string(o.Bytes))
	}
	return ended(binary(o.Bytes))
}

func binary(data []byte) string {
	if data == nil {
		return ""
	}
	return fmt.Sprintf("(%s of binary data; use --json for base64)", size(len(data)))
}

// ended adds a newline to a text that is not empty and has none at its end.
func ended(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}
