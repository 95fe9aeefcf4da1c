// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// Sealer encrypts what a store holds of a handler's results: see [Operation.Seal].
// A Sealer is safe for concurrent use. Its methods return when the context ends,
// and their errors do not contain plain.
type Sealer interface {
	// Seal returns plain encrypted and authenticated together with bound, which says
	// where the bytes belong. It must not change or retain its arguments. The
	// returned bytes hold what Open needs besides the secret key, for example the
	// key's name.
	Seal(ctx context.Context, plain, bound []byte) (sealed []byte, err error)
	// Open returns the bytes that were passed to Seal with an equal bound. It returns
	// an error that matches [ErrSealBroken] if no later call can succeed: sealed was
	// altered, belongs elsewhere, or its key no longer exists. Any other error
	// counts as temporary, and the caller is asked to try again.
	Open(ctx context.Context, sealed, bound []byte) (plain []byte, err error)
}

// ErrSealBroken reports that a sealed result can never be opened. A [Sealer]
// returns it.
var ErrSealBroken = errors.New("idempotent: the sealed bytes can never be opened")

// site is where sealed bytes belong. Bytes that are copied to another record, to
// another step, or that are labelled as another encoding do not open.
type site struct {
	record RecordID
	step   string // empty for the outcome
}

// bound returns the data that is authenticated with sealed bytes of an encoding.
func (p site) bound(encoding string) (b []byte) {
	for _, part := range [...]string{string(p.record), p.step, encoding} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}

// seal returns data sealed with s for its place, or data itself if s is nil. It
// uses at most half of the time left; the rest is for the store. The error is a
// [*StoreError].
func seal(ctx context.Context, s Sealer, at site, encoding string, data []byte) (string, []byte, error) {
	if s == nil {
		return encoding, data, nil
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	sealed, err := callSealer(func() ([]byte, error) { return s.Seal(ctx, data, at.bound(encoding)) })
	if err != nil {
		return "", nil, &StoreError{RecordID: at.record, Op: driver.OpSeal, Err: err}
	}
	return encoding + driver.EncodingSealed, sealed, nil
}

// unseal returns the encoding and the bytes that seal was called with, and bytes
// that are not sealed as they are. The error is a [*StoreError] if a later try may
// succeed. Any other error says why the bytes cannot be read.
func unseal(ctx context.Context, s Sealer, at site, encoding string, data []byte) (string, []byte, error) {
	plain, sealed := strings.CutSuffix(encoding, driver.EncodingSealed)
	if !sealed {
		return encoding, data, nil
	}
	if s == nil {
		return "", nil, errors.New("it is sealed, and this guard has no Operation.Seal to open it with")
	}
	data, err := callSealer(func() ([]byte, error) { return s.Open(ctx, data, at.bound(plain)) })
	switch {
	case errors.Is(err, ErrSealBroken):
		return "", nil, fmt.Errorf("it is sealed and cannot be opened: %w", err)
	case err != nil:
		return "", nil, &StoreError{RecordID: at.record, Op: driver.OpOpen, Err: err}
	}
	return plain, data, nil
}

// callSealer calls a method of a Sealer and returns a panic as an error. The effect
// of a handler has happened by then and must not be lost. The panic's value is
// left out, because it may contain the result.
func callSealer(call func() ([]byte, error)) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked with a %T", p)
		}
	}()
	return call()
}
