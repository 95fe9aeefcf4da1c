// SPDX-License-Identifier: Apache-2.0

package dynamotest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore/dynamotest"
)

func keys(names ...string) (schema []types.KeySchemaElement) {
	for i, name := range names {
		schema = append(schema, types.KeySchemaElement{AttributeName: &name, KeyType: []types.KeyType{"HASH", "RANGE", "RANGE"}[i]})
	}
	return schema
}

// attributes defines names with their types: "id:S".
func attributes(defined ...string) (all []types.AttributeDefinition) {
	for _, d := range defined {
		name, kind, _ := strings.Cut(d, ":")
		all = append(all, types.AttributeDefinition{AttributeName: &name, AttributeType: types.ScalarAttributeType(kind)})
	}
	return all
}

func indexed(projection *types.Projection, names ...string) []types.GlobalSecondaryIndex {
	return []types.GlobalSecondaryIndex{{IndexName: aws.String("by"), KeySchema: keys(names...), Projection: projection}}
}

func replicas(regions ...string) (all []types.ReplicationGroupUpdate) {
	for _, r := range regions {
		all = append(all, types.ReplicationGroupUpdate{Create: &types.CreateReplicationGroupMemberAction{RegionName: &r}})
	}
	return all
}

func witnesses(regions ...string) (all []types.GlobalTableWitnessGroupUpdate) {
	for _, r := range regions {
		all = append(all, types.GlobalTableWitnessGroupUpdate{Create: &types.CreateGlobalTableWitnessGroupMemberAction{RegionName: &r}})
	}
	return all
}

func live(enabled bool, attribute string) *dynamodb.UpdateTimeToLiveInput {
	return &dynamodb.UpdateTimeToLiveInput{TableName: rows, TimeToLiveSpecification: &types.TimeToLiveSpecification{Enabled: &enabled, AttributeName: &attribute}}
}

// Each row is calls and what the last one returns. The others succeed.
func TestTables(t *testing.T) {
	t.Parallel()
	all, keysOnly := &types.Projection{ProjectionType: "ALL"}, &types.Projection{ProjectionType: "KEYS_ONLY"}
	some := &types.Projection{ProjectionType: "INCLUDE", NonKeyAttributes: []string{"x"}}
	create := func(schema []types.KeySchemaElement, defined []types.AttributeDefinition, indexes ...types.GlobalSecondaryIndex) *dynamodb.CreateTableInput {
		return &dynamodb.CreateTableInput{TableName: rows, KeySchema: schema, AttributeDefinitions: defined, GlobalSecondaryIndexes: indexes}
	}
	named := func(name string) *dynamodb.CreateTableInput {
		in := create(keys("id"), attributes("id:S"))
		in.TableName = &name
		return in
	}
	simple := create(keys("id"), attributes("id:S"))
	strong := func(r []types.ReplicationGroupUpdate, w []types.GlobalTableWitnessGroupUpdate) *dynamodb.UpdateTableInput {
		return &dynamodb.UpdateTableInput{TableName: rows, MultiRegionConsistency: "STRONG", ReplicaUpdates: r, GlobalTableWitnessUpdates: w}
	}
	three := strong(replicas("eu-west-1", "eu-west-3"), nil)
	describe, ttl := &dynamodb.DescribeTableInput{TableName: rows}, &dynamodb.DescribeTimeToLiveInput{TableName: rows}
	put := func(it item) *dynamodb.PutItemInput { return &dynamodb.PutItemInput{TableName: rows, Item: it} }
	large := text(strings.Repeat("x", 2000))
	count := func(it item) *dynamodb.DeleteItemInput {
		return &dynamodb.DeleteItemInput{TableName: rows, Key: it, ReturnConsumedCapacity: total}
	}
	query := func(optFns ...func(*dynamodb.QueryInput)) *dynamodb.QueryInput {
		in := &dynamodb.QueryInput{TableName: rows, IndexName: aws.String("by"), KeyConditionExpression: aws.String("sku = :s"), ExpressionAttributeValues: item{":s": text("cup")}}
		for _, f := range optFns {
			f(in)
		}
		return in
	}
	one := item{"id": text("1")}
	full := item{"id": text("1"), "sku": text("cup"), "x": text("y"), "z": large}
	const described = `AttributeDefinitions:[AttributeName:id AttributeType:S]`
	for what, row := range map[string]struct {
		in   []any
		want string
	}{
		"a table":                   {[]any{simple, describe}, `Table:` + described + ` ItemCount:0 KeySchema:[AttributeName:id KeyType:HASH] TableArn:arn:aws:dynamodb:us-east-1:123456789012:table/rows TableName:rows TableStatus:ACTIVE`},
		"a table again":             {[]any{simple, simple}, "ResourceInUseException"},
		"no name":                   {[]any{named("")}, invalid},
		"a name with a colon":       {[]any{named("a:b")}, invalid},
		"no key":                    {[]any{create(nil, nil)}, invalid},
		"a sort key only":           {[]any{create(keys("id", "n")[1:], attributes("n:N"))}, invalid},
		"two sort keys":             {[]any{create(keys("id", "n", "m"), attributes("id:S", "n:N", "m:N"))}, invalid},
		"no definition":             {[]any{create(keys("id"), nil)}, invalid},
		"another definition":        {[]any{create(keys("id"), attributes("id:S", "n:N"))}, invalid},
		"an index":                  {[]any{create(keys("id"), attributes("id:S", "sku:S"), indexed(all, "sku")...), describe}, `Table:AttributeDefinitions:[AttributeName:id AttributeType:S AttributeName:sku AttributeType:S] GlobalSecondaryIndexes:[IndexName:by IndexStatus:ACTIVE KeySchema:[AttributeName:sku KeyType:HASH] Projection:ProjectionType:ALL] ItemCount:0 KeySchema:[AttributeName:id KeyType:HASH] TableArn:arn:aws:dynamodb:us-east-1:123456789012:table/rows TableName:rows TableStatus:ACTIVE`},
		"an index of nothing":       {[]any{create(keys("id"), attributes("id:S", "sku:S"), indexed(nil, "sku")...)}, invalid},
		"an index by none":          {[]any{create(keys("id"), attributes("id:S"), indexed(all, "sku")...)}, invalid},
		"an index of all":           {[]any{create(keys("id"), attributes("id:S", "sku:S"), indexed(all, "sku")...), put(item{"id": text("1"), "sku": text("cup"), "x": text("y")}), put(item{"id": text("2")}), query()}, `Count:1 Items:[{id:"1" sku:"cup" x:"y"}] ScannedCount:1`},
		"an index of keys":          {[]any{create(keys("id"), attributes("id:S", "sku:S"), indexed(keysOnly, "sku")...), put(item{"id": text("1"), "sku": text("cup"), "x": text("y")}), query()}, `Count:1 Items:[{id:"1" sku:"cup"}] ScannedCount:1`},
		"an index of some":          {[]any{create(keys("id"), attributes("id:S", "sku:S"), indexed(some, "sku")...), put(full), query(func(in *dynamodb.QueryInput) { in.ProjectionExpression = aws.String("x") })}, `Count:1 Items:[{x:"y"}] ScannedCount:1`},
		"from another item":         {[]any{create(keys("id"), attributes("id:S", "sku:S"), indexed(keysOnly, "sku")...), query(func(in *dynamodb.QueryInput) { in.ExclusiveStartKey = one })}, invalid},
		"deletion in no index":      {[]any{create(keys("id"), attributes("id:S", "sku:S"), indexed(all, "sku")...), put(item{"id": text("1"), "z": large}), count(one)}, `ConsumedCapacity:CapacityUnits:2 TableName:rows`},
		"deletion in an index":      {[]any{create(keys("id"), attributes("id:S", "sku:S"), indexed(all, "sku")...), put(full), count(one)}, `ConsumedCapacity:CapacityUnits:4 TableName:rows`},
		"deletion in a part":        {[]any{create(keys("id"), attributes("id:S", "sku:S"), indexed(some, "sku")...), put(full), count(one)}, `ConsumedCapacity:CapacityUnits:3 TableName:rows`},
		"deletion in a large part":  {[]any{create(keys("id"), attributes("id:S", "sku:S"), indexed(some, "sku")...), put(item{"id": text("1"), "sku": text("cup"), "x": large, "z": large}), count(one)}, `ConsumedCapacity:CapacityUnits:6 TableName:rows`},
		"a deleted item":            {[]any{simple, put(one), count(one), describe}, `Table:` + described + ` ItemCount:0 KeySchema:[AttributeName:id KeyType:HASH] TableArn:arn:aws:dynamodb:us-east-1:123456789012:table/rows TableName:rows TableStatus:ACTIVE`},
		"scan by another attribute": {[]any{create(keys("id"), attributes("id:S", "sku:S"), indexed(keysOnly, "sku")...), &dynamodb.ScanInput{TableName: rows, IndexName: aws.String("by"), FilterExpression: aws.String("attribute_exists(x)")}}, invalid},
		"scan no index":             {[]any{simple, &dynamodb.ScanInput{TableName: rows, IndexName: aws.String("by")}}, invalid},
		"deletion of none":          {[]any{simple, count(one)}, `ConsumedCapacity:CapacityUnits:1 TableName:rows`},
		"deletion of 1024":          {[]any{simple, put(item{"id": text("1"), "z": text(strings.Repeat("x", 1020))}), count(one)}, `ConsumedCapacity:CapacityUnits:1 TableName:rows`},
		"deletion of 1025":          {[]any{simple, put(item{"id": text("1"), "z": text(strings.Repeat("x", 1021))}), count(one)}, `ConsumedCapacity:CapacityUnits:2 TableName:rows`},
		"a binary sort key":         {[]any{create(keys("id", "b"), attributes("id:S", "b:B")), put(item{"id": text("1"), "b": binary("x")}), &dynamodb.GetItemInput{TableName: rows, Key: item{"id": text("1"), "b": binary("x")}}}, `Item:{b:b"x" id:"1"}`},
		"the longest sort key":      {[]any{create(keys("id", "s"), attributes("id:S", "s:S")), &dynamodb.GetItemInput{TableName: rows, Key: item{"id": text("1"), "s": text(strings.Repeat("x", 1024))}}}, ``},
		"too long a sort key":       {[]any{create(keys("id", "s"), attributes("id:S", "s:S")), &dynamodb.GetItemInput{TableName: rows, Key: item{"id": text("1"), "s": text(strings.Repeat("x", 1025))}}}, invalid},
		"a number as key":           {[]any{create(keys("n"), attributes("n:N")), put(item{"n": num("1.0")}), &dynamodb.GetItemInput{TableName: rows, Key: item{"n": num("1")}}}, `Item:{n:1}`},
		"three replicas":            {[]any{simple, three, describe}, `Table:` + described + ` GlobalTableVersion:2019.11.21 ItemCount:0 KeySchema:[AttributeName:id KeyType:HASH] MultiRegionConsistency:STRONG Replicas:[RegionName:eu-west-1 ReplicaStatus:ACTIVE RegionName:eu-west-3 ReplicaStatus:ACTIVE] TableArn:arn:aws:dynamodb:us-east-1:123456789012:table/rows TableName:rows TableStatus:ACTIVE`},
		"two and a witness":         {[]any{simple, strong(replicas("eu-west-1"), witnesses("eu-west-3"))}, `TableDescription:` + described + ` GlobalTableVersion:2019.11.21 GlobalTableWitnesses:[RegionName:eu-west-3 WitnessStatus:ACTIVE] ItemCount:0 KeySchema:[AttributeName:id KeyType:HASH] MultiRegionConsistency:STRONG Replicas:[RegionName:eu-west-1 ReplicaStatus:ACTIVE] TableArn:arn:aws:dynamodb:us-east-1:123456789012:table/rows TableName:rows TableStatus:ACTIVE`},
		"two witnesses":             {[]any{simple, strong(nil, witnesses("eu-west-1", "eu-west-3"))}, invalid},
		"four replicas":             {[]any{simple, strong(replicas("eu-west-1", "eu-west-2", "eu-west-3"), nil)}, invalid},
		"a replica twice":           {[]any{simple, strong(replicas("eu-west-1", "eu-west-1"), nil)}, invalid},
		"a replica of its own":      {[]any{simple, strong(replicas("eu-west-1", "us-east-1"), nil)}, invalid},
		"a replica nowhere":         {[]any{simple, strong(replicas("eu-west-1", ""), nil)}, invalid},
		"a replica is gone":         {[]any{simple, strong([]types.ReplicationGroupUpdate{{}, {}}, nil)}, `UpdateTable, dynamotest does not implement UpdateTable with another change of a replica`},
		"a witness is gone":         {[]any{simple, strong(replicas("eu-west-1"), []types.GlobalTableWitnessGroupUpdate{{}})}, `UpdateTable, dynamotest does not implement UpdateTable that deletes a witness`},
		"global twice":              {[]any{simple, three, three}, invalid},
		"global with items":         {[]any{simple, put(one), three}, invalid},
		"global with expiry":        {[]any{simple, live(true, "t"), three}, invalid},
		"eventual":                  {[]any{simple, &dynamodb.UpdateTableInput{TableName: rows, ReplicaUpdates: replicas("eu-west-1", "eu-west-3")}}, `UpdateTable, dynamotest does not implement UpdateTable without strong consistency`},
		"transaction in global":     {[]any{simple, three, transact(types.TransactWriteItem{Put: &types.Put{TableName: rows, Item: one}})}, invalid},
		"expiry in global":          {[]any{simple, three, live(true, "t")}, invalid},
		"no expiry":                 {[]any{simple, ttl}, `TimeToLiveDescription:TimeToLiveStatus:DISABLED`},
		"expiry":                    {[]any{simple, live(true, "t"), ttl}, `TimeToLiveDescription:AttributeName:t TimeToLiveStatus:ENABLED`},
		"expiry again":              {[]any{simple, live(true, "t"), live(true, "t")}, invalid},
		"expiry off":                {[]any{simple, live(true, "t"), live(false, "t"), ttl}, `TimeToLiveDescription:TimeToLiveStatus:DISABLED`},
		"expiry off again":          {[]any{simple, live(false, "t")}, invalid},
		"expiry by none":            {[]any{simple, live(true, "")}, invalid},
		"expiry of nothing":         {[]any{simple, &dynamodb.UpdateTimeToLiveInput{TableName: rows}}, invalid},
		"an update in a part":       {[]any{simple, put(item{"id": text("1"), "m": &types.AttributeValueMemberM{Value: item{"a": num("1")}}}), &dynamodb.UpdateItemInput{TableName: rows, Key: one, UpdateExpression: aws.String("REMOVE m.a"), ReturnValues: "UPDATED_NEW"}}, `UpdateItem, dynamotest does not implement ReturnValues UPDATED_NEW with a nested path`},
		"a count of items":          {[]any{simple, put(one), put(item{"id": text("2")}), &dynamodb.ScanInput{TableName: rows, Select: "COUNT"}}, `Count:2 ScannedCount:2`},
	} {
		db := dynamotest.New()
		got := ""
		for i, in := range row.in {
			if got = made(t, db, in); i < len(row.in)-1 && slices.Contains([]string{invalid, "ResourceInUseException"}, got) {
				t.Errorf("%s: call %d: %s", what, i, got)
			}
		}
		if got != row.want {
			t.Errorf("%s: got\n%s\nwant\n%s", what, got, row.want)
		}
	}
}
