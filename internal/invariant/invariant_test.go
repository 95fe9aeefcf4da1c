// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"encoding/hex"
	"testing"
)

// The second test case of RFC 4231.
func TestHMAC(t *testing.T) {
	t.Parallel()
	const want = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
	if got := hex.EncodeToString([]byte(hmac("Jefe", "what do ya want for nothing?"))); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
