// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"sync"
)

// maxResult is the maximum uncompressed size of a stored result, in bytes. Lambda
// returns at most 6 MB; base64 in another codec may need more. A larger result is
// not stored.
const maxResult = 64 << 20

// writers holds the compressors that are not in use: each has 800 KB.
var writers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

func compress(data []byte) []byte {
	w := writers.Get().(*gzip.Writer)
	defer writers.Put(w)
	var buf bytes.Buffer
	w.Reset(&buf)
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
