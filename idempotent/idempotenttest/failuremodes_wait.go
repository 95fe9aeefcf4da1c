package idempotenttest

import (
	"context"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Waiting for a running request with the same key. These rows run in real time,
// because a store on a network has no other clock. Each waits for an event, not
// for a fixed time.
var waitScenarios = []scenario{
	// F52: a second request waits for the first,
	{"FM37_TwinCompletes", func(l *lab) {
		entered, finish := make(chan struct{}), make(chan struct{})
		release := sync.OnceFunc(func() { close(finish) })
		var twin sync.WaitGroup
		defer func() { release(); twin.Wait() }()
		var failed error
		done := make(chan struct{})
		twin.Go(func() {
			defer close(done)
			_, failed = l.worker().do(func(ctx context.Context) (string, error) {
				close(entered)
				<-finish
				return l.charge("ch_a")(ctx)
			})
		})
		select {
		case <-entered:
		case <-done:
			l.Fatalf("the running request was not admitted: %v", failed)
		}
		b := l.worker(patient)
		looks := 0
		b.tap.onGet = func(read func() (*driver.Record, error)) (*driver.Record, error) {
			if looks++; looks == 2 {
				release()
				<-done
				l.must(failed)
			}
			return read()
		}
		b.wantReplay("ch_a")
		if looks < 2 {
			l.Fatalf("B looked %d times", looks)
		}
		l.wantEffects(1)
	}},
	{"FM37_TwinCrashes", func(l *lab) {
		l.crashAfterEffect("ch_a")
		b := l.worker(patient)
		b.tap.onGet = func(read func() (*driver.Record, error)) (*driver.Record, error) {
			b.tap.onGet = nil
			l.endLease()
			return read()
		}
		// B's invocation lasts until after the end of A's lease.
		_, err := b.doIn(l.clock.Invocation(context.Background(), time.Hour), l.key, l.never())
		l.mustBe(err, new(idempotent.UnresolvedError))
		l.wantEffects(1)
	}},
	{"FM37_TwinLeavesNothing", func(l *lab) {
		_, err := l.worker().do(func(context.Context) (string, error) {
			b := l.worker(hasty)
			b.tap.onGet = func(func() (*driver.Record, error)) (*driver.Record, error) {
				b.tap.onGet = nil
				return nil, idempotent.ErrNoRecord // deleted; the insert reads it again
			}
			_, err := b.do(l.never())
			return "", err
		}) // B gives up after WaitFor
		l.mustBe(err, new(idempotent.InProgressError))
	}},
	{"FM37_StoreFailsWhileWaiting", func(l *lab) {
		_, err := l.worker().do(func(context.Context) (string, error) {
			b := l.worker(patient)
			b.inject(On(OpGet, LostRequest))
			_, err := b.do(l.never())
			return "", err
		})
		l.mustBe(err, new(idempotent.StoreError))
	}},
	// F52: and not beyond its own deadline.
	{"FM37_OwnDeadline", func(l *lab) {
		_, err := l.worker().do(func(context.Context) (string, error) {
			b := l.worker(func(o *idempotent.Options) { o.WaitFor = time.Hour })
			const own = 3 * time.Second
			began := time.Now()
			_, err := b.doIn(l.clock.Invocation(context.Background(), own), l.key, l.never())
			l.mustBe(err, new(idempotent.InProgressError))
			if took := time.Since(began); took > own {
				l.Errorf("B waited for %s of its %s", took, own)
			}
			return "ch_a", nil
		})
		l.must(err)
	}},
	{"FM37_CallerGoesAway", func(l *lab) {
		_, err := l.worker().do(func(context.Context) (string, error) {
			b := l.worker(func(o *idempotent.Options) { o.WaitFor = time.Hour })
			ctx, cancel := context.WithCancel(l.clock.Invocation(context.Background(), time.Hour))
			looks := 0
			b.tap.onGet = func(read func() (*driver.Record, error)) (*driver.Record, error) {
				looks++
				cancel()
				return read()
			}
			_, err := b.doIn(ctx, l.key, l.never())
			l.mustBe(err, new(idempotent.InProgressError))
			if looks != 1 {
				l.Errorf("B read the record %d times, but its caller was cancelled at the first", looks)
			}
			return "ch_a", nil
		})
		l.must(err)
	}},
}

// patient waits longer than any operation here takes on a busy machine. hasty
// waits for almost no time.
func patient(o *idempotent.Options) { o.WaitFor = 30 * time.Second }
func hasty(o *idempotent.Options)   { o.WaitFor = 500 * time.Millisecond }
