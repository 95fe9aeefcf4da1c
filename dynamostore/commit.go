package dynamostore

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Commit completes the record of the guarded handler that ctx belongs to and
// writes items in the same transaction: either all writes happen, once, or none.
// The result is the handler's stored response, which replays return; pass it in
// the handler's own response type, because it is encoded like the handler's
// response.
//
//	order := Order{ID: id, Amount: req.Amount}
//	err := dynamostore.Commit(ctx, order, types.TransactWriteItem{Put: put(order)})
//	return order, err
//
// If the condition of an item fails, nothing is written and Commit returns a
// [*ConditionError] with the item's index. The handler decides what to do: return
// NotExecuted or Final, or try another transaction. Every other refusal of
// DynamoDB matches [idempotent.ErrNotApplied], too; its text names the item or the
// tables and what to do. An error is a refusal only if every earlier try had an
// answer; otherwise the transaction may have been applied. See
// [idempotent.Execution.Commit] for such an error and for what may follow.
//
// Each try sends one request, regardless of the client's retry settings. The store
// repeats the request with the same token: as long as another writer conflicts,
// and otherwise at most six times.
//
// A transaction may have 99 items in addition to the record, and 4 MB with it.
// DynamoDB bills two write units for each KB of each item; repeating the same
// request has no further effect for ten minutes. The items may belong to any table
// in the same account and region. The role needs dynamodb:PutItem, UpdateItem,
// DeleteItem or ConditionCheckItem on the table of each item, depending on the
// item, and dynamodb:PutItem on the table of the store.
func Commit(ctx context.Context, result any, items ...types.TransactWriteItem) error {
	e, ok := idempotent.FromContext(ctx)
	if !ok {
		return fmt.Errorf("%w: Commit needs the context of a guarded handler", driver.ErrNotApplied)
	}
	s, err := storeOf(e)
	if err != nil {
		return err
	}
	return e.Commit(ctx, result, s.transaction(items))
}

// CommitStep stores result as the result of the named step and writes items in the
// same transaction. A later attempt of the record gets the stored result and
// writes nothing. With [idempotent.Resume] the name has to be in
// [idempotent.Options.Steps]. See [Commit] for the rest.
func CommitStep[T any](ctx context.Context, name string, result T, items ...types.TransactWriteItem) (T, error) {
	e, ok := idempotent.FromContext(ctx)
	if !ok {
		return result, fmt.Errorf("%w: CommitStep needs the context of a guarded handler", driver.ErrNotApplied)
	}
	s, err := storeOf(e)
	if err != nil {
		return result, err
	}
	return idempotent.CommitStep(ctx, name, result, s.transaction(items))
}

func storeOf(e *idempotent.Execution) (*Store, error) {
	if s, ok := e.Store().(interface{ itself() *Store }); ok {
		return s.itself(), nil
	}
	return nil, fmt.Errorf("%w: a transaction needs a guard with a *dynamostore.Store, not a %T", driver.ErrNotApplied, e.Store())
}

// itself identifies a Store, and types that embed one, to storeOf.
func (s *Store) itself() *Store { return s }
