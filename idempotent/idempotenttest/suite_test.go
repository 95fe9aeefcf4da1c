// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
)

// sound are stores that satisfy the contract.
var sound = map[string]Fixture{
	"memstore":   {Open: func(testing.TB) driver.Store { return memstore.New() }},
	"shelf":      broken{}.fixture(),
	"chunkShelf": broken{chunks: func(*chunkShelf) {}}.fixture(),
	"listShelf":  broken{lists: func(*listShelf) {}}.fixture(),
	"abandoned":  broken{running: func(*abandonedShelf) {}}.fixture(),
}

func TestSoundStores(t *testing.T) {
	t.Parallel()
	for name, fixture := range sound {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			RunStore(t, fixture)
		})
	}
}

// G11: each requirement of RunStore and each row of RunFailureModes fails on at
// least one broken store or broken guard. So a requirement or row without
// assertions is noticed. On every broken store, a requirement fails.
func TestBrokenStoresAndGuardsAreCaught(t *testing.T) {
	t.Parallel()
	needed := map[string]bool{}
	for _, r := range requirements {
		needed[r.name] = true
	}
	rows := map[string]scenario{}
	for _, s := range scenarios {
		rows[s.name], needed[s.name] = s, true
	}
	for _, b := range allBroken {
		caught := strings.Fields(b.caught)
		for _, name := range caught {
			delete(needed, name)
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			failures := verdicts(t)[b.name]
			t.Logf("requirements that fail: %s", strings.Join(failures, " "))
			if b.guard == nil && len(failures) == 0 {
				t.Error("no requirement fails")
			}
			for _, name := range caught {
				row, isRow := rows[name]
				switch {
				case !isRow && !slices.Contains(failures, name):
					t.Errorf("%s does not fail, only %v", name, failures)
				case isRow:
					synctest.Test(t, func(t *testing.T) {
						found := row.alone(t, b.fixture())
						if len(found) == 0 {
							t.Errorf("%s does not fail", name)
						}
						t.Logf("%s: %s", name, strings.Join(found, "; "))
					})
				}
			}
		})
	}
	for name := range needed {
		t.Errorf("%s: no broken store and no broken guard must fail it", name)
	}
}

// The suite notices the loss of each field of a record, including fields that
// are added later.
func TestForgetfulStoresAreCaught(t *testing.T) {
	t.Parallel()
	stores := forgetfulStores()
	for _, b := range stores {
		if failures := failing(b.fixture(), b.caught); len(failures) == 0 {
			t.Errorf("%s: %s does not notice", b.name, b.caught)
		}
	}
	t.Logf("%d forgetful stores", len(stores))
}

// A guard that seals its results passes every row, although equal results are
// stored as different bytes. A result of exactly 4 KB is longer when it is sealed,
// and no longer fits into its record.
func TestFailureModesSealed(t *testing.T) {
	t.Parallel()
	s := kit.NewSealer()
	t.Run("rows", func(t *testing.T) {
		for _, row := range scenarios {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				found := row.alone(t, broken{guard: &mutation{options: s.Option}}.fixture())
				if longer := row.name == "FM34_ResultOf4KB"; longer != (len(found) > 0) {
					t.Errorf("it fails: %s", strings.Join(found, "; "))
				}
			})
		}
	})
	if s.Seals() == 0 || s.Opened() == 0 {
		t.Errorf("sealed %d times and opened %d times", s.Seals(), s.Opened())
	}
}

// jointly lists the requirements that never fail alone, and why.
var jointly = map[string]string{
	"InsertCreates": "EveryFieldIsKept begins with it; it fails first if nothing works",
	"InsertRefuses": "InsertReplacesExpired checks the same, a millisecond before the expiry; it fails first if nothing is refused",
}

// G11: for every requirement there is a store that fails no other one.
func TestEveryRequirementIsNeeded(t *testing.T) {
	t.Parallel()
	alone := map[string]string{}
	for name, failures := range verdicts(t) {
		if len(failures) == 1 {
			alone[failures[0]] = name
		}
	}
	for _, r := range requirements {
		because, joint := jointly[r.name]
		switch by, ok := alone[r.name]; {
		case !ok && !joint:
			t.Errorf("%s: no broken store fails it alone", r.name)
		case ok && joint:
			t.Errorf("%s is listed as failing only with others (%s), but fails alone for: %s", r.name, because, by)
		}
	}
}
