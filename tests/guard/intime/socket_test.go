// SPDX-License-Identifier: Apache-2.0

package intime

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
)

// The client of the SDK, with its attempts and pauses, connects to a socket that accepts and
// is silent. A function of 3 s answers, and reports the store, before its context ends: on a
// busy machine, which wakes it late, it gets another try.
func TestSilentSocket(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu    sync.Mutex
		open  []net.Conn
		ended sync.WaitGroup
	)
	ended.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		ended.Wait()
		for _, c := range open {
			_ = c.Close()
		}
		if len(open) == 0 {
			t.Error("nothing has connected")
		}
	})
	store, err := dynamostore.New(dynamostore.NewClient(engine.Config("http://"+l.Addr().String())), "idempotency")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fronts {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			want := map[string]string{"wrap": "StoreError", "http": unavailable, "batch": "10 failed"}[f.kind]
			if f.name == "Kinesis" {
				want = "1 failed"
			}
			kit.Eventually(t, "an answer before the deadline", func() bool {
				var seen idempotenttest.Recorder
				guard, err := idempotent.New(store, func(o *idempotent.Options) {
					o.Observer, o.Logger = &seen, slog.New(slog.DiscardHandler)
				})
				if err != nil {
					t.Fatal(err)
				}
				send := f.make(&scene{t: t, guard: guard})
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				got := send(ctx)
				inTime := ctx.Err() == nil
				if got != want || seen.Count(event.StoreError) == 0 {
					t.Errorf("got %q, want %q, with the events %v", got, want, seen.Kinds())
					return true
				}
				return inTime
			})
		})
	}
}
