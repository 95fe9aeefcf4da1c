// SPDX-License-Identifier: Apache-2.0

//go:build !race

package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
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
