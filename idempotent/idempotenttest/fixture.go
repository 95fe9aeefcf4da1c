package idempotenttest

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// Fixture tells the suites how to get at a store. Open is required; the
// capabilities below it are declared by being set.
type Fixture struct {
	// Open returns a store to test. It is called once per subtest. The subtests
	// run in parallel and never use the same keys, so that all of them may
	// share one table, and it need not be empty.
	Open func(t testing.TB) idempotent.Store

	// Reopen returns a store over the same data, as the next process would see
	// it. Set it for stores that outlive their process.
	Reopen func(t testing.TB, s idempotent.Store) idempotent.Store

	// Remove deletes a record behind the store's back, as DynamoDB's time to
	// live does.
	Remove func(ctx context.Context, s idempotent.Store, id idempotent.RecordID) error
}

// newKey returns a key that no other test has.
func newKey() idempotent.Key {
	return idempotent.Key{
		Operation:   "conformance",
		Scope:       "tenant",
		ID:          rand.Text(),
		Fingerprint: idempotent.FingerprintBytes([]byte("request")),
	}
}

// newVersion returns a fresh write id.
func newVersion() (v idempotent.Version) {
	rand.Read(v[:])
	return v
}

// now returns the time in the form that records keep.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// fullRecord returns a record of a new key in which every field is set.
func fullRecord() idempotent.Record {
	key, at := newKey(), now()
	r := idempotent.Record{
		ID:                key.RecordID(),
		State:             idempotent.StateCompleted,
		Reason:            idempotent.ReasonResult,
		Recovery:          idempotent.Rerun,
		Version:           newVersion(),
		Attempt:           3,
		Fingerprint:       key.Fingerprint,
		LeaseEnd:          at.Add(10*time.Second + time.Millisecond),
		Expires:           at.Add(24*time.Hour + 2*time.Millisecond),
		Created:           at.Add(-time.Second),
		Settled:           at,
		Encoding:          "json",
		Result:            []byte("{\"id\":\"ch_1\"}\x00\xff"),
		Chunks:            idempotent.Chunks{Count: 2, Length: 500_000, Sum: [32]byte{1, 2, 3}},
		ResultVersion:     "2",
		Ref:               "orders/1 ü",
		RequestID:         "request-1",
		Due:               at.Add(time.Minute),
		ReconcileAttempts: 2,
	}
	rand.Read(r.Owner[:])
	return r
}

// emptyRecord returns a claim in which every field that may be absent is.
func emptyRecord() idempotent.Record {
	full := fullRecord()
	return idempotent.Record{
		ID:          full.ID,
		State:       idempotent.StateInProgress,
		Reason:      idempotent.ReasonClaimed,
		Owner:       full.Owner,
		Version:     full.Version,
		Attempt:     1,
		Fingerprint: full.Fingerprint,
		LeaseEnd:    full.LeaseEnd,
		Created:     full.Created,
	}
}
