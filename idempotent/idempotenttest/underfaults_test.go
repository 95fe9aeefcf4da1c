// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/faults"
	"github.com/once-lambda/once/internal/kit"
)

// INV-1, INV-2, INV-3, INV-4, INV-5, INV-6, INV-8, INV-10, INV-12: every row
// satisfies them, whatever its subject and whatever fails in it.
func TestFailureModesUnderFaults(t *testing.T) {
	t.Parallel()
	for name, seeds := range map[string]int{"memstore": kit.Short(150, 15), "chunkShelf": kit.Short(30, 3)} {
		t.Run(name, func(t *testing.T) {
			RunFailureModes(t, sound[name], func(o *FailureModesOptions) { o.Seeds = seeds })
		})
	}
}

// Below a client that recovers from most faults, most rows behave as without
// faults.
func TestFailureModesOverAFaultyWire(t *testing.T) {
	t.Parallel()
	k := wireFaults
	k.line = func(_ testing.TB, _ Fixture, s driver.Store, in *faults.Injector) driver.Store {
		return Intercept(faulty(s, in), persistent)
	}
	total, seeds := newTally(), []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}[:kit.Short(10, 1)]
	t.Cleanup(func() {
		t.Logf("all rows: %s", total)
		total.check(t, k.faults)
		if 10*total.scripted < 8*total.runs {
			t.Errorf("of %d runs only %d went on as without faults", total.runs, total.scripted)
		}
	})
	for _, s := range scenarios {
		if p := promiseOf(s.name); p.calm || p.cost >= large {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			total.add(s.underFaults(t, sound["chunkShelf"], seeds, k))
		})
	}
}

func scenarioNamed(t *testing.T, name string) scenario {
	t.Helper()
	i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
	if i < 0 {
		t.Fatalf("there is no row %s", name)
	}
	return scenarios[i]
}

// sanguine is a client that assumes that every insert succeeded.
func sanguine(ctx context.Context, c *StoreCall) {
	if c.Do(ctx); c.Op == driver.OpInsert && errors.Is(c.Err, faults.ErrInjected) {
		c.Current, c.Err = nil, nil
	}
}

// doubting is a client that fails on a repeated insert.
func doubting(ctx context.Context, c *StoreCall) {
	if c.Do(ctx); c.Op == driver.OpInsert && c.Current != nil && c.Current.Version == c.Record.Version {
		c.Err = errors.New("the write already exists")
	}
}

// A client that is wrong only under faults fails only under faults.
func TestFaultsNoticeWhatRowsDoNot(t *testing.T) {
	t.Parallel()
	for _, broken := range []struct {
		name string
		line func(context.Context, *StoreCall)
		row  string
		what string
	}{
		{"lost writes are taken as successful", sanguine, "FM47_WebhookBeforeTheOwner_SameResult", "INV-3: a request got a result as stored"},
		{"a repeated write is an error", doubting, "FM07_OtherRequestAfterCompletion", "the write already exists"},
	} {
		t.Run(broken.name, func(t *testing.T) {
			t.Parallel()
			k := storeFaults
			k.line = func(_ testing.TB, _ Fixture, s driver.Store, in *faults.Injector) driver.Store {
				return Intercept(faulty(s, in), broken.line)
			}
			f := Fixture{Open: func(testing.TB) driver.Store { return memstore.New() }}
			row := scenarioNamed(t, broken.row)
			if calm := row.trial(t, f, k, nil, 0); len(calm.broken) > 0 {
				t.Errorf("without faults: %q", calm.broken)
			}
			noticed := map[string]int{}
			for seed := range uint64(100) {
				for _, what := range row.trial(t, f, k, k.schedule(row.name, seed, 3), seed).broken {
					noticed[what]++
				}
			}
			t.Log(noticed)
			if !strings.Contains(fmt.Sprint(noticed), broken.what) {
				t.Errorf("the failure was not noticed under faults: %v", noticed)
			}
		})
	}
}

// A seed repeats exactly: the same faults, and the same result.
func TestSeedsAreRepeated(t *testing.T) {
	t.Parallel()
	row := scenarioNamed(t, "FM46_TwoReconcilers_NothingThenResult")
	tell := func(seed uint64) string {
		trial := row.trial(t, sound["chunkShelf"], storeFaults, storeFaults.schedule(row.name, seed, 10), seed)
		return fmt.Sprint(trial.weather.Injected(), trial.scripted, len(trial.history.writes), trial.events.Kinds())
	}
	differ := 0
	for seed := range uint64(20) {
		first, second := tell(seed), tell(seed)
		if first != second {
			t.Errorf("seed %d: first %s and then %s", seed, first, second)
		}
		if first != tell(seed+1) {
			differ++
		}
	}
	if differ < 15 {
		t.Errorf("only %d of 20 seeds differ from the next", differ)
	}
}

func TestSeedsOf(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		alone string
		asked int
		want  []uint64
	}{
		{"", 0, nil},
		{"", 3, []uint64{0, 1, 2}},
		{"17", 3, []uint64{17}},
		{"17", 0, nil}, // another test is to run that seed
	} {
		got, err := seedsOf(row.alone, []func(*FailureModesOptions){func(o *FailureModesOptions) { o.Seeds = row.asked }})
		if err != nil || !slices.Equal(got, row.want) {
			t.Errorf("%q: %d seeds are %v, with error %v, want %v", row.alone, row.asked, got, err, row.want)
		}
	}
	if _, err := seedsOf("none", []func(*FailureModesOptions){func(o *FailureModesOptions) { o.Seeds = 1 }}); err == nil || !strings.Contains(err.Error(), seedVariable) {
		t.Errorf("got error %v, want one that names %s", err, seedVariable)
	}
}

func TestRepeat(t *testing.T) {
	t.Parallel()
	want := "IDEMPOTENTTEST_SEED=17 go test -run '^TestX$/^FM01_InsertReplyLost$/^Store$'"
	if got := repeat("TestX/FM01_InsertReplyLost/Store", 17); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The table of promises names only existing rows.
func TestPromisesAreOfRows(t *testing.T) {
	t.Parallel()
	for name := range promises {
		scenarioNamed(t, name)
	}
}

// persistent is a client that sends a call again that failed with a fault, up to six
// times.
func persistent(ctx context.Context, c *StoreCall) {
	for range 6 {
		if c.Do(ctx); !errors.Is(c.Err, faults.ErrInjected) {
			break
		}
	}
}

// A failure of the run itself is reported with the run, and ends nothing else.
func TestTrialsTellEverything(t *testing.T) {
	t.Parallel()
	works := sound["memstore"]
	for name, row := range map[string]struct {
		fixture Fixture
		run     func(*lab)
		want    string
	}{
		"panic":   {works, func(*lab) { panic("boom") }, "panic: boom"},
		"failure": {works, func(l *lab) { l.Fatal("not", "so") }, "not so"},
		"Open":    {Fixture{Open: func(t testing.TB) driver.Store { t.Fatalf("no %s", "table"); return nil }}, func(*lab) {}, "no table"},
		"effects": {works, func(l *lab) { l.effects.Add(2) }, "the provider saw 3 effects, and 1 are allowed"},
		"a late wrong result": {works, func(l *lab) {
			out, err := l.worker().do(l.charge("ch_a"))
			l.must(err)
			l.history.answered(l.history.asks(&l.worker().process, l.key), idempotent.Outcome[string]{Value: out.Value + "!", Replayed: true}, nil)
		}, "INV-3"},
	} {
		trial := scenario{name, row.run}.trial(t, row.fixture, storeFaults, nil, 0)
		c := &complaints{TB: t}
		trial.report(c, "seed 17")
		if got := strings.Join(c.of, "; "); !strings.HasPrefix(got, "seed 17: ") || !strings.Contains(got, row.want) {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
		newTally().count(trial)
	}
}

// complaints collects the failures that a test would report.
type complaints struct {
	testing.TB
	of []string
}

func (c *complaints) Helper() {}
func (c *complaints) Errorf(format string, args ...any) {
	c.of = append(c.of, fmt.Sprintf(format, args...))
}

// INV-14: a run without any fault tests nothing, and fails.
func TestVacuousRunsFail(t *testing.T) {
	t.Parallel()
	full := tally{runs: 1000, struck: 1000, felt: 700, scripted: 300, entered: 900, replayed: 900, refused: 900, met: 900,
		faults: map[faults.Fault]int{faults.LostReply: 10}}
	for name, row := range map[string]struct {
		spoil func(*tally)
		want  string
	}{
		"everything covered":              {func(*tally) {}, ""},
		"a fault is missing":              {func(n *tally) { n.faults = nil }, "lost reply never happened"},
		"few runs were hit":               {func(n *tally) { n.struck = 800 }, "only 800 met one"},
		"no fault was felt":               {func(n *tally) { n.felt = 0 }, "only 0 felt"},
		"every fault was felt":            {func(n *tally) { n.felt = 1000 }, "only 0 did not feel"},
		"no run was as without faults":    {func(n *tally) { n.scripted = 0 }, "only 0 went on as without"},
		"every run was as without faults": {func(n *tally) { n.scripted = 1000 }, "only 0 went on otherwise"},
		"nothing executed":                {func(n *tally) { n.entered = 0 }, "only 0 executed"},
		"nothing replayed":                {func(n *tally) { n.replayed = 0 }, "only 0 replayed"},
		"nothing refused":                 {func(n *tally) { n.refused = 0 }, "only 0 refused"},
		"no overlapping requests":         {func(n *tally) { n.met = 0 }, "only 0 refused a request while another one ran"},
	} {
		n, c := newTally(), &complaints{TB: t}
		n.add(&full)
		row.spoil(n)
		n.check(c, []faults.Fault{faults.LostReply})
		if got := strings.Join(c.of, "; "); row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
	}
}
