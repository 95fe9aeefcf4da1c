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
// scenario's expectations hold as long as the guard feels no fault. If an
// expectation fails after a felt fault, the scenario ends there, and only the
// invariants are checked.
type trial struct {
	testing.TB
	*lab
	strict   atomic.Bool // no deviation is excused
	scripted bool        // everything was as the scenario expects
	calls    int         // to the store, while the scenario ran

	mu     sync.Mutex
	strays []string // excused deviations from the scenario
	broken []string // failures that are not excused
}

// trial runs a scenario once, ends the faults, and judges the history.
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

// alone runs a scenario as RunFailureModes does, and returns its failures.
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

// do calls f, which may end its goroutine, and reports whether f returned. A
// panic is reported like any other failure, with the seed that led to it.
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

// report reports the failures that are not excused.
func (t *trial) report(to testing.TB, when string) {
	to.Helper()
	for _, what := range t.broken {
		to.Errorf("%s: %s", when, what)
	}
}

// breaks records a failure that is never excused.
func (t *trial) breaks(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken = append(t.broken, what)
}

// sees records a deviation from the scenario.
func (t *trial) sees(what string) {
	if t.strict.Load() || !t.weather.felt.Load() {
		t.breaks(where() + what)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.strays = append(t.strays, what)
}

// where returns the current line of a scenario.
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

// These methods of testing.TB report failures. All others are those of the
// test.

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
