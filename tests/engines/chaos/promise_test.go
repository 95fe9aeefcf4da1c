// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"math/big"
	randv2 "math/rand/v2"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/tabledef"
	"github.com/once-lambda/once/lambdahttp"
)

// promise is the declaration of an operation of the storm.
type promise string

const (
	reconcile  promise = "Reconcile"
	commit     promise = "Commit, Rerun"
	resume     promise = "Resume"
	rerun      promise = "Rerun"
	atMostOnce promise = "AtMostOnce"
	commitStep promise = "CommitStep"
	overHTTP   promise = "HTTP"
	inBatches  promise = "SQS"
	brief      promise = "expiring"
	shadowed   promise = "in shadow"
	// sweep is a request that runs the reconciler instead of a guarded handler.
	sweep promise = "reconciler"
	// vital is a request for what the process holds.
	vital promise = "vitals"
)

var promises = []promise{reconcile, commit, resume, rerun, atMostOnce, commitStep, overHTTP, inBatches, brief, shadowed}

// operations are the names of the promises in keys.
var operations = map[promise]string{
	reconcile: "chaos-reconcile", commit: "chaos-commit", resume: "chaos-resume", rerun: "chaos-rerun", atMostOnce: "chaos-at-most-once",
	commitStep: "chaos-commit-step", overHTTP: "chaos-http", inBatches: "chaos-sqs", brief: "chaos-brief", shadowed: "chaos-shadow",
}

// steps are the steps of an operation under Resume.
var steps = []string{"charge", "ship"}

const (
	margin    = 500 * time.Millisecond // of a lease, after the deadline
	retention = 24 * time.Hour
	// shortRetention is the one of brief records. Their keys are used for youth after
	// the first request, and no message about them is on its way for longer than the
	// rest: no key is used after its record has expired, so it has one effect at most.
	shortRetention, youth = 30 * time.Second, 4 * time.Second
)

func (p promise) options(o *idempotent.Options) {
	switch p {
	case commit, rerun:
		o.Recovery = idempotent.Rerun
	case resume:
		o.Recovery, o.Steps = idempotent.Resume, steps
	case atMostOnce, commitStep:
		o.Recovery, o.Steps = idempotent.Resume, steps[:1]
	}
	if o.Retention = retention; p == brief {
		o.Retention = shortRetention
	}
	o.LeaseMargin, o.DeadlineReserve = margin, 300*time.Millisecond
	o.ReconcileAfter = 50 * time.Millisecond
	o.Logger = slog.New(slog.DiscardHandler)
	o.RequestID = requestName
}

func (p promise) key(id string) idempotent.Key {
	return idempotent.Key{
		Operation: operations[p], Scope: idempotent.Global, ID: id,
		Fingerprint: idempotent.FingerprintBytes([]byte(p)),
	}
}

// unfenced reports whether the effect of p happens outside the store and its provider
// does not know keys: then only the death of a process proves that no effect follows.
func (p promise) unfenced() bool {
	return p == reconcile || p == overHTTP || p == inBatches || p == brief || p == shadowed
}

// request is a request to a client process.
type request struct {
	Name     string // unique, begins with the client's name
	Promise  promise
	Key      string
	Deadline time.Time
	Pauses   [3]time.Duration // of the handler: before, between and after its effects
	Hangs    int              // the handler does not look at its context, and never returns: 1 before its effects, 2 after them
	Mute     bool             // a function that the guard calls before the handler never returns
	Shadow   bool             // the guard is in shadow mode
}

type requestKey struct{}

// requestName returns the name of the request that ctx belongs to. Records
// store it as their RequestID, so that evidence can be about the process that
// made the attempt.
func requestName(ctx context.Context) string {
	name, _ := ctx.Value(requestKey{}).(string)
	return name
}

// fixture holds what a handler uses.
type fixture struct {
	store    *dynamostore.Store
	guarded  driver.Store // the store of the guards: the real one, or a broken one
	orders   string       // the table of items that transactions write
	ledger   *ledger
	provider string        // the provider's address
	skew     time.Duration // of the clock of this process
	barrier                // around its writes and effects
}

// guard returns a guard for p.
func (w *fixture) guard(p promise, optFns ...func(*idempotent.Options)) (*idempotent.Guard, error) {
	return idempotent.New(watched(w.guarded), append([]func(*idempotent.Options){p.options, w.clock}, optFns...)...)
}

func (w *fixture) clock(o *idempotent.Options) {
	o.Now = func() time.Time { return time.Now().Add(w.skew) }
}

// result is the result of a handler. Two different runs of one key return
// different results, unless the effect decides the result.
type result struct {
	Record    string
	Proof     string
	Blob      []byte
	Corrected bool // an operator has replaced the outcome
}

// resultOf returns the result of the record with that id whose effect left
// proof.
func resultOf(id idempotent.RecordID, proof string) result {
	seed := sha256.Sum256([]byte(string(id) + "\x00" + proof))
	blob := make([]byte, blobSize(id))
	_, _ = randv2.NewChaCha8(seed).Read(blob) // never fails
	return result{Record: string(id), Proof: proof, Blob: blob}
}

// blobSize returns the number of random bytes in the result of a record: one
// result in eight is stored beside its record, and one in 200 in several
// chunks. More bytes in a table cost time: DynamoDB Local reads the whole table
// for each page of a Scan.
func blobSize(id idempotent.RecordID) int {
	sum := sha256.Sum256([]byte(id))
	n := int(new(big.Int).SetBytes(sum[:4]).Int64())
	switch {
	case n%200 == 0 && id.Operation() != operations[atMostOnce] && id.Operation() != operations[commitStep]: // a step's result has 64 KB at most
		return 450_000 + n%100_000
	case n%8 == 0:
		return 6_000 + n%6_000
	default:
		return n % 200
	}
}

// intact reports whether a handler made r.
func (r result) intact(id idempotent.RecordID) bool {
	return r.Record == string(id) && bytes.Equal(r.Blob, resultOf(id, r.Proof).Blob)
}

// do sends one request, and watches its claim.
func (w *fixture) do(ctx context.Context, q request) answer {
	var claim watch
	claim.deadline, claim.limited = ctx.Deadline()
	// In shadow mode the handler runs beside the claim. And where this clock is behind, what
	// the guard takes for the end of a claim can be after the deadline of ctx, which has the
	// true clock: see idempotent.Options.Now.
	claim.limited = claim.limited && !q.Shadow && w.skew >= 0
	a := w.send(context.WithValue(ctx, watchKey{}, &claim), q)
	if claim.outlasts.Load() {
		a.Class, a.Detail = classOutlasts, "no time would be left for an answer"
	}
	return a
}

// watch notes whether a call of a claim, or of the replay of its outcome, could last until
// the deadline of its request. It does not depend on how long the call takes, which a busy
// machine or a stopped process decides.
type watch struct {
	deadline time.Time
	limited  bool // there is one
	outlasts atomic.Bool
}

type watchKey struct{}

// watched returns s with a look at the context of each call.
func watched(s driver.Store) driver.Store {
	return idempotenttest.Intercept(s, func(ctx context.Context, c *idempotenttest.StoreCall) {
		if w, ok := ctx.Value(watchKey{}).(*watch); ok && (c.Op == driver.OpInsert || c.Op == driver.OpGet || c.Op == driver.OpGetChunks) {
			w.sees(ctx)
		}
		c.Do(ctx)
	})
}

func (w *watch) sees(ctx context.Context) {
	if ctx.Err() != nil {
		return // the call fails at once, as the replay of a request that was stopped past its deadline
	}
	if until, ok := ctx.Deadline(); w.limited && (!ok || !until.Before(w.deadline)) {
		w.outlasts.Store(true)
	}
}

// hang does not return before its process is killed. It is no select {}, which ends a
// process whose other goroutines wait, too, with a report of a deadlock.
func hang() { time.Sleep(2 * time.Hour) }

// options sets what the request says of its guard.
func (q request) options(o *idempotent.Options) {
	o.Shadow = q.Shadow
	if q.Mute && q.Promise != overHTTP { // which has another such function
		o.Predecessor = func(context.Context, idempotent.Key) (any, bool, error) { hang(); return nil, false, nil }
	}
}

// send sends one request through a guard, in front of which there may be HTTP or a batch.
func (w *fixture) send(ctx context.Context, q request) answer {
	guard, err := w.guard(q.Promise, q.options)
	if err != nil {
		return answerOf(q, idempotent.Outcome[result]{}, err)
	}
	handler := map[promise]func(context.Context, request) (result, error){
		reconcile: w.write, overHTTP: w.write, inBatches: w.write, brief: w.write, shadowed: w.write, atMostOnce: w.writeInStep,
		commit: w.update, commitStep: w.update, resume: w.call, rerun: w.call,
	}[q.Promise]
	handle := func(ctx context.Context) (result, error) {
		if q.Hangs == 1 {
			hang()
		}
		r, err := handler(ctx, q)
		if q.Hangs == 2 {
			hang()
		}
		return r, err
	}
	switch q.Promise {
	case overHTTP:
		return serveHTTP(ctx, guard, q, handle)
	case inBatches:
		return serveBatch(ctx, guard, q, handle)
	default:
		out, err := idempotent.DoOutcome(ctx, guard, q.Promise.key(q.Key), handle)
		return answerOf(q, out, err)
	}
}

// write is the handler of the operations whose effect is a line in the ledger.
func (w *fixture) write(ctx context.Context, q request) (result, error) {
	id, proof := q.Promise.key(q.Key).RecordID(), rand.Text()
	if err := pause(ctx, q.Pauses[0]); err != nil {
		return result{}, idempotent.NotExecuted(err)
	}
	if err := w.effect(func() error {
		return w.ledger.append(entry{Record: string(id), Proof: proof, Request: q.Name})
	}); err != nil {
		return result{}, err
	}
	// The effect has happened, so the time-out of the next pause is not an
	// error.
	_ = pause(ctx, q.Pauses[1])
	return resultOf(id, proof), nil
}

// writeInStep is write as a step that runs at most once.
func (w *fixture) writeInStep(ctx context.Context, q request) (result, error) {
	return idempotent.Step(ctx, steps[0], func(ctx context.Context) (result, error) { return w.write(ctx, q) },
		func(o *idempotent.StepOptions) { o.AtMostOnce = true })
}

// update is the handler of the operations under Commit and CommitStep.
func (w *fixture) update(ctx context.Context, q request) (r result, err error) {
	e, _ := idempotent.FromContext(ctx)
	r = resultOf(e.RecordID(), rand.Text())
	if err := pause(ctx, q.Pauses[0]); err != nil {
		return result{}, err
	}
	list := func(members ...types.AttributeValue) types.AttributeValue {
		return &types.AttributeValueMemberL{Value: members}
	}
	order := types.TransactWriteItem{Update: &types.Update{
		TableName:        aws.String(w.orders),
		Key:              map[string]types.AttributeValue{tabledef.PartitionKey: &types.AttributeValueMemberS{Value: r.Record}},
		UpdateExpression: aws.String("SET proofs = list_append(if_not_exists(proofs, :empty), :proof)"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":proof": list(&types.AttributeValueMemberS{Value: r.Proof}), ":empty": list(),
		},
	}}
	err = w.effect(func() error {
		if q.Promise == commit {
			return dynamostore.Commit(ctx, r, order)
		}
		r, err = dynamostore.CommitStep(ctx, steps[0], r, order)
		return err
	})
	if err == nil {
		_ = pause(ctx, q.Pauses[1]) // the commit is durable
	}
	return r, err
}

// call is the handler of the operations that call the provider: in two steps, or once.
func (w *fixture) call(ctx context.Context, q request) (result, error) {
	e, _ := idempotent.FromContext(ctx)
	proof := ""
	for i, step := range q.Promise.paid() {
		pay := func(ctx context.Context) (receipt string, err error) {
			if err := pause(ctx, q.Pauses[i]); err != nil {
				return "", err
			}
			err = w.effect(func() error {
				receipt, err = w.ask(ctx, "/pay", url.Values{
					"record": {string(e.RecordID())}, "step": {step}, "key": {idempotent.DownstreamKey(ctx)},
				})
				return err
			})
			return receipt, err
		}
		receipt, err := "", error(nil)
		if q.Promise == rerun {
			receipt, err = pay(ctx)
		} else {
			receipt, err = idempotent.Step(ctx, step, pay)
		}
		if err != nil {
			return result{}, err
		}
		proof += receipt + " "
	}
	_ = pause(ctx, q.Pauses[2]) // the effects have happened
	return resultOf(e.RecordID(), proof), nil
}

// paid returns the names of the payments of a request.
func (p promise) paid() []string {
	if p == rerun {
		return steps[:1]
	}
	return steps
}

// ask sends a request to the harness, which is the provider.
func (w *fixture) ask(ctx context.Context, path string, form url.Values) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.provider+path+"?"+form.Encode(), nil)
	if err != nil {
		return "", err
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

// reconcile runs the reconciler once.
func (w *fixture) reconcile(ctx context.Context) (idempotent.Report, error) {
	guard, err := w.guard(reconcile)
	if err != nil {
		return idempotent.Report{}, err
	}
	return kit.Reconcile(ctx, guard, w.resolve, func(o *idempotent.ReconcileOptions) {
		o.Timeout, o.Backoff, o.MaxBackoff, o.GiveUpAfter = 500*time.Millisecond, 200*time.Millisecond, 2*time.Second, 20*time.Second
	})
}

// resolve finds out the result of a record.
func (w *fixture) resolve(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
	stored := r.Stored()
	said, err := w.evidence(ctx, stored.ID, stored.Recovery, stored.State, stored.RequestID)
	if err != nil {
		return idempotent.Resolution{}, err
	}
	return resolution(stored, said), nil
}

// evidence asks the harness for the result of a record. If the next request
// continues or runs again, no evidence is needed.
func (w *fixture) evidence(ctx context.Context, id idempotent.RecordID, recovery idempotent.Recovery, state driver.State, request string) (string, error) {
	needed := recovery == idempotent.Reconcile || id.Operation() == operations[atMostOnce]
	if !needed || state == driver.StateRetryable {
		return saidLater, nil
	}
	return w.ask(ctx, "/evidence", url.Values{"record": {string(id)}, "request": {request}})
}

// resolution returns what the evidence means for a record.
func resolution(r driver.Record, said string) idempotent.Resolution {
	switch {
	case said == saidLater:
		return idempotent.Later(0)
	case said == saidNotExecuted:
		return provenNotExecuted(r)
	case r.ID.Operation() == operations[atMostOnce]:
		return idempotent.ResolvedStep(steps[0], resultOf(r.ID, said))
	case r.ID.Operation() == operations[inBatches]:
		return idempotent.ResolvedWithoutResult()
	case r.ID.Operation() == operations[overHTTP]:
		return lambdahttp.Resolved(responseOf(resultOf(r.ID, said)))
	default:
		return idempotent.Resolved(resultOf(r.ID, said))
	}
}

// provenNotExecuted is the evidence that the attempt in r had no effect and
// will have none.
func provenNotExecuted(r driver.Record) idempotent.Resolution {
	return idempotent.ProvenNotExecuted(r.Token())
}

// answer is what a client process reports about a request.
type answer struct {
	Name         string
	Class        string
	Proof        string // of the result, if there is one
	Stored       bool   // the toolkit promised that a retry gets this result
	LeftOut      bool   // at its barrier, the process had no time to write a large result
	Acknowledged bool   // a message was acknowledged: its effect has happened
	Corrected    bool   // the result is an operator's
	Detail       string // of an error
}

// The classes of answers.
const (
	classDone        = "done"
	classUnkept      = "done, not stored"
	classReplayed    = "replayed"
	classInProgress  = "in progress"
	classUnresolved  = "unresolved"
	classNoTime      = "no time"
	classStore       = "store failed"
	classLost        = "lease lost"
	classUnavailable = "result not kept"
	classFailed      = "handler failed"
	classDamaged     = "damaged result"  // never allowed
	classMismatch    = "mismatch"        // never allowed
	classOutlasts    = "outlasting call" // never allowed
	classSilent      = "no answer"       // the process died
	classBarrier     = "at its barrier"  // the process stops
)

var classes = []string{
	classDone, classUnkept, classReplayed, classInProgress, classUnresolved, classNoTime, classStore, classLost,
	classUnavailable, classFailed, classDamaged, classMismatch, classOutlasts, classSilent,
}

// never are the classes that are never allowed.
var never = []string{classDamaged, classMismatch, classOutlasts}

func answerOf(q request, out idempotent.Outcome[result], err error) answer {
	a := answer{Name: q.Name}
	if err != nil {
		a.Class, a.Detail = classOf(err), err.Error()
		return a
	}
	a.Proof, a.Stored, a.Corrected = out.Value.Proof, out.Stored, out.Value.Corrected
	switch {
	case !out.Value.intact(q.Promise.key(q.Key).RecordID()):
		a.Class = classDamaged
	case out.Replayed:
		a.Class = classReplayed
	case out.Stored:
		a.Class = classDone
	default:
		a.Class = classUnkept
	}
	return a
}

func classOf(err error) string {
	for _, c := range []struct {
		err   error
		class string
	}{
		{new(idempotent.InProgressError), classInProgress},
		{new(idempotent.UnresolvedError), classUnresolved},
		{new(idempotent.NoTimeError), classNoTime},
		{new(idempotent.LeaseLostError), classLost},
		{new(idempotent.ReplayUnavailableError), classUnavailable},
		{new(idempotent.MismatchError), classMismatch},
		{new(idempotent.StoreError), classStore},
	} {
		if errtype.Matches(err, c.err) {
			return c.class
		}
	}
	return classFailed
}

// connect returns a store over a client. Runs that no client asks about again have to be
// found soon.
func connect(client dynamostore.Client, table string, scanEvery time.Duration) (*dynamostore.Store, error) {
	return dynamostore.New(client, table, func(o *dynamostore.Options) { o.ScanEvery = scanEvery })
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
