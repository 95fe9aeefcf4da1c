package chaos

import (
	"fmt"
	randv2 "math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/once-lambda/once/idempotent"
)

// work is one key of the storm, with all answers that clients got.
type work struct {
	promise promise
	key     string
	record  idempotent.RecordID
	answers []answer
	final   answer // of the recovery phase
}

// book has all keys of the storm.
type book struct {
	mu     sync.Mutex
	works  map[promise][]*work
	byKey  map[string]*work
	silent map[promise][]*work        // works without a final answer to the last request, the oldest first
	count  map[promise]map[string]int // answers by class
}

func newBook() *book {
	b := &book{
		works: map[promise][]*work{}, byKey: map[string]*work{},
		silent: map[promise][]*work{}, count: map[promise]map[string]int{},
	}
	for _, p := range append(slices.Clone(promises), sweep) {
		b.count[p] = map[string]int{}
	}
	return b
}

// pick draws the key of the next request: a new one, one that is probably
// running, one whose last client got no answer, or any.
func (b *book) pick(p promise, r *randv2.Rand) *work {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.works[p]
	switch chance := r.Float64(); {
	case len(b.silent[p]) > 0 && chance < 0.15:
		w := b.silent[p][0]
		b.silent[p] = b.silent[p][1:]
		return w
	case len(all) == 0 || chance < 0.5:
		w := &work{promise: p, key: fmt.Sprintf("%s-%d", p, len(all))}
		w.record = p.key(w.key).RecordID()
		b.works[p] = append(all, w)
		b.byKey[w.key] = w
		return w
	case chance < 0.9:
		return all[len(all)-1-r.IntN(min(len(all), 12))]
	default:
		return all[r.IntN(len(all))]
	}
}

// write records the answer to a request.
func (b *book) write(q request, a answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count[q.Promise][a.Class]++
	if w := b.byKey[q.Key]; w != nil {
		w.answers = append(w.answers, a)
		if !a.settled() {
			b.silent[q.Promise] = append(b.silent[q.Promise], w)
		}
	}
}

// all returns every key.
func (b *book) all() []*work {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*work
	for _, p := range promises {
		all = append(all, b.works[p]...)
	}
	return all
}

// requests returns how many requests were sent.
func (b *book) requests() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, classes := range b.count {
		for _, times := range classes {
			n += times
		}
	}
	return n
}

// table returns the answers by promise and class.
func (b *book) table() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var t strings.Builder
	columns := append(slices.Clone(promises), sweep)
	fmt.Fprintf(&t, "\n%-18s", "answers")
	for _, p := range columns {
		fmt.Fprintf(&t, "%14s", p)
	}
	for _, class := range classes {
		fmt.Fprintf(&t, "\n%-18s", class)
		for _, p := range columns {
			fmt.Fprintf(&t, "%14d", b.count[p][class])
		}
	}
	fmt.Fprintf(&t, "\n%-18s", "keys")
	for _, p := range promises {
		fmt.Fprintf(&t, "%14d", len(b.works[p]))
	}
	return t.String()
}

// effect is what the harness found of one effect of a key: the proofs that its
// executions left, one for each.
type effect struct {
	name   string
	proofs []string
}

// judge compares the answers about a key with its effects after recovery, and
// returns the violations. proof is what the results must contain.
func judge(w *work, effects []effect, proof string) (violations []string) {
	report := func(format string, args ...any) {
		violations = append(violations, fmt.Sprintf("%s, %s: ", w.key, w.record.KeyHash())+fmt.Sprintf(format, args...))
	}
	answered := false
	for _, a := range append(slices.Clone(w.answers), w.final) {
		if a.Class == classDamaged || a.Class == classMismatch {
			report("request %s got a %s: %s", a.Name, a.Class, a.Detail)
		}
		if a.Proof == "" {
			continue
		}
		answered = true
		if a.Proof != proof {
			report("request %s got the result %q, but the effect left %q", a.Name, a.Proof, proof)
		}
		if a.Stored && w.final.Class == classUnavailable {
			report("request %s got a stored result, but a replay gets none: %s", a.Name, w.final.Detail)
		}
	}
	for _, e := range effects {
		switch n := len(e.proofs); {
		case n > 1:
			report("the effect %s happened %d times", e.name, n)
		case n == 0 && answered:
			report("a client got a result, but the effect %s is lost", e.name)
		case n == 0:
			report("the effect %s did not happen after recovery", e.name)
		}
	}
	if !w.final.settled() {
		report("the last request of the recovery got %q: %s", w.final.Class, w.final.Detail)
	}
	if len(violations) > 0 {
		violations = append(violations, "  its answers: "+w.history())
	}
	return violations
}

// settled reports whether the answer is final.
func (a answer) settled() bool {
	switch a.Class {
	case classDone, classReplayed, classUnavailable:
		return true
	}
	return false
}

func (w *work) history() string {
	var parts []string
	for _, a := range append(slices.Clone(w.answers), w.final) {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s %s", a.Name, a.Class, a.Proof)))
	}
	return strings.Join(parts, "; ")
}
