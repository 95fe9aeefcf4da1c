// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/tabledef"
)

// life is what a key goes through, until its record has expired: a first request with a
// harm at one of its calls, retries, another request with the key, and evidence. The clock
// stands still unless a life advances it, so that a life can be on a real engine, and takes
// as long as its calls.
type life struct {
	*world
	store  driver.Store
	items  updater // without harms; nil: the store is in memory
	table  string
	clock  idempotenttest.Clock
	shadow bool // the guards are in shadow mode
}

// The facts that lives count.
var met kit.Tally

const (
	factCorrected = "corrected outcomes"
	factMarked    = "records that kept an attribute of a later version"
	factShadow    = "lives that began in shadow mode with an effect"
)

// updater is a client of DynamoDB that also updates items, which no store does.
type updater interface {
	dynamostore.Client
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
}

// harm is what happens to a process at one of its calls.
type harm string

const (
	killedBefore harm = "killed before"
	killedAfter  harm = "killed after"
	late         harm = "late"
	refused      harm = "refused" // the process gets an error, and goes on
	lost         harm = "lost"    // the same, after the call
)

// mark is what a life does to its first process.
type mark struct {
	harm harm
	call int // from 1; 0: none
}

func (m mark) String() string { return fmt.Sprint(m.harm, " call ", m.call) }

// process is one that handles a request.
type process struct {
	mark
	calls   atomic.Int32
	dead    atomic.Bool
	stopped chan struct{} // closed when it is late
	goOn    chan struct{} // closed when it may continue
}

type processKey struct{}

var (
	// errKilled is what a killed process gets for each call, which has no effect.
	errKilled = errors.New("the process is dead")
	errBroken = errors.New("the connection is broken")
)

func point(ctx context.Context, _ string, call func() error) error {
	p, _ := ctx.Value(processKey{}).(*process)
	if p.dead.Load() {
		return errKilled
	}
	if int(p.calls.Add(1)) == p.call {
		switch p.harm {
		case killedBefore:
			p.dead.Store(true)
			return errKilled
		case killedAfter:
			err := call()
			p.dead.Store(true)
			return errors.Join(errKilled, err)
		case late:
			close(p.stopped)
			<-p.goOn
		case refused:
			return errBroken
		case lost:
			return errors.Join(errBroken, call())
		}
	}
	return call()
}

// newLife returns a life on tables of that name on DynamoDB, or in memory.
func (r row) newLife(client dynamostore.Client, name string) (*life, error) {
	l := &life{world: r.world()}
	l.book, l.point = name+"-orders", point
	l.http = &http.Client{Transport: &wire{l.world}}
	if r["store"] == "memory" {
		store := memstore.New()
		l.store = idempotenttest.Intercept(store, func(ctx context.Context, c *idempotenttest.StoreCall) {
			c.Err = point(ctx, "", func() error { c.Do(ctx); return c.Err })
		})
		return l, nil
	}
	l.db = dynamotest.Intercept(client, func(ctx context.Context, c *dynamotest.Call) {
		if c.Op == "Query" || c.Op == "Scan" || ctx.Value(processKey{}) == nil {
			c.Do(ctx)
			return
		}
		if err := point(ctx, c.Op, func() error { c.Do(ctx); return c.Err }); errors.Is(err, errKilled) || errors.Is(err, errBroken) {
			c.Out, c.Err = nil, err
		}
	})
	l.items, l.table = client.(updater), name
	store, err := dynamostore.New(l.db, name, l.layout(name+"-chunks"))
	l.store = store
	return l, err
}

// wire carries the requests to the bank.
type wire struct{ *world }

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	err := w.point(r.Context(), "bank", func() error {
		w.bank.ServeHTTP(answer, r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answer.Result(), nil
}

// begin starts a process that handles one of the orders.
func (l *life) begin(ctx context.Context, i int, m mark) (p *process, ended chan answer) {
	p, ended = &process{mark: m, stopped: make(chan struct{}), goOn: make(chan struct{})}, make(chan answer, 1)
	handle := l.send(l.newGuard())
	ctx = l.clock.Invocation(context.WithValue(ctx, processKey{}, p), 30*time.Second)
	go func() {
		a := handle(ctx, i)
		if p.dead.Load() {
			a = answer{text: "killed"}
		}
		ended <- a
	}()
	return p, ended
}

// request handles one of the orders in a process that nothing happens to.
func (l *life) request(ctx context.Context, i int) answer {
	_, ended := l.begin(ctx, i, mark{})
	return <-ended
}

func (l *life) newGuard() *idempotent.Guard {
	g, err := idempotent.New(l.store, l.guard, func(o *idempotent.Options) {
		o.Now, o.Logger, o.Shadow = l.clock.Now, slog.New(slog.NewTextHandler(io.Discard, nil)), l.shadow
	})
	if err != nil {
		panic(err)
	}
	return g
}

func (l *life) reconcile(ctx context.Context) error {
	if l.row["resolver"] == "none" {
		return nil
	}
	_, err := l.reconciler(l.newGuard())(l.apart(ctx))
	return err
}

// apart returns the context of a process that handles no request, and that nothing happens to.
func (l *life) apart(ctx context.Context) context.Context {
	return l.clock.Invocation(context.WithValue(ctx, processKey{}, &process{}), 5*time.Minute)
}

// run plays a life, and returns what is wrong.
func (l *life) run(ctx context.Context, m mark) (calls int, wrong error) {
	l.front()
	fail := func(format string, args ...any) { wrong = errors.Join(wrong, fmt.Errorf(format, args...)) }
	l.shadow = l.row["mode"] == "shadow first"
	first, ended := l.begin(ctx, 0, m)
	answers := []answer{}
	select {
	case a := <-ended:
		answers = append(answers, a)
	case <-first.stopped:
		answers = append(answers, l.request(ctx, 0))
		close(first.goOn)
		answers = append(answers, <-ended)
	}
	calls = int(first.calls.Load())
	before := 0 // effects that no promise covers
	if l.shadow {
		l.shadow, answers, before = false, nil, l.effects()
		met.Add(factShadow, min(before, 1))
	}
	claimed := l.row["mode"] == "shadow first" || m.call != 1 || m.harm != killedBefore && m.harm != refused
	answers = append(answers, l.request(ctx, 0))
	if a := l.request(ctx, 1); a.ok && claimed {
		fail("another request with the key got %+v", a)
	}
	marked, err := l.markRecord(ctx)
	if err != nil {
		fail("the attribute of a later version: %w", err)
	}
	for _, pause := range []time.Duration{time.Minute, 2 * time.Hour, 2 * time.Hour} {
		l.clock.Advance(pause)
		if err := l.reconcile(ctx); err != nil {
			fail("the reconciler: %w", err)
		}
		answers = append(answers, l.request(ctx, 0))
	}
	last := answers[len(answers)-1]
	promised, effects := l.row.promise(), l.effects()-before
	if effects > 1 && promised != atLeastOnce || effects+before == 0 && last.ok {
		fail("the effect happened %d times", effects)
	}
	if promised == exactlyOnce && !last.ok {
		fail("the last retry got %+v", last)
	}
	// What could not be stored was answered, and a record without evidence stays unknown.
	answered := !last.ok && (m.harm == refused || m.harm == lost)
	for _, a := range answers {
		if a.ok && a != last && promised != atLeastOnce && !answered {
			fail("a caller got %+v, and the last retry %+v", a, last)
		}
	}
	if last.ok {
		if err := l.correct(ctx); err != nil {
			fail("the correction: %w", err)
		}
	}
	if marked {
		if kept, err := l.keepsMark(ctx); err != nil || !kept {
			fail("the record has lost the attribute of a later version: %v", err)
		}
		met.Add(factMarked, 1)
	}
	// The record has expired, unless it is unknown and is kept: then the key is new.
	l.clock.Advance(400 * 24 * time.Hour)
	runs, free := l.runs.Load(), last.ok || l.row["unresolved"] == "48 h"
	if a := l.request(ctx, 1); a.ok != free || (l.runs.Load() > runs) != free {
		fail("after the retention another request with the key got %+v, and ran %d times; the last retry had got %+v", a, l.runs.Load()-runs, last)
	}
	return calls, wrong
}

// correct replaces the stored outcome, if the row says so. Nothing runs, and the next
// request gets the corrected one.
func (l *life) correct(ctx context.Context) error {
	id, guarded := l.record.Load().(idempotent.RecordID)
	if l.row["correction"] == "none" || !guarded {
		return nil
	}
	r, err := l.store.Get(l.apart(ctx), id)
	if err != nil {
		return err
	}
	right, runs := receipt{"ch_2", l.lines}, l.runs.Load()
	evidence, err := l.evidence(right)
	if err == nil {
		err = l.newGuard().Resolve(l.apart(ctx), id, evidence.InsteadOf(idempotent.Correction{Token: r.Token(), Actor: "ada", Reason: "ch_1 is of another key"}))
	}
	if err != nil {
		return err
	}
	want := answer{ok: true, text: encode(right)}
	if l.row.inBatches() { // which have no result
		want.text = ""
	}
	if a := l.request(ctx, 0); a != want || l.runs.Load() > runs {
		return fmt.Errorf("the next request got %.99s, and %d runs", a.text, l.runs.Load()-runs)
	}
	met.Add(factCorrected, 1)
	return nil
}

// laterAttribute is one that no version of today knows.
const laterAttribute = "zz"

// markRecord gives the record, if there is one, an attribute of a later version, if the row
// says so.
func (l *life) markRecord(ctx context.Context) (marked bool, err error) {
	id, guarded := l.record.Load().(idempotent.RecordID)
	if l.row["attributes"] == "ours" || !guarded {
		return false, nil
	}
	_, err = l.items.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &l.table, Key: l.keyOf(id), ConditionExpression: aws.String("attribute_exists(" + tabledef.PartitionKey + ")"),
		UpdateExpression: aws.String("SET " + laterAttribute + " = :new"), ExpressionAttributeValues: map[string]types.AttributeValue{":new": &types.AttributeValueMemberS{Value: "new"}},
	})
	if _, none := errors.AsType[*types.ConditionalCheckFailedException](err); none {
		return false, nil
	}
	return err == nil, err
}

// keepsMark reports whether the record, which was marked, has the attribute.
func (l *life) keepsMark(ctx context.Context) (bool, error) {
	out, err := l.items.GetItem(ctx, &dynamodb.GetItemInput{TableName: &l.table, Key: l.keyOf(l.record.Load().(idempotent.RecordID))})
	if err != nil {
		return false, err
	}
	return out.Item[laterAttribute] != nil, nil
}

func (l *life) keyOf(id idempotent.RecordID) map[string]types.AttributeValue {
	var o dynamostore.Options
	l.layout("")(&o)
	return map[string]types.AttributeValue{tabledef.PartitionKey: &types.AttributeValueMemberS{Value: o.Prefix + string(id)}}
}
