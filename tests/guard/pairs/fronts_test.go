// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/lambdahttp"
)

// front hands the handler of the row over, with its two orders.
func (p *world) front() {
	switch front := p.row["front"]; {
	case p.row.overHTTP():
		p.overHTTP(front)
	case p.row.inBatches():
		p.inBatches(front)
	default:
		p.direct(front)
	}
}

// offer hands a handler over that takes the event of an order.
func offer[Req, Resp any](p *world, event func(order) Req, handler func(*idempotent.Guard) func(context.Context, Req) (Resp, error), read func(Resp) answer) {
	if p.explored != nil {
		idempotenttest.Handle(p.explored, event(p.orders[0]), handler, event(p.orders[1]))
		return
	}
	p.send = func(g *idempotent.Guard) func(context.Context, int) answer {
		h := handler(g)
		return func(ctx context.Context, i int) answer {
			resp, err := h(ctx, event(p.orders[i]))
			if err != nil {
				return answer{text: err.Error()}
			}
			return read(resp)
		}
	}
}

func (p *world) direct(front string) {
	key := idempotent.KeyFrom(operation, func(o order) (scope, id string) { return "acme", o.ID })
	if p.row["ref"] == "set" {
		key = key.WithRef(reference)
	}
	offer(p, func(o order) order { return o }, func(g *idempotent.Guard) func(context.Context, order) (receipt, error) {
		if front == "Wrap" {
			return idempotent.Wrap(g, key, p.take, p.own)
		}
		return func(ctx context.Context, o order) (receipt, error) {
			k, err := key(ctx, o)
			if err != nil {
				return receipt{}, err
			}
			if k.Fingerprint, err = idempotent.FingerprintOf(o); err != nil {
				return receipt{}, err
			}
			return idempotent.Do(ctx, g, k, func(ctx context.Context) (receipt, error) { return p.take(ctx, o) }, p.own)
		}
	}, func(r receipt) answer { return answer{true, encode(r)} })
}

func (p *world) overHTTP(front string) {
	header := func(o order) string {
		switch {
		case p.row["option"] == "key in the body":
			return ""
		case p.row["profile"] == "IETF":
			return `"` + o.ID + `"`
		}
		return o.ID
	}
	headers := func(o order) map[string]string {
		h := map[string]string{"content-type": "application/json"}
		if key := header(o); key != "" {
			h["idempotency-key"] = key
		}
		return h
	}
	options := func(o *lambdahttp.Options) {
		o.Profile = map[string]lambdahttp.Profile{"IETF": lambdahttp.IETF, "Stripe": lambdahttp.Stripe, "UUID": lambdahttp.UUID}[p.row["profile"]]
		o.Scope, o.Guard = lambdahttp.SingleTenant, p.own
		o.Operation = func(*lambdahttp.Request) string { return operation }
		if p.row["ref"] == "set" {
			o.Ref = func(*lambdahttp.Request) string { return "orders/17" }
		}
		switch p.row["option"] {
		case "key in the body":
			o.KeyFrom = lambdahttp.BodyField("/numbers/1")
		case "fields":
			o.Fingerprint = lambdahttp.Fields("/amount")
		case "accepted":
			o.Accepted = func(context.Context, *lambdahttp.Request, idempotent.RecordID) string { return "/charges/1" }
		case "exposed headers":
			o.Profile.ResponseHeaders = append(o.Profile.ResponseHeaders, "Access-Control-Expose-Headers")
		case "server errors":
			o.ServerErrors = lambdahttp.UnknownServerErrors
		}
	}
	charge := lambdahttp.JSON[order, receipt]{Handle: p.take}
	read := func(status int, body string) answer { return answer{status == http.StatusOK, body} }
	switch front {
	case "HTTP API":
		offer(p, func(o order) (r events.APIGatewayV2HTTPRequest) {
			r.RequestContext.HTTP.Method, r.RawPath, r.Body, r.Headers = "POST", "/charges", encode(o), headers(o)
			return r
		}, func(g *idempotent.Guard) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
			return charge.APIGatewayV2(g, options)
		}, func(r events.APIGatewayV2HTTPResponse) answer { return read(r.StatusCode, r.Body) })
	case "REST API":
		offer(p, func(o order) (r events.APIGatewayProxyRequest) {
			r.HTTPMethod, r.Path, r.Body, r.Headers = "POST", "/charges", encode(o), headers(o)
			return r
		}, func(g *idempotent.Guard) func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
			return charge.APIGatewayV1(g, options)
		}, func(r events.APIGatewayProxyResponse) answer { return read(r.StatusCode, r.Body) })
	case "load balancer":
		offer(p, func(o order) (r events.ALBTargetGroupRequest) {
			r.HTTPMethod, r.Path, r.Body, r.Headers = "POST", "/charges", encode(o), headers(o)
			return r
		}, func(g *idempotent.Guard) func(context.Context, events.ALBTargetGroupRequest) (events.ALBTargetGroupResponse, error) {
			return charge.ALB(g, options)
		}, func(r events.ALBTargetGroupResponse) answer { return read(r.StatusCode, r.Body) })
	case "function URL":
		offer(p, func(o order) (r events.LambdaFunctionURLRequest) {
			r.RequestContext.HTTP.Method, r.RawPath, r.Body, r.Headers = "POST", "/charges", encode(o), headers(o)
			return r
		}, func(g *idempotent.Guard) func(context.Context, events.LambdaFunctionURLRequest) (events.LambdaFunctionURLResponse, error) {
			return charge.FunctionURL(g, options)
		}, func(r events.LambdaFunctionURLResponse) answer { return read(r.StatusCode, r.Body) })
	case "net/http", "net/http, flushed":
		type response struct {
			StatusCode int
			Header     http.Header
			Body       string
		}
		offer(p, func(o order) order { return o }, func(g *idempotent.Guard) func(context.Context, order) (response, error) {
			h := charge.Handler(g, options)
			if front == "net/http, flushed" {
				h = lambdahttp.Middleware(g, options)(http.HandlerFunc(p.flushes))
			}
			return func(ctx context.Context, o order) (response, error) {
				r, w := httptest.NewRequestWithContext(ctx, http.MethodPost, "/charges", strings.NewReader(encode(o))), httptest.NewRecorder()
				for name, value := range headers(o) {
					r.Header.Set(name, value)
				}
				h.ServeHTTP(w, r)
				return response{w.Code, w.Header(), w.Body.String()}, nil
			}
		}, func(r response) answer { return read(r.StatusCode, r.Body) })
	}
}

// flushes is the handler with its own hands: it sends its answer in two parts.
func (p *world) flushes(w http.ResponseWriter, r *http.Request) {
	var o order
	err := json.NewDecoder(r.Body).Decode(&o)
	var done receipt
	if err == nil {
		done, err = p.take(r.Context(), o)
	}
	if err != nil {
		lambdahttp.SetError(r.Context(), err)
		return
	}
	answer := p.result(done).(lambdahttp.Response)
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.Status)
	for part := range slices.Chunk(answer.Body, 1+len(answer.Body)/2) {
		w.Write(part)
		w.(http.Flusher).Flush()
	}
}

// reference says what an order is about.
func reference(o order) string { return fmt.Sprint("orders/", o.Numbers[0]) }

func (p *world) inBatches(front string) {
	take := func(ctx context.Context, o order) error {
		_, err := p.take(ctx, o)
		return err
	}
	copies := 1
	if p.row["option"] == "two copies" {
		copies = 2
	}
	options := func(o *lambdabatch.Options) {
		o.Operation, o.ID, o.Guard = operation, lambdabatch.Field("/id"), p.own
		if p.row["ref"] == "set" {
			o.Ref = lambdabatch.Field("/numbers/1")
		}
		if p.row["option"] == "fail any" {
			o.Fail = lambdabatch.FailIfAny
		}
		if p.row["option"] == "side by side" {
			o.Concurrency = 2
		}
	}
	acknowledged := func(failures int) answer { return answer{ok: failures == 0} }
	queue := func(handler func(*idempotent.Guard, func(context.Context, order) error, ...func(*lambdabatch.Options)) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)) {
		offer(p, func(o order) (e events.SQSEvent) {
			for i := range copies {
				e.Records = append(e.Records, events.SQSMessage{
					MessageId: "m-" + string(rune('1'+i)), Body: encode(o), EventSource: "aws:sqs", EventSourceARN: "arn:aws:sqs:eu-west-1:123456789012:orders.fifo",
					Attributes: map[string]string{"MessageGroupId": "g-1"},
				})
			}
			return e
		}, func(g *idempotent.Guard) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
			return handler(g, take, options)
		}, func(r events.SQSEventResponse) answer { return acknowledged(len(r.BatchItemFailures)) })
	}
	switch front {
	case "SQS":
		queue(lambdabatch.SQS[order])
	case "FIFO":
		queue(lambdabatch.SQSFIFO[order])
	case "Kinesis":
		offer(p, func(o order) (e events.KinesisEvent) {
			for i := range copies {
				n := string(rune('1' + i))
				e.Records = append(e.Records, events.KinesisEventRecord{
					EventID: "shard-0:" + n, EventSourceArn: "arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
					Kinesis: events.KinesisRecord{SequenceNumber: n, PartitionKey: "a", Data: []byte(encode(o))},
				})
			}
			return e
		}, func(g *idempotent.Guard) func(context.Context, events.KinesisEvent) (events.KinesisEventResponse, error) {
			return lambdabatch.Kinesis(g, take, options)
		}, func(r events.KinesisEventResponse) answer { return acknowledged(len(r.BatchItemFailures)) })
	case "DynamoDB stream":
		changed := func(ctx context.Context, c lambdabatch.Change[order]) error { return take(ctx, *c.NewImage) }
		offer(p, func(o order) (e events.DynamoDBEvent) {
			for i := range copies {
				n := string(rune('1' + i))
				e.Records = append(e.Records, events.DynamoDBEventRecord{
					EventID: n, EventName: "INSERT", EventSourceArn: "arn:aws:dynamodb:eu-west-1:123456789012:table/orders/stream/1",
					Change: events.DynamoDBStreamRecord{SequenceNumber: n, NewImage: map[string]events.DynamoDBAttributeValue{
						"id": events.NewStringAttribute(o.ID), "amount": events.NewNumberAttribute(encode(o.Amount)),
						"numbers": events.NewListAttribute([]events.DynamoDBAttributeValue{
							events.NewNumberAttribute(encode(o.Numbers[0])), events.NewNumberAttribute(encode(o.Numbers[1])),
						}),
					}},
				})
			}
			return e
		}, func(g *idempotent.Guard) func(context.Context, events.DynamoDBEvent) (events.DynamoDBEventResponse, error) {
			return lambdabatch.DynamoDB(g, changed, options, func(o *lambdabatch.Options) {
				o.ID = lambdabatch.Field("/newImage/id")
				if o.Ref != nil {
					o.Ref = lambdabatch.Field("/newImage/numbers/1")
				}
			})
		}, func(r events.DynamoDBEventResponse) answer { return acknowledged(len(r.BatchItemFailures)) })
	case "Kafka":
		offer(p, func(o order) events.KafkaEvent {
			e := events.KafkaEvent{EventSource: "aws:kafka", EventSourceARN: "arn:aws:kafka:eu-west-1:123456789012:cluster/orders/1"}
			records := slices.Repeat([]events.KafkaRecord{{Topic: "orders", Value: base64.StdEncoding.EncodeToString([]byte(encode(o)))}}, copies)
			for i := range records {
				records[i].Offset = int64(i)
			}
			e.Records = map[string][]events.KafkaRecord{"orders-0": records}
			return e
		}, func(g *idempotent.Guard) func(context.Context, events.KafkaEvent) (lambdabatch.KafkaEventResponse, error) {
			return lambdabatch.Kafka(g, take, options)
		}, func(r lambdabatch.KafkaEventResponse) answer { return acknowledged(len(r.BatchItemFailures)) })
	}
}
