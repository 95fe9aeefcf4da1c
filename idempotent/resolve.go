// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/logs"
)

// Resolution is evidence about a record. Build it with [Resolved],
// [ResolvedWith], [ResolvedFinal], [ResolvedWithoutResult], [ResolvedStep],
// [CorrectedStep] or [ProvenNotExecuted]; [Resolution.InsteadOf] makes it a correction.
// [Later] means that there is no evidence yet.
type Resolution struct {
	what  claims // 0: Later
	later time.Duration
	token string // for claimsNotExecuted: of the attempt
	step  string
	codec Codec // nil: the codec that the record's operation declared
	value any
	final *FinalError
	none  bool // the result is not known

	instead Correction // for claimsInstead
}

// Resolved states that the work was done, and its result. The value is what the
// handler would have returned; replays return it. Its type is not compared with the
// handler's, which this guard does not know.
func Resolved(value any) Resolution { return Resolution{what: claimsOutcome, value: value} }

// ResolvedWith is [Resolved] for a record whose handler stores its results with a
// codec other than the guard's, as adapters do.
func ResolvedWith(codec Codec, value any) Resolution {
	return Resolution{what: claimsOutcome, codec: codec, value: value}
}

// ResolvedFinal states that the work ended with a business outcome, which replays
// return as a [*FinalError].
func ResolvedFinal(code, message string) Resolution {
	return Resolution{what: claimsOutcome, final: newFinal(code, message)}
}

// ResolvedWithoutResult states that the work was done, with an unknown result.
// The key never runs again; a retry gets [*ReplayUnavailableError].
func ResolvedWithoutResult() Resolution { return Resolution{what: claimsOutcome, none: true} }

// Correction names a stored outcome that is wrong, who says so, and why. [Guard.Forget]
// discards that outcome, and [Resolution.InsteadOf] replaces it. All fields are required.
type Correction struct {
	// Token names the attempt whose outcome it is: [driver.Record.Token].
	Token string
	// Actor is the person or system that is responsible, such as a user name.
	Actor string
	// Reason is how the actor knows that the outcome is wrong.
	Reason string
}

// maxCorrection is the maximum length of an actor and of a reason, in bytes.
const maxCorrection = 1024

// validate returns an error that begins with what was called.
func (c *Correction) validate(called string) error {
	for _, f := range []struct{ name, text, want string }{
		{"Actor", c.Actor, "state who corrects the outcome"},
		{"Reason", c.Reason, "state how you know that the outcome is wrong"},
	} {
		switch {
		case strings.TrimSpace(f.text) == "":
			return fmt.Errorf("idempotent: %s: missing %s: %s", called, f.name, f.want)
		case len(f.text) > maxCorrection || !utf8.ValidString(f.text):
			return fmt.Errorf("idempotent: %s: invalid %s: want at most %d bytes of valid UTF-8", called, f.name, maxCorrection)
		}
	}
	return nil
}

// InsteadOf states that the work was done, and that the outcome which the record has stored
// of it is wrong: r replaces that outcome, in one conditional write, and no request runs
// because of that. Use it where [Guard.Forget] would let the work happen again.
//
// r is what [Resolved], [ResolvedWith], [ResolvedFinal] or [ResolvedWithoutResult] returns.
// The lease of the attempt must have ended. The record gets another token, so that a
// second correction that names the old one gets [*StaleEvidenceError] instead of replacing
// the first; its reference stays. An equal outcome is agreed, whatever the token. Each
// call that changes the record is an [event.Resolved] with the actor and the reason.
//
// A guard drops the outcome from its cache. Another guard with Options.CacheEntries can
// return it until its CacheAge has passed.
func (r Resolution) InsteadOf(c Correction) Resolution {
	if r.what == claimsOutcome {
		r.what = claimsInstead
	} else {
		r.what = claimsNoOutcome
	}
	r.instead = c
	return r
}

// ResolvedStep states that one step was done, and its result: the value that the
// step would have returned. It is recorded even while the handler is running,
// whose [Step] then returns it. A CommitStep with that name that has begun is
// refused, because its own writes are missing; a later one returns the recorded
// result. A result that is already recorded stays.
//
// If the record is unknown and shows the step as begun, and under [Resume] or
// [Rerun] no other AtMostOnce step is open, the next request with the key
// continues. Otherwise the record's state does not change: evidence about a step
// that had not begun does not show why the outcome is unknown. Under [Reconcile]
// use [Resolved] or [ProvenNotExecuted].
func ResolvedStep(name string, value any) Resolution {
	return Resolution{what: claimsStep, step: name, value: value}
}

// CorrectedStep is [ResolvedStep] for a step whose recorded result is wrong. It
// replaces that result, but only after the lease has ended, and does not change the
// record's state.
func CorrectedStep(name string, value any) Resolution {
	return Resolution{what: claimsCorrection, step: name, value: value}
}

// ProvenNotExecuted states that the attempt with this token had no effect and can
// have none later, because its process is dead and not merely late. The next
// request with the key runs. In a record with steps it applies to those that have
// begun and not finished; finished steps keep their results.
//
// Read the token, [driver.Record.Token] or [Execution.Token], before you ask the
// provider; evidence that arrives late then cannot release a later attempt.
// ProvenNotExecuted is for resolvers and operators. A provider's webhook does not
// know the attempt, so it can report only success.
func ProvenNotExecuted(token string) Resolution {
	return Resolution{what: claimsNotExecuted, token: token}
}

// Later states that there is no evidence yet. [Reconciler] asks again after d,
// or, if d is zero, after its own backoff.
func Later(d time.Duration) Resolution { return Resolution{later: d} }

// Resolve settles the record id with external evidence: from a provider's
// webhook, its ledger, or an operator. Besides the owner itself, only evidence
// settles an unknown outcome. The first evidence wins; giving the same evidence
// again is not an error.
//
// Evidence is judged and stored with the options that the record's operation
// declared, whatever the options of this guard, with two exceptions. An outcome
// is retained for the longer of the record's retention and the guard's. And
// Operation.Codec and Operation.ResultVersion, if this guard sets them, replace the
// declared ones, so that a new version of the result does not block a record. A
// guard with Operation.Seal seals every result that it stores. A guard without it
// refuses a result about a record whose operation has it.
//
// While the owner's lease is live, Resolve returns [*InProgressError] for
// everything but a [ResolvedStep]: send the webhook again later. Other errors are
//   - [*StaleEvidenceError] if a [ProvenNotExecuted] or a correction is not about
//     the current attempt;
//   - [*SettledError] if the record is completed with another outcome, or the
//     step with another result: see [Resolution.InsteadOf] and [CorrectedStep];
//   - [*StepError] for a step that the operation did not declare;
//   - [ErrNoRecord] if there is no record with that id, or it has expired;
//   - [*StoreError] for any other failure of the store. It is safe to try again.
func (g *Guard) Resolve(ctx context.Context, id RecordID, r Resolution) error {
	g.mustExist("Resolve")
	if _, err := ParseRecordID(string(id)); err != nil {
		return err
	}
	if r.what == 0 {
		return errors.New("idempotent: Resolve: the Resolution contains no evidence; use Resolved, ResolvedFinal, ResolvedStep or ProvenNotExecuted")
	}
	current, err := g.store.Get(ctx, id)
	if err != nil {
		return g.storeFailed(ctx, id, driver.OpGet, err)
	}
	_, err = g.resolve(ctx, current, r)
	return err
}

// resolve applies evidence to the record current, which may have changed
// since it was read. It returns the record as it is now.
func (g *Guard) resolve(ctx context.Context, current *driver.Record, evidence Resolution) (*driver.Record, error) {
	e, err := g.encodeEvidence(ctx, current, evidence)
	switch {
	case errors.As(err, new(*StoreError)):
		return nil, g.storeFailed(ctx, current.ID, driver.OpSeal, err)
	case err != nil:
		return nil, err
	}
	r := g.apply(ctx, current, &change{opts: &g.opts, by: e, out: e.out, whole: true, rounds: maxRounds})
	g.cache.remove(current.ID) // also after an error: the write may have been applied
	switch r.end {
	case endWritten:
		event := g.opts.event(ctx, event.Resolved, r.record.ID, r.record, nil)
		event.Step, event.Actor, event.Note = evidence.step, evidence.instead.Actor, evidence.instead.Reason
		g.opts.emit(ctx, event)
		return r.record, nil
	case endAgreed:
		return r.record, nil
	case endStanding:
		g.opts.observe(ctx, event.Contradicted, r.record.ID, r.record, r.err)
		return nil, r.err
	case endRefused:
		switch {
		case errors.As(r.err, new(*StoreError)):
			return nil, g.storeFailed(ctx, current.ID, driver.OpPutChunks, r.err)
		case errors.Is(r.err, driver.ErrTooLarge):
			return nil, fmt.Errorf("idempotent: %s: the evidence cannot be stored: %w", short(current.ID), r.err)
		}
		return nil, r.err
	default:
		return nil, g.storeFailed(ctx, current.ID, driver.OpReplace, r.err)
	}
}

// evidence is a [Resolution] encoded for one record.
type evidence struct {
	Resolution
	guard     *Guard
	out       outcome // for claimsOutcome
	codec     string  // codec, version and retention of the new outcome
	seals     bool
	version   string
	retention time.Duration
	// For claimsStep and claimsCorrection: the step unsealed, and as it is stored.
	encoded, done driver.StepRecord
}

// encodeEvidence encodes r in the form in which the record's operation stores its
// results.
func (g *Guard) encodeEvidence(ctx context.Context, record *driver.Record, r Resolution) (*evidence, error) {
	e := &evidence{Resolution: r, guard: g, version: record.ResultVersion, retention: max(record.DeclaredRetention(), g.opts.Retention)}
	e.codec, e.seals = record.DeclaredCodec()
	var err error
	switch {
	case r.what == claimsNoOutcome:
		return nil, errors.New("idempotent: InsteadOf corrects an outcome: use it with Resolved, ResolvedWith, ResolvedFinal or ResolvedWithoutResult; for a step use CorrectedStep")
	case r.what == claimsInstead:
		if err := r.instead.validate("InsteadOf"); err != nil {
			return nil, err
		}
	}
	switch {
	case r.what != claimsNotExecuted && !r.none && e.seals && g.opts.Seal == nil:
		return nil, fmt.Errorf("idempotent: %s: the operation seals its results, and this guard has no Operation.Seal; set it, or use ResolvedWithoutResult or ProvenNotExecuted", short(record.ID))
	case r.what == claimsStep || r.what == claimsCorrection:
		if err := checkStepName(r.step); err != nil {
			return nil, err
		}
		s := driver.StepRecord{Name: r.step, Finished: true, By: driver.StepByEvidence, Attempt: record.Attempt}
		e.encoded, e.done, err = encodeStepResult(ctx, g.opts.Seal, record.ID, s, r.value)
		return e, err
	case r.what == claimsNotExecuted:
		return e, nil
	}
	e.out = outcome{state: driver.StateCompleted, reason: driver.ReasonResolved}
	if g.opts.ResultVersion != "" {
		e.version = g.opts.ResultVersion
	}
	switch {
	case r.none:
		e.out.encoding = driver.EncodingOmitted
	case r.final != nil:
		e.out.encoding, e.out.result = driver.EncodingFinal, encodeFinal(r.final)
	default:
		var with Codec
		if with, err = g.codecFor(record, r.codec); err != nil {
			return nil, err
		}
		e.codec = with.Name()
		e.out.encoding, e.out.result, err = encodeResult(with, r.value)
	}
	e.seals = e.seals || g.opts.Seal != nil
	return e, err
}

// codecFor returns the codec for evidence about record: the one that its
// operation declared, or the guard's if its options set another one.
func (g *Guard) codecFor(record *driver.Record, given Codec) (Codec, error) {
	declared, _ := record.DeclaredCodec()
	_, standard := g.opts.Codec.(*jsonCodec)
	switch {
	case given == nil && (!standard || declared == driver.DefaultCodec):
		return g.opts.Codec, nil
	case given == nil:
		return nil, logs.Error(fmt.Sprintf("idempotent: %s: the operation stores results with the codec %q, which this guard does not have; use ResolvedWith and that codec (for responses: lambdahttp.Resolved), or ResolvedWithoutResult", short(record.ID), declared))
	case given.Name() == declared, !standard && given.Name() == g.opts.Codec.Name():
		return given, nil
	}
	return nil, logs.Error(fmt.Sprintf("idempotent: %s: the operation stores results with the codec %q and could not replay a result of the codec %q; use ResolvedWith and the first codec, or ResolvedWithoutResult", short(record.ID), declared, given.Name()))
}

func (*evidence) meet(*driver.Record) bool { return false }

// judge returns how the evidence changes current.
func (e *evidence) judge(ctx context.Context, current *driver.Record, now time.Time) judgement {
	if e.what == claimsInstead {
		return e.judgeInstead(ctx, current, now)
	}
	verdict := decideResolution(current, e.what, e.token, now)
	switch verdict {
	case resolveGone:
		return refuseGone(current)
	case resolveAgreed:
		return judgement{end: endAgreed}
	case resolveTooEarly:
		return refuse(inProgress(current, now))
	case resolveStale:
		return refuseStale(current)
	case resolveCompare:
		same, err := e.same(ctx, current)
		switch {
		case err != nil:
			return refuse(err)
		case same:
			return judgement{end: endAgreed}
		}
		fallthrough
	case resolveSettled:
		return judgement{end: endStanding, err: &SettledError{RecordID: current.ID, State: current.State}}
	case resolveWrite, resolveContradict:
	}
	if e.what == claimsStep || e.what == claimsCorrection {
		return e.judgeStep(ctx, current, now)
	}
	if e.what != claimsNotExecuted {
		return judgement{next: e.completes(current, now), contradicts: verdict == resolveContradict}
	}
	next := *current
	next.DeclareRetention(e.retention)
	next.Steps, next.OpenSince = finishedSteps(next.Steps), time.Time{}
	return judgement{next: e.guard.opts.transition(&next, driver.StateRetryable, driver.ReasonResolved, now)}
}

// completes returns current, completed by the evidence.
func (e *evidence) completes(current *driver.Record, now time.Time) driver.Record {
	next := *current
	next.DeclareRetention(e.retention)
	next.DeclareCodec(e.codec, e.seals)
	next.ResultVersion = e.version
	next = e.guard.opts.transition(&next, driver.StateCompleted, driver.ReasonResolved, now)
	keepUntilLeaseEnd(&next)
	return next
}

// same reports whether the completed record r holds the outcome of the evidence.
func (e *evidence) same(ctx context.Context, r *driver.Record) (bool, error) {
	same, err := e.guard.holds(ctx, &e.guard.opts, r, e.out)
	return same && (e.version == r.ResultVersion || e.final != nil || e.none), err
}

// judgeInstead returns how a correction of the stored outcome changes current.
func (e *evidence) judgeInstead(ctx context.Context, current *driver.Record, now time.Time) judgement {
	same, err := e.same(ctx, current)
	if err != nil {
		return refuse(err)
	}
	switch decideCorrection(current, e.instead.Token, same, now) {
	case correctGone:
		return refuseGone(current)
	case correctNothing:
		return refuse(fmt.Errorf("idempotent: InsteadOf: %s is %s and has no stored outcome; use the same evidence without InsteadOf", short(current.ID), current.State))
	case correctAgreed:
		return judgement{end: endAgreed}
	case correctTooEarly:
		return refuse(inProgress(current, now))
	case correctStale:
		return refuseStale(current)
	case correctWrite:
	}
	next := e.completes(current, now)
	rand.Read(next.Owner[:]) // another token: the outcome is that of no attempt any more
	return judgement{next: next}
}

// judgeStep returns how evidence about one step changes current.
func (e *evidence) judgeStep(ctx context.Context, current *driver.Record, now time.Time) judgement {
	done := e.done
	done.At = now
	recorded, _ := current.Step(done.Name)
	same, err := e.sameStep(ctx, current.ID, recorded)
	if err != nil {
		return refuse(err)
	}
	switch decideStep(current, done.Name, same, e.what) {
	case stepAgreed:
		return judgement{end: endAgreed}
	case stepSettled:
		return judgement{end: endStanding, err: &SettledError{RecordID: current.ID, State: current.State, Step: done.Name}}
	case stepUndeclared:
		return refuse(&StepError{Step: done.Name, Problem: "not declared by the record's operation (Operation.Steps)"})
	case stepWrite:
	}
	// The result of a step that did not fit into what the run may store still fits.
	if err := checkKept(current.Steps, &done, maxSteps+maxStepResult); err != nil {
		return refuse(err)
	}
	next := *current
	done.Mode = recorded.Mode
	next.Steps = withStep(next.Steps, done)
	state := stateAfterStep(current, &next, done.Name)
	moved := e.guard.opts.transition(&next, state, driver.ReasonResolved, now)
	switch {
	case state != current.State, moved.Resumable() != current.Resumable(): // what is resumable must not expire
		next = moved
	case state == driver.StateInProgress: // it may run again now, and then it expires
		next.Schedule(now, e.guard.opts.ReconcileAfter)
	}
	return judgement{next: next}
}

// sameStep reports whether the step as recorded has the result of the evidence. It
// opens a sealed result. The error is a [*StoreError]. A result that is missing or
// cannot be read has no encoding, and is another one.
func (e *evidence) sameStep(ctx context.Context, id RecordID, recorded driver.StepRecord) (bool, error) {
	encoding, data, err := unseal(ctx, e.guard.opts.Seal, site{id, recorded.Name}, recorded.Encoding, recorded.Result)
	if errors.As(err, new(*StoreError)) {
		return false, err
	}
	return resultEquals(encoding, data, e.encoded.Encoding, e.encoded.Result), nil
}

// rewrite writes what judge decides about the record id, and returns whether it
// did. It reports a write as an event with the kind, actor and note of report, as
// judge left it.
func (g *Guard) rewrite(ctx context.Context, id RecordID, report *event.Event, judge judgeFunc) (bool, error) {
	current, err := g.store.Get(ctx, id)
	if err != nil {
		return false, g.storeFailed(ctx, id, driver.OpGet, err)
	}
	r := g.apply(ctx, current, &change{opts: &g.opts, rounds: maxRounds, by: judge})
	switch r.end {
	case endWritten:
		e := g.opts.event(ctx, report.Kind, id, r.record, nil)
		e.Actor, e.Note = report.Actor, report.Note
		g.opts.emit(ctx, e)
		return true, nil
	case endAgreed:
		return false, nil
	case endRefused:
		if !errors.Is(r.err, driver.ErrTooLarge) {
			return false, r.err
		}
		fallthrough
	default:
		return false, g.storeFailed(ctx, id, driver.OpReplace, r.err)
	}
}

// StoredOutcome returns the stored outcome of the completed record r: the
// encoding, which is the name of a [Codec] or [driver.EncodingFinal], and the
// encoded bytes, opened and uncompressed. It fetches and verifies a large result
// that is stored beside its record. It is for tools that show records; a handler's
// replay is decoded.
//
// It returns [*ReplayUnavailableError] if the result was omitted, is missing, was
// altered, or is sealed and this guard cannot open it, or if the record is not
// completed. It returns [*StoreError] if a later call may succeed.
func (g *Guard) StoredOutcome(ctx context.Context, r driver.Record) (encoding string, data []byte, err error) {
	g.mustExist("StoredOutcome")
	unavailable := func(reason string) error {
		return &ReplayUnavailableError{RecordID: r.ID, Reason: reason, Ref: r.Ref}
	}
	switch {
	case r.State != driver.StateCompleted:
		return "", nil, unavailable(fmt.Sprintf("the record is %s", r.State))
	case r.Encoding == driver.EncodingOmitted:
		return "", nil, unavailable("the result could not be stored")
	}
	whole, err := g.withChunks(ctx, &r)
	if err != nil {
		return "", nil, err
	}
	packed, data, err := unseal(ctx, g.opts.Seal, site{record: r.ID}, whole.Encoding, whole.Result)
	switch {
	case errors.As(err, new(*StoreError)):
		return "", nil, err
	case err != nil:
		return "", nil, unavailable(err.Error())
	}
	encoding = strings.TrimSuffix(packed, encodingCompressed)
	if data, err = unpack(packed, encoding, data); err != nil {
		return "", nil, unavailable(err.Error())
	}
	return encoding, data, nil
}
