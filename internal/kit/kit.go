// SPDX-License-Identifier: Apache-2.0

// Package kit has what tests of several packages share, and only tests import it. It
// starts no process and needs no AWS SDK; package engine does.
package kit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/outage"
)

// Part compares the part of file between the marks <!-- name --> and <!-- /name
// --> with want and fails t if they differ. If update is set, it writes want
// instead. The path of the file is relative to the folder of the test. It
// may be called by tests that run at the same time.
func Part(t testing.TB, file, name, want string, update bool) {
	t.Helper()
	files.Lock()
	defer files.Unlock()
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->\n"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	got, after, ok2 := strings.Cut(rest, end)
	switch {
	case !ok || !ok2:
		t.Fatalf("%s has no %q and %q", file, begin, end)
	case got == want:
	case update:
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s contains\n%swant\n%supdate it with: go test -run %s -update, in the folder of the test", file, got, want, t.Name())
	}
}

var files sync.Mutex

// Short returns how much of something a test does: all of it, or with -short the few
// that make test has time for. make test-all runs the tests without -short.
func Short(all, few int) int {
	if testing.Short() {
		return few
	}
	return all
}

// Patience is how long a test waits for a condition. It ends only what hangs: a busy
// machine needs minutes for what an idle one does in a second.
const Patience = 15 * time.Minute

// Eventually waits until the condition is true, and fails t if it is false for Patience.
// It looks often at first, and twice a second in the end.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	pause := 20 * time.Millisecond
	for end := time.Now().Add(Patience); !condition(); time.Sleep(pause) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", Patience, what)
		}
		pause = min(pause*5/4, 500*time.Millisecond)
	}
}

// SetLease sets the end of the lease of a record in progress, so that a test does not
// wait for it, and cannot miss it. It changes no record in another state.
func SetLease(t testing.TB, s driver.Store, id idempotent.RecordID, end time.Time) {
	t.Helper()
	for {
		r, err := s.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if r.State != driver.StateInProgress {
			return
		}
		was := r.Version
		rand.Read(r.Version[:])
		r.LeaseEnd = end.UTC().Truncate(time.Millisecond)
		r.Due = r.LeaseEnd
		switch current, err := s.Replace(t.Context(), *r, was); {
		case err != nil:
			t.Fatal(err)
		case current == nil || current.Version == r.Version: // its own: sent twice
			return
		}
	}
}

// Reconcile makes one run of a reconciler with a resolver for every operation, or, if
// resolve is nil, without one. Records that failed are in the report, and no error.
func Reconcile(
	ctx context.Context, g *idempotent.Guard, resolve idempotent.ResolveFunc, optFns ...func(*idempotent.ReconcileOptions),
) (idempotent.Report, error) {
	report, err := idempotent.Reconciler(g, Resolver(resolve), optFns...)(ctx)
	if errors.As(err, new(*outage.Error)) {
		err = nil
	}
	return report, err
}

// Resolver returns the resolvers of a reconciler that has one for every operation.
func Resolver(resolve idempotent.ResolveFunc) map[string]idempotent.ResolveFunc {
	if resolve == nil {
		return nil
	}
	return map[string]idempotent.ResolveFunc{"*": resolve}
}

// Tally counts how often a test has seen each fact, because a test that covered
// nothing would prove nothing. The zero value is ready, and safe for concurrent use.
type Tally struct {
	mu     sync.Mutex
	counts map[string]int
}

// Add adds n to the count of a fact.
func (y *Tally) Add(fact string, n int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.counts == nil {
		y.counts = map[string]int{}
	}
	y.counts[fact] += n
}

// Count returns how often a fact was seen.
func (y *Tally) Count(fact string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.counts[fact]
}

// Least fails t for each of the facts that was seen less than n times.
func (y *Tally) Least(t testing.TB, n int, facts ...string) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, fact := range facts {
		if y.counts[fact] < n {
			t.Errorf("%q was seen %d times, want at least %d", fact, y.counts[fact], n)
		}
	}
}

// Most fails t if a fact was seen more than n times.
func (y *Tally) Most(t testing.TB, n int, fact string) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.counts[fact] > n {
		t.Errorf("%q was seen %d times, want at most %d", fact, y.counts[fact], n)
	}
}

// String lists the facts with their counts, a line for each.
func (y *Tally) String() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	var b strings.Builder
	for _, fact := range slices.Sorted(maps.Keys(y.counts)) {
		fmt.Fprintf(&b, "\n%7d %s", y.counts[fact], fact)
	}
	return b.String()
}
