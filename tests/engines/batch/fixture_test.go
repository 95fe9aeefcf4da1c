// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdabatch"
)

const timeout = 30 * time.Second

// ending is what a handler does in one run.
type ending string

const (
	succeeds    ending = "succeeds"
	failsBefore ending = "fails before the effect"
	failsAfter  ending = "fails after the effect"
	notExecuted ending = "not executed"
	final       ending = "final"
	unknown     ending = "unknown"
	panics      ending = "panics"
	exits       ending = "ends its goroutine"
	diesBefore  ending = "the process dies before the effect"
	diesAfter   ending = "the process dies after the effect"
	slow        ending = "takes all the time"
)

var endings = []ending{succeeds, succeeds, succeeds, succeeds, failsBefore, failsAfter, notExecuted, final, unknown, panics, exits, diesBefore, diesAfter, slow}

// fixture is a source, a function that processes its messages, and the book of the
// effects.
type fixture struct {
	t      *rapid.T
	source source
	// byOrder: the key is the order's. Otherwise it is the record's number, and
	// two records about one order are separate operations.
	byOrder  bool
	declared idempotent.Recovery
	clock    idempotenttest.Clock
	store    driver.Store
	faults   idempotenttest.Faults
	handle   handler
	all      []*sent
	queue    *queue // of SQS

	mu         sync.Mutex
	script     map[string]ending          // of this invocation, by order
	batch      []*sent                    // of this invocation
	dead       bool                       // the process of this invocation is dead
	broken     []string                   // violations
	effects    map[string]int             // by operation
	keys       map[string]map[string]bool // downstream keys, by operation
	entries    map[string]int
	retryable  map[string]int // records that were settled as retryable, by record
	handedOver map[string]bool
	handsOver  bool
	running    map[string]int // by group
	hides      bool           // SQS accepts changes of the visibility timeout
	hidden     map[*sent]bool // messages whose timeout this invocation changed
	seen       *kit.Tally
}

var errBroken = errors.New("broken")

// mortal is a call of a process that may die: after its death every call fails.
func (w *fixture) mortal(ctx context.Context, c *idempotenttest.StoreCall) {
	w.mu.Lock()
	if w.dead {
		c.Err = errors.New("the process is dead")
	}
	w.mu.Unlock()
	if c.Err != nil {
		return
	}
	if c.Do(ctx); c.Op == driver.OpReplace && c.Err == nil && c.Current == nil && c.Record.State == driver.StateRetryable {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.retryable[string(c.Record.ID)]++
	}
}

func newFixture(t *rapid.T, s source, seen *kit.Tally) *fixture {
	w := &fixture{
		t: t, source: s, seen: seen, store: memstore.New(),
		declared:  rapid.SampledFrom([]idempotent.Recovery{idempotent.Reconcile, idempotent.Resume, idempotent.Rerun}).Draw(t, "recovery"),
		handsOver: rapid.Bool().Draw(t, "hands over"),
		effects:   map[string]int{}, keys: map[string]map[string]bool{}, entries: map[string]int{}, retryable: map[string]int{},
		handedOver: map[string]bool{}, running: map[string]int{},
	}
	var option lambdabatch.Options
	option.ID = lambdabatch.Field("/order_id")
	s.option(&option)
	w.byOrder = option.ID != nil
	w.handle = s.build(w.guard(w.faults.Store(idempotenttest.Intercept(w.store, w.mortal))), w.work, func(o *lambdabatch.Options) {
		*o = option
		o.Operation = "fulfil"
		o.Guard = func(g *idempotent.Options) { g.Recovery, g.Steps = w.declared, []string{"effect"} }
		if o.Concurrency = rapid.IntRange(1, 4).Draw(t, "concurrency"); s.together {
			o.Concurrency = 1
		}
		o.Fingerprint = func(*lambdabatch.Message) (idempotent.Fingerprint, error) {
			return idempotent.FingerprintBytes(nil), nil
		}
		if s.sqs {
			o.ChangeVisibility = w.hide
		}
		if w.handsOver {
			o.HandOver = func(_ context.Context, _ *lambdabatch.Message, reason error) error {
				u, _ := errors.AsType[*idempotent.UnresolvedError](reason)
				w.mu.Lock()
				defer w.mu.Unlock()
				w.handedOver[string(u.RecordID)] = true
				return nil
			}
		}
	})
	groups := rapid.IntRange(1, 3).Draw(t, "groups")
	for i := range rapid.IntRange(1, 12).Draw(t, "sent") {
		about := i
		if i > 0 && rapid.IntRange(0, 5).Draw(t, "again") == 0 {
			about = rapid.IntRange(0, i-1).Draw(t, "about")
		}
		w.all = append(w.all, &sent{id: "m" + letter(i), about: "o" + letter(about), group: letter(rapid.IntRange(0, groups-1).Draw(t, "group"))})
	}
	w.queue = &queue{
		clock: &w.clock, fifo: s.ordered, retention: 14 * day,
		visibility: rapid.SampledFrom([]time.Duration{timeout, 6 * timeout}).Draw(t, "visibility"),
	}
	for _, m := range w.all {
		w.queue.send(m)
	}
	return w
}

// hide is the function's client of SQS.
func (w *fixture) hide(_ context.Context, queueURL, receipt string, seconds int32) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead || !w.hides {
		w.seen.Add("not hidden", 1)
		return errBroken
	}
	m, err := w.queue.changeVisibility(queueURL, receipt, seconds)
	if err != nil && !errors.Is(err, errExpired) {
		w.breaks(err.Error())
	}
	if err == nil {
		w.hidden[m] = true
		w.seen.Add("hidden", 1)
	}
	return err
}

func letter(i int) string { return string(rune('A' + i)) }

func (w *fixture) guard(s driver.Store) *idempotent.Guard {
	g, err := idempotent.New(s, func(o *idempotent.Options) {
		o.Now, o.Logger = w.clock.Now, slog.New(slog.DiscardHandler)
		o.Observer = event.ObserverFunc(func(_ context.Context, e event.Event) {
			w.seen.Add("event "+string(e.Kind), 1)
		})
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

// key is the key of a message's operation.
func (w *fixture) key(m *sent) idempotent.RecordID {
	id := m.about
	if !w.byOrder {
		id = m.id
	}
	return idempotent.Key{Operation: "fulfil", Scope: arn, ID: id}.RecordID()
}

// record returns the record of a message, or nil.
func (w *fixture) record(m *sent) *driver.Record {
	r, err := w.store.Get(context.Background(), w.key(m))
	if err != nil && !errors.Is(err, idempotent.ErrNoRecord) {
		w.t.Fatal(err)
	}
	return r
}

// done reports whether a message may be deleted: its record is completed, or it
// is unknown and was handed over.
func (w *fixture) done(m *sent) bool {
	r := w.record(m)
	return r != nil && (r.State == driver.StateCompleted || r.State == driver.StateUnknown && w.handedOver[string(r.ID)])
}

// work is the handler.
func (w *fixture) work(ctx context.Context, o order) error {
	execution, _ := idempotent.FromContext(ctx)
	id := string(execution.RecordID())
	w.mu.Lock()
	m := w.enters(id, o)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running[m.group]--
	}()
	runtime.Gosched() // let other goroutines run
	do := w.script[o.ID]
	effect := func() error {
		_, err := idempotent.Step(ctx, "effect", func(ctx context.Context) (bool, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.effects[id]++
			if w.keys[id] == nil {
				w.keys[id] = map[string]bool{}
			}
			w.keys[id][idempotent.DownstreamKey(ctx)] = true
			return true, nil
		})
		return err
	}
	switch do {
	case failsBefore:
		return errBroken
	case notExecuted:
		return idempotent.NotExecuted(errBroken)
	case final:
		return idempotent.Final("sold_out", "Sold out.")
	case diesBefore:
		w.dies()
		return errBroken
	}
	if err := effect(); err != nil {
		return err
	}
	switch do {
	case failsAfter:
		return errBroken
	case unknown:
		return idempotent.Unknown(errBroken)
	case panics:
		panic("broken")
	case exits:
		runtime.Goexit()
	case diesAfter:
		w.dies()
		return errBroken
	case slow:
		w.clock.Advance(timeout)
	}
	return nil
}

func (w *fixture) dies() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
}

// enters records that a handler runs, and checks whether it may.
func (w *fixture) enters(id string, o order) *sent {
	w.entries[id]++
	w.seen.Add("entries", 1)
	var m *sent
	at := -1
	for i, b := range w.batch {
		if b.id == o.Message {
			m, at = b, i
			break
		}
	}
	if m == nil || string(w.key(m)) != id {
		w.breaks("a message ran that is not in the batch: " + o.ID)
		return &sent{}
	}
	if !w.source.ordered {
		return m
	}
	for _, before := range w.batch[:at] {
		if (before.group == m.group || w.source.together) && !w.done(before) {
			w.breaks(m.id + " ran before " + before.id + " was done")
		}
	}
	for _, before := range w.all {
		if before == m {
			break
		}
		if before.group == m.group && !before.acknowledged && !w.done(before) {
			w.breaks(m.id + " of group " + m.group + " overtook " + before.id)
		}
	}
	if w.running[m.group]++; w.running[m.group] > 1 {
		w.breaks("two of group " + m.group + " run at the same time")
	}
	return m
}

func (w *fixture) breaks(what string) { w.broken = append(w.broken, what) }
