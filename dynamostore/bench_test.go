package dynamostore_test

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// instant answers every PutItem at once.
type instant struct {
	*fakeDynamoDB
	err error
}

func (i instant) PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	return nil, i.err
}

// What a first request spends in this package.
func BenchmarkInsert(b *testing.B) {
	s := newStore(b, instant{})
	r, now := someRecord(), at(0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Insert(b.Context(), r, now); err != nil {
			b.Fatal(err)
		}
	}
}

// What a duplicate spends in this package.
func BenchmarkInsert_Refused(b *testing.B) {
	fake := newFake()
	r := fullRecord()
	if _, err := newStore(b, fake).Insert(b.Context(), r, at(0)); err != nil {
		b.Fatal(err)
	}
	s := newStore(b, instant{err: &types.ConditionalCheckFailedException{Item: fake.items[string(r.ID)]}})
	b.ReportAllocs()
	for b.Loop() {
		if met, err := s.Insert(b.Context(), r, at(0)); err != nil || met == nil {
			b.Fatal(err)
		}
	}
}
