package idempotent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/canonical"
)

// Codec encodes the result of a handler to the bytes that are stored, and decodes
// them. A Codec is safe for concurrent use.
type Codec interface {
	// Name returns a short word without '+', other than "final" and "omitted". It is
	// stored with every result, and a record is only decoded by the codec that wrote
	// it: change the name if the format changes.
	Name() string
	// Encode returns the bytes for v. It must not retain them.
	Encode(v any) ([]byte, error)
	// Decode decodes data into the value that v points to.
	Decode(data []byte, v any) error
}

// jsonCodec encodes as the Lambda runtime does: encoding/json without HTML
// escaping. It refuses a value that a replay would return differently.
type jsonCodec struct{}

// jsonCodecName is the name of the default codec.
const jsonCodecName = "json"

func (*jsonCodec) Name() string { return jsonCodecName }

func (c *jsonCodec) Encode(v any) ([]byte, error) {
	t := reflect.TypeOf(v)
	if t == nil {
		return []byte("null"), nil
	}
	info := infoOf(t)
	if info.request != nil {
		return nil, info.request
	}
	v = addressable(v, info)
	data, err := marshal(v)
	if err != nil {
		return nil, err
	}
	replaced := escapesReplacement(data)
	if !replaced && (!info.unproven || info.result != nil) {
		return data, nil
	}
	if err := c.prove(data, t, info); err == nil {
		return data, nil
	} else if !replaced {
		return nil, err
	}
	return nil, errors.New("a string contains invalid UTF-8, which a replay would not preserve; use strings.ToValidUTF8 or a []byte")
}

// prove returns an error unless data, decoded into a new value of type t, encodes
// to data again. In values of type any, the order of members may differ.
func (c *jsonCodec) prove(data []byte, t reflect.Type, info *typeInfo) error {
	back := reflect.New(t).Interface()
	if err := c.Decode(data, back); err != nil {
		return fmt.Errorf("its encoding does not decode: %w", err)
	}
	again, err := marshal(back)
	if err != nil {
		return fmt.Errorf("a replay of it does not encode: %w", err)
	}
	if bytes.Equal(again, data) || info.untyped && !escapesReplacement(data) && sameJSON(again, data) {
		return nil
	}
	return errors.New("a replay of it encodes to other bytes; check the MarshalJSON and MarshalText methods of its types")
}

// sameJSON reports whether a and b have the same canonical form.
func sameJSON(a, b []byte) bool {
	formA, err := canonical.JSON(a)
	formB, _ := canonical.JSON(b) // empty if there is an error, and never empty otherwise
	return err == nil && bytes.Equal(formA, formB)
}

// addressable returns v, or a pointer to a copy of v if json.Marshal would
// otherwise not call all marshalers of v.
func addressable(v any, info *typeInfo) any {
	if !info.addressed {
		return v
	}
	p := reflect.New(reflect.TypeOf(v))
	p.Elem().Set(reflect.ValueOf(v))
	return p.Interface()
}

// marshal encodes v without HTML escaping. It tries json.Marshal first, which
// escapes but allocates least; most values contain nothing to escape.
func marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if !bytes.Contains(data, []byte(`\u`)) { // as no data does if there is an error
		return data, err
	}
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	err = e.Encode(v)
	return bytes.TrimSuffix(buf.Bytes(), []byte{'\n'}), err
}

// Decode preserves the digits of numbers in untyped fields.
func (*jsonCodec) Decode(data []byte, v any) error {
	if !infoOf(reflect.TypeOf(v)).untyped {
		return json.Unmarshal(data, v) // faster than a Decoder
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("data after the JSON value")
	}
	return nil
}

func validateCodecName(name string) error {
	if name == "" || name == driver.EncodingFinal || name == driver.EncodingOmitted || strings.Contains(name, "+") {
		return fmt.Errorf("idempotent: invalid name %q of Options.Codec: use a short word without '+', other than %q and %q", name, driver.EncodingFinal, driver.EncodingOmitted)
	}
	return nil
}
