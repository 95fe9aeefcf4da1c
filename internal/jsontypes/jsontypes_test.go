// SPDX-License-Identifier: Apache-2.0

package jsontypes_test

//lint:file-ignore U1000 the fields are there for the type check to find

import (
	"encoding/json"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/internal/jsontypes"
)

// Types of values for the tests below.
type (
	lossy     struct{ Total, cents int }
	inner     struct{ ID string }
	skipped   struct{ ID, Note string }
	ambiguous struct {
		inner
		skipped
	}
	shadowed struct {
		inner
		ID string
	}
	tagWins struct {
		A int `json:"B"`
		B int
	}
	byPointer struct{ *inner }
	ring      struct {
		*ring
		X int
	}
	stamped struct {
		time.Time
		Note string
	}
	deeper    struct{ stamped }
	pointed   struct{ *big.Int }
	wholeTime struct{ time.Time }
	marked    struct {
		Total int
		memo  int `json:"-"`
		_     [4]byte
		noLock
		none struct{}
		mu   sync.Mutex `json:"-"`
	}
	noLock          struct{}
	level           string
	unreadable      struct{ X int }
	shape           interface{ Area() int }
	optional[T any] struct {
		Value T
		set   bool
	}
	ownOfBoth struct {
		time.Time
		Note string
	}
)

func (l *level) UnmarshalText(b []byte) error      { *l = level(b); return nil }
func (*unreadable) UnmarshalJSON([]byte) error     { return nil }
func (o optional[T]) MarshalJSON() ([]byte, error) { return json.Marshal([]any{o.Value, o.set}) }
func (o *optional[T]) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&o.Value, &o.set})
}
func (o ownOfBoth) MarshalJSON() ([]byte, error) { return json.Marshal([]any{o.Time, o.Note}) }
func (o *ownOfBoth) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&o.Time, &o.Note})
}

// Sums must be addressable to be encoded.
type Sums struct{ N big.Int }

type behind struct{ *Sums }

type left struct {
	noLock
	A int
}

type right struct {
	noLock
	B int
}

type onlyMarshals struct{ X int }

func (onlyMarshals) MarshalJSON() ([]byte, error) { return []byte(`{}`), nil }

type onlyMarshalsText struct{ X int }

func (onlyMarshalsText) MarshalText() ([]byte, error) { return nil, nil }

type recursive struct {
	Next *recursive
	Many []recursive
	ByID map[int]recursive
}

// result returns why a value of type T cannot be stored and decoded.
func result[T any]() string { return text(jsontypes.Inspect(reflect.TypeFor[T]()).Result) }

// request returns why two values of type T could have the same encoding.
func request[T any]() string { return text(jsontypes.Inspect(reflect.TypeFor[T]()).Request) }

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Types of which encoding/json loses a part are refused: as a result, because the
// decoded value would be another; as a request, because two values would have the same
// encoding.
func TestTypesThatLoseValues(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		result, request string
		says            string // for both; for the result only if the request is fine
		requestPasses   bool
	}{
		"unexported field":          {result[lossy](), request[lossy](), "lossy.cents is not exported", false},
		"in a slice":                {result[[]map[string]*lossy](), request[[]map[string]*lossy](), "lossy.cents", false},
		"of the standard library":   {result[struct{ U url.URL }](), request[struct{ U url.URL }](), "Userinfo.username", false},
		"ambiguous embedded fields": {result[ambiguous](), request[ambiguous](), `inner.ID and jsontypes_test.ambiguous.skipped.ID`, false},
		"shadowed field":            {result[shadowed](), request[shadowed](), `same JSON name "ID"`, false},
		"tag over a field's name":   {result[tagWins](), request[tagWins](), `same JSON name "B"`, false},
		"embeds itself":             {result[ring](), request[ring](), "embeds itself", false},
		"encoding of an embedded":   {result[stamped](), request[stamped](), "MarshalJSON of an embedded field", false},
		"of one of two embedded":    {result[twoEmbedded](), request[twoEmbedded](), "MarshalJSON of an embedded field", false},
		"further down":              {result[deeper](), request[deeper](), "MarshalJSON of an embedded field", false},
		"pointer method in a map":   {result[map[string]big.Int](), request[map[string]big.Int](), "map of *big.Int", false},
		"the same, in a struct":     {result[map[int][2]struct{ N big.Int }](), request[map[int][2]struct{ N big.Int }](), "map of *big.Int", false},
		"interface with methods":    {result[struct{ S shape }](), request[struct{ S shape }](), "interface with methods", false},
		"channel":                   {result[chan int](), request[chan int](), "cannot be encoded", false},
		"function":                  {result[func()](), request[func()](), "cannot be encoded", false},
		"map with float keys":       {result[map[float64]int](), request[map[float64]int](), "keys of type", false},
		"map with pointer keys":     {result[map[*netip.Addr]int](), request[map[*netip.Addr]int](), "keys of type", false},
		"string tag on a string": {result[struct {
			S string `json:",string"`
		}](), request[struct {
			S *string `json:",string"`
		}](), `tag ",string" on a string`, false},
		"string tag on own encoding": {result[struct {
			D wholeNumber `json:",string"`
		}](), request[struct {
			D wholeNumber `json:",string"`
		}](), `tag ",string" does not work`, false},

		"embedded pointer, unexported": {result[byPointer](), request[byPointer](), "embedded pointer to an unexported struct", true},
		"the same, further down":       {result[struct{ *behind }](), request[struct{ *behind }](), "embedded pointer to an unexported struct", true},
		"encoding of a nil pointer":    {result[pointed](), request[pointed](), "nil when a replay is decoded", true},
		"marshals only":                {result[onlyMarshals](), request[onlyMarshals](), "no UnmarshalJSON", true},
		"unmarshals only":              {result[unreadable](), request[unreadable](), "no MarshalJSON", true},
		"marshals text only":           {result[onlyMarshalsText](), request[onlyMarshalsText](), "has MarshalText but no UnmarshalText", true},
		"keys written only":            {result[map[onlyMarshalsText]int](), request[map[onlyMarshalsText]int](), "have MarshalText but no UnmarshalText", true},
		"unmarshals text only":         {result[level](), request[level](), "no MarshalText", true},
		"keys read only":               {result[map[pointerKey]int](), request[map[pointerKey]int](), "must have a value receiver", true},
		"keys read in another way":     {result[map[level]int](), request[map[level]int](), "decoded with UnmarshalText", true},
		"an event of S3":               {result[events.S3Event](), request[events.S3Event](), "S3Object has UnmarshalJSON", true},
	} {
		if !strings.Contains(row.result, row.says) {
			t.Errorf("%s: as a result: %q, want %q", name, row.result, row.says)
		}
		if row.requestPasses != (row.request == "") || !row.requestPasses && !strings.Contains(row.request, row.says) {
			t.Errorf("%s: as a request: %q", name, row.request)
		}
	}
}

// twoEmbedded is encoded as its time.
type twoEmbedded struct {
	time.Time
	inner
}

// pointerKey is written as a number and read as text when it is a map key.
type pointerKey int

func (k *pointerKey) MarshalText() ([]byte, error) { return []byte("key"), nil }
func (k *pointerKey) UnmarshalText([]byte) error   { return nil }

// wholeNumber encodes itself as a number.
type wholeNumber int

func (w wholeNumber) MarshalJSON() ([]byte, error)  { return json.Marshal(int(w)) }
func (w *wholeNumber) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, (*int)(w)) }

func TestOrdinaryTypes(t *testing.T) {
	t.Parallel()
	for name, problems := range map[string][2]string{
		"marked fields": {result[marked](), request[marked]()},
		"times and numbers": {result[struct {
			T time.Time
			N big.Int
			P *big.Rat
			R json.RawMessage
			M json.Number
		}](), request[struct{ ID string }]()},
		"embedded structs": {result[struct {
			inner
			X int
		}](), request[struct{ *inner }]()},
		"embedded and named": {result[struct {
			inner `json:"inner"`
			ID    string
		}](), request[struct {
			inner `json:"inner"`
			ID    string
		}]()},
		"one embedded time":       {result[wholeTime](), request[wholeTime]()},
		"own methods":             {result[ownOfBoth](), request[ownOfBoth]()},
		"own methods of generics": {result[optional[int]](), request[optional[lossy]]()},
		"maps":                    {result[map[netip.Addr]*big.Int](), request[map[uint8][]big.Int]()},
		"string tag": {result[struct {
			N *int64 `json:",string,omitempty"`
		}](), request[struct {
			N bool `json:",string"`
		}]()},
		"pointers in a map": {result[map[string]struct{ *Sums }](), request[map[string]struct{ *Sums }]()},
		"embedded twice": {result[struct {
			left
			right
		}](), request[struct {
			left
			right
		}]()},
		"recursion":   {result[recursive](), request[recursive]()},
		"HTTP events": {result[events.APIGatewayV2HTTPResponse](), request[events.APIGatewayV2HTTPRequest]()},
		"REST events": {result[events.APIGatewayProxyResponse](), request[events.APIGatewayProxyRequest]()},
		"streams":     {result[events.DynamoDBEventResponse](), request[events.DynamoDBEvent]()},
		"queues":      {result[events.SQSEventResponse](), request[events.SQSEvent]()},
		"buses":       {result[events.EventBridgeEvent](), request[events.SNSEvent]()},
		"any":         {result[map[string]any](), request[any]()},
		"raw JSON":    {result[json.RawMessage](), request[json.RawMessage]()},
	} {
		if problems != [2]string{} {
			t.Errorf("%s: %q", name, problems)
		}
	}
}

// Two fields with the same tag (vet would refuse the source) are both dropped.
func TestRepeatedTagIsRefused(t *testing.T) {
	t.Parallel()
	field := func(name, tag string) reflect.StructField {
		return reflect.StructField{Name: name, Type: reflect.TypeFor[int](), Tag: reflect.StructTag(tag)}
	}
	for _, row := range []struct {
		a, b string
		want string
	}{
		{`json:"n"`, `json:"n"`, `have the same JSON name "n"`},
		{`json:"n,omitempty"`, `json:"n"`, `have the same JSON name "n"`},
		{`json:"B"`, ``, `have the same JSON name "B"`},
		{`json:"b'"`, ``, "Go releases disagree"},
		{`json:"-"`, `json:"-,"`, ""},
		{`json:"n"`, `json:"N"`, ""},
	} {
		typ := reflect.StructOf([]reflect.StructField{field("A", row.a), field("B", row.b)})
		for _, err := range []error{jsontypes.Inspect(typ).Result, jsontypes.Inspect(typ).Request} {
			if row.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s and %s: got error %v, want %q", row.a, row.b, err, row.want)
			}
		}
	}
}

type shapeA struct {
	ID    string   `json:"id"`
	Total int      `json:"total"`
	Lines []shapeB `json:"lines"`
}

type shapeB struct{ Next *shapeB }

// Types have the same shape only if each decodes what the other encoded without
// losing values.
func TestShapeOf(t *testing.T) {
	t.Parallel()
	for _, types := range [][2]reflect.Type{
		{reflect.TypeFor[int](), reflect.TypeFor[time.Duration]()},
		{reflect.TypeFor[int](), reflect.TypeFor[uint8]()},
		{reflect.TypeFor[float64](), reflect.TypeFor[float32]()},
		{reflect.TypeFor[shapeA](), reflect.TypeFor[struct {
			Lines []shapeB `json:"lines,omitempty"`
			Total int64    `json:"total"`
			Memo  func()   `json:"-"`
			shapeC
		}]()},
	} {
		if jsontypes.Inspect(types[0]).Shape != jsontypes.Inspect(types[1]).Shape {
			t.Errorf("%s and %s differ", types[0], types[1])
		}
	}
	distinct := map[string]reflect.Type{}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[shapeA](), reflect.TypeFor[*shapeA](), reflect.TypeFor[[]shapeA](), reflect.TypeFor[[2]shapeA](), reflect.TypeFor[[3]shapeA](),
		reflect.TypeFor[map[string]shapeA](), reflect.TypeFor[map[int]shapeA](),
		reflect.TypeFor[shapeB](), reflect.TypeFor[struct{ Next **shapeB }](),
		reflect.TypeFor[struct{ ID string }](), reflect.TypeFor[struct{ Id string }](), reflect.TypeFor[struct{ ID int }](),
		reflect.TypeFor[struct{ ID, Name string }](), reflect.TypeFor[struct{}](), reflect.TypeFor[struct {
			ID int `json:",string"`
		}](),
		reflect.TypeFor[string](), reflect.TypeFor[int](), reflect.TypeFor[float64](), reflect.TypeFor[bool](), reflect.TypeFor[any](),
		reflect.TypeFor[json.Number](), reflect.TypeFor[[]byte](), reflect.TypeFor[time.Time](), reflect.TypeFor[big.Int](),
	} {
		s := jsontypes.Inspect(typ).Shape
		if other, found := distinct[s]; found || len(s) != 16 {
			t.Errorf("%s and %s have the shape %q", typ, other, s)
		}
		distinct[s] = typ
	}
}

type shapeC struct {
	ID string `json:"id"`
}

// What an encoder has to know about a type.
func TestHowATypeIsEncoded(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		typ                          reflect.Type
		addressed, untyped, unproven bool
	}{
		{typ: reflect.TypeFor[struct{ T time.Time }]()},
		{typ: reflect.TypeFor[big.Int](), addressed: true},
		{typ: reflect.TypeFor[struct{ N [1]big.Int }](), addressed: true},
		{typ: reflect.TypeFor[*big.Int]()},
		{typ: reflect.TypeFor[[]big.Int]()},
		{typ: reflect.TypeFor[struct {
			*Sums
		}]()},
		{typ: reflect.TypeFor[struct {
			N big.Int
			T time.Time
		}](), addressed: true},
		{typ: reflect.TypeFor[map[string]any](), untyped: true},
		{typ: reflect.TypeFor[optional[int]](), unproven: true},
		{typ: reflect.TypeFor[struct {
			O optional[int]
			T time.Time
		}](), unproven: true},
		{typ: reflect.TypeFor[map[netip.Addr]int](), unproven: true},
		{typ: reflect.TypeFor[map[string]int]()},
	} {
		if got := jsontypes.Inspect(row.typ); got.Addressed != row.addressed || got.Untyped != row.untyped || got.Unproven != row.unproven {
			t.Errorf("%s: got %+v, want %+v", row.typ, got, row)
		}
	}
}

func TestMembers(t *testing.T) {
	t.Parallel()
	if got := jsontypes.Members(reflect.TypeFor[shapeA]()); !slices.Equal(got, []string{"id", "lines", "total"}) {
		t.Errorf("got %q", got)
	}
	if got := jsontypes.Members(reflect.TypeFor[lossy]()); got != nil {
		t.Errorf("of a type that is refused: %q", got)
	}
}

// Types that read themselves.
type (
	readsJSON struct{ Value int }
	readsText struct{ Value int }
)

func (*readsJSON) UnmarshalJSON([]byte) error { return nil }
func (*readsText) UnmarshalText([]byte) error { return nil }

// The names of a type are those that encoding/json decodes: a member in another letter
// case is found if and only if encoding/json would set a field by it.
func TestNamesIn(t *testing.T) {
	t.Parallel()
	type line struct {
		Amount int `json:"amount"`
		cents  int
		Next   *line
		Prev   *line
	}
	type twice struct {
		First line `json:"X"`
		X     int
		Third int `json:"third"`
	}
	type order struct {
		inner
		Own    readsJSON
		Text   readsText
		Pair   [2]line
		Twice  twice
		Lines  []line          `json:"lines"`
		ByName map[string]line `json:"by_name"`
		When   time.Time       `json:"when"`
		Any    any             `json:"any"`
		Raw    json.RawMessage `json:"raw"`
		Hidden string          `json:"-"`
		Both   string
		BOTH   string
	}
	for doc, want := range map[string]string{
		`{"ID":"1","lines":[{"amount":1}],"by_name":{"AMOUNT":{"amount":2}}}`: "",
		`{"id":"1"}`:                                      "ID",
		`{"lines":[{"amount":1},{"AMOUNT":1}]}`:           "amount",
		`{"lines":[{"Next":{"next":null}}]}`:              "Next",
		`{"lines":[{"Next":{"Next":{"Amount":1}}}]}`:      "amount",
		`{"by_name":{"x":{"amount":1},"y":{"AMount":1}}}`: "amount",
		`{"lines":[{"Prev":{"Amount":1}}]}`:               "amount",
		`{"lines":[{"CENTS":2}]}`:                         "",
		`{"Own":{"VALUE":1},"Text":{"VALUE":1}}`:          "",
		`{"Pair":[{},{"AMOUNT":1}]}`:                      "amount",
		`{"Twice":{"X":{"AMOUNT":1}}}`:                    "amount",
		`{"Twice":{"THIRD":1}}`:                           "third",
		`{"l\u0049nes":[]}`:                               "lines",
		`{"lineſ":[]}`:                                    "lines", // encoding/json folds ſ to s
		`{"any":{"Any":1},"raw":{"RAW":1},"when":"x"}`:    "",
		`{"hidden":1,"cents":1,"CENTS":2,"other":[{}]}`:   "",
		`{"both":"x"}`:                                    "BOTH",
		`[{"lines":1}]`:                                   "",
		`1`:                                               "",
	} {
		known, ok := jsontypes.NamesIn(reflect.TypeFor[*order]()).Miscased([]byte(doc))
		if known != want || ok != (want != "") {
			t.Errorf("%s: found %q, want %q", doc, known, want)
		}
	}
	type self *self
	for _, typ := range []reflect.Type{reflect.TypeFor[self](), reflect.TypeFor[int](), reflect.TypeFor[time.Time](), reflect.TypeFor[ring](), reflect.TypeFor[any]()} {
		if known, ok := jsontypes.NamesIn(typ).Miscased([]byte(`{"x":1,"RING":[{"X":1}]}`)); ok && typ != reflect.TypeFor[ring]() {
			t.Errorf("%s: found %q", typ, known)
		}
	}
}
