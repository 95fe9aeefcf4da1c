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

// jsonCodec encodes as the Lambda runtime does: encoding/json without HTML
// escaping. It refuses a value that would not come back as it was.
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
	return nil, errors.New("a text in it is not UTF-8, so a replay would return another one; use strings.ToValidUTF8, or a []byte")
}

// prove reports whether data, decoded into a new value of type t, encodes to
// data again. What any holds comes back with its members in another order.
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
	return errors.New("a replay of it encodes to something else; see the MarshalJSON or MarshalText of the types in it")
}

func sameJSON(a, b []byte) bool {
	formA, errA := canonical.JSON(a)
	formB, errB := canonical.JSON(b)
	return errA == nil && errB == nil && bytes.Equal(formA, formB)
}

// addressable returns v, or a pointer to a copy of it if json.Marshal would not
// call all marshalers of v otherwise.
func addressable(v any, info *typeInfo) any {
	if !info.addressed {
		return v
	}
	p := reflect.New(reflect.TypeOf(v))
	p.Elem().Set(reflect.ValueOf(v))
	return p.Interface()
}

// marshal encodes v without HTML escaping. json.Marshal escapes, and is what
// allocates least; most values have nothing to escape.
func marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil || !bytes.Contains(data, []byte(`\u`)) {
		return data, err
	}
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	err = e.Encode(v)
	return bytes.TrimSuffix(buf.Bytes(), []byte{'\n'}), err
}

// Decode keeps the digits of numbers in untyped fields.
func (*jsonCodec) Decode(data []byte, v any) error {
	if !infoOf(reflect.TypeOf(v)).untyped {
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

func validateCodecName(name string) error {
	if name == "" || name == driver.EncodingFinal || name == driver.EncodingOmitted || strings.Contains(name, "+") {
		return fmt.Errorf("idempotent: Options.Codec has the name %q; use a short word without '+' that is neither %q nor %q", name, driver.EncodingFinal, driver.EncodingOmitted)
	}
	return nil
}
