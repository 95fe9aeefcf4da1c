// SPDX-License-Identifier: Apache-2.0

package main

// leftOver are mutants that survive although a user would see the difference, by
// name, each with what the user would see. The list only shrinks: a mutant that a
// test kills has to leave it, and TestDeclaredNamesAreMutants limits its length.
var leftOver = map[string]string{
	"lambdahttp.recorder.WriteHeader: r.status == 0 && !informational loses r.status == 0 &&":                                         "Idempotency-Status is set again after the response has begun",
	"lambdahttp.recorder.mark: m.name == nameExposed && slices.Equal(h[m.name], r.w.Header()[m.name]) loses m.name == nameExposed &&": "a header of this package that is set around the handler with the same value is sent twice",

	"idempotent.reconciler.submit: errors.As(err, new(*InProgressError)) is never true": "evidence about a record that runs again counts as postponed, not as stale",
}
