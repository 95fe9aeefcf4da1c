// SPDX-License-Identifier: Apache-2.0

package idempotent

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"log/slog"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/once-lambda/once/internal/canonical"
	"github.com/once-lambda/once/internal/logs"
)

// KeyFunc returns the key of a request. The guard returns its error to the caller
// before it stores or executes anything.
type KeyFunc[Req any] func(context.Context, Req) (Key, error)

// KeyFrom returns a KeyFunc for keys that are fields of the request.
func KeyFrom[Req any](operation string, f func(Req) (scope, id string)) KeyFunc[Req] {
	return func(_ context.Context, r Req) (Key, error) {
		scope, id := f(r)
		return Key{Operation: operation, Scope: scope, ID: id}, nil
	}
}

// WithRef returns f with a reference for each request: see [Key]. A panic of ref is logged,
// and the request has no reference.
func (f KeyFunc[Req]) WithRef(ref func(Req) string) KeyFunc[Req] {
	return func(ctx context.Context, r Req) (Key, error) {
		k, err := f(ctx, r)
		if err == nil {
			logs.Shield(ctx, slog.Default(), "idempotent: the function of WithRef", func() { k.Ref = ref(r) })
		}
		return k, err
	}
}

// WholePayload returns a KeyFunc for requests without an id: the key
// is the content of the whole request, as [FingerprintOf] compares it. The function
// returns the scope of a request.
//
// Use it only if two equal requests are always one. That is wrong for most requests
// of people: two orders of the same thing by the same customer are equal, and the
// second one gets the result of the first instead of running. It is also wrong if
// a retry differs from its first request, for example in a time or a trace id: the
// retry then has another key and runs again. Prefer an id of the client and
// [KeyFrom].
//
// A reader of the store can test guesses of the request: hashes hide a key only if
// it has at least 64 random bits.
//
// The error is [*InvalidKeyError] if the request cannot be compared: see
// [FingerprintOf].
func WholePayload[Req any](operation string, scope func(Req) string) KeyFunc[Req] {
	return func(_ context.Context, r Req) (Key, error) {
		fp, err := FingerprintOf(r)
		if err != nil {
			return Key{}, err
		}
		return Key{Operation: operation, Scope: scope(r), ID: base64.RawURLEncoding.EncodeToString(fp[:]), Fingerprint: fp}, nil
	}
}

// Global is the scope of an operation without tenants. Using it states explicitly
// that all callers share one set of keys.
const Global = "\x00global"

// maxOperation is the maximum length of an operation name, in bytes. The name is
// a prefix of the record id and a dimension of metrics.
const maxOperation = 256

// The first hashed byte of a key says what the hash is for. It is different for
// each purpose, so that a record id, which is stored, does not reveal the other
// hash.
const (
	hashedForRecordID    = 1 // the version of record ids: ids of a later scheme never equal these
	hashedForFingerprint = 'f'
)

// Key identifies one unit of work that must be done once.
type Key struct {
	// Operation names the work, for example "charge": 1 to 256 bytes of printable
	// text. It is required because two functions must not share records, and
	// explicit because a refactoring must not change keys.
	Operation string
	// Scope is the tenant or the authenticated principal the work is done for, never
	// a value that the caller can choose freely. Required; use [Global] if there is
	// no such scope.
	Scope string
	// ID is the client's idempotency key, or the business key of a message. An empty
	// ID returns [*InvalidKeyError]. The ID is hashed; neither the store nor a log
	// contains it.
	ID string
	// Fingerprint binds the content of the request to the key. If it is zero, [Wrap]
	// computes it from the request and [Do] returns an error. It is not stored as it
	// is: see [Fingerprint].
	Fingerprint Fingerprint
	// Ref is what the request is about, in the caller's own terms and without secrets,
	// such as an order number. The claim stores it, so that a run that is killed is found
	// by it; see [Execution.SetRef] for who sees it. At most 1,024 bytes are stored, as
	// valid UTF-8. It is no part of the key: it refuses no request, the record keeps the
	// first one, and a replay returns that. Default: none.
	Ref string
}

// RecordID returns the id of the key's record. It does not validate the key.
func (k Key) RecordID() RecordID {
	sum := k.hash(hashedForRecordID)
	var hash [hashText]byte
	base64.RawURLEncoding.Encode(hash[:], sum[:])
	return RecordID(k.Operation + "#" + string(hash[:]))
}

// hashText is the length of a SHA-256 sum in unpadded base64.
const hashText = 43

// storedFingerprint returns the fingerprint as records store and compare it: its
// version, and an HMAC of it that is keyed by the rest of the key. Equal requests
// under two keys have different stored fingerprints, and only a party that knows
// the key can try out which content a stored fingerprint belongs to.
func (k Key) storedFingerprint() Fingerprint {
	// RFC 2104, section 2, for a secret that is shorter than a block: as crypto/hmac,
	// without its eight allocations.
	secret := k.hash(hashedForFingerprint)
	var inner [sha256.BlockSize + len(k.Fingerprint)]byte
	var outer [sha256.BlockSize + sha256.Size]byte
	copy(inner[:], secret[:])
	copy(outer[:], secret[:])
	for i := range sha256.BlockSize {
		inner[i] ^= 0x36
		outer[i] ^= 0x5c
	}
	copy(inner[sha256.BlockSize:], k.Fingerprint[:])
	sum := sha256.Sum256(inner[:])
	copy(outer[sha256.BlockSize:], sum[:])
	sum = sha256.Sum256(outer[:])
	stored := Fingerprint{k.Fingerprint.Version()}
	copy(stored[1:], sum[:])
	return stored
}

// hash returns a hash of the operation, the scope and the id for a purpose. Each
// part is hashed with its length before it.
func (k Key) hash(purpose byte) [sha256.Size]byte {
	buf := make([]byte, 0, 256)
	buf = append(buf, purpose)
	for _, part := range [...]string{k.Operation, k.Scope, k.ID} {
		buf = binary.AppendUvarint(buf, uint64(len(part)))
		buf = append(buf, part...)
	}
	return sha256.Sum256(buf)
}

// ParseRecordID parses a record id from outside, such as a provider's metadata or
// an operator's command line. The error is an [*InvalidKeyError].
func ParseRecordID(s string) (RecordID, error) {
	id := RecordID(s)
	operation := id.Operation()
	hash := s[min(len(s), len(operation)+1):]
	// The decoder skips line breaks, so check the length of the text as well.
	if sum, _ := base64.RawURLEncoding.Strict().DecodeString(hash); len(hash) != hashText || len(sum) != sha256.Size {
		return "", &InvalidKeyError{Field: "RecordID", Problem: "want OPERATION#HASH"}
	}
	if err := checkOperation(operation); err != nil {
		return "", err
	}
	return id, nil
}

// keyID is InvalidKeyError.Field of a request without a key.
const keyID = "ID"

// validate checks the key except for its fingerprint.
func (k Key) validate() *InvalidKeyError {
	if err := checkOperation(k.Operation); err != nil {
		return err
	}
	if k.Scope == "" {
		return &InvalidKeyError{Field: "Scope", Problem: "empty; set the tenant or principal, or idempotent.Global"}
	}
	if k.ID == "" {
		return &InvalidKeyError{Field: keyID, Problem: "the request has no idempotency key; send one, or set Operation.AllowMissingKey to run such requests unguarded"}
	}
	return nil
}

func checkOperation(s string) *InvalidKeyError {
	switch {
	case s == "":
		return &InvalidKeyError{Field: "Operation", Problem: `empty; set the name of the work, for example "charge"`}
	case len(s) > maxOperation:
		return &InvalidKeyError{Field: "Operation", Problem: "longer than 256 bytes"}
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return &InvalidKeyError{Field: "Operation", Problem: "contains characters that are not printable text"}
	}
	return nil
}

// errNoFingerprint refuses a key that is bound to no request.
var errNoFingerprint = &InvalidKeyError{Field: "Fingerprint", Problem: "missing; set it with FingerprintOf, from the request or its relevant fields"}

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
