package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/idempotent/driver"
)

// Client is the interface of a [dynamodb.Client] that a [Store] needs: single
// calls for records, batches for large results.
type Client interface {
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	BatchWriteItem(context.Context, *dynamodb.BatchWriteItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error)
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
}

// TableDescriber is the additional interface of a client for [Store.Check].
type TableDescriber interface {
	DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
	DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error)
}

// TableCreator is the additional interface of a client for [Store.CreateTable].
type TableCreator interface {
	TableDescriber
	CreateTable(context.Context, *dynamodb.CreateTableInput, ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error)
	UpdateTimeToLive(context.Context, *dynamodb.UpdateTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateTimeToLiveOutput, error)
}

var (
	_ Client            = (*dynamodb.Client)(nil)
	_ TableCreator      = (*dynamodb.Client)(nil)
	_ driver.Store      = (*Store)(nil)
	_ driver.ChunkStore = (*Store)(nil)
)

// Store is a [driver.Store] and [driver.ChunkStore] in a DynamoDB table. Make one
// with [New]. It is safe for concurrent use, and one per process is enough.
//
// DynamoDB stores text as UTF-8: invalid UTF-8 in a RequestID is stored as U+FFFD.
type Store struct {
	client Client
	table  string
	opts   Options
}

// Options are the options of [New]. The zero value of each field is its documented
// default.
type Options struct {
	// ConflictAttempts limits how often one call is tried while DynamoDB refuses
	// it because of another writer's transaction or region, or processes nothing
	// of a batch of chunks. The context's deadline limits it too. Twenty attempts
	// take about six seconds, plus the client's own retries. A conflict that lasts
	// longer is unlikely to end soon, and the handler needs the rest of the time.
	// Default: 20.
	ConflictAttempts int
}

const defaultConflictAttempts = 20

// New returns a store in the table with that name or ARN. It returns an error if
// an argument is invalid. It does not call AWS; use [Store.Check] for that.
//
// Any client works, but the retries of the SDK's default client take seconds: see
// [NewClient].
func New(client Client, table string, optFns ...func(*Options)) (*Store, error) {
	if client == nil {
		return nil, errors.New("dynamostore: New: missing client: make one with NewClient")
	}
	if err := validateTable(table); err != nil {
		return nil, err
	}
	s := &Store{client: client, table: table}
	for _, f := range optFns {
		f(&s.opts)
	}
	switch {
	case s.opts.ConflictAttempts < 0:
		return nil, fmt.Errorf("dynamostore: Options.ConflictAttempts is %d; it must be at least 1 (or zero for the default)", s.opts.ConflictAttempts)
	case s.opts.ConflictAttempts == 0:
		s.opts.ConflictAttempts = defaultConflictAttempts
	}
	return s, nil
}

// Table returns the name or ARN given to [New].
func (s *Store) Table() string { return s.table }

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
	a, err := arn.Parse(table)
	// The ARN of an index or a stream continues after the table's name.
	name, found := strings.CutPrefix(a.Resource, "table/")
	if err != nil || a.Service != "dynamodb" || a.Region == "" || a.AccountID == "" || !found || !isTableName(name) {
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
