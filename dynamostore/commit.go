package dynamostore

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Commit completes the record of the guarded handler that ctx belongs to, and
// writes items with it in one transaction: all of it happens, once, or nothing.
// The result is what the handler then returns and what a retry gets; hand it
// over in the handler's own type, it is encoded as the handler's would be.
//
//	order := Order{ID: id, Amount: req.Amount}
//	err := dynamostore.Commit(ctx, order, types.TransactWriteItem{Put: put(order)})
//	return order, err
//
// A failed condition of an item is a [*ConditionError] with its index; nothing
// was written then, and the handler decides what that means: NotExecuted, Final,
// or another try with another transaction. Every other refusal of DynamoDB
// matches [idempotent.ErrNotApplied], too, and names the item or the tables and
// what to do. It is a refusal only if no try before it stayed without an answer;
// otherwise the transaction may have been applied. See
// [idempotent.Execution.Commit] about such an error, and about what may follow.
//
// Each try is sent once, whatever the client's retries are set to. The store
// repeats it with the same request token: as long as another writer is in the
// way, and otherwise at most six times.
//
// There may be 99 items of 4 MB together, the record included; DynamoDB bills
// two write units for each KB of each, and retries of the same request are free
// of further effect for ten minutes. The items may be of any table in the same
// account and region. The role needs dynamodb:PutItem, UpdateItem, DeleteItem or
// ConditionCheckItem on the table of each item, as the item does, and
// dynamodb:PutItem on the table of the store.
func Commit(ctx context.Context, result any, items ...types.TransactWriteItem) error {
	e, ok := idempotent.FromContext(ctx)
	if !ok {
		return fmt.Errorf("%w: Commit wants the context of a guarded handler", driver.ErrNotApplied)
	}
	s, err := storeOf(e)
	if err != nil {
		return err
	}
	return e.Commit(ctx, result, s.transaction(items))
}

// CommitStep records result as that of the step of this name, and writes items
// with it in one transaction. A later attempt of the record gets the recorded
// result and writes nothing. Under [idempotent.Resume] the name has to be among
// [idempotent.Options.Steps]. See [Commit] for the rest.
func CommitStep[T any](ctx context.Context, name string, result T, items ...types.TransactWriteItem) (T, error) {
	e, ok := idempotent.FromContext(ctx)
	if !ok {
		return result, fmt.Errorf("%w: CommitStep wants the context of a guarded handler", driver.ErrNotApplied)
	}
	s, err := storeOf(e)
	if err != nil {
		return result, err
	}
	return idempotent.CommitStep(ctx, name, result, s.transaction(items))
}

// storeOf returns the store of an execution.
func storeOf(e *idempotent.Execution) (*Store, error) {
	if s, ok := e.Store().(interface{ itself() *Store }); ok {
		return s.itself(), nil
	}
	return nil, fmt.Errorf("%w: a transaction wants a guard over a *dynamostore.Store; this one is over a %T", driver.ErrNotApplied, e.Store())
}

// itself tells a store, and what has one embedded, from others.
func (s *Store) itself() *Store { return s }
