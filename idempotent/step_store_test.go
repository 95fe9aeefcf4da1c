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
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// The writes of steps, one by one: which there are, what they contain, and what
// happens if they fail.

func value[T any](v T) func(context.Context) (T, error) {
	return func(context.Context) (T, error) { return v, nil }
}

// do runs a handler of steps over s.
func (s *watched) do(t *testing.T, key idempotent.Key, h func(context.Context) (string, error), optFns ...func(*idempotent.Options)) (string, error) {
	t.Helper()
	g, _ := newGuardOver(t, s, append([]func(*idempotent.Options){resume("a", "b")}, optFns...)...)
	return idempotent.Do(t.Context(), g, key, h)
}

// G01: one write for an AtLeastOnce step, two for an AtMostOnce step, none for a
// replayed step; and each belongs to its owner.
func TestStepWrites(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		optFns []func(*idempotent.StepOptions)
		writes int
	}{"AtLeastOnce": {nil, 1}, "AtMostOnce": {[]func(*idempotent.StepOptions){atMostOnce}, 2}} {
		s, key := watch(), newKey()
		last := errDown
		handler := func(ctx context.Context) (string, error) {
			before := len(s.calls)
			first := last != nil
			if v, err := idempotent.Step(ctx, "a", value(1), c.optFns...); v != 1 || err != nil {
				t.Errorf("%s: %d, %v", name, v, err)
			}
			if n := len(s.calls) - before; first && n != c.writes || !first && n != 0 {
				t.Errorf("%s: %d calls, want %d, and none on replay: %v", name, n, c.writes, s.calls[before:])
			}
			return "done", last
		}
		_, _ = s.do(t, key, handler)
		last = nil
		if v, err := s.do(t, key, handler); v != "done" || err != nil {
			t.Errorf("%s: %q, %v", name, v, err)
		}
		// Two claims, the steps, two outcomes.
		if want := 2 + 1 + c.writes + 2; len(s.calls) != want {
			t.Errorf("%s: %d calls, want %d: %v", name, len(s.calls), want, s.calls)
		}
	}
}

// A step does not begin under a context that has ended.
func TestStepUnderAnEndedContext(t *testing.T) {
	t.Parallel()
	s := watch()
	_, err := s.do(t, newKey(), func(ctx context.Context) (string, error) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		return idempotent.Step(ended, "a", never[string])
	})
	if !errors.Is(err, context.Canceled) || len(s.calls) != 2 {
		t.Errorf("got %v after %v", err, s.calls)
	}
}

// A name can be used once in a run, even if its result was replayed.
func TestStepNamesAreUsedOnce(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	for range 2 {
		_, err := s.do(t, key, func(ctx context.Context) (string, error) {
			for _, name := range []string{"a", "b"} {
				if _, err := idempotent.Step(ctx, name, value("x")); err != nil {
					return "", err
				}
			}
			return idempotent.Step(ctx, "a", never[string])
		})
		if !errors.As(err, new(*idempotent.StepError)) || !strings.Contains(err.Error(), "twice in one run") {
			t.Errorf("got %v", err)
		}
	}
}

// A later run that did nothing does not undo what an earlier run may have done.
func TestStepStaysBegun(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	for _, err := range []error{errDown, idempotent.NotExecuted(errDown)} {
		if _, got := s.do(t, key, func(ctx context.Context) (string, error) {
			return idempotent.Step(ctx, "a", func(context.Context) (string, error) { return "", err })
		}); got != err {
			t.Errorf("got %v, want %v", got, err)
		}
		r := s.record(t, key)
		if step, found := r.Step("a"); !found || step.Finished || step.Attempt != 1 || r.Reason != driver.ReasonHandlerError {
			t.Errorf("after %v: the step is %+v, %v, the record %s", err, step, found, r.Reason)
		}
	}
}

// A recorded result is replayed even if the run has found its record swept.
func TestStepIsReplayedAfterASweep(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	for _, err := range []error{errDown, nil} {
		_, _ = s.do(t, key, func(ctx context.Context) (string, error) {
			if err == nil {
				s.interrupted(t, key, func(r *driver.Record) { r.State = driver.StateUnknown })
				if _, err := idempotent.Step(ctx, "b", charged); !errors.As(err, new(*idempotent.LeaseLostError)) {
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

// If its mark cannot be written, an AtMostOnce step does not run and has not
// begun.
func TestStepWithoutItsMark(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	s.replace = func(ctx context.Context, r driver.Record) (*driver.Record, error) {
		s.replace = nil
		return nil, errDown
	}
	var failed error
	_, err := s.do(t, key, func(ctx context.Context) (string, error) {
		_, failed = idempotent.Step(ctx, "a", never[string], atMostOnce)
		if v, err := idempotent.Step(ctx, "a", value("x"), atMostOnce); v != "x" || err != nil { // it can be tried again
			t.Errorf("got %q, %v", v, err)
		}
		return "", idempotent.NotExecuted(errDown)
	})
	if !errors.As(failed, new(*idempotent.StoreError)) || !errors.Is(err, errDown) {
		t.Errorf("the step: %v; the handler: %v", failed, err)
	}

	key = newKey()
	s.replace = func(context.Context, driver.Record) (*driver.Record, error) {
		s.replace = nil
		return nil, errDown
	}
	_, _ = s.do(t, key, func(ctx context.Context) (string, error) {
		_, _ = idempotent.Step(ctx, "a", never[string], atMostOnce)
		return "", idempotent.NotExecuted(errDown)
	})
	if r := s.record(t, key); r.State != driver.StateRetryable || r.Reason != driver.ReasonNotExecuted || len(r.Steps) != 0 {
		t.Errorf("the record is %s (%s) with %d steps", r.State, r.Reason, len(r.Steps))
	}
}

// If the reply to a mark was lost, the mark is in the record and its step did not
// run. The next write removes the mark.
func TestStepMarkWithoutAReply(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	s.replace = func(ctx context.Context, r driver.Record) (*driver.Record, error) {
		s.replace = nil
		if met, err := s.inner.Replace(ctx, r, s.record(t, key).Version); met != nil || err != nil {
			t.Fatal(met, err)
		}
		return nil, errDown
	}
	_, _ = s.do(t, key, func(ctx context.Context) (string, error) {
		if _, err := idempotent.Step(ctx, "a", never[string], atMostOnce); !errors.As(err, new(*idempotent.StoreError)) {
			t.Errorf("the step: %v", err)
		}
		if len(s.record(t, key).Steps) != 1 {
			t.Error("the mark is not in the record: the test proves nothing")
		}
		return "", idempotent.NotExecuted(errDown)
	})
	if r := s.record(t, key); r.State != driver.StateRetryable || len(r.Steps) != 0 {
		t.Errorf("the record is %s with the steps %+v", r.State, r.Steps)
	}
}

// A result that cannot be written is reported, and the next write includes it.
func TestStepResultThatIsNotWritten(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	s.replace = func(context.Context, driver.Record) (*driver.Record, error) {
		s.replace = nil
		return nil, errDown
	}
	at := now()
	g, events := newGuardOver(t, s, resume("a", "b"), fixed(at))
	_, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
		if v, err := idempotent.Step(ctx, "a", value("x")); v != "x" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
		return "", errDown
	})
	if err != errDown {
		t.Error(err)
	}
	if step, _ := s.record(t, key).Step("a"); !step.Finished || !step.At.Equal(at) {
		t.Errorf("the step is %+v", step)
	}
	if events.Count(event.StoreError) != 1 || events.Count(event.StepDone) != 0 {
		t.Errorf("events %s", events.Kinds())
	}
	for _, e := range events.Events() {
		if e.Kind == event.StoreError && (!errors.Is(e.Err, errDown) || e.KeyHash != key.RecordID().KeyHash()) {
			t.Errorf("the event is %+v", e)
		}
	}
}

// The next write, or the retried write itself, finds a write whose reply was
// lost.
func TestStepWriteWithoutAReply(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	for name, c := range map[string]struct {
		lost        func(*driver.Record) (*driver.Record, error)
		calls, done int
	}{
		// A claim, two steps, an outcome; and one more if the first write was found.
		"no reply":              {func(*driver.Record) (*driver.Record, error) { return nil, errDown }, 5, 1},
		"the SDK sent it again": {func(r *driver.Record) (*driver.Record, error) { return r, nil }, 4, 2},
		"another write came after it": {func(*driver.Record) (*driver.Record, error) {
			return s.change(t, key, func(r *driver.Record) { r.Ref = "order 7" }), nil
		}, 4, 2},
	} {
		s, key = watch(), newKey()
		g, events := newGuardOver(t, s, resume("a", "b"))
		was := driver.Version{}
		s.replace = func(ctx context.Context, r driver.Record) (*driver.Record, error) {
			s.replace = nil
			if met, err := s.inner.Replace(ctx, r, was); met != nil || err != nil {
				t.Fatal(met, err)
			}
			return c.lost(&r)
		}
		_, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
			was = s.record(t, key).Version
			for _, step := range []string{"a", "b"} {
				if v, err := idempotent.Step(ctx, step, value(step)); v != step || err != nil {
					t.Errorf("%s: %q, %v", name, v, err)
				}
			}
			return "", errDown
		})
		if err != errDown {
			t.Error(err)
		}
		if len(s.calls) != c.calls || events.Count(event.StepDone) != c.done || events.Count(event.StepReplayed) != 0 {
			t.Errorf("%s: want %d calls and %d steps done: %v, events %s", name, c.calls, c.done, s.calls, events.Kinds())
		}
		r := s.record(t, key)
		for _, step := range []string{"a", "b"} {
			if got, _ := r.Step(step); !got.Finished || got.By != driver.StepByRun {
				t.Errorf("%s: the step %s is %+v", name, step, got)
			}
		}
	}
}

// If the record is gone, or changes every time, the step returns an error.
func TestStepWhoseRecordIsNotThere(t *testing.T) {
	t.Parallel()
	s := watch()
	s.replace = func(context.Context, driver.Record) (*driver.Record, error) {
		return nil, idempotent.ErrNoRecord
	}
	if _, err := s.do(t, newKey(), func(ctx context.Context) (string, error) {
		_, err := idempotent.Step(ctx, "a", value("x"))
		if !errors.As(err, new(*idempotent.LeaseLostError)) {
			t.Errorf("the step: %v", err)
		}
		return "", err
	}); !errors.As(err, new(*idempotent.LeaseLostError)) {
		t.Error(err)
	}

	s, key := watch(), newKey()
	rounds := 0
	s.replace = func(ctx context.Context, r driver.Record) (*driver.Record, error) {
		rounds++
		met := s.record(t, key)
		met.Version = driver.Version{byte(rounds)}
		return met, nil
	}
	if _, err := s.do(t, key, func(ctx context.Context) (string, error) {
		_, err := idempotent.Step(ctx, "a", never[string], atMostOnce)
		if !errors.As(err, new(*idempotent.StoreError)) || rounds > 10 || rounds < 2 {
			t.Errorf("the step: %v after %d rounds", err, rounds)
		}
		s.replace = nil
		return "", idempotent.NotExecuted(err)
	}); err == nil {
		t.Error("no error")
	}
}

// If the record would be too large, the step stays recorded as begun, and the
// record settles.
func TestStepTooLargeForTheStore(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	s.replace = func(ctx context.Context, r driver.Record) (*driver.Record, error) {
		if len(finished(r.Steps)) > 0 {
			return nil, driver.ErrTooLarge
		}
		return s.inner.Replace(ctx, r, s.record(t, key).Version)
	}
	_, err := s.do(t, key, func(ctx context.Context) (string, error) { return idempotent.Step(ctx, "a", value("x")) })
	if !errors.As(err, new(*idempotent.StepError)) || !strings.Contains(err.Error(), "larger than the store can hold") {
		t.Errorf("got %v", err)
	}
	if r := s.record(t, key); r.State != driver.StateRetryable || len(r.Steps) != 1 || r.Steps[0].Finished {
		t.Errorf("the record is %s with the steps %+v", r.State, r.Steps)
	}
}

func finished(steps []driver.StepRecord) []driver.StepRecord {
	return slices.DeleteFunc(slices.Clone(steps), func(s driver.StepRecord) bool { return !s.Finished })
}

// JSON cannot encode this number.
func TestStepThatDoesNotEncode(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	_, err := s.do(t, key, func(ctx context.Context) (string, error) {
		_, err := idempotent.Step(ctx, "a", value(math.NaN()))
		return "", err
	})
	if !errors.As(err, new(*idempotent.StepError)) || !strings.Contains(err.Error(), "cannot be recorded") {
		t.Errorf("got %v", err)
	}
	if r := s.record(t, key); len(r.Steps) != 1 || r.Steps[0].Finished {
		t.Errorf("the steps are %+v", r.Steps)
	}
}

// A step whose handler has committed meanwhile is too late.
func TestStepAfterCommit(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	v, err := s.do(t, key, func(ctx context.Context) (string, error) {
		_, err := idempotent.Step(ctx, "a", func(ctx context.Context) (string, error) {
			return "x", commit(ctx, "done", s.inner.Replace)
		})
		if err != idempotent.ErrExecutionEnded {
			t.Errorf("the step: %v", err)
		}
		return "done", nil
	})
	if v != "done" || err != nil || s.record(t, key).Steps != nil {
		t.Errorf("got %q, %v", v, err)
	}
}

// The end of a step that the handler left behind does not change the outcome.
func TestStepLeftBehind(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	begun, end, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	writes := 0
	s.replace = func(ctx context.Context, r driver.Record) (*driver.Record, error) {
		if writes++; writes == 1 { // the outcome is being written
			close(end)
			<-left
			return s.change(t, key, func(r *driver.Record) { r.State = driver.StateUnknown }), nil
		}
		return s.inner.Replace(ctx, r, s.record(t, key).Version)
	}
	_, _ = s.do(t, key, func(ctx context.Context) (string, error) {
		go func() {
			defer close(left)
			_, _ = idempotent.Step(ctx, "a", func(context.Context) (string, error) {
				close(begun)
				<-end
				return "", idempotent.NotExecuted(errDown)
			})
		}()
		<-begun
		return "", errDown
	})
	if r := s.record(t, key); writes != 2 || len(r.Steps) != 1 {
		t.Errorf("after %d writes the steps are %+v", writes, r.Steps)
	}
}

// Events name the step; without an observer there are no events.
func TestStepEvents(t *testing.T) {
	t.Parallel()
	s, key := watch(), newKey()
	g, events := newGuardOver(t, s, resume("a"))
	h := func(ctx context.Context) (string, error) {
		_, err := idempotent.Step(ctx, "a", value("x"))
		return "", errors.Join(err, errDown)
	}
	_, _ = idempotent.Do(t.Context(), g, key, h)
	_, _ = idempotent.Do(t.Context(), g, key, h)
	for _, kind := range []event.Kind{event.StepDone, event.StepReplayed} {
		i := slices.IndexFunc(events.Events(), func(e event.Event) bool { return e.Kind == kind })
		if i < 0 || events.Events()[i].Step != "a" {
			t.Errorf("%s: %+v", kind, events.Events())
		}
	}
	var log bytes.Buffer
	if _, err := s.do(t, newKey(), h, func(o *idempotent.Options) { o.Observer, o.Logger = nil, slog.New(slog.NewTextHandler(&log, nil)) }); !errors.Is(err, errDown) || log.Len() > 0 {
		t.Errorf("got error %v and log %s", err, &log)
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
		s, key := watch(), newKey()
		_, _ = s.do(t, key, func(ctx context.Context) (string, error) {
			_, err := idempotent.Step(ctx, "a", value(string(text[:length])))
			return "", errors.Join(err, errDown)
		})
		step, _ := s.record(t, key).Step("a")
		if !step.Finished {
			return n + 1
		}
		return len(step.Result)
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
	s, key := watch(), newKey()
	name := strings.Repeat("n", 64)
	_, err := s.do(t, key, func(ctx context.Context) (string, error) {
		for step, result := range map[string]string{"a/1": full, "a/2": full, "b/1": full, "b/2": rest} {
			if _, err := idempotent.Step(ctx, step, value(result)); err != nil {
				return "", err
			}
		}
		ran := false
		_, err := idempotent.Step(ctx, "a/3", func(context.Context) (string, error) { ran = true; return "", nil })
		if !ran || !errors.As(err, new(*idempotent.StepError)) || !strings.Contains(err.Error(), "would have 262146 bytes; the limit is 262144") {
			t.Errorf("a step that fits without its result: it ran: %t; %v", ran, err)
		}
		if _, err := idempotent.Step(ctx, "a/4", never[string]); !errors.As(err, new(*idempotent.StepError)) || !strings.Contains(err.Error(), "would have 262275 bytes") {
			t.Errorf("a step that does not fit: %v", err)
		}
		return "", errDown
	})
	if r := s.record(t, key); err != errDown || len(finished(r.Steps)) != all/one {
		t.Errorf("%v, %d steps", err, len(finished(r.Steps)))
	}
	if v, err := s.do(t, newKey(), func(ctx context.Context) (string, error) { return idempotent.Step(ctx, name, value("x")) }, resume(name)); v != "x" || err != nil {
		t.Errorf("a name of 64 characters: %q, %v", v, err)
	}
	for _, name := range []string{"x/a", "/a"} {
		if _, err := s.do(t, newKey(), func(ctx context.Context) (string, error) { return idempotent.Step(ctx, name, never[string]) }); !errors.As(err, new(*idempotent.StepError)) {
			t.Errorf("%s, which was not declared: %v", name, err)
		}
	}
}

// The first record of a guard whose steps pass 32 KB is logged, without its key and
// its results.
func TestStepsAreLarge(t *testing.T) {
	t.Parallel()
	const large = 32 << 10
	var log bytes.Buffer
	s, logged := watch(), func(o *idempotent.Options) {
		o.Recovery, o.Steps, o.Logger = idempotent.Resume, []string{"a"}, slog.New(slog.NewTextHandler(&log, nil))
	}
	g, _ := newGuardOver(t, s, logged)
	half, rest := packs(t, large/2), packs(t, large/2-2*(len("a/1")+128))
	for i, results := range [][]string{{half, rest}, {half, half}, {half, half}} {
		key := newKey()
		if _, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
			for n, result := range results {
				if _, err := idempotent.Step(ctx, fmt.Sprint("a/", n), value(result)); err != nil {
					return "", err
				}
			}
			return "", nil
		}); err != nil {
			t.Fatal(err)
		}
		want := i > 0
		if got := strings.Count(log.String(), "steps of a record have more than 32 KB"); (got == 1) != want || got > 1 {
			t.Errorf("after request %d: %d lines", i, got)
		}
		if i == 1 {
			line := log.String()
			if id := key.RecordID(); !strings.Contains(line, "operation=charge key_hash="+id.KeyHash()+"\n") || strings.Contains(line, key.ID) {
				t.Errorf("the line is %.300s", line)
			}
		}
	}
}

func TestStepModes(t *testing.T) {
	t.Parallel()
	for mode, code := range map[driver.StepMode]string{driver.AtLeastOnce: "L", driver.AtMostOnce: "M"} {
		if got, err := driver.ParseStepMode(code); mode.Code() != code || got != mode || err != nil {
			t.Errorf("%d: code %q, and back %d, %v", mode, mode.Code(), got, err)
		}
	}
	if got := (driver.AtMostOnce + 1).Code(); got != "?" {
		t.Errorf("an unknown mode has the code %q", got)
	}
	if _, err := driver.ParseStepMode("?"); err == nil {
		t.Error("an unknown code was parsed as a mode")
	}
}

// A record that was passed to a store does not change with the run.
func TestStepsAreNotShared(t *testing.T) {
	t.Parallel()
	r := driver.Record{Steps: []driver.StepRecord{{Name: "a", Result: []byte("1")}}}
	c := r.Clone()
	c.Steps[0].Result[0], c.Steps[0].Name = '2', "b"
	if r.Steps[0].Name != "a" || string(r.Steps[0].Result) != "1" {
		t.Errorf("the original became %+v", r.Steps[0])
	}

	s, key := watch(), newKey()
	var seen []driver.Record // as the store got them, not copied
	s.replace = func(ctx context.Context, r driver.Record) (*driver.Record, error) {
		seen = append(seen, r)
		return s.inner.Replace(ctx, r, s.record(t, key).Version)
	}
	_, _ = s.do(t, key, func(ctx context.Context) (string, error) {
		_, _ = idempotent.Step(ctx, "b", value("b"), atMostOnce)
		_, _ = idempotent.Step(ctx, "a", func(context.Context) (string, error) { return "", idempotent.NotExecuted(errDown) }, atMostOnce)
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
