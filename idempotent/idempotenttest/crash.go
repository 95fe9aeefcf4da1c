package idempotenttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// Crashes, panics and lost leases of scenarios.

// crashAfterEffect leaves the record as a process does that was killed between
// its effect and the write of the outcome.
func (l *lab) crashAfterEffect(id string) {
	l.Helper()
	a := l.worker()
	a.inject(On(OpReplace, LostRequest))
	_, err := a.do(l.charge(id))
	l.must(err)
}

// crash leaves the record as a process does that was killed while its handler
// ran: without an outcome.
func (l *lab) crash(during func(context.Context)) {
	l.Helper()
	a := l.worker()
	a.inject(On(OpReplace, LostRequest))
	l.exits(a, during)
}

// exits sends a request whose handler ends its goroutine, as testing's FailNow
// does.
func (l *lab) exits(w *worker, during func(context.Context)) {
	l.Helper()
	done, returned := make(chan struct{}), error(nil)
	go func() {
		defer close(done)
		_, err := w.do(func(ctx context.Context) (string, error) {
			during(ctx)
			runtime.Goexit()
			return "", nil
		})
		returned = fmt.Errorf("runtime.Goexit was swallowed: got error %w", orNil(err))
	}()
	<-done
	l.must(returned)
}

// panics sends a request whose handler panics and returns the recovered value.
func (l *lab) panics(h handler, optFns ...func(*idempotent.Options)) (raised any) {
	l.Helper()
	defer func() { raised = recover() }()
	l.worker(optFns...).do(h)
	l.Error("the panic was swallowed")
	return nil
}

// twoOwners lets A outlive its lease under Rerun, B take over and work, and A
// report while B is still working. A's report must not change B's record.
func (l *lab) twoOwners(report func(handler) handler, own error) {
	l.Helper()
	a, b := l.worker(rerun), l.worker(rerun)
	entered, finish, bDone := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	release := sync.OnceFunc(func() { close(finish) })
	var second sync.WaitGroup
	defer func() { release(); second.Wait() }()
	_, err := a.do(func(ctx context.Context) (string, error) {
		l.endLease()
		second.Go(func() {
			out, err := b.do(func(ctx context.Context) (string, error) {
				close(entered)
				<-finish
				return l.charge("ch_b")(ctx)
			})
			if err == nil && (out.Value != "ch_b" || !out.Stored) {
				err = errors.New("the second owner did not get its own stored result")
			}
			bDone <- err
		})
		select {
		case <-entered:
		case err := <-bDone:
			bDone <- err
			l.Errorf("the second owner was not admitted: %v", err)
		}
		return report(l.charge("ch_a"))(ctx)
	})
	before := l.record()
	l.mustBe(err, new(idempotent.LeaseLostError))
	if own != nil {
		l.mustBe(err, own)
	}
	release()
	l.must(<-bDone)
	if before.State != driver.StateInProgress || before.Attempt != 2 {
		l.Fatalf("A's report changed B's record to %s, attempt %d", before.State, before.Attempt)
	}
	l.wantEvents(event.LeaseLost)
	l.worker(rerun).wantReplay("ch_b")
}
