// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/lambdahttp"
)

// serveHTTP sends a request through the middleware of lambdahttp.
func serveHTTP(ctx context.Context, guard *idempotent.Guard, q request, handle func(context.Context) (result, error)) answer {
	guarded := lambdahttp.Middleware(guard, func(o *lambdahttp.Options) {
		o.Scope, o.Operation = lambdahttp.SingleTenant, func(*lambdahttp.Request) string { return operations[overHTTP] }
		if q.Mute {
			o.Scope.Of = func(context.Context, *lambdahttp.Request) (string, error) { select {} }
		}
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		res, err := handle(r.Context())
		if err != nil {
			lambdahttp.SetError(r.Context(), err)
			return
		}
		response := responseOf(res)
		w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
		w.WriteHeader(response.Status)
		_, _ = w.Write(response.Body) // it is buffered
	}))
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders", bytes.NewReader([]byte(`{"amount":4200}`)))
	r.Header.Set("Idempotency-Key", `"`+q.Key+`"`)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	guarded.ServeHTTP(w, r)
	return answerOfHTTP(q, w)
}

// responseOf returns the response with a result.
func responseOf(r result) lambdahttp.Response {
	body, _ := json.Marshal(r) // strings and bytes always encode
	return lambdahttp.Response{Status: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

// problemClasses are the classes of the answers that lambdahttp gives instead of the
// handler's.
var problemClasses = map[string]string{
	lambdahttp.InProgress.String(): classInProgress, lambdahttp.OutcomeUnknown.String(): classUnresolved,
	lambdahttp.NoTimeLeft.String(): classNoTime, lambdahttp.StoreUnavailable.String(): classStore,
	lambdahttp.ReplayUnavailable.String(): classUnavailable, lambdahttp.KeyReused.String(): classMismatch,
}

func answerOfHTTP(q request, w *httptest.ResponseRecorder) answer {
	a := answer{Name: q.Name}
	if w.Code == http.StatusCreated {
		var r result
		_ = json.Unmarshal(w.Body.Bytes(), &r) // a damaged body is a damaged result
		a.Proof, a.Stored = r.Proof, w.Header().Get("Idempotency-Status") != "not-stored"
		switch {
		case !r.intact(q.Promise.key(q.Key).RecordID()):
			a.Class = classDamaged
		case w.Header().Get("Idempotent-Replayed") == "true":
			a.Class = classReplayed
		case a.Stored:
			a.Class = classDone
		default:
			a.Class = classUnkept
		}
		return a
	}
	var problem struct{ Code string }
	_ = json.Unmarshal(w.Body.Bytes(), &problem) // the class of an answer without a code is classFailed
	a.Class, a.Detail = classFailed, fmt.Sprintf("%d %s", w.Code, w.Body)
	if class, ok := problemClasses[problem.Code]; ok {
		a.Class = class
	}
	return a
}

// serveBatch sends a request through lambdabatch, as a message that the queue has
// delivered twice in one batch.
func serveBatch(ctx context.Context, guard *idempotent.Guard, q request, handle func(context.Context) (result, error)) answer {
	type message struct{ Key string }
	batch := lambdabatch.SQS(guard, func(ctx context.Context, _ message) error {
		_, err := handle(ctx)
		return err
	}, func(o *lambdabatch.Options) {
		o.Operation, o.ID = operations[inBatches], lambdabatch.Field("/Key")
		o.Scope = func(context.Context, *lambdabatch.Message) (string, error) { return idempotent.Global, nil }
	})
	body, _ := json.Marshal(message{q.Key}) // a string always encodes
	event := events.SQSEvent{}
	for _, id := range []string{"first", "second"} {
		event.Records = append(event.Records, events.SQSMessage{
			MessageId: q.Name + " " + id, Body: string(body), EventSource: "aws:sqs", EventSourceARN: "arn:aws:sqs:us-east-1:123456789012:orders",
			Attributes: map[string]string{"ApproximateReceiveCount": "1"},
		})
	}
	out, err := batch(ctx, event)
	switch failed := len(out.BatchItemFailures); {
	case err != nil:
		return answer{Name: q.Name, Class: classFailed, Detail: err.Error()}
	case failed == len(event.Records):
		return answer{Name: q.Name, Class: classFailed, Detail: "the batch reports both messages"}
	default: // one copy that is acknowledged acknowledges the work
		return answer{Name: q.Name, Class: classDone, Acknowledged: true}
	}
}
