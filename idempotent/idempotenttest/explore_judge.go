// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/internal/httpform"
	"github.com/once-lambda/once/internal/timing"
)

// answered judges the answer of a process.
func (w *World) answered(p *Process) {
	if p.what == "reconciler" {
		w.addLine(p, fmt.Sprintf("answers %v, %v", p.answer, p.err))
		return
	}
	status, final := outcomeOf(p.answer, p.err)
	w.addLine(p, "answers "+status)
	switch p.what {
	case otherRequest:
		if status == success {
			w.breaks(atSameKey, "another request with the same key succeeded")
		}
		return
	case otherKeyed:
		w.answeredOther(p, status)
		return
	}
	w.fact(finalAnswer, final)
	for i, n := range w.counts() {
		switch name := w.promises[i].name; {
		case status == success && n < 1:
			w.fact(remembered, p.ran && p.calls == 0)
			w.breaks(atMissing, fmt.Sprintf("the handler answered with a success, and %s did not happen", name))
		case final && n > 0:
			w.breaks(atFinal, fmt.Sprintf("the handler answered with a final refusal, and %s happened", name))
		}
	}
	if status == success {
		w.succeeded(p)
	} else if p.n == 1 && len(w.asked) == 0 {
		w.breaks(atSetup, fmt.Sprintf("the request did not succeed, although nothing failed: %s%s", status, details(p.answer, p.err)), wrongRequest)
	}
}

// answeredOther judges the answer to a request with another key.
func (w *World) answeredOther(p *Process, status string) {
	switch {
	case status != success:
		fact := sharedKey
		if p.ran {
			fact = idleRun
		}
		w.breaks(atOtherKey, fmt.Sprintf("a request with another key did not succeed: %s%s", status, details(p.answer, p.err)), fact)
	case slices.Equal(w.counts(), w.before):
		w.breaks(atOtherKey, "a request with another key succeeded without a separate effect", sharedKey)
	default:
		w.succeeded(p)
	}
}

// succeeded judges the answer of a success.
func (w *World) succeeded(p *Process) {
	w.equal(p)
	w.beside(func() {
		for _, f := range w.answers {
			if err := f(p.answer); err != nil {
				w.breaks(atAnswer, fmt.Sprintf("an answer of a success is wrong: %v", err))
			}
		}
	})
}

// judgeTime judges when a process has answered, or was killed: after a call that hung, it
// has to answer before its deadline, in time for the answer to leave. Each hanging call
// returns a millisecond after the end of its context.
func (w *World) judgeTime(p *Process, now time.Time) {
	var o idempotent.Options
	for _, f := range w.options {
		f(&o)
	}
	margin := timing.Margin(cmp.Or(o.DeadlineReserve, timing.DefaultReserve))
	if by := p.deadline.Add(time.Duration(p.hung)*time.Millisecond - margin); p.hung > 0 && !p.wasLate && p.what != "reconciler" && now.After(by) {
		w.breaks(atLate, fmt.Sprintf("a call hung until its context ended, and there was no answer %s before the deadline", margin))
	}
}

func (w *World) checkAll() {
	w.beside(func() {
		for _, c := range w.checks {
			if err := c.f(); err != nil {
				w.breaks(atCheck, fmt.Sprintf("%s: %v", c.name, err))
			}
		}
	})
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
	if first, again := ofBoth(w.first, answer); !bytes.Equal(first, again) {
		w.breaks(atAnswers, fmt.Sprintf("two successes differ: %.200s and %.200s", first, again))
	}
}

// judgeEnd judges the last retry.
func (w *World) judgeEnd() {
	p := w.procs[len(w.procs)-1]
	status, _ := outcomeOf(p.answer, p.err)
	at := atEnd
	switch {
	case p.panicked != nil:
		status = "a panic"
	case p.killed():
		status, at = "no answer", atLate
	}
	w.fact(idleRun, p.ran && p.calls == 0)
	w.fact(failingRun, p.ran)
	for i, n := range w.counts() {
		if e := w.promises[i]; e.answered && status != success {
			w.breaks(at, fmt.Sprintf("%s was promised exactly once: it happened %d times, and the last retry got %s", e.name, n, status))
		}
	}
}

// judgeCall adds a line about a call with a harm, with what it changed, and judges the counts.
func (w *World) judgeCall(pt *pending, h harm, before []int, returned bool) {
	w.seen = nil
	p, what := pt.process, pt.what+harmText(h)
	if pt.crashes {
		what += ", in a goroutine of the handler"
	}
	write, isCall := strings.CutPrefix(pt.what, sdkCall)
	w.commits = w.commits || write == "TransactWriteItems"
	after := w.counts()
	w.mu.Lock() // goroutines that wait for the clock go on without the driver
	for i, n := range after {
		if n == before[i] {
			continue
		}
		what += fmt.Sprintf("  [%s: %d]", w.promises[i].name, n)
		if pt.kind == storePoint {
			w.breaks(atSetup, "an effect happened outside every point", outsidePoint)
		}
		p.sent[pt.record] = true
		w.fact(afterReturn, returned)
		w.fact(undone, n < before[i])
		w.fact(outsideStep, pt.outside)
		w.fact(besideCommit, isCall && write != "TransactWriteItems" && w.commits)
		if n > 1 {
			w.repeated(pt, w.effects[i], h)
		}
		w.effects[i] = pt
	}
	w.mu.Unlock()
	w.seen = after
	w.addLine(p, what)
	for i, e := range w.promises {
		if n := after[i]; !e.repeats && n > e.most+w.more {
			w.breaks(atRepeated, fmt.Sprintf("%s happened %d times, and at most %d was promised", e.name, n, e.most))
		}
	}
}

// repeated notes how a call that repeats an effect differs from the last one.
func (w *World) repeated(pt, last *pending, h harm) {
	if last == nil {
		last = &pending{}
	}
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	w.fact(twiceByTransport, h == sentTwice && pt.kind == keyedPoint)
	w.fact(twiceBySDK, h == sentTwice && pt.kind == sdkPoint)
	w.fact(noGuard, len(w.claimed) == 0)
	w.fact(newRecord, differ(string(last.record), string(pt.record)))
	w.fact(changedStep, differ(last.step, pt.step))
	w.fact(otherHost, differ(last.host, pt.host))
	w.fact(otherKey, differ(last.key, pt.key))
	w.fact(keyIgnored, pt.key != "" && pt.key == last.key)
	w.fact(noKey, pt.kind >= providerPoint && pt.key == "")
	w.fact(withoutKey, pt.key == "")
}

// tries notes a record that is perhaps written.
func (w *World) tries(id driver.RecordID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written[id] = true
}

// allSettled reports whether no record waits for reconciliation. Reading them is much
// quicker than the lists of DynamoDB.
func (w *World) allSettled() bool {
	settled := true
	w.beside(func() {
		for id := range w.written {
			r, _ := w.store.Get(context.Background(), id)
			settled = settled && (r == nil || r.Due.IsZero())
		}
	})
	return settled
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
	p.last[r.ID] = r
	w.fact(notExecutedSent, r.Reason == driver.ReasonNotExecuted && p.sent[r.ID])
	w.fact(provenTooEarly, r.State == driver.StateRetryable && r.Reason == driver.ReasonResolved)
}

// about notes which execution makes a call, its step, and what has the downstream key of a
// request, if it is anywhere. w.mu is locked.
func (w *World) about(pt *pending) {
	e, ok := idempotent.FromContext(pt.ctx)
	if !ok {
		return
	}
	pt.record = e.RecordID()
	record, key := pt.process.last[pt.record], idempotent.DownstreamKey(pt.ctx)
	pt.outside = record.Recovery == driver.Resume && key == pt.record.DownstreamKey()
	for _, name := range record.StepNames {
		if pt.record.StepKey(name) == key {
			pt.step = name
		}
	}
	req := pt.request
	if req == nil {
		return
	}
	pt.process.sent[pt.record] = true
	if slices.Contains([]string{http.MethodGet, http.MethodHead}, req.Method) {
		return
	}
	has := func(text string) bool {
		return strings.Contains(text, key) || strings.Contains(text, idempotent.AsUUID(key))
	}
	if has(req.URL.String() + pt.order) {
		pt.key = key
	}
	for _, values := range req.Header {
		if all := strings.Join(values, ""); has(all) {
			pt.key = all
		}
	}
}

// observe notes what a guard reports.
func (w *World) observe(ctx context.Context, e event.Event) {
	p, _ := w.process(ctx)
	if p.killed() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Kind != event.RequestEnded {
		w.facts[string(e.Kind)] = true
	}
	p.ran = p.ran || e.Kind == event.Reserved || e.Kind == event.TakenOver || e.Kind == event.ExpiredReplaced
	if e.Kind == event.ReconcileFailed {
		w.addLine(p, fmt.Sprintf("the resolver fails: %.300v", e.Err))
	}
}

// beside runs f of the driver, whose calls are no points.
func (w *World) beside(f func()) {
	w.counting.Store(true)
	f()
	w.counting.Store(false)
}

// counts returns how often each effect has happened.
func (w *World) counts() []int {
	n := make([]int, len(w.promises))
	w.beside(func() {
		for i, p := range w.promises {
			n[i] = p.count()
		}
	})
	if w.seen != nil && !slices.Equal(n, w.seen) {
		w.breaks(atSetup, "an effect happened outside every point", outsidePoint)
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
func (w *World) breaks(at breakKind, what string, facts ...string) {
	if w.broken != "" {
		return
	}
	w.broken = what
	for _, r := range rules {
		if r.at&at != 0 && (r.fact == "" || slices.Contains(facts, r.fact) || w.facts[r.fact]) {
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
	lines = slices.Concat([]string{w.broken}, lines)
	if w.rule != "" {
		lines = append(lines, "Rule: "+w.rule)
	}
	return fmt.Sprintf("%s\nRun this schedule alone: %s='%s' go test -run '^%s$'", strings.Join(lines, "\n"), scheduleVariable, w.asked, w.test)
}

// details returns what else an answer that is no success says: it is an error or a struct.
func details(answer any, err error) string {
	if err != nil {
		return fmt.Sprintf(": %.300s", err.Error())
	}
	if body := valueOf(answer).FieldByName("Body"); body.IsValid() {
		return fmt.Sprintf(": %.300v", body)
	}
	return ""
}

// valueOf returns an answer, or what it points to.
func valueOf(answer any) reflect.Value {
	v := reflect.ValueOf(answer)
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v
}

const success = "a success"

// outcomeOf returns what an answer says, and whether it refuses the request in a final way.
func outcomeOf(answer any, err error) (status string, final bool) {
	if err != nil {
		_, final := idempotent.AsFinal(err)
		return fmt.Sprintf("%T", err), final
	}
	v := valueOf(answer)
	if v.Kind() != reflect.Struct {
		return success, false
	}
	if f := v.FieldByName("StatusCode"); f.CanInt() && (f.Int() < 200 || f.Int() > 299 || f.Int() == http.StatusAccepted && asksToRepeat(answer)) {
		code := int(f.Int())
		temporary := []int{http.StatusRequestTimeout, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusTooEarly, http.StatusTooManyRequests}
		return fmt.Sprint("status ", code), code >= 400 && code < 500 && !slices.Contains(temporary, code)
	}
	if f := v.FieldByName("BatchItemFailures"); f.Kind() == reflect.Slice && f.Len() > 0 {
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

// ofBoth returns what a replay keeps of two answers: if they are of HTTP, neither cookies nor
// headers that belong to one exchange, nor headers that only one of them has.
func ofBoth(first, again []byte) (_, _ []byte) {
	texts := [2][]byte{first, again}
	var answers, headers [2]map[string]any
	for i, text := range texts {
		isHTTP := false
		headers[i] = map[string]any{}
		if json.Unmarshal(text, &answers[i]) != nil {
			return first, again
		}
		maps.DeleteFunc(answers[i], func(name string, member any) bool {
			switch name = strings.ToLower(name); name {
			case "statuscode":
				isHTTP = true
			case "cookies":
				return true
			case "header", "headers", "multivalueheaders":
				all, _ := member.(map[string]any)
				for h, values := range all {
					headers[i][name+" "+http.CanonicalHeaderKey(h)] = values
				}
				return true
			}
			return false
		})
		if !isHTTP {
			return first, again
		}
	}
	for i := range texts {
		maps.DeleteFunc(headers[i], func(h string, _ any) bool {
			_, inBoth := headers[1-i][h]
			_, name, _ := strings.Cut(h, " ")
			return !inBoth || httpform.OfExchange(name)
		})
		answers[i]["headers"] = headers[i]
		texts[i], _ = json.Marshal(answers[i]) // it was JSON
	}
	return texts[0], texts[1]
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
