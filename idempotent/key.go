package idempotent

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Global is the scope of an operation that knows no tenants: it says in
// writing that every caller shares one set of keys.
const Global = "\x00global"

// maxOperation bounds the name of an operation, in bytes: it is a prefix of
// the record id and a dimension of metrics.
const maxOperation = 256

// recordIDVersion is hashed into every record id, so that another way of
// building ids can never meet the records of this one.
const recordIDVersion = 1

// Key names one unit of work that is done once.
type Key struct {
	// Operation names what is done, for example "charge". It is explicit
	// because a refactoring must not change keys, and required because two
	// functions must not share records. 1 to 256 bytes of printable text.
	Operation string
	// Scope names for whom it is done: the tenant or the authenticated
	// principal, never something the caller may choose freely. Required;
	// [Global] says that there is none.
	Scope string
	// ID is the client's idempotency key, or the business key of a message. An
	// empty ID is [*NoKeyError]. It is hashed: neither the store nor a log sees it.
	ID string
	// Fingerprint binds the request's content to the key. The zero value lets
	// [Wrap] compute it from the request; [Do] refuses it.
	Fingerprint Fingerprint
}

// KeyFunc names the unit of work a request stands for. Its error is returned
// to the caller before anything is stored or executed.
type KeyFunc[Req any] func(context.Context, Req) (Key, error)

// KeyFrom returns a KeyFunc for keys that are fields of the request.
func KeyFrom[Req any](operation string, f func(Req) (scope, id string)) KeyFunc[Req] {
	return func(_ context.Context, r Req) (Key, error) {
		scope, id := f(r)
		return Key{Operation: operation, Scope: scope, ID: id}, nil
	}
}

// RecordID returns the id of the key's record. It does not validate the key.
func (k Key) RecordID() RecordID {
	buf := make([]byte, 0, 256)
	buf = append(buf, recordIDVersion)
	for _, part := range [...]string{k.Operation, k.Scope, k.ID} {
		buf = binary.AppendUvarint(buf, uint64(len(part)))
		buf = append(buf, part...)
	}
	sum := sha256.Sum256(buf)
	var hash [hashText]byte
	base64.RawURLEncoding.Encode(hash[:], sum[:])
	return RecordID(k.Operation + "#" + string(hash[:]))
}

// hashText is the length of a SHA-256 sum in unpadded base64.
const hashText = 43

// ParseRecordID reads a record id from outside: a provider's metadata, an
// operator's command line. The error is an [*InvalidKeyError].
func ParseRecordID(s string) (RecordID, error) {
	id := RecordID(s)
	operation := id.Operation()
	hash := s[min(len(s), len(operation)+1):]
	// The decoder skips line breaks, so the length of the text counts too.
	if sum, _ := base64.RawURLEncoding.Strict().DecodeString(hash); len(hash) != hashText || len(sum) != sha256.Size {
		return "", &InvalidKeyError{Field: "RecordID", Problem: "is none: it wants an operation, # and 43 characters of base64url"}
	}
	if err := checkOperation(operation); err != nil {
		return "", err
	}
	return id, nil
}

// validate checks everything about the key but its fingerprint.
func (k Key) validate() error {
	if err := checkOperation(k.Operation); err != nil {
		return err
	}
	if k.Scope == "" {
		return &InvalidKeyError{Field: "Scope", Problem: "is empty; name the tenant or principal, or say idempotent.Global"}
	}
	if k.ID == "" {
		return &NoKeyError{Operation: k.Operation}
	}
	return nil
}

func checkOperation(s string) error {
	switch {
	case s == "":
		return &InvalidKeyError{Field: "Operation", Problem: `is empty; name what is done, for example "charge"`}
	case len(s) > maxOperation:
		return &InvalidKeyError{Field: "Operation", Problem: "is longer than 256 bytes"}
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return &InvalidKeyError{Field: "Operation", Problem: "holds something else than printable text"}
	}
	return nil
}
