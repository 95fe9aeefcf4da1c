// SPDX-License-Identifier: Apache-2.0

package receipt_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/once-lambda/once/examples/charge-lambda/receipt"
)

func serve(t *testing.T, h http.Handler) *receipt.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return &receipt.Client{Base: server.URL}
}

// One receipt per key, for any number of simultaneous requests.
func TestOneReceiptPerKey(t *testing.T) {
	t.Parallel()
	c := serve(t, &receipt.Service{})
	var group sync.WaitGroup
	ids := make([]string, 20)
	for i := range ids {
		group.Go(func() {
			var err error
			if ids[i], err = c.Mail(t.Context(), "key-"+string(rune('a'+i%2)), "order-1"); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for i, id := range ids {
		if id == "" || id != ids[i%2] || ids[0] == ids[1] {
			t.Errorf("request %d got the receipt %q", i, id)
		}
	}
	mailed, err := c.Mailed(t.Context())
	if err != nil || len(mailed) != 2 || mailed[0].Order != "order-1" || mailed[0].Key == "" {
		t.Errorf("mailed: %+v, %v", mailed, err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	c := serve(t, &receipt.Service{})
	if mailed, err := c.Mailed(t.Context()); err != nil || mailed == nil || len(mailed) != 0 {
		t.Errorf("mailed: %v, %v", mailed, err)
	}
	for name, mail := range map[string]func() (string, error){
		"no key":   func() (string, error) { return c.Mail(t.Context(), "", "order-1") },
		"no order": func() (string, error) { return c.Mail(t.Context(), "key", "") },
	} {
		if id, err := mail(); err == nil || !strings.Contains(err.Error(), "400") {
			t.Errorf("%s: %q, %v", name, id, err)
		}
	}
	for _, r := range []struct {
		method, path string
		want         int
	}{{"DELETE", "/receipts", 405}, {"GET", "/letters", 404}} {
		req, err := http.NewRequest(r.method, c.Base+r.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != r.want {
			t.Errorf("%s %s: %s", r.method, r.path, resp.Status)
		}
	}
}

// After an unclear reply, it is unknown whether the receipt was mailed.
func TestNoClearReply(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]http.HandlerFunc{
		"an error":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"no JSON":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201) },
		"no receipt": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.Write([]byte("{}")) },
		"cut off":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		if id, err := serve(t, reply).Mail(t.Context(), "key", "order-1"); err == nil {
			t.Errorf("%s: the receipt %q", name, id)
		}
	}
}
