// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotencyclient"
	"github.com/once-lambda/once/internal/kit"
)

// 10,000 requests over a proxy that executes them and resets the connection, loses them,
// breaks off responses, and then refuses new connections. An error without Sent means
// that the server did not execute the request. No request comes earlier than an answer
// asked for. The clock is that of a bubble, so a busy machine changes nothing.
func TestSent(t *testing.T) {
	t.Parallel()
	requests := 10_000
	if testing.Short() {
		requests = 1_000
	}
	synctest.Test(t, func(t *testing.T) {
		p := &proxy{t: t, tally: &kit.Tally{}, dice: rand.New(rand.NewPCG(1, 2)), executed: map[string]bool{}, notBefore: map[string]time.Time{}}
		base := &http.Transport{DialContext: p.dial}
		var senders sync.WaitGroup
		for sender := range 8 {
			transport, err := idempotencyclient.New(func(o *idempotencyclient.Options) {
				o.Hosts, o.Base, o.MaxAttempts = []string{"127.0.0.1"}, base, 1+sender/2
			})
			if err != nil {
				t.Fatal(err)
			}
			senders.Go(func() {
				for i := range requests / 8 {
					p.send(transport, fmt.Sprintf("/%d/%d", sender, i))
				}
			})
		}
		senders.Wait()
		base.CloseIdleConnections()
		t.Logf("%d requests:%s", requests, p.tally)
		p.tally.Least(t, requests/100, "not sent", "executed, and then refused", "executed and reset", "no answer", "response broken off", "request lost", "wait asked for", "centuries asked for")
	})
}

// proxy is the network and the server behind it.
type proxy struct {
	t     *testing.T
	tally *kit.Tally

	mu        sync.Mutex
	dice      *rand.Rand
	down      int                  // so many new connections are refused
	executed  map[string]bool      // by the request's path
	notBefore map[string]time.Time // by the request's path: what answers asked for
}

// send sends a request, and compares its error with what the server did.
func (p *proxy) send(transport http.RoundTripper, path string) {
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, "http://127.0.0.1"+path, strings.NewReader("4200"))
	if err != nil {
		p.t.Error(err)
		return
	}
	resp, err := transport.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
		return
	}
	p.mu.Lock()
	executed := p.executed[path]
	p.mu.Unlock()
	switch e := (*idempotencyclient.Error)(nil); {
	case !errors.As(err, &e):
		p.t.Errorf("%s: %v is no *Error", path, err)
	case !e.Sent && executed:
		p.t.Errorf("%s was executed, and Sent is false: %v", path, err)
	case !e.Sent:
		p.tally.Add("not sent", 1)
	case executed && errors.Is(err, syscall.ECONNREFUSED):
		p.tally.Add("executed, and then refused", 1)
	}
}

func (p *proxy) dial(context.Context, string, string) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down > 0 {
		p.down--
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	near, far := net.Pipe()
	go p.serve(far)
	if p.dice.IntN(2) == 0 {
		return near, nil
	}
	return reset{near}, nil
}

// reset is a connection whose end is a reset.
type reset struct{ net.Conn }

func (r reset) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if errors.Is(err, io.EOF) {
		err = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	}
	return n, err
}

// serve answers the requests of a connection, and closes it.
func (p *proxy) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		reply, next := p.arrive(req.URL.Path)
		if _, err := io.WriteString(conn, reply); err != nil || next == ends {
			return
		}
		if next == hangs {
			_, _ = io.Copy(io.Discard, in) // until the client closes it
			return
		}
	}
}

// What becomes of a connection after a reply.
const (
	stays = iota
	ends
	hangs
)

// arrive executes a request or not, and returns the reply.
func (p *proxy) arrive(path string) (reply string, next int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if early := p.notBefore[path].Sub(now); early > 0 {
		p.t.Errorf("%s came %v earlier than an answer asked for", path, early)
	}
	fault := p.dice.IntN(100)
	p.executed[path] = p.executed[path] || fault < 40 || fault >= 70
	if fault < 50 {
		p.down = p.dice.IntN(6)
	}
	switch {
	case fault < 22:
		p.tally.Add("executed and reset", 1)
		return "", ends
	case fault < 34:
		p.tally.Add("response broken off", 1)
		return "HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\n{", ends
	case fault < 40:
		p.tally.Add("no answer", 1)
		return "", hangs
	case fault < 50:
		p.tally.Add("request lost", 1)
		return "", ends
	case fault < 70:
		ask := asks[p.dice.IntN(len(asks))]
		p.tally.Add(ask.tally, 1)
		p.notBefore[path] = now.Add(ask.wait)
		after := ask.after
		if after == "" {
			after = now.Add(ask.wait).UTC().Format(http.TimeFormat)
		}
		return fmt.Sprintf("HTTP/1.1 %d X\r\nDate: %s\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n", ask.status, now.UTC().Format(http.TimeFormat), after), stays
	case fault < 75:
		return "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", ends // it was idle
	}
	return "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", stays
}

const century = 100 * 365 * 24 * time.Hour

// asks are the answers that ask for a wait. Without after, it is a date.
var asks = []struct {
	status       int
	after, tally string
	wait         time.Duration
}{
	{503, "1", "wait asked for", time.Second},
	{429, "20", "wait asked for", 20 * time.Second},
	{409, "3", "wait asked for", 3 * time.Second},
	{503, "", "wait asked for", 5 * time.Second},
	{503, "Fri, 31 Dec 9999 23:59:59 GMT", "centuries asked for", century},
	{429, "99999999999", "centuries asked for", century},
}
