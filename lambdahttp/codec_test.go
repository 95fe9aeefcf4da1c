package lambdahttp_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
)

// handed is a response that a handler passes to a transaction before it returns
// it, with its stored form, or "" if it is refused.
type handed[Ans any] struct {
	name   string
	answer Ans
	kept   string
}

const keptCharge = "{\"s\":201,\"h\":{\"Link\":[\"</a>\",\"</b>\"],\"Location\":[\"/charges/ch_1\"],\"X-Charge-Id\":[\"ch_1\"]}}\n{}"

// headers returns the headers of a response, of which some are stored. Events
// with one map for headers have one value for each.
func headers() map[string]string {
	return map[string]string{"location": "/charges/ch_1", "x-charge-id": "ch_1", "x-other": "1", "set-cookie": "a=1", "Date": "today"}
}
func links() map[string][]string { return map[string][]string{"Link": {"</a>", "</b>"}} }

// The codec of a handler's guard accepts the type that the handler returns, as
// a value or a pointer, and stores the same as of a returned response.
func TestCodecTakesAnswers(t *testing.T) {
	t.Parallel()
	one := strings.Replace(keptCharge, `["</a>","</b>"]`, `["</a>, </b>"]`, 1)
	joinedLinks := headers()
	joinedLinks["Link"] = "</a>, </b>"

	takes(t, lambdahttp.APIGatewayV2, v2Event{}, events.APIGatewayV2HTTPResponse{StatusCode: 201}, []handed[events.APIGatewayV2HTTPResponse]{
		{"text", events.APIGatewayV2HTTPResponse{StatusCode: 201, Headers: headers(), MultiValueHeaders: links(), Body: "{}", Cookies: []string{"a=1"}}, keptCharge},
		{"base64", events.APIGatewayV2HTTPResponse{StatusCode: 200, Body: "AP8=", IsBase64Encoded: true}, "{\"s\":200,\"b\":true}\n\x00\xff"},
		{"broken base64", events.APIGatewayV2HTTPResponse{StatusCode: 200, Body: "AP8", IsBase64Encoded: true}, ""},
		{"5xx", events.APIGatewayV2HTTPResponse{StatusCode: 500}, ""},
		{"no status", events.APIGatewayV2HTTPResponse{}, ""},
		{"1xx", events.APIGatewayV2HTTPResponse{StatusCode: 103}, ""},
	})
	takes(t, lambdahttp.APIGatewayV1, v1Event{}, v1Answer{StatusCode: 201}, []handed[v1Answer]{
		{"text", v1Answer{StatusCode: 201, Headers: headers(), MultiValueHeaders: links(), Body: "{}"}, keptCharge},
		{"base64", v1Answer{StatusCode: 200, Body: "AP8=", IsBase64Encoded: true}, "{\"s\":200,\"b\":true}\n\x00\xff"},
		{"broken base64", v1Answer{StatusCode: 200, Body: "?", IsBase64Encoded: true}, ""},
		{"5xx", v1Answer{StatusCode: 503}, ""},
	})
	takes(t, lambdahttp.ALB, albEvent{}, albAnswer{StatusCode: 201}, []handed[albAnswer]{
		{"text", albAnswer{StatusCode: 201, StatusDescription: "201 Created", Headers: headers(), MultiValueHeaders: links(), Body: "{}"}, keptCharge},
		{"broken base64", albAnswer{StatusCode: 200, Body: "?", IsBase64Encoded: true}, ""},
		{"5xx", albAnswer{StatusCode: 599}, ""},
	})
	takes(t, lambdahttp.FunctionURL, urlEvent{}, urlAnswer{StatusCode: 201}, []handed[urlAnswer]{
		{"text", urlAnswer{StatusCode: 201, Headers: joinedLinks, Body: "{}", Cookies: []string{"a=1"}}, one},
		{"broken base64", urlAnswer{StatusCode: 200, Body: "?", IsBase64Encoded: true}, ""},
		{"5xx", urlAnswer{StatusCode: 502}, ""},
	})
}

type (
	v2Event   = events.APIGatewayV2HTTPRequest
	urlEvent  = events.LambdaFunctionURLRequest
	urlAnswer = events.LambdaFunctionURLResponse
)

func xChargeID(o *lambdahttp.Options) { o.ReplayHeaders = []string{"x-charge-id"} }

// codecOf passes the final options of the guard to get.
func codecOf(get **idempotent.Options) func(*lambdahttp.Options) {
	return func(o *lambdahttp.Options) { o.Guard = func(o *idempotent.Options) { *get = o } }
}

func takes[Ev, Ans any](
	t *testing.T,
	build func(*idempotent.Guard, func(context.Context, Ev) (Ans, error), ...func(*lambdahttp.Options)) func(context.Context, Ev) (Ans, error),
	event Ev, created Ans, rows []handed[Ans],
) {
	t.Helper()
	var options *idempotent.Options
	build(newGuard(t), func(context.Context, Ev) (Ans, error) { return created, nil }, single, xChargeID, codecOf(&options))
	for _, row := range rows {
		for _, v := range []any{row.answer, &row.answer} {
			got, err := options.Codec.Encode(v)
			if string(got) != row.kept || (err == nil) != (row.kept != "") {
				t.Errorf("%T, %s: stored as %q, %v; want %q", v, row.name, got, err, row.kept)
			}
		}
	}
	for _, v := range []any{event, (*Ans)(nil), (*lambdahttp.Response)(nil), nil, "text"} {
		if got, err := options.Codec.Encode(v); err == nil || !strings.Contains(err.Error(), "that the handler returns") {
			t.Errorf("%T: stored as %q, %v", v, got, err)
		}
	}
	for _, v := range []any{
		lambdahttp.Response{Status: 201, Header: http.Header{"location": {"/charges/ch_1"}, "x-other": {"1"}, "set-cookie": {"a=1"}}, Body: []byte("\xff")},
		&lambdahttp.Response{Status: 201, Header: http.Header{"LOCATION": {"/charges/ch_1"}}, Body: []byte("\xff"), Base64: true},
	} {
		if got, err := options.Codec.Encode(v); err != nil || string(got) != "{\"s\":201,\"b\":true,\"h\":{\"Location\":[\"/charges/ch_1\"]}}\n\xff" {
			t.Errorf("%T: stored as %q, %v", v, got, err)
		}
	}
	if got, err := options.Codec.Encode(lambdahttp.Response{Status: 500}); err == nil {
		t.Errorf("a response of 500: stored as %q", got)
	}

	// With StoreServerErrors a 5xx may be passed to a transaction too.
	build(newGuard(t), func(context.Context, Ev) (Ans, error) { return created, nil }, single, codecOf(&options),
		func(o *lambdahttp.Options) { o.ServerErrors = lambdahttp.StoreServerErrors })
	if got, err := options.Codec.Encode(&lambdahttp.Response{Status: 500}); err != nil || string(got) != "{\"s\":500}\n" {
		t.Errorf("a response of 500, with StoreServerErrors: stored as %q, %v", got, err)
	}
}

// A response of another event type is a programming error, and behind
// Middleware only a Response is accepted.
func TestCodecOfOtherTypes(t *testing.T) {
	t.Parallel()
	var options *idempotent.Options
	lambdahttp.APIGatewayV2(newGuard(t), func(context.Context, v2Event) (events.APIGatewayV2HTTPResponse, error) {
		return events.APIGatewayV2HTTPResponse{StatusCode: 201}, nil
	}, single, codecOf(&options))
	if got, err := options.Codec.Encode(v1Answer{StatusCode: 201}); err == nil {
		t.Errorf("stored as %q", got)
	}
	lambdahttp.Middleware(newGuard(t), single, codecOf(&options))
	if got, err := options.Codec.Encode(v1Answer{StatusCode: 201}); err == nil {
		t.Errorf("stored as %q", got)
	}
	if got, err := options.Codec.Encode(lambdahttp.Response{Status: 201}); err != nil || string(got) != "{\"s\":201}\n" {
		t.Errorf("stored as %q, %v", got, err)
	}
}

// The declarations of a handler also apply to a response that it passes to a
// transaction, for every event type.
func TestCodecHeedsDeclarations(t *testing.T) {
	t.Parallel()
	secret := lambdahttp.Response{Status: 201, Header: http.Header{"Location": {"/keys/sk_live_1"}}, Body: []byte("sk_live_1")}
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on)
		w.becomes(func(ctx context.Context, r request) (reply, error) {
			encode := func() []byte {
				data, err := lambdahttp.CodecIn(ctx).Encode(secret)
				if err != nil {
					t.Error(err)
				}
				return data
			}
			if !bytes.Contains(encode(), []byte("sk_live_1")) {
				t.Error("a response was withheld without a declaration of the handler")
			}
			lambdahttp.NoStore(ctx, "Roll the key.")
			if data := encode(); string(data) != "{\"s\":201,\"w\":\"Roll the key.\"}\n" {
				t.Errorf("stored as %q", data)
			}
			return created(ctx, r)
		})
		w.post(charge())

		w.becomes(func(ctx context.Context, r request) (reply, error) {
			lambdahttp.NotExecuted(ctx)
			if data, err := lambdahttp.CodecIn(ctx).Encode(secret); err == nil {
				t.Errorf("a refusal was stored as %q", data)
			}
			return created(ctx, r)
		})
		w.post(charge(withKey(`"` + keyB + `"`)))
		if w.runs != 2 {
			t.Errorf("got %d runs, want one for each key", w.runs)
		}
	})
}

// A handler that refuses through its response settles the record in the same
// way for every rule about 5xx.
func TestRefusalIsNotExecuted(t *testing.T) {
	t.Parallel()
	for _, rule := range []lambdahttp.ServerErrors{lambdahttp.FollowRecovery, lambdahttp.StoreServerErrors, lambdahttp.UnknownServerErrors, lambdahttp.ReleaseServerErrors} {
		w := newWorld(t, wires[0], func(o *lambdahttp.Options) { o.ServerErrors = rule })
		w.becomes(func(ctx context.Context, r request) (reply, error) {
			lambdahttp.NotExecuted(ctx)
			return created(ctx, r)
		})
		w.post(charge())
		if got := w.store.record(t).State; got != driver.StateRetryable {
			t.Errorf("rule %d: the record is %s", rule, got)
		}
	}
}

// A response that no gateway can deliver is not stored, and observers get the
// reason.
func TestUndeliverableIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, wires[0])
	w.becomes(func(context.Context, request) (reply, error) {
		return reply{status: 201, body: "?", base64: true}, nil
	})
	w.post(charge())
	var why error
	for _, e := range w.seen.Events() {
		if e.Err != nil {
			why = e.Err
		}
	}
	if why == nil || !strings.Contains(why.Error(), "no gateway can deliver") || errors.Unwrap(why) == nil {
		t.Errorf("observers got the error %v", why)
	}
	if got := w.store.record(t).State; got != driver.StateUnknown {
		t.Errorf("the record is %s", got)
	}
}
