// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/errtype"
	"github.com/once-lambda/once/internal/kit"
)

// commits runs one guarded handler over fake.
func commits(t *testing.T, client dynamostore.Client, key idempotent.Key, h func(context.Context) (string, error)) (string, error) {
	t.Helper()
	g, err := idempotent.New(newStore(t, client), func(o *idempotent.Options) {
		o.Recovery, o.Steps = idempotent.Resume, []string{"order"}
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return idempotent.Do(ctx, g, key, h)
}

// commit returns the error of a Commit of these items.
func commit(t *testing.T, client dynamostore.Client, key idempotent.Key, items ...types.TransactWriteItem) (err error) {
	t.Helper()
	commits(t, client, key, func(ctx context.Context) (string, error) {
		err = dynamostore.Commit(ctx, "done", items...)
		return "", err
	})
	return err
}

func aKey() idempotent.Key {
	r := someRecord()
	return idempotent.Key{Operation: "charge", Scope: "tenant", ID: string(r.ID), Fingerprint: r.Fingerprint}
}

func order(id string, more ...string) types.TransactWriteItem {
	it := item{"pk": &types.AttributeValueMemberS{Value: id}}
	for _, name := range more {
		it[name] = &types.AttributeValueMemberS{Value: strings.Repeat("x", 380<<10)}
	}
	return types.TransactWriteItem{Put: &types.Put{
		TableName: aws.String("orders"), Item: it, ConditionExpression: aws.String("attribute_not_exists(pk)"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// F45: item 0 of the request is the record, with the version that was read as its
// condition; the token is the id of the write.
func TestCommit_Request(t *testing.T) {
	t.Parallel()
	fake, key := newFake(), aKey()
	if v, err := commits(t, fake, key, func(ctx context.Context) (string, error) {
		return "done", dynamostore.Commit(ctx, "done", order("o-1"), order("o-2"))
	}); v != "done" || err != nil {
		t.Fatal(v, err)
	}
	in, claim := sent[dynamodb.TransactWriteItemsInput](fake)[0], sent[dynamodb.PutItemInput](fake)[0]
	record := in.TransactItems[0].Put
	wid := record.Item["wid"].(*types.AttributeValueMemberB).Value
	if len(in.TransactItems) != 3 || *record.TableName != tableName || *in.ClientRequestToken != hex.EncodeToString(wid) ||
		record.ReturnValuesOnConditionCheckFailure != types.ReturnValuesOnConditionCheckFailureAllOld {
		t.Errorf("the request is %+v", in)
	}
	if was := record.ExpressionAttributeValues[":was"].(*types.AttributeValueMemberB).Value; string(was) != string(claim.Item["wid"].(*types.AttributeValueMemberB).Value) {
		t.Error("the record is not replaced with the version of the claim as the condition")
	}
	if fake.count("PutItem") != 1 || fake.item("o-2") == nil || fake.item(string(key.RecordID()))["st"].(*types.AttributeValueMemberS).Value != "C" {
		t.Errorf("%d puts, items %v", fake.count("PutItem"), fake.all())
	}
}

// FM27: the error of a refused item contains its index and the current item. A
// record with another version is not reported as a refused item.
func TestWhoRefused(t *testing.T) {
	t.Parallel()
	fake := newFake()
	fake.db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("orders"), Item: order("o-2").Put.Item})
	err := commit(t, fake, aKey(), order("o-1"), order("o-2"))
	var refused *dynamostore.ConditionError
	if !errors.As(err, &refused) || refused.Index != 1 || refused.Table != "orders" || pkOf(refused.Item) != "o-2" {
		t.Fatalf("got %+v", err)
	}
	if !errors.Is(err, idempotent.ErrNotApplied) {
		t.Errorf("it does not match ErrNotApplied: %v", err)
	}
	if _, ok := errors.AsType[*types.TransactionCanceledException](err); !ok || !strings.Contains(err.Error(), `item 1 of the transaction (table "orders")`) || errors.As(err, new(*idempotent.StoreError)) {
		t.Errorf("it says %q", err)
	}
	if fake.item("o-1") != nil {
		t.Error("a part of it was written")
	}

	for name, take := range map[string]func(pk string){
		"gone":           fake.remove,
		"another writer": func(pk string) { fake.change(pk, takeOver) },
		"unreadable": func(pk string) {
			fake.change(pk, func(it item) { it["wid"] = &types.AttributeValueMemberS{Value: "?"} })
		},
	} {
		key := aKey()
		_, err := commits(t, fake, key, func(ctx context.Context) (string, error) {
			take(string(key.RecordID()))
			err := dynamostore.Commit(ctx, "done", order("o-1"), order("o-2"))
			if errors.As(err, new(*dynamostore.ConditionError)) {
				t.Errorf("%s: reported as a refused item", name)
			}
			return "", err
		})
		if want := map[bool]error{true: new(idempotent.LeaseLostError), false: idempotent.ErrNotApplied}[name != "unreadable"]; !errtype.Matches(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	if fake.item("o-1") != nil {
		t.Error("it was written without its record")
	}
}

func aVersion() types.AttributeValue {
	v := newVersion()
	return &types.AttributeValueMemberB{Value: v[:]}
}

// takeOver changes a record as another owner does.
func takeOver(it item) { it["wid"], it["own"] = aVersion(), aVersion() }

func cancelled(codes ...string) error {
	e := &types.TransactionCanceledException{}
	for _, c := range codes {
		e.CancellationReasons = append(e.CancellationReasons, types.CancellationReason{Code: aws.String(c)})
	}
	return e
}

// Temporary refusals are retried with an identical request. Other refusals end it
// at once; so does a temporary one that lasts too long. Nothing was written in
// these cases.
func TestTransact_Refusals(t *testing.T) {
	t.Parallel()
	reason := func(code, message string, at int) error {
		e := cancelled("None", "None", "None").(*types.TransactionCanceledException)
		e.CancellationReasons[at] = types.CancellationReason{Code: aws.String(code), Message: aws.String(message)}
		return e
	}
	for name, c := range map[string]struct {
		err   error
		tries int // 1: it is not tried again
		says  string
	}{
		"a conflict of an item":    {reason("TransactionConflict", "", 2), 20, `after 20 tries: item 1 (table "orders"): TransactionConflict`},
		"a conflict of the record": {reason("TransactionConflict", "", 0), 20, `the record (table "once"): TransactionConflict`},
		"throttled":                {reason("ThrottlingError", "slow down", 1), 20, `item 0 (table "orders"): ThrottlingError: slow down`},
		"out of throughput":        {reason("ProvisionedThroughputExceeded", "", 0), 20, "ProvisionedThroughputExceeded"},
		"no reasons":               {cancelled(), 20, "gave no reason"},
		"reasons without a code":   {cancelled("", "", ""), 20, "gave no reason"},
		"one reason for all":       {cancelled("ConditionalCheckFailed"), 1, `the transaction failed: ConditionalCheckFailed; DynamoDB does not say which item it is; the items: "once" (the record), "orders" (item 0, item 1)`},
		"a conflict as an error":   {&types.TransactionConflictException{}, 20, "TransactionConflictException"},
		"throttled as a whole":     {&types.ProvisionedThroughputExceededException{}, 6, "after 6 tries: ProvisionedThroughputExceededException"},
		"over the account's limit": {&types.RequestLimitExceeded{}, 6, "RequestLimitExceeded"},
		"an item is too large":     {reason("ValidationError", "Item size to update has exceeded the maximum allowed size", 1), 1, `item 0 (table "orders"): ValidationError: Item size`},
		"a collection is full":     {reason("ItemCollectionSizeLimitExceeded", "Collection size exceeded.", 2), 1, `item 1 (table "orders"): ItemCollectionSizeLimitExceeded: Collection`},
		"an item is denied":        {reason("AccessDenied", "no", 1), 1, `item 0 (table "orders"): AccessDenied: no; the role needs dynamodb:PutItem`},
		"the record is too large":  {reason("ValidationError", "Item size has exceeded the maximum allowed size", 0), 1, `the record (table "once"): ValidationError: Item size`},
		"the record is refused":    {reason("ValidationError", "no", 0), 1, `the record (table "once"): ValidationError: no`},
		"a missing table":          {&types.ResourceNotFoundException{}, 1, `at least one of these tables is missing in this account, region and endpoint: "once" (the record), "orders" (item 0, item 1)`},
		"access denied":            {&smithy.GenericAPIError{Code: "AccessDeniedException", Message: "not authorized"}, 1, `AccessDeniedException: not authorized; the role needs dynamodb:PutItem on "once" (the record), dynamodb:PutItem on "orders" (item 0, item 1)`},
		"expired credentials":      {&smithy.GenericAPIError{Code: "ExpiredTokenException", Message: "expired"}, 1, `ExpiredTokenException: expired; the items: "once" (the record), "orders" (item 0, item 1)`},
		"the same item twice":      {validation("Transaction request cannot include multiple operations on one item"), 1, `write each item once, for example with one Update`},
		"some item is too large":   {validation("Item size has exceeded the maximum allowed size"), 1, `the record itself is not too large; "once" (the record), "orders" (item 0, item 1)`},
		"anything else":            {validation("no such path"), 1, `ValidationException: no such path; compare the items with the keys and expressions of their tables: "once"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFake()
				fake.refuse = refusing("TransactWriteItems", c.err)
				got := commit(t, fake, aKey(), order("o-1"), order("o-2"))
				if n := fake.count("TransactWriteItems"); n != c.tries {
					t.Errorf("%d tries, want %d", n, c.tries)
				}
				if !errors.Is(got, idempotent.ErrNotApplied) || errors.As(got, new(*dynamostore.ConditionError)) || !errors.Is(got, c.err) {
					t.Errorf("got %v, want ErrNotApplied, no *ConditionError, and the cause", got)
				}
				if tooLarge := name == "the record is too large"; errors.Is(got, driver.ErrTooLarge) != tooLarge {
					t.Errorf("it matches ErrTooLarge: %v", !tooLarge)
				}
				if !strings.Contains(got.Error(), c.says) || !strings.HasPrefix(got.Error(), "dynamostore: nothing was written: ") {
					t.Errorf("the error is\n%v\nwant\n%s", got, c.says)
				}
				for _, advice := range []string{"the role needs", "does not say which item"} {
					if strings.Contains(got.Error(), advice) != strings.Contains(c.says, advice) {
						t.Errorf("the error is\n%v\nwant\n%s", got, c.says)
					}
				}
				if c.tries == 1 && !strings.Contains(got.Error(), "the transaction failed: ") {
					t.Errorf("the error of a single try is\n%v", got)
				}
				if c.tries > 1 { // it passes in time
					fake.refuse = func(operation string, n int) error {
						if operation == "TransactWriteItems" && n < c.tries+3 {
							return c.err
						}
						return nil
					}
					if v, err := commits(t, fake, aKey(), func(ctx context.Context) (string, error) {
						return "done", dynamostore.Commit(ctx, "done", order("o-1"))
					}); v != "done" || err != nil || fake.count("TransactWriteItems") != c.tries+3 {
						t.Errorf("passing in time: %q, %v after %d tries", v, err, fake.count("TransactWriteItems")-c.tries)
					}
				}
			})
		})
	}
}

// The message names the items that are certainly the same.
func TestTransact_SameItemTwice(t *testing.T) {
	t.Parallel()
	key := item{"pk": &types.AttributeValueMemberS{Value: "o-1"}}
	update := types.TransactWriteItem{Update: &types.Update{TableName: aws.String("orders"), Key: key}}
	remove := types.TransactWriteItem{Delete: &types.Delete{TableName: aws.String("orders"), Key: key}}
	check := types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{TableName: aws.String("orders"), Key: key}}
	other := types.TransactWriteItem{Delete: &types.Delete{TableName: aws.String("invoices"), Key: key}}
	recordKey := aKey()
	record := types.TransactWriteItem{Delete: &types.Delete{TableName: aws.String(tableName), Key: item{"pk": &types.AttributeValueMemberS{Value: string(recordKey.RecordID())}}}}
	again := types.TransactWriteItem{Put: &types.Put{TableName: aws.String(tableName), Item: record.Delete.Key}}
	for _, c := range []struct {
		items []types.TransactWriteItem
		says  string
	}{
		{[]types.TransactWriteItem{order("o-2"), update, remove}, `item 1 and item 2 are the same item of table "orders"`},
		{[]types.TransactWriteItem{check, order("o-1")}, `item 0 and item 1 are the same item of table "orders"`},
		{[]types.TransactWriteItem{order("o-1"), update}, `item 0 and item 1 are the same item of table "orders"`},
		{[]types.TransactWriteItem{again}, `the record and item 0 are the same item of table "once"`},
		{[]types.TransactWriteItem{record}, `the record and item 0 are the same item of table "once"`},
		{[]types.TransactWriteItem{order("o-1"), order("o-1"), other, {}}, `the tables: "once" (the record), "orders" (item 0, item 1), "invoices" (item 2), "" (item 3)`},
	} {
		fake := newFake()
		fake.refuse = refusing("TransactWriteItems", validation("Transaction request cannot include multiple operations on one item"))
		if err := commit(t, fake, recordKey, c.items...); !errors.Is(err, idempotent.ErrNotApplied) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("the error is %v, want %s", err, c.says)
		}
	}
}

// DynamoDB quotes some of the values that it refuses. The error text does not
// contain them, whatever the kind of the item.
func TestTransact_TextHoldsNoValues(t *testing.T) {
	t.Parallel()
	key, table := item{"pk": &types.AttributeValueMemberB{Value: []byte("SECRET-KEY")}}, aws.String("orders")
	values := item{":v": &types.AttributeValueMemberM{Value: item{
		"list": &types.AttributeValueMemberL{Value: []types.AttributeValue{text("SECRET-VALUE")}},
		"set":  &types.AttributeValueMemberSS{Value: []string{"SECRET", "4242-SECRET"}},
		"nums": &types.AttributeValueMemberNS{Value: []string{"4242"}},
		"bins": &types.AttributeValueMemberBS{Value: [][]byte{[]byte("BINARY")}},
		"n":    number(10),
		"long": number(31337),
	}}}
	for name, it := range map[string]types.TransactWriteItem{
		"put":    {Put: &types.Put{TableName: table, Item: key, ExpressionAttributeValues: values}},
		"update": {Update: &types.Update{TableName: table, Key: key, ExpressionAttributeValues: values}},
		"delete": {Delete: &types.Delete{TableName: table, Key: key, ExpressionAttributeValues: values}},
		"check":  {ConditionCheck: &types.ConditionCheck{TableName: table, Key: key, ExpressionAttributeValues: values}},
	} {
		fake := newFake()
		fake.refuse = refusing("TransactWriteItems", validation("Input collection [4242-SECRET, 4242] contains duplicates; SECRET-KEY; SECRET-VALUE; 10; BINARY; 31337"))
		err := commit(t, fake, aKey(), it)
		if text := err.Error(); !errors.Is(err, idempotent.ErrNotApplied) || strings.Contains(text, "SECRET") || strings.Contains(text, "4242") ||
			!strings.Contains(text, "Input collection […, …] contains duplicates; …; …; 10; …; …") {
			t.Errorf("%s: it says %s", name, text)
		}
	}
}

// A refusal without the record does not prove that the record is missing: an
// endpoint may ignore that the request asked for it.
func TestNoRecordIsVerified(t *testing.T) {
	t.Parallel()
	fake := newFake()
	fake.forgetful = true
	s := newStore(t, fake)
	r := fullRecord()
	insert(t, s, r)
	next := r
	next.Version = newVersion()
	if met, err := s.Replace(t.Context(), next, newVersion()); err != nil || met == nil || met.Version != r.Version {
		t.Errorf("Replace: got %+v, %v, want the current record", met, err)
	}
	if met, err := s.Delete(t.Context(), r.ID, newVersion()); err != nil || met == nil || met.Version != r.Version {
		t.Errorf("Delete: got %+v, %v, want the current record", met, err)
	}
	for what, call := range map[string]func() (*driver.Record, error){
		"Replace": func() (*driver.Record, error) { return s.Replace(t.Context(), next, newVersion()) },
		"Delete":  func() (*driver.Record, error) { return s.Delete(t.Context(), r.ID, newVersion()) },
	} {
		fake.refuse = refusing("GetItem", validation("no"))
		if met, err := call(); met != nil || err == nil || errors.Is(err, idempotent.ErrNoRecord) {
			t.Errorf("%s, and the read fails: got %+v, %v", what, met, err)
		}
		fake.refuse = nil
	}
	// A refusal although the record has the expected version is a contradiction.
	fake.refuse = refusing("PutItem", &types.ConditionalCheckFailedException{})
	if met, err := s.Replace(t.Context(), next, r.Version); met != nil || err == nil || errors.Is(err, idempotent.ErrNoRecord) || !strings.Contains(err.Error(), "ReturnValuesOnConditionCheckFailure") {
		t.Errorf("got %+v, %v", met, err)
	}
	fake.refuse = nil
	fake.remove(string(r.ID))
	if met, err := s.Replace(t.Context(), next, r.Version); met != nil || !errors.Is(err, idempotent.ErrNoRecord) || fake.count("GetItem") != 6 {
		t.Errorf("no record: got %+v, %v after %d reads", met, err, fake.count("GetItem"))
	}
}

// The same in a transaction.
func TestTransact_NoRecordIsVerified(t *testing.T) {
	t.Parallel()
	fake, key := newFake(), aKey()
	fake.forgetful = true
	_, err := commits(t, fake, key, func(ctx context.Context) (string, error) {
		fake.change(string(key.RecordID()), takeOver)
		err := dynamostore.Commit(ctx, "done", order("o-1"))
		if fake.count("GetItem") != 1 || !errors.As(err, new(*idempotent.LeaseLostError)) {
			t.Errorf("got %v after %d reads", err, fake.count("GetItem"))
		}
		return "", err
	})
	if err == nil {
		t.Error("it succeeded")
	}
}

// The limits are checked before anything is sent.
func TestTransact_Limits(t *testing.T) {
	t.Parallel()
	many := func(n int, more ...string) (items []types.TransactWriteItem) {
		for range n {
			items = append(items, order(string(someRecord().ID), more...))
		}
		return items
	}
	big := &types.AttributeValueMemberS{Value: strings.Repeat("x", 4<<20)}
	key := item{"pk": big}
	for name, c := range map[string]struct {
		items []types.TransactWriteItem
		fits  bool
	}{
		"99 items":                 {many(99), true},
		"100 items":                {many(100), false},
		"ten of 380 KB":            {many(10, "a"), true},
		"eleven of 380 KB":         {many(11, "a"), false},
		"an update":                {[]types.TransactWriteItem{{Update: &types.Update{Key: item{"pk": aVersion()}, ExpressionAttributeValues: item{":v": big}}}}, false},
		"the key of one":           {[]types.TransactWriteItem{{Update: &types.Update{Key: key}}}, false},
		"a deletion":               {[]types.TransactWriteItem{{Delete: &types.Delete{Key: key}}}, false},
		"a put of 400 KB and more": {[]types.TransactWriteItem{order("o-1"), {Put: &types.Put{TableName: aws.String("orders"), Item: item{"pk": aVersion(), "x": &types.AttributeValueMemberS{Value: strings.Repeat("x", 400<<10)}}}}}, false},
		"a check":                  {[]types.TransactWriteItem{{ConditionCheck: &types.ConditionCheck{Key: key}}}, false},
	} {
		fake := newFake()
		err := commit(t, fake, aKey(), c.items...)
		switch {
		case c.fits && err != nil:
			t.Errorf("%s: %v", name, err)
		case !c.fits && (!errors.Is(err, idempotent.ErrNotApplied) || errors.As(err, new(*idempotent.StoreError)) || fake.count("TransactWriteItems") != 0):
			t.Errorf("%s: got %v after %d requests", name, err, fake.count("TransactWriteItems"))
		}
	}
}

// Where a transaction is not possible, nothing is applied.
func TestTransact_Elsewhere(t *testing.T) {
	t.Parallel()
	if err := dynamostore.Commit(t.Context(), "x"); !errors.Is(err, idempotent.ErrNotApplied) {
		t.Errorf("outside of a handler: %v", err)
	}
	if v, err := dynamostore.CommitStep(t.Context(), "order", "x"); !errors.Is(err, idempotent.ErrNotApplied) || v != "x" {
		t.Errorf("a step outside of a handler: %v, %v", v, err)
	}
	g, err := idempotent.New(struct{ driver.Store }{newStore(t, newFake())})
	if err != nil {
		t.Fatal(err)
	}
	for what, commit := range map[string]func(context.Context) error{
		"Commit":     func(ctx context.Context) error { return dynamostore.Commit(ctx, "x") },
		"CommitStep": func(ctx context.Context) error { _, err := dynamostore.CommitStep(ctx, "order", "x"); return err },
	} {
		_, err = idempotent.Do(t.Context(), g, aKey(), func(ctx context.Context) (string, error) {
			err := commit(ctx)
			if !errors.Is(err, idempotent.ErrNotApplied) || !strings.Contains(err.Error(), "transaction needs") {
				t.Errorf("%s with another store: %v", what, err)
			}
			return "", idempotent.NotExecuted(err)
		})
		if !errors.Is(err, idempotent.ErrNotApplied) {
			t.Errorf("%s with another store: %v", what, err)
		}
	}
}

// wrapped embeds a store, as tests and tools do. Others have a method Unwrap.
type wrapped struct{ *dynamostore.Store }

func passOn(ctx context.Context, c *idempotenttest.StoreCall) { c.Do(ctx) }

// A step and its items are one write, and a later attempt gets the stored result.
func TestCommitStep(t *testing.T) {
	t.Parallel()
	fake, key := newFake(), aKey()
	g, err := idempotent.New(idempotenttest.Intercept(wrapped{newStore(t, fake)}, passOn), func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, []string{"order"} })
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		_, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (string, error) {
			v, err := dynamostore.CommitStep(ctx, "order", "o-1", order("o-1"))
			if v != "o-1" || err != nil {
				t.Errorf("run %d: %q, %v", i, v, err)
			}
			if i == 0 {
				return "", errors.New("the receipt failed")
			}
			return v, nil
		})
		if (err == nil) != (i == 1) {
			t.Errorf("run %d: %v", i, err)
		}
	}
	if fake.count("TransactWriteItems") != 1 || len(sent[dynamodb.TransactWriteItemsInput](fake)[0].TransactItems) != 2 {
		t.Errorf("%d transactions", fake.count("TransactWriteItems"))
	}
}

var update = flag.Bool("update", false, "write the generated parts of the documents")

// A record with as many steps as fit can still be settled, taken over, marked unknown
// and released by evidence: steps leave room for these writes in the largest item.
func TestStepsLeaveRoom(t *testing.T) {
	t.Parallel()
	clock := &idempotenttest.Clock{}
	store := newStore(t, dynamotest.New("once"))
	g, err := idempotent.New(store, func(o *idempotent.Options) {
		o.Recovery, o.Steps, o.Now = idempotent.Resume, []string{"result", strings.Repeat("n", 58)}, clock.Now
	})
	if err != nil {
		t.Fatal(err)
	}
	key := aKey()
	is := func(state driver.State, attempt int) {
		t.Helper()
		r, err := store.Get(t.Context(), key.RecordID())
		if err != nil {
			t.Fatal(err)
		}
		if r.State != state || r.Attempt != attempt {
			t.Fatalf("the record is %s (%s) with %d steps after attempt %d, want %s after attempt %d", r.State, r.Reason, len(r.Steps), r.Attempt, state, attempt)
		}
	}
	do := func(fn func(context.Context) (string, error)) (string, error) {
		return idempotent.Do(clock.Invocation(t.Context(), 10*time.Second), g, key, fn)
	}
	errDown := errors.New("the provider is down")

	ran := 0
	if _, err := do(func(ctx context.Context) (string, error) {
		for i := range 3 {
			if _, err := idempotent.Step(ctx, fmt.Sprint("result/", i), func(context.Context) ([]byte, error) { return incompressible(48 << 10), nil }); err != nil {
				return "", err
			}
		}
		for i := range 5000 { // steps that begin, and may have had their effect
			_, err := idempotent.Step(ctx, fmt.Sprintf("%s/%05d", strings.Repeat("n", 58), i), func(context.Context) (int, error) {
				ran++
				return 0, errDown
			})
			if errors.As(err, new(*idempotent.StepError)) {
				break
			}
		}
		return "", errDown
	}); !errors.Is(err, errDown) {
		t.Fatal(err)
	}
	is(driver.StateRetryable, 1)
	if ran < 300 || ran > 1500 {
		t.Errorf("%d steps ran", ran)
	}
	if _, err := do(func(context.Context) (string, error) { return "", idempotent.Unknown(errDown) }); !errors.Is(err, errDown) {
		t.Fatal(err)
	}
	is(driver.StateUnknown, 2)
	clock.Advance(time.Minute)
	r, err := store.Get(t.Context(), key.RecordID())
	if err != nil {
		t.Fatal(err)
	}
	for i, evidence := range []idempotent.Resolution{
		idempotent.ResolvedStep(strings.Repeat("n", 58)+"/00000", incompressible(47<<10)),
		idempotent.ProvenNotExecuted(r.Token()),
	} {
		if err := g.Resolve(t.Context(), key.RecordID(), evidence); err != nil {
			t.Errorf("evidence %d: %v", i, err)
		}
	}
	is(driver.StateRetryable, 2)
	if got, err := do(func(context.Context) (string, error) { return "done", nil }); got != "done" || err != nil {
		t.Errorf("the last attempt: %q, %v", got, err)
	}
	is(driver.StateCompleted, 3)
}

// The table of docs/reports/cost.md: each write of a record includes the results of all steps
// before it.
func TestCostOfSteps(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| steps of a request | calls | write units | $ per million | durable functions, $ per million |\n| --: | --: | --: | --: | --: |\n")
	for _, steps := range []int{1, 5, 20, 100, 400} {
		// A write costs a unit for each KB of the item before or after it, whichever is
		// larger (developer guide, "DynamoDB read and write operations").
		calls, units, before := 0, 0, 0
		client := dynamotest.Intercept(dynamotest.New("once"), func(ctx context.Context, c *dynamotest.Call) {
			if in, ok := c.In.(*dynamodb.PutItemInput); ok {
				size := dynamostore.ItemSize(in.Item)
				calls, units, before = calls+1, units+(max(size, before)+1023)/1024, size
			}
			c.Do(ctx)
		})
		clock := &idempotenttest.Clock{}
		g, err := idempotent.New(newStore(t, client), func(o *idempotent.Options) {
			o.Recovery, o.Steps, o.Logger, o.Now = idempotent.Resume, []string{"step"}, slog.New(slog.DiscardHandler), clock.Now
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := idempotent.Do(clock.Invocation(t.Context(), 15*time.Minute), g, aKey(), func(ctx context.Context) (string, error) {
			for i := range steps {
				if _, err := idempotent.Step(ctx, fmt.Sprint("step/", i), func(context.Context) (string, error) { return strings.Repeat("r", 500-len(`""`)), nil }); err != nil {
					return "", err
				}
			}
			return "done", nil
		}); err != nil {
			t.Fatal(err)
		}
		const unit, operation = 0.625, 8.00 // dollars for a million: list prices, with their sources in docs/reports/cost.md and docs/comparison.md
		fmt.Fprintf(&table, "| %d | %d | %d | %.2f | %.2f |\n", steps, calls, units, float64(units)*unit, float64(steps)*operation)
	}
	kit.Part(t, "../docs/reports/cost.md", "steps", table.String(), *update)
}

// incompressible returns n random bytes, the same ones each time.
func incompressible(n int) []byte {
	data := make([]byte, n)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(data)
	return data
}
