package idempotent

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"sync"
	"unicode/utf8"
)

// Execution is one run of a handler under a claim. It travels in the handler's
// context and is safe for concurrent use.
type Execution struct {
	id      RecordID
	attempt int

	mu     sync.Mutex
	sealed bool
	ref    string
}

// maxRef bounds a resource reference, in bytes.
const maxRef = 1024

type executionKey struct{}

// FromContext returns the execution that ctx belongs to. There is none outside
// a guarded handler, and none where the guard lets a request run unguarded.
func FromContext(ctx context.Context) (*Execution, bool) {
	e, _ := ctx.Value(executionKey{}).(*Execution)
	return e, e != nil
}

func withExecution(ctx context.Context, e *Execution) context.Context {
	return context.WithValue(ctx, executionKey{}, e)
}

// RecordID returns the id of the record that this run belongs to. Hand it to a
// provider as metadata, so that its webhook can name the record to
// [Guard.Resolve].
func (e *Execution) RecordID() RecordID { return e.id }

// Attempt counts the runs of this record from 1. It grows with every takeover
// and so can serve as a fencing number until the key expires.
func (e *Execution) Attempt() int { return e.attempt }

// SetRef names the resource this run is about, in the caller's own terms and
// without secrets: an order number, a URL path. It is stored with the outcome
// and shown to those who are refused and to whoever resolves an unknown
// outcome. It returns [ErrSealed] once the outcome is decided, and an error for
// more than 1,024 bytes and for text that is not UTF-8.
func (e *Execution) SetRef(ref string) error {
	if len(ref) > maxRef || !utf8.ValidString(ref) {
		return fmt.Errorf("idempotent: a resource reference is at most %d bytes of UTF-8; this one has %d bytes", maxRef, len(ref))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sealed {
		return ErrSealed
	}
	e.ref = ref
	return nil
}

// seal ends the execution: a goroutine that the handler left behind can change
// nothing any more. It returns what was set until then.
func (e *Execution) seal() (ref string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sealed = true
	return e.ref
}

// DownstreamKey returns an idempotency key for the one provider call of a
// guarded handler. It is derived from the record id and so is the same on
// every attempt: a provider that honours it acts once, also where this process
// dies between the provider's effect and the record of it.
//
// Outside an execution it is a fresh random key at every call, never empty.
func DownstreamKey(ctx context.Context) string {
	if e, ok := FromContext(ctx); ok {
		return DownstreamKeyFor(e.id)
	}
	return "once-" + rand.Text()
}

// DownstreamKeyFor returns the key that [DownstreamKey] gives the handler of
// record id: with it a resolver asks the provider what became of the call.
func DownstreamKeyFor(id RecordID) string {
	sum := sha256.Sum256([]byte("downstream\x00" + id))
	return "once-" + base64.RawURLEncoding.EncodeToString(sum[:])
}
