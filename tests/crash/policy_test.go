// Package crash kills processes at every moment of a request and checks how
// their clients, and a reconciler, recover.
//
// A test starts DynamoDB Local and a provider that counts its effects. For each
// key it starts a separate process of its own binary, which sends one request
// through the toolkit and stops at a barrier: before, during or after a write or
// the effect. There it is killed. Everything after that happens in the test's
// own process.
package crash

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// policy is a way to make the one effect of a charge safe.
type policy struct {
	name     string
	recovery idempotent.Recovery
	mode     *driver.StepMode // nil: without a step
	dedupes  bool             // the provider honours the downstream key
	commit   commit           // the effect is a write to the store's database
	large    bool             // the result is stored beside the record
	writes   int              // of the record, after the claim
}

// commit is how a handler writes its effect and its record in one transaction.
type commit int

const (
	separately commit = iota
	withOutcome
	withStep
)

var (
	atLeastOnce, atMostOnce = driver.AtLeastOnce, driver.AtMostOnce

	policies = []policy{
		{name: "Reconcile", recovery: idempotent.Reconcile, writes: 1},
		{name: "Resume, at least once", recovery: idempotent.Resume, mode: &atLeastOnce, dedupes: true, writes: 2},
		{name: "Resume, at most once", recovery: idempotent.Resume, mode: &atMostOnce, writes: 3},
		{name: "Rerun, with a key", recovery: idempotent.Rerun, dedupes: true, writes: 1},
		{name: "Rerun, large result", recovery: idempotent.Rerun, dedupes: true, large: true, writes: 1},
		{name: "Rerun, Commit", recovery: idempotent.Rerun, commit: withOutcome, writes: 1},
		{name: "Rerun, large Commit", recovery: idempotent.Rerun, commit: withOutcome, large: true, writes: 1},
		{name: "Resume, CommitStep", recovery: idempotent.Resume, mode: &atLeastOnce, commit: withStep, writes: 2},
	}
)

// barriers returns where a process of this policy can be killed, in order.
func (p policy) barriers() []string {
	all := []string{"before the claim", "during the claim", "after the claim", "before the effect", "after the effect"}
	if p.large {
		all = append(all, "before the pieces", "during the pieces", "after the pieces")
	}
	for n := range p.writes {
		for _, when := range []string{"before", "during", "after"} {
			all = append(all, fmt.Sprintf("%s write %d", when, n+1))
		}
	}
	return append(all, "before the response")
}

func (p policy) options(o *idempotent.Options) {
	o.Recovery = p.recovery
	o.LeaseMargin, o.ReconcileAfter = margin, time.Millisecond
	if p.mode != nil {
		o.Steps = []string{"charge"}
	}
}

func (p policy) guard(s driver.Store) (*idempotent.Guard, error) {
	return idempotent.New(s, p.options)
}

// newKey returns the key of a new charge. Every charge has its own operation, so
// that its reconciler ignores the records of others.
func newKey(p policy) idempotent.Key {
	return keyOf(p, rand.Text())
}

func keyOf(p policy, id string) idempotent.Key {
	return idempotent.Key{
		Operation: "charge-" + id, Scope: idempotent.Global, ID: id,
		Fingerprint: idempotent.FingerprintBytes([]byte(p.name)),
	}
}

// deadline is the time of a request. A large result that cannot be written in
// time is left out, so it gets more time.
func (p policy) deadline() time.Duration {
	if p.large {
		return 3 * deadline
	}
	return deadline
}

// request sends one request. Its effect happens at the provider. reach, if not
// nil, is called with each position of the handler.
func (p policy) request(ctx context.Context, g *idempotent.Guard, key idempotent.Key, reach func(barrier string)) (string, error) {
	timeout := p.deadline()
	if reach == nil { // a retry: no step of the test waits for its lease, and the machine may be busy
		reach, timeout = func(string) {}, 10*timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	charge := func(ctx context.Context) (string, error) {
		reach("before the effect")
		defer reach("after the effect")
		value := p.result(idempotent.DownstreamKey(ctx))
		switch p.commit {
		case withOutcome:
			return value, dynamostore.Commit(ctx, value, entry(key))
		case withStep:
			return dynamostore.CommitStep(ctx, "charge", value, entry(key))
		}
		_, err := pay(ctx, idempotent.DownstreamKey(ctx), p.dedupes)
		return value, err
	}
	return idempotent.Do(ctx, g, key, func(ctx context.Context) (string, error) {
		if p.mode == nil || p.commit == withStep {
			return charge(ctx)
		}
		return idempotent.Step(ctx, "charge", charge, func(o *idempotent.StepOptions) { o.AtMostOnce = *p.mode == driver.AtMostOnce })
	})
}

// result is what the handler returns for a charge under that downstream key.
func (p policy) result(downstream string) string {
	if !p.large {
		return result(downstream)
	}
	noise := make([]byte, 20<<10) // too much for a record, and quick to write
	mathrand.NewChaCha8(sha256.Sum256([]byte(downstream))).Read(noise)
	return result(downstream) + base64.StdEncoding.EncodeToString(noise)
}

// count returns how often the effect of key was requested, as far as that is
// known, and how often it happened.
func (p policy) count(ctx context.Context, key idempotent.Key) (calls, effects int, err error) {
	if p.commit == separately {
		calls, effects = bank.count(key)
		return calls, effects, nil
	}
	effects, err = entries(ctx, key)
	return effects, effects, err
}

func policyNamed(name string) policy {
	return policies[slices.IndexFunc(policies, func(p policy) bool { return p.name == name })]
}
