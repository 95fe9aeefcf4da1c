// Package bench compares the toolkit with what one would write by hand on the
// same SDK: the calls it makes, the processor time and the time on the clock of
// a first request and of a replay, and fingerprints with the usual way to
// compute them. Each comparison is a test with a limit, and a benchmark in the
// form benchstat reads:
//
//	go test -v ./tests/bench                            # the comparisons
//	go test -run '^$' -bench . -count 10 ./tests/bench  # for benchstat -col /side
//
// Machines are noisy, so nothing is compared with a number of another day. Both
// sides run in turns within one process, on one engine and one client; the
// ratio of a pair of turns counts, and of all pairs the median. A median above
// its limit is measured again, twice at most: a neighbour's load passes, a
// slower program stays slow.
package bench
