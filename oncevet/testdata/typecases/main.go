// SPDX-License-Identifier: Apache-2.0

// Typecases prints which types idempotent.Wrap refuses, a line of JSON for each, in
// the order of the calls of try.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"net/url"
	"os"
	"sync"
	"time"
	"unsafe"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
)

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
	invalidTag struct {
		A int `json:"b'"`
		B int `json:"-,"`
		C int `json:"é"`
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
	twoEmbedded struct {
		time.Time
		inner
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
		zero [0]int
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
	Sums   struct{ N big.Int }
	behind struct{ *Sums }
	left   struct {
		noLock
		A int
	}
	right struct {
		noLock
		B int
	}
	onlyMarshals     struct{ X int }
	onlyMarshalsText struct{ X int }
	recursive        struct {
		Next *recursive
		Many []recursive
		ByID map[int]recursive
	}
	pointerKey  int
	wholeNumber int
	intPointer  *int
	otherShape  struct{ X int }
)

func (l *level) UnmarshalText(b []byte) error      { *l = level(b); return nil }
func (*unreadable) UnmarshalJSON([]byte) error     { return nil }
func (o optional[T]) MarshalJSON() ([]byte, error) { return json.Marshal([]any{o.Value, o.set}) }
func (o *optional[T]) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&o.Value, &o.set})
}
func (o ownOfBoth) MarshalJSON() ([]byte, error)        { return json.Marshal([]any{o.Time, o.Note}) }
func (o *ownOfBoth) UnmarshalJSON(b []byte) error       { return json.Unmarshal(b, &[]any{&o.Time, &o.Note}) }
func (onlyMarshals) MarshalJSON() ([]byte, error)       { return []byte(`{}`), nil }
func (onlyMarshalsText) MarshalText() ([]byte, error)   { return nil, nil }
func (k *pointerKey) MarshalText() ([]byte, error)      { return []byte("key"), nil }
func (k *pointerKey) UnmarshalText([]byte) error        { return nil }
func (w wholeNumber) MarshalJSON() ([]byte, error)      { return json.Marshal(int(w)) }
func (w *wholeNumber) UnmarshalJSON(b []byte) error     { return json.Unmarshal(b, (*int)(w)) }
func (otherShape) MarshalJSON(indent int) (string, int) { return "", indent }

func main() {
	try[lossy]()
	try[[]map[string]*lossy]()
	try[struct{ U url.URL }]()
	try[ambiguous]()
	try[shadowed]()
	try[tagWins]()
	try[invalidTag]()
	try[byPointer]()
	try[ring]()
	try[stamped]()
	try[twoEmbedded]()
	try[deeper]()
	try[pointed]()
	try[wholeTime]()
	try[marked]()
	try[level]()
	try[map[level]int]()
	try[map[string]level]()
	try[unreadable]()
	try[shape]()
	try[struct{ S shape }]()
	try[optional[int]]()
	try[optional[lossy]]()
	try[ownOfBoth]()
	try[Sums]()
	try[map[string]Sums]()
	try[struct{ *Sums }]()
	try[map[string]struct{ *Sums }]()
	try[struct{ *behind }]()
	try[struct {
		left
		right
	}]()
	try[struct {
		inner `json:"inner"`
		ID    string
	}]()
	try[onlyMarshals]()
	try[onlyMarshalsText]()
	try[map[onlyMarshalsText]int]()
	try[recursive]()
	try[map[pointerKey]int]()
	try[wholeNumber]()
	try[intPointer]()
	try[otherShape]()
	try[struct {
		S string `json:",string"`
	}]()
	try[struct {
		S *string `json:",string"`
	}]()
	try[struct {
		D wholeNumber `json:",string"`
	}]()
	try[struct {
		N *int64      `json:",string,omitempty"`
		M json.Number `json:",string"`
		L []int       `json:",string"`
	}]()
	try[map[string]big.Int]()
	try[map[int][2]struct{ N big.Int }]()
	try[map[netip.Addr]*big.Int]()
	try[map[*netip.Addr]int]()
	try[map[float64]int]()
	try[map[bool]int]()
	try[map[any]int]()
	try[map[uintptr]int]()
	try[map[uint8][]big.Int]()
	try[chan int]()
	try[func()]()
	try[complex128]()
	try[unsafe.Pointer]()
	try[string]()
	try[any]()
	try[map[string]any]()
	try[json.RawMessage]()
	try[[]byte]()
	try[struct{}]()
	try[time.Duration]()
	try[struct {
		T time.Time
		N big.Int
		P *big.Rat
		R json.RawMessage
		M json.Number
	}]()
	try[events.S3Event]()
	try[events.APIGatewayV2HTTPRequest]()
	try[events.APIGatewayProxyResponse]()
	try[events.DynamoDBEvent]()
	try[events.SQSEvent]()
	try[events.EventBridgeEvent]()
	try[events.SNSEvent]()
}

// try prints how Wrap refuses T as a result and as a request.
func try[T any]() {
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		panic(err)
	}
	result := refused(func() {
		idempotent.Wrap(guard, func(context.Context, string) (k idempotent.Key, err error) { return k, nil },
			func(context.Context, string) (t T, err error) { return t, nil })
	})
	request := refused(func() {
		idempotent.Wrap(guard, func(context.Context, T) (k idempotent.Key, err error) { return k, nil },
			func(context.Context, T) (string, error) { return "", nil })
	})
	if err := json.NewEncoder(os.Stdout).Encode([]string{result, request}); err != nil {
		panic(err)
	}
}

// refused returns what a function panics with.
func refused(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}
