// SPDX-License-Identifier: Apache-2.0

package powertools

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/dynamostore/powertools"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit/engine"
)

var (
	seed     = flag.Uint64("seed", 0, "the seed of the requests (default: a random one, which is printed)")
	endpoint string
	tables   atomic.Int64
)

func TestMain(m *testing.M) {
	flag.Parse()
	var (
		stop func()
		err  error
	)
	if endpoint, stop, err = engine.DynamoDBLocal(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	stop()
	os.Exit(code)
}

// languages are the two packages, each with the prefix of its items.
var languages = map[powertools.Language]string{powertools.Python: "charge.app.handler", powertools.TypeScript: "charge"}

// What a request got.
const (
	done       = "done"
	inProgress = "in progress"
	mismatch   = "mismatch"
	failed     = "failed"  // before its effect
	crashed    = "crashed" // after its effect
	unknown    = "unknown"
)

// got is the answer to a request.
type got struct {
	what    string
	receipt Receipt
}

// request is one request for an order, to the old function or the new one.
type request struct {
	command
	order string
	old   bool
}

// fixture is a table with the old function in both languages and the new one, and a
// ledger of their effects.
type fixture struct {
	*testing.T
	client dynamostore.Client
	table  string
	store  *dynamostore.Store
	old    map[powertools.Language]*worker
	next   map[powertools.Language]func(context.Context, Order) (Receipt, error)
	blind  atomic.Bool  // the new function finds no item of Powertools, and writes none
	now    atomic.Int64 // how far the clock of the new function is ahead

	mu     sync.Mutex
	ledger map[string][]effect // by order
}

// effect is a payment.
type effect struct {
	receipt Receipt
	old     bool
}

type requestKey struct{}

// dead is set once a request of the new function has crashed: its writes are lost.
type dead struct{ atomic.Bool }

// mortal is a call of the new function: writes are lost for a request that has crashed.
func mortal(ctx context.Context, c *idempotenttest.StoreCall) {
	if request, ok := ctx.Value(requestKey{}).(*running); ok && c.Op == driver.OpReplace && request.dead.Load() {
		c.Err = errors.New("killed")
		return
	}
	c.Do(ctx)
}

// running is a request in the context of the new function.
type running struct {
	request
	dead dead
}

var errFailed = errors.New("failed before the effect")

// newFixture returns a fixture on a new table.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{
		T: t, client: dynamostore.NewClient(engine.Config(endpoint)), table: fmt.Sprintf("shared-%d-%d", os.Getpid(), tables.Add(1)),
		old: map[powertools.Language]*worker{}, next: map[powertools.Language]func(context.Context, Order) (Receipt, error){}, ledger: map[string][]effect{},
	}
	var err error
	if w.store, err = dynamostore.New(w.client, w.table); err == nil {
		err = w.store.CreateTable(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return time.Now().Add(time.Duration(w.now.Load())) }
	guard, err := idempotent.New(idempotenttest.Intercept(w.store, mortal), func(o *idempotent.Options) { o.Logger, o.Now = slog.New(slog.DiscardHandler), now })
	if err != nil {
		t.Fatal(err)
	}
	sharing := dynamotest.Intercept(w.client, func(ctx context.Context, c *dynamotest.Call) {
		c.Out = &dynamodb.PutItemOutput{}
		if !w.blind.Load() {
			c.Do(ctx)
		}
	})
	for l, prefix := range languages {
		w.old[l] = startWorker(t, l, "shared", endpoint, w.table, func(c command) { w.pay(orderOf(c), Receipt{c.N, c.Amount}, true) })
		if w.next[l], err = newHandler(guard, sharing, w.table, l, prefix, w.takePayment, func(o *powertools.Options) {
			o.KeyAttr, o.ExpiryAttr, o.Now = "pk", "ttl", now
		}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func orderOf(c command) string {
	var order string
	_ = json.Unmarshal(c.OrderID, &order) // the test has encoded it
	return order
}

// pay adds an effect to the ledger.
func (w *fixture) pay(order string, r Receipt, old bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ledger[order] = append(w.ledger[order], effect{r, old})
}

// takePayment is the new function.
func (w *fixture) takePayment(ctx context.Context, o Order) (Receipt, error) {
	r := ctx.Value(requestKey{}).(*running)
	if r.Mode == "fail" {
		return Receipt{}, idempotent.NotExecuted(errFailed)
	}
	receipt := Receipt{r.N, o.Amount}
	w.pay(o.OrderID, receipt, false)
	if r.Mode == "crash" {
		r.dead.Store(true)
	}
	return receipt, nil
}

// languageOf returns the language whose old function has the order.
func languageOf(order string) powertools.Language {
	if strings.HasPrefix(order, "p") {
		return powertools.Python
	}
	return powertools.TypeScript
}

// send sends a request and returns its answer.
func (w *fixture) send(r request) (g got, err error) {
	l := languageOf(r.order)
	r.OrderID, _ = json.Marshal(r.order) // a text always encodes
	if r.old {
		a, err := w.old[l].ask(r.command)
		if err != nil {
			return g, err
		}
		switch a.Error {
		case "":
			return got{what: done, receipt: g.receipt}, json.Unmarshal(a.Result, &g.receipt)
		case "IdempotencyAlreadyInProgressError":
			return got{what: inProgress}, nil
		case "IdempotencyValidationError":
			return got{what: mismatch}, nil
		case "Failed":
			return got{what: failed}, nil
		case "Killed":
			return got{what: crashed}, nil
		}
		return g, fmt.Errorf("%s of %s", a.Error, l)
	}
	at := &running{request: r}
	receipt, err := w.next[l](context.WithValue(w.Context(), requestKey{}, at), Order{r.order, r.Amount})
	switch {
	case at.dead.Load():
		return got{what: crashed}, nil
	case err == nil:
		return got{what: done, receipt: receipt}, nil
	case errors.As(err, new(*idempotent.InProgressError)):
		return got{what: inProgress}, nil
	case errors.As(err, new(*idempotent.MismatchError)):
		return got{what: mismatch}, nil
	case errors.As(err, new(*idempotent.UnresolvedError)):
		return got{what: unknown}, nil
	case errors.Is(err, errFailed):
		return got{what: failed}, nil
	}
	return g, err
}

// sent is a request with its answer.
type sent struct {
	request
	got
}

// run sends n requests, many at a time. Half of them are for new orders, the others
// repeat one of the last, at times with another amount; half go to the old function.
func (w *fixture) run(random *rand.Rand, n int, name string) []sent {
	requests := make(chan request)
	go func() {
		defer close(requests)
		var orders []request
		for i := range n {
			r := request{old: random.IntN(2) == 0}
			switch {
			case i == 0 || random.IntN(2) == 0:
				r.order = []string{"p", "t"}[random.IntN(2)] + name + strconv.Itoa(i)
				r.Amount = json.Number(strconv.Itoa(1 + random.IntN(1000)))
				orders = append(orders, r)
			default:
				r = orders[len(orders)-1-random.IntN(min(len(orders), []int{2, 200}[random.IntN(2)]))]
				r.old = random.IntN(2) == 0
				if random.IntN(10) == 0 {
					r.Amount = "1" + r.Amount
				}
			}
			r.N, r.Mode = i, []string{"crash", "fail", "fail", "ok"}[min(random.IntN(25), 3)]
			requests <- r
		}
	}()
	all := make([]sent, n)
	var senders sync.WaitGroup
	for range 16 {
		senders.Go(func() {
			for r := range requests {
				g, err := w.send(r)
				if err != nil {
					w.Errorf("request %+v: %v", r, err)
				}
				all[r.N] = sent{r, g}
			}
		})
	}
	senders.Wait()
	return all
}

// doubled returns the orders that were paid twice.
func (w *fixture) doubled() (orders []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for order, effects := range w.ledger {
		if len(effects) > 1 {
			orders = append(orders, fmt.Sprintf("%s %+v", order, effects))
		}
	}
	return orders
}

// The tests share one table and one process for each language.
func TestOneTable(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.interleaved(t)
	w.keys(t)
	w.paysTwice(t)
}

// While both functions serve one table, no order is paid twice, and every answer is
// that of the one payment. Later the new function alone answers: it honours what the
// old one did, and neither library has changed an item of the other.
func (w *fixture) interleaved(t *testing.T) {
	t.Helper()
	const n = 5000
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d", *seed)
	all := w.run(rand.New(rand.NewPCG(*seed, 1)), n, "")
	for _, order := range w.doubled() {
		t.Errorf("paid twice: %s", order)
	}

	// Every result is that of the order's payment.
	count := map[string]int{}
	ended := map[string]bool{} // orders whose payment was not a crash
	for _, r := range all {
		effects := w.ledger[r.order]
		side := map[bool]string{true: "old", false: "new"}[r.old]
		count[side+" "+r.what]++
		if r.what != done {
			continue
		}
		ended[r.order] = true
		switch {
		case len(effects) == 0 || r.receipt != effects[0].receipt || r.Amount != r.receipt.Amount:
			t.Errorf("request %+v got %+v, the payments are %+v", r.request, r.got, effects)
		case !r.old && effects[0].old:
			count["replays of old results by the new function"]++
		case r.old && !effects[0].old:
			t.Errorf("the old function replayed %+v, of the new one", r)
		}
	}
	t.Log(count)
	for what, least := range map[string]int{
		"replays of old results by the new function": 100,
		"old done": 500, "new done": 500, "old in progress": 100, "new in progress": 50,
		"old mismatch": 20, "new mismatch": 20, "old failed": 20, "new failed": 20, "old crashed": 10, "new crashed": 10,
	} {
		if count[what] < least {
			t.Errorf("%d %s, want at least %d for the test to mean something", count[what], what, least)
		}
	}
	w.undisturbed(ended)
	w.changedOver(all, ended)
	for _, order := range w.doubled() {
		t.Errorf("paid twice in the end: %s", order)
	}
}

// The test above can fail: if the new function does not share the items, orders are
// paid twice.
func (w *fixture) paysTwice(t *testing.T) {
	t.Helper()
	w.blind.Store(true)
	before := len(w.doubled())
	w.run(rand.New(rand.NewPCG(1, 2)), 400, "blind")
	if n := len(w.doubled()) - before; n < 10 {
		t.Errorf("%d orders were paid twice", n)
	}
}

// undisturbed checks every item of the table: what Powertools has completed is as
// Powertools wrote it, and once reads its records and nothing else.
func (w *fixture) undisturbed(ended map[string]bool) {
	w.Helper()
	records, items, complete := 0, 0, map[int]int{}
	for page := range w.pages() {
		for _, it := range page {
			if it["st"] != nil {
				records++
				continue
			}
			if it["part"] != nil || it["status"] == nil {
				continue
			}
			items++
			if text(it["status"]) != "COMPLETED" {
				continue
			}
			if names := slices.Sorted(maps.Keys(it)); !slices.Equal(names, []string{"data", "in_progress_expiration", "pk", "status", "ttl", "validation"}) {
				w.Errorf("an item of Powertools has the attributes %v", names)
			}
			complete[receiptOf(w.T, it["data"]).Receipt]++
		}
	}
	read := 0
	for _, err := range w.store.Scan(w.Context()) {
		if err != nil {
			w.Errorf("once cannot read a record: %v", err)
		}
		read++
	}
	want := 0
	for order, effects := range w.ledger {
		if ended[order] && effects[0].old {
			want++
			if complete[effects[0].receipt.Receipt] != 1 {
				w.Errorf("order %s: Powertools has %d items with its receipt", order, complete[effects[0].receipt.Receipt])
			}
		}
	}
	w.Logf("%d records, %d items of Powertools, %d of them completed", records, items, len(complete))
	if read != records || want < 500 || items < want {
		w.Errorf("once reads %d of %d records; Powertools has %d items, want at least %d", read, records, items, want)
	}
}

func text(v types.AttributeValue) string {
	s, _ := v.(*types.AttributeValueMemberS)
	return s.Value
}

// receiptOf reads the result of an item in the form of its language.
func receiptOf(t *testing.T, v types.AttributeValue) (r Receipt) {
	t.Helper()
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		if err := json.Unmarshal([]byte(v.Value), &r); err != nil {
			t.Error(err)
		}
	case *types.AttributeValueMemberM:
		n, _ := v.Value["receipt"].(*types.AttributeValueMemberN)
		r.Receipt, _ = strconv.Atoi(n.Value)
	default:
		t.Errorf("a result is a %T", v)
	}
	return r
}

// pages yields the items of the table.
func (w *fixture) pages() func(func([]map[string]types.AttributeValue) bool) {
	return func(yield func([]map[string]types.AttributeValue) bool) {
		p := dynamodb.NewScanPaginator(w.client, &dynamodb.ScanInput{TableName: aws.String(w.table)})
		for p.HasMorePages() {
			out, err := p.NextPage(w.Context())
			if err != nil {
				w.Fatal(err)
			}
			if !yield(out.Items) {
				return
			}
		}
	}
}

// changedOver repeats every order with its first amount when the old function has
// ended: its running executions would have been killed 20 minutes ago.
func (w *fixture) changedOver(all []sent, ended map[string]bool) {
	w.Helper()
	w.now.Store(int64(20 * time.Minute))
	count := map[string]int{}
	seen := map[string]bool{}
	for _, r := range all {
		if seen[r.order] {
			continue
		}
		seen[r.order] = true
		effects := slices.Clone(w.ledger[r.order])
		again := r.request
		again.old, again.N, again.Mode = false, r.N+len(all), "ok"
		if len(effects) > 0 {
			again.Amount = effects[0].receipt.Amount
		}
		g, err := w.send(again)
		if err != nil {
			w.Errorf("%+v: %v", again, err)
			continue
		}
		what, want := "not paid: runs", got{done, Receipt{again.N, again.Amount}}
		switch {
		case ended[r.order]:
			what, want = "paid: replayed", got{done, effects[0].receipt}
		case len(effects) > 0:
			what, want = "crashed: unknown", got{what: unknown}
		case g.what == mismatch:
			what, want = "not paid, bound to another amount", got{what: mismatch} // by a failed request of the new function
		}
		count[what]++
		if g != want {
			w.Errorf("%s: %+v got %+v, want %+v; payments %+v", what, again, g, want, effects)
		}
	}
	w.Log(count)
	if count["paid: replayed"] < 1500 || count["crashed: unknown"] < 20 || count["not paid: runs"] < 20 {
		w.Errorf("too little was tried: %v", count)
	}
}
