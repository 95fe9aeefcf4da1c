package idempotent

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// inlineResult is the size in bytes up to which a result stays in its record even
// if the store could store it beside: a read of a record is billed by its size,
// and one read unit covers 4 KB.
const inlineResult = 4 << 10

// matches reports whether c was computed from data.
func matches(c driver.Chunks, data []byte) bool {
	return len(data) == c.Length && sha256.Sum256(data) == c.Sum
}

// keepsBeside reports whether to store the result of out beside its record: it is
// large, the store supports it, and it is not stored there yet.
func (g *Guard) keepsBeside(out outcome) bool {
	return len(out.result) > inlineResult && g.chunks != nil && out.chunks.Count == 0
}

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
