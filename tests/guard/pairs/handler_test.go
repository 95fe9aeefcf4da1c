// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/lambdahttp"
)

// order is a request. Another order has another amount.
type order struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
}

// receipt is a result.
type receipt struct {
	Charge string `json:"charge"`
	Lines  string `json:"lines"`
}

// world is the handler of a row, with what it works on.
type world struct {
	*idempotenttest.World
	row   row
	bank  kit.Provider
	db    dynamostore.Client // nil: the store is in memory
	lines string             // of each receipt
}

const operation = "charge"

// explore adds the handler of a row, and what the row promises.
func (r row) explore(w *idempotenttest.World) {
	p := &world{World: w, row: r}
	w.Provider(&p.bank)
	w.GuardOptions(p.guard)
	p.lines = strings.Repeat("0123456789abcdef", map[string]int{"small": 1, "5 KB": 320, "500 KB": 32_000}[r["result"]])
	tables := []string{"orders", "chunks"}
	switch r["store"] {
	case "DynamoDB":
		p.db = dynamotest.In(w, "once", tables)
	case "chunk table":
		p.db = dynamotest.In(w, "once", tables, func(o *dynamostore.Options) { o.ChunkTable = "chunks" })
	case "prefix":
		p.db = dynamotest.In(w, "once", tables, func(o *dynamostore.Options) { o.Prefix = "once/" })
	case "strong":
		p.db = dynamotest.In(w, "once", tables, func(o *dynamostore.Options) { o.Consistency = dynamostore.Strong })
	}
	effects := p.bank.Charges
	if r["effect"] == "Commit" || r["effect"] == "CommitStep" {
		effects = p.orders
	}
	switch r.promise() {
	case exactlyOnce:
		w.ExactlyOnce("effect", effects)
	case atMostOnce:
		w.AtMostOnce("effect", effects)
	case atLeastOnce:
		w.AtLeastOnce("effect", effects)
	}
	if r["resolver"] != "none" {
		w.Reconciler(func(g *idempotent.Guard) func(context.Context) (idempotent.Report, error) {
			return idempotent.Reconciler(g, map[string]idempotent.ResolveFunc{operation: p.resolve})
		})
	}
	p.front()
}

// orders counts the orders in the table.
func (p *world) orders() int {
	out, err := p.db.Scan(context.Background(), &dynamodb.ScanInput{TableName: aws.String("orders")})
	if err != nil {
		panic(err)
	}
	return len(out.Items)
}

// options sets what the row says of the operation.
func (p *world) options(o *idempotent.Options) {
	r := p.row
	o.Recovery = map[string]idempotent.Recovery{"Reconcile": idempotent.Reconcile, "Resume": idempotent.Resume, "Rerun": idempotent.Rerun}[r["recovery"]]
	if o.Recovery == idempotent.Resume {
		o.Steps = []string{"charge"}
	}
	if r["wait"] == "5 s" {
		o.WaitFor = 5 * time.Second
	}
	if r["predecessor"] == "asked" {
		o.Predecessor = func(ctx context.Context, _ idempotent.Key) (any, bool, error) {
			return nil, false, p.Do(ctx, "the earlier table", func() error { return nil })
		}
	}
	if r["margin"] == "20 s" {
		o.LeaseMargin = 20 * time.Second
	}
	if r["retention"] == "30 days" {
		o.Retention = 30 * 24 * time.Hour
	}
	if r["unresolved"] == "48 h" {
		o.UnresolvedRetention = 48 * time.Hour
	}
	if r["downstream"] == "1 h" {
		o.DownstreamRetention = time.Hour
	}
	if r["version"] == "v2" {
		o.ResultVersion = "v2"
	}
}

// guard sets what the row says of each guard, that of the reconciler too.
func (p *world) guard(o *idempotent.Options) {
	if p.row["codec"] == "own" {
		o.Codec = gobCodec{}
	}
	if p.row["seal"] == "own" {
		o.Seal = mirror{}
	}
	if p.row["cache"] == "entries" {
		o.CacheEntries = 10
	}
}

// take is the handler.
func (p *world) take(ctx context.Context, o order) (receipt, error) {
	done := receipt{"ch_1", p.lines}
	switch p.row["effect"] {
	case "step", "once":
		return idempotent.Step(ctx, "charge", func(ctx context.Context) (receipt, error) { return done, p.charge(ctx) },
			func(o *idempotent.StepOptions) { o.AtMostOnce = p.row["effect"] == "once" })
	case "Commit":
		return done, dynamostore.Commit(ctx, p.result(done), p.put(o))
	case "CommitStep":
		return dynamostore.CommitStep(ctx, "charge", done, p.put(o))
	}
	return done, p.charge(ctx)
}

// put writes an order. A second one has another key, so that it is counted.
func (p *world) put(o order) types.TransactWriteItem {
	key := fmt.Sprint(o.ID, "/", p.orders())
	return types.TransactWriteItem{Put: &types.Put{TableName: aws.String("orders"), Item: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: key}}}}
}

func (p *world) charge(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://bank.test/charges", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	header := "Reference"
	if p.row["provider"] == "keys" {
		header = "Idempotency-Key"
	}
	req.Header.Set(header, idempotent.DownstreamKey(ctx))
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		return fmt.Errorf("the bank answered %s", answer.Status)
	}
	return nil
}

// resolve asks for the effect of a record.
func (p *world) resolve(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
	happened, key := false, r.ID.DownstreamKey()
	switch p.row["effect"] {
	case "Commit", "CommitStep":
		err := p.Do(ctx, "look for the order", func() error {
			happened = p.orders() > 0
			return nil
		})
		if err != nil {
			return idempotent.Resolution{}, err
		}
	case "step", "once":
		key = r.ID.StepKey("charge")
		fallthrough
	default:
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://bank.test/charges?idempotency_key="+key, nil)
		if err != nil {
			return idempotent.Resolution{}, err
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			return idempotent.Resolution{}, err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusNotFound {
			return idempotent.Resolution{}, fmt.Errorf("the bank answered %s", answer.Status)
		}
		happened = answer.StatusCode == http.StatusOK
	}
	done := receipt{"ch_1", p.lines}
	switch {
	case !happened:
		return idempotent.ProvenNotExecuted(r.Token), nil
	case p.row["resolver"] == "asks about the step":
		return idempotent.ResolvedStep("charge", done), nil
	}
	switch p.row["front"] {
	case "IETF", "Stripe", "UUID":
		return lambdahttp.JSON[order, receipt]{}.Resolved(done)
	}
	return idempotent.Resolved(p.result(done)), nil
}

// result is what the front stores of a receipt.
func (p *world) result(done receipt) any {
	switch p.row["front"] {
	case "IETF", "Stripe", "UUID":
		response, err := lambdahttp.JSON[order, receipt]{}.Response(done)
		if err != nil {
			panic(err)
		}
		return response
	case "SQS", "FIFO", "Kinesis":
		return struct{}{}
	}
	return done
}

// front adds the handler to the world, with two orders that have one key.
func (p *world) front() {
	orders := []order{{"8e03978e-40d5-43e8-bc93-6894a57f9324", 10}, {"8e03978e-40d5-43e8-bc93-6894a57f9324", 99}}
	key := idempotent.KeyFrom(operation, func(o order) (scope, id string) { return "acme", o.ID })
	http := func(profile lambdahttp.Profile) {
		var requests []events.APIGatewayV2HTTPRequest
		for _, o := range orders {
			var r events.APIGatewayV2HTTPRequest
			r.RequestContext.HTTP.Method, r.RawPath, r.Body = "POST", "/charges", encode(o)
			r.Headers = map[string]string{"idempotency-key": o.ID, "content-type": "application/json"}
			if p.row["front"] == "IETF" {
				r.Headers["idempotency-key"] = `"` + o.ID + `"`
			}
			requests = append(requests, r)
		}
		idempotenttest.Handle(p.World, requests[0], func(g *idempotent.Guard) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
			return lambdahttp.JSON[order, receipt]{Handle: p.take}.APIGatewayV2(g, func(o *lambdahttp.Options) {
				o.Profile, o.Scope, o.Guard = profile, lambdahttp.SingleTenant, p.options
				o.Operation = func(*lambdahttp.Request) string { return operation }
			})
		}, requests[1])
	}
	batch := func(o *lambdabatch.Options) {
		o.Operation, o.ID, o.Guard = operation, lambdabatch.Field("/id"), p.options
	}
	take := func(ctx context.Context, o order) error {
		_, err := p.take(ctx, o)
		return err
	}
	queue := func(handler func(*idempotent.Guard, func(context.Context, order) error, ...func(*lambdabatch.Options)) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error)) {
		var messages []events.SQSEvent
		for _, o := range orders {
			messages = append(messages, events.SQSEvent{Records: []events.SQSMessage{{
				MessageId: "m-1", Body: encode(o), EventSource: "aws:sqs", EventSourceARN: "arn:aws:sqs:eu-west-1:123456789012:orders.fifo",
				Attributes: map[string]string{"MessageGroupId": "g-1"},
			}}})
		}
		idempotenttest.Handle(p.World, messages[0], func(g *idempotent.Guard) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
			return handler(g, take, batch)
		}, messages[1])
	}
	switch p.row["front"] {
	case "Wrap":
		idempotenttest.Handle(p.World, orders[0], func(g *idempotent.Guard) func(context.Context, order) (receipt, error) {
			return idempotent.Wrap(g, key, p.take, p.options)
		}, orders[1])
	case "Do":
		idempotenttest.Handle(p.World, orders[0], func(g *idempotent.Guard) func(context.Context, order) (receipt, error) {
			return func(ctx context.Context, o order) (receipt, error) {
				k, err := key(ctx, o)
				if err != nil {
					return receipt{}, err
				}
				if k.Fingerprint, err = idempotent.FingerprintOf(o); err != nil {
					return receipt{}, err
				}
				return idempotent.Do(ctx, g, k, func(ctx context.Context) (receipt, error) { return p.take(ctx, o) }, p.options)
			}
		}, orders[1])
	case "IETF":
		http(lambdahttp.IETF)
	case "Stripe":
		http(lambdahttp.Stripe)
	case "UUID":
		http(lambdahttp.UUID)
	case "SQS":
		queue(lambdabatch.SQS[order])
	case "FIFO":
		queue(lambdabatch.SQSFIFO[order])
	case "Kinesis":
		var records []events.KinesisEvent
		for _, o := range orders {
			records = append(records, events.KinesisEvent{Records: []events.KinesisEventRecord{{
				EventID: "shard-0:1", EventSourceArn: "arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
				Kinesis: events.KinesisRecord{SequenceNumber: "1", PartitionKey: "a", Data: []byte(encode(o))},
			}}})
		}
		idempotenttest.Handle(p.World, records[0], func(g *idempotent.Guard) func(context.Context, events.KinesisEvent) (events.KinesisEventResponse, error) {
			return lambdabatch.Kinesis(g, take, batch)
		}, records[1])
	}
}

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// gobCodec is a codec of a user.
type gobCodec struct{}

func (gobCodec) Name() string { return "gob" }

func (gobCodec) Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}

func (gobCodec) Decode(data []byte, v any) error {
	return gob.NewDecoder(bytes.NewReader(data)).Decode(v)
}

// mirror seals by writing the bytes backwards, after those that they are bound to.
type mirror struct{}

func (mirror) Seal(_ context.Context, plain, bound []byte) ([]byte, error) {
	return append(bytes.Clone(bound), backwards(plain)...), nil
}

func (mirror) Open(_ context.Context, sealed, bound []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(sealed, bound)
	if !ok {
		return nil, idempotent.ErrSealBroken
	}
	return backwards(rest), nil
}

func backwards(b []byte) []byte {
	out := make([]byte, len(b))
	for i, c := range b {
		out[len(b)-1-i] = c
	}
	return out
}
