package idempotent

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
)

// DownstreamKey returns the idempotency key for the provider call of a guarded
// handler, or of the [Step] that ctx belongs to. It is derived from the record id
// and the step's name, so it is the same on every attempt. A provider that honors
// it acts once, even if this process dies after the provider's effect and before
// recording it.
//
// Outside a guarded handler, every call returns a new random key, never an empty
// one, and a warning is logged once per process. See [AsUUID] for providers that
// require another format.
func DownstreamKey(ctx context.Context) string {
	switch at := ctx.Value(executionKey{}).(type) {
	case *Execution:
		if at != nil {
			return at.id.DownstreamKey()
		}
	case *stepRun:
		return at.execution.id.StepKey(at.name)
	}
	warnOutside(ctx, "DownstreamKey")
	return "once-" + rand.Text()
}

// AsUUID returns a UUID derived from a downstream key, for a provider that
// accepts only UUIDs. Equal keys give equal UUIDs. It has the format of version 4
// (RFC 9562, section 5.4), which every validator accepts; its random bits are a
// hash.
func AsUUID(downstreamKey string) string {
	sum := sha256.Sum256([]byte("uuid\x00" + downstreamKey))
	sum[6] = sum[6]&0x0f | 0x40 // version 4
	sum[8] = sum[8]&0x3f | 0x80 // the variant of RFC 9562
	h := hex.EncodeToString(sum[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
