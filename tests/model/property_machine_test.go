package model_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/tests/model"
	"github.com/once-lambda/once/tests/tally"
)

// machine sends random operations to a guard and to the model, and compares.
type machine struct {
	*world
	subjects [2]*subject
	values   int
	steps    int
	seen     *tally.Tally
}

// subject is one key and its model.
type subject struct {
	scope, id string
	model     model.Key
	suspended []*run
	owners    map[driver.Owner]int // token -> the model's name of the attempt
	oldest    int                  // the first attempt
	version   driver.Version       // of the record, when it was last read
	before    model.Key            // the model at that time
}

const day = int64(24 * time.Hour / time.Millisecond)

// rivals are pairs of keys that some naive way to join, fold or normalise scope
// and id confuses. The tests append the same random text to both ids, which
// separates them from other tests' keys and leaves them as similar as they
// were.
var rivals = [][2]struct{ scope, id string }{
	{{"a", "b|c"}, {"a|b", "c"}},
	{{"a", "b#c"}, {"a#b", "c"}},
	{{"a", "b/c"}, {"a/b", "c"}},
	{{"a", "b\x00c"}, {"a\x00b", "c"}},
	{{"a", "bc"}, {"ab", "c"}},
	{{"1", "1:1"}, {"1:1", "1"}},
	{{"ann", "order"}, {"bob", "order"}},
	{{"a", "b"}, {"b", "a"}},
	{{"a", "b"}, {"A", "b"}},
	{{"a", "b"}, {"a ", "b"}},
	{{"\u00e9", "b"}, {"e\u0301", "b"}},
	{{idempotent.Global, "b"}, {"a", "b"}},
}

func newMachine(rt *rapid.T, store driver.Store, seenAs over, seen *tally.Tally) *machine {
	hours := func(name string, choices ...int64) int64 {
		return rapid.SampledFrom(choices).Draw(rt, name) * time.Hour.Milliseconds()
	}
	p := model.Policy{
		Margin:              leaseMargin.Milliseconds(),
		ReconcileAfter:      time.Minute.Milliseconds(),
		Retention:           max(hours("retention in hours", 24, 0), 1000), // a second is less than a lease
		DownstreamRetention: hours("downstream retention in hours", 24, 1),
		UnresolvedRetention: hours("unresolved retention in hours", 0, 100),
	}
	w, err := newWorld(store, seenAs, p, rapid.SampledFrom([]int{0, 10}).Draw(rt, "cached"))
	if err != nil {
		rt.Fatal(err)
	}
	m := &machine{world: w, seen: seen}
	mark := rand.Text()
	for i, k := range rapid.SampledFrom(rivals).Draw(rt, "keys") {
		m.subjects[i] = &subject{scope: k.scope, id: k.id + mark, owners: map[driver.Owner]int{}}
	}
	return m
}

// end ends the runs that are still suspended.
func (m *machine) end() {
	for _, s := range m.subjects {
		for _, r := range s.suspended {
			r.crash()
		}
	}
	m.seen.Add("sequences", 1)
	m.seen.Add("operations", m.steps)
	m.seen.Add("lost replies", m.lost)
}

func (s *subject) key(fingerprint int) idempotent.Key {
	return idempotent.Key{
		Operation: "charge", Scope: s.scope, ID: s.id,
		Fingerprint: idempotent.FingerprintBytes([]byte{byte(fingerprint)}),
	}
}

// actions are the operations that rapid chooses from. They are numbered because
// rapid treats the first as the simplest when it shortens a sequence.
func (m *machine) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":          m.check,
		"1 request": m.request,
		"2 finish":  m.finish,
		"3 finish":  m.finish, // twice as likely
		"4 time":    m.pass,
		"5 request": m.request,
		"6 crash":   m.crash,
		"7 resolve": m.resolve,
		"8 sweep":   m.sweep,
		"9 delete":  m.delete,
	}
}

func (m *machine) draw(rt *rapid.T) *subject {
	return m.subjects[rapid.IntRange(0, 1).Draw(rt, "key")]
}

// process draws a process, whose replies may get lost.
func (m *machine) process(rt *rapid.T) *process {
	return newProcess(rapid.SampledFrom([]bool{false, false, true}).Draw(rt, "loses replies"))
}

// value returns a value that no other outcome has, small or large: a large one
// is stored beside the record if the store does that.
func (m *machine) value(rt *rapid.T) string {
	m.values++
	v := fmt.Sprintf("v%d", m.values)
	switch rapid.SampledFrom([]string{"small", "small", "small", "repetitive", "small", "large"}).Draw(rt, "size") {
	case "repetitive":
		v += strings.Repeat(" again", 500)
	case "large":
		noise := make([]byte, 6000)
		mathrand.NewChaCha8([32]byte{byte(m.values)}).Read(noise)
		v += fmt.Sprintf(" %x", noise)
	}
	return v
}

func (m *machine) request(rt *rapid.T) {
	s := m.draw(rt)
	fingerprint := rapid.SampledFrom([]int{1, 1, 2, 1, 1}).Draw(rt, "fingerprint")
	before := s.model
	timeout := rapid.SampledFrom([]time.Duration{requestTimeout, requestTimeout, 0, requestTimeout, time.Hour}).Draw(rt, "timeout")
	r := m.begin(s.key(fingerprint), m.process(rt), model.Request{
		Fingerprint: fingerprint,
		Recovery:    rapid.SampledFrom([]model.Recovery{model.Reconcile, model.Rerun, model.Resume}).Draw(rt, "recovery"),
		Retention:   rapid.SampledFrom([]int64{day, 1000, 30 * day}).Draw(rt, "retention"),
		Deadline:    m.now.Add(timeout).UnixMilli(),
	})
	var want model.Answer
	s.model, want = m.policy.Claim(s.model, r.request, m.millis())
	m.compare(rt, r, want)
	if r.entered {
		r.request = r.request.Entered(before, s.model, m.millis())
		s.suspended = append(s.suspended, r)
	}
}

func (m *machine) finish(rt *rapid.T) {
	s, r := m.pick(rt)
	o := model.Outcome{Kind: rapid.SampledFrom([]model.Kind{model.Result, model.Final, model.NotExecuted, model.Maybe, model.Failed}).Draw(rt, "kind")}
	if o.Kind == model.Result || o.Kind == model.Final {
		o.Value = m.value(rt)
	}
	e := newEnding(o, rapid.SampledFrom([]bool{false, true, false, false}).Draw(rt, "panics"),
		rapid.SampledFrom([]wrapping{asItIs, asItIs, wrapped, inAJoin}).Draw(rt, "wrapping"))
	w := model.Work{Ref: rapid.SampledFrom([]string{"", "order 1", "order 2"}).Draw(rt, "ref")}
	if kind := rapid.SampledFrom([]model.Kind{"", model.Result, model.Failed, model.NotExecuted}).Draw(rt, "step"); kind != "" {
		w.Step = model.StepCall{Kind: kind, Once: rapid.Bool().Draw(rt, "at most once")}
		if kind == model.Result {
			w.Step.Value = m.value(rt)
		}
	}
	before := r.lost
	r.finish(w, e)
	m.lost += r.lost - before
	var want model.Answer
	s.model, want = m.policy.Settle(s.model, r.request, w, e.outcome(), m.millis())
	if e.panics { // any result: there is no caller left
		want = model.Answer{Verdict: panicked, Outcome: e.Outcome, Events: strings.TrimSpace(strings.TrimSuffix(" "+want.Events, " replayed"))}
	}
	m.compare(rt, r, want)
}

func (m *machine) crash(rt *rapid.T) {
	_, r := m.pick(rt)
	r.crash()
	m.seen.Add("crash", 1)
}

// pick chooses a suspended run.
func (m *machine) pick(rt *rapid.T) (*subject, *run) {
	var suspended []int
	for _, s := range m.subjects {
		for _, r := range s.suspended {
			suspended = append(suspended, r.request.Owner)
		}
	}
	if len(suspended) == 0 {
		rt.Skip("no run is in the handler")
	}
	owner := rapid.SampledFrom(suspended).Draw(rt, "run")
	for _, s := range m.subjects {
		i := slices.IndexFunc(s.suspended, func(r *run) bool { return r.request.Owner == owner })
		if i >= 0 {
			r := s.suspended[i]
			s.suspended = slices.Delete(s.suspended, i, i+1)
			return s, r
		}
	}
	panic("a run that does not exist")
}

// pass lets time pass: a little, or up to a moment that matters to a key.
func (m *machine) pass(rt *rapid.T) {
	moments := []int64{m.millis() + 1000, m.millis() + time.Hour.Milliseconds()}
	for _, s := range m.subjects {
		for _, at := range []int64{
			s.model.LeaseEnd, s.model.LeaseEnd - 1, s.model.Expires, s.model.Expires - 1, s.model.Due,
			s.model.OpenSince + m.policy.DownstreamRetention, s.model.OpenSince + m.policy.DownstreamRetention - 1,
		} {
			if at > m.millis() {
				moments = append(moments, at)
			}
		}
	}
	m.now = moment(rapid.SampledFrom(moments).Draw(rt, "until"))
}

func (m *machine) resolve(rt *rapid.T) {
	s := m.draw(rt)
	o := model.Outcome{Kind: rapid.SampledFrom([]model.Kind{model.Result, model.Final, model.NotExecuted}).Draw(rt, "kind")}
	if o.Kind != model.NotExecuted {
		o.Value = m.value(rt)
		switch stands := rapid.Bool().Draw(rt, "same result"); {
		case stands && s.model.State == model.Completed:
			o = s.model.Outcome
		case stands && s.model.Step.Finished && (o.Kind == model.StepDone || o.Kind == model.StepCorrect):
			o.Value = s.model.Step.Value
		}
	}
	about := s.model.Owner
	if rapid.SampledFrom([]bool{false, false, false, true}).Draw(rt, "late") {
		about = s.oldest
	}
	p := m.process(rt)
	err := m.guard.Resolve(p.invocation(m.now.Add(requestTimeout)), s.key(1).RecordID(), resolution(o, s.token(about)))
	m.lost += p.lost
	var want model.Answer
	s.model, want = m.policy.Resolve(s.model, o, about != s.model.Owner, m.millis())
	got := resolved(err)
	got.Events = p.observed()
	m.same(rt, fmt.Sprintf("evidence %s", o), got, want, err)
}

// sweep runs a reconciler on the due records, whose guard declares nothing.
func (m *machine) sweep(rt *rapid.T) {
	p := m.process(rt)
	ctx := p.invocation(m.now.Add(requestTimeout))
	g, err := idempotent.New(&dueStore{network{m.store}, m.subjects}, func(o *idempotent.Options) {
		o.ReconcileAfter = span(m.policy.ReconcileAfter)
		o.Observer, o.Logger = event.ObserverFunc(observe), discard
		o.Now = func() time.Time { return m.now }
	})
	if err != nil {
		rt.Fatal(err)
	}
	_, err = idempotent.ReconcileDue(ctx, g, nil, func(o *idempotent.ReconcileOptions) { o.SweepOnly, o.Concurrency = true, 1 })
	m.lost += p.lost
	want := model.Answer{Verdict: swept}
	for _, s := range m.subjects {
		var events string
		s.model, events = m.policy.Sweep(s.model, m.millis())
		want.Events = strings.TrimSpace(want.Events + " " + events)
	}
	got := model.Answer{Verdict: swept, Events: p.observed()}
	if err != nil {
		got.Verdict = unforeseen(err)
	}
	m.same(rt, "a sweep", got, want, err)
}

const swept model.Verdict = "swept"

// dueStore lists the records of the subjects that are due.
type dueStore struct {
	driver.Store
	subjects [2]*subject
}

func (d *dueStore) Due(ctx context.Context, before time.Time) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		for _, s := range d.subjects {
			r, err := d.Get(ctx, s.key(1).RecordID())
			if err == nil && !r.Due.IsZero() && !r.Due.After(before) && !yield(*r, nil) {
				return
			}
		}
	}
}

func (d *dueStore) Exhausted(context.Context) iter.Seq2[driver.Record, error] { panic("not asked") }

// delete deletes an expired record, as the time to live does an hour later.
func (m *machine) delete(rt *rapid.T) {
	var expired []*subject
	for _, s := range m.subjects {
		if s.model.Expires != 0 && s.model.Expires <= m.millis() {
			expired = append(expired, s)
		}
	}
	if len(expired) == 0 {
		rt.Skip("there is no expired record")
	}
	s := expired[rapid.IntRange(0, len(expired)-1).Draw(rt, "expired")]
	m.store.delete(s.key(1).RecordID())
	s.model = model.Key{Version: s.model.Version}
	m.seen.Add("delete", 1)
}
