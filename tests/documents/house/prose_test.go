// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// avoided are patterns that make prose hard to read, each with what to write
// instead. They are looked for in comments, in Markdown and in the strings of
// programs.
var avoided = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\b(nobody|somebody|everybody|whoever)\b`), "name the actor: the caller, the operator, another request"},
	{regexp.MustCompile(`(?i)\b(tell|tells|told)\b`), "reports, returns, says"},
	{regexp.MustCompile(`(?i)\b(none of|is none|are none)\b`), "invalid, missing, not allowed"},
	{regexp.MustCompile(`(?i)\bof (yours|ours|theirs)\b`), "your, our, their"},
	{regexp.MustCompile(`(?i)\bof (its|their) own(?:[.,:;)|]|$| (?:and|or|that|which|with|without|for|so|to|in|of|on|because|if|is|has|by|the|as|than)\b)`), "its own, a separate"},
	{regexp.MustCompile(`(?i)\bin clear\b`), "unencrypted"},
	{regexp.MustCompile(`(?i)\bfor ever\b`), "without limit"},
	{regexp.MustCompile(`(?:^|[.!?:] )Of an? `), "begin with the actor"},
}

// demands is how an error text must not begin its reason: it says what is wrong,
// and then "want" or what to do.
var demands = regexp.MustCompile(`\bwants\b`)

const longestSentence = 40 // words, in Markdown

// Prose is plain English: see avoided.
func TestProse(t *testing.T) {
	t.Parallel()
	texts := 0
	for _, name := range tracked(t, ".go", ".md") {
		if strings.Contains(name, "/testdata/") || name == "tests/documents/house/prose_test.go" { // it lists the patterns
			continue
		}
		var prose []passage
		if strings.HasSuffix(name, ".go") {
			prose = proseOfGo(t, name)
		} else {
			prose = proseOfMarkdown(read(t, name))
		}
		texts += len(prose)
		for _, p := range prose {
			for _, a := range avoided {
				for _, pattern := range a.pattern.FindAllString(p.text, -1) {
					t.Errorf("%s:%d: %q; write instead: %s", name, p.line, pattern, a.instead)
				}
			}
			if p.inProgram && demands.MatchString(p.text) {
				t.Errorf("%s:%d: %q demands; say what is wrong, then what to do", name, p.line, p.text)
			}
			if n := len(strings.Fields(p.text)); p.sentence && n > longestSentence {
				t.Errorf("%s:%d: a sentence of %d words, want %d at most: %s", name, p.line, n, longestSentence, p.text)
			}
		}
	}
	if texts < 5000 {
		t.Errorf("only %d texts were found", texts)
	}
}

// passage is a comment, a string, or a sentence of Markdown.
type passage struct {
	line      int
	text      string
	inProgram bool // a string of code that is not a test
	sentence  bool
}

func proseOfGo(t *testing.T, name string) (prose []passage) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, read(t, name), parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Comments {
		prose = append(prose, passage{line: fset.Position(group.Pos()).Line, text: flat(group.Text())})
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING && !strings.HasSuffix(name, "_test.go") {
			if text, err := strconv.Unquote(literal.Value); err == nil && strings.Contains(text, " ") {
				prose = append(prose, passage{line: fset.Position(literal.Pos()).Line, text: text, inProgram: true})
			}
		}
		return true
	})
	return prose
}

var (
	fenced   = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```")
	comment  = regexp.MustCompile(`(?s)<!--.*?-->`)
	row      = regexp.MustCompile(`(?m)^[ \t]*\|.*$`)
	item     = regexp.MustCompile(`(?m)^\s*(?:[-*]|\d+\.) `)
	inline   = regexp.MustCompile("`[^`]*`")
	target   = regexp.MustCompile(`\]\([^)]*\)`)
	sentence = regexp.MustCompile(`[^.!?:;]+(?:[.!?:;](?:\s|$)|[.!?:;]+)`)
)

// proseOfMarkdown returns the sentences of a page, without code and tables.
func proseOfMarkdown(text string) (prose []passage) {
	blank := func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }
	text = fenced.ReplaceAllStringFunc(text, blank)
	text = comment.ReplaceAllStringFunc(text, blank)
	text = inline.ReplaceAllString(text, "code")
	text = target.ReplaceAllString(text, "]")
	for _, at := range row.FindAllStringIndex(text, -1) {
		prose = append(prose, passage{line: 1 + strings.Count(text[:at[0]], "\n"), text: text[at[0]:at[1]]})
	}
	text = row.ReplaceAllLiteralString(text, "")
	line := 1
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		for _, part := range item.Split(paragraph, -1) {
			for _, s := range sentence.FindAllString(part+".", -1) {
				prose = append(prose, passage{line: line, text: strings.Join(strings.Fields(s), " "), sentence: true})
			}
		}
		line += strings.Count(paragraph, "\n") + 2
	}
	return prose
}

// The check notices what it looks for, and where.
func TestProseIsFound(t *testing.T) {
	t.Parallel()
	page := "# Title\n\nA short one. " + strings.Repeat("word ", 41) + "end.\n\n- an item, and nobody\n\n```sh\nnobody\n```\n\n<!-- somebody\n-->\n| a | whoever |\n"
	var found []string
	for _, p := range proseOfMarkdown(page) {
		if n := len(strings.Fields(p.text)); p.sentence && n > longestSentence {
			found = append(found, fmt.Sprint(p.line, " long"))
		}
		for _, a := range avoided {
			if s := a.pattern.FindString(p.text); s != "" {
				found = append(found, fmt.Sprint(p.line, " ", s))
			}
		}
	}
	if got, want := strings.Join(found, ", "), "13 whoever, 3 long, 5 nobody"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
