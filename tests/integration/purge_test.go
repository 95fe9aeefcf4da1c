package integration

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Chunks past their time to live, without a record that names them, are found
// and removed.
func TestPurgeChunks(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, db *database) {
		s := db.store(t)
		operation := "purge-" + rand.Text()
		key := idempotent.Key{Operation: operation, Scope: "acme", ID: "1"}
		only := func(o *dynamostore.PurgeOptions) { o.Operations = []string{operation} }
		var v driver.Version
		rand.Read(v[:])
		if _, err := s.PutChunks(t.Context(), key.RecordID(), v, make([]byte, 500<<10), time.Now().Add(-3*time.Hour)); err != nil {
			t.Fatal(err)
		}
		for _, want := range []int{2, 0} {
			if n, err := s.PurgeChunks(t.Context(), time.Now(), only); n != want || err != nil {
				t.Errorf("removed %d chunks, %v; want %d", n, err, want)
			}
		}
	})
}
