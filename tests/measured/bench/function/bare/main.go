// SPDX-License-Identifier: Apache-2.0

// Command bare is a Lambda function that charges once for each key, written
// without the toolkit: a conditional write before the charge, and a second one
// with the response.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/tests/measured/bench/function/payment"
)

type (
	request  = events.APIGatewayV2HTTPRequest
	response = events.APIGatewayV2HTTPResponse
)

func main() {
	cfg, err := awsconfig.LoadDefaultConfig(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(function{dynamodb.NewFromConfig(cfg), os.Getenv("ONCE_TABLE")}.handle)
}

type function struct {
	client *dynamodb.Client
	table  string
}

func (f function) handle(ctx context.Context, ev request) (response, error) {
	key := ev.Headers["idempotency-key"]
	r, err := payment.Parse(ev.Body)
	if err != nil || key == "" {
		return response{StatusCode: 400}, nil
	}
	item := map[string]types.AttributeValue{
		"pk":  &types.AttributeValueMemberS{Value: key},
		"ttl": &types.AttributeValueMemberN{Value: strconv.FormatInt(time.Now().Add(24*time.Hour).Unix(), 10)},
	}
	_, err = f.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &f.table, Item: item, ConditionExpression: aws.String("attribute_not_exists(pk)"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	var taken *types.ConditionalCheckFailedException
	switch {
	case errors.As(err, &taken):
		if body, ok := taken.Item["body"].(*types.AttributeValueMemberS); ok {
			return response{StatusCode: 201, Body: body.Value}, nil
		}
		return response{StatusCode: 409}, nil
	case err != nil:
		return response{}, err
	}
	charge, err := payment.Do(ctx, key, r)
	if err != nil {
		return response{}, err
	}
	body, err := json.Marshal(charge)
	if err != nil {
		return response{}, err
	}
	item["body"] = &types.AttributeValueMemberS{Value: string(body)}
	if _, err := f.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &f.table, Item: item}); err != nil {
		return response{}, err
	}
	return response{StatusCode: 201, Body: string(body)}, nil
}
