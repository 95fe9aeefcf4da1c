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
		if as := total.of["went on as without faults"]; 10*as < 8*total.runs {
			t.Errorf("of %d runs only %d went on as without faults", total.runs, as)
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
	works, replayed := sound["memstore"], 0
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
		"a key that does not recover": {works, func(l *lab) {
			l.weather.felt.Store(true) // excuses nothing after the scenario
			l.line = Intercept(l.line, func(_ context.Context, c *StoreCall) { c.Err = errors.New("no table") })
		}, "a request got error"},
		"a key that is always busy": {Fixture{Open: works.Open, mutation: mutation{answer: func(_ *idempotent.Outcome[string], err *error) {
			*err = new(idempotent.InProgressError)
		}}}, func(*lab) {}, "the key does not recover"},
		"evidence that is not stored": {works, func(l *lab) {
			l.crashAfterEffect()
			l.line = Intercept(l.line, func(ctx context.Context, c *StoreCall) {
				if c.Record.Reason == driver.ReasonResolved {
					c.Err = errors.New("no space")
					return
				}
				c.Do(ctx)
			})
		}, "no space"},
		"an outcome that is not replayed": {Fixture{Open: works.Open, mutation: *replays(func(_ *idempotent.Outcome[string], err *error) {
			*err = errWrong
		})}, func(*lab) {}, "want the replay of"},
		"a Final error that is replayed once": {Fixture{Open: works.Open, mutation: *replays(func(_ *idempotent.Outcome[string], err *error) {
			if replayed++; replayed > 1 {
				*err = errWrong
			}
		})}, func(l *lab) {
			_, _ = l.worker().do(func(context.Context) (string, error) { return "", idempotent.Final("declined", "no funds") })
		}, "error refused; want"},
		"a panic in doubt that runs again": {Fixture{Open: works.Open, mutation: *writes(func(r *driver.Record) {
			if r.Reason == driver.ReasonUnknown {
				r.State, r.Reason = driver.StateRetryable, driver.ReasonPanic
			}
		})}, func(l *lab) {
			l.panics(func(context.Context) (string, error) { panic(idempotent.Unknown(errNoReply)) }, rerun)
		}, "INV-2"},
		"calls past the transport": {works, func(l *lab) { l.line = l.store }, "no call of the store passed through the transport"},
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
	for name, row := range map[string]struct {
		spoil func(*tally)
		want  string
	}{
		"everything covered":              {func(*tally) {}, ""},
		"a fault is missing":              {func(n *tally) { n.faults = nil }, "lost reply never happened in 1000 runs"},
		"few runs were hit":               {func(n *tally) { n.struck-- }, "faults were planned in 1000 runs, and only 899 met one"},
		"no fault was felt":               {lacks("felt a fault"), "only 19 felt a fault"},
		"every fault was felt":            {lacks("did not feel theirs"), "only 19 did not feel theirs"},
		"no run was as without faults":    {lacks("went on as without faults"), "only 19 went on as without faults"},
		"every run was as without faults": {lacks("went on otherwise"), "only 19 went on otherwise"},
		"nothing executed":                {lacks("executed a request"), "only 19 executed a request"},
		"nothing replayed":                {lacks("replayed an outcome"), "only 19 replayed an outcome"},
		"nothing refused":                 {lacks("refused a request"), "only 19 refused a request"},
		"no overlapping requests":         {lacks("refused a request while another one ran"), "only 19 refused a request while another one ran"},
	} {
		n, c := newTally(), &complaints{TB: t}
		full := &tally{runs: 500, struck: 450, faults: map[faults.Fault]int{faults.LostReply: 1}, of: map[string]int{}}
		for _, what := range covered {
			full.of[what] = 10
		}
		n.add(full)
		n.add(full)
		row.spoil(n)
		n.check(c, []faults.Fault{faults.LostReply})
		if got := strings.Join(c.of, "; "); row.want == "" && got != "" || !strings.HasSuffix(got, row.want) {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
	}
}

func lacks(what string) func(*tally) { return func(n *tally) { n.of[what]-- } }

// A tally counts a run and its requests.
func TestRunsAreCounted(t *testing.T) {
	t.Parallel()
	row := scenario{"", func(l *lab) {
		_, err := l.worker().do(func(ctx context.Context) (string, error) {
			l.worker().wantRefused(new(idempotent.InProgressError))
			return l.charge("ch_1")(ctx)
		})
		l.must(err)
	}}
	for fault, want := range map[faults.Fault]string{ // the numbers are in the order of covered
		faults.NoFault:   "2 runs, 0 struck, map[]: [0 0 2 0 2 4 2 2]",
		faults.Repeated:  "2 runs, 2 struck, map[repeated:2]: [0 2 2 0 2 4 2 2]",
		faults.LostReply: "2 runs, 2 struck, map[lost reply:2]: [2 0 0 2 2 2 2 0]",
	} {
		n, of := newTally(), []int{}
		for range 2 {
			n.count(row.trial(t, sound["memstore"], storeFaults, faults.On("", fault, 1), 0))
		}
		for _, what := range covered {
			of = append(of, n.of[what])
		}
		if got := fmt.Sprintf("%d runs, %d struck, %v: %v", n.runs, n.struck, n.faults, of); got != want {
			t.Errorf("%s: got %s, want %s", fault, got, want)
		}
	}
}

// A row runs with all seeds, or with a few of them if it is expensive.
func TestExpensiveRowsRunLess(t *testing.T) {
	t.Parallel()
	for row, want := range map[string]int{"FM01_InsertReplyLost": 7, "FM35_PiecesOutliveTheRecord": 2, "FM05_SimultaneousRequests": 1, "FM16_NoTimeAtEntry": 0} {
		if got := scenarioNamed(t, row).underFaults(t, sound["chunkShelf"], make([]uint64, 7), storeFaults).runs; got != want {
			t.Errorf("%s: %d runs, want %d", row, got, want)
		}
	}
}
