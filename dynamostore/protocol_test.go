// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/schemas"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/aws/smithy-go/transport/http/protocol/rpcv2"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/internal/kit"
)

// messages is how many random messages of each kind are compared with the SDK.
func messages() int { return kit.Short(50_000, 5_000) }

var (
	putItem      = smithy.NewOperationSchema(schemas.PutItem, schemas.PutItemInput, schemas.PutItemOutput)
	batchGetItem = smithy.NewOperationSchema(schemas.BatchGetItem, schemas.BatchGetItemInput, schemas.BatchGetItemOutput)
	own          = dynamostore.NewClient(aws.Config{}).Options().Protocol
	sdks         = dynamostore.NewClient(aws.Config{}, dynamostore.SDKProtocol).Options().Protocol
)

// NewClient sends the requests that the SDK sends.
func TestProtocol_Requests(t *testing.T) {
	t.Parallel()
	m := &maker{rand.New(rand.NewPCG(1, 2))}
	for i := range messages() {
		in, path := m.put(), []string{"", "/stage"}[i%2]
		got, want := encoded(t, own, in, path), encoded(t, sdks, in, path)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("for %#v\nsent %#v\nwant %#v", in, got, want)
		}
	}
}

type request struct {
	method, path string
	header       http.Header
	body         any
	rewinds      bool
}

// encoded returns a request to an endpoint with that path.
func encoded(t *testing.T, p smithyhttp.ClientProtocol, in *dynamodb.PutItemInput, path string) (r request) {
	t.Helper()
	req := smithyhttp.NewStackRequest().(*smithyhttp.Request)
	req.URL.Path = path
	if err := p.SerializeRequest(t.Context(), putItem, in, req); err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(req.GetStream())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &r.body); err != nil || !utf8.Valid(body) {
		t.Fatalf("%v: %s", err, body)
	}
	r.method, r.path, r.header = req.Method, req.URL.Path, req.Header
	r.rewinds = req.IsStreamSeekable() && req.RewindStream() == nil
	return r
}

// No message about a record, and no chunk that is read, goes through the SDK's protocol,
// whatever the record has. The SDK's would be correct too, but slower.
func TestProtocol_Store(t *testing.T) {
	t.Parallel()
	sdk := &otherProtocol{ClientProtocol: sdks}
	var sent struct {
		Item         json.RawMessage
		RequestItems map[string]struct{ Keys []map[string]any }
	}
	w := &wire{answer: func(n int, body string) (*http.Response, error) {
		if err := json.Unmarshal([]byte(body), &sent); err != nil {
			t.Error(err)
		}
		switch n {
		case 1:
			return response(200, `{}`), nil
		case 2, 3:
			return response(400, fmt.Sprintf(`{"__type":%q,%q:"The conditional request failed","Item":%s}`, conditionFailed, []string{"message", "Message"}[n-2], sent.Item)), nil
		}
		chunk := sent.RequestItems["once"].Keys[0]
		chunk["v"], chunk["part"] = map[string]any{"N": "1"}, map[string]any{"B": "YQ=="}
		answer, err := json.Marshal(map[string]any{"Responses": map[string]any{"once": []any{chunk}}, "UnprocessedKeys": map[string]any{}})
		return response(200, string(answer)), err
	}}
	store := newStore(t, dynamostore.NewClient(w.config(), func(o *dynamodb.Options) { o.Protocol = dynamostore.ProtocolOf(sdk, schemas.PutItemInput) }))
	r := fullRecord()
	insert(t, store, r)
	for range 2 {
		if got, err := store.Insert(t.Context(), r, at(0)); err != nil || !reflect.DeepEqual(got, &r) {
			t.Errorf("read %+v, %v", got, err)
		}
	}
	if data, err := store.GetChunks(t.Context(), r.ID, r.Version, 1); string(data) != "a" {
		t.Errorf("read a chunk %q, %v", data, err)
	}
	if n := w.requests.Load(); n != 4 || sdk.requests != 1 || sdk.answers != 0 { // it encodes the request for the chunk
		t.Errorf("%d requests; the SDK encoded %d and decoded %d answers, want 4, 1 and 0", n, sdk.requests, sdk.answers)
	}
}

// NewClient reads the answers as the SDK does, whatever is in them.
func TestProtocol_Answers(t *testing.T) {
	t.Parallel()
	m := &maker{rand.New(rand.NewPCG(3, 4))}
	refused, batches := 0, 0
	for i := range messages() {
		a := m.answer()
		if i < len(rare) {
			a = rare[i]
		}
		got, want := decoded(t, own, a), decoded(t, sdks, a)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("for %d %v %q\nread %#v\nwant %#v", a.status, a.header, a.body, got, want)
		}
		if want.refusal != nil {
			refused++
		}
		if a.batch && want.err == "" {
			batches++
		}
	}
	if refused < messages()/5 || refused > messages()*4/5 {
		t.Errorf("%d of %d answers are refusals", refused, messages())
	}
	if batches < messages()/10 {
		t.Errorf("%d of %d answers are batches", batches, messages())
	}
}

// rare are answers that maker hardly makes.
var rare = []answer{
	refusal(nested(`{"M":{"a":`, `{"S":"b"}`, `}}`)), refusal(nested(`{"L":[`, `{"S":"b"}`, `]}`)),
	refusal(`{"M":{"a":{"M":{"a":{"M":{"a":}}}}}}}`), refusal(`}`), refusal(`]}`), refusal(`{"S":"}`), refusal(`{"B":"YQ==\n"}`), refusal(`{"B":"YQ\r=="}`),
	{status: 400, body: `{"__type":"` + conditionFailed + `","x":}`},
	{status: 400, body: `{"__type":"` + conditionFailed + `"}`, header: http.Header{"X-Amzn-Errortype": {"ThrottlingException"}}},
	{status: 400, body: `{"__type":"` + conditionFailed + `"}`, batch: true},
	{status: 200, body: `{"UnprocessedKeys":{},"x":}`, batch: true},
}

const conditionFailed = "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"

// refusal is the answer to a condition that failed, with an item that has the value.
func refusal(value string) answer {
	return answer{status: 400, body: `{"__type":"` + conditionFailed + `","Item":{"a":` + value + `}}`}
}

// nested returns JSON with more maps or lists in each other than the SDK reads.
func nested(begin, value, end string) string {
	const more = 10_000
	return strings.Repeat(begin, more) + value + strings.Repeat(end, more)
}

type answer struct {
	status int
	header http.Header
	body   string
	fails  bool // after the body
	batch  bool // of a BatchGetItem
}

type reading struct {
	out     smithy.Deserializable
	refusal *types.ConditionalCheckFailedException
	err     string
	closed  bool
}

func decoded(t *testing.T, p smithyhttp.ClientProtocol, a answer) (r reading) {
	t.Helper()
	body := io.Reader(strings.NewReader(a.body))
	if a.fails {
		body = io.MultiReader(body, iotest.ErrReader(errLost))
	}
	resp := &smithyhttp.Response{Response: &http.Response{StatusCode: a.status, Header: a.header, Body: &closer{body, &r.closed}}}
	schema := putItem
	r.out = &dynamodb.PutItemOutput{}
	if a.batch {
		schema, r.out = batchGetItem, &dynamodb.BatchGetItemOutput{}
	}
	defer func() {
		if recover() != nil { // the SDK panics if a name in a map is only a quote
			r = reading{err: "it panicked"}
		}
	}()
	err := p.DeserializeResponse(t.Context(), schema, dynamodb.TypeRegistry, resp, r.out)
	resp.Body.Close() // as the SDK does afterwards
	if refusal, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		r.refusal = refusal
	} else if errors.Is(err, errLost) {
		r.err = fmt.Sprintf("%T", err)
	} else if err != nil {
		r.err = fmt.Sprintf("%T %v", err, err)
	}
	return r
}

var errLost = errors.New("the connection is lost")

type closer struct {
	io.Reader
	closed *bool
}

func (c *closer) Close() error {
	*c.closed = true
	return nil
}

// The usual messages do not go through the SDK, which allocates more.
func TestProtocol_Allocations(t *testing.T) {
	item := map[string]types.AttributeValue{"pk": text("charge#9f0c"), "exp": &types.AttributeValueMemberN{Value: "1"}, "wid": &types.AttributeValueMemberB{Value: make([]byte, 16)}}
	in := &dynamodb.PutItemInput{TableName: aws.String("once"), Item: item, ConditionExpression: aws.String("attribute_not_exists(pk)")}
	m := &maker{}
	refusal := `{"__type":"` + conditionFailed + `","message":"The conditional request failed","Item":` + m.json(item) + `}`
	encode := func(p smithyhttp.ClientProtocol) float64 {
		return testing.AllocsPerRun(100, func() {
			p.SerializeRequest(t.Context(), putItem, in, smithyhttp.NewStackRequest().(*smithyhttp.Request))
		})
	}
	batch := `{"Responses":{"once":[` + m.json(item) + `]},"UnprocessedKeys":{}}`
	decode := func(p smithyhttp.ClientProtocol, status int, body string) float64 {
		return testing.AllocsPerRun(100, func() { decoded(t, p, answer{status: status, body: body, batch: body == batch}) })
	}
	for _, c := range []struct {
		name     string
		own, sdk float64
	}{
		{"a request", encode(own), encode(sdks)},
		{"a success", decode(own, 200, "{}"), decode(sdks, 200, "{}")},
		{"a batch", decode(own, 200, batch), decode(sdks, 200, batch)},
		{"a refusal", decode(own, 400, refusal), decode(sdks, 400, refusal)},
	} {
		t.Logf("%s: %.0f allocations, %.0f in the SDK", c.name, c.own, c.sdk)
		if c.own >= c.sdk {
			t.Errorf("%s: %.0f allocations, the SDK has %.0f", c.name, c.own, c.sdk)
		}
	}
}

// A request allocates its body once, so as often whatever is in it. A success allocates nothing.
func TestProtocol_AllocatesOnce(t *testing.T) {
	encode := func(it item) float64 {
		in := &dynamodb.PutItemInput{TableName: aws.String("once"), Item: it, ConditionExpression: aws.String(strings.Repeat("x", 100))}
		return testing.AllocsPerRun(100, func() {
			own.SerializeRequest(t.Context(), putItem, in, smithyhttp.NewStackRequest().(*smithyhttp.Request))
		})
	}
	steps := item{}
	for i := range 50 {
		steps[fmt.Sprint("step/", i)] = &types.AttributeValueMemberM{Value: item{"m": text("R"), "a": text("1"), "t": text("1700000000000"), "e": text("json"), "s": text("")}}
	}
	small := encode(item{})
	for name, value := range map[string]types.AttributeValue{
		"text": text(strings.Repeat("x", 10_000)), "bytes": &types.AttributeValueMemberB{Value: make([]byte, 10_000)}, "steps": &types.AttributeValueMemberM{Value: steps},
	} {
		if got := encode(item{"a": value}); got != small {
			t.Errorf("%s: %.0f allocations, %.0f in the smallest request", name, got, small)
		}
	}
	body, out := strings.NewReader(""), &dynamodb.PutItemOutput{}
	resp := &smithyhttp.Response{Response: &http.Response{StatusCode: 200, Body: io.NopCloser(body)}}
	if got := testing.AllocsPerRun(100, func() {
		body.Reset("{}")
		own.DeserializeResponse(t.Context(), putItem, dynamodb.TypeRegistry, resp, out)
	}); got > 1 { // the race detector makes the pool forget some buffers, of which each takes several
		t.Errorf("a success: %.0f allocations", got)
	}
}

// A PutItem whose schema has a member that this package does not know is the SDK's. The
// pinned SDK has no such member.
func TestProtocol_UnknownMember(t *testing.T) {
	t.Parallel()
	put := smithy.NewSchema(schemas.PutItemInput.ID(), smithy.ShapeTypeStructure, 12)
	for name, member := range schemas.PutItemInput.Members() {
		put.AddMember(name, member)
	}
	requests := func() (of int) {
		sdk := &otherProtocol{ClientProtocol: sdks}
		encoded(t, dynamostore.ProtocolOf(sdk, put), &dynamodb.PutItemInput{TableName: aws.String("t"), Item: map[string]types.AttributeValue{}}, "")
		return sdk.requests
	}
	if n := requests(); n != 0 {
		t.Error("a PutItem whose members are known is encoded by the SDK")
	}
	put.AddMember("Unheard", schemas.PutItemInput_TableName)
	if n := requests(); n != 1 {
		t.Error("a PutItem with a member that is not known is not encoded by the SDK")
	}
}

// Operations other than PutItem and BatchGetItem are the SDK's. A client with another
// protocol, of a user or of a later SDK, keeps it, and works.
func TestProtocol_OfOthers(t *testing.T) {
	t.Parallel()
	if reflect.TypeOf(own) == reflect.TypeOf(sdks) {
		t.Error("NewClient has the SDK's protocol")
	}
	cbor := rpcv2.NewCBOR(schemas.DynamoDB_20120810)
	for _, p := range []smithyhttp.ClientProtocol{cbor, nil} {
		if got := dynamostore.ProtocolOf(p, schemas.PutItemInput); got != p {
			t.Errorf("the protocol %T became %T", p, got)
		}
	}
	var sent *http.Request
	client := dynamostore.NewClient((&wire{}).config(), func(o *dynamodb.Options) {
		o.Protocol = cbor
		o.HTTPClient = smithyhttp.ClientDoFunc(func(r *http.Request) (*http.Response, error) {
			sent = r
			return &http.Response{StatusCode: 200, Header: http.Header{"Smithy-Protocol": {"rpc-v2-cbor"}}, Body: io.NopCloser(strings.NewReader("\xa0"))}, nil // an empty map
		})
	}, dynamostore.SDKProtocol)
	if _, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("once"), Item: map[string]types.AttributeValue{"pk": text("a")}}); err != nil ||
		sent.Header.Get("Content-Type") != "application/cbor" || sent.URL.Path != "/service/DynamoDB_20120810/operation/PutItem" {
		t.Errorf("PutItem in CBOR: %v, %v", sent, err)
	}
	get := smithy.NewOperationSchema(schemas.GetItem, schemas.GetItemInput, schemas.GetItemOutput)
	var out dynamodb.GetItemOutput
	resp := &smithyhttp.Response{Response: &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`{"Item":{"pk":{"S":"a"}}}`))}}
	if err := own.DeserializeResponse(t.Context(), get, dynamodb.TypeRegistry, resp, &out); err != nil || len(out.Item) != 1 {
		t.Errorf("GetItem: %v, %v", out.Item, err)
	}
	req := smithyhttp.NewStackRequest().(*smithyhttp.Request)
	if err := own.SerializeRequest(t.Context(), get, &dynamodb.GetItemInput{TableName: aws.String("t")}, req); err != nil || req.Header.Get("X-Amz-Target") != "DynamoDB_20120810.GetItem" {
		t.Errorf("GetItem: %v, %v", req.Header, err)
	}
}

// otherProtocol counts the messages that it encodes and decodes.
type otherProtocol struct {
	smithyhttp.ClientProtocol
	requests, answers int
}

func (p *otherProtocol) SerializeRequest(ctx context.Context, schema *smithy.OperationSchema, in smithy.Serializable, req *smithyhttp.Request) error {
	p.requests++
	return p.ClientProtocol.SerializeRequest(ctx, schema, in, req)
}

func (p *otherProtocol) DeserializeResponse(ctx context.Context, schema *smithy.OperationSchema, registry *smithy.TypeRegistry, resp *smithyhttp.Response, out smithy.Deserializable) error {
	p.answers++
	return p.ClientProtocol.DeserializeResponse(ctx, schema, registry, resp, out)
}

// maker makes messages at random: usual ones, unusual ones and damaged ones.
type maker struct{ *rand.Rand }

func (m *maker) in(n int) bool { return m.IntN(n) == 0 }

func (m *maker) put() *dynamodb.PutItemInput {
	in := &dynamodb.PutItemInput{TableName: aws.String(m.text()), Item: m.attributes(0)}
	if !m.in(4) {
		in.ConditionExpression = aws.String("attribute_not_exists(pk) OR exp <= :now")
		in.ExpressionAttributeValues = m.attributes(2)
		in.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	}
	if m.in(4) {
		in.ExpressionAttributeNames = map[string]string{"#a": m.text(), "#b": m.text()}
	}
	if m.in(8) {
		in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	}
	switch m.IntN(80) {
	case 0:
		in.TableName = nil
	case 1:
		in.Item = nil
	case 2:
		in.Expected = map[string]types.ExpectedAttributeValue{m.text(): {Value: m.value(0)}}
	case 3:
		in.ConditionalOperator = types.ConditionalOperatorAnd
	case 4:
		in.ReturnValues = types.ReturnValueAllOld
	case 5:
		in.ReturnItemCollectionMetrics = types.ReturnItemCollectionMetricsSize
	}
	return in
}

// unusual are parts of texts that need an escape, or look as if they did.
var unusual = []string{`"`, `\`, "\n", "\x00", "\x7f", "\x1f", "é", "\u2028", "😀", "\xff", "\x80", "<&>", "/", " "}

func (m *maker) text() string {
	text := strings.Repeat("charge#9f0c", 1+m.IntN(3))[:1+m.IntN(11)]
	if m.in(40) {
		text += unusual[m.IntN(len(unusual))] + "a"
	}
	return text
}

func (m *maker) attributes(depth int) map[string]types.AttributeValue {
	all := map[string]types.AttributeValue{}
	for range m.IntN(9 >> min(depth, 3)) {
		all[m.text()] = m.value(depth + 1)
	}
	return all
}

func (m *maker) value(depth int) types.AttributeValue {
	kind := m.IntN(12)
	if depth > 7 {
		kind = 0
	}
	switch kind {
	case 0, 1, 2:
		return &types.AttributeValueMemberS{Value: m.text()}
	case 3, 4, 5:
		return &types.AttributeValueMemberN{Value: fmt.Sprint(m.Int64())}
	case 6, 7:
		return &types.AttributeValueMemberB{Value: m.bytes()}
	case 8:
		return &types.AttributeValueMemberBOOL{Value: m.in(2)}
	case 9:
		return &types.AttributeValueMemberM{Value: m.attributes(depth)}
	case 10:
		list := []types.AttributeValue{}
		for range m.IntN(3) {
			list = append(list, m.value(depth+1))
		}
		return &types.AttributeValueMemberL{Value: list}
	}
	switch m.IntN(8) {
	case 0:
		return &types.AttributeValueMemberSS{Value: []string{m.text()}}
	case 1:
		return &types.AttributeValueMemberNS{Value: []string{"1"}}
	case 2:
		return &types.AttributeValueMemberBS{Value: [][]byte{m.bytes()}}
	case 3:
		return &types.AttributeValueMemberB{}
	}
	return &types.AttributeValueMemberNULL{Value: !m.in(4)}
}

func (m *maker) bytes() []byte {
	value := make([]byte, m.IntN(40))
	for i := range value {
		value[i] = byte(m.Uint32())
	}
	return value
}

func (m *maker) answer() answer {
	a := answer{status: 400, header: http.Header{}, fails: m.in(50)}
	switch m.IntN(16) {
	case 3, 4, 5, 6:
		return m.batch(a)
	case 0, 1:
		a.status, a.body = 200, []string{"{}", "", "{} ", `{"Attributes":{"a":{"S":"b"}}}`, `{"ConsumedCapacity":{"CapacityUnits":1}}`, "{"}[m.IntN(6)]
		return a
	case 2:
		a.status, a.body = 500, `{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"x"}`
		return a
	}
	var b bytes.Buffer
	kind := conditionFailed
	if m.in(10) {
		kind = []string{"ConditionalCheckFailedException", "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", "a#Unheard", ""}[m.IntN(4)]
	}
	members := []string{fmt.Sprintf(`"__type":%q`, kind), `"message":"The conditional request failed"`}
	if m.in(4) {
		members[1] = `"Message":"The conditional request failed"`
	}
	if !m.in(5) {
		members = append(members, `"Item":`+m.json(m.attributes(0)))
	}
	if m.in(20) {
		members = append(members, []string{`"Code":"Other"`, `"message":null`, `"message":"again"`, `"Message":"again"`, `"Item":null`, `"Item":{"a":{"S":"b"}}`, `"x":[{}]`, `"__type":"a#b"`}[m.IntN(8)])
	}
	m.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	fmt.Fprintf(&b, "{%s}", strings.Join(members, ","))
	if m.in(20) {
		a.header.Set("X-Amzn-ErrorType", "ConditionalCheckFailedException:http://x")
	}
	if m.in(20) {
		a.status = []int{200, 201, 404, 500}[m.IntN(4)]
	}
	a.body = b.String()
	if m.in(3) {
		a.body = m.damage(a.body)
	}
	return a
}

// batch returns the answer to a BatchGetItem.
func (m *maker) batch(a answer) answer {
	a.batch, a.status = true, 200
	if m.in(20) {
		a.status = []int{201, 400, 500}[m.IntN(3)]
	}
	var items []string
	for range m.IntN(4) {
		items = append(items, m.json(m.attributes(0)))
	}
	members := []string{`"Responses":{"once":[` + strings.Join(items, ",") + `]}`, `"UnprocessedKeys":{}`}
	switch m.IntN(20) {
	case 0:
		members[0] = `"Responses":{}`
	case 1:
		members[0] = `"Responses":{"a":[],"b":[{}]}`
	case 2:
		members[1] = `"UnprocessedKeys":{"once":{"Keys":[{"pk":{"S":"a"}}],"ConsistentRead":true}}`
	case 3:
		members = members[1:]
	case 4:
		members = append(members, `"ConsumedCapacity":[{"TableName":"once","CapacityUnits":1}]`)
	case 5:
		members = append(members, members[0])
	}
	m.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	if a.body = "{" + strings.Join(members, ",") + "}"; m.in(3) {
		a.body = m.damage(a.body)
	}
	return a
}

// json returns attributes as the SDK encodes them.
func (m *maker) json(all map[string]types.AttributeValue) string {
	req := smithyhttp.NewStackRequest().(*smithyhttp.Request)
	if err := sdks.SerializeRequest(context.Background(), putItem, &dynamodb.PutItemInput{Item: all}, req); err != nil {
		panic(err)
	}
	text, _ := io.ReadAll(req.GetStream())
	return strings.TrimSuffix(strings.TrimPrefix(string(text), `{"Item":`), `}`)
}

// damage changes, removes, adds or doubles a few bytes.
func (m *maker) damage(s string) string {
	b := []byte(s)
	for n := 1 + m.IntN(3); n > 0 && len(b) > 0; n-- {
		at := m.IntN(len(b))
		switch m.IntN(5) {
		case 0:
			b[at] = byte(m.Uint32())
		case 1:
			b = slices.Delete(b, at, at+1)
		case 2:
			b = slices.Insert(b, at, []byte(` "\{}[],:nt`)[m.IntN(11)])
		case 3:
			b = slices.Insert(b, at, b[at:min(len(b), at+m.IntN(20))]...)
		case 4:
			b = b[:at+1]
		}
	}
	return string(b)
}
