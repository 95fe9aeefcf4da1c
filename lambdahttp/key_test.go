// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdahttp"
)

const keyV7 = "019a8f3e-5c1b-7d4a-9e2f-0123456789ab"

// profileKeys are values of the header, and the key that each profile reads
// from them. An empty want means that the value is refused.
var profileKeys = []struct {
	name, value  string
	stripe, uuid string
}{
	{"UUID v4", keyA, keyA, keyA},
	{"UUID v4, quoted", `"` + keyA + `"`, `"` + keyA + `"`, keyA},
	{"UUID v7", keyV7, keyV7, keyV7},
	{"UUID in capitals", strings.ToUpper(keyA), strings.ToUpper(keyA), keyA},
	{"UUID, spaces around", "  " + keyA + "  ", keyA, keyA},
	{"UUID, tab behind", keyA + "\t", keyA, ""},
	{"UUID, spaces inside the quotes", `" ` + keyA + `"`, `" ` + keyA + `"`, ""},
	{"UUID with a parameter", keyA + ";a=1", keyA + ";a=1", keyA},
	{"max UUID", "ffffffff-ffff-ffff-ffff-ffffffffffff", "ffffffff-ffff-ffff-ffff-ffffffffffff", ""},
	{"one character", "k", "k", ""},
	{"tilde", "~", "~", ""},
	{"longest", strings.Repeat("k", 255), strings.Repeat("k", 255), ""},
	{"too long", strings.Repeat("k", 256), "", ""},
	{"too long with spaces around", " " + strings.Repeat("k", 255) + " ", strings.Repeat("k", 255), ""},
	{"inner space", "a b", "a b", ""},
	{"unclosed quote", `"abc`, `"abc`, ""},
	{"spaces around, quoted", `"  ` + keyA + `  "`, `"  ` + keyA + `  "`, ""},
	{"comma", "a,b", "", ""},
	{"comma in quotes", `"a,b"`, "", ""},
	{"two UUIDs", keyA + ", " + keyA, "", ""},
	{"empty", "", "", ""},
	{"spaces", " \t ", "", ""},
	{"NUL", "a\x00b", "", ""},
	{"tab inside", "a\tb", "", ""},
	{"line break", "a\nb", "", ""},
	{"DEL", "a\x7f", "", ""},
	{"not ASCII", "é", "", ""},
	{"not UTF-8", "\xff", "", ""},
}

// F03, F05, F06, F07: which values are keys in each profile except IETF.
func TestProfileKeys(t *testing.T) {
	t.Parallel()
	for _, c := range profileKeys {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, p := range []struct {
				name    string
				profile lambdahttp.Profile
				want    string
			}{{"Stripe", lambdahttp.Stripe, c.stripe}, {"UUID", lambdahttp.UUID, c.uuid}} {
				got, err := lambdahttp.HeaderKey(&p.profile, c.value)
				if (err == nil) != (p.want != "") || err == nil && got != p.want {
					t.Errorf("%s: %q is the key %q, %v; want %q", p.name, c.value, got, err, p.want)
				}
			}
		})
	}
}

// syntaxes are profiles with each syntax of this package.
var syntaxes = map[string]lambdahttp.Profile{
	"IETF": lambdahttp.IETF, "Stripe": lambdahttp.Stripe, "UUID": lambdahttp.UUID,
	"QuotedOrBareKey": {Syntax: lambdahttp.QuotedOrBareKey, MinKeyLength: 1, MaxKeyLength: 40},
}

// The published rules for keys are true: a value that matches the pattern is a
// key, the example is a key, and an invalid key does not match.
func checkPattern(t *testing.T, value string) {
	t.Helper()
	for name, p := range syntaxes {
		key, err := lambdahttp.HeaderKey(&p, value)
		if published[name].MatchString(value) && (err != nil || len(key) < p.MinKeyLength || len(key) > p.MaxKeyLength) {
			t.Errorf("%s: %q matches the pattern, but was read as %q, %v", name, value, key, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "a key must have ") && !knownSyntaxError(err) {
			t.Errorf("%s: %q returned an error that is not a fixed text: %v", name, value, err)
		}
		if err == nil && strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Errorf("%s: %q returned the invalid key %q", name, value, key)
		}
	}
}

var published = func() map[string]*regexp.Regexp {
	patterns := map[string]*regexp.Regexp{}
	for name, p := range syntaxes {
		guard, err := idempotent.New(memstore.New())
		if err != nil {
			panic(err)
		}
		policy := lambdahttp.PolicyOf(guard, single, func(o *lambdahttp.Options) { o.Profile = p })
		patterns[name] = regexp.MustCompile(policy.KeyPattern)
	}
	return patterns
}()

// F05, F06: the shortest and the longest key of each profile are keys, and
// match the published pattern.
func TestKeyPatterns(t *testing.T) {
	t.Parallel()
	for _, c := range profileKeys {
		checkPattern(t, c.value)
	}
	for _, c := range keySyntax {
		checkPattern(t, c.value)
	}
	for name, p := range syntaxes {
		if strings.Contains(published[name].String(), "min,max") || !published[name].MatchString(p.Syntax.Example) || p.Syntax.Description == "" {
			t.Errorf("%s: the pattern %s does not match the example %s", name, published[name], p.Syntax.Example)
		}
	}
	for name, values := range map[string][]string{
		"IETF":            {`"0123456789abcdef"`, `"0123456789\\\"abcd"`, `"` + strings.Repeat(`\\`, 255) + `"`},
		"Stripe":          {"k", `"k"`, strings.Repeat("~", 255)},
		"UUID":            {keyA, `"` + keyA + `"`, strings.ToUpper(keyV7)},
		"QuotedOrBareKey": {"k", `"k"`, "a:b/c", keyA},
	} {
		for _, value := range values {
			if !published[name].MatchString(value) {
				t.Errorf("%s: %q does not match %s", name, value, published[name])
			}
		}
	}
}

// bodyKeys are bodies, and the key in their field "k". An empty want with a
// detail means that the body is refused, and without a detail that it has no
// key.
var bodyKeys = []struct{ name, body, want, detail string }{
	{"string", `{"k":"abc"}`, "abc", ""},
	{"among others", ` { "a" : [1,{"k":"x"}] , "k" : "abc" } `, "abc", ""},
	{"escapes", `{"\u006b":"a\u0062\"\\"}`, `ab"\`, ""},
	{"quotes are part of it", `{"k":"\"abc\""}`, `"abc"`, ""},
	{"empty", `{"k":""}`, "", "a key must have 1 to 255 characters"},
	{"missing", `{"a":1}`, "", ""},
	{"other case", `{"K":"abc"}`, "", ""},
	{"nested only", `{"a":{"k":"abc"}}`, "", ""},
	{"null", `{"k":null}`, "", ""},
	{"empty body", ``, "", ""},
	{"number", `{"k":7312e2}`, "731200", ""},
	{"boolean", `{"k":true}`, "", "neither a string nor a number"},
	{"object", `{"k":{}}`, "", "neither a string nor a number"},
	{"array", `{"k":["abc"]}`, "", "neither a string nor a number"},
	{"twice", `{"k":"abc","k":"abd"}`, "", "not one JSON object"},
	{"another twice", `{"k":"abc","a":1,"a":2}`, "", "not one JSON object"},
	{"an array", `["k"]`, "", "not one JSON object"},
	{"a string", `"k"`, "", "not one JSON object"},
	{"null alone", `null`, "", "not one JSON object"},
	{"broken", `{"k":"abc"`, "", "not one JSON object"},
	{"two documents", `{"k":"abc"}{}`, "", "not one JSON object"},
	{"form", `k=abc`, "", "not one JSON object"},
	{"not UTF-8", "{\"k\":\"\xff\"}", "", "not one JSON object"},
	{"control character", `{"k":"a\u0000b"}`, "", "printable ASCII"},
	{"not ASCII", `{"k":"é"}`, "", "printable ASCII"},
	{"only spaces", `{"k":"  "}`, "", "at least 1 characters that are not spaces"},
	{"too long", `{"k":"` + strings.Repeat("k", 256) + `"}`, "", "a key must have 1 to 255 characters"},
}

func TestBodyField(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		for _, c := range bodyKeys {
			for _, media := range []string{"application/json", "text/plain", ""} {
				w := newFixture(t, on, func(o *lambdahttp.Options) {
					o.KeyFrom = lambdahttp.BodyField("/k")
					o.Profile.MinKeyLength = 1
				})
				a := w.post(charge(withBody(c.body), withHeader("content-type", media)))
				switch {
				case c.want != "":
					if rec := w.store.record(t); a.status != 201 || rec == nil {
						t.Errorf("%s: got %d %s", c.name, a.status, a.body)
					}
				case c.detail != "":
					if a.status != 400 || !strings.Contains(a.body, `"code":"invalid-key"`) || !strings.Contains(a.body, `The field \"/k\" of the body cannot be used: `) ||
						!strings.Contains(a.body, c.detail) || w.runs+w.store.calls != 0 {
						t.Errorf("%s: got %d %s after %d runs", c.name, a.status, a.body, w.runs)
					}
				default:
					if a.status != 400 || !strings.Contains(a.body, `"code":"missing-key"`) || !strings.Contains(a.body, `field \"/k\"`) || w.runs+w.store.calls != 0 {
						t.Errorf("%s: got %d %s after %d runs", c.name, a.status, a.body, w.runs)
					}
				}
			}
		}
	})
	for _, c := range bodyKeys {
		if got, found, err := lambdahttp.BodyKey(c.body, lambdahttp.BodyField("/k")); c.want != "" && (got != c.want || !found || err != nil) {
			t.Errorf("%s: the key is %q %t %v, want %q", c.name, got, found, err, c.want)
		}
	}
	for pointer, better := range map[string]string{"": "/idempotency_key", "id": "/id", "data/id": "/data/id", "/~": "/idempotency_key", "~": "/idempotency_key"} {
		if got, want := panics(func() { lambdahttp.BodyField(pointer) }), fmt.Sprintf("BodyField: invalid JSON Pointer %q", pointer); !strings.Contains(got, want) || !strings.HasSuffix(got, fmt.Sprintf("use one such as %q", better)) {
			t.Errorf("%q: panic %q, want %s, and %s instead", pointer, got, want, better)
		}
	}
	got, found, err := lambdahttp.BodyKey(`{"events":[{"id":"a"},{"id":73}]}`, lambdahttp.BodyField("/events/1/id"))
	if got != "73" || !found || err != nil {
		t.Errorf("the key in an element of a list is %q %t %v", got, found, err)
	}
}

// If the key is in the body, a key in the header is ignored.
func TestBodyFieldIgnoresTheHeader(t *testing.T) {
	t.Parallel()
	onEachWire(t, func(t *testing.T, on wire) {
		w := newFixture(t, on, bodyKey)
		w.post(charge(withBodyKey(`"` + keyA + `"`)))
		w.post(charge(withBodyKey(`"` + keyB + `"`)))
		if w.runs != 2 {
			t.Errorf("got %d runs for two keys in the body", w.runs)
		}
		if a := w.post(charge(withBodyKey(`"`+keyA+`"`), withKey("broken"))); a.status != 201 || w.runs != 2 {
			t.Errorf("another header: got %d after %d runs", a.status, w.runs)
		}
		if a := w.post(charge(withBodyKey(`"0123456789abcde"`))); a.status != 400 {
			t.Errorf("a short key: got %d", a.status)
		}
		if a := w.post(charge(func(r *request) { r.body, r.base64 = "%", true })); a.status != 400 || strings.Contains(a.body, "missing-key") {
			t.Errorf("a broken encoding: got %d %s", a.status, a.body)
		}
		if a := w.post(charge(func(r *request) { withBodyKey(`"` + keyA + `"`)(r); r.base64 = true })); a.status != 400 {
			t.Errorf("a broken body: got %d", a.status)
		}
	})
}

// The key is found if and only if encoding/json finds it.
func FuzzBodyKey(f *testing.F) {
	kit.Inputs(f)
	for _, c := range bodyKeys {
		f.Add(c.body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		got, found, err := lambdahttp.BodyKey(body, lambdahttp.BodyField("/k"))
		if !found || err != nil {
			if got != "" {
				t.Errorf("%q: the key %q was read from an invalid body: %v", body, got, err)
			}
			return
		}
		var members map[string]any
		d := json.NewDecoder(strings.NewReader(body))
		d.UseNumber()
		if err := d.Decode(&members); err != nil {
			t.Fatalf("%q: found %q in a body that encoding/json refuses: %v", body, got, err)
		}
		same := members["k"] == got
		if number, is := members["k"].(json.Number); is {
			a, _ := strconv.ParseFloat(number.String(), 64)
			b, _ := strconv.ParseFloat(got, 64)
			same = a == b
		}
		if !same {
			t.Errorf("%q: found %q, but encoding/json found %v", body, got, members["k"])
		}
	})
}

// keySyntax are values of the header, and the key that each syntax reads from
// them. An empty want means that the value is refused.
var keySyntax = []struct {
	name, value  string
	quoted, both string
}{
	{"string", `"abc"`, "abc", "abc"},
	{"UUID", `"` + keyA + `"`, keyA, keyA},
	{"inner spaces", `" a b "`, " a b ", " a b "},
	{"spaces around", `   "abc"  `, "abc", "abc"},
	{"tab before", "\t\"abc\"", "", ""},
	{"tab behind", "\"abc\"\t", "", ""},
	{"all printable", `" !#$%&'()*+,-./09:;<=>?@AZ[]^_` + "`" + `az{|}~"`, " !#$%&'()*+,-./09:;<=>?@AZ[]^_`az{|}~", " !#$%&'()*+,-./09:;<=>?@AZ[]^_`az{|}~"},
	{"escaped quote", `"a\"b"`, `a"b`, `a"b`},
	{"escaped backslash", `"a\\b"`, `a\b`, `a\b`},
	{"escape first", `"\\ab"`, `\ab`, `\ab`},
	{"two escapes", `"\"\\\""`, `"\"`, `"\"`},
	{"other escape", `"a\nb"`, "", ""},
	{"escape at the end", `"a\`, "", ""},
	{"escaped closing quote", `"a\"`, "", ""},
	{"unclosed", `"abc`, "", ""},
	{"only a quote", `"`, "", ""},
	{"single quotes", `'abc'`, "", "'abc'"}, // tchar, and so a bare key
	{"NUL", "\"a\x00b\"", "", ""},
	{"tab inside", "\"a\tb\"", "", ""},
	{"DEL", "\"a\x7fb\"", "", ""},
	{"not ASCII", `"é"`, "", ""},
	{"bare", `abc`, "", "abc"},
	{"bare UUID", keyA, "", keyA},
	{"bare with colon and slash", `a:b/c`, "", "a:b/c"},
	{"bare base64", `YWJj==`, "", ""},
	{"two bare words", `a b`, "", ""},
	{"bare and quote", `a"b"`, "", ""},
	{"integer", `42`, "", "42"},
	{"nothing", ``, "", ""},
	{"spaces", `   `, "", ""},
	{"list", `"a", "b"`, "", ""},
	{"list without space", `"a","b"`, "", ""},
	{"trailing comma", `"a",`, "", ""},
	{"two strings", `"a" "b"`, "", ""},
	{"byte sequence", `:YWJj:`, "", ":YWJj:"}, // all characters are allowed in a bare key
	{"boolean", `?1`, "", ""},
	{"inner list", `("a")`, "", ""},

	{"parameter without value", `"a";b`, "a", "a"},
	{"parameter with space", `"a";   b`, "a", "a"},
	{"space before parameter", `"a" ;b`, "", ""},
	{"parameter string", `"a";b="c;d\""`, "a", "a"},
	{"parameter token", `"a";b=*c:/d`, "a", "a"},
	{"parameter integer", `"a";b=-123456789012345`, "a", "a"},
	{"parameter integer too long", `"a";b=1234567890123456`, "", ""},
	{"parameter decimal", `"a";b=123456789012.123`, "a", "a"},
	{"parameter decimal, long fraction", `"a";b=1.1234`, "", ""},
	{"parameter decimal, no fraction", `"a";b=1.`, "", ""},
	{"parameter decimal, long whole", `"a";b=1234567890123.1`, "", ""},
	{"parameter decimal, no whole", `"a";b=.1`, "", ""},
	{"parameter minus", `"a";b=-`, "", ""},
	{"parameter two minus", `"a";b=--1`, "", ""},
	{"parameter bytes", `"a";b=:YWJj:`, "a", "a"},
	{"parameter empty bytes", `"a";b=::`, "a", "a"},
	{"parameter bytes without padding", `"a";b=:YQ:`, "a", "a"},
	{"parameter bytes, padded", `"a";b=:YQ==:`, "a", "a"},
	{"parameter bytes, padding first", `"a";b=:=YQ=:`, "", ""},
	{"parameter bytes, space", `"a";b=:YW Jj:`, "", ""},
	{"parameter bytes, line break", "\"a\";b=:YW\nJj:", "", ""},
	{"parameter bytes, unclosed", `"a";b=:YWJj`, "", ""},
	{"parameter true", `"a";b=?1`, "a", "a"},
	{"parameter false", `"a";b=?0`, "a", "a"},
	{"parameter boolean 2", `"a";b=?2`, "", ""},
	{"parameter boolean T", `"a";b=?T`, "", ""},
	{"parameter date", `"a";b=@1659578233`, "a", "a"},
	{"parameter date before 1970", `"a";b=@-1`, "a", "a"},
	{"parameter date, decimal", `"a";b=@1.5`, "", ""},
	{"parameter date, empty", `"a";b=@`, "", ""},
	{"parameter display string", `"a";b=%"f%c3%bc%22%25"`, "a", "a"},
	{"parameter display string, upper hex", `"a";b=%"%C3%BC"`, "", ""},
	{"parameter display string, not hex", `"a";b=%"%zz"`, "", ""},
	{"parameter display string, short", `"a";b=%"%c"`, "", ""},
	{"parameter display string, not UTF-8", `"a";b=%"%ff"`, "", ""},
	{"parameter display string, not ASCII", `"a";b=%"ü"`, "", ""},
	{"parameter display string, unclosed", `"a";b=%"x`, "", ""},
	{"parameter display string, no quote", `"a";b=%x`, "", ""},
	{"parameter value missing", `"a";b=`, "", ""},
	{"parameter unknown type", `"a";b=!`, "", ""},
	{"parameter unclosed string", `"a";b="c`, "", ""},
	{"parameter name missing", `"a";`, "", ""},
	{"parameter name in capitals", `"a";B`, "", ""},
	{"parameter name with digit first", `"a";1b`, "", ""},
	{"parameter name star", `"a";*b_-.*1`, "a", "a"},
	{"parameter names twice", `"a";b=1;b=2`, "a", "a"},
	{"parameter, then more", `"a";b=1 c`, "", ""},
	{"bare with parameter", `abc;b=1`, "", "abc"},
}

// F03: only the String of a structured field is a quoted key.
func TestKeySyntax(t *testing.T) {
	t.Parallel()
	for _, c := range keySyntax {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, s := range []struct {
				name, want string
				read       func(string) (string, error)
			}{{"QuotedKey", c.quoted, lambdahttp.QuotedKey.Parse}, {"QuotedOrBareKey", c.both, lambdahttp.QuotedOrBareKey.Parse}} {
				got, err := s.read(c.value)
				if got != s.want || (err == nil) != (s.want != "") {
					t.Errorf("%s(%q) = %q, %v; want %q", s.name, c.value, got, err, s.want)
				}
			}
		})
	}
}

// A UUID has one canonical form, whatever the length bounds of the profile are.
func TestUUIDKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, want string }{
		{keyA, keyA},
		{strings.ToUpper(keyA), keyA},
		{"8E03978e-40d5-4000-8000-6894a57f9324", "8e03978e-40d5-4000-8000-6894a57f9324"},
		{"00000000-0000-7000-9999-999999999999", "00000000-0000-7000-9999-999999999999"},
		{"aaaaaaaa-aaaa-4fff-bfff-ffffffffffff", "aaaaaaaa-aaaa-4fff-bfff-ffffffffffff"},
		{keyA[:35], ""},
		{keyA + "0", ""},
		{"", ""},
		{"8e03978e040d5-43e8-bc93-6894a57f9324", ""},
		{"8e03978e-40d5-43e8-bc9306894a57f9324", ""},
		{"8e03978/-40d5-43e8-bc93-6894a57f9324", ""},
		{"8e03978:-40d5-43e8-bc93-6894a57f9324", ""},
		{"8e03978`-40d5-43e8-bc93-6894a57f9324", ""},
		{"8e03978g-40d5-43e8-bc93-6894a57f9324", ""},
		{"8e03978e-40d5-63e8-bc93-6894a57f9324", ""},
		{"8e03978e-40d5-43e8-7c93-6894a57f9324", ""},
		{"8e03978e-40d5-43e8-cc93-6894a57f9324", ""},
	} {
		if got, err := lambdahttp.UUIDKey.Canonical(c.key); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q: got %q, %v; want %q", c.key, got, err, c.want)
		}
	}
}

func knownSyntaxError(err error) bool { return slices.Contains(lambdahttp.SyntaxErrors, err) }

func FuzzParseKey(f *testing.F) {
	kit.Inputs(f)
	for _, c := range keySyntax {
		f.Add(c.value)
	}
	for _, c := range profileKeys {
		f.Add(c.value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		checkPattern(t, value)
		quoted, quotedErr := lambdahttp.QuotedKey.Parse(value)
		both, bothErr := lambdahttp.QuotedOrBareKey.Parse(value)
		if quotedErr == nil {
			if bothErr != nil || both != quoted {
				t.Errorf("%q is the key %q, but with QuotedOrBareKey %q, %v", value, quoted, both, bothErr)
			}
			// The key can be written again, and is then read as the same key.
			escaped := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(quoted) + `"`
			if again, err := lambdahttp.QuotedKey.Parse(escaped); err != nil || again != quoted {
				t.Errorf("%q was read again as %q, %v", escaped, again, err)
			}
		}
	})
}
