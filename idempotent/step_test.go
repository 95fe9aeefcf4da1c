// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

// resume declares the steps of an operation.
func resume(steps ...string) func(*idempotent.Options) {
	return func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, steps }
}

func atMostOnce(o *idempotent.StepOptions) { o.AtMostOnce = true }

var errDown = errors.New("the provider is down")

func record(t *testing.T, s driver.Store, key idempotent.Key) *driver.Record {
	t.Helper()
	r, err := s.Get(t.Context(), key.RecordID())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// F37, F43, F44: the second attempt gets the first one's finished step and runs
// the one that failed, with the downstream keys of the first attempt.
func TestResume(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	g, events := newGuardOver(t, store, resume("authorise", "capture"))
	key := newKey()
	var ran []string
	var keys []string
	fail := true
	handler := func(ctx context.Context) (string, error) {
		keys = append(keys, idempotent.DownstreamKey(ctx))
		auth, err := idempotent.Step(ctx, "authorise", func(ctx context.Context) (string, error) {
			ran = append(ran, "authorise")
			keys = append(keys, idempotent.DownstreamKey(ctx))
			return "auth_1", nil
		})
		if err != nil {
			return "", err
		}
		return idempotent.Step(ctx, "capture", func(ctx context.Context) (string, error) {
			ran = append(ran, "capture")
			keys = append(keys, idempotent.DownstreamKey(ctx))
			if fail {
				return "", errDown
			}
			return auth + " captured", nil
		})
	}
	if _, err := idempotent.Do(t.Context(), g, key, handler); err != errDown {
		t.Fatalf("got error %v, want the handler's own", err)
	}
	r := record(t, store, key)
	if r.State != driver.StateRetryable || !r.Expires.IsZero() || r.Due.IsZero() {
		t.Errorf("the record is %s, expires %s, due %s; want retryable, never, and listed", r.State, r.Expires, r.Due)
	}
	if s, _ := r.Step("authorise"); !s.Finished || s.Attempt != 1 {
		t.Errorf("the finished step is %+v", s)
	}
	if s, found := r.Step("capture"); s.Finished || !found {
		t.Errorf("the failed step is %+v, found %v; want it begun", s, found)
	}

	fail = false
	value, err := idempotent.Do(t.Context(), g, key, handler)
	if err != nil || value != "auth_1 captured" {
		t.Fatalf("the second attempt: %q, %v", value, err)
	}
	if got := strings.Join(ran, " "); got != "authorise capture capture" {
		t.Errorf("ran %s", got)
	}
	if r := record(t, store, key); r.State != driver.StateCompleted || r.Steps != nil || r.Attempt != 2 {
		t.Errorf("the record is %s with steps %v, attempt %d", r.State, r.Steps, r.Attempt)
	}
	id := key.RecordID()
	want := []string{id.DownstreamKey(), id.StepKey("authorise"), id.StepKey("capture"),
		id.DownstreamKey(), id.StepKey("capture")}
	if fmt.Sprint(keys) != fmt.Sprint(want) {
		t.Errorf("downstream keys\n%q, want\n%q", keys, want)
	}
	if n := events.Count(event.StepDone); n != 2 {
		t.Errorf("%d events of finished steps, want 2", n)
	}
	if n := events.Count(event.StepReplayed); n != 1 {
		t.Errorf("%d events of replayed steps, want 1", n)
	}
}

// G04: the record after a step, by its mode and how it ended.
func TestStepOutcomes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		recovery func(*idempotent.Options)
		mode     func(*idempotent.StepOptions)
		step     error // of the step
		handler  func(error) error
		state    driver.State
		reason   driver.Reason
		steps    int
	}{
		{"Resume, at least once, fails", resume("s"), nil, errDown, nil, driver.StateRetryable, driver.ReasonHandlerError, 1},
		{"Resume, at most once, fails", resume("s"), atMostOnce, errDown, nil, driver.StateUnknown, driver.ReasonInterrupted, 1},
		{"Resume, at most once, not executed", resume("s"), atMostOnce, idempotent.NotExecuted(errDown), nil, driver.StateRetryable, driver.ReasonHandlerError, 0},
		{"Resume, at least once, not executed", resume("s"), nil, idempotent.NotExecuted(errDown), nil, driver.StateRetryable, driver.ReasonHandlerError, 0},
		{"Resume, at most once, fails, handler returns Final", resume("s"), atMostOnce, errDown, func(error) error { return idempotent.Final("no", "") }, driver.StateCompleted, driver.ReasonFinal, 0},
		{"Resume, at most once, fails, handler continues", resume("s"), atMostOnce, errDown, func(error) error { return nil }, driver.StateCompleted, driver.ReasonResult, 0},
		{"NotExecuted after a step is ignored", resume("s"), nil, nil, func(error) error { return idempotent.NotExecuted(errDown) }, driver.StateRetryable, driver.ReasonHandlerError, 1},
		{"NotExecuted after a step under Reconcile", nil, nil, nil, func(error) error { return idempotent.NotExecuted(errDown) }, driver.StateUnknown, driver.ReasonHandlerError, 1},
		{"Rerun, at most once, fails", func(o *idempotent.Options) { o.Recovery = idempotent.Rerun }, atMostOnce, errDown, nil, driver.StateUnknown, driver.ReasonInterrupted, 1},
		{"Rerun, at most once, done, handler fails", func(o *idempotent.Options) { o.Recovery = idempotent.Rerun }, atMostOnce, nil, func(error) error { return errDown }, driver.StateRetryable, driver.ReasonHandlerError, 1},
		{"Unknown stays unknown", resume("s"), nil, nil, func(error) error { return idempotent.Unknown(errDown) }, driver.StateUnknown, driver.ReasonUnknown, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			store := memstore.New()
			var optFns []func(*idempotent.Options)
			if test.recovery != nil {
				optFns = append(optFns, test.recovery)
			}
			var stepFns []func(*idempotent.StepOptions)
			if test.mode != nil {
				stepFns = append(stepFns, test.mode)
			}
			g, _ := newGuardOver(t, store, optFns...)
			key := newKey()
			_, _ = idempotent.Do(t.Context(), g, key, func(ctx context.Context) (int, error) {
				_, err := idempotent.Step(ctx, "s", func(context.Context) (int, error) { return 1, test.step }, stepFns...)
				if !errors.Is(err, test.step) {
					t.Errorf("the step returned %v, want %v", err, test.step)
				}
				if test.handler != nil {
					err = test.handler(err)
				}
				return 0, err
			})
			r := record(t, store, key)
			if r.State != test.state || r.Reason != test.reason || len(r.Steps) != test.steps {
				t.Errorf("the record is %s (%s) with %d steps, want %s (%s) with %d", r.State, r.Reason, len(r.Steps), test.state, test.reason, test.steps)
			}
		})
	}
}

// FM29: an AtMostOnce step that was interrupted is not run again, whatever the
// operation's recovery, and the record is unknown.
func TestInterruptedAtMostOnce(t *testing.T) {
	t.Parallel()
	for name, recovery := range map[string]func(*idempotent.Options){
		"Resume": resume("s"), "Rerun": func(o *idempotent.Options) { o.Recovery = idempotent.Rerun },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := &idempotenttest.Clock{}
			store := memstore.New()
			withClock := func(o *idempotent.Options) { o.Now = clock.Now }
			g, _ := newGuardOver(t, store, recovery, withClock)
			key := newKey()
			ran := 0
			handler := func(ctx context.Context) (int, error) {
				return idempotent.Step(ctx, "s", func(context.Context) (int, error) {
					ran++
					return 0, nil
				}, atMostOnce)
			}
			// The process dies inside the step: only what is stored is left.
			var died driver.Record
			_, _ = idempotent.Do(t.Context(), g, key, func(ctx context.Context) (int, error) {
				return idempotent.Step(ctx, "s", func(context.Context) (int, error) {
					ran++
					died = *record(t, store, key)
					return 0, nil
				}, atMostOnce)
			})
			current := record(t, store, key)
			if met, err := store.Replace(t.Context(), died, current.Version); met != nil || err != nil {
				t.Fatal(met, err)
			}
			if !died.Expires.IsZero() || died.Due.IsZero() {
				t.Errorf("the record expires %s and is due %s while the step runs; want never, and listed", died.Expires, died.Due)
			}
			clock.Advance(time.Hour)
			for range 2 {
				if _, err := idempotent.Do(t.Context(), g, key, handler); !errors.As(err, new(*idempotent.UnresolvedError)) {
					t.Fatalf("got error %v, want %v", err, new(idempotent.UnresolvedError))
				}
			}
			if ran != 1 {
				t.Errorf("the step ran %d times", ran)
			}
			// Evidence that it did not happen lets it run.
			if err := g.Resolve(t.Context(), key.RecordID(), idempotent.ProvenNotExecuted(record(t, store, key).Token())); err != nil {
				t.Fatal(err)
			}
			if _, err := idempotent.Do(t.Context(), g, key, handler); err != nil || ran != 2 {
				t.Errorf("after the evidence: error %v, the step ran %d times", err, ran)
			}
		})
	}
}

// FM30: a record with a step that the code does not declare is not continued.
func TestUnknownRecoveryPoint(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	g, _ := newGuardOver(t, store, resume("pay", "ship"))
	key := newKey()
	_, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (int, error) {
		if _, err := idempotent.Step(ctx, "pay", func(context.Context) (int, error) { return 1, nil }); err != nil {
			return 0, err
		}
		return 0, errDown
	})
	if err != errDown {
		t.Fatal(err)
	}
	before := record(t, store, key)
	for name, steps := range map[string][]string{"renamed": {"charge", "ship"}, "removed": {"ship"}, "longer": {"payment"}} {
		renamed, events := newGuardOver(t, store, resume(steps...))
		_, err := idempotent.Do(t.Context(), renamed, key, func(context.Context) (int, error) {
			t.Errorf("%s: the handler was entered", name)
			return 0, nil
		})
		var unresolved *idempotent.UnresolvedError
		if !errors.As(err, &unresolved) || !errors.As(err, new(*idempotent.StepError)) || !strings.Contains(err.Error(), `"pay"`) {
			t.Errorf("%s: got error %v, want one that names the step", name, err)
		}
		if events.Count(event.Unresolved) != 1 {
			t.Errorf("%s: no event", name)
		}
	}
	if after := record(t, store, key); after.Version != before.Version {
		t.Error("the record was changed")
	}
	// Code that declares the step continues.
	value, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (int, error) {
		return idempotent.Step(ctx, "pay", func(context.Context) (int, error) { return 2, nil })
	})
	if value != 1 || err != nil {
		t.Errorf("got %d, %v, want the recorded 1", value, err)
	}
}

// FM64: a goroutine that the handler left behind changes nothing.
func TestLeakedGoroutine(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	g, _ := newGuardOver(t, store, resume("a", "b"))
	key := newKey()
	var leaked context.Context
	begun, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	if _, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (int, error) {
		leaked = ctx
		go func() {
			_, err := idempotent.Step(ctx, "a", func(context.Context) (int, error) {
				close(begun)
				<-goOn
				return 1, nil
			})
			ended <- err
		}()
		<-begun
		return 7, nil
	}); err != nil {
		t.Fatal(err)
	}
	before := record(t, store, key)
	close(goOn)
	if err := <-ended; err != idempotent.ErrExecutionEnded {
		t.Errorf("the running step: got error %v, want %v", err, idempotent.ErrExecutionEnded)
	}
	leaked = context.WithoutCancel(leaked)
	if _, err := idempotent.Step(leaked, "b", func(context.Context) (int, error) {
		t.Error("a step ran after the outcome")
		return 0, nil
	}); err != idempotent.ErrExecutionEnded {
		t.Errorf("a new step: got error %v, want %v", err, idempotent.ErrExecutionEnded)
	}
	e, _ := idempotent.FromContext(leaked)
	if err := e.Commit(leaked, 9, func(context.Context, driver.Record, driver.Version) (*driver.Record, error) {
		t.Error("a transaction was sent after the outcome")
		return nil, nil
	}); err != idempotent.ErrExecutionEnded {
		t.Errorf("Commit: got error %v, want %v", err, idempotent.ErrExecutionEnded)
	}
	if after := record(t, store, key); after.Version != before.Version || string(after.Result) != "7" {
		t.Errorf("the record was changed: %s", after.Result)
	}
}

// Steps run concurrently; each is recorded once.
func TestParallelSteps(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	g, _ := newGuardOver(t, store, resume("item"))
	key := newKey()
	const n = 16
	run := func(fail bool) (sum int, err error) {
		return idempotent.Do(t.Context(), g, key, func(ctx context.Context) (int, error) {
			var wg sync.WaitGroup
			var mu sync.Mutex
			sum := 0
			for i := range n {
				wg.Go(func() {
					v, err := idempotent.Step(ctx, fmt.Sprintf("item/%d", i), func(context.Context) (int, error) {
						if !fail {
							return 0, errors.New("the step ran again")
						}
						return i, nil
					})
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
					}
					sum += v
				})
			}
			wg.Wait()
			if fail {
				return 0, errDown
			}
			return sum, nil
		})
	}
	if _, err := run(true); err != errDown {
		t.Fatal(err)
	}
	if r := record(t, store, key); len(r.Steps) != n {
		t.Fatalf("%d steps are recorded, want %d", len(r.Steps), n)
	}
	if sum, err := run(false); err != nil || sum != n*(n-1)/2 {
		t.Errorf("got %d, %v", sum, err)
	}
}

// An invalid step is refused before it runs.
func TestStepRefusals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, says string
		ask        func(context.Context) error
	}{
		{"no name", "invalid name", step[int]("")},
		{"long name", "invalid name", step[int](strings.Repeat("x", 65))},
		{"space", "invalid name", step[int]("a b")},
		{"undeclared", "not declared", step[int]("other")},
		{"prefix of a declared one", "not declared", step[int]("a-b")},
		{"channel", "cannot be recorded", step[chan int]("a")},
		{"twice", "twice in one run", func(ctx context.Context) error {
			if _, err := idempotent.Step(ctx, "a", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return err
			}
			return step[int]("a")(ctx)
		}},
		{"twice, at most once", "twice in one run", func(ctx context.Context) error {
			if _, err := idempotent.Step(ctx, "a", func(context.Context) (int, error) { return 1, nil }, atMostOnce); err != nil {
				return err
			}
			_, err := idempotent.Step(ctx, "a", never[int], atMostOnce)
			return err
		}},
		{"nested", "cannot be nested", func(ctx context.Context) (err error) {
			_, _ = idempotent.Step(ctx, "a", func(ctx context.Context) (int, error) {
				err = step[int]("a/1")(ctx)
				return 0, err
			})
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g, _ := newGuard(t, resume("a"))
			_, err := idempotent.Do(t.Context(), g, newKey(), func(ctx context.Context) (int, error) { return 0, test.ask(ctx) })
			var refused *idempotent.StepError
			if !errors.As(err, &refused) || !errors.As(err, new(*idempotent.StepError)) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got error %v, want one that contains %q", err, test.says)
			}
		})
	}
}

func never[T any](context.Context) (T, error) { panic("the step ran") }

func step[T any](name string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := idempotent.Step(ctx, name, never[T])
		return err
	}
}

// A result that is too large is refused after the effect, with advice; the record
// still settles.
func TestStepSize(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	g, _ := newGuardOver(t, store, resume("s"))
	large := func(n int) string { // of random bytes: its encoding packs to about n
		data := make([]byte, n)
		rand.New(rand.NewSource(1)).Read(data)
		return base64.StdEncoding.EncodeToString(data)
	}
	for _, test := range []struct {
		name, says string
		sizes      []int
	}{
		{"one", "the limit is 65536", []int{70_000}},
		{"all", "the limit is 262144", []int{60_000, 60_000, 60_000, 60_000, 60_000}},
	} {
		key := newKey()
		_, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (int, error) {
			for i, n := range test.sizes {
				if _, err := idempotent.Step(ctx, fmt.Sprintf("s/%d", i), func(context.Context) (string, error) { return large(n), nil }); err != nil {
					return 0, err
				}
			}
			return 0, nil
		})
		if !errors.As(err, new(*idempotent.StepError)) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got error %v, want one that contains %q", test.name, err, test.says)
		}
		if r := record(t, store, key); r.State != driver.StateRetryable || len(r.Steps) != len(test.sizes) {
			t.Errorf("%s: the record is %s with %d steps", test.name, r.State, len(r.Steps))
		}
	}
}

// A recorded step result of another type is an error, not a zero value.
func TestStepChangedType(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, resume("s"))
	key := newKey()
	_, _ = idempotent.Do(t.Context(), g, key, func(ctx context.Context) (int, error) {
		_, _ = idempotent.Step(ctx, "s", func(context.Context) (string, error) { return "x", nil })
		return 0, errDown
	})
	_, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (int, error) {
		return idempotent.Step(ctx, "s", never[int])
	})
	if !errors.As(err, new(*idempotent.StepError)) || !strings.Contains(err.Error(), "another shape than *int") {
		t.Errorf("got error %v", err)
	}
}

// Outside an execution a step is a function call, and its downstream key is
// always new.
func TestStepWithoutExecution(t *testing.T) {
	t.Parallel()
	var keys []string
	for range 2 {
		v, err := idempotent.Step(t.Context(), "any name at all", func(ctx context.Context) (int, error) {
			keys = append(keys, idempotent.DownstreamKey(ctx))
			return 1, nil
		})
		if v != 1 || err != nil {
			t.Fatal(v, err)
		}
	}
	if keys[0] == "" || keys[0] == keys[1] {
		t.Errorf("downstream keys %q", keys)
	}
}

// The writes of one run do not overlap: another one, and the end of the handler, wait
// for the first. The function of a step that may run again does not wait.
func TestWritesOfARunDoNotOverlap(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]func(ctx context.Context, s *watched, ran *atomic.Bool){
		"a step": func(ctx context.Context, _ *watched, ran *atomic.Bool) {
			_, _ = idempotent.Step(ctx, "second", func(context.Context) (string, error) { ran.Store(true); return "", nil })
		},
		"an AtMostOnce step": func(ctx context.Context, _ *watched, _ *atomic.Bool) {
			_, _ = idempotent.Step(ctx, "second", charged, atMostOnce)
		},
		"a Commit": func(ctx context.Context, s *watched, _ *atomic.Bool) { _ = commit(ctx, "done", s.Replace) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s, key, held := watch(), newKey(), make(chan struct{})
			writes, ran := atomic.Int32{}, atomic.Bool{}
			s.replace = func(ctx context.Context, r driver.Record) (*driver.Record, error) {
				was := s.record(t, key).Version
				if writes.Add(1) == 1 {
					<-held
				}
				return s.inner.Replace(ctx, r, was)
			}
			waits := func(what string) {
				synctest.Wait()
				if n := writes.Load(); n != 1 {
					t.Errorf("%s: %s: %d writes at once", name, what, n)
				}
			}
			g, _ := newGuardOver(t, s)
			_, _ = idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
				go func() { _, _ = idempotent.Step(ctx, "first", charged) }()
				waits("the first")
				go second(ctx, s, &ran)
				waits("the second")
				if ran.Load() != (name == "a step") {
					t.Errorf("%s: the function of the step ran: %t", name, ran.Load())
				}
				go func() {
					waits("the end of the handler")
					close(held)
				}()
				return "done", nil
			})
		})
	}
}

// A goroutine that a handler leaves behind begins an AtMostOnce step while another
// step is written and the end of the handler waits for that. The step begins before
// the outcome is decided, or not at all.
func TestStepBegunAtTheEnd(t *testing.T) {
	t.Parallel()
	begins := func(t *testing.T) {
		s, key := watch(), newKey()
		held, completes := make(chan struct{}), make(chan struct{})
		left := make(chan error, 1)
		deciding, late := atomic.Bool{}, atomic.Bool{}
		s.replace = func(ctx context.Context, r driver.Record) (*driver.Record, error) {
			was := s.record(t, key).Version
			switch _, marked := r.Step("left"); {
			case r.State == driver.StateCompleted:
				deciding.Store(true)
				<-completes
			case marked:
				late.Store(deciding.Load())
			default:
				<-held
			}
			return s.inner.Replace(ctx, r, was)
		}
		g, _ := newGuardOver(t, s)
		var ended sync.WaitGroup
		ended.Go(func() {
			_, _ = idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
				go func() { _, _ = idempotent.Step(ctx, "written", charged) }()
				synctest.Wait() // until it is being written
				go func() {
					synctest.Wait() // until the end of the handler waits
					go func() {
						_, err := idempotent.Step(ctx, "left", charged, atMostOnce)
						left <- err
						close(completes)
					}()
					synctest.Wait()
					close(held)
				}()
				return "done", nil
			})
		})
		err := <-left
		ended.Wait()
		if late.Load() {
			t.Errorf("the step began after the outcome was decided; its error: %v", err)
		}
	}
	for range 500 { // which goroutine runs first is not determined
		synctest.Test(t, begins)
	}
}
