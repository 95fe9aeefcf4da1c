package bench

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/idempotent"
)

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
