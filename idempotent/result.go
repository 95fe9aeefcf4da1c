package idempotent

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/once-lambda/once/idempotent/driver"
)

const (
	// compressAbove is the size in bytes from which compression is tried.
	compressAbove = 1 << 10
	// maxResult bounds what a stored result may unpack to, in bytes. Lambda
	// returns at most 6 MB; base64 in a codec of yours may need more.
	maxResult = 64 << 20
)

// encodeResult returns a handler's result as it is stored. A codec that panics
// has failed like one that returns an error: the effect has happened and must
// not be lost for it.
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
	if len(data) > compressAbove {
		if packed := compress(data); len(packed) < len(data) {
			return c.Name() + encodingCompressed, packed, nil
		}
	}
	return c.Name(), data, nil
}

// decodeResult reads the result of a completed record into the value that v
// points to. The error is a [*FinalError] if that is the outcome, and a
// [*ReplayUnavailableError] for anything that keeps it from being read.
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
		return unavailable(fmt.Sprintf("it has version %q and this code reads version %q", r.ResultVersion, o.ResultVersion))
	}
	data, err := unpack(r.Encoding, o.Codec.Name(), r.Result)
	if err != nil {
		return unavailable(err.Error())
	}
	if err := o.Codec.Decode(data, v); err != nil {
		return unavailable(fmt.Sprintf("the stored result does not decode into a %T", v))
	}
	return nil
}

// unpack returns the bytes that the codec of that name encoded.
func unpack(encoding, codec string, data []byte) ([]byte, error) {
	name, packed := strings.CutSuffix(encoding, encodingCompressed)
	if name != codec {
		return nil, fmt.Errorf("it was encoded as %q and this code decodes %q", name, codec)
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

// encodeFinal cannot fail: a struct of two strings always encodes.
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
