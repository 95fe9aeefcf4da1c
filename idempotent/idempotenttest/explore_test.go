// SPDX-License-Identifier: Apache-2.0

package idempotenttest_test

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/internal/kit"
)

var (
	updateStories = flag.Bool("update", false, "write the stories in testdata/stories.txt")
	schedules     = flag.Int("schedules", 0, "schedules of each right handler; default: 1000, with -short 200")
)

// Each mistake is found with few schedules, and its story names the rule.
func TestExploreFindsMistakes(t *testing.T) {
	file := filepath.Join("testdata", "stories.txt")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all, shown := "", map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		t.Run(name, func(t *testing.T) {
			row := wrong[name]
			story, tried, _, _ := idempotenttest.Explored(t, row.body)
			rule, faults := faultsOf(story)
			part := "-- " + name + " --\n" + story + "\n"
			if all += part; !*updateStories && !strings.Contains("\n"+string(data)+"-- ", "\n"+part+"-- ") {
				t.Errorf("%s has another story than\n%s", file, part)
			}
			most := 40
			if strings.Contains(faults, ",") {
				most = 300
			}
			if lines := strings.Count(story, "\n") + 1; tried > most || lines > 25 || !strings.HasPrefix(rule, row.rule) || row.faults != "" && faults != row.faults {
				t.Errorf("%d schedules, %d lines, faults %q, rule %q, want %q and %q", tried, lines, faults, rule, row.faults, row.rule)
			}
			if other := shown[row.faults+row.rule]; row.faults != "" && other != "" {
				t.Errorf("%s has the same faults and rule", other)
			}
			shown[row.faults+row.rule] = name
			t.Logf("%d schedules, %s, %s", tried, faults, rule)
		})
	}
	if *updateStories { // all of them: without -run of one
		data = []byte(all)
		if err := os.WriteFile(file, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, rule := range idempotenttest.Rules() {
		if !strings.Contains(string(data), "\nRule: "+rule+"\n") {
			t.Errorf("no story shows the rule %q", rule)
		}
	}
	if n := strings.Count("\n"+string(data), "\n-- "); n != len(wrong) {
		t.Errorf("%s has %d stories, want %d", file, n, len(wrong))
	}
}

// faultsOf returns the rule of a story, and its faults without their points.
func faultsOf(story string) (rule, faults string) {
	_, rule, _ = strings.Cut(story, "\nRule: ")
	_, faults, _ = strings.Cut(rule, "ONCE_SCHEDULE='")
	faults, _, _ = strings.Cut(faults, "'")
	rule, _, _ = strings.Cut(rule, "\n")
	return rule, regexp.MustCompile(`\d+:`).ReplaceAllString(faults, "")
}

// Right handlers pass, with the same stories on every run, and show what they have to
// show.
func TestExplore(t *testing.T) {
	n := cmp.Or(*schedules, kit.Short(1000, 150))
	options := func(o *idempotenttest.ExploreOptions) { o.Schedules = n }
	for name, row := range right {
		t.Run(name, func(t *testing.T) {
			story, tried, hash, facts := idempotenttest.Explored(t, row.body, options)
			if t.Logf("%d schedules: %v", tried, facts); story != "" || tried < n*9/10 { // three faults need a point behind the second one
				t.Error(story)
			}
			for _, fact := range row.facts {
				if facts[string(fact)] == 0 {
					t.Errorf("no schedule showed %q: %v", fact, facts)
				}
			}
			for fact := range facts {
				if strings.Contains(fact, " ") && !slices.Contains(resembling[name], fact) {
					t.Errorf("it shows %q", fact)
				}
			}
			if _, _, again, _ := idempotenttest.Explored(t, row.body, options); again != hash && !races[name] {
				t.Error("another run has other stories")
			}
			_, _, one, calm := idempotenttest.Explored(t, row.body, func(o *idempotenttest.ExploreOptions) { o.Schedules = 1 })
			if one == hash {
				t.Error("one schedule has the hash of all stories")
			}
			if calm["an effect after the handler returned"] > 0 {
				t.Error("without a fault it shows an effect after the handler returned")
			}
		})
	}
}

// races are right handlers with goroutines that race for a lock: the handler's, or that of
// the guard, which writes one step at a time.
var races = map[string]bool{"two steps at once": true, "two steps at once without keys": true, "two steps that share a token": true}

// resembling are the facts of mistakes that right handlers show, too. A call that hangs until
// the end of its context can end after the handler.
var resembling = map[string][]string{
	"a client with a time-out": {"evidence of no execution"},
	"resolved under Reconcile": {"evidence of no execution"},
	"a batch of two":           {"an effect after the handler returned"},
	"a stream":                 {"an effect after the handler returned"},
	"a Commit":                 {"an effect after the handler returned"},
	"two tenants":              {"an effect repeated under another key", "an effect under another record"},
	"a cached token":           {"an effect repeated under another key", "an effect under another record", "NotExecuted after a request"},
	"a predecessor":            {"a key that counts as new after its record expired"},
	"at least once":            {"an effect repeated under one key"},
	"a mail at least once":     {"an effect repeated without a key"},
	"a charge that is voided if nothing was committed": {"an effect that was undone", "an effect after the handler returned", "NotExecuted after a request"},
	"NotExecuted without a connection":                 {"NotExecuted after a request"},
}

// All pairs of faults leave small right handlers right.
func TestExploreAllPairs(t *testing.T) {
	for _, name := range []string{
		"at most once under Reconcile", "Rerun with a key", "a mail at most once", "a prepared statement",
		"a database", "two goroutines", "a client with a time-out", "another amount",
	} {
		t.Run(name, func(t *testing.T) {
			all := idempotenttest.Possible(t, right[name].body)
			story, tried, _, _ := idempotenttest.Explored(t, right[name].body, func(o *idempotenttest.ExploreOptions) { o.Schedules = all*4/3 + 1 })
			if t.Logf("%d schedules, %d with two faults at most", tried, all); story != "" || tried < all {
				t.Error(story)
			}
		})
	}
}

// Mistakes of a guard are found by the right handlers. An own write that is not recognized
// after a lost reply is not among them: the request then waits for the end of its own lease,
// and no promise is broken.
func TestExploreFindsBrokenGuards(t *testing.T) {
	type mistake = func(context.Context, *idempotenttest.StoreCall, driver.Store)
	writes := func(change func(*driver.Record)) mistake {
		return func(ctx context.Context, c *idempotenttest.StoreCall, _ driver.Store) {
			change(&c.Record)
			c.Do(ctx)
		}
	}
	reads := func(change func(met *driver.Record, asked driver.Record)) mistake {
		return func(ctx context.Context, c *idempotenttest.StoreCall, _ driver.Store) {
			if c.Do(ctx); c.Current != nil {
				change(c.Current, c.Record)
			}
		}
	}
	for name, row := range map[string]struct {
		handler string
		mistake
	}{
		"a completion without a fence": {"at most once under Reconcile", func(ctx context.Context, c *idempotenttest.StoreCall, s driver.Store) {
			if c.Op == driver.OpReplace {
				if now, err := s.Get(ctx, c.Record.ID); err == nil && now != nil {
					c.Was = now.Version
				}
			}
			c.Do(ctx)
		}},
		"no lease":       {"a database", reads(func(met *driver.Record, _ driver.Record) { met.LeaseEnd = time.Now() })},
		"no fingerprint": {"another amount", reads(func(met *driver.Record, asked driver.Record) { met.Fingerprint = asked.Fingerprint })},
		"a foreign write that is taken for an own one": {"Rerun with a key", func(ctx context.Context, c *idempotenttest.StoreCall, _ driver.Store) {
			if c.Do(ctx); c.Op == driver.OpInsert && c.Current != nil && c.Current.State == driver.StateInProgress {
				c.Current = nil
			}
		}},
		"a takeover of an unknown record": {"at most once under Reconcile", reads(func(met *driver.Record, _ driver.Record) {
			if met.State == driver.StateUnknown {
				met.State, met.Reason = driver.StateRetryable, driver.ReasonNotExecuted
			}
		})},
		"a step that is not recorded":  {"a step without keys", writes(func(r *driver.Record) { r.Steps = nil })},
		"a replay of another key":      {"a batch of two", writes(func(r *driver.Record) { r.ID = driver.RecordID(strings.Repeat("1", 43)) })},
		"a record that is swept early": {"at most once under Reconcile", writes(func(r *driver.Record) { r.Expires = r.LeaseEnd })},
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

// attempts is broken by so many requests to the bank.
func attempts(most int) func(w *idempotenttest.World) {
	return func(w *idempotenttest.World) {
		b := &bank{}
		w.Provider(b)
		w.AtMostOnce("one request too many", func() int { return max(1, b.requests-most+1) })
		idempotenttest.Handle(w, "order-1", guarded(idempotent.Rerun, refer))
	}
}

// forgets has a record that expires before the last retry.
func forgets(w *idempotenttest.World) {
	b := &bank{}
	w.Provider(b)
	w.AtMostOnce("charge", b.count)
	idempotenttest.Handle(w, order{"1", "10"}, func(g *idempotent.Guard) func(context.Context, order) (charge, error) {
		return idempotent.Wrap(g, idempotent.KeyFrom("charge", func(o order) (string, string) { return "acme", o.ID }),
			func(ctx context.Context, o order) (charge, error) { return pay(ctx, o.ID) },
			func(o *idempotent.Operation) { o.Recovery, o.Retention = idempotent.Rerun, 5*time.Hour })
	}, order{"1", "99"})
}

func panicsAtOnce(w *idempotenttest.World) {
	idempotenttest.Handle(w, "order-1", func(*idempotent.Guard) handler {
		return func(context.Context, string) (charge, error) { panic("no such customer") }
	})
}

// failsToReconcile has a reconciler that fails at once, which the story shows.
func failsToReconcile(w *idempotenttest.World) {
	right["Rerun with a key"].body(w)
	w.Reconciler(func(*idempotent.Guard) func(context.Context) (idempotent.Report, error) {
		return func(context.Context) (idempotent.Report, error) {
			return idempotent.Report{}, errors.New("no such list")
		}
	})
}

// failsToResolve has a resolver whose error ends with what to do.
func failsToResolve(w *idempotenttest.World) {
	handles(w, idempotent.Reconcile, honest(), false, pay)
	resolves(w, func(context.Context, idempotent.PendingRecord) (idempotent.Resolution, error) {
		return idempotent.Resolution{}, errors.New(strings.Repeat("x", 250) + ", so call the bank")
	})
}

// holdsMutex has a handler with two goroutines that hold a mutex during a call.
func holdsMutex(w *idempotenttest.World) {
	var mu sync.Mutex
	both(w, idempotent.Rerun, honest(), func(ctx context.Context, id string) error {
		mu.Lock()
		defer mu.Unlock()
		return payOf(ctx, id)
	})
}

// otherType and noType have another request whose type is wrong.
func otherType(w *idempotenttest.World) {
	right["Rerun with a key"].body(w)
	w.OtherKey(1)
}

func noType(w *idempotenttest.World) {
	right["another effect"].body(w)
	w.OtherKey("order-2")
}

// response and failures are answers that are no success.
type response struct {
	StatusCode int
	Body       string
}

type failures struct{ BatchItemFailures []string }

// amountsInDynamoDB has a handler over a store whose calls are not points themselves.
func amountsInDynamoDB(w *idempotenttest.World) {
	right["another amount"].body(w)
	dynamotest.In(w, "once", nil)
}

// streams has a handler that passes a body on.
func streams(body io.Reader) func(w *idempotenttest.World) {
	return handling(idempotent.Rerun, honest, true, func(ctx context.Context, _ string) (c charge, err error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, charges, body)
		if err != nil {
			return c, err
		}
		return read(http.DefaultClient.Do(req))
	})
}

// pausesAtTheEnd has a handler that returns some time after its last call.
func pausesAtTheEnd(w *idempotenttest.World) {
	b := honest()
	w.Provider(b)
	w.ExactlyOnce("charge", b.count)
	idempotenttest.Handle(w, "order-1", func(g *idempotent.Guard) handler {
		h := guarded(idempotent.Rerun, pay)(g)
		return func(ctx context.Context, id string) (charge, error) {
			c, err := h(ctx, id)
			<-time.After(time.Second)
			return c, err
		}
	})
}

// answersAnew has a handler whose answer to another key changes.
func answersAnew(w *idempotenttest.World) {
	b := honest()
	w.Provider(b)
	w.AtMostOnce("charge", b.count)
	n := 0
	idempotenttest.Handle(w, "order-1", func(g *idempotent.Guard) handler {
		h := guarded(idempotent.Rerun, pay)(g)
		return func(ctx context.Context, id string) (charge, error) {
			c, err := h(ctx, id)
			if id == "order-2" {
				n++
				c.ID = fmt.Sprint("ch_", n)
			}
			return c, err
		}
	})
	w.OtherKey("order-2")
}

// beginsLate has a handler whose charges begin after the answer.
func beginsLate(w *idempotenttest.World) {
	b := keyless()
	w.Provider(b)
	w.AtMostOnce("charge", func() int { return max(1, b.count()) })
	idempotenttest.Handle(w, "order-1", guarded(idempotent.Rerun, func(ctx context.Context, id string) (charge, error) {
		go func() {
			<-time.After(time.Second)
			for range 2 {
				refer(context.WithoutCancel(ctx), id)
			}
		}()
		return charge{"ch_1"}, nil
	}))
}

// keepsContext has a handler that uses the context of an earlier schedule.
func keepsContext() func(w *idempotenttest.World) {
	var kept context.Context
	return func(w *idempotenttest.World) {
		earlier := kept
		effecting(w, "mail", idempotent.Reconcile, func(ctx context.Context, mail func(context.Context) error) error {
			kept = ctx
			if earlier != nil {
				ctx = earlier
			}
			return mail(ctx)
		})
	}
}

// asksFirst has a handler whose charges repeat, behind a predecessor that makes a call.
func asksFirst(w *idempotenttest.World) {
	handles(w, idempotent.Rerun, keyless(), true, refer, func(o *idempotent.Operation) {
		o.Predecessor = func(ctx context.Context, _ idempotent.Key) (result any, found bool, err error) {
			return nil, false, w.Do(ctx, "the earlier table", func() error { return nil })
		}
	})
}

// triesTwice has a handler that repeats a statement in its transaction.
func triesTwice(w *idempotenttest.World) {
	insertsBy(w, idempotent.Reconcile, func(ctx context.Context, db *sql.DB, id string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		for range 2 {
			if _, err = tx.ExecContext(ctx, "INSERT INTO charges VALUES (?)", id); err == nil {
				return tx.Commit()
			}
		}
		return err
	})
}

// refuses has a handler that never gives another answer.
func refuses(answer any, err error) func(w *idempotenttest.World) {
	return func(w *idempotenttest.World) {
		w.AtMostOnce("charge", func() int { return 0 })
		idempotenttest.Handle(w, "order-1", func(*idempotent.Guard) func(context.Context, string) (any, error) {
			return func(context.Context, string) (any, error) { return answer, err }
		})
	}
}

// Tests that explore in parallel wait for each other.
func TestExploreInParallel(t *testing.T) {
	for range 3 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			idempotenttest.Explore(t, right["Rerun with a key"].body, func(o *idempotenttest.ExploreOptions) { o.Schedules = 10 })
		})
	}
}

func TestExploreReports(t *testing.T) {
	transport := http.DefaultTransport
	for name, row := range map[string]struct {
		body      func(w *idempotenttest.World)
		alone     string
		schedules int
		ok        bool
		want      string
	}{
		"right":            {right["Rerun with a key"].body, "", 200, true, `^200 schedules, \d{4} are possible with two faults; completed: \d+, completion_failed: \d+, in_progress: \d+, no_outcome: \d+, replayed: \d+, reserved: \d+, retryable: \d+, store_error: \d+, taken_over: \d+; hash of all stories: [0-9a-f]+$`},
		"few schedules":    {right["Rerun with a key"].body, "", 5, true, `^5 schedules, `},
		"no schedules":     {right["Rerun with a key"].body, "", 0, true, `^1 schedules, `},
		"one schedule":     {right["Rerun with a key"].body, "", 1, true, `^1 schedules, `},
		"wrong":            {attempts(1), "", 200, false, `(?s)^one request too many happened 2 times, .*ONCE_SCHEDULE='1:killed-after' go test -run '\^TestExploreReports/wrong\$'$`},
		"two faults":       {attempts(2), "", 1000, false, `(?s)^one request too many happened 2 times, .*ONCE_SCHEDULE='\d+:[0-9a-z-]+,\d+:[0-9a-z-]+' `},
		"three faults":     {attempts(3), "", 6000, false, `(?s)^one request too many happened 2 times, .*ONCE_SCHEDULE='(\d+:[0-9a-z-]+,){2}\d+:[0-9a-z-]+' `},
		"alone, right":     {right["Rerun with a key"].body, "1:lost-reply", 0, true, `(?s)^nothing is broken\n +0s  1 request     store: insert\n.*: the reply is lost  \[charge: 1\]`},
		"alone, wrong":     {attempts(1), "1:killed-after", 0, false, `(?s)^one request too many happened 2 times, `},
		"no schedule":      {attempts(1), "none", 0, true, `^nothing is broken`},
		"not a point":      {attempts(1), "x:killed-after", 0, false, `^idempotenttest: Explore: the variable ONCE_SCHEDULE: "x:killed-after" is no schedule: want point:fault, `},
		"no handler":       {func(*idempotenttest.World) {}, "", 10, false, `^there is no handler: add one with idempotenttest.Handle or World.Process\nRun this schedule alone: `},
		"a long error":     {failsToResolve, "1:killed-after", 0, true, `(?s)^nothing is broken\n.*  the resolver fails: x{250}, so call the bank\n`},
		"a panic":          {panicsAtOnce, "", 10, false, `^the process panicked: no such customer\n`},
		"at the end":       {forgets, "none", 0, false, `(?s)^another request with the same key succeeded\n.*6h23m0s  \d+ another     answers a success\n`},
		"a reconciler":     {failsToReconcile, "none", 0, true, `(?s)^nothing is broken\n.*1m0s  3 reconciler  answers [^\n]*, no such list\n`},
		"another fault":    {attempts(1), "1:lost-replyy", 0, false, `"lost-replyy" is no fault: want one of killed-before, .*late-at- and a point$`},
		"late-at-x":        {attempts(1), "1:late-at-x", 0, false, `"late-at-x" is no fault: `},
		"not reached":      {right["Rerun with a key"].body, "1:lost-reply,999:late-at-3", 0, false, `the run ended after point \d+, before 999:late-at-3$`},
		"broken before":    {attempts(1), "1:killed-after,999:refused", 0, false, `^one request too many happened 2 times, `},
		"another answer":   {answersAnew, "none", 0, false, `^two successes differ: `},
		"a late goroutine": {beginsLate, "none", 0, false, `(?s)^charge happened 2 times, .*\nRule: Wait for every goroutine, `},
		"one too far":      {right["Rerun with a key"].body, "8:refused", 0, false, `the run ended after point 7, before 8:refused$`},
		"no claim":         {amountsInDynamoDB, "0:refused,1:refused", 0, true, `^nothing is broken`},
		"an unread body":   {streams(iotest.ErrReader(errors.New("the order is cut off"))), "", 10, false, `^the request did not succeed, although nothing failed: .*: the order is cut off\n`},
		"no connection": {func(w *idempotenttest.World) {
			insertsInto(w, &table{refuses: errors.New("no database")}, idempotent.Rerun, inTransaction)
		}, "", 10, false, `^the request did not succeed, although nothing failed: .*: no database\n`},
		"a wrong statement": {func(w *idempotenttest.World) {
			inserts(w, func(ctx context.Context, db *sql.DB, _ string) error {
				_, err := db.PrepareContext(ctx, "DROP")
				return err
			})
		}, "", 10, false, `^the request did not succeed, although nothing failed: .*: no such statement\n`},
		"a long statement": {func(w *idempotenttest.World) {
			inserts(w, func(ctx context.Context, db *sql.DB, id string) error {
				_, err := db.ExecContext(ctx, "INSERT INTO\n\tcharges VALUES (?) -- of the customer's first order", id)
				return err
			})
		}, "none", 0, true, `request     SQL: INSERT INTO charges VALUES \(\?\) -- of the…  \[row: 1\]\n`},
		"options of a transaction": {func(w *idempotenttest.World) {
			inserts(w, func(ctx context.Context, db *sql.DB, _ string) error {
				_, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
				return err
			})
		}, "", 10, false, `^the request did not succeed, although nothing failed: .*: the database driver has no BeginTx, `},
		"a mutex": {wrong["a mutex that stays locked"].body, "1:refused", 0, false, `(?s)^a goroutine waits for a mutex, .*
Rule: Unlock .*

goroutine \d+ \[sync.Mutex.Lock.*explore_handlers_test.go`},
		"a held mutex": {holdsMutex, "none", 0, false, `(?s)^a goroutine waits for a mutex, .*goroutine \d+ \[sync.Mutex.Lock.*`},
		"at a point":   {holdsMutex, "none", 0, false, `(?s)^a goroutine waits for a mutex, .*idempotenttest.\(\*World\).await`},
		"another type": {otherType, "", 10, false, `(?s)^World.OtherKey got a int: want the type of the request of idempotenttest.Handle
`},
		"no type":                         {noType, "", 10, false, `(?s)^World.OtherKey got a string: want `},
		"refused":                         {refuses(new(any(response{403, "unknown caller"})), nil), "", 10, false, `^the request did not succeed, although nothing failed: status 403: unknown caller\n`},
		"no body":                         {refuses(&failures{[]string{"m-1"}}, nil), "", 10, false, `^the request did not succeed, although nothing failed: 1 failed messages\n`},
		"goes on":                         {computes, "1:hangs", 0, false, `(?s)^a call hung until its context ended, and there was no answer 100ms before the deadline\n.*\nRule: Return as soon as the handler's context ends: `},
		"goes on after it":                {computes, "1:hangs-after", 0, false, `(?s)^a call hung until its context ended, and there was no answer 100ms before the deadline\n`},
		"lingers":                         {lingers, "1:hangs", 0, false, `(?s)^a call hung until its context ended, and there was no answer 100ms before the deadline\n.*answers `},
		"one is late, another one killed": {right["Rerun with a key"].body, "0:late,1:killed-after", 0, true, `1 request     continues\n +0s  1 request     store: insert\n`},
		"a late claim":                    {waitsTooLong, "0:hangs", 0, false, `(?s)^a call hung until its context ended, and there was no answer 100ms before the deadline\n`},
		"a short reserve":                 {reserving(300 * time.Millisecond), "1:hangs", 0, false, `^a call hung until its context ended, and there was no answer 60ms before the deadline\n`},
		"a panic in a goroutine":          {right["two goroutines"].body, "1:panics", 0, true, `POST bank.test/charges: the process panics after it, in a goroutine of the handler  \[charge 1: 1\]\n`},
		"a panic in a batch":              {right["a batch of two"].body, "1:panics", 0, true, `POST bank.test/charges: the process panics after it  \[charge 1: 1\]\n`},
		"a panic in a step":               {right["a step without keys"].body, "2:panics", 0, true, `POST bank.test/charges: the process panics after it  \[charge: 1\]\n`},
		"a pause at the end":              {pausesAtTheEnd, "none", 0, true, `^nothing is broken\n.*\n.*\n.*\n +1s  1 request     answers a success\n`},
		"a statement of 40 bytes":         {right["a driver with contexts"].body, "none", 0, true, `  SQL: INSERT INTO charges VALUES \(\?\) -- direct\n`},
		"an INSERT that arrives":          {right["a database"].body, "2:in-flight", 0, true, `SQL: INSERT INTO charges VALUES \(\?\): the request arrives\n`},
		"a refused call":                  {right["NotExecuted without a connection"].body, "1:refused", 0, true, `: refused, nothing was sent\n.*\n +0s  1 request     answers \*idempotent.NotExecutedError\n`},
		"a release beside the answer":     {asksFirst, "1:refused,2:hangs,6:lost-reply", 0, false, `^charge happened 2 times, (?s).*\nRule: [^W]`}, // not: Wait for every goroutine
		"a lost connection":               {right["a database"].body, "3:lost-reply", 0, true, `COMMIT: the reply is lost  (?s).*  2 retry       SQL: SELECT [^\n]*\n +0s  2 retry       store: replace\n +0s  2 retry       answers a success\n`},
		"a second try":                    {triesTwice, "1:lost-reply", 0, true, `SQL: INSERT INTO charges VALUES \(\?\): the reply is lost\n +0s  1 request     store: replace\n`},
		"a count by a call": {func(w *idempotenttest.World) {
			right["Rerun with a key"].body(w)
			n := 0
			w.AtMostOnce("the same charge", func() int {
				w.Do(context.Background(), "count", func() error { n = 1; return nil })
				return n
			})
		}, "none", 0, true, `^nothing is broken\n.*store: insert\n.*  provider: POST bank.test/charges  \[charge: 1\]\n`},
		"no provider": {func(w *idempotenttest.World) {
			right["Rerun with a key"].body(w)
			w.Provider(nil)
		}, "", 10, false, `^the request did not succeed, although nothing failed: .*: a request to bank.test without a provider: call World.Provider\n`},
		"a context of another schedule": {keepsContext(), "", 10, false, `^mail was called with another context than that of the handler\n(?s).*Rule: Pass the handler's context `},
		"a mutex of the body": {func(*idempotenttest.World) {
			var mu sync.Mutex
			mu.Lock()
			mu.Lock()
		}, "none", 0, false, `(?s)^a goroutine waits for a mutex, .*explore_test.go`},
		"a commit that arrives": {right["a database"].body, "3:in-flight", 0, true, `(?s)SQL: COMMIT: the process is killed while .*SQL: COMMIT: the request arrives  \[row: 1\]\n`},
		"no fault":              {attempts(1), "1:lost-reply,2", 0, false, `^idempotenttest: Explore: the variable ONCE_SCHEDULE: "1:lost-reply,2" is no schedule: want point:fault, `},
	} {
		t.Run(name, func(t *testing.T) {
			text, ok := idempotenttest.Report(t, row.body, row.alone, func(o *idempotenttest.ExploreOptions) { o.Schedules = row.schedules })
			if ok != row.ok || !regexp.MustCompile(row.want).MatchString(text) {
				t.Errorf("got %t and\n%s\nwant %t and %s", ok, text, row.ok, row.want)
			}
			if http.DefaultTransport != transport {
				t.Error("the transport is still replaced")
			}
		})
	}
}

// A mutex is found among many goroutines of earlier schedules, whose stacks have 6 MB.
func TestExploreAmongManyGoroutines(t *testing.T) {
	done := make(chan struct{})
	defer close(done)
	for range 20_000 {
		go func() { <-done }()
	}
	if text, ok := idempotenttest.Report(t, holdsMutex, "none"); ok || !strings.HasPrefix(text, "a goroutine waits for a mutex") {
		t.Errorf("got %t and\n%s", ok, text)
	}
}

// The test of a wrong handler fails with its story, that of a right one passes, and a body
// that ends the test is not called again. Each runs in a separate process, which is this
// test again.
func TestExploreFailsATest(t *testing.T) {
	const variable = "EXPLORE_IN_A_TEST"
	bodies := map[string]func(w *idempotenttest.World){"wrong": attempts(1), "right": right["Rerun with a key"].body, "ends": func(w *idempotenttest.World) {
		w.AtMostOnce("charge", func() int { return 0 })
		t.Fatal("no database")
	}}
	if body := bodies[os.Getenv(variable)]; body != nil {
		idempotenttest.Explore(t, body)
		return
	}
	for name, want := range map[string]string{"wrong": "one request too many happened 2 times", "right": "hash of all stories: ", "ends": "no database"} {
		test := exec.Command(os.Args[0], "-test.run=^TestExploreFailsATest$", "-test.v")
		test.Env = append(os.Environ(), variable+"="+name)
		out, err := test.CombinedOutput()
		if failed, right := err != nil, name == "right"; failed == right || strings.Contains(string(out), "hash of all") != right || strings.Count(string(out), want) != 1 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func TestExploreHarms(t *testing.T) {
	const (
		call   = "killed-before killed-after refused lost-reply hangs"
		late   = " late late-reply late-at-1 late-at-2 late-at-3 late-at-4 late-at-5"
		sent   = " hangs-after lost-request in-flight"
		twice  = " sent-twice"
		answer = " 503 500 cut-reply panics"
	)
	want := map[string]string{
		"store": call + late, "effect": call + late + sent, "SQL": call + late + sent, "SDK": call + late + sent + twice,
		"provider": call + late + sent + answer, "keyed": call + late + sent + twice + answer,
	}
	if got := idempotenttest.Harms(); !maps.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// A story names each harm.
func TestExploreNamesHarms(t *testing.T) {
	for harm, want := range map[string]string{
		"killed-before": "the process is killed before it", "killed-after": "the process is killed after it", "refused": "refused, nothing was sent",
		"lost-request": "the request is lost", "lost-reply": "the reply is lost", "503": "503, without effect", "500": "500, with effect", "cut-reply": "the reply breaks off",
		"hangs": "hangs until its context ends", "hangs-after": "has its effect, and hangs until its context ends", "panics": "the process panics after it",
		"sent-twice": "the client's transport loses the reply and sends it again", "in-flight": "the process is killed while the request is on its way",
		"late": "the process is late", "late-at-2": "the process is late", "late-reply": "the reply is late",
	} {
		text, ok := idempotenttest.Report(t, right["Rerun with a key"].body, "1:"+harm)
		if line := "1 request     provider: POST bank.test/charges: " + want; !ok || !regexp.MustCompile(regexp.QuoteMeta(line)+`(  \[charge: 1\])?\n`).MatchString(text) {
			t.Errorf("%s: got\n%s\nwant a line with %s", harm, text, line)
		}
		if arrives := strings.Contains(text, "charges: the request arrives  "); arrives != (harm == "in-flight") {
			t.Errorf("%s: got\n%s", harm, text)
		}
	}
}

// A body that never ends is reported.
func TestExploreBlocked(t *testing.T) {
	defer func() {
		if p := recover(); !strings.Contains(fmt.Sprint(p), "all goroutines in bubble are blocked") {
			t.Errorf("got %v", p)
		}
	}()
	idempotenttest.Report(t, func(*idempotenttest.World) { <-make(chan int) }, "")
}

// A story has the faults that it needs, and no others.
func TestExploreShortens(t *testing.T) {
	for asked, want := range map[string]string{
		"0:late-reply,1:killed-after,3:lost-reply": "1:killed-after",
		"1:killed-after,2:refused":                 "2:refused",
		"1:killed-after":                           "1:killed-after",
	} {
		if left, tried := idempotenttest.Shortened(t, attempts(1), asked); left != want || tried > 8 {
			t.Errorf("%s: %s is left after %d runs, want %s", asked, left, tried, want)
		}
	}
}

// The guard logs to the user's logger, as the rule of a request that never succeeds says, and
// otherwise nothing.
func TestExploreLogs(t *testing.T) {
	var users, program bytes.Buffer
	log.SetOutput(&program)
	defer log.SetOutput(os.Stderr)
	for _, options := range [][]func(*idempotent.Options){
		{func(o *idempotent.Options) { o.Logger = slog.New(slog.NewTextHandler(&users, nil)) }}, nil,
	} {
		text, _ := idempotenttest.Report(t, func(w *idempotenttest.World) {
			w.GuardOptions(options...)
			handles(w, idempotent.Reconcile, honest(), false, func(context.Context, string) (charge, error) {
				return charge{}, errors.New("no such customer")
			})
		}, "none")
		if !strings.Contains(text, "Options.Logger of World.GuardOptions") || !strings.Contains(users.String(), "a handler's error left its record unknown") || program.Len() > 0 {
			t.Errorf("got the logs %q and %q, and\n%s", users.String(), program.String(), text)
		}
	}
}

// A killed process gets an error from the call that it makes, from one that waits, and from
// each later one. A call that still waits at the end of a schedule gets one too.
func TestExploreKilled(t *testing.T) {
	for _, alone := range []string{"0:killed-before", "0:killed-after", "0:in-flight"} {
		var errs [][]error // of each process
		text, ok := idempotenttest.Report(t, func(w *idempotenttest.World) {
			w.AtMostOnce("mail", func() int { return 1 })
			idempotenttest.Handle(w, "order-1", func(*idempotent.Guard) handler {
				return func(ctx context.Context, _ string) (charge, error) {
					of := make([]error, 4)
					errs = append(errs, of)
					mail := func(i int) { of[i] = w.Do(ctx, "mail", func() error { return nil }) }
					var calls sync.WaitGroup
					calls.Go(func() { mail(0) })
					calls.Go(func() { mail(1) })
					calls.Wait()
					mail(2)
					go mail(3)
					return charge{}, errors.Join(of[:3]...)
				}
			})
		}, alone)
		const killed = "the process was killed"
		first, last := fmt.Sprint(errs[0]), fmt.Sprint(errs[len(errs)-1])
		if want := fmt.Sprint([]string{killed, killed, killed, killed}); !ok || first != want || last != "[<nil> <nil> <nil> "+killed+"]" {
			t.Errorf("%s: the first process got %s, the last one %s, and\n%s", alone, first, last, text)
		}
	}
}

// Before the first process, a test can use a connector itself: its calls are no points.
func TestExploreConnector(t *testing.T) {
	for _, contexts := range []bool{false, true} {
		text, ok := idempotenttest.Report(t, func(w *idempotenttest.World) {
			rows := &table{unique: true, contexts: contexts}
			db := sql.OpenDB(w.Connector(rows))
			id, second := func(n int) any { return fmt.Sprint(n) }, any("2")
			if contexts {
				id, second = func(n int) any { return rowID{fmt.Sprint(n)} }, insertID{"2"}
			}
			insert := func(n int) error {
				result, err := db.Exec("INSERT INTO charges VALUES (?) -- direct", id(n))
				if err != nil {
					return err
				}
				if rows, _ := result.RowsAffected(); rows != 1 {
					return fmt.Errorf("%d rows were inserted", rows)
				}
				return nil
			}
			inserted := errors.Join(insert(1), insert(2))
			again := insert(2)
			_, noTable := db.Query("SELECT count(*) FROM mails WHERE id = ? -- direct", id(1))
			charges, toInsert := db.Prepare("INSERT INTO charges VALUES (?)")
			_, onceMore := charges.Exec(second)
			mails, prepared := db.Prepare("SELECT count(*) FROM mails WHERE id = ?")
			_, stillNoTable := mails.Query(id(1))
			_, noStatement := db.Prepare("DROP -- direct")
			resets, connects := rows.resets, rows.connects

			tx, begun := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: rows.isolation()})
			_, added := tx.Exec("INSERT INTO charges VALUES (?) -- direct", id(3))
			var n int
			counted := tx.QueryRow("SELECT count(*) FROM charges WHERE id = ? -- direct", id(3)).Scan(&n)
			undone := tx.Rollback()
			_, level := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelLinearizable})
			rows.readOnly = errors.New("read only")
			_, readOnly := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: rows.isolation()})

			if err := errors.Join(inserted, toInsert, prepared, begun, added, counted, undone); err != nil || n != 1 || !slices.Equal(rows.ids, []string{"1", "2"}) {
				t.Errorf("contexts %t: %v, %d rows in the transaction, then %s", contexts, err, n, rows.ids)
			}
			if !errors.Is(again, errDuplicate) || !errors.Is(onceMore, errDuplicate) || noTable == nil || stillNoTable == nil || noStatement == nil || level == nil || !errors.Is(readOnly, rows.readOnly) {
				t.Errorf("contexts %t: got %v, %v, %v, %v, %v, %v and %v", contexts, again, onceMore, noTable, stillNoTable, noStatement, level, readOnly)
			}
			if connects != 1 || (resets > 0) != contexts {
				t.Errorf("contexts %t: %d connections and %d resets without a transaction", contexts, connects, resets)
			}
			insertsInto(w, &table{}, idempotent.Rerun, inTransaction)
		}, "none")
		if !ok {
			t.Error(text)
		}
	}
}

// A process that was not killed leaves its guard and handler to the next one.
func TestExploreEnvironments(t *testing.T) {
	for alone, want := range map[string]int{
		"none":           1,
		"1:killed-after": 2,
		"1:late":         2, // two at once
		"2:lost-reply":   1,
	} {
		environments := 0
		text, ok := idempotenttest.Report(t, func(w *idempotenttest.World) {
			b := &bank{}
			w.Provider(b)
			w.ExactlyOnce("charge", b.count)
			newHandler := guarded(idempotent.Rerun, pay)
			idempotenttest.Handle(w, "order-1", func(g *idempotent.Guard) handler {
				environments++
				return newHandler(g)
			})
		}, alone)
		if !ok || environments != want {
			t.Errorf("%s: %d environments, want %d\n%s", alone, environments, want, text)
		}
	}
}

// A process answers before its deadline, although a call hangs. Lambda kills one that goes
// on.
func TestExploreDeadlines(t *testing.T) {
	text, ok := idempotenttest.Report(t, right["Rerun with a key"].body, "0:late-reply,1:hangs")
	want := strings.Join([]string{"nothing is broken",
		"        0s  1 request     store: insert: the reply is late",
		"        0s  2 retry       store: insert: hangs until its context ends",
		"       29s  2 retry       store: replace",
		"       29s  2 retry       answers *idempotent.StoreError",
		"       29s  1 request     continues",
		"       29s  1 request     store: replace",
		"       29s  1 request     answers *idempotent.NoTimeError",
		"     1m29s  3 retry       store: insert",
		"     1m29s  3 retry       store: replace",
	}, "\n")
	if !ok || !strings.HasPrefix(text, want) {
		t.Errorf("got %t and\n%s\nwant\n%s", ok, text, want)
	}
	for _, row := range []struct {
		alone    string
		outlives bool
		waitFor  time.Duration // of a retry
		want     string
	}{
		{"1:late", false, 5 * time.Second, "       29s  1 request     store: replace\n       29s  1 request     killed at the deadline\n"},
		{"1:late", true, 0, "      1m0s  1 request     provider: POST bank.test/charges  [charge: 1]\n      1m0s  1 request     store: replace\n     1m29s  1 request     killed at the deadline\n"},
		{"none", false, 0, "       29s  1 request     killed at the deadline\n"},
		{"0:late", false, 0, "       29s  1 request     killed at the deadline\n       29s  2 retry       killed at the deadline\n"},
		{"0:late", true, 0, "       29s  2 retry       store: replace\n       29s  2 retry       killed at the deadline\n     1m29s  3 retry  "},
	} {
		text, ok := idempotenttest.Report(t, func(w *idempotenttest.World) {
			w.GuardOptions(func(o *idempotent.Options) { o.WaitFor = row.waitFor })
			computes(w)
		}, row.alone, func(o *idempotenttest.ExploreOptions) { o.Outlives = row.outlives })
		if !ok || !strings.Contains(text, row.want) {
			t.Errorf("%+v: got %t and\n%s", row, ok, text)
		}
	}
}

// waitsTooLong has a guard whose calls can last until the deadline.
func waitsTooLong(w *idempotenttest.World) {
	b := &bank{}
	w.Provider(b)
	w.AtMostOnce("charge", b.count)
	idempotenttest.Handle(w, "order-1", func(g *idempotent.Guard) handler {
		h := guarded(idempotent.Reconcile, pay)(g)
		return func(ctx context.Context, id string) (charge, error) {
			deadline, _ := ctx.Deadline()
			later, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(500*time.Millisecond))
			defer cancel()
			return h(later, id)
		}
	})
}

// computes has a handler that goes on after the end of its context.
func computes(w *idempotenttest.World) { computing(w, time.Minute) }

// lingers has a handler that returns just before its deadline.
func lingers(w *idempotenttest.World) { computing(w, 450*time.Millisecond) }

func computing(w *idempotenttest.World, pause time.Duration) {
	b := &bank{}
	w.Provider(b)
	w.AtMostOnce("charge", b.count)
	idempotenttest.Handle(w, "order-1", guarded(idempotent.Reconcile, func(ctx context.Context, id string) (charge, error) {
		c, _ := pay(ctx, id)
		<-time.After(pause)
		return c, nil
	}))
}

// reserving is computes with so long a reserve.
func reserving(reserve time.Duration) func(w *idempotenttest.World) {
	return func(w *idempotenttest.World) {
		w.GuardOptions(func(o *idempotent.Options) { o.DeadlineReserve = reserve })
		computes(w)
	}
}

// A mistake that two faults show is found by two.
func TestExploreFindsPairs(t *testing.T) {
	if story, tried, _, _ := idempotenttest.Explored(t, attempts(2)); story == "" || tried > 400 { // triples find it later
		t.Errorf("%d schedules: %s", tried, story)
	}
}

// A late statement ends with its context, and so does its transaction. Other late calls do
// not.
func TestExploreLateStatement(t *testing.T) {
	for _, row := range []struct {
		alone    string
		outlives bool
		want     string
	}{
		{"1:late-reply,2:hangs", false, "       29s  1 request     continues\n       29s  1 request     store: replace\n"},
		{"1:late,2:hangs", false, "        0s  1 request     continues\n        0s  1 request     SQL: SELECT count(*) FROM charges WHERE id = …: hangs until its context ends\n       29s  1 request     store: replace\n"},
		{"1:late", true, "      1m0s  1 request     continues\n      1m0s  1 request     store: replace\n"},
		{"1:late-reply,2:late", true, "      1m0s  1 request     answers context.deadlineExceededError\n      1m0s  2 retry       continues\n      1m0s  2 retry       store: insert\n"},
	} {
		text, ok := idempotenttest.Report(t, right["a database"].body, row.alone, func(o *idempotenttest.ExploreOptions) { o.Outlives = row.outlives })
		if !ok || !strings.Contains(text, row.want) {
			t.Errorf("%+v: got %t and\n%s", row, ok, text)
		}
	}
}

// With processes that outlive their lease, "not found" does not prove that nothing can
// follow.
func TestExploreOutlives(t *testing.T) {
	story, _, _, _ := idempotenttest.Explored(t, func(w *idempotenttest.World) {
		handles(w, idempotent.Reconcile, &bank{noKeys: true}, true, refer)
		resolves(w, asks)
	}, func(o *idempotenttest.ExploreOptions) { o.Outlives = true })
	if !strings.Contains(story, "Answer ProvenNotExecuted only if nothing can follow") {
		t.Errorf("the story:\n%s", story)
	}
}

// An exploration has one processor, and explorations side by side leave the process with
// those that it had.
func TestOneAtATime(t *testing.T) {
	const all = 3
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(all))
	explore := func() (during int) {
		idempotenttest.Report(t, func(*idempotenttest.World) { during = runtime.GOMAXPROCS(0) }, "none")
		return during
	}
	during := explore()
	before := runtime.GOMAXPROCS(0)
	undo := idempotenttest.OneAtATime()
	explore()
	beside := runtime.GOMAXPROCS(0)
	undo()
	if after := runtime.GOMAXPROCS(0); during != 1 || before != all || beside != 1 || after != all {
		t.Errorf("%d processors during one, %d after it, %d beside another one, %d after both; want 1, %d, 1, %d", during, before, beside, after, all, all)
	}
}

type status struct {
	StatusCode any
	Headers    map[string]string
}

func TestExploreOutcomes(t *testing.T) {
	answer := response{StatusCode: 404}
	pointer := &answer
	var inside any = pointer
	var missing *response
	for _, row := range []struct {
		answer any
		err    error
		want   string
	}{
		{nil, nil, "a success false"},
		{"created", nil, "a success false"},
		{missing, nil, "a success false"},
		{answer, nil, "status 404 true"},
		{&pointer, nil, "status 404 true"},
		{&inside, nil, "status 404 true"},
		{status{StatusCode: "404"}, nil, "a success false"},
		{response{StatusCode: 199}, nil, "status 199 false"},
		{response{StatusCode: 200}, nil, "a success false"},
		{response{StatusCode: 299}, nil, "a success false"},
		{response{StatusCode: 300}, nil, "status 300 false"},
		{response{StatusCode: 399}, nil, "status 399 false"},
		{response{StatusCode: 400}, nil, "status 400 true"},
		{response{StatusCode: 408}, nil, "status 408 false"},
		{response{StatusCode: 409}, nil, "status 409 false"},
		{response{StatusCode: 422}, nil, "status 422 false"},
		{response{StatusCode: 425}, nil, "status 425 false"},
		{response{StatusCode: 429}, nil, "status 429 false"},
		{response{StatusCode: 499}, nil, "status 499 true"},
		{response{StatusCode: 500}, nil, "status 500 false"},
		{response{StatusCode: 202}, nil, "a success false"},
		{events.ALBTargetGroupResponse{StatusCode: 202, Headers: map[string]string{"retry-after": "1"}}, nil, "status 202 false"},
		{events.ALBTargetGroupResponse{StatusCode: 201, Headers: map[string]string{"Retry-After": "1"}}, nil, "a success false"},
		{webAnswer{StatusCode: 202, Header: http.Header{"Retry-After": {"1"}}}, nil, "status 202 false"},
		{failures{}, nil, "a success false"},
		{failures{[]string{"m-1", "m-2"}}, nil, "2 failed messages false"},
		{struct{ BatchItemFailures int }{1}, nil, "a success false"},
		{response{StatusCode: 200}, errors.New("no table"), "*errors.errorString false"},
		{nil, idempotent.Final("declined", "Declined."), "*idempotent.FinalError true"},
	} {
		status, final := idempotenttest.OutcomeOf(row.answer, row.err)
		if got := fmt.Sprint(status, " ", final); got != row.want {
			t.Errorf("%#v, %v: got %s, want %s", row.answer, row.err, got, row.want)
		}
	}
}

// Two answers are compared as a replay stores them.
func TestExploreCompares(t *testing.T) {
	web := func(name, value string) any {
		return events.LambdaFunctionURLResponse{StatusCode: 200, Headers: map[string]string{name: value}}
	}
	list := func(values ...string) any {
		return events.ALBTargetGroupResponse{StatusCode: 200, MultiValueHeaders: map[string][]string{"X-Charge": values}}
	}
	channel := make(chan int)
	for what, row := range map[string]struct {
		first, again any
		same         bool
	}{
		"texts":                    {"a", "b", false},
		"a null member":            {map[string]any{"id": "1", "note": nil}, map[string]any{"id": "1"}, true},
		"a null member in a list":  {[]any{map[string]any{"note": nil}}, []any{map[string]any{}}, true},
		"statuses":                 {response{StatusCode: 200}, response{StatusCode: 201}, false},
		"bodies":                   {response{200, "a"}, response{200, "b"}, false},
		"a header":                 {web("X-Charge", "1"), web("X-Charge", "2"), false},
		"a header in another case": {web("X-Charge", "1"), web("x-charge", "2"), false},
		"a header of one":          {web("X-Charge", "1"), web("X-Other", "1"), true},
		"the date":                 {web("Date", "1"), web("date", "2"), true},
		"a mark of a replay":       {web("Idempotent-Replayed", "false"), web("idempotent-replayed", "true"), true},
		"a status of the key":      {web("Idempotency-Status", "new"), web("Idempotency-Status", "stored"), true},
		"exposed headers":          {web("Access-Control-Expose-Headers", "1"), web("access-control-expose-headers", "2"), true},
		"no headers":               {events.LambdaFunctionURLResponse{StatusCode: 200}, events.LambdaFunctionURLResponse{StatusCode: 200, Headers: map[string]string{}}, true},
		"lists of values":          {list("1"), list("1", "2"), false},
		"headers of net/http":      {webAnswer{200, http.Header{"X-Charge": {"1"}}, ""}, webAnswer{200, http.Header{"X-Charge": {"2"}}, ""}, false},
		"cookies":                  {events.LambdaFunctionURLResponse{StatusCode: 200, Cookies: []string{"a"}}, events.LambdaFunctionURLResponse{StatusCode: 200, Cookies: []string{"b"}}, true},
		"cookies without a status": {map[string]any{"cookies": "a"}, map[string]any{"cookies": "b"}, false},
		"headers without a status": {map[string]any{"headers": map[string]any{"a": 1}}, map[string]any{"headers": map[string]any{"b": 1}}, false},
		"no JSON":                  {channel, channel, true},
		"other texts than JSON":    {channel, make(chan int), false},
	} {
		if first, again := idempotenttest.Compared(row.first, row.again); (first == again) != row.same {
			t.Errorf("%s: got %s and %s", what, first, again)
		}
	}
}
