// SPDX-License-Identifier: Apache-2.0

// Package pathkey makes the id of a key that belongs to the path of its request.
package pathkey

import (
	"net/url"
	"strings"
)

// ID returns the ID of the idempotent.Key of a request whose path belongs to its key. The
// path has no stage, base path and query, as "/orders/1/pay", in any percent-encoding, and
// begins with the host if the pattern of a ServeMux has one.
func ID(path, key string) string {
	// A key is printable and a canonical path is too, so no ID has two meanings.
	return Canonical(path) + "\n" + key
}

// Canonical returns a path in one spelling of its percent-encoding. It decodes and
// encodes each segment, so an encoded '/' is never a separator. An event of an HTTP API
// has the path decoded, so a segment can be invalid: its '%' is an ordinary character.
func Canonical(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if decoded, err := url.PathUnescape(s); err == nil {
			s = decoded
		}
		segments[i] = url.PathEscape(s)
	}
	return strings.Join(segments, "/")
}
