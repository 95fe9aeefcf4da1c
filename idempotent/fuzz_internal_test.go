// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent/driver"
)

// FuzzDecodeResult: whatever a store returns as a result, decoding it ends with a
// value, with the business outcome, or with an error that names the reason and
// does not quote the result.
func FuzzDecodeResult(f *testing.F) {
	packed := string(compress([]byte(`{"id":"ch_1"}`)))
	for _, seed := range [][2]string{
		{"json", `{"id":"ch_1","n":12345678901234567.89}`}, {"json", ``}, {"json", `{} {}`}, {"json+br", packed}, {"json+br", packed[:len(packed)/2]},
		{"json+br", "no frame"}, {"final", `{"code":"declined","message":"no funds"}`}, {"final", `{`}, {"omitted", "x"}, {"xml", "<a/>"}, {"", ""}, {"json+br+gzip", packed}, {"json+sealed", "x"}, {"final+sealed", "x"},
		{"json+gzip", "\x1f\x8b\b"}, {strings.Repeat("\f", 16), "p"}, {strings.Repeat("\xee\xfd\x00'", 250), "0"},
	} {
		f.Add(seed[0], []byte(seed[1]))
	}
	o, err := Options{}.with(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, encoding string, data []byte) {
		r := driver.Record{ID: "charge#key", State: driver.StateCompleted, Encoding: encoding, Result: data}
		var v any
		err := decodeResult(t.Context(), o, &r, &v)
		if err == nil {
			return
		}
		if v != nil && encoding == driver.EncodingFinal {
			t.Errorf("got %v with the outcome %v", v, err)
		}
		var final *FinalError
		if errors.As(err, &final) {
			if encoding != driver.EncodingFinal {
				t.Errorf("a result encoded as %q is the outcome %v", encoding, err)
			}
			return
		}
		var unavailable *ReplayUnavailableError
		if !errors.As(err, &unavailable) {
			t.Fatalf("got error %v, want a *ReplayUnavailableError", err)
		}
		codec, _ := strings.CutSuffix(encoding, encodingCompressed)
		if !slices.Contains([]string{
			"the result could not be stored",
			"the stored Final error is damaged",
			fmt.Sprintf("it was encoded as %q but this code decodes %q", codec, o.Codec.Name()),
			"the stored result is damaged",
			"it is sealed, and this guard has no Options.Seal to open it with",
			"the stored result does not decode into a *interface {}",
		}, unavailable.Reason) {
			t.Errorf("the error has an unexpected reason: %v", err)
		}
	})
}

// FuzzResult: a JSON value is replayed unchanged, with all digits of its numbers,
// compressed or not.
func FuzzResult(f *testing.F) {
	for _, doc := range []string{`null`, `0`, `false`, `""`, `{}`, `[]`, `{"a":[1,2.50,"x"]}`, `9007199254740993`, ``, `0,`, `0E00000`, `"` + strings.Repeat("long ", 400) + `"`} {
		f.Add([]byte(doc))
	}
	o, err := Options{}.with(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		var v any
		if err := o.Codec.Decode(doc, &v); err != nil {
			return
		}
		encoding, data, err := encodeResult(o.Codec, v)
		if err != nil {
			t.Fatalf("%q was decoded but cannot be encoded: %v", doc, err)
		}
		if plain, _ := json.Marshal(v); len(data) > len(plain) {
			t.Errorf("%d bytes are stored as %d", len(plain), len(data))
		}
		var again any
		if err := decodeResult(t.Context(), o, &driver.Record{Encoding: encoding, Result: data}, &again); err != nil || !reflect.DeepEqual(again, v) {
			t.Errorf("%q is replayed as %#v, want %#v (%v)", doc, again, v, err)
		}
	})
}
