// SPDX-License-Identifier: Apache-2.0

package powertools

import (
	"cmp"
	"context"
	"crypto/md5"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Options are the settings of the Powertools function, and how its items belong to
// the keys of the guard. The zero value of each field is its documented default.
type Options struct {
	// KeyAttr is key_attr, or keyAttr in TypeScript. Default: "id".
	KeyAttr string
	// ExpiryAttr is expiry_attr. Default: "expiration".
	ExpiryAttr string
	// InProgressExpiryAttr is in_progress_expiry_attr. Default:
	// "in_progress_expiration".
	InProgressExpiryAttr string
	// StatusAttr is status_attr. Default: "status".
	StatusAttr string
	// DataAttr is data_attr. Default: "data".
	DataAttr string
	// ValidationKeyAttr is validation_key_attr. Default: "validation".
	ValidationKeyAttr string

	// Payload returns what event_key_jmespath selects from the request, as a value
	// that encodes to the same JSON: a list for a multi-select list. A number must
	// have the spelling that it has in the event, so return a json.Number or a
	// json.RawMessage. The payload must determine the key of the guard, scope
	// included: two keys with one payload exclude each other. Default: the ID of the
	// key, as a text.
	Payload func(ctx context.Context, key idempotent.Key) (any, error)

	// Validation returns what payload_validation_jmespath selects. It is required if
	// the function validates payloads, and not allowed otherwise. Default: payloads
	// are not validated. An outcome of Powertools is then replayed whatever the
	// request contains, as Powertools does.
	Validation func(ctx context.Context, key idempotent.Key) (any, error)

	// NewHash is hash_function. Default: md5.New.
	NewHash func() hash.Hash

	// Result returns the result of the guarded function for the JSON that Powertools
	// stored: a value of its type, or an idempotent.Final error. For package
	// lambdabatch return struct{}{}, for package lambdahttp a lambdahttp.Response. For
	// [Resolver] it can also return an idempotent.Resolution, which lambdahttp
	// requires: lambdahttp.Resolved. Default: the JSON itself, which is decoded into
	// the type.
	Result func(data json.RawMessage) (any, error)

	// TakeOver runs the handler for a key whose execution was killed at its time-out,
	// as Powertools does, although its effect may have happened. Set it if the
	// operation declares idempotent.Rerun. Default: the record becomes unknown.
	TakeOver bool

	// Exclude is how long Powertools is kept from running a key that the guard has
	// run. Make it longer than the change-over and than expires_after_seconds.
	// Default: 30 days.
	Exclude time.Duration

	// Now returns the current time. Default: time.Now.
	Now func() time.Time
}

func (o *Options) setDefaults() {
	o.KeyAttr = cmp.Or(o.KeyAttr, "id")
	o.ExpiryAttr = cmp.Or(o.ExpiryAttr, "expiration")
	o.InProgressExpiryAttr = cmp.Or(o.InProgressExpiryAttr, "in_progress_expiration")
	o.StatusAttr = cmp.Or(o.StatusAttr, "status")
	o.DataAttr = cmp.Or(o.DataAttr, "data")
	o.ValidationKeyAttr = cmp.Or(o.ValidationKeyAttr, "validation")
	o.Exclude = cmp.Or(o.Exclude, 30*24*time.Hour)
	if o.Payload == nil {
		o.Payload = func(_ context.Context, key idempotent.Key) (any, error) { return key.ID, nil }
	}
	if o.NewHash == nil {
		o.NewHash = md5.New
	}
	if o.Result == nil {
		o.Result = func(data json.RawMessage) (any, error) { return data, nil }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Client is the part of a DynamoDB client that is used. *dynamodb.Client implements
// it.
type Client interface {
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
}

// Reader is the part of a DynamoDB client that [Resolver] uses. *dynamodb.Client
// implements it.
type Reader interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}

var _ interface {
	Client
	Reader
} = (*dynamodb.Client)(nil)

// Predecessor returns a function for [idempotent.Operation.Predecessor] that shares
// keys with a function that uses Powertools and the table. The prefix is what is
// before the # in its items: its key_prefix, or the default of its language, which
// package powertools documents.
//
// The function makes one conditional write. It puts an item into the table, in
// progress and without an in-progress expiry, under the condition of Powertools: so
// Powertools does not run the key until [Options.Exclude] has passed, and either
// the guard or Powertools begins it, not both. If Powertools has an item:
//   - completed: the guard stores and replays its result;
//   - in progress: [*idempotent.InProgressError];
//   - killed, its in-progress expiry is more than two seconds ago: the record
//     becomes unknown, unless [Options.TakeOver] is set. One more write notes for
//     [Resolver] which item it is;
//   - of another payload, by its validation hash: [*idempotent.MismatchError];
//   - expired: it counts as absent.
//
// It needs dynamodb:PutItem on the table. The error is about an invalid argument or
// option.
func Predecessor(
	client Client, table string, l Language, prefix string, optFns ...func(*Options),
) (func(context.Context, idempotent.Key) (any, bool, error), error) {
	p, err := newPredecessor("Predecessor", client == nil, table, l, prefix, optFns)
	if err != nil {
		return nil, err
	}
	p.client = client
	return p.ask, nil
}

// Resolver returns the resolver for an operation whose keys [Predecessor] shares, with
// the same arguments. It asks about the records that became unknown because an
// execution of Powertools was killed: if that execution, or a later one, has completed
// the item after all, its result is the evidence, as Predecessor would have returned
// it. An item that is in progress, expired, absent or of another payload is no
// evidence. Every other record is passed to otherwise; nil means
// [idempotent.Later].
//
// It needs dynamodb:GetItem on the table.
func Resolver(
	client Reader, table string, l Language, prefix string, otherwise idempotent.ResolveFunc, optFns ...func(*Options),
) (idempotent.ResolveFunc, error) {
	p, err := newPredecessor("Resolver", client == nil, table, l, prefix, optFns)
	if err != nil {
		return nil, err
	}
	p.reader = client
	return func(ctx context.Context, r idempotent.PendingRecord) (idempotent.Resolution, error) {
		switch stored := r.Stored(); {
		case stored.Reason == driver.ReasonPredecessor:
			return p.resolve(ctx, r.ID)
		case otherwise != nil:
			return otherwise(ctx, r)
		}
		return idempotent.Later(0), nil
	}, nil
}

type predecessor struct {
	client   Client // of Predecessor
	reader   Reader // of Resolver
	table    string
	language Language
	prefix   string
	opts     Options
}

func newPredecessor(function string, noClient bool, table string, l Language, prefix string, optFns []func(*Options)) (*predecessor, error) {
	p := &predecessor{table: table, language: l, prefix: prefix}
	for _, f := range optFns {
		f(&p.opts)
	}
	p.opts.setDefaults()
	switch {
	case noClient || table == "":
		return nil, fmt.Errorf("powertools: %s: the client or the table is missing", function)
	case l != Python && l != TypeScript:
		return nil, fmt.Errorf("powertools: %s: unknown %s; use Python or TypeScript", function, l)
	case prefix == "":
		return nil, fmt.Errorf("powertools: %s: the prefix is missing; read it before the # of an item in the table", function)
	case p.opts.Exclude < time.Second:
		return nil, fmt.Errorf("powertools: %s: Options.Exclude is %s; it must be at least 1s", function, p.opts.Exclude)
	}
	return p, nil
}

// What Powertools stores as the status of an item.
const (
	inProgress = "INPROGRESS"
	completed  = "COMPLETED"
)

// onceAttr is the attribute of an item that this package has put: the id of the
// guard's record, or, in a note, the key of an item of Powertools.
const onceAttr = "once"

// margin is how long after its in-progress expiry an execution may still run. Lambda
// has been observed to kill 0.68 s late (aws-powertools/powertools-lambda-python#4759).
const margin = 2 * time.Second

// What can be true of the item of a key. A missing attribute makes a comparison
// false.
const (
	absentCondition  = "attribute_not_exists(#key)"
	ownCondition     = "#once = :once AND #status = :inprogress"
	expiredCondition = "#expiry < :now"
	runningCondition = "#status = :inprogress AND #running > :killed"
	killedCondition  = "#status = :inprogress AND #running <= :killed"
)

// free returns the condition under which Powertools does not run, and has not run,
// a key: there is no item, it is the guard's own, or it has expired and its
// execution has ended. With takeOver, the execution may have been killed, too.
func free(takeOver bool) string {
	condition := absentCondition + " OR (" + ownCondition + ") OR (" + expiredCondition + " AND NOT (" + runningCondition + "))"
	if takeOver {
		condition += " OR (" + killedCondition + ")"
	}
	return condition
}

// item is an item of the table.
type item = map[string]types.AttributeValue

func text(s string) *types.AttributeValueMemberS { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) *types.AttributeValueMemberN {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// ask is what Predecessor returns.
func (p *predecessor) ask(ctx context.Context, key idempotent.Key) (result any, found bool, err error) {
	o := &p.opts
	payload, err := o.Payload(ctx, key)
	if err != nil {
		return nil, false, fmt.Errorf("powertools: Options.Payload: %w", err)
	}
	sum, err := p.language.sum(o.NewHash, payload)
	if err != nil {
		return nil, false, err
	}
	validation, err := p.validation(ctx, key)
	if err != nil {
		return nil, false, err
	}
	id, now := string(key.RecordID()), o.Now()
	own := item{
		o.KeyAttr:    text(p.prefix + "#" + sum),
		o.StatusAttr: text(inProgress),
		o.ExpiryAttr: number(now.Add(o.Exclude).Unix()),
		onceAttr:     text(id),
	}
	if o.Validation != nil {
		own[o.ValidationKeyAttr] = text(validation)
	}
	_, err = p.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:           aws.String(p.table),
		Item:                own,
		ConditionExpression: aws.String(free(o.TakeOver)),
		ExpressionAttributeNames: map[string]string{
			"#key": o.KeyAttr, "#once": onceAttr, "#status": o.StatusAttr, "#expiry": o.ExpiryAttr, "#running": o.InProgressExpiryAttr,
		},
		ExpressionAttributeValues: item{
			":once": text(id), ":inprogress": text(inProgress), ":now": number(now.Unix()), ":killed": number(now.Add(-margin).UnixMilli()),
		},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	refused, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	switch {
	case err == nil:
		return nil, false, nil
	case !ok:
		return nil, false, fmt.Errorf("powertools: put the item of the key: %w", err)
	}
	result, found, err = p.judge(key.RecordID(), refused.Item, validation, now)
	if idempotent.IsUnknown(err) {
		if noteErr := p.note(ctx, id, own); noteErr != nil {
			return nil, false, noteErr
		}
	}
	return result, found, err
}

// note puts an item from which Resolver finds the item of a record: the record's id
// does not contain the payload. Powertools does not read it, because it has no hash.
// It has the expiry and the validation hash of own, which it becomes.
func (p *predecessor) note(ctx context.Context, id string, own item) error {
	own[p.opts.KeyAttr], own[onceAttr] = text(p.prefix+"#"+id), own[p.opts.KeyAttr]
	if _, err := p.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String(p.table), Item: own}); err != nil {
		return fmt.Errorf("powertools: put the note of an unknown key: %w", err)
	}
	return nil
}

// resolve returns what the item of an unknown record says now.
func (p *predecessor) resolve(ctx context.Context, id idempotent.RecordID) (idempotent.Resolution, error) {
	o := &p.opts
	note, err := p.get(ctx, p.prefix+"#"+string(id))
	if note == nil {
		return idempotent.Later(0), err
	}
	found, err := p.get(ctx, textOf(note, onceAttr))
	if found == nil {
		return idempotent.Later(0), err
	}
	expiry, err := numberOf(found, o.ExpiryAttr, time.Second)
	switch {
	case err != nil:
		return idempotent.Resolution{}, err
	case textOf(found, o.StatusAttr) != completed,
		!expiry.IsZero() && expiry.Unix() < o.Now().Unix(),
		note[o.ValidationKeyAttr] != nil && textOf(found, o.ValidationKeyAttr) != textOf(note, o.ValidationKeyAttr):
		return idempotent.Later(0), nil
	}
	result, err := p.resultOf(found)
	if final, stated := idempotent.AsFinal(err); stated {
		return idempotent.ResolvedFinal(final.Code, final.Message), nil
	}
	if resolution, is := result.(idempotent.Resolution); is || err != nil {
		return resolution, err
	}
	return idempotent.Resolved(result), nil
}

// get returns the item with that key, or nil.
func (p *predecessor) get(ctx context.Context, key string) (item, error) {
	out, err := p.reader.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: aws.String(p.table), Key: item{p.opts.KeyAttr: text(key)}, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, fmt.Errorf("powertools: get the item of an unknown key: %w", err)
	}
	return out.Item, nil
}

// validation returns the hash of the part of the request that is validated.
func (p *predecessor) validation(ctx context.Context, key idempotent.Key) (string, error) {
	if p.opts.Validation == nil {
		return "", nil
	}
	part, err := p.opts.Validation(ctx, key)
	if err != nil {
		return "", fmt.Errorf("powertools: Options.Validation: %w", err)
	}
	return p.language.sum(p.opts.NewHash, part)
}

// judge returns what the item of Powertools means for the record. Its errors
// contain no value of the item.
func (p *predecessor) judge(id idempotent.RecordID, found item, validation string, now time.Time) (any, bool, error) {
	o := &p.opts
	expiry, err := numberOf(found, o.ExpiryAttr, time.Second)
	if err != nil {
		return nil, false, err
	}
	running, err := numberOf(found, o.InProgressExpiryAttr, time.Millisecond)
	if err != nil {
		return nil, false, err
	}
	if o.Validation != nil && textOf(found, o.ValidationKeyAttr) != validation {
		return nil, false, &idempotent.MismatchError{RecordID: id}
	}
	switch textOf(found, o.StatusAttr) {
	case completed:
		result, err := p.resultOf(found)
		return result, err == nil, err
	case inProgress:
		until := expiry
		if !running.IsZero() {
			until = running.Add(margin)
		}
		if !until.After(now) {
			return nil, false, idempotent.Unknown(errors.New("powertools: an execution of Powertools was killed at its time-out"))
		}
		return nil, false, &idempotent.InProgressError{RecordID: id, RetryAfter: min(until.Sub(now), retryAfter), Until: until}
	}
	return nil, false, fmt.Errorf("powertools: invalid item: unknown value of attribute %s", o.StatusAttr)
}

// resultOf returns the result of the guarded function for a completed item.
func (p *predecessor) resultOf(found item) (any, error) {
	data, err := p.language.result(found[p.opts.DataAttr])
	if err != nil {
		return nil, err
	}
	return p.opts.Result(data)
}

// retryAfter is how long a caller waits before it repeats a request that Powertools
// is working on. The item does not show when that began.
const retryAfter = 2 * time.Second

func textOf(it item, name string) string {
	if s, ok := it[name].(*types.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}

// numberOf returns the time in a number attribute, or the zero time if there is no
// such attribute.
func numberOf(it item, name string, unit time.Duration) (time.Time, error) {
	switch v := it[name].(type) {
	case nil:
		return time.Time{}, nil
	case *types.AttributeValueMemberN:
		n, _ := strconv.ParseFloat(v.Value, 64) // DynamoDB stores only what parses
		return time.UnixMilli(int64(n * float64(unit.Milliseconds()))), nil
	}
	return time.Time{}, fmt.Errorf("powertools: invalid item: attribute %s is not a number", name)
}

// result returns the stored result as JSON. Python stores JSON as a text, TypeScript
// the attribute value of the result. A missing result is null.
func (l Language) result(v types.AttributeValue) (json.RawMessage, error) {
	if v == nil {
		return json.RawMessage("null"), nil
	}
	if l == Python {
		s, ok := v.(*types.AttributeValueMemberS)
		switch {
		case !ok:
			return nil, errors.New("powertools: invalid item: the result is not a text; is it an item of Python?")
		case s.Value == "":
			return json.RawMessage("null"), nil
		case !json.Valid([]byte(s.Value)):
			return nil, errors.New("powertools: invalid item: the result is not JSON")
		}
		return json.RawMessage(s.Value), nil
	}
	native, err := native(v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(native)
}

// native returns the value of an attribute as encoding/json encodes it.
func native(v types.AttributeValue) (any, error) {
	switch v := v.(type) {
	case *types.AttributeValueMemberNULL:
		return nil, nil
	case *types.AttributeValueMemberBOOL:
		return v.Value, nil
	case *types.AttributeValueMemberS:
		return v.Value, nil
	case *types.AttributeValueMemberN:
		return json.Number(v.Value), nil
	case *types.AttributeValueMemberL:
		list := make([]any, len(v.Value))
		for i, e := range v.Value {
			var err error
			if list[i], err = native(e); err != nil {
				return nil, err
			}
		}
		return list, nil
	case *types.AttributeValueMemberM:
		object := make(map[string]any, len(v.Value))
		for name, e := range v.Value {
			var err error
			if object[name], err = native(e); err != nil {
				return nil, err
			}
		}
		return object, nil
	}
	return nil, fmt.Errorf("powertools: invalid item: the result contains a %T, which JSON does not have", v)
}
