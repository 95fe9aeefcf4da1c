// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// planned returns the faults that a plan gives to calls of these operations, in
// order.
func planned(plan Plan, ops ...driver.Op) (faults []Fault) {
	f := &Injector{Plan: plan}
	for _, op := range ops {
		_, fault := f.plan(op)
		faults = append(faults, fault)
	}
	return faults
}

func TestPlans(t *testing.T) {
	t.Parallel()
	calls := []driver.Op{driver.OpInsert, driver.OpGet, driver.OpInsert, driver.OpReplace, driver.OpInsert}
	for name, row := range map[string]struct {
		plan Plan
		want []Fault
	}{
		"none":                {nil, []Fault{"", "", "", "", ""}},
		"one operation":       {On(driver.OpInsert, LostReply), []Fault{LostReply, "", LostReply, "", LostReply}},
		"counted by itself":   {On(driver.OpInsert, LostReply, 2, 3), []Fault{"", "", LostReply, "", LostReply}},
		"any operation":       {On("", LostReply, 2, 3), []Fault{"", LostReply, LostReply, "", ""}},
		"every call":          {On("", LostReply), []Fault{LostReply, LostReply, LostReply, LostReply, LostReply}},
		"the first plan wins": {FirstOf(On(driver.OpGet, Repeated), On("", Throttled, 1, 2)), []Fault{Throttled, Repeated, "", "", ""}},
		"certain odds":        {Seeded(1, Odds{Op: driver.OpGet, Fault: LostReply, P: 1}), []Fault{"", LostReply, "", "", ""}},
		"no odds":             {Seeded(1, Odds{Fault: LostReply}), []Fault{"", "", "", "", ""}},
	} {
		if got := planned(row.plan, calls...); !slices.Equal(got, row.want) {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
	}
}

// Equal seeds plan equally, different seeds plan differently, and the
// frequencies match the odds.
func TestSeeded(t *testing.T) {
	t.Parallel()
	const calls = 10_000
	ops := slices.Repeat([]driver.Op{driver.OpInsert, driver.OpReplace}, calls/2)
	odds := []Odds{{Op: driver.OpInsert, Fault: LostRequest, P: 0.4}, {Fault: LostReply, P: 0.2}}
	first := planned(Seeded(7, odds...), ops...)
	if !slices.Equal(first, planned(Seeded(7, odds...), ops...)) {
		t.Error("equal seeds plan differently")
	}
	if slices.Equal(first, planned(Seeded(8, odds...), ops...)) {
		t.Error("different seeds plan equally")
	}
	met := map[Injection]float64{}
	for i, fault := range first {
		met[Injection{ops[i], fault}] += 1 / (calls / 2.)
	}
	for injection, want := range map[Injection]float64{
		{driver.OpInsert, LostRequest}: 0.4, {driver.OpInsert, LostReply}: 0.2, {driver.OpInsert, NoFault}: 0.4,
		{driver.OpReplace, LostRequest}: 0, {driver.OpReplace, LostReply}: 0.2, {driver.OpReplace, NoFault}: 0.8,
	} {
		if got := met[injection]; got < want-0.03 || got > want+0.03 {
			t.Errorf("%v: injected into %.3f of the calls, want %.1f", injection, got, want)
		}
	}
}

// What each fault does to a call of a store, and to a request of the AWS SDK: what its
// caller gets, and how often the call arrives.
func TestFaults(t *testing.T) {
	t.Parallel()
	const reset = 0 // the connection
	for fault, want := range map[Fault]struct{ status, arrives int }{
		NoFault:                 {200, 1},
		LostRequest:             {reset, 0},
		LostReply:               {reset, 1},
		Repeated:                {200, 2},
		SlowRequest:             {200, 1},
		SlowReply:               {200, 1},
		ThroughputExceeded:      {400, 0},
		Throttled:               {400, 0},
		InternalError:           {500, 0},
		TransactionConflict:     {400, 0},
		ReplicatedWriteConflict: {400, 0},
		"SomeOtherException":    {400, 0},
	} {
		// meets makes a call of op that gets the fault, and counts what happens to it.
		meets := func(t *testing.T, op driver.Op, call func(*Injector) (arrived int)) {
			slow, counted, slowed := 0, 0, 0
			if fault != NoFault {
				counted = 1
			}
			if fault == SlowRequest || fault == SlowReply {
				slowed = 1
			}
			f := &Injector{Plan: On(op, fault), Slow: func(context.Context, Call) { slow++ }}
			if got := call(f); got != want.arrives {
				t.Errorf("the call arrived %d times, want %d", got, want.arrives)
			}
			if got := f.Injected()[Injection{op, fault}]; got != counted {
				t.Errorf("the fault was counted %d times", got)
			}
			if slow != slowed {
				t.Errorf("Slow was called %d times, want %d", slow, slowed)
			}
		}
		t.Run("Do/"+string(fault), func(t *testing.T) {
			t.Parallel()
			meets(t, driver.OpInsert, func(f *Injector) (arrived int) {
				again := errors.New("the second reply")
				err := f.Do(t.Context(), driver.OpInsert, func() error {
					if arrived++; arrived == 2 {
						return again
					}
					return nil
				})
				switch {
				case want.status != 200 && !errors.Is(err, ErrInjected), want.status == 200 && fault != Repeated && err != nil,
					fault == Repeated && !errors.Is(err, again):
					t.Errorf("the caller got error %v", err)
				}
				if err := f.Do(t.Context(), driver.OpGet, func() error { return nil }); err != nil {
					t.Errorf("another call got error %v", err)
				}
				if f.Calls(driver.OpInsert) != 1 || f.Calls(driver.OpGet) != 1 || f.Calls("") != 2 {
					t.Errorf("%d calls of Insert and %d of Get are counted as %d", f.Calls(driver.OpInsert), f.Calls(driver.OpGet), f.Calls(""))
				}
				return arrived
			})
		})
		t.Run("Transport/"+string(fault), func(t *testing.T) {
			t.Parallel()
			meets(t, "PutItem", func(f *Injector) int {
				url, arrived := service(t)
				resp, text, err := send(t.Context(), t, f, nil, url, "DynamoDB_20120810.PutItem", strings.NewReader("the item"))
				switch {
				case want.status == reset:
					if !errors.Is(err, ErrInjected) {
						t.Errorf("got error %v, want ErrInjected", err)
					}
				case err != nil:
					t.Errorf("got error %v", err)
				case resp.StatusCode != want.status:
					t.Errorf("got status %s, want %d", resp.Status, want.status)
				case want.status == 200 && text != "the item":
					t.Errorf("got the reply %q", text)
				case want.status != 200:
					isException(t, resp, text, fault)
				}
				return int(arrived.Load())
			})
		})
	}
}

// isException checks that a reply is one with which DynamoDB refuses a request.
func isException(t *testing.T, resp *http.Response, text string, fault Fault) {
	t.Helper()
	var exception struct {
		Type string `json:"__type"`
	}
	if err := json.Unmarshal([]byte(text), &exception); err != nil || !strings.HasSuffix(exception.Type, "#"+string(fault)) {
		t.Errorf("got the reply %q, want the exception %s", text, fault)
	}
	if resp.ContentLength != int64(len(text)) || resp.Request == nil || resp.Header.Get("Content-Type") != "application/x-amz-json-1.0" {
		t.Errorf("the reply is not one of DynamoDB: %+v", resp)
	}
}

// Only a reply can be lost: ErrNoRecord and ErrTooLarge are replies, other errors are not.
func TestOnlyRepliesAreLost(t *testing.T) {
	t.Parallel()
	f := &Injector{Plan: On("", LostReply)}
	for reply, lost := range map[error]bool{driver.ErrNoRecord: true, driver.ErrTooLarge: true, context.Canceled: false} {
		if err := f.Do(t.Context(), driver.OpGet, func() error { return reply }); errors.Is(err, ErrInjected) != lost || errors.Is(err, reply) == lost {
			t.Errorf("%v: got error %v, want it lost: %t", reply, err, lost)
		}
	}
	if got := f.Injected()[Injection{driver.OpGet, LostReply}]; got != 2 {
		t.Errorf("%d lost replies are counted, want 2", got)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		took := func(ctx context.Context) time.Duration {
			began := time.Now()
			f := &Injector{Plan: On("", SlowReply)}
			if err := f.Do(ctx, driver.OpInsert, func() error { return nil }); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		if got := took(t.Context()); got != 100*time.Millisecond {
			t.Errorf("the default pause took %s", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if got := took(ctx); got != time.Millisecond {
			t.Errorf("the pause lasted %s under a context of a millisecond", got)
		}
	})
}

// service is an HTTP server that counts what arrives, and echoes it.
func service(t *testing.T) (url string, arrived *atomic.Int32) {
	arrived = &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		io.Copy(w, r.Body)
	}))
	t.Cleanup(server.Close)
	return server.URL, arrived
}

// send makes a request of an operation through the faults.
func send(ctx context.Context, t *testing.T, f *Injector, base http.RoundTripper, url, target string, body io.Reader) (*http.Response, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if target != "" {
		req.Header.Set("X-Amz-Target", target)
	}
	resp, err := f.Transport(base).RoundTrip(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text), nil
}

// The name of a request is its operation, or else its method.
func TestOperationOfARequest(t *testing.T) {
	t.Parallel()
	url, _ := service(t)
	for target, op := range map[string]driver.Op{"DynamoDB_20120810.GetItem": "GetItem", "GetItem": "GetItem", "": "POST"} {
		f := &Injector{}
		if _, _, err := send(t.Context(), t, f, http.DefaultTransport, url, target, nil); err != nil {
			t.Error(err)
		}
		if f.Calls(op) != 1 {
			t.Errorf("the target %q is not counted as %s", target, op)
		}
	}
}

// sentBody is a body that cannot be read, or not closed.
type sentBody struct {
	io.Reader
	err    error
	closed int
}

func (b *sentBody) Close() error { b.closed++; return b.err }

// A transport closes the body of a request in every case, and returns the error
// of a body that it could not read.
func TestBodyOfARequest(t *testing.T) {
	t.Parallel()
	url, arrived := service(t)
	broken := errors.New("broken")
	for name, body := range map[string]*sentBody{
		"read":  {Reader: io.MultiReader(strings.NewReader("half of"), unreadable{broken})},
		"close": {Reader: strings.NewReader("all of it"), err: broken},
	} {
		_, _, err := send(t.Context(), t, &Injector{}, nil, url, "", body)
		if !errors.Is(err, broken) || body.closed != 1 || arrived.Load() != 0 {
			t.Errorf("%s: got error %v, closed %d times, arrived %d times", name, err, body.closed, arrived.Load())
		}
	}
	lost := &sentBody{Reader: bytes.NewReader(nil)}
	send(t.Context(), t, &Injector{Plan: On("", LostRequest)}, nil, url, "", lost)
	if lost.closed != 1 {
		t.Errorf("the body of a lost request was closed %d times", lost.closed)
	}
}

type unreadable struct{ err error }

func (f unreadable) Read([]byte) (int, error) { return 0, f.err }

// A reply that is missing for another reason does not count as lost.
func TestNoReplyIsNotALostOne(t *testing.T) {
	t.Parallel()
	url, arrived := service(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	f := &Injector{Plan: On("", LostReply)}
	_, _, err := send(ended, t, f, nil, url, "", nil)
	if !errors.Is(err, context.Canceled) || len(f.Injected()) != 0 || arrived.Load() != 0 {
		t.Errorf("got error %v, injected %v, arrived %d times", err, f.Injected(), arrived.Load())
	}
}
