package bench

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"

	"github.com/once-lambda/once/idempotent"
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

func BenchmarkFingerprint(b *testing.B) {
	for name, doc := range shapes(b) {
		b.Run("shape="+name, func(b *testing.B) {
			ours, theirs := fingerprints(b, doc)
			b.SetBytes(int64(len(doc)))
			benchmark(b, ours, theirs)
		})
	}
}
