// SPDX-License-Identifier: Apache-2.0

package powertools

import (
	"crypto/md5"
	"encoding/json"
	"fmt"
	"testing"
)

// The hashed text is that of json.dumps(payload, sort_keys=True) in Python, and of
// JSON.stringify(deepSort(payload)) in TypeScript. Both packages are compared with
// this code in tests/engines/powertools.
func TestForm(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string][2]string{
		`"order-1"`:                     {`"order-1"`, `"order-1"`},
		`null`:                          {`null`, `null`},
		`[true, false, []]`:             {`[true, false, []]`, `[true,false,[]]`},
		`{"b": 1, "a": {"d":2,"c":{}}}`: {`{"a": {"c": {}, "d": 2}, "b": 1}`, `{"a":{"c":{},"d":2},"b":1}`},
		`{"b": 1, "A": 2, "C": 3}`:      {`{"A": 2, "C": 3, "b": 1}`, `{"A":2,"b":1,"C":3}`},
		`{"a": 1, "10": 2, "9": 3}`:     {`{"10": 2, "9": 3, "a": 1}`, `{"9":3,"10":2,"a":1}`},
		`{"01": 1, "1": 2, "4294967295":3, "4294967294":4}`: {`{"01": 1, "1": 2, "4294967294": 4, "4294967295": 3}`, `{"1":2,"4294967294":4,"01":1,"4294967295":3}`},
		`"é😀\u007f\u0001\n\"\\/<&>"`:                        {`"\u00e9\ud83d\ude00\u007f\u0001\n\"\\/<&>"`, "\"é😀\u007f\\u0001\\n\\\"\\\\/<&>\""},
		`[0, -0, 42, 9007199254740993]`:                     {`[0, 0, 42, 9007199254740993]`, `[0,0,42,9007199254740992]`},
		`[42.0, 42.50, -0.0, 1e2, 1E400]`:                   {"", ""},
		`[42.0, 42.50, -0.0, 1e2]`:                          {`[42.0, 42.5, -0.0, 100.0]`, `[42,42.5,0,100]`},
		`[1e16, 1e15, 1e21, 1e20]`:                          {`[1e+16, 1000000000000000.0, 1e+21, 1e+20]`, `[10000000000000000,1000000000000000,1e+21,100000000000000000000]`},
		`[0.0001, 0.00001, 1.5e-7]`:                         {`[0.0001, 1e-05, 1.5e-07]`, `[0.0001,0.00001,1.5e-7]`},
		`"\ud800"`:                                          {"", ""},
		`{"a":1,"A":2}`:                                     {`{"A": 2, "a": 1}`, ""},
		`{"é":1}`:                                           {`{"\u00e9": 1}`, ""},
		`{"__proto__":1}`:                                   {`{"__proto__": 1}`, ""},
		`{"\ud800":1}`:                                      {"", ""},
		`{"a":"\ud800"}`:                                    {"", ""},
		`{"\u0080":1}`:                                      {`{"\u0080": 1}`, ""},
		`" ~\uffff"`:                                        {`" ~\uffff"`, "\" ~\uffff\""},
		`1 2`:                                               {"", ""},
		`{`:                                                 {"", ""},
	} {
		for i, l := range []Language{Python, TypeScript} {
			got, err := l.form(json.RawMessage(doc))
			if (err != nil) != (want[i] == "") || err == nil && string(got) != want[i] {
				t.Errorf("%s: the form of %s is %s, %v, want %s", l, doc, got, err, want[i])
			}
		}
	}
	if got, err := Python.form([]any{"acme", 7}); err != nil || string(got) != `["acme", 7]` {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := TypeScript.sum(md5.New, make(chan int)); err == nil || err.Error() != "powertools: the payload cannot be hashed as in TypeScript: json: unsupported type: chan int" {
		t.Errorf("got error %v", err)
	}
	if got := fmt.Sprint(Python, TypeScript, Language(7)); got != "Python TypeScript Language(7)" {
		t.Error(got)
	}
}
