// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/andybalholm/brotli"
	"github.com/andybalholm/brotli/matchfinder"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/canonical"
	"github.com/once-lambda/once/internal/jsontypes"
	"github.com/once-lambda/once/internal/logs"
)

// Sealer encrypts what a store holds of a handler's results: see [Operation.Seal].
// A Sealer is safe for concurrent use. Its methods return when the context ends,
// and their errors do not contain plain.
type Sealer interface {
	// Seal returns plain encrypted and authenticated together with bound, which says
	// where the bytes belong. It must not change or retain its arguments. The
	// returned bytes hold what Open needs besides the secret key, for example the
	// key's name.
	Seal(ctx context.Context, plain, bound []byte) (sealed []byte, err error)
	// Open returns the bytes that were passed to Seal with an equal bound. It returns
	// an error that matches [ErrSealBroken] if no later call can succeed: sealed was
	// altered, belongs elsewhere, or its key no longer exists. Any other error
	// counts as temporary, and the caller is asked to try again.
	Open(ctx context.Context, sealed, bound []byte) (plain []byte, err error)
}

// ErrSealBroken reports that a sealed result can never be opened. A [Sealer]
// returns it.
var ErrSealBroken = errors.New("idempotent: the sealed bytes can never be opened")

// site is where sealed bytes belong. Bytes that are copied to another record, to
// another step, or that are labelled as another encoding do not open.
type site struct {
	record RecordID
	step   string // empty for the outcome
}

// bound returns the data that is authenticated with sealed bytes of an encoding.
func (p site) bound(encoding string) (b []byte) {
	for _, part := range [...]string{string(p.record), p.step, encoding} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}

// seal returns data sealed with s for its place, or data itself if s is nil. It
// uses at most half of the time left; the rest is for the store. The error is a
// [*StoreError].
func seal(ctx context.Context, s Sealer, at site, encoding string, data []byte) (string, []byte, error) {
	if s == nil {
		return encoding, data, nil
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	sealed, err := callSealer(func() ([]byte, error) { return s.Seal(ctx, data, at.bound(encoding)) })
	if err != nil {
		return "", nil, &StoreError{RecordID: at.record, Op: driver.OpSeal, Err: err}
	}
	return encoding + driver.EncodingSealed, sealed, nil
}

// unseal returns the encoding and the bytes that seal was called with, and bytes
// that are not sealed as they are. The error is a [*StoreError] if a later try may
// succeed. Any other error says why the bytes cannot be read.
func unseal(ctx context.Context, s Sealer, at site, encoding string, data []byte) (string, []byte, error) {
	plain, sealed := strings.CutSuffix(encoding, driver.EncodingSealed)
	if !sealed {
		return encoding, data, nil
	}
	if s == nil {
		return "", nil, errors.New("it is sealed, and this guard has no Operation.Seal to open it with")
	}
	data, err := callSealer(func() ([]byte, error) { return s.Open(ctx, data, at.bound(plain)) })
	switch {
	case errors.Is(err, ErrSealBroken):
		return "", nil, fmt.Errorf("it is sealed and cannot be opened: %w", err)
	case err != nil:
		return "", nil, &StoreError{RecordID: at.record, Op: driver.OpOpen, Err: err}
	}
	return plain, data, nil
}

// callSealer calls a method of a Sealer and returns a panic as an error. The effect
// of a handler has happened by then and must not be lost. The panic's value is
// left out, because it may contain the result.
func callSealer(call func() ([]byte, error)) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked with a %T", p)
		}
	}()
	return call()
}

// encodingCompressed is appended to an encoding whose bytes are compressed, see compress.
const encodingCompressed = "+br"

// compressAbove is the size in bytes above which compression is tried. A record with a
// result of this size has nearly 1 KB, and each further KB costs a write unit.
const compressAbove = 1 << 9

// outcome is the outcome of an attempt, as it is to be stored. It is sealed just
// before it is written, so that it can be compared until then.
type outcome struct {
	state driver.State
	// failed is set if the handler returned err, or panicked with it, and outcomeOf
	// judged that.
	failed, panicked bool
	// sealed is set if encoding and result are as the Sealer returned them, if any.
	sealed bool

	reason   driver.Reason
	encoding string
	result   []byte
	chunks   driver.Chunks // set if result is stored beside the record
	err      error         // what went wrong
}

// stored returns the outcome that the completed record r holds.
func stored(r *driver.Record) outcome {
	return outcome{state: r.State, reason: r.Reason, encoding: r.Encoding, result: r.Result, chunks: r.Chunks}
}

// setOutcome sets the result of r to that of out, or clears it.
func setOutcome(r *driver.Record, out outcome) {
	r.Encoding, r.Result, r.Chunks = out.encoding, out.result, out.chunks
	if out.chunks.Count > 0 {
		r.Result = nil
	}
}

// omitted returns the outcome without its result.
func (o outcome) omitted(err error) outcome {
	return outcome{state: o.state, reason: driver.ReasonOmitted, encoding: driver.EncodingOmitted, err: err}
}

// storable returns an error if results of type t cannot be stored.
func storable(c Codec, operation string, t reflect.Type) error {
	if _, standard := c.(*jsonCodec); standard {
		if err := infoOf(t).Result; err != nil {
			return fmt.Errorf("idempotent: %s: the result cannot be stored: %w; change the type or set Operation.Codec", operation, err)
		}
	}
	return nil
}

// encodeResult returns a handler's result in its stored form. A codec that panics
// is treated like one that returns an error, because the effect has happened and
// must not be lost.
func encodeResult(c Codec, v any) (encoding string, data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = logs.Error(fmt.Sprintf("idempotent: the codec %q panicked on a %T", c.Name(), v))
		}
	}()
	data, err = c.Encode(v)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", logs.Error(fmt.Sprintf("idempotent: the codec %q cannot encode a %T", c.Name(), v)), err)
	}
	if len(data) > maxResult {
		return "", nil, logs.Error(fmt.Sprintf("idempotent: the codec %q encoded a %T to %d bytes; the limit is %d", c.Name(), v, len(data), maxResult))
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
	if _, standard := c.(*jsonCodec); !standard || !infoOf(reflect.TypeFor[T]()).Untyped {
		return nil
	}
	return asStored(c, encoding, data, v)
}

// asStored sets *v to the value that data encodes. After an error *v is unchanged.
func asStored[T any](c Codec, encoding string, data []byte, v *T) error {
	data, err := unpack(encoding, c.Name(), data)
	if err != nil {
		return err
	}
	var stored T
	if err := decode(c, data, &stored); err != nil {
		return err
	}
	*v = stored
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

func (*jsonCodec) Name() string { return driver.DefaultCodec }

func (c *jsonCodec) Encode(v any) ([]byte, error) {
	t := reflect.TypeOf(v)
	if t == nil {
		return []byte("null"), nil
	}
	info := infoOf(t)
	if info.Request != nil {
		return nil, info.Request
	}
	v = addressable(v, info)
	data, err := marshal(v)
	if err != nil {
		return nil, err
	}
	if err := replacedText(v, data); err != nil {
		return nil, fmt.Errorf("%w, which a replay would not preserve; use strings.ToValidUTF8 or a []byte", err)
	}
	if info.Unproven && info.Result == nil {
		if err := c.prove(data, t, info); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// prove returns an error unless data, decoded into a new value of type t, encodes
// to data again. In values of type any, the order of members may differ.
func (c *jsonCodec) prove(data []byte, t reflect.Type, info *jsontypes.Info) error {
	back := reflect.New(t).Interface()
	if err := c.Decode(data, back); err != nil {
		return fmt.Errorf("its encoding does not decode: %w", err)
	}
	again, err := marshal(back)
	if err != nil {
		return fmt.Errorf("a replay of it does not encode: %w", err)
	}
	if bytes.Equal(again, data) || info.Untyped && sameJSON(again, data) {
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
func addressable(v any, info *jsontypes.Info) any {
	if !info.Addressed {
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

// replacedText returns an error if encoding/json has replaced text of v in data, the
// encoding of v: see [jsontypes.BrokenText]. It promises to replace invalid text by U+FFFD
// (documentation of json.Marshal), which releases of Go write in different ways. Data without
// that character, an escape and invalid UTF-8, as most data is, has no replacement.
func replacedText(v any, data []byte) error {
	if utf8.Valid(data) && !bytes.Contains(data, []byte(`\u`)) && !bytes.Contains(data, []byte("\uFFFD")) {
		return nil
	}
	return jsontypes.BrokenText(v)
}

// Decode preserves the digits of numbers in untyped fields.
func (*jsonCodec) Decode(data []byte, v any) error {
	if !infoOf(reflect.TypeOf(v).Elem()).Untyped { // as Wrap has inspected it
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
		return fmt.Errorf("idempotent: invalid name %q of Operation.Codec: use a short word without '+', other than %q and %q", name, driver.EncodingFinal, driver.EncodingOmitted)
	}
	return nil
}

var typeInfos sync.Map // reflect.Type → *jsontypes.Info

// infoOf returns how values of type t are encoded as JSON. It is computed once per
// type.
func infoOf(t reflect.Type) *jsontypes.Info {
	known, found := typeInfos.Load(t)
	if !found {
		known, _ = typeInfos.LoadOrStore(t, jsontypes.Inspect(t))
	}
	return known.(*jsontypes.Info)
}

// maxResult is the maximum uncompressed size of a stored result, in bytes. Lambda
// returns at most 6 MB; base64 in another codec may need more. A larger result is
// not stored.
const maxResult = 64 << 20

// level is the level of compression: a third of the time of gzip's usual level, for
// as many bytes (ADR 0013).
const level = 4

// quick is the size of a result, in bytes, up to which it is compressed by a compressor with a
// small table. Before each result a compressor clears its table, and the 4 MB of level 4 take
// longer than a small result itself (ADR 0013).
const quick = 8 << 10

// The compressors and decompressors that are not in use: each has 4 MB, 50 KB and
// 100 KB.
var (
	writers      = sync.Pool{New: func() any { return brotli.NewWriterV2(nil, level) }}
	quickWriters = sync.Pool{New: func() any {
		finder := &matchfinder.M4{HashLen: 5, TableBits: 12, ChainLength: 2}
		return &matchfinder.Writer{MatchFinder: finder, Encoder: &brotli.Encoder{}, BlockSize: 1 << 16}
	}}
	readers = sync.Pool{New: func() any { return brotli.NewReader(nil) }}
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// compress returns the CRC-32C of data and data in Brotli (RFC 7932), which has no
// checksum itself.
func compress(data []byte) []byte {
	pool := &writers
	if len(data) <= quick {
		pool = &quickWriters
	}
	w := pool.Get().(*matchfinder.Writer)
	defer pool.Put(w)
	var buf bytes.Buffer
	buf.Write(binary.BigEndian.AppendUint32(nil, crc32.Checksum(data, castagnoli)))
	w.Reset(&buf)
	w.Write(data) // neither Write nor Close fails on a bytes.Buffer
	w.Close()
	return buf.Bytes()
}

func decompress(data []byte) ([]byte, error) {
	if len(data) < crc32.Size {
		return nil, io.ErrUnexpectedEOF
	}
	r := readers.Get().(*brotli.Reader)
	defer readers.Put(r)
	r.Reset(bytes.NewReader(data[crc32.Size:]))
	out, err := io.ReadAll(io.LimitReader(r, maxResult+1))
	switch {
	case err != nil:
		return nil, err
	case len(out) > maxResult:
		return nil, fmt.Errorf("more than %d bytes", maxResult)
	case crc32.Checksum(out, castagnoli) != binary.BigEndian.Uint32(data):
		return nil, errors.New("its checksum is another one")
	}
	return out, nil
}
