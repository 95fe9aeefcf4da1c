// SPDX-License-Identifier: Apache-2.0

package alarms

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/telemetry/emf"
)

// The simulations run the real guard, reconciler and metrics on a store in memory
// and their own clock, and evaluate the alarms of infra/alarms.json.

var update = flag.Bool("update", false, "write the generated parts of the documents")

// services are the parameters of alarms.json for two services: one with a reconciler and
// one set of alarms for all operations, and one without a reconciler that has the alarms
// of an operation.
var services = map[string]map[string]string{
	"Charges": {"Function": "ChargeFunction", "Reconciler": "Reconcile", "ExhaustedQueue": "Exhausted", "UndeliveredQueue": "Undelivered"},
	"Orders":  {"Function": "OrderFunction", "Operation": "order", "DeadLetterQueue": "Dead"},
}

// shipped are the alarms of both services. Their ids are the service and the alarm.
func shipped(t *testing.T) (all []*Alarm) {
	t.Helper()
	for service, parameters := range services {
		parameters = maps.Clone(parameters)
		maps.Copy(parameters, map[string]string{"Namespace": service, "Table": "Records", "PageTopic": "Pager", "TicketTopic": "Tickets"})
		alarms, err := Load(filepath.Join(engine.Root(), "infra", "alarms.json"), parameters)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range alarms {
			name := cmp.Or(map[string]string{"UnknownOften": "Unknown", "Exhaustion": "DeadLetters", "Undelivered": "DeadLetters"}[a.ID], a.ID)
			if !strings.HasSuffix(a.Description, "#"+strings.ToLower(name)) {
				t.Errorf("%s links to another procedure: %s", name, a.Description)
			}
			a.ID = service + " " + name
		}
		all = append(all, alarms...)
	}
	return all
}

// nameOf returns the name of an alarm without its service.
func nameOf(a *Alarm) string {
	_, name, _ := strings.Cut(a.ID, " ")
	return name
}

// fixture is a service: its store, its reconciler on Lambda, and CloudWatch.
type fixture struct {
	t      *testing.T
	now    time.Time
	store  *lister
	guard  *idempotent.Guard
	output *emf.Observer
	cloud  *Cloud

	evaluator *Evaluator
	alarms    []*Alarm
	states    map[*Alarm]State
	function  string // of the reconciler

	resolve   idempotent.ResolveFunc
	reconcile func(context.Context) (idempotent.Report, error)
	mode      mode
	every     func() // what else happens in a minute
}

// mode is how the reconciler is broken.
type mode string

const (
	healthy   mode = "healthy"
	never     mode = "it never runs"
	throttled mode = "it is throttled"
	silent    mode = "its code does not report ages"
)

// lister is a store whose list can fail. It keeps the list in order, so that a
// simulation can list 100,000 records every minute.
type lister struct {
	*memstore.Store
	err     error
	due     []driver.Listed
	changed map[idempotent.RecordID]bool // since due was made
	scan    driver.Scanned               // the last scan for abandoned runs
}

// Running lists nothing, because Due lists the records in progress.
func (l *lister) Running(context.Context) iter.Seq2[driver.Listed, error] {
	return func(func(driver.Listed, error) bool) {}
}

// Abandoned reports the last scan.
func (l *lister) Abandoned(context.Context, time.Time, func([]driver.Listed) bool) (driver.Scanned, error) {
	return l.scan, nil
}

func (l *lister) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	l.changed[r.ID] = true
	return l.Store.Insert(ctx, r, now)
}

func (l *lister) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	l.changed[r.ID] = true
	return l.Store.Replace(ctx, r, was)
}

func (l *lister) Due(ctx context.Context, after time.Time) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		if l.err != nil {
			yield(driver.Listed{}, l.err)
			return
		}
		if len(l.changed) > 0 {
			l.order(ctx)
		}
		for _, e := range l.due {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// order brings the list up to date.
func (l *lister) order(ctx context.Context) {
	due := slices.DeleteFunc(l.due, func(e driver.Listed) bool { return l.changed[e.ID] })
	sorted := len(due)
	for id := range l.changed {
		if r, err := l.Get(ctx, id); err == nil && !r.Due.IsZero() && !r.Exhausted {
			due = append(due, r.Listed())
		}
	}
	earlier := func(a, b driver.Listed) int { return a.Due.Compare(b.Due) }
	slices.SortFunc(due[sorted:], earlier)
	l.due, l.changed = make([]driver.Listed, 0, len(due)), map[idempotent.RecordID]bool{}
	for old, added := due[:sorted], due[sorted:]; len(old)+len(added) > 0; {
		next := &old
		if len(old) == 0 || len(added) > 0 && earlier(added[0], old[0]) < 0 {
			next = &added
		}
		l.due, *next = append(l.due, (*next)[0]), (*next)[1:]
	}
}

// invocation is a context with a deadline on the simulation's clock.
type invocation struct {
	context.Context
	deadline time.Time
}

func (i invocation) Deadline() (time.Time, bool) { return i.deadline, true }

func newFixture(t *testing.T, e *Evaluator) *fixture {
	t.Helper()
	w := &fixture{
		t: t, now: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), store: &lister{Store: memstore.New(), changed: map[idempotent.RecordID]bool{}},
		evaluator: e, alarms: shipped(t), states: map[*Alarm]State{}, mode: healthy, every: func() {},
	}
	w.cloud = NewCloud(w.now)
	for _, a := range w.alarms {
		w.states[a] = InsufficientData
		if nameOf(a) == "ReconcilerSilent" {
			w.function = a.Queries["metric"].Dimensions
		}
	}
	clock := func() time.Time { return w.now }
	var err error
	if w.output, err = emf.New(w.cloud, "Charges", func(o *emf.Options) { o.Now = clock }); err != nil {
		t.Fatal(err)
	}
	if w.guard, err = idempotent.New(w.store, func(o *idempotent.Options) {
		o.Now, o.Observer, o.Logger = clock, unless{w.output, &w.mode}, slog.New(slog.DiscardHandler)
	}); err != nil {
		t.Fatal(err)
	}
	w.resolve = answers(idempotent.ResolvedWithoutResult(), nil)
	resolve := func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
		return w.resolve(ctx, r)
	}
	w.reconcile = idempotent.Reconciler(w.guard, map[string]idempotent.ResolveFunc{"charge": resolve}, func(o *idempotent.ReconcileOptions) {
		o.Concurrency = 1
	})
	return w
}

// answers returns a resolver with one answer.
func answers(r idempotent.Resolution, err error) idempotent.ResolveFunc {
	return func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) { return r, err }
}

// unless is an observer that receives no reports while the mode is silent.
type unless struct {
	*emf.Observer
	mode *mode
}

func (u unless) Reconciled(ctx context.Context, r idempotent.Report) {
	if *u.mode != silent {
		u.Observer.Reconciled(ctx, r)
	}
}

// unknown leaves n records with an unknown outcome.
func (w *fixture) unknown(n int) {
	w.t.Helper()
	for range n {
		key := idempotent.Key{Operation: "charge", Scope: "acme", ID: fmt.Sprint(w.now.UnixNano()), Fingerprint: idempotent.FingerprintBytes(nil)}
		w.now = w.now.Add(time.Millisecond)
		ctx := invocation{w.t.Context(), w.now.Add(10 * time.Second)}
		if _, err := idempotent.Do(ctx, w.guard, key, func(context.Context) (int, error) { return 0, idempotent.Unknown(errors.New("timed out")) }); !idempotent.IsUnknown(err) {
			w.t.Fatal(err)
		}
	}
}

// event counts events that the simulation does not run for real.
func (w *fixture) event(kind event.Kind, n float64) {
	w.cloud.Put(MetricOf("Charges", "once."+string(kind)), w.now, n)
}

// lambda counts what Lambda reports of an invocation of the reconciler's function that
// began at that time.
func (w *fixture) lambda(name string, at time.Time, n float64) {
	w.cloud.Put(Metric{"AWS/Lambda", name, w.function}, at, n)
}

// minute runs one minute, and evaluates the alarms at its end.
func (w *fixture) minute() {
	w.t.Helper()
	end := w.now.Truncate(time.Minute).Add(time.Minute)
	w.every()
	began := w.now
	switch w.mode {
	case never:
	case throttled:
		w.lambda("Throttles", began, 1)
	default:
		_, err := w.reconcile(invocation{w.t.Context(), w.now.Add(time.Minute)})
		w.lambda("Invocations", began, 1)
		w.lambda("Throttles", began, 0)
		w.lambda("Errors", began, 0)
		if err != nil {
			w.lambda("Errors", began, 1)
		}
	}
	if err := w.output.Flush(); err != nil {
		w.t.Fatal(err)
	}
	w.now = end
	for _, a := range w.alarms {
		w.states[a] = w.evaluator.Evaluate(w.cloud, a, w.now, w.states[a])
	}
}

// ringing returns the names of the alarms in ALARM, sorted, without their service.
func (w *fixture) ringing() (names []string) {
	for a, state := range w.states {
		if state == InAlarm {
			names = append(names, nameOf(a))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// first runs minutes until the named alarm rings, at most limit, and returns how
// many.
func (w *fixture) first(name string, limit int) int {
	w.t.Helper()
	for i := range limit {
		if w.minute(); slices.Contains(w.ringing(), name) {
			return i + 1
		}
	}
	w.t.Errorf("%s does not ring within %d minutes; these do: %v", name, limit, w.ringing())
	return limit
}

// quiet runs minutes after which nothing rings. what says what was before.
func (w *fixture) quiet(minutes int, what string, args ...any) {
	w.t.Helper()
	for range minutes {
		w.minute()
	}
	if names := w.ringing(); len(names) != 0 {
		w.t.Fatalf(what+": these ring: %v", append(args, names)...)
	}
}

// evaluators are the settings that CloudWatch does not publish. An alarm must ring
// with each.
var evaluators = map[string]func() *Evaluator{
	"at once":           func() *Evaluator { return &Evaluator{Extra: 2} },
	"a minute late":     func() *Evaluator { return &Evaluator{Extra: 2, Delay: time.Minute} },
	"two minutes late":  func() *Evaluator { return &Evaluator{Extra: 3, Delay: 2 * time.Minute} },
	"no further values": func() *Evaluator { return &Evaluator{} },
}

// With the defaults, OldestUnknown rings 15 to 21 minutes after the outcomes became
// unknown, rings for hours while the provider does not know, and ends after the
// records have been settled: for few and many records, and for each reason why
// they are not settled.
func TestOldestUnknownRings(t *testing.T) {
	t.Parallel()
	down := answers(idempotent.Resolution{}, errors.New("the provider is down"))
	for _, c := range []struct {
		name    string
		records int
		setting string
		resolve idempotent.ResolveFunc
		pause   time.Duration // the longest between two calls
	}{
		{"down", 1, "at once", down, time.Hour}, {"down", 1, "a minute late", down, time.Hour},
		{"down", 1, "two minutes late", down, time.Hour}, {"down", 1, "no further values", down, time.Hour},
		{"down", 2, "a minute late", down, time.Hour}, {"down", 5, "a minute late", down, time.Hour}, {"down", 50, "a minute late", down, time.Hour},
		{"says later", 5, "a minute late", answers(idempotent.Later(0), nil), time.Hour},
		{"says tomorrow", 5, "a minute late", answers(idempotent.Later(24*time.Hour), nil), 24 * time.Hour},
	} {
		name := fmt.Sprintf("%d records, the provider %s, data %s", c.records, c.name, c.setting)
		w := newFixture(t, evaluators[c.setting]())
		w.quiet(10, "at the start")
		settled := w.resolve
		w.resolve = c.resolve
		w.unknown(c.records)
		if after := w.first("OldestUnknown", 30); after < 15 || after > 21 {
			t.Errorf("%s: it rings after %d minutes", name, after)
		}
		for range 150 {
			if w.minute(); !slices.Contains(w.ringing(), "OldestUnknown") {
				t.Fatalf("%s: it ended at %s, before they were settled", name, w.now)
			}
		}
		w.resolve = settled
		w.quiet(int(c.pause/time.Minute)+10, "%s: after they were settled", name)
	}
}

// The table of docs/reports/alarms.md: what a reconciler does in an outage of the provider,
// which alarms ring, and when the records are settled. A call takes the time that one
// of eight workers needs for a record.
func TestOutages(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| outage | unknown records | calls that failed | settled after | minutes until an alarm |\n| --- | --: | --: | --: | --- |\n")
	for _, outage := range []time.Duration{5 * time.Minute, time.Hour, 6 * time.Hour, 72 * time.Hour} {
		for _, records := range []int{1, 10, 1000, 100_000} {
			if outage > 6*time.Hour && records > 1000 {
				continue // it takes minutes of processor time
			}
			table.WriteString(newOutage(t, outage, records).run(t))
		}
	}
	kit.Part(t, "../../../docs/reports/alarms.md", "outages", table.String(), *update)
}

// outage is a fixture in which the provider is down for a time.
type outage struct {
	*fixture
	length  time.Duration
	records int
	ends    time.Time

	failed, answered int // calls
}

func newOutage(t *testing.T, length time.Duration, records int) *outage {
	t.Helper()
	o := &outage{fixture: newFixture(t, &Evaluator{Extra: 2, Delay: time.Minute}), length: length, records: records}
	o.fixture.every = func() { o.fixture.event(event.RequestEnded, 6000) }
	o.quiet(70, "at the start")
	o.resolve = func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
		o.now = o.now.Add(perRecord)
		if o.now.Before(o.ends) {
			o.failed++
			return idempotent.Resolution{}, errors.New("the provider is down")
		}
		o.answered++
		return idempotent.ResolvedWithoutResult(), nil
	}
	return o
}

// limit is the formula of docs/reconciler.md.
func (o *outage) limit() time.Duration {
	pause := min(o.length, time.Hour)
	if o.records > 5*int(o.length/time.Minute) {
		pause = time.Minute
	}
	const interval = time.Minute
	return pause + interval + time.Duration(o.records)*perRecord*60/48
}

// perRecord is the time for a record, if eight workers need 95 ms for one each.
const perRecord = 95 * time.Millisecond / 8

// run returns the row of the table.
func (o *outage) run(t *testing.T) string {
	t.Helper()
	began := o.now
	o.ends = began.Add(o.length)
	o.unknown(o.records)
	rang := map[string]time.Duration{}
	settled := time.Duration(0)
	for o.answered < o.records || len(o.ringing()) > 0 {
		o.minute()
		if o.now.Sub(o.ends) > 3*time.Hour {
			t.Fatalf("%s, %d records: three hours after the outage %d are not settled, and these alarms ring: %v", o.length, o.records, o.records-o.answered, o.ringing())
		}
		for _, name := range o.ringing() {
			if rang[name] == 0 {
				rang[name] = o.now.Sub(began) / time.Minute
			}
		}
		if settled == 0 && o.answered == o.records {
			settled = o.now.Sub(o.ends)
		}
	}
	if limit := o.limit(); settled > limit {
		t.Errorf("%s: %d records were settled after %s, by the formula of docs/reconciler.md after at most %s", o.length, o.records, settled, limit)
	}
	if o.answered != o.records {
		t.Errorf("%s: %d answers for %d records", o.length, o.answered, o.records)
	}
	if o.length > 15*time.Minute && rang["OldestUnknown"] == 0 {
		t.Errorf("%s, %d records: OldestUnknown does not ring", o.length, o.records)
	}
	var alarms []string
	for _, name := range slices.SortedFunc(maps.Keys(rang), func(a, b string) int { return cmp.Or(cmp.Compare(rang[a], rang[b]), cmp.Compare(a, b)) }) {
		alarms = append(alarms, fmt.Sprintf("%s %d", name, rang[name]))
	}
	return fmt.Sprintf("| %s | %s | %s | %d min | %s |\n", shortly(o.length), grouped(o.records), grouped(o.failed), settled/time.Minute, cmp.Or(strings.Join(alarms, ", "), "–"))
}

func shortly(d time.Duration) string {
	if d < time.Hour {
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d h", d/time.Hour)
}

func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// A reconciler that does not work rings within minutes, however it is broken, and
// whether or not there are unknown outcomes.
func TestBrokenReconcilerRings(t *testing.T) {
	t.Parallel()
	for setting, e := range evaluators {
		for _, records := range []int{0, 3} {
			for _, c := range []struct {
				name  string
				harm  func(*fixture)
				want  []string
				limit int
			}{
				{"the list fails", func(w *fixture) { w.store.err = errors.New("no index") }, []string{"OldestUnknown", "ReconcilerErrors"}, 10},
				{"it never runs", func(w *fixture) { w.mode = never }, []string{"OldestUnknown", "ReconcilerSilent"}, 10},
				{"it is throttled", func(w *fixture) { w.mode = throttled }, []string{"OldestUnknown", "ReconcilerSilent", "ReconcilerThrottled"}, 10},
				{"it reports no ages", func(w *fixture) { w.mode = silent }, []string{"OldestUnknown"}, 10},
			} {
				w := newFixture(t, e())
				w.quiet(10, "at the start")
				w.unknown(records)
				c.harm(w)
				for _, name := range c.want {
					w.first(name, c.limit)
				}
				if got := slices.DeleteFunc(w.ringing(), func(n string) bool { return n == "Unknown" }); !slices.Equal(got, c.want) {
					t.Errorf("%s, %d records, data %s: these ring: %v, want %v", c.name, records, setting, got, c.want)
				}
				w.mode, w.store.err = healthy, nil
				w.quiet(70, "%s, %d records, data %s: an hour after it was mended", c.name, records, setting)
			}
		}
	}
}

// A reconciler whose resolver fails for every record reports an error in the runs
// in which a record is due. The age of the oldest record is what rings.
func TestBrokenResolverRings(t *testing.T) {
	t.Parallel()
	w := newFixture(t, &Evaluator{Extra: 2, Delay: time.Minute})
	w.quiet(10, "at the start")
	w.resolve = func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) { panic("a bug") }
	w.unknown(3)
	w.first("OldestUnknown", 21)
}

// Alarms on volume ring above their share of requests, and not below it, at 100
// requests a second and at one a minute.
func TestShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind     event.Kind
		alarm    string
		requests float64 // a minute
		events   float64 // a minute
		rings    bool
	}{
		{event.StoreError, "StoreErrors", 6000, 240, false},
		{event.StoreError, "StoreErrors", 6000, 360, true},
		{event.StoreError, "StoreErrors", 1, 1, true},
		{event.StoreError, "StoreErrors", 0, 1, true}, // of the reconciler
		{event.CompletionFailed, "NotStored", 6000, 3, false},
		{event.CompletionFailed, "NotStored", 6000, 12, true},
		{event.MarkedUnknown, "Unknown", 6000, 30, false},
		{event.MarkedUnknown, "Unknown", 6000, 90, true},
		{event.LateCompletion, "Late", 6000, 30, false},
		{event.LeaseLost, "Late", 6000, 90, true},
		{event.Mismatch, "Misuse", 6000, 30, false},
		{event.Mismatch, "Misuse", 6000, 90, true},
		{event.Contradicted, "ContradictedOften", 6000, 3, false},
		{event.Contradicted, "ContradictedOften", 6000, 12, true},
		{event.Contradicted, "Contradicted", 6000, 1, true},
		{event.ReconcileExhausted, "Exhausted", 6000, 1, true},
		{event.ReplayFailed, "ReplayFailed", 6000, 1, true},
		{event.StoreError, "StoreErrorsLong", 6000, 1200, false},
		{event.StoreError, "StoreErrorsLong", 6000, 1230, true},
		{event.NoOutcome, "NoOutcome", 6000, 5400, false},
		{event.NoOutcome, "NoOutcome", 6000, 5430, true},
	} {
		for _, setting := range []string{"at once", "two minutes late"} {
			w := newFixture(t, evaluators[setting]())
			w.every = func() { w.event(event.RequestEnded, c.requests) }
			w.quiet(70, "at the start")
			w.every = func() {
				w.event(event.RequestEnded, c.requests)
				w.event(c.kind, c.events)
			}
			rang := false
			for range 65 {
				w.minute()
				rang = rang || slices.Contains(w.ringing(), c.alarm)
			}
			if rang != c.rings {
				t.Errorf("%v %s of %v requests a minute, data %s: %s rings is %v", c.events, c.kind, c.requests, setting, c.alarm, rang)
			}
			w.every = func() { w.event(event.RequestEnded, c.requests) }
			w.quiet(130, "%v %s of %v requests a minute, data %s: two hours later", c.events, c.kind, c.requests, setting)
		}
	}
}

// A week at 100 requests a second, of which 0.01 % time out and are settled at the
// reconciler's first call: no alarm rings.
func TestQuietWeek(t *testing.T) {
	t.Parallel()
	w := newFixture(t, &Evaluator{Extra: 2, Delay: time.Minute})
	minutes, timeouts := 0, 0
	w.every = func() {
		w.event(event.RequestEnded, 6000)
		w.event(event.Reserved, 6000)
		w.event(event.Completed, 6000)
		n := 0 // 0.6 a minute: three in five
		if minutes%5 < 3 {
			n = 1
		}
		minutes++
		timeouts += n
		w.unknown(n)
	}
	w.quiet(10, "at the start")
	for minutes < 7*24*60 {
		if w.minute(); len(w.ringing()) > 0 {
			t.Fatalf("at %s these ring: %v", w.now, w.ringing())
		}
	}
	settled := 0
	for r := range w.store.Store.Exhausted(t.Context()) {
		t.Errorf("%s was given up", r.ID)
	}
	for range w.store.Store.Due(t.Context(), time.Time{}) {
		settled--
	}
	if settled += timeouts; timeouts < 6000 || settled < timeouts-3 {
		t.Errorf("%d of %d were settled", settled, timeouts)
	}
}

// The alarms on the table and the queues: throttles above their share of write
// units, and any message. They end when the cause does.
func TestTableAndQueues(t *testing.T) {
	t.Parallel()
	w := newFixture(t, &Evaluator{Extra: 2, Delay: time.Minute})
	put := func(alarm, metric string, v float64) {
		for _, a := range w.alarms {
			for _, q := range a.Queries {
				if a.ID == "Charges "+alarm && q.Name == metric {
					w.cloud.Put(q.Metric, w.now, v)
				}
			}
		}
	}
	traffic := func(throttles float64) {
		for _, alarm := range []string{"Throttles", "IndexThrottles"} {
			put(alarm, "ConsumedWriteCapacityUnits", 12_000)
			if throttles > 0 { // otherwise DynamoDB reports nothing
				put(alarm, "WriteThrottleEvents", throttles)
			}
		}
	}
	w.every = func() { traffic(60) }
	w.quiet(70, "at the start")
	w.every = func() { traffic(600) }
	w.first("Throttles", 60)
	w.first("IndexThrottles", 60)
	w.every = func() { traffic(0); put("DeadLetters", "ApproximateNumberOfMessagesVisible", 1) }
	w.first("DeadLetters", 5)
	w.every = func() { traffic(0); put("DeadLetters", "ApproximateNumberOfMessagesVisible", 0) }
	w.quiet(70, "an hour later")
}

// The scan for abandoned runs does not end: the alarm rings two days after the end of
// the last one, and ends when the scan does.
func TestScanLateRings(t *testing.T) {
	t.Parallel()
	w := newFixture(t, &Evaluator{Extra: 2, Delay: time.Minute})
	w.quiet(5, "at the start")
	w.store.scan = driver.Scanned{Began: w.now.Add(-time.Hour), Ended: w.now.Add(-48*time.Hour + 10*time.Minute)}
	w.quiet(5, "at the start")
	w.first("ScanLate", 10)
	w.store.scan.Ended = w.now
	w.quiet(10, "at the start")
}

// A service that is deployed for the first time: the alarms on silence ring until
// the reconciler's first run, and end by themselves.
func TestFirstDeployment(t *testing.T) {
	t.Parallel()
	w := newFixture(t, &Evaluator{Extra: 2, Delay: time.Minute})
	w.mode = never
	w.minute()
	if got, want := w.ringing(), []string{"OldestUnknown", "ReconcilerSilent"}; !slices.Equal(got, want) {
		t.Errorf("before the first run these ring: %v, want %v", got, want)
	}
	w.mode = healthy
	w.quiet(10, "at the start")
}

// The simulations above name every alarm of the template.
func TestEveryAlarmIsSimulated(t *testing.T) {
	t.Parallel()
	var names []string
	for _, a := range shipped(t) {
		names = append(names, nameOf(a))
	}
	slices.Sort(names)
	want := []string{
		"Contradicted", "ContradictedOften", "DeadLetters", "Exhausted", "FunctionFails", "FunctionFailsLong", "IndexThrottles", "Late", "Misuse",
		"NoOutcome", "NotStored", "OldestUnknown", "ReconcilerErrors", "ReconcilerSilent", "ReconcilerThrottled", "ReplayFailed", "ScanLate",
		"StoreErrors", "StoreErrorsLong", "Throttles", "Unknown",
	}
	if names = slices.Compact(names); !slices.Equal(names, want) {
		t.Errorf("the alarms are %v, and these are simulated: %v", names, want)
	}
}
