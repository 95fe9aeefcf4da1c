// SPDX-License-Identifier: Apache-2.0

package idempotent_test

//lint:file-ignore U1000 the fields are there for the type check to find

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
)

// Types of requests and results for the tests below.
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

// wrapRequest returns what Wrap panics with for requests of type Req.
func wrapRequest[Req any](g *idempotent.Guard) (problem string) {
	defer func() {
		if p := recover(); p != nil {
			problem = fmt.Sprint(p)
		}
	}()
	idempotent.Wrap(g, idempotent.KeyFrom("op", func(Req) (string, string) { return "s", "i" }), func(context.Context, Req) (int, error) { return 0, nil })
	return ""
}

// Wrap refuses types of which encoding/json loses a part: in a result, because a
// replay would return another value; in a request, because two requests would
// have the same fingerprint.
func TestWrapRefusesTypesThatLoseValues(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	for name, row := range map[string]struct {
		result, request string
		says            string // for both; for the result only if the request is fine
		requestPasses   bool
	}{
		"unexported field":          {wrap[lossy](g), wrapRequest[lossy](g), "lossy.cents is not exported", false},
		"in a slice":                {wrap[[]map[string]*lossy](g), wrapRequest[[]map[string]*lossy](g), "lossy.cents", false},
		"of the standard library":   {wrap[struct{ U url.URL }](g), wrapRequest[struct{ U url.URL }](g), "Userinfo.username", false},
		"ambiguous embedded fields": {wrap[ambiguous](g), wrapRequest[ambiguous](g), `inner.ID and idempotent_test.ambiguous.skipped.ID`, false},
		"shadowed field":            {wrap[shadowed](g), wrapRequest[shadowed](g), `same JSON name "ID"`, false},
		"tag over a field's name":   {wrap[tagWins](g), wrapRequest[tagWins](g), `same JSON name "B"`, false},
		"embeds itself":             {wrap[ring](g), wrapRequest[ring](g), "embeds itself", false},
		"encoding of an embedded":   {wrap[stamped](g), wrapRequest[stamped](g), "MarshalJSON of an embedded field", false},
		"of one of two embedded":    {wrap[twoEmbedded](g), wrapRequest[twoEmbedded](g), "MarshalJSON of an embedded field", false},
		"further down":              {wrap[deeper](g), wrapRequest[deeper](g), "MarshalJSON of an embedded field", false},
		"pointer method in a map":   {wrap[map[string]big.Int](g), wrapRequest[map[string]big.Int](g), "map of *big.Int", false},
		"the same, in a struct":     {wrap[map[int][2]struct{ N big.Int }](g), wrapRequest[map[int][2]struct{ N big.Int }](g), "map of *big.Int", false},
		"interface with methods":    {wrap[struct{ S shape }](g), wrapRequest[struct{ S shape }](g), "interface with methods", false},
		"channel":                   {wrap[chan int](g), wrapRequest[chan int](g), "cannot be encoded", false},
		"map with float keys":       {wrap[map[float64]int](g), wrapRequest[map[float64]int](g), "keys of type", false},
		"map with pointer keys":     {wrap[map[*netip.Addr]int](g), wrapRequest[map[*netip.Addr]int](g), "keys of type", false},
		"string tag on a string": {wrap[struct {
			S string `json:",string"`
		}](g), wrapRequest[struct {
			S *string `json:",string"`
		}](g), `tag ",string" on a string`, false},
		"string tag on own encoding": {wrap[struct {
			D wholeNumber `json:",string"`
		}](g), wrapRequest[struct {
			D wholeNumber `json:",string"`
		}](g), `tag ",string" does not work`, false},

		"embedded pointer, unexported": {wrap[byPointer](g), wrapRequest[byPointer](g), "embedded pointer to an unexported struct", true},
		"the same, further down":       {wrap[struct{ *behind }](g), wrapRequest[struct{ *behind }](g), "embedded pointer to an unexported struct", true},
		"encoding of a nil pointer":    {wrap[pointed](g), wrapRequest[pointed](g), "nil when a replay is decoded", true},
		"marshals only":                {wrap[onlyMarshals](g), wrapRequest[onlyMarshals](g), "no UnmarshalJSON", true},
		"unmarshals only":              {wrap[unreadable](g), wrapRequest[unreadable](g), "no MarshalJSON", true},
		"unmarshals text only":         {wrap[level](g), wrapRequest[level](g), "no MarshalText", true},
		"keys read only":               {wrap[map[pointerKey]int](g), wrapRequest[map[pointerKey]int](g), "must have a value receiver", true},
		"keys read in another way":     {wrap[map[level]int](g), wrapRequest[map[level]int](g), "decoded with UnmarshalText", true},
		"an event of S3":               {wrap[events.S3Event](g), wrapRequest[events.S3Event](g), "S3Object has UnmarshalJSON", true},
	} {
		if !strings.Contains(row.result, row.says) {
			t.Errorf("%s: as a result Wrap panics with %q, want %q", name, row.result, row.says)
		}
		if row.requestPasses != (row.request == "") || !row.requestPasses && !strings.Contains(row.request, row.says) {
			t.Errorf("%s: as a request Wrap panics with %q", name, row.request)
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

func TestWrapTakesOrdinaryTypes(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	for name, problems := range map[string][2]string{
		"marked fields": {wrap[marked](g), wrapRequest[marked](g)},
		"times and numbers": {wrap[struct {
			T time.Time
			N big.Int
			P *big.Rat
			R json.RawMessage
			M json.Number
		}](g), wrapRequest[chargeResponse](g)},
		"embedded structs": {wrap[struct {
			inner
			X int
		}](g), wrapRequest[struct{ *inner }](g)},
		"embedded and named": {wrap[struct {
			inner `json:"inner"`
			ID    string
		}](g), wrapRequest[struct {
			inner `json:"inner"`
			ID    string
		}](g)},
		"one embedded time":       {wrap[wholeTime](g), wrapRequest[wholeTime](g)},
		"own methods":             {wrap[ownOfBoth](g), wrapRequest[ownOfBoth](g)},
		"own methods of generics": {wrap[optional[int]](g), wrapRequest[optional[lossy]](g)},
		"maps":                    {wrap[map[netip.Addr]*big.Int](g), wrapRequest[map[uint8][]big.Int](g)},
		"string tag": {wrap[struct {
			N *int64 `json:",string,omitempty"`
		}](g), wrapRequest[struct {
			N bool `json:",string"`
		}](g)},
		"pointers in a map": {wrap[map[string]struct{ *Sums }](g), wrapRequest[map[string]struct{ *Sums }](g)},
		"embedded twice": {wrap[struct {
			left
			right
		}](g), wrapRequest[struct {
			left
			right
		}](g)},
		"recursion":      {wrap[recursive](g), wrapRequest[recursive](g)},
		"HTTP events":    {wrap[events.APIGatewayV2HTTPResponse](g), wrapRequest[events.APIGatewayV2HTTPRequest](g)},
		"REST events":    {wrap[events.APIGatewayProxyResponse](g), wrapRequest[events.APIGatewayProxyRequest](g)},
		"streams":        {wrap[events.DynamoDBEventResponse](g), wrapRequest[events.DynamoDBEvent](g)},
		"queues":         {wrap[events.SQSEventResponse](g), wrapRequest[events.SQSEvent](g)},
		"buses":          {wrap[events.EventBridgeEvent](g), wrapRequest[events.SNSEvent](g)},
		"any":            {wrap[map[string]any](g), wrapRequest[any](g)},
		"raw JSON":       {wrap[json.RawMessage](g), wrapRequest[json.RawMessage](g)},
		"lost elsewhere": {wrap[lossy](g, func(o *idempotent.Options) { o.Codec = nothing{} }), ""},
	} {
		if problems != [2]string{} {
			t.Errorf("%s: Wrap panics with %q", name, problems)
		}
	}
}

// twice returns what the first caller and a replay get.
func twice[T any](t *testing.T, v T) (first, again T) {
	t.Helper()
	g, events := newGuard(t)
	key := newKey()
	for _, out := range []*T{&first, &again} {
		var err error
		if *out, err = idempotent.Do(t.Context(), g, key, func(context.Context) (T, error) { return v, nil }); err != nil {
			t.Fatalf("%T: %v (%v)", v, err, events.Kinds())
		}
	}
	return first, again
}

// encodedByLambda returns v as the Lambda runtime sends it.
func encodedByLambda(t *testing.T, v any) string {
	t.Helper()
	out, err := lambda.NewHandler(func() (any, error) { return v, nil }).Invoke(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// The first caller and a replay send the same bytes to the client.
func TestFirstAndReplayEncodeToEqualBytes(t *testing.T) {
	t.Parallel()
	same := func(first, again any) {
		t.Helper()
		if a, b := encodedByLambda(t, first), encodedByLambda(t, again); a != b {
			t.Errorf("%T: the first caller gets %s, a replay %s", first, a, b)
		}
	}
	raw, rawAgain := twice(t, json.RawMessage("{\"b\":\"<a href='?x&y'>\u2028\",\"a\":\"\\ufffd \\u003c\"}"))
	same(raw, rawAgain)
	if !bytes.Equal(raw, rawAgain) {
		t.Errorf("%s is replayed as %s", raw, rawAgain)
	}
	text, textAgain := twice(t, "<&>\u2028\uFFFD\\ufffd")
	same(text, textAgain)
	sum, sumAgain := twice(t, *big.NewInt(12345))
	same(&sum, &sumAgain)
	if sumAgain.String() != "12345" {
		t.Errorf("12345 is replayed as %s", &sumAgain)
	}
	type total struct {
		Sum    big.Int
		Sums   [2]big.Int
		Nested struct{ Sums []big.Int }
		At     time.Time
	}
	v := total{Sum: *big.NewInt(1), Sums: [2]big.Int{*big.NewInt(2), *big.NewInt(3)}, At: time.Unix(1, 2).UTC()}
	v.Nested.Sums = []big.Int{*big.NewInt(4)}
	first, again := twice(t, v)
	same(&first, &again)
	if got := fmt.Sprint(&again.Sum, &again.Sums[0], &again.Sums[1], &again.Nested.Sums[0]); got != "1 2 3 4" {
		t.Errorf("1 2 3 4 is replayed as %s", got)
	}
	kept, keptAgain := twice(t, optional[int]{7, true})
	same(kept, keptAgain)
	generic, genericAgain := twice[any](t, onlyMarshalsText{}) // an any decodes values that encode themselves
	same(generic, genericAgain)
	mixed, mixedAgain := twice(t, struct {
		Any any
		Own optional[int]
	}{struct{ B, A any }{1.5, nil}, optional[int]{7, true}})
	same(mixed, mixedAgain)
	repeated, repeatedAgain := twice(t, map[string]any{"raw": json.RawMessage(`{"a":1,"a":2}`)}) // the content of an any is not checked
	same(repeated, repeatedAgain)
}

// folded is a map key type; two of its values can have the same text.
type folded struct{ name string }

func (f folded) MarshalText() ([]byte, error)  { return []byte(strings.ToLower(f.name)), nil }
func (f *folded) UnmarshalText(b []byte) error { f.name = string(b); return nil }

type drifting struct{ n int }

func (d drifting) MarshalJSON() ([]byte, error)  { return json.Marshal(d.n + 1) }
func (d *drifting) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &d.n) }

// spelled encodes itself to its own text, and decodes a text to the one that
// follows it in respelled.
type spelled string

var respelled = map[string]spelled{
	"[1]":           "[2]",
	"[3]":           "", // an error
	`{"a":1,"b":2}`: `{"b":2,"a":1}`,
	`{"a":1,"a":2}`: `{"a":1,"a":3}`,
}

func (s spelled) MarshalJSON() ([]byte, error) {
	if s == "" {
		return nil, errDown
	}
	return []byte(s), nil
}

func (s *spelled) UnmarshalJSON(b []byte) error {
	next, found := respelled[string(b)]
	if !found {
		*s = spelled(b)
		return errDown
	}
	*s = next
	return nil
}

type besideAny struct {
	Any any
	Own spelled
}

// onlyOnce fails when it encodes itself again.
type onlyOnce struct{ done bool }

func (o *onlyOnce) MarshalJSON() ([]byte, error) {
	if o.done {
		return nil, errDown
	}
	o.done = true
	return []byte("1"), nil
}

// A value that a replay would return differently is returned to its caller and
// not stored. The event says why.
func TestValuesThatDoNotComeBackAreNotStored(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		do   func(*idempotent.Guard, idempotent.Key) (idempotent.RecordID, bool, error)
		says string
	}{
		"not UTF-8":                  {doValue("caf\xe9"), "invalid UTF-8"},
		"in a key of a map":          {doValue(map[string]int{"\xff": 1}), "invalid UTF-8"},
		"drifting":                   {doValue(drifting{1}), "encodes to other bytes"},
		"keys that collide":          {doValue(map[folded]int{{"A"}: 1, {"a"}: 2}), "encodes to other bytes"},
		"in any":                     {doValue(map[string]any{"text": "\xff"}), "invalid UTF-8"},
		"lost under any":             {doValue[any](lossy{1, 2}), "lossy.cents"},
		"does not decode":            {doValue(spelled("[0]")), "does not decode: "},
		"does not encode again":      {doValue(spelled("[3]")), "a replay of it does not encode: "},
		"another order":              {doValue(spelled(`{"a":1,"b":2}`)), "encodes to other bytes"},
		"another value beside any":   {doValue(besideAny{Own: "[1]"}), "encodes to other bytes"},
		"a repeated name beside any": {doValue(besideAny{Own: `{"a":1,"a":2}`}), "encodes to other bytes"},
		"encodes only once":          {doValue(map[string]any{"text": "<", "own": &onlyOnce{}}), errDown.Error()},
	} {
		g, events := newGuard(t)
		key := newKey()
		if _, stored, err := row.do(g, key); stored || err != nil {
			t.Errorf("%s: stored %v, error %v; want the value, and not stored", name, stored, err)
		}
		for _, e := range events.Events() {
			if e.Kind == event.CompletionFailed && !strings.Contains(e.Err.Error(), row.says) {
				t.Errorf("%s: the event's error is %v, want %q", name, e.Err, row.says)
			}
		}
		if _, _, err := row.do(g, key); !errors.As(err, new(*idempotent.ReplayUnavailableError)) {
			t.Errorf("%s: a retry gets error %v, want ReplayUnavailableError", name, err)
		}
	}
}

func doValue[T any](v T) func(*idempotent.Guard, idempotent.Key) (idempotent.RecordID, bool, error) {
	return func(g *idempotent.Guard, key idempotent.Key) (idempotent.RecordID, bool, error) {
		out, err := idempotent.DoOutcome(context.Background(), g, key, func(context.Context) (T, error) { return v, nil })
		return out.RecordID, out.Stored, err
	}
}

// FingerprintOf encodes values that must be addressable, and refuses types of
// which two values have the same encoding.
func TestFingerprintOfDistinguishesValues(t *testing.T) {
	t.Parallel()
	of := func(v any) idempotent.Fingerprint {
		t.Helper()
		f, err := idempotent.FingerprintOf(v)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	type order struct{ Sum big.Int }
	if of(order{*big.NewInt(1)}) == of(order{*big.NewInt(2)}) || of(*big.NewInt(1)) == of(*big.NewInt(2)) {
		t.Error("two sums have one fingerprint")
	}
	if of(order{*big.NewInt(1)}) != of(map[string]int{"Sum": 1}) {
		t.Error("the sum is not the number 1")
	}
	for _, v := range []any{lossy{1, 2}, &lossy{}, []shadowed{}, map[string]big.Int{}} {
		if _, err := idempotent.FingerprintOf(v); !errors.As(err, new(*idempotent.InvalidKeyError)) {
			t.Errorf("%T: got error %v, want InvalidKeyError", v, err)
		}
	}
}

// Do refuses a result that cannot be stored before anything is claimed or run.
func TestDoRefusesTypesThatLoseValues(t *testing.T) {
	t.Parallel()
	s := watch()
	g, _ := newGuardOver(t, s)
	_, err := idempotent.Do(t.Context(), g, newKey(), func(context.Context) (byPointer, error) {
		t.Error("the handler was entered")
		return byPointer{}, nil
	})
	if err == nil || !strings.Contains(err.Error(), "embedded pointer to an unexported struct") || len(s.calls) != 0 {
		t.Errorf("got error %v after the calls %v", err, s.calls)
	}
	// The operation's own codec does its own checks.
	if _, err := idempotent.Do(t.Context(), g, newKey(), func(context.Context) (lossy, error) { return lossy{}, nil },
		func(o *idempotent.Options) { o.Codec = nothing{} }); err != nil {
		t.Error(err)
	}
}

// The first caller gets the same value as every replay, also in untyped values:
// of a result, of a step, and of both with a transaction.
func TestFirstCallerGetsTheReplay(t *testing.T) {
	t.Parallel()
	type document = map[string]any
	value := document{"amount": 4200, "tags": []string{"a"}}
	for name, h := range map[string]func(context.Context) (document, error){
		"a result": func(context.Context) (document, error) { return value, nil },
		"a step": func(ctx context.Context) (document, error) {
			return idempotent.Step(ctx, "s", func(context.Context) (document, error) { return value, nil })
		},
		"a step's commit": func(ctx context.Context) (document, error) {
			e, _ := idempotent.FromContext(ctx)
			return idempotent.CommitStep(ctx, "s", value, e.Store().Replace)
		},
		"a commit": func(ctx context.Context) (document, error) {
			e, _ := idempotent.FromContext(ctx)
			return value, e.Commit(ctx, value, e.Store().Replace)
		},
	} {
		g, _ := newGuard(t, resume("s"))
		key := newKey()
		var seen, within []document
		for range 2 {
			v, err := idempotent.Do(t.Context(), g, key, func(ctx context.Context) (document, error) {
				v, err := h(ctx)
				within = append(within, v)
				return v, err
			})
			if err != nil {
				t.Fatal(name, err)
			}
			seen = append(seen, v)
		}
		if strings.HasPrefix(name, "a step") && !reflect.DeepEqual(within, seen[:1]) {
			t.Errorf("%s: its handler gets %#v and a replay %#v", name, within, seen[1])
		}
		if !reflect.DeepEqual(seen[0], seen[1]) {
			t.Errorf("%s: the first caller gets %#v and a replay %#v", name, seen[0], seen[1])
		}
	}
}
