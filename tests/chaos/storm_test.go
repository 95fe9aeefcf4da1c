package chaos

import (
	"context"
	"fmt"
	randv2 "math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/once-lambda/once/tests/engine"
	"github.com/once-lambda/once/tests/tally"
)

const (
	clients = 14

	// The mean times between faults of clients and of the engine.
	killEvery  = 900 * time.Millisecond
	stopEvery  = 700 * time.Millisecond
	sweepEvery = 3 * time.Second
	calm       = 12 * time.Second // between two faults of the engine, at most
)

// The facts that a storm counts.
const (
	factRequests = "requests"
	factKills    = "client processes killed at random"
	factOverdue  = "client processes killed past their deadline"
	factStops    = "client processes stopped and continued"
	factRestarts = "engine killed and started again"
	factPauses   = "engine stopped and continued"
	factWire     = "faults on the wire"
	factLost     = "replies of the provider lost"
)

// storm is one run in which everything fails at once.
type storm struct {
	t        *testing.T
	seed     uint64
	settings settings
	engine   *engine.Durable
	proxy    *proxy
	bank     *bank
	book     *book
	seen     tally.Tally
	sweepDue atomic.Bool
	started  atomic.Int64

	mu        sync.Mutex
	sandboxes map[string]*sandbox // alive
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
	actors.Go(func() { s.killClients(ctx, s.random(2)) })
	actors.Go(func() { s.stopClients(ctx, s.random(3)) })
	actors.Go(func() { s.shakeEngine(ctx, s.random(4)) })
	actors.Go(func() {
		for pause(ctx, sweepEvery) == nil {
			s.sweepDue.Store(true)
		}
	})
	actors.Wait()
	s.proxy.drain()
	s.seen.Add(factRequests, s.book.requests())
	for _, o := range weather {
		s.seen.Add(factWire, s.proxy.faults[o.Fault])
	}
	s.seen.Add(factLost, s.bank.lost)
}

// load runs one client process at a time, and sends it requests.
func (s *storm) load(ctx context.Context, r *randv2.Rand) {
	for ctx.Err() == nil {
		name := fmt.Sprintf("c%d", s.started.Add(1))
		c, err := start(name, s.settings, s.bank.died)
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
		if said := c.stderr.String(); said != "" {
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

// next draws a request.
func (s *storm) next(r *randv2.Rand) request {
	q := request{Deadline: time.Now().Add(between(r, time.Second, 3*time.Second))}
	for i := range q.Pauses {
		if r.IntN(4) == 0 {
			q.Pauses[i] = between(r, 0, 150*time.Millisecond)
		}
	}
	if s.sweepDue.CompareAndSwap(true, false) {
		q.Promise = sweep
		return q
	}
	q.Promise = promises[r.IntN(len(promises))]
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
		if err := s.engine.Start(context.WithoutCancel(ctx)); err != nil {
			s.t.Error(err)
			return
		}
		s.seen.Add(factRestarts, 1)
	}
}
