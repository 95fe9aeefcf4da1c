// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"math"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// Types with text for the tests below.
type (
	word     string // encodes itself as what it holds
	verbatim string // encodes itself as the JSON that it holds
	pair     struct{ Text word }
	hidden   struct{ Name string }
	within   struct {
		hidden
		At *hidden
	}
	byRef   struct{ text string } // encodes itself if it has an address
	withRef struct{ R byRef }
	own     string
)

func (w word) MarshalText() ([]byte, error)       { return []byte(w), nil }
func (w *word) UnmarshalText(b []byte) error      { *w = word(b); return nil }
func (s verbatim) MarshalJSON() ([]byte, error)   { return []byte(s), nil }
func (s *verbatim) UnmarshalJSON(b []byte) error  { *s = verbatim(b); return nil }
func (r *byRef) MarshalText() ([]byte, error)     { return []byte(r.text), nil }
func (r *byRef) UnmarshalText(b []byte) error     { r.text = string(b); return nil }
func (p place) MarshalText() ([]byte, error)      { return []byte(p.text), nil }
func (p *place) UnmarshalText(b []byte) error     { p.text = string(b); return nil }
func (s stranger) MarshalJSON() ([]byte, error)   { return json.Marshal(s.Text) }
func (s *stranger) UnmarshalJSON(b []byte) error  { return json.Unmarshal(b, &s.Text) }
func (n noted) MarshalJSON() ([]byte, error)      { return json.Marshal([]any{n.Time, n.Note}) }
func (n *noted) UnmarshalJSON(b []byte) (e error) { return json.Unmarshal(b, &[]any{&n.Time, &n.Note}) }

type (
	place    struct{ text string }
	stranger struct{ Text string }
	noted    struct {
		time.Time
		Note string
	}
)

// verdict is what becomes of one value: why it has no fingerprint, and why it is not
// stored as a result and as that of a step. Empty: it is.
type verdict struct{ fingerprint, result, step string }

func judge[T any](v T) func(t *testing.T) verdict {
	return func(t *testing.T) (got verdict) {
		if _, err := idempotent.FingerprintOf(v); err != nil {
			got.fingerprint = err.Error()
		}
		f := newFixture(t)
		run := func() (any, error) {
			return idempotent.DoOutcome(t.Context(), f.guard, f.key, func(context.Context) (T, error) { return v, nil })
		}
		first, err := run()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := run(); err != nil {
			got.result = err.Error()
		} else if a, b := encodedByLambda(t, valueOf(first)), encodedByLambda(t, valueOf(again)); a != b {
			t.Errorf("%T: the first caller gets %q, a replay %q", v, a, b)
		}
		f = newFixture(t, resume("a"))
		_, err = f.do(func(ctx context.Context) (string, error) {
			_, err := idempotent.Step(ctx, "a", value(v))
			return "", err
		})
		if err != nil {
			got.step = errors.Unwrap(err).Error()
		}
		return got
	}
}

func valueOf(outcome any) any { return reflect.ValueOf(outcome).FieldByName("Value").Interface() }

// Text that encoding/json would replace is refused, wherever it is: two requests would
// have one fingerprint, and a replay would be another value. Other text is taken as it
// is. All Go releases and experiments give the same verdicts.
func TestText(t *testing.T) {
	t.Parallel()
	const utf8, half = "invalid UTF-8", "half of a surrogate pair"
	taken, broken := verdict{}, verdict{utf8, "could not be stored", utf8}
	halved := verdict{half, "could not be stored", half}
	rawHalf := verdict{utf8, halved.result, half} // canonical JSON calls both so
	var nothing *hidden
	for name, row := range map[string]struct {
		judge func(*testing.T) verdict
		want  verdict
	}{
		"text":                           {judge("pay"), taken},
		"an invalid byte":                {judge("pay \xff"), broken},
		"another":                        {judge("pay \xfe"), broken},
		"half a character":               {judge("\xe2\x80"), broken},
		"half of a pair as bytes":        {judge("\xed\xa0\x80"), broken},
		"U+FFFD":                         {judge("\uFFFD"), taken},
		"a written escape":               {judge(`\ufffd \ud800`), taken},
		"U+2028 and U+2029":              {judge("\u2028\u2029"), taken},
		"HTML":                           {judge("<a href='x?y&z'>"), taken},
		"control characters":             {judge("\x00\b\f\x1f\x7f"), taken},
		"outside the first plane":        {judge("\U0001F600"), taken},
		"quotes":                         {judge(`"\"'`), taken},
		"a named string":                 {judge(own("\xff")), broken},
		"a pointer":                      {judge(new("\xff")), broken},
		"a nil pointer":                  {judge(nothing), taken},
		"a slice":                        {judge([]string{"a", "\xff"}), broken},
		"an empty slice":                 {judge([]string{}), taken},
		"an array":                       {judge([2]string{"a", "\xff"}), broken},
		"a field":                        {judge(hidden{"\xff"}), broken},
		"a field of an embedded struct":  {judge(within{hidden: hidden{"\xff"}}), broken},
		"behind a pointer in a struct":   {judge(within{At: &hidden{"\xff"}}), broken},
		"a map":                          {judge(map[string]string{"a": "\xff"}), broken},
		"a key":                          {judge(map[string]int{"\xff": 1}), broken},
		"a key of numbers":               {judge(map[int]string{1: "a"}), taken},
		"a value under a number":         {judge(map[int]string{1: "\xff"}), broken},
		"a key that encodes itself":      {judge(map[place]int{{"\xff"}: 1}), broken},
		"a good key that encodes itself": {judge(map[place]int{{"a"}: 1}), taken},
		"bytes":                          {judge([]byte("\xff")), taken},
		"a tagged-out field": {judge(struct {
			A string `json:"-"`
		}{"\xff"}), taken},
		"a name with HTML": {judge(struct {
			A string `json:"<&>"`
		}{"a"}), taken},
		"broken text under such a name": {judge(struct {
			A string `json:"<&>"`
		}{"\xff"}), broken},
		"a letter of another script": {judge(struct {
			A string `json:"é"`
		}{"é"}), taken},
		"a text marshaler":              {judge(word("a")), taken},
		"a broken one":                  {judge(word("\xff")), broken},
		"a broken one in a struct":      {judge(pair{"\xff"}), broken},
		"one by its address":            {judge(withRef{byRef{"a"}}), taken},
		"a broken one by its address":   {judge(withRef{byRef{"\xff"}}), broken},
		"a list of them":                {judge([]byRef{{"\xff"}}), broken},
		"a pointer to one":              {judge(&byRef{"\xff"}), broken},
		"a JSON marshaler":              {judge(verbatim(`"a"`)), taken},
		"one with invalid bytes":        {judge(verbatim("\"\xff\"")), broken},
		"one with half a pair":          {judge(verbatim(`"\ud800"`)), halved},
		"one with the other half":       {judge(verbatim(`"\udc00 "`)), halved},
		"one with two halves, wrongly":  {judge(verbatim(`"\ud800\ud800"`)), halved},
		"one with half and an escape":   {judge(verbatim(`"\ud800\n"`)), halved},
		"one with a pair":               {judge(verbatim(`"\ud83d\ude00\\ud800"`)), taken},
		"one with U+FFFD":               {judge(verbatim(`"\ufffd"`)), taken},
		"one that uses encoding/json":   {judge(stranger{"a"}), taken},
		"raw JSON":                      {judge(json.RawMessage(`{"a":"\u00e9\/<"}`)), taken},
		"raw JSON with invalid bytes":   {judge(json.RawMessage("\"\xff\"")), broken},
		"raw JSON with half a pair":     {judge(json.RawMessage(`["\uDBFF"]`)), rawHalf},
		"the same in a field":           {judge(struct{ R json.RawMessage }{json.RawMessage(`"\ud800"`)}), halved},
		"no raw JSON":                   {judge(struct{ R json.RawMessage }{}), taken},
		"a number":                      {judge(json.Number("1E5")), taken},
		"an any":                        {judge[any](map[string]any{"a": []any{"\xff"}}), broken},
		"an any with a key":             {judge[any](map[string]any{"\xff": nil}), broken},
		"an any with a struct":          {judge[any](within{At: &hidden{"\xff"}}), broken},
		"an any with the hidden of two": {judge[any]([]any{shadowed{inner{"\xff"}, "a"}}), taken}, // it is not encoded
		"the same with U+FFFD":          {judge[any]([]any{shadowed{inner{"\xff"}, "\uFFFD"}}), broken},
		"an any with raw JSON":          {judge[any](json.RawMessage(`"\ud800"`)), rawHalf},
		"an any with a marshaler":       {judge[any](word("\xff")), broken},
		"a good any":                    {judge[any](map[string]any{"a": 1.5, "b": nil, "c": true}), taken},
		"a time":                        {judge(time.Unix(1, 2).UTC()), taken},
		"a large number":                {judge(*big.NewInt(7)), taken},
		"an address":                    {judge(netip.MustParseAddr("::1")), taken},
		"own methods for an embedded":   {judge(noted{time.Unix(1, 0).UTC(), "a"}), taken},
		"a number as text": {judge(struct {
			N int `json:",string"`
		}{1}), taken},
		"a type that contains itself": {judge(node{"a", []node{{"\xff", nil}}}), broken},
		"a good one":                  {judge(node{"a", []node{{"b", nil}}}), taken},
	} {
		switch got := row.judge(t); {
		case row.want == verdict{}:
			if got != row.want {
				t.Errorf("%s: refused: %+v", name, got)
			}
		case !strings.Contains(got.fingerprint, row.want.fingerprint) || !strings.Contains(got.result, row.want.result) || !strings.Contains(got.step, row.want.step):
			t.Errorf("%s: got %+v, want %+v", name, got, row.want)
		}
	}
	for _, text := range []string{"a", "\xff", "\xed\xa0\x80", "\u2028<&>\"", "\\ud800"} {
		f := newFixture(t)
		_, first := f.do(func(context.Context) (string, error) { return "", idempotent.Final("c", text) })
		_, again := f.do(never[string])
		if want := "c: " + strings.ToValidUTF8(text, "\uFFFD"); first.Error() != want || again.Error() != want {
			t.Errorf("Final with %q: first %q, then %q", text, first, again)
		}
	}
}

type node struct {
	Name string
	Of   []node
}

// frozenValues is the hash of the results and fingerprints of TestValuesAreFrozen. Another
// one means that a record or a fingerprint of a function that was built with another Go
// release, or before, is not recognised.
const frozenValues = "7055873d2c10bb9e3ca414d18cfa174024a01bfb27de0502ea3f1de28b22642c"

// Values of 40 types have the same stored form and the same fingerprint, whichever Go
// release or experiment encodes them; each is replayed as its first caller got it.
func TestValuesAreFrozen(t *testing.T) {
	t.Parallel()
	const each = 250
	values := []func(*rand.Rand, hash.Hash){
		frozen[string](t), frozen[bool](t), frozen[int](t), frozen[int8](t), frozen[uint64](t), frozen[float64](t), frozen[float32](t),
		frozen[[]byte](t), frozen[[3]byte](t), frozen[[]string](t), frozen[[2]bool](t), frozen[*string](t), frozen[**int](t),
		frozen[map[string]string](t), frozen[map[int]float64](t), frozen[map[string][]int](t), frozen[map[netip.Addr]string](t), frozen[map[place]int](t),
		frozen[time.Time](t), frozen[*big.Int](t), frozen[big.Int](t), frozen[netip.Addr](t), frozen[time.Duration](t),
		frozen[json.Number](t), frozen[json.RawMessage](t), frozen[any](t), frozen[map[string]any](t), frozen[[]any](t),
		frozen[word](t), frozen[verbatim](t), frozen[optional[string]](t), frozen[noted](t), frozen[withRef](t), frozen[within](t), frozen[node](t),
		frozen[struct {
			Name  string `json:"name"`
			Total int64  `json:"total,string"`
			Note  string `json:"note,omitempty"`
			Gone  string `json:"-"`
		}](t),
		frozen[struct {
			At   time.Time `json:"at,omitzero"`
			Sum  float64   `json:"<sum>"`
			Tags []string  `json:"tags,omitempty"`
		}](t),
		frozen[struct {
			Raw  json.RawMessage
			Any  any
			Self *node
		}](t),
		frozen[struct {
			inner `json:"inner"`
			ID    *int64 `json:",string,omitempty"`
		}](t),
		frozen[[]struct{ K, V string }](t),
	}
	if len(values) != 40 {
		t.Fatalf("%d types", len(values))
	}
	sum := sha256.New()
	for i, one := range values {
		r := rand.New(rand.NewPCG(53, uint64(i)))
		for range each {
			one(r, sum)
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != frozenValues {
		t.Errorf("the hash is %s, want %s", got, frozenValues)
	}
}

// frozen adds the stored form and the fingerprint of a random T to the hash.
func frozen[T any](t *testing.T) func(*rand.Rand, hash.Hash) {
	f, n := newFixture(t), 0
	return func(r *rand.Rand, sum hash.Hash) {
		var v T
		randomise(r, reflect.ValueOf(&v).Elem(), 3)
		fingerprint, err := idempotent.FingerprintOf(v)
		if err != nil {
			t.Fatalf("%T: %v", v, err)
		}
		n++
		f.key.ID, f.key.Fingerprint = strconv.Itoa(n), fingerprint
		var answers [2]string
		for i := range answers {
			out, err := idempotent.Do(t.Context(), f.guard, f.key, value(v))
			if err != nil {
				t.Fatalf("%T: %v", v, err)
			}
			answers[i] = encodedByLambda(t, &out)
		}
		if answers[0] != answers[1] {
			t.Errorf("%T: the first caller gets %q, a replay %q", v, answers[0], answers[1])
		}
		stored := f.record()
		fmt.Fprintf(sum, "%s %q %x\n", stored.Encoding, stored.Result, fingerprint)
	}
}

// randomise sets v to a random value that no type of a result refuses.
func randomise(r *rand.Rand, v reflect.Value, depth int) {
	text := func() string {
		alphabet := []rune("abz019 _-\"\\/<>&'\t\n\x00\x7fäß€\u2028\uFFFD\U0001F600")
		out := make([]rune, r.IntN(12))
		for i := range out {
			out[i] = alphabet[r.IntN(len(alphabet))]
		}
		return string(out)
	}
	doc := func() string {
		return []string{`null`, `"\u00e9\/<"`, `{"b":1.50,"a":[true,"\\"]}`, `-0`, `1E400`, `""`, `[]`, `{}`}[r.IntN(8)]
	}
	if !v.CanInterface() { // an embedded struct that is not exported
		for i := range v.NumField() {
			randomise(r, v.Field(i), depth-1)
		}
		return
	}
	switch p := v.Addr().Interface().(type) {
	case *time.Time:
		*p = time.Unix(r.Int64N(4e9), r.Int64N(1e9)).UTC()
		return
	case *big.Int:
		p.Lsh(big.NewInt(r.Int64()-1<<62), uint(r.IntN(100)))
		return
	case *netip.Addr:
		*p = netip.AddrFrom4([4]byte{byte(r.Uint32()), 1, 2, 3})
		return
	case *json.Number:
		*p = json.Number([]string{"0", "-1", "1.50", "1e9", "12345678901234567890"}[r.IntN(5)])
		return
	case *json.RawMessage:
		*p = json.RawMessage(doc())
		return
	case *verbatim:
		*p = verbatim(doc())
		return
	case *place:
		p.text = text()
		return
	case *byRef:
		p.text = text()
		return
	case *optional[string]:
		*p = optional[string]{text(), r.IntN(2) == 0}
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.String:
		v.SetString(text())
	case reflect.Int, reflect.Int8, reflect.Int64:
		v.SetInt(r.Int64() >> r.IntN(64))
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(r.Uint64() >> r.IntN(64))
	case reflect.Float32, reflect.Float64:
		v.SetFloat([]float64{0, -1, 1.5, 1e21, 1e20, 1e-7, 0.1, math.MaxFloat32, float64(float32(r.NormFloat64()))}[r.IntN(9)])
	case reflect.Pointer:
		if depth > 0 && r.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			randomise(r, v.Elem(), depth-1)
		}
	case reflect.Slice:
		if depth > 0 && r.IntN(4) > 0 {
			v.Set(reflect.MakeSlice(v.Type(), r.IntN(4), 4))
		}
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			randomise(r, v.Index(i), depth-1)
		}
	case reflect.Map:
		if depth > 0 && r.IntN(4) > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range r.IntN(4) {
				key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				randomise(r, key, 0)
				randomise(r, elem, depth-1)
				v.SetMapIndex(key, elem)
			}
		}
	case reflect.Interface:
		if depth > 0 {
			of := []reflect.Type{reflect.TypeFor[string](), reflect.TypeFor[float64](), reflect.TypeFor[bool](), reflect.TypeFor[map[string]any](), reflect.TypeFor[[]any](), reflect.TypeFor[node]()}
			elem := reflect.New(of[r.IntN(len(of))]).Elem()
			randomise(r, elem, depth-1)
			v.Set(elem)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() || f.Anonymous {
				randomise(r, v.Field(i), depth-1)
			}
		}
	default:
		panic(v.Type().String())
	}
}
