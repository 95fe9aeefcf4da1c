package idempotent_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

// newGuard returns a guard over a new memory store and the recorder of its
// events.
func newGuard(t *testing.T, optFns ...func(*idempotent.Options)) (*idempotent.Guard, *idempotenttest.Recorder) {
	t.Helper()
	return newGuardOver(t, memstore.New(), optFns...)
}

func newGuardOver(t *testing.T, s driver.Store, optFns ...func(*idempotent.Options)) (*idempotent.Guard, *idempotenttest.Recorder) {
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

// newKey returns a key that no other test uses.
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

// chunked is a memory store that stores large results beside their records.
type chunked struct {
	*memstore.Store
	mu     sync.Mutex
	chunks map[string][]byte
}

func newChunked() *chunked {
	return &chunked{Store: memstore.New(), chunks: map[string][]byte{}}
}

// pieceSize is small, so that a result has several pieces.
const pieceSize = 10_000

func piece(id idempotent.RecordID, v driver.Version, i int) string {
	return fmt.Sprintf("%s#%x#%d", id, v, i)
}

func (c *chunked) PutChunks(_ context.Context, id idempotent.RecordID, v driver.Version, data []byte, _ time.Time) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := 0
	for part := range slices.Chunk(data, pieceSize) {
		c.chunks[piece(id, v, count)] = slices.Clone(part)
		count++
	}
	return count, nil
}

func (c *chunked) GetChunks(_ context.Context, id idempotent.RecordID, v driver.Version, count int) (data []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range count {
		part, ok := c.chunks[piece(id, v, i)]
		if !ok {
			return nil, idempotent.ErrNoRecord
		}
		data = append(data, part...)
	}
	return data, nil
}

// fixed sets the clock to a fixed time.
func fixed(now time.Time) func(*idempotent.Options) {
	return func(o *idempotent.Options) { o.Now = func() time.Time { return now } }
}

// now returns the current time as records store it.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// forbidden returns a handler that must not be entered.
func forbidden(t *testing.T) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		t.Error("the handler was entered")
		return "", nil
	}
}

func charged(context.Context) (string, error) { return "ch_1", nil }
