// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"sync/atomic"

	"github.com/once-lambda/once/idempotent"
)

// Sealer is an idempotent.Sealer that uses AES-256-GCM under a key in memory. Sealing
// equal bytes twice gives different bytes, as with every good Sealer. Make one with
// [NewSealer]. It is safe for concurrent use, except for changes of its fields.
type Sealer struct {
	// BeforeSeal and BeforeOpen are called first, if set. Their errors are returned.
	BeforeSeal, BeforeOpen func(ctx context.Context, data, bound []byte) error

	aead          cipher.AEAD
	seals, opened atomic.Int64
}

// NewSealer returns a Sealer with a new key.
func NewSealer() *Sealer {
	key := make([]byte, 32)
	rand.Read(key)
	block, _ := aes.NewCipher(key)                 // no error with 32 bytes
	aead, _ := cipher.NewGCMWithRandomNonce(block) // no error with a block cipher of crypto/aes
	return &Sealer{aead: aead}
}

// Option sets s as Operation.Seal.
func (s *Sealer) Option(o *idempotent.Options) { o.Seal = s }

// Seals and Opened return how many calls have succeeded.
func (s *Sealer) Seals() int { return int(s.seals.Load()) }

// Opened is documented with Seals.
func (s *Sealer) Opened() int { return int(s.opened.Load()) }

// Seal implements idempotent.Sealer.
func (s *Sealer) Seal(ctx context.Context, plain, bound []byte) ([]byte, error) {
	if s.BeforeSeal != nil {
		if err := s.BeforeSeal(ctx, plain, bound); err != nil {
			return nil, err
		}
	}
	s.seals.Add(1)
	return s.aead.Seal(nil, nil, plain, bound), nil
}

// Open implements idempotent.Sealer.
func (s *Sealer) Open(ctx context.Context, sealed, bound []byte) ([]byte, error) {
	if s.BeforeOpen != nil {
		if err := s.BeforeOpen(ctx, sealed, bound); err != nil {
			return nil, err
		}
	}
	plain, err := s.aead.Open(nil, nil, sealed, bound)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", idempotent.ErrSealBroken, err)
	}
	s.opened.Add(1)
	return plain, nil
}
