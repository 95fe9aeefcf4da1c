// Command fuzz runs every fuzz target of the packages it is given, one after
// the other and for the same time:
//
//	make fuzz                  # 60 s each
//	make fuzz FUZZTIME=10m
//	make test-fuzz             # 5 s each, a part of make test
//
// It finds the targets itself. One line tells how many inputs each has seen.
// The exit status is 1 if one of them failed; go test has then written the
// input to the package's testdata/fuzz, where every later go test tries it
// first. Commit it with the correction.
package main
