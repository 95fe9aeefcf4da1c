package lambdahttp_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/lambdahttp"
)

func TestStoredForm(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   lambdahttp.Response
		want string
	}{
		"bare": {lambdahttp.Response{Status: 204}, "{\"s\":204}\n"},
		"text": {lambdahttp.Response{Status: 201, Header: http.Header{"Location": {"/a?b&c"}, "Link": {"</a>", "</b>"}}, Body: []byte("{}\n")},
			"{\"s\":201,\"h\":{\"Link\":[\"</a>\",\"</b>\"],\"Location\":[\"/a?b&c\"]}}\n{}\n"},
		"base64":       {lambdahttp.Response{Status: 200, Base64: true, Body: []byte{0, '\n', 0xff}}, "{\"s\":200,\"b\":true}\n\x00\n\xff"},
		"spelling":     {lambdahttp.Response{Status: 200, Header: http.Header{"etag": {"1"}, "ETAG": {"2"}}}, "{\"s\":200,\"h\":{\"Etag\":[\"2\",\"1\"]}}\n"},
		"never":        {lambdahttp.Response{Status: 200, Header: http.Header{"set-cookie": {"a=1"}, "X-Ratelimit-Limit": {"1"}, "a b": {"c"}, "": {"d"}}}, "{\"s\":200}\n"},
		"no values":    {lambdahttp.Response{Status: 200, Header: http.Header{"Etag": {}}}, "{\"s\":200}\n"},
		"broken UTF-8": {lambdahttp.Response{Status: 200, Header: http.Header{"Etag": {"\xff"}}}, "{\"s\":200,\"h\":{\"Etag\":[\"\uFFFD\"]}}\n"},
	} {
		got, err := lambdahttp.Codec.Encode(c.in)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: stored as %q, %v; want %q", name, got, err, c.want)
		}
		var back lambdahttp.Response
		if err := lambdahttp.Codec.Decode(got, &back); err != nil || back.Status != c.in.Status || back.Base64 != c.in.Base64 || !bytes.Equal(back.Body, c.in.Body) {
			t.Errorf("%s: decoded as %+v, %v", name, back, err)
		}
	}
}

func TestDamagedIsRefused(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		"", "\n", "{}\n", "{\"s\":200}", "{\"s\":200} \n", " {\"s\":200}\n", "{\"s\":200}{}\n", "{\"S\":200}\n", "{\"s\":200,\"s\":200}\n",
		"{\"s\":200,\"x\":1}\n", "{\"s\":200,\"b\":false}\n", "{\"b\":true,\"s\":200}\n", "{\"s\":2e2}\n", "{\"s\":\"200\"}\n", "{\"s\":null}\n",
		"{\"s\":99}\n", "{\"s\":0}\n", "{\"s\":600}\n", "{\"s\":-200}\n", "{\"s\":200,\"h\":{}}\n", "{\"s\":200,\"h\":null}\n",
		"{\"s\":200,\"h\":{\"Etag\":[]}}\n", "{\"s\":200,\"h\":{\"etag\":[\"1\"]}}\n", "{\"s\":200,\"h\":{\"Link\":[\"1\"],\"Etag\":[\"1\"]}}\n",
		"{\"s\":200,\"h\":{\"Set-Cookie\":[\"a=1\"]}}\n", "{\"s\":200,\"h\":{\"Etag\":[\"\\u0061\"]}}\n", "{\"s\":200,\"h\":{\"Etag\":[\"\xff\"]}}\n", "null\n", "[]\n",
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
// exactly one form.
func FuzzStoredForm(f *testing.F) {
	f.Add([]byte("{\"s\":204}\n"))
	f.Add([]byte("{\"s\":201,\"b\":true,\"h\":{\"Link\":[\"</a>\",\"</b>\"],\"Location\":[\"/a?b&c\"]}}\nbody\n\x00\xff"))
	f.Add([]byte("{\"s\":200,\"h\":{\"Etag\":[\"\uFFFD\u2028<\"]}}\n"))
	f.Add([]byte("{\"s\":200}\n\xad")) // a handler marked binary data as text; a replay does so too
	f.Add([]byte("{\"s\":200,\"h\":{\"Set-Cookie\":[\"a=1\"]}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, again, err := lambdahttp.Reencode(data)
		if err != nil {
			return
		}
		if !bytes.Equal(again, data) {
			t.Errorf("%q was decoded as %+v and encoded as %q", data, r, again)
		}
		if r.Header.Get("Set-Cookie") != "" {
			t.Error("a cookie was decoded")
		}
	})
}

// Evidence provides the response that a handler never returned.
func TestResolved(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for name, c := range map[string]struct {
			evidence idempotent.Resolution
			want     reply
		}{
			"response": {lambdahttp.Resolved(lambdahttp.Response{Status: 201, Header: http.Header{"location": {"/charges/ch_1"}, "Set-Cookie": {"a=1"}, "X-Other": {"x"}}, Body: []byte("{}")}),
				reply{status: 201, header: map[string]string{"Location": "/charges/ch_1", "Idempotent-Replayed": "true"}, body: "{}"}},
			"bytes": {lambdahttp.Resolved(lambdahttp.Response{Status: 200, Body: []byte{0xff}}),
				reply{status: 200, header: map[string]string{"Idempotent-Replayed": "true"}, body: "/w==", base64: true}},
			"final": {idempotent.ResolvedFinal("card_declined", "The card was declined."),
				reply{status: 422, header: map[string]string{"Content-Type": "application/problem+json", "Content-Language": "en", "Idempotent-Replayed": "true"},
					body: `{"type":"https://github.com/once-lambda/once/blob/main/docs/http.md#final","title":"The request has a final outcome","status":422,"detail":"The card was declined.","code":"card_declined"}`}},
		} {
			w := newWorld(t, on)
			w.becomes(answers(504, nil))
			w.post(charge())
			for range 2 { // the same evidence again is not an error
				if err := w.guard.Resolve(t.Context(), w.store.record(t).ID, c.evidence); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			if a := w.post(charge()); !reflect.DeepEqual(a, c.want) || w.runs != 1 {
				t.Errorf("%s: got %+v after %d runs, want %+v", name, a, w.runs, c.want)
			}
		}
		w := newWorld(t, on)
		w.becomes(answers(504, nil))
		w.post(charge())
		err := w.guard.Resolve(t.Context(), w.store.record(t).ID, lambdahttp.Resolved(lambdahttp.Response{}))
		if err == nil || !strings.Contains(err.Error(), "status 0") {
			t.Errorf("a response without a status resolved a record: %v", err)
		}
		// Evidence in another encoding could not be replayed.
		err = w.guard.Resolve(t.Context(), w.store.record(t).ID, idempotent.Resolved("text"))
		if err == nil || !strings.Contains(err.Error(), lambdahttp.Encoding) || w.store.record(t).State != driver.StateUnknown {
			t.Errorf("a result that is not a response resolved a record: %v", err)
		}
		if err := w.guard.Resolve(t.Context(), w.store.record(t).ID, idempotent.ResolvedWithoutResult()); err != nil {
			t.Fatal(err)
		}
		if a := w.post(charge()); a.status != 409 || !strings.Contains(a.body, "replay-unavailable") {
			t.Errorf("got %d %s", a.status, a.body)
		}
		if err := w.guard.Resolve(t.Context(), w.store.record(t).ID, lambdahttp.Resolved(lambdahttp.Response{Status: 200})); !errors.As(err, new(*idempotent.SettledError)) {
			t.Errorf("a second resolution: %v", err)
		}
	})
}

// A webhook that arrives while the handler is running is refused and changes
// nothing: the handler's own response is the outcome. The same webhook later
// finds that response stored, or settles an unknown outcome.
func TestWebhookDuringTheRun(t *testing.T) {
	t.Parallel()
	evidence := lambdahttp.Resolved(lambdahttp.Response{Status: 201, Body: []byte("from the webhook")})
	onEachWire(t, func(t *testing.T, on wire) {
		for status, c := range map[int]struct {
			later error
			body  string
		}{
			201: {new(idempotent.SettledError), `{"id":"ch_1"}`},
			504: {nil, "from the webhook"},
		} {
			w := newWorld(t, on)
			webhook := func() error { return w.guard.Resolve(t.Context(), w.store.record(t).ID, evidence) }
			w.becomes(func(ctx context.Context, r request) (reply, error) {
				var running *idempotent.InProgressError
				if err := webhook(); !errors.As(err, &running) || running.RetryAfter <= 0 {
					t.Errorf("during the run the webhook got %v, want an InProgressError with RetryAfter", err)
				}
				return answers(status, nil)(ctx, r)
			})
			if a := w.post(charge()); a.status != status {
				t.Errorf("the caller got %d, want the handler's %d", a.status, status)
			}
			if err := webhook(); !errtype.Matches(err, c.later) {
				t.Errorf("after %d the webhook got %v, want %v", status, err, c.later)
			}
			if a := w.post(charge()); a.status != 201 || a.body != c.body || w.runs != 1 {
				t.Errorf("a retry got %d %q after %d runs, want %q", a.status, a.body, w.runs, c.body)
			}
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
