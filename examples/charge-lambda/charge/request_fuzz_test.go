// SPDX-License-Identifier: Apache-2.0

package charge

import (
	"encoding/json"
	"testing"

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
