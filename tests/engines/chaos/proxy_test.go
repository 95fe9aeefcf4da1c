// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"context"
	"io"
	randv2 "math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/faults"
)

// The faults of the wire besides those of package faults.
const (
	// silentRequest: the connection takes the request, which never arrives, and no reply
	// ever comes.
	silentRequest faults.Fault = "silent request"
	// silentReply: the request has its effect, but no reply ever comes.
	silentReply faults.Fault = "silent reply"
	// cutReply: half of the reply comes, and then the connection is reset.
	cutReply faults.Fault = "cut reply"
	// lateRepeat: the request is answered, and arrives a second time much
	// later.
	lateRepeat faults.Fault = "late repeat"
	// failedReply: the request has its effect, and the answer is an internal error.
	failedReply faults.Fault = "internal error after the effect"
	// staleIndex: a query of the index gets the reply to the last such query.
	staleIndex faults.Fault = "stale index"
	// engineGone is counted for a request that the engine did not answer.
	engineGone faults.Fault = "engine gone"
)

// weather is the probability of each fault on the wire.
var weather = []faults.Odds{
	{Fault: faults.LostRequest, P: 0.010},
	{Fault: faults.LostReply, P: 0.020},
	{Fault: cutReply, P: 0.007},
	{Fault: silentRequest, P: 0.003},
	{Fault: silentReply, P: 0.003},
	{Fault: faults.SlowRequest, P: 0.012},
	{Fault: faults.SlowReply, P: 0.010},
	{Fault: faults.Repeated, P: 0.010},
	{Fault: lateRepeat, P: 0.010},
	{Fault: faults.ThroughputExceeded, P: 0.006},
	{Fault: faults.Throttled, P: 0.006},
	{Fault: faults.InternalError, P: 0.006},
	{Fault: failedReply, P: 0.006},
	{Op: opTransact, Fault: faults.TransactionConflict, P: 0.030},
	{Op: opPutItem, Fault: faults.TransactionConflict, P: 0.006},
	{Op: opPutItem, Fault: faults.ReplicatedWriteConflict, P: 0.006},
	{Op: opQuery, Fault: staleIndex, P: 0.100},
}

// The operations that only some faults strike.
const (
	opPutItem  driver.Op = "PutItem"
	opTransact driver.Op = "TransactWriteItems"
	opQuery    driver.Op = "Query"
)

// proxy passes HTTP requests on to the engine with the faults of its plan. A
// request that has arrived at the proxy arrives at the engine even if its
// client is gone meanwhile, as on a real network.
type proxy struct {
	*httptest.Server
	target string
	plan   faults.Plan
	hold   func() time.Duration // how long a slow request, reply or repeat takes
	client http.Client

	flying sync.WaitGroup // requests in transit to the engine

	mu     sync.Mutex
	calls  int
	faults map[faults.Fault]int
	listed map[string]*reply // the last reply to each query of the index
}

func newProxy(target string, plan faults.Plan, hold func() time.Duration) *proxy {
	p := &proxy{
		target: target, plan: plan, hold: hold, faults: map[faults.Fault]int{}, listed: map[string]*reply{},
		client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: 20 * time.Second},
	}
	p.Server = httptest.NewServer(p)
	return p
}

// ServeHTTP passes one request on.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // its client is gone
	}
	p.flying.Add(1)
	defer p.flying.Done()
	op := driver.Op(r.Header.Get("X-Amz-Target"))
	if _, name, ok := strings.Cut(string(op), "."); ok {
		op = driver.Op(name)
	}
	query := indexQuery(op, body)
	fault, older := p.draw(op, query)
	switch fault {
	case faults.LostRequest:
		reset(w)
		return
	case silentRequest:
		<-r.Context().Done()
		return
	case faults.ThroughputExceeded, faults.Throttled, faults.InternalError, faults.TransactionConflict, faults.ReplicatedWriteConflict:
		refusal(r, body, fault).write(w)
		return
	case staleIndex:
		older.write(w)
		return
	case faults.SlowRequest:
		_ = pause(context.Background(), p.hold())
	case lateRepeat:
		p.flying.Add(1)
		defer func() {
			go func() {
				defer p.flying.Done()
				_ = pause(context.Background(), p.hold())
				p.forward(r, body)
			}()
		}()
	case faults.Repeated:
		p.forward(r, body)
	default: // it strikes the reply
	}
	reply := p.forward(r, body)
	if reply == nil {
		p.count(engineGone)
		reset(w)
		return
	}
	switch fault {
	case faults.LostReply:
		reset(w)
		return
	case silentReply:
		<-r.Context().Done()
		return
	case failedReply:
		refusal(r, body, faults.InternalError).write(w)
		return
	case faults.SlowReply:
		_ = pause(context.Background(), p.hold())
	default: // it struck the request
	}
	p.remember(query, reply)
	if fault == cutReply {
		reply.header["Content-Length"] = []string{strconv.Itoa(len(reply.body))}
		reply.body = reply.body[:len(reply.body)/2]
		reply.write(w)
		_ = http.NewResponseController(w).Flush() // its client may be gone
		reset(w)
		return
	}
	reply.write(w)
}

// struck returns how often a fault has struck.
func (p *proxy) struck(fault faults.Fault) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults[fault]
}

// numbers are the members of a query that differ each time: what was due until now.
var numbers = regexp.MustCompile(`"N":"\d+"`)

// indexQuery returns what all queries of one list have in common, or "" if a request is
// no such query.
func indexQuery(op driver.Op, body []byte) string {
	if op != opQuery || !bytes.Contains(body, []byte(`"IndexName"`)) {
		return ""
	}
	return numbers.ReplaceAllString(string(body), "")
}

// remember keeps the reply to a query of the index.
func (p *proxy) remember(query string, r *reply) {
	if query == "" || r.status != http.StatusOK {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listed[query] = &reply{r.status, r.header.Clone(), r.body}
}

// refusal returns the answer with which DynamoDB refuses a request.
func refusal(r *http.Request, body []byte, fault faults.Fault) *reply {
	answer := faults.Exception(r, body, fault)
	text, _ := io.ReadAll(answer.Body) // it is in memory
	return &reply{answer.StatusCode, answer.Header, text}
}

// reply is the engine's answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r *reply) write(w http.ResponseWriter) {
	for name, values := range r.header {
		w.Header()[name] = values
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body) // its client may be gone
}

// forward sends a request to the engine and returns its reply, or nil. The
// reply to a transaction counts only once it is committed: see the package.
func (p *proxy) forward(r *http.Request, body []byte) *reply {
	got := p.send(r.Method, r.URL.RequestURI(), r.Header, body)
	if got != nil && strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".TransactWriteItems") {
		header := r.Header.Clone()
		header.Set("X-Amz-Target", "DynamoDB_20120810.ListTables")
		if p.send(http.MethodPost, "/", header, []byte("{}")) == nil {
			return nil
		}
	}
	return got
}

func (p *proxy) send(method, path string, header http.Header, body []byte) *reply {
	req, err := http.NewRequest(method, p.target+path, bytes.NewReader(body))
	if err != nil {
		return nil
	}
	for name, values := range header {
		req.Header[name] = values
	}
	res, err := p.client.Do(req)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return nil
	}
	return &reply{status: res.StatusCode, header: res.Header, body: data}
}

// draw decides the fault of a request. An index is stale only if it was queried before:
// then draw also returns the older reply.
func (p *proxy) draw(op driver.Op, query string) (fault faults.Fault, older *reply) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	fault, older = p.plan(faults.Call{Op: op, N: p.calls}), p.listed[query]
	if fault == staleIndex && older == nil {
		fault = faults.NoFault
	}
	if fault != faults.NoFault {
		p.faults[fault]++
	}
	return fault, older
}

func (p *proxy) count(fault faults.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[fault]++
}

// drain ends the proxy. It returns when no request is in transit to the engine.
func (p *proxy) drain() {
	p.Server.CloseClientConnections()
	p.Server.Close()
	p.flying.Wait()
}

// reset closes the connection of a reply so that its client sees a reset.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // its client is gone
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // close sends RST
	}
	_ = conn.Close()
}

// holdTimes draws how long the wire holds a message: mostly less than a
// deadline, one time in four longer than most.
func holdTimes(r *randv2.Rand) func() time.Duration {
	var mu sync.Mutex
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if r.IntN(4) == 0 {
			return between(r, time.Second, 4*time.Second)
		}
		return between(r, 20*time.Millisecond, 400*time.Millisecond)
	}
}
