// SPDX-License-Identifier: Apache-2.0

//go:build !race

package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/tests/measured/bench/smallest"
)

var byOrder = idempotent.KeyFrom("charge", func(c charge) (scope, id string) { return c.Merchant, c.OrderID })

// guarded returns the handler under the toolkit's guard. It is declared Rerun,
// with which it writes no index.
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
			c := request()
			got, replayed, err := smallest.Do(ctx, client, table, c.OrderID, 0, c, handle)
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

// The limits of a request, compared with the smallest client. The engine is on
// this machine and answers within one or two milliseconds. DynamoDB takes
// several, so there the toolkit's share is smaller.
var requestLimits = ratios{wall: 1.15, cpu: 1.20}

// operations in one turn.
const operations = 20

func TestFirstRequest(t *testing.T) {
	ours, theirs := sides(t, newCharge, false)
	wantWithin(t, requestLimits, ours, theirs, operations)
}

func TestReplay(t *testing.T) {
	ours, theirs := replays(t)
	wantWithin(t, requestLimits, ours, theirs, 2*operations)
}

// compressLimit is the limit for the processor time of a first request whose result has 1 KB,
// relative to one of 60 bytes, which is not compressed. With a compressor that clears 4 MB
// before each result it was 20.
const compressLimit = 6

// A result of 1 KB is compressed in the time of a few requests. Its store is in memory, so that
// only the toolkit is measured.
func TestSmallResultsAreCompressedQuickly(t *testing.T) {
	returning := func(result string) side {
		g, err := idempotent.New(memstore.New())
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			key := idempotent.Key{Operation: "charge", Scope: "acme", ID: rand.Text(), Fingerprint: idempotent.FingerprintBytes(nil)}
			if _, err := idempotent.Do(t.Context(), g, key, func(context.Context) (string, error) { return result, nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	large := strings.Repeat("4f1c09", 10)
	for len(large) < 1000 {
		large += "," + rand.Text()
	}
	wantWithin(t, ratios{cpu: compressLimit}, returning(large), returning(large[:60]), operations)
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
			cpu := kit.ProcessorTime()
			for b.Loop() {
				s.op()
			}
			b.ReportMetric(float64(kit.ProcessorTime()-cpu)/float64(b.N), "cpu-ns/op")
		})
	}
}

// charge is the request, and receipt the result, of both sides.
type charge struct {
	Merchant string `json:"merchant"`
	OrderID  string `json:"order_id"`
	Amount   int    `json:"amount"`
	Currency string `json:"currency"`
}

type receipt struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

func handle(context.Context, charge) (receipt, error) {
	return receipt{ID: "ch_2026_000417", Status: "succeeded"}, nil
}

// stepNames are the steps of a request.
var stepNames = []string{"authorise", "order", "receipt", "inform"}

// charged is what a step returns.
type charged struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
}

// stepping returns a request under Resume with that many steps. Its store is in
// memory, so that only the toolkit is measured, and not the network.
func stepping(tb testing.TB, steps int, optFns ...func(*idempotent.StepOptions)) side {
	tb.Helper()
	var g *idempotent.Guard
	ctx, n := tb.Context(), 0
	return func() {
		if n%1024 == 0 { // otherwise garbage collection of a growing store is measured
			var err error
			if g, err = idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, stepNames }); err != nil {
				tb.Fatal(err)
			}
		}
		n++
		key := idempotent.Key{Operation: "charge", Scope: "acme", ID: rand.Text(), Fingerprint: idempotent.FingerprintBytes(nil)}
		if _, err := idempotent.Do(ctx, g, key, func(ctx context.Context) (int, error) {
			for _, name := range stepNames[:steps] {
				if _, err := idempotent.Step(ctx, name, func(context.Context) (charged, error) { return charged{"ch_1", 4200}, nil }, optFns...); err != nil {
					return 0, err
				}
			}
			return steps, nil
		}); err != nil {
			tb.Fatal(err)
		}
	}
}

func atMostOnce(o *idempotent.StepOptions) { o.AtMostOnce = true }

// stepLimit is the limit for the processor time of a step, relative to a first
// request without a step. Both write once or twice to the same store.
const stepLimit = 1.25

// The processor time of a step: a request with four of them against one without.
func TestStep(t *testing.T) {
	wantWithin(t, ratios{cpu: 1 + float64(len(stepNames))*stepLimit}, stepping(t, len(stepNames)), stepping(t, 0), 500)
}

func BenchmarkSteps(b *testing.B) {
	for name, op := range map[string]side{
		"steps=0": stepping(b, 0), "steps=4": stepping(b, len(stepNames)), "steps=4,AtMostOnce": stepping(b, len(stepNames), atMostOnce),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				op()
			}
		})
	}
}

// memoryLimit is the limit for the memory of one message in progress, in bytes:
// its goroutine, its claim, its context. It excludes the payload and the
// handler's own memory.
const memoryLimit = 16 << 10

// The memory of a message while its handler runs, with 2,000 in progress.
func TestMemoryOfAMessage(t *testing.T) {
	const n = 2000
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	var inside sync.WaitGroup
	inside.Add(n)
	leave := make(chan struct{})
	h := lambdabatch.SQS(guard, func(context.Context, struct{}) error {
		inside.Done()
		<-leave
		return nil
	}, func(o *lambdabatch.Options) {
		o.Operation, o.ID, o.NoRedrive, o.Concurrency = "send", lambdabatch.ItemID, true, n
	})
	var batch events.SQSEvent
	for i := range n {
		batch.Records = append(batch.Records, events.SQSMessage{MessageId: fmt.Sprint(i), EventSourceARN: "arn", Body: "{}"})
	}
	before := inUse()
	done := make(chan error)
	go func() {
		_, err := h(t.Context(), batch)
		done <- err
	}()
	inside.Wait()
	each := (inUse() - before) / n
	close(leave)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes for each of %d messages in progress; the limit is %d", each, n, memoryLimit)
	if each > memoryLimit || each == 0 {
		t.Error("above the limit, or nothing was measured")
	}
}

func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
