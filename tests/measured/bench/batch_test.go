// SPDX-License-Identifier: Apache-2.0

//go:build !race

package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdabatch"
)

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

// distant is a transport to an engine with that network delay.
type distant struct {
	base http.RoundTripper
	away time.Duration
}

func (d distant) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(d.away):
		return d.base.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

type parcel struct {
	ID string `json:"id"`
}

// parcels returns an event with n new messages.
func parcels(n int) (e events.SQSEvent) {
	for i := range n {
		e.Records = append(e.Records, events.SQSMessage{
			MessageId: fmt.Sprint(i), EventSourceARN: "arn:aws:sqs:us-east-1:123456789012:parcels", Body: fmt.Sprintf(`{"id":%q}`, rand.Text()),
		})
	}
	return e
}

// Ten concurrent messages take at most one and a half times as long as one,
// with an engine that is 20 ms away.
func TestBatchSideBySide(t *testing.T) {
	const (
		away  = 20 * time.Millisecond
		limit = 1.5
		turns = 15
	)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	defer transport.CloseIdleConnections()
	options := client.Options()
	options.HTTPClient = &http.Client{Transport: distant{transport, away}}
	store, err := dynamostore.New(dynamodb.New(options), table)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := idempotent.New(store)
	if err != nil {
		t.Fatal(err)
	}
	h := lambdabatch.SQS(guard, func(context.Context, parcel) error { return nil }, func(o *lambdabatch.Options) {
		o.Operation, o.ID, o.Concurrency = "send", lambdabatch.Field("/id"), 10
	})
	take := func(n int) time.Duration {
		batch := parcels(n)
		start := time.Now()
		response, err := h(t.Context(), batch)
		took := time.Since(start)
		if err != nil || len(response.BatchItemFailures) > 0 {
			t.Fatalf("got %+v %v", response, err)
		}
		return took
	}
	for range turns { // connections and the engine are warm after this
		take(10)
	}
	kit.Within(t, func() (string, bool) {
		took := kit.Turns(turns, func() time.Duration { return take(1) }, func() time.Duration { return take(10) })
		one, ten := slices.Min(took[0]), slices.Min(took[1])
		if one < 2*away {
			t.Fatalf("one message took %s: the engine is not %s away", one, away)
		}
		ratio := float64(ten) / float64(one)
		return fmt.Sprintf("one message takes %s, ten take %s: %.2f times; the limit is %.1f", one, ten, ratio, limit), ratio <= limit
	})
}
