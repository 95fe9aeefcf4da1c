package integration

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

// G09, FM58: in a storm of duplicates of a key with a result of 300 KB, each
// costs one write unit: a refused write is billed by the size of the record,
// and the result is stored beside it.
func TestFM58_DuplicateStorm(t *testing.T) {
	t.Parallel()
	const duplicates, senders = 10_000, 16
	db := ownTable(t)
	shelf := &shelf{Client: db.client()}
	c := &customer{t: t, db: db, recovery: idempotent.Rerun, key: newKey(), clock: &idempotenttest.Clock{}, cashier: newCashier(shelf)}
	if c.send(returns(large)); !ran(c) {
		t.Fatalf("the first request ended with error %v", c.err)
	}
	if stored := c.cashier.spent["BatchWriteItem"]; stored.writes < large>>10 {
		t.Fatalf("the result took %v write units: it does not have 300 KB", stored.writes)
	}

	c.cashier = newCashier(shelf)
	guard, want := c.guard(c.cashier), noise(large)
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

	puts, gets := c.cashier.spent["PutItem"], c.cashier.spent["BatchGetItem"]
	t.Logf("%d duplicates in %s: %d writes refused, %v write units; %d reads of chunks, %v read units, %d of them by the engine",
		duplicates, time.Since(began).Round(time.Millisecond), puts.calls, puts.writes, gets.calls, gets.reads, shelf.forwarded.Load())
	refused := 0
	for _, r := range c.cashier.refused {
		refused += r.times
		if r.units > 1 {
			t.Errorf("a refused write takes %v write units, want 1", r.units)
		}
	}
	if total := c.cashier.total(); total.writes > duplicates || total.indexes != 0 || total.calls != 2*duplicates {
		t.Errorf("the duplicates took %+v, want one write unit and two calls each, and nothing on the index", total)
	}
	if refused != duplicates || puts.calls != duplicates || gets.calls != duplicates || shelf.forwarded.Load() < duplicates/readEvery {
		t.Errorf("%d refusals of %d writes, %d reads, %d of them by the engine: the storm tested nothing", refused, puts.calls, gets.calls, shelf.forwarded.Load())
	}
}

// readEvery is the number of reads of chunks per read that a shelf forwards.
const readEvery = 100

// shelf forwards every write, and of the reads of chunks the first and every
// hundredth. It answers the others with the last reply. 3 GB of chunks through
// JSON would take minutes and add nothing about write units.
type shelf struct {
	dynamostore.Client
	asked, forwarded atomic.Int64
	answer           atomic.Pointer[dynamodb.BatchGetItemOutput]
}

func (s *shelf) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, optFns ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	if answer := s.answer.Load(); answer != nil && s.asked.Add(1)%readEvery != 0 {
		return answer, nil
	}
	s.forwarded.Add(1)
	out, err := s.Client.BatchGetItem(ctx, in, optFns...)
	if err == nil {
		s.answer.Store(out)
	}
	return out, err
}
