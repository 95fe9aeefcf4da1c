// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/internal/tabledef"
)

const (
	// createPatience limits the wait for a table that is being created. DynamoDB
	// takes about ten seconds; DynamoDB Local takes no time.
	createPatience = 3 * time.Minute
	// ttlPatience is how long CreateTable waits for another process to switch time
	// to live on.
	ttlPatience = 5 * time.Second
	// The pauses between two looks at the table: pollBase, then doubled up to
	// pollMax.
	pollBase = 50 * time.Millisecond
	pollMax  = time.Second
	// replicaPatience limits the wait for the replicas of a table with strong
	// consistency, which DynamoDB creates within minutes.
	replicaPatience = 15 * time.Minute
)

// CreateOptions are the options of [Store.CreateTable]. They are for a store with
// Options.Consistency.
type CreateOptions struct {
	// Replicas are the other regions of the table: two, or one with a Witness.
	Replicas []string
	// Witness is a region that has no readable copy of the table. Default: none.
	Witness string
}

// validate checks the options of a store with that consistency. DynamoDB decides which
// regions can be combined.
func (o *CreateOptions) validate(c Consistency) error {
	others := len(o.Replicas)
	if o.Witness != "" {
		others++
	}
	switch {
	case c == "" && others > 0:
		return fmt.Errorf("dynamostore: CreateTable: CreateOptions.Replicas and Witness are for Options.Consistency %q", Strong)
	case c == Strong && others != 2:
		return fmt.Errorf("dynamostore: CreateTable: a table with strong consistency has three replicas, or two and a witness; got %d other replicas and witness %q: want two replicas besides the table's own region, or one and a witness", len(o.Replicas), o.Witness)
	}
	return nil
}

// CreateTable creates the table with its index and on-demand billing, waits until
// it is ACTIVE and switches its time to live on. It does the same with
// Options.ChunkTable, which has no index. It is for tests and local use. In
// production create the table with infrastructure code, where backups, deletion
// protection and encryption are decided.
//
// With Options.Consistency, CreateTable creates each table in the client's region,
// makes it global with CreateOptions.Replicas and Witness, and waits until all
// replicas are ACTIVE. DynamoDB needs minutes for that.
//
// An existing table is checked and never changed. Several processes may call
// CreateTable at the same time: one creates the table, and all return when it can
// be used. The wait ends with the context, and after three minutes, or fifteen with
// Options.Consistency.
//
// It needs dynamodb:CreateTable, dynamodb:UpdateTimeToLive and the permissions of
// [Store.Check]. With Options.Consistency it needs dynamodb:UpdateTable instead of
// UpdateTimeToLive, and what DynamoDB requires for a replica:
// dynamodb:CreateTableReplica, dynamodb:CreateGlobalTableWitness and the right to
// create the service-linked role of global tables.
func (s *Store) CreateTable(ctx context.Context, optFns ...func(*CreateOptions)) error {
	o := &CreateOptions{}
	for _, f := range optFns {
		f(o)
	}
	if err := o.validate(s.opts.Consistency); err != nil {
		return err
	}
	for _, store := range s.chunkStores() {
		if err := store.createTable(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) createTable(ctx context.Context, o *CreateOptions) error {
	created, err := s.createIfMissing(ctx)
	if err != nil {
		return err
	}
	if err := s.waitActive(ctx); err != nil {
		return err
	}
	switch {
	case created && s.opts.Consistency == Strong:
		_, err = s.client.UpdateTable(ctx, s.replicaInput(o))
		if err = s.explain("UpdateTable", err); err != nil {
			return err
		}
	case created:
		_, err = s.client.UpdateTimeToLive(ctx, s.ttlInput())
		err = s.explain("UpdateTimeToLive", err)
	}
	if checked := s.checkSoon(ctx, created); checked != nil {
		return errors.Join(err, checked)
	}
	return nil // err can be set here: another process had switched it on
}

// createIfMissing creates the table unless it exists, and reports whether this
// call created it, if it returns no error.
func (s *Store) createIfMissing(ctx context.Context) (created bool, err error) {
	if _, err := s.describe(ctx); !isMissing(err) {
		return false, s.explain("DescribeTable", err)
	}
	_, err = s.client.CreateTable(ctx, s.tableInput())
	if _, ok := errors.AsType[*types.ResourceInUseException](err); ok {
		return false, nil // another process was faster
	}
	return true, s.explain("CreateTable", err)
}

// isMissing reports whether err means that the table does not exist. DescribeTable
// also returns it for a moment after the creation (API reference, DescribeTable).
func isMissing(err error) bool {
	_, ok := errors.AsType[*types.ResourceNotFoundException](err)
	return ok
}

// waitActive waits until the table can be read and written.
func (s *Store) waitActive(ctx context.Context) error {
	return poll(ctx, createPatience, func() (bool, error) {
		table, err := s.describe(ctx)
		switch {
		case isMissing(err):
			return false, s.explain("DescribeTable", err)
		case err != nil:
			return true, s.explain("DescribeTable", err)
		case table.TableStatus == types.TableStatusCreating:
			return false, s.schemaError(s.tableProblems(table))
		default:
			return true, nil // Check reports an unusable state
		}
	})
}

// checkSoon checks the table. If only the time to live or the replicas are missing, it
// gives the process that created the table some time to add them. It waits longer for
// replicas that are being created.
func (s *Store) checkSoon(ctx context.Context, created bool) error {
	end := time.Now().Add(ttlPatience)
	patience := ttlPatience
	if s.opts.Consistency == Strong {
		patience = replicaPatience
	}
	return poll(ctx, patience, func() (bool, error) {
		err := s.check(ctx)
		schema, ok := errors.AsType[*SchemaError](err)
		if !ok {
			return true, err
		}
		for _, p := range schema.Problems {
			starts := errors.Is(p, errTTLOff) || errors.Is(p, errOneRegion)
			begun := errors.Is(p, errCreating)
			if !begun && !(starts && (created || time.Now().Before(end))) {
				return true, err
			}
		}
		return false, err
	})
}

// poll calls look until it is done, or patience or the context ends. It returns
// the last error of look, joined with the context's error if that ended.
func poll(ctx context.Context, patience time.Duration, look func() (done bool, err error)) error {
	end := time.Now().Add(patience)
	for i := 0; ; i++ {
		done, err := look()
		delay := backoff(pollBase, pollMax, i)
		if done || time.Until(end) < delay {
			return err
		}
		if cause := sleep(ctx, delay); cause != nil {
			return fmt.Errorf("%w (%w)", err, cause)
		}
	}
}

// tableInput returns the request that creates the table. The table has on-demand
// billing, because the load of a retry storm cannot be provisioned in advance.
func (s *Store) tableInput() *dynamodb.CreateTableInput {
	in := &dynamodb.CreateTableInput{
		TableName:   aws.String(s.table),
		BillingMode: types.BillingModePayPerRequest,
	}
	schema := func(keys []key) (elements []types.KeySchemaElement) {
		for _, k := range keys {
			in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: aws.String(k.name), AttributeType: k.kind})
			elements = append(elements, types.KeySchemaElement{AttributeName: aws.String(k.name), KeyType: k.role})
		}
		return elements
	}
	in.KeySchema = schema(s.layout.keys())
	if s.chunks != nil { // else the table holds only chunks
		in.GlobalSecondaryIndexes = []types.GlobalSecondaryIndex{{
			IndexName:  aws.String(tabledef.IndexName),
			KeySchema:  schema(indexKeys()),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeInclude, NonKeyAttributes: tabledef.IndexAttributes()},
		}}
	}
	return in
}

// ttlInput returns the request that switches the table's time to live on.
func (s *Store) ttlInput() *dynamodb.UpdateTimeToLiveInput {
	return &dynamodb.UpdateTimeToLiveInput{
		TableName: aws.String(s.table),
		TimeToLiveSpecification: &types.TimeToLiveSpecification{
			AttributeName: aws.String(s.layout.ttl),
			Enabled:       aws.Bool(true),
		},
	}
}

// replicaInput returns the request that makes a new table global with strong
// consistency. It must be empty (developer guide, "Multi-Region strong consistency").
func (s *Store) replicaInput(o *CreateOptions) *dynamodb.UpdateTableInput {
	in := &dynamodb.UpdateTableInput{TableName: aws.String(s.table), MultiRegionConsistency: types.MultiRegionConsistencyStrong}
	for _, region := range o.Replicas {
		in.ReplicaUpdates = append(in.ReplicaUpdates, types.ReplicationGroupUpdate{
			Create: &types.CreateReplicationGroupMemberAction{RegionName: aws.String(region)},
		})
	}
	if o.Witness != "" {
		in.GlobalTableWitnessUpdates = []types.GlobalTableWitnessGroupUpdate{{
			Create: &types.CreateGlobalTableWitnessGroupMemberAction{RegionName: aws.String(o.Witness)},
		}}
	}
	return in
}
