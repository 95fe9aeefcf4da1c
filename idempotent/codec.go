package idempotent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
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
type jsonCodec struct{}

func (jsonCodec) Name() string                 { return "json" }
func (jsonCodec) Encode(v any) ([]byte, error) { return json.Marshal(v) }

func (jsonCodec) Decode(data []byte, v any) error {
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
	if name == "" || name == EncodingFinal || name == EncodingOmitted || strings.Contains(name, "+") {
		return fmt.Errorf("idempotent: Options.Codec has the name %q; use a short word without '+' that is neither %q nor %q", name, EncodingFinal, EncodingOmitted)
	}
	return nil
}
