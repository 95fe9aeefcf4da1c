// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/lambdahttp"
)

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
	const media, doc, respelled = "application/json", `{"a":1,"b":2}`, `{ "b": 2, "a": 1.0 }`
	asJSON := func(body string) func(*request) { return typed(media, body) }
	for name, c := range map[string]struct {
		first, second func(*request)
		equal         bool
	}{
		"another JSON type":     {asJSON(doc), typed("application/problem+json", doc), false},
		"another type":          {typed("text/csv", "a"), typed("text/plain", "a"), false},
		"another charset":       {typed("text/plain; charset=utf-8", "a"), typed("text/plain", "a"), true},
		"capitals":              {typed("Text/Plain", "a"), typed("text/plain ; a=b", "a"), true},
		"two types in a line":   {typed("text/plain, application/x+json", doc), typed("text/plain, application/x+json", respelled), false},
		"no type":               {untyped("a"), untyped("a"), true},
		"no type, and one":      {untyped("a"), typed("text/plain", "a"), false},
		"no type, and JSON":     {untyped(doc), asJSON(doc), false},
		"order in a form":       {typed("application/x-www-form-urlencoded", "a=1&b=2"), typed("application/x-www-form-urlencoded", "b=2&a=1"), false},
		"the same form":         {typed("application/x-www-form-urlencoded", "i[][a]=1&i[][b]=2"), typed("application/x-www-form-urlencoded", "i[][a]=1&i[][b]=2"), true},
		"gzip":                  {coded("gzip", asJSON(gzipped(1, doc))), coded("gzip", asJSON(gzipped(9, respelled))), true},
		"gzip, other content":   {coded("gzip", asJSON(gzipped(1, doc))), coded("gzip", asJSON(gzipped(1, `{"a":1}`))), false},
		"gzip, other type":      {coded("gzip", asJSON(gzipped(1, doc))), coded("gzip", typed("text/plain", gzipped(1, doc))), false},
		"gzip of text":          {coded("gzip", typed("text/plain", gzipped(1, "a"))), coded("gzip", typed("text/plain", gzipped(9, "a"))), true},
		"gzip of text, spelled": {coded("gzip", typed("text/plain", gzipped(1, doc))), coded("gzip", typed("text/plain", gzipped(1, respelled))), false},
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
		"gzip of broken JSON":   {coded("gzip", asJSON(gzipped(1, doc+"}"))), coded("gzip", asJSON(gzipped(2, doc+"}"))), true},
		"deflate, no header":    {coded("deflate", asJSON(flated(1, doc))), coded("deflate", asJSON(flated(1, doc))), true},
		"deflate, no header, 2": {coded("deflate", asJSON(flated(0, doc))), coded("deflate", asJSON(flated(9, doc))), false},
		"two codings":           {coded("gzip, gzip", asJSON(gzipped(1, doc))), coded("gzip, gzip", asJSON(gzipped(2, doc))), false},
		"unknown coding":        {coded("br", asJSON(doc)), coded("br", asJSON(doc)), true},
		"unknown coding, bytes": {coded("br", asJSON(doc)), coded("br", asJSON(respelled)), false},
		"unknown coding, none":  {coded("br", asJSON(doc)), asJSON(doc), false},
		"unknown codings":       {coded("br", asJSON(doc)), coded("zstd", asJSON(doc)), false},

		"multipart":                 {form("abc", amount, note, photo), form("xyz", amount, note, photo), true},
		"multipart, other data":     {form("abc", amount), form("xyz", part{name: "amount", data: "1251"}), false},
		"multipart, other name":     {form("abc", amount), form("xyz", part{name: "amounT", data: "1250"}), false},
		"multipart, other file":     {form("abc", photo), form("xyz", part{photo.name, "b.png", photo.media, photo.data}), false},
		"multipart, other type":     {form("abc", photo), form("xyz", part{photo.name, photo.file, "image/gif", photo.data}), false},
		"multipart, other order":    {form("abc", amount, note), form("xyz", note, amount), false},
		"multipart, a part more":    {form("abc", amount), form("xyz", amount, amount), false},
		"multipart, no part":        {typed("multipart/form-data; boundary=abc", "--abc--"), typed("multipart/form-data; boundary=xyz", "--xyz--\r\n"), true},
		"multipart, one empty":      {typed("multipart/form-data; boundary=abc", "--abc--"), form("xyz", part{}), false},
		"multipart, data moves":     {form("abc", part{name: "a", data: "b\r\n"}), form("xyz", part{name: "a", data: "b"}), false},
		"multipart, last line":      {form("abc", amount), replaced(form("xyz", amount), "xyz--\r\n", "xyz--"), true},
		"multipart, quoted":         {form("a b", amount), form("xyz", amount), true},
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachWire(t, func(t *testing.T, on wire) {
				first, second := charge(c.first), charge(c.second)
				w := newFixture(t, on)
				if a := w.post(first); a.status != 201 {
					t.Fatalf("the first request got %d %s", a.status, a.body)
				}
				want := 422
				if c.equal {
					want = 201
				}
				if a := w.post(second); a.status != want || w.runs != 1 {
					t.Errorf("status %d after %d runs, want %d after 1", a.status, w.runs, want)
				}
			})
		})
	}
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

// The other rules compare the media type too. Those that compare bytes compare the
// coding with them.
func TestContentsOfOtherRules(t *testing.T) {
	t.Parallel()
	const doc = `{"a":1,"b":2}`
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
	a := lambdahttp.Fields("/a")
	for name, c := range map[string]struct {
		rule          lambdahttp.FingerprintRule
		first, second func(*request)
		equal         bool
	}{
		"raw: type":         {lambdahttp.RawBody, typed("application/json", doc), typed("text/plain", doc), false},
		"raw: charset":      {lambdahttp.RawBody, typed("application/json", doc), typed("application/json; charset=utf-8", doc), true},
		"raw: coding":       {lambdahttp.RawBody, coded("br", untyped("a")), untyped("a"), false},
		"raw: gzip":         {lambdahttp.RawBody, coded("gzip", untyped(gzipped(1, "a"))), coded("gzip", untyped(gzipped(2, "a"))), false},
		"raw: boundary":     {lambdahttp.RawBody, form("abc", amount), form("xyz", amount), false},
		"digest: type":      {lambdahttp.VerifiedDigest, digest(typed("application/json", doc)), digest(typed("text/plain", doc)), false},
		"digest: the same":  {lambdahttp.VerifiedDigest, digest(coded("gzip", untyped(gzipped(1, "a")))), digest(coded("gzip", untyped(gzipped(1, "a")))), true},
		"fields: type":      {a, typed("application/json", doc), typed("application/problem+json", doc), false},
		"fields: gzip":      {a, typed("application/json", doc), coded("gzip", typed("application/json", gzipped(1, `{"a":1,"b":3}`))), true},
		"fields: multipart": {a, form("abc", amount), form("xyz", amount), true},
		"fields: form":      {a, typed("application/x-www-form-urlencoded", "a=1&b=2"), typed("application/x-www-form-urlencoded", "a=1&b=3"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachWire(t, func(t *testing.T, on wire) {
				w := newFixture(t, on, func(o *lambdahttp.Options) { o.Fingerprint = c.rule })
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
