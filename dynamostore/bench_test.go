// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// instant answers every PutItem and every batch immediately.
type instant struct {
	*fakeDynamoDB
	err    error
	chunks *dynamodb.BatchGetItemOutput
}

func (i instant) PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	return nil, i.err
}

func (i instant) BatchWriteItem(context.Context, *dynamodb.BatchWriteItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error) {
	return &dynamodb.BatchWriteItemOutput{}, nil
}

func (i instant) BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	return i.chunks, nil
}

// The time of a first request in this package.
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

// The time of a duplicate in this package.
func BenchmarkInsert_Refused(b *testing.B) {
	fake := newFake()
	r := fullRecord()
	if _, err := newStore(b, fake).Insert(b.Context(), r, at(0)); err != nil {
		b.Fatal(err)
	}
	s := newStore(b, instant{err: &types.ConditionalCheckFailedException{Item: fake.item(string(r.ID))}})
	b.ReportAllocs()
	for b.Loop() {
		if met, err := s.Insert(b.Context(), r, at(0)); err != nil || met == nil {
			b.Fatal(err)
		}
	}
}

// The additional time of a first request with a large result in this package.
func BenchmarkPutChunks(b *testing.B) {
	for _, size := range []int{300 << 10, 6 << 20} {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			s := newStore(b, instant{})
			id, v, data := someRecord().ID, newVersion(), noise(size)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.PutChunks(b.Context(), id, v, data, chunksExpire); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The additional time of the replay of a large result in this package.
func BenchmarkGetChunks(b *testing.B) {
	for _, size := range []int{300 << 10, 6 << 20} {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			fake := newFake()
			id, v, count := putChunks(b, newStore(b, fake), noise(size))
			items := []item{}
			for _, it := range fake.all() {
				items = append(items, it)
			}
			s := newStore(b, instant{chunks: &dynamodb.BatchGetItemOutput{Responses: map[string][]item{tableName: items}}})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.GetChunks(b.Context(), id, v, count); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
