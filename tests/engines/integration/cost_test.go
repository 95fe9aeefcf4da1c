// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/internal/faults"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/internal/tabledef"
)

var update = flag.Bool("update", false, "write the generated parts of the documents")

// customer sends requests of one key and measures what they consumed. It has its
// own table, so that the additional items of a meter disturb no other test.
type customer struct {
	t        *testing.T
	db       *database
	recovery idempotent.Recovery
	key      idempotent.Key
	clock    *idempotenttest.Clock
	meter    *meter
	options  func(*dynamostore.Options) // of the store
	out      idempotent.Outcome[[]byte] // of the last request
	err      error
}

func (c *customer) guard(client dynamostore.Client, optFns ...func(*idempotent.Options)) *idempotent.Guard {
	c.t.Helper()
	store, err := dynamostore.New(client, c.db.table, c.db.layout, func(o *dynamostore.Options) {
		if c.options != nil {
			c.options(o)
		}
	})
	if err != nil {
		c.t.Fatal(err)
	}
	g, err := idempotent.New(store, append(optFns, func(o *idempotent.Options) {
		o.Recovery, o.Now, o.Codec = c.recovery, c.clock.Now, raw{}
		if o.Recovery == idempotent.Resume {
			o.Steps = []string{"step"}
		}
	})...)
	if err != nil {
		c.t.Fatal(err)
	}
	return g
}

// patience is the time of a request: enough for 6 MB on a busy machine.
const patience = 5 * time.Minute

func (c *customer) do(g *idempotent.Guard, h handler) (idempotent.Outcome[[]byte], error) {
	return idempotent.DoOutcome(c.clock.Invocation(c.t.Context(), patience), g, c.key, h)
}

// through sends a request through g and returns its cost.
func (c *customer) through(g *idempotent.Guard, h handler) cost {
	before := c.meter.total()
	c.out, c.err = c.do(g, h)
	return c.meter.total().minus(before)
}

func (c *customer) send(h handler) cost { return c.through(c.guard(c.meter), h) }

// earlier sends a request whose cost is not counted.
func (c *customer) earlier(h handler) { c.do(c.guard(c.db.client()), h) }

// crash creates a record whose owner never reported, with an expired lease.
func (c *customer) crash() {
	c.die()
	c.clock.Advance(2 * patience)
}

// die sends a request whose owner is dead after the claim.
func (c *customer) die() {
	calls := 0
	c.do(c.guard(dynamotest.Intercept(c.db.client(), func(ctx context.Context, call *dynamotest.Call) {
		if calls++; calls == 1 {
			call.Do(ctx)
		} else {
			call.Err = faults.ErrInjected
		}
	})), returns(small))
}

// announces sends a request whose handler returns when it has announced its run. If it
// is killed then, it writes nothing more.
func (c *customer) announces(client dynamostore.Client, killed bool) (idempotent.Outcome[[]byte], error) {
	calls, announced := 0, make(chan struct{})
	client = dynamotest.Intercept(client, func(ctx context.Context, call *dynamotest.Call) {
		if calls++; calls > 2 && killed {
			call.Err = faults.ErrInjected
			return
		}
		call.Do(ctx)
		if calls == 2 {
			close(announced)
		}
	})
	return idempotent.DoOutcome(c.clock.Invocation(c.t.Context(), 600*time.Millisecond), c.guard(client), c.key, func(context.Context) ([]byte, error) {
		<-announced
		return noise(small), nil
	})
}

type handler = func(context.Context) ([]byte, error)

// The results. small is stored in the record, and 4 KB is the most that is. No
// result can be compressed.
const (
	small  = 16
	inline = 4 << 10
	large  = 300 << 10
	most   = 6 << 20 // the most that Lambda returns
)

func returns(size int) handler {
	return func(context.Context) ([]byte, error) { return noise(size), nil }
}

func fails(err error) handler { return func(context.Context) ([]byte, error) { return nil, err } }

var (
	errBusy   = idempotent.NotExecuted(errors.New("busy"))
	errSilent = idempotent.Unknown(errors.New("no reply"))
)

// noise returns bytes that cannot be compressed, the same ones every time.
func noise(size int) []byte {
	data := make([]byte, size)
	mathrand.NewChaCha8([32]byte{}).Read(data)
	return data
}

// raw is a codec for bytes.
type raw struct{}

func (raw) Name() string                    { return "raw" }
func (raw) Encode(v any) ([]byte, error)    { return v.([]byte), nil }
func (raw) Decode(data []byte, v any) error { *v.(*[]byte) = data; return nil }

// The expected end of a request: the cost of another path would be meaningless.
func ran(c *customer) bool      { return c.err == nil && !c.out.Replayed && c.out.Stored }
func replayed(c *customer) bool { return c.err == nil && c.out.Replayed && len(c.out.Value) > 0 }

func endsWith(err error) func(*customer) bool {
	return func(c *customer) bool { return errtype.Matches(c.err, err) }
}

var (
	rerun     = []idempotent.Recovery{idempotent.Rerun}
	reconcile = []idempotent.Recovery{idempotent.Reconcile}
	either    = []idempotent.Recovery{idempotent.Rerun, idempotent.Reconcile}
	every     = []idempotent.Recovery{idempotent.Rerun, idempotent.Reconcile, idempotent.Resume}
	unless    = []idempotent.Recovery{idempotent.Reconcile, idempotent.Resume}
	resume    = []idempotent.Recovery{idempotent.Resume}
)

type price struct {
	request  string
	declared []idempotent.Recovery
	take     func(*customer) cost
	ended    func(*customer) bool
}

// prices are the rows of the table in docs/reports/cost.md. If a row is for either
// promise, both cost the same.
var prices = []price{
	{"first request", every, func(c *customer) cost { return c.send(returns(small)) }, ran},
	{"first request that announces itself, because it runs until its deadline", unless, func(c *customer) cost {
		before := c.meter.total()
		c.out, c.err = c.announces(c.meter, false)
		return c.meter.total().minus(before)
	}, ran},
	{"first request that ends unknown", every, func(c *customer) cost { return c.send(fails(errSilent)) }, endsWith(errSilent)},
	{"replay", either, func(c *customer) cost {
		c.earlier(returns(small))
		return c.send(returns(small))
	}, replayed},
	{"replay from the local cache (`CacheEntries`)", either, func(c *customer) cost {
		g := c.guard(c.meter, func(o *idempotent.Options) { o.CacheEntries = 1 })
		c.through(g, returns(small))
		return c.through(g, returns(small))
	}, replayed},
	{"refused: in progress", either, func(c *customer) (took cost) {
		c.earlier(func(context.Context) ([]byte, error) {
			took = c.send(returns(small))
			return nil, nil
		})
		return took
	}, endsWith(new(idempotent.InProgressError))},
	{"each read while waiting (`WaitFor`)", either, func(c *customer) (look cost) {
		c.earlier(func(context.Context) ([]byte, error) {
			c.through(c.guard(c.meter, func(o *idempotent.Options) { o.WaitFor = 500 * time.Millisecond }), returns(small))
			look = c.meter.spent["GetItem"].each()
			return nil, nil
		})
		return look
	}, endsWith(new(idempotent.InProgressError))},
	{"refused: key used by another request", either, func(c *customer) cost {
		c.earlier(returns(small))
		c.key.Fingerprint = idempotent.FingerprintBytes([]byte("another"))
		return c.send(returns(small))
	}, endsWith(new(idempotent.MismatchError))},
	{"refused: outcome unknown", either, func(c *customer) cost {
		c.earlier(fails(errSilent))
		return c.send(returns(small))
	}, endsWith(new(idempotent.UnresolvedError))},
	{"takeover of a retryable record", every, afterBusy, ran},
	{"takeover after an ended lease", rerun, afterCrash, ran},
	{"ended lease marked unknown, and refused", reconcile, afterCrash, endsWith(new(idempotent.UnresolvedError))},
	{"first request, result of 4 KB", rerun, func(c *customer) cost { return c.send(returns(inline)) }, ran},
	{"replay of 4 KB", either, replayOf(inline), replayed},
	{"first request, result of 300 KB", rerun, func(c *customer) cost { return c.send(returns(large)) }, ran},
	{"replay of 300 KB", either, replayOf(large), replayed},
	{"first request, result of 6 MB", rerun, func(c *customer) cost { return c.send(returns(most)) }, ran},
	{"replay of 6 MB", rerun, replayOf(most), replayed},
	{"each `Step`, while the record has less than 1 KB", resume, within(func(ctx context.Context, _ *customer) error {
		_, err := idempotent.Step(ctx, "step", returns(small))
		return err
	}), ran},
	{"each `Step` that is replayed", resume, func(c *customer) cost {
		c.earlier(func(ctx context.Context) ([]byte, error) {
			if _, err := idempotent.Step(ctx, "step", returns(small)); err != nil {
				return nil, err
			}
			return nil, errors.New("no reply") // retryable under Resume
		})
		return within(func(ctx context.Context, _ *customer) error {
			_, err := idempotent.Step(ctx, "step", returns(most)) // the function does not run
			return err
		})(c)
	}, ran},
	{"each `Step`, `AtMostOnce`, while the record has less than 1 KB", resume, within(func(ctx context.Context, _ *customer) error {
		_, err := idempotent.Step(ctx, "step", returns(small), func(o *idempotent.StepOptions) { o.AtMostOnce = true })
		return err
	}), ran},
	{"each `CommitStep` with one item", resume, within(func(ctx context.Context, c *customer) error {
		_, err := dynamostore.CommitStep(ctx, "step", "done", c.order())
		return err
	}), ran},
	{"first request, `Commit` with one item", every, committing, ran},
	{"a run of `Reconciler`, nothing due", reconcile, func(c *customer) cost {
		c.db = local.created(c.t)
		c.reconciles(nothingDue, 0) // scans
		return c.reconciles(nothingDue, 0)
	}, func(*customer) bool { return true }},
	{"and if it scans, besides what it reads", reconcile, func(c *customer) cost {
		c.db = local.created(c.t)
		scanning := c.reconciles(nothingDue, 0)
		return scanning.minus(c.reconciles(nothingDue, 0)).minus(c.meter.spent["Scan"])
	}, func(*customer) bool { return true }},
	{"and each abandoned run that the scan finds", reconcile, func(c *customer) cost {
		c.db = local.created(c.t)
		c.options = func(o *dynamostore.Options) { o.ScanEvery = time.Millisecond }
		nothing := c.reconciles(nothingDue, 0)
		c.crash()
		took := c.reconciles(nothingDue, 1).minus(nothing)
		c.through(c.guard(c.db.client()), returns(small))
		return took
	}, endsWith(new(idempotent.UnresolvedError))},
	{"and each unknown record that it resolves", reconcile, func(c *customer) cost {
		return c.aRecord(idempotent.Resolved([]byte("found")), func(c *customer) { c.earlier(fails(errSilent)) })
	}, replayed},
	{"and each record that it resolves later", reconcile, func(c *customer) cost {
		return c.aRecord(idempotent.Later(time.Hour), func(c *customer) { c.earlier(fails(errSilent)) })
	}, endsWith(new(idempotent.UnresolvedError))},
	{"and each announced run that it resolves", reconcile, func(c *customer) cost {
		return c.aRecord(idempotent.Resolved([]byte("found")), func(c *customer) {
			c.announces(c.db.client(), true)
			c.clock.Advance(2 * patience)
		})
	}, replayed},
}

// within returns the cost of a part of a handler.
func within(part func(context.Context, *customer) error) func(*customer) cost {
	return func(c *customer) (took cost) {
		c.send(func(ctx context.Context) ([]byte, error) {
			before := c.meter.total()
			err := part(ctx, c)
			took = c.meter.total().minus(before)
			return noise(small), err
		})
		return took
	}
}

// order is an item of less than 1 KB in the store's own table.
func (c *customer) order() types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{
		TableName: &c.db.table, Item: account{c.db, "order-" + rand.Text()}.key(),
	}}
}

func committing(c *customer) cost {
	return c.send(func(ctx context.Context) ([]byte, error) {
		return noise(small), dynamostore.Commit(ctx, noise(small), c.order())
	})
}

// reconciles returns the cost of a run of the reconciler, which must find the
// given number of records.
func (c *customer) reconciles(resolve idempotent.ResolveFunc, due int) cost {
	c.t.Helper()
	c.clock.Advance(2 * patience)
	before := c.meter.total()
	report, err := kit.Reconcile(c.t.Context(), c.guard(c.meter), resolve)
	if err != nil || report.Due != due {
		c.t.Errorf("the reconciler found %s, %v; want %d", report, err, due)
	}
	return c.meter.total().minus(before)
}

func nothingDue(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
	panic("nothing is due")
}

// aRecord returns what the reconciler consumes for a record that leave creates,
// beyond what it consumes for nothing.
func (c *customer) aRecord(answer idempotent.Resolution, leave func(*customer)) cost {
	c.db = local.created(c.t)
	if c.options == nil {
		c.options = func(o *dynamostore.Options) { o.ScanEvery = -1 }
	}
	resolve := func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) { return answer, nil }
	nothing := c.reconciles(resolve, 0)
	leave(c)
	took := c.reconciles(resolve, 1).minus(nothing)
	c.through(c.guard(c.db.client()), returns(small))
	return took
}

func afterBusy(c *customer) cost {
	c.earlier(fails(errBusy))
	return c.send(returns(small))
}

func afterCrash(c *customer) cost {
	c.crash()
	return c.send(returns(small))
}

func replayOf(size int) func(*customer) cost {
	return func(c *customer) cost {
		c.earlier(returns(size))
		return c.send(returns(size))
	}
}

// onThePage are the rows that docs/cost.md repeats.
var onThePage = []string{
	"first request",
	"first request that ends unknown",
	"replay",
	"replay from the local cache (`CacheEntries`)",
	"takeover of a retryable record",
	"first request, result of 4 KB",
	"replay of 4 KB",
	"each `Step`, while the record has less than 1 KB",
	"first request, `Commit` with one item",
	"a run of `Reconciler`, nothing due",
	"and each unknown record that it resolves",
}

// The tables of docs/reports/cost.md and docs/cost.md contain what the engine reports.
func TestCost(t *testing.T) {
	t.Parallel()
	db := local.created(t)
	var table, page strings.Builder
	table.WriteString("| request | declared | calls | write units | on the index | read units | $ per million |\n| --- | --- | --: | --: | --: | --: | --: |\n")
	page.WriteString(table.String())
	for _, p := range prices {
		var took cost
		for i, recovery := range p.declared {
			c := &customer{t: t, db: db, recovery: recovery, key: newKey(), clock: &idempotenttest.Clock{}, meter: newMeter(db.client())}
			got := p.take(c)
			if !p.ended(c) {
				t.Errorf("%s, %s: it ended with %+v and error %v", p.request, recovery, c.out.Replayed, c.err)
			}
			if i > 0 && got != took {
				t.Errorf("%s: %+v under %s and %+v under %s", p.request, took, p.declared[0], got, recovery)
			}
			took = got
		}
		row := fmt.Sprintf("| %s | %s | %d | %g | %g | %g | %.3f |\n", p.request, declared(p.declared), took.calls, took.writes, took.indexes, took.reads, took.dollars())
		table.WriteString(row)
		if slices.Contains(onThePage, p.request) {
			page.WriteString(row)
		}
	}
	docs := filepath.Join(engine.Root(), "docs")
	kit.Part(t, filepath.Join(docs, "reports", "cost.md"), "cost", table.String(), *update)
	kit.Part(t, filepath.Join(docs, "cost.md"), "cost", page.String(), *update)
}

// In a table of other items a request costs what it costs in a separate table. An
// index of the user with the keys of the table in another order contains records
// and chunks, too; the one here projects only keys. The capacity of batches includes
// it, and that of a transaction the user's item in it.
func TestCostOfASharedTable(t *testing.T) {
	t.Parallel()
	db := local.ownTable(t)
	db.shared = true
	engine.CreateShared(t, db.client(), db.table)
	for name, want := range map[string]cost{
		"first request":                         {calls: 2, writes: 2, indexes: 1},
		"first request that ends unknown":       {calls: 2, writes: 2, indexes: 2},
		"replay":                                {calls: 1, writes: 1},
		"takeover of a retryable record":        {calls: 3, writes: 3},
		"first request, result of 300 KB":       {calls: 3, writes: 304, indexes: 1},
		"replay of 300 KB":                      {calls: 2, writes: 1, reads: 76},
		"first request, `Commit` with one item": {calls: 2, writes: 5, indexes: 3},
	} {
		i := slices.IndexFunc(prices, func(p price) bool { return p.request == name })
		c := &customer{t: t, db: db, recovery: prices[i].declared[0], key: newKey(), clock: &idempotenttest.Clock{}, meter: newMeter(db.client())}
		if got := prices[i].take(c); got != want || !prices[i].ended(c) {
			t.Errorf("%s: %+v, want %+v (%v)", name, got, want, c.err)
		}
	}
}

func declared(r []idempotent.Recovery) string {
	switch len(r) {
	case len(every):
		return "any"
	case len(either):
		if r[0] == idempotent.Reconcile {
			return "`Reconcile`, `Resume`"
		}
		return "either"
	}
	return fmt.Sprintf("`%s`", map[idempotent.Recovery]string{idempotent.Rerun: "Rerun", idempotent.Reconcile: "Reconcile", idempotent.Resume: "Resume"}[r[0]])
}

// G09, FM58: in a storm of duplicates of a key with a result of 300 KB, each
// costs one write unit: a refused write is billed by the size of the record,
// and the result is stored beside it.
func TestDuplicateStorm(t *testing.T) {
	t.Parallel()
	const duplicates, senders = 10_000, 8
	db := local.created(t)
	// 3 GB of chunks through JSON would take minutes and add nothing about write units,
	// so most reads get the last reply.
	var asked, forwarded atomic.Int64
	var reply atomic.Pointer[dynamodb.BatchGetItemOutput]
	client := dynamotest.Intercept(db.client(), func(ctx context.Context, call *dynamotest.Call) {
		reads := call.Op == "BatchGetItem"
		if last := reply.Load(); reads && last != nil && asked.Add(1)%readEvery != 0 {
			call.Out = last
			return
		}
		if call.Do(ctx); reads && call.Err == nil {
			forwarded.Add(1)
			reply.Store(call.Out.(*dynamodb.BatchGetItemOutput))
		}
	})
	c := &customer{t: t, db: db, recovery: idempotent.Rerun, key: newKey(), clock: &idempotenttest.Clock{}, meter: newMeter(client)}
	if c.send(returns(large)); !ran(c) {
		t.Fatalf("the first request ended with error %v", c.err)
	}
	if stored := c.meter.spent["BatchWriteItem"]; stored.writes < large>>10 {
		t.Fatalf("the result took %v write units: it does not have 300 KB", stored.writes)
	}

	c.meter = newMeter(client)
	guard, want := c.guard(c.meter), noise(large)
	began := time.Now()
	var sent atomic.Int64
	var storm sync.WaitGroup
	for range senders {
		storm.Go(func() {
			for n := sent.Add(1); n <= duplicates; n = sent.Add(1) {
				out, err := c.do(guard, fails(errBusy))
				same := len(out.Value) == large
				if n%readEvery == 1 {
					same = bytes.Equal(out.Value, want)
				}
				if err != nil || !out.Replayed || !same {
					t.Errorf("got %d bytes, replayed %v, error %v", len(out.Value), out.Replayed, err)
					return
				}
			}
		})
	}
	storm.Wait()

	puts, gets := c.meter.spent["PutItem"], c.meter.spent["BatchGetItem"]
	t.Logf("%d duplicates in %s: %d writes refused, %v write units; %d reads of chunks, %v read units, %d of them by the engine",
		duplicates, time.Since(began).Round(time.Millisecond), puts.calls, puts.writes, gets.calls, gets.reads, forwarded.Load())
	refused := 0
	for _, r := range c.meter.refused {
		refused += r.times
		if r.units > 1 {
			t.Errorf("a refused write takes %v write units, want 1", r.units)
		}
	}
	if total := c.meter.total(); total.writes > duplicates || total.indexes != 0 || total.calls != 2*duplicates {
		t.Errorf("the duplicates took %+v, want one write unit and two calls each, and nothing on the index", total)
	}
	if refused != duplicates || puts.calls != duplicates || gets.calls != duplicates || forwarded.Load() < duplicates/readEvery {
		t.Errorf("%d refusals of %d writes, %d reads, %d of them by the engine: the storm tested nothing", refused, puts.calls, gets.calls, forwarded.Load())
	}
}

// readEvery is the number of reads of chunks per read that the storm makes.
const readEvery = 100

// The price of a million units: on demand, Standard table class, us-east-1,
// 2026-11-21 (https://aws.amazon.com/dynamodb/pricing/on-demand/).
const (
	writePrice = 0.625
	readPrice  = 0.125
)

// cost is what calls consumed.
type cost struct {
	calls   int
	writes  float64 // write units of the table
	indexes float64 // write units of the index
	reads   float64 // read units
}

func (c cost) plus(d cost) cost {
	return cost{c.calls + d.calls, c.writes + d.writes, c.indexes + d.indexes, c.reads + d.reads}
}

func (c cost) minus(d cost) cost {
	return cost{c.calls - d.calls, c.writes - d.writes, c.indexes - d.indexes, c.reads - d.reads}
}

// each returns the cost of one call. All calls must have the same cost.
func (c cost) each() cost {
	n := float64(c.calls)
	return cost{1, c.writes / n, c.indexes / n, c.reads / n}
}

// dollars returns the price of a million of c.
func (c cost) dollars() float64 { return (c.writes+c.indexes)*writePrice + c.reads*readPrice }

// meter is a client that records what each call consumed, as DynamoDB reports it.
type meter struct {
	dynamostore.Client
	inner   dynamostore.Client // does not record
	mu      sync.Mutex
	spent   map[string]cost      // by operation
	refused map[[16]byte]refusal // by the wid of the current item
}

// refusal counts the writes that one item refused, with the price of each.
type refusal struct {
	times int
	units float64
}

func newMeter(c dynamostore.Client) *meter {
	m := &meter{inner: c, spent: map[string]cost{}, refused: map[[16]byte]refusal{}}
	m.Client = dynamotest.Intercept(c, m.call)
	return m
}

// total returns the cost of all calls so far.
func (m *meter) total() (sum cost) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.spent {
		sum = sum.plus(s)
	}
	return sum
}

// emptyQuery is the minimum that a read consumes, in units; DynamoDB Local
// reports none for an empty one.
const emptyQuery = 0.5

// call makes a call and counts what it consumed. For a transaction it counts two
// write units for each item, because no item here has more than 1 KB, and two for a
// record that leaves the index (developer guide, "Capacity management for
// transactions"). The capacity that DynamoDB Local reports for transactions does not
// depend on the number of their items, so only whether the index was written is taken
// from it.
func (m *meter) call(ctx context.Context, c *dynamotest.Call) {
	in := reflect.New(reflect.TypeOf(c.In).Elem()).Elem() // a copy, because the input is the store's
	in.Set(reflect.ValueOf(c.In).Elem())
	in.FieldByName("ReturnConsumedCapacity").Set(reflect.ValueOf(types.ReturnConsumedCapacityIndexes))
	c.In = in.Addr().Interface()
	c.Do(ctx)
	used := cost{calls: 1}
	switch out := c.Out.(type) {
	case *dynamodb.PutItemOutput:
		used.writes = *out.ConsumedCapacity.Table.CapacityUnits
		for _, index := range out.ConsumedCapacity.GlobalSecondaryIndexes {
			used.indexes += *index.CapacityUnits
		}
	case *dynamodb.TransactWriteItemsOutput:
		used.writes = 2 * float64(len(c.In.(*dynamodb.TransactWriteItemsInput).TransactItems))
		for _, t := range out.ConsumedCapacity {
			used.indexes += 2 * float64(len(t.GlobalSecondaryIndexes))
		}
	case *dynamodb.GetItemOutput:
		used.reads = max(emptyQuery, *out.ConsumedCapacity.CapacityUnits)
	case *dynamodb.QueryOutput:
		used.reads = max(emptyQuery, *out.ConsumedCapacity.CapacityUnits)
	case *dynamodb.ScanOutput:
		used.reads = max(emptyQuery, *out.ConsumedCapacity.CapacityUnits)
	case *dynamodb.BatchWriteItemOutput:
		used.writes = sum(out.ConsumedCapacity)
	case *dynamodb.BatchGetItemOutput:
		used.reads = sum(out.ConsumedCapacity)
	default:
		refused, ok := errors.AsType[*types.ConditionalCheckFailedException](c.Err)
		if !ok {
			return
		}
		units, err := m.price(ctx, *c.In.(*dynamodb.PutItemInput).TableName, refused.Item)
		if err != nil {
			c.Err = err
			return
		}
		used.writes = units
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spent[c.Op] = m.spent[c.Op].plus(used)
}

// price returns the write units of a refused write. The refusal does not report
// them: it is billed as one write, by the size of the current item (developer
// guide, "Capacity unit consumption for write operations"). So the same item is
// written once more, under another key, and the engine reports the units of
// that write.
func (m *meter) price(ctx context.Context, table string, standing map[string]types.AttributeValue) (float64, error) {
	wid, _ := standing["wid"].(*types.AttributeValueMemberB)
	name, other := tabledef.PartitionKey, "x"
	if standing[name] == nil {
		name, other = "PK", engine.Domain
	}
	pk, _ := standing[name].(*types.AttributeValueMemberS)
	if wid == nil || pk == nil {
		return 0, errors.New("the refusal returned no record")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.refused[[16]byte(wid.Value)]
	if known.times == 0 {
		aside := maps.Clone(standing)
		aside[name] = &types.AttributeValueMemberS{Value: other + pk.Value[len(other):]}
		out, err := m.inner.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: aside, ReturnConsumedCapacity: types.ReturnConsumedCapacityIndexes})
		if err != nil {
			return 0, err
		}
		known.units = *out.ConsumedCapacity.Table.CapacityUnits
	}
	known.times++
	m.refused[[16]byte(wid.Value)] = known
	return known.units, nil
}

func sum(used []types.ConsumedCapacity) (units float64) {
	for _, u := range used {
		units += *u.CapacityUnits
	}
	return units
}
