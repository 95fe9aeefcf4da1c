// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/tabledef"
	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

// race is what two regions did with one key.
type race struct {
	DelayMS int64 // by which the second region began later
	Runs    int
	Errors  []string `json:",omitempty"`
}

const (
	eventual = "eventual"
	strong   = "strong"
)

// acrossRegions are the claims of the subcommand regions.
var acrossRegions = []claim{
	of(claim{
		name: "regions, eventual", expected: "two regions can run one key, within a window of seconds", source: "docs/regions.md",
	}, func(ctx context.Context, w *world) ([]race, error) { return w.races(ctx, eventual) }, func(all []race) (string, verdict) {
		seen, twice, other := judgeRaces(all)
		return seen, when(twice > 0 && !other)
	}),
	of(claim{
		name: "regions, strong", expected: "no key runs in two regions", source: "docs/regions.md",
	}, func(ctx context.Context, w *world) ([]race, error) { return w.races(ctx, strong) }, func(all []race) (string, verdict) {
		seen, twice, other := judgeRaces(all)
		return seen, when(len(all) > 0 && twice == 0 && !other)
	}),
}

// judgeRaces returns how many keys ran twice, and whether one did not run at all or
// failed.
func judgeRaces(all []race) (seen string, twice int, other bool) {
	var window int64
	for _, r := range all {
		if r.Runs > 1 {
			twice++
			window = max(window, r.DelayMS)
		}
		other = other || r.Runs == 0 || len(r.Errors) > 0
	}
	seen = fmt.Sprintf("%d of %d keys ran twice", twice, len(all))
	if twice > 0 {
		seen += fmt.Sprintf(", the last one with a delay of %d ms", window)
	}
	for _, r := range all {
		if len(r.Errors) > 0 {
			return seen + ", " + strings.Join(r.Errors, ", "), twice, other
		}
	}
	return seen, twice, other
}

// delays are those of the second region, in milliseconds.
var delays = []int64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 50, 100, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000, 10000}

// races claims keys in two regions of a table with this consistency.
func (w *world) races(ctx context.Context, consistency string) ([]race, error) {
	var guards []*idempotent.Guard
	for _, region := range w.regions[:2] {
		store, err := dynamostore.New(w.in(region), w.tableOf(consistency), func(o *dynamostore.Options) {
			if consistency == strong {
				o.Consistency = dynamostore.Strong
			}
		})
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
		if err := w.budget.spend(4 * len(w.regions)); err != nil {
			return nil, err
		}
		id := rand.Text()
		key := idempotent.Key{Operation: wire.Operation, Scope: idempotent.Global, ID: id, Fingerprint: idempotent.FingerprintBytes([]byte(id))}
		all[i].DelayMS = delay
		var mu sync.Mutex
		var both sync.WaitGroup
		for n, guard := range guards {
			both.Go(func() {
				if err := pause(ctx, time.Duration(int64(n)*delay)*time.Millisecond); err != nil {
					return
				}
				out, err := idempotent.DoOutcome(ctx, guard, key, func(context.Context) (string, error) { return "done", nil })
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					all[i].Errors = append(all[i].Errors, err.Error())
				case !out.Replayed:
					all[i].Runs++
				}
			})
		}
		both.Wait()
	}
	return all, ctx.Err()
}

// in returns a client for a region.
func (w *world) in(region string) *dynamodb.Client {
	return dynamostore.NewClient(w.cfg, func(o *dynamodb.Options) { o.Region = region })
}

func (w *world) tableOf(consistency string) string { return nameOf(w.ID) + "-" + consistency }

// runRegions creates a table of each consistency, judges, and removes the tables.
func runRegions(ctx context.Context, s settings, in io.Reader, out, log io.Writer) (err error) {
	regions := strings.Split(s.regions, ",")
	if len(regions) != 3 || s.region != "" && s.region != regions[0] {
		return errors.New("invalid regions: want --regions A,B,C, three regions of one set; A is also the region of destroy")
	}
	w, err := newWorld(ctx, s.id, regions[0], log)
	if err != nil {
		return err
	}
	w.regions = regions
	if w.Local {
		return errors.New("regions is only on AWS: LocalStack has no delay between regions")
	}
	units := float64(2 * len(delays) * 4 * len(regions))
	parts := []cost{{"replicated write units", units, 0.625e-6}, {"GB of transfer", 0.001, 0.02}}
	for _, consistency := range []string{eventual, strong} {
		table, err := w.describe(ctx, w.tableOf(consistency))
		if err != nil {
			return err
		}
		if table != nil {
			return fmt.Errorf("a table %s exists: choose another --id, or remove it with destroy", w.tableOf(consistency))
		}
	}
	if err := consent(ctx, w, s, parts, in, out); err != nil {
		return err
	}
	w.note("id %s: if this run is killed, remove what it leaves with: make verify-aws ARGS='destroy %s --region %s'", w.ID, w.ID, w.Region)
	defer func() { err = errors.Join(err, w.end(ctx, out)) }()
	if err := w.createTables(ctx); err != nil {
		return err
	}
	r := w.report(ctx, judgeAll(ctx, w, acrossRegions))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := r.print(out); err != nil {
		return err
	}
	return errors.Join(r.write(s.json, out), r.err())
}

// createTables creates both tables with their replicas. A table for strong
// consistency must be empty, and gets both replicas at once.
func (w *world) createTables(ctx context.Context) error {
	for consistency, replicas := range map[string][]string{eventual: w.regions[1:2], strong: w.regions[1:]} {
		name := aws.String(w.tableOf(consistency))
		if _, err := w.dynamodb.CreateTable(ctx, &dynamodb.CreateTableInput{
			TableName: name, BillingMode: types.BillingModePayPerRequest,
			KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String(tabledef.PartitionKey), KeyType: types.KeyTypeHash}},
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String(tabledef.PartitionKey), AttributeType: types.ScalarAttributeTypeS}},
			StreamSpecification:  &types.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages},
			Tags:                 []types.Tag{{Key: aws.String(tag), Value: &w.ID}},
		}); err != nil {
			return err
		}
		w.note("table %s requested", *name)
		if _, err := w.steady(ctx, *name); err != nil {
			return err
		}
		update := &dynamodb.UpdateTableInput{TableName: name}
		for _, region := range replicas {
			update.ReplicaUpdates = append(update.ReplicaUpdates, types.ReplicationGroupUpdate{
				Create: &types.CreateReplicationGroupMemberAction{RegionName: aws.String(region)},
			})
		}
		if consistency == strong {
			update.MultiRegionConsistency = types.MultiRegionConsistencyStrong
		}
		if _, err := w.dynamodb.UpdateTable(ctx, update); err != nil {
			return err
		}
		table, err := w.steady(ctx, *name)
		if err != nil {
			return err
		}
		if table == nil || len(table.Replicas) < len(replicas) {
			return fmt.Errorf("the table %s has no replicas", *name)
		}
		w.note("table %s has its replicas", *name)
	}
	return nil
}

// describe returns a table, or nil if it does not exist.
func (w *world) describe(ctx context.Context, name string) (*types.TableDescription, error) {
	out, err := w.dynamodb.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	if errors.As(err, new(*types.ResourceNotFoundException)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return out.Table, nil
}

// steady waits until nothing changes a table or its replicas any more.
func (w *world) steady(ctx context.Context, name string) (*types.TableDescription, error) {
	for {
		table, err := w.describe(ctx, name)
		if err != nil || table == nil {
			return table, err
		}
		changing := table.TableStatus != types.TableStatusActive
		for _, r := range table.Replicas {
			changing = changing || r.ReplicaStatus != types.ReplicaStatusActive
		}
		if !changing {
			return table, nil
		}
		if err := pause(ctx, w.interval()); err != nil {
			return nil, err
		}
	}
}

// removeReplicas removes the tables of the subcommand regions. A table that was the
// source of a replica can be deleted at once only without replicas, and a strongly
// consistent one loses both at once.
func (w *world) removeReplicas(ctx context.Context) error {
	var failed error
	for _, consistency := range []string{eventual, strong} {
		name := w.tableOf(consistency)
		if err := w.removeTable(ctx, name); err != nil {
			failed = errors.Join(failed, fmt.Errorf("the table %s is left, with its replicas: %w", name, err))
		}
	}
	return failed
}

func (w *world) removeTable(ctx context.Context, name string) error {
	table, err := w.steady(ctx, name)
	if err != nil || table == nil {
		return err
	}
	update := &dynamodb.UpdateTableInput{TableName: &name}
	for _, r := range table.Replicas {
		if *r.RegionName != w.Region {
			update.ReplicaUpdates = append(update.ReplicaUpdates, types.ReplicationGroupUpdate{
				Delete: &types.DeleteReplicationGroupMemberAction{RegionName: r.RegionName},
			})
		}
	}
	if len(update.ReplicaUpdates) > 0 {
		if _, err := w.dynamodb.UpdateTable(ctx, update); err != nil {
			return err
		}
		if _, err := w.steady(ctx, name); err != nil {
			return err
		}
	}
	if _, err := w.dynamodb.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &name}); err != nil {
		return err
	}
	for table != nil {
		if err := pause(ctx, w.interval()); err != nil {
			return err
		}
		if table, err = w.describe(ctx, name); err != nil {
			return err
		}
	}
	w.note("table %s removed", name)
	return nil
}
