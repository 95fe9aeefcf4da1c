// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit/exchange"
	"github.com/once-lambda/once/lambdahttp"
)

func inShadow(o *idempotent.Options) { o.Shadow = true }

// harms are what a store does to a guard in shadow mode.
var harms = map[string]func(context.Context, *idempotenttest.StoreCall){
	"":        func(ctx context.Context, c *idempotenttest.StoreCall) { c.Do(ctx) },
	"refused": func(_ context.Context, c *idempotenttest.StoreCall) { c.Err = errDown },
	"lost": func(ctx context.Context, c *idempotenttest.StoreCall) {
		c.Do(ctx)
		c.Current, c.Err = nil, errDown
	},
	"hanging": func(ctx context.Context, c *idempotenttest.StoreCall) {
		<-ctx.Done()
		c.Err = ctx.Err()
	},
}

// Every exchange, on every event type and under every harm of the store, has the answers of
// the handler without a guard, at most 250 ms later. If the store works, each request has
// one event, which says what a guard that enforces does.
func TestShadow_Exchanges(t *testing.T) {
	t.Parallel()
	for _, c := range exchange.Cases {
		for i, row := range c.Rows {
			inEachProfile(t, fmt.Sprint(c.Name, i), row.Profiles, func(t *testing.T, p *exchange.Profile) {
				onEachWire(t, func(t *testing.T, on wire) {
					for name, harm := range harms {
						synctest.Test(t, func(t *testing.T) {
							want, _ := playShadow(t, on, p, row, nil)
							got, events := playShadow(t, on, p, row, harm)
							if !reflect.DeepEqual(got, want) {
								t.Errorf("harm %q: got\n%+v, want\n%+v", name, got, want)
							}
							if name != "" {
								return
							}
							var kinds []event.Kind
							for _, s := range row.Sends {
								if kind := findingOf(s); kind != "" {
									kinds = append(kinds, kind)
								}
							}
							slices.Sort(kinds)
							slices.Sort(events) // a request ends after those that are sent while it runs
							if fmt.Sprint(events) != fmt.Sprint(kinds) {
								t.Errorf("got the events %s, want %s", events, kinds)
							}
						})
					}
				})
			})
		}
	}
}

// findingOf returns the event about a request that gets a response from a guard that
// enforces. The handler numbers its responses, so no response is the same again.
func findingOf(s exchange.Send) event.Kind {
	switch s.Gets {
	case exchange.Created:
		return event.ShadowRun
	case exchange.Replay:
		return event.ShadowDiffers
	case exchange.Passed:
		if s.Method == "" {
			return event.ShadowNoKey
		}
		return ""
	case "key-reused":
		return event.ShadowMismatch
	case "in-progress", "accepted":
		return event.ShadowInProgress
	default:
		return event.ShadowNoKey
	}
}

// playShadow sends the requests of a row to the handler, behind a guard in shadow mode
// whose store does harm, or without a guard.
func playShadow(t *testing.T, on wire, p *exchange.Profile, row exchange.Row, harm func(context.Context, *idempotenttest.StoreCall)) ([]string, []event.Kind) {
	w := newFixtureWith(t, on, inShadow, documented, func(o *lambdahttp.Options) { o.Profile = p.Value }, optionally(row.Options))
	w.harm = harm
	var ended time.Time
	numbered := func(context.Context, request) (reply, error) {
		id := fmt.Sprint("ch_", w.runs)
		ended = time.Now()
		return reply{status: 201, header: map[string]string{"Content-Type": "application/json", "Location": "/charges/" + id}, body: `{"id":"` + id + `"}`}, nil
	}
	if harm == nil {
		w.send = on.bare(func(ctx context.Context, r request) (reply, error) { w.runs++; return w.handle(ctx, r) })
	}
	got := make([]string, len(row.Sends))
	send := func(i int) {
		answer, err := w.send(t.Context(), sent(p, row.Sends[i]))
		got[i] = fmt.Sprintf("%+v, %v", answer, err)
		if late := time.Since(ended); late > 250*time.Millisecond {
			t.Errorf("an answer came %s after the handler", late)
		}
	}
	for i, s := range row.Sends {
		if s.During {
			continue // is sent while the one before runs
		}
		w.becomes(func(ctx context.Context, r request) (reply, error) {
			w.becomes(numbered)
			own, err := numbered(ctx, r)
			synctest.Wait() // until the record is written
			for j := i + 1; j < len(row.Sends) && row.Sends[j].During; j++ {
				send(j)
			}
			ended = time.Now()
			return own, err
		})
		w.clock.Advance(s.Later)
		ended = time.Now()
		send(i)
	}
	return got, w.seen.Kinds()
}

// The errors of a handler reach Lambda as without a guard, and what it declares decides
// only about the record.
func TestShadow_Errors(t *testing.T) {
	t.Parallel()
	for method, err := range map[string]error{
		"GET": errDown, "OPTIONS": idempotent.Final("sold_out", "Sold out."),
	} {
		onEachWire(t, func(t *testing.T, on wire) {
			want, wantErr := on.bare(answers(500, err))(t.Context(), charge(withMethod(method)))
			w := newFixtureWith(t, on, inShadow)
			w.becomes(answers(500, err))
			if got, gotErr := w.send(t.Context(), charge(withMethod(method))); !reflect.DeepEqual(got, want) || gotErr != wantErr {
				t.Errorf("%s: got %+v, %v; want %+v, %v", method, got, gotErr, want, wantErr)
			}
		})
	}
	for _, err := range []error{
		errors.New("broken"), idempotent.Final("sold_out", "Sold out."), idempotent.NotExecuted(errDown), idempotent.Unknown(errDown),
	} {
		for _, status := range []int{201, 503} {
			onEachWire(t, func(t *testing.T, on wire) {
				w := newFixtureWith(t, on, inShadow)
				w.becomes(answers(status, err))
				want, wantErr := on.bare(answers(status, err))(t.Context(), charge())
				got, gotErr := w.send(t.Context(), charge())
				if !reflect.DeepEqual(got, want) || gotErr != wantErr {
					t.Errorf("%v: got %+v, %v; want %+v, %v", err, got, gotErr, want, wantErr)
				}
				state := driver.StateRetryable
				if _, final := idempotent.AsFinal(err); final {
					state = driver.StateCompleted
				}
				if r := w.store.record(t); r.State != state {
					t.Errorf("%v: the record is %s, want %s", err, r.State, state)
				}
			})
		}
	}
}

// A response that is the same again is compared with the one before, also what a handler of
// net/http has sent: status, body, headers that it set. NoStore holds.
func TestShadow_Compares(t *testing.T) {
	t.Parallel()
	plain := func(w http.ResponseWriter, body string) {
		w.Header().Set("X-Charge", "1")
		w.WriteHeader(201)
		io.WriteString(w, body)
	}
	for name, row := range map[string]struct {
		handle  func(w http.ResponseWriter, r *http.Request, run int)
		options func(*lambdahttp.Options)
		want    event.Kind
	}{
		"the same":       {func(w http.ResponseWriter, _ *http.Request, _ int) { plain(w, "one") }, nil, event.ShadowReplayed},
		"nothing":        {func(http.ResponseWriter, *http.Request, int) {}, nil, event.ShadowReplayed},
		"only headers":   {func(w http.ResponseWriter, _ *http.Request, run int) { w.Header().Set("X-Run", fmt.Sprint(run)) }, nil, event.ShadowUncompared},
		"another body":   {func(w http.ResponseWriter, _ *http.Request, run int) { plain(w, fmt.Sprint(run)) }, nil, event.ShadowDiffers},
		"another status": {func(w http.ResponseWriter, _ *http.Request, run int) { w.WriteHeader(200 + run) }, nil, event.ShadowDiffers},
		"another header": {func(w http.ResponseWriter, _ *http.Request, run int) {
			w.Header().Set("X-Charge", fmt.Sprint(run))
			plain(w, "one")
			w.Header().Set("X-Late", fmt.Sprint("is not sent ", run))
		}, nil, event.ShadowReplayed},
		"an implicit status": {func(w http.ResponseWriter, _ *http.Request, run int) {
			io.WriteString(w, "one")
			w.Header().Set("X-Late", fmt.Sprint("is not sent ", run))
		}, nil, event.ShadowReplayed},
		"bytes": {func(w http.ResponseWriter, _ *http.Request, run int) { w.Write([]byte(fmt.Sprint(run))) }, nil, event.ShadowDiffers},
		"too long in two parts": {func(w http.ResponseWriter, _ *http.Request, _ int) {
			plain(w, "on")
			io.WriteString(w, "e.")
		}, func(o *lambdahttp.Options) { o.MaxResponseBody = 3 }, event.ShadowUncompared},
		"copied from a reader": {func(w http.ResponseWriter, _ *http.Request, run int) {
			io.Copy(w, struct{ io.Reader }{strings.NewReader(fmt.Sprint(run))})
		}, nil, event.ShadowDiffers},
		"too long": {func(w http.ResponseWriter, _ *http.Request, _ int) { plain(w, "one") },
			func(o *lambdahttp.Options) { o.MaxResponseBody = 2 }, event.ShadowUncompared},
		"long enough": {func(w http.ResponseWriter, _ *http.Request, _ int) { plain(w, "one") },
			func(o *lambdahttp.Options) { o.MaxResponseBody = 3 }, event.ShadowReplayed},
		"withheld": {func(w http.ResponseWriter, r *http.Request, _ int) {
			lambdahttp.NoStore(r.Context(), "")
			plain(w, "secret")
		}, nil, event.ShadowReplayed},
		"a server error": {func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(503) }, nil, event.ShadowTakenOver},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, run := newFixtureWith(t, wires[5], inShadow), 0
			for range 2 {
				w.through(func(rw http.ResponseWriter, r *http.Request) { run++; row.handle(rw, r, run) }, keyed(t.Context()), optionally(row.options))
			}
			if got := fmt.Sprint(w.seen.Kinds()); got != fmt.Sprint([]event.Kind{event.ShadowRun, row.want}) {
				t.Errorf("got the events %s, want %s", got, row.want)
			}
			if r := w.store.record(t); bytes.Contains(r.Result, []byte("secret")) {
				t.Errorf("the record has the result %s", r.Result)
			}
		})
	}
}

// Rules that panic, and requests that a guard refuses before it looks for a key.
func TestShadow_Refusals(t *testing.T) {
	t.Parallel()
	broken := func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.ScopeRule{Of: func(context.Context, *lambdahttp.Request) (string, error) { panic("broken") }}
	}
	forbidden := func(o *lambdahttp.Options) { o.Profile.ForbiddenMethods = []string{"DELETE"} }
	for name, row := range map[string]struct {
		options func(*lambdahttp.Options)
		request request
		want    string
	}{
		"a rule that panics":        {broken, charge(), "[shadow_no_key]"},
		"an invalid key":            {nil, charge(withKey("no key")), "[shadow_no_key]"},
		"no method":                 {nil, charge(withMethod("")), "[shadow_no_key]"},
		"a method in small letters": {nil, charge(withMethod("post")), "[shadow_no_key]"},
		"a forbidden method":        {forbidden, charge(withMethod("DELETE")), "[shadow_no_key]"},
		"a method without a guard":  {nil, charge(withMethod("GET")), "[]"},
	} {
		onEachWire(t, func(t *testing.T, on wire) {
			w := newFixtureWith(t, on, inShadow, optionally(row.options))
			want, _ := on.bare(created)(t.Context(), row.request)
			if got := w.post(row.request); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %+v, want %+v", name, got, want)
			}
			if got := fmt.Sprint(w.seen.Kinds()); got != row.want || w.runs != 1 {
				t.Errorf("%s: got the events %s after %d runs", name, got, w.runs)
			}
			if events := w.seen.Events(); name == "an invalid key" && events[0].Operation == "" {
				t.Errorf("%s: the event has no operation", name)
			}
		})
	}
}

// A JSON handler answers as it does behind a guard that is disabled, but for the marks.
func TestShadow_JSON(t *testing.T) {
	t.Parallel()
	type order struct {
		Amount int `json:"amount"`
	}
	for body, handle := range map[string]func(context.Context, order) (order, error){
		`{"amount":1}`: func(_ context.Context, in order) (order, error) { return in, nil },
		`{"amount":2}`: func(context.Context, order) (order, error) { return order{}, idempotent.Final("sold_out", "Sold out.") },
		`{"amount":3}`: func(context.Context, order) (order, error) {
			return order{}, idempotent.NotExecuted(&lambdahttp.Problem{Status: 429, Code: "slow_down"})
		},
		`{"amount":4}`: func(context.Context, order) (order, error) { return order{}, errDown },
		`{"amount":"`:  func(context.Context, order) (order, error) { panic("not called") },
	} {
		j := lambdahttp.JSON[order, order]{Handle: handle}
		answer := func(change func(*idempotent.Options)) string {
			w := newFixtureWith(t, wires[0], change)
			a, err := sendV2(j.APIGatewayV2(w.guard, w.options...))(t.Context(), charge(withBody(body)))
			delete(a.header, "Idempotency-Status")
			return fmt.Sprintf("%+v, %v", a, err)
		}
		served := func(change func(*idempotent.Options)) string {
			w := newFixtureWith(t, wires[5], change)
			a, err := sendHTTP(j.Handler(w.guard, append(w.options, reportError)...))(t.Context(), charge(withBody(body)))
			delete(a.header, "Idempotency-Status")
			return fmt.Sprintf("%+v, %v", a, err)
		}
		disabled := func(o *idempotent.Options) { o.Disabled = true }
		if got, want := answer(inShadow), answer(disabled); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
		if got, want := served(inShadow), served(disabled); got != want {
			t.Errorf("net/http, %s: got %s, want %s", body, got, want)
		}
	}
}

// The time of a gateway limits what shadow mode adds, and a request that passes has its mark
// behind a guard that enforces, although it writes a string.
func TestShadow_GatewayTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixtureWith(t, wires[0], inShadow, func(o *lambdahttp.Options) { o.GatewayTimeout = time.Second })
		w.harm = harms["hanging"]
		began := time.Now()
		w.post(charge())
		if took := time.Since(began); took == 0 || took > 100*time.Millisecond {
			t.Errorf("the answer took %s, want a tenth of a second at most", took)
		}
	})
	w := newFixture(t, wires[5], func(o *lambdahttp.Options) { o.Profile = lambdahttp.UUID })
	r := keyed(t.Context())
	r.Method = "OPTIONS"
	a, _ := w.through(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "one") }, r, w.options[1:]...)
	if got := a.sent.Get("Idempotency-Status"); got != "ignored" {
		t.Errorf("got the status %q, want ignored", got)
	}
}

// On a socket a handler of net/http has the same bytes in shadow mode as without a guard.
func TestShadow_Socket(t *testing.T) {
	t.Parallel()
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	for name, h := range map[string]http.HandlerFunc{
		"nothing":  func(http.ResponseWriter, *http.Request) {},
		"a body":   func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>one") },
		"a status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
		"an error": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", 500) },
		"headers": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["X-A"] = []string{"1", "2"}
			w.Header()["Date"] = nil
		},
		"a long body": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("long ", 10_000)) },
		"a declared length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			io.WriteString(w, "12345678")
		},
		"a reader": func(w http.ResponseWriter, _ *http.Request) {
			io.Copy(w, struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 100_000))})
		},
		"flushes": func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				io.WriteString(w, "part")
				flush(w)
			}
		},
		"a flush first": func(w http.ResponseWriter, _ *http.Request) { flush(w); io.WriteString(w, "late") },
		"trailers": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			io.WriteString(w, "body")
			w.Header().Set("X-Sum", "1")
			w.Header().Set(http.TrailerPrefix+"X-More", "2")
		},
		"early hints": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</a.css>; rel=preload")
			w.WriteHeader(103)
			w.WriteHeader(200)
		},
		"two statuses": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.WriteHeader(202) },
		"a panic":      func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "part"); panic(http.ErrAbortHandler) },
		"a taken connection": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhijacked")
			conn.Close()
		},
		"a status, and a taken connection": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			io.WriteString(w, "part")
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhijacked")
			conn.Close()
		},
		"a form":        func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.ParseForm(), r.Form, r.ContentLength) },
		"its own error": func(w http.ResponseWriter, r *http.Request) { lambdahttp.SetError(r.Context(), errDown) },
		"a limit": func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, 3)) // with w it closes the connection of a server's own writer only
			fmt.Fprint(w, err)
		},
	} {
		for _, body := range []string{"", "a=1&b=2", `{"amount":1}`, strings.Repeat("x", 100_000)} {
			for _, limit := range []int{0, 10} {
				t.Run(fmt.Sprint(name, len(body), limit), func(t *testing.T) {
					t.Parallel()
					w := newFixtureWith(t, wires[0], func(o *idempotent.Options) { inShadow(o); o.Now = time.Now })
					guarded := lambdahttp.Middleware(w.guard, single, func(o *lambdahttp.Options) { o.MaxRequestBody, o.MaxResponseBody = limit, limit })(h)
					if got, want := onSocket(t, guarded, body), onSocket(t, h, body); got != want {
						t.Errorf("got\n%.500s\nwant\n%.500s", got, want)
					}
					if n := len(w.seen.Events()); n != 1 {
						t.Errorf("got the events %s, want one", w.seen.Kinds())
					}
				})
			}
		}
	}
}

// dates is what differs between two equal responses of a server.
var dates = regexp.MustCompile(`Date: [^\r]*\r\n`)

// onSocket returns the bytes that a server of h sends for a request with a key, once h has
// returned. The server does not wait for a handler that takes the connection.
func onSocket(t *testing.T, h http.Handler, body string) string {
	t.Helper()
	ended := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		h.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = discard
	server.Start()
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /charges HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\nIdempotency-Key: \"%s\"\r\nContent-Length: %d\r\n\r\n%s", keyA, len(body), body)
	got, _ := io.ReadAll(bufio.NewReader(conn)) // an error: the connection was reset
	<-ended
	return dates.ReplaceAllString(string(got), "")
}
