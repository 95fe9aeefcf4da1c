package idempotent

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"reflect"

	"github.com/once-lambda/once/internal/canonical"
)

// fingerprintVersion is the first byte of every fingerprint made here. A
// change to the canonical form or to the hashing needs a new one.
const fingerprintVersion = 1

// The first byte that is hashed tells how the rest was made, so that a
// document and its raw bytes never share a fingerprint.
const (
	fingerprintTagJSON  = 'j'
	fingerprintTagBytes = 'b'
)

// FingerprintOf returns the fingerprint of v's JSON encoding in canonical form
// (see [FingerprintJSON]). It refuses what encoding/json cannot encode; a type
// of which it would leave something out, so that two values had one fingerprint
// (see [Wrap]); and text that is not UTF-8, which it would replace. It does not
// look for such types in interface values.
func FingerprintOf(v any) (Fingerprint, error) {
	if raw, ok := v.(json.RawMessage); ok {
		return FingerprintJSON(raw)
	}
	if t := reflect.TypeOf(v); t != nil {
		info := infoOf(t)
		if info.request != nil {
			return Fingerprint{}, fingerprintError(info.request)
		}
		v = addressable(v, info)
	}
	doc, err := json.Marshal(v)
	if err != nil {
		return Fingerprint{}, fingerprintError(err)
	}
	if escapesReplacement(doc) {
		return Fingerprint{}, fingerprintError(errBrokenText)
	}
	return FingerprintJSON(doc)
}

var errBrokenText = errors.New("a text is not UTF-8 (or spells U+FFFD as an escape); use FingerprintBytes on what of the request matters")

func fingerprintError(err error) error {
	return &InvalidKeyError{Field: "Fingerprint", Problem: "cannot be computed", Err: err}
}

// escapesReplacement reports whether the encoder wrote \ufffd, its mark for a
// byte that is not UTF-8. A replacement character that was really there is
// written as itself.
func escapesReplacement(doc []byte) bool {
	for {
		i := bytes.Index(doc, []byte(`\ufffd`))
		if i < 0 {
			return false
		}
		slashes := 1
		for slashes <= i && doc[i-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 1 {
			return true
		}
		doc = doc[i+1:]
	}
}

// FingerprintJSON returns the fingerprint of a JSON document. Documents of the
// same meaning have the same fingerprint: RFC 8785 decides about white space,
// the order of members, escapes and the spelling of numbers. Unlike RFC 8785
// it never makes two numbers equal that are not: 9007199254740993 and
// 9007199254740992 are two payments. Duplicate member names, broken UTF-8 and
// anything that is not one JSON document are refused with an
// [*InvalidKeyError].
func FingerprintJSON(doc []byte) (Fingerprint, error) {
	form, err := canonical.JSON(doc)
	if err != nil {
		return Fingerprint{}, fingerprintError(err)
	}
	return fingerprint(fingerprintTagJSON, form), nil
}

// FingerprintBytes returns the fingerprint of raw bytes: equal exactly when
// the same number of parts with the same bytes is given. Each part is hashed
// with its length before it, so ("ab", "c") and ("a", "bc") differ.
func FingerprintBytes(parts ...[]byte) Fingerprint {
	size := 0
	for _, p := range parts {
		size += binary.MaxVarintLen64 + len(p)
	}
	buf := make([]byte, 0, size)
	for _, p := range parts {
		buf = binary.AppendUvarint(buf, uint64(len(p)))
		buf = append(buf, p...)
	}
	return fingerprint(fingerprintTagBytes, buf)
}

func fingerprint(tag byte, content []byte) Fingerprint {
	h := sha256.New()
	h.Write([]byte{tag})
	h.Write(content)
	f := Fingerprint{fingerprintVersion}
	h.Sum(f[:1])
	return f
}
