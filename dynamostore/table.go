package dynamostore

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// The schema of the table, for infrastructure code that creates it. It is fixed:
// functions of different versions share one table.
//
// Of the names used in expressions only ttl is a reserved word (developer guide,
// "Reserved words in DynamoDB"), so the others need no placeholders.
const (
	// PartitionKey is the table's only key attribute, a string: the record id.
	PartitionKey = "pk"
	// TTLAttribute is the attribute of the table's time to live, a number:
	// seconds since 1970.
	TTLAttribute = "ttl"
	// IndexName is the global secondary index of the records that reconciliation
	// has to find. It projects keys only.
	IndexName = "recovery"
	// IndexPartitionKey is the index's partition key, a string.
	IndexPartitionKey = "rk"
	// IndexSortKey is the index's sort key, a number: when the record is due,
	// in milliseconds since 1970.
	IndexSortKey = "rat"
)

// tableInput returns the request that creates the table. The table has on-demand
// billing, because the load of a retry storm cannot be provisioned in advance.
func tableInput(name string) *dynamodb.CreateTableInput {
	return &dynamodb.CreateTableInput{
		TableName:   aws.String(name),
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String(PartitionKey), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String(IndexPartitionKey), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String(IndexSortKey), AttributeType: types.ScalarAttributeTypeN},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String(PartitionKey), KeyType: types.KeyTypeHash},
		},
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName: aws.String(IndexName),
			KeySchema: []types.KeySchemaElement{
				{AttributeName: aws.String(IndexPartitionKey), KeyType: types.KeyTypeHash},
				{AttributeName: aws.String(IndexSortKey), KeyType: types.KeyTypeRange},
			},
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
		}},
	}
}

// ttlInput returns the request that switches the table's time to live on.
func ttlInput(name string) *dynamodb.UpdateTimeToLiveInput {
	return &dynamodb.UpdateTimeToLiveInput{
		TableName: aws.String(name),
		TimeToLiveSpecification: &types.TimeToLiveSpecification{
			AttributeName: aws.String(TTLAttribute),
			Enabled:       aws.Bool(true),
		},
	}
}
