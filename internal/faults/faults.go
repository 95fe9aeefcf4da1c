// SPDX-License-Identifier: Apache-2.0

// Package faults makes calls fail: calls to a store ([Injector.Do]), or HTTP requests of
// the AWS SDK ([Injector.Transport]). A [Plan] selects the calls: the n-th of a kind
// ([On]), or random ones ([Seeded]). The suites of idempotenttest use it, and tests.
//
//	lost request ✗──────▶ store        no effect, and the caller gets an error
//	lost reply    ──────▶ store ──✗    the call has its effect, and the caller gets an error
//	repeated      ══════▶ store ──▶    the call is sent twice, and the caller gets the second reply
//	refused       ──▶ Throttled, TransactionConflict, …, or any other name
//	slow          ── · · ▶ store · · ▶ the call has its effect late, or its reply comes late
package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// ErrInjected is the error of a call that failed because of a [Fault]. Its text
// is that of a reset connection, which the AWS SDK retries.
var ErrInjected = errors.New("idempotenttest: injected fault: connection reset by peer")

// Injector injects faults into calls, and counts what it injected, so that a test can
// check that the faults happened. The zero Injector injects nothing. It is safe for
// concurrent use, but set its fields before the first call.
type Injector struct {
	// Plan decides which call gets which fault. Default: no faults.
	Plan Plan

	// Slow delays a SlowRequest or a SlowReply. It can also advance a clock
	// instead, or wait for another goroutine. Default: a pause of 100 ms, or until
	// the context ends.
	Slow func(context.Context, Call)

	planning sync.Mutex // plans one call at a time

	mu       sync.Mutex
	calls    map[driver.Op]int
	injected map[Injection]int
}

// Injection is a fault that was injected into a call of an operation.
type Injection struct {
	Op    driver.Op
	Fault Fault
}

// Injected returns how often each fault was injected. If a call gets no reply
// for another reason, its reply does not count as lost.
func (f *Injector) Injected() map[Injection]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.injected)
}

// Calls returns the number of calls of op, or of all operations if op is empty.
// A repeated call counts once.
func (f *Injector) Calls(op driver.Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// plan counts a call and returns its fault.
func (f *Injector) plan(op driver.Op) (Call, Fault) {
	f.planning.Lock()
	defer f.planning.Unlock()
	f.mu.Lock()
	if f.calls == nil {
		f.calls = make(map[driver.Op]int)
	}
	f.calls[op]++
	f.calls[""]++
	c := Call{Op: op, N: f.calls[""], Nth: f.calls[op]}
	f.mu.Unlock()
	if f.Plan == nil {
		return c, NoFault
	}
	return c, f.Plan(c)
}

func (f *Injector) count(c Call, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.injected == nil {
		f.injected = map[Injection]int{}
	}
	f.injected[Injection{c.Op, fault}]++
}

// wait delays a slow call.
func (f *Injector) wait(ctx context.Context, c Call) {
	if f.Slow != nil {
		f.Slow(ctx, c)
		return
	}
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Fate is what happens to a call.
type Fate struct {
	Arrives int          // how often the call is made
	Before  func() error // is called first; with an error, that is all that happens
	After   func() error // is called before the reply arrives, and can replace it
	Err     error        // in place of the reply
	// lose gets each reply that the caller does not get. It returns false if the call
	// got none: then its error is the caller's.
	lose func(error) bool
}

// Meet makes a call with its fate, and returns what its caller gets.
func (f Fate) Meet(call func() error) error {
	if f.Before != nil {
		if err := f.Before(); err != nil {
			return err
		}
	}
	var reply error
	for n := range f.Arrives {
		reply = call()
		if lost := n+1 < f.Arrives || f.Err != nil; lost && f.lose != nil && !f.lose(reply) {
			return reply
		}
	}
	if f.After != nil {
		if err := f.After(); err != nil {
			return err
		}
	}
	if f.Err != nil {
		return f.Err
	}
	return reply
}

// line describes how calls of one kind are made, and how they fail.
type line[T any] struct {
	make   func() (T, error)
	heard  func(error) bool       // reports whether an error is a reply
	lose   func(T)                // consumes a reply that is lost
	refuse func(Fault) (T, error) // makes the reply of a refused call
}

// through makes one call of op, with its planned fault.
func through[T any](ctx context.Context, f *Injector, op driver.Op, l line[T]) (reply T, err error) {
	c, fault := f.plan(op)
	wait := func() error {
		f.count(c, fault)
		f.wait(ctx, c)
		return nil
	}
	at := Fate{Arrives: 1, lose: func(err error) bool {
		if err != nil && !l.heard(err) {
			return false
		}
		l.lose(reply)
		reply = *new(T)
		f.count(c, fault)
		return true
	}}
	switch fault {
	case NoFault:
	case LostRequest:
		f.count(c, fault)
		at.Arrives, at.Err = 0, ErrInjected
	case SlowRequest:
		at.Before = wait
	case SlowReply:
		at.After = wait
	case LostReply:
		at.Err = ErrInjected
	case Repeated:
		at.Arrives = 2
	default:
		f.count(c, fault)
		return l.refuse(fault)
	}
	err = at.Meet(func() (err error) {
		reply, err = l.make()
		return err
	})
	return reply, err
}

// Do makes a call of op to a store with its planned fault, and returns what its caller
// gets. Several stores can share one Injector: it counts their calls together.
//
// A call that is lost or refused fails with [ErrInjected]. ErrNoRecord and ErrTooLarge
// are replies and can be lost. A call that fails with any other error has no reply to
// lose.
func (f *Injector) Do(ctx context.Context, op driver.Op, call func() error) error {
	_, err := through(ctx, f, op, line[struct{}]{
		make: func() (none struct{}, err error) { return none, call() },
		heard: func(err error) bool {
			return errors.Is(err, driver.ErrNoRecord) || errors.Is(err, driver.ErrTooLarge)
		},
		lose: func(struct{}) {},
		refuse: func(fault Fault) (none struct{}, err error) {
			return none, fmt.Errorf("%s: %w", fault, ErrInjected)
		},
	})
	return err
}

// Transport returns base with the planned faults in its requests, for the client of a real
// AWS SDK, which serialises and retries as usual. The Op of a request is the operation in
// its X-Amz-Target header, for example "PutItem", or else its HTTP method. A nil base is
// [http.DefaultTransport].
//
// A lost request or reply is a reset connection ([ErrInjected]). A fault with the name of
// an exception is answered with that exception in the AWS JSON protocol, without a call to
// the service: InternalError with status 500, all others with 400. TransactionConflict
// cancels a TransactWriteItems, as DynamoDB does.
func (f *Injector) Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{f, base}
}

type transport struct {
	faults *Injector
	base   http.RoundTripper
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := readBody(req)
	if err != nil {
		return nil, err
	}
	return through(req.Context(), t.faults, operation(req), line[*http.Response]{
		make:   func() (*http.Response, error) { return t.base.RoundTrip(withBody(req, body)) },
		heard:  func(error) bool { return false },
		lose:   drop,
		refuse: func(fault Fault) (*http.Response, error) { return Exception(req, body, fault), nil },
	})
}

// operation returns what comes after the dot in "DynamoDB_20120810.PutItem",
// or the method of a request that names no operation.
func operation(req *http.Request) driver.Op {
	target := req.Header.Get("X-Amz-Target")
	if target == "" {
		return driver.Op(req.Method)
	}
	return driver.Op(target[strings.LastIndexByte(target, '.')+1:])
}

// readBody reads and closes the body of a request. A RoundTripper must always close it.
func readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(req.Body)
	if closeErr := req.Body.Close(); err == nil {
		err = closeErr
	}
	return body, err
}

// withBody returns a request that can be sent once.
func withBody(req *http.Request, body []byte) *http.Request {
	again := req.Clone(req.Context())
	if body != nil {
		again.Body = io.NopCloser(bytes.NewReader(body))
	}
	return again
}

// drop reads a reply to its end, to be sure that it was sent.
func drop(resp *http.Response) {
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

// Exception returns the reply with which DynamoDB refuses a request. A conflict cancels a
// transaction: its first item names it.
func Exception(req *http.Request, body []byte, fault Fault) *http.Response {
	status, answer := http.StatusBadRequest, map[string]any{"__type": string(fault), "message": "injected"}
	if fault == InternalError {
		status = http.StatusInternalServerError
	}
	if operation(req) == "TransactWriteItems" && fault == TransactionConflict {
		var sent struct{ TransactItems []json.RawMessage }
		_ = json.Unmarshal(body, &sent) // an SDK sends JSON
		reasons := slices.Repeat([]map[string]string{{"Code": "None"}}, max(1, len(sent.TransactItems)))
		reasons[0] = map[string]string{"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}
		answer["__type"], answer["CancellationReasons"] = "TransactionCanceledException", reasons
	}
	answer["__type"] = "com.amazonaws.dynamodb.v20120810#" + answer["__type"].(string)
	text, _ := json.Marshal(answer) // strings always encode
	return &http.Response{
		Status:     strconv.Itoa(status) + " " + http.StatusText(status),
		StatusCode: status,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body:          io.NopCloser(bytes.NewReader(text)),
		ContentLength: int64(len(text)),
		Request:       req,
	}
}

// Fault is one way in which a call fails. Any name besides the constants below
// refuses the call with that name and without effect.
type Fault string

const (
	// NoFault lets the call through.
	NoFault Fault = ""
	// LostRequest: the call fails and never reaches its destination.
	LostRequest Fault = "lost request"
	// LostReply: the call has its effect, but the caller gets an error.
	LostReply Fault = "lost reply"
	// Repeated: the call has its effect, its reply is lost, it is sent again,
	// and the caller gets the second reply, as with the retry of an SDK.
	Repeated Fault = "repeated"
	// SlowRequest: the call arrives late. SlowReply: the call has its effect at
	// once, and its reply comes late. [Injector.Slow] sets the delay.
	SlowRequest Fault = "slow request"
	SlowReply   Fault = "slow reply"

	// Refusals of DynamoDB, with the names that DynamoDB uses.
	ThroughputExceeded      Fault = "ProvisionedThroughputExceededException"
	Throttled               Fault = "ThrottlingException"
	InternalError           Fault = "InternalServerError"
	TransactionConflict     Fault = "TransactionConflictException"
	ReplicatedWriteConflict Fault = "ReplicatedWriteConflictException"
)

// Call is one call that a [Plan] decides about.
type Call struct {
	Op  driver.Op
	N   int // the number of this call among all calls, counted from 1
	Nth int // its number among the calls of its Op
}

// Plan decides which fault a call gets. It is called for one call at a time, in
// the order in which the calls are made.
type Plan func(Call) Fault

// On returns a plan that gives fault to the numbered calls of op, counted from
// 1, or to every call if no number is given. An empty op matches all operations
// and counts their calls together.
func On(op driver.Op, fault Fault, calls ...int) Plan {
	return func(c Call) Fault {
		n := c.Nth
		if op == "" {
			n = c.N
		}
		if op != "" && op != c.Op || len(calls) > 0 && !slices.Contains(calls, n) {
			return NoFault
		}
		return fault
	}
}

// FirstOf returns a plan that uses the first of plans that has a fault for the
// call.
func FirstOf(plans ...Plan) Plan {
	return func(c Call) Fault {
		for _, p := range plans {
			if fault := p(c); fault != NoFault {
				return fault
			}
		}
		return NoFault
	}
}

// Odds is the probability of a fault.
type Odds struct {
	Op    driver.Op // empty: any
	Fault Fault
	P     float64 // of all calls of Op, from 0 to 1
}

// Seeded returns a plan of random faults: each call gets at most one of the
// odds that match its operation. Equal seeds give equal faults for equal
// sequences of calls. The plan is safe for concurrent use, but then the
// assignment of faults to calls depends on timing.
func Seeded(seed uint64, odds ...Odds) Plan {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 0))
	return func(c Call) Fault {
		mu.Lock()
		p := r.Float64()
		mu.Unlock()
		for _, o := range odds {
			if o.Op != "" && o.Op != c.Op {
				continue
			}
			if p < o.P {
				return o.Fault
			}
			p -= o.P
		}
		return NoFault
	}
}
