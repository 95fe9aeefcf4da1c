// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/once-lambda/once/dynamostore"
)

const table = "once"

// insert writes the item k with a value, if it does not exist.
func insert(client dynamostore.Client, value string) error {
	_, err := client.PutItem(context.Background(), &dynamodb.PutItemInput{
		TableName: aws.String(table), Item: map[string]types.AttributeValue{"pk": text("k"), "v": text(value)},
		ConditionExpression: aws.String("attribute_not_exists(pk)"),
	})
	return err
}

func remove(client dynamostore.Client) error {
	_, err := client.DeleteItem(context.Background(), &dynamodb.DeleteItemInput{TableName: aws.String(table), Key: ref{table, "k"}.key()})
	return err
}

// get returns the value of the item k, or "".
func get(client dynamostore.Client) (string, error) {
	out, err := client.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: aws.String(table), Key: ref{table, "k"}.key(), ConsistentRead: aws.Bool(true)})
	if err != nil || out.Item == nil {
		return "", err
	}
	return out.Item["v"].(*types.AttributeValueMemberS).Value, nil
}

func code(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

// Of two writes of one item at the same time in two regions, one is rejected for the
// other one, and can be retried.
func TestStrong_Conflict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := NewStrong(Faults{Latency: time.Second}, table)
		var errs [2]error
		var both sync.WaitGroup
		for region := range errs {
			both.Go(func() { errs[region] = insert(g.Client(region), "first") })
		}
		both.Wait()
		codes := map[string]int{code(errs[0]): 1, code(errs[1]): 1}
		if codes[""] != 1 || codes["ReplicatedWriteConflictException"] != 1 {
			t.Fatalf("got errors %v, want one conflict", errs)
		}
		for region := range errs {
			if err := insert(g.Client(region), "second"); code(err) != "ConditionalCheckFailedException" {
				t.Errorf("region %d: got error %v, want the condition to be evaluated on the latest version", region, err)
			}
		}
	})
}

func TestStrong_CutOff(t *testing.T) {
	t.Parallel()
	g := NewStrong(Faults{}, table)
	g.CutOff(1, true)
	_, read := get(g.Client(1))
	if err := insert(g.Client(1), "v"); code(err) != "InternalServerError" || code(read) != "InternalServerError" {
		t.Errorf("cut off: got errors %v and %v", err, read)
	}
	if _, err := g.Client(1).Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String(table)}); err != nil {
		t.Errorf("an eventually consistent read fails: %v", err)
	}
	if err := insert(g.Client(0), "v"); err != nil {
		t.Errorf("the other region: %v", err)
	}
	g.CutOff(1, false)
	if v, err := get(g.Client(1)); v != "v" || err != nil {
		t.Errorf("healed: got %q, %v", v, err)
	}
}

func TestStrong_Refusals(t *testing.T) {
	t.Parallel()
	g := NewStrong(Faults{}, table)
	on := &types.TimeToLiveSpecification{AttributeName: aws.String("ttl"), Enabled: aws.Bool(true)}
	_, ttl := g.Client(0).UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{TableName: aws.String(table), TimeToLiveSpecification: on})
	_, transaction := g.Client(0).TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{
		TransactItems: []types.TransactWriteItem{{Put: &types.Put{TableName: aws.String(table), Item: ref{table, "k"}.key()}}},
	})
	if code(ttl) != "ValidationException" || code(transaction) != "ValidationException" {
		t.Errorf("got errors %v and %v", ttl, transaction)
	}
}

// A reply that is lost comes from a write that is applied.
func TestStrong_LostReply(t *testing.T) {
	t.Parallel()
	g := NewStrong(Faults{Lost: 1}, table)
	err := insert(g.Client(0), "v")
	if v, _ := get(g.DB); v != "v" || !errors.Is(err, ErrLost) {
		t.Errorf("the table has %q, and the error is %v", v, err)
	}
}

// Both regions insert, the second one later. After the lag both have its item, also if
// the first one has deleted its own meanwhile.
func TestEventual_LastWriterWins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lag = time.Second
		g := NewEventual(table, lag)
		if err := errors.Join(insert(g.Client(0), "first"), remove(g.Client(0)), insert(g.Client(1), "second")); err != nil {
			t.Fatal(err)
		}
		if v, err := get(g.Client(0)); v != "" || err != nil {
			t.Errorf("before the lag region 0 has %q, %v", v, err)
		}
		time.Sleep(2 * lag)
		for region := range 2 {
			if v, err := get(g.Client(region)); v != "second" || err != nil {
				t.Errorf("region %d has %q, %v", region, v, err)
			}
		}
		if err := remove(g.Client(0)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lag)
		if v, err := get(g.Client(1)); v != "" || err != nil {
			t.Errorf("deleted: region 1 has %q, %v", v, err)
		}
	})
}
