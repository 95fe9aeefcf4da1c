package lambdahttp_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/once-lambda/once/lambdahttp"
)

// DecodeStored decodes a stored response of a handler, and refuses anything
// else.
func TestDecodeStored(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newWorld(t, on)
		w.post(charge())
		encoding, data, err := w.guard.StoredOutcome(t.Context(), *w.store.record(t))
		if err != nil || encoding != lambdahttp.Encoding {
			t.Fatalf("got %q, %v", encoding, err)
		}
		got, err := lambdahttp.DecodeStored(data)
		want := lambdahttp.Response{
			Status: 201,
			Header: http.Header{"Content-Type": {"application/json"}, "Location": {"/charges/ch_1"}},
			Body:   []byte(`{"id":"ch_1"}`),
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	})
	if r, err := lambdahttp.DecodeStored([]byte(`{"id":"ch_1"}`)); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("JSON was decoded as the response %+v, %v", r, err)
	}
}
