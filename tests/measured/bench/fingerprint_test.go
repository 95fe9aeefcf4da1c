// SPDX-License-Identifier: Apache-2.0

//go:build !race

package bench

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/once-lambda/once/idempotent"
)

// shapes returns documents by name: from files a small charge, many numbers, escapes and Unicode, and generated a
// nested order and 60 KB of events.
func shapes(tb testing.TB) map[string][]byte {
	tb.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil || len(names) < 3 {
		tb.Fatalf("%d documents (%v)", len(names), err)
	}
	docs := map[string][]byte{"order": order(tb), "large": history(tb)}
	for _, name := range names {
		doc, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		docs[strings.TrimSuffix(filepath.Base(name), ".json")] = doc
	}
	return docs
}

// order returns an order of twelve items.
func order(tb testing.TB) []byte {
	tb.Helper()
	var items []string
	for i := range 12 {
		items = append(items, fmt.Sprintf(`{"sku":"SKU-%05d","title":"Part number %[1]d","quantity":%d,"unit":{"amount":%d,"currency":"gbp"},`+
			`"options":{"colour":%q,"engraving":null,"gift":%t}}`, i, 1+i%5, 1999+100*i, []string{"red", "green", "blue"}[i%3], i%2 == 0))
	}
	return indented(tb, "  ", `{"order":{"id":"o_2026_000417","placed":"2026-01-02T03:04:05Z",
		"customer":{"id":"c_77","name":"Ada Lovelace","addresses":[
			{"kind":"billing","lines":["12 St James's Square"],"city":"London","country":"GB"},
			{"kind":"shipping","lines":["Ockham Park","East Horsley"],"city":"Surrey","country":"GB"}]},
		"items":[`+strings.Join(items, ",")+`],
		"totals":{"net":31416,"tax":6283,"gross":37699},"notes":["leave with the neighbour","ring twice"]}}`)
}

// history returns 208 events, the same in each run.
func history(tb testing.TB) []byte {
	tb.Helper()
	r := rand.New(rand.NewPCG(1, 1))
	var list []string
	for i := range 208 {
		body := make([]byte, 45+r.IntN(156))
		for j := range body {
			body[j] = " abcdefghijklmnopqrstuvwxyz"[r.IntN(27)]
		}
		list = append(list, fmt.Sprintf(`{"sequence":%d,"id":"evt_%08x","type":%q,"actor":{"id":%d,"roles":%s},"body":%q}`,
			i, r.Uint32(), []string{"created", "updated", "deleted"}[r.IntN(3)], r.IntN(1_000_000), []string{`["reader"]`, `["reader","writer"]`}[r.IntN(2)], body))
	}
	return indented(tb, " ", `{"events":[`+strings.Join(list, ",")+"]}")
}

// indented returns a document with white space, as in a request that a person wrote.
func indented(tb testing.TB, indent, doc string) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(doc), "", indent); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
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
	wantWithin(t, ratios{cpu: 110}, of(large), of(small), 10)
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
