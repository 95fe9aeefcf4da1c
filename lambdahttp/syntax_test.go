// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdahttp"
)

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

// An empty string is a valid String; the minimum length is not checked by the
// grammar.
func TestEmptyStringIsAString(t *testing.T) {
	t.Parallel()
	if got, err := lambdahttp.QuotedKey.Parse(`""`); got != "" || err != nil {
		t.Errorf("got %q, %v", got, err)
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
	f.Fuzz(func(t *testing.T, value string) {
		quoted, quotedErr := lambdahttp.QuotedKey.Parse(value)
		both, bothErr := lambdahttp.QuotedOrBareKey.Parse(value)
		for _, err := range []error{quotedErr, bothErr} {
			if err != nil && !knownSyntaxError(err) {
				t.Errorf("%q returned an error that is not a fixed text: %v", value, err)
			}
		}
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
		for _, key := range []string{quoted, both} {
			if strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%q returned the invalid key %q", value, key)
			}
		}
	})
}
