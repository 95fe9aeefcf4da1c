// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

const (
	table    = "once"
	every    = time.Hour        // between two passes of the scan
	reserved = 16 * time.Minute // longer than a call that reads keeps the position for itself
	pause    = time.Minute      // from a claim of a record to the next call of a resolver about it
	after    = time.Millisecond // from the end of a lease to the time when the record is due
)

// operations are those of the two records. The owner of a charge declared no steps.
// That of a refund declared one step, which ran at most once.
var operations = []string{"charge", "refund"}

func keyOf(operation string) idempotent.Key {
	return idempotent.Key{Operation: operation, Scope: idempotent.Global, ID: "1", Fingerprint: idempotent.FingerprintBytes([]byte(operation))}
}

// scenario is what a search is about.
type scenario struct {
	name   string
	actors []role
	last   []role   // those who run once more in the end
	done   bool     // the step of the refund had ended when its owner was killed
	herald herald   // whether the run of the charge announced itself
	shows  []string // the facts that some schedules have to show
}

// role is what an actor does.
type role struct {
	name string
	run  func(w *world, a *actor) error
}

// due is a run of ReconcileDue for one operation.
func due(operation string) role {
	return role{operation + " reconciler", func(w *world, a *actor) error {
		report, err := idempotent.ReconcileDue(context.Background(), a.guard, w.resolver(a, operation), func(o *idempotent.ReconcileOptions) {
			o.Operations, o.Concurrency = []string{operation}, 1
		})
		w.reported(report)
		return err
	}}
}

// handler is a run of the handler that has a resolver for one operation.
func handler(operation string) role {
	return role{operation + " handler", func(w *world, a *actor) error {
		resolvers := map[string]idempotent.ResolveFunc{operation: w.resolver(a, operation)}
		report, err := idempotent.Reconciler(a.guard, resolvers, func(o *idempotent.ReconcileOptions) { o.Concurrency = 1 })(context.Background())
		w.reported(report)
		return err
	}}
}

// herald is what became of the announcement of a run.
type herald byte

const (
	noHerald herald = iota
	stored
	inTransit // when its owner was killed
)

// arrives is the announcement that was in transit.
var arrives = role{"announcement", func(w *world, a *actor) error {
	a.announces = true
	_, err := wire{w.db, a}.PutItem(context.Background(), w.transit)
	return err
}}

// requeue is an operator who requeues the record of the operation.
func requeue(operation string) role {
	return role{"operator", func(w *world, a *actor) error {
		a.operator = true
		id := keyOf(operation).RecordID()
		err := a.guard.Requeue(context.Background(), id)
		if state := stateOf(w.items[string(id)]); err == nil && state == driver.StateInProgress {
			w.violates("Requeue returned nil, and the record is %s", state)
		}
		return err
	}}
}

type item = map[string]types.AttributeValue

// world is one table with its actors, which run one at a time.
type world struct {
	*scenario
	db      *dynamotest.DB
	plain   *dynamostore.Store     // without the scheduler
	transit *dynamodb.PutItemInput // the announcement
	now     time.Time
	actors  []*actor
	items   map[string]item   // what the table has
	names   map[string]string // of the ids of writes, which are random: the item, and how often it was written
	writes  map[string]int

	excused bool // two calls may read at the same time: the position was damaged, or its reservation has ended
	fault   bool // one has happened
	ended   bool
	asked   map[idempotent.RecordID]time.Time // when the last reconciler that asked decided to; zero after a later write of evidence or of the operator
	settled map[idempotent.RecordID]int       // writes of evidence
	facts   map[string]bool
	trace   []string
	broken  string
}

// newWorld returns a world with these items, at now. Its actors are suspended at
// their first calls.
func newWorld(s *scenario, items []item, transit *dynamodb.PutItemInput, now time.Time) *world {
	w := &world{scenario: s, transit: transit, db: dynamotest.New(table), now: now, items: map[string]item{}, names: map[string]string{}, writes: map[string]int{}, facts: map[string]bool{},
		asked: map[idempotent.RecordID]time.Time{}, settled: map[idempotent.RecordID]int{}}
	w.plain = w.store(w.db)
	for _, it := range items {
		w.put(it)
	}
	for _, r := range s.actors {
		a := w.actor(r.name)
		w.actors = append(w.actors, a)
		a.start(r)
	}
	return w
}

// abandoned returns the items of two runs whose owners were killed after a pass of
// the scan, an announcement in transit, and a time at which their leases have ended and
// the next pass is due.
func abandoned(s *scenario) ([]item, *dynamodb.PutItemInput, time.Time) {
	w := newWorld(&scenario{}, nil, nil, time.Now())
	first := w.actor("first reconciler")
	first.free = true
	if err := due("charge").run(w, first); err != nil {
		panic(err)
	}
	for _, operation := range operations {
		owner := w.actor("owner")
		owner.free = true
		_, err := idempotent.Do(context.Background(), owner.guard, keyOf(operation), func(ctx context.Context) (string, error) {
			if operation == "refund" {
				_, _ = idempotent.Step(ctx, "pay", func(context.Context) (string, error) {
					owner.dead = !s.done
					return "re_1", nil
				}, func(o *idempotent.StepOptions) { o.AtMostOnce = true })
			}
			if operation == "charge" && s.herald != noHerald {
				owner.announces, owner.sends = true, s.herald == inTransit
				time.Sleep(every) // it does not look at its context
				w.now, w.transit = w.now.Add(every), owner.sent
			}
			owner.dead = true
			return "", nil
		}, func(o *idempotent.Options) {
			if operation == "refund" {
				o.Recovery, o.Steps = idempotent.Resume, []string{"pay"}
			}
		})
		if state := stateOf(w.items[string(keyOf(operation).RecordID())]); state != driver.StateInProgress {
			panic(fmt.Sprintf("the owner left the record %s: %v", state, err))
		}
	}
	return slices.Collect(maps.Values(w.items)), w.transit, w.now.Add(every)
}

func (w *world) store(client dynamostore.Client) *dynamostore.Store {
	return must(dynamostore.New(client, table, func(o *dynamostore.Options) { o.ScanEvery, o.ScanSegments = every, 1 }))
}

func (w *world) actor(name string) *actor {
	a := &actor{name: name, w: w, orders: make(chan deed), turns: make(chan struct{})}
	a.guard = must(idempotent.New(port{w.store(wire{w.db, a}), a}, func(o *idempotent.Options) {
		o.Now, o.Logger, o.ReconcileAfter = func() time.Time { return w.now }, slog.New(slog.DiscardHandler), after
	}))
	return a
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// resolver knows the truth about the records of one operation.
func (w *world) resolver(a *actor, operation string) idempotent.ResolveFunc {
	return func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
		switch last := w.asked[r.ID]; {
		case a.dead:
			return idempotent.Later(0), nil
		case r.ID.Operation() != operation:
			w.violates("the resolver for %s was asked about %s", operation, r.ID.Operation())
		case w.now.Before(last.Add(pause)):
			w.violates("the resolver for %s was asked again %s after the claim of another call", operation, w.now.Sub(last))
		case !last.IsZero():
			w.shows("asked again after the pause")
		}
		w.asked[r.ID] = a.since
		switch {
		case operation == "charge":
			return idempotent.Resolved("ch_1"), nil
		case w.done != r.Released && w.settled[r.ID] == 0:
			w.violates("the refund was shown as released: %t", r.Released)
		case w.done:
			return idempotent.Resolved("re_1"), nil
		case r.Released:
			return idempotent.Later(0), nil
		}
		return idempotent.ResolvedStep("pay", "re_1"), nil
	}
}

func (w *world) reported(r idempotent.Report) {
	for fact, shown := range map[string]bool{
		"marked unknown": r.MarkedUnknown > 0, "released": r.Released > 0, "processed for the other operation": r.Other > 0,
		"position replaced": r.Scan.Replaced != "",
	} {
		if shown {
			w.shows(fact)
		}
	}
}

// wrote judges a write of a record.
func (w *world) wrote(a *actor, key string, before, after item) {
	id := idempotent.RecordID(key)
	switch was, is := w.evidence(before), w.evidence(after); {
	case a.announces && (stateOf(before) != driver.StateInProgress || !running(after)):
		w.violates("the announcement made a record that is %s %s", stateOf(before), stateOf(after))
	case a.announces:
		w.shows("announced")
	case was != is:
		if w.settled[id]++; w.settled[id] > 1 {
			w.violates("evidence about the %s was written %d times", id.Operation(), w.settled[id])
		}
		w.asked[id] = time.Time{}
	case a.operator && stateOf(before) == driver.StateInProgress:
		w.shows("requeued, its lease first")
	case a.operator:
		w.shows("requeued")
		w.asked[id] = time.Time{}
	}
}

// running reports whether the item is of a record in progress that the index has.
func running(it item) bool {
	return it["st"] != nil && it[dynamostore.IndexPartitionKey] != nil && stateOf(it) == driver.StateInProgress
}

// evidence returns what evidence says in a record: its outcome, or its steps.
func (w *world) evidence(it item) string {
	if stateOf(it) == driver.StateCompleted {
		return w.show(item{"res": it["res"], "steps": nil})
	}
	return w.show(item{"steps": it["steps"]})
}

func stateOf(it item) driver.State {
	return must(driver.ParseState(it["st"].(*types.AttributeValueMemberS).Value))
}

// end makes the last runs, without faults, when the next pass of the scan is due.
func (w *world) end() {
	w.ended, w.now = true, w.now.Add(every+time.Minute)
	for _, a := range w.actors {
		a.reading = false
	}
	for _, r := range w.last {
		a := w.actor(r.name)
		a.free = true
		if err := r.run(w, a); err != nil {
			w.violates("the last run of the %s failed: %v", r.name, err)
		}
	}
	for _, operation := range operations {
		want := driver.StateCompleted
		if operation == "refund" && !w.done {
			want = driver.StateRetryable
		}
		if id := keyOf(operation).RecordID(); stateOf(w.items[string(id)]) != want || w.settled[id] != 1 {
			w.violates("%s is %s in the end, want %s, and evidence was written %d times", operation, stateOf(w.items[string(id)]), want, w.settled[id])
		}
	}
}

func (w *world) shows(fact string) { w.facts[fact] = true }

func (w *world) violates(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

func (w *world) get(id idempotent.RecordID) *driver.Record {
	return must(w.plain.Get(context.Background(), id))
}

// listed returns the records in the index, the earliest due first.
func (w *world) listed() (found []driver.Listed) {
	for key, it := range w.items {
		if it[dynamostore.IndexPartitionKey] != nil {
			found = append(found, w.get(idempotent.RecordID(key)).Listed())
		}
	}
	slices.SortFunc(found, func(a, b driver.Listed) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID)) })
	return found
}

// put writes an item outside of any schedule.
func (w *world) put(it item) {
	must(w.db.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: ptr(table), Item: it}))
	w.keep(it)
}

// keep notes that the table has an item.
func (w *world) keep(it item) {
	key := keyIn(it)
	w.items[key] = it
	w.writes[key]++
	w.names[string(it["wid"].(*types.AttributeValueMemberB).Value)] = fmt.Sprint(key, " ", w.writes[key])
}

func ptr[T any](v T) *T { return &v }

// show returns items as text, with the names of the ids of writes.
func (w *world) show(items ...item) string {
	shown := make([]string, len(items))
	for i, it := range items {
		var attributes []string
		for name, value := range it {
			attributes = append(attributes, name+" "+w.value(value))
		}
		slices.Sort(attributes)
		shown[i] = strings.Join(attributes, ", ")
	}
	slices.Sort(shown)
	return strings.Join(shown, "\n")
}

func (w *world) value(value types.AttributeValue) string {
	switch v := value.(type) {
	case *types.AttributeValueMemberB:
		if name := w.names[string(v.Value)]; name != "" {
			return name
		}
		return fmt.Sprintf("%x", v.Value)
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	case *types.AttributeValueMemberM:
		return "{" + w.show(v.Value) + "}"
	case *types.AttributeValueMemberL:
		s := "["
		for _, e := range v.Value {
			s += w.value(e) + ","
		}
		return s + "]"
	}
	return fmt.Sprintf("%T", value)
}

// actor is one process.
type actor struct {
	name  string
	w     *world
	guard *idempotent.Guard

	free      bool // it is never suspended
	dead      bool // its calls fail
	gone      bool // it has ended
	operator  bool
	announces bool
	sends     bool // its writes are only sent
	sent      *dynamodb.PutItemInput
	holds     bool      // it has written the position and not given it back
	reading   bool      // the table
	next      string    // the call before which it is suspended
	since     time.Time // when it came to that call
	heard     string    // the replies on which its next calls depend
	orders    chan deed
	turns     chan struct{}
}

// deed is what happens to a call, or to the world.
type deed string

const (
	serve       deed = "is served"
	loseRequest deed = "gets no reply, the request was lost"
	loseReply   deed = "gets no reply, the reply was lost"
	sendTwice   deed = "gets no reply and is sent again"
	kill        deed = "is never sent, the process is killed"

	damage  deed = "the position is damaged"
	predate deed = "the position begins in the future"
	wait    deed = "time passes until no reservation holds"
	finish  deed = "the last runs"
)

// list is the call for the due records.
const list = "list"

var errLost = errors.New("connection reset")

// start runs the actor up to its first call.
func (a *actor) start(r role) {
	go func() {
		_ = r.run(a.w, a)
		a.gone, a.next, a.heard = true, "", ""
		a.turns <- struct{}{}
	}()
	<-a.turns
}

// goOn runs the actor up to its next call.
func (a *actor) goOn(d deed) {
	a.orders <- d
	<-a.turns
}

// suspend returns what happens to the call.
func (a *actor) suspend(call string) deed {
	a.since = a.w.now
	switch {
	case a.dead:
		return kill
	case a.free:
		return serve
	}
	if a.next = call; call == list {
		a.heard = "" // what a reconciler does after its scan does not depend on it
	}
	if !strings.HasPrefix(call, "read ") || strings.HasSuffix(call, dynamostore.ScanKey) {
		a.heard += a.since.String() // it has read the clock
	}
	a.turns <- struct{}{}
	d := <-a.orders
	a.heard += call + " " + string(d) + "\n"
	if d == kill {
		a.dead = true
		if a.holds {
			a.w.shows("killed with the position")
		}
	}
	return d
}

// port is the store of an actor. A list is one call.
type port struct {
	*dynamostore.Store
	a *actor
}

func (p port) Due(context.Context) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		if p.a.suspend(list) != serve {
			yield(driver.Listed{}, errLost)
			return
		}
		found := p.a.w.listed()
		if slices.ContainsFunc(found, func(e driver.Listed) bool { return e.State == driver.StateInProgress }) {
			p.a.w.shows("listed in progress")
		}
		p.a.heard += fmt.Sprintln(found)
		for _, e := range found {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// wire is the client of an actor.
type wire struct {
	*dynamotest.DB
	a *actor
}

func (c wire) GetItem(ctx context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	if c.a.suspend("read "+keyIn(in.Key)) != serve {
		return nil, errLost
	}
	out, err := c.DB.GetItem(ctx, in)
	c.a.heard += c.a.w.show(must(out, err).Item)
	return out, err
}

func (c wire) Scan(ctx context.Context, in *dynamodb.ScanInput, _ ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	w := c.a.w
	if c.a.suspend("scan") != serve {
		return nil, errLost
	}
	for _, other := range w.actors {
		switch {
		case other == c.a || !other.reading:
		case w.excused:
			w.shows("two read at the same time")
		default:
			w.violates("%s reads the table while %s does", c.a.name, other.name)
		}
	}
	out, err := c.DB.Scan(ctx, in)
	c.a.reading = true
	c.a.heard += w.show(must(out, err).Items...)
	if slices.ContainsFunc(out.Items, running) {
		w.violates("the scan returns a record that the list has")
	}
	if len(out.Items) > 0 {
		w.shows("found by the scan")
	}
	return out, err
}

func (c wire) PutItem(ctx context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (out *dynamodb.PutItemOutput, err error) {
	a, w, key := c.a, c.a.w, keyIn(in.Item)
	if a.sends {
		a.sent = in
		return nil, errLost
	}
	d := a.suspend("write " + key)
	isPosition := key == dynamostore.ScanKey
	if isPosition {
		a.reading = false
	}
	if d == kill || d == loseRequest {
		return nil, errLost
	}
	before := w.items[key]
	if out, err = c.DB.PutItem(ctx, in); err == nil {
		if w.keep(in.Item); !isPosition && before != nil {
			w.wrote(a, key, before, in.Item)
		}
	} else {
		w.refused(a, isPosition)
	}
	if d == sendTwice {
		out, err = c.DB.PutItem(ctx, in)
	}
	if refused, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		a.heard += w.show(refused.Item)
	}
	if isPosition {
		reserves := in.Item["until"] != nil
		a.holds = err == nil && reserves
		if soon := w.now.Add(after); !reserves && slices.ContainsFunc(w.listed(), func(e driver.Listed) bool { return e.Due.Equal(soon) }) {
			w.now = soon // what the scan has found is due when the list is read
		}
	}
	if d == loseReply {
		return nil, errLost
	}
	return out, err
}

// refused notes which write met one of another actor.
func (w *world) refused(a *actor, isPosition bool) {
	switch {
	case a.announces:
		w.shows("announced too late")
	case !isPosition:
		w.shows("record written by another")
	case a.holds:
		w.shows("position lost while it read")
	default:
		w.shows("position taken by another")
	}
}

func keyIn(it item) string {
	return it["pk"].(*types.AttributeValueMemberS).Value
}
