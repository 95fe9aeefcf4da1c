// SPDX-License-Identifier: Apache-2.0

package orders

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestProvider(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		reply  string
		want   Charge
		fails  bool
	}{
		{201, `{"id":"ch_1"}`, Charge{ID: "ch_1"}, false},
		{201, `{}`, Charge{}, true},
		{201, `<html>`, Charge{}, true},
		{402, `{"code":"card_declined"}`, Charge{Declined: true}, false},
		{500, `{"id":"ch_1"}`, Charge{}, true},
		{200, `{"id":"ch_1"}`, Charge{}, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.URL.Path != "/charges" || r.Header.Get("Idempotency-Key") != "key" || string(body) != `{"amount":1250,"currency":"eur","customer":"c-1"}` {
				t.Errorf("the provider got %s %s %s", r.URL.Path, r.Header, body)
			}
			w.WriteHeader(c.status)
			io.WriteString(w, c.reply)
		}))
		p, err := NewProvider(server.URL + "/")
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Charge(t.Context(), "key", "c-1", 1250)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("status %d, %s: got %+v %v", c.status, c.reply, got, err)
		}
		server.Close()
		if _, err := p.Charge(t.Context(), "key", "c-1", 1250); err == nil {
			t.Error("an unreachable provider made a charge")
		}
	}
	if _, err := NewProvider("pay.example.com"); err == nil {
		t.Error("an address without a scheme was accepted")
	}
}

func TestOrdersAreChecked(t *testing.T) {
	t.Parallel()
	good := Order{ID: "o-1", Customer: "c-1", SKU: "cup", Quantity: 1, Amount: 1}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*Order){
		func(o *Order) { o.ID = "" }, func(o *Order) { o.Customer = "" }, func(o *Order) { o.SKU = "" },
		func(o *Order) { o.Quantity = 0 }, func(o *Order) { o.Amount = -1 },
	} {
		bad := good
		change(&bad)
		if bad.check() == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}
