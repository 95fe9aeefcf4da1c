// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/telemetry"
	"github.com/once-lambda/once/telemetry/audit"
	"github.com/once-lambda/once/telemetry/emf"
)

var (
	quoted = regexp.MustCompile(`"[^"]*"`)
	parsed = regexp.MustCompile(`(?m)/(.*)/$`)
	word   = regexp.MustCompile(`@?[A-Za-z_]+\(?`)
	named  = regexp.MustCompile(` as ([a-z]+)`)
)

// vocabulary has the words of the query language.
var vocabulary = map[string]bool{
	"fields": true, "filter": true, "stats": true, "sort": true, "by": true, "as": true, "and": true, "or": true, "not": true, "like": true,
	"asc": true, "desc": true, "parse": true, "count(": true, "latest(": true, "max(": true, "bin(": true, "h": true, "ispresent(": true, "@timestamp": true, "@message": true,
}

// platform are texts that Lambda itself writes to the log of a function (developer guide,
// "Troubleshoot execution issues in Lambda").
var platform = []string{"Task timed out", "Runtime.ExitError", "signal: killed"}

// asFunction makes the test binary a function that prints its log and ends.
const asFunction = "ONCE_TEST_PRINTS_ITS_LOG"

// TestMain runs the tests, or the function: the log format of lambdacontext is
// set when a process starts.
func TestMain(m *testing.M) {
	if os.Getenv(asFunction) == "" {
		os.Exit(m.Run())
	}
	if err := function(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// function handles messages that succeed, fail and are refused, and reconciles, as a
// function whose log format is JSON.
func function() error {
	logger := lambdacontext.NewLogger()
	metrics, err := emf.New(os.Stdout, "Charges")
	if err != nil {
		return err
	}
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
		o.Logger, o.RequestID = logger, func(context.Context) string { return "r-1" }
		o.Observer = event.Observers(metrics, audit.New(os.Stdout), event.LogObserver(logger))
	})
	if err != nil {
		return err
	}
	h := emf.Flushed(metrics, lambdabatch.SQS(guard, func(_ context.Context, body string) error {
		if body == "fails" {
			return errors.New("no")
		}
		return nil
	}, func(o *lambdabatch.Options) {
		o.Operation, o.ID, o.NoRedrive = "ship", lambdabatch.ItemID, true
	}))
	batch := events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m1", Body: "works", EventSourceARN: "arn"}, {MessageId: "m2", Body: "fails", EventSourceARN: "arn"}}}
	ctx := lambdacontext.NewContext(context.Background(), &lambdacontext.LambdaContext{AwsRequestID: "8476a536"})
	for range 2 {
		if _, err := h(ctx, batch); err != nil {
			return err
		}
	}
	_, err = idempotent.Reconciler(guard, nil)(ctx) // it has no resolver for what failed
	return err
}

// logged returns the lines that the function writes.
func logged(t *testing.T) (lines []map[string]any, text string) {
	t.Helper()
	text = printed(t, "JSON", "DEBUG")
	for line := range strings.Lines(text) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		lines = append(lines, m)
	}
	return lines, text
}

// printed returns what the function prints with these settings of its log.
func printed(t *testing.T, format, level string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asFunction+"=1", "AWS_LAMBDA_LOG_FORMAT="+format, "AWS_LAMBDA_LOG_LEVEL="+level)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	return string(out)
}

// Lambda drops no line of the metrics and of the audit, whatever the settings of a
// function's log are. Its rules are those of the developer guide, "Log-level
// filtering": it filters only with the format JSON, and a line counts as INFO if it
// has no valid level, or no time in RFC 3339.
func TestNoMetricIsDropped(t *testing.T) {
	t.Parallel()
	levels := []string{"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"}
	for _, format := range []string{"JSON", "Text", ""} {
		for _, filter := range append([]string{""}, levels...) {
			kinds := map[any]int{}
			for line := range strings.Lines(printed(t, format, filter)) {
				var m map[string]any
				if json.Unmarshal([]byte(line), &m) != nil || m["kind"] == nil {
					continue // another line of the log, which the filter is for
				}
				kinds[m["kind"]]++
				stamp, _ := m["timestamp"].(string)
				level := slices.Index(levels, fmt.Sprint(m["level"]))
				if _, err := time.Parse(time.RFC3339, stamp); err != nil || level < 0 {
					level = slices.Index(levels, "INFO")
				}
				if dropped := format == "JSON" && level < slices.Index(levels, filter); dropped {
					t.Errorf("format %q, level %q: Lambda drops %s", format, filter, line)
				}
				if want := slices.Index(levels, filter); level > slices.Index(levels, "INFO") && (format != "JSON" || level != want) {
					t.Errorf("format %q, level %q: the level is higher than needed: %s", format, filter, line)
				}
			}
			if kinds["metric"] == 0 || kinds["audit"] == 0 {
				t.Errorf("format %q, level %q: the lines are %v", format, filter, kinds)
			}
		}
	}
}

// Each line of the log has the id of Lambda's invocation, and the text of an error
// of this toolkit.
func TestLogLines(t *testing.T) {
	t.Parallel()
	lines, _ := logged(t)
	events, texts := 0, 0
	for _, l := range lines {
		if l["event"] == nil && l["item"] == nil {
			continue // of the audit, or a metric
		}
		events++
		if l["requestId"] != "8476a536" || l["timestamp"] == nil || l["message"] == nil || l["level"] == nil {
			t.Errorf("a line is %v", l)
		}
		if text, ok := l["error"].(string); ok && strings.HasPrefix(text, "idempotent: ship#") {
			texts++
		} else if ok || l["error_type"] != nil && l["error_type"] != "*errors.errorString" {
			t.Errorf("the error of a line is %v", l)
		}
	}
	if events < 8 || texts < 2 {
		t.Errorf("%d lines, %d with the text of an error", events, texts)
	}
}

// The queries of the pages use fields and texts that are in the lines.
func TestQueriesFindSomething(t *testing.T) {
	t.Parallel()
	lines, text := logged(t)
	fields := map[string]bool{}
	for _, l := range lines {
		for name := range maps.Keys(l) {
			fields[name] = true
		}
	}
	for name, least := range map[string]int{"observe.md": 5, "alarms.md": 7} {
		page, err := os.ReadFile(filepath.Join(engine.Root(), "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		queries := kit.Queries(string(page))
		if len(queries) < least {
			t.Errorf("%s: %d queries were found", name, len(queries))
		}
		for _, q := range queries {
			made := map[string]bool{}
			for _, m := range named.FindAllStringSubmatch(q, -1) {
				made[m[1]] = true
			}
			for _, m := range parsed.FindAllStringSubmatch(q, -1) {
				made[regexp.MustCompile(m[1]).SubexpNames()[1]] = true
			}
			for _, w := range word.FindAllString(parsed.ReplaceAllString(quoted.ReplaceAllString(q, ""), ""), -1) {
				if !vocabulary[w] && !made[w] && !fields[w] {
					t.Errorf("no line has the field %q of the query\n%s", w, q)
				}
			}
			for _, value := range quoted.FindAllString(q, -1) {
				value = strings.Trim(value, `"`)
				if len(value) != 12 && value != "ERROR" && !isEvent(value) && !slices.Contains(platform, value) && !strings.Contains(text, value) { // 12: a key's hash
					t.Errorf("no line has %q of the query\n%s", value, q)
				}
			}
		}
	}
}

// isEvent reports whether a value of a query is a kind of event.
func isEvent(value string) bool {
	for _, m := range telemetry.Metrics() {
		if string(m.Kind) == value {
			return true
		}
	}
	return false
}

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
