package idempotent_test

import (
	"reflect"
	"testing"

	"github.com/once-lambda/once/idempotent/driver"
)

// A clone is equal, including whether there is a result, and a change to the
// clone does not change the record.
func TestRecordClone(t *testing.T) {
	t.Parallel()
	for _, result := range [][]byte{nil, {}, []byte("ch_1")} {
		r := driver.Record{ID: "charge#key", Result: result, Ref: "orders/1"}
		c := r.Clone()
		if !reflect.DeepEqual(*c, r) {
			t.Errorf("got %+v, want %+v", *c, r)
		}
		if c.Ref = ""; len(c.Result) > 0 {
			c.Result[0] = 'x'
		}
		if string(r.Result) != string(result) || len(result) > 0 && r.Result[0] != 'c' || r.Ref != "orders/1" {
			t.Errorf("a change to the clone changed the record to %+v", r)
		}
	}
}
