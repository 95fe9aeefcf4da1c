// SPDX-License-Identifier: Apache-2.0

// Package chaos tests that each promise holds while everything fails at once.
//
// A storm runs many client processes against DynamoDB Local through a proxy. The
// clients are killed with SIGKILL, stopped with SIGSTOP and continued with
// SIGCONT at random moments, and their clocks differ. The proxy loses, delays, cuts and
// repeats requests and replies, refuses requests as DynamoDB does, and answers queries of
// the index with older replies. The engine itself is killed, started again on the same files, and
// paused. After the storm, a recovery phase repeats every request until it is
// answered and reconciles until nothing is due. Then the harness compares the
// answers that clients got with the effects, which are recorded outside the
// store.
//
// Each promise has its own operation and its own keys:
//
//   - Reconcile: the effect is one line in a ledger file. The resolver reports
//     "not executed" only about an attempt whose process the harness saw die
//     and that has no line in the ledger. At most one line per key.
//   - Commit under Rerun: the effect is an update of an item in the transaction
//     that completes the record. Exactly one update per key after recovery.
//   - Resume: two steps call a provider that honours the downstream key.
//     Exactly one effect per key and step after recovery.
//   - AtMostOnce: a step under Resume whose effect is a line in the ledger. At most
//     one line per key.
//   - CommitStep: as Commit, in the transaction of a step under Resume.
//   - HTTP and SQS: as Reconcile, behind lambdahttp.Middleware, and as a message that
//     lambdabatch gets twice in one batch.
//   - in shadow: as Reconcile, with a guard that the storm switches between shadow mode and
//     enforcing. Each request in shadow mode can have an effect, and all others together
//     have one at most.
//   - expiring: as Reconcile, with a retention of seconds. A reaper deletes expired items
//     as DynamoDB does by their time to live. At most one line per key.
//
// An operator settles, requeues, reconciles, corrects and forgets with the command line and
// the console. A key has another effect for each outcome that was forgotten, and every
// retry gets what replaced a wrong outcome.
//
// Some functions that a guard calls before the handler never return.
//
// # Which promise needs the process to die
//
// A stopped process outlives its lease when it continues. The consequences
// differ:
//
//   - Under Rerun the next request runs as soon as the lease has ended. The late
//     process can change nothing: its Commit is conditional on the version of
//     its own claim.
//   - Under Resume the next request runs as soon as the lease has ended, and the
//     late process may call the provider at the same time. Both send the same
//     downstream key, so the provider acts once.
//   - Under Reconcile the effect itself has no fence. The evidence "not executed"
//     is only true of an attempt that can have no effect any more. On Lambda the
//     platform ends the process at the deadline, before the lease ends. The
//     harness does the same: it kills a client with a Reconcile request that
//     runs past its deadline, and never continues such a client.
//
// # A process that lives long
//
// The storm never kills or stops one client, the elder. At the end of a storm it holds as much memory, as
// many goroutines and files as after ten minutes, and the table as many items for each key.
//
// # Answers in time
//
// The context of every call of a claim ends before the deadline of its request. The
// client looks at the contexts and not at a clock, because it can be stopped.
//
// # Barriers
//
// Without a storm, the same processes are killed at every barrier of a request: before,
// during and after each write and effect. There are more promises then.
//
// # Runs that are killed at their deadline
//
// Some handlers hang: they do not look at their context. Their client is killed soon
// after the deadline. A run that has announced itself by then, as its table has
// acknowledged, must be in the list of due records from the end of its lease until
// another party processes it, without any scan.
//
// # Two corrections of DynamoDB Local
//
// DynamoDB Local 2.6.1 answers TransactWriteItems before it commits: its
// commitTransaction queues the COMMIT and returns. A kill in between loses an
// acknowledged transaction, which DynamoDB does not do. The queue is processed in
// order, so the proxy requests a table after each transaction and passes the
// reply on only if that request is answered.
//
// The database is in a memory file system if there is one: a SIGKILL loses
// nothing that a process has written to a file, and syncing to a disk would slow
// the storm down.
package chaos

import (
	"context"
	"flag"
	"fmt"
	randv2 "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/internal/faults"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/internal/tabledef"
)

var (
	length = flag.Duration("chaos", time.Minute, "how long the storm lasts")
	seed   = flag.Uint64("chaos-seed", 0, "seed of the storm; 0 draws one")
)

func TestMain(m *testing.M) {
	var err error
	switch {
	case os.Getenv(envClient) != "":
		err = client()
	case os.Getenv(envEvidence) != "":
		err = answerProgram()
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The minimum counts for ten minutes and for longer storms; for shorter ones it is a part.
var wanted = map[string]int{
	factHangs: 400, factAnnounced: 60, factListed: 30, factRequests: 30_000, factKills: 300, factStops: 300, factRestarts: 10, factPauses: 10,
	factMute: 400, factShadow: 1000, factEnforced: 1000, factCorrected: 5, factExpired: 200, factCommands: 80, factConsoles: 5, factForgotten: 5, factSettledByHand: 5, factSettledOnPage: 2,
}

// wantedOfEach is the minimum for each fault on the wire, likewise.
const wantedOfEach = 50

// TestChaos runs a storm for as long as -chaos says, and on a busy machine until enough
// has happened. make test-engines leaves it out, and runs the tests of the harness and
// TestKillAtEveryBarrier.
func TestChaos(t *testing.T) {
	least, share := map[string]int{}, min(1, length.Seconds()/600)
	for fact, n := range wanted {
		least[fact] = int(float64(n) * share)
	}
	for _, o := range weather {
		least[string(o.Fault)] = int(wantedOfEach * share)
	}
	var said time.Time
	s, violations := survive(t, *length, false, func(s *storm) bool {
		for fact, n := range least {
			if c := s.count(fact); c < n {
				if time.Since(said) > time.Minute {
					said = time.Now()
					t.Logf("the storm goes on for more %s: %d of %d", fact, c, n)
				}
				return false
			}
		}
		return true
	})
	for fact, n := range least {
		s.seen.Least(t, n, fact)
	}
	const shown = 100
	for _, v := range violations[:min(len(violations), shown)] {
		t.Error(v)
	}
}

// TestChaosNotices runs a short storm with clients whose store grants every
// claim, until effects have happened twice. The harness has to find them.
func TestChaosNotices(t *testing.T) {
	_, violations := survive(t, 8*time.Second, true, func(s *storm) bool {
		doubles := 0
		effects, err := s.provider.ledger.all()
		for _, lines := range effects {
			doubles += min(len(lines)-1, 1)
		}
		return err == nil && doubles > 5 // some outcomes were forgotten
	})
	twice := 0
	for _, v := range violations {
		if strings.Contains(v, "the effect in the ledger happened") {
			twice++
		}
	}
	if twice == 0 {
		t.Errorf("clients ran at the same time, but the harness reports %d violations and no double effect", len(violations))
	}
}

// newStorm returns a storm that has not begun, with its engine and provider, and what
// recovers from it.
func newStorm(t *testing.T, plan func(seed uint64) faults.Plan, loss float64, lawless bool) (*storm, *recovery) {
	t.Helper()
	s := &storm{t: t, seed: *seed, book: newBook(), sandboxes: map[string]*sandbox{}}
	if s.seed == 0 {
		s.seed = randv2.Uint64()
	}
	dir := t.TempDir()
	books, err := openLedger(filepath.Join(dir, "ledger"))
	must(t, err)
	s.heralds, err = openLedger(filepath.Join(dir, "heralds"))
	must(t, err)
	s.provider = newProvider(books, s.seed, loss)
	t.Cleanup(s.provider.Close)
	s.engine, err = engine.NewDurable(folder(t))
	must(t, err)
	t.Cleanup(func() {
		if err := s.engine.Kill(); err != nil {
			t.Error(err)
		}
	})
	s.proxy = newProxy(s.engine.Endpoint(), plan(s.seed), holdTimes(s.random(5)))
	s.settings = settings{
		Endpoint: s.proxy.URL, Table: "chaos-records", Orders: "chaos-orders", Ledger: books.file.Name(), Heralds: s.heralds.file.Name(), Provider: s.provider.URL, Lawless: lawless, Scan: scanEvery,
	}
	v := &recovery{parallel: 8, client: dynamostore.NewClient(engine.Config(s.engine.Endpoint()))}
	store, err := connect(v.client, s.settings.Table, 100*time.Millisecond)
	must(t, err)
	v.fixture = fixture{store: store, guarded: store, orders: s.settings.Orders, ledger: books, provider: s.provider.URL}
	must(t, v.store.CreateTable(t.Context()))
	must(t, engine.CreateTable(t.Context(), v.client, v.orders, tabledef.PartitionKey))
	return s, v
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// survive runs a storm for that length, and until enough reports true, but not longer
// than a test may wait. Then it recovers from it, and returns the violations.
func survive(t *testing.T, length time.Duration, lawless bool, enough func(*storm) bool) (*storm, []string) {
	ctx := t.Context()
	s, v := newStorm(t, func(seed uint64) faults.Plan { return faults.Seeded(seed, weather...) }, 0.03, lawless)
	s.book.pace = pace{begun: time.Now(), length: length}
	s.settings.Scan = passes(length)
	s.reaper = &reaper{storm: s, client: v.client}
	var err error
	s.operator, err = newOperator(t, s)
	must(t, err)
	t.Logf("a storm of %s with -chaos-seed %d", length, s.seed)

	raging, calm := context.WithTimeout(ctx, length+kit.Patience)
	end := time.Now().Add(length)
	announced := announcements{heralds: s.heralds, seen: &s.seen, over: map[string]int{}, listed: map[string]bool{}}
	var watch sync.WaitGroup
	watch.Go(func() {
		for pause(raging, time.Second) == nil {
			_ = announced.check(raging, v.store) // the engine may be dead
			if time.Now().After(end) && enough(s) {
				calm()
			}
		}
	})
	s.rage(raging)
	calm()
	watch.Wait()
	must(t, pause(ctx, 3*time.Second+2*margin)) // every lease has ended
	must(t, announced.check(ctx, v.store))
	began := time.Now()
	unlisted, due, exhausted, err := v.unlisted(ctx)
	must(t, err)
	works := s.book.all()
	t.Logf("what the storm did, with the faults of %d requests on the wire%s%s\nafter the storm %d records were due and %d exhausted, of %d keys\nthe elder, %s",
		s.proxy.calls, &s.seen, s.book.table(), due, exhausted, len(works), compared(s.samples, settling(length)))
	v.store, err = connect(v.client, s.settings.Table, s.settings.Scan)
	must(t, err)
	v.guarded = v.store
	must(t, v.run(ctx, works, length+kit.Patience))
	must(t, v.settle(ctx)) // ends the pass that has begun
	_, err = v.store.BeginScan(ctx, time.Now())
	must(t, err)
	must(t, v.settle(ctx))
	left, records, chunks, err := v.leftover(ctx)
	must(t, err)
	judged, unkept, err := v.verdict(ctx, works, s.provider)
	must(t, err)
	violations := slices.Concat(unlisted, announced.violations, judged, left, grown(s.samples, settling(length)))
	t.Logf("recovery took %s, with the evidence %v; %d records, %d chunks, %d results not kept\n%d violations",
		time.Since(began).Round(time.Millisecond), s.provider.said, records, chunks, unkept, len(violations))
	return s, violations
}

// folder returns a folder for the database, in memory where there is such a
// file system.
func folder(t *testing.T) string {
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); err != nil || !info.IsDir() {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "once-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

const (
	clients   = 40
	operators = 2 // at a time

	// The mean times between faults of clients and of the engine.
	killEvery  = 900 * time.Millisecond
	stopEvery  = 700 * time.Millisecond
	sweepEvery = 3 * time.Second
	scanEvery  = 5 * time.Second  // at least: see passes
	switchMode = 4 * time.Second  // between shadow mode and enforcing, at most
	calm       = 24 * time.Second // between two faults of the engine, at most

	// skew is how far the clock of a client is from the real one, at most: the
	// difference of two is less than the margin of a lease without lateKill.
	skew = margin / 4
)

// The facts that a storm counts.
const (
	factRequests  = "requests"
	factKills     = "client processes killed at random"
	factOverdue   = "client processes killed past their deadline"
	factHangs     = "requests whose handler hangs"
	factMute      = "requests with a function of the user that never returns"
	factShadow    = "requests in shadow mode"
	factEnforced  = "requests of the same keys outside shadow mode"
	factAnnounced = "records of runs that announced themselves"
	factListed    = "of these, found in the list of due records after their lease"
	factStops     = "client processes stopped and continued"
	factRestarts  = "engine killed and started again"
	factPauses    = "engine stopped and continued"
	factLost      = "replies of the provider lost"
	factExpired   = "records deleted by time to live"

	factCommands      = "command lines of the operator"
	factConsoles      = "consoles opened"
	factForgotten     = "outcomes forgotten"
	factCorrected     = "outcomes corrected"
	factSettledByHand = "records settled by a command line"
	factSettledOnPage = "records settled by the console"
)

// storm is one run in which everything fails at once.
type storm struct {
	t        *testing.T
	seed     uint64
	settings settings
	engine   *engine.Durable
	proxy    *proxy
	provider *provider
	operator *operator
	reaper   *reaper
	heralds  *ledger
	book     *book
	seen     kit.Tally
	sweepDue atomic.Bool
	shadow   atomic.Bool // the mode of the requests of shadowed
	started  atomic.Int64
	samples  []sample // by the elder

	mu        sync.Mutex
	sandboxes map[string]*sandbox // alive
}

// count returns how often a fact was seen while the storm rages.
func (s *storm) count(fact string) int {
	switch fact {
	case factRequests:
		return s.book.requests()
	default:
		return s.seen.Count(fact) + s.proxy.struck(faults.Fault(fact))
	}
}

// random returns a separate source for each actor, so that a seed gives each
// the same decisions.
func (s *storm) random(actor uint64) *randv2.Rand { return randv2.New(randv2.NewPCG(s.seed, actor)) }

// rage runs the storm until ctx ends. Then every client is dead, the engine
// answers, and nothing is on the wire.
func (s *storm) rage(ctx context.Context) {
	var actors sync.WaitGroup
	for i := range clients {
		actors.Go(func() { s.load(ctx, s.random(uint64(100+i))) })
	}
	actors.Go(func() { s.elder(ctx, s.random(9)) })
	actors.Go(func() { s.killClients(ctx, s.random(2)) })
	actors.Go(func() { s.stopClients(ctx, s.random(3)) })
	actors.Go(func() { s.shakeEngine(ctx, s.random(4)) })
	for i := range operators {
		actors.Go(func() { s.operator.work(ctx, s.random(uint64(6+i))) })
	}
	actors.Go(func() { s.reaper.work(ctx) })
	actors.Go(func() {
		for pause(ctx, sweepEvery) == nil {
			s.sweepDue.Store(true)
		}
	})
	actors.Go(func() {
		for r := s.random(8); pause(ctx, between(r, switchMode/8, switchMode)) == nil; {
			s.shadow.Store(!s.shadow.Load())
		}
	})
	actors.Wait()
	s.proxy.drain()
	s.seen.Add(factRequests, s.book.requests())
	for fault, n := range s.proxy.faults {
		s.seen.Add(string(fault), n)
	}
	s.seen.Add(factLost, s.provider.lost)
}

// load runs one client process at a time, and sends it requests.
func (s *storm) load(ctx context.Context, r *randv2.Rand) {
	for ctx.Err() == nil {
		name := fmt.Sprintf("c%d", s.started.Add(1))
		settings := s.settings
		settings.Skew = between(r, -skew, skew)
		c, err := start(name, settings, s.provider.died)
		if err != nil {
			s.t.Error(err)
			return
		}
		s.mu.Lock()
		s.sandboxes[name] = c
		s.mu.Unlock()
		stop := context.AfterFunc(ctx, c.kill)
		s.use(ctx, c, r)
		stop()
		c.kill()
		s.mu.Lock()
		delete(s.sandboxes, name)
		s.mu.Unlock()
		if said := c.Log(); said != "" {
			s.t.Errorf("client %s: %s", name, said)
		}
	}
}

// use sends requests to a client process until it dies.
func (s *storm) use(ctx context.Context, c *sandbox, r *randv2.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		q := s.next(r)
		q.Name = fmt.Sprintf("%s/%d", c.name, n)
		a, answered, overdue := c.send(q)
		if !answered {
			a = answer{Name: q.Name, Class: classSilent}
		}
		if overdue {
			s.seen.Add(factOverdue, 1)
		}
		s.book.write(q, a)
		if !answered {
			return
		}
		think := between(r, 0, 80*time.Millisecond)
		if a.Class == classStore {
			think += 150 * time.Millisecond
		}
		_ = pause(ctx, think) // the loop ends with ctx
	}
}

// next draws a request for a process that may have to be killed.
func (s *storm) next(r *randv2.Rand) request {
	if s.sweepDue.CompareAndSwap(true, false) {
		return request{Promise: sweep, Deadline: time.Now().Add(between(r, time.Second, 3*time.Second))}
	}
	q := s.draw(r, promises)
	if r.IntN(40) == 0 {
		q.Hangs = 1 + r.IntN(2)
		s.seen.Add(factHangs, 1)
	}
	if r.IntN(40) == 0 {
		q.Mute = true
		s.seen.Add(factMute, 1)
	}
	if q.Promise == shadowed {
		mode := factEnforced
		if q.Shadow = s.shadow.Load(); q.Shadow {
			mode = factShadow
		}
		s.seen.Add(mode, 1)
	}
	return q
}

// draw draws a request of one of these promises.
func (s *storm) draw(r *randv2.Rand, among []promise) request {
	q := request{Promise: among[r.IntN(len(among))], Deadline: time.Now().Add(between(r, time.Second, 3*time.Second))}
	for i := range q.Pauses {
		if r.IntN(4) == 0 {
			q.Pauses[i] = between(r, 0, 150*time.Millisecond)
		}
	}
	q.Key = s.book.pick(q.Promise, r).key
	return q
}

// victim draws a client process.
func (s *storm) victim(r *randv2.Rand) *sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := r.IntN(max(1, len(s.sandboxes)))
	for _, c := range s.sandboxes {
		if n == 0 {
			return c
		}
		n--
	}
	return nil
}

// soon waits for a random time with that mean, and reports whether ctx is still
// alive.
func soon(ctx context.Context, r *randv2.Rand, mean time.Duration) bool {
	return pause(ctx, time.Duration(r.ExpFloat64()*float64(mean))) == nil
}

func (s *storm) killClients(ctx context.Context, r *randv2.Rand) {
	for soon(ctx, r, killEvery) {
		if c := s.victim(r); c != nil {
			c.kill()
			s.seen.Add(factKills, 1)
		}
	}
}

// stopClients stops clients for some milliseconds, or for longer than any
// deadline and lease.
func (s *storm) stopClients(ctx context.Context, r *randv2.Rand) {
	var stopped sync.WaitGroup
	defer stopped.Wait()
	for soon(ctx, r, stopEvery) {
		length := between(r, 10*time.Millisecond, 400*time.Millisecond)
		if r.IntN(3) == 0 {
			length = between(r, time.Second, 5*time.Second)
		}
		c := s.victim(r)
		if c == nil {
			continue
		}
		c.stop()
		stopped.Go(func() {
			_ = pause(ctx, length) // at the end of the storm it is killed
			if c.resume() {
				s.seen.Add(factOverdue, 1)
			}
			s.seen.Add(factStops, 1)
		})
	}
}

// shakeEngine pauses and kills the engine in turn. Now and then it kills it
// while it is paused.
func (s *storm) shakeEngine(ctx context.Context, r *randv2.Rand) {
	signal := func(sig syscall.Signal) {
		if err := s.engine.Signal(sig); err != nil {
			s.t.Error(err)
		}
	}
	for pause(ctx, between(r, calm/4, calm)) == nil {
		signal(syscall.SIGSTOP)
		_ = pause(ctx, between(r, 50*time.Millisecond, 2500*time.Millisecond)) // even if ctx has ended, SIGCONT or Kill follows
		s.seen.Add(factPauses, 1)
		if r.IntN(4) > 0 {
			signal(syscall.SIGCONT)
			if pause(ctx, between(r, calm/4, calm)) != nil {
				return
			}
		}
		if err := s.engine.Kill(); err != nil {
			s.t.Error(err)
		}
		if err := s.engine.Start(); err != nil {
			s.t.Error(err)
			return
		}
		s.seen.Add(factRestarts, 1)
	}
}
