// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

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
// tables and what to do. An error is a refusal only if every earlier try of this
// Commit, and of an earlier one of the run, had an answer; otherwise a transaction
// may have been applied. Call Commit again with the same result and items. See
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
//
// With [Options.Consistency], Commit and CommitStep write nothing and return an error
// that matches [idempotent.ErrNotApplied]: such tables have no transactions. Write your
// items in an [idempotent.Step] under [idempotent.Resume] instead.
func Commit(ctx context.Context, result any, items ...types.TransactWriteItem) error {
	e, ok := idempotent.FromContext(ctx)
	if !ok {
		return fmt.Errorf("%w: Commit needs the context of a guarded handler, and fails in shadow mode (idempotent.Options.Shadow)", driver.ErrNotApplied)
	}
	s, err := transactsWith(e)
	if err != nil {
		return err
	}
	return e.Commit(ctx, result, s.transaction(items))
}

// CommitStep stores result as the result of the named step and writes items in the
// same transaction. A later attempt of the record gets the stored result and
// writes nothing. With [idempotent.Resume] the name has to be in
// [idempotent.Operation.Steps]. See [Commit] for the rest.
func CommitStep[T any](ctx context.Context, name string, result T, items ...types.TransactWriteItem) (T, error) {
	e, ok := idempotent.FromContext(ctx)
	if !ok {
		return result, fmt.Errorf("%w: CommitStep needs the context of a guarded handler, and fails in shadow mode (idempotent.Options.Shadow)", driver.ErrNotApplied)
	}
	s, err := transactsWith(e)
	if err != nil {
		return result, err
	}
	return idempotent.CommitStep(ctx, name, result, s.transaction(items))
}

func storeOf(e *idempotent.Execution) (*Store, error) {
	for s := e.Store(); ; {
		switch at := s.(type) {
		case interface{ itself() *Store }:
			return at.itself(), nil
		case interface{ Unwrap() driver.Store }:
			s = at.Unwrap()
		default:
			return nil, fmt.Errorf("%w: a transaction needs a guard with a *dynamostore.Store, not a %T", driver.ErrNotApplied, e.Store())
		}
	}
}

// transactsWith returns the store of the execution, if its table supports transactions.
func transactsWith(e *idempotent.Execution) (*Store, error) {
	s, err := storeOf(e)
	if err == nil && s.opts.Consistency == Strong {
		return nil, fmt.Errorf("%w: DynamoDB has no transactions in a table with strong consistency across regions (table %q): write your items in an idempotent.Step under Resume, with a condition on idempotent.DownstreamKey", driver.ErrNotApplied, s.table)
	}
	return s, err
}

// itself identifies a Store, and types that embed one, to storeOf. A wrapper has a
// method Unwrap instead, as that of idempotenttest.Intercept.
func (s *Store) itself() *Store { return s }

const (
	// maxTransactItems is how many of the caller's items one transaction can write
	// (API reference, TransactWriteItems: 100, of which one is the record).
	maxTransactItems = 99
	// maxTransactSize is the most that one transaction writes, in bytes (same
	// page: 4 MB).
	maxTransactSize = 4 << 20
)

// transaction returns a driver.Transaction that writes a record and items. It
// refuses an invalid request before sending it.
func (s *Store) transaction(items []types.TransactWriteItem) driver.Transaction {
	return func(ctx context.Context, next driver.Record, was driver.Version) (*driver.Record, error) {
		in, err := s.transactInput(&next, was, items)
		if err != nil {
			return nil, err
		}
		return s.transact(ctx, in, &next, was)
	}
}

// transactInput builds the request once, because a retry has to be equal to it.
// The record is the first item, so its position distinguishes a lost record from a
// refused item. The request token is the write id.
func (s *Store) transactInput(next *driver.Record, was driver.Version, items []types.TransactWriteItem) (*dynamodb.TransactWriteItemsInput, error) {
	record, err := s.layout.encode(next)
	if err == nil {
		err = checkSize(record)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrNotApplied, err)
	}
	for i := range items {
		if put := items[i].Put; put != nil && itemSize(put.Item) > maxItem {
			return nil, fmt.Errorf("%w: item %d (table %q) has %d bytes; DynamoDB holds at most %d", driver.ErrNotApplied, i, aws.ToString(put.TableName), itemSize(put.Item), maxItem)
		}
	}
	if n := len(items); n > maxTransactItems {
		return nil, fmt.Errorf("%w: the transaction has %d items besides the record; DynamoDB accepts %d", driver.ErrNotApplied, n, maxTransactItems)
	}
	size := itemSize(record)
	for i := range items {
		size += transactItemSize(&items[i])
	}
	if size > maxTransactSize {
		return nil, fmt.Errorf("%w: the transaction has %d bytes; DynamoDB accepts %d", driver.ErrNotApplied, size, maxTransactSize)
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

// transactItemSize returns a lower bound of the size of an item, in bytes.
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

// transact sends the request until DynamoDB accepts it, refuses it finally, or the
// attempts or the context end. All tries have the same token, so DynamoDB applies
// at most one of them.
//
// Each try is a single attempt of the SDK. A retry inside the SDK could hide that
// an earlier attempt had no answer; its refusal would look final although the
// earlier attempt was applied. So a refusal proves that nothing was written only
// if every earlier try was refused, too.
func (s *Store) transact(ctx context.Context, in *dynamodb.TransactWriteItemsInput, next *driver.Record, was driver.Version) (*driver.Record, error) {
	items := &transactItems{in, s.layout}
	var unanswered error // the latest try that may have been applied, or may still be
	for attempt := 1; ; attempt++ {
		err := ctx.Err()
		if err != nil {
			return nil, items.notKnownToApply(attempt-1, err, unanswered)
		}
		sent, err := s.sendOnce(ctx, in)
		if err == nil {
			return nil, nil
		}
		if sent && !isRefusal(err) {
			unanswered = err
		}
		cancelled, _ := errors.AsType[*types.TransactionCanceledException](err)
		if items.recordRefused(cancelled) {
			standing, standingErr := s.standing(ctx, next.ID, was, cancelled.CancellationReasons[0].Item)
			switch {
			case unanswered == nil && standingErr != nil && !errors.Is(standingErr, driver.ErrNoRecord):
				return nil, fmt.Errorf("%w: the record has another version, which cannot be read: %w", driver.ErrNotApplied, standingErr)
			case unanswered == nil, standingErr == nil && standing.Version == next.Version:
				return standing, standingErr
			}
			// An earlier try may have been applied and replaced since.
		}
		if !s.worthRetrying(attempt, err, cancelled) {
			return nil, items.notKnownToApply(attempt, err, unanswered)
		}
		switch again, cause := s.waits(ctx, attempt); {
		case cause != nil:
			return nil, fmt.Errorf("%w (%w before the next try)", items.notKnownToApply(attempt, err, unanswered), cause)
		case !again:
			return nil, items.notKnownToApply(attempt, err, unanswered)
		}
	}
}

// sendOnce sends the request in one attempt, regardless of the client's retryer
// and of AWS_MAX_ATTEMPTS. It reports whether anything may have been sent: an SDK
// client that fails before it uses its HTTP client has sent nothing.
func (s *Store) sendOnce(ctx context.Context, in *dynamodb.TransactWriteItemsInput) (sent bool, err error) {
	noting := &notingClient{}
	_, err = s.client.TransactWriteItems(ctx, in, func(o *dynamodb.Options) {
		o.Retryer = aws.NopRetryer{}
		if o.HTTPClient != nil {
			noting.HTTPClient, o.HTTPClient = o.HTTPClient, noting
		}
	})
	return noting.HTTPClient == nil || noting.used, err
}

// notingClient records whether it was used.
type notingClient struct {
	dynamodb.HTTPClient
	used bool
}

func (c *notingClient) Do(r *http.Request) (*http.Response, error) {
	c.used = true
	return c.HTTPClient.Do(r)
}

// isRefusal reports whether err is a final refusal by DynamoDB. It is not if
// DynamoDB reports that the same token is in progress or was used before, or that
// the outcome of the request is unknown.
func isRefusal(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return false
	}
	switch api.ErrorCode() {
	case "TransactionInProgressException", "IdempotentParameterMismatchException",
		"RequestTimeout", "RequestTimeoutException",
		"UnknownError": // the SDK's code for an answer without a code, so not from DynamoDB
		return false
	}
	if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		status := response.HTTPStatusCode()
		return status >= 400 && status < 500 && status != http.StatusRequestTimeout
	}
	return api.ErrorFault() == smithy.FaultClient
}

// worthRetrying reports whether a later try may succeed after err. A conflict is
// retried as in [Store.persist]. Other errors that the SDK would retry are retried
// as often as by [NewClient].
func (s *Store) worthRetrying(attempt int, err error, cancelled *types.TransactionCanceledException) bool {
	if cancelled != nil {
		return !slices.ContainsFunc(cancelled.CancellationReasons, func(r types.CancellationReason) bool {
			return !passes(aws.ToString(r.Code))
		})
	}
	return isTransactConflict(err) ||
		attempt < retryAttempts && retry.IsErrorRetryables(retry.DefaultRetryables).IsErrorRetryable(err) == aws.TrueTernary
}

// passes reports whether a cancellation reason is empty or temporary (API
// reference, TransactWriteItems, cancellation reasons).
func passes(code string) bool {
	switch code {
	case "", "None", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded":
		return true
	}
	return false
}

// isTransactConflict reports whether err means a conflict with another
// transaction, or with an earlier try of the same request that may still be in
// progress.
func isTransactConflict(err error) bool {
	_, ok := errors.AsType[*types.TransactionInProgressException](err)
	return ok || isConflict(err)
}
