// SPDX-License-Identifier: Apache-2.0

// Package syntax compares the parser of keys with others: the official test
// vectors for structured fields, and github.com/dunglas/httpsfv.
package syntax
