// SPDX-License-Identifier: Apache-2.0

package lambdadurable_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdadurable"
)

var errKilled = errors.New("this process was killed")

// process is the process of one request. It is killed at one of its calls of the
// store or of Lambda, before or after the call has its effect. From then on,
// nothing that it does reaches the outside.
type process struct {
	left   int  // calls until the kill; negative: never
	effect bool // the call of the kill has its effect
	dead   bool
}

// call reports whether a call has its effect, and whether its reply arrives.
func (p *process) call() (effect, reply bool) {
	switch {
	case p.dead:
		return false, false
	case p.left == 0:
		p.dead = true
		return p.effect, false
	}
	p.left--
	return true, true
}

func through[T any](p *process, call func() (T, error)) (v T, err error) {
	effect, arrives := p.call()
	if effect {
		v, err = call()
	}
	if !arrives {
		var none T
		return none, errKilled
	}
	return v, err
}

// store returns what the process reaches of s.
func (p *process) store(s driver.Store) driver.Store {
	return idempotenttest.Intercept(s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		effect, arrives := p.call()
		if effect {
			c.Do(ctx)
		}
		if !arrives {
			c.Err = errKilled
		}
	})
}

// mortalClient is what a process reaches of Lambda.
type mortalClient struct {
	lambdadurable.Client
	process *process
}

func (c *mortalClient) Invoke(ctx context.Context, in *lambda.InvokeInput, o ...func(*lambda.Options)) (*lambda.InvokeOutput, error) {
	return through(c.process, func() (*lambda.InvokeOutput, error) { return c.Client.Invoke(ctx, in, o...) })
}

func (c *mortalClient) GetDurableExecution(ctx context.Context, in *lambda.GetDurableExecutionInput, o ...func(*lambda.Options)) (*lambda.GetDurableExecutionOutput, error) {
	return through(c.process, func() (*lambda.GetDurableExecutionOutput, error) {
		return c.Client.GetDurableExecution(ctx, in, o...)
	})
}

// story is a random sequence of requests, kills, failures, reconciliations and
// pauses.
type story struct {
	*fixture
	seed   uint64
	random *rand.Rand
	client *lambda.Client
	fates  map[string]fate
	seen   map[string]bool // what the story contained
}

type fate struct {
	runs      time.Duration
	status    types.ExecutionStatus
	discarded bool
}

func play(t *testing.T, seed uint64) map[string]bool {
	t.Helper()
	w := newFixture(t)
	defer w.lambda.server.Close()
	s := &story{fixture: w, seed: seed, random: rand.New(rand.NewPCG(seed, 48)), fates: map[string]fate{}, seen: map[string]bool{}}
	s.client = s.lambda.client()
	statuses := []types.ExecutionStatus{"SUCCEEDED", "SUCCEEDED", "FAILED", "TIMED_OUT", "STOPPED"}
	orders := make([]order, 3)
	for i := range orders {
		orders[i] = order{ID: fmt.Sprint("o-", i), Count: 1 + s.random.IntN(9)}
		s.fates[payload(orders[i])] = fate{time.Duration(s.random.IntN(1800)) * time.Second, statuses[s.random.IntN(len(statuses))], s.random.IntN(6) == 0}
	}
	s.lambda.retention = 24 * time.Hour
	s.lambda.discards = func(payload string) bool { return s.fates[payload].discarded }
	s.lambda.fate = func(payload string) (time.Duration, types.ExecutionStatus) {
		return s.fates[payload].runs, s.fates[payload].status
	}
	s.lambda.unlisted = time.Duration(s.random.IntN(5)) * time.Second
	s.lambda.fault = s.faults

	for range 40 {
		s.clock.Advance(time.Duration(s.random.IntN(40)) * time.Second)
		switch o := orders[s.random.IntN(len(orders))]; s.random.IntN(8) {
		case 0:
			if s.random.IntN(10) == 0 {
				s.clock.Advance(26 * time.Hour) // Lambda removes what has ended
			}
			s.another(o)
		case 1:
			if _, err := kit.Reconcile(t.Context(), s.guard(s.store), lambdadurable.Resolver[receipt](s.orders, nil)); err != nil {
				t.Errorf("seed %d: reconciliation: %v", seed, err)
			}
		case 2, 3:
			s.send(o, &process{left: s.random.IntN(8), effect: s.random.IntN(2) == 0})
		default:
			s.send(o, &process{left: -1})
		}
	}

	// All is well again. Each caller repeats its request until it is answered.
	s.lambda.fault = nil
	for _, o := range orders {
		for try := 0; !s.send(o, &process{left: -1}); try++ {
			if try == 10 {
				t.Errorf("seed %d: no answer for %s", seed, o.ID)
				break
			}
			s.clock.Advance(10 * time.Minute)
			if s.fates[payload(o)].discarded {
				s.clock.Advance(24 * time.Hour)
			}
		}
		if n := s.lambda.starts(payload(o)); n > 1 && !s.fates[payload(o)].discarded {
			t.Errorf("seed %d: %d executions for %s", seed, n, o.ID)
		}
	}
	return s.seen
}

func payload(o order) string { return fmt.Sprintf(`{"id":%q,"count":%d}`, o.ID, o.Count) }

func (s *story) faults(call string) fault {
	what := none
	if s.random.IntN(5) == 0 {
		what = []fault{throttled, failed, lost, bare, silent}[s.random.IntN(5)]
		s.seen[fmt.Sprint(call, " fault ", what)] = true
	}
	return what
}

// send sends a request by a process, and reports whether it was answered for good:
// with the outcome of the execution, or, only if Lambda has no execution, as unknown.
func (s *story) send(o order, p *process) bool {
	s.t.Helper()
	f := s.function(&mortalClient{s.client, p}, "orders:live")
	got, err := s.serve(p.store(s.store), f)(s.t.Context(), o)
	if p.dead {
		s.seen[fmt.Sprint("kill at a call, with its effect: ", p.effect)] = true
		return false // no caller saw the answer
	}
	final, isFinal := idempotent.AsFinal(err)
	want := s.fates[payload(o)]
	switch {
	case err == nil || isFinal:
		i := slices.IndexFunc(s.lambda.executions, func(e *execution) bool { return e.payload == payload(o) })
		if i < 0 || s.clock.Now().Before(s.lambda.executions[i].ends) {
			s.t.Errorf("seed %d: %s was answered before its execution ended: %+v, %v", s.seed, o.ID, got, err)
		}
		if succeeded := want.status == types.ExecutionStatusSucceeded; succeeded != (err == nil) || succeeded && got.Receipt != o || !succeeded && final.Code != string(want.status) {
			s.t.Errorf("seed %d: %s ended with %s, and the answer was %+v, %v", s.seed, o.ID, want.status, got, err)
		}
		s.seen[string(want.status)] = true
		return true
	case errors.As(err, new(*lambdadurable.RunningError)):
		s.seen["running"] = true
	case errors.As(err, new(*idempotent.InProgressError)):
		s.seen["in progress"] = true
	case errors.As(err, new(*idempotent.UnresolvedError)), idempotent.IsUnknown(err):
		if i := slices.IndexFunc(s.lambda.executions, func(e *execution) bool { return e.payload == payload(o) && s.lambda.known(e.arn) != nil }); i >= 0 {
			s.t.Errorf("seed %d: %s became unknown: %v", s.seed, o.ID, err)
		}
		s.seen[fmt.Sprint("unknown, discarded: ", want.discarded)] = true
		return true
	case errors.As(err, new(*idempotent.ReplayUnavailableError)):
		s.t.Errorf("seed %d: %s was completed without evidence", s.seed, o.ID)
	}
	return false
}

// another sends another request with the key of o, if the key was used.
func (s *story) another(o order) {
	key, _ := byID(s.t.Context(), o)
	if _, err := s.store.Get(s.t.Context(), key.RecordID()); err != nil {
		return
	}
	calls := s.lambda.calls["Invoke"]
	o.Count++
	if _, err := s.handler(s.t.Context(), o); !errors.As(err, new(*idempotent.MismatchError)) || s.lambda.calls["Invoke"] != calls {
		s.t.Errorf("seed %d: another payload with the key of %s: %v", s.seed, o.ID, err)
	}
	s.seen["another payload"] = true
}

// Under lost replies, throttling, internal errors, late lists, kills at every call,
// other payloads, every final status, data that is left out, discarded starts and
// executions that Lambda has removed: one execution for each key, no answer but its
// outcome, and none without evidence.
func TestStories(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for seed := range uint64(400) {
		for what := range play(t, seed) {
			seen[what]++
		}
	}
	for _, what := range []string{
		"SUCCEEDED", "FAILED", "TIMED_OUT", "STOPPED", "running", "in progress", "another payload",
		"kill at a call, with its effect: true", "kill at a call, with its effect: false",
		"Invoke fault 1", "Invoke fault 2", "Invoke fault 3", "Get fault 4", "Get fault 5",
		"unknown, discarded: true", "unknown, discarded: false", "Get fault 1", "Get fault 3", "List fault 1", "List fault 3",
	} {
		if seen[what] == 0 {
			t.Errorf("no story contains %q", what)
		}
	}
}
