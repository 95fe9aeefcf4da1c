// SPDX-License-Identifier: Apache-2.0

package dynamotest_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/once-lambda/once/dynamostore/dynamotest"
)

// show returns a value of the SDK as text: the fields that are set, and attributes as in
// JSON.
func show(v any) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return fmt.Sprintf("%.40q", v.Value)
	case *types.AttributeValueMemberB:
		return fmt.Sprintf("b%q", v.Value)
	case *types.AttributeValueMemberBS:
		return fmt.Sprintf("b%q", v.Value)
	case fmt.Stringer:
		return v.String()
	}
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Pointer:
		if r.Elem().Kind() == reflect.Struct && strings.HasPrefix(r.Elem().Type().Name(), "AttributeValueMember") {
			return show(r.Elem().FieldByName("Value").Interface())
		}
		return show(r.Elem().Interface())
	case reflect.Struct:
		var fields []string
		for i := range r.NumField() {
			if f := r.Type().Field(i); f.IsExported() && f.Name != "ResultMetadata" && !r.Field(i).IsZero() {
				fields = append(fields, f.Name+":"+show(r.Field(i).Interface()))
			}
		}
		return strings.Join(fields, " ")
	case reflect.Map:
		var members []string
		for _, k := range slices.SortedFunc(slices.Values(r.MapKeys()), func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) }) {
			members = append(members, k.String()+":"+show(r.MapIndex(k).Interface()))
		}
		return "{" + strings.Join(members, " ") + "}"
	case reflect.Slice:
		var elements []string
		for i := range r.Len() {
			elements = append(elements, show(r.Index(i).Interface()))
		}
		return "[" + strings.Join(elements, " ") + "]"
	}
	return fmt.Sprint(v)
}

// made makes a call by the type of its input, and returns its output or its error code.
func made(t *testing.T, db *dynamotest.DB, in any) string {
	t.Helper()
	method := strings.TrimSuffix(reflect.TypeOf(in).Elem().Name(), "Input")
	reply := reflect.ValueOf(db).MethodByName(method).Call([]reflect.Value{reflect.ValueOf(t.Context()), reflect.ValueOf(in)})
	err, _ := reply[1].Interface().(error)
	if err == nil {
		return show(reply[0].Interface())
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		response, ok := errors.AsType[*smithyhttp.ResponseError](err)
		if operation, named := errors.AsType[*smithy.OperationError](err); !ok || response.HTTPStatusCode() != 400 || !named || operation.OperationName != method {
			t.Errorf("%s: %v is no error of the SDK: %v", method, api, err)
		}
	}
	if cancelled, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		return show(cancelled.CancellationReasons)
	}
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return "failed " + show(failed.Item)
	}
	return strings.TrimPrefix(code(err), "operation error DynamoDB: ")
}

const invalid = "ValidationException"

var (
	rows   = aws.String("rows")
	binary = func(s string) types.AttributeValue { return &types.AttributeValueMemberB{Value: []byte(s)} }
	set    = func(s ...string) types.AttributeValue { return &types.AttributeValueMemberSS{Value: s} }
	total  = types.ReturnConsumedCapacityTotal
)

func with(pk string, others item) item {
	it := key(pk)
	maps.Copy(it, others)
	return it
}

func puts(items ...item) *dynamodb.BatchWriteItemInput {
	in := &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{}}
	for _, it := range items {
		in.RequestItems["rows"] = append(in.RequestItems["rows"], types.WriteRequest{PutRequest: &types.PutRequest{Item: it}})
	}
	return in
}

func deletes(keys ...item) *dynamodb.BatchWriteItemInput {
	in := &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{}}
	for _, k := range keys {
		in.RequestItems["rows"] = append(in.RequestItems["rows"], types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: k}})
	}
	return in
}

func gets(keys ...item) *dynamodb.BatchGetItemInput {
	return &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"rows": {Keys: keys}}}
}

// many returns so many items, each with an attribute of so many bytes.
func many(n, bytes int) (items []item) {
	for i := range n {
		it := key(fmt.Sprint("k", i))
		if bytes > 0 {
			it["x"] = text(strings.Repeat("x", bytes))
		}
		items = append(items, it)
	}
	return items
}

func transact(items ...types.TransactWriteItem) *dynamodb.TransactWriteItemsInput {
	return &dynamodb.TransactWriteItemsInput{TransactItems: items}
}

func allPut(items []item) (all []types.TransactWriteItem) {
	for _, it := range items {
		all = append(all, types.TransactWriteItem{Put: &types.Put{TableName: rows, Item: it}})
	}
	return all
}

func checked(pk, condition string) types.TransactWriteItem {
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{TableName: rows, Key: key(pk), ConditionExpression: &condition}}
}

// The database has the items a, with n = 1, and b. A call returns its output, which is
// followed by the database if it is another one then.
func TestCalls(t *testing.T) {
	t.Parallel()
	const before = `[{n:1 pk:"a"} {pk:"b"}]`
	exists, missing, names := aws.String("attribute_exists(pk)"), aws.String("attribute_not_exists(pk)"), map[string]string{"#n": "n"}
	deep := text("x")
	for range 32 {
		deep = &types.AttributeValueMemberL{Value: []types.AttributeValue{deep}}
	}
	for what, row := range map[string]struct {
		in   any
		want string
	}{
		"get":                       {&dynamodb.GetItemInput{TableName: rows, Key: key("a")}, `Item:{n:1 pk:"a"}`},
		"get none":                  {&dynamodb.GetItemInput{TableName: rows, Key: key("c")}, ``},
		"get a part":                {&dynamodb.GetItemInput{TableName: rows, Key: key("a"), ProjectionExpression: aws.String("n")}, `Item:{n:1}`},
		"get two parts":             {&dynamodb.GetItemInput{TableName: rows, Key: key("a"), ProjectionExpression: aws.String("n, pk")}, `Item:{n:1 pk:"a"}`},
		"get a part twice":          {&dynamodb.GetItemInput{TableName: rows, Key: key("a"), ProjectionExpression: aws.String("n, n")}, invalid},
		"get with more":             {&dynamodb.GetItemInput{TableName: rows, Key: key("a"), ProjectionExpression: aws.String("n n")}, invalid},
		"get with unused names":     {&dynamodb.GetItemInput{TableName: rows, Key: key("a"), ProjectionExpression: aws.String("n"), ExpressionAttributeNames: names}, invalid},
		"get with names":            {&dynamodb.GetItemInput{TableName: rows, Key: key("a"), ExpressionAttributeNames: names}, invalid},
		"get with no names":         {&dynamodb.GetItemInput{TableName: rows, Key: key("a"), ProjectionExpression: aws.String("n"), ExpressionAttributeNames: map[string]string{}}, invalid},
		"get by more than the key":  {&dynamodb.GetItemInput{TableName: rows, Key: with("a", item{"n": num("1")})}, invalid},
		"get by another type":       {&dynamodb.GetItemInput{TableName: rows, Key: item{"pk": num("1")}}, invalid},
		"get by another name":       {&dynamodb.GetItemInput{TableName: rows, Key: item{"id": text("a")}}, invalid},
		"get by an empty key":       {&dynamodb.GetItemInput{TableName: rows, Key: key("")}, invalid},
		"get by the longest key":    {&dynamodb.GetItemInput{TableName: rows, Key: key(strings.Repeat("x", 2048))}, ``},
		"get by too long a key":     {&dynamodb.GetItemInput{TableName: rows, Key: key(strings.Repeat("x", 2049))}, invalid},
		"get without a table":       {&dynamodb.GetItemInput{Key: key("a")}, invalid},
		"no input":                  {(*dynamodb.GetItemInput)(nil), invalid},
		"put":                       {&dynamodb.PutItemInput{TableName: rows, Item: key("a")}, ` | [{pk:"a"} {pk:"b"}]`},
		"put and return":            {&dynamodb.PutItemInput{TableName: rows, Item: key("a"), ReturnValues: "ALL_OLD"}, `Attributes:{n:1 pk:"a"} | [{pk:"a"} {pk:"b"}]`},
		"put and return the new":    {&dynamodb.PutItemInput{TableName: rows, Item: key("a"), ReturnValues: "ALL_NEW"}, `PutItem, dynamotest does not implement ReturnValues ALL_NEW`},
		"put and return none":       {&dynamodb.PutItemInput{TableName: rows, Item: key("c"), ReturnValues: "NONE"}, ` | [{n:1 pk:"a"} {pk:"b"} {pk:"c"}]`},
		"put a new one and return":  {&dynamodb.PutItemInput{TableName: rows, Item: key("c"), ReturnValues: "ALL_OLD"}, ` | [{n:1 pk:"a"} {pk:"b"} {pk:"c"}]`},
		"put without a key":         {&dynamodb.PutItemInput{TableName: rows, Item: item{"n": num("1")}}, invalid},
		"put another type of key":   {&dynamodb.PutItemInput{TableName: rows, Item: item{"pk": num("1")}}, invalid},
		"put nothing":               {&dynamodb.PutItemInput{TableName: rows}, invalid},
		"put if missing":            {&dynamodb.PutItemInput{TableName: rows, Item: key("a"), ConditionExpression: missing}, `failed {}`},
		"put if missing and show":   {&dynamodb.PutItemInput{TableName: rows, Item: key("a"), ConditionExpression: missing, ReturnValuesOnConditionCheckFailure: "ALL_OLD"}, `failed {n:1 pk:"a"}`},
		"put with unused values":    {&dynamodb.PutItemInput{TableName: rows, Item: key("a"), ConditionExpression: exists, ExpressionAttributeValues: item{":v": num("1")}}, invalid},
		"put with no values":        {&dynamodb.PutItemInput{TableName: rows, Item: key("a"), ConditionExpression: exists, ExpressionAttributeValues: item{}}, invalid},
		"put if in the key":         {&dynamodb.PutItemInput{TableName: rows, Item: key("a"), ConditionExpression: aws.String("attribute_not_exists(pk.x)")}, invalid},
		"put another index key":     {&dynamodb.PutItemInput{TableName: rows, Item: with("a", item{"rk": num("1")})}, invalid},
		"put an empty index key":    {&dynamodb.PutItemInput{TableName: rows, Item: with("a", item{"rk": text("")})}, invalid},
		"put false for null":        {&dynamodb.PutItemInput{TableName: rows, Item: with("a", item{"x": &types.AttributeValueMemberNULL{}})}, invalid},
		"put a missing value":       {&dynamodb.PutItemInput{TableName: rows, Item: with("a", item{"x": nil})}, invalid},
		"put missing bytes":         {&dynamodb.PutItemInput{TableName: rows, Item: with("a", item{"x": &types.AttributeValueMemberB{}})}, invalid},
		"put an empty set":          {&dynamodb.PutItemInput{TableName: rows, Item: with("a", item{"x": set()})}, invalid},
		"put a set with duplicates": {&dynamodb.PutItemInput{TableName: rows, Item: with("a", item{"x": &types.AttributeValueMemberNS{Value: []string{"1", "1.0"}}})}, invalid},
		"put no number":             {&dynamodb.PutItemInput{TableName: rows, Item: with("a", item{"x": num("1,5")})}, invalid},
		"put a long number":         {&dynamodb.PutItemInput{TableName: rows, Item: with("a", item{"x": num(strings.Repeat("0", 1001))})}, invalid},
		"put a large number":        {&dynamodb.PutItemInput{TableName: rows, Item: with("a", item{"x": num("1e126")})}, invalid},
		"put the largest number":    {&dynamodb.PutItemInput{TableName: rows, Item: key("a"), ConditionExpression: aws.String("n < :x"), ExpressionAttributeValues: item{":x": num("9.9999999999999999999999999999999999999E125")}}, ` | [{pk:"a"} {pk:"b"}]`},
		"put a small number":        {&dynamodb.PutItemInput{TableName: rows, Item: with("a", item{"x": num("-9e-131")})}, invalid},
		"put a precise number":      {&dynamodb.PutItemInput{TableName: rows, Item: with("a", item{"x": num("1." + strings.Repeat("1", 38))})}, invalid},
		"put too deep a value":      {&dynamodb.PutItemInput{TableName: rows, Item: with("a", item{"x": &types.AttributeValueMemberM{Value: item{"x": deep}}})}, invalid},
		"put every type": {&dynamodb.PutItemInput{TableName: rows, Item: with("c", item{
			"null": &types.AttributeValueMemberNULL{Value: true}, "no": &types.AttributeValueMemberBOOL{}, "bytes": binary(""), "low": num("1e-130"), "negative": num("-0012.500"), "zero": num("0e1"), "text": text("a\xff"),
			"ns": &types.AttributeValueMemberNS{Value: []string{"2", "1.0"}}, "bs": &types.AttributeValueMemberBS{Value: [][]byte{{2}, {1}}}, "ss": set("b", "a"), "m": &types.AttributeValueMemberM{Value: item{"l": &types.AttributeValueMemberL{}}},
		})}, ` | [{n:1 pk:"a"} {pk:"b"} {bs:b["\x01" "\x02"] bytes:b"" low:0.` + strings.Repeat("0", 129) + `1 m:{l:[]} negative:-12.5 no:false ns:[1 2] null:true pk:"c" ss:[a b] text:"a` + "\ufffd" + `" zero:0}]`},
		"put the largest item":     {&dynamodb.PutItemInput{TableName: rows, Item: with("b", item{"x": binary(strings.Repeat("x", 400<<10-4))}), ConditionExpression: missing}, `failed {}`},
		"put too large an item":    {&dynamodb.PutItemInput{TableName: rows, Item: with("b", item{"x": binary(strings.Repeat("x", 400<<10-3))}), ConditionExpression: missing}, invalid},
		"update":                   {&dynamodb.UpdateItemInput{TableName: rows, Key: key("a"), UpdateExpression: aws.String("ADD n :n"), ExpressionAttributeValues: item{":n": num("2")}, ReturnValues: "UPDATED_NEW"}, `Attributes:{n:3} | [{n:3 pk:"a"} {pk:"b"}]`},
		"update and show":          {&dynamodb.UpdateItemInput{TableName: rows, Key: key("a"), UpdateExpression: aws.String("REMOVE n"), ReturnValues: "ALL_OLD"}, `Attributes:{n:1 pk:"a"} | [{pk:"a"} {pk:"b"}]`},
		"update nothing":           {&dynamodb.UpdateItemInput{TableName: rows, Key: key("c"), ReturnValues: "ALL_NEW"}, `Attributes:{pk:"c"} | [{n:1 pk:"a"} {pk:"b"} {pk:"c"}]`},
		"update a part":            {&dynamodb.UpdateItemInput{TableName: rows, Key: key("a"), UpdateExpression: aws.String("SET m = :m"), ExpressionAttributeValues: item{":m": &types.AttributeValueMemberM{Value: item{"x": deep}}}}, invalid},
		"update the index key":     {&dynamodb.UpdateItemInput{TableName: rows, Key: key("a"), UpdateExpression: aws.String("SET rk = :n"), ExpressionAttributeValues: item{":n": num("2")}}, invalid},
		"update a section twice":   {&dynamodb.UpdateItemInput{TableName: rows, Key: key("a"), UpdateExpression: aws.String("REMOVE n REMOVE x")}, invalid},
		"update, delete none":      {&dynamodb.UpdateItemInput{TableName: rows, Key: key("a"), UpdateExpression: aws.String("DELETE x :s"), ExpressionAttributeValues: item{":s": set("a")}}, ``},
		"update, delete of number": {&dynamodb.UpdateItemInput{TableName: rows, Key: key("a"), UpdateExpression: aws.String("DELETE n :s"), ExpressionAttributeValues: item{":s": set("a")}}, invalid},
		"update, add a set":        {&dynamodb.UpdateItemInput{TableName: rows, Key: key("a"), UpdateExpression: aws.String("ADD x :s"), ExpressionAttributeValues: item{":s": set("a")}}, ` | [{n:1 pk:"a" x:[a]} {pk:"b"}]`},
		"update, in a part shown":  {&dynamodb.UpdateItemInput{TableName: rows, Key: key("a"), UpdateExpression: aws.String("REMOVE m.x"), ReturnValues: "UPDATED_NEW"}, invalid},
		"delete":                   {&dynamodb.DeleteItemInput{TableName: rows, Key: key("b")}, ` | [{n:1 pk:"a"}]`},
		"delete and return":        {&dynamodb.DeleteItemInput{TableName: rows, Key: key("a"), ReturnValues: "ALL_OLD"}, `Attributes:{n:1 pk:"a"} | [{pk:"b"}]`},
		"delete and return new":    {&dynamodb.DeleteItemInput{TableName: rows, Key: key("a"), ReturnValues: "ALL_NEW"}, `DeleteItem, dynamotest does not implement ReturnValues ALL_NEW`},
		"delete and count":         {&dynamodb.DeleteItemInput{TableName: rows, Key: key("b"), ReturnConsumedCapacity: total}, `ConsumedCapacity:CapacityUnits:1 TableName:rows | [{n:1 pk:"a"}]`},
		"delete and do not count":  {&dynamodb.DeleteItemInput{TableName: rows, Key: key("b"), ReturnConsumedCapacity: "NONE"}, ` | [{n:1 pk:"a"}]`},
		"delete if":                {&dynamodb.DeleteItemInput{TableName: rows, Key: key("b"), ConditionExpression: missing}, `failed {}`},
		"write a batch":            {puts(key("c"), key("a")), ` | [{pk:"a"} {pk:"b"} {pk:"c"}]`},
		"delete a batch":           {deletes(key("c"), key("a")), ` | [{pk:"b"}]`},
		"write one twice":          {puts(key("c"), key("c")), invalid},
		"an empty batch":           {puts(), invalid},
		"26 writes":                {puts(many(26, 0)...), invalid},
		"25 deletes":               {deletes(many(25, 0)...), ``},
		"an empty write":           {&dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{"rows": {{}}}}, invalid},
		"a write and a delete":     {&dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{"rows": {{PutRequest: &types.PutRequest{Item: key("c")}, DeleteRequest: &types.DeleteRequest{Key: key("d")}}}}}, invalid},
		"read a batch":             {gets(key("a"), key("c"), key("b")), `Responses:{rows:[{pk:"b"} {n:1 pk:"a"}]} UnprocessedKeys:{}`},
		"read parts":               {&dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"rows": {Keys: []item{key("a")}, ProjectionExpression: aws.String("#n"), ExpressionAttributeNames: names}}}, `Responses:{rows:[{n:1}]} UnprocessedKeys:{}`},
		"read with unused names":   {&dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"rows": {Keys: []item{key("a")}, ExpressionAttributeNames: names}}}, invalid},
		"read old attributes":      {&dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"rows": {Keys: []item{key("a")}, AttributesToGet: []string{"n"}}}}, `BatchGetItem, dynamotest does not implement KeysAndAttributes with AttributesToGet`},
		"read one twice":           {gets(key("a"), key("a")), invalid},
		"an empty read":            {gets(), invalid},
		"101 reads":                {gets(many(101, 0)...), invalid},
		"100 reads":                {gets(many(100, 0)...), `Responses:{} UnprocessedKeys:{}`},
		"transact": {transact(
			types.TransactWriteItem{Put: &types.Put{TableName: rows, Item: key("c")}},
			types.TransactWriteItem{Delete: &types.Delete{TableName: rows, Key: key("b"), ConditionExpression: exists}},
			checked("a", "n > pk OR attribute_exists(n)"),
		), ` | [{n:1 pk:"a"} {pk:"c"}]`},
		"transact and fail": {transact(checked("a", "attribute_exists(n)"), checked("b", "attribute_exists(n)"),
			types.TransactWriteItem{Delete: &types.Delete{TableName: rows, Key: key("c"), ConditionExpression: exists}},
			types.TransactWriteItem{Put: &types.Put{TableName: rows, Item: item{"n": num("1")}}},
		), `[Code:None Code:ConditionalCheckFailed Message:The conditional request failed Code:ConditionalCheckFailed Message:The conditional request failed Code:ValidationError Message:One or more parameter values were invalid: Missing the key pk in the item]`},
		"transact and show": {transact(
			types.TransactWriteItem{Put: &types.Put{TableName: rows, Item: key("a"), ConditionExpression: missing, ReturnValuesOnConditionCheckFailure: "ALL_OLD"}},
			types.TransactWriteItem{Delete: &types.Delete{TableName: rows, Key: key("b"), ConditionExpression: missing, ReturnValuesOnConditionCheckFailure: "ALL_OLD"}},
		), `[Code:ConditionalCheckFailed Item:{n:1 pk:"a"} Message:The conditional request failed Code:ConditionalCheckFailed Item:{pk:"b"} Message:The conditional request failed]`},
		"transact, check and show": {transact(
			types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{TableName: rows, Key: key("a"), ConditionExpression: missing, ReturnValuesOnConditionCheckFailure: "ALL_OLD"}},
		), `[Code:ConditionalCheckFailed Item:{n:1 pk:"a"} Message:The conditional request failed]`},
		"transact, left is text":   {transact(types.TransactWriteItem{Update: &types.Update{TableName: rows, Key: key("a"), UpdateExpression: aws.String("SET n = :s + n"), ExpressionAttributeValues: item{":s": text("x")}}}), invalid},
		"transact, right is text":  {transact(types.TransactWriteItem{Update: &types.Update{TableName: rows, Key: key("a"), UpdateExpression: aws.String("SET n = n + :s"), ExpressionAttributeValues: item{":s": text("x")}}}), invalid},
		"transact, no list":        {transact(types.TransactWriteItem{Update: &types.Update{TableName: rows, Key: key("a"), UpdateExpression: aws.String("SET n = list_append(:s, n)"), ExpressionAttributeValues: item{":s": text("x")}}}), invalid},
		"transact, no second list": {transact(types.TransactWriteItem{Update: &types.Update{TableName: rows, Key: key("a"), UpdateExpression: aws.String("SET n = list_append(n, :s)"), ExpressionAttributeValues: item{":s": text("x")}}}), invalid},
		"transact 100":             {transact(allPut(many(100, 0))[:100]...), `100 more`},
		"transact 101":             {transact(allPut(many(101, 0))...), invalid},
		"transact nothing":         {transact(), invalid},
		"transact one twice":       {transact(checked("a", "attribute_exists(n)"), types.TransactWriteItem{Put: &types.Put{TableName: rows, Item: key("a")}}), invalid},
		"transact two as one":      {transact(types.TransactWriteItem{Put: &types.Put{TableName: rows, Item: key("c")}, Delete: &types.Delete{TableName: rows, Key: key("c")}}), invalid},
		"transact an empty item":   {transact(types.TransactWriteItem{}), invalid},
		"transact, no update":      {transact(types.TransactWriteItem{Update: &types.Update{TableName: rows, Key: key("a")}}), invalid},
		"transact, no check":       {transact(types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{TableName: rows, Key: key("a")}}), invalid},
		"transact, long token":     {&dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{checked("a", "attribute_exists(n)")}, ClientRequestToken: aws.String(strings.Repeat("x", 37))}, invalid},
		"transact, longest token":  {&dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{checked("a", "attribute_exists(n)")}, ClientRequestToken: aws.String(strings.Repeat("x", 36))}, ``},
		"transact, unsupported":    {transact(types.TransactWriteItem{Update: &types.Update{TableName: rows, Key: key("a"), UpdateExpression: aws.String("SET l[0] = n")}}), `TransactWriteItems, dynamotest does not implement an UpdateExpression with a list element`},
		"scan":                     {&dynamodb.ScanInput{TableName: rows}, `Count:2 Items:` + before + ` ScannedCount:2`},
		"scan and filter":          {&dynamodb.ScanInput{TableName: rows, FilterExpression: aws.String("attribute_exists(n)")}, `Count:1 Items:[{n:1 pk:"a"}] ScannedCount:2`},
		"scan and count":           {&dynamodb.ScanInput{TableName: rows, Select: types.SelectCount, ReturnConsumedCapacity: total}, `ConsumedCapacity:CapacityUnits:0.5 TableName:rows Count:2 ScannedCount:2`},
		"scan consistently":        {&dynamodb.ScanInput{TableName: rows, Select: types.SelectCount, ReturnConsumedCapacity: total, ConsistentRead: aws.Bool(true)}, `ConsumedCapacity:CapacityUnits:1 TableName:rows Count:2 ScannedCount:2`},
		"scan without capacity":    {&dynamodb.ScanInput{TableName: rows, Select: types.SelectCount, ReturnConsumedCapacity: "NONE"}, `Count:2 ScannedCount:2`},
		"scan one":                 {&dynamodb.ScanInput{TableName: rows, Limit: aws.Int32(1), ProjectionExpression: aws.String("n")}, `Count:1 Items:[{n:1}] LastEvaluatedKey:{pk:"a"} ScannedCount:1`},
		"scan the rest":            {&dynamodb.ScanInput{TableName: rows, ExclusiveStartKey: key("a")}, `Count:1 Items:[{pk:"b"}] ScannedCount:1`},
		"scan from another key":    {&dynamodb.ScanInput{TableName: rows, ExclusiveStartKey: with("a", item{"n": num("1")})}, invalid},
		"scan from a wrong key":    {&dynamodb.ScanInput{TableName: rows, ExclusiveStartKey: item{"pk": num("1")}}, invalid},
		"scan a segment of none":   {&dynamodb.ScanInput{TableName: rows, Segment: aws.Int32(0)}, invalid},
		"scan no segment":          {&dynamodb.ScanInput{TableName: rows, TotalSegments: aws.Int32(1)}, invalid},
		"scan the only segment":    {&dynamodb.ScanInput{TableName: rows, Segment: aws.Int32(0), TotalSegments: aws.Int32(1), Select: types.SelectCount}, `Count:2 ScannedCount:2`},
		"scan too high a segment":  {&dynamodb.ScanInput{TableName: rows, Segment: aws.Int32(1), TotalSegments: aws.Int32(1)}, invalid},
		"scan too low a segment":   {&dynamodb.ScanInput{TableName: rows, Segment: aws.Int32(-1), TotalSegments: aws.Int32(1)}, invalid},
		"scan no segments":         {&dynamodb.ScanInput{TableName: rows, Segment: aws.Int32(-1), TotalSegments: aws.Int32(0)}, invalid},
		"scan too many segments":   {&dynamodb.ScanInput{TableName: rows, Segment: aws.Int32(1), TotalSegments: aws.Int32(1_000_001)}, invalid},
		"scan the most segments":   {&dynamodb.ScanInput{TableName: rows, Segment: aws.Int32(999_999), TotalSegments: aws.Int32(1_000_000)}, ``},
		"scan into the key":        {&dynamodb.ScanInput{TableName: rows, FilterExpression: aws.String("attribute_exists(rk[0])")}, invalid},
		"query nothing":            {&dynamodb.QueryInput{TableName: rows}, invalid},
		"query with unused values": {&dynamodb.QueryInput{TableName: rows, KeyConditionExpression: aws.String("pk = :a"), ExpressionAttributeValues: item{":a": text("a"), ":b": text("b")}}, invalid},
		"query":                    {&dynamodb.QueryInput{TableName: rows, KeyConditionExpression: aws.String("pk = :a"), ExpressionAttributeValues: item{":a": text("a")}}, `Count:1 Items:[{n:1 pk:"a"}] ScannedCount:1`},
	} {
		db := dynamotest.New("rows")
		if got := made(t, db, puts(with("a", item{"n": num("1")}), key("b"))); got != "" {
			t.Fatal(got)
		}
		got := made(t, db, row.in)
		out, err := db.Scan(t.Context(), &dynamodb.ScanInput{TableName: rows})
		if err != nil {
			t.Fatal(err)
		}
		if after := show(out.Items); after != before {
			got += " | " + after
			if len(out.Items) > 100 {
				got = fmt.Sprint(len(out.Items)-2, " more")
			}
		}
		if got = strings.ReplaceAll(got, " UnprocessedItems:{}", ""); got != row.want {
			t.Errorf("%s: got\n%s\nwant\n%s", what, got, row.want)
		}
	}
}

// The size of an item is that of its names and values, of which 400 KB are accepted.
func TestSizes(t *testing.T) {
	t.Parallel()
	db := dynamotest.New("rows")
	for what, row := range map[string]struct {
		value types.AttributeValue
		bytes int
	}{
		"text":              {text("äb"), 3},
		"a number":          {num("123"), 3},
		"a negative number": {num("-123.4"), 4},
		"a round number":    {num("1200"), 2},
		"a flag":            {&types.AttributeValueMemberBOOL{}, 1},
		"null":              {&types.AttributeValueMemberNULL{Value: true}, 1},
		"texts":             {set("abcdef", "b"), 7},
		"numbers":           {&types.AttributeValueMemberNS{Value: []string{"1", "22"}}, 4},
		"a list":            {&types.AttributeValueMemberL{Value: []types.AttributeValue{text("ab"), num("1")}}, 3 + 1 + 2 + 1 + 2},
		"a map":             {&types.AttributeValueMemberM{Value: item{"k": text("ab")}}, 3 + 1 + 1 + 2},
	} {
		for _, more := range []int{0, 1} {
			filler := 400<<10 - len("pk") - len("a") - len("x") - row.bytes - len("y") + more
			_, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: rows, Item: with("a", item{"x": row.value, "y": binary(strings.Repeat("y", filler))})})
			if refused := code(err) == invalid; refused != (more == 1) {
				t.Errorf("%s of %d bytes, and %d: %v", what, row.bytes, more, err)
			}
		}
	}
}

// An error names the path that it refuses.
func TestPathIsNamed(t *testing.T) {
	t.Parallel()
	_, err := newDB(t).Scan(t.Context(), &dynamodb.ScanInput{TableName: rows, FilterExpression: aws.String("m.l[0] = m.l[0]")})
	if want := "first operand: [m, l, [0]]"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

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
