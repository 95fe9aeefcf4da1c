// SPDX-License-Identifier: Apache-2.0

// Command fuzz runs every fuzz target of the given packages, one after the
// other and for the same time:
//
//	make fuzz                  # 60 s each
//	make fuzz FUZZTIME=10m
//	make test-fuzz             # 1 s each, a part of make test
//
// It finds the targets itself, and prints one line per target with the number
// of inputs that it tried. A target whose seeds take all of the time runs again
// for longer. The exit status is 1 if a target failed. The test has then written
// the failing input to the package's testdata/fuzz, where every later go test
// tries it first. Commit it with the correction.
package main
