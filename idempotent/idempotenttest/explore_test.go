// SPDX-License-Identifier: Apache-2.0

package idempotenttest_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
)

var (
	updateStories = flag.Bool("update", false, "write the stories in testdata/stories")
	schedules     = flag.Int("schedules", 1000, "schedules of each right handler")
)

// Each mistake is found with few schedules, and its story names the rule.
func TestExploreFindsMistakes(t *testing.T) {
	for name, body := range wrong {
		t.Run(name, func(t *testing.T) {
			story, tried, _, _ := idempotenttest.Explored(t, body)
			file := filepath.Join("testdata", "stories", strings.ReplaceAll(name, " ", "-")+".txt")
			if *updateStories {
				if err := os.WriteFile(file, []byte(story+"\n"), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || story+"\n" != string(want) {
				t.Errorf("the story is\n%s\nwant\n%s%v", story, want, err)
			}
			if lines := strings.Count(story, "\n") + 1; tried > 40 || lines > 25 || strings.Contains(story, "no rule found") {
				t.Errorf("%d schedules, %d lines", tried, lines)
			}
		})
	}
}

// Right handlers pass, with the same stories on every run, and show what they have to
// show.
func TestExplore(t *testing.T) {
	for name, row := range right {
		t.Run(name, func(t *testing.T) {
			story, tried, _, facts := idempotenttest.Explored(t, row.body, func(o *idempotenttest.ExploreOptions) { o.Schedules = *schedules })
			if t.Logf("%d schedules: %v", tried, facts); story != "" || tried < 1000 {
				t.Error(story)
			}
			for _, fact := range row.facts {
				if facts[string(fact)] == 0 {
					t.Errorf("no schedule showed %q: %v", fact, facts)
				}
			}
			few := func(o *idempotenttest.ExploreOptions) { o.Schedules = 300 }
			_, _, hash, _ := idempotenttest.Explored(t, row.body, few)
			if _, _, again, _ := idempotenttest.Explored(t, row.body, few); again != hash {
				t.Error("another run has other stories")
			}
		})
	}
}

// Mistakes of a guard are found by the right handlers. An own write that is not recognized
// after a lost reply is not among them: the request then waits for the end of its own lease,
// and no promise is broken.
func TestExploreFindsBrokenGuards(t *testing.T) {
	for name, row := range map[string]struct {
		handler string
		mistake func(context.Context, *idempotenttest.StoreCall, driver.Store)
	}{
		"a completion without a fence": {"at most once under Reconcile", func(ctx context.Context, c *idempotenttest.StoreCall, s driver.Store) {
			if c.Op == driver.OpReplace {
				if now, err := s.Get(ctx, c.Record.ID); err == nil && now != nil {
					c.Was = now.Version
				}
			}
			c.Do(ctx)
		}},
		"no lease": {"a database", func(ctx context.Context, c *idempotenttest.StoreCall, _ driver.Store) {
			if c.Do(ctx); c.Current != nil {
				c.Current.LeaseEnd = time.Now()
			}
		}},
		"no fingerprint": {"another amount", func(ctx context.Context, c *idempotenttest.StoreCall, _ driver.Store) {
			if c.Do(ctx); c.Current != nil {
				c.Current.Fingerprint = c.Record.Fingerprint
			}
		}},
		"a foreign write that is taken for an own one": {"Rerun with a key", func(ctx context.Context, c *idempotenttest.StoreCall, _ driver.Store) {
			if c.Do(ctx); c.Op == driver.OpInsert && c.Current != nil && c.Current.State == driver.StateInProgress {
				c.Current = nil
			}
		}},
		"a takeover of an unknown record": {"at most once under Reconcile", func(ctx context.Context, c *idempotenttest.StoreCall, _ driver.Store) {
			if c.Do(ctx); c.Current != nil && c.Current.State == driver.StateUnknown {
				c.Current.State, c.Current.Reason = driver.StateRetryable, driver.ReasonNotExecuted
			}
		}},
		"a step that is not recorded": {"a step without keys", func(ctx context.Context, c *idempotenttest.StoreCall, _ driver.Store) {
			c.Record.Steps = nil
			c.Do(ctx)
		}},
		"a replay of another key": {"a batch of two", func(ctx context.Context, c *idempotenttest.StoreCall, _ driver.Store) {
			c.Record.ID = driver.RecordID(strings.Repeat("1", 43))
			c.Do(ctx)
		}},
		"a record that is swept early": {"at most once under Reconcile", func(ctx context.Context, c *idempotenttest.StoreCall, _ driver.Store) {
			c.Record.Expires = c.Record.LeaseEnd
			c.Do(ctx)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			story, tried, _, _ := idempotenttest.Explored(t, func(w *idempotenttest.World) {
				right[row.handler].body(w)
				idempotenttest.Break(w, row.mistake)
			})
			if t.Logf("%d schedules\n%s", tried, story); story == "" {
				t.Error("not found")
			}
		})
	}
}

// With processes that outlive their lease, "not found" does not prove that nothing can
// follow.
func TestExploreOutlives(t *testing.T) {
	story, _, _, _ := idempotenttest.Explored(t, func(w *idempotenttest.World) {
		handles(w, idempotent.Reconcile, &bank{noKeys: true}, true, refer)
		w.Reconciler(asks)
	}, func(o *idempotenttest.ExploreOptions) { o.Outlives = true })
	if !strings.Contains(story, "Answer ProvenNotExecuted only if nothing can follow") {
		t.Errorf("the story:\n%s", story)
	}
}
