// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/idempotent/driver"
)

// ConditionError reports that the condition of one of the caller's items failed.
// Nothing was written; it also matches [idempotent.ErrNotApplied]. DynamoDB's
// other refusals have other types.
type ConditionError struct {
	Index int    // index of the item in the arguments of Commit or CommitStep
	Table string // table of the item
	// Item is the current item in the table, if the caller's item asked for it
	// with ReturnValuesOnConditionCheckFailure.
	Item map[string]types.AttributeValue
	Err  error // the SDK's error
}

func (e *ConditionError) Error() string {
	return fmt.Sprintf("dynamostore: the condition of item %d of the transaction (table %q) failed; nothing was written", e.Index, e.Table)
}

// Is reports whether target is idempotent.ErrNotApplied.
func (e *ConditionError) Is(target error) bool { return target == driver.ErrNotApplied }

// Unwrap returns the SDK's error.
func (e *ConditionError) Unwrap() error { return e.Err }

const codeConditionFailed = "ConditionalCheckFailed"

// transactError is the error of a failed transaction. Its text quotes DynamoDB
// without the values of the caller's items, which the SDK's error may contain.
type transactError struct {
	text   string
	causes []error
}

func (e *transactError) Error() string { return e.text }

// Unwrap returns the SDK's errors, and [driver.ErrNotApplied] if nothing was
// written.
func (e *transactError) Unwrap() []error { return e.causes }

// notKnownToApply returns the error of a transaction that ended with err. The
// error matches [driver.ErrNotApplied] unless a try had no answer.
func (t *transactItems) notKnownToApply(tries int, err, unanswered error) error {
	after := ""
	if tries > 1 {
		after = fmt.Sprintf(" after %d tries", tries)
	}
	cancelled, _ := errors.AsType[*types.TransactionCanceledException](err)
	if unanswered != nil {
		text := fmt.Sprintf("dynamostore: it is not known whether the transaction was applied%s: %s", after, t.say(unanswered))
		if last := t.explain(err, cancelled); t.say(err) != t.say(unanswered) {
			text += "; the last try ended with: " + last
		}
		return &transactError{text, []error{unanswered, err}}
	}
	if t.placed(cancelled) {
		for i, reason := range cancelled.CancellationReasons[1:] { // the first is the record's
			if aws.ToString(reason.Code) == codeConditionFailed {
				return &ConditionError{Index: i, Table: t.table(i + 1), Item: reason.Item, Err: err}
			}
		}
	}
	e := &transactError{
		text:   fmt.Sprintf("dynamostore: nothing was written: the transaction failed%s: %s", after, t.explain(err, cancelled)),
		causes: []error{driver.ErrNotApplied, err},
	}
	if t.recordTooLarge(cancelled) {
		e.causes = append(e.causes, driver.ErrTooLarge)
	}
	return e
}

// transactItems is a request. Its item 0 is the record; the caller's items start
// at 1.
type transactItems struct {
	*dynamodb.TransactWriteItemsInput
	layout *layout // of the record
}

// placed reports whether a cancellation has one reason per item, in their order.
// DynamoDB Local sometimes returns a single reason for all of them.
func (t *transactItems) placed(cancelled *types.TransactionCanceledException) bool {
	return cancelled != nil && len(cancelled.CancellationReasons) == len(t.TransactItems)
}

// recordRefused reports whether a transaction was cancelled because the record has
// another version or is missing.
func (t *transactItems) recordRefused(cancelled *types.TransactionCanceledException) bool {
	return t.placed(cancelled) && aws.ToString(cancelled.CancellationReasons[0].Code) == codeConditionFailed
}

// place returns the table of item i and the permission that the item needs.
func (t *transactItems) place(i int) (table, action string) {
	switch it := &t.TransactItems[i]; {
	case it.Put != nil:
		return aws.ToString(it.Put.TableName), "dynamodb:PutItem"
	case it.Update != nil:
		return aws.ToString(it.Update.TableName), "dynamodb:UpdateItem"
	case it.Delete != nil:
		return aws.ToString(it.Delete.TableName), "dynamodb:DeleteItem"
	case it.ConditionCheck != nil:
		return aws.ToString(it.ConditionCheck.TableName), "dynamodb:ConditionCheckItem"
	}
	return "", "no action"
}

// table returns the table of item i, or "" if it has none.
func (t *transactItems) table(i int) string {
	table, _ := t.place(i)
	return table
}

// explain returns what failed, for which items, and what to do.
func (t *transactItems) explain(err error, cancelled *types.TransactionCanceledException) string {
	if cancelled != nil {
		return t.reasons(cancelled)
	}
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return t.say(err)
	}
	text := t.say(err)
	switch code, message := api.ErrorCode(), api.ErrorMessage(); {
	case code == "ResourceNotFoundException":
		return text + "; at least one of these tables is missing in this account, region and endpoint: " + t.places(false)
	case strings.HasPrefix(code, "AccessDenied"):
		return text + "; the role needs " + t.places(true)
	case code != "ValidationException":
		return text + "; the items: " + t.places(false)
	case strings.Contains(message, "multiple operations on one item"):
		return text + "; write each item once, for example with one Update; " + t.duplicates()
	case isItemSize(message):
		return text + "; the record itself is not too large; " + t.places(false)
	}
	return text + "; compare the items with the keys and expressions of their tables: " + t.places(false)
}

// reasons returns why DynamoDB cancelled the transaction, item by item.
func (t *transactItems) reasons(cancelled *types.TransactionCanceledException) string {
	var all []string
	for i, reason := range cancelled.CancellationReasons {
		code := aws.ToString(reason.Code)
		if code == "" || code == "None" {
			continue
		}
		text := code
		if message := aws.ToString(reason.Message); message != "" {
			text += ": " + t.withoutValues(message)
		}
		if t.placed(cancelled) {
			table, action := t.place(i)
			text = fmt.Sprintf("%s (table %q): %s", itemName(i), table, text)
			if strings.HasPrefix(code, "AccessDenied") {
				text += "; the role needs " + action
			}
		}
		all = append(all, text)
	}
	switch {
	case len(all) == 0:
		return "DynamoDB cancelled it and gave no reason"
	case !t.placed(cancelled):
		all = append(all, "DynamoDB does not say which item it is; the items: "+t.places(false))
	}
	return strings.Join(all, "; ")
}

// itemName returns the caller's name of item i of a request.
func itemName(i int) string {
	if i == 0 {
		return "the record"
	}
	return fmt.Sprint("item ", i-1)
}

// places lists the tables of the request with their items, or with the permissions
// that the items need.
func (t *transactItems) places(actions bool) string {
	var order []string
	items := map[string][]string{}
	for i := range t.TransactItems {
		table, action := t.place(i)
		at := fmt.Sprintf("%q", table)
		if actions {
			at = action + " on " + at
		}
		if items[at] == nil {
			order = append(order, at)
		}
		items[at] = append(items[at], itemName(i))
	}
	for i, at := range order {
		order[i] = at + " (" + strings.Join(items[at], ", ") + ")"
	}
	return strings.Join(order, ", ")
}

// duplicates names items that are certainly the same item. Two puts cannot be
// compared here, because the keys of the caller's tables are not known.
func (t *transactItems) duplicates() string {
	for i := range t.TransactItems {
		for j := range i {
			if t.table(i) == t.table(j) && t.same(i, j) {
				return fmt.Sprintf("%s and %s are the same item of table %q", itemName(j), itemName(i), t.table(i))
			}
		}
	}
	return "the tables: " + t.places(false)
}

// same reports whether one of two items contains the key of the other.
func (t *transactItems) same(i, j int) bool {
	keyI, attributesI := t.identity(i)
	keyJ, attributesJ := t.identity(j)
	return within(keyI, attributesJ) || within(keyJ, attributesI)
}

// identity returns the key of item i, if it is known, and the attributes that
// include the key.
func (t *transactItems) identity(i int) (key, attributes item) {
	switch it := &t.TransactItems[i]; {
	case i == 0: // the record, which is a put
		return t.layout.keyOf(t.layout.nameOf(it.Put.Item)), it.Put.Item
	case it.Put != nil:
		return nil, it.Put.Item
	case it.Update != nil:
		return it.Update.Key, it.Update.Key
	case it.Delete != nil:
		return it.Delete.Key, it.Delete.Key
	case it.ConditionCheck != nil:
		return it.ConditionCheck.Key, it.ConditionCheck.Key
	}
	return nil, nil
}

// expressionValues returns the values in the expressions of item i.
func (t *transactItems) expressionValues(i int) item {
	switch it := &t.TransactItems[i]; {
	case it.Put != nil:
		return it.Put.ExpressionAttributeValues
	case it.Update != nil:
		return it.Update.ExpressionAttributeValues
	case it.Delete != nil:
		return it.Delete.ExpressionAttributeValues
	case it.ConditionCheck != nil:
		return it.ConditionCheck.ExpressionAttributeValues
	}
	return nil
}

// within reports whether key is known and all its attributes are in attributes.
func within(key, attributes item) bool {
	for name, value := range key {
		if !slices.Equal(scalars(nil, value), scalars(nil, attributes[name])) {
			return false
		}
	}
	return len(key) > 0
}

// recordTooLarge reports whether DynamoDB refused the record because of its size.
func (t *transactItems) recordTooLarge(cancelled *types.TransactionCanceledException) bool {
	return t.placed(cancelled) && isItemSize(aws.ToString(cancelled.CancellationReasons[0].Message))
}

// say returns DynamoDB's code and message, or the text of an error that does not
// come from DynamoDB.
func (t *transactItems) say(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode() + ": " + t.withoutValues(api.ErrorMessage())
	}
	return t.withoutValues(err.Error())
}

// withoutValues removes the values of the items from a message of DynamoDB, which
// quotes some refused values. Values of one or two bytes stay, because they also
// occur within words.
func (t *transactItems) withoutValues(message string) string {
	var values []string
	for i := range t.TransactItems {
		_, attributes := t.identity(i)
		values = scalars(values, &types.AttributeValueMemberM{Value: attributes})
		values = scalars(values, &types.AttributeValueMemberM{Value: t.expressionValues(i)})
	}
	slices.SortFunc(values, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // longer values first: they may contain shorter ones
	for _, v := range values {
		if len(v) > 2 {
			message = strings.ReplaceAll(message, v, "…")
		}
	}
	return message
}

// scalars appends the texts, numbers and bytes in value, including nested ones.
func scalars(all []string, value types.AttributeValue) []string {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		return append(all, v.Value)
	case *types.AttributeValueMemberN:
		return append(all, v.Value)
	case *types.AttributeValueMemberB:
		return append(all, string(v.Value))
	case *types.AttributeValueMemberSS:
		return append(all, v.Value...)
	case *types.AttributeValueMemberNS:
		return append(all, v.Value...)
	case *types.AttributeValueMemberBS:
		for _, b := range v.Value {
			all = append(all, string(b))
		}
	case *types.AttributeValueMemberL:
		for _, e := range v.Value {
			all = scalars(all, e)
		}
	case *types.AttributeValueMemberM:
		for _, e := range v.Value {
			all = scalars(all, e)
		}
	}
	return all
}
