// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"sync/atomic"
	"unicode/utf8"

	"github.com/once-lambda/once/idempotent/driver"
)

// This file has what a handler can ask and set: its record, its keys, its reference.

// RecordID returns the id of the record that this run belongs to. Pass it to a
// provider as metadata, so that the provider's webhook can name the record to
// [Guard.Resolve].
func (e *Execution) RecordID() RecordID { return e.id }

// Attempt returns the number of this run of the record, from 1. It grows with
// every takeover, so it can serve as a fencing number until the key expires.
func (e *Execution) Attempt() int { return e.attempt.mine.Attempt }

// Token identifies this run in evidence that it was not executed: see
// [ProvenNotExecuted]. Log it or store it on your side. Do not send it to a
// provider: the parameters of a request must be equal for every attempt.
func (e *Execution) Token() string { return e.attempt.mine.Token() }

// Recovery returns the promise that the operation declared. It is for packages
// whose work is safe under some promises only.
func (e *Execution) Recovery() Recovery { return e.attempt.opts.Recovery }

// Store returns the store of the guard. It is for packages that offer
// transactions on a store, see [Execution.Commit].
func (e *Execution) Store() driver.Store { return e.attempt.guard.store }

// SetRef sets the resource that this run is about, in the caller's own terms and
// without secrets, such as an order number or a URL path. It is stored with the
// outcome, or earlier with a step. Refused requests and the resolver of an
// unknown outcome receive it. Set it before the first Commit: if a Commit whose
// reply was lost was applied, a reference that is set later is not stored. SetRef
// returns [ErrExecutionEnded] after the outcome is decided, and an error if ref is
// longer than 1,024 bytes or not valid UTF-8.
func (e *Execution) SetRef(ref string) error {
	if len(ref) > maxRef || !utf8.ValidString(ref) {
		return fmt.Errorf("idempotent: invalid resource reference: want at most %d bytes of valid UTF-8, got %d bytes", maxRef, len(ref))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return ErrExecutionEnded
	}
	e.work.ref = ref
	return nil
}

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

var warnedOutside atomic.Bool

// warnOutside logs, once per process, that function was called outside a guarded
// handler. It does not log for a request that a guard runs unguarded.
func warnOutside(ctx context.Context, function string) {
	if _, unguarded := ctx.Value(executionKey{}).(*Execution); unguarded || warnedOutside.Swap(true) {
		return
	}
	slog.LogAttrs(ctx, slog.LevelWarn, "idempotent: "+function+" was called with a context that is not from a guarded handler: nothing is recorded and the downstream key is random. "+
		"Pass the handler's context. This is logged once.")
}
