// SPDX-License-Identifier: Apache-2.0

// Package syntax compares the parser of keys with others: the official test
// vectors for structured fields, and github.com/dunglas/httpsfv.
package syntax

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	_ "github.com/shogo82148/go-sfv" // for its testdata, see vectorsModule

	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/lambdahttp"
)

// vectorsModule contains the vectors of
// github.com/httpwg/structured-field-tests in its folder testdata, so that they
// need not be copied into this repository. go.sum fixes the bytes.
const vectorsModule = "github.com/shogo82148/go-sfv"

// vector is one test of the suite; see its README.
type vector struct {
	Name       string          `json:"name"`
	Raw        []string        `json:"raw"`
	HeaderType string          `json:"header_type"`
	Expected   json.RawMessage `json:"expected"`
	MustFail   bool            `json:"must_fail"`
	CanFail    bool            `json:"can_fail"`
}

// text returns the expected value, if it is a string. Every other type except
// numbers and booleans is an object.
func (v vector) text() (string, bool) {
	var item []json.RawMessage
	var s string
	if json.Unmarshal(v.Expected, &item) != nil || len(item) != 2 || json.Unmarshal(item[0], &s) != nil {
		return "", false
	}
	return s, true
}

// F03: the suite's expectations for Items hold for keys: a String is a key,
// everything else is refused. Those for the other types, and for names, hold
// for the parameters of a key.
func TestOfficialVectors(t *testing.T) {
	t.Parallel()
	var strs, refused, parameters, names int
	for _, v := range vectors(t) {
		line := strings.Join(v.Raw, ", ")
		switch {
		case v.HeaderType == "dictionary" && len(v.Raw) == 1 && !strings.ContainsAny(line, ",("):
			// A member of a Dictionary is written like a parameter.
			got, err := lambdahttp.QuotedKey.Parse(`"key";` + line)
			if v.MustFail != (err != nil) && !v.CanFail && line != "" || err == nil && got != "key" {
				t.Errorf("%s: a parameter %q: %q, %v", v.Name, line, got, err)
			}
			names++
		case v.HeaderType == "item":
			want, isText := v.text()
			got, err := lambdahttp.QuotedKey.Parse(line)
			switch {
			case v.CanFail && err != nil:
			case isText && (err != nil || got != want):
				t.Errorf("%s: %q is %q, %v; want %q", v.Name, line, got, err, want)
			case !isText && err == nil:
				t.Errorf("%s: %q is the key %q, want a refusal", v.Name, line, got)
			}
			if isText {
				strs++
			} else {
				refused++
			}
			value := strings.Trim(line, " ") // spaces are allowed around an Item, but not in a parameter
			got, err = lambdahttp.QuotedKey.Parse(`"key";p=` + value)
			if v.MustFail != (err != nil) && !v.CanFail || err == nil && got != "key" {
				t.Errorf("%s: a parameter with %q: %q, %v; want failure: %t", v.Name, value, got, err, v.MustFail)
			}
			parameters++
		}
	}
	t.Logf("%d strings, %d refusals, %d values and %d names of parameters", strs, refused, parameters, names)
	if strs < 100 || refused < 500 || parameters < 600 || names < 200 {
		t.Error("these are fewer vectors than the suite has")
	}
}

// vectors returns all tests of the suite.
func vectors(t *testing.T) []vector {
	t.Helper()
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", vectorsModule)
	list.Dir = filepath.Join(engine.Root(), "tests")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list -m %s: %v", vectorsModule, err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "testdata", "structured-field-tests", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no vectors (%v)", vectorsModule, err)
	}
	var all []vector
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var some []vector
		if err := json.Unmarshal(data, &some); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, v := range some {
			v.Name = filepath.Base(file) + ": " + v.Name
			all = append(all, v)
		}
	}
	return all
}

// theirs parses a key with httpsfv: an Item that is a String.
func theirs(value string) (string, bool) {
	item, err := httpsfv.UnmarshalItem([]string{value})
	if err != nil {
		return "", false
	}
	key, ok := item.Value.(string)
	return key, ok
}

// byteSequence matches Byte Sequences. The two parsers may differ in their padding:
// RFC 9651, section 4.2.7, leaves it to the parser, and httpsfv requires it.
var byteSequence = regexp.MustCompile(`:[A-Za-z0-9+/]*=*:`)

func compare(t *testing.T, value string) {
	t.Helper()
	want, ok := theirs(value)
	got, err := lambdahttp.QuotedKey.Parse(value)
	if err == nil && !ok {
		if _, ok := theirs(byteSequence.ReplaceAllString(value, "::")); ok {
			return
		}
	}
	if (err == nil) != ok || got != want {
		t.Errorf("%q is %q, %v here, and %q, %t in httpsfv", value, got, err, want, ok)
	}
}

// seeds are Items of every type, as the key and as a parameter.
var seeds = func() (all []string) {
	for _, item := range []string{
		``, `"8e03978e-40d5-43e8-bc93-6894a57f9324"`, `"a\"b\\c"`, `"a\b"`, `"a`, `"é"`, "\"\t\"",
		`1`, `-0`, `999999999999999`, `1000000000000000`, `1.5`, `1.`, `1.2345`, `123456789012.123`, `1234567890123.1`, `--1`,
		`a`, `*a:/b`, `!`, `:YWJj:`, `:YQ:`, `:YR==:`, `::`, `:=:`, `:Y Q=:`, `?1`, `?2`, `@1`, `@-1`, `@1.0`, `@`,
		`%"f%c3%bc"`, `%"%C3"`, `%"%ff"`, `%"%"`, `%x`, `(1 2)`, `a, b`, `"a", "b"`,
	} {
		all = append(all, item, " "+item+" ", item+";p", item+" ;p", item+`;p="x";q`, `"k";p=`+item, `"k"; p=`+item+`;q=1`, `"k";`+item, `"k"`+item)
	}
	return append(all, `"k";A=1`, `"k";a_-.*=1`, `"k";`, `"k";;`, `"k";a=1;a=2`, "\"k\"\x00", "\t\"k\"", "\"k\"\t", strings.Repeat(`"k";a`, 3))
}()

func TestAgainstHTTPSFV(t *testing.T) {
	t.Parallel()
	accepted := 0
	for _, value := range seeds {
		compare(t, value)
		if _, ok := theirs(value); ok {
			accepted++
		}
	}
	t.Logf("%d values, %d of them keys", len(seeds), accepted)
	if accepted < 40 || len(seeds)-accepted < 200 {
		t.Error("the values are too similar")
	}
}

func FuzzAgainstHTTPSFV(f *testing.F) {
	kit.Inputs(f)
	for _, value := range seeds {
		f.Add(value)
	}
	f.Fuzz(compare)
}
