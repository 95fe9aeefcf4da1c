// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
)

type chargeRequest struct {
	Merchant, OrderID string
	Amount            int
}

type chargeResponse struct {
	ID     string
	Number json.Number
	Any    any
	When   time.Time
	Sum    *big.Int
}

var byOrder = idempotent.KeyFrom("charge", func(r chargeRequest) (scope, id string) { return r.Merchant, r.OrderID })

// F02, F20, G06: a key is built from the event and bound to the whole event,
// unless the program chooses what it is bound to.
func TestWrap(t *testing.T) {
	t.Parallel()
	g, events := newGuard(t)
	runs := 0
	h := idempotent.Wrap(g, byOrder, func(ctx context.Context, r chargeRequest) (chargeResponse, error) {
		runs++
		r.OrderID = "mutated" // the key is not computed again after this
		return chargeResponse{ID: "ch_1", Number: "12345678901234567.89", Any: map[string]any{"n": json.Number("9007199254740993")}, When: time.Unix(1, 2).UTC(), Sum: big.NewInt(7)}, nil
	})
	request := chargeRequest{"acme", "order-1", 4200}
	first, err := h(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	again, err := h(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(first)
	b, _ := json.Marshal(again)
	if !bytes.Equal(a, b) || runs != 1 {
		t.Fatalf("%d runs; first %s, again %s", runs, a, b)
	}
	if n := again.Any.(map[string]any)["n"]; n != json.Number("9007199254740993") {
		t.Errorf("an untyped number was replayed as %T %v", n, n)
	}
	request.Amount = 9000
	if _, err := h(t.Context(), request); !errors.As(err, new(*idempotent.MismatchError)) {
		t.Errorf("another amount: got error %v, want MismatchError", err)
	}
	other := chargeRequest{"other-merchant", "order-1", 4200}
	if _, err := h(t.Context(), other); err != nil || runs != 2 {
		t.Errorf("another merchant: error %v after %d runs, want its own run", err, runs)
	}
	want := "[reserved completed replayed mismatch reserved completed]"
	if got := fmt.Sprint(events.Kinds()); got != want {
		t.Errorf("got events %s, want %s", got, want)
	}
}

type onlyMarshals struct{ X int }

func (onlyMarshals) MarshalJSON() ([]byte, error) { return []byte(`{}`), nil }

type onlyMarshalsText struct{ X int }

func (onlyMarshalsText) MarshalText() ([]byte, error) { return nil, nil }

type recursive struct {
	Next *recursive
	Many []recursive
	ByID map[int]recursive
}

func wrap[Resp any](g *idempotent.Guard, optFns ...func(*idempotent.Operation)) (problem string) {
	defer func() {
		if p := recover(); p != nil {
			problem = fmt.Sprint(p)
		}
	}()
	idempotent.Wrap(g, byOrder, func(context.Context, chargeRequest) (r Resp, err error) { return }, optFns...)
	return ""
}

func TestWrapRefusesAtConstruction(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	for name, row := range map[string]struct{ got, says string }{
		"no guard":                {wrap[int](nil), "must not be nil"},
		"bad option":              {wrap[int](g, func(o *idempotent.Operation) { o.Retention = -1 }), "Operation.Retention"},
		"channel":                 {wrap[chan int](g), "chan int"},
		"function in a struct":    {wrap[struct{ F func() }](g), "F: func()"},
		"complex in a map":        {wrap[map[string]complex128](g), "complex128"},
		"interface with methods":  {wrap[struct{ R []io.Reader }](g), "io.Reader"},
		"map with struct keys":    {wrap[map[struct{ X int }]int](g), "keys of type"},
		"key that only marshals":  {wrap[map[onlyMarshalsText]int](g), "UnmarshalText"},
		"marshals without un-":    {wrap[*onlyMarshals](g), "UnmarshalJSON"},
		"text without un-":        {wrap[onlyMarshalsText](g), "UnmarshalText"},
		"nothing exported":        {wrap[struct{ x int }](g), "is not exported"},
		"nested nothing exported": {wrap[[2]struct{ A struct{ x int } }](g), "is not exported"},
	} {
		if row.got == "" || !strings.Contains(row.got, row.says) {
			t.Errorf("%s: panicked with %q, want something about %q", name, row.got, row.says)
		}
	}
	for name, got := range map[string]string{
		"plain":        wrap[chargeResponse](g),
		"recursive":    wrap[recursive](g),
		"empty struct": wrap[struct{}](g),
		"any":          wrap[any](g),
		"skipped field": wrap[struct {
			A int
			F func() `json:"-"`
		}](g),
		"text keys":       wrap[map[time.Duration]int](g),
		"own codec":       wrap[chan int](g, func(o *idempotent.Operation) { o.Codec = nothing{} }),
		"embedded struct": wrap[struct{ chargeResponse }](g),
	} {
		if got != "" {
			t.Errorf("%s: panicked with %q", name, got)
		}
	}
	for name, f := range map[string]func(){
		"no key":     func() { idempotent.Wrap(g, nil, func(context.Context, int) (int, error) { return 0, nil }) },
		"no handler": func() { idempotent.Wrap[chargeRequest, int](g, byOrder, nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// nothing is a codec that stores nothing.
type nothing struct{}

func (nothing) Name() string               { return "nothing" }
func (nothing) Encode(any) ([]byte, error) { return nil, nil }
func (nothing) Decode([]byte, any) error   { return nil }

// G08: a request without a valid key is refused and shares no record.
func TestWrapKeyErrors(t *testing.T) {
	t.Parallel()
	own := errors.New("no order in the message")
	g, _ := newGuard(t)
	handler := func(context.Context, any) (int, error) {
		t.Error("the handler was entered")
		return 0, nil
	}
	h := idempotent.Wrap(g, func(context.Context, any) (idempotent.Key, error) { return idempotent.Key{}, own }, handler)
	if _, err := h(t.Context(), nil); err != own {
		t.Errorf("got error %v, want the KeyFunc's own", err)
	}
	h = idempotent.Wrap(g, func(context.Context, any) (idempotent.Key, error) {
		return idempotent.Key{Operation: "op", Scope: "s", ID: "i"}, own
	}, handler)
	if _, err := h(t.Context(), nil); err != own {
		t.Errorf("with a key: got error %v, want the KeyFunc's own", err)
	}
	h = idempotent.Wrap(g, idempotent.KeyFrom("op", func(any) (string, string) { return "s", "" }), handler)
	if _, err := h(t.Context(), make(chan int)); !errors.As(err, new(*idempotent.InvalidKeyError)) || !strings.Contains(err.Error(), "no idempotency key") {
		t.Errorf("neither a key nor a fingerprint: got error %v, want no key", err)
	}
	h = idempotent.Wrap(g, idempotent.KeyFrom("op", func(any) (string, string) { return "s", "i" }), handler)
	if _, err := h(t.Context(), make(chan int)); !errors.As(err, new(*idempotent.InvalidKeyError)) || !strings.Contains(err.Error(), "cannot be computed") {
		t.Errorf("a request without a fingerprint: got error %v, want InvalidKeyError", err)
	}
	if _, err := h(t.Context(), "\xff"); !errors.As(err, new(*idempotent.InvalidKeyError)) {
		t.Errorf("a request that is not UTF-8: got error %v, want InvalidKeyError", err)
	}
}

// F22: a fingerprint set by the caller is not computed again.
func TestWrapOwnFingerprint(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t)
	h := idempotent.Wrap(g, func(_ context.Context, r chargeRequest) (idempotent.Key, error) {
		fp, err := idempotent.FingerprintOf(r.Amount) // the note may change
		return idempotent.Key{Operation: "charge", Scope: idempotent.Global, ID: r.OrderID, Fingerprint: fp}, err
	}, func(context.Context, chargeRequest) (string, error) { return "ch_1", nil })
	for _, merchant := range []string{"a", "b"} {
		if got, err := h(t.Context(), chargeRequest{merchant, "order-1", 1}); got != "ch_1" || err != nil {
			t.Errorf("got %q and error %v", got, err)
		}
	}
}

// G08: without a guard, and without a key if that is allowed, every request runs
// and shares no record.
func TestUnguarded(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]func(*idempotent.Options){
		"disabled":        func(o *idempotent.Options) { o.Disabled = true },
		"missing allowed": func(o *idempotent.Options) { o.AllowMissingKey = true },
	} {
		g, _ := newGuard(t, o)
		keys := map[string]bool{}
		byOrder := func(ctx context.Context, r chargeRequest) (idempotent.Key, error) {
			if name == "disabled" {
				t.Error("the KeyFunc of a disabled guard was called")
			}
			return byOrder(ctx, r)
		}
		h := idempotent.Wrap(g, byOrder, func(ctx context.Context, _ chargeRequest) (int, error) {
			if _, ok := idempotent.FromContext(ctx); ok {
				t.Errorf("%s: there is an execution", name)
			}
			keys[idempotent.DownstreamKey(ctx)] = true
			return len(keys), nil
		})
		outer := context.Background()
		for want := 1; want <= 2; want++ {
			got, err := idempotent.Do(outer, newFixture(t).guard, newKey(), func(ctx context.Context) (int, error) {
				return h(ctx, chargeRequest{Merchant: "acme"}) // the outer execution is hidden
			})
			if got != want || err != nil {
				t.Errorf("%s: run %d returned %d and error %v", name, want, got, err)
			}
		}
		if keys[""] {
			t.Errorf("%s: an empty downstream key", name)
		}
		busy := errors.New("busy")
		if _, err := idempotent.Do(outer, g, idempotent.Key{Operation: "charge", Scope: "acme"}, func(context.Context) (int, error) { return 0, busy }); err != busy {
			t.Errorf("%s: got error %v, want the handler's own", name, err)
		}
	}
}

// The event that Lambda sends for each invocation of a durable execution.
const durableEvent = `{
	"DurableExecutionArn": "arn:aws:lambda:eu-west-1:123456789012:function:order:7/durable-execution/once-1/8f2a",
	"CheckpointToken": "t-1",
	"InitialExecutionState": {"Operations": [{"Id": "0", "Type": "EXECUTION", "ExecutionDetails": {"InputPayload": "{\"order\":1}"}}]}
}`

// A durable handler is invoked for every part of an execution, with one key. If
// the suspension of the first part was stored as the outcome, the execution would
// never continue. So Wrap refuses such an event before it does anything.
func TestWrapRefusesDurableExecutions(t *testing.T) {
	t.Parallel()
	t.Run("json.RawMessage", func(t *testing.T) {
		refusesDurable(t, func(event []byte) json.RawMessage { return event })
	})
	t.Run("bytes", func(t *testing.T) {
		refusesDurable(t, func(event []byte) []byte { return event })
	})
	t.Run("pointer", func(t *testing.T) {
		refusesDurable(t, func(event []byte) *json.RawMessage { return (*json.RawMessage)(&event) })
	})
	t.Run("map", func(t *testing.T) { refusesDurable(t, decoded[map[string]any]) })
	t.Run("map of raw values", func(t *testing.T) { refusesDurable(t, decoded[map[string]json.RawMessage]) })
	t.Run("any", func(t *testing.T) { refusesDurable(t, decoded[any]) })
}

// Other requests are not inspected, or are of other kinds.
func TestWrapAcceptsOtherRequests(t *testing.T) {
	t.Parallel()
	type name string
	accepts(t, []string{"DurableExecutionArn", "CheckpointToken"})
	accepts(t, map[int]string{1: "DurableExecutionArn"})
	accepts(t, map[name]int{"DurableExecutionArn": 1})
	accepts(t, []byte(`DurableExecutionArn and CheckpointToken`))
	accepts(t, []byte(`["DurableExecutionArn", "CheckpointToken"]`))
	accepts[*map[string]any](t, nil)
	for _, v := range []any{nil, 5, "DurableExecutionArn", []any{"CheckpointToken"}, struct{}{}} {
		accepts(t, v)
	}
}

func accepts[Req any](t *testing.T, req Req) {
	t.Helper()
	g, _ := newGuard(t)
	handler := idempotent.Wrap(g,
		func(context.Context, Req) (idempotent.Key, error) { return newKey(), nil },
		func(context.Context, Req) (string, error) { return "done", nil })
	if answer, err := handler(t.Context(), req); answer != "done" || err != nil {
		t.Errorf("%#v: %q, %v", req, answer, err)
	}
}

func decoded[T any](event []byte) (v T) {
	if err := json.Unmarshal(event, &v); err != nil {
		panic(err)
	}
	return v
}

func refusesDurable[Req any](t *testing.T, event func([]byte) Req) {
	t.Helper()
	g, events := newGuard(t)
	runs, key := 0, newKey()
	handler := idempotent.Wrap(g,
		func(context.Context, Req) (idempotent.Key, error) { return key, nil },
		func(context.Context, Req) (json.RawMessage, error) {
			runs++
			return json.RawMessage(`{"Status":"PENDING"}`), nil
		})

	for range 2 {
		answer, err := handler(t.Context(), event([]byte(durableEvent)))
		if err == nil || !strings.Contains(err.Error(), "durable") || !strings.Contains(err.Error(), "lambdadurable") || answer != nil {
			t.Errorf("the handler returned %s, %v", answer, err)
		}
	}
	if runs != 0 || len(events.Events()) != 0 {
		t.Errorf("the durable handler ran %d times, and there were the events %v", runs, events.Events())
	}

	// Other events with one of these members, or with neither, are not refused.
	for i, other := range []string{`{"order":1}`, `{"DurableExecutionArn":"arn"}`, `{"CheckpointToken":"t","order":1}`, `{"CheckpointToken":"DurableExecutionArn"}`} {
		key = newKey()
		if _, err := handler(t.Context(), event([]byte(other))); err != nil || runs != i+1 {
			t.Errorf("%s: %v after %d runs", other, err, runs)
		}
	}
}

// A request type with the members of such an event is refused at start-up.
func TestWrapRefusesTypesOfDurableEvents(t *testing.T) {
	t.Parallel()
	type invocation struct {
		DurableExecutionArn string
		Token               string `json:"CheckpointToken"`
	}
	type first struct{ DurableExecutionArn string }
	type second struct{ CheckpointToken string }
	g, _ := newGuard(t)
	if err := wrapPanic[invocation](g); err == nil || !strings.Contains(err.Error(), "durable") {
		t.Errorf("a struct: %v", err)
	}
	if err := wrapPanic[*invocation](g); err == nil || !strings.Contains(err.Error(), "durable") {
		t.Errorf("a pointer: %v", err)
	}
	if err := errors.Join(wrapPanic[first](g), wrapPanic[second](g)); err != nil {
		t.Errorf("a struct with one of the members: %v", err)
	}
}

func wrapPanic[Req any](g *idempotent.Guard) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New(fmt.Sprint(p))
		}
	}()
	idempotent.Wrap(g,
		func(context.Context, Req) (idempotent.Key, error) { return newKey(), nil },
		func(context.Context, Req) (string, error) { return "", nil })
	return nil
}

func TestFailureModes(t *testing.T) {
	idempotenttest.RunFailureModes(t, idempotenttest.Fixture{
		Open: func(testing.TB) driver.Store { return memstore.New() },
	})
}

// The same over a store that stores large results beside their records.
func TestFailureModesWithChunks(t *testing.T) {
	idempotenttest.RunFailureModes(t, idempotenttest.Fixture{
		Open: func(testing.TB) driver.Store { return newChunked(memstore.New()) },
	})
}

// F44: the handler's context ends before the deadline, and its downstream key
// differs for every record.
func TestHandlerContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.key.RecordID()
	if _, err := f.do(func(ctx context.Context) (string, error) {
		if d, _ := ctx.Deadline(); !d.Equal(start.Add(9500 * ms)) {
			t.Errorf("the handler's context ends at %v, want half a second before %v", d, start.Add(10*time.Second))
		}
		e, ok := idempotent.FromContext(ctx)
		if !ok || e.RecordID() != id || e.Attempt() != 1 || e.Token() != f.record().Token() || e.Recovery() != idempotent.Reconcile {
			t.Errorf("got execution %+v, %v", e, ok)
		}
		if got := idempotent.DownstreamKey(ctx); got != id.DownstreamKey() || !strings.HasPrefix(got, "once-") || len(got) != 48 {
			t.Errorf("got downstream key %q", got)
		}
		return "", nil
	}); err != nil {
		t.Fatal(err)
	}
	if one, two := idempotent.DownstreamKey(t.Context()), idempotent.DownstreamKey(t.Context()); one == two || one == "" {
		t.Error("outside an execution two downstream keys are equal")
	}
	if id.DownstreamKey() == newKey().RecordID().DownstreamKey() {
		t.Error("two records share a downstream key")
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	steps := slices.Repeat([]string{strings.Repeat("s", 64)}, 256)
	for name, row := range map[string]struct {
		f    func(*idempotent.Options)
		says string
	}{
		"retention":       {func(o *idempotent.Options) { o.Retention = -time.Hour }, "Operation.Retention"},
		"below a ms":      {func(o *idempotent.Options) { o.LeaseMargin = time.Microsecond }, "at least 1ms"},
		"reserve":         {func(o *idempotent.Options) { o.DeadlineReserve = -1 }, "Operation.DeadlineReserve"},
		"a short reserve": {func(o *idempotent.Options) { o.DeadlineReserve = 100*ms - 1 }, "Operation.DeadlineReserve is 99.999999ms; it must be at least 100ms"},
		"lease":           {func(o *idempotent.Options) { o.DefaultLease = time.Second }, "longer than Operation.LeaseMargin"},
		"reconcile after": {func(o *idempotent.Options) { o.ReconcileAfter = -1 }, "Operation.ReconcileAfter"},
		"cache age":       {func(o *idempotent.Options) { o.CacheAge = -1 }, "Options.CacheAge"},
		"cache entries":   {func(o *idempotent.Options) { o.CacheEntries = -1 }, "CacheEntries"},
		"cache bytes":     {func(o *idempotent.Options) { o.CacheBytes = -1 }, "CacheBytes"},
		"wait":            {func(o *idempotent.Options) { o.WaitFor = -1 }, "WaitFor"},
		"unresolved":      {func(o *idempotent.Options) { o.UnresolvedRetention = -1 }, "UnresolvedRetention"},
		"no steps":        {func(o *idempotent.Options) { o.Recovery = idempotent.Resume }, "Operation.Steps is empty"},
		"step name":       {func(o *idempotent.Options) { o.Steps = []string{"a", "b c"} }, "Operation.Steps: "},
		"lease of margin": {func(o *idempotent.Options) { o.DefaultLease, o.LeaseMargin = time.Second, time.Second }, "longer than Operation.LeaseMargin"},
		"recovery":        {func(o *idempotent.Options) { o.Recovery = 7 }, "Reconcile, Resume or Rerun"},
		"codec name":      {func(o *idempotent.Options) { o.Codec = named("json+br") }, "without '+'"},
		"codec final":     {func(o *idempotent.Options) { o.Codec = named("final") }, `"final"`},
		"codec omitted":   {func(o *idempotent.Options) { o.Codec = named("omitted") }, `"omitted"`},
		"codec unnamed":   {func(o *idempotent.Options) { o.Codec = named("") }, "Operation.Codec"},
		"too many steps":  {resume(append(steps, "s")...), "Operation.Steps: 257 names have 16385 bytes together; the limit is 16384"},
		"version text":    {func(o *idempotent.Options) { o.ResultVersion = "2\xff" }, "Operation.ResultVersion: want at most 1024 bytes of valid UTF-8"},
		"version length":  {func(o *idempotent.Options) { o.ResultVersion = strings.Repeat("v", 1025) }, "Operation.ResultVersion"},
	} {
		if _, err := idempotent.New(memstore.New(), row.f); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: New: got error %v, want one that contains %q", name, err, row.says)
		}
		if _, err := newFixture(t).guard.With(row.f); err == nil {
			t.Errorf("%s: With accepted it", name)
		}
	}
	if _, err := newFixture(t).do(charged, func(o *idempotent.Operation) { o.Retention = -1 }); err == nil {
		t.Error("Do accepted a negative retention")
	}
	if _, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.LeaseMargin, o.CacheAge = ms, ms }); err != nil {
		t.Errorf("1 ms: %v", err)
	}
	if _, err := idempotent.New(memstore.New(), func(o *idempotent.Options) { o.ResultVersion = strings.Repeat("v", 1024) }); err != nil {
		t.Errorf("a version of 1,024 bytes: %v", err)
	}
	if _, err := idempotent.New(memstore.New(), resume(steps...)); err != nil {
		t.Errorf("names of 16 KB: %v", err)
	}
	if _, err := idempotent.New(nil); err == nil {
		t.Error("New accepted a nil store")
	}
	g, err := newFixture(t).guard.With(func(o *idempotent.Options) { o.Disabled = true })
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := idempotent.Do(t.Context(), g, idempotent.Key{}, charged); got != "ch_1" || err != nil {
			t.Errorf("With did not change the option: %v", err)
		}
	}
}

type named string

func (n named) Name() string             { return string(n) }
func (named) Encode(any) ([]byte, error) { return nil, nil }
func (named) Decode([]byte, any) error   { return nil }

// The decision table of docs/concepts.md is the table of the tests.
func TestDecisionTable(t *testing.T) {
	kit.Part(t, "../docs/concepts.md", "decide", idempotent.DecisionTable(), *update)
}

var update = flag.Bool("update", false, "write the generated parts of the documents")

// A disabled guard logs that once.
func TestDisabledIsLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f := newFixture(t, func(o *idempotent.Options) { o.Disabled, o.Logger = true, slog.New(slog.NewTextHandler(&log, nil)) })
	for range 2 {
		if _, err := f.do(charged); err != nil {
			t.Fatal(err)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "Options.Disabled") {
			t.Errorf("logged %q", text)
		}
	}
}

// A nil guard panics with a message that says what to do.
func TestNilGuard(t *testing.T) {
	t.Parallel()
	var g *idempotent.Guard
	for name, use := range map[string]func(){
		"Do":               func() { _, _ = idempotent.Do(t.Context(), g, newKey(), charged) },
		"With":             func() { _, _ = g.With() },
		"Resolve":          func() { _ = g.Resolve(t.Context(), newKey().RecordID(), idempotent.Resolved(1)) },
		"Pending":          func() { _ = g.Pending(driver.Record{}) },
		"StoredOutcome":    func() { _, _, _ = g.StoredOutcome(t.Context(), driver.Record{}) },
		"Forget":           func() { _ = g.Forget(t.Context(), newKey().RecordID(), idempotent.Correction{}) },
		"Requeue":          func() { _ = g.Requeue(t.Context(), newKey().RecordID()) },
		"RequeueExhausted": func() { _, _ = g.RequeueExhausted(t.Context()) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, name+": the guard is nil; create one with New") {
					t.Errorf("%s: panicked with %q", name, text)
				}
			}()
			use()
		}()
	}
}
