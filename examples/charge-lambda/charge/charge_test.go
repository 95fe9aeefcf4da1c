// SPDX-License-Identifier: Apache-2.0

package charge

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit"
)

// FuzzParseRequest checks that an accepted request parses to the same value
// after it is encoded again, and that no input makes the parser panic or hang.
func FuzzParseRequest(f *testing.F) {
	kit.Inputs(f)
	for _, body := range []string{
		`{"amount":4200,"currency":"usd","customer":"cus_1"}`,
		`{"amount":4.2e3,"currency":"usd","customer":"cus_1"}`,
		`{"amount":42000e-1,"currency":"usd","customer":"\u00fc"}`,
		`{"amount":1e999999999,"currency":"usd","customer":"cus_1"}`,
		`{"amount":0x10,"currency":"usd","customer":"cus_1"}`,
		`{"amount":1_0,"amount":1/2}`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var r Request
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			return
		}
		if r.Amount < 1 || r.Amount > maxAmount || len(r.Currency) != 3 || r.Customer == "" {
			t.Fatalf("accepted %+v", r)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var r2 Request
		if err := json.Unmarshal(again, &r2); err != nil || r2 != r {
			t.Fatalf("%+v was read again as %+v, %v", r, r2, err)
		}
	})
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	reply := "[]"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got, want := r.FormValue("idempotency_key"), RecordIDOf("k").DownstreamKey(); got != want {
			t.Errorf("asked for %q, want %q", got, want)
		}
		w.Write([]byte(reply))
	}))
	defer server.Close()
	provider, err := NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	record := idempotent.PendingRecord{ID: RecordIDOf("k"), Token: "1.2", LeaseEnd: now.Add(-afterthought)}
	resolve := Reconcile(provider, func() time.Time { return now })
	want := func(what string, want idempotent.Resolution) {
		t.Helper()
		if got, err := resolve(t.Context(), record); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v", what, got, err)
		}
	}
	want("nothing was charged", idempotent.ProvenNotExecuted(record.Token))
	record.LeaseEnd = record.LeaseEnd.Add(time.Second)
	want("it may still be booked", idempotent.Later(time.Second))
	reply = `[{"id":"ch_1","amount":1,"currency":"usd","customer":"cus_1","status":"succeeded"}]`
	made, err := Evidence(Charge{ID: "ch_1", Amount: 1, Currency: "usd", Customer: "cus_1", Status: "succeeded"})
	if err != nil {
		t.Fatal(err)
	}
	want("charged", made)
	reply = `{}`
	if got, err := resolve(t.Context(), record); err == nil || errors.Is(err, ErrNoCharge) {
		t.Errorf("an unclear answer: got %+v, %v", got, err)
	}
}
