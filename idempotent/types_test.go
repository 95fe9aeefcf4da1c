// SPDX-License-Identifier: Apache-2.0

package idempotent_test

//lint:file-ignore U1000 the fields are there for the type check to find

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
)

// Types of requests and results for the tests below. What else is refused is tested in
// package jsontypes.
type (
	lossy    struct{ Total, cents int }
	inner    struct{ ID string }
	shadowed struct {
		inner
		ID string
	}
	byPointer       struct{ *inner }
	optional[T any] struct {
		Value T
		set   bool
	}
)

func (o optional[T]) MarshalJSON() ([]byte, error) { return json.Marshal([]any{o.Value, o.set}) }
func (o *optional[T]) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&o.Value, &o.set})
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
// have the same fingerprint. An operation's own codec does its own checks.
func TestWrapRefusesTypesThatLoseValues(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	for name, row := range map[string]struct{ got, says string }{
		"a result":                      {wrap[lossy](g), "lossy.cents is not exported"},
		"a request":                     {wrapRequest[lossy](g), "lossy.cents is not exported"},
		"a result that does not decode": {wrap[byPointer](g), "embedded pointer to an unexported struct"},
		"the same as a request":         {wrapRequest[byPointer](g), ""},
		"a result of another codec":     {wrap[lossy](g, func(o *idempotent.Operation) { o.Codec = nothing{} }), ""},
	} {
		if row.says == "" != (row.got == "") || !strings.Contains(row.got, row.says) {
			t.Errorf("%s: Wrap panics with %q, want %q", name, row.got, row.says)
		}
	}
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
	raw, rawAgain := twice(t, json.RawMessage("{\"b\":\"<a href='?x&y'>\",\"a\":\"\\ufffd \\u003c\"}"))
	same(raw, rawAgain)
	if !bytes.Equal(raw, rawAgain) {
		t.Errorf("%s is replayed as %s", raw, rawAgain)
	}
	same(twice(t, json.RawMessage("\"\u2028\""))) // Go 1.27 escapes it
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
// not stored. The event says why, and the log which type it has.
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
			if e.Kind != event.CompletionFailed {
				continue
			}
			if !strings.Contains(e.Err.Error(), row.says) {
				t.Errorf("%s: the event's error is %v, want %q", name, e.Err, row.says)
			}
			var log strings.Builder
			event.LogObserver(slog.New(slog.NewTextHandler(&log, nil))).Observe(t.Context(), e)
			if _, text, _ := strings.Cut(log.String(), " error="); !strings.Contains(text, " cannot encode a ") || strings.Contains(text, row.says) {
				t.Errorf("%s: logged %q, want the type and not the value", name, log.String())
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
	f := newFixture(t)
	_, err := idempotent.Do(t.Context(), f.guard, f.key, func(context.Context) (byPointer, error) {
		t.Error("the handler was entered")
		return byPointer{}, nil
	})
	if err == nil || !strings.Contains(err.Error(), "embedded pointer to an unexported struct") || len(f.calls) != 0 {
		t.Errorf("got error %v after the calls %v", err, f.calls)
	}
	// The operation's own codec does its own checks.
	if _, err := idempotent.Do(t.Context(), f.guard, f.key, func(context.Context) (lossy, error) { return lossy{}, nil },
		func(o *idempotent.Operation) { o.Codec = nothing{} }); err != nil {
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
