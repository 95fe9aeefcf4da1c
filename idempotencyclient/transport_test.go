// SPDX-License-Identifier: Apache-2.0

package idempotencyclient_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/once-lambda/once/idempotencyclient"
)

const uuid4 = `[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`

// Which requests get a key, and which one. A key in the request's header is sent as
// it is.
func TestKey(t *testing.T) {
	t.Parallel()
	from := func(key string) func(*idempotencyclient.Options) {
		return func(o *idempotencyclient.Options) {
			o.ContextKey = func(context.Context) string { return key }
		}
	}
	form := func(f idempotencyclient.Form, more func(*idempotencyclient.Options)) func(*idempotencyclient.Options) {
		return func(o *idempotencyclient.Options) { more(o); o.Form = f }
	}
	for name, row := range map[string]struct {
		method string // default: POST
		own    string
		header string // default: Idempotency-Key
		option func(*idempotencyclient.Options)
		want   string // a regular expression of the whole value
		err    string
	}{
		"POST":                      {want: `"` + uuid4 + `"`},
		"another header":            {header: "PayPal-Request-Id", option: func(o *idempotencyclient.Options) { o.Header = "paypal-request-id" }, want: `"` + uuid4 + `"`},
		"PATCH":                     {method: "PATCH", want: `"` + uuid4 + `"`},
		"PUT":                       {method: "PUT", want: ``},
		"GET":                       {method: "GET", want: ``},
		"GET with a key":            {method: "GET", own: "k", want: `k`},
		"another method":            {method: "PUT", option: func(o *idempotencyclient.Options) { o.Methods = []string{"PUT"} }, want: `"` + uuid4 + `"`},
		"POST is not listed":        {option: func(o *idempotencyclient.Options) { o.Methods = []string{"PUT"} }, want: ``},
		"the caller's key":          {own: "order,17", option: from("context"), want: `order,17`},
		"of the context":            {option: from(`once-1 "\`), want: `"once-1 \\"\\\\"`},
		"an empty context":          {option: from(""), want: `"` + uuid4 + `"`},
		"all of ASCII":              {option: from(" ~"), want: `" ~"`},
		"not ASCII":                 {option: from("kéy"), err: "the key from ContextKey has a byte that is not printable ASCII at 1"},
		"a delete character":        {option: from("key\x7f"), err: "the key from ContextKey has a byte that is not printable ASCII at 3"},
		"a line break":              {option: from("key\n"), err: "the key from ContextKey has a byte that is not printable ASCII at 3"},
		"Stripe":                    {option: form(idempotencyclient.Stripe, from(`once-"1`)), want: `once-"1`},
		"Stripe, a comma":           {option: form(idempotencyclient.Stripe, from("a,b")), err: "the key from ContextKey has a comma, or a space at its begin or end, which the form Stripe does not allow"},
		"Stripe, a space":           {option: form(idempotencyclient.Stripe, from("ab ")), err: "the key from ContextKey has a comma, or a space at its begin or end, which the form Stripe does not allow"},
		"UUID":                      {option: form(idempotencyclient.UUID, from("")), want: uuid4},
		"UUID of the context":       {option: form(idempotencyclient.UUID, from("8E03978e-40d5-73e8-bc93-6894a57f9324")), want: "8E03978e-40d5-73e8-bc93-6894a57f9324"},
		"a UUID of another version": {option: form(idempotencyclient.UUID, from("8e03978e-40d5-13e8-bc93-6894a57f9324")), want: uuid4},
		// The UUID that idempotent.AsUUID("once-1") returns.
		"UUID of another key": {option: form(idempotencyclient.UUID, from("once-1")), want: "72343391-e60e-4d87-9e5b-26dab9dc2408"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{answers: []answer{status(503, "")}}
				method := cmp.Or(row.method, http.MethodPost)
				req := newRequest(t, t.Context(), method, api, "4200")
				if row.own != "" {
					req.Header.Set("Idempotency-Key", row.own)
				}
				req.Header.Set("Content-Type", "text/plain")
				req.Response = &http.Response{} // of a redirect whose request is not known
				closed := &closes{ReadCloser: req.Body}
				req.Body = closed
				_, _, err := sendRequest(t, newTransport(t, s, row.option), req)
				if closed.n == 0 && method != "GET" && len(s.got) != 1 {
					t.Error("the body was not closed")
				}
				if row.err != "" {
					req.Body = nil
					if _, _, err := sendRequest(t, newTransport(t, s, row.option), req); err == nil {
						t.Error("without a body it is sent")
					}
					if want := "idempotencyclient: POST api.example.com: the request was not sent: " + row.err; err == nil || err.Error() != want || len(s.got) != 0 {
						t.Errorf("got %d requests, %v; want %s", len(s.got), err, want)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if req.Header.Get("Idempotency-Key") != row.own {
					t.Error("the caller's request was changed")
				}
				if s.got[0].header.Get("Content-Type") != "text/plain" {
					t.Error("a header is lost")
				}
				got := s.got[0].header.Get(cmp.Or(row.header, "Idempotency-Key"))
				if !regexp.MustCompile("^("+row.want+")$").MatchString(got) || row.header != "" && s.got[0].key != "" {
					t.Errorf("got the key %s, want %s, in %v", got, row.want, s.got[0].header)
				}
			})
		})
	}
}

// A request to a server that is not declared gets no key and is sent once, and the
// error says so. If it needs a key, it is not sent.
func TestHosts(t *testing.T) {
	t.Parallel()
	const hint = "Options.Hosts does not list this host; list it if it honours keys"
	sends := func(url string, ctx context.Context, s *server, fns ...func(*idempotencyclient.Options)) error {
		_, _, err := sendRequest(t, newTransport(t, s, append(fns, func(o *idempotencyclient.Options) {
			o.Hosts = []string{"API.example.com", "127.0.0.1:8080"}
		})...), newRequest(t, ctx, http.MethodPost, url, "4200"))
		return err
	}
	for url, listed := range map[string]bool{
		"https://api.example.com/charges":      true,
		"https://api.example.com:8443/charges": true,
		"http://127.0.0.1:8080/":               true,
		"http://127.0.0.1:8081/":               false,
		"https://evil.api.example.com/":        false,
	} {
		s := &server{}
		if err := sends(url, t.Context(), s); err != nil || len(s.got) != 1 || s.got[0].key != "" != listed {
			t.Errorf("%s: got %+v, %v; listed: %t", url, s.got, err, listed)
		}
	}

	const other = "https://other.example.com/"
	s := &server{answers: []answer{fails(io.EOF)}}
	e := failure(t, sends(other, t.Context(), s))
	if want := "idempotencyclient: POST other.example.com: no complete response: EOF; not repeated, because " + hint; e.Error() != want || !e.Sent || e.Attempts != 1 || len(s.got) != 1 {
		t.Errorf("got %d requests, %v, sent %t, %d attempts; want %s", len(s.got), e, e.Sent, e.Attempts, want)
	}
	s = &server{answers: []answer{fails(&net.OpError{Op: "dial", Err: io.EOF})}}
	if e := failure(t, sends(other, t.Context(), s)); e.Sent {
		t.Errorf("sent, %v", e)
	}
	s = &server{}
	named := sends(other, idempotencyclient.WithName(t.Context(), "order 17"), s, func(o *idempotencyclient.Options) { o.PendingDir = t.TempDir() })
	keyed := sends(other, t.Context(), s, func(o *idempotencyclient.Options) { o.ContextKey = func(context.Context) string { return "" } })
	for _, err := range []error{named, keyed} {
		if want := "idempotencyclient: POST other.example.com: the request was not sent: the request needs a key, and " + hint; err == nil || err.Error() != want || len(s.got) != 0 {
			t.Errorf("got %d requests, %v; want %s", len(s.got), err, want)
		}
	}
}

// What http.Client does after a redirect: 307 and 308 repeat the request with its
// key at a declared host, 303 gets the result, and nothing else is followed.
func TestRedirects(t *testing.T) {
	t.Parallel()
	toGet := func(o *idempotencyclient.Options) { o.RedirectToGet = true }
	for name, row := range map[string]struct {
		status   int
		location string
		option   func(*idempotencyclient.Options)
		requests string // methods and whether they have the first key
		err      string
	}{
		"307":                   {status: 307, location: "/v2", requests: "POST true, POST true"},
		"308":                   {status: 308, location: "https://api.example.com:8443/v2", requests: "POST true, POST true"},
		"308 to another host":   {status: 308, location: "https://other.example.com/", requests: "POST true", err: "the request needs a key, and Options.Hosts does not list this host"},
		"303":                   {status: 303, location: "/charges/ch_1", requests: "POST true, GET false"},
		"303 to another host":   {status: 303, location: "https://other.example.com/", requests: "POST true, GET false"},
		"301":                   {status: 301, location: "/v2", requests: "POST true", err: "redirects with 301"},
		"302":                   {status: 302, location: "/v2", requests: "POST true", err: "redirects with 302"},
		"302 and RedirectToGet": {status: 302, location: "/v2", option: toGet, requests: "POST true, GET false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{answers: []answer{status(row.status, "", "Location: "+row.location)}}
			client := &http.Client{Transport: newTransport(t, s, row.option)}
			resp, err := client.Post(api, "text/plain", strings.NewReader("4200"))
			if err == nil {
				resp.Body.Close()
			}
			if row.err == "" && err != nil || row.err != "" && !strings.Contains(failure(t, err).Error(), row.err) {
				t.Errorf("got %v, want %q", err, row.err)
			}
			var requests []string
			for _, r := range s.got {
				requests = append(requests, r.method+map[bool]string{true: " true", false: " false"}[r.key == s.got[0].key])
			}
			if got := strings.Join(requests, ", "); got != row.requests {
				t.Errorf("got %s, want %s", got, row.requests)
			}
		})
	}
}

// http.Transport repeats a POST itself if it has a key, and the server closed an idle
// connection. A server that is not declared must get the request once: it gets no key.
// With a key, the request that was executed is sent, although the last connection was
// refused.
func TestSent_StandardTransport(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		host, key string
		most      int32 // connections
	}{
		"without a key":    {host: "api.example.com", most: 9},
		"the caller's key": {host: "api.example.com", key: "k", most: 1},
		"the client's key": {host: "127.0.0.1", most: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var posts, connections atomic.Int32
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if posts.Add(1) == 2 {
					conn, _, err := w.(http.Hijacker).Hijack()
					if err == nil {
						conn.Close()
					}
				}
			}))
			defer web.Close()
			transport := newTransport(t, &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if connections.Add(1) > row.most {
					return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
				}
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}}, func(o *idempotencyclient.Options) { o.Hosts, o.MaxAttempts = []string{row.host}, 1 })
			for i := range 2 {
				req := newRequest(t, t.Context(), http.MethodPost, web.URL, "4200")
				if row.key != "" {
					req.Header.Set("Idempotency-Key", row.key)
				}
				_, _, err := sendRequest(t, transport, req)
				if e := (*idempotencyclient.Error)(nil); (i == 1) != errors.As(err, &e) || i == 1 && (!e.Sent || e.Attempts != 1) {
					t.Errorf("request %d: %+v", i, err)
				}
			}
			if posts, connections := posts.Load(), connections.Load(); posts != 2 || row.key != "" && connections != 2 {
				t.Errorf("the server got %d requests, want 2; %d connections", posts, connections)
			}
		})
	}
}

// The smallest values are valid.
func TestNew_Refuses(t *testing.T) {
	t.Parallel()
	const negative = "a duration of Options is negative"
	for _, row := range []struct {
		want string
		set  func(*idempotencyclient.Options)
	}{
		{"", func(o *idempotencyclient.Options) {
			o.Form, o.MaxAttempts, o.Jitter, o.MaxRequestBody = idempotencyclient.UUID, 1, 1, 1
			o.Timeout, o.AttemptTimeout, o.MinDelay, o.MaxDelay, o.Retention = 1, 1, 1, 1, 1
		}},
		{"Options.Hosts is empty: list the hosts that honour idempotency keys", func(o *idempotencyclient.Options) { o.Hosts = nil }},
		{"unknown Options.Form", func(o *idempotencyclient.Options) { o.Form = 3 }},
		{"Options.MaxAttempts or Options.MaxRequestBody is negative", func(o *idempotencyclient.Options) { o.MaxAttempts = -1 }},
		{"Options.MaxAttempts or Options.MaxRequestBody is negative", func(o *idempotencyclient.Options) { o.MaxRequestBody = -1 }},
		{negative, func(o *idempotencyclient.Options) { o.Timeout = -1 }},
		{negative, func(o *idempotencyclient.Options) { o.AttemptTimeout = -1 }},
		{negative, func(o *idempotencyclient.Options) { o.MinDelay = -1 }},
		{negative, func(o *idempotencyclient.Options) { o.MaxDelay = -1 }},
		{negative, func(o *idempotencyclient.Options) { o.Retention = -1 }},
		{"Options.Jitter is above 1", func(o *idempotencyclient.Options) { o.Jitter = 1.1 }},
	} {
		_, err := idempotencyclient.New(func(o *idempotencyclient.Options) { o.Hosts = []string{"api.example.com"} }, row.set)
		if (err == nil) != (row.want == "") || err != nil && err.Error() != "idempotencyclient: "+row.want {
			t.Errorf("got %v, want %s", err, row.want)
		}
	}
}

// Without Base, requests go through http.DefaultTransport. Two requests have two keys.
func TestBase(t *testing.T) {
	t.Parallel()
	keys := map[string]bool{}
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { keys[r.Header.Get("Idempotency-Key")] = true }))
	defer web.Close()
	transport, err := idempotencyclient.New(func(o *idempotencyclient.Options) { o.Hosts = []string{"127.0.0.1"} })
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, _, err := sendRequest(t, transport, newRequest(t, t.Context(), http.MethodPost, web.URL, "")); err != nil {
			t.Error(err)
		}
	}
	if len(keys) != 2 || keys[""] {
		t.Errorf("the server got the keys %v, want two", keys)
	}
}
