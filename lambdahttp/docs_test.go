// SPDX-License-Identifier: Apache-2.0

package lambdahttp_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/doctest"
	"github.com/once-lambda/once/lambdahttp"
)

var update = flag.Bool("update", false, "rewrite golden files, and the table in docs/http-keys.md")

// The base of problem types is the address of a page of this repository, and
// that page has a heading for each type.
func TestProblemTypesHaveAHeading(t *testing.T) {
	t.Parallel()
	page, ok := strings.CutPrefix(lambdahttp.DefaultProblemBase, "https://github.com/once-lambda/once/blob/main/")
	page, ok2 := strings.CutSuffix(page, "#")
	if !ok || !ok2 {
		t.Fatalf("%s is not a page of this repository with #", lambdahttp.DefaultProblemBase)
	}
	text, err := os.ReadFile("../" + page)
	if err != nil {
		t.Fatal(err)
	}
	for s := lambdahttp.MissingKey; s <= lambdahttp.FinalOutcome; s++ {
		if !strings.Contains(string(text), "\n### "+s.String()+"\n") {
			t.Errorf("%s has no heading for the problem type %s", page, s)
		}
	}
}

// docs/http-keys.md compares the profiles by their data.
func TestProfilesInDocs(t *testing.T) {
	t.Parallel()
	doctest.Part(t, "../docs/http-keys.md", "profiles", profilesTable(t), *update)
}

func profilesTable(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| | `IETF` | `Stripe` | `UUID` |\n|---|---|---|---|\n")
	line := func(name string, of func(p *lambdahttp.Profile) string) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, of(&lambdahttp.IETF), of(&lambdahttp.Stripe), of(&lambdahttp.UUID))
	}
	line("a key is", func(p *lambdahttp.Profile) string { return strings.ReplaceAll(p.Syntax.Description, "|", `\|`) })
	line("for example", func(p *lambdahttp.Profile) string { return "`" + p.Syntax.Example + "`" })
	line("characters", func(p *lambdahttp.Profile) string {
		if p.MinKeyLength == p.MaxKeyLength {
			return fmt.Sprint(p.MinKeyLength)
		}
		return fmt.Sprintf("%d to %d", p.MinKeyLength, p.MaxKeyLength)
	})
	line("in a body field", func(p *lambdahttp.Profile) string {
		return map[bool]string{true: "refused", false: "`KeyFrom`"}[p.HeaderOnly]
	})
	line("guards", func(p *lambdahttp.Profile) string { return strings.Join(p.Methods, ", ") })
	line("refuses a key on", func(p *lambdahttp.Profile) string { return cmp.Or(strings.Join(p.ForbiddenMethods, ", "), "–") })
	line("a key belongs to", func(p *lambdahttp.Profile) string {
		rules, err := lambdahttp.NewPolicy(newGuard(t), single, func(o *lambdahttp.Options) { o.Profile = *p })
		if err != nil {
			t.Fatal(err)
		}
		return rules.Extent
	})
	line("a 5xx of the handler", func(p *lambdahttp.Profile) string {
		return map[lambdahttp.ServerErrors]string{
			lambdahttp.FollowRecovery:    "follows the recovery: unknown, or runs again",
			lambdahttp.StoreServerErrors: "is stored",
		}[p.ServerErrors]
	})
	line("minimum retention", func(p *lambdahttp.Profile) string { return fmt.Sprintf("%g h", p.MinRetention.Hours()) })
	line("`Idempotency-Status`", func(p *lambdahttp.Profile) string {
		return map[bool]string{true: "on", false: "off"}[p.StatusHeader]
	})
	for s := lambdahttp.MissingKey; s <= lambdahttp.FinalOutcome; s++ {
		line(s.String(), func(p *lambdahttp.Profile) string {
			a := p.Answers[s]
			text := fmt.Sprint(cmp.Or(a.Status, lambdahttp.IETF.Answers[s].Status))
			for _, name := range slices.Sorted(maps.Keys(a.Header)) {
				text += fmt.Sprintf(", `%s: %s`", name, a.Header[name])
			}
			return text
		})
	}
	line("a problem is", func(p *lambdahttp.Profile) string {
		return "`" + p.Render(lambdahttp.Problem{Status: 400}).Header.Get("Content-Type") + "`"
	})
	return b.String()
}
