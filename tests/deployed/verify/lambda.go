// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

// life is a run that was killed. Times are in milliseconds since 1970.
type life struct {
	Ending   string // of endings
	Deadline int64  // until then Lambda lets a run live
	Beat     int64  // the last time at which the run wrote
	LeaseEnd int64  // until then no other request runs the key
}

// lost is how much longer than its last beat a run may have lived, in milliseconds:
// the interval of the beats, and the beats that the kill overtook.
const lost = 200

const (
	timedOut      = "time-out"
	withExtension = "time-out with an extension"
	panicked      = "panic"
)

// endings are the functions that a run ends in, by how it ends.
var endings = map[string]string{timedOut: "Handler", withExtension: "Extended", panicked: "Handler"}

// kills lets Lambda end runs that ignore their context.
var kills = of(claim{
	name: "kill", expected: "a killed run ends before its lease does", source: "idempotent.Operation.LeaseMargin", local: true, units: 15 * 200,
}, func(ctx context.Context, w *world) (all []life, err error) {
	runs := 5
	if w.Local {
		runs = 2
	}
	return together(runs*len(endings), func(i int) (life, error) {
		return w.kill(ctx, []string{timedOut, withExtension, panicked}[i%len(endings)])
	})
}, func(all []life) (string, verdict) {
	latest, seen, ok := map[string]int64{}, []string{}, len(all) > 0
	for _, l := range all {
		lived := l.Beat
		if l.Ending != panicked {
			lived = max(lived, l.Deadline) // on a busy machine, the last beats are missing
		}
		ok = ok && l.Beat > 0 && lived+lost < l.LeaseEnd
		if last, known := latest[l.Ending]; !known || l.Beat-l.Deadline > last {
			latest[l.Ending] = l.Beat - l.Deadline
		}
	}
	for _, ending := range slices.Sorted(maps.Keys(latest)) {
		seen = append(seen, fmt.Sprintf("%s: last sign of life %+d ms", ending, latest[ending]))
	}
	return strings.Join(seen, ", ") + " from the deadline", when(ok && len(latest) > 1)
})

// together calls do with 0 to n-1 at once, and returns all results.
func together[T any](n int, do func(int) (T, error)) (all []T, failed error) {
	all = make([]T, n)
	errs := make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { all[i], errs[i] = do(i) })
	}
	calls.Wait()
	return all, errors.Join(errs...)
}

// kill invokes a function whose run is killed, and waits for its last beat.
func (w *world) kill(ctx context.Context, ending string) (life, error) {
	l, key := life{Ending: ending}, rand.Text()
	_, err := w.ask(ctx, endings[ending], wire.Request{Do: wire.Kill, Key: key, Panic: ending == panicked})
	if !errors.As(err, new(*functionError)) {
		return l, errors.Join(errors.New("kill: the function was not killed"), err)
	}
	for before := int64(-1); before != l.Beat; { // the process may live on
		before = l.Beat
		if err := pause(ctx, time.Second); err != nil {
			return l, err
		}
		out, err := w.dynamodb.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String(w.outputs["Items"]), Key: itemKey(key), ConsistentRead: aws.Bool(true)})
		if err != nil {
			return l, err
		}
		l.Beat, l.Deadline = number(out.Item["beat"]), number(out.Item["deadline"])
	}
	store, err := dynamostore.New(w.dynamodb, w.outputs["Records"])
	if err != nil {
		return l, err
	}
	record, err := store.Get(ctx, idempotent.Key{Operation: wire.Operation, Scope: idempotent.Global, ID: key}.RecordID())
	if err == nil && record == nil {
		err = errors.New("kill: the killed run has no record")
	}
	if err != nil {
		return l, err
	}
	l.LeaseEnd = record.LeaseEnd.UnixMilli()
	return l, nil
}

// number returns a number of an item; zero if it is missing.
func number(v types.AttributeValue) int64 {
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		return 0
	}
	value, _ := strconv.ParseInt(n.Value, 10, 64)
	return value
}

// skew is what the environments of a function say about their clocks.
type skew struct {
	Environments int
	AheadMS      int64 // the most that one is surely ahead of DynamoDB
	BehindMS     int64
}

// clocks compares the clocks of many environments with DynamoDB's.
var clocks = of(claim{
	name: "clocks", expected: "no clock of 50 environments is surely off by a second", source: "idempotent.Options.Now",
}, func(ctx context.Context, w *world) (s skew, err error) {
	environments := 50
	if w.Local {
		environments = 2
	}
	all, err := together(environments, func(int) (wire.Answer, error) { return w.ask(ctx, "Handler", wire.Request{Do: wire.Clock}) })
	seen := map[string]bool{}
	for _, a := range all {
		seen[a.Environment] = true
		s.AheadMS, s.BehindMS = max(s.AheadMS, a.Early.Milliseconds()), max(s.BehindMS, -a.Late.Milliseconds())
	}
	s.Environments = len(seen)
	return s, err
}, func(s skew) (string, verdict) {
	seen := fmt.Sprintf("%d environments, at most %d ms ahead and %d ms behind", s.Environments, s.AheadMS, s.BehindMS)
	if s.Environments < 25 && s.AheadMS < 1000 && s.BehindMS < 1000 {
		return seen + ": too few, for the quota of concurrent executions is low", notJudged
	}
	return seen, when(s.AheadMS < 1000 && s.BehindMS < 1000)
})
