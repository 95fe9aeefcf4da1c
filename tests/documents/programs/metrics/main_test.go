// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/telemetry/emf"
)

// Each invocation prints its metrics at its end: the first one sends the invoice, and
// the retry gets the stored result.
func TestHandler(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	metrics, err := emf.New(&out, "Invoices")
	if err != nil {
		t.Fatal(err)
	}
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Observer = metrics })
	if err != nil {
		t.Fatal(err)
	}
	handle := newHandler(guard, metrics)
	for _, counted := range []string{`"once.completed":1`, `"once.replayed":1`} {
		out.Reset()
		if got, err := handle(t.Context(), invoice{Number: "2026-17"}); err != nil || got.Pages != 2 {
			t.Errorf("got %+v, %v", got, err)
		}
		if !strings.Contains(out.String(), counted) || !strings.Contains(out.String(), `"operation":"send-invoice"`) {
			t.Errorf("the invocation printed %s, want %s", &out, counted)
		}
	}
}
