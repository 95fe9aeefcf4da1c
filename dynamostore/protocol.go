// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/schemas"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// This file encodes a PutItem, and decodes its two usual answers: that it was written,
// and that its condition failed, with the item that is there. These are the messages of
// each request. It also decodes the items of a BatchGetItem, which has large results.
// The SDK does everything else: other operations and answers, unusual values in these
// messages, members of them that this file does not know, addresses, signatures, retries
// and middleware.

// SDKProtocol is an option of [NewClient] that leaves the encoding of all messages to
// the SDK. Without it, NewClient encodes a PutItem, and decodes the usual answers to it
// and to BatchGetItem, in less time and memory. Both send and accept the same messages.
//
//	client := dynamostore.NewClient(cfg, dynamostore.SDKProtocol)
func SDKProtocol(o *dynamodb.Options) {
	if own, ok := o.Protocol.(protocol); ok {
		o.Protocol = own.ClientProtocol
	}
}

// useProtocol puts the protocol of this file before that of the SDK.
func useProtocol(o *dynamodb.Options) {
	o.Protocol = faster(o.Protocol, schemas.PutItemInput)
}

// faster returns the protocol of this file, which leaves to that of the SDK what it does not
// know, such as a member of put, the schema of a PutItem. It returns the SDK's if that is
// not the one that this file implements.
func faster(sdk smithyhttp.ClientProtocol, put *smithy.Schema) smithyhttp.ClientProtocol {
	if sdk == nil || sdk.ID() != awsJSON {
		return sdk
	}
	return protocol{sdk, knows(put)}
}

// awsJSON is the protocol of DynamoDB.
var awsJSON = smithy.ShapeID{Namespace: "aws.protocols", Name: "awsJson1_0"}

// knows reports whether appendPut knows all members of a PutItem. A member that only a
// newer SDK has would be lost. In answers, scanner stops at a member that it does not know.
func knows(put *smithy.Schema) bool {
	for name := range put.Members() {
		if !slices.Contains(putMembers, name) {
			return false
		}
	}
	return true
}

// putMembers are the members that appendPut encodes or leaves to the SDK.
var putMembers = []string{
	"ConditionExpression", "ConditionalOperator", "Expected", "ExpressionAttributeNames", "ExpressionAttributeValues", "Item",
	"ReturnConsumedCapacity", "ReturnItemCollectionMetrics", "ReturnValues", "ReturnValuesOnConditionCheckFailure", "TableName",
}

// protocol is the SDK's protocol, with a shorter way for some messages.
type protocol struct {
	smithyhttp.ClientProtocol
	puts bool // encode a PutItem
}

// SerializeRequest encodes the input of an operation.
func (p protocol) SerializeRequest(ctx context.Context, schema *smithy.OperationSchema, in smithy.Serializable, req *smithyhttp.Request) error {
	put, ok := in.(*dynamodb.PutItemInput)
	if !ok || !p.puts {
		return p.ClientProtocol.SerializeRequest(ctx, schema, in, req)
	}
	body, ok := appendPut(make([]byte, 0, 512+jsonSize(put.Item)), put)
	if !ok {
		return p.ClientProtocol.SerializeRequest(ctx, schema, in, req)
	}
	req.Method = http.MethodPost
	if req.URL.Path == "" {
		req.URL.Path = "/"
	}
	req.Header.Set("X-Amz-Target", "DynamoDB_20120810.PutItem")
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	streamed, err := req.SetStream(bytes.NewReader(body))
	if err != nil {
		return err
	}
	*req = *streamed
	return nil
}

// bodies has buffers for answers.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// DeserializeResponse decodes the answer of an operation.
func (p protocol) DeserializeResponse(
	ctx context.Context, schema *smithy.OperationSchema, registry *smithy.TypeRegistry, resp *smithyhttp.Response, out smithy.Deserializable,
) error {
	switch out.(type) {
	case *dynamodb.PutItemOutput, *dynamodb.BatchGetItemOutput:
	default:
		return p.ClientProtocol.DeserializeResponse(ctx, schema, registry, resp, out)
	}
	body := bodies.Get().(*bytes.Buffer)
	body.Reset()
	if _, err := body.ReadFrom(resp.Body); err != nil {
		return &smithy.DeserializationError{Err: fmt.Errorf("the answer ended early: %w", err)}
	}
	decoded, failed := decodeAnswer(resp, body.Bytes(), out)
	if decoded {
		bodies.Put(body)
		return failed
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{body, resp.Body}
	return p.ClientProtocol.DeserializeResponse(ctx, schema, registry, resp, out)
}

// decodeAnswer decodes an answer: that an item was written, the error of a condition that
// failed, or the items of a batch. It reports false for any other answer, and then leaves
// out unchanged.
func decodeAnswer(resp *smithyhttp.Response, body []byte, out smithy.Deserializable) (decoded bool, failed error) {
	s := scanner{text: body}
	switch batch, isBatch := out.(*dynamodb.BatchGetItemOutput); {
	case resp.StatusCode == http.StatusBadRequest && resp.Header.Get("X-Amzn-ErrorType") == "":
		if failed := s.failed(); failed != nil {
			return true, failed
		}
	case resp.StatusCode == http.StatusOK && isBatch:
		return s.batch(batch), nil
	case resp.StatusCode == http.StatusOK:
		return string(body) == "{}", nil
	}
	return false, nil
}

// jsonSize returns about how many bytes the JSON of an item has.
func jsonSize(it item) (size int) {
	for name, value := range it {
		size += len(name) + 24
		switch v := value.(type) {
		case *types.AttributeValueMemberB:
			size += base64.StdEncoding.EncodedLen(len(v.Value))
		case *types.AttributeValueMemberS:
			size += len(v.Value)
		case *types.AttributeValueMemberM:
			size += jsonSize(v.Value)
		}
	}
	return size
}

// appendPut appends the JSON of a PutItem to b. It reports false if the input has a
// member, a type or a character that a store does not send.
func appendPut(b []byte, in *dynamodb.PutItemInput) (_ []byte, ok bool) {
	if in.ConditionalOperator != "" || in.Expected != nil || in.ReturnConsumedCapacity != "" || in.ReturnItemCollectionMetrics != "" || in.ReturnValues != "" ||
		in.TableName == nil || in.Item == nil {
		return nil, false
	}
	e := encoder{b, true}
	e.raw(`{"TableName":`)
	e.text(*in.TableName)
	if in.ConditionExpression != nil {
		e.raw(`,"ConditionExpression":`)
		e.text(*in.ConditionExpression)
	}
	if in.ExpressionAttributeNames != nil {
		e.raw(`,"ExpressionAttributeNames":{`)
		for placeholder, name := range in.ExpressionAttributeNames {
			e.name(placeholder)
			e.text(name)
		}
		e.raw(`}`)
	}
	if in.ExpressionAttributeValues != nil {
		e.raw(`,"ExpressionAttributeValues":`)
		e.attributes(in.ExpressionAttributeValues)
	}
	if in.ReturnValuesOnConditionCheckFailure != "" {
		e.raw(`,"ReturnValuesOnConditionCheckFailure":`)
		e.text(string(in.ReturnValuesOnConditionCheckFailure))
	}
	e.raw(`,"Item":`)
	e.attributes(in.Item)
	e.raw(`}`)
	return e.b, e.ok
}

// encoder writes JSON.
type encoder struct {
	b  []byte
	ok bool
}

func (e *encoder) raw(s string) { e.b = append(e.b, s...) }

// text writes a string that needs no escapes.
func (e *encoder) text(s string) {
	e.ok = e.ok && utf8.ValidString(s)
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			e.ok = false
		}
	}
	e.b = append(append(append(e.b, '"'), s...), '"')
}

// name writes the name of a member, after a comma unless it is the first one.
func (e *encoder) name(s string) {
	if e.b[len(e.b)-1] != '{' {
		e.raw(`,`)
	}
	e.text(s)
	e.raw(`:`)
}

func (e *encoder) attributes(m item) {
	e.raw(`{`)
	for name, value := range m {
		e.name(name)
		e.value(value)
	}
	e.raw(`}`)
}

// value writes a value of a type that a store sends.
func (e *encoder) value(value types.AttributeValue) {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		e.raw(`{"S":`)
		e.text(v.Value)
	case *types.AttributeValueMemberN:
		e.raw(`{"N":`)
		e.text(v.Value)
	case *types.AttributeValueMemberB:
		e.ok = e.ok && v.Value != nil
		e.raw(`{"B":"`)
		e.b = base64.StdEncoding.AppendEncode(e.b, v.Value)
		e.raw(`"`)
	case *types.AttributeValueMemberBOOL:
		e.ok = e.ok && v.Value
		e.raw(`{"BOOL":true`)
	case *types.AttributeValueMemberM:
		e.raw(`{"M":`)
		e.attributes(v.Value)
	case *types.AttributeValueMemberL:
		e.raw(`{"L":[`)
		for i, value := range v.Value {
			if i > 0 {
				e.raw(`,`)
			}
			e.value(value)
		}
		e.raw(`]`)
	default:
		e.ok = false
	}
	e.raw(`}`)
}

// scanner reads the JSON of an answer as DynamoDB sends it: without spaces, escapes and
// nulls. Whatever else it meets makes it stop, with bad set.
type scanner struct {
	text []byte
	bad  bool
}

// failed returns the error of a condition that failed, or nil.
func (s *scanner) failed() *types.ConditionalCheckFailedException {
	failed, kind := &types.ConditionalCheckFailedException{}, ""
	s.members(func(name []byte) {
		switch {
		case string(name) == "__type":
			kind = string(s.quoted())
		case string(name) == "message", string(name) == "Message":
			message := string(s.quoted())
			failed.Message = &message
		case string(name) == "Item":
			failed.Item = s.attributes(0)
		default:
			s.bad = true
		}
	})
	if s.bad || kind != conditionFailed {
		return nil
	}
	return failed
}

const conditionFailed = "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"

// batch sets out to the items of a batch from which nothing is missing.
func (s *scanner) batch(out *dynamodb.BatchGetItemOutput) bool {
	read := dynamodb.BatchGetItemOutput{}
	s.members(func(name []byte) {
		switch {
		case string(name) == "Responses":
			read.Responses = map[string][]map[string]types.AttributeValue{}
			s.members(func(table []byte) {
				items := []map[string]types.AttributeValue{}
				s.want(`[`)
				s.list(`]`, func() { items = append(items, s.attributes(0)) })
				read.Responses[string(table)] = items
			})
		case string(name) == "UnprocessedKeys":
			s.want(`{}`)
			read.UnprocessedKeys = map[string]types.KeysAndAttributes{}
		default:
			s.bad = true
		}
	})
	if s.bad {
		return false
	}
	out.Responses, out.UnprocessedKeys = read.Responses, read.UnprocessedKeys
	return true
}

// members reads an object, and calls value to read each of its values.
func (s *scanner) members(value func(name []byte)) {
	s.want(`{`)
	s.list(`}`, func() {
		name := s.quoted()
		s.want(`:`)
		value(name)
	})
}

// list reads values, with commas between them, up to the end.
func (s *scanner) list(end string, value func()) {
	for first := true; !s.bad && !s.has(end); first = false {
		if !first {
			s.want(`,`)
		}
		value()
	}
}

// has reads the literal if it comes next, and reports whether it does.
func (s *scanner) has(literal string) bool {
	if len(s.text) < len(literal) || string(s.text[:len(literal)]) != literal {
		return false
	}
	s.text = s.text[len(literal):]
	return true
}

func (s *scanner) want(literal string) { s.bad = s.bad || !s.has(literal) }

// quoted reads a string.
func (s *scanner) quoted() []byte {
	value := s.toQuote()
	for _, c := range value {
		s.bad = s.bad || c < ' ' || c == '\\'
	}
	return value
}

// binary reads a string of bytes.
func (s *scanner) binary() []byte {
	value := s.toQuote()
	decoded := make([]byte, base64.StdEncoding.DecodedLen(len(value)))
	n, _ := base64.StdEncoding.Decode(decoded, value) // n is less than it should be if there is an error, or a line break
	s.bad = s.bad || base64.StdEncoding.EncodedLen(n) != len(value)
	return decoded[:n]
}

// toQuote reads a quote and what follows up to the next one. Without that nothing is left.
func (s *scanner) toQuote() (value []byte) {
	s.want(`"`)
	value, s.text, _ = bytes.Cut(s.text, []byte{'"'})
	return value
}

func (s *scanner) attributes(depth int) item {
	all := make(item, attributeCount)
	s.members(func(name []byte) {
		all[string(name)] = s.value(depth)
	})
	return all
}

// deepest is how many maps and lists are around a value of a record, at most: those of a
// step are in two maps.
const deepest = 2

// value reads a value of a type that a store sends.
func (s *scanner) value(depth int) (value types.AttributeValue) {
	switch {
	case depth > deepest:
		s.bad = true
	case s.has(`{"S":`):
		value = &types.AttributeValueMemberS{Value: string(s.quoted())}
	case s.has(`{"N":`):
		value = &types.AttributeValueMemberN{Value: string(s.quoted())}
	case s.has(`{"B":`):
		value = &types.AttributeValueMemberB{Value: s.binary()}
	case s.has(`{"BOOL":true`):
		value = &types.AttributeValueMemberBOOL{Value: true}
	case s.has(`{"M":`):
		value = &types.AttributeValueMemberM{Value: s.attributes(depth + 1)}
	case s.has(`{"L":[`):
		list := []types.AttributeValue{}
		s.list(`]`, func() { list = append(list, s.value(depth+1)) })
		value = &types.AttributeValueMemberL{Value: list}
	default:
		s.bad = true
	}
	s.want(`}`)
	return value
}
