// SPDX-License-Identifier: Apache-2.0

// Package otelonce reports the events of package idempotent to OpenTelemetry: as
// metrics with the names of package telemetry, as events on the span of the
// request, and in separate spans if there is no such span.
//
//	facts, err := otelonce.New()
//	guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Observer = facts })
//	lambda.StartHandlerFunc(otelonce.Handler(facts, "charge", handler))
//
// It uses only the API: without a provider nothing is recorded. The only attribute
// of the metrics is the operation, with a limit on the number of operations.
// Neither metrics nor spans contain keys, payloads, results or the texts of
// errors. Attributes have OpenTelemetry's names (semantic conventions 1.43) where
// these exist; other names begin with "once.".
package otelonce
