// SPDX-License-Identifier: Apache-2.0

// Package kmsseal encrypts stored results with AES-256-GCM under data keys of AWS
// Key Management Service. It is an example of an idempotent.Sealer: copy it and
// change it.
//
// KMS makes a data key and returns it twice: unencrypted, for use in memory, and
// encrypted under a KMS key. Each sealed result contains the encrypted data key
// and the name of the KMS key, so it can be opened after the KMS key was rotated
// or replaced, as long as the former one exists.
package kmsseal

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/once-lambda/once/idempotent"
)

// Client is the part of the KMS client that a [Sealer] calls.
type Client interface {
	GenerateDataKey(context.Context, *kms.GenerateDataKeyInput, ...func(*kms.Options)) (*kms.GenerateDataKeyOutput, error)
	Decrypt(context.Context, *kms.DecryptInput, ...func(*kms.Options)) (*kms.DecryptOutput, error)
}

// Options configure a [Sealer]. The zero value of each field selects its
// documented default.
type Options struct {
	// MaxAge is how long a data key is used. It bounds how long results can be sealed
	// and opened after KMS would refuse it. The first call after that removes the key
	// from memory. Default: 5 min.
	MaxAge time.Duration
	// MaxUses is how many results are sealed under one data key. It must be far below
	// 2^32, the limit for AES-GCM with random nonces. Default: 100,000.
	MaxUses int
	// MaxKeys is how many data keys are held in memory. Default: 100.
	MaxKeys int
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
}

// Sealer is an idempotent.Sealer. Make one with [New] at start-up and share it. It
// is safe for concurrent use.
type Sealer struct {
	client Client
	keyID  string
	opts   Options

	asking chan struct{} // held by the goroutine that asks KMS for a new data key

	mu      sync.Mutex
	sealing *dataKey
	held    map[string]*dataKey // by encrypted data key
}

// dataKey is a data key in memory.
type dataKey struct {
	aead   cipher.AEAD
	header []byte // of every result that is sealed under it
	until  time.Time
	uses   int
}

// New returns a Sealer whose data keys are encrypted under the KMS key keyID: an
// id, an ARN or an alias. It does not call KMS.
func New(client Client, keyID string, optFns ...func(*Options)) (*Sealer, error) {
	if client == nil || keyID == "" {
		return nil, errors.New("kmsseal: New: missing client or key id")
	}
	o := Options{MaxAge: 5 * time.Minute, MaxUses: 100_000, MaxKeys: 100, Now: time.Now}
	for _, f := range optFns {
		f(&o)
	}
	if o.MaxAge <= 0 || o.MaxUses <= 0 || o.MaxKeys <= 0 || o.Now == nil {
		return nil, errors.New("kmsseal: New: MaxAge, MaxUses and MaxKeys must be positive, and Now must not be nil")
	}
	return &Sealer{client: client, keyID: keyID, opts: o, asking: make(chan struct{}, 1), held: map[string]*dataKey{}}, nil
}

// purpose is the encryption context of all data keys. A key policy can require it
// (kms:EncryptionContext:purpose), and CloudTrail logs it.
var purpose = map[string]string{"purpose": "once-results"}

// Seal implements idempotent.Sealer.
func (s *Sealer) Seal(ctx context.Context, plain, bound []byte) ([]byte, error) {
	key, err := s.sealingKey(ctx)
	if err != nil {
		return nil, err
	}
	return key.aead.Seal(slices.Clone(key.header), nil, plain, slices.Concat(key.header, bound)), nil
}

// sealingKey returns the data key to seal with, and asks KMS for a new one if the
// current one is too old or was used too often.
func (s *Sealer) sealingKey(ctx context.Context) (*dataKey, error) {
	if key := s.current(); key != nil {
		return key, nil
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if key := s.current(); key != nil { // another goroutine has asked
		return key, nil
	}
	until := s.opts.Now().Add(s.opts.MaxAge)
	out, err := s.client.GenerateDataKey(ctx, &kms.GenerateDataKeyInput{
		KeyId: aws.String(s.keyID), KeySpec: types.DataKeySpecAes256, EncryptionContext: purpose,
	})
	if err != nil {
		return nil, fmt.Errorf("kmsseal: generate a data key: %w", err)
	}
	key, err := newDataKey(aws.ToString(out.KeyId), out.CiphertextBlob, out.Plaintext)
	if err != nil {
		return nil, err
	}
	key.until, key.uses = until, 1
	s.hold(string(out.CiphertextBlob), key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealing = key
	return key, nil
}

// current returns the data key to seal with and counts the use, or nil if there
// has to be a new one.
func (s *Sealer) current() *dataKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(s.opts.Now())
	key := s.sealing
	if key == nil || key.uses >= s.opts.MaxUses {
		return nil
	}
	key.uses++
	return key
}

// expire removes the data keys whose time is over. The caller has locked s.mu.
func (s *Sealer) expire(now time.Time) {
	over := func(_ string, key *dataKey) bool { return !now.Before(key.until) }
	maps.DeleteFunc(s.held, over)
	if s.sealing != nil && over("", s.sealing) {
		s.sealing = nil
	}
}

// Open implements idempotent.Sealer.
func (s *Sealer) Open(ctx context.Context, sealed, bound []byte) ([]byte, error) {
	keyID, encrypted, text, err := parse(sealed)
	if err != nil {
		return nil, err
	}
	key, err := s.openingKey(ctx, keyID, encrypted)
	if err != nil {
		return nil, err
	}
	header := sealed[:len(sealed)-len(text)]
	plain, err := key.aead.Open(nil, nil, text, slices.Concat(header, bound))
	if err != nil {
		return nil, fmt.Errorf("%w: kmsseal: it was altered, or belongs elsewhere", idempotent.ErrSealBroken)
	}
	return plain, nil
}

// openingKey returns the data key that a result was sealed under.
func (s *Sealer) openingKey(ctx context.Context, keyID string, encrypted []byte) (*dataKey, error) {
	now := s.opts.Now()
	s.mu.Lock()
	s.expire(now)
	key := s.held[string(encrypted)]
	s.mu.Unlock()
	if key != nil {
		return key, nil
	}
	out, err := s.client.Decrypt(ctx, &kms.DecryptInput{KeyId: aws.String(keyID), CiphertextBlob: encrypted, EncryptionContext: purpose})
	switch {
	case isFinal(err):
		return nil, fmt.Errorf("%w: kmsseal: decrypt the data key: %w", idempotent.ErrSealBroken, err)
	case err != nil: // throttled, denied, disabled: this can be mended
		return nil, fmt.Errorf("kmsseal: decrypt the data key: %w", err)
	}
	if key, err = newDataKey(keyID, encrypted, out.Plaintext); err != nil {
		return nil, err
	}
	key.until = now.Add(s.opts.MaxAge)
	s.hold(string(encrypted), key)
	return key, nil
}

// isFinal reports whether KMS can never decrypt a data key: the KMS key was
// deleted, or the data key was not encrypted by it.
func isFinal(err error) bool {
	return errors.As(err, new(*types.NotFoundException)) ||
		errors.As(err, new(*types.InvalidCiphertextException)) ||
		errors.As(err, new(*types.IncorrectKeyException))
}

// hold keeps a data key in memory. If there are too many, it drops the one that
// expires first.
func (s *Sealer) hold(encrypted string, key *dataKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[encrypted] = key
	for len(s.held) > s.opts.MaxKeys {
		var first string
		for name, k := range s.held {
			if first == "" || k.until.Before(s.held[first].until) {
				first = name
			}
		}
		delete(s.held, first)
	}
}

// newDataKey returns the data key plain, which it clears.
func newDataKey(keyID string, encrypted, plain []byte) (*dataKey, error) {
	defer clear(plain)
	block, err := aes.NewCipher(plain)
	if err != nil {
		return nil, fmt.Errorf("kmsseal: data key of %d bytes", len(plain))
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("kmsseal: %w", err)
	}
	return &dataKey{aead: aead, header: header(keyID, encrypted)}, nil
}

// format is the first byte of sealed results.
const format = 1

// header returns what precedes the nonce and the encrypted text: the format, the
// KMS key and the encrypted data key, both with their lengths.
func header(keyID string, encrypted []byte) []byte {
	h := []byte{format}
	for _, part := range [][]byte{[]byte(keyID), encrypted} {
		h = binary.AppendUvarint(h, uint64(len(part)))
		h = append(h, part...)
	}
	return h
}

// parse returns the parts of sealed bytes.
func parse(sealed []byte) (keyID string, encrypted, text []byte, err error) {
	if len(sealed) == 0 || sealed[0] != format {
		return "", nil, nil, fmt.Errorf("%w: kmsseal: unknown format", idempotent.ErrSealBroken)
	}
	rest := sealed[1:]
	var parts [2][]byte
	for i := range parts {
		length, n := binary.Uvarint(rest)
		if n <= 0 || length > uint64(len(rest)-n) {
			return "", nil, nil, fmt.Errorf("%w: kmsseal: cut off", idempotent.ErrSealBroken)
		}
		parts[i], rest = rest[n:n+int(length)], rest[n+int(length):]
	}
	return string(parts[0]), parts[1], rest, nil
}
