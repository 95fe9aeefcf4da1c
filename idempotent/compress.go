// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/andybalholm/brotli/matchfinder"
)

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
