// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/errtype"
)

// resume declares the steps of an operation.
func resume(steps ...string) func(*idempotent.Options) {
	return func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, steps }
}

func atMostOnce(o *idempotent.StepOptions) { o.AtMostOnce = true }

func value[T any](v T) func(context.Context) (T, error) {
	return func(context.Context) (T, error) { return v, nil }
}

func never[T any](context.Context) (T, error) { panic("the step ran") }

// step runs a step of that name, and returns its error.
func step[T any](name string, fn func(context.Context) (T, error), mode ...func(*idempotent.StepOptions)) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := idempotent.Step(ctx, name, fn, mode...)
		return err
	}
}

// F37, F43, F44: the second attempt gets the first one's finished step and runs
// the one that failed, with the downstream keys of the first attempt.
func TestResume(t *testing.T) {
	t.Parallel()
	f := newFixture(t, resume("authorise", "capture"))
	var ran, keys []string
	fails := errDown
	handler := func(ctx context.Context) (string, error) {
		keys = append(keys, idempotent.DownstreamKey(ctx))
		effect := func(name, result string, err error) handlerFunc {
			return func(ctx context.Context) (string, error) {
				ran, keys = append(ran, name), append(keys, idempotent.DownstreamKey(ctx))
				return result, err
			}
		}
		auth, err := idempotent.Step(ctx, "authorise", effect("authorise", "auth_1", nil))
		if err != nil {
			return "", err
		}
		return idempotent.Step(ctx, "capture", effect("capture", auth+" captured", fails))
	}
	if _, err := f.do(handler); err != errDown {
		t.Fatalf("got error %v, want the handler's own", err)
	}
	r := f.record()
	if s, _ := r.Step("authorise"); !s.Finished || s.Attempt != 1 || !s.At.Equal(start) || s.By != driver.StepByRun {
		t.Errorf("the finished step is %+v", s)
	}
	if s, found := r.Step("capture"); s.Finished || !found {
		t.Errorf("the failed step is %+v, found %v; want it begun", s, found)
	}

	fails = nil
	if value, err := f.do(handler); err != nil || value != "auth_1 captured" {
		t.Fatalf("the second attempt: %q, %v", value, err)
	}
	if r := f.record(); r.State != driver.StateCompleted || r.Steps != nil || r.Attempt != 2 {
		t.Errorf("the record is %s with steps %v, attempt %d", r.State, r.Steps, r.Attempt)
	}
	id := f.key.RecordID()
	whole, authorise, capture := id.DownstreamKey(), id.StepKey("authorise"), id.StepKey("capture")
	if want := []string{whole, authorise, capture, whole, capture}; !slices.Equal(keys, want) || !slices.Equal(ran, []string{"authorise", "capture", "capture"}) {
		t.Errorf("ran %v with the downstream keys\n%q, want\n%q", ran, keys, want)
	}
	var about []string
	for _, e := range f.events.Events() {
		about = append(about, strings.TrimSpace(string(e.Kind)+" "+e.Step))
	}
	if got := strings.Join(about, ", "); got != "reserved, step_done authorise, retryable, taken_over, step_replayed authorise, step_done capture, completed" {
		t.Errorf("events %s", got)
	}
}

// G01: the writes of a step: one of an AtLeastOnce step, two of an AtMostOnce step; and what
// happens to them. The handler returns an error afterwards.
func TestStepWrites(t *testing.T) {
	t.Parallel()
	var (
		failed    = new(idempotent.StoreError)
		lost      = new(idempotent.LeaseLostError)
		notDone   = idempotent.NotExecuted(errDown)
		sentTwice = func(c *call) { c.do(); c.do() }
		tooLarge  = func(c *call) {
			if slices.ContainsFunc(c.StoreCall.Record.Steps, func(s driver.StepRecord) bool { return s.Finished }) {
				c.Err = driver.ErrTooLarge
				return
			}
			c.do()
		}
		overtaken = func(c *call) { // applied, changed by another party, and sent again
			c.do()
			c.change(func(r *driver.Record) { r.Ref = "order 7" })
			c.do()
		}
	)
	for _, c := range []struct {
		name    string
		once    bool // AtMostOnce
		replace func(*call)
		ran     bool
		err     error // of the step
		own     error // of the handler
		state   driver.State
		step    string // in the record: begun or finished
		writes  int
		events  string // after reserved
	}{
		{"at least once", false, nil, true, nil, errDown, driver.StateRetryable, "finished", 2, "step_done retryable"},
		{"at most once", true, nil, true, nil, errDown, driver.StateRetryable, "finished", 3, "step_done retryable"},
		{"the mark fails", true, first(fail(errDown)), false, failed, notDone, driver.StateRetryable, "", 2, "retryable"},
		{"no reply to the mark", true, first(lose(errDown)), false, failed, notDone, driver.StateRetryable, "", 3, "late_completion"},
		{"another write before the mark, every time", true, after(func(*driver.Record) {}), false, failed, notDone, driver.StateInProgress, "", 8, "completion_failed"},
		{"a sweep before the mark", true, first(after(swept)), false, lost, errDown, driver.StateRetryable, "", 2, "retryable"},
		{"the result is not written", false, first(fail(errDown)), true, nil, errDown, driver.StateRetryable, "finished", 2, "store_error retryable"},
		{"no reply to the result", false, first(lose(errDown)), true, nil, errDown, driver.StateRetryable, "finished", 3, "store_error late_completion"},
		{"sent again by the SDK", false, first(sentTwice), true, nil, errDown, driver.StateRetryable, "finished", 2, "step_done retryable"},
		{"sent again after another write", false, first(overtaken), true, nil, errDown, driver.StateRetryable, "finished", 2, "step_done retryable"},
		{"the record is too large", false, tooLarge, true, new(idempotent.StepError), errDown, driver.StateRetryable, "begun", 2, "retryable"},
		{"the record is gone", false, fail(idempotent.ErrNoRecord), true, lost, lost, driver.StateInProgress, "", 2, "completion_failed"},
	} {
		f := newFixture(t, resume("a", "b"))
		f.on(driver.OpReplace, c.replace)
		ran := false
		var mode []func(*idempotent.StepOptions)
		if c.once {
			mode = append(mode, atMostOnce)
		}
		_, err := f.do(func(ctx context.Context) (string, error) {
			v, err := idempotent.Step(ctx, "a", func(context.Context) (string, error) { ran = true; return "x", nil }, mode...)
			if !errtype.Matches(err, c.err) || ran != c.ran || err == nil && v != "x" {
				t.Errorf("%s: the step ran: %t, %q, %v", c.name, ran, v, err)
			}
			if failed := new(idempotent.StoreError); errors.As(err, &failed) && (failed.Op != driver.OpReplace || !failed.Entered) {
				t.Errorf("%s: the step returned %#v", c.name, err)
			}
			return "", c.own
		})
		if !errtype.Matches(err, c.own) {
			t.Errorf("%s: the handler: %v", c.name, err)
		}
		r, state := f.record(), ""
		if s, found := r.Step("a"); found {
			state = map[bool]string{false: "begun", true: "finished"}[s.Finished]
		}
		if r.State != c.state || state != c.step {
			t.Errorf("%s: the record is %s with the step %q, want %s with %q", c.name, r.State, state, c.state, c.step)
		}
		if n, kinds := len(f.calls)-1, f.kinds(); n != c.writes || kinds != strings.TrimSpace("reserved "+c.events) {
			t.Errorf("%s: %d writes, events %q, want %d and %q", c.name, n, kinds, c.writes, c.events)
		}
	}
}

// An AtMostOnce step whose mark could not be written can be tried again, and a replayed
// step writes nothing. A later run that did nothing does not undo what an earlier one may
// have done.
func TestStepAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, resume("a", "b"))
	for run, ends := range []error{errDown, idempotent.NotExecuted(errDown), idempotent.NotExecuted(errDown)} {
		_, _ = f.do(func(ctx context.Context) (string, error) {
			if run == 0 {
				f.on(driver.OpReplace, first(fail(errDown)))
				if err := step("b", never[string], atMostOnce)(ctx); !errors.As(err, new(*idempotent.StoreError)) {
					t.Errorf("without its mark: %v", err)
				}
			}
			before := len(f.calls)
			v, err := idempotent.Step(ctx, "b", value(fmt.Sprint(run)), atMostOnce)
			if writes := len(f.calls) - before; v != "0" || err != nil || (writes == 0) != (run > 0) {
				t.Errorf("run %d: %q, %v after %d writes", run, v, err, writes)
			}
			return idempotent.Step(ctx, "a", returns(ends))
		})
		if s, found := f.record().Step("a"); !found || s.Finished || s.Attempt != 1 {
			t.Errorf("after run %d: the step is %+v, %v", run, s, found)
		}
	}
}

// A recorded result is replayed even if the run has found its record swept.
func TestStepIsReplayedAfterASweep(t *testing.T) {
	t.Parallel()
	f := newFixture(t, resume("a", "b"))
	for _, err := range []error{errDown, nil} {
		_, _ = f.do(func(ctx context.Context) (string, error) {
			if err == nil {
				f.on(driver.OpReplace, first(after(swept)))
				if err := step("b", charged)(ctx); !errors.As(err, new(*idempotent.LeaseLostError)) {
					t.Errorf("the step that found the sweep: %v", err)
				}
			}
			if v, err := idempotent.Step(ctx, "a", value("x"), atMostOnce); v != "x" || err != nil {
				t.Errorf("got %q, %v", v, err)
			}
			return "", err
		})
	}
}

// FM29: an AtMostOnce step that was interrupted is not run again, whatever the
// operation's recovery, and the record is unknown.
func TestInterruptedAtMostOnce(t *testing.T) {
	t.Parallel()
	for _, recovery := range []idempotent.Recovery{idempotent.Resume, idempotent.Rerun} {
		f := newFixture(t, func(o *idempotent.Options) { o.Recovery, o.Steps = recovery, []string{"s"} })
		ran := 0
		f.dies(func(ctx context.Context) {
			_ = step("s", func(context.Context) (string, error) {
				ran++
				f.on(driver.OpReplace, fail(errDown)) // the process dies: only what is stored is left
				return "", errDown
			}, atMostOnce)(ctx)
		})
		if r := f.record(); !r.Expires.IsZero() || r.Due.IsZero() {
			t.Errorf("the record expires %s and is due %s while the step runs; want never, and listed", r.Expires, r.Due)
		}
		f.clock.Advance(time.Hour)
		handler := func(ctx context.Context) (string, error) {
			return idempotent.Step(ctx, "s", func(context.Context) (string, error) { ran++; return "", nil }, atMostOnce)
		}
		for range 2 {
			if _, err := f.do(handler); !errors.As(err, new(*idempotent.UnresolvedError)) || ran != 1 {
				t.Errorf("%s: got error %v, and the step ran %d times", recovery, err, ran)
			}
		}
		f.mustResolve(f.notExecuted()) // evidence that it did not happen lets it run
		if _, err := f.do(handler); err != nil || ran != 2 {
			t.Errorf("%s: after the evidence: error %v, the step ran %d times", recovery, err, ran)
		}
	}
}

// FM30: a record with a step that the code does not declare is not continued.
func TestUnknownRecoveryPoint(t *testing.T) {
	t.Parallel()
	f := newFixture(t, resume("pay", "ship"))
	f.dies(func(ctx context.Context) { _ = step("pay", value("1"))(ctx) })
	f.clock.Advance(time.Hour)
	before := f.record().Version
	for name, steps := range map[string][]string{"renamed": {"charge", "ship"}, "removed": {"ship"}, "longer": {"payment"}} {
		other := f.with(resume(steps...))
		_, err := other.do(forbidden(t))
		if !errors.As(err, new(*idempotent.UnresolvedError)) || !errors.As(err, new(*idempotent.StepError)) || !strings.Contains(err.Error(), `"pay"`) {
			t.Errorf("%s: got error %v, want one that names the step", name, err)
		}
		if kinds := other.kinds(); kinds != "unresolved" || f.record().Version != before {
			t.Errorf("%s: events %s, and the record was changed: %t", name, kinds, f.record().Version != before)
		}
	}
	// Code that declares the step continues.
	if v, err := f.do(func(ctx context.Context) (string, error) { return idempotent.Step(ctx, "pay", never[string]) }); v != "1" || err != nil {
		t.Errorf("got %q, %v, want the recorded 1", v, err)
	}
}

// FM64: a goroutine that the handler left behind changes nothing.
func TestLeakedGoroutine(t *testing.T) {
	t.Parallel()
	f := newFixture(t, resume("a", "b"))
	var leaked context.Context
	begun, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	if _, err := f.do(func(ctx context.Context) (string, error) {
		leaked = context.WithoutCancel(ctx)
		go func() {
			ended <- step("a", func(context.Context) (string, error) {
				close(begun)
				<-goOn
				return "late", nil
			})(ctx)
		}()
		<-begun
		return "done", nil
	}); err != nil {
		t.Fatal(err)
	}
	before := f.record()
	close(goOn)
	sent := func(context.Context, driver.Record, driver.Version) (*driver.Record, error) {
		t.Error("a transaction was sent after the outcome")
		return nil, nil
	}
	for what, err := range map[string]error{"the running step": <-ended, "a new step": step("b", never[string])(leaked), "Commit": commit(leaked, 9, sent)} {
		if err != idempotent.ErrExecutionEnded {
			t.Errorf("%s: got error %v, want ErrExecutionEnded", what, err)
		}
	}
	if r := f.record(); r.Version != before.Version || string(r.Result) != `"done"` {
		t.Errorf("the record was changed: %s", r.Result)
	}
}

// The end of a step that the handler left behind does not change the outcome, although
// the outcome is being written.
func TestStepLeftBehind(t *testing.T) {
	t.Parallel()
	f := newFixture(t, resume("a"))
	begun, end, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	f.on(driver.OpReplace, first(func(c *call) {
		close(end)
		<-left
		after(swept)(c)
	}))
	_, _ = f.do(func(ctx context.Context) (string, error) {
		go func() {
			defer close(left)
			_ = step("a", func(context.Context) (string, error) {
				close(begun)
				<-end
				return "", idempotent.NotExecuted(errDown)
			})(ctx)
		}()
		<-begun
		return "", errDown
	})
	if r := f.record(); len(f.calls) != 3 || len(r.Steps) != 1 {
		t.Errorf("after %v the steps are %+v", f.calls, r.Steps)
	}
}

// Steps run concurrently; each is recorded once.
func TestParallelSteps(t *testing.T) {
	t.Parallel()
	const n = 16
	f := newFixture(t, resume("item"))
	run := func(effect func(i int) func(context.Context) (int, error), ends error) (int64, error) {
		var sum atomic.Int64
		_, err := f.do(func(ctx context.Context) (string, error) {
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					v, err := idempotent.Step(ctx, fmt.Sprint("item/", i), effect(i))
					if err != nil {
						t.Error(err)
					}
					sum.Add(int64(v))
				})
			}
			wg.Wait()
			return "", ends
		})
		return sum.Load(), err
	}
	if _, err := run(value[int], errDown); err != errDown || len(f.record().Steps) != n {
		t.Fatalf("%v, and %d steps are recorded, want %d", err, len(f.record().Steps), n)
	}
	if sum, err := run(func(int) func(context.Context) (int, error) { return never[int] }, nil); err != nil || sum != n*(n-1)/2 {
		t.Errorf("got %d, %v", sum, err)
	}
}

// An invalid step is refused before it runs, except for what only its result shows.
func TestStepRefusals(t *testing.T) {
	t.Parallel()
	twice := func(mode ...func(*idempotent.StepOptions)) func(context.Context) error {
		return func(ctx context.Context) error {
			return errors.Join(step("a", charged, mode...)(ctx), step("b", charged)(ctx), step("a", never[string], mode...)(ctx))
		}
	}
	for name, c := range map[string]struct {
		ask  func(context.Context) error
		says string
	}{
		"no name":                    {step("", never[int]), "invalid name"},
		"a long name":                {step(strings.Repeat("x", 65), never[int]), "invalid name"},
		"a space":                    {step("a b", never[int]), "invalid name"},
		"not declared":               {step("other", never[int]), "not declared"},
		"a prefix of a declared one": {step("a-b", never[int]), "not declared"},
		"a part of another":          {step("x/a", never[int]), "not declared"},
		"a part of nothing":          {step("/a", never[int]), "not declared"},
		"a channel":                  {step("a", never[chan int]), "cannot be recorded"},
		"not a number":               {step("a", value(math.NaN())), "cannot be recorded"},
		"twice":                      {twice(), "twice in one run"},
		"twice, at most once":        {twice(atMostOnce), "twice in one run"},
		"nested": {func(ctx context.Context) error {
			return step("a", func(ctx context.Context) (int, error) { return 0, step("a/1", never[int])(ctx) })(ctx)
		}, "cannot be nested"},
		"another type": {step("done", never[int]), "another shape than int;"},
	} {
		f := newFixture(t, resume("a", "b", "done"))
		if name == "another type" {
			f.dies(func(ctx context.Context) { _ = step("done", value("x"))(ctx) })
			f.clock.Advance(time.Hour)
		}
		for range 2 { // also if the step was replayed
			if _, err := f.do(func(ctx context.Context) (string, error) { return "", c.ask(ctx) }); !errors.As(err, new(*idempotent.StepError)) ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: got error %v, want one that contains %q", name, err, c.says)
			}
		}
	}
	longest := strings.Repeat("n", 64)
	f := newFixture(t, resume(longest))
	if _, err := f.do(func(ctx context.Context) (string, error) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := step(longest, never[string])(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("under an ended context: %v", err)
		}
		return idempotent.Step(ctx, longest, charged)
	}); err != nil {
		t.Errorf("a name of 64 characters: %v", err)
	}
}

// A step whose handler has committed meanwhile is too late.
func TestStepAfterCommit(t *testing.T) {
	t.Parallel()
	f := newFixture(t, resume("a"))
	v, err := f.do(func(ctx context.Context) (string, error) {
		if err := step("a", func(ctx context.Context) (string, error) { return "x", commit(ctx, "done", f.Replace) })(ctx); err != idempotent.ErrExecutionEnded {
			t.Errorf("the step: %v", err)
		}
		return "done", nil
	})
	if v != "done" || err != nil || f.record().Steps != nil {
		t.Errorf("got %q, %v", v, err)
	}
}

// packs returns a text whose record has exactly n bytes.
func packs(t *testing.T, n int) string {
	t.Helper()
	const printable = "!#$%&'()*+,-./0123456789:;=?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~"
	dice := rand.New(rand.NewSource(1))
	text := make([]byte, 2*n)
	for i := range text {
		text[i] = printable[dice.Intn(len(printable))]
	}
	size := func(length int) int {
		f := newFixture(t, resume("a"))
		f.dies(func(ctx context.Context) { _ = step("a", value(string(text[:length])))(ctx) })
		if step, _ := f.record().Step("a"); step.Finished {
			return len(step.Result)
		}
		return n + 1
	}
	low, high := n, 2*n
	for low < high {
		if mid := (low + high) / 2; size(mid) < n {
			low = mid + 1
		} else {
			high = mid
		}
	}
	for length := low - 8; length < low+8; length++ {
		if size(length) == n {
			return string(text[:length])
		}
	}
	t.Fatalf("no text packs to %d bytes", n)
	return ""
}

// The limits are exact to the byte. A step counts as its name, its result and 128
// bytes, and is refused before it runs if not even its beginning fits.
func TestStepLimits(t *testing.T) {
	t.Parallel()
	const one, all = 64 << 10, 256 << 10
	const begun = len("a/1") + 128
	full, rest := packs(t, one), packs(t, all-3*one-5*begun)
	f := newFixture(t, resume("a", "b"))
	_, err := f.do(func(ctx context.Context) (string, error) {
		for name, result := range map[string]string{"a/1": full, "a/2": full, "b/1": full, "b/2": rest} {
			if err := step(name, value(result))(ctx); err != nil {
				return "", err
			}
		}
		ran := false
		err := step("a/3", func(context.Context) (string, error) { ran = true; return "", nil })(ctx)
		if !ran || !errors.As(err, new(*idempotent.StepError)) || !strings.Contains(err.Error(), "would have 262146 bytes; the limit is 262144") {
			t.Errorf("a step that fits without its result: it ran: %t; %v", ran, err)
		}
		if err := step("a/4", never[string])(ctx); !errors.As(err, new(*idempotent.StepError)) || !strings.Contains(err.Error(), "would have 262275 bytes") {
			t.Errorf("a step that does not fit: %v", err)
		}
		return "", errDown
	})
	finished := slices.DeleteFunc(f.record().Steps, func(s driver.StepRecord) bool { return !s.Finished })
	if err != errDown || len(finished) != all/one {
		t.Errorf("%v, %d steps", err, len(finished))
	}
}

// The first record of a guard whose steps pass 32 KB is logged, without its key and
// its results.
func TestStepsAreLarge(t *testing.T) {
	t.Parallel()
	const large = 32 << 10
	var log bytes.Buffer
	f := newFixture(t, resume("a"), func(o *idempotent.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	half, rest := packs(t, large/2), packs(t, large/2-2*(len("a/1")+128))
	for i, results := range [][]string{{half, rest}, {half, half}, {half, half}} {
		f.key = newKey()
		if _, err := f.do(func(ctx context.Context) (string, error) {
			for n, result := range results {
				if err := step(fmt.Sprint("a/", n), value(result))(ctx); err != nil {
					return "", err
				}
			}
			return "", nil
		}); err != nil {
			t.Fatal(err)
		}
		text := log.String()
		if n := strings.Count(text, "steps of a record have more than 32 KB"); n != min(i, 1) {
			t.Errorf("after request %d: %d lines", i, n)
		}
		if i == 1 && (!strings.Contains(text, "operation=charge key_hash="+f.key.RecordID().KeyHash()+"\n") || strings.Contains(text, f.key.ID)) {
			t.Errorf("the line is %.300s", text)
		}
	}
}

// A record that was passed to a store does not change with the run.
func TestStepsAreNotShared(t *testing.T) {
	t.Parallel()
	f := newFixture(t, resume("a", "b"))
	var seen []driver.Record // as the store got them, not copied
	f.on(driver.OpReplace, func(c *call) {
		seen = append(seen, c.StoreCall.Record)
		c.do()
	})
	_, _ = f.do(func(ctx context.Context) (string, error) {
		_ = step("b", value("b"), atMostOnce)(ctx)
		_ = step("a", returns(idempotent.NotExecuted(errDown)), atMostOnce)(ctx)
		return "", errDown
	})
	var names []string
	for _, r := range seen {
		for _, step := range r.Steps {
			names = append(names, step.Name+map[bool]string{true: "+", false: "-"}[step.Finished])
		}
		names = append(names, ";")
	}
	if got := strings.Join(names, ""); got != "b-;b+;a-b+;b+;" {
		t.Errorf("what was written changed afterwards to %s", got)
	}
}

// The writes of one run do not overlap: another one, and the end of the handler, wait
// for the first. The function of a step that may run again does not wait.
func TestWritesOfARunDoNotOverlap(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]func(ctx context.Context, f *fixture, ran *atomic.Bool){
		"a step": func(ctx context.Context, _ *fixture, ran *atomic.Bool) {
			_ = step("second", func(context.Context) (string, error) { ran.Store(true); return "", nil })(ctx)
		},
		"an AtMostOnce step": func(ctx context.Context, _ *fixture, _ *atomic.Bool) { _ = step("second", charged, atMostOnce)(ctx) },
		"a Commit": func(ctx context.Context, _ *fixture, _ *atomic.Bool) {
			e, _ := idempotent.FromContext(ctx)
			_ = commit(ctx, "done", e.Store().Replace)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, held := newFixture(t), make(chan struct{})
			writes, ran := atomic.Int32{}, atomic.Bool{}
			f.on(driver.OpReplace, func(c *call) {
				if writes.Add(1) == 1 {
					<-held
				}
				c.do()
			})
			waits := func(what string) {
				synctest.Wait()
				if n := writes.Load(); n != 1 {
					t.Errorf("%s: %s: %d writes at once", name, what, n)
				}
			}
			_, _ = f.do(func(ctx context.Context) (string, error) {
				go func() { _ = step("first", charged)(ctx) }()
				waits("the first")
				go second(ctx, f, &ran)
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
		f := newFixture(t)
		held, completes := make(chan struct{}), make(chan struct{})
		left := make(chan error, 1)
		deciding, late := atomic.Bool{}, atomic.Bool{}
		f.on(driver.OpReplace, func(c *call) {
			switch _, marked := c.StoreCall.Record.Step("left"); {
			case c.StoreCall.Record.State == driver.StateCompleted:
				deciding.Store(true)
				<-completes
			case marked:
				late.Store(deciding.Load())
			default:
				<-held
			}
			c.do()
		})
		var ended sync.WaitGroup
		ended.Go(func() {
			_, _ = f.do(func(ctx context.Context) (string, error) {
				go func() { _ = step("written", charged)(ctx) }()
				synctest.Wait() // until it is being written
				go func() {
					synctest.Wait() // until the end of the handler waits
					go func() {
						left <- step("left", charged, atMostOnce)(ctx)
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
