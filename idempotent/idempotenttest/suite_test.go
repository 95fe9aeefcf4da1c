// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/faults"
	"github.com/once-lambda/once/internal/kit"
)

// sound are stores that satisfy the contract.
var sound = map[string]Fixture{
	"memstore":   {Open: func(testing.TB) driver.Store { return memstore.New() }},
	"shelf":      broken{}.fixture(),
	"chunkShelf": broken{chunks: func(*chunkShelf) {}}.fixture(),
	"listShelf":  broken{lists: shared}.fixture(),
	"abandoned":  broken{running: func(s *abandonedShelf) { shared(s.listShelf) }}.fixture(),
}

// shared adds records of others to a store. One of them cannot be read.
func shared(s *listShelf) {
	for i := range 4 {
		r := fullRecord()
		r.State, r.Exhausted, r.Due = driver.StateUnknown, i == 3, time.UnixMilli(1).UTC()
		s.records[s.name(r.ID)], s.damaged[r.ID] = &r, i == 2
	}
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
						if text := strings.Join(found, "; "); text == "" || !regexp.MustCompile(b.says).MatchString(text) {
							t.Errorf("%s does not fail with %q", name, b.says)
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

// The suites report what fails, and how to repeat it. Each runs in a separate process,
// which is this test again.
func TestSuitesFailATest(t *testing.T) {
	const variable = "SUITE_IN_A_TEST"
	const calm, row = "FM18_ShortRetentionIsHonoured", "FM14_LateOwnerCompletesUnknown" // no request meets a running one
	forgets := broken{chunks: func(s *chunkShelf) {
		s.stands = func(put) bool { return false }
		s.missing = func() error { return nil }
	}}
	reruns := brokenGuards[slices.IndexFunc(brokenGuards, func(b broken) bool { return b.name == "Every operation runs again" })]
	modes := func(f Fixture, seeds int) func(*testing.T) {
		return func(t *testing.T) { RunFailureModes(t, f, func(o *FailureModesOptions) { o.Seeds = seeds }) }
	}
	for name, suite := range map[string]struct {
		run        func(*testing.T)
		rows       string
		alone      string // the seed to run
		want, none []string
	}{
		"RunStore": {
			run:  func(t *testing.T) { RunStore(t, forgets.fixture()) },
			rows: "InsertRefuses|ChunkMissing|ListsStop",
			want: []string{"=== PAUSE TestSuitesFailATest/InsertRefuses\n", "the rule: Insert writes nothing over a record", "the rule: GetChunks returns ErrNoRecord"},
			none: []string{"ListsStop"},
		},
		"a broken guard": {
			run: modes(reruns.fixture(), 1), rows: "FM11_CrashAfterTheClaim",
			want: []string{"=== PAUSE TestSuitesFailATest/FM11_CrashAfterTheClaim\n", "failuremodes_claim.go:"},
			none: []string{"FM11_CrashAfterTheClaim/Store"},
		},
		"no faults": {run: modes(overHTTP(sanguine), 0), rows: row, none: []string{"FAIL", row + "/"}},
		"no seed":   {run: modes(sound["memstore"], 1), alone: "one", want: []string{"invalid IDEMPOTENTTEST_SEED"}},
		"too few runs": {
			run: modes(sound["memstore"], enough-1), rows: calm + "|" + row,
			want: []string{"Store, all rows: 199 runs", row + "/Store"},
			none: []string{"FAIL", "Wire", calm + "/Store"},
		},
		"runs that cover too little": {
			run: modes(sound["memstore"], enough), rows: row,
			want: []string{"Store, all rows: 200 runs", "of 200 runs only 0 refused a request while another one ran"},
		},
		"a client that is broken under faults": {
			run: modes(overHTTP(sanguine), enough/2), rows: "FM47_WebhookBeforeTheOwner_SameResult",
			want: []string{"under the faults of seed 1", "(alone: IDEMPOTENTTEST_SEED=1", "/^FM47_WebhookBeforeTheOwner_SameResult$/^Wire$'): INV-3"},
		},
		"a client that is broken": {
			run: modes(overHTTP(func(_ context.Context, c *StoreCall) { c.Err = errors.New("no table") }), 1), rows: row,
			want: []string{"without faults: failuremodes_outcome.go:"},
			none: []string{"under the faults"},
		},
	} {
		if os.Getenv(variable) == name {
			suite.run(t)
		}
		if os.Getenv(variable) != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test := exec.Command(os.Args[0], "-test.run=^TestSuitesFailATest$/^("+suite.rows+")$", "-test.v")
			test.Env = append(os.Environ(), variable+"="+name, seedVariable+"="+suite.alone)
			out, err := test.CombinedOutput()
			if fails := !slices.Contains(suite.none, "FAIL"); fails != (err != nil) {
				t.Errorf("it ends with %v, and has to fail: %t", err, fails)
			}
			for _, text := range suite.want {
				if !strings.Contains(string(out), text) {
					t.Errorf("%q is missing", text)
				}
			}
			for _, text := range suite.none {
				if strings.Contains(string(out), text) {
					t.Errorf("%q is there", text)
				}
			}
			if t.Failed() {
				t.Logf("%s", out)
			}
		})
	}
}

// overHTTP is a store in memory whose client sends a request before each call.
func overHTTP(client func(context.Context, *StoreCall)) Fixture {
	var stores sync.Map
	return Fixture{
		Open: func(t testing.TB) driver.Store {
			s := memstore.New()
			stores.Store(t, s)
			return s
		},
		Wire: func(t testing.TB, transport http.RoundTripper) driver.Store {
			server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			t.Cleanup(server.Close)
			s, _ := stores.Load(t)
			return Intercept(Intercept(s.(driver.Store), func(ctx context.Context, c *StoreCall) {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := transport.RoundTrip(req)
				if err == nil {
					err = errors.Join(resp.Body.Close(), map[bool]error{false: faults.ErrInjected}[resp.StatusCode == http.StatusOK])
				}
				if c.Err = err; err == nil {
					c.Do(ctx)
				}
			}), client)
		},
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
				synctest.Test(t, func(t *testing.T) {
					found := row.alone(t, broken{guard: &mutation{options: s.Option}}.fixture())
					if longer := row.name == "FM34_ResultOf4KB"; longer != (len(found) > 0) {
						t.Errorf("it fails: %s", strings.Join(found, "; "))
					}
				})
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

// The lists of a store may show a write late: the suite waits for them.
func TestLateListsAreSound(t *testing.T) {
	t.Parallel()
	const lag = time.Minute
	late := broken{lists: func(s *listShelf) {
		written := map[idempotent.RecordID]time.Time{}
		s.write = func(p put) *driver.Record {
			written[p.r.ID] = time.Now()
			return p.r.Clone()
		}
		shown := func(also func(*driver.Record) bool) func(*driver.Record) bool {
			return func(r *driver.Record) bool { return also(r) && time.Since(written[r.ID]) >= lag }
		}
		s.due, s.given = shown(s.due), shown(s.given)
	}}.fixture()
	row := scenarios[slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == "FM11_KilledAtItsDeadline" })]
	for _, late.ListLag = range []time.Duration{0, lag} {
		synctest.Test(t, func(t *testing.T) {
			failures := slices.Concat(failing(late), row.alone(t, late))
			if waits := late.ListLag == lag; waits == (len(failures) > 0) {
				t.Errorf("it waits: %t, and fails: %q", waits, failures)
			}
			t.Log(failures)
		})
	}
}

// A store that repeats its writes itself passes the races.
func TestRepeatingStoreRaces(t *testing.T) {
	t.Parallel()
	repeating := Fixture{Open: func(testing.TB) driver.Store {
		return Intercept(newShelf(), func(ctx context.Context, c *StoreCall) {
			c.Do(ctx)
			c.Do(ctx)
		})
	}}
	if failures := failing(repeating, "OneInserterWins"); len(failures) > 0 {
		t.Errorf("it fails: %q", failures)
	}
}

// The requests of a race meet at the store, however slow some of them are.
func TestRacersMeetAtTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var n time.Duration
		inserts := map[time.Time]int{}
		l := newLab(t, Fixture{
			Open: func(testing.TB) driver.Store {
				return Intercept(newShelf(), func(ctx context.Context, c *StoreCall) {
					mu.Lock()
					if c.Op == driver.OpInsert {
						inserts[time.Now()]++
					}
					mu.Unlock()
					c.Do(ctx)
				})
			},
			mutation: mutation{calls: func(func() time.Time) func(context.Context, *StoreCall) {
				return func(ctx context.Context, c *StoreCall) {
					mu.Lock()
					n++
					pause := n
					mu.Unlock()
					time.Sleep(pause)
					c.Do(ctx)
				}
			}},
		})
		l.race(driver.OpInsert)
		if len(inserts) != 1 {
			t.Errorf("inserts at %v", inserts)
		}
	})
}
