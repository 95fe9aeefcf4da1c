// SPDX-License-Identifier: Apache-2.0

// Package bench compares once with hand-written code on the same SDK. For whole
// requests that is package smallest. Package peers compares with libraries of other
// languages too. Each comparison is a test with a limit, and most are also a
// benchmark in the format that benchstat reads:
//
//	go test -v ./tests/measured/bench                         # the comparisons
//	go test -run '^$' -bench . -count 10 ./tests/measured/bench  # for benchstat -col /side
//
//	request_test.go      a first request and a replay: calls, processor time, wall time;
//	                     and the processor time of a step; messages: memory, and ten at once
//	fingerprint_test.go  fingerprints, with the usual way to compute them
//	start_test.go        a function: its size, and the time until it is ready
//	environment_test.go  the first request of an environment, and the next
//	compare_test.go      the turns of both sides, on one engine and one client; events and metrics
//
// The race detector would change the measurements, so the tests are built without
// it only.
package bench
