// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit/engine"
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

// bank is the provider. It runs in the test's process, so that it survives.
var bank *provider

// providerURL is the provider's address, for pay.
var providerURL string

// provider counts the requests and the effects, by downstream key.
type provider struct {
	url string

	mu      sync.Mutex
	calls   map[string]int
	effects map[string]int
}

func newProvider() (*provider, func()) {
	p := &provider{calls: map[string]int{}, effects: map[string]int{}}
	server := httptest.NewServer(http.HandlerFunc(p.serve))
	p.url = server.URL
	return p, server.Close
}

// serve charges under a key. With dedupe, it charges a key only once.
func (p *provider) serve(w http.ResponseWriter, r *http.Request) {
	key := r.FormValue("key")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[key]++
	if r.FormValue("dedupe") != "true" || p.effects[key] == 0 {
		p.effects[key]++
	}
	fmt.Fprint(w, result(key))
}

// result is the result of a charge under that key.
func result(key string) string { return "charged under " + key }

// count returns how often a charge was requested, and how often it was made:
// under the key of the handler, or of its step.
func (p *provider) count(key idempotent.Key) (calls, effects int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := key.RecordID()
	for _, k := range []string{id.DownstreamKey(), id.StepKey("charge")} {
		calls += p.calls[k]
		effects += p.effects[k]
	}
	return calls, effects
}

// resolve looks into the provider's books.
func (p *provider) resolve(_ context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range []string{r.ID.DownstreamKey(), r.ID.StepKey("charge")} {
		if p.effects[k] > 0 {
			return idempotent.Resolved(result(k)), nil
		}
	}
	if r.Released {
		return idempotent.Later(0), nil // its client will send it again
	}
	return idempotent.ProvenNotExecuted(r.Token), nil
}

// pay makes the effect happen.
func pay(ctx context.Context, key string, dedupe bool) (string, error) {
	form := url.Values{"key": {key}, "dedupe": {fmt.Sprint(dedupe)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, providerURL+"?"+form.Encode(), nil)
	if err != nil {
		return "", idempotent.NotExecuted(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return string(body), err
}

// The ledger is for effects that are writes to the database: an item for each
// key, in the store's table, that counts its entries.

func ledgerKey(key idempotent.Key) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{dynamostore.PartitionKey: &types.AttributeValueMemberS{Value: "ledger-" + key.ID}}
}

// entry adds an entry for key to the ledger.
func entry(key idempotent.Key) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                 aws.String(ledgerTable),
		Key:                       ledgerKey(key),
		UpdateExpression:          aws.String("ADD entries :one"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":one": &types.AttributeValueMemberN{Value: "1"}},
	}}
}

// ledgerTable is the table of the store.
var ledgerTable string

// entries returns how many entries the ledger has for key.
func entries(ctx context.Context, key idempotent.Key) (int, error) {
	out, err := dynamostore.NewClient(engine.Config(endpoint)).GetItem(ctx, &dynamodb.GetItemInput{
		TableName: aws.String(ledgerTable), Key: ledgerKey(key), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return 0, err
	}
	n, ok := out.Item["entries"].(*types.AttributeValueMemberN)
	if !ok {
		return 0, nil
	}
	return strconv.Atoi(n.Value)
}
