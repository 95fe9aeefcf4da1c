// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"crypto/rand"
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
)

// CreateTable creates the table with its index and on-demand billing, waits until
// it is ACTIVE and switches its time to live on. It does the same with
// Options.ChunkTable, which has no index. It is for tests and local use. In
// production create the table with infrastructure code, where backups, deletion
// protection and encryption are decided.
//
// An existing table is checked and never changed. Several processes may call
// CreateTable at the same time: one creates the table, and all return when it can
// be used. The wait ends with the context, and after three minutes.
//
// It needs dynamodb:CreateTable and dynamodb:UpdateTimeToLive and the permissions
// of [Store.Check].
func (s *Store) CreateTable(ctx context.Context) error {
	for _, store := range s.chunkStores() {
		if err := store.createTable(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) createTable(ctx context.Context) error {
	created, err := s.createIfMissing(ctx)
	if err != nil {
		return err
	}
	if err := s.waitActive(ctx); err != nil {
		return err
	}
	if created {
		_, err = s.client.UpdateTimeToLive(ctx, s.ttlInput())
		err = s.explain("UpdateTimeToLive", err)
	}
	if checked := s.checkSoon(ctx); checked != nil {
		return errors.Join(err, checked)
	}
	return nil // err can be set here: another process had switched it on
}

// createIfMissing creates the table unless it exists, and reports whether this
// call created it.
func (s *Store) createIfMissing(ctx context.Context) (created bool, err error) {
	if _, err := s.describe(ctx); !isMissing(err) {
		return false, s.explain("DescribeTable", err)
	}
	_, err = s.client.CreateTable(ctx, s.tableInput())
	if _, ok := errors.AsType[*types.ResourceInUseException](err); ok {
		return false, nil // another process was faster
	}
	return err == nil, s.explain("CreateTable", err)
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

// checkSoon checks the table. If only the time to live is wrong, it gives the
// process that created the table some time to switch it on.
func (s *Store) checkSoon(ctx context.Context) error {
	return poll(ctx, ttlPatience, func() (bool, error) {
		err := s.check(ctx)
		schema, ok := errors.AsType[*SchemaError](err)
		soon := ok && len(schema.Problems) == 1 && errors.Is(err, errTTLOff)
		return !soon, err
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
// records, replicas in other regions, and large results in more than 1 GB that
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
	isDenied := func(err error) bool {
		api, ok := errors.AsType[smithy.APIError](err)
		return ok && api.ErrorCode() == "AccessDeniedException"
	}
	if s.chunks != nil && !slices.ContainsFunc(problems, func(err error) bool { return !isDenied(err) }) {
		if err := s.tryClaim(ctx); isDenied(err) {
			problems = append(problems, fmt.Errorf("a claim was denied (a viewer may not write, a function must): %w", err))
		} else if err != nil {
			problems = append(problems, fmt.Errorf("a claim failed: %w", err))
		}
		if err := s.tryList(ctx); err != nil {
			problems = append(problems, fmt.Errorf("a query of the index %q failed: %w", IndexName, err))
		}
	}
	return s.schemaError(problems)
}

// tryClaim writes a record on a condition that no item meets.
func (s *Store) tryClaim(ctx context.Context) error {
	var hash [32]byte
	var never driver.Version
	rand.Read(hash[:]) // it does not fail
	rand.Read(never[:])
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
const listCondition = IndexPartitionKey + " = :shard"

// tryList reads the first entry of a shard of the index.
func (s *Store) tryList(ctx context.Context) error {
	_, err := s.client.Query(ctx, &dynamodb.QueryInput{
		TableName: aws.String(s.table), IndexName: aws.String(IndexName),
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
	if table.MultiRegionConsistency != types.MultiRegionConsistencyStrong { // these tables have no time to live
		ttl, err := s.client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: aws.String(s.table)})
		if err != nil {
			problems = append(problems, advise("DescribeTimeToLive", err))
		} else {
			problems = append(problems, s.layout.ttlProblems(ttl.TimeToLiveDescription)...)
		}
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
		problems = append(problems, indexProblems(t)...)
		problems = append(problems, s.scanProblems(t)...)
	}
	return append(problems, replicaProblems(t)...)
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
	case len(got) == 2 && len(want) == 1:
		return create + ", or name its keys in Options.PartitionKey and SortKey, with a Prefix"
	case len(got) == 1 && len(want) == 2:
		return create + ", or remove Options.SortKey"
	case len(got) == len(want) && got[0].name != want[0].name:
		return create + ", or name its keys in Options.PartitionKey and SortKey"
	}
	return create
}

// otherIndexProblems checks the keys of the other indexes. An index on an attribute
// of records would contain records, or refuse them if its type is another one.
func otherIndexProblems(t *types.TableDescription) (problems []error) {
	check := func(name *string, schema []types.KeySchemaElement) {
		for _, k := range keysOf(schema, t.AttributeDefinitions) {
			if k.name != IndexPartitionKey && k.name != IndexSortKey && reserved(k.name) {
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
	if s.layout.prefix != "" {
		return []error{fmt.Errorf("it has other items, and each scan for abandoned runs reads all %d GB (%d read units); scan less often with Options.ScanEvery, or switch scans off: runs that are killed at their deadline are found without them; if your functions do, set it here, too", size>>30, size/(8<<10))}
	}
	if s.chunks != s || size/items < largeItem {
		return nil
	}
	return []error{fmt.Errorf("its items have %d KB on average, so it contains large results, and each scan for abandoned runs reads %d GB (%d read units); store large results in another table with Options.ChunkTable, or scan less often with Options.ScanEvery; if your functions do, set it here, too", size/items>>10, size>>30, size/(8<<10))}
}

// indexProblems checks the index from which reconciliation lists due records.
func indexProblems(t *types.TableDescription) (problems []error) {
	index := findIndex(t)
	if index == nil {
		return []error{fmt.Errorf("it has no index %q, so reconciliation finds no records; add it, with key %s and projection %s", IndexName, describeKeys(indexKeys()), describeProjection())}
	}
	if got := keysOf(index.KeySchema, t.AttributeDefinitions); !slices.Equal(got, indexKeys()) {
		problems = append(problems, fmt.Errorf("the key of its index %q is %s and must be %s; delete the index and create it again", IndexName, describeKeys(got), describeKeys(indexKeys())))
	}
	if p := index.Projection; p == nil || p.ProjectionType != types.ProjectionTypeInclude || !sameNames(p.NonKeyAttributes, IndexAttributes()) {
		problems = append(problems, fmt.Errorf("its index %q must project its keys and %s: with less, reconciliation cannot list records; with more, writes cost more and stored results are copied; delete the index and create it again with projection %s", IndexName, strings.Join(IndexAttributes(), ", "), describeProjection()))
	}
	switch index.IndexStatus {
	case types.IndexStatusActive, types.IndexStatusUpdating:
	default:
		problems = append(problems, fmt.Errorf("its index %q is %s; wait until it is ACTIVE", IndexName, index.IndexStatus))
	}
	return problems
}

// sameNames reports whether a and b have the same names, in any order.
func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// describeProjection returns the projection of the index as text.
func describeProjection() string {
	return fmt.Sprintf("%s (%s)", types.ProjectionTypeInclude, strings.Join(IndexAttributes(), ", "))
}

func findIndex(t *types.TableDescription) *types.GlobalSecondaryIndexDescription {
	for i := range t.GlobalSecondaryIndexes {
		if index := &t.GlobalSecondaryIndexes[i]; aws.ToString(index.IndexName) == IndexName {
			return index
		}
	}
	return nil
}

// errTTLOff is a problem that goes away by itself if another process is creating
// the table.
var errTTLOff = errors.New("its time to live is off")

func (l *layout) ttlProblems(d *types.TimeToLiveDescription) []error {
	if d == nil {
		d = &types.TimeToLiveDescription{}
	}
	switch d.TimeToLiveStatus {
	case types.TimeToLiveStatusEnabled, types.TimeToLiveStatusEnabling:
		if got := aws.ToString(d.AttributeName); got != l.ttl {
			return []error{fmt.Errorf("its time to live is on attribute %q and must be on %q; name it in Options.TTLAttribute, or switch it off and, an hour later, on again (DynamoDB accepts one change per hour)", got, l.ttl)}
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
		{IndexPartitionKey, types.KeyTypeHash, types.ScalarAttributeTypeS},
		{IndexSortKey, types.KeyTypeRange, types.ScalarAttributeTypeN},
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

// replicaProblems checks for global tables (developer guide, "How DynamoDB global
// tables work"). Neither kind gives the guarantees that a store needs.
func replicaProblems(t *types.TableDescription) []error {
	if t.MultiRegionConsistency == types.MultiRegionConsistencyStrong {
		return []error{errors.New("it is a global table with strong consistency (MRSC), which supports neither time to live nor transactions; use a table in one region")}
	}
	regions := otherRegions(t)
	if regions == nil && aws.ToString(t.GlobalTableVersion) == globalTables2017 {
		regions = []string{"other regions"}
	}
	if regions == nil {
		return nil
	}
	return []error{fmt.Errorf("it is a global table with eventual consistency (MREC), replicated to %s: each region evaluates conditions on its own copy, so the handler of a key can run in two regions; use a table in one region, or one table per region and send each key to one region", strings.Join(regions, ", "))}
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
			IndexName:  aws.String(IndexName),
			KeySchema:  schema(indexKeys()),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeInclude, NonKeyAttributes: IndexAttributes()},
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
