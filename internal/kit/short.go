// SPDX-License-Identifier: Apache-2.0

package kit

import "testing"

// Short returns how much of something a test does: all of it, or with -short the few
// that make test has time for. make test-all runs the tests without -short.
func Short(all, few int) int {
	if testing.Short() {
		return few
	}
	return all
}
