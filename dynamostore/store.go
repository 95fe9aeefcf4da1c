// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// Client has the methods of a [dynamodb.Client] that a [Store] calls. A fake for
// tests can embed a Client and implement only the methods that the test needs.
type Client interface {
	// For records and large results.
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
	BatchWriteItem(context.Context, *dynamodb.BatchWriteItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error)
	// For Commit and CommitStep.
	TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
	// For Store.Due and Store.Exhausted.
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	// For Store.Abandoned, Store.Running, Store.Scan, Options.NoIndex, Store.Delete
	// and Store.PurgeChunks.
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
	DeleteItem(context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error)
	// For Store.Check and Store.CreateTable.
	DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
	DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error)
	CreateTable(context.Context, *dynamodb.CreateTableInput, ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error)
	UpdateTimeToLive(context.Context, *dynamodb.UpdateTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateTimeToLiveOutput, error)
	UpdateTable(context.Context, *dynamodb.UpdateTableInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateTableOutput, error)
}

var (
	_ Client                 = (*dynamodb.Client)(nil)
	_ driver.Store           = (*Store)(nil)
	_ driver.ChunkStore      = (*Store)(nil)
	_ driver.AbandonedLister = (*Store)(nil)
)

// Store is a [driver.Store] and [driver.ChunkStore] in a DynamoDB table. Make one
// with [New]. It is safe for concurrent use, and one per process is enough.
//
// DynamoDB stores text as UTF-8: invalid UTF-8 in a RequestID is stored as U+FFFD.
type Store struct {
	client Client
	table  string
	opts   Options
	layout *layout
	chunks *Store // of Options.ChunkTable, or the store itself; nil in the former
}

// Options are the options of [New]. The zero value of each field is its documented
// default.
type Options struct {
	// Name selects one of several tables of a process for [Open], whose variables then end
	// with it: with "orders", Open reads ONCE_TABLE_ORDERS, ONCE_CHUNK_TABLE_ORDERS and so
	// on, and no variable without the name. It consists of lower-case letters, digits and
	// hyphens. [New] refuses it. Default: the variables have no suffix.
	Name string

	// Client is what [Open] calls DynamoDB with. [New] takes it as an argument. Default:
	// that of [NewClient] with the SDK's default configuration.
	Client Client

	// NoWarmUp switches off the call that [Open] makes while an environment of Lambda starts.
	// [New] makes none and refuses it. Default: one call.
	NoWarmUp bool

	// ChunkTable is the name or ARN of a table for results above 4 KB, so that a scan
	// of the store's table does not read them. It has the same key and time to live,
	// and no index. Set it in all functions that use the table, or in none. Results
	// that were stored before it was set are still found. Default: the store's table.
	ChunkTable string

	// Consistency is [Strong] if the table is a global table with multi-Region strong
	// consistency (MRSC). A handler then runs at most once for a key in all of its regions
	// together. DynamoDB has no time to live and no transactions in such a table: the
	// passes of [Store.Abandoned] delete expired items, and [Commit] and [CommitStep] are
	// refused. [Store.Check] compares the table. Set it in all functions that use the
	// table. Options.ChunkTable has the same consistency. Default: the table is in one
	// region.
	Consistency Consistency

	// ScanEvery is the longest pause between two passes of [Store.Abandoned] over the
	// table. A negative value switches them off: a run whose process ended without a
	// warning is then found by the next request with its key. Default: 24 h.
	ScanEvery time.Duration

	// ScanSegments is how many parts of the table Abandoned reads in parallel, 1 to
	// 1,000. Default: 1.
	ScanSegments int

	// NoIndex, if set, is for a table whose index is missing. The lists read the whole
	// table with these options and cost as much as [Store.Scan], and they begin when all
	// of it has been read. Due then lists the records in progress too, so Running and
	// Abandoned list nothing. Default: the lists read the index.
	NoIndex *ScanOptions

	// PartitionKey, SortKey and TTLAttribute are the names of the table's attributes:
	// its keys, which are strings, and its time to live. Prefix begins the partition
	// key of every item of the store. They serve a table that has other items, too: the
	// store neither returns nor writes an item without the prefix, but a scan is billed
	// for all items. With a SortKey, Prefix is required, and the sort key of every item
	// is equal to its partition key.
	//
	// Set them in all functions that use the table; records under another prefix are
	// not found. Choose a prefix with which no other key of the table begins, and that
	// ends in neither a letter nor a digit: ONCE#. Options.ChunkTable has the same
	// layout. Defaults: pk, none, ttl, and no prefix.
	PartitionKey, SortKey, TTLAttribute string
	Prefix                              string
}

// ScanOptions are the options of [Store.Scan] and Options.NoIndex. The zero
// value of each field is its documented default.
type ScanOptions struct {
	// Segments is how many parts of the table are read in parallel. Default: 4.
	Segments int
	// Progress is called after every page with the amount read so far, by one
	// goroutine at a time. Default: no call.
	Progress func(ScanProgress)
}

// ScanProgress is the progress of a scan.
type ScanProgress struct {
	Items     int     // items read, including chunks of large results
	ReadUnits float64 // read units consumed: half a unit for each 4 KB read
}

// Consistency is the consistency of a table across regions.
type Consistency string

// Strong means that a condition is evaluated on the latest version of an item in every
// region of the table.
const Strong Consistency = tabledef.Strong

const (
	defaultScanEvery = 24 * time.Hour
	// conflictAttempts limits how often one call is tried while DynamoDB refuses it because
	// of another writer's transaction or region, or processes nothing of a batch of chunks.
	// The context's deadline limits it too. Twenty attempts take about six seconds, plus
	// the client's own retries. A conflict that lasts longer is unlikely to end soon, and
	// the handler needs the rest of the time.
	conflictAttempts = 20
	// scanUnits is how many read units a second a pass takes for each segment: 8 MB. A
	// partition has 3,000.
	scanUnits = 1000
)

// setDefaults checks the options and sets the defaults.
func (o *Options) setDefaults() error {
	switch {
	case o.ScanSegments < 0 || o.ScanSegments > 1000:
		return fmt.Errorf("dynamostore: Options.ScanSegments is %d; it must be 1 to 1,000 (or zero for the default)", o.ScanSegments)
	case o.Consistency != "" && o.Consistency != Strong:
		return fmt.Errorf("dynamostore: invalid Options.Consistency %q: want %q, or nothing for a table in one region", o.Consistency, Strong)
	case o.ScanEvery == 0:
		o.ScanEvery = defaultScanEvery
	}
	o.ScanSegments = cmp.Or(o.ScanSegments, 1)
	o.PartitionKey = cmp.Or(o.PartitionKey, tabledef.PartitionKey)
	o.TTLAttribute = cmp.Or(o.TTLAttribute, tabledef.TTLAttribute)
	if o.ChunkTable != "" {
		return validateTable(o.ChunkTable)
	}
	return nil
}

// New returns a store in the table with that name or ARN. It returns an error if
// an argument is invalid. It does not call AWS; use [Store.Check] for that.
//
// Any client works, but the retries of the SDK's default client take seconds: see
// [NewClient].
func New(client Client, table string, optFns ...func(*Options)) (*Store, error) {
	if client == nil {
		return nil, errors.New("dynamostore: New: missing client: make one with NewClient")
	}
	s, err := newStore(client, table, optFns)
	if err == nil && (s.opts.Name != "" || s.opts.Client != nil || s.opts.NoWarmUp) {
		return nil, errors.New("dynamostore: New: Options.Name, Client and NoWarmUp are for Open: New reads no environment, has a client, and makes no call")
	}
	return s, err
}

func newStore(client Client, table string, optFns []func(*Options)) (*Store, error) {
	if err := validateTable(table); err != nil {
		return nil, err
	}
	s := &Store{client: client, table: table}
	for _, f := range optFns {
		f(&s.opts)
	}
	err := s.opts.setDefaults()
	if err != nil {
		return nil, err
	}
	s.layout, err = newLayout(layout{partitionKey: s.opts.PartitionKey, sortKey: s.opts.SortKey, ttl: s.opts.TTLAttribute, prefix: s.opts.Prefix})
	if err != nil {
		return nil, err
	}
	s.chunks = s
	if s.opts.ChunkTable != "" && s.opts.ChunkTable != table {
		s.chunks = &Store{client: client, table: s.opts.ChunkTable, opts: s.opts, layout: s.layout}
	}
	return s, nil
}

// Table returns the name or ARN given to [New].
func (s *Store) Table() string { return s.table }

// chunkStores returns the stores whose tables can hold chunks. The store's own
// table holds those that were written before Options.ChunkTable was set.
func (s *Store) chunkStores() []*Store {
	if s.chunks == s {
		return []*Store{s}
	}
	return []*Store{s.chunks, s}
}

// validateTable checks a table's name or ARN. DynamoDB accepts an ARN as the name
// in every call.
func validateTable(table string) error {
	if table == "" {
		return errors.New("dynamostore: empty table name: is the environment variable set that contains it?")
	}
	if !arn.IsARN(table) {
		if !isTableName(table) {
			return fmt.Errorf("dynamostore: invalid table name %q: want 3 to 255 of a-z, A-Z, 0-9, _, - and . (or a table's ARN)", table)
		}
		return nil
	}
	a, _ := arn.Parse(table) // without a service if it is invalid
	// The ARN of an index or a stream continues after the table's name.
	name, found := strings.CutPrefix(a.Resource, "table/")
	if a.Service != "dynamodb" || a.Region == "" || a.AccountID == "" || !found || !isTableName(name) {
		return fmt.Errorf("dynamostore: invalid table ARN %q: want arn:aws:dynamodb:REGION:ACCOUNT:table/NAME", table)
	}
	return nil
}

// isTableName applies the rule of the developer guide, "Supported data types and
// naming rules in Amazon DynamoDB".
func isTableName(s string) bool {
	return len(s) >= 3 && len(s) <= 255 && strings.Trim(s, tableNameChars) == ""
}

const tableNameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."

// Get returns the record id, expired or not, or [idempotent.ErrNoRecord]. The read
// is consistent: it costs one read unit per 4 KB and sees every write that was
// acknowledged before. See [driver.Store].
func (s *Store) Get(ctx context.Context, id driver.RecordID) (*driver.Record, error) {
	in := &dynamodb.GetItemInput{
		TableName:      aws.String(s.table),
		Key:            s.layout.keyOf(string(id)),
		ConsistentRead: aws.Bool(true),
	}
	var out *dynamodb.GetItemOutput
	err := s.persist(ctx, func() (err error) {
		out, err = s.client.GetItem(ctx, in)
		return err
	})
	if err != nil {
		return nil, s.explain("GetItem", err)
	}
	if len(out.Item) == 0 {
		return nil, driver.ErrNoRecord
	}
	return s.layout.decode(out.Item)
}

// Insert writes r if there is no record of that id, or one that has expired by
// now. Otherwise it returns the current record. See [driver.Store].
func (s *Store) Insert(ctx context.Context, r driver.Record, now time.Time) (*driver.Record, error) {
	standing, refused, err := s.put(ctx, &r, s.layout.mayInsert, s.layout.keyNames, ":now", number(now.UnixMilli()))
	if err != nil || !refused {
		return nil, err
	}
	if len(standing) == 0 {
		return nil, errNothingReturned
	}
	return s.layout.decode(standing)
}

// errNothingReturned means that the endpoint is not DynamoDB: the condition can
// fail only if there is an item, and the request asked for that item.
var errNothingReturned = errors.New("dynamostore: the insert was refused without the current record: the endpoint ignores ReturnValuesOnConditionCheckFailure (an emulator or a proxy that is too old?)")

// replaceCondition is false if there is no item, so a replace never creates one.
// UpdateItem with another condition could.
const replaceCondition = attrVersion + " = :was"

// Replace writes all of r, including the attributes that a later version had
// written, if the record has the version was. Otherwise it returns the current
// record, or [idempotent.ErrNoRecord]. See [driver.Store].
func (s *Store) Replace(ctx context.Context, r driver.Record, was driver.Version) (*driver.Record, error) {
	standing, refused, err := s.put(ctx, &r, replaceCondition, nil, ":was", &types.AttributeValueMemberB{Value: was[:]})
	if err != nil || !refused {
		return nil, err
	}
	return s.standing(ctx, r.ID, was, standing)
}

// standing returns the current record after a write on the version was had been
// refused. Such a write also fails if there is no record; then DynamoDB returns no
// item. But an endpoint that ignores ReturnValuesOnConditionCheckFailure never
// returns an item. If that counted as a missing record, the handler could run
// twice. If it were an error, the outcome for a deleted record would stay unknown.
// So a consistent read decides.
func (s *Store) standing(ctx context.Context, id driver.RecordID, was driver.Version, returned item) (*driver.Record, error) {
	if len(returned) > 0 {
		return s.layout.decode(returned)
	}
	r, err := s.Get(ctx, id)
	if err == nil && r.Version == was {
		return nil, errContradiction
	}
	return r, err
}

// errContradiction is returned if a write was refused although the record has the
// expected version. Versions never recur, so the write should have succeeded.
var errContradiction = errors.New("dynamostore: a write was refused although the record has the expected version: it was written at the same moment, or the endpoint ignores ReturnValuesOnConditionCheckFailure (an emulator or a proxy that is too old?)")

// put writes r if condition holds. Otherwise it reports a refusal and returns the
// current item, which DynamoDB returns with the refusal at "no additional cost"
// and with "no read capacity units" (API reference, PutItem,
// ReturnValuesOnConditionCheckFailure). The returned item is empty if there is no
// item.
func (s *Store) put(
	ctx context.Context, r *driver.Record, condition string, names map[string]string, placeholder string, value types.AttributeValue,
) (standing item, refused bool, err error) {
	it, err := s.layout.encode(r)
	if err != nil {
		return nil, false, err
	}
	if err := checkSize(it); err != nil {
		return nil, false, err
	}
	in := &dynamodb.PutItemInput{
		TableName:                           aws.String(s.table),
		Item:                                it,
		ConditionExpression:                 aws.String(condition),
		ExpressionAttributeNames:            names,
		ExpressionAttributeValues:           map[string]types.AttributeValue{placeholder: value},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	err = s.persist(ctx, func() error {
		_, err := s.client.PutItem(ctx, in)
		return err
	})
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return failed.Item, true, nil
	}
	return nil, false, s.explain("PutItem", err)
}

// deleteItem deletes an item. It repeats conflicts as persist does.
func (s *Store) deleteItem(ctx context.Context, in *dynamodb.DeleteItemInput) (out *dynamodb.DeleteItemOutput, err error) {
	err = s.persist(ctx, func() (err error) {
		out, err = s.client.DeleteItem(ctx, in)
		return err
	})
	return out, err
}

// explain adds to the SDK's error of an operation what to do about it. The cause
// stays available to errors.As. Neither contains a key or a result.
func (s *Store) explain(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("dynamostore: %s on table %q: %w", operation, s.table, advise(operation, err))
}

// advise adds to err what to do about it.
func advise(operation string, err error) error {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return err
	}
	switch code := api.ErrorCode(); {
	case code == "ValidationException" && isItemSize(api.ErrorMessage()):
		return fmt.Errorf("%w: %w", driver.ErrTooLarge, err)
	case code == "ValidationException" && operation == "Query":
		return fmt.Errorf("%w; check that the table has the index %q with Store.Check, or work without it with Options.NoIndex", err, tabledef.IndexName)
	case code == "ValidationException" && operation == "UpdateTable":
		return fmt.Errorf("%w; the table is now in one region: delete it, and create it with regions that AWS combines for strong consistency", err)
	case code == "ValidationException":
		return fmt.Errorf("%w; check the table's keys with Store.Check", err)
	case code == "ResourceNotFoundException" && operation == "Query":
		return fmt.Errorf("%w; the table or its index %q does not exist in this account, region and endpoint: check both with Store.Check", err, tabledef.IndexName)
	case code == "ResourceNotFoundException":
		return fmt.Errorf("%w; the table does not exist in this account, region and endpoint: correct them, or create it (Store.CreateTable, or your infrastructure code)", err)
	case code == "AccessDeniedException" && operation == "Query":
		return fmt.Errorf("%w; allow dynamodb:Query on the table's index %q", err, tabledef.IndexName)
	case code == "AccessDeniedException":
		return fmt.Errorf("%w; allow dynamodb:%s on the table", err, operation)
	}
	return err
}

// isDenied reports whether the role lacks a permission.
func isDenied(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && api.ErrorCode() == "AccessDeniedException"
}

// isItemSize recognises the refusal of an item that is too large. DynamoDB has no
// code for it, only messages: "Item size has exceeded the maximum allowed size",
// and with an index "Item size to update has exceeded …".
func isItemSize(message string) bool {
	message = strings.ToLower(message)
	return strings.Contains(message, "item size") && strings.Contains(message, "exceeded")
}

// The pause before a retry after a conflict: about conflictBase after the first
// attempt, doubled each time, at most conflictMax. A transaction or a replicated
// write holds an item for some milliseconds.
const (
	conflictBase = 10 * time.Millisecond
	conflictMax  = 500 * time.Millisecond
)

// persist repeats a call while DynamoDB refuses it because of another writer: a
// transaction on the item, or a write to it in another region. Such a refusal
// wrote nothing and soon passes, but the SDK does not retry it.
//
// persist makes at most conflictAttempts attempts and ends with the
// context. It does not start a pause that the deadline would cut short, so that
// the caller can use that time to answer.
func (s *Store) persist(ctx context.Context, call func() error) error {
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := call()
		if !isConflict(err) {
			return err
		}
		if err := s.pause(ctx, attempt, "another writer was in the way", err); err != nil {
			return err
		}
	}
}

// pause waits until the next attempt is allowed. If no further attempt is allowed,
// it returns an error with what happened at each attempt, and err.
func (s *Store) pause(ctx context.Context, attempt int, happened string, err error) error {
	switch again, cause := s.waits(ctx, attempt); {
	case cause != nil:
		return fmt.Errorf("%w after %s at each of %d attempts: %w", cause, happened, attempt, err)
	case !again:
		return fmt.Errorf("%s at each of %d attempts: %w", happened, attempt, err)
	}
	return nil
}

// waits waits until the next attempt, and reports whether it is allowed: the
// number of attempts is limited, and a pause that the deadline would cut short
// does not start. The error is the context's if it ended during the pause.
func (s *Store) waits(ctx context.Context, attempt int) (again bool, err error) {
	delay := conflictDelay(attempt)
	deadline, ok := ctx.Deadline()
	if attempt >= conflictAttempts || ok && time.Until(deadline) <= delay {
		return false, nil
	}
	if err := sleep(ctx, delay); err != nil {
		return false, err
	}
	return true, nil
}

// isConflict reports whether err is one of the two refusals that persist retries
// (API reference, PutItem, Errors).
func isConflict(err error) bool {
	if _, ok := errors.AsType[*types.TransactionConflictException](err); ok {
		return true
	}
	_, ok := errors.AsType[*types.ReplicatedWriteConflictException](err)
	return ok
}

// conflictDelay returns the pause after a failed attempt, counted from 1.
func conflictDelay(attempt int) time.Duration {
	return backoff(conflictBase, conflictMax, attempt-1)
}

// backoff returns base doubled so many times, at most limit, shortened at random
// by up to a half, so that writers that collided do not collide again.
func backoff(base, limit time.Duration, doublings int) time.Duration {
	d := limit
	if doublings < 32 {
		d = min(base<<doublings, limit)
	}
	return d - rand.N(d/2)
}

// sleep waits for d, or until ctx ends, and then returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
