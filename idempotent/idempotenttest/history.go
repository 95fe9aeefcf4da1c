package idempotenttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// history records what happened to the key of a lab: every write to its record,
// every call of a handler, every answer. judge checks it against the invariants
// of the design, independently of the scenario.
type history struct {
	mu      sync.Mutex
	writes  []*write
	runs    []*run
	answers []*answer
	seen    map[driver.Version]bool // returned by the store
	removed map[driver.Version]bool // deleted without the store
	said    map[string]bool         // results of handlers or evidence
	broken  []error
}

// write is a record that was written, or that a guard tried to write.
type write struct {
	by     *worker
	record driver.Record
	insert bool
	was    driver.Version // the version that it replaces, unless it inserts
	at     time.Time      // by the clock of the writer
	known  bool           // acknowledged
	open   bool           // neither acknowledged nor refused
}

// run is one attempt: a claim, and the call of the handler that may follow.
type run struct {
	by      *worker
	claim   driver.Record // the last one tried
	held    bool          // the store acknowledged the claim to the guard
	entered bool
	left    bool
	end     ending // how the handler ended
	// downstream is the key for the provider that the handler got; empty if it
	// is not known.
	downstream string
}

// ending is what a handler returned or panicked with.
type ending struct {
	value    string
	err      error
	panicked bool
}

// errPanicked is the ending of a handler that panicked with a value that is not
// an error, or whose goroutine ended.
var errPanicked = errors.New("the handler did not return")

// answer is the answer that a request got.
type answer struct {
	by      *worker
	key     idempotent.Key
	run     *run // nil: the handler was not called
	from    int  // number of writes before the request
	to      int  // number of writes before the answer
	outcome idempotent.Outcome[string]
	err     error
}

func newHistory() *history {
	return &history{seen: map[driver.Version]bool{}, removed: map[driver.Version]bool{}, said: map[string]bool{}}
}

// breaks records a broken invariant.
func (h *history) breaks(format string, args ...any) {
	h.broken = append(h.broken, fmt.Errorf(format, args...))
}

// wrote records a write and its result.
func (h *history) wrote(w write, met *driver.Record, err error) {
	w.known = err == nil && (met == nil || met.Version == w.record.Version)
	w.open = err != nil
	w.record.Result = nil
	h.saw(met)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes = append(h.writes, &w)
}

// saw records that the store returned r, which may be nil.
func (h *history) saw(r *driver.Record) {
	if r == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen[r.Version] = true
}

// claims records that a guard tries to become the owner of the record. The
// returned function records that the store acknowledged the claim.
func (h *history) claims(by *worker, claim driver.Record) (held func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.ownerOf(claim.Owner) // an insert that found a record becomes a takeover
	if r == nil {
		r = &run{by: by}
		h.runs = append(h.runs, r)
	}
	r.claim = claim
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		r.held = true
	}
}

// putsChunks records that a result is put beside its record. The result must
// expire with the record that is to refer to it, because that record may never
// be written.
func (h *history) putsChunks(expires time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if expires.IsZero() {
		h.breaks("a large result never expires, even if its record is never written")
	}
}

// ownerOf returns the run whose claim has that owner token, or nil.
func (h *history) ownerOf(owner driver.Owner) *run {
	for _, r := range h.runs {
		if r.claim.Owner == owner {
			return r
		}
	}
	return nil
}

// asks records that a request begins.
func (h *history) asks(by *worker, key idempotent.Key) *answer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &answer{by: by, key: key, from: len(h.writes)}
}

// answered records the answer of a request.
func (h *history) answered(a *answer, out idempotent.Outcome[string], err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a.outcome, a.err, a.to = out, err, len(h.writes)
	h.answers = append(h.answers, a)
}

// watch returns a handler that records its calls.
func (h *history) watch(a *answer, handler handler) handler {
	return func(ctx context.Context) (value string, err error) {
		attempt := 0
		if execution, ok := idempotent.FromContext(ctx); ok {
			attempt = execution.Attempt()
		}
		a.run = h.enters(a.by, attempt)
		h.downstream(a.run, idempotent.DownstreamKey(ctx))
		returned := false
		defer func() {
			if returned {
				h.leaves(a.run, ending{value: value, err: err})
				return
			}
			p := recover()
			if err, _ = p.(error); err == nil {
				err = errPanicked
			}
			h.leaves(a.run, ending{err: err, panicked: true})
			if p != nil {
				panic(p)
			}
		}()
		value, err = handler(ctx)
		returned = true
		return value, err
	}
}

// enters records that the handler of a worker is called for an attempt, and
// checks that it may be called (INV-1, INV-10).
func (h *history) enters(by *worker, attempt int) *run {
	now := by.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	var mine *run
	for _, r := range h.runs {
		if r.by == by && r.held && !r.entered && r.claim.Attempt == attempt {
			mine = r
		}
	}
	if mine == nil {
		h.breaks("INV-10: a handler was entered, but the store had not acknowledged its claim")
		mine = &run{by: by}
		h.runs = append(h.runs, mine)
	}
	for _, r := range h.runs {
		if r != mine && r.entered && !r.left && now.Before(r.claim.LeaseEnd) {
			h.breaks("INV-1: a handler was entered while another one was running, %s before the end of its lease", r.claim.LeaseEnd.Sub(now))
		}
	}
	mine.entered = true
	return mine
}

// downstream records the key for the provider that a run got, and checks that
// earlier runs of the record got the same key (INV-2).
func (h *history) downstream(run *run, key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	run.downstream = key
	for _, r := range h.runs {
		if r.downstream != "" && r.downstream != key && r.claim.ID == run.claim.ID && r.claim.Created.Equal(run.claim.Created) {
			h.breaks("INV-2: two runs of one record got different keys for the provider")
		}
	}
}

func (h *history) leaves(r *run, end ending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.left, r.end = true, end
	if end.err == nil {
		h.said[end.value] = true
	}
}

// says records a result that evidence reported.
func (h *history) says(value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said[value] = true
}

// removes records that a record was deleted without the store.
func (h *history) removes(v driver.Version) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removed[v] = true
}

// mayHaveRun reports whether the owner's handler was called.
func (h *history) mayHaveRun(owner driver.Owner) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.ownerOf(owner)
	return r != nil && r.entered
}
