// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// RecordID names the record of a key in every store:
//
//	operation + "#" + base64url(SHA-256(version, operation, scope, id))
//
// Each part is hashed with its length before it, so different combinations of
// scope and id cannot produce the same input.
type RecordID string

// Operation returns the name of the operation that the record belongs to.
func (id RecordID) Operation() string {
	operation, _ := id.split()
	return operation
}

// KeyHash returns the first 12 characters of the key's hash. They are enough to
// find the log lines of one key and do not reveal the key.
func (id RecordID) KeyHash() string {
	_, hash := id.split()
	return hash[:min(12, len(hash))]
}

func (id RecordID) split() (operation, hash string) {
	i := strings.LastIndexByte(string(id), '#')
	if i < 0 {
		return "", ""
	}
	return string(id[:i]), string(id[i+1:])
}

// DownstreamKey returns the idempotency key that idempotent.DownstreamKey returns
// in the handler of this record, outside steps. A resolver uses it to query the
// provider about the call.
func (id RecordID) DownstreamKey() string { return downstreamKey("downstream\x00" + string(id)) }

// StepKey returns the idempotency key that idempotent.DownstreamKey returns in
// the named step.
func (id RecordID) StepKey(step string) string {
	return downstreamKey("step\x00" + string(id) + "\x00" + step) // neither part contains a NUL
}

func downstreamKey(of string) string {
	sum := sha256.Sum256([]byte(of))
	return "once-" + base64.RawURLEncoding.EncodeToString(sum[:])
}
