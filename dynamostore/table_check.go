// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/tabledef"
)

// SchemaError lists the problems of a table. errors.Is and errors.As find each of
// them.
type SchemaError struct {
	Table    string
	Problems []error // what was found and what to do
}

func (e *SchemaError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "dynamostore: table %q cannot be used as a store:", e.Table)
	for _, p := range e.Problems {
		fmt.Fprintf(&b, "\n  - %v", p)
	}
	return b.String()
}

// Unwrap returns the problems.
func (e *SchemaError) Unwrap() []error { return e.Problems }

// Check returns nil if the table can be used as a store, and otherwise a
// [*SchemaError] with every problem found: keys, time to live, the index of due
// records, replicas in other regions that do not fit Options.Consistency, and large results in more than 1 GB that
// [Store.Abandoned] would read. It checks Options.ChunkTable, too; the error is then
// one for each table with problems, joined. Use it at deploy time, in tests and on the
// command line, not at every start of a function: it makes two calls for each
// table.
//
// If the table is described as it should be, Check also does what functions do: it
// claims a record and queries the index. The condition of the claim is false for every
// item, so nothing is written; the call costs one write unit.
//
// It needs dynamodb:DescribeTable, dynamodb:DescribeTimeToLive and dynamodb:PutItem on
// the table, and dynamodb:Query on its index. Each denied call is a problem.
func (s *Store) Check(ctx context.Context) error {
	var found []error
	for _, store := range s.chunkStores() {
		found = append(found, store.check(ctx))
	}
	return errors.Join(found...)
}

func (s *Store) check(ctx context.Context) error {
	problems := s.describedProblems(ctx)
	if s.chunks != nil && !slices.ContainsFunc(problems, func(err error) bool { return !isDenied(err) }) {
		if err := s.tryClaim(ctx); isDenied(err) {
			problems = append(problems, fmt.Errorf("a claim was denied (a viewer may not write, a function must): %w", err))
		} else if err != nil {
			problems = append(problems, fmt.Errorf("a claim failed: %w", err))
		}
		if s.opts.NoIndex == nil {
			if err := s.tryList(ctx); err != nil {
				problems = append(problems, fmt.Errorf("a query of the index %q failed: %w", tabledef.IndexName, err))
			}
		}
	}
	return s.schemaError(problems)
}

// tryClaim writes a record on a condition that no item meets.
func (s *Store) tryClaim(ctx context.Context) error {
	var hash [32]byte        // of no key
	var never driver.Version // of no write
	now := time.Now()
	_, refused, err := s.put(ctx, &driver.Record{
		ID:    driver.RecordID("table-check#" + base64.RawURLEncoding.EncodeToString(hash[:])),
		State: driver.StateInProgress, Recovery: driver.Reconcile, Attempt: 1,
		Created: now, LeaseEnd: now, Due: now, Announced: true, // with the keys of the index
	}, replaceCondition, nil, ":was", &types.AttributeValueMemberB{Value: never[:]})
	if err == nil && !refused {
		return errors.New("it was written although its condition is false: the endpoint ignores conditions (an emulator or a proxy?)")
	}
	return err
}

// listCondition selects one partition of the index.
const listCondition = tabledef.IndexPartitionKey + " = :shard"

// tryList reads the first entry of a shard of the index.
func (s *Store) tryList(ctx context.Context) error {
	_, err := s.client.Query(ctx, &dynamodb.QueryInput{
		TableName: aws.String(s.table), IndexName: aws.String(tabledef.IndexName),
		KeyConditionExpression:    aws.String(listCondition),
		ExpressionAttributeValues: item{":shard": text(shardKey(duePrefix, 0))},
		Limit:                     aws.Int32(1),
	})
	return s.explain("Query", err)
}

// describedProblems checks the descriptions of the table and of its time to live.
func (s *Store) describedProblems(ctx context.Context) []error {
	table, err := s.describe(ctx)
	if err != nil {
		return []error{advise("DescribeTable", err)}
	}
	problems := s.tableProblems(table)
	strong := table.MultiRegionConsistency == types.MultiRegionConsistencyStrong
	if strong != (s.opts.Consistency == Strong) {
		return problems // the time to live depends on what is changed
	}
	ttl, err := s.client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: aws.String(s.table)})
	switch api, _ := errors.AsType[smithy.APIError](err); {
	case strong && api != nil && api.ErrorCode() == "ValidationException": // not supported, so not on
	case err != nil:
		problems = append(problems, advise("DescribeTimeToLive", err))
	case !strong:
		problems = append(problems, s.layout.ttlProblems(ttl.TimeToLiveDescription)...)
	default:
		problems = append(problems, strongTTLProblems(ttl.TimeToLiveDescription)...)
	}
	return problems
}

func (s *Store) schemaError(problems []error) error {
	if len(problems) == 0 {
		return nil
	}
	return &SchemaError{Table: s.table, Problems: problems}
}

// describe returns the table's description, or the SDK's error.
func (s *Store) describe(ctx context.Context) (*types.TableDescription, error) {
	out, err := s.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: aws.String(s.table)})
	if err != nil {
		return nil, err
	}
	if out.Table == nil {
		return nil, errors.New("the reply contains no table description")
	}
	return out.Table, nil
}

// tableProblems checks everything but the time to live.
func (s *Store) tableProblems(t *types.TableDescription) (problems []error) {
	switch t.TableStatus {
	case types.TableStatusActive, types.TableStatusUpdating:
	default:
		problems = append(problems, fmt.Errorf("it is %s; wait until it is ACTIVE, or find out why it stays in this state", t.TableStatus))
	}
	want := s.layout.keys()
	if got := keysOf(t.KeySchema, t.AttributeDefinitions); !slices.Equal(got, want) {
		problems = append(problems, fmt.Errorf("its key is %s and must be %s; %s", describeKeys(got), describeKeys(want), otherKeys(got, want)))
	}
	problems = append(problems, otherIndexProblems(t)...)
	if s.chunks != nil { // else the table holds only chunks
		if s.opts.NoIndex == nil {
			problems = append(problems, indexProblems(t)...)
		}
		problems = append(problems, s.scanProblems(t)...)
	}
	return append(problems, s.replicaProblems(t)...)
}

// keys returns the keys of the table.
func (l *layout) keys() []key {
	keys := []key{{l.partitionKey, types.KeyTypeHash, types.ScalarAttributeTypeS}}
	if l.sortKey != "" {
		keys = append(keys, key{l.sortKey, types.KeyTypeRange, types.ScalarAttributeTypeS})
	}
	return keys
}

// otherKeys returns what to do about a table that has other keys.
func otherKeys(got, want []key) string {
	const create = "keys cannot be changed: create another table"
	switch {
	case len(got) > len(want):
		return create + ", or name its keys in Options.PartitionKey and SortKey (ONCE_PARTITION_KEY, ONCE_SORT_KEY), with a Prefix"
	case len(got) < len(want):
		return create + ", or remove Options.SortKey (ONCE_SORT_KEY)"
	case got[0].name != want[0].name:
		return create + ", or name its keys in Options.PartitionKey and SortKey (ONCE_PARTITION_KEY, ONCE_SORT_KEY)"
	}
	return create
}

// otherIndexProblems checks the keys of the other indexes. An index on an attribute
// of records would contain records, or refuse them if its type is another one.
func otherIndexProblems(t *types.TableDescription) (problems []error) {
	check := func(name *string, schema []types.KeySchemaElement) {
		for _, k := range keysOf(schema, t.AttributeDefinitions) {
			if k.name != tabledef.IndexPartitionKey && k.name != tabledef.IndexSortKey && reserved(k.name) {
				problems = append(problems, fmt.Errorf("its index %q has the key attribute %s, which records have for something else; rename that attribute, or use another table", aws.ToString(name), k.name))
			}
		}
	}
	for _, index := range t.GlobalSecondaryIndexes {
		check(index.IndexName, index.KeySchema)
	}
	for _, index := range t.LocalSecondaryIndexes {
		check(index.IndexName, index.KeySchema)
	}
	return problems
}

const (
	// manyBytes is how much is scanned in an hour when the price counts: some $12 a
	// month.
	manyBytes = 1 << 30
	// largeItem is an average size that a table of records alone does not have.
	largeItem = 4 << 10
)

// scanProblems checks whether scans for abandoned runs read large results, or much
// that is not of the store.
func (s *Store) scanProblems(t *types.TableDescription) []error {
	size, items := aws.ToInt64(t.TableSizeBytes), max(1, aws.ToInt64(t.ItemCount))
	if s.opts.ScanEvery < 0 || float64(size)*time.Hour.Seconds() < manyBytes*s.opts.ScanEvery.Seconds() {
		return nil
	}
	if s.layout.prefix != "" && s.opts.Consistency == Strong {
		return []error{fmt.Errorf("it has other items, and each scan reads all %d GB (%d read units); use another table, or scan less often with Options.ScanEvery (ONCE_SCAN_EVERY): expired records then stay for longer; if your functions do, set it here, too", size>>30, size/(8<<10))}
	}
	if s.layout.prefix != "" {
		return []error{fmt.Errorf("it has other items, and each scan for abandoned runs reads all %d GB (%d read units); scan less often with Options.ScanEvery (ONCE_SCAN_EVERY), or switch scans off: runs that are killed at their deadline are found without them; if your functions do, set it here, too", size>>30, size/(8<<10))}
	}
	if s.chunks != s || size/items < largeItem {
		return nil
	}
	return []error{fmt.Errorf("its items have %d KB on average, so it contains large results, and each scan for abandoned runs reads %d GB (%d read units); store large results in another table with Options.ChunkTable (ONCE_CHUNK_TABLE), or scan less often with Options.ScanEvery (ONCE_SCAN_EVERY); if your functions do, set it here, too", size/items>>10, size>>30, size/(8<<10))}
}

// indexProblems checks the index from which reconciliation lists due records.
func indexProblems(t *types.TableDescription) (problems []error) {
	index := findIndex(t)
	if index == nil {
		return []error{fmt.Errorf("it has no index %q, so reconciliation finds no records; add it, with key %s and projection %s", tabledef.IndexName, describeKeys(indexKeys()), describeProjection())}
	}
	if got := keysOf(index.KeySchema, t.AttributeDefinitions); !slices.Equal(got, indexKeys()) {
		problems = append(problems, fmt.Errorf("the key of its index %q is %s and must be %s; delete the index and create it again", tabledef.IndexName, describeKeys(got), describeKeys(indexKeys())))
	}
	if p := index.Projection; p == nil || p.ProjectionType != types.ProjectionTypeInclude || !sameNames(p.NonKeyAttributes, tabledef.IndexAttributes()) {
		problems = append(problems, fmt.Errorf("its index %q must project its keys and %s: with less, reconciliation cannot list records; with more, writes cost more and stored results are copied; delete the index and create it again with projection %s", tabledef.IndexName, strings.Join(tabledef.IndexAttributes(), ", "), describeProjection()))
	}
	switch index.IndexStatus {
	case types.IndexStatusActive, types.IndexStatusUpdating:
	default:
		problems = append(problems, fmt.Errorf("its index %q is %s; wait until it is ACTIVE", tabledef.IndexName, index.IndexStatus))
	}
	return problems
}

// sameNames reports whether a and b have the same names, in any order.
func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// describeProjection returns the projection of the index as text.
func describeProjection() string {
	return fmt.Sprintf("%s (%s)", types.ProjectionTypeInclude, strings.Join(tabledef.IndexAttributes(), ", "))
}

func findIndex(t *types.TableDescription) *types.GlobalSecondaryIndexDescription {
	for i := range t.GlobalSecondaryIndexes {
		if index := &t.GlobalSecondaryIndexes[i]; aws.ToString(index.IndexName) == tabledef.IndexName {
			return index
		}
	}
	return nil
}

func (l *layout) ttlProblems(d *types.TimeToLiveDescription) []error {
	if d == nil {
		d = &types.TimeToLiveDescription{}
	}
	switch d.TimeToLiveStatus {
	case types.TimeToLiveStatusEnabled, types.TimeToLiveStatusEnabling:
		if got := aws.ToString(d.AttributeName); got != l.ttl {
			return []error{fmt.Errorf("its time to live is on attribute %q and must be on %q; name it in Options.TTLAttribute (ONCE_TTL_ATTRIBUTE), or switch it off and, an hour later, on again (DynamoDB accepts one change per hour)", got, l.ttl)}
		}
		return nil
	default: // off, or being switched off
		return []error{fmt.Errorf("%w; switch it on for attribute %q, or expired records stay and are billed", errTTLOff, l.ttl)}
	}
}

// key is one attribute of a key schema.
type key struct {
	name string
	role types.KeyType
	kind types.ScalarAttributeType
}

func indexKeys() []key {
	return []key{
		{tabledef.IndexPartitionKey, types.KeyTypeHash, types.ScalarAttributeTypeS},
		{tabledef.IndexSortKey, types.KeyTypeRange, types.ScalarAttributeTypeN},
	}
}

// keysOf returns the attributes of a key schema with their types.
func keysOf(schema []types.KeySchemaElement, definitions []types.AttributeDefinition) []key {
	keys := make([]key, len(schema))
	for i, e := range schema {
		keys[i] = key{name: aws.ToString(e.AttributeName), role: e.KeyType}
		for _, d := range definitions {
			if aws.ToString(d.AttributeName) == keys[i].name {
				keys[i].kind = d.AttributeType
			}
		}
	}
	return keys
}

// describeKeys returns the keys as text, for example "pk (HASH, S), sk (RANGE,
// N)".
func describeKeys(keys []key) string {
	var b strings.Builder
	for i, k := range keys {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%s, %s)", k.name, k.role, k.kind)
	}
	return b.String()
}

// globalTables2017 is the first version of global tables. Their tables do not list
// their replicas.
const globalTables2017 = "2017.11.29"

// The problems that go away by themselves if another process is creating the table.
var (
	errTTLOff    = errors.New("its time to live is off")
	errOneRegion = errors.New("Options.Consistency is strong, and it is a table in one region")
	errCreating  = errors.New("is being created")
)

// replicaProblems checks the regions of the table (developer guide, "How DynamoDB
// global tables work") against Options.Consistency. Replicas with eventual consistency
// never give the guarantees that a store needs.
func (s *Store) replicaProblems(t *types.TableDescription) []error {
	strong := s.opts.Consistency == Strong
	regions := otherRegions(t)
	if regions == nil && aws.ToString(t.GlobalTableVersion) == globalTables2017 {
		regions = []string{"other regions"}
	}
	switch {
	case t.MultiRegionConsistency == types.MultiRegionConsistencyStrong && !strong && s.chunks == nil:
		return []error{errors.New("it is a global table with strong consistency (MRSC), and Options.Consistency is not set, so expired large results stay and are billed; use a table for large results that is in one region, like the table of the records; if that table has strong consistency, too, set Options.Consistency to dynamostore.Strong (ONCE_CONSISTENCY=strong, --consistency strong)")}
	case t.MultiRegionConsistency == types.MultiRegionConsistencyStrong && !strong:
		return []error{errors.New("it is a global table with strong consistency (MRSC), and Options.Consistency is not set, so expired records stay and are billed, and transactions fail; set it to dynamostore.Strong in all functions of the table (ONCE_CONSISTENCY=strong, --consistency strong)")}
	case t.MultiRegionConsistency == types.MultiRegionConsistencyStrong:
		return s.strongProblems(t, regions)
	case regions != nil && strong:
		return []error{fmt.Errorf("Options.Consistency is strong, and it is a global table with eventual consistency (MREC), replicated to %s: %s; the consistency of a global table cannot be changed: create another table with strong consistency", strings.Join(regions, ", "), s.eventually())}
	case regions != nil:
		return []error{fmt.Errorf("it is a global table with eventual consistency (MREC), replicated to %s: %s; use a table in one region, one table per region with each key in one region, or a table with strong consistency", strings.Join(regions, ", "), s.eventually())}
	case strong && s.chunks == nil:
		return []error{fmt.Errorf("%w, so other regions cannot read its large results; create a table with strong consistency, like that of the records", errOneRegion)}
	case strong:
		return []error{fmt.Errorf("%w; create a table with strong consistency, or remove Options.Consistency (ONCE_CONSISTENCY) in all functions of the table", errOneRegion)}
	}
	return nil
}

// eventually returns what eventual consistency means for the items of the table.
func (s *Store) eventually() string {
	if s.chunks == nil {
		return "a region can find a record before its large result"
	}
	return "each region evaluates conditions on its own copy, so the handler of a key can run in two regions"
}

// strongReplicas is how many replicas a table with strong consistency has, its witness
// included.
const strongReplicas = 3

// strongProblems checks a table with strong consistency, whose other replicas are in
// these regions.
func (s *Store) strongProblems(t *types.TableDescription, others []string) (problems []error) {
	if replicas := 1 + len(others); replicas+len(t.GlobalTableWitnesses) < strongReplicas {
		problems = append(problems, fmt.Errorf("it has %d replicas and %d witnesses, and must have three replicas, or two and a witness: with fewer, an outage of one region stops the others; create another table", replicas, len(t.GlobalTableWitnesses)))
	}
	status := func(kind string, region *string, status string) {
		switch status {
		case "", string(types.ReplicaStatusActive), string(types.ReplicaStatusUpdating):
		case string(types.ReplicaStatusCreating):
			problems = append(problems, fmt.Errorf("its %s in %s %w; wait until it is ACTIVE", kind, aws.ToString(region), errCreating))
		default:
			problems = append(problems, fmt.Errorf("its %s in %s is %s and must be ACTIVE; find out why, or replace it", kind, aws.ToString(region), status))
		}
	}
	for _, r := range t.Replicas {
		status("replica", r.RegionName, string(r.ReplicaStatus))
	}
	for _, w := range t.GlobalTableWitnesses {
		status("witness", w.RegionName, string(w.WitnessStatus))
	}
	if s.opts.ScanEvery < 0 && s.chunks != nil {
		problems = append(problems, errors.New("scans are off, and a table with strong consistency has no time to live, so expired items stay and are billed; set Options.ScanEvery (ONCE_SCAN_EVERY) in the reconciler, or delete them with once purge"))
	}
	return problems
}

// strongTTLProblems checks the time to live of a table with strong consistency.
func strongTTLProblems(d *types.TimeToLiveDescription) []error {
	if d == nil || d.TimeToLiveStatus != types.TimeToLiveStatusEnabled && d.TimeToLiveStatus != types.TimeToLiveStatusEnabling {
		return nil
	}
	return []error{fmt.Errorf("its time to live is on for attribute %q, which a table with strong consistency does not support; switch it off: Store.Abandoned deletes expired items", aws.ToString(d.AttributeName))}
}

// otherRegions returns the regions of the table's replicas without the table's own
// region, which a global table of a single region lists too.
func otherRegions(t *types.TableDescription) (regions []string) {
	own, _ := arn.Parse(aws.ToString(t.TableArn)) // if the ARN is invalid, every replica counts
	for _, r := range t.Replicas {
		if region := aws.ToString(r.RegionName); region != own.Region {
			regions = append(regions, region)
		}
	}
	return regions
}
