package idempotent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"

	"github.com/once-lambda/once/idempotent/driver"
)

// Codec turns the result of a handler into the bytes that are stored, and
// back. A Codec is safe for concurrent use.
type Codec interface {
	// Name is stored with every result, and a record is only decoded by the
	// codec that wrote it: change the name when the format changes. It is a
	// short word without '+', and neither "final" nor "omitted".
	Name() string
	// Encode returns the bytes for v. It must not keep them.
	Encode(v any) ([]byte, error)
	// Decode reads data into the value that v points to.
	Decode(data []byte, v any) error
}

// jsonCodec is encoding/json, with exact numbers in untyped fields.
type jsonCodec struct {
	untyped sync.Map // reflect.Type → bool: does it have room for untyped values?
}

// jsonCodecName is the name of the default codec.
const jsonCodecName = "json"

func (*jsonCodec) Name() string                 { return jsonCodecName }
func (*jsonCodec) Encode(v any) ([]byte, error) { return json.Marshal(v) }

func (c *jsonCodec) Decode(data []byte, v any) error {
	if !c.hasUntyped(reflect.TypeOf(v)) {
		return json.Unmarshal(data, v) // which is quicker than a decoder
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("data behind the JSON value")
	}
	return nil
}

// hasUntyped reports whether a value of type t can hold a number that has no
// type of its own: an interface somewhere in it.
func (c *jsonCodec) hasUntyped(t reflect.Type) bool {
	if known, ok := c.untyped.Load(t); ok {
		return known.(bool)
	}
	found := reachesInterface(t, map[reflect.Type]bool{})
	c.untyped.Store(t, found)
	return found
}

func reachesInterface(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return reachesInterface(t.Elem(), seen)
	case reflect.Map:
		return reachesInterface(t.Key(), seen) || reachesInterface(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if reachesInterface(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}

func validateCodecName(name string) error {
	if name == "" || name == driver.EncodingFinal || name == driver.EncodingOmitted || strings.Contains(name, "+") {
		return fmt.Errorf("idempotent: Options.Codec has the name %q; use a short word without '+' that is neither %q nor %q", name, driver.EncodingFinal, driver.EncodingOmitted)
	}
	return nil
}
