package lambdahttp_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"testing"

	"github.com/once-lambda/once/lambdahttp"
)

func TestFM53Fingerprints(t *testing.T) {
	t.Parallel()
	zip := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write([]byte(s))
		z.Close()
		return base64.StdEncoding.EncodeToString(b.Bytes())
	}
	in64 := func(mods ...func(*request)) func(*request) {
		return func(r *request) {
			for _, f := range mods {
				f(r)
			}
			r.body, r.base64 = base64.StdEncoding.EncodeToString([]byte(r.body)), true
		}
	}
	typed := func(media, body string) func(*request) {
		return func(r *request) { withHeader("content-type", media)(r); r.body = body }
	}
	asJSON := func(body string) func(*request) { return typed("application/json", body) }
	untyped := func(body string) func(*request) {
		return func(r *request) { without("content-type")(r); r.body = body }
	}
	query := func(q string) func(*request) { return func(r *request) { r.query = q } }
	path := func(p string) func(*request) { return func(r *request) { r.path = p } }

	for name, c := range map[string]struct {
		first, second func(*request)
		equal         bool
	}{
		"key order":              {asJSON(`{"a":1,"b":2}`), asJSON(`{ "b" : 2, "a" : 1 }`), true},
		"spelling of one":        {asJSON(`[1,1.0]`), asJSON(`[1e0,1]`), true},
		"escaped Unicode":        {asJSON(`"é"`), asJSON(`"\u00e9"`), true},
		"NFC and NFD":            {asJSON("\"é\""), asJSON("\"e\u0301\""), false},
		"integers beyond 2^53":   {asJSON(`9007199254740993`), asJSON(`9007199254740992`), false},
		"decimals beyond double": {asJSON(`12345678901234567.89`), asJSON(`12345678901234567.88`), false},
		"duplicate names":        {asJSON(`{"a":1,"a":2}`), asJSON(`{"a":2}`), false},
		"duplicate names, order": {asJSON(`{"a":1,"a":2}`), asJSON(`{"a":2,"a":1}`), false},
		"duplicate names, again": {asJSON(`{"a":1,"a":2}`), asJSON(`{"a":1,"a":2}`), true},
		"invalid UTF-8":          {asJSON("\"\xff\""), asJSON("\"\xfe\""), false},
		"invalid and replaced":   {asJSON("\"\xff\""), asJSON("\"\uFFFD\""), false},
		"malformed":              {asJSON(`{"a":1`), asJSON(`{"a":1 `), false},
		"malformed, again":       {asJSON(`{"a":1`), asJSON(`{"a":1`), true},
		"malformed and raw":      {asJSON(`{"a":1`), typed("text/plain", `{"a":1`), false},
		"JSON and raw":           {asJSON(`{"a":1}`), typed("text/plain", `{"a":1}`), false},
		"trailing data":          {asJSON(`{"a":1}`), asJSON(`{"a":1}{}`), false},
		"empty":                  {asJSON(``), asJSON(`null`), false},
		"raw spelling":           {typed("text/plain", `{"a":1}`), typed("text/plain", `{"a": 1}`), false},
		"suffix +json":           {typed("application/vnd.example+json", `{"a":1}`), typed("Application/VND.example+JSON; charset=utf-8", `{"a": 1}`), true},
		"charset":                {asJSON(`{"a":1}`), typed("application/json;charset=utf-8", `{"a": 1}`), true},
		"base64 JSON":            {asJSON(`{"a":1}`), in64(asJSON(`{"a": 1}`)), true},
		"base64 raw":             {untyped("x\x00y"), in64(untyped("x\x00y")), true},
		"base64 text as text":    {untyped("eA=="), in64(untyped("x")), false},
		"gzip":                   {in64(asJSON(`{"a":1}`)), func(r *request) { asJSON(zip(`{"a":1}`))(r); r.base64 = true }, false},
		"two content types": {
			func(r *request) { asJSON(`{"a":1}`)(r); withHeader("Content-Type", "text/plain")(r) },
			func(r *request) { asJSON(`{"a": 1}`)(r); withHeader("Content-Type", "text/plain")(r) }, false},
		"method":            {withMethod("POST"), withMethod("PATCH"), false},
		"query order":       {query("a=1&b=2"), query("b=2&a=1"), true},
		"order in one name": {query("a=1&a=2"), query("a=2&a=1"), false},
		"query value moves": {query("a=1&b=2"), query("a=1%26b=2"), false},
		"query into path":   {path("/charges"), path("/charges?expand=customer"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachWire(t, func(t *testing.T, on wire) {
				w := newWorld(t, on, func(o *lambdahttp.Options) {
					o.Operation = func(*lambdahttp.Request) string { return "charge" }
				})
				w.post(charge(c.first))
				want := 422
				if c.equal {
					want = 201
				}
				if a := w.post(charge(c.second)); a.status != want || w.runs != 1 {
					t.Errorf("status %d after %d runs, want %d after 1", a.status, w.runs, want)
				}
			})
		})
	}
}
