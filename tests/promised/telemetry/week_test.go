// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
)

// A week of 100,000 payments in shadow mode, of which 0.1 % are sent again after they have
// succeeded, 0.01 % are killed after their effect and sent again, and 1 % use the key of an
// earlier one for another amount: the queries of docs/adopt.md print what happened.
func TestShadowWeek(t *testing.T) {
	t.Parallel()
	const payments = 100_000
	var clock idempotenttest.Clock
	var log bytes.Buffer
	store, random := memstore.New(), rand.New(rand.NewPCG(7, 0))
	killed := false
	guard, err := idempotent.New(idempotenttest.Intercept(store, func(ctx context.Context, c *idempotenttest.StoreCall) {
		if killed && c.Op != driver.OpInsert {
			c.Err = errors.New("the process is dead")
			return
		}
		c.Do(ctx)
	}), func(o *idempotent.Options) {
		o.Shadow, o.Now, o.Retention = true, clock.Now, 14*24*time.Hour
		o.Logger = slog.New(slog.DiscardHandler)
		lines := event.LogObserver(slog.New(slog.NewJSONHandler(&log, nil)))
		o.Observer = event.ObserverFunc(func(ctx context.Context, e event.Event) {
			if !killed { // nor does a dead process print
				lines.Observe(ctx, e)
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	effects := map[string]int{}
	pay := func(id, amount string) {
		key := idempotent.Key{Operation: "pay", Scope: idempotent.Global, ID: id, Fingerprint: idempotent.FingerprintBytes([]byte(amount))}
		if _, err := idempotent.Do(clock.Invocation(t.Context(), time.Minute), guard, key, func(context.Context) (string, error) {
			effects[id]++
			return fmt.Sprint(id, " charge ", effects[id]), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	again, changed, dead := 0, 0, 0
	for i := range payments {
		clock.Advance(7 * 24 * time.Hour / payments)
		id := fmt.Sprint(i)
		switch n := random.IntN(10_000); {
		case n < 100:
			changed++
			pay(id, "1")
			pay(id, "2")
		case n < 110:
			again++
			pay(id, "1")
			pay(id, "1")
		case n < 111:
			dead++
			killed = true
			pay(id, "1")
			killed = false
			clock.Advance(2 * time.Minute)
			pay(id, "1")
		default:
			pay(id, "1")
		}
	}
	page, err := os.ReadFile(filepath.Join(engine.Root(), "docs", "adopt.md"))
	if err != nil {
		t.Fatal(err)
	}
	queries := kit.Queries(string(page))
	if len(queries) != 2 {
		t.Fatalf("the page has %d queries", len(queries))
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	rows := strings.Join(kit.Insights(t, queries[0], lines), "\n")
	t.Logf("%d sent again, %d changed, %d killed:\n%s", again, changed, dead, rows)
	for kind, n := range map[string]int{"shadow_run": payments - dead, "shadow_differs": again, "shadow_mismatch": changed, "shadow_killed": dead} {
		if want := fmt.Sprintf("%d operation=pay event=%s", n, kind); n == 0 || !strings.Contains("\n"+rows+"\n", "\n"+want+"\n") {
			t.Errorf("the report has no row %q", want)
		}
	}
	if n := strings.Count(rows, "\n") + 1; n != 4 {
		t.Errorf("the report has %d rows, want 4", n)
	}
	if named := kit.Insights(t, queries[1], lines); len(named) != again {
		t.Errorf("%d keys are named, want %d", len(named), again)
	}
}
