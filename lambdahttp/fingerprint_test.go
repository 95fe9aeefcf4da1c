// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdahttp"
)

// FM07, FM53, F20, F21, F23: the fingerprint covers method, path, query and body, with
// clear boundaries between them.
func TestFM53Fingerprints(t *testing.T) {
	t.Parallel()
	in64 := func(mod func(*request)) func(*request) {
		return func(r *request) {
			mod(r)
			r.body, r.base64 = base64.StdEncoding.EncodeToString([]byte(r.body)), true
		}
	}
	path := func(p string) func(*request) { return func(r *request) { r.path = p } }
	compare(t, lambdahttp.WholeRequest, map[string]pair{
		"key order":              {asJSON(`{"a":1,"b":2}`), asJSON(`{ "b" : 2, "a" : 1 }`), true},
		"spelling of one":        {asJSON(`[1,1.0]`), asJSON(`[1e0,1]`), true},
		"escaped Unicode":        {asJSON(`"é"`), asJSON(`"\u00e9"`), true},
		"NFC and NFD":            {asJSON("\"é\""), asJSON("\"e\u0301\""), false},
		"integers beyond 2^53":   {asJSON(`9007199254740993`), asJSON(`9007199254740992`), false},
		"decimals beyond double": {asJSON(`12345678901234567.89`), asJSON(`12345678901234567.88`), false},
		"duplicate names":        {asJSON(`{"a":1,"a":2}`), asJSON(`{"a":2}`), false},
		"duplicate names, order": {asJSON(`{"a":1,"a":2}`), asJSON(`{"a":2,"a":1}`), false},
		"invalid UTF-8":          {asJSON("\"\xff\""), asJSON("\"\xfe\""), false},
		"invalid and replaced":   {asJSON("\"\xff\""), asJSON("\"\uFFFD\""), false},
		"malformed":              {asJSON(`{"a":1`), asJSON(`{"a":1 `), false},
		"malformed, repeated":    {asJSON(`{"a":1`), asJSON(`{"a":1`), true},
		"JSON and raw":           {asJSON(`{"a":1}`), typed("text/plain", `{"a":1}`), false},
		"empty":                  {asJSON(``), asJSON(`null`), false},
		"suffix +json":           {typed("application/vnd.example+json", `{"a":1}`), typed("Application/VND.example+JSON; charset=utf-8", `{"a": 1}`), true},
		"charset":                {asJSON(`{"a":1}`), typed("application/json;charset=utf-8", `{"a": 1}`), true},
		"base64 JSON":            {asJSON(`{"a":1}`), in64(asJSON(`{"a": 1}`)), true},
		"base64 raw":             {untyped("x\x00y"), in64(untyped("x\x00y")), true},
		"base64 text as text":    {untyped("eA=="), in64(untyped("x")), false},
		"two content types": {
			func(r *request) { asJSON(`{"a":1}`)(r); withHeader("Content-Type", "text/plain")(r) },
			func(r *request) { asJSON(`{"a": 1}`)(r); withHeader("Content-Type", "text/plain")(r) }, false},
		"query order":       {query("a=1&b=2"), query("b=2&a=1"), true},
		"order in one name": {query("a=1&a=2"), query("a=2&a=1"), false},
		"query value moves": {query("a=1&b=2"), query("a=1%26b=2"), false},
		"query into path":   {path("/charges"), path("/charges?expand=customer"), false},
		"query appended":    {query("a=1"), query("a=1&x"), false},
		"no query":          {query("a=1"), query(""), false},
	})
}

// pair is two requests with one key, and whether they are the same request.
type pair struct {
	first, second func(*request)
	equal         bool
}

// compare sends the pairs to a handler with a fingerprint rule, for each event type.
func compare(t *testing.T, rule lambdahttp.FingerprintRule, pairs map[string]pair) {
	for name, c := range pairs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachWire(t, func(t *testing.T, on wire) {
				w := newFixture(t, on, operation("charge"), func(o *lambdahttp.Options) { o.Fingerprint = rule })
				if a := w.post(charge(c.first)); a.status != 201 {
					t.Fatalf("the first request got %d %s", a.status, a.body)
				}
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

func asJSON(body string) func(*request) { return typed("application/json", body) }

func query(q string) func(*request) { return func(r *request) { r.query = q } }

// FM53, F21, F22: the rule decides which requests are the same; the endpoint and the
// media type are always compared. Rules that compare bytes compare the coding with them.
func TestFM53FingerprintRules(t *testing.T) {
	t.Parallel()
	const doc = `{"a":1,"b":2}`
	method := lambdahttp.FingerprintRule{Of: func(context.Context, *lambdahttp.Request) ([][]byte, error) { return nil, nil }}
	tag := lambdahttp.FingerprintRule{Of: func(_ context.Context, r *lambdahttp.Request) ([][]byte, error) {
		return [][]byte{[]byte(r.Header("x-tag")[0])}, nil
	}}
	amounts, a := lambdahttp.Fields("/amount"), lambdahttp.Fields("/a")
	digest := func(mod func(*request)) func(*request) {
		return func(r *request) {
			mod(r)
			body := r.body
			if r.base64 {
				data, _ := base64.StdEncoding.DecodeString(body)
				body = string(data)
			}
			withHeader("content-digest", sha256Of(body))(r)
		}
	}
	for name, c := range map[string]struct {
		rule lambdahttp.FingerprintRule
		pair
	}{
		"raw: query":                  {lambdahttp.RawBody, pair{query("a=1"), query("a=2"), false}},
		"raw: query order":            {lambdahttp.RawBody, pair{query("a=1&b=2"), query("b=2&a=1"), true}},
		"fields: other member":        {amounts, pair{asJSON(`{"amount":1,"note":"a"}`), asJSON(`{"note":"b","amount":1.0}`), true}},
		"fields: the member":          {amounts, pair{asJSON(`{"amount":1}`), asJSON(`{"amount":2}`), false}},
		"fields: missing and null":    {amounts, pair{asJSON(`{}`), asJSON(`{"amount":null}`), false}},
		"fields: missing and missing": {amounts, pair{asJSON(`{}`), asJSON(`{"a":1}`), true}},
		"fields: number and string":   {amounts, pair{asJSON(`{"amount":1}`), asJSON(`{"amount":"1"}`), false}},
		"fields: not an object":       {amounts, pair{asJSON(`[1]`), asJSON(`[2]`), true}},
		"fields: a subtree, changed":  {lambdahttp.Fields("/card"), pair{asJSON(`{"card":{"a":1,"b":2}}`), asJSON(`{"card":{"b":2,"a":2}}`), false}},
		"fields: nested, changed":     {lambdahttp.Fields("/card/number"), pair{asJSON(`{"card":{"number":"1"}}`), asJSON(`{"card":{"number":"2"}}`), false}},
		"fields: element, changed":    {lambdahttp.Fields("/items/1"), pair{asJSON(`{"items":[1,2]}`), asJSON(`{"items":[1,3]}`), false}},
		"fields: element too far":     {lambdahttp.Fields("/items/2"), pair{asJSON(`{"items":[1,2]}`), asJSON(`{"items":[1]}`), true}},
		"fields: not an array index":  {lambdahttp.Fields("/items/01"), pair{asJSON(`{"items":[1,2]}`), asJSON(`{"items":[1,3]}`), true}},
		"fields: through a string":    {lambdahttp.Fields("/a/b"), pair{asJSON(`{"a":"b"}`), asJSON(`{}`), true}},
		"fields: one for two":         {lambdahttp.Fields("/a", "/b"), pair{asJSON(`{"a":1}`), asJSON(`{"b":1}`), false}},
		"fields: escaped names":       {lambdahttp.Fields("/a~1b/c~0d"), pair{asJSON(`{"a/b":{"c~d":1}}`), asJSON(`{"a/b":{"c~d":2}}`), false}},
		"fields: empty name":          {lambdahttp.Fields("/"), pair{asJSON(`{"":1}`), asJSON(`{"":2}`), false}},
		"fields: ~01 is ~1":           {lambdahttp.Fields("/~01"), pair{asJSON(`{"~1":1,"/":1}`), asJSON(`{"~1":2,"/":1}`), false}},
		"fields: not JSON":            {amounts, pair{typed("text/plain", `{"amount":1}`), typed("text/plain", `{"amount":1} `), false}},
		"fields: broken JSON":         {amounts, pair{asJSON(`{"amount":1`), asJSON(`{"amount":1,`), false}},
		"fields: query":               {amounts, pair{query("a=1"), query("a=2"), false}},
		"own: nothing more":           {method, pair{asJSON(`1`), asJSON(`2`), true}},
		"own: nothing more, the path": {method, pair{at("/a"), at("/b"), false}},
		"own: a header":               {tag, pair{withHeader("x-tag", "1"), withHeader("x-tag", "2"), false}},
		"own: a header, equal":        {tag, pair{func(r *request) { withHeader("x-tag", "1")(r); r.body = "x" }, withHeader("x-tag", "1"), true}},
		"raw: type":                   {lambdahttp.RawBody, pair{typed("application/json", doc), typed("text/plain", doc), false}},
		"raw: charset":                {lambdahttp.RawBody, pair{typed("application/json", doc), typed("application/json; charset=utf-8", doc), true}},
		"raw: coding":                 {lambdahttp.RawBody, pair{coded("br", untyped("a")), untyped("a"), false}},
		"raw: gzip":                   {lambdahttp.RawBody, pair{coded("gzip", untyped(gzipped(1, "a"))), coded("gzip", untyped(gzipped(2, "a"))), false}},
		"raw: boundary":               {lambdahttp.RawBody, pair{form("abc", amount), form("xyz", amount), false}},
		"digest: type":                {lambdahttp.VerifiedDigest, pair{digest(typed("application/json", doc)), digest(typed("text/plain", doc)), false}},
		"digest: the same":            {lambdahttp.VerifiedDigest, pair{digest(coded("gzip", untyped(gzipped(1, "a")))), digest(coded("gzip", untyped(gzipped(1, "a")))), true}},
		"fields: type":                {a, pair{typed("application/json", doc), typed("application/problem+json", doc), false}},
		"fields: gzip":                {a, pair{typed("application/json", doc), coded("gzip", typed("application/json", gzipped(1, `{"a":1,"b":3}`))), true}},
		"fields: multipart":           {a, pair{form("abc", amount), form("xyz", amount), true}},
		"fields: form":                {a, pair{typed("application/x-www-form-urlencoded", "a=1&b=2"), typed("application/x-www-form-urlencoded", "a=1&b=3"), false}},
	} {
		compare(t, c.rule, map[string]pair{name: c.pair})
	}
}

// A rule can refuse a request with a BodyError; its other errors are returned
// to Lambda.
func TestFingerprintRuleErrors(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		failing := func(err error) func(*lambdahttp.Options) {
			return func(o *lambdahttp.Options) {
				o.Fingerprint.Of = func(context.Context, *lambdahttp.Request) ([][]byte, error) { return nil, err }
			}
		}
		w := newFixture(t, on, failing(&lambdahttp.BodyError{Detail: "it has no order"}))
		if a := w.post(charge()); a.status != 400 || !strings.Contains(a.body, "The body cannot be bound to the Idempotency-Key: it has no order.") || w.runs+w.store.calls != 0 {
			t.Errorf("got %d %s", a.status, a.body)
		}
		w = newFixture(t, on, failing(&lambdahttp.BodyError{}))
		if a := w.post(charge()); a.status != 400 || !strings.Contains(a.body, `"The body cannot be bound to the Idempotency-Key."`) {
			t.Errorf("without a detail: got %d %s", a.status, a.body)
		}
		w = newFixture(t, on, func(o *lambdahttp.Options) { o.Fingerprint = lambdahttp.Fields("/lines/0/amount", "/note") })
		for _, body := range []string{`{"lines":[{"amount":1,"AMOUNT":2}]}`, `{"Lines":[{"amount":1}]}`, `{"lines":[],"NOTE":""}`} {
			if a := w.post(charge(withBody(body))); a.status != 400 || !strings.Contains(a.body, "in another letter case") || w.runs+w.store.calls != 0 {
				t.Errorf("%s: got %d %s", body, a.status, a.body)
			}
		}
		if a := w.post(charge(withBody(`{"lines":[{"amount":1},{"AMOUNT":2}],"other":{"NOTE":1}}`))); a.status != 201 {
			t.Errorf("names at other places: got %d %s", a.status, a.body)
		}
		w = newFixture(t, on, failing(errDown))
		if _, err := w.send(t.Context(), charge()); err != errDown || w.runs+w.store.calls != 0 {
			t.Errorf("got %v after %d runs", err, w.runs)
		}
		for name, rule := range map[string]lambdahttp.FingerprintRule{"raw": lambdahttp.RawBody, "fields": lambdahttp.Fields("/a"), "whole": lambdahttp.WholeRequest} {
			w = newFixture(t, on, func(o *lambdahttp.Options) { o.Fingerprint = rule })
			if a := w.post(charge(func(r *request) { r.body, r.base64 = "%", true })); a.status != 400 || !strings.Contains(a.body, `"code":"invalid-body"`) {
				t.Errorf("%s of a broken body: got %d %s", name, a.status, a.body)
			}
		}
	})
}

func TestFieldsPanics(t *testing.T) {
	t.Parallel()
	for _, pointers := range [][]string{{}, {""}, {"amount"}, {"/a", "b"}, {"/a~"}, {"/a~2"}, {"/~~0"}} {
		if got := panics(func() { lambdahttp.Fields(pointers...) }); !strings.Contains(got, "lambdahttp: Fields") {
			t.Errorf("Fields(%q): panic %q", pointers, got)
		}
	}
}

func sha256Of(body string) string {
	sum := sha256.Sum256([]byte(body))
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

func sha512Of(body string) string {
	sum := sha512.Sum512([]byte(body))
	return "sha-512=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// contentDigests are headers for digestBody. The first two are those of RFC
// 9530, appendix D, for a document with a line feed at its end.
const digestBody = "{\"hello\": \"world\"}\n"

var contentDigests = []struct {
	name, header string
	detail       string // of the refusal; "": accepted
}{
	{"RFC 9530, sha-256", "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:", ""},
	{"RFC 9530, sha-512", "sha-512=:YMAam51Jz/jOATT6/zvHrLVgOYTGFy1d6GJiOHTohq4yP+pgk4vf2aCsyRZOtw8MjkM7iw7yZ/WkppmM44T3qg==:", ""},
	{"both", sha256Of(digestBody) + ", " + sha512Of(digestBody), ""},
	{"both, no space", sha256Of(digestBody) + "," + sha512Of(digestBody), ""},
	{"spaces around", "  " + sha256Of(digestBody) + " \t , \t" + sha512Of(digestBody) + "  ", ""},
	{"a parameter", sha256Of(digestBody) + ";a=1", ""},
	{"with an unknown algorithm", "md5=:AAAA:, " + sha256Of(digestBody), ""},
	{"one of two is wrong", sha256Of(digestBody) + ", " + sha512Of("x"), "the body does not match the digest"},
	{"the same name, one wrong", sha256Of("x") + ", " + sha256Of(digestBody), "the body does not match the digest"},
	{"wrong", sha256Of("x"), "the body does not match the digest"},
	{"too short", "sha-256=:AAAA:", "the body does not match the digest"},
	{"only an unknown algorithm", "md5=:AAAA:", "no sha-256 or sha-512 digest"},
	{"empty", "", "no sha-256 or sha-512 digest"},
	{"a name in capitals", strings.ToUpper(sha256Of(digestBody)[:7]) + sha256Of(digestBody)[7:], "the header is not a list of digests like sha-256=:…:"},
	{"no value", "sha-256", "the header is not a list of digests like sha-256=:…:"},
	{"a string", `sha-256="x"`, "the header is not a list of digests like sha-256=:…:"},
	{"an inner list", "sha-256=(1 2)", "the header is not a list of digests like sha-256=:…:"},
	{"broken base64", "sha-256=:%:", "the header is not a list of digests like sha-256=:…:"},
	{"unclosed", "sha-256=:AAAA", "the header is not a list of digests like sha-256=:…:"},
	{"trailing comma", sha256Of(digestBody) + ",", "the header is not a list of digests like sha-256=:…:"},
	{"trailing text", sha256Of(digestBody) + " x", "the header is not a list of digests like sha-256=:…:"},
	{"broken parameter", sha256Of(digestBody) + ";A", "the header is not a list of digests like sha-256=:…:"},
}

func TestContentDigest(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for _, c := range contentDigests {
			for _, in64 := range []bool{false, true} {
				w := newFixture(t, on, func(o *lambdahttp.Options) { o.Fingerprint = lambdahttp.VerifiedDigest })
				a := w.post(charge(withHeader("content-digest", c.header), func(r *request) {
					if r.body = digestBody; in64 {
						r.body, r.base64 = base64.StdEncoding.EncodeToString([]byte(digestBody)), true
					}
				}))
				if c.detail == "" && a.status != 201 {
					t.Errorf("%s (base64 %t): got %d %s", c.name, in64, a.status, a.body)
				}
				if c.detail != "" && (a.status != 400 || !strings.Contains(a.body, `"code":"invalid-digest"`) || !strings.Contains(a.body, c.detail) || w.runs+w.store.calls != 0) {
					t.Errorf("%s (base64 %t): got %d %s after %d runs, want 400: %s", c.name, in64, a.status, a.body, w.runs, c.detail)
				}
			}
		}
		w := newFixture(t, on, func(o *lambdahttp.Options) { o.Fingerprint = lambdahttp.VerifiedDigest })
		if a := w.post(charge()); a.status != 400 || !strings.Contains(a.body, "no sha-256 or sha-512 digest") {
			t.Errorf("without the header: got %d %s", a.status, a.body)
		}
		if a := w.post(charge(withHeader("content-digest", "x"), func(r *request) { r.body, r.base64 = "%", true })); a.status != 400 || !strings.Contains(a.body, `"code":"invalid-body"`) {
			t.Errorf("with a broken body: got %d %s", a.status, a.body)
		}
	})
}

// A retry may send another digest of the same body.
func TestContentDigestOfARetry(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on, func(o *lambdahttp.Options) { o.Fingerprint = lambdahttp.VerifiedDigest })
		send := func(body, digest string) reply {
			return w.post(charge(withBody(body), withHeader("content-digest", digest)))
		}
		send(`{"a":1}`, sha256Of(`{"a":1}`))
		if a := send(`{"a":1}`, sha512Of(`{"a":1}`)); a.header["Idempotent-Replayed"] != "true" {
			t.Errorf("by another algorithm: got %d %s", a.status, a.body)
		}
		if a := send(`{"a": 1}`, sha256Of(`{"a": 1}`)); a.status != 422 || w.runs != 1 {
			t.Errorf("other bytes: got %d after %d runs, want 422", a.status, w.runs)
		}
	})
}

// A header that is accepted matches the body, whatever else it contains.
func FuzzContentDigest(f *testing.F) {
	kit.Inputs(f)
	for _, c := range contentDigests {
		f.Add(c.header, digestBody)
	}
	f.Fuzz(func(t *testing.T, header, body string) {
		if lambdahttp.VerifyDigest([]string{header}, []byte(body)) != nil {
			return
		}
		for _, want := range []string{sha256Of(body), sha512Of(body)} {
			// Padding and the pad bits before it are not checked.
			if strings.Contains(header, want[:len(want)-len("A==:")]) {
				return
			}
		}
		t.Errorf("%q was accepted for %q", header, body)
	})
}

// typed sets the media type and the body.
func typed(media, body string) func(*request) {
	return func(r *request) { withHeader("content-type", media)(r); r.body = body }
}

func untyped(body string) func(*request) {
	return func(r *request) { without("content-type")(r); r.body = body }
}

// coded sets the Content-Encoding and sends the body of mod as bytes.
func coded(coding string, mod func(*request)) func(*request) {
	return func(r *request) {
		mod(r)
		withHeader("content-encoding", coding)(r)
		r.body, r.base64 = base64.StdEncoding.EncodeToString([]byte(r.body)), true
	}
}

// zipped returns data as the writer compresses it.
func packed(z io.WriteCloser, b *bytes.Buffer, data string) string {
	_, _ = io.WriteString(z, data)
	_ = z.Close()
	return b.String()
}

func gzipped(level int, data string) string {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, level)
	z.Comment = strings.Repeat("c", level) // bytes that do not depend on data
	return packed(z, &b, data)
}

func deflated(data string) string {
	var b bytes.Buffer
	return packed(zlib.NewWriter(&b), &b, data)
}

func flated(level int, data string) string {
	var b bytes.Buffer
	z, _ := flate.NewWriter(&b, level)
	return packed(z, &b, data)
}

// part is a part of a multipart body.
type part struct{ name, file, media, data string }

var (
	amount = part{name: "amount", data: "1250"}
	note   = part{name: "note", data: "two\r\nlines --"}
	photo  = part{name: "photo", file: "a.png", media: "image/png", data: "\x89PNG\r\n\x1a\n"}
)

// form returns a request whose body package mime/multipart wrote.
func form(boundary string, parts ...part) func(*request) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	_ = w.SetBoundary(boundary)
	for _, p := range parts {
		h := textproto.MIMEHeader{"Content-Disposition": {`form-data; name="` + p.name + `"`}}
		if p.file != "" {
			h = textproto.MIMEHeader{"Content-Disposition": {`form-data; name="` + p.name + `"; filename="` + p.file + `"`}, "Content-Type": {p.media}}
		}
		to, _ := w.CreatePart(h)
		_, _ = io.WriteString(to, p.data)
	}
	_ = w.Close()
	return func(r *request) {
		typed(w.FormDataContentType(), base64.StdEncoding.EncodeToString(b.Bytes()))(r)
		r.base64 = true
	}
}

// replaced replaces a text in the body of mod, which is in base64.
func replaced(mod func(*request), old, text string) func(*request) {
	return func(r *request) {
		mod(r)
		body, err := base64.StdEncoding.DecodeString(r.body)
		if err != nil || !bytes.Contains(body, []byte(old)) {
			panic("the body does not contain " + old)
		}
		r.body = base64.StdEncoding.EncodeToString(bytes.ReplaceAll(body, []byte(old), []byte(text)))
	}
}

// FM53, F20, F21: bodies are compared by what they mean, together with their media
// type.
func TestFM53Contents(t *testing.T) {
	t.Parallel()
	const doc, respelled = `{"a":1,"b":2}`, `{ "b": 2, "a": 1.0 }`
	compare(t, lambdahttp.WholeRequest, map[string]pair{
		"another JSON type":     {asJSON(doc), typed("application/problem+json", doc), false},
		"another type":          {typed("text/csv", "a"), typed("text/plain", "a"), false},
		"two types in a line":   {typed("text/plain, application/x+json", doc), typed("text/plain, application/x+json", respelled), false},
		"no type, and one":      {untyped("a"), typed("text/plain", "a"), false},
		"no type, and JSON":     {untyped(doc), asJSON(doc), false},
		"order in a form":       {typed("application/x-www-form-urlencoded", "a=1&b=2"), typed("application/x-www-form-urlencoded", "b=2&a=1"), false},
		"gzip":                  {coded("gzip", asJSON(gzipped(1, doc))), coded("gzip", asJSON(gzipped(9, respelled))), true},
		"gzip, other content":   {coded("gzip", asJSON(gzipped(1, doc))), coded("gzip", asJSON(gzipped(1, `{"a":1}`))), false},
		"gzip of text":          {coded("gzip", typed("text/plain", gzipped(1, "a"))), coded("gzip", typed("text/plain", gzipped(9, "a"))), true},
		"gzip and none":         {coded("gzip", asJSON(gzipped(1, doc))), asJSON(respelled), true},
		"gzip and identity":     {coded("gzip", asJSON(gzipped(1, doc))), coded("Identity", asJSON(respelled)), true},
		"gzip and x-gzip":       {coded("gzip", asJSON(gzipped(1, doc))), coded(" X-GZIP", asJSON(gzipped(2, doc))), true},
		"gzip and deflate":      {coded("gzip", asJSON(gzipped(1, doc))), coded("deflate", asJSON(deflated(respelled))), true},
		"gzip, not declared":    {coded("identity", asJSON(gzipped(1, doc))), asJSON(doc), false},
		"gzip in two members":   {coded("gzip", typed("a/b", gzipped(1, "a")+gzipped(2, "b"))), coded("gzip", typed("a/b", gzipped(3, "ab"))), true},
		"gzip, broken":          {coded("gzip", asJSON(gzipped(1, doc)[:40])), coded("gzip", asJSON(gzipped(1, doc)[:40])), true},
		"gzip, broken and none": {coded("gzip", asJSON(gzipped(1, doc)[:40])), coded("identity", asJSON(gzipped(1, doc)[:40])), false},
		"gzip, trailing bytes":  {coded("gzip", asJSON(gzipped(1, doc)+"x")), coded("gzip", asJSON(gzipped(1, doc))), false},
		"gzip, empty":           {coded("gzip", asJSON("")), asJSON(""), false},
		"deflate, no header":    {coded("deflate", asJSON(flated(1, doc))), coded("deflate", asJSON(flated(1, doc))), true},
		"deflate, no header, 2": {coded("deflate", asJSON(flated(0, doc))), coded("deflate", asJSON(flated(9, doc))), false},
		"two codings":           {coded("gzip, gzip", asJSON(gzipped(1, doc))), coded("gzip, gzip", asJSON(gzipped(2, doc))), false},
		"unknown coding":        {coded("br", asJSON(doc)), coded("br", asJSON(doc)), true},
		"unknown coding, bytes": {coded("br", asJSON(doc)), coded("br", asJSON(respelled)), false},

		"multipart":                 {form("abc", amount, note, photo), form("xyz", amount, note, photo), true},
		"multipart, other data":     {form("abc", amount), form("xyz", part{name: "amount", data: "1251"}), false},
		"multipart, other file":     {form("abc", photo), form("xyz", part{photo.name, "b.png", photo.media, photo.data}), false},
		"multipart, other type":     {form("abc", photo), form("xyz", part{photo.name, photo.file, "image/gif", photo.data}), false},
		"multipart, other order":    {form("abc", amount, note), form("xyz", note, amount), false},
		"multipart, no part":        {typed("multipart/form-data; boundary=abc", "--abc--"), typed("multipart/form-data; boundary=xyz", "--xyz--\r\n"), true},
		"multipart, one empty":      {typed("multipart/form-data; boundary=abc", "--abc--"), form("xyz", part{}), false},
		"multipart, data moves":     {form("abc", part{name: "a", data: "b\r\n"}), form("xyz", part{name: "a", data: "b"}), false},
		"multipart, last line":      {form("abc", amount), replaced(form("xyz", amount), "xyz--\r\n", "xyz--"), true},
		"multipart and mixed":       {form("abc", amount), func(r *request) { form("abc", amount)(r); r.header["content-type"] = "multipart/mixed; boundary=abc" }, false},
		"multipart, preamble":       {replaced(form("abc", amount), "--abc\r\n", "x\r\n--abc\r\n"), replaced(form("xyz", amount), "--xyz\r\n", "x\r\n--xyz\r\n"), false},
		"multipart, epilogue":       {form("abc", amount), replaced(form("abc", amount), "abc--\r\n", "abc--\r\nx"), false},
		"multipart, truncated":      {form("abc", amount), replaced(form("xyz", amount), "\r\n--xyz--\r\n", ""), false},
		"multipart, truncated line": {replaced(form("abc", amount), "abc--\r\n", "abc"), replaced(form("xyz", amount), "xyz--\r\n", "xyz"), false},
		"multipart, LF":             {replaced(form("abc", amount), "\r\n", "\n"), replaced(form("xyz", amount), "\r\n", "\n"), false},
		"multipart, LF before":      {replaced(form("abc", amount), "\r\n--abc--", "\n--abc--"), replaced(form("xyz", amount), "\r\n--xyz--", "\n--xyz--"), false},
		"multipart, in the data":    {form("abc", part{name: "a", data: "--abc"}), form("xyz", part{name: "a", data: "--xyz"}), false},
		"multipart, and the same":   {form("abc", part{name: "a", data: "--abc"}), form("abc", part{name: "a", data: "--abc"}), true},
		"multipart, no boundary":    {typed("multipart/form-data", "--\r\n\r\n\r\n----"), typed("multipart/form-data", "--\r\n\r\n\r\n----\r\n"), false},
		"multipart, other boundary": {form("abc", amount), func(r *request) {
			form("abc", amount)(r)
			r.header["content-type"] = "multipart/form-data; boundary=ab"
		}, false},
		"multipart, zipped": {
			coded("gzip", typed("multipart/form-data; boundary=abc", gzipped(1, "--abc\r\n\r\na\r\n--abc--"))),
			coded("gzip", typed("multipart/form-data; boundary=xyz", gzipped(1, "--xyz\r\n\r\na\r\n--xyz--"))), true},
		"multipart, nothing in it": {typed("multipart/form-data; boundary=abc", "--abc\r\n\r\n--abc--"), typed("multipart/form-data; boundary=xyz", "--xyz\r\n\r\n--xyz--"), true},
		"multipart, empty":         {typed("multipart/form-data; boundary=abc", "--abc--"), typed("multipart/form-data; boundary=abc", ""), false},
		"a boundary in a text":     {typed("text/plain; boundary=abc", "--abc\r\n\r\n--abc--"), typed("text/plain; boundary=xyz", "--xyz\r\n\r\n--xyz--"), false},
		"two lines of types": {
			func(r *request) { typed("text/csv", "a")(r); withHeader("Content-Type", "text/plain;a")(r) },
			func(r *request) { typed("text/html", "a")(r); withHeader("Content-Type", "text/plain;a")(r) }, false},
		"multipart and its parts": {form("abc", amount), typed("multipart/form-data", "Content-Disposition: form-data; name=\"amount\"\r\n\r\n1250"), false},
	})
}

// A body is inflated up to 1 MB of compressed and 6 MiB of other data. Beyond that
// its bytes are compared.
func TestInflatedUpToALimit(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 1<<20)
	chacha := rand.NewChaCha8([32]byte{})
	_, _ = chacha.Read(noise)
	most := len(noise) - 150
	for len(gzipped(1, string(noise[:most]))) < 1<<20 {
		most++
	}
	for name, c := range map[string]struct {
		data  string
		equal bool
	}{
		"much":            {strings.Repeat("x", 6<<20), true},
		"too much":        {strings.Repeat("x", 6<<20+1), false},
		"large":           {string(noise[:most]), true},
		"too large":       {string(noise[:most+1]), false},
		"all of a bomb":   {strings.Repeat("\x00", 64<<20), false},
		"much of nothing": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t, wires[0])
			// The same length of the compressed data, by other bytes in its comment.
			first := gzipped(1, c.data)
			second := strings.Replace(first, "c\x00", "d\x00", 1)
			w.post(charge(coded("gzip", typed("text/plain", first))))
			want := 422
			if c.equal {
				want = 201
			}
			if a := w.post(charge(coded("gzip", typed("text/plain", second)))); a.status != want || w.runs != 1 {
				t.Errorf("status %d after %d runs, want %d after 1", a.status, w.runs, want)
			}
		})
	}
}

// After a change of the rule, retries of earlier requests are refused.
func TestChangedRule(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		r := charge(withBody(`{"a":1,"b":1}`))
		a := newFixture(t, on, func(o *lambdahttp.Options) { o.Fingerprint = lambdahttp.Fields("/a") })
		a.post(r)
		for _, rule := range []lambdahttp.FingerprintRule{lambdahttp.Fields("/b"), lambdahttp.Fields("/a", "/b"), lambdahttp.WholeRequest, lambdahttp.RawBody} {
			b := newFixture(t, on, func(o *lambdahttp.Options) { o.Fingerprint = rule })
			b.store.Store = a.store.Store
			if got := b.post(r); got.status != 422 || b.runs != 0 {
				t.Errorf("%s: got %d %s", rule.Description, got.status, got.body)
			}
		}
	})
}

// A key in the body is found in a compressed body, and the body is compared by the
// rule for its media type.
func TestBodyFieldOfACompressedBody(t *testing.T) {
	t.Parallel()
	first := `{"idempotency_key":"` + keyA + `","amount":1}`
	second := `{"amount":1.0,"idempotency_key":"` + keyA + `"}`
	onEachWire(t, func(t *testing.T, on wire) {
		for media, want := range map[string]int{"application/json": 201, "text/plain": 422} {
			w := newFixture(t, on, bodyKey)
			if a := w.post(charge(coded("gzip", typed(media, gzipped(1, first))))); a.status != 201 {
				t.Fatalf("the first request got %d %s", a.status, a.body)
			}
			if a := w.post(charge(typed(media, first))); a.status != 201 || w.runs != 1 {
				t.Errorf("%s: the same content got %d after %d runs", media, a.status, w.runs)
			}
			if a := w.post(charge(coded("deflate", typed(media, deflated(second))))); a.status != want || w.runs != 1 {
				t.Errorf("%s: another spelling got %d after %d runs, want %d", media, a.status, w.runs, want)
			}
		}
	})
}

// FuzzMultipart: bodies that are the same by their parts are the same for package
// mime/multipart.
func FuzzMultipart(f *testing.F) {
	for _, body := range []string{
		"--a--", "--a\r\n\r\nx\r\n--a--\r\n", "--a\r\nA: b\r\n\r\n\r\n--a\r\n\r\n--b\r\n--a--", "--a\r\n\r\n--a--", "--a\n\nx\n--a--", "--a\r\n\r\nx\r\n--a \r\n\r\ny\r\n--a--", "--a\r\nx\r\n--ab\r\n\r\n--a--",
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		parts, ok := lambdahttp.SplitMultipart(body, "a")
		if !ok {
			return
		}
		const other = "another-boundary"
		if bytes.Contains(body, []byte(other)) {
			return
		}
		again := "--" + other
		for _, p := range parts {
			again += "\r\n" + string(p) + "\r\n--" + other
		}
		again += "--"
		if got, want := readParts([]byte(again), other), readParts(body, "a"); !slices.Equal(got, want) {
			t.Errorf("the parts of %q are %q, and those of %q are %q", body, want, again, got)
		}
	})
}

// readParts returns the parts that package mime/multipart finds, and whether it
// fails.
func readParts(body []byte, boundary string) (parts []string) {
	r := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		p, err := r.NextRawPart()
		if err != nil {
			return append(parts, fmt.Sprint(err == io.EOF))
		}
		data, err := io.ReadAll(p)
		parts = append(parts, fmt.Sprint(p.Header, string(data), err))
	}
}
