package dynamostore

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/idempotent/driver"
)

// Get returns the record id, expired or not, or [idempotent.ErrNoRecord]. The read
// is consistent: it costs one read unit per 4 KB and sees every write that was
// acknowledged before. See [driver.Store].
func (s *Store) Get(ctx context.Context, id driver.RecordID) (*driver.Record, error) {
	in := &dynamodb.GetItemInput{
		TableName:      aws.String(s.table),
		Key:            item{PartitionKey: text(string(id))},
		ConsistentRead: aws.Bool(true),
	}
	var out *dynamodb.GetItemOutput
	err := s.persist(ctx, func() (err error) {
		out, err = s.client.GetItem(ctx, in)
		return err
	})
	if err != nil {
		return nil, s.explain("GetItem", err)
	}
	if len(out.Item) == 0 {
		return nil, driver.ErrNoRecord
	}
	return decode(out.Item)
}
