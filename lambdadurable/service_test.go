// SPDX-License-Identifier: Apache-2.0

package lambdadurable_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
)

// service is a stand-in for Lambda: it serves the three calls about durable
// executions over HTTP, by the rules that AWS publishes.
//
//   - A name has up to 64 of the characters a-z, A-Z, 0-9, - and _. It is unique in
//     the account and region, until the retention of its execution ends.
//   - The same name with the same payload returns the execution that exists,
//     running or not. Another payload is refused.
//   - A function is invoked by a version or an alias.
//   - The payload of an asynchronous invocation has at most 1 MB.
//   - An execution and its outcome are available until its retention ends.
//
// Sources: durable-execution-idempotency, durable-invoking and gettingstarted-limits
// in the developer guide; DurableConfig and Execution in the API reference; the
// wire format of the SDK's own snapshots.
type service struct {
	t         *testing.T
	server    *httptest.Server
	now       func() time.Time
	retention time.Duration
	// Each call has its own connection, because net/http repeats some calls on a
	// connection that breaks.
	connections http.Transport

	mu         sync.Mutex
	executions []*execution // the oldest first
	calls      map[string]int
	// fault returns what goes wrong with a call. Nil: nothing.
	fault func(call string) fault
	// fate returns how long a new execution runs, and how it ends.
	fate func(payload string) (time.Duration, types.ExecutionStatus)
	// unlisted is how long after its start an execution is not listed.
	unlisted time.Duration
	noResult bool // of the handler
	// discards reports whether Lambda accepts a start and never makes it.
	discards func(payload string) bool
}

type execution struct {
	arn, name, function, payload string
	began, ends                  time.Time
	status                       types.ExecutionStatus // once it has ended
	discarded                    bool
}

// fault is what happens to one call.
type fault uint8

const (
	none      fault = iota
	throttled       // refused, without an effect
	failed          // an internal error, without an effect
	lost            // the call has its effect, and its reply is lost
	bare            // the reply has no data of the execution
	silent          // as bare, and it does not say so
	unsaid          // the reply has the data, and does not say so
)

func newService(t *testing.T, now func() time.Time) *service {
	t.Helper()
	s := &service{
		t: t, now: now, retention: 14 * 24 * time.Hour, calls: map[string]int{}, connections: http.Transport{DisableKeepAlives: true},
		fate: func(string) (time.Duration, types.ExecutionStatus) {
			return time.Minute, types.ExecutionStatusSucceeded
		},
		discards: func(string) bool { return false },
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /2015-03-31/functions/{function}/invocations", s.call("Invoke", s.invoke))
	mux.HandleFunc("GET /2025-12-01/durable-executions/{arn}", s.call("Get", s.get))
	mux.HandleFunc("GET /2025-12-01/functions/{function}/durable-executions", s.call("List", s.list))
	s.server = httptest.NewServer(mux)
	t.Cleanup(s.server.Close)
	return s
}

// client returns a client of the SDK that calls s, and does not retry by itself.
func (s *service) client() *lambda.Client {
	return lambda.New(lambda.Options{
		Region:       "eu-west-1",
		BaseEndpoint: &s.server.URL,
		Retryer:      aws.NopRetryer{},
		HTTPClient:   &http.Client{Transport: &transport{s}},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
		}),
	})
}

// transport waits for the end of each call, even if its reply is lost. So a test
// can use the stand-in between two calls.
type transport struct{ s *service }

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.s.connections.RoundTrip(r)
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return response, err
}

// faultKey is the key of the fault in the context of a call.
type faultKey struct{}

// refusal is an error response.
type refusal struct {
	status  int
	code    string
	message string
}

func (s *service) call(name string, do func(w http.ResponseWriter, r *http.Request) *refusal) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls[name]++
		what := none
		if s.fault != nil {
			what = s.fault(name)
		}
		var refused *refusal
		switch what {
		case throttled:
			refused = &refusal{429, "TooManyRequestsException", "Rate Exceeded."}
		case failed:
			refused = &refusal{500, "ServiceException", "Internal error."}
		case lost:
			do(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler) // the connection breaks
		case bare, silent, unsaid, none:
			refused = do(w, r.WithContext(context.WithValue(r.Context(), faultKey{}, what)))
		}
		if refused != nil {
			w.Header().Set("X-Amzn-Errortype", refused.code)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(refused.status)
			_, _ = fmt.Fprintf(w, `{"Type":"User","Message":%q}`, refused.message)
		}
	}
}

var executionName = regexp.MustCompile(`^[a-zA-Z0-9-_]{1,64}$`)

func (s *service) invoke(w http.ResponseWriter, r *http.Request) *refusal {
	function, qualifier := path(r, "function"), r.URL.Query().Get("Qualifier")
	if i := strings.LastIndexByte(function, ':'); i >= 0 {
		function, qualifier = function[:i], function[i+1:]
	}
	body, err := io.ReadAll(r.Body)
	name, payload := r.Header.Get("X-Amz-Durable-Execution-Name"), string(body)
	switch {
	case err != nil:
		return &refusal{400, "InvalidRequestContentException", "The body cannot be read."}
	case qualifier == "":
		return &refusal{400, "InvalidParameterValueException", "You cannot invoke a durable function using an unqualified ARN."}
	case !executionName.MatchString(name):
		return &refusal{400, "InvalidParameterValueException", "The name is invalid."}
	case r.Header.Get("X-Amz-Invocation-Type") != "Event":
		return &refusal{400, "InvalidParameterValueException", "This stand-in serves asynchronous invocations only."}
	case len(payload) > 1<<20:
		return &refusal{413, "RequestTooLargeException", "The payload is larger than 1 MB."}
	case !json.Valid(body):
		return &refusal{400, "InvalidRequestContentException", "The payload is not JSON."}
	}
	e := s.named(name)
	switch {
	case e == nil:
		runs, status := s.fate(payload)
		e = &execution{
			arn:  fmt.Sprintf("arn:aws:lambda:eu-west-1:123456789012:function:%s:7/durable-execution/%s/%d", function, name, len(s.executions)),
			name: name, function: function, payload: payload, began: s.now(), ends: s.now().Add(runs), status: status,
			discarded: s.discards(payload),
		}
		s.executions = append(s.executions, e)
	case e.payload != payload || e.function != function:
		return &refusal{409, "DurableExecutionAlreadyStartedException", "The durable execution has already been started."}
	}
	w.Header().Set("X-Amz-Durable-Execution-Arn", e.arn)
	w.WriteHeader(http.StatusAccepted)
	return nil
}

func (s *service) get(w http.ResponseWriter, r *http.Request) *refusal {
	e := s.known(path(r, "arn"))
	if e == nil {
		return &refusal{404, "ResourceNotFoundException", "The durable execution does not exist."}
	}
	status, data := s.statusOf(e), r.URL.Query().Get("IncludeExecutionData") != "false"
	out := s.summary(e)
	switch r.Context().Value(faultKey{}) {
	case bare:
		data = false
	case silent:
		return reply(w, out)
	}
	if r.Context().Value(faultKey{}) != unsaid {
		out["ExecutionDataIncluded"] = data
	}
	if data {
		out["InputPayload"] = e.payload
		switch {
		case status == types.ExecutionStatusSucceeded && !s.noResult:
			out["Result"] = `{"receipt":` + e.payload + `}`
		case status == types.ExecutionStatusFailed:
			out["Error"] = map[string]any{"ErrorType": "OutOfStock", "ErrorMessage": "no more of it"}
		case status == types.ExecutionStatusStopped:
			out["Error"] = map[string]any{"ErrorType": "Operator", "ErrorMessage": "stopped by hand"}
		}
	}
	return reply(w, out)
}

func (s *service) list(w http.ResponseWriter, r *http.Request) *refusal {
	query := r.URL.Query()
	var all []map[string]any
	for i := len(s.executions) - 1; i >= 0; i-- { // the newest first
		e := s.executions[i] // "names that match" are perhaps not only equal ones
		if s.known(e.arn) != nil && e.function == path(r, "function") && strings.HasPrefix(e.name, query.Get("DurableExecutionName")) && !s.now().Before(e.began.Add(s.unlisted)) {
			all = append(all, s.summary(e))
		}
	}
	out := map[string]any{"DurableExecutions": []any{}}
	switch {
	case query.Get("Marker") == "": // a page of a filtered list can be empty
		out["NextMarker"] = "next"
	case len(all) > 0:
		out["DurableExecutions"] = all
	}
	return reply(w, out)
}

func (s *service) summary(e *execution) map[string]any {
	out := map[string]any{
		"DurableExecutionArn": e.arn, "DurableExecutionName": e.name, "StartTimestamp": e.began.Unix(), "Status": s.statusOf(e),
		"FunctionArn": "arn:aws:lambda:eu-west-1:123456789012:function:" + e.function,
	}
	if s.statusOf(e) != types.ExecutionStatusRunning {
		out["EndTimestamp"] = e.ends.Unix()
	}
	return out
}

func (s *service) statusOf(e *execution) types.ExecutionStatus {
	if s.now().Before(e.ends) {
		return types.ExecutionStatusRunning
	}
	return e.status
}

// known returns the execution unless its retention has ended or its start was
// discarded.
func (s *service) known(arn string) *execution {
	for _, e := range s.executions {
		if e.arn == arn && !e.discarded && s.now().Before(e.ends.Add(s.retention)) {
			return e
		}
	}
	return nil
}

func (s *service) named(name string) *execution {
	for i := len(s.executions) - 1; i >= 0; i-- {
		if e := s.executions[i]; e.name == name {
			return s.known(e.arn)
		}
	}
	return nil
}

// starts returns how many executions with that payload were started.
func (s *service) starts(payload string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.executions {
		if e.payload == payload {
			n++
		}
	}
	return n
}

// path returns a part of the path, which can contain an encoded slash.
func path(r *http.Request, name string) string {
	v, err := url.PathUnescape(r.PathValue(name))
	if err != nil {
		return r.PathValue(name)
	}
	return v
}

func reply(w http.ResponseWriter, out any) *refusal {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(out); err != nil {
		return &refusal{500, "ServiceException", err.Error()}
	}
	return nil
}
