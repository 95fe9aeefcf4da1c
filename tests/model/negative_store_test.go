package model_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/tests/model/broken"
	"github.com/once-lambda/once/tests/tally"
)

// brokenStores are stores that some test of this package must reject: the
// property test, the histories of calls, or those of requests. A single
// goroutine does not see a race, and the guard never notices some of the
// others.
var brokenStores = []struct {
	name                      string
	breaks                    over
	property, calls, requests bool
}{
	{"Blind", func(s driver.Store) driver.Store { return broken.Blind{Store: s} }, true, true, true},
	{"Overwriting", func(s driver.Store) driver.Store { return broken.Overwriting{Store: s} }, true, true, true},
	{"Hasty", func(s driver.Store) driver.Store { return broken.Hasty{Store: s} }, true, true, true},
	{"Upserting", func(s driver.Store) driver.Store { return broken.Upserting{Store: s} }, true, true, false},
	{"Familiar", func(s driver.Store) driver.Store { return broken.Familiar{Store: s} }, true, false, true},
	{"Forgetful", func(s driver.Store) driver.Store { return broken.Forgetful{Store: s} }, true, true, true},
	{"Racy", func(s driver.Store) driver.Store { return broken.Racy{Store: s} }, false, true, true},
	{"Stale", func(s driver.Store) driver.Store { return &broken.Stale{Store: s} }, true, true, true},
}

// The property test rejects them, and shows a sequence.
func TestBrokenStoresFailThePropertyTest(t *testing.T) {
	t.Parallel()
	for _, b := range brokenStores {
		if !b.property {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			found := &verdict{name: t.Name()}
			for range 40 {
				if found.of(behavesAsTheModel(newMemory, b.breaks, &tally.Tally{})) {
					break
				}
			}
			shown := found.log.String()
			n := strings.Count(shown, "draw action:")
			switch {
			case !found.failed:
				t.Error("it passed")
			case n == 0 || strings.Contains(shown, "flaky"):
				t.Errorf("the failure does not show how to repeat it:\n%s", shown)
			}
			t.Logf("found by a sequence of %d operations", n)
		})
	}
}

// Their calls have no order that the model allows.
func TestBrokenStoresAreNotLinearizable(t *testing.T) {
	t.Parallel()
	few := load{rounds: 50, goroutines: 8, each: 100, keys: 2}
	for _, b := range brokenStores {
		if !b.calls {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			few.wantsNoOrder(t, ofSlot, func(round int) []*history {
				return newClients(b.breaks(newMemory()), few, &tally.Tally{}).run(round)
			})
		})
	}
}

// The answers of a guard over such a store have no order either.
func TestBrokenStoresMakeBrokenGuards(t *testing.T) {
	t.Parallel()
	few := load{rounds: 100, goroutines: 8, each: 40, keys: 2}
	for _, b := range brokenStores {
		if !b.requests {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			few.wantsNoOrder(t, ofKey, func(round int) []*history {
				return newCrowd(t, b.breaks(newMemory()), few, 0, &tally.Tally{}).run(round)
			})
		})
	}
}

// With a store that lets a claim overwrite another, two handlers run at once,
// which is seen without any search.
func TestBrokenStoreBreaksExclusion(t *testing.T) {
	t.Parallel()
	few := load{rounds: 1, goroutines: 64, each: 10, keys: 2}
	c := newCrowd(t, broken.Overwriting{Store: newMemory()}, few, 0, &tally.Tally{})
	c.run(0)
	if len(c.wrong) == 0 {
		t.Error("no handler was entered during the lease of another")
	}
}

// verdict collects the failures of a property test instead of a test.
type verdict struct {
	name   string
	failed bool
	log    strings.Builder
}

// of reports whether prop fails.
func (v *verdict) of(prop func(*rapid.T)) bool {
	done := make(chan struct{})
	go func() { // which a failure ends
		defer close(done)
		rapid.Check(v, prop)
	}()
	<-done
	return v.failed
}

func (v *verdict) Helper()                         {}
func (v *verdict) Name() string                    { return v.name }
func (v *verdict) Log(args ...any)                 { fmt.Fprintln(&v.log, args...) }
func (v *verdict) Logf(format string, args ...any) { fmt.Fprintf(&v.log, format+"\n", args...) }
func (v *verdict) SkipNow()                        { runtime.Goexit() }
func (v *verdict) Skip(...any)                     { v.SkipNow() }
func (v *verdict) Skipf(string, ...any)            { v.SkipNow() }
func (v *verdict) Fail()                           { v.failed = true }
func (v *verdict) Failed() bool                    { return v.failed }
func (v *verdict) FailNow()                        { v.failed = true; runtime.Goexit() }
func (v *verdict) Error(args ...any)               { v.Log(args...); v.Fail() }
func (v *verdict) Errorf(format string, a ...any)  { v.Logf(format, a...); v.Fail() }
func (v *verdict) Fatal(args ...any)               { v.Log(args...); v.FailNow() }
func (v *verdict) Fatalf(format string, a ...any)  { v.Logf(format, a...); v.FailNow() }
