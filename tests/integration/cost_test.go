package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/doctest"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/tests/engine"
)

var update = flag.Bool("update", false, "write the generated parts of the documents")

// customer sends requests of one key and measures what they consumed. It has its
// own table, so that the additional items of a cashier disturb no other test.
type customer struct {
	t        *testing.T
	db       database
	recovery idempotent.Recovery
	key      idempotent.Key
	clock    *idempotenttest.Clock
	cashier  *cashier
	out      idempotent.Outcome[[]byte] // of the last request
	err      error
}

func (c *customer) guard(client dynamostore.Client, optFns ...func(*idempotent.Options)) *idempotent.Guard {
	c.t.Helper()
	g, err := idempotent.New(c.db.storeOver(c.t, client), append(optFns, func(o *idempotent.Options) {
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
	before := c.cashier.total()
	c.out, c.err = c.do(g, h)
	return c.cashier.total().minus(before)
}

func (c *customer) send(h handler) cost { return c.through(c.guard(c.cashier), h) }

// earlier sends a request whose cost is not counted.
func (c *customer) earlier(h handler) { c.do(c.guard(c.db.client()), h) }

// crash creates a record whose owner never reported, with an expired lease.
func (c *customer) crash() {
	c.do(c.guard(&crashing{Client: c.db.client()}), returns(small))
	c.clock.Advance(2 * patience)
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
	resume    = []idempotent.Recovery{idempotent.Resume}
)

// prices are the rows of the table in docs/cost.md. If a row is for either
// promise, both cost the same.
var prices = []struct {
	request  string
	declared []idempotent.Recovery
	take     func(*customer) cost
	ended    func(*customer) bool
}{
	{"first request", rerun, func(c *customer) cost { return c.send(returns(small)) }, ran},
	{"first request", reconcile, func(c *customer) cost { return c.send(returns(small)) }, ran},
	{"first request that ends unknown", rerun, func(c *customer) cost { return c.send(fails(errSilent)) }, endsWith(errSilent)},
	{"first request that ends unknown", reconcile, func(c *customer) cost { return c.send(fails(errSilent)) }, endsWith(errSilent)},
	{"replay", either, func(c *customer) cost {
		c.earlier(returns(small))
		return c.send(returns(small))
	}, replayed},
	{"replay from the local cache (`CacheEntries`)", either, func(c *customer) cost {
		g := c.guard(c.cashier, func(o *idempotent.Options) { o.CacheEntries = 1 })
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
			c.through(c.guard(c.cashier, func(o *idempotent.Options) { o.WaitFor = 500 * time.Millisecond }), returns(small))
			look = c.cashier.spent["GetItem"].each()
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
	{"takeover of a retryable record", rerun, afterBusy, ran},
	{"takeover of a retryable record", reconcile, afterBusy, ran},
	{"takeover after an ended lease", rerun, afterCrash, ran},
	{"ended lease marked unknown, and refused", reconcile, afterCrash, endsWith(new(idempotent.UnresolvedError))},
	{"first request, result of 4 KB", rerun, func(c *customer) cost { return c.send(returns(inline)) }, ran},
	{"replay of 4 KB", either, replayOf(inline), replayed},
	{"first request, result of 300 KB", rerun, func(c *customer) cost { return c.send(returns(large)) }, ran},
	{"replay of 300 KB", either, replayOf(large), replayed},
	{"first request, result of 6 MB", rerun, func(c *customer) cost { return c.send(returns(most)) }, ran},
	{"replay of 6 MB", rerun, replayOf(most), replayed},
	{"first request, without a step", resume, func(c *customer) cost { return c.send(returns(small)) }, ran},
	{"each `Step`", resume, within(func(ctx context.Context, _ *customer) error {
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
	{"each `Step`, `AtMostOnce`", resume, within(func(ctx context.Context, _ *customer) error {
		_, err := idempotent.Step(ctx, "step", returns(small), func(o *idempotent.StepOptions) { o.AtMostOnce = true })
		return err
	}), ran},
	{"each `CommitStep` with one item", resume, within(func(ctx context.Context, c *customer) error {
		_, err := dynamostore.CommitStep(ctx, "step", "done", c.order())
		return err
	}), ran},
	{"first request, `Commit` with one item", rerun, committing, ran},
	{"first request, `Commit` with one item", reconcile, committing, ran},
	{"`ReconcileDue`, nothing due", reconcile, func(c *customer) cost {
		c.db = ownTable(c.t)
		return c.reconciles(func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
			panic("nothing is due")
		}, 0)
	}, func(*customer) bool { return true }},
	{"and each unknown record that it resolves", reconcile, func(c *customer) cost {
		return c.aRecord(idempotent.Resolved([]byte("found")), func(c *customer) { c.earlier(fails(errSilent)) })
	}, replayed},
	{"and each record that it resolves later", reconcile, func(c *customer) cost {
		return c.aRecord(idempotent.Later(time.Hour), func(c *customer) { c.earlier(fails(errSilent)) })
	}, endsWith(new(idempotent.UnresolvedError))},
	{"and each record with an ended lease, resolved", reconcile, func(c *customer) cost {
		return c.aRecord(idempotent.Resolved([]byte("found")), (*customer).crash)
	}, replayed},
}

// within returns the cost of a part of a handler.
func within(part func(context.Context, *customer) error) func(*customer) cost {
	return func(c *customer) (took cost) {
		c.send(func(ctx context.Context) ([]byte, error) {
			before := c.cashier.total()
			err := part(ctx, c)
			took = c.cashier.total().minus(before)
			return noise(small), err
		})
		return took
	}
}

// order is an item of less than 1 KB in the store's own table.
func (c *customer) order() types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{
		TableName: &c.db.table, Item: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "order-" + rand.Text()}},
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
	before := c.cashier.total()
	report, err := idempotent.ReconcileDue(c.t.Context(), c.guard(c.cashier), resolve)
	if err != nil || report.Due != due {
		c.t.Errorf("the reconciler found %s, %v; want %d", report, err, due)
	}
	return c.cashier.total().minus(before)
}

// aRecord returns what the reconciler consumes for a record that leave creates,
// beyond what it consumes for nothing.
func (c *customer) aRecord(answer idempotent.Resolution, leave func(*customer)) cost {
	c.db = ownTable(c.t)
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

func ownTable(t *testing.T) database {
	t.Helper()
	db := local
	db.table = "once-" + strings.ToLower(rand.Text())
	if err := db.create(); err != nil {
		t.Fatal(err)
	}
	return db
}

// The table of docs/cost.md contains what the engine reports.
func TestCost(t *testing.T) {
	t.Parallel()
	db := ownTable(t)
	var table strings.Builder
	table.WriteString("| request | declared | calls | write units | on the index | read units | $ per million |\n| --- | --- | --: | --: | --: | --: | --: |\n")
	for _, p := range prices {
		var took cost
		for i, recovery := range p.declared {
			c := &customer{t: t, db: db, recovery: recovery, key: newKey(), clock: &idempotenttest.Clock{}, cashier: newCashier(db.client())}
			got := p.take(c)
			if !p.ended(c) {
				t.Errorf("%s, %s: it ended with %+v and error %v", p.request, recovery, c.out.Replayed, c.err)
			}
			if i > 0 && got != took {
				t.Errorf("%s: %+v under %s and %+v under %s", p.request, took, p.declared[0], got, recovery)
			}
			took = got
		}
		fmt.Fprintf(&table, "| %s | %s | %d | %g | %g | %g | %.3f |\n", p.request, declared(p.declared), took.calls, took.writes, took.indexes, took.reads, took.dollars())
	}
	doctest.Part(t, filepath.Join(engine.Root(), "docs", "cost.md"), "cost", table.String(), *update)
}

func declared(r []idempotent.Recovery) string {
	if len(r) > 1 {
		return "either"
	}
	return fmt.Sprintf("`%s`", map[idempotent.Recovery]string{idempotent.Rerun: "Rerun", idempotent.Reconcile: "Reconcile", idempotent.Resume: "Resume"}[r[0]])
}
