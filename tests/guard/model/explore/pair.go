// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/attributejson"
	"github.com/once-lambda/once/internal/invariant"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/tabledef"
)

const (
	tableName = "once"
	every     = time.Hour        // between two passes of the scan
	reserved  = 16 * time.Minute // longer than a call that reads keeps the position for itself
	pause     = time.Minute      // from a claim of a record to the next call of a resolver about it
	after     = time.Millisecond // from the end of a lease to the time when the record is due
)

// operations are those of the two records. The owner of a charge declared no steps.
// That of a refund declared one step, which ran at most once.
var operations = []string{"charge", "refund"}

func pairKey(operation string) idempotent.Key {
	return idempotent.Key{Operation: operation, Scope: idempotent.Global, ID: "1", Fingerprint: idempotent.FingerprintBytes([]byte(operation))}
}

// Pair is a scenario with two records.
type Pair struct {
	actors []pairRole
	last   []pairRole // those who run once more in the end
	done   bool       // the step of the refund had ended when its owner was killed
	herald herald     // whether the run of the charge announced itself
}

// setUp returns how to begin a schedule: after the two runs were abandoned.
func (s Pair) setUp() func(*fibers) stage {
	items, transit, now := abandoned(&s)
	return func(f *fibers) stage {
		f.threads = true
		return newPairWorld(&s, f, items, transit, now)
	}
}

// pairRole is what an actor does.
type pairRole struct {
	name string
	run  func(w *pairWorld, a *pairActor) error
}

// due is a run of a reconciler for one operation.
func due(operation string) pairRole {
	return pairRole{operation + " reconciler", func(w *pairWorld, a *pairActor) error {
		report, err := kit.Reconcile(context.Background(), a.guard, w.resolver(a, operation), func(o *idempotent.ReconcileOptions) {
			o.Operations, o.Concurrency = []string{operation}, 1
		})
		w.reported(report)
		return err
	}}
}

// handler is a run of the handler that has a resolver for one operation.
func handler(operation string) pairRole {
	return pairRole{operation + " handler", func(w *pairWorld, a *pairActor) error {
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
var arrives = pairRole{"announcement", func(w *pairWorld, a *pairActor) error {
	a.announces = true
	_, err := wire{w.db, a}.PutItem(context.Background(), w.transit)
	return err
}}

// requeue is an operator who requeues the record of the operation.
func requeue(operation string) pairRole {
	return pairRole{"operator", func(w *pairWorld, a *pairActor) error {
		a.operator = true
		id := pairKey(operation).RecordID()
		err := a.guard.Requeue(context.Background(), id)
		if state := itemState(w.items[string(id)]); err == nil && state == driver.StateInProgress {
			w.violates("Requeue returned nil, and the record is %s", state)
		}
		return err
	}}
}

type item = map[string]types.AttributeValue

// pairWorld is one table with its actors, which run one at a time.
type pairWorld struct {
	*Pair
	progress
	fibers  *fibers
	db      *dynamotest.DB
	plain   *dynamostore.Store     // without the scheduler
	transit *dynamodb.PutItemInput // the announcement
	now     time.Time
	actors  []*pairActor
	items   map[string]item   // what the table has
	names   map[string]string // of the ids of writes, which are random, in base64: the item, and how often it was written
	writes  map[string]int

	excused bool                              // two calls may read at the same time: the position was damaged, or its reservation has ended
	asked   map[idempotent.RecordID]time.Time // when the last reconciler that asked decided to; zero after a later write of evidence or of the operator
	settled map[idempotent.RecordID]int       // writes of evidence
	seen    map[string]bool                   // facts
}

// newPairWorld returns a world with these items, at now. Its actors are suspended at
// their first calls.
func newPairWorld(s *Pair, f *fibers, items []item, transit *dynamodb.PutItemInput, now time.Time) *pairWorld {
	w := &pairWorld{
		Pair: s, fibers: f, transit: transit, db: dynamotest.New(tableName), now: now,
		items: map[string]item{}, names: map[string]string{}, writes: map[string]int{}, seen: map[string]bool{},
		asked: map[idempotent.RecordID]time.Time{}, settled: map[idempotent.RecordID]int{},
	}
	w.plain = w.store(w.db)
	for _, it := range items {
		w.put(it)
	}
	for _, r := range s.actors {
		a := w.actor(r.name)
		w.actors = append(w.actors, a)
		a.fiber = f.take(func() {
			_ = r.run(w, a)
			a.next, a.heard = "", ""
		})
		a.fiber.resume()
	}
	return w
}

// abandoned returns the items of two runs whose owners were killed after a pass of
// the scan, an announcement in transit, and a time at which their leases have ended and
// the next pass is due.
func abandoned(s *Pair) ([]item, *dynamodb.PutItemInput, time.Time) {
	w := newPairWorld(&Pair{}, nil, nil, nil, time.Now())
	first := w.actor("first reconciler")
	first.free = true
	if err := due("charge").run(w, first); err != nil {
		panic(err)
	}
	for _, operation := range operations {
		owner := w.actor("owner")
		owner.free = true
		_, err := idempotent.Do(context.Background(), owner.guard, pairKey(operation), func(ctx context.Context) (string, error) {
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
		}, func(o *idempotent.Operation) {
			if operation == "refund" {
				o.Recovery, o.Steps = idempotent.Resume, []string{"pay"}
			}
		})
		if state := itemState(w.items[string(pairKey(operation).RecordID())]); state != driver.StateInProgress {
			panic(fmt.Sprintf("the owner left the record %s: %v", state, err))
		}
	}
	return slices.Collect(maps.Values(w.items)), w.transit, w.now.Add(every)
}

func (w *pairWorld) store(client dynamostore.Client) *dynamostore.Store {
	return must(dynamostore.New(client, tableName, func(o *dynamostore.Options) { o.ScanEvery, o.ScanSegments = every, 1 }))
}

func (w *pairWorld) actor(name string) *pairActor {
	a := &pairActor{name: name, w: w}
	a.guard = must(idempotent.New(pairPort{w.store(wire{w.db, a}), a}, func(o *idempotent.Options) {
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
func (w *pairWorld) resolver(a *pairActor, operation string) idempotent.ResolveFunc {
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

func (w *pairWorld) reported(r idempotent.Report) {
	for fact, shown := range map[string]bool{
		"marked unknown": r.MarkedUnknown > 0, "released": r.Released > 0, "processed for the other operation": r.Other > 0,
		"position replaced": r.Scan.Replaced != "",
	} {
		if shown {
			w.shows(fact)
		}
	}
}

// steps returns what may happen next. The steps without a fault come first.
func (w *pairWorld) steps() (next []step) {
	if w.ended {
		return nil
	}
	var faults []step
	for i, a := range w.actors {
		if a.gone() {
			continue
		}
		add := func(what what) { faults = append(faults, step{what: what, actor: int8(i)}) }
		next = append(next, step{what: serve, actor: int8(i)})
		add(giveUp)
		if strings.HasPrefix(a.next, "write") { // before a read, a kill is a kill before the next write
			add(lose)
			add(resend)
			add(crash)
		}
	}
	if len(next) == 0 {
		next = []step{{what: finish}}
	} else if slices.ContainsFunc(w.actors, func(a *pairActor) bool { return a.holds || strings.HasPrefix(a.next, "write") }) {
		faults = append(faults, step{what: pass})
	}
	if w.faults > 0 {
		return next
	}
	return append(next, append(faults, step{what: damage}, step{what: predate})...)
}

func (w *pairWorld) perform(s step) {
	if w.tracing {
		w.trace = append(w.trace, w.describe(s))
	}
	w.do(s)
}

func (w *pairWorld) do(s step) {
	if s.what != serve && s.what != finish {
		w.faults++
	}
	switch s.what {
	case finish:
		w.end()
	case pass:
		w.now, w.excused = w.now.Add(reserved), true
	case damage:
		w.change("next", 7)
	case predate:
		w.change("began", w.now.Add(2*every).UnixMilli())
	default:
		a := w.actors[s.actor]
		a.order = s.what
		a.fiber.resume()
	}
}

func (w *pairWorld) describe(s step) string {
	switch s.what {
	case finish:
		return "the last runs"
	case pass:
		return "time passes until no reservation holds"
	case damage:
		return "the position is damaged"
	case predate:
		return "the position begins in the future"
	}
	call := w.actors[s.actor].name + ": " + w.actors[s.actor].next
	switch s.what {
	case giveUp:
		return call + " gets no reply, the request was lost"
	case lose:
		return call + " gets no reply, the reply was lost"
	case resend:
		return call + " gets no reply and is sent again"
	case crash:
		return call + " is never sent, the process is killed"
	default:
		return call + " is served"
	}
}

// change changes an attribute of the position.
func (w *pairWorld) change(attribute string, n int64) {
	it := maps.Clone(w.items[tabledef.ScanKey])
	it[attribute] = &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
	w.put(it)
	w.excused = true
}

// state returns a digest of all that the future of w depends on.
func (w *pairWorld) state() state {
	of := []string{w.ending(), fmt.Sprint(w.now, w.asked, w.settled, w.faults, w.excused)}
	for _, a := range w.actors {
		of = append(of, a.next, a.heard)
	}
	sum := sha256.Sum256([]byte(strings.Join(of, "\n\n")))
	return state(sum[:])
}

// ending returns the table as text.
func (w *pairWorld) ending() string { return w.show(slices.Collect(maps.Values(w.items))...) }

func (w *pairWorld) shown() iter.Seq[string] { return maps.Keys(w.seen) }

// abandon kills the actors that are still running.
func (w *pairWorld) abandon() {
	for _, a := range w.actors {
		if !a.gone() {
			a.order = crash
			a.fiber.resume()
		}
		w.fibers.free(a.fiber)
	}
}

// wrote judges a write of a record.
func (w *pairWorld) wrote(a *pairActor, key string, before, after item, record *driver.Record) {
	id := idempotent.RecordID(key)
	was, is := evidenceIn(before), evidenceIn(after)
	made := invariant.Write{Before: record, After: w.get(id), Was: record.Version, At: w.now, By: invariant.Reconciler, Owner: a.announces}
	switch {
	case a.announces:
		made.By = invariant.Request
	case was != is && id.Operation() == "refund" && !w.done:
		made.By = invariant.StepEvidence
	case was != is:
		made.By = invariant.Evidence
	case a.operator:
		made.By = invariant.Requeuer
	}
	for _, i := range invariant.Invariants {
		if why := i.Broken(made); why != "" {
			w.violates("%s: the %s wrote: %s", i.Name, a.name, why)
		}
	}
	switch {
	case a.announces && (itemState(before) != driver.StateInProgress || !running(after)):
		w.violates("the announcement made a record that is %s %s", itemState(before), itemState(after))
	case a.announces:
		w.shows("announced")
	case was != is:
		if w.settled[id]++; w.settled[id] > 1 {
			w.violates("evidence about the %s was written %d times", id.Operation(), w.settled[id])
		}
		w.asked[id] = time.Time{}
	case a.operator && itemState(before) == driver.StateInProgress:
		w.shows("requeued after its lease")
	case a.operator:
		w.shows("requeued")
		w.asked[id] = time.Time{}
	}
}

// running reports whether the item is of a record in progress that the index has.
func running(it item) bool {
	return it["st"] != nil && it[tabledef.IndexPartitionKey] != nil && itemState(it) == driver.StateInProgress
}

// evidenceIn returns what evidence says in a record: its outcome, or its steps.
func evidenceIn(it item) string {
	if itemState(it) == driver.StateCompleted {
		return string(attributejson.Marshal(it["res"]))
	}
	return string(attributejson.Marshal(it["steps"]))
}

func itemState(it item) driver.State {
	return must(driver.ParseState(it["st"].(*types.AttributeValueMemberS).Value))
}

// end makes the last runs, without faults, when the next pass of the scan is due.
func (w *pairWorld) end() {
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
		if id := pairKey(operation).RecordID(); itemState(w.items[string(id)]) != want || w.settled[id] != 1 {
			w.violates("%s is %s in the end, want %s, and evidence was written %d times", operation, itemState(w.items[string(id)]), want, w.settled[id])
		}
	}
}

func (w *pairWorld) shows(fact string) { w.seen[fact] = true }

func (w *pairWorld) violates(format string, args ...any) {
	if w.broken == nil {
		w.broken = &Violation{Invariant: "two records", Wrong: fmt.Sprintf(format, args...)}
	}
}

func (w *pairWorld) get(id idempotent.RecordID) *driver.Record {
	return must(w.plain.Get(context.Background(), id))
}

// listed returns the records in the index, the earliest due first.
func (w *pairWorld) listed() (found []driver.Listed) {
	for key, it := range w.items {
		if it[tabledef.IndexPartitionKey] != nil {
			found = append(found, w.get(idempotent.RecordID(key)).Listed())
		}
	}
	slices.SortFunc(found, func(a, b driver.Listed) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID)) })
	return found
}

// put writes an item outside of any schedule.
func (w *pairWorld) put(it item) {
	must(w.db.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: ptr(tableName), Item: it}))
	w.keep(it)
}

// keep notes that the table has an item.
func (w *pairWorld) keep(it item) {
	key := keyIn(it)
	w.items[key] = it
	w.writes[key]++
	w.names[writeID(it)] = fmt.Sprint(key, " ", w.writes[key])
}

func ptr[T any](v T) *T { return &v }

// writeID returns the id of the write that made an item, in base64.
func writeID(it item) string {
	id, _ := it["wid"].(*types.AttributeValueMemberB)
	if id == nil {
		return ""
	}
	return base64.StdEncoding.EncodeToString(id.Value)
}

// show returns items as text, with the names of the ids of writes.
func (w *pairWorld) show(items ...item) string {
	shown := make([]string, len(items))
	for i, it := range items {
		shown[i] = string(attributejson.Marshal(&types.AttributeValueMemberM{Value: it}))
		if id := writeID(it); id != "" {
			shown[i] = strings.Replace(shown[i], id, w.names[id], 1)
		}
	}
	slices.Sort(shown)
	return strings.Join(shown, "\n")
}

// pairActor is one process.
type pairActor struct {
	name  string
	w     *pairWorld
	guard *idempotent.Guard

	free      bool // it is never suspended
	dead      bool // its calls fail
	operator  bool
	announces bool
	sends     bool // its writes are only sent
	sent      *dynamodb.PutItemInput
	holds     bool      // it has written the position and not given it back
	reading   bool      // the table
	next      string    // the call before which it is suspended
	since     time.Time // when it came to that call
	heard     string    // the replies on which its next calls depend
	fiber     *fiber
	order     what // what happens to the call
}

func (a *pairActor) gone() bool { return a.fiber.job == nil }

// list is the call for the due records.
const list = "list"

// suspend returns what happens to the call.
func (a *pairActor) suspend(call string) what {
	a.since = a.w.now
	switch {
	case a.dead:
		return crash
	case a.free:
		return serve
	}
	if a.next = call; call == list {
		a.heard = "" // what a reconciler does after its scan does not depend on it
	}
	if !strings.HasPrefix(call, "read ") || strings.HasSuffix(call, tabledef.ScanKey) {
		a.heard += a.since.String() // it has read the clock
	}
	a.fiber.rest()
	a.heard += fmt.Sprintln(call, a.order)
	if a.order == crash {
		a.dead = true
		if a.holds {
			a.w.shows("killed with the position")
		}
	}
	return a.order
}

// pairPort is the store of an actor. A list is one call.
type pairPort struct {
	*dynamostore.Store
	a *pairActor
}

func (p pairPort) Due(context.Context, time.Time) iter.Seq2[driver.Listed, error] {
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
	a *pairActor
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
	isPosition := key == tabledef.ScanKey
	if isPosition {
		a.reading = false
	}
	if d == crash || d == giveUp {
		return nil, errLost
	}
	before := w.items[key]
	var record *driver.Record
	if !isPosition && before != nil {
		record = w.get(idempotent.RecordID(key))
	}
	if out, err = c.DB.PutItem(ctx, in); err == nil {
		if w.keep(in.Item); record != nil {
			w.wrote(a, key, before, in.Item, record)
		}
	} else {
		w.refused(a, isPosition)
	}
	if d == resend {
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
	if d == lose {
		return nil, errLost
	}
	return out, err
}

// refused notes which write met one of another actor.
func (w *pairWorld) refused(a *pairActor, isPosition bool) {
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
