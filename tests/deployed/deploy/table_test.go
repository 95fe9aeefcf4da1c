// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/tabledef"
)

// The table can be used as a store, and is paid by request. Package infra compares its
// template.
func TestTable(t *testing.T) {
	t.Parallel()
	if err := storeOf(t, stack.records).Check(t.Context()); err != nil { // keys, index, time to live
		t.Error(err)
	}
	table, err := stack.dynamodb.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &stack.records})
	if err != nil {
		t.Fatal(err)
	}
	if mode := table.Table.BillingModeSummary; mode == nil || mode.BillingMode != types.BillingModePayPerRequest {
		t.Errorf("the table is billed as %+v, want by request", mode)
	}
}

// F34, F90: a record is deleted once its time to live is over, and others stay.
// Its key counts as new then.
func TestExpiredRecordsAreRemoved(t *testing.T) {
	t.Parallel()
	customer, expired, kept := newCustomer(), rand.Text(), rand.Text()
	first := map[string]reply{}
	for _, key := range []string{expired, kept} {
		first[key] = byFunctionURL().post(t, key, aCharge(customer))
		if first[key].status != http.StatusCreated {
			t.Fatalf("got %v, want a charge", first[key])
		}
	}
	// The record's retention ended an hour and a second ago.
	over := time.Now().Add(-time.Second)
	id := recordKey(charge.RecordIDOf(expired))
	_, err := stack.dynamodb.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: &stack.records, Key: id,
		UpdateExpression:         aws.String("SET #ttl = :ttl, #exp = :exp"),
		ConditionExpression:      aws.String("attribute_exists(pk) AND attribute_exists(#ttl)"),
		ExpressionAttributeNames: map[string]string{"#ttl": tabledef.TTLAttribute, "#exp": "exp"},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":ttl": number(over.Unix()), ":exp": number(over.Add(-time.Hour).UnixMilli()),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	removeExpired(t)
	item, err := stack.dynamodb.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &stack.records, Key: id, ConsistentRead: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	if len(item.Item) != 0 {
		t.Errorf("the record is still there: %v", item.Item)
	}
	wantReplay(t, byFunctionURL().post(t, kept, aCharge(customer)), first[kept])
	// The handler runs again. The customer is not charged again only because the
	// provider remembers the key for longer.
	asked := pay.times(customer)
	if r := byFunctionURL().post(t, expired, aCharge(customer)); r.status != http.StatusCreated || r.replayed() || pay.times(customer) != asked+1 {
		t.Errorf("got %v after %d calls to the provider, want a new run", r, pay.times(customer)-asked)
	}
	wantCharges(t, customer, 2)
}

func recordKey(id idempotent.RecordID) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{tabledef.PartitionKey: &types.AttributeValueMemberS{Value: string(id)}}
}

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// removeExpired does at once what DynamoDB does within days. LocalStack goes through all
// tables, and fails if another test creates or deletes one meanwhile.
func removeExpired(t *testing.T) {
	t.Helper()
	kit.Eventually(t, "LocalStack has removed the expired items", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, stack.cdk.endpoint+"/_aws/dynamodb/expired", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}
