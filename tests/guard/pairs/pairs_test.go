// SPDX-License-Identifier: Apache-2.0

// Package pairs tries every pair of two settings together: of a guard, an operation, a
// store, HTTP and batches. A row has a value for each setting, and each pair of values is in
// a row. idempotenttest.Explore crashes the handler of the row: it sees first requests,
// retries, kills, late processes, evidence and other requests with the key. A life goes on
// until the record has expired, and can be on a real engine.
//
//	pairs_test.go     each row is explored, and lives
//	life_test.go      what a key goes through
//	handler_test.go   the handler of a row
//	fronts_test.go    what is in front of it
//	settings_test.go  the settings, which do not go together, what a row promises, and
//	                  rows that have every pair
package pairs

import (
	crand "crypto/rand"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/internal/tabledef"
)

var (
	seed      = flag.Uint64("seed", 1, "for the rows")
	schedules = flag.Int("schedules", 20, "of each row")
	alone     = flag.Bool("alone", false, "one unusual value in each row, not each pair of values")
	lives     = flag.Int("lives", 30, "on DynamoDB Local; 0: all")
)

func rowsOf() []row {
	if *alone {
		return singles(settings, together)
	}
	return cover(settings, together, *seed)
}

// Each pair of settings keeps what the row promises.
func TestPairs(t *testing.T) {
	rows := rowsOf()
	missing := map[pair]bool{}
	for _, p := range pairsOf(settings, together) {
		missing[p] = true
	}
	t.Logf("%d rows have %d pairs", len(rows), len(missing))
	for i, r := range rows {
		for _, p := range r.pairs(settings) {
			if delete(missing, p); !together(p) {
				t.Errorf("row %d has %v, which do not go together", i, p)
			}
		}
		t.Run(fmt.Sprint(i, " ", r.String(settings)), func(t *testing.T) {
			idempotenttest.Explore(t, r.explore, func(o *idempotenttest.ExploreOptions) { o.Schedules = *schedules })
		})
	}
	if len(missing) > 0 && !*alone {
		t.Errorf("no row has %v", missing)
	}
}

// Whatever happens to its first process, a key keeps the promise of its row until its record
// has expired.
func TestLives(t *testing.T) {
	all := allLives(t)
	t.Logf("%d lives in memory", len(all))
	for _, l := range all {
		play(t, l, nil)
	}
	met.Least(t, len(all)/20, factCorrected, factMarked, factShadow)
}

// The same on DynamoDB Local, for a sample.
func TestLivesOnDynamoDBLocal(t *testing.T) {
	endpoint, stop, err := engine.DynamoDBLocal()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	client := dynamostore.NewClient(engine.Config(endpoint))
	all := slices.DeleteFunc(allLives(t), func(l oneLife) bool { return l.row["store"] == "memory" })
	rand.New(rand.NewPCG(*seed, 2)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if *lives > 0 {
		all = all[:min(*lives, len(all))]
	}
	t.Logf("%d lives on DynamoDB Local", len(all))
	for _, l := range all {
		play(t, l, client)
	}
}

// oneLife is a row and what happens to its first process.
type oneLife struct {
	row row
	mark
}

// allLives returns every harm at every call of every row.
func allLives(t *testing.T) (all []oneLife) {
	for _, r := range rowsOf() {
		calls := play(t, oneLife{row: r}, nil)
		for n := range calls {
			for _, h := range []harm{killedBefore, killedAfter, late, refused, lost} {
				all = append(all, oneLife{r, mark{h, n + 1}})
			}
		}
	}
	return all
}

// play plays a life on a client, or in memory with nil, and returns the number of calls of
// its first process.
func play(t *testing.T, one oneLife, client dynamostore.Client) (calls int) {
	t.Helper()
	name := "once-" + crand.Text()
	switch {
	case one.row["store"] == "memory":
	case client == nil:
		client = dynamotest.New(name, name+"-orders", name+"-chunks")
	default:
		create(t, client, name)
	}
	l, err := one.row.newLife(client, name)
	if err == nil {
		calls, err = l.run(t.Context(), one.mark)
	}
	if err != nil {
		t.Errorf("%s: %s: %v", one.row.String(settings), one.mark, err)
	}
	return calls
}

// create creates the tables of a life.
func create(t *testing.T, client dynamostore.Client, name string) {
	t.Helper()
	store, err := dynamostore.New(client, name)
	if err == nil {
		err = store.CreateTable(t.Context())
	}
	for _, table := range []string{name + "-orders", name + "-chunks"} {
		if err == nil {
			err = engine.CreateTable(t.Context(), client, table, tabledef.PartitionKey)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
