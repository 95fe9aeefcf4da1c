package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/idempotent"
)

// worldwide simulates a global table with eventual consistency: one table for each
// region, and the test replicates between them.
type worldwide struct {
	t       *testing.T
	db      database
	tables  []string
	guards  []*idempotent.Guard
	effects map[string]int // by key
}

func newWorldwide(t *testing.T, db database, regions int) *worldwide {
	t.Helper()
	w := &worldwide{t: t, db: db, effects: map[string]int{}}
	for range regions {
		store, table := newTable(t, db)
		if err := store.CreateTable(t.Context()); err != nil {
			t.Fatal(err)
		}
		guard, err := idempotent.New(store)
		if err != nil {
			t.Fatal(err)
		}
		w.tables, w.guards = append(w.tables, table), append(w.guards, guard)
	}
	return w
}

// request sends a request for a key to a region. Its handler returns the effect
// that it had.
func (w *worldwide) request(region int, k idempotent.Key) (string, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	return idempotent.Do(ctx, w.guards[region], k, func(context.Context) (string, error) {
		w.effects[k.ID]++
		return fmt.Sprintf("effect %d, region %d", w.effects[k.ID], region), nil
	})
}

// replicate copies what was written in a region to another. Of two writes of a
// record the last one wins, which here is the one of the source region.
func (w *worldwide) replicate(from, to int) {
	w.t.Helper()
	page, err := w.db.client().Scan(w.t.Context(), &dynamodb.ScanInput{TableName: &w.tables[from]})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(page.Items) == 0 || page.LastEvaluatedKey != nil {
		w.t.Fatalf("%d records to replicate, and more: %v", len(page.Items), page.LastEvaluatedKey != nil)
	}
	for _, item := range page.Items {
		if _, err := w.db.client().PutItem(w.t.Context(), &dynamodb.PutItemInput{TableName: &w.tables[to], Item: item}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// If two regions get the same key before replication, both run it, and one of the
// two outcomes is lost.
func TestFM49_TwoRegionsWinOneKey(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		w, k := newWorldwide(t, db, 2), newKey()
		first, err1 := w.request(0, k)
		second, err2 := w.request(1, k)
		if err1 != nil || err2 != nil || w.effects[k.ID] != 2 || first == second {
			t.Fatalf("%q (%v) and %q (%v) after %d effects, want two effects", first, err1, second, err2, w.effects[k.ID])
		}
		w.replicate(1, 0)
		again, err := w.request(0, k)
		if err != nil || again != second || w.effects[k.ID] != 2 {
			t.Errorf("the first region's client gets %q (%v), want the outcome of the second region: %q", again, err, second)
		}
	})
}

// After the record was replicated, the other region replays its outcome, and
// refuses while it is in progress.
func TestFM49_TheOtherRegionKnowsLater(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		w, k := newWorldwide(t, db, 2), newKey()
		_, err := idempotent.Do(t.Context(), w.guards[0], k, func(context.Context) (string, error) {
			w.replicate(0, 1)
			if _, err := w.request(1, k); !errors.As(err, new(*idempotent.InProgressError)) {
				t.Errorf("while the first region runs it, the second one returns %v", err)
			}
			w.effects[k.ID]++
			return "the effect", nil
		})
		if err != nil {
			t.Fatal(err)
		}
		w.replicate(0, 1)
		if got, err := w.request(1, k); err != nil || got != "the effect" || w.effects[k.ID] != 1 {
			t.Errorf("the second region returns %q (%v) after %d effects, want the replay", got, err, w.effects[k.ID])
		}
	})
}

// After a failover, the other region has no copy of the record yet and runs the
// request again. The provider gets the same downstream key.
func TestFM49_FailoverKeepsTheDownstreamKey(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		w, k := newWorldwide(t, db, 2), newKey()
		calls, charges := 0, map[string]string{} // at the provider, by downstream key
		for region, guard := range w.guards {
			got, err := idempotent.Do(t.Context(), guard, k, func(ctx context.Context) (string, error) {
				calls++
				key := idempotent.DownstreamKey(ctx)
				if charges[key] == "" {
					charges[key] = fmt.Sprintf("charged in region %d", region)
				}
				return charges[key], nil
			})
			if err != nil || got != "charged in region 0" {
				t.Errorf("region %d: got %q, %v", region, got, err)
			}
		}
		if calls != 2 || len(charges) != 1 {
			t.Errorf("%d calls at the provider and charges %v, want two calls and one charge", calls, charges)
		}
	})
}
