// SPDX-License-Identifier: Apache-2.0

package canonical_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/once-lambda/once/internal/canonical"
	"github.com/once-lambda/once/internal/kit"
)

// The golden vectors are input of stored fingerprints. A change here would make
// every earlier record a mismatch; it needs a new fingerprint version.
func TestGoldenVectors(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]struct{ in, want string }{
		"empty object":            {` { } `, `{}`},
		"key order":               {`{"b":1,"a":{"d":2,"c":3}}`, `{"a":{"c":3,"d":2},"b":1}`},
		"key order is UTF-16":     {`{"\ufb33":1,"\ud83d\ude00":2,"\u20ac":3}`, "{\"€\":3,\"😀\":2,\"\ufb33\":1}"},
		"arrays keep their order": {`[3, 1 ,2]`, `[3,1,2]`},
		"escapes":                 {`"\u0061\/\u000a\u001f\u00e9"`, `"a/\n\u001fé"`},
		"digits in strings":       {`{"1.50":"1.50\"2.0"}`, `{"1.50":"1.50\"2.0"}`},
		"literals":                {`[null,true,false,"",0,{},[]]`, `[null,true,false,"",0,{},[]]`},

		"nested": {
			`{"b":{"d":1,"c":[{"z":{"y":1,"x":2},"a":3},{"f":{}}]},"a":{"h":1,"g":{"j":1,"i":2}}}`,
			`{"a":{"g":{"i":2,"j":1},"h":1},"b":{"c":[{"a":3,"z":{"x":2,"y":1}},{"f":{}}],"d":1}}`,
		},
		"prefixes":       {`{"ab":1,"a":2,"":3,"a\u0000":4,"aaaaaaaab":5,"aaaaaaaaa":6,"aaaaaaaa":7}`, `{"":3,"a":2,"a\u0000":4,"aaaaaaaa":7,"aaaaaaaaa":6,"aaaaaaaab":5,"ab":1}`},
		"escaped names":  {`{"\\":1,"\"":2,"\u0001":3,"\u007f":4,"]":5,"!":6,"\n":7,"\/":8}`, `{"\u0001":3,"\n":7,"!":6,"\"":2,"/":8,"\\":1,"]":5,"` + "\x7f" + `":4}`},
		"surrogates":     {`["\ud83d\ude00","\uD83D\uDE00","\uffff\uFFFD"]`, "[\"😀\",\"😀\",\"\uffff\ufffd\"]"},
		"short escapes":  {`"\b\f\n\r\t\"\\\u0008\u000C\u000a\u000D\u0009\u0022\u005c\u0000\u000B\u000E\u001F\u0020"`, `"\b\f\n\r\t\"\\\b\f\n\r\t\"\\\u0000\u000b\u000e\u001f "`},
		"last of UTF-16": {"{\"\ue000\":1,\"\uffff\":2,\"\U0010ffff\":3,\"\ud7ff\":4}", "{\"\ud7ff\":4,\"\U0010ffff\":3,\"\ue000\":1,\"\uffff\":2}"},
		"white space":    {" \t\r\n[ 1\t,\n{ } ,\r{ \"a\" : [ ] } ] \n", `[1,{},{"a":[]}]`},

		"RFC 8785 section 3.2.2": {
			`{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}`,
			// No double equals 333333333.33333329: RFC 8785 prints
			// 333333333.3333333.
			`{"literals":[null,true,false],"numbers":[33333333333333329e-8,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		},
		"RFC 8785 section 3.2.3": {
			`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
			"{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}",
		},
		"RFC 8785 appendix B": {
			`[0,-0,5e-324,-5e-324,17976931348623157e292,-17976931348623157e292,9007199254740992,-9007199254740992,29514790517935283e4,9999999999999997e7,1e23,10000000000000001e7,9999999999999997e5,9999999999999999e5,1e21,9999999999999997e-22,1e-6,3333333333333332e-7,33333333333333325e-8,3333333333333333e-7,3333333333333334e-7,33333333333333343e-8,-33333333333333333e-22,14249539237812062e-1]`,
			`[0,0,5e-324,-5e-324,1.7976931348623157e+308,-1.7976931348623157e+308,9007199254740992,-9007199254740992,295147905179352830000,9.999999999999997e+22,1e+23,1.0000000000000001e+23,999999999999999700000,999999999999999900000,1e+21,9.999999999999997e-7,0.000001,333333333.3333332,333333333.33333325,333333333.3333333,333333333.3333334,333333333.33333343,-0.0000033333333333333333,1424953923781206.2]`,
		},

		"one":                         {`[1,1.0,1e0,10e-1,0.1e1,1E+0]`, `[1,1,1,1,1,1]`},
		"zero":                        {`[0,-0,0.0,-0.0e7,0e999]`, `[0,0,0,0,0]`},
		"large doubles":               {`[1e20,1e21,123456789012345680000]`, `[100000000000000000000,1e+21,123456789012345680000]`},
		"small doubles":               {`[0.000001,0.0000001,1.5e-10]`, `[0.000001,1e-7,1.5e-10]`},
		"largest double":              {`1.7976931348623157e308`, `1.7976931348623157e+308`},
		"integers beyond 2^53":        {`[9007199254740992,9007199254740993,9007199254740993.0]`, `[9007199254740992,9007199254740993,9007199254740993]`},
		"negative beyond 2^53":        {`[-9007199254740993,-90071992547409930]`, `[-9007199254740993,-9007199254740993e1]`},
		"long decimals":               {`[12345678901234567.89,12345678901234567.88]`, `[1234567890123456789e-2,1234567890123456788e-2]`},
		"largest, by its digits":      {`[17976931348623157e292,17976931348623158e292,1.9e308,2e308]`, `[1.7976931348623157e+308,17976931348623158e292,19e307,2e308]`},
		"small decimals":              {`[1e-300,1.5e-300,9.5e-301,1.5e-310,5e-324]`, `[1e-300,1.5e-300,95e-302,15e-311,5e-324]`},
		"fifteen digits and more":     {`[123456789012345e10,1234567890123456e10,0.1234567890123456,0.30000000000000004,0.30000000000000005]`, `[1.23456789012345e+24,1.234567890123456e+25,0.1234567890123456,0.30000000000000004,30000000000000005e-17]`},
		"beyond the largest double":   {`[1e400,10e399,-1e400]`, `[1e400,1e400,-1e400]`},
		"below the smallest double":   {`[1e-400,0.1e-399]`, `[1e-400,1e-400]`},
		"exponent with leading zeros": {`1e0000000000000000000000000002`, `100`},
		"largest exponents":           {`[1e999999999999999999,1e-999999999999999999,0e999999999999999999]`, `[1e999999999999999999,1e-999999999999999999,0]`},
		"sixteen exact digits":        {`1234567890123456`, `1234567890123456`},
	} {
		got, err := canonical.JSON([]byte(v.in))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if string(got) != v.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, v.want)
		}
		again, err := canonical.JSON(got)
		if err != nil || string(again) != string(got) {
			t.Errorf("%s: not stable: %s became %s (%v)", name, got, again, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]struct{ in, want string }{
		"duplicate name":          {`{"secret":1,"a":2,"secret":3}`, "duplicate member name in an object (at byte 29)"},
		"adjacent duplicate":      {`{"a":1,"a":2}`, "duplicate member name"},
		"duplicate, long":         {`{"aaaaaaaab":1,"aaaaaaaac":2,"aaaaaaaab":3}`, "duplicate member name"},
		"same after unescaping":   {`{"a":1,"\u0061":2}`, "duplicate member name"},
		"duplicate in a member":   {`{"b":{"c":1,"c":2},"a":1}`, "duplicate member name"},
		"invalid UTF-8":           {"\"\xff\"", "invalid UTF-8 (at byte 1)"},
		"invalid UTF-8 in a name": {"{\"\xc3\":1}", "invalid UTF-8 (at byte 2)"},
		"a surrogate in UTF-8":    {"\"\xed\xa0\x80\"", "invalid UTF-8"},
		"lone surrogate":          {`"\ud800"`, "invalid UTF-8 (at byte 1)"},
		"lone second surrogate":   {`"\udc00\ud800"`, "invalid UTF-8"},
		"surrogate and another":   {`"\ud800\u0041"`, "invalid UTF-8"},
		"surrogate and escape":    {`"\ud800\n"`, "invalid UTF-8"},
		"control character":       {"\"a\nb\"", "invalid JSON document (at byte 2)"},
		"escape":                  {`"\x41"`, "invalid JSON document"},
		"escape of no digit":      {`"\u00g0"`, "invalid JSON document"},
		"escape of a sign":        {`"\u00!0"`, "invalid JSON document"},
		"surrogate and no digit":  {`"\ud800\u00g0"`, "invalid JSON document"},
		"trailing data":           {`{} secret`, "invalid JSON document (at byte 3)"},
		"truncated":               {`{"secret":`, "is incomplete"},
		"truncated text":          {`"secret`, "is incomplete"},
		"truncated escape":        {`"\`, "is incomplete"},
		"truncated unit":          {`"\u00`, "is incomplete"},
		"truncated surrogate":     {`"\ud83d\ude`, "is incomplete"},
		"truncated literal":       {`tru`, "is incomplete"},
		"truncated number":        {`1.`, "is incomplete"},
		"truncated exponent":      {`1e`, "is incomplete"},
		"truncated exponent's":    {`1e+`, "is incomplete"},
		"only a sign":             {`-`, "is incomplete"},
		"empty":                   {``, "is incomplete"},
		"a NUL":                   {"\x00", "invalid JSON document (at byte 0)"},
		"byte order mark":         {"\ufeff1", "invalid JSON document (at byte 0)"},
		"leading zero":            {`01`, "invalid JSON document"},
		"leading zeros":           {`-00`, "invalid JSON document"},
		"leading plus":            {`+1`, "invalid JSON document"},
		"no digit":                {`[.5]`, "invalid JSON document"},
		"no fraction":             {`[1.]`, "invalid JSON document"},
		"no exponent":             {`[1e]`, "invalid JSON document"},
		"literal":                 {`[nul]`, "invalid JSON document"},
		"capitals":                {`True`, "invalid JSON document"},
		"comma before":            {`[,1]`, "invalid JSON document"},
		"comma after":             {`[1,]`, "invalid JSON document"},
		"comma after a member":    {`{"a":1,}`, "invalid JSON document"},
		"no comma":                {`[1 2]`, "invalid JSON document"},
		"no comma, members":       {`{"a":1 "b":2}`, "invalid JSON document"},
		"no colon":                {`{"a" 1}`, "invalid JSON document"},
		"name without quotes":     {`{a:1}`, "invalid JSON document"},
		"wrong end":               {`{"a":1]`, "invalid JSON document"},
		"not JSON":                {`secret`, "invalid JSON document (at byte 0)"},
		"endless exponent":        {`1e` + strings.Repeat("9", 19), "more than 18 digits"},
		"deep arrays":             {strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001), "nested more than 10,000 deep (at byte 10000)"},
		"deep objects":            {strings.Repeat(`{"":`, 10_001) + "1" + strings.Repeat("}", 10_001), "nested more than 10,000 deep"},
	} {
		_, err := canonical.JSON([]byte(v.in))
		if err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%s: got error %v, want one with %q", name, err, v.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error quotes the document: %v", name, err)
		}
	}
}

// A document has at most 512 MB.
func TestSize(t *testing.T) {
	t.Parallel()
	doc := make([]byte, 512<<20+1)
	for want, doc := range map[string][]byte{"invalid JSON document (at byte 0)": doc[1:], "more than 512 MB": doc} {
		if _, err := canonical.JSON(doc); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: got %v, want %q", len(doc), err, want)
		}
	}
}

// A document can be nested as deep as encoding/json allows, with unsorted members
// on every level.
func TestDepth(t *testing.T) {
	t.Parallel()
	const depth = 10_000
	for name, v := range map[string]struct{ open, inner, end, sorted, sortedEnd string }{
		"arrays":           {"[", "", "]", "[", "]"},
		"sorted objects":   {`{"a":`, "{}", "}", `{"a":`, "}"},
		"unsorted objects": {`{"b":`, "null", `,"a":2}`, `{"a":2,"b":`, "}"},
		"both":             {`{"b":3,"a":`, "1", `,"0":2}`, `{"0":2,"a":`, `,"b":3}`},
	} {
		n := depth
		if v.inner == "{}" {
			n--
		}
		doc := []byte(strings.Repeat(v.open, n) + v.inner + strings.Repeat(v.end, n))
		want := strings.Repeat(v.sorted, n) + v.inner + strings.Repeat(v.sortedEnd, n)
		if got, err := canonical.JSON(doc); err != nil || string(got) != want {
			t.Errorf("%s: got %.40q and %v, want %.40q", name, got, err, want)
		}
		if !json.Valid(doc) {
			t.Errorf("%s: encoding/json refuses the document", name)
		}
	}
}

// A call changes neither its input nor an earlier result.
func TestInputAndResultAreLeftUnchanged(t *testing.T) {
	t.Parallel()
	in := []byte(`{"b":1.50,"a":2}`)
	form, err := canonical.JSON(in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := canonical.JSON([]byte(`{"d":7,"c":"xxxxx"}`)); err != nil {
		t.Fatal(err)
	}
	if string(in) != `{"b":1.50,"a":2}` || string(form) != `{"a":2,"b":1.5}` {
		t.Fatalf("the input became %s, and its form %s", in, form)
	}
}

// FuzzJSON: the canonical form of a document has the same meaning as the document.
// It is also the form of the form, and of another spelling of the document. Errors
// quote nothing.
func FuzzJSON(f *testing.F) {
	kit.Inputs(f)
	for _, doc := range []string{
		`{}`, `[1,1.0,1e0]`, `{"b":1,"a":{"d":2,"c":3}}`, `"\u0061\/\ud83d\ude00"`, `9007199254740993`, `1e400`, `-0.0e-7`,
		`{"a":1,"a":2}`, "\"\xff\"", `[`, `01`, `{"secret":12345678901234567.89}`,
		`{"\ufb33":1,"\ud83d\ude00":{"x":true,"\n":false,"":[{"z":null,"y":{"q":1,"p":2}},[]]},"\u20ac":3}`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		form, err := canonical.JSON(doc)
		if err != nil {
			if form != nil || len(err.Error()) > 120 {
				t.Errorf("refused with %q and error %q, which is long enough to contain a value", form, err)
			}
			return
		}
		if !json.Valid(doc) || !json.Valid(form) {
			t.Fatalf("%q became %q, and one of them is invalid JSON", doc, form)
		}
		again, err := canonical.JSON(form)
		if err != nil || !bytes.Equal(again, form) {
			t.Fatalf("%q is not stable: it became %q (%v)", form, again, err)
		}
		if before, after := meaning(t, doc), meaning(t, form); before != after {
			t.Errorf("%q became %q, whose meaning differs:\n%s\n%s", doc, form, before, after)
		}
		other := respell(decode(t, doc))
		if same, err := canonical.JSON([]byte(other)); err != nil || !bytes.Equal(same, form) {
			t.Errorf("%q became %q; %q became %q (%v)", doc, form, other, same, err)
		}
	})
}

// decode reads a document by encoding/json.
func decode(t *testing.T, doc []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// respell writes v with the members of objects in descending order, white space,
// and an escape for each character.
func respell(v any) string {
	var b strings.Builder
	switch v := v.(type) {
	case string:
		b.WriteByte('"')
		for _, unit := range utf16.Encode([]rune(v)) {
			fmt.Fprintf(&b, `\u%04X`, unit)
		}
		b.WriteByte('"')
	case []any:
		for i, element := range v {
			b.WriteByte("[,"[min(i, 1)])
			b.WriteString(" " + respell(element))
		}
		b.WriteString("[]"[min(len(v), 1):])
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		slices.Reverse(names)
		for i, name := range names {
			b.WriteByte("{,"[min(i, 1)])
			b.WriteString(respell(name) + "\t: " + respell(v[name]))
		}
		b.WriteString("{}"[min(len(v), 1):])
	case json.Number:
		b.WriteString(string(v))
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case nil:
		b.WriteString("null")
	}
	return b.String()
}

// meaning returns a document in a form that is independent of package canonical:
// encoding/json reads it, and numbers become exact fractions.
func meaning(t *testing.T, doc []byte) string {
	t.Helper()
	out, err := json.Marshal(fractions(decode(t, doc)))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// fractions replaces the numbers in v.
func fractions(v any) any {
	switch v := v.(type) {
	case json.Number:
		return map[string]string{"number": fraction(string(v))}
	case []any:
		for i := range v {
			v[i] = fractions(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = fractions(v[name])
		}
	}
	return v
}

// fraction returns the exact value of a JSON number. A number whose exponent is
// too large to write out is normalised here.
func fraction(number string) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	exp, err := strconv.ParseInt(exponent, 10, 64)
	if exponent == "" {
		exp, err = 0, nil
	}
	r, ok := new(big.Rat).SetString(mantissa)
	if !ok || err != nil {
		return "unreadable: " + number
	}
	if r.Sign() == 0 {
		return "0"
	}
	// r = n / 10^k with an integer n; move its zeroes into the exponent.
	ten := big.NewInt(10)
	for !r.IsInt() {
		r.Mul(r, new(big.Rat).SetInt(ten))
		exp--
	}
	n, digit := new(big.Int).Set(r.Num()), new(big.Int)
	for {
		next, rest := new(big.Int).QuoRem(n, ten, digit)
		if rest.Sign() != 0 {
			break
		}
		n = next
		exp++
	}
	return n.String() + "e" + strconv.FormatInt(exp, 10)
}

// FuzzNumbers: two numbers have the same form if and only if they are equal.
func FuzzNumbers(f *testing.F) {
	kit.Inputs(f)
	for _, pair := range [][2]string{
		{"1", "1.0"}, {"1e2", "100"}, {"-0", "0"}, {"9007199254740993", "9007199254740992"},
		{"12345678901234567.89", "12345678901234567.88"}, {"1e400", "1.7976931348623157e308"},
		{"1e-400", "0"}, {"0.1", "0.1000000000000000055511151231257827"}, {"5e-324", "4.9406564584124654e-324"},
		{"1e999999999999999999", "10e999999999999999998"},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		formA, errA := canonical.JSON([]byte(a))
		formB, errB := canonical.JSON([]byte(b))
		if errA != nil || errB != nil || !isNumber(formA) || !isNumber(formB) {
			return
		}
		if same := fraction(strings.TrimSpace(a)) == fraction(strings.TrimSpace(b)); same != bytes.Equal(formA, formB) {
			t.Errorf("%s and %s are equal: %v; their forms are %s and %s", a, b, same, formA, formB)
		}
	})
}

func isNumber(form []byte) bool { return form[0] == '-' || '0' <= form[0] && form[0] <= '9' }
