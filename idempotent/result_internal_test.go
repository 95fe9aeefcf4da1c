// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"

	"github.com/once-lambda/once/idempotent/driver"
)

// plain stores text unchanged.
type plain struct{}

func (plain) Name() string                    { return "plain" }
func (plain) Encode(v any) ([]byte, error)    { return v.([]byte), nil }
func (plain) Decode(data []byte, v any) error { *v.(*[]byte) = data; return nil }

// A stored result does not share memory with the handler's value, which the
// codec may return as it is.
func TestStoredResultIsACopy(t *testing.T) {
	t.Parallel()
	value := []byte("ch_1")
	_, data, err := encodeResult(plain{}, value)
	value[0] = 'x'
	if err != nil || string(data) != "ch_1" {
		t.Errorf("stored as %q, error %v", data, err)
	}
}

// Results above 512 bytes are compressed, and only if that saves at least one byte.
func TestCompressionIsWorthIt(t *testing.T) {
	t.Parallel()
	noise := make([]byte, compressAbove+28)
	var even []byte
	for seed := int64(0); len(compress(even)) != len(even); seed++ {
		rand.New(rand.NewSource(seed)).Read(noise)
		// Bytes with two random bits compress: as many of them as save what a frame costs.
		even = bytes.Clone(noise)
		for i := 0; len(compress(even)) > len(even); i++ {
			even[i] &= 3
		}
	}
	smaller := append(bytes.Clone(even), make([]byte, 40)...)
	for name, row := range map[string]struct {
		data []byte
		want string
	}{
		"at the limit":             {make([]byte, compressAbove), "plain"},
		"a byte more":              {make([]byte, compressAbove+1), "plain+br"},
		"noise":                    {noise, "plain"},
		"as large when compressed": {even, "plain"},
		"smaller":                  {smaller, "plain+br"},
	} {
		encoding, data, err := encodeResult(plain{}, row.data)
		if err != nil || encoding != row.want || (encoding == "plain") != bytes.Equal(data, row.data) {
			t.Errorf("%s: %d bytes are stored as %q in %d bytes (%v), want %q", name, len(row.data), encoding, len(data), err, row.want)
		}
	}
}

// A compressor takes 60 KB for a small result and 4.7 MB for a large one, more than almost
// every result.
func TestCompressorsAreReused(t *testing.T) {
	for size, limit := range map[int]uint64{8_000: 30_000, 10_000: 1_500_000} {
		const times = 40
		data := bytes.Repeat([]byte("0123456789"), size/10)
		compress(data)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			compress(data)
		}
		runtime.ReadMemStats(&after)
		// The race detector makes the pool forget some.
		if each := (after.TotalAlloc - before.TotalAlloc) / times; each > limit || each == 0 {
			t.Errorf("%d bytes allocated for each result of %d bytes, want at most %d", each, size, limit)
		}
	}
}

// A result of up to 8 KB gets a compressor with a small table, and a larger one that of level
// 4, which needs fewer bytes.
func TestCompressorForTheSize(t *testing.T) {
	for size, small := range map[int]bool{8 << 10: true, 8<<10 + 1: false} {
		runtime.GC() // a pool keeps what it has for one collection
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		compress(make([]byte, size))
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took < 1<<20 != small {
			t.Errorf("the compressor for %d bytes takes %d bytes; want a small one: %t", size, took, small)
		}
	}
}

// A compressed result that was cut off or damaged is not read as another result,
// whatever the codec makes of it, and one that would fill the memory is not unpacked.
func TestDamagedCompression(t *testing.T) {
	t.Parallel()
	text := []byte(strings.Repeat(`{"id":"ch_1"}`, 400))
	packed := compress(text)
	refused := func(what string, data []byte) {
		t.Helper()
		if out, err := decompress(data); err == nil && !bytes.Equal(out, text) {
			t.Errorf("%s was unpacked to %d bytes", what, len(out))
		}
	}
	for n := range packed {
		refused(fmt.Sprintf("the first part of %d bytes", n), packed[:n])
		damaged := bytes.Clone(packed)
		damaged[n] ^= 0x10
		refused(fmt.Sprintf("another byte %d of %d", n, len(packed)), damaged)
	}
	if _, err := decompress(append(bytes.Clone(packed), 0)); err == nil {
		t.Error("a longer one was unpacked")
	}
	full := make([]byte, maxResult+1)
	if out, err := decompress(compress(full[1:])); err != nil || len(out) != maxResult {
		t.Errorf("%d bytes and error %v, want %d", len(out), err, maxResult)
	}
	refused("one of more than 64 MB", compress(full))
}

// Compressing loses nothing, whatever is compressed.
func FuzzCompress(f *testing.F) {
	f.Add([]byte(nil), byte(1))
	f.Add([]byte(`{"id":"ch_1","lines":[1,2,3]}`), byte(200))
	f.Fuzz(func(t *testing.T, part []byte, times byte) {
		data := bytes.Repeat(part, int(times))
		if out, err := decompress(compress(data)); err != nil || !bytes.Equal(out, data) {
			t.Errorf("%d bytes became %d, %v", len(data), len(out), err)
		}
	})
}

// Evidence is equal, whatever program compressed it.
func TestResultEquals(t *testing.T) {
	t.Parallel()
	text := []byte(strings.Repeat(`{"id":"ch_1"}`, 500))
	packed := compress(text)
	var best bytes.Buffer
	best.Write(packed[:4]) // the checksum
	w := brotli.NewWriterLevel(&best, brotli.BestSpeed)
	w.Write(text)
	w.Close()
	if bytes.Equal(packed, best.Bytes()) {
		t.Fatal("both are compressed to the same bytes: the test proves nothing")
	}
	other := bytes.Clone(text)
	other[len(other)-1] = ']'
	for name, row := range map[string]struct {
		encodingA, encodingB string
		a, b                 []byte
		want                 bool
	}{
		"the same":            {"json", "json", text, text, true},
		"another compression": {"json+br", "json+br", packed, best.Bytes(), true},
		"compressed or not":   {"json+br", "json", packed, text, true},
		"not or compressed":   {"json", "json+br", text, packed, true},
		"another last byte":   {"json", "json", text, other, false},
		"compressed, another": {"json+br", "json+br", packed, compress(other), false},
		"another codec":       {"json", "xml", text, text, false},
		"of another codec":    {"json+br", "xml+br", packed, packed, false},
		"final":               {"final", "final", text, text, true},
		"damaged alike":       {"json+br", "json+br", text, text, true},
		"damaged":             {"json+br", "json+br", packed, packed[:len(packed)-10], false},
		"nothing":             {"", "", nil, []byte{}, true},
		"nothing and another": {"raw", "xml", nil, text, false},
		"damaged and nothing": {"raw+br", "raw", text, nil, false},
	} {
		if got := resultEquals(row.encodingA, row.a, row.encodingB, row.b); got != row.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// The first caller gets the same content of an any as every replay.
func TestAsReplayed(t *testing.T) {
	t.Parallel()
	type typed struct{ B, A int }
	c := &jsonCodec{}
	large := strings.Repeat("x", 2*compressAbove)
	v := map[string]any{"n": 1.5, "s": typed{1, 2}, "t": large}
	encoding, data, err := encodeResult(c, v)
	if err != nil || encoding != "json+br" {
		t.Fatal(encoding, err)
	}
	if err := asReplayed(c, encoding, data, &v); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"n": json.Number("1.5"), "s": map[string]any{"A": json.Number("2"), "B": json.Number("1")}, "t": large}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("got %#v", v)
	}
	for _, data := range []string{`{"A":3}`, `{`} { // not decoded
		static := typed{1, 2}
		if err := asReplayed(c, "json", []byte(data), &static); err != nil || static != (typed{1, 2}) {
			t.Errorf("a type without any became %v, error %v", static, err)
		}
	}
	for _, data := range []string{`{"A":3} {}`, `{"A":3`, ``} {
		if err := c.Decode([]byte(data), new(any)); err == nil {
			t.Errorf("%s was decoded", data)
		}
	}
	var own any = "same"
	if err := asReplayed(plain{}, "plain", []byte("other"), &own); err != nil || own != "same" {
		t.Errorf("a result of another codec became %v, error %v", own, err)
	}
	var untyped any = 1
	if err := asReplayed(c, "json", []byte(`{`), &untyped); err == nil || untyped != 1 {
		t.Errorf("damaged: got %v, error %v", untyped, err)
	}
	if err := asReplayed(c, "xml", []byte("2"), &untyped); err == nil || !strings.Contains(err.Error(), `encoded as "xml"`) || untyped != 1 {
		t.Errorf("of another codec: got %v, error %v", untyped, err)
	}
}

// A result that is too large to be unpacked again is not stored, from the first
// byte over the limit.
func TestResultBound(t *testing.T) {
	t.Parallel()
	zeroes := make([]byte, maxResult+1)
	if _, _, err := encodeResult(plain{}, zeroes); err == nil || !strings.Contains(err.Error(), "the limit is 67108864") {
		t.Errorf("%d bytes: got error %v", len(zeroes), err)
	}
	encoding, data, err := encodeResult(plain{}, zeroes[:maxResult])
	if err != nil {
		t.Fatal(err)
	}
	if back, err := unpack(encoding, "plain", data); err != nil || len(back) != maxResult {
		t.Errorf("%d bytes were unpacked to %d, error %v", maxResult, len(back), err)
	}
}

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
			"it is sealed, and this guard has no Operation.Seal to open it with",
			"the stored result does not decode into a interface {}",
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
