// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// This file has the large results, which are stored beside their records, and compares
// outcomes with what is stored.

// putChunks stores the result of out beside the record next, which is written
// afterwards, and returns out with a description of the chunks. It uses at most
// two thirds of the time left; the rest is for the record.
func (g *Guard) putChunks(ctx context.Context, next *driver.Record, out outcome) (outcome, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)*2/3)
		defer cancel()
	}
	count, err := g.chunks.PutChunks(ctx, next.ID, next.Version, out.result, next.Expires)
	if err != nil {
		return out, storeError(next.ID, driver.OpPutChunks, err)
	}
	out.chunks = driver.Chunks{Count: count, Length: len(out.result), Sum: sha256.Sum256(out.result)}
	return out, nil
}

// withChunks returns r with its result, fetching it if it is stored beside the
// record. The error is [*ReplayUnavailableError] if the result is missing or
// altered, and [*StoreError] if the store fails; a retry may then succeed.
func (g *Guard) withChunks(ctx context.Context, r *driver.Record) (*driver.Record, error) {
	if r.Chunks.Count == 0 || r.Result != nil {
		return r, nil
	}
	unavailable := &ReplayUnavailableError{RecordID: r.ID, Ref: r.Ref}
	if g.chunks == nil {
		unavailable.Reason = "it is stored in chunks, which this store does not support"
		return r, unavailable
	}
	data, err := g.chunks.GetChunks(ctx, r.ID, r.Version, r.Chunks.Count)
	switch {
	case errors.Is(err, ErrNoRecord):
		unavailable.Reason = "a chunk of the stored result is missing"
		return r, unavailable
	case err != nil:
		return r, storeError(r.ID, driver.OpGetChunks, err)
	case !matches(r.Chunks, data):
		unavailable.Reason = "the stored result was altered"
		return r, unavailable
	}
	whole := *r
	whole.Result = data
	return &whole, nil
}

// holds reports whether the completed record r holds the outcome out. It opens a
// sealed result, because sealing equal results gives different bytes. The error
// is a [*StoreError] if a later try may succeed; a result that cannot be read is
// another outcome.
func (g *Guard) holds(ctx context.Context, o *Options, r *driver.Record, out outcome) (bool, error) {
	if out.encoding == driver.EncodingOmitted || !r.Sealed() {
		return out.equals(r), nil
	}
	whole, err := g.withChunks(ctx, r)
	if err == nil {
		opened := *r
		opened.Chunks = driver.Chunks{}
		if opened.Encoding, opened.Result, err = unseal(ctx, o.Seal, site{record: r.ID}, whole.Encoding, whole.Result); err == nil {
			return out.equals(&opened), nil
		}
	}
	if errors.As(err, new(*StoreError)) {
		return false, err
	}
	return false, nil
}

// equals reports whether the completed record r, which is not sealed, holds the
// same outcome.
func (o outcome) equals(r *driver.Record) bool {
	switch {
	case o.state != r.State:
		return false
	case r.Chunks.Count > 0:
		return o.encoding == r.Encoding && matches(r.Chunks, o.result)
	}
	return resultEquals(o.encoding, o.result, r.Encoding, r.Result)
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

// matches reports whether c was computed from data.
func matches(c driver.Chunks, data []byte) bool {
	return len(data) == c.Length && sha256.Sum256(data) == c.Sum
}
