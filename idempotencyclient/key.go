// SPDX-License-Identifier: Apache-2.0

package idempotencyclient

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Form is how a key is written in the header.
type Form uint8

const (
	// IETF writes a key in double quotes, as a String of RFC 9651. The default.
	IETF Form = iota
	// Stripe writes a key without quotes.
	Stripe
	// UUID writes a UUID without quotes. Another key becomes a UUID that is derived
	// from it: the one that idempotent.AsUUID returns.
	UUID
)

// nameKey is the key of a name in a context.
type nameKey struct{}

// WithName returns a context for the requests of the logical request name: all of
// them have the key that is stored in [Options.PendingDir] under that name, also
// after a restart of the program. Choose a name that the program finds again, such
// as "charge order 17", and without secrets: a hash of it is stored, which reveals a
// name that can be guessed. Call [Transport.Forget] when the outcome is recorded.
func WithName(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, nameKey{}, name)
}

func nameOf(ctx context.Context) (name string, named bool) {
	name, named = ctx.Value(nameKey{}).(string)
	return name, named
}

// write returns the value of the header. Its error does not contain the key.
func (f Form) write(key string) (string, error) {
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return "", fmt.Errorf("the key from ContextKey has a byte that is not printable ASCII at %d", i)
		}
	}
	switch f {
	case Stripe:
		if strings.Contains(key, ",") || strings.Trim(key, " ") != key {
			return "", errors.New("the key from ContextKey has a comma, or a space at its begin or end, which the form Stripe does not allow")
		}
		return key, nil
	case UUID:
		if !uuid.MatchString(key) {
			sum := sha256.Sum256([]byte("uuid\x00" + key))
			key = asUUID(sum[:])
		}
		return key, nil
	case IETF:
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`, nil
}

// uuid matches the versions that are random or derived from the time (RFC 9562).
var uuid = regexp.MustCompile(`^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[47][0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}$`)

// newKey returns a random UUID.
func newKey() string {
	random := make([]byte, 16)
	rand.Read(random) // never fails
	return asUUID(random)
}

// asUUID returns the first 16 bytes of b as a UUID of version 4.
func asUUID(b []byte) string {
	b[6] = b[6]&0x0f | 0x40 // version 4
	b[8] = b[8]&0x3f | 0x80 // the variant of RFC 9562
	h := hex.EncodeToString(b[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
