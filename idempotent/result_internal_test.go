package idempotent

import (
	"bytes"
	"math/rand"
	"testing"
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

// Results above 1 KB are compressed, and only if that saves at least one byte.
func TestCompressionIsWorthIt(t *testing.T) {
	t.Parallel()
	noise := make([]byte, compressAbove)
	rand.New(rand.NewSource(1)).Read(noise)
	even := noise // then as many zeroes as compression costs
	for len(compress(even)) > len(even) {
		even = append(even[:len(even):len(even)], 0)
	}
	if len(compress(even)) != len(even) {
		t.Fatalf("%d bytes compress to %d; want the same size", len(even), len(compress(even)))
	}
	for name, row := range map[string]struct {
		data []byte
		want string
	}{
		"1 KB":                     {make([]byte, compressAbove), "plain"},
		"a byte more":              {make([]byte, compressAbove+1), "plain+gzip"},
		"noise":                    {append(noise, noise[0]), "plain"},
		"as large when compressed": {even, "plain"},
		"a byte smaller":           {append(even[:len(even):len(even)], 0), "plain+gzip"},
	} {
		encoding, data, err := encodeResult(plain{}, row.data)
		if err != nil || encoding != row.want || (encoding == "plain") != bytes.Equal(data, row.data) {
			t.Errorf("%s: %d bytes are stored as %q in %d bytes (%v), want %q", name, len(row.data), encoding, len(data), err, row.want)
		}
	}
}

// A compressed result that was cut off is not read as a shorter result, whatever
// the codec makes of it, and one that would fill the memory is not unpacked.
func TestDamagedCompression(t *testing.T) {
	t.Parallel()
	packed := compress(make([]byte, 5000))
	for n := range len(packed) {
		if out, err := decompress(packed[:n]); err == nil {
			t.Errorf("%d of %d bytes were unpacked to %d", n, len(packed), len(out))
		}
	}
	// The members of a gzip file add up.
	full := bytes.Repeat(compress(make([]byte, 1<<20)), maxResult>>20)
	if out, err := decompress(full); err != nil || len(out) != maxResult {
		t.Errorf("%d bytes and error %v, want %d", len(out), err, maxResult)
	}
	if out, err := decompress(append(full, compress([]byte{0})...)); err == nil {
		t.Errorf("%d bytes were unpacked", len(out))
	}
}
