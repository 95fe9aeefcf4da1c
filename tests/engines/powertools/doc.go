// SPDX-License-Identifier: Apache-2.0

// Package powertools tests the move from Powertools to once with the real
// packages for Python and TypeScript, at the versions of tests/measured/bench/peers, and
// DynamoDB Local. It has the code of docs/migrate-from-powertools.md:
//
//	handler.go           the guarded function
//	python, typescript   before: the function with Powertools; shared: with the table of once
//
// A worker runs the function of a language in one process. Its commands are lines
// of JSON: n, orderId, amount and mode. Mode ok returns a receipt, fail raises an
// error before the effect, crash ends the run after it as a kill does, late waits
// after it for a release with the same order, and hash returns the key of the item. Its answers are lines of JSON too: effect when the
// effect happens, then result, error or key.
package powertools
