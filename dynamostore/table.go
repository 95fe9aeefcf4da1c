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
	others := o.Replicas
	if o.Witness != "" {
		others = append(slices.Clone(others), o.Witness)
	}
	switch {
	case c == "" && len(others) > 0:
		return fmt.Errorf("dynamostore: CreateTable: CreateOptions.Replicas and Witness are for Options.Consistency %q", Strong)
	case c == Strong && (len(others) != 2 || len(o.Replicas) == 0):
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
		problems = append(problems, indexProblems(t)...)
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
	if s.layout.prefix != "" && s.opts.Consistency == Strong {
		return []error{fmt.Errorf("it has other items, and each scan reads all %d GB (%d read units); use another table, or scan less often with Options.ScanEvery: expired records then stay for longer; if your functions do, set it here, too", size>>30, size/(8<<10))}
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
