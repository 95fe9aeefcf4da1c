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

// history is what really happened to the key of a lab: every write to its
// record, every call of a handler, every answer. It is judged by the
// invariants of the design, whatever the scenario was about: see judge.
type history struct {
	mu      sync.Mutex
	writes  []*write
	runs    []*run
	answers []*answer
	seen    map[driver.Version]bool // in what the store returned
	removed map[driver.Version]bool // deleted behind the store's back
	said    map[string]bool         // results that a handler or evidence told
	broken  []error
}

// write is a record that somebody wrote, or tried to.
type write struct {
	by     *worker
	record driver.Record
	insert bool
	was    driver.Version // the version that it replaces, unless it inserts
	at     time.Time      // by the clock of who wrote
	known  bool           // acknowledged
	open   bool           // neither acknowledged nor refused
}

// run is one attempt: a claim, and the call of the handler that may follow.
type run struct {
	by      *worker
	claim   driver.Record // the last one tried
	held    bool          // the guard was told that the claim is its own
	entered bool
	left    bool
	end     ending // how it left
	// downstream is the key for the provider that the handler was given; empty if
	// it is not known.
	downstream string
}

// ending is what a handler returned or panicked with.
type ending struct {
	value    string
	err      error
	panicked bool
}

// errPanicked stands for a panic with something else than an error, and for a
// goroutine that ended.
var errPanicked = errors.New("the handler did not return")

// answer is what a request was told.
type answer struct {
	by      *worker
	key     idempotent.Key
	run     *run // nil: the handler was not called
	from    int  // how many writes there were before it
	to      int  // and when it came
	outcome idempotent.Outcome[string]
	err     error
}

func newHistory() *history {
	return &history{seen: map[driver.Version]bool{}, removed: map[driver.Version]bool{}, said: map[string]bool{}}
}

// breaks notes that an invariant is broken.
func (h *history) breaks(format string, args ...any) {
	h.broken = append(h.broken, fmt.Errorf(format, args...))
}

// wrote notes a write and what came of it.
func (h *history) wrote(w write, met *driver.Record, err error) {
	w.known = err == nil && (met == nil || met.Version == w.record.Version)
	w.open = err != nil
	w.record.Result = nil
	h.saw(met)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes = append(h.writes, &w)
}

// saw notes that the store returned r, which may be nil.
func (h *history) saw(r *driver.Record) {
	if r == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen[r.Version] = true
}

// claims notes that a guard tries to become the owner of the record, and
// returns what notes that it was told that it is.
func (h *history) claims(by *worker, claim driver.Record) (held func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.ownerOf(claim.Owner) // an insert that met a record becomes a takeover
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

// putsChunks notes that a result is put beside its record, which it has to
// expire with: the record that would name it may never be written.
func (h *history) putsChunks(expires time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if expires.IsZero() {
		h.breaks("a large result is kept for ever, whatever becomes of its record")
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

// asks notes that a request begins.
func (h *history) asks(by *worker, key idempotent.Key) *answer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &answer{by: by, key: key, from: len(h.writes)}
}

// answered notes what the request was told.
func (h *history) answered(a *answer, out idempotent.Outcome[string], err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a.outcome, a.err, a.to = out, err, len(h.writes)
	h.answers = append(h.answers, a)
}

// watch returns handler with its calls noted.
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

// enters notes that the handler of a worker is called for an attempt, and
// judges whether it may be (INV-1, INV-10).
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
		h.breaks("INV-10: a handler was entered though its guard was not told that it holds the key")
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

// downstream notes the key for the provider that a run was given, and judges
// whether earlier runs of the record had the same (INV-2).
func (h *history) downstream(run *run, key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	run.downstream = key
	for _, r := range h.runs {
		if r.downstream != "" && r.downstream != key && r.claim.ID == run.claim.ID && r.claim.Created.Equal(run.claim.Created) {
			h.breaks("INV-2: two runs of one record were given different keys for the provider")
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

// says notes a result that evidence tells.
func (h *history) says(value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said[value] = true
}

// removes notes that a record was deleted behind the store's back.
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
