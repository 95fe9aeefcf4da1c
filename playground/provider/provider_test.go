// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/once-lambda/once/playground/provider"
)

const aCharge = `{"amount":4200,"currency":"usd","customer":"cus_1","metadata":{"record":"r"}}`

func open(t *testing.T, path string, optFns ...func(*provider.Options)) *provider.Provider {
	t.Helper()
	p, err := provider.New(path, optFns...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func ledger(t *testing.T) string { return filepath.Join(t.TempDir(), "ledger.jsonl") }

func send(h http.Handler, method, path, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func want(t *testing.T, w *httptest.ResponseRecorder, status int, parts ...string) {
	t.Helper()
	if w.Code != status || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("got %d %s, want %d", w.Code, w.Body, status)
	}
	for _, part := range parts {
		if !strings.Contains(w.Body.String(), part) {
			t.Errorf("got %s, want %s in it", w.Body, part)
		}
	}
}

// lines returns the charges in the ledger's file and API.
func lines(t *testing.T, p *provider.Provider, path string) (charges []provider.Charge) {
	t.Helper()
	w := send(p, "GET", "/charges", "", "")
	want(t, w, http.StatusOK)
	if err := json.Unmarshal(w.Body.Bytes(), &charges); err != nil || charges == nil {
		t.Fatalf("the ledger is not an array: %s", w.Body)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "\n"); n != len(charges) {
		t.Errorf("the file has %d lines, the API %d charges", n, len(charges))
	}
	return charges
}

func TestCharge(t *testing.T) {
	t.Parallel()
	path := ledger(t)
	p := open(t, path)
	first := send(p, "POST", "/charges", "key-1", aCharge)
	want(t, first, http.StatusCreated, `"amount":4200`, `"status":"succeeded"`, `"record":"r"`)
	var charge provider.Charge
	if err := json.Unmarshal(first.Body.Bytes(), &charge); err != nil || !strings.HasPrefix(charge.ID, "ch_") {
		t.Fatalf("got %s", first.Body)
	}

	// Again, also after a restart.
	for range 2 {
		if again := send(p, "POST", "/charges", "key-1", aCharge); again.Code != http.StatusCreated || again.Body.String() != first.Body.String() {
			t.Errorf("got %d %s, want %s", again.Code, again.Body, first.Body)
		}
		for _, other := range []string{
			strings.Replace(aCharge, "4200", "4300", 1), strings.Replace(aCharge, "usd", "eur", 1),
			strings.Replace(aCharge, "cus_1", "cus_2", 1), strings.Replace(aCharge, `"r"`, `"s"`, 1),
		} {
			want(t, send(p, "POST", "/charges", "key-1", other), http.StatusUnprocessableEntity, "key_reused")
		}
		want(t, send(p, "GET", "/charges/"+charge.ID, "", ""), http.StatusOK, charge.ID)
		want(t, send(p, "GET", "/charges?idempotency_key=key-1", "", ""), http.StatusOK, charge.ID)
		want(t, send(p, "GET", "/charges?idempotency_key=key-2", "", ""), http.StatusOK, "[]")
		want(t, send(p, "GET", "/charges/ch_none", "", ""), http.StatusNotFound)
		if n := len(lines(t, p, path)); n != 1 {
			t.Errorf("the ledger has %d lines, want 1", n)
		}
		p.Close()
		p = open(t, path)
	}
	want(t, send(p, "POST", "/charges", strings.Repeat("k", 255), aCharge), http.StatusCreated)
	if n := len(lines(t, p, path)); n != 2 {
		t.Errorf("the ledger has %d lines, want 2", n)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	path := ledger(t)
	p := open(t, path)
	for _, bad := range []string{"", strings.Repeat("k", 256)} {
		want(t, send(p, "POST", "/charges", bad, aCharge), http.StatusBadRequest, "invalid_key")
	}
	large := strings.Replace(aCharge, "cus_1", strings.Repeat("c", 4096), 1)
	want(t, send(p, "POST", "/charges", strings.Repeat("k", 255), large), http.StatusBadRequest, "invalid_request")
	for _, bad := range []string{``, `{`, `[]`, `{"amount":0,"currency":"usd","customer":"c"}`, `{"amount":1,"customer":"c"}`, `{"amount":1,"currency":"usd"}`} {
		want(t, send(p, "POST", "/charges", "key-1", bad), http.StatusBadRequest, "invalid_request")
	}
	want(t, send(p, "GET", "/", "", ""), http.StatusNotFound)
	for range 3 { // also when repeated
		want(t, send(p, "POST", "/charges", "key-1", strings.Replace(aCharge, "cus_1", provider.CustomerDeclined, 1)), http.StatusPaymentRequired, "card_declined")
	}
	if n := len(lines(t, p, path)); n != 0 {
		t.Errorf("the ledger has %d lines, want none", n)
	}
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	path := ledger(t)
	p := open(t, path)
	var wg sync.WaitGroup
	bodies := make([]string, 64)
	for i := range bodies {
		wg.Go(func() { bodies[i] = send(p, "POST", "/charges", "key-"+string(rune('a'+i%2)), aCharge).Body.String() })
	}
	wg.Wait()
	for i, body := range bodies {
		if body != bodies[i%2] {
			t.Errorf("got %s and %s under one key", body, bodies[i%2])
		}
	}
	if n := len(lines(t, p, path)); n != 2 {
		t.Errorf("the ledger has %d lines, want 2", n)
	}
}

// A slow charge is booked before its answer is delayed.
func TestSlow(t *testing.T) {
	t.Parallel()
	path := ledger(t)
	booked, release := make(chan struct{}), make(chan struct{})
	p := open(t, path, func(o *provider.Options) {
		o.Slow = func(context.Context) { close(booked); <-release }
	})
	slow := strings.Replace(aCharge, "cus_1", provider.CustomerSlow, 1)
	first := make(chan *httptest.ResponseRecorder)
	go func() { first <- send(p, "POST", "/charges", "key-1", slow) }()
	<-booked
	if n := len(lines(t, p, path)); n != 1 {
		t.Errorf("the ledger has %d lines while the answer is delayed, want 1", n)
	}
	again := send(p, "POST", "/charges", "key-1", slow)
	close(release)
	if got := <-first; got.Body.String() != again.Body.String() {
		t.Errorf("got %s and %s under one key", got.Body, again.Body)
	}
}

// The default delay ends when the caller disconnects.
func TestSlowCallerGoes(t *testing.T) {
	t.Parallel()
	p := open(t, ledger(t))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(gone, "POST", "/charges", strings.NewReader(strings.Replace(aCharge, "cus_1", provider.CustomerSlow, 1)))
	r.Header.Set("Idempotency-Key", "key-1")
	p.ServeHTTP(httptest.NewRecorder(), r)
}

// A line that was incomplete when the process died is not a charge.
func TestTornLine(t *testing.T) {
	t.Parallel()
	path := ledger(t)
	p := open(t, path)
	want(t, send(p, "POST", "/charges", "key-1", aCharge), http.StatusCreated)
	p.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	second := strings.Replace(string(whole), `"key-1"`, `"key-2"`, 1)
	for cut := 1; cut < len(second); cut += 7 {
		if err := os.WriteFile(path, append(whole[:len(whole):len(whole)], second[:cut]...), 0o600); err != nil {
			t.Fatal(err)
		}
		p := open(t, path)
		if n := len(lines(t, p, path)); n != 1 {
			t.Fatalf("cut at %d: the ledger has %d lines, want 1", cut, n)
		}
		if cut == 1 { // and it can be booked, once
			for range 2 {
				want(t, send(p, "POST", "/charges", strings.Repeat("k", 255), aCharge), http.StatusCreated)
			}
			if n := len(lines(t, p, path)); n != 2 {
				t.Errorf("the ledger has %d lines, want 2", n)
			}
		}
		p.Close()
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	refused := func(path string, parts ...string) {
		t.Helper()
		p, err := provider.New(path)
		if err == nil {
			p.Close()
			t.Fatal("the ledger was opened")
		}
		for _, part := range append(parts, path) {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("got the error %q, want %q in it", err, part)
			}
		}
	}
	path := ledger(t)
	if err := os.WriteFile(path, []byte("{}\n"+aCharge+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(path, "line 1", "is not a charge", "restore")
	if data, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(data), "{}") {
		t.Errorf("the file was changed: %q, %v", data, err)
	}
	refused(filepath.Join(t.TempDir(), "missing", "ledger.jsonl"), "no such file or directory")
	held := ledger(t)
	open(t, held)
	refused(held, "held by another process")
}

// A charge that cannot be written is not made.
func TestBrokenLedger(t *testing.T) {
	t.Parallel()
	path := ledger(t)
	p := open(t, path)
	p.Close()
	want(t, send(p, "POST", "/charges", "key-1", aCharge), http.StatusInternalServerError, "could not be booked")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if data, err := io.ReadAll(f); err != nil || len(data) != 0 {
		t.Errorf("the ledger holds %q, %v", data, err)
	}
}
