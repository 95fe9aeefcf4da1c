// SPDX-License-Identifier: Apache-2.0

package syntax

import (
	"regexp"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"

	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdahttp"
)

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
