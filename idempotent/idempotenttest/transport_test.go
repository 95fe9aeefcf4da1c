package idempotenttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

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
func send(ctx context.Context, t *testing.T, f *Faults, base http.RoundTripper, url, target string, body io.Reader) (*http.Response, string, error) {
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

func TestFaultsOfATransport(t *testing.T) {
	t.Parallel()
	for fault, want := range map[Fault]struct {
		status  int // 0: a reset connection
		arrives int32
	}{
		NoFault:                 {200, 1},
		LostRequest:             {0, 0},
		LostReply:               {0, 1},
		Repeated:                {200, 2},
		SlowRequest:             {200, 1},
		SlowReply:               {200, 1},
		ThroughputExceeded:      {400, 0},
		Throttled:               {400, 0},
		InternalError:           {500, 0},
		TransactionConflict:     {400, 0},
		ReplicatedWriteConflict: {400, 0},
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			url, arrived := service(t)
			slow := 0
			f := &Faults{Plan: On("PutItem", fault), Slow: func(context.Context, Call) { slow++ }}
			resp, text, err := send(t.Context(), t, f, nil, url, "DynamoDB_20120810.PutItem", strings.NewReader("the item"))
			switch {
			case want.status == 0:
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
			if got := arrived.Load(); got != want.arrives {
				t.Errorf("the request arrived %d times, want %d", got, want.arrives)
			}
			if got := f.Injected()[Injection{"PutItem", fault}]; got != one(fault != NoFault) {
				t.Errorf("the fault was counted %d times", got)
			}
			if want := one(fault == SlowRequest || fault == SlowReply); slow != want {
				t.Errorf("Slow was called %d times, want %d", slow, want)
			}
		})
	}
}

// The name of a request is its operation, or else its method.
func TestOperationOfARequest(t *testing.T) {
	t.Parallel()
	url, _ := service(t)
	for target, op := range map[string]Op{"DynamoDB_20120810.GetItem": "GetItem", "GetItem": "GetItem", "": "POST"} {
		f := &Faults{}
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
		_, _, err := send(t.Context(), t, &Faults{}, nil, url, "", body)
		if !errors.Is(err, broken) || body.closed != 1 || arrived.Load() != 0 {
			t.Errorf("%s: got error %v, closed %d times, arrived %d times", name, err, body.closed, arrived.Load())
		}
	}
	lost := &sentBody{Reader: bytes.NewReader(nil)}
	send(t.Context(), t, &Faults{Plan: On("", LostRequest)}, nil, url, "", lost)
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
	f := &Faults{Plan: On("", LostReply)}
	_, _, err := send(ended, t, f, nil, url, "", nil)
	if !errors.Is(err, context.Canceled) || len(f.Injected()) != 0 || arrived.Load() != 0 {
		t.Errorf("got error %v, injected %v, arrived %d times", err, f.Injected(), arrived.Load())
	}
}
