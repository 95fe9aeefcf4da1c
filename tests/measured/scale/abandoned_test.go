// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/faults"
	"github.com/once-lambda/once/internal/kit"
)

// service is a function and its reconciler in a synctest bubble: real guards and
// stores over DynamoDB in memory.
type service struct {
	t        *testing.T
	db       *dynamotest.DB
	requests int
}

// request is what a process does with a request: it works for some time without a look
// at its context. Lambda kills it at its time-out.
type request struct {
	timeout, works time.Duration
	exits          time.Duration // when its process ends without a warning; 0: not
	err            error         // that it returns
}

var (
	killed   = request{timeout: 10 * time.Second, works: time.Minute}
	crashes  = request{timeout: 15 * time.Minute, works: time.Minute, exits: time.Second}
	returned = request{timeout: 10 * time.Second, works: time.Second}
	failed   = request{timeout: 10 * time.Second, works: time.Second, err: idempotent.NotExecuted(errors.New("no connection"))}
)

func (s *service) guard(client dynamostore.Client) (*dynamostore.Store, *idempotent.Guard) {
	store, err := dynamostore.New(client, "records")
	if err != nil {
		s.t.Fatal(err)
	}
	g, err := idempotent.New(store, func(o *idempotent.Options) { o.Recovery = idempotent.Reconcile })
	if err != nil {
		s.t.Fatal(err)
	}
	return store, g
}

// send sends a request to a new process.
func (s *service) send(r request) {
	s.requests++
	key := idempotent.Key{Operation: "charge", Scope: "acme", ID: fmt.Sprint(s.requests), Fingerprint: idempotent.FingerprintBytes(nil)}
	var dead atomic.Bool
	end := r.timeout
	if r.exits > 0 {
		end = r.exits
	}
	time.AfterFunc(end, func() { dead.Store(true) })
	_, g := s.guard(dynamotest.Intercept(s.db, func(ctx context.Context, c *dynamotest.Call) {
		if c.Err = faults.ErrInjected; !dead.Load() {
			c.Do(ctx)
		}
	}))
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
		defer cancel()
		idempotent.Do(ctx, g, key, func(context.Context) (string, error) {
			time.Sleep(r.works)
			return "ok", r.err
		})
	}()
}

// night is what a reconciler does that runs once a minute, until a time after the start.
type night struct {
	waited []time.Duration // from the end of each abandoned run's lease until the reconciler has found it
	ended  []time.Time     // the scans
}

// watch runs the reconciler. It calls meanwhile before each run, with the minute.
func (s *service) watch(until time.Duration, meanwhile func(minute int)) (n night) {
	store, g := s.guard(s.db)
	reconcile := idempotent.Reconciler(g, map[string]idempotent.ResolveFunc{
		"charge": func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
			return idempotent.Later(time.Hour), nil
		},
	})
	for minute := range int(until / time.Minute) {
		meanwhile(minute)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		report, err := reconcile(ctx)
		cancel()
		if err != nil {
			s.t.Fatal(report, err)
		}
		if e := report.Scan.Ended; len(n.ended) == 0 || e.After(n.ended[len(n.ended)-1]) {
			n.ended = append(n.ended, e)
		}
		time.Sleep(time.Minute - time.Since(time.Now().Truncate(time.Minute)))
	}
	for r, err := range store.Scan(context.Background()) {
		switch {
		case err != nil || r.State == driver.StateInProgress:
			s.t.Errorf("%s was not found: %v", r.ID, err)
		case r.State == driver.StateUnknown:
			n.waited = append(n.waited, r.Since.Sub(r.LeaseEnd))
		}
	}
	return n
}

// Abandoned runs are found within the times that docs/deploy.md promises. Each begins
// just after the end of a scan, which is the worst case.
func TestAbandonedRuns(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	each := func(first, last, every int, r request) func(*service, int) {
		return func(s *service, minute int) {
			if minute >= first && minute <= last && (minute-first)%every == 0 {
				s.send(r)
			}
		}
	}
	long := killed
	long.timeout, long.works = 15*time.Minute, 20*time.Minute
	var text strings.Builder
	text.WriteString("| what happens | abandoned runs | found after the end of the lease, at most |\n| --- | --: | --: |\n")
	for _, row := range []struct {
		name    string
		hours   int
		happens func(*service, int)
		found   int
		within  time.Duration
		scans   int // at most, after the one before
	}{
		{"one run is killed at its time-out of 10 s", 1, each(1, 1, 1, killed), 1, 2 * time.Minute, 0},
		{"one run is killed at its time-out of 15 min", 1, each(1, 1, 1, long), 1, 2 * time.Minute, 0},
		{"ten runs are killed in an hour", 2, each(1, 60, 6, killed), 10, 2 * time.Minute, 0},
		{"for three hours, each request is killed", 4, each(1, 180, 1, killed), 180, 2 * time.Minute, 0},
		{"for three hours, each handler returns an error in time", 4, each(1, 180, 1, failed), 0, 0, 0},
		{"a process ends without a warning, early in a time-out of 15 min", 25, each(1, 1, 1, crashes), 1, day, 1},
		{"the same, and an operator calls `once scan` after half an hour", 2, func(s *service, minute int) {
			each(1, 1, 1, crashes)(s, minute)
			if minute == 30 {
				store, _ := s.guard(s.db)
				if begins, err := store.BeginScan(context.Background(), time.Now()); !begins || err != nil {
					t.Errorf("the scan begins: %t, %v", begins, err)
				}
			}
		}, 1, 15 * time.Minute, 2},
		{"ten processes end without a warning in an hour", 25, each(1, 60, 6, crashes), 10, day, 1},
		{"one does each hour", 48, each(1, 46*60, 60, crashes), 46, day, 24},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &service{t: t, db: dynamotest.New("records")}
			n := s.watch(time.Duration(row.hours)*time.Hour, func(minute int) { row.happens(s, minute); each(0, 1<<30, 60, returned)(s, minute) })
			longest := time.Duration(0)
			for _, waited := range n.waited {
				longest = max(longest, waited)
			}
			if len(n.waited) != row.found || longest > row.within || len(n.ended)-1 > row.scans {
				t.Errorf("%s: %d runs were found within %s, in %d scans; want %d within %s, in at most %d", row.name, len(n.waited), longest, len(n.ended)-1, row.found, row.within, row.scans)
			}
			words := "–"
			if row.found > 0 {
				words = fmt.Sprintf("%.0f min", longest.Minutes())
			}
			fmt.Fprintf(&text, "| %s | %d | %s |\n", row.name, row.found, words)
		})
	}
	kit.Part(t, "../../../docs/reports/scale.md", "abandoned", text.String(), *update)
}
