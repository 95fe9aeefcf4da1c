// SPDX-License-Identifier: Apache-2.0

package jsontypes_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/internal/jsontypes"
)

// Types of values that contain text.
type (
	worded  string // encodes itself as the text that it holds
	spelled string // encodes itself as the JSON that it holds
	byRef   struct{ text string }
	mixed   struct{ Text string } // has an encoding of its own only if it has an address
	tagged  struct {
		inner
		*skipped
		A, B string
		N    int
		No   string `json:"-"`
	}
	tree struct {
		Name string
		Sub  []tree
		Up   *tree
		By   map[string]*tree
	}
	loop struct{ Next *loop } // no text
	deep struct {
		*Lists
		Name string
	}
	Lists struct{ L []string }
)

func (w worded) MarshalText() ([]byte, error)  { return []byte(w), nil }
func (s spelled) MarshalJSON() ([]byte, error) { return []byte(s), nil }
func (r *byRef) MarshalText() ([]byte, error)  { return []byte(r.text), nil }
func (m *mixed) MarshalJSON() ([]byte, error)  { return []byte(m.Text), nil }

// Broken text is found wherever encoding/json looks, and nowhere else.
func TestBrokenText(t *testing.T) {
	t.Parallel()
	const bad, half = "a string contains invalid UTF-8", "half of a surrogate pair"
	many := map[int]string{0: "\xff"}
	for i := range 500 {
		many[i+1] = "a"
	}
	for name, row := range map[string]struct {
		value any
		want  string // part of the error; empty: none
	}{
		"nothing":                           {nil, ""},
		"text":                              {"a", ""},
		"a broken string":                   {"\xff", bad},
		"a number":                          {1, ""},
		"a JSON number":                     {json.Number("\xff"), ""}, // the encoder refuses it
		"bytes":                             {[]byte("\xff"), ""},
		"a time":                            {time.Now(), ""},
		"a large number":                    {big.NewInt(1), ""},
		"a list":                            {[]string{"a", "b"}, ""},
		"the last of a list":                {[]string{"a", "\xff"}, bad},
		"the first of a list":               {[]string{"\xff", "a"}, bad},
		"of an array":                       {[2]string{"a", "\xff"}, bad},
		"of a pointer":                      {new("\xff"), bad},
		"a nil pointer":                     {(*string)(nil), ""},
		"a nil pointer in a list":           {[]*string{nil, new("\xff")}, bad},
		"a map":                             {map[string]string{"a": "b"}, ""},
		"a key":                             {map[string]int{"\xff": 1}, bad},
		"a value":                           {map[int]string{1: "\xff"}, bad},
		"a key that is text":                {map[worded]int{"a": 1}, ""},
		"a broken one":                      {map[worded]int{"\xff": 1}, bad}, // as a string
		"a key with its text":               {map[struct{ worded }]int{{"\xff"}: 1}, "MarshalText of a struct"},
		"numbers":                           {map[int]int{1: 1}, ""},
		"a struct":                          {tagged{A: "a", No: "\xff"}, ""},
		"the first field":                   {tagged{A: "\xff"}, bad},
		"the last field":                    {tagged{B: "\xff"}, bad},
		"of an embedded struct":             {tagged{inner: inner{"\xff"}}, bad},
		"behind an embedded nil":            {tagged{skipped: nil, B: "\xff"}, bad},
		"of an embedded pointer":            {tagged{skipped: &skipped{Note: "\xff"}}, bad},
		"hidden by another field":           {shadowed{inner{"\xff"}, "a"}, bad},
		"that hides another":                {shadowed{inner{"a"}, "\xff"}, bad},
		"of an embedded nil":                {deep{Name: "a"}, ""},
		"one of many":                       {many, bad},
		"half and letters":                  {spelled(`"\ud83dxudc00"`), half},
		"half behind no escape":             {spelled(`"\uzzz\ud800"`), half},
		"an interface":                      {[]any{nil, 1, "a", map[string]any{"a": []any{"\xff"}}}, bad},
		"a good interface":                  {[]any{nil, 1, "a"}, ""},
		"a tree":                            {tree{Name: "a", Sub: []tree{{Name: "b"}}, Up: &tree{}, By: map[string]*tree{"c": nil}}, ""},
		"deep in a tree":                    {tree{Sub: []tree{{}, {Up: &tree{By: map[string]*tree{"a": {Name: "\xff"}}}}}}, bad},
		"a key of a tree":                   {tree{By: map[string]*tree{"\xff": nil}}, bad},
		"a loop of types":                   {loop{&loop{&loop{}}}, ""},
		"a text marshaler":                  {worded("a"), ""},
		"a broken text marshaler":           {worded("\xff"), "the MarshalText of a jsontypes_test.worded returned invalid UTF-8"},
		"by its address":                    {&byRef{"\xff"}, "MarshalText of a jsontypes_test.byRef"},
		"in a list":                         {[]byRef{{"\xff"}}, "MarshalText of a jsontypes_test.byRef"},
		"without an address":                {byRef{"\xff"}, ""}, // it has no exported field
		"without an address, by its fields": {[]any{mixed{"\xff"}}, bad},
		"with its address":                  {[]any{&mixed{"\"\xff\""}}, "the JSON of a jsontypes_test.mixed contains invalid UTF-8"},
		"a JSON marshaler":                  {spelled(`"a"`), ""},
		"a broken one of JSON":              {spelled("\"\xff\""), "the JSON of a jsontypes_test.spelled contains invalid UTF-8"},
		"raw JSON":                          {json.RawMessage(`"a\n"`), ""},
		"broken raw JSON":                   {json.RawMessage("\"\xff\""), "contains invalid UTF-8"},
		"no raw JSON":                       {json.RawMessage(nil), ""},
		"half a pair":                       {spelled(`"\ud800"`), half},
		"the other half":                    {spelled(`"\udc00"`), half},
		"two first halves":                  {spelled(`"\ud83d\ud83d"`), half},
		"half and text":                     {spelled(`"\ud83dxdc00x"`), half},
		"half and an escape":                {spelled(`"\ud83d\\dc00"`), half},
		"half at the end":                   {spelled(`"\ud83d`), half},
		"half behind a pair":                {spelled(`"\ud83d\ude00\ud83d"`), half},
		"a pair":                            {spelled(`"\ud83d\ude00"`), ""},
		"pairs":                             {spelled(`"\ud83d\ude00\ud83d\ude00"`), ""},
		"an escaped backslash":              {spelled(`"\\ud800"`), ""},
		"two of them and a half":            {spelled(`"\\\ud800"`), half},
		"other escapes":                     {spelled(`"\u00e9\n\/\ufffd"`), ""},
		"a short escape":                    {spelled(`"\ud8`), ""}, // the encoder refuses it
		"an escape of other text":           {spelled(`"\uxxxx"`), ""},
		"a backslash at the end":            {spelled(`\`), ""},
		"upper case":                        {spelled(`"\uDBFF"`), half},
		"the last before":                   {spelled(`"\ud7ff\ue000"`), ""},
	} {
		err := jsontypes.BrokenText(row.value)
		if row.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got error %v, want %q", name, err, row.want)
		}
		if err != nil && strings.Contains(fmt.Sprint(err), "\xff") {
			t.Errorf("%s: the error quotes the text", name)
		}
	}
}
