// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// document is a record in which every field is set, as a later version might write
// it: this version does not know the attributes "new".
func document() map[string]any {
	return map[string]any{
		"v": 1, "id": id, "st": "C", "why": "result", "rec": "rerun",
		"own": bytes.Repeat([]byte{2}, 16), "wid": bytes.Repeat([]byte{3}, 16), "att": 3, "fp": bytes.Repeat([]byte{4}, 33),
		"lease": 1, "exp": 2, "ct": 3, "dt": 4,
		"enc": "json", "res": []byte("secret"), "rv": "2",
		"ret": 1000, "uret": 2000, "cdc": "gzip+json", "sn": []string{"pay", "ship"}, "os": 6, "pa": true,
		"cn": 1, "cl": 6, "ch": bytes.Repeat([]byte{1}, 32), "ref": "orders/1", "rid": "request-1", "tp": "trace-1",
		"due": 5, "rc": 2, "x": true, "an": true,
		"steps": map[string]any{
			"pay":  map[string]any{"m": "M", "a": 3, "t": 4, "b": "R", "s": "int", "e": "json", "r": []byte("1"), "new": []any{"x <b>"}},
			"ship": map[string]any{"m": "L", "a": 3, "new": 1},
		},
		"new": map[string]any{"a": []any{json.Number("1.50"), nil}},
	}
}

// without returns document() without attributes.
func without(names ...string) map[string]any {
	m := document()
	for _, name := range names {
		delete(m, name)
	}
	return m
}

var required = []string{"v", "id", "st", "rec", "own", "wid", "fp"}

// smallest returns document() without the attributes that can be missing.
func smallest() map[string]any {
	m := document()
	maps.DeleteFunc(m, func(name string, _ any) bool { return !slices.Contains(required, name) })
	return m
}

func text(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func decoded(t testing.TB, document map[string]any) (r driver.Record) {
	t.Helper()
	if err := r.UnmarshalJSON([]byte(text(t, document))); err != nil {
		t.Fatal(err)
	}
	return r
}

// A new field of a record or a step that has no attribute fails this test.
func TestEveryFieldHasAnAttribute(t *testing.T) {
	t.Parallel()
	r := decoded(t, document())
	for _, stored := range []any{r, r.Chunks, r.Steps[0]} {
		v := reflect.ValueOf(stored)
		for _, f := range reflect.VisibleFields(v.Type()) {
			if v.FieldByIndex(f.Index).IsZero() {
				t.Errorf("%s.%s is not stored", v.Type(), f.Name)
			}
		}
	}
	for got, want := range map[any]any{
		r.LeaseEnd: time.UnixMilli(1).UTC(), r.Expires: time.UnixMilli(2).UTC(), r.Retention: time.Second, r.UnresolvedRetention: 2 * time.Second,
		r.Version: driver.Version(bytes.Repeat([]byte{3}, 16)), r.Steps[1].Name: "ship", r.Steps[0].By: driver.StepByRun,
	} {
		if got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

// A record is written as it was read, with the attributes that a later version wrote,
// also if only the record or only its steps have some.
func TestRecordIsWrittenAsItWasRead(t *testing.T) {
	t.Parallel()
	ofRecord := document()
	ofRecord["steps"] = map[string]any{"pay": map[string]any{"m": "L", "a": 0}}
	for name, want := range map[string]map[string]any{"both": document(), "steps": without("new"), "record": ofRecord, "no steps": without("steps"), "neither": smallest()} {
		r := decoded(t, want)
		if got := text(t, r); got != text(t, want) {
			t.Errorf("%s: written again:\n%s\nwant\n%s", name, got, text(t, want))
		}
		if extra := r.Extra(); (extra != nil) != (name != "neither") {
			t.Errorf("%s: Extra is %s", name, extra)
		}
	}
}

// What a write changes is changed, whatever the attributes of a later version are; and
// a record is read without what it held before.
func TestAttributesThatAreKnown(t *testing.T) {
	t.Parallel()
	r := decoded(t, document())
	r.Ref, r.Chunks, r.Steps[1].Attempt = "", driver.Chunks{}, 4
	known := map[string]json.RawMessage{"ref": []byte(`"old"`), "st": []byte(`"U"`), "later": []byte("true")}
	r.SetExtra(map[string]map[string]json.RawMessage{"": known, "ship": {"a": []byte("9")}, "gone": {"later": []byte("1")}})
	want := without("ref", "cn", "cl", "ch", "new")
	want["later"] = true
	want["steps"] = map[string]any{"pay": map[string]any{"m": "M", "a": 3, "t": 4, "b": "R", "s": "int", "e": "json", "r": []byte("1")}, "ship": map[string]any{"m": "L", "a": 4}}
	if got := text(t, r); got != text(t, want) {
		t.Errorf("got\n%s\nwant\n%s", got, text(t, want))
	}
	delete(want, "later")
	if err := r.UnmarshalJSON([]byte(text(t, want))); err != nil || r.Extra() != nil || text(t, r) != text(t, want) {
		t.Errorf("read over another record: %v\n%s\nwant\n%s", err, text(t, r), text(t, want))
	}
}

func TestMalformedRecord(t *testing.T) {
	t.Parallel()
	refused := func(data string, parts ...string) {
		t.Helper()
		err := new(driver.Record).UnmarshalJSON([]byte(data))
		if err == nil {
			t.Errorf("no error for %s", data)
			return
		}
		for _, part := range append(parts, "run the version that wrote it") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("error %q does not contain %q", err, part)
			}
		}
		if strings.Contains(err.Error(), "4242") {
			t.Errorf("the error %q contains a value", err)
		}
	}
	const secret = "4242424242424242"
	step := func(members map[string]any) map[string]any { return map[string]any{"a": members} }
	for name, values := range map[string][]any{
		"v":     {nil, secret, 1.5},
		"id":    {nil, 1},
		"st":    {nil, secret, 1, ""},
		"rec":   {nil, secret, 1},
		"why":   {nil, 1},
		"own":   {nil, secret, []byte("short"), make([]byte, 17)},
		"wid":   {nil, secret, []byte("short"), make([]byte, 17)},
		"fp":    {nil, secret, make([]byte, 32), make([]byte, 34)},
		"att":   {nil, secret, 1.5, json.Number("1e400")},
		"rc":    {nil, secret, 1.5},
		"lease": {nil, secret, 1.5, json.Number("42424242424242424242")},
		"exp":   {nil, secret, true},
		"ct":    {nil, secret},
		"dt":    {nil, secret},
		"due":   {nil, secret},
		"enc":   {nil, 1},
		"res":   {nil, "%" + secret, 1},
		"rv":    {nil, 1},
		"ret":   {nil, secret, 0, -1, 1.5, json.Number("9223372036855")},
		"uret":  {nil, secret, 0, -1},
		"cdc":   {nil, 1},
		"sn":    {nil, secret, []any{}, []any{""}, []any{nil}, []any{1}, map[string]any{}},
		"os":    {nil, secret},
		"pa":    {nil, secret, false, 1},
		"cn":    {nil, secret, 1.5},
		"cl":    {nil, secret, 1.5},
		"ch":    {nil, secret, make([]byte, 31), make([]byte, 33)},
		"ref":   {nil, 1},
		"rid":   {nil, 1},
		"tp":    {nil, 1},
		"x":     {nil, secret, false, 1},
		"steps": {nil, secret, 1, []any{}, map[string]any{}, // an empty list is not written
			step(nil),
			map[string]any{"a": secret},
			step(map[string]any{"a": secret, "m": "L"}),           // invalid attempt
			step(map[string]any{"a": 1}),                          // missing mode
			step(map[string]any{"a": 1, "m": secret}),             // of a later version
			step(map[string]any{"a": 1, "m": "L", "e": "json"}),   // missing result
			step(map[string]any{"a": 1, "m": "L", "r": []byte{}}), // missing encoding
			step(map[string]any{"m": "L"}),                        // missing attempt
			step(map[string]any{"a": 1, "m": "L", "b": "R"}),      // a source without a result
			step(map[string]any{"a": 1, "m": "L", "b": secret, "e": "json", "r": []byte{}}),
			step(map[string]any{"a": 1, "m": "L", "s": 1}),
			map[string]any{"": map[string]any{"a": 1, "m": "L"}}, // missing name
		},
	} {
		for _, value := range values {
			m := document()
			m[name] = value
			refused(text(t, m), "its "+name+" is not ")
		}
	}
	for _, required := range required {
		refused(text(t, without(required)), "its "+required+" is missing")
	}
	for _, data := range []string{"", "null", "[]", "1", "{", `"` + secret + `"`, "{}x"} {
		refused(data, "its document is not a JSON object")
	}
	refused(`{"v":2,"st":{}}`, "format version 2", "reads 1")
}

// A record that could not be read again is not written. A duration that would
// round to zero, which means the default, is stored as one millisecond.
func TestInvalidRecordIsNotWritten(t *testing.T) {
	t.Parallel()
	valid := func() driver.Record {
		r := driver.Record{ID: id, State: driver.StateUnknown}
		r.Steps = []driver.StepRecord{{Name: "pay", Finished: true, By: driver.StepByRun, Encoding: "json", Result: []byte("1")}}
		return r
	}
	for name, change := range map[string]func(*driver.Record){
		"a negative retention":           func(r *driver.Record) { r.Retention = -1 },
		"a declared step without a name": func(r *driver.Record) { r.StepNames = []string{"pay", ""} },
		"an unknown state":               func(r *driver.Record) { r.State = 99 },
		"an unknown mode":                func(r *driver.Record) { r.Steps[0].Mode = 99 },
		"an unknown source":              func(r *driver.Record) { r.Steps[0].By = 99 },
		"a source without a result":      func(r *driver.Record) { r.Steps[0].Finished, r.Steps[0].Encoding = false, "" },
		"a result without an encoding":   func(r *driver.Record) { r.Steps[0].Encoding = "" },
		"an encoding without a result":   func(r *driver.Record) { r.Steps[0].Finished, r.Steps[0].By = false, 0 },
		"a step without a name":          func(r *driver.Record) { r.Steps[0].Name = "" },
		"Extra of a record that is not JSON": func(r *driver.Record) {
			r.SetExtra(map[string]map[string]json.RawMessage{"": {"later": []byte("{")}})
		},
		"Extra of a step that is not JSON": func(r *driver.Record) {
			r.SetExtra(map[string]map[string]json.RawMessage{"pay": {"later": []byte("{")}})
		},
	} {
		r := valid()
		if _, err := r.MarshalJSON(); err != nil {
			t.Fatal(err)
		}
		change(&r)
		if _, err := r.MarshalJSON(); err == nil {
			t.Errorf("%s: it was written", name)
		}
	}
	r := valid()
	r.Retention, r.UnresolvedRetention, r.Result = time.Microsecond, math.MaxInt64, []byte{}
	r.Steps = []driver.StepRecord{{Name: "pay", Finished: true, Encoding: "empty"}, {Name: "ship", Result: []byte("of an earlier attempt")}}
	var got driver.Record
	if err := json.Unmarshal([]byte(text(t, r)), &got); err != nil || got.Retention != time.Millisecond || got.UnresolvedRetention != math.MaxInt64/time.Millisecond*time.Millisecond || got.Result == nil {
		t.Errorf("got %+v, %v", got, err)
	}
	if pay, ship := got.Steps[0], got.Steps[1]; pay.Result == nil || len(pay.Result) != 0 || ship.Result != nil {
		t.Errorf("got the steps %+v", got.Steps)
	}
	r.Steps = nil
	for name := 'z'; name >= 'a'; name-- {
		r.Steps = append(r.Steps, driver.StepRecord{Name: string(name)})
	}
	if err := json.Unmarshal([]byte(text(t, r)), &got); err != nil || len(got.Steps) != 26 || !slices.IsSortedFunc(got.Steps, func(a, b driver.StepRecord) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("got %v, and steps in the order %+v", err, got.Steps)
	}
}

// FuzzDecode: whatever a store holds, decoding it returns either a record that encodes
// to the same bytes from then on, or an error that contains no value.
func FuzzDecode(f *testing.F) {
	f.Add(text(f, document()))
	f.Add(text(f, smallest()))
	for _, data := range []string{`{"st":"C","ST":"I"}`, `{"st":"C","st":null}`, "1", "0.00000", "{\"\":\"000000000000000000000000000000\x1c"} {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data string) {
		var r, again driver.Record
		if err := r.UnmarshalJSON([]byte(data)); err != nil {
			if len(err.Error()) > 150 {
				t.Errorf("the error is long enough to contain a value: %q", err)
			}
			return
		}
		encoded := text(t, r)
		if err := json.Unmarshal([]byte(encoded), &again); err != nil {
			t.Fatalf("a record that was encoded does not decode: %v", err)
		}
		if third := text(t, again); third != encoded {
			t.Errorf("encoded twice:\n%s\n%s", encoded, third)
		}
	})
}
