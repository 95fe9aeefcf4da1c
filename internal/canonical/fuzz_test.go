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
