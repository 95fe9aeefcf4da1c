// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
)

// instant returns a client that answers each call with that reply immediately.
func instant(out any, err error) dynamostore.Client {
	return dynamotest.Intercept(nil, func(_ context.Context, c *dynamotest.Call) { c.Out, c.Err = out, err })
}

// The time of a first request in this package.
func BenchmarkInsert(b *testing.B) {
	s := newStore(b, instant(&dynamodb.PutItemOutput{}, nil))
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
	s := newStore(b, instant(nil, &types.ConditionalCheckFailedException{Item: fake.item(string(r.ID))}))
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
			s := newStore(b, instant(&dynamodb.BatchWriteItemOutput{}, nil))
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
			s := newStore(b, instant(&dynamodb.BatchGetItemOutput{Responses: map[string][]item{tableName: items}}, nil))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.GetChunks(b.Context(), id, v, count); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
