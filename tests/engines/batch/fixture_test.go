// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/faults"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdabatch"
)

const (
	timeout = 30 * time.Second
	// answered is when a function has answered whose store, or a function of the user,
	// stops answering: 100 ms before its time-out.
	answered = timeout - 100*time.Millisecond
	// ahead is how far the clock of a story is ahead of the real one, at least: so its
	// times, and those of package context, differ.
	ahead = 1000 * time.Hour
)

// plan is what goes wrong with a message in one delivery.
type plan struct {
	ending          ending
	unreadable      error // of Options.ID
	refusesHandOver bool
}

// unreadable are errors of a function that reads a message, which a retry may not
// return again.
var unreadable = []error{context.DeadlineExceeded, context.Canceled, &idempotent.StoreError{Op: driver.OpGet, Err: errBroken}, errBroken}

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
	settled     ending = "returns that another operation is completed"
	refused     ending = "returns that another operation is unknown"
)

var endings = []ending{succeeds, succeeds, succeeds, succeeds, succeeds, failsBefore, failsAfter, notExecuted, final, unknown, panics, exits, diesBefore, diesAfter, slow, settled, refused}

// fixture is a story: a source, a function that processes its messages, and the book
// of the effects.
type fixture struct {
	seed    uint64
	random  *rand.Rand // of the goroutine of the story
	lines   []string   // what happened
	failure string
	seen    *kit.Tally
	source  source
	// byOrder: the key is the order's. Otherwise it is the record's, and two records
	// about one order are separate operations.
	byOrder   bool
	declared  idempotent.Recovery
	handsOver bool
	failAny   bool
	alone     bool // one message is processed at a time
	clock     idempotenttest.Clock
	store     driver.Store
	auditor   *idempotent.Guard // of the store without faults
	faults    faults.Injector
	handle    handler
	older     handler // of code that does not declare the step "notice"
	all       []*sent
	queue     *queue // of SQS

	mu     sync.Mutex
	broken []string // violations

	// The delivery:
	batch  []*sent
	plans  map[*sent]plan
	dead   bool           // the process is dead
	hides  bool           // SQS accepts changes of the visibility timeout
	hidden map[*sent]bool // messages whose timeout changed
	took   map[*sent]int  // HandOver returned nil
	ran    map[*sent]bool
	stops  int    // the number of the call of the store from which on none is answered; 0: all are
	stuck  string // a function of the user that does not return once
	hung   bool   // a call did

	// The book:
	effects    map[string]int             // by operation
	finals     map[string]int             // business outcomes, by operation
	keys       map[string]map[string]bool // downstream keys, by operation
	entries    map[string]int
	retryable  map[string]int // records that were settled as retryable, by record
	handedOver map[*sent]int
	running    map[string]int // by group, and by operation
}

var errBroken = errors.New("broken")

// storyEnds is the panic of a story that failed.
type storyEnds struct{}

// fails ends the story.
func (w *fixture) fails(format string, args ...any) {
	w.failure = fmt.Sprintf(format, args...)
	panic(storyEnds{})
}

// mortal is a call of a process that may die: after its death every call fails.
func (w *fixture) mortal(ctx context.Context, c *idempotenttest.StoreCall) {
	w.mu.Lock()
	stopped := false
	if w.stops > 0 {
		w.stops = max(w.stops-1, 1)
		stopped = w.stops == 1
	}
	if w.dead {
		c.Err = errors.New("the process is dead")
	}
	w.mu.Unlock()
	if c.Err == nil && stopped {
		c.Err = w.hangs(ctx)
	}
	if c.Err != nil {
		return
	}
	if c.Do(ctx); c.Op == driver.OpReplace && c.Err == nil && c.Current == nil && c.Record.State == driver.StateRetryable {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.retryable[string(c.Record.ID)]++
	}
}

// hangs is a call that is not answered: by the clock of the story, it lasts until its context
// ends.
func (w *fixture) hangs(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hung = true
	until, ok := ctx.Deadline()
	if !ok {
		w.breaks("a call has no limit")
		return errBroken
	}
	left := until.Sub(w.clock.Now())
	if until.Before(time.Now().Add(ahead / 2)) { // it ends after a while
		left = time.Until(until)
	}
	if left > 0 {
		w.clock.Advance(left)
	}
	return context.DeadlineExceeded
}

// meets is called by the function of the user with that name, which hangs once.
func (w *fixture) meets(ctx context.Context, name string) error {
	w.mu.Lock()
	stuck := w.stuck == name
	if stuck {
		w.stuck = ""
	}
	w.mu.Unlock()
	if stuck {
		return w.hangs(ctx)
	}
	return nil
}

// set draws the options and the messages.
func (w *fixture) set() {
	w.clock.Advance(ahead)
	w.store = memstore.New()
	w.auditor = w.guard(w.store)
	w.declared = []idempotent.Recovery{idempotent.Reconcile, idempotent.Resume, idempotent.Rerun}[w.random.IntN(3)]
	w.handsOver, w.failAny = w.random.IntN(4) > 0, w.random.IntN(8) == 0
	w.byOrder = !w.source.stream || w.random.IntN(2) == 0
	w.effects, w.finals, w.keys = map[string]int{}, map[string]int{}, map[string]map[string]bool{}
	w.entries, w.retryable, w.handedOver, w.running = map[string]int{}, map[string]int{}, map[*sent]int{}, map[string]int{}
	concurrency, backoff := 1+w.random.IntN(4), time.Duration(w.random.IntN(2))*time.Minute
	w.alone = concurrency == 1
	option := func(steps ...string) func(*lambdabatch.Options) {
		return func(o *lambdabatch.Options) {
			o.ID = lambdabatch.Field("/order_id")
			w.source.option(o)
			o.Operation, o.Concurrency = "fulfil", concurrency
			if w.failAny {
				o.Fail = lambdabatch.FailIfAny
			}
			o.Guard = func(g *idempotent.Operation) { g.Recovery, g.Steps = w.declared, steps }
			o.ID = w.id(o.ID)
			if o.Fingerprint == nil {
				o.Fingerprint = func(_ context.Context, m *lambdabatch.Message) (idempotent.Fingerprint, error) {
					return idempotent.FingerprintBytes([]byte(w.message(m.ItemID).content)), nil
				}
			}
			if w.source.sqs {
				o.Visibility = lambdabatch.Visibility{Change: w.hide, Backoff: backoff}
			}
			if w.handsOver {
				o.HandOver = w.handOver
			}
		}
	}
	guard := w.guard(idempotenttest.Intercept(w.store, func(ctx context.Context, c *idempotenttest.StoreCall) {
		c.Err = w.faults.Do(ctx, c.Op, func() error {
			w.mortal(ctx, c)
			return c.Err
		})
	}))
	w.handle = w.source.build(guard, w.work("effect", "notice"), option("effect", "notice"))
	w.older = w.source.build(guard, w.work("effect"), option("effect"))
	w.queue = &queue{clock: &w.clock, fifo: w.source.ordered, retention: 14 * day, visibility: []time.Duration{timeout, 6 * timeout}[w.random.IntN(2)]}
	count, groups := 1+w.random.IntN(12), 1+w.random.IntN(3)
	for i := range count {
		w.send(i, groups)
	}
}

// send draws message number i. Without HandOver, all can be processed.
func (w *fixture) send(i, groups int) {
	m := &sent{number: i, id: fmt.Sprintf("m%d", i), about: fmt.Sprintf("o%d", i), content: "first", group: letter(w.random.IntN(groups))}
	if w.source.rebalances {
		m.id = fmt.Sprintf("orders-%d-%d", m.group[0]-'A', i)
	}
	if i > 0 && w.random.IntN(4) == 0 {
		m.about = w.all[w.random.IntN(i)].about
		if w.handsOver && w.random.IntN(2) == 0 {
			m.content = "second"
		}
	}
	if w.handsOver && w.random.IntN(5) == 0 {
		m.kind = w.source.kinds[w.random.IntN(len(w.source.kinds))]
	}
	m.key = w.key(m)
	w.all = append(w.all, m)
	w.queue.send(m)
}

func letter(i int) string { return string(rune('A' + i)) }

// id is Options.ID, which sometimes fails for a while.
func (w *fixture) id(of lambdabatch.IDFunc) lambdabatch.IDFunc {
	if !w.byOrder {
		of = lambdabatch.ItemID
	}
	return func(ctx context.Context, m *lambdabatch.Message) (string, error) {
		if err := w.meets(ctx, "ID"); err != nil {
			return "", err
		}
		if err := w.plans[w.message(m.ItemID)].unreadable; err != nil {
			w.seen.Add("temporarily unreadable", 1)
			return "", err
		}
		return of(ctx, m)
	}
}

// message returns the message with that ItemID.
func (w *fixture) message(id string) *sent {
	id = strings.TrimPrefix(id, "shard:")
	return w.all[slices.IndexFunc(w.all, func(m *sent) bool { return m.id == id })]
}

// hide is the function's client of SQS.
func (w *fixture) hide(ctx context.Context, queueURL, receipt string, seconds int32) error {
	if err := w.meets(ctx, "Visibility.Change"); err != nil {
		return err
	}
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

// handOver is Options.HandOver. It checks the reason against the message and its
// record.
func (w *fixture) handOver(ctx context.Context, view *lambdabatch.Message, reason error) error {
	if err := w.meets(ctx, "HandOver"); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return errBroken
	}
	m := w.message(view.ItemID)
	r := w.record(m)
	fact := "handed over:" + string(m.kind)
	switch unknown, ok := errors.AsType[*idempotent.UnresolvedError](reason); {
	case w.unprocessable(m):
	case errors.As(reason, new(*idempotent.MismatchError)) && w.differs(m):
		fact += " mismatch"
	case ok && unknown.Err == nil && r != nil && unknown.RecordID == r.ID && r.State == driver.StateUnknown && !w.differs(m) && w.running[string(r.ID)] == 0:
		fact += " unknown"
	default:
		w.breaks(fmt.Sprintf("%s is handed over, although it can run: %v, its record is %s", m.id, reason, w.state(m)))
	}
	if w.plans[m].unreadable != nil && !w.unprocessable(m) {
		w.breaks(fmt.Sprintf("%s is handed over, although a retry can read it: %v", m.id, reason))
	}
	if w.ran[m] && copies(w.batch, m) == 1 {
		w.breaks(m.id + " is handed over by the delivery in which it ran")
	}
	if w.plans[m].refusesHandOver {
		w.seen.Add("refused by HandOver", 1)
		return errBroken
	}
	if w.handedOver[m]++; w.handedOver[m] > 1 {
		w.seen.Add("handed over again", 1) // by another delivery
	}
	if w.took[m]++; w.took[m] > copies(w.batch, m) {
		w.breaks(m.id + " is handed over twice in one delivery")
	}
	w.seen.Add(fact, 1)
	return nil
}

// unprocessable reports whether no retry by the same code can read the message.
func (w *fixture) unprocessable(m *sent) bool {
	if w.source.stream && !w.byOrder && (m.kind == keyless || m.kind == tombstone) {
		return false // its place is its key
	}
	return m.kind != ""
}

func (w *fixture) guard(s driver.Store) *idempotent.Guard {
	g, err := idempotent.New(s, func(o *idempotent.Options) {
		o.Now, o.Logger = w.clock.Now, slog.New(slog.DiscardHandler)
		o.Observer = event.ObserverFunc(func(_ context.Context, e event.Event) {
			w.seen.Add("event "+string(e.Kind), 1)
			if u, ok := errors.AsType[*idempotent.UnresolvedError](e.Err); ok && u.Err != nil {
				w.seen.Add("older code refused", 1)
			}
		})
	})
	if err != nil {
		w.fails("%v", err)
	}
	return g
}

// key is the key of a message's operation.
func (w *fixture) key(m *sent) idempotent.Key {
	if w.source.name == "SQS from S3" {
		var e events.S3Event
		if json.Unmarshal([]byte(stored(m)), &e) != nil {
			return idempotent.Key{}
		}
		key, _ := lambdabatch.S3("fulfil")(context.Background(), e)
		return key
	}
	key := idempotent.Key{Operation: "fulfil", Scope: arn, ID: m.about, Fingerprint: idempotent.FingerprintBytes([]byte(m.content))}
	switch {
	case w.byOrder:
	case w.source.rebalances:
		key.ID = m.id
	default:
		key.ID = eventID(m)
	}
	return key
}

// record returns the record of a message, or nil.
func (w *fixture) record(m *sent) *driver.Record {
	r, err := w.store.Get(context.Background(), m.key.RecordID())
	if err != nil {
		return nil // the store has no faults
	}
	return r
}

// done reports whether a message may be deleted: its record is completed with its
// content, or it was handed over.
func (w *fixture) done(m *sent) bool { return w.handedOver[m] > 0 || w.completed(m) }

// doneNow is done for the delivery: a message that is delivered again needs another
// hand-over.
func (w *fixture) doneNow(m *sent) bool { return w.took[m] > 0 || w.completed(m) }

func (w *fixture) completed(m *sent) bool {
	r := w.record(m)
	return r != nil && r.State == driver.StateCompleted && !w.differs(m) && !w.unprocessable(m)
}

// differs reports whether the record of a message has another content.
func (w *fixture) differs(m *sent) bool {
	_, err := idempotent.Lookup[struct{}](context.Background(), w.auditor, m.key)
	return errors.As(err, new(*idempotent.MismatchError))
}

// state describes the record of a message.
func (w *fixture) state(m *sent) string {
	r := w.record(m)
	if r == nil {
		return "missing"
	}
	return fmt.Sprintf("%s, of another content %t, lease ended %t", r.State, w.differs(m), r.LeaseEnded(w.clock.Now()))
}

// work returns the handler of code with the steps.
func (w *fixture) work(steps ...string) func(context.Context, order) error {
	return func(ctx context.Context, _ order) error {
		execution, _ := idempotent.FromContext(ctx)
		id := string(execution.RecordID())
		view, _ := lambdabatch.FromContext(ctx)
		m := w.message(view.ItemID)
		w.mu.Lock()
		w.enters(id, m)
		w.mu.Unlock()
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.running[m.group]--
			w.running[id]--
		}()
		runtime.Gosched() // let other goroutines run
		do := w.plans[m].ending
		if err := w.begin(id, do); err != nil {
			return err
		}
		for _, name := range steps {
			if err := w.step(ctx, id, name); err != nil {
				return err
			}
		}
		return w.end(do)
	}
}

// begin is what a handler does before its effect.
func (w *fixture) begin(id string, do ending) error {
	switch do {
	case failsBefore:
		return errBroken
	case notExecuted:
		return idempotent.NotExecuted(errBroken)
	case final:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.finals[id]++
		return idempotent.Final("sold_out", "Sold out.")
	case diesBefore:
		w.dies()
		return errBroken
	case settled:
		return &idempotent.ReplayUnavailableError{RecordID: another}
	case refused:
		return &idempotent.UnresolvedError{RecordID: another}
	}
	return nil
}

// another is the record of an operation that a handler calls.
var another = idempotent.Key{Operation: "inner", Scope: arn, ID: "o0"}.RecordID()

// step is a step of a handler. The step "effect" has the effect.
func (w *fixture) step(ctx context.Context, id, name string) error {
	_, err := idempotent.Step(ctx, name, func(ctx context.Context) (bool, error) {
		if name != "effect" {
			return true, nil
		}
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

// end is what a handler does after its effect.
func (w *fixture) end(do ending) error {
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

// enters records that a handler runs for m, and checks whether it may.
func (w *fixture) enters(id string, m *sent) {
	w.entries[id]++
	w.seen.Add("entries", 1)
	if m.kind == tombstone {
		w.seen.Add("tombstone ran", 1)
	}
	w.ran[m] = true
	at := slices.Index(w.batch, m)
	w.running[m.group]++
	w.running[id]++
	switch r := w.record(m); {
	case at < 0 || string(m.key.RecordID()) != id:
		w.breaks(m.id + " ran, and is not in the batch, or has another key")
		return
	case w.unprocessable(m) || r == nil || w.differs(m):
		w.breaks(fmt.Sprintf("%s ran, and must be refused: its record is %s", m.id, w.state(m)))
	}
	if !w.source.ordered {
		return
	}
	for _, before := range w.batch[:at] {
		if before.group == m.group && !w.doneNow(before) {
			w.breaks(m.id + " ran before " + before.id + " was done")
		}
	}
	for _, before := range w.all[:m.number] {
		if before.group == m.group && !before.acknowledged && !w.done(before) {
			w.breaks(m.id + " of group " + m.group + " overtook " + before.id)
		}
	}
	if w.running[m.group] > 1 {
		w.breaks("two of group " + m.group + " run at the same time")
	}
}

func (w *fixture) breaks(what string) { w.broken = append(w.broken, what) }
