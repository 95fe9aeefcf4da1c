package idempotenttest

import (
	"context"
	crand "crypto/rand"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Fixture tells the suites how to get at a store. Open is required; the
// capabilities below it are declared by being set.
type Fixture struct {
	// Open returns a store to test. It is called once per subtest, and under
	// faults once per run. They run in parallel and never use the same keys, so
	// that all of them may share one table, and it need not be empty.
	Open func(t testing.TB) driver.Store

	// Reopen returns a store over the same data, as the next process would see
	// it. Set it for stores that outlive their process.
	Reopen func(t testing.TB, s driver.Store) driver.Store

	// Remove deletes a record behind the store's back, as DynamoDB's time to
	// live does.
	Remove func(ctx context.Context, s driver.Store, id idempotent.RecordID) error

	// Damage makes a record unreadable behind the store's back, as a bug or a
	// later version of the store may leave it.
	Damage func(ctx context.Context, s driver.Store, id idempotent.RecordID) error

	// ListLag is how long a store that is an [driver.DueLister] may take to
	// show a write in its lists. Default: no time.
	ListLag time.Duration

	// Wire returns a store over the data of Open's, whose requests go through
	// faults.Transport. Set it for stores that talk to a service with a client
	// of their own. See [RunFailureModesUnderFaults].
	Wire func(t testing.TB, faults *Faults) driver.Store

	// mutation is what is wrong with the guards over the store. The tests of the
	// suites themselves set it.
	mutation mutation
}

// mutation changes how a guard behaves, from outside: by its options, by what
// passes between it and the store, and by what it is asked.
type mutation struct {
	options func(*idempotent.Options) // after those of the scenario
	store   func(w *worker, s driver.Store) driver.Store
	request func(ctx context.Context, key idempotent.Key, h handler) (context.Context, idempotent.Key, handler)
}

// newKey returns a key that no other test has.
func newKey() idempotent.Key {
	return idempotent.Key{
		Operation:   "conformance",
		Scope:       "tenant",
		ID:          crand.Text(),
		Fingerprint: idempotent.FingerprintBytes([]byte("request")),
	}
}

// newVersion returns a fresh write id.
func newVersion() (v driver.Version) {
	crand.Read(v[:])
	return v
}

// now returns the time in the form that records keep.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// fullRecord returns a record of a new key in which every field is set, and
// differs from that of any other full record where it can. No time is a whole
// second.
func fullRecord() driver.Record {
	key := newKey()
	n := rand.N(10_000_000)
	at := now().Truncate(time.Second).Add(-time.Duration(n/10_000)*time.Second + time.Duration(1+n%990)*time.Millisecond)
	return driver.Record{
		ID:          key.RecordID(),
		State:       driver.StateCompleted,
		Reason:      driver.ReasonResult,
		Owner:       driver.Owner(newVersion()),
		Version:     newVersion(),
		Attempt:     3 + n,
		Fingerprint: idempotent.FingerprintBytes([]byte(key.ID)),

		Recovery:            idempotent.Rerun,
		Retention:           48*time.Hour + time.Duration(n)*time.Millisecond,
		UnresolvedRetention: 72*time.Hour + time.Duration(n)*time.Millisecond,
		Codec:               fmt.Sprintf("declared%d", n),
		ResultVersion:       fmt.Sprintf("v%d", n),
		StepNames:           []string{fmt.Sprintf("charge %d", n), "inform ü", "a step that has not begun"},

		LeaseEnd:  at.Add(10*time.Second + time.Millisecond),
		Expires:   at.Add(24*time.Hour + 2*time.Millisecond),
		Created:   at.Add(-time.Second),
		Settled:   at,
		Encoding:  fmt.Sprintf("codec%d", n),
		Result:    fmt.Appendf(nil, "{\"id\":\"ch_%d\"}\x00\xff", n),
		Chunks:    driver.Chunks{Count: 2 + n, Length: 500_000 + n, Sum: sha256.Sum256([]byte(key.ID))},
		Ref:       fmt.Sprintf("orders/%d ü", n),
		RequestID: fmt.Sprintf("request-%d", n),
		Steps: []driver.StepRecord{
			{Name: fmt.Sprintf("charge %d", n), Finished: true, Attempt: 1 + n, At: at.Add(-time.Minute), By: driver.StepByTransaction, Shape: fmt.Sprintf("shape%d", n), Encoding: "json", Result: fmt.Appendf(nil, "%d", n)},
			{Name: "inform ü", Mode: driver.AtMostOnce, Attempt: 2 + n, At: at.Add(-time.Millisecond)},
		},
		OpenSince:         at.Add(-2 * time.Minute),
		Due:               at.Add(time.Minute),
		ReconcileAttempts: 2 + n,
		Exhausted:         true,
	}
}

// emptyRecord returns a claim in which every field that may be absent is.
func emptyRecord() driver.Record {
	full := fullRecord()
	return driver.Record{
		ID:          full.ID,
		State:       driver.StateInProgress,
		Reason:      driver.ReasonClaimed,
		Owner:       full.Owner,
		Version:     full.Version,
		Attempt:     1,
		Fingerprint: full.Fingerprint,
		LeaseEnd:    full.LeaseEnd,
		Created:     full.Created,
	}
}
