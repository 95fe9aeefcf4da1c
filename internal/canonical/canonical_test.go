// SPDX-License-Identifier: Apache-2.0

package canonical_test

import (
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/canonical"
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

		"RFC 8785 section 3.2.2": {
			`{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}`,
			// No double equals 333333333.33333329: RFC 8785 prints
			// 333333333.3333333.
			`{"literals":[null,true,false],"numbers":[33333333333333329e-8,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		},

		"one":                         {`[1,1.0,1e0,10e-1,0.1e1,1E+0]`, `[1,1,1,1,1,1]`},
		"zero":                        {`[0,-0,0.0,-0.0e7,0e999]`, `[0,0,0,0,0]`},
		"large doubles":               {`[1e20,1e21,123456789012345680000]`, `[100000000000000000000,1e+21,123456789012345680000]`},
		"small doubles":               {`[0.000001,0.0000001,1.5e-10]`, `[0.000001,1e-7,1.5e-10]`},
		"largest double":              {`1.7976931348623157e308`, `1.7976931348623157e+308`},
		"integers beyond 2^53":        {`[9007199254740992,9007199254740993,9007199254740993.0]`, `[9007199254740992,9007199254740993,9007199254740993]`},
		"negative beyond 2^53":        {`[-9007199254740993,-90071992547409930]`, `[-9007199254740993,-9007199254740993e1]`},
		"long decimals":               {`[12345678901234567.89,12345678901234567.88]`, `[1234567890123456789e-2,1234567890123456788e-2]`},
		"beyond the largest double":   {`[1e400,10e399,-1e400]`, `[1e400,1e400,-1e400]`},
		"below the smallest double":   {`[1e-400,0.1e-399]`, `[1e-400,1e-400]`},
		"exponent with leading zeros": {`1e0000000000000000000000000002`, `100`},
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
		"duplicate name":        {`{"secret":1,"a":2,"secret":3}`, "duplicate member name"},
		"same after unescaping": {`{"a":1,"\u0061":2}`, "duplicate member name"},
		"invalid UTF-8":         {"\"\xff\"", "invalid JSON document"},
		"lone surrogate":        {`"\ud800"`, "invalid JSON document"},
		"trailing data":         {`{} secret`, "invalid JSON document"},
		"truncated":             {`{"secret":`, "is incomplete"},
		"empty":                 {``, "is incomplete"},
		"leading zero":          {`01`, "invalid JSON document"},
		"not JSON":              {`secret`, "invalid JSON document"},
		"endless exponent":      {`1e` + strings.Repeat("9", 19), "more than 18 digits"},
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

func TestInputIsLeftUnchanged(t *testing.T) {
	t.Parallel()
	in := []byte(`{"b":1.50,"a":2}`)
	if _, err := canonical.JSON(in); err != nil {
		t.Fatal(err)
	}
	if string(in) != `{"b":1.50,"a":2}` {
		t.Fatalf("the input became %s", in)
	}
}
