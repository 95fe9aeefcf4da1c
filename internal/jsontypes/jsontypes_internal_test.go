// SPDX-License-Identifier: Apache-2.0

package jsontypes

import (
	"encoding"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"
)

type (
	intPointer *int
	octet      byte
	chain      struct{ Next *chain }
)

// The shape of a type spells how its values are encoded.
func TestShapeIsSpelled(t *testing.T) {
	t.Parallel()
	want := map[string][]reflect.Type{
		"int": {reflect.TypeFor[int](), reflect.TypeFor[int8](), reflect.TypeFor[int16](), reflect.TypeFor[int32](), reflect.TypeFor[int64](), reflect.TypeFor[uint](),
			reflect.TypeFor[uint8](), reflect.TypeFor[uint16](), reflect.TypeFor[uint32](), reflect.TypeFor[uint64](), reflect.TypeFor[uintptr](), reflect.TypeFor[time.Duration]()},
		"float":            {reflect.TypeFor[float32](), reflect.TypeFor[float64]()},
		"string":           {reflect.TypeFor[string]()},
		"number":           {reflect.TypeFor[json.Number]()},
		"bool":             {reflect.TypeFor[bool]()},
		"interface":        {reflect.TypeFor[any](), reflect.TypeFor[json.Marshaler]()},
		"bytes":            {reflect.TypeFor[[]byte](), reflect.TypeFor[[]octet]()},
		"[]bytes":          {reflect.TypeFor[[][]byte]()},
		"[]string":         {reflect.TypeFor[[]string]()},
		"[2]int":           {reflect.TypeFor[[2]byte]()},
		"*int":             {reflect.TypeFor[*int](), reflect.TypeFor[intPointer]()},
		"map[string]float": {reflect.TypeFor[map[string]float32]()},
		`own "time.Time"`:  {reflect.TypeFor[time.Time]()},
		`*own "time.Time"`: {reflect.TypeFor[*time.Time]()},
		`{"Next":*^2;}`:    {reflect.TypeFor[chain]()},
		`*{"Next":^2;}`:    {reflect.TypeFor[*chain]()},
		`[]{"Next":*^2;}`:  {reflect.TypeFor[[]chain]()},
		`{}`:               {reflect.TypeFor[struct{}]()},
		`{"B":string;"a":int;"q":quoted int;}`: {reflect.TypeFor[struct {
			Q int `json:"q,string"`
			A int `json:"a"`
			B string
		}]()},
	}
	for shape, types := range want {
		for _, typ := range types {
			var b strings.Builder
			if writeShape(&b, typ, nil); b.String() != shape {
				t.Errorf("%s: got %s, want %s", typ, &b, shape)
			}
		}
	}
}

// Names and options of tags count as the running encoding/json takes them, and a tag that
// Go releases take in different ways is refused.
func TestTags(t *testing.T) {
	t.Parallel()
	for tag, want := range map[string]string{
		`json:"a-b"`: "a-b", `json:"1"`: "1", `json:"é"`: "é", `json:"a b"`: "a b", `json:"a.b/c"`: "a.b/c", `json:""`: "F", ``: "F",
		`json:",inline"`: "F", `json:"-,"`: "-",
		"json:\"n,format:'x'\"": "", `json:"b'"`: "", `json:"'b'"`: "", `json:"a\\b"`: "", `json:"a\"b"`: "", `json:"€"`: "", "json:\"\x01\"": "", "json:\"\xff\"": "", "json:\"a\u200bb\"": "",
	} {
		value := reflect.New(reflect.StructOf([]reflect.StructField{{Name: "F", Type: reflect.TypeFor[int](), Tag: reflect.StructTag(tag)}}))
		fields, err := fieldsOf(value.Elem().Type())
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "Go releases disagree about the tag") {
				t.Errorf("%s: got %+v, %v", tag, fields, err)
			}
			continue
		}
		if err != nil || len(fields) != 1 || fields[0].name != want {
			t.Errorf("%s: got %+v, %v; want the name %s", tag, fields, err, want)
		}
		if text, err := json.Marshal(value.Interface()); err != nil || string(text) != fmt.Sprintf("{%q:0}", want) {
			t.Errorf("%s: encoding/json says %s, %v", tag, text, err)
		}
	}
	for _, row := range []struct {
		value  any
		quoted bool
	}{
		{true, true}, {1, true}, {int8(1), true}, {uintptr(1), true}, {float32(1), true}, {1.5, true}, {new(int), true},
		{[]int{1}, false}, {map[string]int{}, false}, {[1]int{}, false},
	} {
		typ := reflect.StructOf([]reflect.StructField{{Name: "F", Type: reflect.TypeOf(row.value), Tag: `json:",string"`}})
		fields, err := fieldsOf(typ)
		if err != nil || fields[0].quoted != row.quoted {
			t.Errorf("%T: quoted %v, %v", row.value, fields, err)
		}
		value := reflect.New(typ)
		value.Elem().Field(0).Set(reflect.ValueOf(row.value))
		if text, err := json.Marshal(value.Interface()); err != nil || strings.Contains(string(text), `:"`) != row.quoted {
			t.Errorf("%T: encoding/json says %s, %v", row.value, text, err)
		}
	}
}

type (
	onlyDecodes struct{ N int }
	decodesChan struct{ C chan int }
	fixed       struct{ N int }
	ownMarshal  struct{ fixed }
	halfOwn     struct {
		time.Time
		N int
	}
	wrapped struct{ time.Time }
	blank   struct {
		time.Time
		_    int
		Mark struct{}
		Skip int `json:"-"`
	}
	address struct {
		netip.Addr
		N int
	}
)

// picky encodes itself with its code, and decodes few codes.
type picky struct {
	time.Time
	Code string
}

func (p picky) MarshalJSON() ([]byte, error) { return json.Marshal(p.Code) }
func (p *picky) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &p.Code); p.Code != "EUR" {
		return fmt.Errorf("no currency: %s", b)
	}
	return nil
}

func (*onlyDecodes) UnmarshalJSON([]byte) error { return nil }
func (*decodesChan) UnmarshalJSON([]byte) error { return nil }
func (ownMarshal) MarshalJSON() ([]byte, error) { return []byte("1"), nil }
func (halfOwn) MarshalJSON() ([]byte, error)    { return []byte("1"), nil }
func (wrapped) String() string                  { return "wrapped" }
func (o onlyDecodes) String() string            { return fmt.Sprint(o.N) }
func keyed[K comparable]() reflect.Type         { return reflect.TypeFor[map[K]int]() }
func quotedNumber() reflect.Type {
	return reflect.TypeFor[struct {
		N json.Number `json:",string"`
	}]()
}

// What is refused as a stored result, and as a request.
func TestRefusedTypes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		typ             reflect.Type
		result, request string // part of the error; empty: accepted
	}{
		{reflect.TypeFor[complex64](), "cannot be encoded", "cannot be encoded"},
		{reflect.TypeFor[complex128](), "cannot be encoded", "cannot be encoded"},
		{reflect.TypeFor[unsafe.Pointer](), "cannot be encoded", "cannot be encoded"},
		{quotedNumber(), "", ""},
		{reflect.TypeFor[struct {
			P intPointer `json:",string"`
		}](), "in some Go releases only", "in some Go releases only"},
		{reflect.TypeFor[onlyDecodes](), "no MarshalJSON", ""},
		{reflect.TypeFor[map[string]onlyDecodes](), "no MarshalJSON", ""},
		{reflect.TypeFor[decodesChan](), "no MarshalJSON", "cannot be encoded"},
		{reflect.TypeFor[ownMarshal](), "no UnmarshalJSON", ""},
		{reflect.TypeFor[halfOwn](), "has the UnmarshalJSON of an embedded field", ""},
		{reflect.TypeFor[wrapped](), "", ""},
		{reflect.TypeFor[picky](), "", ""},
		{reflect.TypeFor[blank](), "", ""},
		{reflect.TypeFor[address](), "has the MarshalText of an embedded field", "has the MarshalText of an embedded field"},
		{keyed[encoding.TextMarshaler](), "cannot be encoded", "cannot be encoded"},
		{keyed[any](), "cannot be encoded", "cannot be encoded"},
		{keyed[*netip.Addr](), "cannot be encoded", "cannot be encoded"},
		{keyed[float64](), "cannot be encoded", "cannot be encoded"},
		{keyed[netip.Addr](), "", ""},
		{keyed[int](), "", ""}, {keyed[int8](), "", ""}, {keyed[int16](), "", ""}, {keyed[int32](), "", ""}, {keyed[int64](), "", ""},
		{keyed[uint](), "", ""}, {keyed[uint8](), "", ""}, {keyed[uint16](), "", ""}, {keyed[uint32](), "", ""}, {keyed[uint64](), "", ""}, {keyed[uintptr](), "", ""},
	} {
		for what, c := range map[string]struct {
			err  error
			want string
		}{"result": {Inspect(row.typ).Result, row.result}, "request": {Inspect(row.typ).Request, row.request}} {
			if c.want == "" && c.err != nil || c.want != "" && (c.err == nil || !strings.Contains(c.err.Error(), c.want)) {
				t.Errorf("%s as a %s: got error %v, want %q", row.typ, what, c.err, c.want)
			}
		}
	}
}

// The probe for a promoted method has no zero field that reflection can set.
func TestFill(t *testing.T) {
	t.Parallel()
	type part struct{ N int }
	var all struct {
		B    bool
		I    int
		I8   int8
		I16  int16
		I32  int32
		I64  int64
		U    uint
		U8   uint8
		U16  uint16
		U32  uint32
		U64  uint64
		Ptr  uintptr
		F32  float32
		F64  float64
		S    string
		P    *int
		L    []int
		M    map[string]int
		A    any
		Two  [2]int
		Part part
		part
	}
	v := reflect.ValueOf(&all).Elem()
	fill(v)
	for i := range v.NumField() {
		if f := v.Field(i); f.IsZero() || f.Kind() == reflect.Map && f.Len() != 1 || f.Kind() == reflect.Slice && f.Len() != 1 {
			t.Errorf("%s is %v", v.Type().Field(i).Name, f)
		}
	}
	if all.Two != [2]int{1, 1} {
		t.Errorf("the array is %v", all.Two)
	}
	var unset struct {
		E    error
		C    chan int
		text string
	}
	if fill(reflect.ValueOf(&unset).Elem()); unset.E != nil || unset.C != nil || unset.text != "" {
		t.Errorf("%+v", unset)
	}
}
