// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

// crowdAnswers are the results of clients that claimed one key at once.
type crowdAnswers struct {
	Runs      int64          // as counted by the transactions
	Ends      map[string]int // of the clients
	Conflicts int            // calls that DynamoDB refused because of a transaction
}

const clients = 200 // of one key

// crowd lets clients in several processes claim one key.
var crowd = of(claim{
	name: "one of many", expected: "200 clients of one key, one run", source: "docs/concepts.md", local: true,
}, func(ctx context.Context, w *world) (crowdAnswers, error) {
	a := crowdAnswers{Ends: map[string]int{}}
	invocations, atOnce, tries := 10, 10, 10
	if w.Local {
		invocations, atOnce, tries = 8, 2, 1
	}
	if err := w.budget.spend(clients * tries); err != nil {
		return a, err
	}
	key := rand.Text()
	var mu sync.Mutex
	var failed error
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for range invocations {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			var one wire.Answer
			err := w.ask(ctx, "Handler", wire.Request{Do: wire.Crowd, Key: key, Count: clients / invocations, Tries: tries}, &one)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			a.Conflicts += one.Conflicts
			for end, n := range one.Ends {
				a.Ends[end] += n
			}
		})
	}
	if all.Wait(); failed != nil {
		return a, failed
	}
	out, err := w.dynamodb.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String(w.outputs["Items"]), Key: itemKey(key), ConsistentRead: aws.Bool(true)})
	if err == nil {
		a.Runs = number(out.Item["runs"])
	}
	return a, err
}, func(a crowdAnswers) (string, verdict) {
	asked, others := 0, 0
	for end, n := range a.Ends {
		asked += n
		if end != wire.Ran && end != wire.Replayed && end != wire.InProgress {
			others += n
		}
	}
	seen := fmt.Sprintf("%d run, %d of %d clients ran, %d failed, %d conflicts", a.Runs, a.Ends[wire.Ran], asked, others, a.Conflicts)
	return seen, when(a.Runs == 1 && a.Ends[wire.Ran] == 1 && asked == clients && others == 0)
})
