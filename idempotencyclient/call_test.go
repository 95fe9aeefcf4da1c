// SPDX-License-Identifier: Apache-2.0

package idempotencyclient_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotencyclient"
)

const second = time.Second

// The waits of a client, in a bubble whose clock is exact. After the answers, the
// server answers 201.
func TestWaits(t *testing.T) {
	t.Parallel()
	const date = "Date: Thu, 01 Jan 2026 12:00:00 GMT"
	busy := func(n int, lines ...string) []answer { return slices.Repeat([]answer{status(503, "", lines...)}, n) }
	for name, row := range map[string]struct {
		answers []answer
		option  func(*idempotencyclient.Options)
		waits   []time.Duration
		status  int // default: 201
	}{
		"doubles":         {answers: busy(4), waits: []time.Duration{200e6, 400e6, 800e6, 1600e6}},
		"up to the limit": {answers: busy(9), waits: []time.Duration{200e6, 400e6, 800e6, 1600e6, 3200e6, 6400e6, 10 * second, 10 * second, 10 * second}},
		"from a delay above the limit": {answers: busy(2), waits: []time.Duration{3 * second, 3 * second},
			option: func(o *idempotencyclient.Options) { o.MinDelay, o.MaxDelay = 5*second, 3*second }},
		"Retry-After":                  {answers: busy(2, "Retry-After: 7"), waits: []time.Duration{7 * second, 7 * second}},
		"Retry-After above MaxDelay":   {answers: busy(1, "Retry-After: 25"), waits: []time.Duration{25 * second}},
		"a date":                       {answers: busy(1, "Retry-After: Thu, 01 Jan 2026 12:00:09 GMT", date), waits: []time.Duration{9 * second}},
		"a date in the past":           {answers: busy(1, "Retry-After: Thu, 01 Jan 2026 11:00:00 GMT", date), waits: []time.Duration{200e6}},
		"a date without Date":          {answers: busy(1, "Retry-After: Sat, 01 Jan 2000 00:00:08 GMT"), waits: []time.Duration{8 * second}}, // the bubble begins at 0:00:00
		"an invalid Retry-After":       {answers: busy(1, "Retry-After: soon"), waits: []time.Duration{200e6}},
		"a Retry-After that is 0":      {answers: busy(1, "Retry-After: 0"), waits: []time.Duration{200e6}},
		"a Retry-After of centuries":   {answers: busy(1, "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT"), status: 503, option: func(o *idempotencyclient.Options) { o.Jitter = 1 }},
		"seconds beyond 64 bits":       {answers: busy(1, "Retry-After: 99999999999999999999"), status: 503, option: func(o *idempotencyclient.Options) { o.Jitter = 1 }},
		"a Retry-After beyond Timeout": {answers: busy(1, "Retry-After: 60"), status: 503},
		"the last wait before Timeout": {answers: busy(1, "Retry-After: 59"), waits: []time.Duration{59 * second}},
		"MaxAttempts":                  {answers: busy(20), status: 503, waits: []time.Duration{200e6, 400e6}, option: func(o *idempotencyclient.Options) { o.MaxAttempts = 3 }},
		"one attempt":                  {answers: busy(20), status: 503, option: func(o *idempotencyclient.Options) { o.MaxAttempts = 1 }},
		"ten attempts by default":      {answers: busy(20), status: 503, waits: slices.Repeat([]time.Duration{1e6}, 9), option: func(o *idempotencyclient.Options) { o.MaxDelay = 1e6 }},
		"Timeout by default":           {answers: slices.Repeat([]answer{status(409, "", "Retry-After: 19")}, 9), status: 409, waits: slices.Repeat([]time.Duration{19 * second}, 3)},
		"an attempt that hangs":        {answers: []answer{hangs}, waits: []time.Duration{30*second + 200e6}},
		"AttemptTimeout":               {answers: []answer{hangs}, waits: []time.Duration{2*second + 200e6}, option: func(o *idempotencyclient.Options) { o.AttemptTimeout = 2 * second }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{answers: row.answers}
				code, _, err := send(t, newTransport(t, s, row.option))
				if want := max(201, row.status); code != want || err != nil {
					t.Errorf("got %d, %v, want %d", code, err, want)
				}
				s.sameKey(t)
				var waits []time.Duration
				for i := range s.got[1:] {
					waits = append(waits, s.got[i+1].at.Sub(s.got[i].at))
				}
				if !slices.Equal(waits, row.waits) {
					t.Errorf("waits %v, want %v", waits, row.waits)
				}
			})
		})
	}
}

// The random part of a wait shortens the client's own wait by at most Jitter, and
// lengthens Retry-After.
func TestJitter(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		jitter      float64
		line        string
		least, most time.Duration
	}{
		{0, "", 100e6, 200e6},
		{1, "", 0, 200e6},
		{0, "Retry-After: 3", 3 * second, 3100e6},
	} {
		synctest.Test(t, func(t *testing.T) {
			shortest, longest := time.Hour, time.Duration(0)
			for range 200 {
				s := &server{answers: []answer{status(503, "", row.line)}}
				if _, _, err := send(t, newTransport(t, s, func(o *idempotencyclient.Options) { o.Jitter = row.jitter })); err != nil {
					t.Fatal(err)
				}
				wait := s.got[1].at.Sub(s.got[0].at)
				shortest, longest = min(shortest, wait), max(longest, wait)
			}
			quarter := (row.most - row.least) / 4
			if shortest < row.least || longest > row.most || shortest > row.least+quarter || longest < row.most-quarter {
				t.Errorf("jitter %v, %q: waits from %v to %v, want from %v to %v", row.jitter, row.line, shortest, longest, row.least, row.most)
			}
		})
	}
}

// What ends a request without a response: how many attempts were made, whether one
// may have been executed, and what the error says.
func TestErrors(t *testing.T) {
	t.Parallel()
	dial := fails(&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")})
	always := func(a answer) []answer { return slices.Repeat([]answer{a}, 20) }
	within := func(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
		return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
	}
	for name, row := range map[string]struct {
		answers  []answer
		context  func(context.Context) (context.Context, context.CancelFunc)
		attempts int
		sent     bool
		is       error
		after    time.Duration
		text     string
	}{
		"never connected": {answers: always(dial), attempts: 10, after: 42600e6,
			text: "no complete response after 10 attempts: dial tcp: connection refused"},
		"never answered": {answers: always(fails(io.EOF)), attempts: 10, sent: true, is: io.EOF, after: 42600e6,
			text: "no complete response after 10 attempts: EOF; it may have been executed; send it again with the same key only"},
		"an invalid certificate": {answers: always(fails(&tls.CertificateVerificationError{Err: errors.New("expired")})), attempts: 1,
			text: "no complete response: tls: failed to verify certificate: expired"},
		"reset": {answers: always(fails(&net.OpError{Op: "read", Net: "tcp", Err: errors.New("reset")})), attempts: 10, sent: true, after: 42600e6,
			text: "no complete response after 10 attempts: read tcp: reset; it may have been executed; send it again with the same key only"},
		"the context ends later than Timeout": {answers: always(hangs), context: within(time.Hour), attempts: 2, sent: true, is: context.DeadlineExceeded, after: 60 * second,
			text: "no complete response after 2 attempts: time-out after 29.8s: context deadline exceeded; it may have been executed; send it again with the same key only"},
		"answered once, then not connected": {answers: append([]answer{status(503, "")}, always(dial)...), attempts: 10, sent: true, after: 42600e6,
			text: "no complete response after 10 attempts: dial tcp: connection refused; it may have been executed; send it again with the same key only"},
		"hangs until Timeout": {answers: always(hangs), attempts: 2, sent: true, is: context.DeadlineExceeded, after: 60 * second,
			text: "no complete response after 2 attempts: time-out after 29.8s: context deadline exceeded; it may have been executed; send it again with the same key only"},
		"the context ends during an attempt": {answers: always(hangs), context: within(5 * second), attempts: 1, sent: true, is: context.DeadlineExceeded, after: 5 * second,
			text: "no complete response: context deadline exceeded; it may have been executed; send it again with the same key only"},
		"no time for the next wait": {answers: always(fails(io.EOF)), context: within(500e6), attempts: 2, sent: true, is: io.EOF, after: 200e6,
			text: "no complete response after 2 attempts: EOF; it may have been executed; send it again with the same key only"},
		"canceled during a wait": {answers: always(status(503, "", "Retry-After: 5")), attempts: 1, sent: true, is: errLeft, after: 2 * second,
			context: func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(2*second, func() { cancel(errLeft) })
				return ctx, func() { cancel(nil) }
			},
			text: "no complete response: the user left; it may have been executed; send it again with the same key only"},
		"redirected to GET": {answers: always(status(302, "", "Location: /login")), attempts: 1, sent: true,
			text: "no complete response: the server redirects with 302, which http.Client follows with a GET; use the new URL, or set Options.RedirectToGet; it may have been executed; send it again with the same key only"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ctx, cancel := &server{answers: row.answers}, t.Context(), func() {}
				if row.context != nil {
					ctx, cancel = row.context(ctx)
				}
				defer cancel()
				began := time.Now()
				_, _, err := sendRequest(t, newTransport(t, s), newRequest(t, ctx, http.MethodPost, api, "4200"))
				key := s.sameKey(t)
				e := failure(t, err)
				if e.Attempts != row.attempts || e.Sent != row.sent || row.is != nil && !errors.Is(err, row.is) {
					t.Errorf("got %d attempts, sent %t, %v; want %d, %t, %v", e.Attempts, e.Sent, e.Err, row.attempts, row.sent, row.is)
				}
				if got := time.Since(began).Round(time.Millisecond); got != row.after {
					t.Errorf("it took %v, want %v", got, row.after)
				}
				if want := "idempotencyclient: POST api.example.com: " + row.text; err.Error() != want {
					t.Errorf("got  %s\nwant %s", err, want)
				}
				for i, r := range s.got {
					if r.context.Err() == nil && !strings.Contains(name, "redirected") {
						t.Errorf("the context of attempt %d has not ended", i+1)
					}
				}
				if strings.Contains(err.Error(), strings.Trim(key, `"`)) {
					t.Errorf("the error has the key: %v", err)
				}
			})
		})
	}
}

var errLeft = errors.New("the user left")

// Each attempt has the whole body. A body that cannot be sent again is refused
// before the first attempt, and closed.
func TestRequestBody(t *testing.T) {
	t.Parallel()
	limit := func(n int64) func(*idempotencyclient.Options) {
		return func(o *idempotencyclient.Options) { o.MaxRequestBody = n }
	}
	for name, row := range map[string]struct {
		body   io.Reader
		length int64 // of the request; 0: as http.NewRequest sets it
		limit  int64
		sent   string
		err    string
	}{
		"with GetBody":          {body: strings.NewReader("4200"), limit: 1, sent: "4200"},
		"no body":               {sent: ""},
		"an empty body":         {body: http.NoBody, sent: ""},
		"buffered":              {body: io.MultiReader(strings.NewReader("4200")), limit: 4, sent: "4200"},
		"of declared length":    {body: io.MultiReader(strings.NewReader("4200")), length: 4, sent: "4200"},
		"too long":              {body: io.MultiReader(strings.NewReader("4200")), limit: 3, err: "the request body has more than 3 bytes, so it cannot be sent again; set GetBody, or Options.MaxRequestBody"},
		"shorter than declared": {body: io.MultiReader(strings.NewReader("4200")), length: 5, err: "the request body has 4 bytes, and ContentLength is 5"},
		"unreadable":            {body: failing{errors.New("disk failure")}, err: "read the request body: disk failure"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{answers: []answer{status(503, ""), breaksOff("")}}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api, row.body)
				if err != nil {
					t.Fatal(err)
				}
				req.Header = nil // allowed for a RoundTripper
				if row.length > 0 {
					req.ContentLength = row.length
				}
				closed := &closes{ReadCloser: req.Body}
				if row.body != nil && row.body != http.NoBody {
					req.Body = closed
				}
				_, _, err = sendRequest(t, newTransport(t, s, limit(row.limit)), req)
				if req.Body == closed && closed.n == 0 {
					t.Error("the body was not closed")
				}
				if row.err != "" {
					e := failure(t, err)
					want := "idempotencyclient: POST api.example.com: the request was not sent: " + row.err
					if len(s.got) != 0 || e.Sent || e.Attempts != 0 || err.Error() != want {
						t.Errorf("got %d requests, %v; want %s", len(s.got), err, want)
					}
					return
				}
				if err != nil || len(s.got) != 3 {
					t.Fatalf("got %d requests, %v", len(s.got), err)
				}
				for _, r := range s.got {
					if r.body != row.sent || r.length != int64(len(row.sent)) {
						t.Errorf("got %q with the length %d, want %q", r.body, r.length, row.sent)
					}
				}
			})
		})
	}
}

type closes struct {
	io.ReadCloser
	n int
}

func (c *closes) Close() error { c.n++; return c.ReadCloser.Close() }

// A body that GetBody cannot return again is a failed attempt.
func TestRequestBody_GetBodyFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		req := newRequest(t, t.Context(), http.MethodPost, api, "4200")
		again := req.GetBody
		failures := 1
		req.GetBody = func() (io.ReadCloser, error) {
			if failures--; failures >= 0 {
				return nil, errors.New("the file is gone")
			}
			return again()
		}
		if code, _, err := sendRequest(t, newTransport(t, s), req); code != 201 || err != nil || len(s.got) != 1 {
			t.Errorf("got %d, %v after %d requests", code, err, len(s.got))
		}
		failures = 99
		_, _, err := sendRequest(t, newTransport(t, s), req)
		if e := failure(t, err); e.Sent || !strings.Contains(err.Error(), ": get the request body again: the file is gone") {
			t.Errorf("got %v, sent %t", err, e.Sent)
		}
	})
}

// A response that breaks off is repeated if that happens within MaxResponseBody, and
// later it is an error of reading.
func TestResponseBody(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		limit    int64
		requests int
		body     string
		err      error
	}{
		{0, 2, `{"id":"ch_1"}`, nil},
		{5, 2, `{"id":"ch_1"}`, nil},
		{4, 1, "1234", io.ErrUnexpectedEOF},
		{-1, 1, "1234", io.ErrUnexpectedEOF},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{answers: []answer{breaksOff("1234")}}
			_, body, err := send(t, newTransport(t, s, func(o *idempotencyclient.Options) { o.MaxResponseBody = row.limit }))
			if len(s.got) != row.requests || body != row.body || !errors.Is(err, row.err) {
				t.Errorf("limit %d: %d requests, %q, %v", row.limit, len(s.got), body, err)
			}
		})
	}
}

// A connection that the server switches to another protocol is the caller's: it is not
// read, not wrapped, and not ended by a time-out.
func TestResponseBody_Upgrade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		conn, far := net.Pipe()
		time.AfterFunc(time.Hour, func() { far.Close() }) // ends a Read
		s := &server{answers: []answer{func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: conn}, nil
		}}}
		resp, err := newTransport(t, s).RoundTrip(newRequest(t, t.Context(), http.MethodPost, api, ""))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if resp.Body != io.ReadCloser(s.got[0].answer) || s.got[0].context.Err() != nil {
			t.Errorf("the body is %T, the context %v", resp.Body, s.got[0].context.Err())
		}
	})
}

// AttemptTimeout includes the part of the response that is read ahead, and no more.
// The context of an attempt ends when its body is closed.
func TestResponseBody_Slow(t *testing.T) {
	t.Parallel()
	slow := func(closed *closes, ended *bool) answer {
		return func(r *http.Request) (*http.Response, error) {
			context.AfterFunc(r.Context(), func() { *ended = true })
			reader, writer := io.Pipe()
			go func() {
				for _, part := range []string{"1234", "5678"} {
					select {
					case <-r.Context().Done():
						writer.CloseWithError(r.Context().Err())
						return
					case <-time.After(20 * second):
					}
					fmt.Fprint(writer, part)
				}
				writer.Close()
			}()
			closed.ReadCloser = reader
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: closed}, nil
		}
	}
	for _, row := range []struct {
		limit    int64
		requests int
		body     string
	}{{0, 2, `{"id":"ch_1"}`}, {4, 1, "12345678"}, {-1, 1, "12345678"}} {
		synctest.Test(t, func(t *testing.T) {
			closed, ended := &closes{}, false
			s := &server{answers: []answer{slow(closed, &ended)}}
			transport := newTransport(t, s, func(o *idempotencyclient.Options) { o.MaxResponseBody = row.limit })
			resp, err := transport.RoundTrip(newRequest(t, t.Context(), http.MethodPost, api, ""))
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(resp.Body)
			synctest.Wait()
			if early := ended && row.requests == 1; err != nil || string(data) != row.body || len(s.got) != row.requests || early {
				t.Errorf("limit %d: %q, %v, %d requests, ended early %t", row.limit, data, err, len(s.got), early)
			}
			resp.Body.Close()
			synctest.Wait()
			if !ended || closed.n != 1 {
				t.Errorf("limit %d: after Close: context ended %t, body closed %d times", row.limit, ended, closed.n)
			}
		})
	}
}

// unanswered are the rows of the table that are no statuses.
var unanswered = map[string]answer{
	"no connection":                          fails(&net.OpError{Op: "dial", Err: errors.New("refused")}),
	"the connection ends without a response": fails(io.EOF),
	"the response breaks off":                breaksOff(`{"id`),
	"no response in time":                    hangs,
	"an invalid certificate":                 fails(&tls.CertificateVerificationError{Err: errors.New("expired")}),
}

// Each row of the table in docs/idempotencyclient.md is what the client does: it is
// the specification for clients in other languages.
func TestRules(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/idempotencyclient.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n| answer | code or type | header | the client |\n")
	table, _, _ := strings.Cut(rest, "\n\n")
	played := 0
	for _, row := range strings.Split(table, "\n")[1:] {
		cells := strings.Split(strings.Trim(row, "| "), "|")
		if len(cells) != 4 {
			t.Fatalf("a row of %d cells: %s", len(cells), row)
		}
		header, does := strings.Trim(cells[2], " `"), strings.TrimSpace(cells[3])
		codes := regexp.MustCompile("`[^`]+`").FindAllString(cells[1], -1)
		if len(codes) == 0 {
			codes = []string{""}
		}
		for answers := range strings.SplitSeq(cells[0], ", ") {
			for _, code := range codes {
				code := strings.Trim(code, "`")
				forms := []string{`{"code":%q}`, `{"error":{"type":"x","code":%q}}`}
				if strings.Contains(code, "#") {
					forms = []string{`{"type":%q}`}
				}
				for _, form := range forms {
					name := strings.TrimSpace(answers)
					play, ok := unanswered[name]
					if n, err := strconv.Atoi(name); err == nil {
						play, ok = status(n, fmt.Sprintf(form, code), header), true
					}
					if !ok {
						t.Fatalf("the answer %q cannot be played", name)
					}
					played++
					t.Run(strings.Join([]string{name, code, header, form[2:4]}, " "), func(t *testing.T) { follows(t, play, name, does) })
				}
			}
		}
	}
	if played < 80 {
		t.Errorf("only %d answers were found", played)
	}
}

// follows plays an answer to a client, and then 201.
func follows(t *testing.T, play answer, name, does string) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{answers: []answer{play}}
		code, _, err := send(t, newTransport(t, s))
		s.sameKey(t)
		got := fmt.Sprintf("%d requests, %d", len(s.got), code)
		if err != nil {
			got = fmt.Sprintf("%d requests, %d attempts", len(s.got), failure(t, err).Attempts)
		}
		want := map[string]string{"repeats": "2 requests, 201", "returns": "1 requests, " + name, "stops": "1 requests, 1 attempts"}[does]
		if got != want {
			t.Errorf("got %s, %v; want %s, because the page says that the client %s", got, err, want, does)
		}
	})
}
