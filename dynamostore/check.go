package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
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
// records, replicas in other regions. Use it at deploy time, in tests and on the
// command line, not at every start of a function: it makes two calls.
//
// It needs dynamodb:DescribeTable and dynamodb:DescribeTimeToLive. The client
// given to [New] has to be a [TableDescriber].
func (s *Store) Check(ctx context.Context) error {
	client, ok := s.client.(TableDescriber)
	if !ok {
		return fmt.Errorf("dynamostore: Check needs a client with DescribeTable and DescribeTimeToLive; %T lacks them", s.client)
	}
	table, err := s.describe(ctx, client)
	if err != nil {
		return s.schemaError([]error{advise("DescribeTable", err)})
	}
	problems := tableProblems(table)
	if table.MultiRegionConsistency != types.MultiRegionConsistencyStrong { // these tables have no time to live
		ttl, err := client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: aws.String(s.table)})
		if err != nil {
			problems = append(problems, advise("DescribeTimeToLive", err))
		} else {
			problems = append(problems, ttlProblems(ttl.TimeToLiveDescription)...)
		}
	}
	return s.schemaError(problems)
}

func (s *Store) schemaError(problems []error) error {
	if len(problems) == 0 {
		return nil
	}
	return &SchemaError{Table: s.table, Problems: problems}
}

// describe returns the table's description, or the SDK's error.
func (s *Store) describe(ctx context.Context, client TableDescriber) (*types.TableDescription, error) {
	out, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: aws.String(s.table)})
	if err != nil {
		return nil, err
	}
	if out.Table == nil {
		return nil, errors.New("the reply contains no table description")
	}
	return out.Table, nil
}

// tableProblems checks everything but the time to live.
func tableProblems(t *types.TableDescription) (problems []error) {
	switch t.TableStatus {
	case types.TableStatusActive, types.TableStatusUpdating:
	default:
		problems = append(problems, fmt.Errorf("it is %s; wait until it is ACTIVE, or find out why it stays in this state", t.TableStatus))
	}
	want := []key{{PartitionKey, types.KeyTypeHash, types.ScalarAttributeTypeS}}
	if got := keysOf(t.KeySchema, t.AttributeDefinitions); !slices.Equal(got, want) {
		problems = append(problems, fmt.Errorf("its key is %s and must be %s; keys cannot be changed: create another table", describeKeys(got), describeKeys(want)))
	}
	problems = append(problems, indexProblems(t)...)
	return append(problems, replicaProblems(t)...)
}

// indexProblems checks the index from which reconciliation lists due records.
func indexProblems(t *types.TableDescription) (problems []error) {
	index := findIndex(t)
	if index == nil {
		return []error{fmt.Errorf("it has no index %q, so reconciliation finds no records; add it, with key %s and projection KEYS_ONLY", IndexName, describeKeys(indexKeys()))}
	}
	if got := keysOf(index.KeySchema, t.AttributeDefinitions); !slices.Equal(got, indexKeys()) {
		problems = append(problems, fmt.Errorf("the key of its index %q is %s and must be %s; delete the index and create it again", IndexName, describeKeys(got), describeKeys(indexKeys())))
	}
	if p := index.Projection; p == nil || p.ProjectionType != types.ProjectionTypeKeysOnly {
		problems = append(problems, fmt.Errorf("its index %q projects more than keys, so every write costs twice and stored results are copied; delete the index and create it again with projection KEYS_ONLY", IndexName))
	}
	switch index.IndexStatus {
	case types.IndexStatusActive, types.IndexStatusUpdating:
	default:
		problems = append(problems, fmt.Errorf("its index %q is %s; wait until it is ACTIVE", IndexName, index.IndexStatus))
	}
	return problems
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

func ttlProblems(d *types.TimeToLiveDescription) []error {
	if d == nil {
		d = &types.TimeToLiveDescription{}
	}
	switch d.TimeToLiveStatus {
	case types.TimeToLiveStatusEnabled, types.TimeToLiveStatusEnabling:
		if got := aws.ToString(d.AttributeName); got != TTLAttribute {
			return []error{fmt.Errorf("its time to live is on attribute %q and must be on %q; switch it off and, an hour later, on again (DynamoDB accepts one change per hour)", got, TTLAttribute)}
		}
		return nil
	default: // off, or being switched off
		return []error{fmt.Errorf("%w; switch it on for attribute %q, or expired records stay and are billed for ever", errTTLOff, TTLAttribute)}
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
