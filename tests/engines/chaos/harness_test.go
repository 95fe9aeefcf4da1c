// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/faults"
)

// upstream is a server that records what arrives.
type upstream struct {
	*httptest.Server

	mu     sync.Mutex
	got    []string
	refuse string // the operation without a reply
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "DynamoDB_20120810.")
		u.mu.Lock()
		u.got = append(u.got, op)
		n := len(u.got)
		u.mu.Unlock()
		if op == u.refuse {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 99)+string(rune('0'+n)))
	}))
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) arrived() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.got)
}

// post sends an operation through the proxy, and returns the reply.
func post(ctx context.Context, p *proxy, op string) (string, error) {
	return postBody(ctx, p, op, "{}")
}

func postBody(ctx context.Context, p *proxy, op, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Amz-Target", "DynamoDB_20120810."+op)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	return string(answer), err
}

func TestProxy_Faults(t *testing.T) {
	t.Parallel()
	const hold = 30 * time.Millisecond
	for _, row := range []struct {
		fault    faults.Fault
		arrives  int    // how often the request arrives in the end
		answered string // the end of the reply, whose last character counts the arrivals; empty: none
		slow     bool
	}{
		{fault: faults.NoFault, arrives: 1, answered: "1"},
		{fault: faults.LostRequest, arrives: 0},
		{fault: faults.LostReply, arrives: 1},
		{fault: cutReply, arrives: 1},
		{fault: silentRequest, arrives: 0},
		{fault: silentReply, arrives: 1},
		{fault: faults.SlowRequest, arrives: 1, answered: "1", slow: true},
		{fault: faults.SlowReply, arrives: 1, answered: "1", slow: true},
		{fault: faults.Repeated, arrives: 2, answered: "2"},
		{fault: lateRepeat, arrives: 2, answered: "1"},
		{fault: faults.Throttled, answered: `"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"injected"}`},
		{fault: faults.InternalError, answered: `#InternalServerError","message":"injected"}`},
		{fault: failedReply, arrives: 1, answered: `#InternalServerError","message":"injected"}`},
		{fault: staleIndex, arrives: 1, answered: "1"}, // no query
	} {
		t.Run(string("fault "+row.fault), func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t)
			p := newProxy(u.URL, faults.On("PutItem", row.fault), func() time.Duration { return hold })
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			silent := row.fault == silentReply || row.fault == silentRequest
			if silent {
				go func() {
					for (p.struck(row.fault) == 0 || len(u.arrived()) < row.arrives) && pause(ctx, time.Millisecond) == nil {
					}
					_ = pause(ctx, 300*time.Millisecond) // a reply would arrive now
					leave()
				}()
			}
			began := time.Now()
			got, err := post(ctx, p, "PutItem")
			took := time.Since(began)
			switch {
			case row.answered == "" && err == nil:
				t.Errorf("the client got %q, want an error", got)
			case row.answered != "" && (err != nil || !strings.HasSuffix(got, row.answered)):
				t.Errorf("the client got %q, %v; want the reply %s", got, err, row.answered)
			case row.slow && took < hold:
				t.Errorf("it took %s, want at least %s", took, hold)
			case silent && !errors.Is(err, context.Canceled):
				t.Errorf("the client got error %v, want that it has left", err)
			}
			p.drain()
			if n := len(u.arrived()); n != row.arrives {
				t.Errorf("%d requests arrived, want %d", n, row.arrives)
			}
			if row.fault != faults.NoFault && row.fault != staleIndex && p.faults[row.fault] != 1 {
				t.Errorf("counted %v", p.faults)
			}
		})
	}
}

// A query of the index gets the reply to the last query of the same list.
func TestProxy_StaleIndex(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	calls := 0
	p := newProxy(u.URL, func(faults.Call) faults.Fault {
		if calls++; calls == 2 || calls == 3 {
			return staleIndex
		}
		return faults.NoFault
	}, nil)
	const one, other = `{"IndexName":"i",":due":{"N":"%d"},":shard":{"S":"1"}}`, `{"IndexName":"i",":due":{"N":"%d"},":shard":{"S":"2"}}`
	for i, c := range []struct{ query, want string }{{one, "1"}, {one, "1"}, {other, "2"}, {one, "3"}} {
		got, err := postBody(t.Context(), p, "Query", fmt.Sprintf(c.query, i))
		if err != nil || !strings.HasSuffix(got, c.want) {
			t.Errorf("query %d got %q, %v; want the reply %s", i, got, err, c.want)
		}
	}
	if p.faults[staleIndex] != 1 {
		t.Errorf("counted %v, want one stale index: the other list was not read before", p.faults)
	}
}

// A refused transaction names a reason for each of its items.
func TestProxy_TransactionConflict(t *testing.T) {
	t.Parallel()
	p := newProxy(newUpstream(t).URL, faults.On("TransactWriteItems", faults.TransactionConflict), nil)
	got, err := postBody(t.Context(), p, "TransactWriteItems", `{"TransactItems":[{},{}]}`)
	const want = `{"CancellationReasons":[{"Code":"TransactionConflict","Message":"Transaction is ongoing for the item"},{"Code":"None"}],"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"injected"}`
	if err != nil || got != want {
		t.Errorf("the client got %s, %v; want %s", got, err, want)
	}
}

// A request that was in transit when its client died still arrives.
func TestProxy_RequestOutlivesItsClient(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	ctx, die := context.WithCancel(t.Context())
	dead := make(chan struct{})
	p := newProxy(u.URL, faults.On("PutItem", faults.SlowRequest), func() time.Duration {
		die()
		<-dead
		return 0
	})
	if got, err := post(ctx, p, "PutItem"); err == nil {
		t.Errorf("the client got %q, want an error", got)
	}
	close(dead)
	p.drain()
	if n := len(u.arrived()); n != 1 {
		t.Errorf("%d requests arrived, want 1", n)
	}
}

// A transaction is answered after the engine has answered another request, and
// not at all if it does not.
func TestProxy_TransactionIsAnsweredOnceCommitted(t *testing.T) {
	t.Parallel()
	for _, refuse := range []string{"", "ListTables"} {
		u := newUpstream(t)
		u.refuse = refuse
		p := newProxy(u.URL, faults.On("", faults.NoFault), func() time.Duration { return 0 })
		got, err := post(t.Context(), p, "TransactWriteItems")
		if (err == nil) != (refuse == "") {
			t.Errorf("refusing %q: the client got %q, %v", refuse, got, err)
		}
		p.drain()
		if got := u.arrived(); len(got) < 2 || got[0] != "TransactWriteItems" || got[1] != "ListTables" {
			t.Errorf("refusing %q: %q arrived", refuse, got)
		}
	}
}

// The judge finds each planted violation.
func TestJudge(t *testing.T) {
	t.Parallel()
	one := []effect{{name: "charge", proofs: []string{"p"}}}
	answers := func(a ...answer) *work {
		return &work{promise: reconcile, key: "k", record: reconcile.key("k").RecordID(), answers: a, final: answer{Class: classReplayed, Proof: "p", Stored: true}}
	}
	ended := func(w *work, final answer) *work {
		w.final = final
		return w
	}
	twice := []effect{{name: "charge", proofs: []string{"q", "p"}}}
	forgotten := func(w *work) *work {
		w.forgotten = 1
		return w
	}
	corrected := func(w *work, kept bool) *work {
		w.corrected, w.final.Corrected = true, kept
		return w
	}
	inShadow := func(w *work) *work {
		w.promise, w.inShadow = shadowed, 1
		return w
	}
	expiring := func(a ...answer) *work {
		return &work{promise: brief, key: "k", record: brief.key("k").RecordID(), answers: a}
	}
	for name, row := range map[string]struct {
		work    *work
		effects []effect
		want    string
	}{
		"no violation":          {answers(answer{Class: classSilent}, answer{Class: classDone, Proof: "p", Stored: true}), one, ""},
		"a double effect":       {answers(), []effect{{name: "charge", proofs: []string{"p", "q"}}}, "happened 2 times"},
		"a lost effect":         {answers(), []effect{{name: "charge"}}, "is lost"},
		"no effect, no answer":  {ended(answers(), answer{Class: classUnresolved}), []effect{{name: "charge"}}, "did not happen"},
		"one of two steps":      {answers(), append(slices.Clone(one), effect{name: "ship"}), "effect ship is lost"},
		"another result":        {answers(answer{Class: classDone, Proof: "other"}), one, `got the result "other"`},
		"another replay":        {ended(answers(), answer{Class: classReplayed, Proof: "other"}), one, `got the result "other"`},
		"a damaged result":      {answers(answer{Class: classDamaged, Proof: "p"}), one, "damaged result"},
		"an outlasting call":    {answers(answer{Class: classOutlasts}), one, "outlasting call"},
		"no answer in the end":  {ended(answers(), answer{Class: classUnresolved}), one, "last request"},
		"a stored result, lost": {ended(answers(answer{Class: classDone, Proof: "p", Stored: true}), answer{Class: classUnavailable}), one, "a replay gets none"},
		"a forgotten outcome":   {forgotten(answers(answer{Class: classDone, Proof: "q", Stored: true})), twice, ""},
		"forgotten, a third":    {forgotten(answers()), []effect{{name: "charge", proofs: []string{"q", "p", "r"}}}, "happened 3 times"},
		"forgotten, no effect":  {forgotten(answers(answer{Class: classDone, Proof: "other"})), twice, `got the result "other"`},
		"acknowledged, lost":    {expiring(answer{Class: classDone, Acknowledged: true}), []effect{{name: "charge"}}, "is lost"},
		"expired, no answer":    {expiring(answer{Class: classSilent}), []effect{{name: "charge"}}, ""},
		"expired, twice":        {expiring(), twice, "happened 2 times"},
		"a corrected outcome":   {corrected(answers(), true), one, ""},
		"a correction, undone":  {corrected(answers(), false), one, "got the one before"},
		"shadow, then a run":    {inShadow(answers(answer{Class: classUnkept, Proof: "q"})), twice, ""},
		"shadow, a third":       {inShadow(answers()), []effect{{name: "charge", proofs: []string{"q", "p", "r"}}}, "happened 3 times"},
		"a result not kept":     {ended(answers(answer{Class: classUnkept, Proof: "p"}), answer{Class: classUnavailable}), one, ""},
	} {
		got := strings.Join(judge(row.work, row.effects, "p"), "\n")
		if row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("%s: the judge reports %q, want %q", name, got, row.want)
		}
	}
}

// What only a storm leaves behind does not grow with its length.
func TestGrown(t *testing.T) {
	t.Parallel()
	at := func(minute int, heap, goroutines, files, items, keys int) sample {
		return sample{time.Duration(minute) * time.Minute, vitals{heap, goroutines, files}, items, keys}
	}
	first, settled := at(1, 1<<20, 10, 9, 100, 100), at(10, 20<<20, 20, 20, 1500, 1000)
	for name, row := range map[string]struct {
		samples []sample
		want    string
	}{
		"as before":          {[]sample{first, settled, at(60, 22<<20, 25, 21, 9000, 6000)}, ""},
		"grown at first":     {[]sample{first, settled, settled}, ""},
		"more heap":          {[]sample{first, settled, at(60, 31<<20, 20, 20, 9000, 6000)}, "heap"},
		"more goroutines":    {[]sample{first, settled, at(60, 20<<20, 31, 20, 9000, 6000)}, "goroutines"},
		"more files":         {[]sample{first, settled, at(60, 20<<20, 20, 31, 9000, 6000)}, "files"},
		"more items":         {[]sample{first, settled, at(60, 20<<20, 20, 20, 18000, 6000)}, "items"},
		"nothing to compare": {[]sample{first, settled}, "nothing"},
		"no sample":          {nil, "nothing"},
	} {
		got := strings.Join(grown(row.samples, 10*time.Minute), "\n")
		if row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
	}
}

func TestJudgeChunks(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := driver.Record{ID: "op#hash", Version: driver.Version{1}, Chunks: driver.Chunks{Count: 1}, Expires: now.Add(time.Hour)}
	forever := r
	forever.Expires = time.Time{}
	named := "op#hash#" + hex.EncodeToString(r.Version[:]) + "#0"
	for name, row := range map[string]struct {
		record driver.Record
		chunks map[string]time.Time
		want   string
	}{
		"named":                    {r, map[string]time.Time{named: now.Add(3 * time.Hour)}, ""},
		"named, for ever":          {forever, map[string]time.Time{named: {}}, ""},
		"unnamed, with a ttl":      {r, map[string]time.Time{named: now.Add(3 * time.Hour), "op#hash#00#0": now.Add(time.Hour)}, ""},
		"missing":                  {r, nil, "is missing"},
		"gone before its record":   {r, map[string]time.Time{named: now.Add(time.Minute)}, "outlives its chunk"},
		"gone, and its record not": {forever, map[string]time.Time{named: now.Add(time.Hour)}, "outlives its chunk"},
		"longer than its record":   {r, map[string]time.Time{named: {}}, "never expires"},
		"unnamed, for ever":        {forever, map[string]time.Time{named: {}, "op#hash#00#0": {}}, "never expires"},
		"much too long":            {r, map[string]time.Time{named: now.Add(100 * time.Hour)}, "later than any record"},
	} {
		got := strings.Join(judgeChunks(map[string]driver.Record{string(row.record.ID): row.record}, row.chunks, now), "\n")
		if row.want == "" && got != "" || !strings.Contains(got, row.want) {
			t.Errorf("%s: the judge reports %q, want %q", name, got, row.want)
		}
	}
}

// Evidence is about a dead process, and the ledger is read after its death.
func TestBank_Evidence(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "ledger")
	mine, err := openLedger(name)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := openLedger(name)
	if err != nil {
		t.Fatal(err)
	}
	b := newProvider(mine, 1, 0)
	defer b.Close()
	w := &fixture{provider: b.URL}
	want := func(record idempotent.RecordID, said string) {
		t.Helper()
		got, err := w.evidence(t.Context(), record, idempotent.Reconcile, driver.StateUnknown, "c1/7")
		if err != nil || got != said {
			t.Errorf("%s: the evidence is %q, %v; want %q", record, got, err, said)
		}
	}
	want("a", saidLater)
	if err := theirs.append(entry{Record: "a", Proof: "p"}); err != nil {
		t.Fatal(err)
	}
	want("a", "p")
	want("b", saidLater)
	b.died("c1")
	want("a", "p")
	want("b", saidNotExecuted)
}

// The provider acts once per downstream key, and counts by record and step.
func TestBank_Pay(t *testing.T) {
	t.Parallel()
	b := newProvider(nil, 1, 0)
	defer b.Close()
	w := &fixture{provider: b.URL}
	pay := func(key string) string {
		receipt, err := w.ask(t.Context(), "/pay", url.Values{"record": {"r"}, "step": {"charge"}, "key": {key}})
		if err != nil {
			t.Error(err)
		}
		return receipt
	}
	if first, again := pay("k"), pay("k"); first != again || len(b.paid("r", "charge")) != 1 {
		t.Errorf("two calls with one key: receipts %q and %q, %d effects", first, again, len(b.paid("r", "charge")))
	}
	if pay("other"); len(b.paid("r", "charge")) != 2 {
		t.Errorf("another key for the same step: %d effects, want 2", len(b.paid("r", "charge")))
	}
}

// A call of a claim outlasts its request if its context does not end before, but not
// because the clock of the client differs from the one of the context, and not if its
// context has ended.
func TestWatch(t *testing.T) {
	t.Parallel()
	books, err := openLedger(filepath.Join(t.TempDir(), "ledger"))
	must(t, err)
	for _, ahead := range []time.Duration{-skew, 0, skew} {
		w := fixture{guarded: memstore.New(), ledger: books, skew: ahead}
		ctx, cancel := context.WithTimeout(t.Context(), 2*skew)
		if a := w.do(ctx, request{Promise: inBatches, Key: "key"}); a.Class == classOutlasts {
			t.Errorf("a client whose clock is %s ahead: %s", ahead, a.Class)
		}
		cancel()
	}
	deadline := time.Now().Add(time.Hour)
	limited, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	ended, end := context.WithCancel(limited)
	end()
	for _, tt := range []struct {
		ctx      context.Context
		deadline time.Time // of the request
		outlasts bool
	}{
		{limited, deadline.Add(time.Nanosecond), false},
		{limited, deadline, true},
		{t.Context(), deadline, true},
		{ended, deadline, false},
	} {
		w := watch{deadline: tt.deadline, limited: true}
		if w.sees(tt.ctx); w.outlasts.Load() != tt.outlasts {
			until, ok := tt.ctx.Deadline()
			t.Errorf("a call until %s, %t, of a request until %s outlasts it: %t", until, ok, tt.deadline, !tt.outlasts)
		}
	}
}

// A client with a request without a fence is not continued past its deadline. Other
// clients are.
func TestSandbox_StoppedPastItsDeadline(t *testing.T) {
	t.Parallel()
	for _, p := range promises {
		died := make(chan string, 1)
		s := settings{Endpoint: "http://127.0.0.1:1", Table: "records", Ledger: filepath.Join(t.TempDir(), "ledger")}
		c, err := start("c1", s, func(name string) { died <- name })
		if err != nil {
			t.Fatal(err)
		}
		c.stop()
		c.current = &request{Promise: p, Deadline: time.Now()}
		if killed := c.resume(); killed != p.unfenced() || killed != (len(died) == 1) {
			t.Errorf("%s: killed %t, seen dead %t", p, killed, len(died) == 1)
		}
		c.kill()
	}
}
