package dynamostore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent/driver"
)

// Transactor is what [Commit] and [CommitStep] need of a client besides.
type Transactor interface {
	TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
}

var _ Transactor = (*dynamodb.Client)(nil)

const (
	// maxTransactItems is how many items of the caller's one transaction writes
	// (API reference, TransactWriteItems: 100, of which one is the record).
	maxTransactItems = 99
	// maxTransactSize is the most that one transaction writes, in bytes (as
	// above: 4 MB).
	maxTransactSize = 4 << 20
)

// ErrCondition is matched by a [*ConditionError].
var ErrCondition = errors.New("dynamostore: a condition of the transaction failed")

// ConditionError says that one of the caller's items refused the transaction.
// Nothing was written, and it matches [idempotent.ErrNotApplied], too.
type ConditionError struct {
	Index int    // of the item among those given to Commit or CommitStep
	Code  string // "ConditionalCheckFailed", or what else DynamoDB said of the item
	// Item is what stands in the table, if the item asked for it with
	// ReturnValuesOnConditionCheckFailure.
	Item map[string]types.AttributeValue
	Err  error // the SDK's error
}

func (e *ConditionError) Error() string {
	return fmt.Sprintf("dynamostore: item %d of the transaction was refused (%s); nothing was written", e.Index, e.Code)
}

// Is reports whether target is ErrCondition or idempotent.ErrNotApplied.
func (e *ConditionError) Is(target error) bool {
	return target == ErrCondition || target == driver.ErrNotApplied
}

// Unwrap returns the SDK's error.
func (e *ConditionError) Unwrap() error { return e.Err }

// transaction returns the write of a record together with items. What would be
// refused for its form is refused before anything is sent.
func (s *Store) transaction(items []types.TransactWriteItem) driver.Transaction {
	return func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
		client, ok := s.client.(Transactor)
		if !ok {
			return nil, fmt.Errorf("%w: a transaction wants a client that can TransactWriteItems; %T cannot", driver.ErrNotApplied, s.client)
		}
		in, err := s.transactInput(&next, was, items)
		if err != nil {
			return nil, err
		}
		return s.transact(ctx, client, in)
	}
}

// transactInput builds the request once: a retry has to be equal to it. The
// record is its first item, so that a lost record and a refused item are told
// apart by their places, and the write id names the request.
func (s *Store) transactInput(next *driver.Record, was driver.Version, items []types.TransactWriteItem) (*dynamodb.TransactWriteItemsInput, error) {
	record, err := encode(next)
	if err == nil {
		err = checkSize(record)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrNotApplied, err)
	}
	if n := len(items); n > maxTransactItems {
		return nil, fmt.Errorf("%w: the transaction has %d items besides the record; DynamoDB takes %d", driver.ErrNotApplied, n, maxTransactItems)
	}
	size := itemSize(record)
	for i := range items {
		size += transactItemSize(&items[i])
	}
	if size > maxTransactSize {
		return nil, fmt.Errorf("%w: the transaction has %d bytes; DynamoDB takes %d", driver.ErrNotApplied, size, maxTransactSize)
	}
	put := types.TransactWriteItem{Put: &types.Put{
		TableName:                           aws.String(s.table),
		Item:                                record,
		ConditionExpression:                 aws.String(replaceCondition),
		ExpressionAttributeValues:           item{":was": &types.AttributeValueMemberB{Value: was[:]}},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
	return &dynamodb.TransactWriteItemsInput{
		TransactItems:      append([]types.TransactWriteItem{put}, items...),
		ClientRequestToken: aws.String(hex.EncodeToString(next.Version[:])),
	}, nil
}

// transactItemSize returns what of an item is certain to count, in bytes.
func transactItemSize(t *types.TransactWriteItem) int {
	switch {
	case t.Put != nil:
		return itemSize(t.Put.Item)
	case t.Update != nil:
		return itemSize(t.Update.Key) + itemSize(t.Update.ExpressionAttributeValues)
	case t.Delete != nil:
		return itemSize(t.Delete.Key)
	case t.ConditionCheck != nil:
		return itemSize(t.ConditionCheck.Key)
	}
	return 0
}

// transact sends the request until DynamoDB does not refuse it for another
// writer who is in the way, as [Store.persist] does for a single item.
func (s *Store) transact(ctx context.Context, client Transactor, in *dynamodb.TransactWriteItemsInput) (*driver.Record, error) {
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		_, err := client.TransactWriteItems(ctx, in)
		if err == nil {
			return nil, nil
		}
		cancelled, ok := errors.AsType[*types.TransactionCanceledException](err)
		if ok {
			if standing, judged, err := s.refusal(cancelled); judged {
				return standing, err
			}
		} else if !isTransactConflict(err) {
			return nil, s.explain("TransactWriteItems", err)
		}
		if err := s.pause(ctx, attempt, "another writer was in the way", err); err != nil {
			return nil, s.explain("TransactWriteItems", err)
		}
	}
}

// refusal reads why a transaction was cancelled. It judges nothing where only
// another writer was in the way: that passes.
func (s *Store) refusal(cancelled *types.TransactionCanceledException) (standing *driver.Record, judged bool, err error) {
	reasons := cancelled.CancellationReasons
	if len(reasons) > 0 && aws.ToString(reasons[0].Code) == codeConditionFailed {
		if len(reasons[0].Item) == 0 {
			return nil, true, driver.ErrNoRecord
		}
		standing, err = decode(reasons[0].Item)
		return standing, true, err
	}
	for i, reason := range reasons {
		switch code := aws.ToString(reason.Code); {
		case code == "" || code == "None" || passes(code):
		case i == 0:
			// Of the record itself: nothing that a retry would change.
			return nil, true, fmt.Errorf("%w: %w", driver.ErrNotApplied, s.explain("TransactWriteItems", cancelled))
		default:
			return nil, true, &ConditionError{Index: i - 1, Code: code, Item: reason.Item, Err: cancelled}
		}
	}
	return nil, false, nil
}

const codeConditionFailed = "ConditionalCheckFailed"

// passes reports whether the reason of a cancellation is one that passes (API
// reference, TransactWriteItems, cancellation reasons).
func passes(code string) bool {
	switch code {
	case "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded":
		return true
	}
	return false
}

// isTransactConflict reports whether err says that a transaction is in the way
// of itself or of another: an earlier try of the same request may be under way.
func isTransactConflict(err error) bool {
	_, ok := errors.AsType[*types.TransactionInProgressException](err)
	return ok || isConflict(err)
}
