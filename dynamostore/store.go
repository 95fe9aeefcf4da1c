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

// Client is what a [Store] needs of a [dynamodb.Client]: for its records, and
// in batches for the large results beside them.
type Client interface {
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	BatchWriteItem(context.Context, *dynamodb.BatchWriteItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error)
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
}

// TableDescriber is what [Store.Check] needs besides.
type TableDescriber interface {
	DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
	DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error)
}

// TableCreator is what [Store.CreateTable] needs besides.
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

// Store is an [driver.Store] and [driver.ChunkStore] in a DynamoDB
// table. Make one with [New]; it is safe for concurrent use, and one per process
// is enough.
//
// DynamoDB keeps text as UTF-8: bytes of a RequestID that are none come back as
// U+FFFD.
type Store struct {
	client Client
	table  string
	opts   Options
}

// Options are given to [New]. The zero value of each field is its documented
// default.
type Options struct {
	// ConflictAttempts bounds how often one call is tried while DynamoDB
	// refuses it for another writer's transaction or region, or is too busy to
	// do anything of a batch of chunks. The context's deadline bounds it too.
	// Twenty attempts take about six seconds, and what the client spends on
	// retries of its own: whoever is in the way for longer will not go soon, and
	// the handler needs the rest of the time. Default: 20.
	ConflictAttempts int
}

// defaultConflictAttempts is what a zero Options.ConflictAttempts means.
const defaultConflictAttempts = 20

// New returns a store on the table of that name or ARN. It does not call AWS;
// see [Store.Check] for that. The error says which argument is wrong.
//
// Any client will do, but the default one spends seconds on retries: see
// [NewClient].
func New(client Client, table string, optFns ...func(*Options)) (*Store, error) {
	if client == nil {
		return nil, errors.New("dynamostore: New wants a client, got nil; make one with NewClient")
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

// Table returns the name or ARN that the store was made with.
func (s *Store) Table() string { return s.table }

// validateTable checks a table's name, or its ARN, which every call accepts in
// the name's place.
func validateTable(table string) error {
	if table == "" {
		return errors.New("dynamostore: the table's name is empty; is the environment variable set that names it?")
	}
	if !arn.IsARN(table) {
		if !isTableName(table) {
			return fmt.Errorf("dynamostore: %q is not a table name: 3 to 255 of a-z, A-Z, 0-9, _, - and . (or a table's ARN)", table)
		}
		return nil
	}
	a, err := arn.Parse(table)
	// An index or a stream has more behind the table's name.
	name, found := strings.CutPrefix(a.Resource, "table/")
	if err != nil || a.Service != "dynamodb" || a.Region == "" || a.AccountID == "" || !found || !isTableName(name) {
		return fmt.Errorf("dynamostore: %q is not the ARN of a table: arn:aws:dynamodb:REGION:ACCOUNT:table/NAME", table)
	}
	return nil
}

// isTableName applies the rule of the developer guide, "Supported data types
// and naming rules in Amazon DynamoDB".
func isTableName(s string) bool {
	return len(s) >= 3 && len(s) <= 255 && strings.Trim(s, tableNameChars) == ""
}

const tableNameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
