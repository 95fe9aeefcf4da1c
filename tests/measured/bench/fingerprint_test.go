// SPDX-License-Identifier: Apache-2.0

//go:build !race

package bench

import (
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit"
)

// shapes returns the committed documents by name: a small charge, a nested
// order, 50 KB of events, many numbers, escapes and Unicode.
func shapes(tb testing.TB) map[string][]byte {
	tb.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil || len(names) < 5 {
		tb.Fatalf("%d documents (%v)", len(names), err)
	}
	docs := map[string][]byte{}
	for _, name := range names {
		doc, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		docs[strings.TrimSuffix(filepath.Base(name), ".json")] = doc
	}
	return docs
}

// fingerprints returns both ways to compute the fingerprint of a document: the
// toolkit's, and SHA-256 over the RFC 8785 form, which is the usual way.
func fingerprints(tb testing.TB, doc []byte) (ours, theirs side) {
	return func() {
			if _, err := idempotent.FingerprintJSON(doc); err != nil {
				tb.Fatal(err)
			}
		}, func() {
			form, err := jcs.Transform(doc)
			if err != nil {
				tb.Fatal(err)
			}
			sha256.Sum256(form)
		}
}

// A fingerprint is faster than the usual way on every shape, with at most a
// fifth of the allocations.
func TestFingerprint(t *testing.T) {
	for name, doc := range shapes(t) {
		t.Run(name, func(t *testing.T) {
			ours, theirs := fingerprints(t, doc)
			a, b := testing.AllocsPerRun(20, ours), testing.AllocsPerRun(20, theirs)
			t.Logf("%.0f allocations against %.0f", a, b)
			if a*5 > b || a < 1 {
				t.Errorf("%.0f allocations against %.0f, want a fifth at most", a, b)
			}
			wantWithin(t, ratios{wall: 1, cpu: 1}, ours, theirs, max(10, 100_000/len(doc)))
		})
	}
}

// A fingerprint takes time in proportion to the body, and less memory than four bodies.
// Up to 1 MB the memory of an earlier one serves again.
func TestFingerprintOfLargeBodies(t *testing.T) {
	of := func(doc []byte) side {
		return func() {
			if _, err := idempotent.FingerprintJSON(doc); err != nil {
				t.Fatal(err)
			}
		}
	}
	small, large := records(1<<10), records(100<<10)
	kit.Within(t, func() (string, bool) {
		took := kit.Quickest(t, 30, 10, of(small), of(large))
		return fmt.Sprintf("%d bytes in %s, %d bytes in %s", len(small), took[0], len(large), took[1]), took[1] <= 110*took[0]
	})
	memory := func(doc []byte) (times float64) { // the memory that one takes, as a multiple of the body
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		of(doc)()
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) / float64(len(doc))
	}
	huge := records(6 << 20)
	if times := memory(huge); times > 4 || times == 0 {
		t.Errorf("%d bytes take %.2f times as much memory, want more than 0 and at most 4", len(huge), times)
	}
	medium, least := records(900<<10), math.Inf(1)
	for range 5 { // the first takes it, and a garbage collection may take it back
		least = min(least, memory(medium))
	}
	if least > 0.01 {
		t.Errorf("%d bytes take %.2f times as much new memory each time, want 0.01", len(medium), least)
	}
}

// records returns a list of some n bytes.
func records(n int) []byte {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, `,{"id":%d,"name":"item %d","price":%d.50,"tags":["a","b"],"active":true}`, i, i, i)
	}
	return []byte("[" + b.String()[1:] + "]")
}

func BenchmarkFingerprint(b *testing.B) {
	for name, doc := range shapes(b) {
		b.Run("shape="+name, func(b *testing.B) {
			ours, theirs := fingerprints(b, doc)
			b.SetBytes(int64(len(doc)))
			benchmark(b, ours, theirs)
		})
	}
}
