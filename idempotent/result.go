package idempotent

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/once-lambda/once/idempotent/driver"
)

const (
	// compressAbove is the size in bytes above which compression is tried.
	compressAbove = 1 << 10
	// maxResult is the maximum uncompressed size of a stored result, in bytes.
	// Lambda returns at most 6 MB; base64 in another codec may need more. A larger
	// result is not stored.
	maxResult = 64 << 20
)

// encodeResult returns a handler's result in its stored form. A codec that panics
// is treated like one that returns an error, because the effect has happened and
// must not be lost.
func encodeResult(c Codec, v any) (encoding string, data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("idempotent: the codec %q panicked on a %T", c.Name(), v)
		}
	}()
	data, err = c.Encode(v)
	if err != nil {
		return "", nil, fmt.Errorf("idempotent: the codec %q cannot encode a %T: %w", c.Name(), v, err)
	}
	if len(data) > maxResult {
		return "", nil, fmt.Errorf("idempotent: the codec %q encoded a %T to %d bytes; the limit is %d", c.Name(), v, len(data), maxResult)
	}
	if len(data) > compressAbove {
		if packed := compress(data); len(packed) < len(data) {
			return c.Name() + encodingCompressed, packed, nil
		}
	}
	if _, copies := c.(*jsonCodec); !copies {
		data = bytes.Clone(data) // it may be the caller's own memory
	}
	return c.Name(), data, nil
}

// asReplayed decodes data, the encoding of *v, back into v if the type of v can
// hold interface values, whose Go types are not stored. The first caller then
// gets the same value as every replay: for example a json.Number instead of a
// float64, or a map instead of a struct.
func asReplayed[T any](c Codec, encoding string, data []byte, v *T) error {
	if _, standard := c.(*jsonCodec); !standard || !infoOf(reflect.TypeFor[T]()).untyped {
		return nil
	}
	data, err := unpack(encoding, c.Name(), data)
	if err != nil {
		return err
	}
	var replayed T
	if err := c.Decode(data, &replayed); err != nil {
		return err
	}
	*v = replayed
	return nil
}

// resultEquals reports whether two stored results are equal: the same bytes of
// the same codec, compressed or not.
func resultEquals(encodingA string, a []byte, encodingB string, b []byte) bool {
	if encodingA == encodingB && bytes.Equal(a, b) {
		return true
	}
	codec := strings.TrimSuffix(encodingA, encodingCompressed)
	plainA, errA := unpack(encodingA, codec, a)
	plainB, errB := unpack(encodingB, codec, b)
	return errA == nil && errB == nil && bytes.Equal(plainA, plainB)
}

// decodeResult decodes the result of a completed record into the value that v
// points to. The error is a [*FinalError] if that is the outcome, and a
// [*ReplayUnavailableError] if the result cannot be read.
func decodeResult(o *Options, r *driver.Record, v any) error {
	unavailable := func(reason string) error {
		return &ReplayUnavailableError{RecordID: r.ID, Reason: reason, Ref: r.Ref}
	}
	switch r.Encoding {
	case driver.EncodingOmitted:
		return unavailable("the result could not be stored")
	case driver.EncodingFinal:
		final, err := decodeFinal(r.Result)
		if err != nil {
			return unavailable("the stored Final error is damaged")
		}
		return final
	}
	if r.ResultVersion != o.ResultVersion {
		return unavailable(fmt.Sprintf("it has version %q but this code reads version %q", r.ResultVersion, o.ResultVersion))
	}
	data, err := unpack(r.Encoding, o.Codec.Name(), r.Result)
	if err != nil {
		return unavailable(err.Error())
	}
	if err := decode(o.Codec, data, v); err != nil {
		return unavailable(fmt.Sprintf("the stored result does not decode into a %T", v))
	}
	return nil
}

// decode decodes data into the value that v points to. It returns an error if the
// codec panics; the stored outcome does not change.
func decode(c Codec, data []byte, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("idempotent: the codec %q panicked", c.Name())
		}
	}()
	return c.Decode(data, v)
}

// unpack returns the bytes that the named codec encoded.
func unpack(encoding, codec string, data []byte) ([]byte, error) {
	name, packed := strings.CutSuffix(encoding, encodingCompressed)
	if name != codec {
		return nil, fmt.Errorf("it was encoded as %q but this code decodes %q", name, codec)
	}
	if !packed {
		return data, nil
	}
	data, err := decompress(data)
	if err != nil {
		return nil, errors.New("the stored result is damaged")
	}
	return data, nil
}

func compress(data []byte) []byte {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	w.Write(data) // neither Write nor Close fails on a bytes.Buffer
	w.Close()
	return buf.Bytes()
}

func decompress(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(r, maxResult+1))
	if err != nil {
		return nil, err
	}
	if len(out) > maxResult {
		return nil, fmt.Errorf("more than %d bytes", maxResult)
	}
	return out, nil
}

// encodeFinal cannot fail, because a struct of two strings always encodes.
func encodeFinal(e *FinalError) []byte {
	data, _ := json.Marshal(e)
	return data
}

func decodeFinal(data []byte) (*FinalError, error) {
	var e FinalError
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, err
	}
	return &e, nil
}
