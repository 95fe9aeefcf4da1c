// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

// life is a run that was killed. Times are in milliseconds since 1970.
type life struct {
	Ending   string // of killEndings
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

// kills lets Lambda end runs that ignore their context.
var kills = of(claim{
	name: "kill", expected: "a killed run ends before its lease does", source: "idempotent.Operation.LeaseMargin", local: true,
}, func(ctx context.Context, w *world) ([]life, error) {
	runs, endings := 5, []string{timedOut, withExtension, panicked}
	if w.Local { // has no extensions
		runs, endings = 2, []string{timedOut, panicked}
	}
	var mu sync.Mutex
	var all []life
	var failed error
	var invocations sync.WaitGroup
	for range runs {
		for _, ending := range endings {
			if err := w.budget.spend(200); err != nil {
				return nil, err
			}
			invocations.Go(func() {
				l, err := w.kill(ctx, ending)
				mu.Lock()
				defer mu.Unlock()
				all, failed = append(all, l), errors.Join(failed, err)
			})
		}
	}
	invocations.Wait()
	return all, failed
}, func(all []life) (string, verdict) {
	latest, seen := map[string]int64{}, []string{}
	ok := len(all) > 0
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
	for _, ending := range []string{timedOut, withExtension, panicked} {
		if last, ran := latest[ending]; ran {
			seen = append(seen, fmt.Sprintf("%s: last sign of life %+d ms", ending, last))
		}
	}
	return strings.Join(seen, ", ") + " from the deadline", when(ok && len(latest) > 1)
})

// kill invokes a function whose run is killed, and waits for its last beat.
func (w *world) kill(ctx context.Context, ending string) (life, error) {
	function := "Handler"
	if ending == withExtension {
		function = "Extended"
	}
	key := rand.Text()
	err := w.ask(ctx, function, wire.Request{Do: wire.Kill, Key: key, Panic: ending == panicked}, nil)
	if !errors.As(err, new(*functionError)) {
		return life{}, fmt.Errorf("kill: the function was not killed: %w", err)
	}
	l := life{Ending: ending}
	for before := int64(-1); before != l.Beat; { // the process may live on
		before = l.Beat
		if err := pause(ctx, time.Second); err != nil {
			return l, err
		}
		out, err := w.dynamodb.GetItem(ctx, &dynamodb.GetItemInput{
			TableName: aws.String(w.outputs["Items"]), Key: itemKey(key), ConsistentRead: aws.Bool(true),
		})
		if err != nil {
			return l, err
		}
		l.Beat, l.Deadline = number(out.Item["beat"]), number(out.Item["deadline"])
	}
	record, err := w.store.Get(ctx, recordID(wire.Operation, key))
	if err != nil {
		return l, err
	}
	if record == nil {
		return l, errors.New("kill: the killed run has no record")
	}
	l.LeaseEnd = record.LeaseEnd.UnixMilli()
	return l, nil
}
