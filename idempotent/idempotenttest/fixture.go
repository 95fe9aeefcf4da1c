// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// Fixture gives the suites access to a store. Open is required. Each other
// field declares an optional capability when it is set.
type Fixture struct {
	// Open returns a store to test. It is called once per subtest, and under
	// faults once per run. Runs are parallel and never use the same keys, so
	// all of them can share one table, which need not be empty.
	Open func(t testing.TB) driver.Store

	// Reopen returns a store over the same data, as the next process opens it.
	// Set it for stores that outlive their process.
	Reopen func(t testing.TB, s driver.Store) driver.Store

	// Remove deletes a record directly, without the store, as DynamoDB's time
	// to live does.
	Remove func(ctx context.Context, s driver.Store, id idempotent.RecordID) error

	// Damage makes a record unreadable, without the store, as a bug or a later
	// version of the store can.
	Damage func(ctx context.Context, s driver.Store, id idempotent.RecordID) error

	// ListLag is how long a [driver.DueLister] may take to show a write in its
	// lists. Default: no delay.
	ListLag time.Duration

	// Wire returns a store over the same data as Open's, whose HTTP requests go
	// through faulty. It passes them on to [http.DefaultTransport], or makes them
	// fail as DynamoDB does. Set it for stores that use their own client of a
	// service. See [FailureModesOptions].
	Wire func(t testing.TB, faulty http.RoundTripper) driver.Store

	// mutation breaks the guards over the store. Only the tests of the suites
	// set it.
	mutation mutation
}

// mutation changes the behaviour of a guard from outside: its options, the
// traffic between it and the store, the requests that it gets, and its answers.
type mutation struct {
	options func(*idempotent.Options) // applied after those of the scenario
	calls   func(now func() time.Time) func(context.Context, *StoreCall)
	request func(*asked)
	answer  func(*idempotent.Outcome[string], *error)
}

// asked is a request.
type asked struct {
	ctx     context.Context
	key     idempotent.Key
	handler handler
}

// newKey returns a key that no other test uses.
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

// now returns the time with the precision of records.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// fullRecord returns a record of a new key with every field set, with values
// that differ from any other full record where possible. No time is a whole
// second.
func fullRecord() driver.Record {
	key := newKey()
	n := rand.N(10_000_000)
	began := time.Now().Unix() - int64(n/10_000)
	at := func(seconds int64) time.Time { return time.Unix(began+seconds, 1e6+int64(n%990)*1e6).UTC() }
	return driver.Record{
		ID:          key.RecordID(),
		State:       driver.StateCompleted,
		Reason:      driver.ReasonResult,
		Owner:       driver.Owner(newVersion()),
		Version:     newVersion(),
		Attempt:     3 + n,
		Fingerprint: idempotent.FingerprintBytes([]byte(key.ID)),

		Recovery:            idempotent.Rerun,
		Retention:           time.Duration(1+n) * time.Millisecond,
		UnresolvedRetention: time.Duration(2+n) * time.Millisecond,
		Codec:               fmt.Sprintf("declared%d", n),
		ResultVersion:       fmt.Sprintf("v%d", n),
		StepNames:           []string{fmt.Sprintf("charge %d", n), "inform ü", "a step that has not begun"},

		LeaseEnd:  at(10),
		Expires:   at(24 * 60 * 60),
		Created:   at(-1),
		Since:     at(0),
		Encoding:  fmt.Sprintf("codec%d", n),
		Result:    fmt.Appendf(nil, "{\"id\":\"ch_%d\"}\x00\xff", n),
		Chunks:    driver.Chunks{Count: 2 + n, Length: 500_000 + n, Sum: sha256.Sum256([]byte(key.ID))},
		Ref:       fmt.Sprintf("orders/%d ü", n),
		RequestID: fmt.Sprintf("request-%d", n), TraceParent: fmt.Sprintf("trace-%d", n),
		Steps: []driver.StepRecord{
			{Name: fmt.Sprintf("charge %d", n), Finished: true, Attempt: 1 + n, At: at(-60),
				By: driver.StepByTransaction, Shape: fmt.Sprintf("shape%d", n), Encoding: "json", Result: fmt.Appendf(nil, "%d", n)},
			{Name: "inform ü", Mode: driver.AtMostOnce, Attempt: 2 + n, At: at(-2)},
		},
		OpenSince:           at(-120),
		PredecessorAnswered: true,
		Due:                 at(60),
		ReconcileAttempts:   2 + n,
		Exhausted:           true,
	}
}

// announcedRecord is fullRecord in progress and announced.
func announcedRecord() driver.Record {
	r := fullRecord()
	r.State, r.Exhausted, r.Announced = driver.StateInProgress, false, true
	return r
}

// emptyRecord returns a claim without any optional field.
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

// laterAttributes returns attributes of r and of its steps that no version knows.
// Their values have the JSON form of an attribute of DynamoDB, which every store can
// keep.
func laterAttributes(r *driver.Record) map[string]map[string]json.RawMessage {
	later := map[string]map[string]json.RawMessage{"": {"later": []byte(`{"M":{"list":{"L":[{"S":"ü <a>"},{"N":"1.5"},{"B":"AP8="},{"BOOL":false}]}}}`), "latest": []byte(`{"NULL":true}`)}}
	for i, s := range r.Steps {
		later[s.Name] = map[string]json.RawMessage{"later": fmt.Appendf(nil, `{"N":"%d"}`, i)}
	}
	return later
}

// sameRecord returns an error that names the fields in which got differs from want.
func sameRecord(what string, got *driver.Record, want driver.Record) error {
	if got == nil {
		return fmt.Errorf("%s no record, want %s", what, describe(&want))
	}
	var wrong []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[driver.Record]()) {
		if !field.IsExported() {
			continue // the attributes in Extra
		}
		g := reflect.ValueOf(*got).FieldByIndex(field.Index).Interface()
		w := reflect.ValueOf(want).FieldByIndex(field.Index).Interface()
		if reflect.DeepEqual(g, w) {
			continue
		}
		if data, ok := g.([]byte); ok {
			g, w = brief(data), brief(w.([]byte))
		}
		wrong = append(wrong, fmt.Sprintf("%s is %v, want %v", field.Name, g, w))
	}
	g, _ := json.Marshal(got.Extra()) // "" if it is no JSON
	w, _ := json.Marshal(want.Extra())
	if !bytes.Equal(g, w) {
		wrong = append(wrong, fmt.Sprintf("Extra is %s, want %s", g, w))
	}
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("%s a record with wrong fields: %s", what, strings.Join(wrong, "; "))
}

func brief(b []byte) string {
	if b == nil {
		return "absent"
	}
	if len(b) > 32 {
		return fmt.Sprintf("%q… (%d bytes)", b[:32], len(b))
	}
	return fmt.Sprintf("%q", b)
}

func describe(r *driver.Record) string {
	if r == nil {
		return "no record"
	}
	return fmt.Sprintf("a record (%s, %s, attempt %d)", r.ID, r.State, r.Attempt)
}

// racers is the number of writers in a race.
const racers = 64

// handler is the guarded function of the scenarios.
type handler = func(context.Context) (string, error)
