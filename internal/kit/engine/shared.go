// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/internal/kit"
)

// A shared table holds a store's items beside others: it has a sort key, other names
// of the attributes, its own indexes, and items that look like those of a store.

type item = map[string]types.AttributeValue

const (
	// sharedPrefix begins the keys of the store's items.
	sharedPrefix = "ONCE#"
	// Domain begins the partition keys of items that a test itself writes, changes or
	// deletes.
	Domain = "DOMAIN#"
)

// SharedLayout is the option of a store in the table.
func SharedLayout(o *dynamostore.Options) {
	o.PartitionKey, o.SortKey, o.TTLAttribute, o.Prefix = "PK", "SK", "expires_at", sharedPrefix
}

// SharedKey returns the key of the store's item with that name, such as a record id.
func SharedKey(name string) item {
	return item{"PK": text(sharedPrefix + name), "SK": text(sharedPrefix + name)}
}

// CreateShared creates a shared table as a user has it: with an index on its own
// attributes, and one with the keys of the table in the other order. The index of the
// store was added. It does not use the store.
func CreateShared(t testing.TB, client dynamostore.Client, table string) {
	t.Helper()
	key := func(hash, sort string) []types.KeySchemaElement {
		return []types.KeySchemaElement{{AttributeName: &hash, KeyType: types.KeyTypeHash}, {AttributeName: &sort, KeyType: types.KeyTypeRange}}
	}
	in := &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest, KeySchema: key("PK", "SK"),
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{
			{IndexName: aws.String("GSI1"), KeySchema: key("GSI1PK", "GSI1SK"), Projection: &types.Projection{ProjectionType: types.ProjectionTypeAll}},
			{IndexName: aws.String("inverted"), KeySchema: key("SK", "PK"), Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly}},
			{IndexName: aws.String("recovery"), KeySchema: key("rk", "rat"), Projection: &types.Projection{
				ProjectionType: types.ProjectionTypeInclude, NonKeyAttributes: []string{"st", "dt", "lease"},
			}},
		},
	}
	for _, name := range []string{"PK", "SK", "GSI1PK", "GSI1SK", "rk", "rat"} {
		kind := types.ScalarAttributeTypeS
		if name == "rat" {
			kind = types.ScalarAttributeTypeN
		}
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &name, AttributeType: kind})
	}
	if _, err := client.CreateTable(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	on := &types.TimeToLiveSpecification{AttributeName: aws.String("expires_at"), Enabled: aws.Bool(true)}
	if _, err := client.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{TableName: &table, TimeToLiveSpecification: on}); err != nil {
		t.Fatal(err)
	}
}

// FillShared writes n items that are not the store's. When the test ends, each of them has
// to be as it was, and each other item of the table has to be the store's.
func FillShared(t testing.TB, client dynamostore.Client, table string, n int) {
	t.Helper()
	var writes []types.WriteRequest
	for i := range n {
		writes = append(writes, types.WriteRequest{PutRequest: &types.PutRequest{Item: neighbour(i)}})
	}
	for len(writes) > 0 {
		batch := writes[:min(25, len(writes))]
		out, err := client.BatchWriteItem(t.Context(), &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: batch}})
		if err != nil {
			t.Fatal(err)
		}
		writes = append(writes[len(batch):], out.UnprocessedItems[table]...)
	}
	before, own := all(t, client, table, "")
	if len(before) != n || own != 0 {
		t.Fatalf("%d items and %d of a store, want %d", len(before), own, n)
	}
	t.Cleanup(func() {
		after, own := all(t, client, table, "")
		for key, it := range before {
			if !reflect.DeepEqual(after[key], it) {
				t.Errorf("the other item %q was %v and is %v", key, it, after[key])
			}
		}
		for key, it := range after {
			if before[key] == nil && !strings.HasPrefix(key, Domain) {
				t.Errorf("the other item %q is new: %v", key, it)
			}
		}
		if own == 0 && !t.Failed() {
			t.Error("the store has written nothing that is left, so the comparison shows nothing")
		}
		if in, own := all(t, client, table, "GSI1"); own != 0 || len(in) == 0 {
			t.Errorf("the user's index has %d items of the store and %d others", own, len(in))
		}
	})
}

// neighbour returns an item of someone else, which has attributes, or a key, like an
// item of a store.
func neighbour(i int) item {
	hash := strings.Repeat("h", 38) + fmt.Sprintf("%05d", i)
	it := item{"PK": text(fmt.Sprintf("ORDER#%d", i)), "SK": text("METADATA"), "total": number("42"), "n": number(fmt.Sprint(i))}
	switch i % 8 {
	case 0: // in the user's index
		it["GSI1PK"], it["GSI1SK"] = text("CUSTOMER#1"), text(fmt.Sprint(i))
	case 1: // in the index of the store, due
		it["rk"], it["rat"], it["st"] = text(fmt.Sprintf("u#%02d", i%64)), number("1"), text("U")
	case 2: // as a run that was abandoned
		it["rat"], it["st"], it["lease"], it["dt"] = number("1"), text("I"), number("1"), number("1")
	case 3: // as an expired chunk
		it["PK"], it["part"] = text("charge#"+hash+"#"+strings.Repeat("0", 32)+"#0"), &types.AttributeValueMemberB{Value: []byte{byte(i)}}
		it["expires_at"], it["v"] = number("1"), number("1")
	case 4: // under the key of a record, but for the prefix
		it["PK"], it["SK"] = text("charge#"+hash), text("charge#"+hash)
		it["exp"], it["st"], it["wid"] = number("1"), text("C"), &types.AttributeValueMemberB{Value: []byte("w")}
	case 5: // a key that is almost under the prefix
		it["PK"], it["st"] = text(fmt.Sprintf("ONCE%d#", i)), text("C")
	case 6:
		it["PK"], it["rk"], it["rat"], it["pk"] = text(fmt.Sprintf("%d#scan", i)), text(fmt.Sprintf("x#%02d", i%64)), number("2"), text("p")
	case 7:
		it["SK"] = text(fmt.Sprintf("LINE#%d", i))
		it["flags"] = &types.AttributeValueMemberM{Value: item{"a": &types.AttributeValueMemberBOOL{Value: true}, "b": &types.AttributeValueMemberNULL{Value: true}}}
	}
	return it
}

// all returns the items of the table, or of an index, that are not the store's, and
// counts those that are.
func all(t testing.TB, client dynamostore.Client, table, index string) (others map[string]item, own int) {
	t.Helper()
	others = map[string]item{}
	in := &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(index == "")}
	if index != "" {
		in.IndexName = &index
	}
	ctx, cancel := context.WithTimeout(context.Background(), kit.Patience) // that of the test has ended
	defer cancel()
	for pages := dynamodb.NewScanPaginator(client, in); pages.HasMorePages(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range page.Items {
			pk, sk := it["PK"].(*types.AttributeValueMemberS).Value, it["SK"].(*types.AttributeValueMemberS).Value
			if !strings.HasPrefix(pk, sharedPrefix) {
				others[pk+" "+sk] = it
				continue
			}
			own++
			if pk != sk || it["pk"] != nil || it["ttl"] != nil {
				t.Errorf("the item %q of the store has the sort key %q, pk %v and ttl %v", pk, sk, it["pk"], it["ttl"])
			}
		}
	}
	return others, own
}

func text(s string) types.AttributeValue   { return &types.AttributeValueMemberS{Value: s} }
func number(s string) types.AttributeValue { return &types.AttributeValueMemberN{Value: s} }
