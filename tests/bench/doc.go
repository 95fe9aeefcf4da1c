// Package bench compares the toolkit with hand-written code on the same SDK:
// the calls, the processor time and the wall time of a first request and of a
// replay, and fingerprints with the usual way to compute them. Each comparison
// is a test with a limit, and a benchmark in the format that benchstat reads:
//
//	go test -v ./tests/bench                            # the comparisons
//	go test -run '^$' -bench . -count 10 ./tests/bench  # for benchstat -col /side
//
// Machines are noisy, so nothing is compared with a number of another day. Both
// sides run in turns within one process, on one engine and one client. The
// result is the median over the ratios of all pairs of turns. A median above
// its limit is measured again, at most twice: the load of a neighbour passes, a
// slower program stays slow.
package bench
