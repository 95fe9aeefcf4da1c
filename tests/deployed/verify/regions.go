// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

// race is what two regions did with one key.
type race struct {
	DelayMS int64 // by which the second region began later
	Runs    int
	Errors  []string `json:",omitempty"`
}

// delays are those of the second region, in milliseconds.
var delays = []int64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 50, 100, 200, 300, 500, 700, 1000, 1500, 2000}

// regions claims keys in two regions of a table with strong consistency.
var regions = of(claim{
	name: "regions", expected: "no key runs in two regions of a table with strong consistency", source: "docs/regions.md", replicas: true,
	units: len(delays) * 4 * 3, // four writes of a key, in three regions
}, func(ctx context.Context, w *world) ([]race, error) {
	var guards []*idempotent.Guard
	for _, region := range []string{w.Region, w.Replicas[0]} {
		client := dynamostore.NewClient(w.cfg, func(o *dynamodb.Options) { o.Region = region })
		store, err := dynamostore.New(client, w.outputs["Strong"], func(o *dynamostore.Options) { o.Consistency = dynamostore.Strong })
		if err != nil {
			return nil, err
		}
		guard, err := idempotent.New(store, func(o *idempotent.Options) { o.WaitFor = 20 * time.Second })
		if err != nil {
			return nil, err
		}
		guards = append(guards, guard)
	}
	all := make([]race, len(delays))
	for i, delay := range delays {
		all[i].DelayMS = delay
		id := rand.Text()
		key := idempotent.Key{Operation: wire.Operation, Scope: idempotent.Global, ID: id, Fingerprint: idempotent.FingerprintBytes([]byte(id))}
		var runs atomic.Int32
		_, err := together(len(guards), func(n int) (string, error) {
			if err := pause(ctx, time.Duration(int64(n)*delay)*time.Millisecond); err != nil {
				return "", err
			}
			return idempotent.Do(ctx, guards[n], key, func(context.Context) (string, error) { runs.Add(1); return "done", nil })
		})
		if all[i].Runs = int(runs.Load()); err != nil {
			all[i].Errors = strings.Split(err.Error(), "\n")
		}
	}
	return all, ctx.Err()
}, func(all []race) (string, verdict) {
	twice, ok, failed := 0, len(all) > 0, []string(nil)
	for _, r := range all {
		if r.Runs > 1 {
			twice++
		}
		ok, failed = ok && r.Runs == 1, append(failed, r.Errors...)
	}
	seen := append([]string{fmt.Sprintf("%d of %d keys ran twice", twice, len(all))}, failed...)
	return strings.Join(seen, ", "), when(ok && len(failed) == 0)
})
