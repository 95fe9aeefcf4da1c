// SPDX-License-Identifier: Apache-2.0

//go:build !race

package bench

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
)

var byOrder = idempotent.KeyFrom("charge", func(c charge) (scope, id string) { return c.Merchant, c.OrderID })

// guarded returns the handler under the toolkit's guard, with the promise of
// the hand-written one.
func guarded(tb testing.TB) func(context.Context, charge) (receipt, error) {
	tb.Helper()
	store, err := dynamostore.New(client, table)
	if err != nil {
		tb.Fatal(err)
	}
	g, err := idempotent.New(store, func(o *idempotent.Options) { o.Recovery = idempotent.Rerun })
	if err != nil {
		tb.Fatal(err)
	}
	return idempotent.Wrap(g, byOrder, handle)
}

func newCharge() charge {
	return charge{Merchant: "acme", OrderID: rand.Text(), Amount: 4200, Currency: "usd"}
}

// sides returns one operation of each side; request gives each of them its
// request.
func sides(tb testing.TB, request func() charge, replay bool) (ours, theirs side) {
	wrapped, ctx := guarded(tb), tb.Context()
	want, _ := handle(ctx, charge{})
	return func() {
			if got, err := wrapped(ctx, request()); err != nil || got != want {
				tb.Fatalf("got %+v and error %v", got, err)
			}
		}, func() {
			got, replayed, err := byHand(ctx, request())
			if err != nil || got != want || replayed != replay {
				tb.Fatalf("by hand: got %+v, replayed %v and error %v", got, replayed, err)
			}
		}
}

// replays returns both sides of a replay: each has its own completed record.
func replays(tb testing.TB) (ours, theirs side) {
	a, b := newCharge(), newCharge()
	first, _ := sides(tb, func() charge { return a }, false)
	_, firstByHand := sides(tb, func() charge { return b }, false)
	first()
	firstByHand()
	ours, _ = sides(tb, func() charge { return a }, true)
	_, theirs = sides(tb, func() charge { return b }, true)
	return ours, theirs
}

// requestsOf counts the calls of one operation.
func requestsOf(op side) int64 {
	before := wire.requests.Load()
	op()
	return wire.requests.Load() - before
}

// A first request is two calls on both sides, the claim and the outcome. A
// replay is one call: a refused write that returns the record.
func TestBothCallTheSame(t *testing.T) {
	ours, theirs := sides(t, newCharge, false)
	if a, b := requestsOf(ours), requestsOf(theirs); a != b || a != 2 {
		t.Errorf("first request: %d calls against %d by hand, want 2", a, b)
	}
	ours, theirs = replays(t)
	if a, b := requestsOf(ours), requestsOf(theirs); a != b || a != 1 {
		t.Errorf("replay: %d calls against %d by hand, want 1", a, b)
	}
}

// Both sides store items with the same attributes and sizes; otherwise the
// comparison would be invalid.
func TestBothStoreTheSame(t *testing.T) {
	request := newCharge()
	names := func(op side) map[string]int {
		op()
		out, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{
			TableName: aws.String(table),
			Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{
				Value: string(idempotent.Key{Operation: "charge", Scope: request.Merchant, ID: request.OrderID}.RecordID())}},
		})
		if err != nil {
			t.Fatal(err)
		}
		sizes := map[string]int{}
		for name, value := range out.Item {
			switch v := value.(type) {
			case *types.AttributeValueMemberS:
				sizes[name] = len(v.Value)
			case *types.AttributeValueMemberN:
				sizes[name] = len(v.Value)
			case *types.AttributeValueMemberB:
				sizes[name] = len(v.Value)
			}
		}
		return sizes
	}
	ours, _ := sides(t, func() charge { return request }, false)
	a := names(ours)
	request = newCharge()
	_, theirs := sides(t, func() charge { return request }, false)
	b := names(theirs)
	if len(a) != len(b) {
		t.Errorf("attributes %v against %v", a, b)
	}
	for name, size := range a {
		if b[name] != size {
			t.Errorf("attribute %s has %d bytes against %d", name, size, b[name])
		}
	}
}

// The limits of a request, compared with hand-written code. The engine is on
// this machine and answers within one or two milliseconds. DynamoDB takes
// several, so there the toolkit's share is smaller.
var requestLimits = ratios{wall: 1.10, cpu: 1.15}

// operations in one turn.
const operations = 20

func TestFirstRequest(t *testing.T) {
	ours, theirs := sides(t, newCharge, false)
	wantWithin(t, requestLimits, ours, theirs, operations)
}

func TestReplay(t *testing.T) {
	ours, theirs := replays(t)
	wantWithin(t, requestLimits, ours, theirs, 2*operations)
}

func BenchmarkFirstRequest(b *testing.B) {
	ours, theirs := sides(b, newCharge, false)
	benchmark(b, ours, theirs)
}

func BenchmarkReplay(b *testing.B) {
	ours, theirs := replays(b)
	benchmark(b, ours, theirs)
}

func benchmark(b *testing.B, ours, theirs side) {
	for _, s := range []struct {
		name string
		op   side
	}{{"side=once", ours}, {"side=byhand", theirs}} {
		b.Run(s.name, func(b *testing.B) {
			b.ReportAllocs()
			cpu := processorTime()
			for b.Loop() {
				s.op()
			}
			b.ReportMetric(float64(processorTime()-cpu)/float64(b.N), "cpu-ns/op")
		})
	}
}

// charge is the request, and receipt the result, of both sides.
type charge struct {
	Merchant string `json:"merchant"`
	OrderID  string `json:"order_id"`
	Amount   int    `json:"amount"`
	Currency string `json:"currency"`
}

type receipt struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

func handle(context.Context, charge) (receipt, error) {
	return receipt{ID: "ch_2026_000417", Status: "succeeded"}, nil
}

// byHand is a hand-written guard with the same promise: claim with a
// conditional PutItem, run, and store the result with an UpdateItem under the
// condition that the claim is still current. Its item has the same attributes
// as the toolkit's, so that both sides send, store and receive the same number
// of bytes. It computes no more than necessary.
func byHand(ctx context.Context, c charge) (out receipt, replayed bool, err error) {
	body, err := json.Marshal(c)
	if err != nil {
		return out, false, err
	}
	var random [48]byte
	rand.Read(random[:])
	owner, claim, outcome := random[:16], random[16:32], random[32:]
	now := time.Now()
	id := idempotent.Key{Operation: "charge", Scope: c.Merchant, ID: c.OrderID}.RecordID() // another id would be as long
	sum := sha256.Sum256(body)
	lease := millis(now.Add(15 * time.Minute))
	_, err = client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: aws.String(table),
		Item: map[string]types.AttributeValue{
			"pk":    &types.AttributeValueMemberS{Value: string(id)},
			"v":     &types.AttributeValueMemberN{Value: "1"},
			"st":    &types.AttributeValueMemberS{Value: "I"},
			"why":   &types.AttributeValueMemberS{Value: "claimed"},
			"rec":   &types.AttributeValueMemberS{Value: "rerun"},
			"own":   &types.AttributeValueMemberB{Value: owner},
			"wid":   &types.AttributeValueMemberB{Value: claim},
			"att":   &types.AttributeValueMemberN{Value: "1"},
			"fp":    &types.AttributeValueMemberB{Value: append([]byte{1}, sum[:]...)},
			"lease": &types.AttributeValueMemberN{Value: lease},
			"ct":    &types.AttributeValueMemberN{Value: millis(now)},
			"exp":   &types.AttributeValueMemberN{Value: millis(now.Add(24 * time.Hour))},
			"ttl":   &types.AttributeValueMemberN{Value: seconds(now.Add(25 * time.Hour))},
		},
		ConditionExpression:                 aws.String("attribute_not_exists(pk) OR exp <= :now"),
		ExpressionAttributeValues:           map[string]types.AttributeValue{":now": &types.AttributeValueMemberN{Value: millis(now)}},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	var refused *types.ConditionalCheckFailedException
	switch {
	case errors.As(err, &refused):
		return decodeByHand(refused.Item, sum)
	case err != nil:
		return out, false, err
	}
	if out, err = handle(ctx, c); err != nil {
		return out, false, err
	}
	result, err := json.Marshal(out)
	if err != nil {
		return out, false, err
	}
	done := time.Now()
	_, err = client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                aws.String(table),
		Key:                      map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: string(id)}},
		UpdateExpression:         aws.String("SET st = :st, why = :why, wid = :wid, dt = :dt, exp = :exp, #ttl = :ttl, enc = :enc, res = :res"),
		ConditionExpression:      aws.String("wid = :was"),
		ExpressionAttributeNames: map[string]string{"#ttl": "ttl"}, // a reserved word
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":st":  &types.AttributeValueMemberS{Value: "C"},
			":why": &types.AttributeValueMemberS{Value: "result"},
			":wid": &types.AttributeValueMemberB{Value: outcome},
			":dt":  &types.AttributeValueMemberN{Value: millis(done)},
			":exp": &types.AttributeValueMemberN{Value: millis(done.Add(24 * time.Hour))},
			":ttl": &types.AttributeValueMemberN{Value: seconds(done.Add(25 * time.Hour))},
			":enc": &types.AttributeValueMemberS{Value: "json"},
			":res": &types.AttributeValueMemberB{Value: result},
			":was": &types.AttributeValueMemberB{Value: claim},
		},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	return out, false, err
}

var errNotReplayable = errors.New("the record is not one to replay")

// decodeByHand reads the stored result of the item that refused the claim.
func decodeByHand(item map[string]types.AttributeValue, sum [32]byte) (out receipt, replayed bool, err error) {
	state, _ := item["st"].(*types.AttributeValueMemberS)
	fp, _ := item["fp"].(*types.AttributeValueMemberB)
	result, _ := item["res"].(*types.AttributeValueMemberB)
	if state == nil || state.Value != "C" || fp == nil || len(fp.Value) != 33 || [32]byte(fp.Value[1:]) != sum || result == nil {
		return out, false, errNotReplayable
	}
	err = json.Unmarshal(result.Value, &out)
	return out, true, err
}

func millis(t time.Time) string  { return strconv.FormatInt(t.UnixMilli(), 10) }
func seconds(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
