// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"fmt"
	"hash"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Explore crashes a handler at every point, and fails the test with a story of what went
// wrong. It calls body once for each schedule of faults. body makes a new provider, says
// what is promised ([World.AtMostOnce], [World.ExactlyOnce]), and adds the handler
// ([Handle]). Explore then sends the request, retries it, lets the lease end, reconciles,
// and checks every answer.
//
//	idempotenttest.Explore(t, func(w *idempotenttest.World) {
//		b := &bank{} // an http.Handler that counts its charges
//		w.Provider(b)
//		w.ExactlyOnce("charge", b.count)
//		idempotenttest.Handle(w, request, newHandler)
//	})
//
// A point is a call of the store, a request to the provider, or an effect in [World.Do].
// At a point, the process can be killed before or after the call, the call can be
// refused, its request or its reply can be lost, the reply can break off, the call can hang
// with or without its effect, the process can panic, continue late, or end while its request
// still arrives. A panic in a goroutine of the handler ends the process. After a call that
// hangs until its context ends, there must be an answer before the deadline. Explore tries every fault at
// every point of the run without faults first. Then it tries pairs of faults: of a call and
// its repetition first, and others spread evenly over three quarters of the rest of
// [ExploreOptions.Schedules]. The rest has three faults.
// The story has as few of them as possible. The same body gives the same
// stories on every run.
//
// Each schedule runs in a bubble of testing/synctest, whose clock takes no time. So body
// must not use real sockets or goroutines from outside, and the test must not be parallel:
// while Explore runs, it replaces [http.DefaultTransport], and goroutines run one at a time.
// The clock starts 20 seconds before the end of a day, a month and a year, in UTC. State of
// packages, such as a global variable, survives a kill here. A goroutine that waits for a
// mutex, while another one that holds it is at a point, stops the clock: the test then fails
// with their stacks. To hold a lock during a call, use a channel of one element.
//
// Explore logs how many schedules showed which facts, for example that a request took over
// the record of a killed one. A fact with no schedule was not tested. The log ends with a
// hash of all stories, which is another one if the body does something by chance, or if
// goroutines of a handler race for a lock.
func Explore(t *testing.T, body func(w *World), optFns ...func(*ExploreOptions)) {
	t.Helper()
	exploring.Lock()
	defer exploring.Unlock()
	x := newExplorer(t, body, optFns)
	if text, ok := x.report(os.Getenv(scheduleVariable)); ok {
		t.Log(text)
	} else {
		t.Error(text)
	}
}

// exploring is held by the one Explore that has replaced http.DefaultTransport.
var exploring sync.Mutex

// ExploreOptions are options of [Explore].
type ExploreOptions struct {
	// Schedules is how many schedules are tried, at most. Default: 1000.
	Schedules int
	// Outlives lets processes, and requests that are in flight, continue after the end of
	// their lease, as on a machine without a deadline. On Lambda they cannot. A resolver
	// that takes "not found" for "never executed" then looks wrong, and it is. Default:
	// false.
	Outlives bool
}

// explorer tries the schedules of one test.
type explorer struct {
	ExploreOptions
	t               *testing.T
	body            func(*World)
	tried, possible int
	commits         bool           // a schedule had a transaction
	stories         hash.Hash64    // of all that happened
	facts           map[string]int // in how many schedules each was shown
}

func newExplorer(t *testing.T, body func(*World), optFns []func(*ExploreOptions)) *explorer {
	x := &explorer{t: t, body: body, facts: map[string]int{}, stories: fnv.New64()}
	x.Schedules = 1000
	for _, f := range optFns {
		f(&x.ExploreOptions)
	}
	return x
}

// report explores, or runs one schedule alone, and returns what the test reports.
func (x *explorer) report(alone string) (text string, ok bool) {
	defer oneAtATime()()
	if alone != "" {
		s, err := parseSchedule(alone)
		if err != nil {
			return fmt.Sprintf("idempotenttest: Explore: the variable %s: %v", scheduleVariable, err), false
		}
		w := x.run(s)
		for _, f := range s {
			if w.broken == "" && f.at >= len(w.points) {
				return fmt.Sprintf("idempotenttest: Explore: the variable %s: the run ended after point %d, before %s", scheduleVariable, len(w.points)-1, schedule{f}), false
			}
		}
		return w.story(true) + w.stacks, w.broken == ""
	}
	if w := x.explore(); w != nil {
		return w.story(false) + w.stacks, false
	}
	return fmt.Sprintf("%d schedules, %d are possible with two faults; %s; hash of all stories: %x", x.tried, x.possible, x.shown(), x.stories.Sum64()), true
}

// explore tries the schedules, and returns the first one that breaks a promise.
func (x *explorer) explore() *World {
	calm := x.run(nil)
	if len(calm.promises)+len(calm.checks) == 0 {
		calm.breaks(atSetup, "nothing is promised", nothingPromised)
	}
	if calm.broken != "" {
		return calm
	}
	var singles, pairs, near []schedule
	for at, p := range calm.points {
		for _, h := range harms(p.kind) {
			singles = append(singles, schedule{{at, h}})
		}
	}
	for _, single := range spread(singles, x.Schedules-x.tried) {
		w := x.run(single)
		if w.broken != "" {
			return w
		}
		first := w.points[single[0].at:]
		for n, p := range first[1:] {
			for _, h := range harms(p.kind) {
				pair := schedule{single[0], {single[0].at + 1 + n, h}}
				if p == first[0] {
					near = append(near, pair)
				} else {
					pairs = append(pairs, pair)
				}
			}
		}
	}
	x.possible = 1 + len(singles) + len(near) + len(pairs)
	var triples []schedule
	random := rand.New(rand.NewPCG(1, 2)) // the same on every run
	most := (x.Schedules - x.tried) * 3 / 4
	for _, pair := range slices.Concat(spread(near, most), spread(pairs, most-len(near))) {
		w := x.run(pair)
		if w.broken != "" {
			return x.shortened(w)
		}
		if next := pair[1].at + 1; next < len(w.points) {
			at := next + random.IntN(len(w.points)-next)
			all := harms(w.points[at].kind)
			triples = append(triples, schedule{pair[0], pair[1], {at, all[random.IntN(len(all))]}})
		}
	}
	for _, triple := range spread(triples, x.Schedules-x.tried) {
		if w := x.run(triple); w.broken != "" {
			return x.shortened(w)
		}
	}
	return nil
}

// shortened returns a run that breaks a promise with as few faults of w as possible.
func (x *explorer) shortened(w *World) *World {
	for _, f := range w.asked {
		if shorter := x.run(w.asked.without(f.at)); shorter.broken != "" {
			return x.shortened(shorter)
		}
	}
	return w
}

// spread returns at most n schedules, evenly spread over all.
func spread(all []schedule, n int) []schedule {
	n = max(0, min(n, len(all)))
	chosen := make([]schedule, n)
	for i := range chosen {
		chosen[i] = all[i*len(all)/n]
	}
	return chosen
}

// shown lists the facts.
func (x *explorer) shown() string {
	var s []string
	for _, fact := range slices.Sorted(maps.Keys(x.facts)) {
		s = append(s, fmt.Sprintf("%s: %d", fact, x.facts[fact]))
	}
	return strings.Join(s, ", ")
}

// run runs one schedule in a bubble.
func (x *explorer) run(s schedule) *World {
	var w *World
	var at watch
	x.tried++
	transport := http.DefaultTransport
	defer func() { http.DefaultTransport = transport }()
	failed := true // the body called FailNow
	stacks := at.watch(func() {
		// Goroutines that a killed process leaves are not waited for.
		defer func() {
			if p := recover(); p != nil && !strings.Contains(fmt.Sprint(p), "blocked goroutines remain") {
				panic(p)
			}
		}()
		synctest.Test(x.t, func(t *testing.T) {
			time.Sleep(time.Until(start))
			w = newWorld(s, &at)
			w.outlives, w.test, w.commits = x.Outlives, x.t.Name(), x.commits
			http.DefaultTransport = &provided{w}
			at.begin()
			x.body(w)
			w.play()
			failed = false
		})
	})
	switch {
	case stacks != "":
		w.stacks = stacks
		w.breaks(atStandstill, "a goroutine waits for a mutex, or for something outside the bubble, and nothing goes on")
		return w // its goroutines are left behind
	case failed:
		x.t.FailNow()
	}
	x.commits = w.commits
	fmt.Fprintln(x.stories, w.asked, w.lines, slices.Sorted(maps.Keys(w.facts)))
	for fact := range w.facts {
		x.facts[fact]++
	}
	return w
}

// start is when each schedule starts: a key with the date, or only with the hour, changes
// before the first retry behind the lease.
var start = time.Date(2000, 12, 31, 23, 59, 40, 0, time.UTC)

// latePoints is how many points of the next process a late one is tried before.
const latePoints = 5

// harms returns what can happen at a point.
func harms(p pointKind) []harm {
	all := []harm{killedBefore, killedAfter, refusedCall, lostReply, hangs, late, lateReply}
	for n := range latePoints {
		all = append(all, lateAt+strconv.Itoa(n+1))
	}
	if p != storePoint {
		all = append(all, hangsAfter, lostRequest, inFlight)
	}
	if p == sdkPoint || p == keyedPoint {
		all = append(all, sentTwice)
	}
	if p >= providerPoint {
		all = append(all, unavailable, failedAfter, cutReply, panics)
	}
	return all
}
