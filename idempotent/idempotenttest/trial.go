package idempotenttest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// trial is one run of a scenario under faults, and a [testing.TB] for it. The
// scenario says what happens as long as no fault is felt. Where it sees
// something else after one was, its script is out of date: it ends there, and
// what happened is judged by the invariants alone.
type trial struct {
	testing.TB
	*lab
	strict   atomic.Bool // nothing is excused
	scripted bool        // all was as the scenario says
	calls    int         // on the line, while it ran

	mu     sync.Mutex
	strays []string // what was not as the scenario says, and excused
	broken []string // and what was not excused
}

// trial runs a scenario once, lets the faults stop, and judges.
func (s scenario) trial(t testing.TB, f Fixture, k faultKind, plan Plan, seed uint64) *trial {
	tr := &trial{TB: t}
	tr.strict.Store(true)
	if !tr.do(func() {
		tr.lab = newLab(tr, f)
		tr.weather = newWeather(plan, tr.clock, seed)
		tr.weather.wire = k.wire
		tr.line = k.line(tr, f, tr.store, tr.weather.Faults)
	}) {
		return tr
	}
	tr.strict.Store(false)
	tr.scripted = tr.do(func() { s.run(tr.lab) }) && len(tr.strays) == 0
	tr.calls = tr.weather.Calls("")
	tr.strict.Store(true)
	tr.weather.over.Store(true)
	tr.do(tr.getsOn)
	if got, most := int(tr.effects.Load()), promiseOf(s.name).effects; got > most {
		tr.breaks(fmt.Sprintf("the provider saw %d effects, and %d are allowed", got, most))
	}
	tr.do(func() {
		for _, err := range tr.history.judge(tr.record()) {
			tr.breaks(err.Error())
		}
	})
	return tr
}

// alone runs a scenario as RunFailureModes does, and returns what it found.
func (s scenario) alone(t testing.TB, f Fixture) []string {
	tr := &trial{TB: t}
	tr.strict.Store(true)
	tr.do(func() {
		tr.lab = newLab(tr, f)
		s.run(tr.lab)
	})
	if tr.lab != nil {
		tr.do(func() {
			for _, err := range tr.history.judge(tr.record()) {
				tr.breaks(err.Error())
			}
		})
	}
	return tr.broken
}

// do calls f, which may end its goroutine, and reports whether it did not. A
// panic is told like any other failure, with the seed that led to it.
func (t *trial) do(f func()) (returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				t.breaks(fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
			}
		}()
		f()
		returned = true
	}()
	<-done
	return returned
}

// report tells what was not excused.
func (t *trial) report(to testing.TB, when string) {
	to.Helper()
	for _, what := range t.broken {
		to.Errorf("%s: %s", when, what)
	}
}

// breaks notes what is never excused.
func (t *trial) breaks(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken = append(t.broken, what)
}

// sees notes something that the scenario does not expect.
func (t *trial) sees(what string) {
	if t.strict.Load() || !t.weather.felt.Load() {
		t.breaks(where() + what)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.strays = append(t.strays, what)
}

// where returns the line of a scenario that is being run.
func where() string {
	var callers [32]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for {
		frame, more := frames.Next()
		if file := frame.File[strings.LastIndexByte(frame.File, '/')+1:]; strings.HasPrefix(file, "failuremodes_") {
			return fmt.Sprintf("%s:%d: ", file, frame.Line)
		}
		if !more {
			return ""
		}
	}
}

// The methods of testing.TB that tell of failures. Everything else is the
// test's own.

func (t *trial) Helper() {}

func (t *trial) Error(args ...any) { t.sees(strings.TrimSpace(fmt.Sprintln(args...))) }

func (t *trial) Errorf(format string, args ...any) { t.sees(fmt.Sprintf(format, args...)) }

func (t *trial) Fatal(args ...any) {
	t.Error(args...)
	runtime.Goexit()
}

func (t *trial) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}
