// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"github.com/once-lambda/once/idempotent"
)

// StoredFingerprint returns the fingerprint that a guard stores for key, for tests
// that write a record themselves or check one. It is the version of key.Fingerprint,
// and an HMAC-SHA-256 (RFC 2104) of key.Fingerprint. The HMAC's key is the SHA-256 sum
// of the letter f, operation, scope and id, each of the three with its length before
// it. It shares no code with package idempotent, so that every test which uses it also
// checks what a guard stores.
func StoredFingerprint(key idempotent.Key) (stored idempotent.Fingerprint) {
	parts := "f"
	for _, part := range []string{key.Operation, key.Scope, key.ID} {
		parts += string(binary.AppendUvarint(nil, uint64(len(part)))) + part
	}
	secret := sha256.Sum256([]byte(parts))
	stored[0] = key.Fingerprint[0]
	copy(stored[1:], hmac(string(secret[:]), string(key.Fingerprint[:])))
	return stored
}

// hmac is RFC 2104 for a key that is shorter than a block.
func hmac(key, text string) string {
	key += strings.Repeat("\x00", sha256.BlockSize-len(key))
	pad := func(with byte) string {
		block := []byte(key)
		for i := range block {
			block[i] ^= with
		}
		return string(block)
	}
	inner := sha256.Sum256([]byte(pad(0x36) + text))
	outer := sha256.Sum256([]byte(pad(0x5c) + string(inner[:])))
	return string(outer[:])
}
