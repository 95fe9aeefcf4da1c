// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
)

// answered judges the answer of a process.
func (w *World) answered(p *Process) {
	if p.what == "reconciler" {
		w.addLine(p, fmt.Sprintf("answers %v, %v", p.answer, p.err))
		w.checkAll()
		return
	}
	status, final := outcomeOf(p.answer, p.err)
	w.addLine(p, "answers "+status)
	if p.what == otherRequest {
		if status == success {
			w.breaks("another request with the same key succeeded", sameFingerprint)
		}
		w.checkAll()
		return
	}
	w.last = p
	for i, n := range w.counts() {
		switch name := w.promises[i].name; {
		case status == success && n < 1:
			w.breaks(fmt.Sprintf("the handler answered with a success, and %s did not happen", name), ignoredError)
		case final && n > 0:
			w.breaks(fmt.Sprintf("the handler answered with a final refusal, and %s happened", name))
		case final && len(w.asked) > 0:
			w.facts[finalAfterFault] = true
		}
	}
	if status == success {
		w.equal(p)
	} else if p.n == 1 && len(w.asked) == 0 {
		w.breaks(fmt.Sprintf("the request did not succeed, although nothing failed: %s%s", status, details(p.answer, p.err)), wrongRequest)
	}
	w.checkAll()
}

// judgeTime judges when a process has answered, or was killed: after a call that hung, it
// has to answer before its deadline, in time for the answer to leave. Each hanging call
// returns a millisecond after the end of its context.
func (w *World) judgeTime(p *Process, now time.Time) {
	var o idempotent.Options
	for _, f := range w.options {
		f(&o)
	}
	margin := 100 * time.Millisecond
	if o.DeadlineReserve != 0 {
		margin = min(margin, max(o.DeadlineReserve/5, 50*time.Millisecond))
	}
	if by := p.deadline.Add(time.Duration(p.hung)*time.Millisecond - margin); p.hung > 0 && !p.wasLate && p.what != "reconciler" && now.After(by) {
		w.breaks(fmt.Sprintf("a call hung until its context ended, and there was no answer %s before the deadline", margin), noAnswer)
	}
}

func (w *World) checkAll() {
	w.counting.Store(true)
	defer w.counting.Store(false)
	for _, c := range w.checks {
		if err := c.f(); err != nil {
			w.breaks(fmt.Sprintf("%s: %v", c.name, err))
		}
	}
}

// equal compares a success with the first one.
func (w *World) equal(p *Process) {
	if slices.ContainsFunc(w.promises, func(p *promised) bool { return p.repeats }) {
		return
	}
	answer := comparable(p.answer)
	if w.first == nil {
		w.first = answer
	}
	if !bytes.Equal(answer, w.first) {
		w.breaks(fmt.Sprintf("two successes differ: %.200s and %.200s", w.first, answer))
	}
}

// judgeEnd judges the last retry.
func (w *World) judgeEnd() {
	if w.broken != "" || w.last == nil {
		return
	}
	status, _ := outcomeOf(w.last.answer, w.last.err)
	for i, e := range w.promises {
		if n := w.counts()[i]; e.answered && (status != success || n != 1) {
			facts := []string{}
			if w.recon == nil && status != success {
				facts = append(facts, withoutResolver)
			}
			w.breaks(fmt.Sprintf("%s was promised exactly once: it happened %d times, and the last retry got %s", e.name, n, status), facts...)
		}
	}
}

// judgeCall adds a line about a call with a harm, with what it changed, and judges the counts.
func (w *World) judgeCall(pt *pending, h harm, before []int, returned bool) {
	w.seen = nil
	p, what := pt.process, pt.what+harmText(h)
	write, isCall := strings.CutPrefix(pt.what, sdkCall)
	w.commits = w.commits || write == "TransactWriteItems"
	after := w.counts()
	for i, n := range after {
		if n != before[i] {
			what += fmt.Sprintf("  [%s: %d]", w.promises[i].name, n)
			if pt.kind == storePoint {
				w.breaks("an effect happened outside every point", outsidePoint)
			}
			w.fact(afterReturn, returned)
			w.fact(twiceByTransport, h == sentTwice && pt.kind == keyedPoint)
			w.fact(keyIgnored, pt.key != "" && w.used[pt.key])
			w.fact(repeated, pt.key == "" && before[i] > 0)
			w.fact(besideCommit, isCall && write != "TransactWriteItems" && w.commits)
			w.used[pt.key] = true
		}
	}
	w.seen = after
	w.addLine(p, what)
	for i, e := range w.promises {
		if n := after[i]; !e.repeats && n > e.most {
			w.breaks(fmt.Sprintf("%s happened %d times, and at most %d was promised", e.name, n, e.most))
		}
	}
}

// wrote notes what a process wrote.
func (w *World) wrote(p *Process, op driver.Op, r driver.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if op == driver.OpInsert {
		first, known := w.claimed[r.ID]
		w.fact(expired, known && first != r.Owner)
		w.claimed[r.ID] = r.Owner
	}
	if r.State == driver.StateInProgress && r.Attempt != p.last[r.ID].Attempt {
		p.sent[r.ID] = false
	}
	p.last[r.ID] = r
	if p.what == "reconciler" && r.State == driver.StateRetryable && r.Reason == driver.ReasonResolved {
		w.facts[provenTooEarly] = true
	}
}

// sends notes a request, and returns its key: the downstream key, if it has that anywhere.
func (w *World) sends(p *Process, req *http.Request, body []byte) (sent string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := recordOf(req.Context())
	p.sent[id] = true
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		return ""
	}
	path := string(id) + req.Method + " " + req.URL.Path
	sent = req.Header.Get("Idempotency-Key")
	w.fact(otherKey, otherThanFirst(w.keys, path, sent))
	if id == "" {
		return sent
	}
	record := p.last[id]
	key := idempotent.DownstreamKey(req.Context())
	w.fact(outsideStep, record.Recovery == driver.Resume && key == id.DownstreamKey())
	for _, name := range record.StepNames {
		if id.StepKey(name) == key {
			w.fact(changedStep, otherThanFirst(w.steps, path, name))
		}
	}
	all := req.URL.String() + string(body)
	for _, values := range req.Header {
		all += strings.Join(values, "")
	}
	has := strings.Contains(all, key) || strings.Contains(all, idempotent.AsUUID(key))
	w.fact(noKey, !has)
	if has {
		return key
	}
	return sent
}

// otherThanFirst reports whether value is another one than the first under that name.
func otherThanFirst(values map[string]string, name, value string) bool {
	if first, ok := values[name]; ok {
		return first != value
	}
	values[name] = value
	return false
}

// observe notes what a guard reports.
func (w *World) observe(ctx context.Context, e event.Event) {
	p, _ := ctx.Value(processKey{}).(*Process)
	if p == nil || p.killed() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Kind != event.RequestEnded {
		w.facts[string(e.Kind)] = true
	}
	if e.Kind == event.ReconcileFailed {
		w.addLine(p, fmt.Sprintf("the resolver fails: %.200v", e.Err))
	}
	w.fact(notExecutedSent, e.Kind == event.Retryable && idempotent.IsNotExecuted(e.Err) && p.sentFor(e))
}

// sentFor reports whether the process sent a request for the record of an event.
func (p *Process) sentFor(e event.Event) bool {
	for id, sent := range p.sent {
		if sent && id.Operation() == e.Operation && id.KeyHash() == e.KeyHash {
			return true
		}
	}
	return false
}

// counts returns how often each effect has happened.
func (w *World) counts() []int {
	w.counting.Store(true)
	defer w.counting.Store(false)
	n := make([]int, len(w.promises))
	for i, p := range w.promises {
		n[i] = p.count()
	}
	if w.seen != nil && !slices.Equal(n, w.seen) {
		w.seen = n
		w.breaks("an effect happened outside every point", outsidePoint)
	}
	return n
}

// fact notes a fact if it holds.
func (w *World) fact(name string, holds bool) {
	if holds {
		w.facts[name] = true
	}
}

// addLine adds a line to the story.
func (w *World) addLine(p *Process, what string) {
	w.lines = append(w.lines, fmt.Sprintf("%10s  %d %-10s  %s", time.Since(w.began).Truncate(time.Second), p.n, p.what, what))
}

// breaks ends the story: a promise was broken.
func (w *World) breaks(what string, facts ...string) {
	if w.broken != "" {
		return
	}
	w.broken = what
	for _, r := range rules {
		if w.facts[r.fact] || slices.Contains(facts, r.fact) {
			w.rule = r.text
			return
		}
	}
}

// story returns what happened: at most 25 lines, unless one schedule is run alone.
func (w *World) story(alone bool) string {
	lines := w.lines
	if len(lines) > 20 && !alone {
		lines = slices.Concat(lines[:10], []string{fmt.Sprintf("            … %d more lines", len(lines)-19)}, lines[len(lines)-9:])
	}
	if w.broken == "" {
		return "nothing is broken\n" + strings.Join(lines, "\n")
	}
	rule := w.rule
	if rule == "" {
		rule = "no rule found"
	}
	return fmt.Sprintf("%s\n%s\nRule: %s\nRun this schedule alone: %s='%s' go test -run '^%s$'",
		w.broken, strings.Join(lines, "\n"), rule, scheduleVariable, w.asked, w.test)
}

// details returns what else an answer that is no success says.
func details(answer any, err error) string {
	if err != nil {
		return fmt.Sprintf(": %.300s", err.Error())
	}
	if v := reflect.Indirect(reflect.ValueOf(answer)); v.Kind() == reflect.Struct && v.FieldByName("Body").IsValid() {
		return fmt.Sprintf(": %.300v", v.FieldByName("Body"))
	}
	return ""
}

const success = "a success"

// outcomeOf returns what an answer says, and whether it refuses the request in a final way.
func outcomeOf(answer any, err error) (status string, final bool) {
	if err != nil {
		_, final := idempotent.AsFinal(err)
		return fmt.Sprintf("%T", err), final
	}
	v := reflect.ValueOf(answer)
	for v.IsValid() && (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && !v.IsNil() {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return success, false
	}
	if f := v.FieldByName("StatusCode"); f.IsValid() && f.CanInt() && (f.Int() < 200 || f.Int() > 299 || f.Int() == http.StatusAccepted && asksToRepeat(answer)) {
		code := int(f.Int())
		temporary := []int{http.StatusRequestTimeout, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusTooEarly, http.StatusTooManyRequests}
		return fmt.Sprint("status ", code), code >= 400 && code < 500 && !slices.Contains(temporary, code)
	}
	if f := v.FieldByName("BatchItemFailures"); f.IsValid() && f.Kind() == reflect.Slice && f.Len() > 0 {
		return fmt.Sprint(f.Len(), " failed messages"), false
	}
	return success, false
}

// asksToRepeat reports whether an answer has the header Retry-After, as one of
// lambdahttp.Options.Accepted, which is given while the first request is running.
func asksToRepeat(answer any) (asks bool) {
	v, _ := asJSON(answer)
	walk(v, func(name string, _ any) (keep bool) {
		asks = asks || strings.EqualFold(name, "Retry-After")
		return true
	})
	return asks
}

// comparable returns an answer without what differs between a first answer and a replay:
// some headers, and whether a list of headers is empty or missing then.
func comparable(answer any) []byte {
	v, ok := asJSON(answer)
	if !ok {
		return fmt.Appendf(nil, "%v", answer)
	}
	walk(v, func(name string, member any) (keep bool) {
		headers, isMap := member.(map[string]any)
		return member != nil && !(isMap && len(headers) == 0) && !slices.Contains(ofReplay, http.CanonicalHeaderKey(name))
	})
	text, _ := json.Marshal(v) // it was JSON
	return text
}

// ofReplay are the headers that a first answer and a replay need not share: the third one
// can name the other two.
var ofReplay = []string{"Idempotent-Replayed", "Idempotency-Status", "Access-Control-Expose-Headers"}

// asJSON returns a copy of an answer as JSON keeps it, if it can be encoded.
func asJSON(answer any) (v any, ok bool) {
	text, err := json.Marshal(answer)
	ok = err == nil && json.Unmarshal(text, &v) == nil
	return v, ok
}

// walk calls keep for each member of the objects in v, those inside first, and removes the
// members that are not kept.
func walk(v any, keep func(name string, member any) bool) {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if walk(member, keep); !keep(name, member) {
				delete(v, name)
			}
		}
	case []any:
		for _, member := range v {
			walk(member, keep)
		}
	}
}

// Facts from which a story chooses the rule that was broken, the most special one first.
const (
	foreignContext    = "a call with another context"
	afterReturn       = "an effect after the handler returned"
	notExecutedSent   = "NotExecuted after a request"
	outsideStep       = "an effect outside a step"
	besideCommit      = "a write beside a Commit"
	twiceByTransport  = "an effect repeated by the transport"
	keyIgnored        = "an effect repeated under one key"
	repeated          = "an effect repeated without a key"
	expired           = "a key that counts as new after its record expired"
	sameFingerprint   = "another request with an equal fingerprint"
	ignoredError      = "a success after a call that failed"
	otherKey          = "two keys for one request"
	noKey             = "a request without the downstream key"
	changedStep       = "a step with another name"
	provenTooEarly    = "evidence of no execution"
	finalAfterFault   = "a final answer after a fault of the provider"
	withoutResolver   = "no resolver"
	resolvedOtherwise = string(event.Resolved)
	outsidePoint      = "an effect outside every point"
	wrongRequest      = "a request that never succeeds"
	nothingPromised   = "nothing promised"
	noAnswer          = "no answer before the deadline"
)

var rules = []struct{ fact, text string }{
	{foreignContext, "Pass the handler's context to every call: with another context a call outlives its process, and DownstreamKey finds no key."},
	{noAnswer, "Return as soon as the handler's context ends: the rest of the time is for the outcome and for the answer."},
	{afterReturn, "Wait for every goroutine, and return its error, before the handler returns: Lambda stops the process then."},
	{notExecutedSent, "Return NotExecuted only if no request was sent. After a request, return the error itself: the outcome is unknown."},
	{outsideStep, "Under Resume, put every effect in a Step: the handler runs again, and only steps are skipped."},
	{changedStep, "Name a step by a constant, or from the request: a step with another name is another step."},
	{besideCommit, "Put every write into the transaction of Commit: another one is not undone with it."},
	{otherKey, "Send the same key for the same effect on each attempt: idempotent.DownstreamKey(ctx)."},
	{noKey, "Send idempotent.DownstreamKey(ctx) with the request."},
	{provenTooEarly, "Answer ProvenNotExecuted only if nothing can follow: a request that is in flight can still arrive."},
	{expired, "Keep a record longer than any client or event source retries: Operation.Retention."},
	{sameFingerprint, "Let the fingerprint of the key cover every field that changes the effect."},
	{twiceByTransport, "net/http repeats a request with the header Idempotency-Key after a lost connection: send that header only to a provider that honors it."},
	{keyIgnored, "The provider has repeated an effect under the same key. If it knows no keys, or forgets them so early, declare the step AtMostOnce, or the operation Reconcile."},
	{repeated, "A run after a fault repeats an effect: give the effect a key, such as a unique column with DownstreamKey, or declare its step AtMostOnce, or the operation Reconcile."},
	{ignoredError, "Return the error of every call."},
	{finalAfterFault, "Return Final only for an outcome that no retry can change, not for a temporary failure."},
	{withoutResolver, "Under Reconcile only evidence settles an unknown outcome: add a resolver, or promise AtMostOnce."},
	{wrongRequest, "Without a fault the request must succeed: correct the event or the handler. Options.Logger of World.GuardOptions gets what the guard logs."},
	{nothingPromised, "Say in the body what must hold: World.ExactlyOnce, World.AtMostOnce, World.AtLeastOnce or World.Check."},
	{outsidePoint, "Explore can only crash what it sees: use World.Provider or World.Do for every effect."},
	{resolvedOtherwise, "Let the resolver return the value that the handler would have returned."},
}
