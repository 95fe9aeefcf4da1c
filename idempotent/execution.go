// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/logs"
	"github.com/once-lambda/once/internal/timing"
)

// This file has what a handler can ask and set: its record, its keys, its reference.

// RecordID returns the id of the record that this run belongs to. Pass it to a
// provider as metadata, so that the provider's webhook can name the record to
// [Guard.Resolve].
func (e *Execution) RecordID() RecordID { return e.id }

// Attempt returns the number of this run of the record, from 1. It grows with
// every takeover, so it can serve as a fencing number until the key expires.
func (e *Execution) Attempt() int { return e.attempt.mine.Attempt }

// Token identifies this run in evidence that it was not executed: see
// [ProvenNotExecuted]. Log it or store it on your side. Do not send it to a
// provider: the parameters of a request must be equal for every attempt.
func (e *Execution) Token() string { return e.attempt.mine.Token() }

// Recovery returns the promise that the operation declared. It is for packages
// whose work is safe under some promises only.
func (e *Execution) Recovery() Recovery { return e.attempt.opts.Recovery }

// Store returns the store of the guard. It is for packages that offer
// transactions on a store, see [Execution.Commit].
func (e *Execution) Store() driver.Store { return e.attempt.guard.store }

// SetRef sets the resource that this run is about, in the caller's own terms and
// without secrets, such as an order number or a URL path. It is stored with the
// outcome, or earlier with a step. Refused requests and the resolver of an
// unknown outcome receive it. Set it before the first Commit: if a Commit whose
// reply was lost was applied, a reference that is set later is not stored. SetRef
// returns [ErrExecutionEnded] after the outcome is decided, and an error if ref is
// longer than 1,024 bytes or not valid UTF-8.
func (e *Execution) SetRef(ref string) error {
	if len(ref) > maxRef || !utf8.ValidString(ref) {
		return fmt.Errorf("idempotent: invalid resource reference: want at most %d bytes of valid UTF-8, got %d bytes", maxRef, len(ref))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return ErrExecutionEnded
	}
	e.work.ref = ref
	return nil
}

// DownstreamKey returns the idempotency key for the provider call of a guarded
// handler, or of the [Step] that ctx belongs to. It is derived from the record id
// and the step's name, so it is the same on every attempt. A provider that honors
// it acts once, even if this process dies after the provider's effect and before
// recording it.
//
// Outside a guarded handler, every call returns a new random key, never an empty
// one, and a warning is logged once per process. See [AsUUID] for providers that
// require another format.
func DownstreamKey(ctx context.Context) string {
	switch at := ctx.Value(executionKey{}).(type) {
	case *Execution:
		if at != nil {
			return at.id.DownstreamKey()
		}
	case *stepRun:
		return at.execution.id.StepKey(at.name)
	}
	warnOutside(ctx, "DownstreamKey")
	return "once-" + rand.Text()
}

// AsUUID returns a UUID derived from a downstream key, for a provider that
// accepts only UUIDs. Equal keys give equal UUIDs. It has the format of version 4
// (RFC 9562, section 5.4), which every validator accepts; its random bits are a
// hash.
func AsUUID(downstreamKey string) string {
	sum := sha256.Sum256([]byte("uuid\x00" + downstreamKey))
	sum[6] = sum[6]&0x0f | 0x40 // version 4
	sum[8] = sum[8]&0x3f | 0x80 // the variant of RFC 9562
	h := hex.EncodeToString(sum[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

var warnedOutside atomic.Bool

// warnOutside logs, once per process, that function was called outside a guarded
// handler. It does not log for a request that a guard runs unguarded.
func warnOutside(ctx context.Context, function string) {
	if _, unguarded := ctx.Value(executionKey{}).(*Execution); unguarded || warnedOutside.Swap(true) {
		return
	}
	slog.LogAttrs(ctx, slog.LevelWarn, "idempotent: "+function+" was called with a context that is not from a guarded handler: nothing is recorded and the downstream key is random. "+
		"Pass the handler's context. This is logged once.")
}

// Execution is one run of a handler under a claim. The handler's context carries
// it. It is safe for concurrent use.
type Execution struct {
	id      RecordID
	attempt *attempt

	// mu guards the fields below. No store or observer is called while it is held.
	mu    sync.Mutex
	ended bool
	// writing is set while a goroutine writes the record, so that writes do not
	// overlap; written is signaled when it is unset. See beginWrite.
	writing bool
	written sync.Cond
	work    work
	runs    map[string]*stepRun // the steps of this run, by name
}

// newExecution returns the execution of an attempt under the claim held.
func newExecution(a *attempt, held *driver.Record) *Execution {
	e := &Execution{id: a.id, attempt: a, work: work{seen: held, steps: held.Steps, ref: held.Ref}}
	e.written.L = &e.mu
	return e
}

// work is what a run knows about its record and its own actions.
type work struct {
	// seen is the record as last written or read by this run.
	seen *driver.Record
	// steps and ref are what this run knows, stored or not. The next write includes
	// them.
	steps []driver.StepRecord
	ref   string
	// answered is set if the outcome is an answer of the predecessor.
	answered bool
	// doubts are the transactions of this run that were sent without a known result.
	doubts []doubt
	// forgotten is set if a step was refused because the provider may have forgotten
	// its downstream key. The outcome is then unknown.
	forgotten error
	// committed is the completed record, with its result unless that is in chunks, if
	// a transaction of this run has completed or found it. result is the outcome of
	// the transaction, unencrypted.
	committed *driver.Record
	result    outcome
	// standing is set if a write of this run has found that outcome, of an earlier
	// transaction or of another party, and no Commit has agreed with it since. The
	// caller then gets it, whatever the handler returns.
	standing bool
}

// doubt is one transaction that may have been applied.
type doubt struct {
	step    string         // the step that it records; empty for the outcome
	version driver.Version // its write id if it stores the outcome
	err     error
}

// next returns the current record with the steps that this run knows.
func (w *work) next() driver.Record {
	next := *w.seen
	next.Steps = w.steps
	return next
}

// doubted returns an error if a transaction of this run may not have been
// applied, so that the outcome cannot be stored as a success. Otherwise it
// returns nil.
func (w *work) doubted() error {
	return cmp.Or(w.forgotten, w.doubtedCommit(), w.doubtedStep())
}

// doubtedCommit is doubted for transactions that store the outcome. Such a doubt
// lasts until this run ends, or finds the transaction applied.
func (w *work) doubtedCommit() error {
	for _, d := range w.doubts {
		if d.step == "" {
			return d.err
		}
	}
	return nil
}

// doubtedStep is doubted for step transactions only. A doubt ends when a record
// that contains the finished step is read.
func (w *work) doubtedStep() error {
	for _, d := range w.doubts {
		if d.step != "" && !finished(w.steps, d.step) {
			return d.err
		}
	}
	return nil
}

// wrote reports whether v is the write id of a doubted transaction that stores
// the outcome.
func (w *work) wrote(v driver.Version) bool {
	return slices.ContainsFunc(w.doubts, func(d doubt) bool { return d.version == v })
}

// began reports whether a step or a transaction may have had an effect.
func (w *work) began() bool { return len(w.steps) > 0 || w.doubted() != nil }

// meet continues from the record r. This run still owns r, but evidence, a
// sweeper, or a write of this run whose reply was lost has changed it. A step
// that is finished in r is finished: the first recorded result stays.
func (w *work) meet(r *driver.Record) {
	w.seen = r
	for _, s := range r.Steps {
		if s.Finished {
			w.steps = withStep(w.steps, s)
		}
	}
	if w.ref == "" {
		w.ref = r.Ref
	}
}

// FromContext returns the execution of the guarded handler that ctx belongs to.
// It returns false outside a guarded handler, and for a request that the guard
// runs unguarded.
func FromContext(ctx context.Context) (*Execution, bool) {
	switch at := ctx.Value(executionKey{}).(type) {
	case *Execution:
		return at, at != nil
	case *stepRun:
		return at.execution, true
	}
	return nil, false
}

func withExecution(ctx context.Context, e *Execution) context.Context {
	return context.WithValue(ctx, executionKey{}, e)
}

// end ends the execution: goroutines that the handler left behind can no longer
// change anything. It waits for a write in progress and returns what was done
// until then. A step that is still running counts as begun.
func (e *Execution) end() *work {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.writing {
		e.written.Wait()
	}
	e.ended = true
	return &e.work
}

type executionKey struct{}

// stepRun is one step of this run. It replaces the execution in the context of
// the step's function.
type stepRun struct {
	execution *Execution
	name      string
	mode      driver.StepMode
	shape     string             // shape of the result's type
	before    *driver.StepRecord // the step as recorded by an earlier run, if any
	// foreign reports that the effect is at a provider, which identifies the step by
	// its downstream key. A transaction leaves its own mark in the record instead.
	foreign bool
}

// phase is a part of a request whose duration is measured.
type phase uint8

const (
	phaseNone phase = iota // between two phases
	phaseClaim
	phaseHandler
	phaseSettle
)

// phases are the durations of the phases of a request.
type phases struct {
	took    [phaseSettle + 1]time.Duration
	current phase
	mark    time.Time // when the current phase began
}

// enter ends the current phase at now and begins the next one.
func (p *phases) enter(next phase, now time.Time) {
	p.took[p.current] += now.Sub(p.mark)
	p.current, p.mark = next, now
}

// attempt is one request in the protocol: claim, run, settle.
type attempt struct {
	guard  *Guard
	opts   *Options
	id     RecordID
	fp     Fingerprint
	owner  driver.Owner
	result reflect.Type // of the handler
	ref    string       // of the key
	window timing.Window
	mine   driver.Record // the claim as last written by this attempt
	// openBefore is the record's OpenSince before this attempt claimed it.
	openBefore time.Time
	// lastCall is how long the last write took.
	lastCall time.Duration
	entered  bool // the handler was called
	phases   phases
}

// begin prepares an attempt for key. The owner token is random, never the request
// id, because an asynchronous retry may reuse the request id.
func (g *Guard) begin(ctx context.Context, o *Options, key Key, result reflect.Type, now time.Time) attempt {
	limits := timing.Limits{DefaultLease: o.DefaultLease, LeaseMargin: o.LeaseMargin, DeadlineReserve: o.DeadlineReserve, Now: o.Now}
	a := attempt{guard: g, opts: o, id: key.RecordID(), fp: key.storedFingerprint(), result: result, ref: cut(key.Ref, maxRef), window: limits.Window(ctx, now)}
	rand.Read(a.owner[:])
	return a
}

func (a *attempt) observe(ctx context.Context, kind event.Kind, r *driver.Record, err error) {
	a.opts.observe(ctx, kind, a.id, r, err)
}

// enter ends the current phase of the request and begins the next one, if there is an
// observer.
func (a *attempt) enter(next phase) {
	if a.opts.Observer != nil {
		a.phases.enter(next, a.opts.Now())
	}
}

// ended reports the end of the request, with its durations. err is the request's
// error.
func (a *attempt) ended(ctx context.Context, err *error) {
	if a.opts.Observer == nil {
		return
	}
	a.enter(phaseNone)
	if !a.entered && *err != nil && !isFinal(*err) && !errors.As(*err, new(*MismatchError)) {
		a.observe(ctx, event.NoOutcome, nil, nil)
	}
	e, took := a.opts.event(ctx, event.RequestEnded, a.id, nil, nil), &a.phases.took
	e.Durations = event.Durations{Claim: took[phaseClaim], Handler: took[phaseHandler], Settle: took[phaseSettle]}
	a.opts.emit(ctx, e)
}

// cached returns the completed record of the key, if the guard holds it in memory.
func (a *attempt) cached(now time.Time) *driver.Record {
	if a.guard.cache == nil {
		return nil
	}
	return a.guard.cache.get(a.id, now)
}

// remember stores a completed record with its result in the cache.
func (a *attempt) remember(r *driver.Record, result []byte) {
	if a.guard.cache == nil {
		return
	}
	whole := *r
	whole.Result = result
	a.guard.cache.put(&whole, a.opts.now())
}

// hint logs, once per guard and kind, that the guard ignored a declaration in a
// handler's error, or that an error without a declaration left the record
// unknown. It logs the text of an error of this toolkit, and only the type of
// another, because its text may contain a secret.
func (g *Guard) hint(ctx context.Context, o *Options, r *driver.Record, out outcome, err error) {
	switch {
	case out.reason != driver.ReasonNotExecuted && reachesNotExecuted(err):
		g.warn(ctx, o, &g.hinted.ignored, r.ID, err,
			"idempotent: the idempotent.NotExecuted in a handler's error was ignored: it counts only as the outermost error of the handler itself, "+
				"before any step has begun. Without a step, return idempotent.NotExecuted(err) as it is; after a step, return err. This is logged once.")
	case out.state == driver.StateUnknown && out.reason == driver.ReasonHandlerError && errors.Is(err, ErrNotApplied):
		g.warn(ctx, o, &g.hinted.notApplied, r.ID, err,
			"idempotent: a transaction was refused and the handler returned its error, so the record is unknown under Reconcile: the handler may have had other effects before it. "+
				"If the transaction is the handler's only effect, declare Rerun, or return idempotent.NotExecuted(err). This is logged once.")
	case out.state == driver.StateUnknown && out.reason == driver.ReasonHandlerError:
		g.warn(ctx, o, &g.hinted.unknown, r.ID, err,
			"idempotent: a handler's error left its record unknown, because an effect may have happened. "+
				"If no effect can have happened, return idempotent.NotExecuted(err). For a business outcome, return idempotent.Final(code, message). This is logged once.")
	}
}

// warn logs text, once. err may be nil.
func (g *Guard) warn(ctx context.Context, o *Options, once *atomic.Bool, id RecordID, err error, text string) {
	if once.Swap(true) {
		return
	}
	attrs := []slog.Attr{slog.String("operation", id.Operation()), slog.String("key_hash", id.KeyHash())}
	if err != nil {
		attrs = append(attrs, logs.OfError(bare(err))...)
	}
	o.logger().LogAttrs(ctx, slog.LevelWarn, text, attrs...)
}
