package idempotent

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
)

// DownstreamKey returns the idempotency key for the provider call of a guarded
// handler, or of the [Step] that ctx belongs to. It is derived from the record
// id and the step's name, and so is the same on every attempt: a provider that
// honours it acts once, also where this process dies between the provider's
// effect and the record of it.
//
// Outside a guarded handler it is a fresh random key at every call, never empty,
// and a warning is logged once per process. See
// [AsUUID] for providers that want another shape.
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

// AsUUID returns the UUID that stands for a downstream key, for a provider that
// accepts nothing else. Equal keys give equal UUIDs. It is shaped like version
// 4 (RFC 9562, section 5.4), which every validator knows; its random bits are a
// hash.
func AsUUID(downstreamKey string) string {
	sum := sha256.Sum256([]byte("uuid\x00" + downstreamKey))
	sum[6] = sum[6]&0x0f | 0x40 // version 4
	sum[8] = sum[8]&0x3f | 0x80 // the variant of RFC 9562
	h := hex.EncodeToString(sum[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
