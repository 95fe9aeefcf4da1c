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
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdahttp"
)

// order is a request. Another order has another amount.
type order struct {
	ID      string   `json:"id"`
	Amount  int      `json:"amount"`
	Numbers []uint64 `json:"numbers"`
}

// receipt is a result.
type receipt struct {
	Charge string `json:"charge"`
	Lines  string `json:"lines"`
}

// world is the handler of a row, with what it works on.
type world struct {
	row    row
	orders [2]order // with one key
	lines  string   // of each receipt
	bank   kit.Provider
	http   *http.Client       // of the bank
	db     dynamostore.Client // nil: the store is in memory
	book   string             // the table of the orders
	runs   atomic.Int32       // of the handler
	record atomic.Value       // an idempotent.RecordID, once a run of the handler was guarded

	// point makes a call at which the process can end. The name stands in the story.
	point func(ctx context.Context, name string, call func() error) error
	// explored is the world of Explore, which gets the handler. Otherwise send does: it
	// returns the handler of one process, which takes one of the orders.
	explored *idempotenttest.World
	send     func(*idempotent.Guard) func(context.Context, int) answer
}

// answer is what a caller gets.
type answer struct {
	ok   bool
	text string
}

const operation = "charge"

func (r row) world() *world {
	const id = "8e03978e-40d5-43e8-bc93-6894a57f9324"
	numbers := []uint64{17, 9007199254740993123} // which no float64 holds
	return &world{
		row: r, orders: [2]order{{id, 10, numbers}, {id, 99, numbers}}, book: "orders",
		lines: strings.Repeat("0123456789abcdef", map[string]int{"small": 1, "5 KB": 320, "500 KB": 32_000}[r["result"]]),
	}
}

// explore adds the handler of a row, and what the row promises.
func (r row) explore(w *idempotenttest.World) {
	p := r.world()
	p.explored, p.point, p.http = w, w.Do, http.DefaultClient
	w.Provider(&p.bank)
	w.GuardOptions(p.guard)
	if r["store"] != "memory" {
		p.db = dynamotest.In(w, "once", []string{p.book, "chunks"}, p.layout("chunks"))
	}
	switch r.promise() {
	case exactlyOnce:
		w.ExactlyOnce("effect", p.effects)
	case atMostOnce:
		w.AtMostOnce("effect", p.effects)
	case atLeastOnce:
		w.AtLeastOnce("effect", p.effects)
	}
	if r["resolver"] != "none" {
		w.Reconciler(p.reconciler)
	}
	p.front()
}

// layout sets what the row says of the store on DynamoDB.
func (p *world) layout(chunks string) func(*dynamostore.Options) {
	return func(o *dynamostore.Options) {
		switch p.row["store"] {
		case "chunk table":
			o.ChunkTable = chunks
		case "prefix":
			o.Prefix = "once/"
		case "strong":
			o.Consistency = dynamostore.Strong
		}
	}
}

func (p *world) reconciler(g *idempotent.Guard) func(context.Context) (idempotent.Report, error) {
	return idempotent.Reconciler(g, map[string]idempotent.ResolveFunc{operation: p.resolve})
}

// effects counts the charges, or the orders in the table.
func (p *world) effects() int {
	if e := p.row["effect"]; e != "Commit" && e != "CommitStep" {
		return p.bank.Charges()
	}
	out, err := p.db.Scan(context.Background(), &dynamodb.ScanInput{TableName: aws.String(p.book)})
	if err != nil {
		panic(err)
	}
	return len(out.Items)
}

// own sets what the row says of the operation, unless the guard says it.
func (p *world) own(o *idempotent.Operation) {
	if p.row["level"] == "operation" {
		p.options(o)
	}
}

// options sets what the row says of the operation.
func (p *world) options(o *idempotent.Operation) {
	r := p.row
	o.Recovery = map[string]idempotent.Recovery{"Reconcile": idempotent.Reconcile, "Resume": idempotent.Resume, "Rerun": idempotent.Rerun}[r["recovery"]]
	if o.Recovery == idempotent.Resume {
		o.Steps = []string{"charge"}
	}
	if r["wait"] == "5 s" && p.explored != nil { // a clock that stands still would wait without limit
		o.WaitFor = 5 * time.Second
	}
	if r["predecessor"] == "asked" {
		o.Predecessor = func(ctx context.Context, _ idempotent.Key) (any, bool, error) {
			return nil, false, p.point(ctx, "the earlier table", func() error { return nil })
		}
	}
	if r["margin"] == "20 s" {
		o.LeaseMargin = 20 * time.Second
	}
	if r["reserve"] == "5 s" {
		o.DeadlineReserve = 5 * time.Second
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
	if p.row["level"] == "guard" {
		p.options(&o.Operation)
	}
}

// take is the handler.
func (p *world) take(ctx context.Context, o order) (receipt, error) {
	p.runs.Add(1)
	if e, ok := idempotent.FromContext(ctx); ok {
		p.record.Store(e.RecordID())
	}
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
	key := fmt.Sprint(o.ID, "/", p.effects())
	return types.TransactWriteItem{Put: &types.Put{TableName: aws.String(p.book), Item: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: key}}}}
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
	answer, err := p.http.Do(req)
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
		err := p.point(ctx, "look for the order", func() error {
			happened = p.effects() > 0
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
		answer, err := p.http.Do(req)
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
	return p.evidence(done)
}

// evidence says that the work was done.
func (p *world) evidence(done receipt) (idempotent.Resolution, error) {
	if p.row.overHTTP() {
		return lambdahttp.JSON[order, receipt]{}.Resolved(done)
	}
	return idempotent.Resolved(p.result(done)), nil
}

// result is what the front stores of a receipt.
func (p *world) result(done receipt) any {
	switch {
	case p.row.overHTTP():
		response, err := lambdahttp.JSON[order, receipt]{}.Response(done)
		if err != nil {
			panic(err)
		}
		return response
	case p.row.inBatches():
		return struct{}{}
	}
	return done
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
