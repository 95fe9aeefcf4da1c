// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent/driver"
)

// The error names each field that differs, and shortens what is long.
func TestSameRecord(t *testing.T) {
	t.Parallel()
	want := fullRecord()
	want.Result = []byte(strings.Repeat("a", 40))
	long, exact := `"`+strings.Repeat("a", 32)+`"… (40 bytes)`, `"`+strings.Repeat("a", 32)+`"`
	for _, row := range []struct {
		change func(*driver.Record)
		error  string // its begin; empty: no error
	}{
		{func(*driver.Record) {}, ""},
		{func(r *driver.Record) { r.Ref = "" }, "Ref is , want " + want.Ref},
		{func(r *driver.Record) { r.Result = nil }, "Result is absent, want " + long},
		{func(r *driver.Record) { r.Result = r.Result[:32] }, "Result is " + exact + ", want " + long},
		{func(r *driver.Record) { r.Result[39] = 'b' }, "Result is " + long + ", want " + long},
		{func(r *driver.Record) { r.Codec, r.Encoding = "", "" }, "Codec is , want " + want.Codec + "; Encoding is , want " + want.Encoding},
		{func(r *driver.Record) {
			r.SetExtra(map[string]map[string]json.RawMessage{"": {"later": []byte("1")}})
		}, `Extra is {"":{"later":1}}, want null`},
	} {
		got := want.Clone()
		row.change(got)
		const begin = "Get returned a record with wrong fields: "
		if err := sameRecord("Get returned", got, want); err == nil != (row.error == "") || err != nil && !strings.HasPrefix(err.Error(), begin+row.error) {
			t.Errorf("got error %v, want %s", err, row.error)
		}
	}
	if err := sameRecord("Get returned", nil, want); err == nil || !strings.HasPrefix(err.Error(), "Get returned no record, want a record (") {
		t.Errorf("no record: got error %v", err)
	}
}

// A full record has every precision of a store, and two of them differ.
func TestFullRecord(t *testing.T) {
	t.Parallel()
	seconds := map[int64]bool{}
	for range 100 {
		r := fullRecord()
		seconds[r.Since.Unix()] = true
		last := time.Now().Add(-time.Hour)
		for _, at := range []time.Time{r.OpenSince, r.Steps[0].At, r.Steps[1].At, r.Created, r.Since, r.LeaseEnd, r.Due, r.Expires} {
			if !at.After(last) || at.Equal(at.Truncate(time.Second)) || !at.Equal(at.Truncate(time.Millisecond)) || at.Location() != time.UTC {
				t.Errorf("%s follows %s", at, last)
			}
			last = at
		}
		if !last.After(time.Now().Add(time.Hour)) || r.Retention%time.Millisecond != 0 || r.UnresolvedRetention%time.Millisecond != 0 {
			t.Errorf("it expires at %s, and is kept for %s and %s", last, r.Retention, r.UnresolvedRetention)
		}
	}
	if len(seconds) < 10 {
		t.Errorf("100 records in %d seconds", len(seconds))
	}
}
