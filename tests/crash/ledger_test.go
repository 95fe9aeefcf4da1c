package crash

import (
	"context"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/tests/engine"
)

// The ledger is for effects that are writes to the database: an item for each
// key, in the store's table, that counts its entries.

func ledgerKey(key idempotent.Key) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{dynamostore.PartitionKey: &types.AttributeValueMemberS{Value: "ledger-" + key.ID}}
}

// entry adds an entry for key to the ledger.
func entry(key idempotent.Key) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                 aws.String(ledgerTable),
		Key:                       ledgerKey(key),
		UpdateExpression:          aws.String("ADD entries :one"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":one": &types.AttributeValueMemberN{Value: "1"}},
	}}
}

// ledgerTable is the table of the store.
var ledgerTable string

// entries returns how many entries the ledger has for key.
func entries(ctx context.Context, key idempotent.Key) (int, error) {
	out, err := dynamostore.NewClient(engine.Config(endpoint)).GetItem(ctx, &dynamodb.GetItemInput{
		TableName: aws.String(ledgerTable), Key: ledgerKey(key), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return 0, err
	}
	n, ok := out.Item["entries"].(*types.AttributeValueMemberN)
	if !ok {
		return 0, nil
	}
	return strconv.Atoi(n.Value)
}
