// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdahttp"
)

// FM55: a secret that is shown once is not stored, and a retry does not run the
// handler again.
func TestFM55OneTimeSecret(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on)
		w.becomes(func(ctx context.Context, _ request) (reply, error) {
			lambdahttp.NoStore(ctx, "Roll the \xff\"key\".")
			return reply{status: 201, header: map[string]string{"Location": "/keys/sk_live_1"}, body: "sk_live_1"}, nil
		})
		if a := w.post(charge()); a.status != 201 || a.body != "sk_live_1" || a.header["Idempotency-Status"] != "not-stored" {
			t.Errorf("the caller got %d %q %v", a.status, a.body, a.header)
		}
		w.wantRecord(1, "completed")
		if got := string(w.store.record(t).Result); got != "{\"s\":201,\"w\":\"Roll the \uFFFD\\\"key\\\".\"}\n" {
			t.Errorf("stored as %q", got)
		}
		if a := w.post(charge()); a.status != 409 || !strings.Contains(a.body, `\"key\".`) || w.runs != 1 || w.seen.Count(event.CompletionFailed) != 0 {
			t.Errorf("the retry got %d %s after %d runs and %v", a.status, a.body, w.runs, w.seen.Kinds())
		}
	})
}

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

	takes(t, lambdahttp.APIGatewayV2, v2Event{}, v2Answer{StatusCode: 201}, []handed[v2Answer]{
		{"text", v2Answer{StatusCode: 201, Headers: headers(), MultiValueHeaders: links(), Body: "{}", Cookies: []string{"a=1"}}, keptCharge},
		{"base64", v2Answer{StatusCode: 200, Body: "AP8=", IsBase64Encoded: true}, "{\"s\":200,\"b\":true}\n\x00\xff"},
		{"broken base64", v2Answer{StatusCode: 200, Body: "AP8", IsBase64Encoded: true}, ""},
		{"5xx", v2Answer{StatusCode: 500}, ""},
		{"no status", v2Answer{}, ""},
		{"1xx", v2Answer{StatusCode: 103}, ""},
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
	// Behind Middleware only a Response is accepted.
	var options *idempotent.Operation
	lambdahttp.Middleware(newGuard(t), single, codecOf(&options))
	if got, err := options.Codec.Encode(v1Answer{StatusCode: 201}); err == nil {
		t.Errorf("stored as %q", got)
	}
	if got, err := options.Codec.Encode(lambdahttp.Response{Status: 201}); err != nil || string(got) != "{\"s\":201}\n" {
		t.Errorf("stored as %q, %v", got, err)
	}
}

func threeHeaders(o *lambdahttp.Options) {
	o.ReplayHeaders = []string{"x-charge-id", "link", "location"}
}

// codecOf passes the final options of the operation to get.
func codecOf(get **idempotent.Operation) func(*lambdahttp.Options) {
	return func(o *lambdahttp.Options) { o.Guard = func(o *idempotent.Operation) { *get = o } }
}

func takes[Ev, Ans any](t *testing.T, build builder[Ev, Ans], event Ev, created Ans, rows []handed[Ans]) {
	t.Helper()
	var options *idempotent.Operation
	build(newGuard(t), func(context.Context, Ev) (Ans, error) { return created, nil }, single, threeHeaders, codecOf(&options))
	for _, row := range rows {
		for _, v := range []any{row.answer, &row.answer} {
			got, err := options.Codec.Encode(v)
			if string(got) != row.kept || (err == nil) != (row.kept != "") {
				t.Errorf("%T, %s: stored as %q, %v; want %q", v, row.name, got, err, row.kept)
			}
		}
	}
	for _, v := range []any{event, reply{status: 201}, (*Ans)(nil), (*lambdahttp.Response)(nil), nil, "text"} {
		if got, err := options.Codec.Encode(v); err == nil || !strings.Contains(err.Error(), ", which the handler returns, or a Response") {
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
	if got, err := options.Codec.Encode(&lambdahttp.Response{Status: 599}); err != nil || string(got) != "{\"s\":599}\n" {
		t.Errorf("a response of 599, with StoreServerErrors: stored as %q, %v", got, err)
	}
}

// The declarations of a handler also apply to a response that it passes to a
// transaction, for every event type.
func TestCodecHeedsDeclarations(t *testing.T) {
	t.Parallel()
	shown := lambdahttp.Response{Status: 201, Body: []byte("sk_live_1")}
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on)
		w.becomes(func(ctx context.Context, r request) (reply, error) {
			e, _ := idempotent.FromContext(ctx)
			for _, want := range []string{"{\"s\":201}\nsk_live_1", "{\"s\":201,\"w\":\"Roll the key.\"}\n"} {
				if data, err := lambdahttp.CodecIn(ctx).Encode(shown); err != nil || string(data) != want {
					t.Errorf("stored as %q, %v; want %q", data, err, want)
				}
				lambdahttp.NoStore(ctx, "Roll the key.")
			}
			err := e.Commit(ctx, shown, func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
				if bytes.Contains(next.Result, shown.Body) {
					t.Errorf("committed as %q", next.Result)
				}
				return w.store.Replace(ctx, next, was)
			})
			if err != nil {
				t.Error(err)
			}
			return created(ctx, r)
		})
		w.post(charge())
	})
}

func TestDamagedIsRefused(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		"", "\n", "{}\n", "{\"s\":200}", "{\"s\":200} \n", " {\"s\":200}\n", "{\"s\":200}{}\n", "{\"S\":200}\n", "{\"s\":200,\"s\":200}\n",
		"{\"s\":200,\"x\":1}\n", "{\"s\":200,\"b\":false}\n", "{\"b\":true,\"s\":200}\n", "{\"s\":2e2}\n", "{\"s\":\"200\"}\n", "{\"s\":null}\n",
		"{\"s\":99}\n", "{\"s\":0}\n", "{\"s\":600}\n", "{\"s\":-200}\n", "{\"s\":200,\"h\":{}}\n", "{\"s\":200,\"h\":null}\n",
		"{\"s\":200,\"h\":{\"Etag\":[]}}\n", "{\"s\":200,\"h\":{\"etag\":[\"1\"]}}\n", "{\"s\":200,\"h\":{\"Link\":[\"1\"],\"Etag\":[\"1\"]}}\n",
		"{\"s\":200,\"h\":{\"Etag\":[\"\\u0061\"]}}\n", "{\"s\":200,\"h\":{\"Etag\":[\"\xff\"]}}\n", "null\n", "[]\n",
		"{\"s\":200,\"hb\":{}}\n", "{\"s\":200,\"hb\":{\"Etag\":[\"MQ==\"]}}\n", "{\"s\":200,\"h\":{\"Link\":[\"1\"]},\"hb\":{\"Link\":[\"/w==\"]}}\n",
		"{\"s\":201,\"w\":null}\n", "{\"s\":201,\"w\":1}\n", "{\"w\":\"\",\"s\":201}\n", "{\"w\":\"\"}\n",
	} {
		r := lambdahttp.Response{Status: 1}
		if err := lambdahttp.Codec.Decode([]byte(data), &r); err == nil || r.Status != 1 {
			t.Errorf("%q was decoded as %+v, %v", data, r, err)
		}
	}
	if err := lambdahttp.Codec.Decode([]byte("{\"s\":200}\n"), new(string)); err == nil {
		t.Error("a response was decoded into a string")
	}
	for _, v := range []any{"text", nil, (*lambdahttp.Response)(nil), &reply{status: 200}, lambdahttp.Response{}, lambdahttp.Response{Status: 101}, lambdahttp.Response{Status: 600}} {
		if data, err := lambdahttp.Codec.Encode(v); err == nil {
			t.Errorf("%+v was stored as %q", v, data)
		}
	}
}

// Stored data that decodes is encoded as the same bytes: each response has
// exactly one form. Headers that are never stored are removed.
func FuzzStoredForm(f *testing.F) {
	kit.Inputs(f)
	f.Add([]byte("{\"s\":204}\n"))
	f.Add([]byte("{\"s\":201,\"b\":true,\"h\":{\"Link\":[\"</a>\",\"</b>\"],\"Location\":[\"/a?b&c\"]}}\nbody\n\x00\xff"))
	f.Add([]byte("{\"s\":200,\"h\":{\"Etag\":[\"\uFFFD\u2028<\"]}}\n"))
	f.Add([]byte("{\"s\":200,\"h\":{\"Content-Type\":[]},\"hb\":{\"Etag\":[\"/w==\"]}}\n"))
	f.Add([]byte("{\"s\":200}\n\xad")) // a handler marked binary data as text; a replay does so too
	f.Add([]byte("{\"s\":200,\"h\":{\"Set-Cookie\":[\"a=1\"]}}\n"))
	f.Add([]byte("{\"s\":200,\"h\":{\"Connection\":[\"a, b\"],\"B\":[\"1\"],\"Www-Authenticate\":[\"Basic\"]}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, again, err := lambdahttp.Reencode(data)
		if err != nil {
			return
		}
		stored, third, err := lambdahttp.Reencode(again)
		if err != nil || !bytes.Equal(third, again) {
			t.Errorf("%q was decoded as %+v, encoded as %q, and then as %q, %v", data, r, again, third, err)
		}
		if len(stored.Header) == len(r.Header) && !bytes.Equal(again, data) {
			t.Errorf("%q was decoded as %+v and encoded as %q", data, r, again)
		}
		if stored.Header.Get("Set-Cookie")+stored.Header.Get("Connection") != "" {
			t.Errorf("%q was encoded as %q", data, again)
		}
	})
}

// A record that was made through one event type is replayed through another.
func TestRecordsAreCommonToEventTypes(t *testing.T) {
	t.Parallel()
	same := func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.SingleTenant
		o.Operation = func(*lambdahttp.Request) string { return "charge" }
	}
	g := newGuard(t)
	for i, on := range wires {
		a, err := on.build(g, created, same)(t.Context(), charge())
		if err != nil || a.status != 201 || (a.header["Idempotent-Replayed"] == "true") != (i > 0) {
			t.Errorf("%s: got %+v %v", on.name, a, err)
		}
	}
}

// F63: BeforeReplay gets the retry and the stored response, once for each
// replay of a response and at no other time.
func TestBeforeReplay(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		asked := 0
		var refusal error
		w := newFixture(t, on, func(o *lambdahttp.Options) {
			o.BeforeReplay = func(ctx context.Context, r *lambdahttp.Request, stored lambdahttp.Response) error {
				asked++
				if r.Path != "/charges" || stored.Status != 201 || string(stored.Body) != `{"id":"ch_1"}` || stored.Header.Get("Location") != "/charges/ch_1" || stored.Header.Get("Date") != "" || ctx.Err() != nil {
					t.Errorf("BeforeReplay was called with %+v for %+v", stored, r)
				}
				return refusal
			}
		})
		w.post(charge())
		w.post(charge(withBody("{}")))
		w.post(charge(withMethod("GET")))
		if asked != 0 {
			t.Errorf("BeforeReplay was called %d times without a replay", asked)
		}
		if a := w.post(charge()); a.status != 201 || a.header["Idempotent-Replayed"] != "true" || asked != 1 {
			t.Errorf("allowed: got %d %v after %d calls of BeforeReplay", a.status, a.header, asked)
		}
		refusal = lambdahttp.RefuseReplay("The charge was deleted")
		if a := w.post(charge()); a.status != 409 || !strings.Contains(refusal.Error(), "deleted") || a.header["Idempotent-Replayed"] != "" || a.header["Location"] != "" || !strings.Contains(a.body, `"detail":"The charge was deleted"`) {
			t.Errorf("refused: got %d %v %s", a.status, a.header, a.body)
		}
		refusal = errors.Join(errDown)
		if _, err := w.send(t.Context(), charge()); err != refusal {
			t.Errorf("failed: got %v, want the unchanged error", err)
		}
		refusal = nil
		if a := w.post(charge()); a.status != 201 || a.header["Idempotent-Replayed"] != "true" {
			t.Errorf("allowed again: got %d after %d runs", a.status, w.runs)
		}
	})
}

// transaction writes the record. In these tests it writes no other data.
type transaction = func(context.Context, driver.Record, driver.Version) (*driver.Record, error)

// lost is a transaction that never reached the store.
func lost(*fixture) transaction {
	return func(context.Context, driver.Record, driver.Version) (*driver.Record, error) { return nil, errDown }
}

// unanswered is a transaction that was applied, but whose reply was lost.
func unanswered(w *fixture) transaction {
	return func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
		if met, err := w.store.Replace(ctx, next, was); err != nil || met != nil {
			w.t.Errorf("the transaction got %v %v", met, err)
		}
		return nil, errDown
	}
}

var committed = lambdahttp.Response{Status: 201, Body: []byte(`{"id":"ch_1"}`)}

// careless is a handler that commits, ignores the error, and responds with 201.
// It commits once: a retry of its request commits nothing.
func (w *fixture) careless(write transaction) handler {
	return func(ctx context.Context, r request) (reply, error) {
		if w.runs == 1 {
			e, _ := idempotent.FromContext(ctx)
			_ = e.Commit(ctx, committed, write)
		}
		return created(ctx, r)
	}
}

// A handler that ignores a transaction in doubt cannot know that it succeeded.
// Its caller gets 409, outcome-unknown, with Retry-After.
func TestIgnoredDoubtIsNotSuccess(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for name, c := range map[string]struct {
			options func(*lambdahttp.Options)
			write   func(*fixture) transaction
			down    bool // the store fails until the request has its response
			step    bool // use CommitStep
			status  int
			state   driver.State
			retry   int
			runs    int
		}{
			"not applied":                      {write: lost, status: 409, state: driver.StateUnknown, retry: 409, runs: 1},
			"not applied, Rerun":               {options: rerun, write: lost, status: 409, state: driver.StateRetryable, retry: 201, runs: 2},
			"not applied, and the store fails": {write: lost, down: true, status: 409, state: driver.StateInProgress, retry: 409, runs: 1},
			"applied":                          {write: unanswered, status: 201, state: driver.StateCompleted, retry: 201, runs: 1},
			"applied, and the store fails":     {write: unanswered, down: true, status: 409, state: driver.StateCompleted, retry: 201, runs: 1},
			"a step":                           {write: lost, step: true, status: 409, state: driver.StateUnknown, retry: 409, runs: 1},
		} {
			optFns := []func(*lambdahttp.Options){telling}
			if c.options != nil {
				optFns = append(optFns, c.options)
			}
			w := newFixture(t, on, optFns...)
			write := func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
				defer w.store.set(func(s *faultyStore) {
					if c.down {
						s.replaceErr = errDown
					}
				})
				return c.write(w)(ctx, next, was)
			}
			w.becomes(w.careless(write))
			if c.step {
				w.becomes(func(ctx context.Context, r request) (reply, error) {
					_, _ = idempotent.CommitStep(ctx, "order", "o-1", write)
					return created(ctx, r)
				})
			}
			a := w.post(charge())
			w.store.set(func(s *faultyStore) { s.replaceErr = nil })
			if a.status != c.status || a.header["Location"] != "" {
				t.Errorf("%s: the caller got %d %v, want %d", name, a.status, a.header, c.status)
			}
			if c.status == 409 && (!strings.Contains(a.body, `"code":"outcome-unknown"`) || a.header["Retry-After"] != "1" || a.header["Idempotency-Status"] != "unknown" || a.cookies != nil) {
				t.Errorf("%s: got the response %v %s", name, a.header, a.body)
			}
			if got := w.store.record(t).State; got != c.state {
				t.Errorf("%s: the record is %s, want %s", name, got, c.state)
			}
			if a := w.post(charge()); a.status != c.retry || w.runs != c.runs {
				t.Errorf("%s: a retry got %d after %d runs, want %d after %d", name, a.status, w.runs, c.retry, c.runs)
			}
		}
	})
}

// A step whose key the provider may have forgotten does not run again. A
// handler that ignores that error reports success for an unknown record.
func TestIgnoredForgottenKeyIsNotSuccess(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on, guard(func(o *idempotent.Operation) { o.Recovery, o.Steps = idempotent.Resume, []string{"charge"} }))
		w.becomes(func(ctx context.Context, r request) (reply, error) {
			_, _ = idempotent.Step(ctx, "charge", func(context.Context) (string, error) { return "", errDown })
			if w.runs == 1 {
				return reply{status: 502}, nil
			}
			return created(ctx, r)
		})
		w.post(charge())
		w.clock.Advance(24 * time.Hour) // the default of DownstreamRetention
		a := w.post(charge())
		if a.status != 409 || !strings.Contains(a.body, `"code":"outcome-unknown"`) || a.header["Retry-After"] != "1" {
			t.Errorf("the caller got %d %v %s", a.status, a.header, a.body)
		}
		if r := w.store.record(t); r.State != driver.StateUnknown || r.Reason != driver.ReasonKeysForgotten {
			t.Errorf("the record is %s, %s", r.State, r.Reason)
		}
	})
}

// A handler can report a transaction in doubt itself: its error is returned to
// Lambda, and a failure response is sent unchanged.
func TestReportedDoubtIsTheHandlersAnswer(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for _, status := range []int{0, 504} {
			w := newFixture(t, on)
			var doubt error
			w.becomes(func(ctx context.Context, r request) (reply, error) {
				e, _ := idempotent.FromContext(ctx)
				if doubt = e.Commit(ctx, committed, lost(w)); status != 0 {
					doubt = nil
				}
				return reply{status: status}, doubt
			})
			if a, err := w.send(t.Context(), charge()); a.status != status && err == nil || err != doubt {
				t.Errorf("the caller got %d %v, want the handler's %d %v", a.status, err, status, doubt)
			}
		}
	})
}

// If an http.Handler writes a success and then reports a transaction in doubt,
// the success is not sent.
func TestSetErrorTakesBackASuccessInDoubt(t *testing.T) {
	t.Parallel()
	for written, want := range map[int]int{201: 409, 303: 409, 400: 400, 404: 404, 502: 502} {
		w := newFixture(t, wires[0])
		out, _ := w.through(func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(written)
			_, _ = io.WriteString(rw, "written")
			rw.(http.Flusher).Flush()
			e, _ := idempotent.FromContext(r.Context())
			if err := e.Commit(r.Context(), committed, lost(w)); err != nil {
				lambdahttp.SetError(r.Context(), errors.Join(errors.New("the order was not placed"), err))
			}
		}, keyed(t.Context()), exposing)
		if out.status != want || strings.Contains(string(out.body), "outcome-unknown") != (want == 409) || strings.Contains(string(out.body), "written") != (want != 409) {
			t.Errorf("%d was written: the client got %d %s", written, out.status, out.body)
		}
		if want == 409 && (out.sent.Get("Retry-After") != "1" || out.sent.Get("Access-Control-Expose-Headers") != "Retry-After") {
			t.Errorf("%d was written: the response has the headers %v", written, out.sent)
		}
	}
}

// A response that was sent cannot change, but the record does not store it as
// the outcome.
func TestDoubtAfterAStream(t *testing.T) {
	t.Parallel()
	for _, reports := range []bool{false, true} {
		var w *fixture
		s := newSite(t, func(rw http.ResponseWriter, r *http.Request) {
			rw.WriteHeader(201)
			lambdahttp.NoStore(r.Context(), "")
			rw.(http.Flusher).Flush()
			e, _ := idempotent.FromContext(r.Context())
			if err := e.Commit(r.Context(), committed, lost(w)); reports {
				lambdahttp.SetError(r.Context(), err)
				rw.Header().Set(http.TrailerPrefix+"X-Error", "in doubt")
			}
			_, _ = io.WriteString(rw, "sent")
		}, nil)
		w = s.fixture
		a, got := s.do("")
		if a.StatusCode != 201 || got != "sent" || a.Header.Get("Idempotency-Status") != "not-stored" || (a.Trailer.Get("X-Error") == "in doubt") != reports {
			t.Errorf("the client got %d %q %v %v", a.StatusCode, got, a.Header, a.Trailer)
		}
		if got := s.store.record(t).State; got != driver.StateUnknown {
			t.Errorf("the record is %s, want unknown", got)
		}
		if a, got := s.do(""); a.StatusCode != 409 || !strings.Contains(got, "outcome-unknown") || s.runs != 1 {
			t.Errorf("the retry got %d %s after %d runs", a.StatusCode, got, s.runs)
		}
	}
}

// What was streamed because it is too long stays, with its trailers, and a retry gets what
// was committed before.
func TestCommittedBeforeAStream(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(rw http.ResponseWriter, r *http.Request) {
		e, _ := idempotent.FromContext(r.Context())
		if err := e.Commit(r.Context(), committed, e.Store().Replace); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(rw, "too long")
		rw.Header().Set(http.TrailerPrefix+"X-Sum", "42")
		_ = http.NewResponseController(rw).Flush()
	}, nil, func(o *lambdahttp.Options) { o.MaxResponseBody = 3 })
	if a, body := s.do(""); a.StatusCode != 200 || body != "too long" || a.Trailer.Get("X-Sum") != "42" {
		t.Errorf("got %d %q %v", a.StatusCode, body, a.Trailer)
	}
	if a, body := s.do(""); a.StatusCode != 201 || body != string(committed.Body) || s.runs != 1 {
		t.Errorf("the retry got %d %q after %d runs", a.StatusCode, body, s.runs)
	}
}

// What a predecessor answered is replayed as a response, and its refusals have the
// statuses of the guard's own.
func TestPredecessor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result any
		err    error
		status int
	}{
		"done":        {committed, nil, 201},
		"in progress": {nil, &idempotent.InProgressError{}, 409},
		"mismatch":    {nil, &idempotent.MismatchError{}, 422},
		"failure":     {nil, context.DeadlineExceeded, 503},
	} {
		w := newFixture(t, wires[0], guard(func(o *idempotent.Operation) {
			o.Predecessor = func(context.Context, idempotent.Key) (any, bool, error) { return c.result, c.err == nil, c.err }
		}))
		if a := w.post(charge()); a.status != c.status || c.err == nil && a.body != `{"id":"ch_1"}` || w.runs != 0 {
			t.Errorf("%s: got %d %s after %d runs", name, a.status, a.body, w.runs)
		}
	}
}
