// SPDX-License-Identifier: Apache-2.0

package powertools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/dynamostore/powertools"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit/engine"
)

// The code of the guide in Python and TypeScript is the code that the other tests
// run, and each file of that code is in the guide.
func TestGuide(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(engine.Root(), "docs/migrate-from-powertools.md"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, name := range []string{"python/before/app.py", "python/shared/app.py", "typescript/before/app.ts", "typescript/shared/app.ts"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(data)
	}
	shown := map[string]bool{}
	for _, block := range regexp.MustCompile("(?ms)^```(python|ts)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		in := ""
		for name, code := range files {
			if strings.Contains(code, block[2]) {
				in, shown[name] = name, true
			}
		}
		if in == "" {
			t.Errorf("this code is in no file:\n%s", block[2])
		}
	}
	if len(shown) != len(files) {
		t.Errorf("the guide shows code of %v only", shown)
	}
}

// Both packages compute the key that this code computes, for random payloads.
func (w *fixture) keys(t *testing.T) {
	t.Helper()
	const n = 400
	for l, prefix := range languages {
		random := rand.New(rand.NewPCG(7, uint64(l)))
		var payload json.RawMessage
		key := ""
		put := dynamotest.Intercept(nil, func(_ context.Context, c *dynamotest.Call) {
			key, c.Out = text(c.In.(*dynamodb.PutItemInput).Item["id"]), &dynamodb.PutItemOutput{}
		})
		ask, err := powertools.Predecessor(put, "table", l, prefix, func(o *powertools.Options) {
			o.Payload = func(context.Context, idempotent.Key) (any, error) { return payload, nil }
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			payload = slices.Concat([]byte(`["order", `), document(random, 0), []byte("]"))
			if _, _, err := ask(t.Context(), idempotent.Key{Operation: "charge", Scope: "acme", ID: "o"}); err != nil {
				t.Fatalf("%s: %s: %v", l, payload, err)
			}
			a, err := w.old[l].ask(command{N: i, OrderID: payload, Mode: "hash"})
			if err != nil {
				t.Fatal(err)
			}
			if a.Key != key {
				t.Errorf("%s: the key of %s is %s, want %s", l, payload, key, a.Key)
			}
		}
	}
}

// document returns a random JSON document whose members have different names.
func document(random *rand.Rand, depth int) json.RawMessage {
	texts := []string{"order-1", "Bestellung Nr. 7 für Zoë", "日本 😀", "a\"b\\c/d\n\t\b\f\u0001\u007f\u2028", "<&>"}
	numbers := []string{"0", "-0", "42", "-7", "9007199254740993", "42.0", "4.2e1", "1e15", "1e16", "1E21", "123456789.125", "0.0001", "0.00001234", "1.5e-7", "-0.0", "100000000000000000000"}
	names := []string{"orderId", "customer", "Amount", "b", "_x", "C", "10", "9", "01", "a-b", "z z"}
	switch kind := random.IntN(6 - depth); {
	case kind <= 1:
		doc, _ := json.Marshal(texts[random.IntN(len(texts))]) // a text always encodes
		return doc
	case kind == 2:
		return json.RawMessage(numbers[random.IntN(len(numbers))])
	case kind == 3:
		return json.RawMessage([]string{"true", "false", "null"}[random.IntN(3)])
	}
	list, object := random.IntN(2) == 0, bytes.Buffer{}
	object.WriteString(map[bool]string{true: "[", false: "{"}[list])
	for i, at := range random.Perm(len(names))[:1+random.IntN(5)] {
		if i > 0 {
			object.WriteString(", ")
		}
		if !list {
			object.WriteString(strconv.Quote(names[at]) + ": ")
		}
		object.Write(document(random, depth+1))
	}
	object.WriteString(map[bool]string{true: "]", false: "}"}[list])
	return object.Bytes()
}

// oldTable creates a table of Powertools with that key, and returns its name.
func oldTable(t *testing.T, key string) string {
	t.Helper()
	name := fmt.Sprintf("idempotency-%d-%d", os.Getpid(), tables.Add(1))
	if err := engine.CreateTable(t.Context(), dynamostore.NewClient(engine.Config(endpoint)), name, key); err != nil {
		t.Fatal(err)
	}
	return name
}

// With a separate table and default attributes, both functions exclude each
// other too: what the old one did is replayed, even if it did it late, and it does not
// run what the new one did.
func TestTwoTables(t *testing.T) {
	t.Parallel()
	for l, prefix := range languages {
		table := oldTable(t, "id")
		paid := map[string]int{}
		late := make(chan struct{})
		w := startWorker(t, l, "before", endpoint, table, func(c command) {
			if paid[orderOf(c)]++; c.Mode == "late" {
				close(late)
			}
		})
		var ahead atomic.Int64
		now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		guard, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.Logger, o.Now = slog.New(slog.DiscardHandler), now })
		if err != nil {
			t.Fatal(err)
		}
		client := dynamostore.NewClient(engine.Config(endpoint))
		next, err := newHandler(guard, client, table, l, prefix,
			func(_ context.Context, o Order) (Receipt, error) { return Receipt{7, o.Amount}, nil }, func(o *powertools.Options) { o.Now = now })
		if err != nil {
			t.Fatal(err)
		}
		first := command{N: 1, OrderID: json.RawMessage(`"o-1"`), Amount: "42", Mode: "ok"}
		if a, err := w.ask(first); err != nil || a.Error != "" {
			t.Fatal(a.Error, err)
		}
		if got, err := next(t.Context(), Order{"o-1", "42"}); got != (Receipt{1, "42"}) || err != nil {
			t.Errorf("%s: got %+v, %v", l, got, err)
		}
		if _, err := next(t.Context(), Order{"o-1", "43"}); !errors.As(err, new(*idempotent.MismatchError)) {
			t.Errorf("%s: another amount: got error %v", l, err)
		}
		if got, err := next(t.Context(), Order{"o-2", "42"}); got != (Receipt{7, "42"}) || err != nil {
			t.Errorf("%s: a new order: got %+v, %v", l, got, err)
		}
		second := command{N: 2, OrderID: json.RawMessage(`"o-2"`), Amount: "42", Mode: "ok"}
		if a, err := w.ask(second); err != nil || a.Error != "IdempotencyAlreadyInProgressError" || paid["o-2"] != 0 || paid["o-1"] != 1 {
			t.Errorf("%s: the old function: got %+v, %v, payments %v", l, a, err, paid)
		}

		// A number with a fraction is the number of the old function.
		third := command{N: 3, OrderID: json.RawMessage(`"o-3"`), Amount: "50.00", Mode: "ok"}
		if a, err := w.ask(third); err != nil || a.Error != "" {
			t.Fatal(a.Error, err)
		}
		var o Order
		if err := json.Unmarshal([]byte(`{"orderId": "o-3", "amount": 50.00}`), &o); err != nil {
			t.Fatal(err)
		}
		if got, err := next(t.Context(), o); got.Receipt != 3 || err != nil {
			t.Errorf("%s: 50.00: got %+v, %v", l, got, err)
		}

		// The old function completes an order that counts as killed already.
		fourth, ended := command{N: 4, OrderID: json.RawMessage(`"o-4"`), Amount: "42", Mode: "late"}, make(chan error)
		go func() {
			_, err := w.ask(fourth)
			ended <- err
		}()
		<-late
		ahead.Store(int64(20 * time.Minute))
		if _, err := next(t.Context(), Order{"o-4", "42"}); !errors.As(err, new(*idempotent.UnresolvedError)) {
			t.Errorf("%s: a killed order: got error %v", l, err)
		}
		if _, err := w.ask(command{N: 5, OrderID: fourth.OrderID, Mode: "release", Amount: "0"}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		ahead.Store(int64(time.Hour))
		reconcile, err := newReconciler(guard, client, table, l, prefix, nil, func(o *powertools.Options) { o.Now = now })
		if err != nil {
			t.Fatal(err)
		}
		if report, err := reconcile(t.Context()); err != nil || report.Completed != 1 {
			t.Errorf("%s: the reconciler: %s, %v", l, report, err)
		}
		if got, err := next(t.Context(), Order{"o-4", "42"}); got != (Receipt{4, "42"}) || err != nil || paid["o-4"] != 1 {
			t.Errorf("%s: the late order: got %+v, %v", l, got, err)
		}
	}
}
