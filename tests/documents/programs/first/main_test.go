// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/idempotenttest"
	"github.com/once-lambda/once/idempotent/memstore"
)

// bank makes a charge for each request.
type bank struct {
	charges int
	drop    bool // no answer arrives
}

func (b *bank) count() int { return b.charges }

func (b *bank) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	b.charges++
	if b.drop {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"charge":"ch_%d"}`, b.charges)
}

var anOrder = order{ID: "o-1", Customer: "c-1", Amount: 4200}

// The same request arrives twice. Without once the customer pays twice, whether an answer
// got through or not.
func TestTwice(t *testing.T) {
	for name, row := range map[string]struct{ guarded, drop bool }{
		"without once":                     {false, false},
		"without once, the answer is lost": {false, true},
		"with once":                        {true, false},
		"with once, the answer is lost":    {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bank{drop: row.drop}
			server := httptest.NewServer(b)
			defer server.Close()
			t.Setenv("PROVIDER_URL", server.URL)
			guard, err := idempotent.New(memstore.New())
			if err != nil {
				t.Fatal(err)
			}
			handler, want := charge, 2
			if row.guarded {
				handler, want = newHandler(guard), 1
			}
			_, first := handler(t.Context(), anOrder)
			r, retry := handler(t.Context(), anOrder)
			switch {
			case row.drop != (first != nil) || row.drop != (retry != nil):
				t.Errorf("got errors %v and %v", first, retry)
			case row.guarded && row.drop && !errors.As(retry, new(*idempotent.UnresolvedError)):
				t.Errorf("the retry got %v, want an unknown outcome", retry)
			case !row.drop && r.Charge != fmt.Sprintf("ch_%d", want):
				t.Errorf("the retry got %v", r)
			}
			if b.count() != want {
				t.Errorf("%d charges, want %d", b.count(), want)
			}
		})
	}
}

// Wherever the guarded handler is killed, the customer pays at most once.
func TestEveryCrash(t *testing.T) {
	t.Setenv("PROVIDER_URL", "http://bank.test/charges")
	idempotenttest.Explore(t, func(w *idempotenttest.World) {
		b := &bank{}
		w.Provider(b)
		w.AtMostOnce("charge", b.count)
		idempotenttest.Handle(w, anOrder, newHandler)
	})
}
