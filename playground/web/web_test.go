// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/playground/provider"
	"github.com/once-lambda/once/playground/worker"
)

// The page with its workers is tested in a browser, by tests/deployed/browser.

func newPlayground(done <-chan struct{}) (*Playground, http.Handler) {
	store := memstore.New()
	half := func() Half {
		return Half{Workers: worker.New(func() *exec.Cmd { return exec.Command("/no/such/program") }, func(int) driver.Store { return store })}
	}
	p := &Playground{Profile: "ietf", Store: store, History: NewHistory(store), Exchanges: &Exchanges{}, With: half(), Without: half(), Done: done}
	mux := http.NewServeMux()
	for pattern, h := range p.Routes() {
		mux.Handle(pattern, h)
	}
	return p, mux
}

// Without a request of the key there is nothing to kill, and kill says so after a
// while.
func TestKillWithoutARequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, handler := newPlayground(nil)
		for _, path := range []string{"/playground/kill", "/without-once/kill"} {
			r := httptest.NewRequest("POST", "http://127.0.0.1"+path, strings.NewReader(`{"idempotency_key":"k"}`))
			w, begun := httptest.NewRecorder(), time.Now()
			handler.ServeHTTP(w, r)
			if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "No worker") || time.Since(begun) != killPatience {
				t.Errorf("%s: got %d %s after %s", path, w.Code, w.Body, time.Since(begun))
			}
		}
	})
}

// A half shows the charges of a key, whatever their key at the provider is: without a
// guard it is random.
func TestHalf(t *testing.T) {
	t.Parallel()
	mine := map[string]string{"record": string(charge.RecordIDOf("k"))}
	ledger := []provider.Charge{
		{ID: "ch_0", Key: "a", Amount: 4200, Currency: "usd", Metadata: mine},
		{ID: "ch_1", Key: "k", Amount: 1, Currency: "usd", Metadata: map[string]string{"record": string(charge.RecordIDOf("other"))}},
		{ID: "ch_2", Key: "k", Amount: 1, Currency: "usd"},
		{ID: "ch_3", Key: "b", Amount: 4200, Currency: "usd", Metadata: mine},
		{ID: "ch_4", Key: "c", Amount: 100, Currency: "eur", Metadata: mine},
	}
	for range 7 {
		ledger = append(ledger, provider.Charge{ID: "ch_5", Amount: 10, Currency: "eur", Metadata: mine})
	}
	for _, row := range []struct {
		booked, ofKey int
		amounts       map[string]int64
		shown         string
	}{
		{0, 0, map[string]int64{}, ""},
		{1, 1, map[string]int64{"usd": 4200}, "ch_0"},
		{3, 1, map[string]int64{"usd": 4200}, "ch_0"},
		{5, 3, map[string]int64{"usd": 8400, "eur": 100}, "ch_4 ch_3 ch_0"},
		{12, 10, map[string]int64{"usd": 8400, "eur": 170}, "ch_5 ch_5 ch_5 ch_5 ch_5 ch_5 ch_5 ch_4"},
	} {
		h := Half{Workers: worker.New(nil, nil), Ledger: func() []provider.Charge { return ledger[:row.booked] }}
		v := h.look("k")
		var shown []string
		for _, c := range v.Ledger {
			shown = append(shown, c.ID)
		}
		if got := strings.Join(shown, " "); v.Booked != row.booked || v.OfKey != row.ofKey || !maps.Equal(v.Amounts, row.amounts) || got != row.shown || v.Ledger == nil {
			t.Errorf("of %d charges it shows %+v", row.booked, v)
		}
	}
}

// The stream sends what has changed, and ends with the server.
func TestWatch(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	p, handler := newPlayground(stop)
	server := httptest.NewServer(handler)
	defer server.Close()
	resp, err := http.Get(server.URL + "/playground/watch?idempotency_key=k")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func() (s snapshot) {
		t.Helper()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				var states struct{ Record *struct{ State string } }
				if err := errors.Join(json.Unmarshal([]byte(data), &states), json.Unmarshal([]byte(strings.Replace(data, `"record":{`, `"other":{`, 1)), &s)); err != nil {
					t.Fatal(err)
				}
				if len(s.History) > 0 && states.Record == nil {
					t.Errorf("a history without its record: %s", data)
				}
				return s
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
		return s
	}
	if s := next(); len(s.History) > 0 || s.Profile != "ietf" || s.With.Ledger != nil {
		t.Errorf("at first: %+v", s)
	}
	r := driver.Record{ID: charge.RecordIDOf("k"), State: driver.StateInProgress, Reason: driver.ReasonClaimed, Attempt: 1}
	if _, err := p.History.By("Written by a test.").Insert(t.Context(), r, time.Now()); err != nil {
		t.Fatal(err)
	}
	s := next()
	for len(s.History) == 0 {
		s = next()
	}
	if h := s.History[0]; h.State != "in_progress" || h.Reason != driver.ReasonClaimed || h.By != "Written by a test." {
		t.Errorf("the history is %+v", s.History)
	}
	close(stop)
	if rest, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("the stream ended with %v after %q", err, rest)
	}
}

// A stream ends with its connection, also if the request has a body. The server can be
// closed only after that.
func TestWatcherLeaves(t *testing.T) {
	t.Parallel()
	_, handler := newPlayground(nil)
	server := httptest.NewServer(handler)
	defer server.Close()
	for size, want := range map[int]int{0: http.StatusOK, maxText: http.StatusOK, maxText + 1: http.StatusBadRequest} {
		r, err := http.NewRequest("GET", server.URL+"/playground/watch", strings.NewReader(strings.Repeat("x", size)))
		if err != nil {
			t.Fatal(err)
		}
		r.Close = true // so that the server does not read the body itself
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("a body of %d bytes: %d, want %d", size, resp.StatusCode, want)
		}
	}
}

// Only what was written is in the history.
func TestHistoryHasNoRefusedWrites(t *testing.T) {
	t.Parallel()
	r := driver.Record{ID: charge.RecordIDOf("k"), State: driver.StateInProgress}
	for _, reply := range []idempotenttest.StoreCall{{Current: &r}, {Err: errors.New("on fire")}, {}} {
		h := NewHistory(idempotenttest.Intercept(memstore.New(), func(_ context.Context, c *idempotenttest.StoreCall) {
			c.Current, c.Err = reply.Current, reply.Err
		}))
		h.By("").Insert(t.Context(), r, time.Now())
		h.By("").Replace(t.Context(), r, driver.Version{})
		want := 0
		if reply.Current == nil && reply.Err == nil {
			want = 2
		}
		if got := h.log.of(r.ID); len(got) != want {
			t.Errorf("%v, %v: the history is %+v, want %d entries", reply.Current, reply.Err, got, want)
		}
	}
}

// An exchange is remembered by the key in its header or its body, and its request
// and answer pass unchanged, whatever their size. What is remembered has a limit.
func TestExchanges(t *testing.T) {
	t.Parallel()
	var x Exchanges
	server := httptest.NewServer(x.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Idempotent-Replayed", "true")
		for i := range 9 {
			w.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", maxText/8))
		}
		w.WriteHeader(http.StatusAccepted)
		w.Write(body)
	})))
	defer server.Close()
	path := "/charges/" + strings.Repeat("x", maxText)
	send := func(key, body string) {
		t.Helper()
		r, err := http.NewRequest("POST", server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got, err := io.ReadAll(resp.Body); err != nil || string(got) != body || resp.StatusCode != http.StatusAccepted {
			t.Errorf("got %d with %d bytes, %v; want %d bytes", resp.StatusCode, len(got), err, len(body))
		}
	}
	large := strings.Repeat("x", 3*maxText)
	send(`"k"`, `{"amount":1}`)
	send("k", large)
	send("", `{"idempotency_key":"k"}`)
	send("", `no key`)
	send("other", "\xff")
	tooLong := strings.Repeat("k", maxKey+1)
	send(tooLong, "")
	send(tooLong[1:], "")
	server.Close() // the last exchange is complete
	list := x.of("k")
	if len(list) != 3 {
		t.Fatalf("remembered are %+v", list)
	}
	for i, want := range []string{`{"amount":1}`, large[:maxText], `{"idempotency_key":"k"}`} {
		e := list[i]
		if e.Request != want || e.Response != want || e.Status != http.StatusAccepted || e.Header["Idempotent-Replayed"] != "true" || e.Method != "POST" || e.Path != path[:maxText] || len(e.Header["X-6"]) != maxText/8 || e.Header["X-7"] != "" || e.Lost {
			t.Errorf("exchange %d is %+v", i, e)
		}
	}
	if list := x.of("other"); len(list) != 1 || list[0].Request != "(binary)" {
		t.Errorf("remembered are %+v", list)
	}
	for key, want := range map[string]int{"": 0, tooLong: 0, tooLong[1:]: 1} {
		if list := x.of(key); len(list) != want {
			t.Errorf("for the key %q, %+v is remembered", key, list)
		}
	}
}

// The memory of a playground does not grow without limit.
func TestJournalForgets(t *testing.T) {
	t.Parallel()
	var j journal[string, int]
	for key := range maxKeys + 1 {
		for i := range maxEntries + 1 {
			j.add(fmt.Sprint(key), i)
		}
	}
	if got := j.of("0"); got != nil {
		t.Errorf("the oldest key has %v", got)
	}
	if got := j.of("1"); len(got) != maxEntries || got[0] != 1 {
		t.Errorf("a key has %v", got)
	}
	if len(j.entries) != maxKeys || len(j.keys) != maxKeys {
		t.Errorf("%d keys and %d lists are remembered", len(j.keys), len(j.entries))
	}
}
