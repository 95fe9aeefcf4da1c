// SPDX-License-Identifier: Apache-2.0

package emf_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/telemetry"
	"github.com/once-lambda/once/telemetry/emf"
)

// noon is in another time zone than the lines.
var noon = time.Date(2026, 11, 21, 13, 0, 0, 987_654_321, time.FixedZone("CET", 3600))

func atNoon(o *emf.Options) { o.Now = func() time.Time { return noon } }

func newObserver(t testing.TB, w *bytes.Buffer) *emf.Observer {
	t.Helper()
	o, err := emf.New(w, "Charges", atNoon)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func tell(o *emf.Observer, operation string, kinds ...event.Kind) {
	for _, kind := range kinds {
		o.Observe(context.Background(), event.Event{Kind: kind, Operation: operation, KeyHash: "secret", RequestID: "secret", Err: errors.New("secret")})
	}
}

// lines parses the written lines.
func lines(t testing.TB, w *bytes.Buffer) (all []map[string]any) {
	t.Helper()
	for line := range bytes.Lines(w.Bytes()) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		all = append(all, m)
	}
	return all
}

// The zero value of an option is its default.
func TestDefaults(t *testing.T) {
	t.Parallel()
	var w bytes.Buffer
	o, err := emf.New(&w, "Charges", func(o *emf.Options) { o.Now = nil })
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now().Truncate(time.Millisecond)
	tell(o, "charge", event.Reserved)
	if err := o.Flush(); err != nil {
		t.Fatal(err)
	}
	head := lines(t, &w)[0]["_aws"].(map[string]any)
	if at := time.UnixMilli(int64(head["Timestamp"].(float64))); at.Before(before) || at.After(time.Now()) {
		t.Errorf("the line has the time %s", at)
	}
}

// One line for each operation, with only its counts.
func TestLines(t *testing.T) {
	t.Parallel()
	var w bytes.Buffer
	o := newObserver(t, &w)
	tell(o, "charge", event.Reserved, event.Completed, event.Reserved)
	tell(o, "refund", event.StoreError)
	tell(o, "refund", "of a later version")
	if w.Len() != 0 {
		t.Error("it wrote before the flush")
	}
	if err := o.Flush(); err != nil {
		t.Fatal(err)
	}
	const counts = `{"_aws":{"Timestamp":1795262400987,"CloudWatchMetrics":[{"Namespace":"Charges","Dimensions":[["operation"],[]],"Metrics":[`
	const want = counts + `{"Name":"once.reserved","Unit":"Count"},{"Name":"once.completed","Unit":"Count"}]}]},` +
		`"timestamp":"2026-11-21T12:00:00.987Z","level":"INFO","kind":"metric","operation":"charge","once.reserved":2,"once.completed":1}` + "\n" +
		counts + `{"Name":"once.store_error","Unit":"Count"}]}]},` +
		`"timestamp":"2026-11-21T12:00:00.987Z","level":"INFO","kind":"metric","operation":"refund","once.store_error":1}` + "\n"
	if w.String() != want {
		t.Errorf("it wrote\n%swant\n%s", &w, want)
	}
	w.Reset()
	if err := o.Flush(); err != nil || w.Len() != 0 {
		t.Errorf("without facts it wrote %q, %v", &w, err)
	}
	tell(o, "charge", event.Reserved)
	o.Flush()
	if got := lines(t, &w); len(got) != 1 || got[0]["once.reserved"] != 1.0 {
		t.Errorf("the next flush counted the first one's facts: %v", got)
	}
}

// F11: the number of dimensions is limited: facts of further operations count as
// "other", and only the operation of a fact is written.
func TestDimensionsAreBounded(t *testing.T) {
	t.Parallel()
	var w bytes.Buffer
	o := newObserver(t, &w)
	for i := range 1000 {
		tell(o, fmt.Sprintf("operation %d", i), event.Reserved)
	}
	tell(o, "other", event.Reserved)
	o.Reconciled(t.Context(), idempotent.Report{Listed: true})
	got := lines(t, &w)
	values := map[string]float64{}
	for _, l := range got {
		n, _ := l["once.reserved"].(float64)
		values[l["operation"].(string)] = n
	}
	if len(got) != 102 || values["operation 99"] != 1 || values["other"] != 901 {
		t.Errorf("%d lines, %v for other", len(got), values["other"])
	}
	if _, told := values["all"]; !told {
		t.Error("the age of the oldest record is missing")
	}
	if strings.Contains(w.String(), "secret") {
		t.Error("a line contains a key's hash, a request or an error")
	}
}

// Operations that CloudWatch would drop are written in a form that it accepts.
func TestOperationsAsDimensions(t *testing.T) {
	t.Parallel()
	for operation, want := range map[string]string{
		"POST /charges":      "POST /charges",
		"POST /charges/ä":    "POST /charges/%C3%A4",
		`say "hi" \ there`:   `say "hi" \ there`,
		":charge:":           "%3Acharge:",
		"":                   "all",
		"  ":                 "other",
		"two\nlines\x00\x7f": "two%0Alines%00%7F",
		"broken \xff":        "broken %EF%BF%BD",
		"<&>'":               "<&>'",
	} {
		var w bytes.Buffer
		o := newObserver(t, &w)
		tell(o, operation, event.Reserved)
		o.Flush()
		if got := lines(t, &w); len(got) != 1 || got[0]["operation"] != want {
			t.Errorf("%q is %v, want %q", operation, got, want)
		}
		// Alarms on all operations read the sum, and an event without an operation is no request.
		if summed := strings.Contains(w.String(), `"Dimensions":[["operation"],[]]`); summed == (want == "all") {
			t.Errorf("%q is counted without a dimension: %v", operation, summed)
		}
	}
}

func TestReconciled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		oldest time.Time
		want   float64
		scan   driver.Scanned
		age    any // of the scan; nil: not written
	}{
		{noon.Add(-90 * time.Second), 90, driver.Scanned{}, nil},
		{noon.Add(-1500 * time.Microsecond), 0.002, driver.Scanned{Began: noon.Add(-time.Hour)}, 3600.0},
		{noon.Add(-90 * time.Second), 90, driver.Scanned{Began: noon.Add(-time.Minute), Ended: noon.Add(-2 * time.Hour)}, 7200.0},
	} {
		var w bytes.Buffer
		o := newObserver(t, &w)
		tell(o, "all", event.Reserved)
		o.Reconciled(t.Context(), idempotent.Report{Listed: true, Pending: 3, Oldest: c.oldest, PendingReleased: 2, OldestReleased: noon.Add(-time.Minute), Scan: c.scan})
		if w.Len() == 0 {
			t.Error("the metrics of a run are not written at its end")
		}
		got := lines(t, &w)
		if len(got) != 1 || got[0]["operation"] != "all" || got[0][telemetry.UnknownOldestAge] != c.want || got[0][telemetry.ReleasedOldestAge] != 60.0 ||
			got[0][telemetry.UnknownRecords] != 3.0 || got[0][telemetry.ReleasedRecords] != 2.0 || got[0][telemetry.ScanAge] != c.age {
			t.Errorf("%s: got %v, want %v", c.oldest, got, c.want)
		}
		for name, unit := range map[string]string{
			telemetry.UnknownOldestAge: "Seconds", telemetry.ReleasedOldestAge: "Seconds", telemetry.UnknownRecords: "Count", telemetry.ReleasedRecords: "Count",
		} {
			if !strings.Contains(w.String(), `{"Name":"`+name+`","Unit":"`+unit+`"}`) {
				t.Errorf("%s is not declared: %s", name, &w)
			}
		}
		if declared := strings.Contains(w.String(), `{"Name":"`+telemetry.ScanAge+`","Unit":"Seconds"}`); declared != (c.age != nil) {
			t.Errorf("the age of the scan is declared: %t, in %s", declared, &w)
		}
		w.Reset()
		tell(o, "all", event.Reserved)
		o.Reconciled(t.Context(), idempotent.Report{Pending: 3, Oldest: c.oldest}) // of a list that failed
		o.Flush()
		if strings.Contains(w.String(), "oldest_age") || strings.Contains(w.String(), "records") {
			t.Errorf("gauges were written without a whole list: %s", &w)
		}
	}
}

// The durations of requests are values of histograms, in seconds. A duration of
// zero is not a value.
func TestDurations(t *testing.T) {
	t.Parallel()
	var w bytes.Buffer
	o := newObserver(t, &w)
	ended := func(claim, handler, settle time.Duration) {
		o.Observe(t.Context(), event.Event{Kind: event.RequestEnded, Operation: "charge", Durations: event.Durations{Claim: claim, Handler: handler, Settle: settle}})
	}
	ended(1500*time.Microsecond, 2*time.Second, 30*time.Millisecond)
	ended(2*time.Millisecond, 0, 0)
	o.Flush()
	const want = `{"_aws":{"Timestamp":1795262400987,"CloudWatchMetrics":[` +
		`{"Namespace":"Charges","Dimensions":[["operation"],[]],"Metrics":[{"Name":"once.request_ended","Unit":"Count"}]},` +
		`{"Namespace":"Charges","Dimensions":[["operation"]],"Metrics":[{"Name":"once.claim.duration","Unit":"Seconds"},{"Name":"once.handler.duration","Unit":"Seconds"},{"Name":"once.settle.duration","Unit":"Seconds"}]}]},` +
		`"timestamp":"2026-11-21T12:00:00.987Z","level":"INFO","kind":"metric",` +
		`"operation":"charge","once.request_ended":2,"once.claim.duration":[0.001500,0.002000],"once.handler.duration":[2.000000],"once.settle.duration":[0.030000]}` + "\n"
	if w.String() != want {
		t.Errorf("it wrote\n%swant\n%s", &w, want)
	}
	// A line has at most 100 values, and none is lost or repeated.
	w.Reset()
	for range 250 {
		ended(time.Second, 0, 0)
	}
	if written := bytes.Count(w.Bytes(), []byte("\n")); written != 2 {
		t.Errorf("%d lines before the flush, want 2", written)
	}
	o.Flush()
	var sizes []int
	requests := 0.0
	for _, l := range lines(t, &w) {
		sizes, requests = append(sizes, len(l["once.claim.duration"].([]any))), requests+l["once.request_ended"].(float64)
	}
	if !slices.Equal(sizes, []int{100, 100, 50}) || requests != 250 {
		t.Errorf("the lines have %d values of %v requests", sizes, requests)
	}
}

// The error of a line that was written before the flush is the flush's error.
func TestEarlyLineFails(t *testing.T) {
	t.Parallel()
	o, err := emf.New(failing{}, "Charges")
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		o.Observe(t.Context(), event.Event{Kind: event.RequestEnded, Operation: "charge", Durations: event.Durations{Claim: 1}})
	}
	if err := o.Flush(); err == nil {
		t.Error("the writer's error was lost")
	}
	if err := o.Flush(); err != nil {
		t.Errorf("the error was returned again: %v", err)
	}
}

func TestNewIsChecked(t *testing.T) {
	t.Parallel()
	for _, namespace := range []string{"", ":Charges", "AWS/Charges", "Chärges", "Char\nges", strings.Repeat("x", 256)} {
		if o, err := emf.New(&bytes.Buffer{}, namespace); o != nil || err == nil || !strings.Contains(err.Error(), "set that to the namespace of the alarms") || !strings.Contains(err.Error(), "ONCE_METRICS_NAMESPACE") {
			t.Errorf("%q: got %v %v", namespace, o, err)
		}
	}
	if o, err := emf.New(nil, "Charges"); o != nil || err == nil || !strings.Contains(err.Error(), "writer") {
		t.Errorf("got %v %v", o, err)
	}
	if _, err := emf.New(&bytes.Buffer{}, strings.Repeat("x", 255)); err != nil {
		t.Error(err)
	}
	var w bytes.Buffer
	o, err := emf.New(&w, `Shop "A"/Charges~`)
	if err != nil {
		t.Fatal(err)
	}
	tell(o, "charge", event.Reserved)
	before := time.Now().UnixMilli()
	o.Flush()
	aws := lines(t, &w)[0]["_aws"].(map[string]any)
	if got := aws["CloudWatchMetrics"].([]any)[0].(map[string]any)["Namespace"]; got != `Shop "A"/Charges~` {
		t.Errorf("the namespace is %q", got)
	}
	if at := int64(aws["Timestamp"].(float64)); at < before || at > time.Now().UnixMilli() {
		t.Errorf("the time is %d", at)
	}
}

// failing is a writer that panics, or fails unless the line has the word.
type failing struct {
	panics bool
	word   string
}

func (f failing) Write(line []byte) (int, error) {
	if f.panics {
		panic("broken pipe")
	}
	if f.word != "" && bytes.Contains(line, []byte(f.word)) {
		return len(line), nil
	}
	return 0, errors.New("broken pipe")
}

// Flushed writes when an invocation ends, also with an error or a panic, and never
// changes its response.
func TestFlushed(t *testing.T) {
	t.Parallel()
	var w bytes.Buffer
	o := newObserver(t, &w)
	guard, err := idempotent.New(memstore.New(), func(g *idempotent.Options) { g.Observer, g.Logger = o, slog.New(slog.DiscardHandler) })
	if err != nil {
		t.Fatal(err)
	}
	h := emf.Flushed(o, idempotent.Wrap(guard, idempotent.KeyFrom("charge", func(id string) (string, string) { return idempotent.Global, id }),
		func(_ context.Context, id string) (string, error) {
			switch id {
			case "fails":
				return "", errors.New("no")
			case "panics":
				panic("no")
			}
			return id, nil
		}))
	timed := []string{"once.claim.duration", "once.handler.duration", "once.settle.duration"}
	for _, c := range []struct {
		id   string
		want []string
	}{
		{"ok", append(timed, "once.completed", "once.request_ended", "once.reserved")},
		{"ok", []string{"once.claim.duration", "once.replayed", "once.request_ended"}},
		{"fails", append(timed, "once.marked_unknown", "once.request_ended", "once.reserved")},
		{"panics", append(timed, "once.marked_unknown", "once.request_ended", "once.reserved")},
	} {
		w.Reset()
		func() {
			defer func() { recover() }()
			if got, err := h(t.Context(), c.id); c.id == "ok" && (got != "ok" || err != nil) {
				t.Errorf("got %q %v", got, err)
			}
		}()
		got := lines(t, &w)
		if len(got) != 1 {
			t.Fatalf("%s: %d lines", c.id, len(got))
		}
		for _, member := range []string{"_aws", "timestamp", "level", "kind", "operation"} {
			delete(got[0], member)
		}
		if names := slices.Sorted(maps.Keys(got[0])); !slices.Equal(names, slices.Sorted(slices.Values(c.want))) {
			t.Errorf("%s: counted %q, want %q", c.id, names, c.want)
		}
	}
}

// Counts that cannot be written are lost and this is logged; the invocation
// succeeds. The test is not parallel, because it replaces the default logger.
func TestWriterFails(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	o, err := emf.New(failing{word: "refund"}, "Charges")
	if err != nil {
		t.Fatal(err)
	}
	tell(o, "charge", event.Reserved)
	for range 2 { // the second has nothing to write
		if got, err := emf.Flushed(o, func(context.Context, int) (int, error) { return 7, nil })(t.Context(), 1); got != 7 || err != nil {
			t.Errorf("got %d %v", got, err)
		}
	}
	if !strings.HasSuffix(log.String(), "level=WARN msg=\"emf: metrics were lost\" error=\"broken pipe\"\n") || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("logged %q", &log)
	}
	tell(o, "charge", event.Reserved)
	tell(o, "refund", event.Reserved) // is written after the line that fails
	if err := o.Flush(); err == nil {
		t.Error("the writer's error was lost")
	}
	broken, err := emf.New(failing{panics: true}, "Charges")
	if err != nil {
		t.Fatal(err)
	}
	tell(broken, "charge", event.Reserved)
	func() {
		defer func() { recover() }()
		broken.Flush()
	}()
	tell(broken, "charge", event.Reserved) // blocks if the lock is still held
}

// With Rerun, an attempt whose record was taken over is refused. The refusal is
// counted. It is neither an error in the log nor one of the metrics with an alarm
// in docs/observe.md.
func TestRefusedLateOwnerDoesNotPage(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]func(context.Context) error{
		"it returns": func(context.Context) error { return nil },
		"it fails":   func(context.Context) error { return errors.New("too late") },
		"it commits": func(ctx context.Context) error {
			e, _ := idempotent.FromContext(ctx)
			return e.Commit(ctx, "late", e.Store().Replace)
		},
	} {
		var (
			w, log bytes.Buffer
			clock  idempotenttest.Clock
		)
		metrics := newObserver(t, &w)
		guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
			logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			o.Recovery, o.Now, o.Logger, o.Observer = idempotent.Rerun, clock.Now, logger, event.Observers(metrics, event.LogObserver(logger))
		})
		if err != nil {
			t.Fatal(err)
		}
		key := idempotent.Key{Operation: "charge", Scope: "acme", ID: "o-1", Fingerprint: idempotent.FingerprintBytes(nil)}
		do := func(result string, during func(context.Context) error) (string, error) {
			return idempotent.Do(clock.Invocation(t.Context(), time.Minute), guard, key, func(ctx context.Context) (string, error) { return result, during(ctx) })
		}
		got, err := do("late", func(ctx context.Context) error {
			clock.Advance(2 * time.Minute)
			if _, err := do("in time", func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
			return late(ctx)
		})
		if got != "in time" || err != nil {
			t.Errorf("%s: the caller of the late attempt got %q %v", name, got, err)
		}
		metrics.Flush()
		all := lines(t, &w)
		if len(all) != 1 || all[0]["once.lease_lost"] == nil {
			t.Fatalf("%s: counted %v", name, all)
		}
		for _, pages := range []string{"once.store_error", "once.contradicted"} {
			if n := all[0][pages]; n != nil {
				t.Errorf("%s: %s is %v", name, pages, n)
			}
		}
		if !strings.Contains(log.String(), "event=lease_lost") || strings.Contains(log.String(), "level=ERROR") {
			t.Errorf("%s: the log:\n%s", name, &log)
		}
	}
}

// No count is lost when many invocations share one observer.
func TestManyInvocations(t *testing.T) {
	t.Parallel()
	var w bytes.Buffer
	o := newObserver(t, &w)
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 100 {
				tell(o, "charge", event.Reserved)
			}
			o.Flush()
		})
	}
	all.Wait()
	o.Flush()
	sum := 0.0
	for _, l := range lines(t, &w) {
		sum += l["once.reserved"].(float64)
	}
	if sum != 6400 {
		t.Errorf("%v were counted, want 6400", sum)
	}
}

func BenchmarkObserve(b *testing.B) {
	o := newObserver(b, &bytes.Buffer{})
	e := event.Event{Kind: event.ReconcileExhausted, Operation: "charge"}
	b.ReportAllocs()
	for b.Loop() {
		o.Observe(b.Context(), e)
	}
}

func ExampleFlushed() {
	at := time.UnixMilli(1795262400000)
	clock := func() time.Time { return at }
	charge := func(_ context.Context, order string) (string, error) {
		at = at.Add(200 * time.Millisecond) // how long the provider takes
		return "ch_1", nil
	}
	metrics, err := emf.New(os.Stdout, "Charges", func(o *emf.Options) { o.Now = clock })
	if err != nil {
		panic(err)
	}
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Observer, o.Now = metrics, clock })
	if err != nil {
		panic(err)
	}
	byOrder := idempotent.KeyFrom("charge", func(order string) (scope, id string) { return idempotent.Global, order })
	handler := emf.Flushed(metrics, idempotent.Wrap(guard, byOrder, charge)) // for lambda.Start
	handler(context.Background(), "o-1")
	handler(context.Background(), "o-1")
	// Output:
	// {"_aws":{"Timestamp":1795262400200,"CloudWatchMetrics":[{"Namespace":"Charges","Dimensions":[["operation"],[]],"Metrics":[{"Name":"once.request_ended","Unit":"Count"},{"Name":"once.reserved","Unit":"Count"},{"Name":"once.completed","Unit":"Count"}]},{"Namespace":"Charges","Dimensions":[["operation"]],"Metrics":[{"Name":"once.handler.duration","Unit":"Seconds"}]}]},"timestamp":"2026-11-21T12:00:00.200Z","level":"INFO","kind":"metric","operation":"charge","once.request_ended":1,"once.reserved":1,"once.completed":1,"once.handler.duration":[0.200000]}
	// {"_aws":{"Timestamp":1795262400200,"CloudWatchMetrics":[{"Namespace":"Charges","Dimensions":[["operation"],[]],"Metrics":[{"Name":"once.request_ended","Unit":"Count"},{"Name":"once.replayed","Unit":"Count"}]}]},"timestamp":"2026-11-21T12:00:00.200Z","level":"INFO","kind":"metric","operation":"charge","once.request_ended":1,"once.replayed":1}
}
