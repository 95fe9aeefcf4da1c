package idempotent_test

import (
	"crypto/rand"
	"log/slog"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

// newGuard returns a guard over a new memory store and what it observed.
func newGuard(t *testing.T, optFns ...func(*idempotent.Options)) (*idempotent.Guard, *idempotenttest.Recorder) {
	t.Helper()
	return newGuardOver(t, memstore.New(), optFns...)
}

func newGuardOver(t *testing.T, s idempotent.Store, optFns ...func(*idempotent.Options)) (*idempotent.Guard, *idempotenttest.Recorder) {
	t.Helper()
	events := &idempotenttest.Recorder{}
	g, err := idempotent.New(s, append([]func(*idempotent.Options){func(o *idempotent.Options) {
		o.Observer, o.Logger = events, slog.New(slog.DiscardHandler)
	}}, optFns...)...)
	if err != nil {
		t.Fatal(err)
	}
	return g, events
}

// newKey returns a key that no other test has.
func newKey() idempotent.Key {
	return idempotent.Key{
		Operation:   "charge",
		Scope:       "acme",
		ID:          rand.Text(),
		Fingerprint: idempotent.FingerprintBytes([]byte("request")),
	}
}

// quiet is a logger for examples.
var quiet = slog.New(slog.DiscardHandler)
