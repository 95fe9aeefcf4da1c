// SPDX-License-Identifier: Apache-2.0

package frozen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/lambdahttp"
)

// fixture is a process with a store, and what its handlers did there.
type fixture struct {
	t     *testing.T
	store driver.Store
	ran   []string // steps and handlers that were entered
}

// story leaves records with begin. A later process, on a copy of these records, does
// what retries, redeliveries and evidence do with them.
type story struct {
	name  string
	begin func(*fixture)
	later func(*fixture)
}

type receipt struct {
	ID    string            `json:"id"`
	Notes map[string]string `json:"notes,omitempty"`
}

var stories = []story{
	{"a completed run is replayed", func(w *fixture) { w.charge("completed", nil, receipt{ID: "ch_1"}, nil) }, func(w *fixture) {
		w.charge("completed", nil, receipt{ID: "ch_1"}, nil)
		var mismatch *idempotent.MismatchError
		if _, err := w.do("completed", "another request", nil, nil); !errors.As(err, &mismatch) {
			w.t.Errorf("another request with the key: %v", err)
		}
		w.entered()
	}},
	{"a long result is replayed", func(w *fixture) { w.charge("long", nil, long, nil) }, func(w *fixture) {
		w.charge("long", nil, long, nil)
		w.entered()
	}},
	{"a sealed result is replayed", func(w *fixture) { w.charge("sealed", sealed, receipt{ID: "ch_2"}, nil) }, func(w *fixture) {
		w.charge("sealed", sealed, receipt{ID: "ch_2"}, nil)
		w.entered()
	}},
	{"a Final error is replayed", func(w *fixture) { w.charge("final", nil, receipt{}, declined) }, func(w *fixture) {
		w.charge("final", nil, receipt{}, declined)
		w.entered()
	}},
	{"an error that executed nothing frees the key", func(w *fixture) {
		w.charge("free", nil, receipt{}, idempotent.NotExecuted(errors.New("no connection")))
	}, func(w *fixture) {
		w.charge("free", nil, receipt{ID: "ch_3"}, nil)
		w.entered("charge free")
	}},
	{"an unknown outcome is settled by evidence", func(w *fixture) {
		w.charge("unknown", nil, receipt{}, idempotent.Unknown(errors.New("no reply")))
	}, func(w *fixture) {
		var unresolved *idempotent.UnresolvedError
		if _, err := w.do("unknown", request, nil, nil); !errors.As(err, &unresolved) {
			w.t.Errorf("a retry of an unknown outcome: %v", err)
		}
		w.reconcile(receipt{ID: "ch_4"}, "unknown")
		w.charge("unknown", nil, receipt{ID: "ch_4"}, nil)
		w.entered()
	}},
	{"the predecessor's outcome is replayed, and does not return after it was discarded", func(w *fixture) {
		w.charge("earlier", answered, receipt{ID: "ch_old"}, nil)
	}, func(w *fixture) {
		w.charge("earlier", answered, receipt{ID: "ch_old"}, nil)
		w.entered()
		w.forget("earlier")
		w.charge("earlier", answered, receipt{ID: "ch_new"}, nil)
		w.entered("charge earlier")
	}},
	{"a killed run becomes unknown", func(w *fixture) { w.killed("killed", reconciled, 0) }, func(w *fixture) {
		w.reconcile(receipt{ID: "ch_5"}, "killed")
		w.charge("killed", reconciled, receipt{ID: "ch_5"}, nil)
		w.entered()
	}},
	{"a killed run is repeated", func(w *fixture) { w.killed("again", rerun, 0) }, func(w *fixture) {
		w.charge("again", rerun, receipt{ID: "ch_6"}, nil)
		w.entered("charge again")
	}},
	{"a finished step is not repeated", func(w *fixture) { w.order(errors.New("no carrier")) }, func(w *fixture) {
		w.order(nil)
		w.entered("ship")
	}},
	{"HTTP API", func(w *fixture) { w.http("apigatewayv2-base64") }, func(w *fixture) { w.http("apigatewayv2-base64"); w.entered() }},
	{"REST API", func(w *fixture) { w.http("apigatewayv1-post") }, func(w *fixture) { w.http("apigatewayv1-post"); w.entered() }},
	{"function URL", func(w *fixture) { w.http("functionurl-post") }, func(w *fixture) { w.http("functionurl-post"); w.entered() }},
	{"load balancer", func(w *fixture) { w.http("alb-post") }, func(w *fixture) { w.http("alb-post"); w.entered() }},
	{"queues and streams", (*fixture).batches, func(w *fixture) { w.batches(); w.entered() }},
	{"single events", (*fixture).singles, func(w *fixture) { w.singles(); w.entered() }},
	{"a run that announced itself before it was killed becomes unknown", func(w *fixture) { w.killed("announced", reconciled, 1) }, func(w *fixture) {
		w.reconcile(receipt{ID: "ch_9"}, "announced")
		w.charge("announced", reconciled, receipt{ID: "ch_9"}, nil)
		w.entered()
	}},
}

const request = `{"amount":1250,"currency":"EUR"}`

var (
	// long is stored compressed.
	long     = receipt{ID: "ch_long", Notes: map[string]string{"text": strings.Repeat("All work and no play. ", 500)}}
	declined = idempotent.Final("card_declined", "The card was declined.")
)

func reconciled(o *idempotent.Options) { o.Retention, o.ResultVersion = 72*time.Hour, "2" }
func rerun(o *idempotent.Options)      { o.Recovery = idempotent.Rerun }
func sealed(o *idempotent.Options)     { o.Seal = mirror{} }

func answered(o *idempotent.Options) {
	o.Predecessor = func(context.Context, idempotent.Key) (any, bool, error) { return receipt{ID: "ch_old"}, true, nil }
}

// mirror seals bytes by reversing them, behind what they are bound to.
type mirror struct{}

func (mirror) Seal(_ context.Context, plain, bound []byte) ([]byte, error) {
	return append(reversed(plain), bound...), nil
}

func (mirror) Open(_ context.Context, sealed, bound []byte) ([]byte, error) {
	plain, ok := strings.CutSuffix(string(sealed), string(bound))
	if !ok {
		return nil, idempotent.ErrSealBroken
	}
	return reversed([]byte(plain)), nil
}

func reversed(b []byte) []byte {
	b = slices.Clone(b)
	slices.Reverse(b)
	return b
}

// entered fails the test unless exactly these handlers and steps ran.
func (w *fixture) entered(want ...string) {
	w.t.Helper()
	if !slices.Equal(w.ran, want) {
		w.t.Errorf("these ran: %q, want %q", w.ran, want)
	}
}

func (w *fixture) guard(set func(*idempotent.Options)) *idempotent.Guard {
	w.t.Helper()
	g, err := idempotent.New(w.store, func(o *idempotent.Options) {
		if set != nil {
			set(o)
		}
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

func keyOf(id, request string) idempotent.Key {
	print, err := idempotent.FingerprintJSON([]byte(request))
	if err != nil {
		print = idempotent.FingerprintBytes([]byte(request))
	}
	return idempotent.Key{Operation: "charge", Scope: "merchant-1", ID: id, Fingerprint: print}
}

// do guards a request. If it runs, it returns the receipt and the error.
func (w *fixture) do(id, request string, set func(*idempotent.Options), run func(context.Context) (receipt, error)) (receipt, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	return idempotent.Do(ctx, w.guard(set), keyOf(id, request), func(ctx context.Context) (receipt, error) {
		w.ran = append(w.ran, "charge "+id)
		return run(ctx)
	})
}

// charge returns r and end from the handler, and wants the caller to get them.
func (w *fixture) charge(id string, set func(*idempotent.Options), r receipt, end error) {
	w.t.Helper()
	got, err := w.do(id, request, set, func(ctx context.Context) (receipt, error) {
		execution, _ := idempotent.FromContext(ctx)
		if err := execution.SetRef("charges/" + id); err != nil {
			w.t.Error(err)
		}
		return r, end
	})
	final, isFinal := idempotent.AsFinal(end)
	gotFinal, _ := idempotent.AsFinal(err)
	switch {
	case isFinal && !reflect.DeepEqual(gotFinal, final), end == nil && err != nil, end != nil && err == nil, end == nil && !reflect.DeepEqual(got, r):
		w.t.Errorf("charge %s: %.100v, %v; want %.100v, %v", id, got, err, r, end)
	}
}

// killed claims the key in a process that is killed after it changed its record so many
// times. The first change announces the run, at the end of its time.
func (w *fixture) killed(id string, set func(*idempotent.Options), changes int) {
	w.t.Helper()
	alive := w.store
	w.store = idempotenttest.Intercept(alive, func(ctx context.Context, c *idempotenttest.StoreCall) {
		if c.Op == driver.OpReplace {
			if changes == 0 {
				c.Err = errors.New("the process was killed")
				return
			}
			changes--
		}
		c.Do(ctx)
	})
	_, _ = w.do(id, request, set, func(ctx context.Context) (receipt, error) {
		if changes > 0 {
			<-ctx.Done()
			time.Sleep(200 * time.Millisecond)
		}
		return receipt{ID: "ch_lost"}, nil
	})
	w.store = alive
	if changes > 0 {
		w.t.Errorf("%s: %d changes are missing", id, changes)
	}
}

// order charges and ships, and shipping ends with err.
func (w *fixture) order(end error) {
	w.t.Helper()
	guard := w.guard(func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, []string{"charge", "ship"} })
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	got, err := idempotent.Do(ctx, guard, keyOf("order", request), func(ctx context.Context) (receipt, error) {
		paid, err := idempotent.Step(ctx, "charge", func(context.Context) (receipt, error) {
			w.ran = append(w.ran, "charge")
			return receipt{ID: "ch_7"}, nil
		})
		if err != nil {
			return receipt{}, err
		}
		sent, err := idempotent.Step(ctx, "ship", func(context.Context) (string, error) {
			w.ran = append(w.ran, "ship")
			return "parcel 1", end
		})
		return receipt{ID: paid.ID + ", " + sent}, err
	})
	if want := "ch_7, parcel 1"; end == nil && (got.ID != want || err != nil) || end != nil && !errors.Is(err, end) {
		w.t.Errorf("the order: %q, %v; want %q, %v", got.ID, err, want, end)
	}
}

// forget discards the outcome of id.
func (w *fixture) forget(id string) {
	w.t.Helper()
	record := keyOf(id, request).RecordID()
	r, err := w.store.Get(w.t.Context(), record)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.guard(nil).Forget(w.t.Context(), record, idempotent.Correction{Token: r.Token(), Actor: "mia@desk", Reason: "ch_old was refunded"}); err != nil {
		w.t.Fatal(err)
	}
}

// reconcile gives r as evidence about the record of id, and about no other.
func (w *fixture) reconcile(r receipt, id string) {
	w.t.Helper()
	asked := 0
	reconcile := idempotent.Reconciler(w.guard(nil), map[string]idempotent.ResolveFunc{
		"charge": func(_ context.Context, p idempotent.PendingRecord) (idempotent.Resolution, error) {
			if p.ID != keyOf(id, request).RecordID() {
				return idempotent.Later(time.Hour), nil
			}
			asked++
			return idempotent.Resolved(r), nil
		},
	})
	for range 3 { // lists a record whose lease has ended, then its outcome
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		if _, err := reconcile(ctx); err != nil {
			w.t.Error(err)
		}
		cancel()
		time.Sleep(2 * time.Minute)
	}
	if asked != 1 {
		w.t.Errorf("the resolver was asked %d times about %s", asked, id)
	}
}

// response is what the caller of an HTTP handler gets.
type response struct {
	status  int
	headers map[string]string
	body    string
}

const chargeBody = "{\"id\": \"ch_8\"}\n"

var chargeHeaders = map[string]string{"Content-Type": "application/json", "X-Charge": "ch_8", "Set-Cookie": "a=b"}

// http sends the event in testdata to a handler behind its front.
func (w *fixture) http(name string) {
	w.t.Helper()
	var got response
	switch front, _, _ := strings.Cut(name, "-"); front {
	case "apigatewayv2":
		answer := send(w, name, lambdahttp.APIGatewayV2, events.APIGatewayV2HTTPResponse{StatusCode: 201, Headers: chargeHeaders, Body: chargeBody},
			func(o *lambdahttp.Options) { o.Scope = lambdahttp.Claim("sub") })
		got = response{answer.StatusCode, answer.Headers, answer.Body}
	case "apigatewayv1":
		answer := send(w, name, lambdahttp.APIGatewayV1, events.APIGatewayProxyResponse{StatusCode: 201, Headers: chargeHeaders, Body: chargeBody},
			func(o *lambdahttp.Options) { o.Profile = lambdahttp.Stripe })
		got = response{answer.StatusCode, answer.Headers, answer.Body}
		if got.headers == nil { // a replay
			got.headers = map[string]string{}
			for name, lines := range answer.MultiValueHeaders {
				got.headers[name] = lines[0]
			}
		}
	case "functionurl":
		answer := send(w, name, lambdahttp.FunctionURL, events.LambdaFunctionURLResponse{StatusCode: 201, Headers: chargeHeaders, Body: chargeBody},
			func(o *lambdahttp.Options) { o.Scope = lambdahttp.IAMPrincipal })
		got = response{answer.StatusCode, answer.Headers, answer.Body}
	case "alb":
		answer := send(w, name, lambdahttp.ALB, events.ALBTargetGroupResponse{StatusCode: 201, Headers: chargeHeaders, Body: chargeBody},
			func(o *lambdahttp.Options) { o.Fingerprint = lambdahttp.Fields("/amount", "/currency") })
		got = response{answer.StatusCode, answer.Headers, answer.Body}
	default:
		w.t.Fatal(name)
	}
	if got.status != 201 || got.body != chargeBody || got.headers["X-Charge"] != "ch_8" || got.headers["Content-Type"] != "application/json" {
		w.t.Errorf("%s: %+v", name, got)
	}
}

// send invokes a handler that returns answer, guarded by a front of lambdahttp, with
// the event in testdata.
func send[E, R any](
	w *fixture, name string,
	front func(*idempotent.Guard, func(context.Context, E) (R, error), ...func(*lambdahttp.Options)) func(context.Context, E) (R, error),
	answer R, set func(*lambdahttp.Options),
) R {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	h := front(w.guard(nil), func(context.Context, E) (R, error) {
		w.ran = append(w.ran, name)
		return answer, nil
	}, func(o *lambdahttp.Options) {
		o.Scope = lambdahttp.SingleTenant
		o.Operation = func(*lambdahttp.Request) string { return "POST " + name }
	}, set)
	got, err := h(ctx, httpEvent[E](w.t, name))
	if err != nil {
		w.t.Errorf("%s: %v", name, err)
	}
	return got
}

// batches delivers the events in testdata, and wants every message acknowledged.
func (w *fixture) batches() {
	w.t.Helper()
	guard := w.guard(nil)
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	named := func(operation string, id lambdabatch.IDFunc) func(*lambdabatch.Options) {
		return func(o *lambdabatch.Options) { o.Operation, o.ID, o.NoRedrive = operation, id, operation == "fifo" }
	}
	handle := func(operation string) func(context.Context, []byte) error {
		return func(context.Context, []byte) error {
			w.ran = append(w.ran, operation)
			return nil
		}
	}
	queue := lambdabatch.SQS(guard, handle("sqs"), named("sqs", lambdabatch.Field("/order_id")))
	fifo := lambdabatch.SQSFIFO(guard, handle("fifo"), named("fifo", lambdabatch.ItemID))
	stream := lambdabatch.Kinesis(guard, handle("kinesis"), named("kinesis", nil))
	table := lambdabatch.DynamoDB(guard, handle("dynamodb"), named("dynamodb", nil))
	topic := lambdabatch.Kafka(guard, handle("kafka"), named("kafka", nil))
	for name, deliver := range map[string]func() (any, error){
		"sqs":      func() (any, error) { return queue(ctx, event[events.SQSEvent](w.t, "lambdabatch", "sqs")) },
		"sqs-fifo": func() (any, error) { return fifo(ctx, event[events.SQSEvent](w.t, "lambdabatch", "sqs-fifo")) },
		"kinesis":  func() (any, error) { return stream(ctx, event[events.KinesisEvent](w.t, "lambdabatch", "kinesis")) },
		"dynamodb": func() (any, error) { return table(ctx, event[events.DynamoDBEvent](w.t, "lambdabatch", "dynamodb")) },
		"kafka":    func() (any, error) { return topic(ctx, event[events.KafkaEvent](w.t, "lambdabatch", "kafka")) },
	} {
		answer, err := deliver()
		if text, _ := json.Marshal(answer); err != nil || string(text) != `{"batchItemFailures":[]}` {
			w.t.Errorf("%s: %s, %v", name, text, err)
		}
	}
}

// singles invokes guarded handlers of sources that deliver one event at a time.
func (w *fixture) singles() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	ctx = lambdacontext.NewContext(ctx, &lambdacontext.LambdaContext{AwsRequestID: "8f5d1c1e-0d3a-4e6f-9a8b-1c2d3e4f5a6b",
		InvokedFunctionArn: "arn:aws:lambda:eu-central-1:123456789012:function:charge"})
	single(ctx, w, "eventbridge", lambdabatch.EventBridge("eventbridge"))
	single(ctx, w, "sns", lambdabatch.SNS("sns"))
	single(ctx, w, "s3", lambdabatch.S3("s3"))
	single(ctx, w, "asyncinvoke", lambdabatch.AsyncInvoke[order]("asyncinvoke"))
	single(ctx, w, "stepfunctions", lambdabatch.StepFunctions("stepfunctions", func(r task) (string, string) { return r.Execution, r.State }))
	payload := idempotent.WholePayload("payload", func(order) string { return "merchant-1" })
	single(ctx, w, "asyncinvoke", payload)
	single(ctx, w, "asyncinvoke", idempotent.KeyFrom("field", func(o order) (string, string) { return idempotent.Global, o.OrderID }))
}

type order struct {
	OrderID string `json:"order_id"`
	Amount  int    `json:"amount"`
}

type task struct {
	Execution string `json:"execution"`
	State     string `json:"state"`
	Input     order  `json:"input"`
}

func single[Req any](ctx context.Context, w *fixture, name string, key idempotent.KeyFunc[Req]) {
	w.t.Helper()
	h := idempotent.Wrap(w.guard(nil), key, func(context.Context, Req) (receipt, error) {
		w.ran = append(w.ran, name)
		return receipt{ID: name}, nil
	})
	if got, err := h(ctx, event[Req](w.t, "lambdabatch", name)); err != nil || got.ID != name {
		w.t.Errorf("%s: %q, %v", name, got.ID, err)
	}
}

// httpEvent returns an event that the tests of lambdahttp have: its type, and its name.
func httpEvent[E any](t *testing.T, name string) (e E) {
	t.Helper()
	kind, name, _ := strings.Cut(name, "-")
	all := event[map[string]struct{ Event json.RawMessage }](t, "lambdahttp", kind)
	if err := json.Unmarshal(all[name].Event, &e); err != nil {
		t.Fatalf("%s, %s: %v", kind, name, err)
	}
	return e
}

// event returns an event that a test of the package has, in its file or in that of all.
func event[E any](t *testing.T, pkg, name string) (e E) {
	t.Helper()
	folder := filepath.Join(engine.Root(), pkg, "testdata")
	data, err := os.ReadFile(filepath.Join(folder, name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		var all map[string]json.RawMessage
		if data, err = os.ReadFile(filepath.Join(folder, "events.json")); err == nil {
			err = json.Unmarshal(data, &all)
		}
		data = all[name]
	}
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil {
		t.Fatal(fmt.Errorf("the event %s of %s: %w", name, pkg, err))
	}
	return e
}
