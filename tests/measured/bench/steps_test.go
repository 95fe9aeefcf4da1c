// SPDX-License-Identifier: Apache-2.0

//go:build !race

package bench

import (
	"context"
	"crypto/rand"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
)

// stepNames are the steps of a request.
var stepNames = []string{"authorise", "order", "receipt", "inform"}

// charged is what a step returns.
type charged struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
}

// stepping returns a request under Resume with that many steps. Its store is in
// memory, so that only the toolkit is measured, and not the network.
func stepping(tb testing.TB, steps int, optFns ...func(*idempotent.StepOptions)) side {
	tb.Helper()
	var g *idempotent.Guard
	ctx, n := tb.Context(), 0
	return func() {
		if n%1024 == 0 { // otherwise garbage collection of a growing store is measured
			var err error
			if g, err = idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Recovery, o.Steps = idempotent.Resume, stepNames }); err != nil {
				tb.Fatal(err)
			}
		}
		n++
		key := idempotent.Key{Operation: "charge", Scope: "acme", ID: rand.Text(), Fingerprint: idempotent.FingerprintBytes(nil)}
		if _, err := idempotent.Do(ctx, g, key, func(ctx context.Context) (int, error) {
			for _, name := range stepNames[:steps] {
				if _, err := idempotent.Step(ctx, name, func(context.Context) (charged, error) { return charged{"ch_1", 4200}, nil }, optFns...); err != nil {
					return 0, err
				}
			}
			return steps, nil
		}); err != nil {
			tb.Fatal(err)
		}
	}
}

func atMostOnce(o *idempotent.StepOptions) { o.AtMostOnce = true }

// stepLimit is the limit for the processor time of a step, relative to a first
// request without a step. Both write once or twice to the same store.
const stepLimit = 1.25

// The processor time of a step: a request with four of them against one without.
func TestStep(t *testing.T) {
	wantWithin(t, ratios{cpu: 1 + float64(len(stepNames))*stepLimit}, stepping(t, len(stepNames)), stepping(t, 0), 500)
}

func BenchmarkSteps(b *testing.B) {
	for name, op := range map[string]side{
		"steps=0": stepping(b, 0), "steps=4": stepping(b, len(stepNames)), "steps=4,AtMostOnce": stepping(b, len(stepNames), atMostOnce),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				op()
			}
		})
	}
}
