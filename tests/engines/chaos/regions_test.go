// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	randv2 "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
)

var regionRequests = flag.Int("region-requests", 20_000, "how many requests two regions get")

const globalTable = "once-global"

// The facts that a world counts.
const (
	factCutOffs  = "times that a region was cut off"
	factReplayed = "requests replayed"
	factRefused  = "requests refused, or without an answer"
	factUnkept   = "answers without the result, which was not stored"
	factSettled  = "records settled by the reconciler of region "
)

// world is two regions with requests for the same keys, in simulated time.
type world struct {
	t      *testing.T
	client func(region int) dynamostore.Client
	store  func(*dynamostore.Options)
	seen   kit.Tally

	mu      sync.Mutex
	random  *randv2.Rand
	effects map[idempotent.RecordID]int
	alive   map[*process]bool
	calm    bool // no handler hangs
}

func newWorld(t *testing.T, client func(region int) dynamostore.Client, store func(*dynamostore.Options)) *world {
	return &world{
		t: t, client: client, store: store, random: randv2.New(randv2.NewPCG(*seed, 77)),
		effects: map[idempotent.RecordID]int{}, alive: map[*process]bool{},
	}
}

// process is a process in a region. After it was killed, it sends no call and gets no
// reply. A call in transit still arrives.
type process struct {
	*world
	region int
	dead   atomic.Bool
	guard  *idempotent.Guard
}

var errKilled = errors.New("the process is dead")

func (w *world) start(region int) *process {
	p := &process{world: w, region: region}
	client := dynamotest.Intercept(w.client(region), func(ctx context.Context, c *dynamotest.Call) {
		if !p.dead.Load() {
			c.Do(ctx)
		}
		if p.dead.Load() {
			c.Out, c.Err = nil, errKilled
		}
	})
	store, err := dynamostore.New(client, globalTable, w.store)
	if err == nil {
		p.guard, err = idempotent.New(store, reconcile.options)
	}
	if err != nil {
		w.t.Error(err)
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alive[p] = true
	return p
}

func (p *process) kill() {
	p.dead.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.alive, p)
}

// killOne kills a process.
func (w *world) killOne() {
	w.mu.Lock()
	var victim *process
	for p := range w.alive {
		victim = p
		break
	}
	w.mu.Unlock()
	if victim != nil {
		victim.kill()
		w.seen.Add(factKills, 1)
	}
}

// upTo draws a duration below d.
func (w *world) upTo(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.random.Int64N(int64(d)))
}

// request sends a request to p. Its process is killed at its deadline, as on Lambda.
// The handler has its effect at a random moment. Some results are in chunks.
func (p *process) request(k idempotent.Key, patience time.Duration) (result, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	defer time.AfterFunc(patience, p.kill).Stop()
	out, err := idempotent.DoOutcome(ctx, p.guard, k, func(context.Context) (result, error) {
		time.Sleep(p.upTo(patience / 4))
		if p.hangs() {
			time.Sleep(patience)
		}
		if p.dead.Load() {
			return result{}, errKilled
		}
		effect := p.act(k)
		time.Sleep(p.upTo(patience / 4))
		return resultOf(k.RecordID(), effect), nil
	})
	p.seen.Add(factRequests, 1)
	switch {
	case p.dead.Load():
		return result{}, errKilled
	case err != nil:
		p.seen.Add(factRefused, 1)
	case out.Replayed:
		p.seen.Add(factReplayed, 1)
	}
	return out.Value, err
}

// hangs decides whether a handler hangs before its effect.
func (w *world) hangs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.calm && w.random.IntN(20) == 0
}

// act is the effect of a key, outside the store.
func (w *world) act(k idempotent.Key) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.effects[k.RecordID()]++
	return fmt.Sprintf("effect %d", w.effects[k.RecordID()])
}

// reconcile runs the reconciler of a region once. Its evidence is right: a record is
// unknown after the end of its run.
func (p *process) reconcile() error {
	ctx, cancel := context.WithTimeout(p.t.Context(), 50*time.Second)
	defer cancel()
	report, err := kit.Reconcile(ctx, p.guard, func(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.effects[r.ID] == 0 {
			return idempotent.ProvenNotExecuted(r.Token), nil
		}
		return idempotent.Resolved(resultOf(r.ID, "effect 1")), nil
	})
	p.seen.Add(factSettled+fmt.Sprint(p.region), report.Completed+report.NotExecuted)
	return err
}

// every calls f at the given interval until ctx ends.
func every(ctx context.Context, interval func() time.Duration, f func()) {
	for pause(ctx, interval()) == nil {
		f()
	}
}

// FM49: two regions on a table with strong consistency get requests for the same keys,
// while processes are killed and regions are cut off. No key has two effects. The
// reconciler of one region settles what is unknown, without the other. After the
// retention and a pass of the scan, no record is left.
func TestStrongRegions(t *testing.T) {
	t.Parallel()
	for region := range 2 { // the one that is left at the end
		t.Run(fmt.Sprintf("Region%dIsLeft", region), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { strongRegions(t, region) })
		})
	}
}

func strongRegions(t *testing.T, left int) {
	const each = 10 // requests for a key
	table := engine.NewStrong(engine.Faults{Seed: *seed, Latency: 20 * time.Millisecond, Lost: 0.02}, globalTable)
	w := newWorld(t, table.Client, func(o *dynamostore.Options) { o.Consistency, o.ScanEvery = dynamostore.Strong, 2*time.Minute })
	keys := make([]idempotent.Key, *regionRequests/2/each)
	for i := range keys {
		keys[i] = reconcile.key(fmt.Sprint(i))
	}

	storm, calm := context.WithCancel(t.Context())
	var clients, others sync.WaitGroup
	var sent atomic.Int64
	for i := range 32 {
		clients.Go(func() {
			p := w.start(i % 2)
			for {
				n := int(sent.Add(1)) - 1
				if n >= len(keys)*each {
					p.kill()
					return
				}
				// Many requests at a time are for few keys.
				k := keys[(n/each+int(w.upTo(8)))%len(keys)]
				got, err := p.request(k, time.Second+w.upTo(2*time.Second))
				if err == nil && (got.Proof != "effect 1" || !got.intact(k.RecordID())) {
					t.Errorf("%s: the answer in region %d is %q", k.ID, p.region, got.Proof)
				}
				if p.dead.Load() {
					p = w.start(p.region)
				}
				think := time.Second
				if err != nil {
					think *= 3
				}
				time.Sleep(w.upTo(think))
			}
		})
	}
	for region := range 2 {
		others.Go(func() {
			every(storm, func() time.Duration { return w.upTo(20 * time.Second) }, func() {
				p := w.start(region)
				_ = p.reconcile() // the region may be cut off
				p.kill()
			})
		})
	}
	others.Go(func() { every(storm, func() time.Duration { return w.upTo(2 * time.Second) }, w.killOne) })
	others.Go(func() {
		every(storm, func() time.Duration { return w.upTo(20 * time.Second) }, func() {
			region := int(w.upTo(2))
			table.CutOff(region, true)
			w.seen.Add(factCutOffs, 1)
			_ = pause(storm, w.upTo(10*time.Second)) // it is healed even if the storm has ended
			table.CutOff(region, false)
		})
	})
	clients.Wait()
	calm()
	others.Wait()
	w.calm = true

	// The other region is lost while it serves requests for further keys.
	for i := range 20 {
		p, k := w.start(1-left), reconcile.key(fmt.Sprint("lost ", i))
		keys = append(keys, k)
		clients.Go(func() { _, _ = p.request(k, 3*time.Second) })
		clients.Go(func() { time.Sleep(w.upTo(time.Second)); p.kill() })
	}
	clients.Wait()
	table.CutOff(1-left, true)
	survivor := w.start(left)
	whole, err := dynamostore.New(table.DB, globalTable)
	if err != nil {
		t.Fatal(err)
	}
	unsettled := func() (n int) {
		for r, err := range whole.Scan(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if r.State == driver.StateInProgress || r.State == driver.StateUnknown {
				n++
			}
		}
		return n
	}
	waiting := unsettled()
	if waiting < 5 {
		t.Errorf("%d records are unsettled when the other region is lost, want 5 or more", waiting)
	}
	// everyMinute runs the reconciler of the region that is left, until nothing remains.
	everyMinute := func(remain func() int) {
		for n := 0; n < 100 && remain() > 0; n++ {
			_ = survivor.reconcile() // a lost reply ends the scan; the next run goes on
			time.Sleep(time.Minute)
		}
	}
	everyMinute(unsettled)
	if n := unsettled(); n > 0 {
		t.Errorf("the reconciler of region %d has left %d of %d records", left, n, waiting)
	}
	table.CutOff(1-left, false)
	other := w.start(1 - left)
	for _, k := range keys {
		for _, p := range []*process{survivor, other} {
			got, err := result{}, errKilled
			for range 20 { // replies get lost
				if got, err = p.request(k, time.Minute); err == nil || classOf(err) == classUnavailable {
					break
				}
				time.Sleep(time.Minute)
				_ = survivor.reconcile()
			}
			if classOf(err) == classUnavailable { // the chunks of its result could not be written
				w.seen.Add(factUnkept, 1)
				got, err = result{Proof: "effect 1"}, nil
			}
			if n := w.effects[k.RecordID()]; err != nil || got.Proof != "effect 1" || n != 1 {
				t.Errorf("%s: region %d answers %q, %v after %d effects", k.ID, p.region, got.Proof, err, n)
			}
		}
	}
	w.seen.Least(t, 1, factSettled+fmt.Sprint(left)) // chance decides whether the other one settles a record in the storm
	w.seen.Least(t, len(keys)/200, factCutOffs)
	w.seen.Least(t, len(keys)/20, factKills)
	w.seen.Most(t, len(keys)/20, factUnkept)
	table.Seen.Least(t, len(keys)/20, engine.FactConflicts, engine.FactLost, engine.FactCut)
	t.Logf("%d records were unsettled after the storm%s%s", waiting, &w.seen, &table.Seen)

	time.Sleep(retention + 3*time.Hour) // a record expires within retention, is deleted an hour later, and its chunks two hours later
	expired := func() int {
		page, err := table.DB.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String(globalTable)})
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Items) - 1 // the position of the scan stays
	}
	everyMinute(expired)
	if n := expired(); n > 0 {
		t.Errorf("%d items are left of expired records", n)
	}
}

// lag is longer than any handler of the tests below runs.
const lag = time.Second

// FM49: on a table with eventual consistency, both regions run a key that they get at
// the same time, and one of the two outcomes is lost. If the home region of a key serves
// all of its requests, the key has one effect.
func TestEventualRegions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		served func(key, region int) (by int)
		want   int // effects of each key
	}{
		{"ByAnyRegion", func(_, region int) int { return region }, 2},
		{"ByTheHomeRegion", func(key, _ int) int { return key % 2 }, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, engine.NewEventual(globalTable, lag).Client, func(*dynamostore.Options) {})
				w.calm = true
				processes := []*process{w.start(0), w.start(1)}
				for n := range 200 {
					k := reconcile.key(fmt.Sprint(n))
					ask := func() (answers [2]string) { // their effects
						var both sync.WaitGroup
						for region := range answers {
							both.Go(func() {
								got, err := processes[row.served(n, region)].request(k, lag)
								if err == nil {
									answers[region] = got.Proof
								}
							})
						}
						both.Wait()
						return answers
					}
					ask()
					time.Sleep(2 * lag)
					answers := ask() // the copies are equal
					if got := w.effects[k.RecordID()]; got != row.want || answers[0] != answers[1] || answers[0] == "" {
						t.Errorf("key %d has %d effects, and the answers are then %q; want %d effects, and one answer", n, got, answers, row.want)
					}
				}
			})
		})
	}
}

// FM49: on a table with eventual consistency, the other region refuses a key that is in
// progress, and replays its outcome, once it has the change. Before that, after a
// failover, it runs the key again. The provider gets the same downstream key.
func TestFailoverKeepsTheDownstreamKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, engine.NewEventual(globalTable, lag).Client, func(*dynamostore.Options) {})
		charges, calls := map[string]string{}, 0 // at the provider, by downstream key
		send := func(region int, k idempotent.Key, during func()) (string, error) {
			return idempotent.Do(t.Context(), w.start(region).guard, k, func(ctx context.Context) (string, error) {
				during()
				calls++
				key := idempotent.DownstreamKey(ctx)
				if charges[key] == "" {
					charges[key] = fmt.Sprint("charged in region ", region)
				}
				return charges[key], nil
			})
		}
		nothing := func() {}
		for _, k := range []idempotent.Key{reconcile.key("failover"), reconcile.key("later")} {
			charges, calls = map[string]string{}, 0
			failover, want := k.ID == "failover", 1
			during := func() {
				time.Sleep(2 * lag)
				if _, err := send(1, k, nothing); !errors.As(err, new(*idempotent.InProgressError)) {
					t.Errorf("while region 0 runs the key, region 1 returns %v", err)
				}
			}
			if failover {
				during, want = nothing, 2
			}
			first, err1 := send(0, k, during)
			if !failover {
				time.Sleep(2 * lag)
			}
			second, err2 := send(1, k, nothing)
			if err1 != nil || err2 != nil || first != "charged in region 0" || second != first || calls != want || len(charges) != 1 {
				t.Errorf("%s: got %q (%v) and %q (%v) after %d calls and charges %v; want %d calls and one charge", k.ID, first, err1, second, err2, calls, charges, want)
			}
		}
	})
}
