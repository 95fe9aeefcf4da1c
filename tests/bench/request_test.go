package bench

import (
	"context"
	"crypto/rand"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
)

var byOrder = idempotent.KeyFrom("charge", func(c charge) (scope, id string) { return c.Merchant, c.OrderID })

// guarded returns the handler under the toolkit's guard, with the promise of
// the hand-written one.
func guarded(tb testing.TB) func(context.Context, charge) (receipt, error) {
	tb.Helper()
	store, err := dynamostore.New(client, table)
	if err != nil {
		tb.Fatal(err)
	}
	g, err := idempotent.New(store, func(o *idempotent.Options) { o.Recovery = idempotent.Rerun })
	if err != nil {
		tb.Fatal(err)
	}
	return idempotent.Wrap(g, byOrder, handle)
}

func newCharge() charge {
	return charge{Merchant: "acme", OrderID: rand.Text(), Amount: 4200, Currency: "usd"}
}

// sides returns one operation of each side; request gives each of them its
// request.
func sides(tb testing.TB, request func() charge, replay bool) (ours, theirs side) {
	wrapped, ctx := guarded(tb), tb.Context()
	want, _ := handle(ctx, charge{})
	return func() {
			if got, err := wrapped(ctx, request()); err != nil || got != want {
				tb.Fatalf("got %+v and error %v", got, err)
			}
		}, func() {
			got, replayed, err := byHand(ctx, request())
			if err != nil || got != want || replayed != replay {
				tb.Fatalf("by hand: got %+v, replayed %v and error %v", got, replayed, err)
			}
		}
}

// replays returns both sides of a replay: each has its own completed record.
func replays(tb testing.TB) (ours, theirs side) {
	a, b := newCharge(), newCharge()
	first, _ := sides(tb, func() charge { return a }, false)
	_, firstByHand := sides(tb, func() charge { return b }, false)
	first()
	firstByHand()
	ours, _ = sides(tb, func() charge { return a }, true)
	_, theirs = sides(tb, func() charge { return b }, true)
	return ours, theirs
}

// requestsOf counts the calls of one operation.
func requestsOf(op side) int64 {
	before := wire.requests.Load()
	op()
	return wire.requests.Load() - before
}

// A first request is two calls on both sides, the claim and the outcome. A
// replay is one call: a refused write that returns the record.
func TestBothCallTheSame(t *testing.T) {
	ours, theirs := sides(t, newCharge, false)
	if a, b := requestsOf(ours), requestsOf(theirs); a != b || a != 2 {
		t.Errorf("first request: %d calls against %d by hand, want 2", a, b)
	}
	ours, theirs = replays(t)
	if a, b := requestsOf(ours), requestsOf(theirs); a != b || a != 1 {
		t.Errorf("replay: %d calls against %d by hand, want 1", a, b)
	}
}

// Both sides store items with the same attributes and sizes; otherwise the
// comparison would be invalid.
func TestBothStoreTheSame(t *testing.T) {
	request := newCharge()
	names := func(op side) map[string]int {
		op()
		out, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{
			TableName: aws.String(table),
			Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{
				Value: string(idempotent.Key{Operation: "charge", Scope: request.Merchant, ID: request.OrderID}.RecordID())}},
		})
		if err != nil {
			t.Fatal(err)
		}
		sizes := map[string]int{}
		for name, value := range out.Item {
			switch v := value.(type) {
			case *types.AttributeValueMemberS:
				sizes[name] = len(v.Value)
			case *types.AttributeValueMemberN:
				sizes[name] = len(v.Value)
			case *types.AttributeValueMemberB:
				sizes[name] = len(v.Value)
			}
		}
		return sizes
	}
	ours, _ := sides(t, func() charge { return request }, false)
	a := names(ours)
	request = newCharge()
	_, theirs := sides(t, func() charge { return request }, false)
	b := names(theirs)
	if len(a) != len(b) {
		t.Errorf("attributes %v against %v", a, b)
	}
	for name, size := range a {
		if b[name] != size {
			t.Errorf("attribute %s has %d bytes against %d", name, size, b[name])
		}
	}
}

func BenchmarkFirstRequest(b *testing.B) {
	ours, theirs := sides(b, newCharge, false)
	benchmark(b, ours, theirs)
}

func BenchmarkReplay(b *testing.B) {
	ours, theirs := replays(b)
	benchmark(b, ours, theirs)
}

func benchmark(b *testing.B, ours, theirs side) {
	for _, s := range []struct {
		name string
		op   side
	}{{"side=once", ours}, {"side=byhand", theirs}} {
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			cpu := processorTime()
			for b.Loop() {
				s.op()
			}
			b.ReportMetric(float64(processorTime()-cpu)/float64(b.N), "cpu-ns/op")
		})
	}
}
