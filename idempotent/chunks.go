package idempotent

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"
)

// inlineResult is the size in bytes up to which a result stays in its record
// although the store could keep it beside: a look at a record is billed by its
// size, and 4 KB is what one read unit covers.
const inlineResult = 4 << 10

// match reports whether data is what the chunks were written from.
func (c *Chunks) match(data []byte) bool {
	return len(data) == c.Length && sha256.Sum256(data) == c.Sum
}

// putChunks keeps the result of out beside the record, if it is large and the
// store can, and returns out with the word where it is. What was put already is
// not put again.
func (g *Guard) putChunks(ctx context.Context, id RecordID, v Version, out outcome, expires time.Time) (outcome, error) {
	store, ok := g.store.(ChunkStore)
	if !ok || len(out.result) <= inlineResult || out.chunks.Count > 0 {
		return out, nil
	}
	count, err := store.PutChunks(ctx, id, v, out.result, expires)
	if err != nil {
		return out, storeError(id, "put the result of", err)
	}
	out.chunks = Chunks{Count: count, Length: len(out.result), Sum: sha256.Sum256(out.result)}
	return out, nil
}

// withChunks returns r with its result, fetched if it is beside the record. A
// result that is gone or altered is a [*ReplayUnavailableError], a store that
// fails a [*StoreError], after which a retry may have better luck.
func (g *Guard) withChunks(ctx context.Context, r *Record) (*Record, error) {
	if r.Chunks.Count == 0 || r.Result != nil {
		return r, nil
	}
	unavailable := &ReplayUnavailableError{RecordID: r.ID, Ref: r.Ref}
	store, ok := g.store.(ChunkStore)
	if !ok {
		unavailable.Reason = "it is in chunks, and this store keeps none"
		return r, unavailable
	}
	data, err := store.GetChunks(ctx, r.ID, r.Version, r.Chunks.Count)
	switch {
	case errors.Is(err, ErrNoRecord):
		unavailable.Reason = "a chunk of the stored result is missing"
		return r, unavailable
	case err != nil:
		return r, storeError(r.ID, "get the result of", err)
	case !r.Chunks.match(data):
		unavailable.Reason = "the stored result was altered"
		return r, unavailable
	}
	whole := *r
	whole.Result = data
	return &whole, nil
}
