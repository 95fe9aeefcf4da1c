// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"reflect"

	"github.com/once-lambda/once/internal/canonical"
)

// fingerprintVersion is the first byte of every fingerprint. A change to the
// canonical form or to the hashing requires a new version.
const fingerprintVersion = 1

// The first hashed byte identifies the kind of input, so that a document and its
// raw bytes never have the same fingerprint.
var (
	fingerprintTagJSON  = []byte("j")
	fingerprintTagBytes = []byte("b")
)

// FingerprintOf returns the fingerprint of v's JSON encoding in canonical form
// (see [FingerprintJSON]). It returns an error if encoding/json cannot encode v
// or would replace invalid text (UTF-8 that is not valid, or half of a surrogate
// pair in raw JSON), and if two values of v's type could have the same encoding
// because a part of it is omitted (see [Wrap]). It does not check the types of
// values in interfaces.
func FingerprintOf(v any) (Fingerprint, error) {
	if raw, ok := v.(json.RawMessage); ok {
		return FingerprintJSON(raw)
	}
	if t := reflect.TypeOf(v); t != nil {
		info := infoOf(t)
		if info.Request != nil {
			return Fingerprint{}, fingerprintError(info.Request)
		}
		v = addressable(v, info)
	}
	doc, err := json.Marshal(v)
	if err != nil {
		return Fingerprint{}, fingerprintError(err)
	}
	if err := replacedText(v, doc); err != nil {
		return Fingerprint{}, fingerprintError(fmt.Errorf("%w; use FingerprintBytes on the relevant parts of the request", err))
	}
	return FingerprintJSON(doc)
}

func fingerprintError(err error) error {
	return &InvalidKeyError{Field: "Fingerprint", Problem: "cannot be computed", Err: err}
}

// FingerprintJSON returns the fingerprint of a JSON document. Documents with the
// same meaning have the same fingerprint: white space, the order of members,
// escapes and the spelling of numbers are normalized as in RFC 8785. Unlike RFC
// 8785 it never makes two different numbers equal: 9007199254740993 and
// 9007199254740992 are two payments. It returns an [*InvalidKeyError] for
// duplicate member names, invalid UTF-8, and anything that is not exactly one
// JSON document.
func FingerprintJSON(doc []byte) (Fingerprint, error) {
	h := newFingerprint(fingerprintTagJSON)
	if err := canonical.Use(doc, func(form []byte) { h.Write(form) }); err != nil {
		return Fingerprint{}, fingerprintError(err)
	}
	return sum(h), nil
}

// FingerprintBytes returns the fingerprint of raw bytes. Two fingerprints are
// equal if and only if the number of parts and their bytes are equal. Each part
// is hashed with its length before it, so ("ab", "c") and ("a", "bc") differ.
func FingerprintBytes(parts ...[]byte) Fingerprint {
	h := newFingerprint(fingerprintTagBytes)
	var length [binary.MaxVarintLen64]byte
	for _, p := range parts {
		h.Write(length[:binary.PutUvarint(length[:], uint64(len(p)))])
		h.Write(p)
	}
	return sum(h)
}

func newFingerprint(tag []byte) hash.Hash {
	h := sha256.New()
	h.Write(tag)
	return h
}

func sum(h hash.Hash) Fingerprint {
	f := Fingerprint{fingerprintVersion}
	h.Sum(f[:1])
	return f
}
