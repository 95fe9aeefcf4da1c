// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/memstore"
)

// World is what survives the processes of one schedule: the store, the provider and the
// counts of effects. [Explore] makes one for each schedule.
type World struct {
	asked    schedule // of the run
	schedule schedule // what is left of it
	store    driver.Store
	direct   bool // calls of the store are no points, because it makes points itself
	provider http.Handler
	options  []func(*idempotent.Options) // of each guard
	promises []*promised
	checks   []check
	answers  []func(any) error // checks of each success
	handler  func(*Process) func(context.Context) (any, error)
	others   []func(*Process) func(context.Context) (any, error) // requests with the same key
	elseKeys []any                                               // requests with other keys
	bind     func(req any) (func(*Process) func(context.Context) (any, error), bool)
	recon    func(*idempotent.Guard) func(context.Context) (idempotent.Report, error)

	began time.Time
	wake  chan struct{}

	mu      sync.Mutex
	waiting []*pending
	current *Process // the process that was started last

	points []point // that were met
	procs  []*Process
	idle   map[string]*environment // by what their processes are for
	flying []func()                // requests of killed processes
	calm   bool                    // no more faults

	outlives bool   // ExploreOptions.Outlives
	test     string // its name
	commits  bool   // a schedule of the test had a transaction

	counting atomic.Bool // the driver calls functions of the test
	watch    *watch
	stacks   string // of goroutines that do not go on
	judge
}

func newWorld(s schedule, at *watch) *World {
	return &World{asked: s, schedule: s, watch: at, store: memstore.New(), idle: map[string]*environment{}, wake: make(chan struct{}, 1), judge: judge{
		facts: map[string]bool{}, effects: map[int]*pending{}, claimed: map[driver.RecordID]driver.Owner{}, written: map[driver.RecordID]bool{},
	}}
}

// Provider serves every request of [http.DefaultTransport] by h.
func (w *World) Provider(h http.Handler) { w.provider = h }

// GuardOptions adds options of every guard, as the function's main has them, for example a
// Codec or Seal. The observer is the explorer's own. Nothing is logged unless they set a
// Logger.
func (w *World) GuardOptions(optFns ...func(*idempotent.Options)) {
	w.options = append(w.options, optFns...)
}

// AtMostOnce promises that count is at most 1, and is 1 once the handler has answered with
// a success. count is called after each step; the name stands in the story.
func (w *World) AtMostOnce(name string, count func() int) {
	w.promises = append(w.promises, &promised{name: name, count: count, most: 1})
}

// ExactlyOnce promises what [World.AtMostOnce] does, and that the last retry, hours after
// the first request, gets a success.
func (w *World) ExactlyOnce(name string, count func() int) {
	w.promises = append(w.promises, &promised{name: name, count: count, most: 1, answered: true})
}

// AtLeastOnce promises that count is at least 1 once the handler has answered with a
// success. Retries may repeat the effect, and may get other answers.
func (w *World) AtLeastOnce(name string, count func() int) {
	w.promises = append(w.promises, &promised{name: name, count: count, repeats: true})
}

// Check promises that f returns nil whenever no process runs, for example that a stock and
// its orders are in balance. The error stands in the story.
func (w *World) Check(name string, f func() error) { w.checks = append(w.checks, check{name, f}) }

// Success checks the answer of each success, for example that a charge has an id. answer is
// what the handler returns. The error stands in the story.
func (w *World) Success(f func(answer any) error) { w.answers = append(w.answers, f) }

// OtherKey adds a request with another key, for example of another tenant, of the type of
// the request in [Handle]. It is sent at the end, when nothing fails any more, and must
// succeed with a separate effect: the counts of the promises include that one, too. Its
// retry must get the same answer without another effect.
func (w *World) OtherKey(req any) { w.elseKeys = append(w.elseKeys, req) }

// Reconciler adds the handler of the schedule that reconciles, such as the result of
// [idempotent.Reconciler]. Without one, unknown outcomes stay unknown.
func (w *World) Reconciler(newReconciler func(*idempotent.Guard) func(context.Context) (idempotent.Report, error)) {
	w.recon = newReconciler
}

// Store replaces the store in memory, and makes its calls no points: s makes points itself,
// by [World.Do].
func (w *World) Store(s driver.Store) { w.store, w.direct = s, true }

// Handle adds the handler of a function on Lambda. newHandler gets a guard and returns it,
// as in the function's main: it is called for each execution environment, and one that was
// not killed serves the next requests too. The request and its retries are req. Each of others is another request with the same key, such as another amount:
// it is sent after the first request has claimed the key, and must not succeed. An answer
// is a success if its error is nil and, if it has the fields, its StatusCode is 200 to 299
// and its BatchItemFailures are empty. A 202 with the header Retry-After is no success.
func Handle[Req, Resp any](w *World, req Req, newHandler func(*idempotent.Guard) func(context.Context, Req) (Resp, error), others ...Req) {
	handles := func(req Req) func(*Process) func(context.Context) (any, error) {
		return func(p *Process) func(context.Context) (any, error) {
			handle := ofEnvironment(p, func() func(context.Context, Req) (Resp, error) { return newHandler(p.Guard) })
			return func(ctx context.Context) (any, error) { return handle(ctx, req) }
		}
	}
	w.handler = handles(req)
	w.bind = func(req any) (func(*Process) func(context.Context) (any, error), bool) {
		other, ok := req.(Req)
		return handles(other), ok
	}
	for _, other := range others {
		w.others = append(w.others, handles(other))
	}
}

// Process adds a handler that needs more than a guard. f is called for each execution
// environment, and returns what it does with the request.
func (w *World) Process(f func(*Process) func(context.Context) (any, error)) {
	w.handler = func(p *Process) func(context.Context) (any, error) {
		return ofEnvironment(p, func() func(context.Context) (any, error) { return f(p) })
	}
}

// ofEnvironment returns what the execution environment of a process keeps.
func ofEnvironment[T any](p *Process, newT func() T) T {
	if p.env.kept == nil {
		p.env.kept = newT()
	}
	return p.env.kept.(T)
}

func (w *World) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// environment is an execution environment of Lambda. It serves one process at a time.
type environment struct {
	guard *idempotent.Guard
	kept  any // its handler
}

// Process is one process that handles the request, or reconciles.
type Process struct {
	// Guard is over the store of the world.
	Guard *idempotent.Guard

	w        *World
	n        int    // from 1
	what     string // it is for, in the story
	env      *environment
	deadline time.Time
	ended    chan struct{} // closed when its function has returned
	dead     chan struct{} // closed when it is killed
	met      int           // points
	calls    int           // points other than those of a store
	ran      bool          // the handler
	waits    int           // point of the next process, before which it continues; 0: it is not late
	judged   bool          // its answer was, or it was killed
	hung     int           // points at which a call waited for the end of its context
	wasLate  bool          // it did not continue at once: its time is not its own
	settled  bool          // no record waited for reconciliation when it began

	// What its goroutines write.
	answer      any
	err         error
	panicked    any
	last        map[driver.RecordID]driver.Record // that it wrote
	sent        map[driver.RecordID]bool          // a request
	open        int                               // effects at points
	connections []func()                          // which end when it was killed
	flies       bool                              // a call was on its way when it was killed
}

// killed reports whether the process was killed.
func (p *Process) killed() bool { return isClosed(p.dead) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// What a process with another request is for, in the story.
const (
	otherRequest = "another"   // with the same key
	otherKeyed   = "other key" // with another key
)

type processKey struct{}

// process returns the process that has ctx, or else the one that was started last.
func (w *World) process(ctx context.Context) (p *Process, foreign bool) {
	if p, ok := ctx.Value(processKey{}).(*Process); ok && p.w == w {
		return p, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current, true
}

// judge judges answers and counts, and keeps the story.
type judge struct {
	broken  string // what is broken; empty: nothing
	rule    string
	lines   []string
	facts   map[string]bool
	effects map[int]*pending                 // the last call that changed the count of a promise
	seen    []int                            // counts after the last point
	more    int                              // effects of requests with another key
	before  []int                            // counts before such a request
	first   []byte                           // success
	claimed map[driver.RecordID]driver.Owner // by whom first
	written map[driver.RecordID]bool         // perhaps
}

// promised is what a user promises of an effect.
type promised struct {
	name     string
	count    func() int
	most     int
	repeats  bool // the effect may happen again
	answered bool // the last retry gets a success
}

// check is an invariant of the user.
type check struct {
	name string
	f    func() error
}

// pointKind is the kind of a point, which decides what can happen there.
type pointKind byte

const (
	storePoint pointKind = iota
	effectPoint
	sqlPoint      // a statement, during which database/sql holds a mutex
	sdkPoint      // an effect whose client repeats calls itself
	providerPoint // from here on: requests
	keyedPoint    // with the header Idempotency-Key, which net/http repeats itself
)

// point is a point that was met.
type point struct {
	kind    pointKind
	what    string
	process int
}

// The names of effects begin so, if the AWS SDK or database/sql makes them.
const (
	sdkCall = "DynamoDB: "
	sqlCall = "SQL: "
)

// pending is a call at a point, which waits until the driver lets it go on.
type pending struct {
	kind    pointKind
	what    string
	order   string          // of calls with the same text and record
	record  driver.RecordID // of the execution; empty: unknown
	process *Process
	settles bool          // it stores an outcome
	foreign bool          // it has another context than the process
	request *http.Request // nil: none
	host    string        // of the provider
	key     string        // that it sends
	step    string        // that it is in
	outside bool          // it should be in one
	crashes bool          // a panic ends the process, because its goroutine is the handler's
	do      func() error
	ctx     context.Context // the caller's
	err     error           // of the call

	goOn chan harm
	late bool // the call was made, and its reply comes late
}

// harm is what happens at a point.
type harm = string

const (
	killedBefore harm = "killed-before"
	killedAfter  harm = "killed-after"
	refusedCall  harm = "refused"
	lostRequest  harm = "lost-request"
	lostReply    harm = "lost-reply"
	unavailable  harm = "503"
	failedAfter  harm = "500"
	cutReply     harm = "cut-reply"
	hangs        harm = "hangs"
	hangsAfter   harm = "hangs-after"
	sentTwice    harm = "sent-twice" // by the SDK, or by net/http, which has lost the first reply
	panics       harm = "panics"
	inFlight     harm = "in-flight"  // the process is killed, and the request arrives at the end of the lease
	arrives      harm = "arrives"    // that request, which is no harm of a schedule
	late         harm = "late"       // the process continues after the next one
	lateAt       harm = "late-at-"   // and a number: it continues before that point of the next one
	lateReply    harm = "late-reply" // as late, after the call
)

// allHarms are those of a schedule, besides lateAt.
var allHarms = []harm{
	killedBefore, killedAfter, refusedCall, lostRequest, lostReply, unavailable, failedAfter, cutReply, hangs, hangsAfter,
	sentTwice, panics, inFlight, late, lateReply,
}

// harmText is what the story says about a harm.
func harmText(h harm) string {
	switch h {
	case "":
		return ""
	case arrives:
		return ": the request arrives"
	case killedBefore:
		return ": the process is killed before it"
	case killedAfter:
		return ": the process is killed after it"
	case refusedCall:
		return ": refused, nothing was sent"
	case lostRequest:
		return ": the request is lost"
	case lostReply:
		return ": the reply is lost"
	case unavailable:
		return ": 503, without effect"
	case failedAfter:
		return ": 500, with effect"
	case cutReply:
		return ": the reply breaks off"
	case hangs:
		return ": hangs until its context ends"
	case hangsAfter:
		return ": has its effect, and hangs until its context ends"
	case sentTwice:
		return ": the client's transport loses the reply and sends it again"
	case panics:
		return ": the process panics after it"
	case inFlight:
		return ": the process is killed while the request is on its way"
	}
	return ": the reply is late"
}

// scheduleVariable is the environment variable with the schedule that is run alone.
const scheduleVariable = "ONCE_SCHEDULE"

// schedule is the faults of a run, the earliest first.
type schedule []fault

// fault is a harm at the point with that number, counted from 0.
type fault struct {
	at   int
	harm harm
}

func (s schedule) String() string {
	parts := make([]string, len(s))
	for i, f := range s {
		parts[i] = fmt.Sprintf("%d:%s", f.at, f.harm)
	}
	return cmp.Or(strings.Join(parts, ","), "none")
}

func parseSchedule(text string) (s schedule, err error) {
	if text == "none" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		at, h, ok := strings.Cut(part, ":")
		n, err := strconv.Atoi(at)
		if err != nil || !ok {
			return nil, fmt.Errorf("%q is no schedule: want point:fault, separated by commas, for example 2:killed-after", text)
		}
		if _, err := strconv.Atoi(strings.TrimPrefix(h, lateAt)); err != nil && !slices.Contains(allHarms, h) {
			return nil, fmt.Errorf("%q is no fault: want one of %s, or late-at- and a point", h, strings.Join(allHarms, ", "))
		}
		s = append(s, fault{n, h})
	}
	return s, nil
}

// without returns the schedule without the fault at a point.
func (s schedule) without(n int) schedule {
	return slices.DeleteFunc(slices.Clone(s), func(f fault) bool { return f.at == n })
}

// at returns the harm at a point.
func (s schedule) at(n int) harm {
	for _, f := range s {
		if f.at == n {
			return f.harm
		}
	}
	return ""
}
