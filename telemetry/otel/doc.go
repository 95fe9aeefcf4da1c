// Package otel tells the facts of package idempotent through OpenTelemetry:
// counters with the names of package telemetry, events on the span of the
// request, and spans of its own where there are none.
//
//	facts, err := otel.New()
//	guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Observer = facts })
//	lambda.StartHandlerFunc(otel.Handler(facts, "charge", handler))
//
// Only the API is used: without a provider nothing is recorded. The one
// attribute of the counters is the operation, of which so many are told apart;
// keys, payloads, results and the texts of errors are in neither metrics nor
// spans. Where OpenTelemetry has a name for an attribute it is that one
// (semantic conventions 1.43), and begins with "once." otherwise.
package otel
