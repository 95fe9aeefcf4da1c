// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdabatch"
	"github.com/once-lambda/once/telemetry/audit"
	"github.com/once-lambda/once/tests/engine"
)

var (
	query  = regexp.MustCompile("(?ms)^```logs-insights\n(.*?)^```$")
	quoted = regexp.MustCompile(`"[^"]*"`)
	word   = regexp.MustCompile(`@?[a-z_]+\(?`)
	named  = regexp.MustCompile(` as ([a-z]+)`)
)

// vocabulary has the words of the query language.
var vocabulary = map[string]bool{
	"fields": true, "filter": true, "stats": true, "sort": true, "by": true, "as": true, "and": true, "or": true, "like": true,
	"asc": true, "desc": true, "count(": true, "max(": true, "bin(": true, "h": true, "ispresent(": true, "@timestamp": true,
}

// logged returns the fields and texts of every line that a function writes for
// messages that succeed, fail and are refused.
func logged(t *testing.T) (fields map[string]bool, text string) {
	t.Helper()
	var w bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&w, &slog.HandlerOptions{Level: slog.LevelDebug}))
	guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) {
		o.Logger, o.RequestID = logger, func(context.Context) string { return "r-1" }
		o.Observer = event.Observers(audit.New(&w), event.LogObserver(logger))
	})
	if err != nil {
		t.Fatal(err)
	}
	h := lambdabatch.SQS(guard, func(_ context.Context, body string) error {
		if body == "fails" {
			return errors.New("no")
		}
		return nil
	}, func(o *lambdabatch.Options) {
		o.Operation, o.ID, o.NoRedrive = "ship", lambdabatch.ItemID, true
	})
	batch := events.SQSEvent{Records: []events.SQSMessage{{MessageId: "m1", Body: "works", EventSourceARN: "arn"}, {MessageId: "m2", Body: "fails", EventSourceARN: "arn"}}}
	for range 2 {
		if _, err := h(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	fields = map[string]bool{}
	for line := range bytes.Lines(w.Bytes()) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		for name := range m {
			fields[name] = true
		}
	}
	return fields, w.String()
}

// The queries of docs/observe.md use fields and texts that are in the lines.
func TestQueriesFindSomething(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(engine.Root(), "docs", "observe.md"))
	if err != nil {
		t.Fatal(err)
	}
	fields, text := logged(t)
	queries := query.FindAllStringSubmatch(string(page), -1)
	if len(queries) < 5 {
		t.Fatalf("%d queries were found", len(queries))
	}
	for _, q := range queries {
		made := map[string]bool{}
		for _, m := range named.FindAllStringSubmatch(q[1], -1) {
			made[m[1]] = true
		}
		for _, w := range word.FindAllString(quoted.ReplaceAllString(q[1], ""), -1) {
			if !vocabulary[w] && !made[w] && !fields[w] {
				t.Errorf("no line has the field %q of the query\n%s", w, q[1])
			}
		}
		for _, value := range quoted.FindAllString(q[1], -1) {
			value = strings.Trim(value, `"`)
			if len(value) != 12 && value != "ERROR" && !strings.Contains(text, value) { // 12: a key's hash
				t.Errorf("no line has %q of the query\n%s", value, q[1])
			}
		}
	}
}
