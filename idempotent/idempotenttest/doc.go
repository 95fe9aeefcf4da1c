// Package idempotenttest holds what every store of package idempotent has to
// pass, and what tests of guarded code need.
//
// [RunStore] is the conformance suite of the [idempotent.Store] contract: a
// subtest per requirement, and each failure says which rule was broken.
// [RunFailureModes] drives a real guard over the store through the crashes,
// lost replies, clock skews and races that the design lists as failure modes
// (FM01, FM02, …), with the clock under the test's control.
//
//	func TestStore(t *testing.T) {
//		fixture := idempotenttest.Fixture{Open: func(t testing.TB) idempotent.Store { … }}
//		idempotenttest.RunStore(t, fixture)
//		idempotenttest.RunFailureModes(t, fixture)
//	}
//
// [Clock] is a clock that moves when told to, [Recorder] an observer that
// remembers.
package idempotenttest
