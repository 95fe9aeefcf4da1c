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

	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/lambdahttp"
)

var update = flag.Bool("update", false, "rewrite golden files, and the tables in docs/")

// The page for clients has a heading for each problem.
func TestProblemsHaveAHeading(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/http-answers.md")
	if err != nil {
		t.Fatal(err)
	}
	for s := lambdahttp.MissingKey; s <= lambdahttp.FinalOutcome; s++ {
		if !strings.Contains(string(text), "\n### "+s.String()+"\n") {
			t.Errorf("docs/http-answers.md has no heading for the problem %s", s)
		}
	}
}

// docs/http-keys.md compares the profiles by their data, and docs/reports/limits.md their
// answers.
func TestProfilesInDocs(t *testing.T) {
	t.Parallel()
	profiles, answers := profilesTables(t)
	kit.Part(t, "../docs/http-keys.md", "profiles", profiles, *update)
	kit.Part(t, "../docs/reports/limits.md", "answers", answers, *update)
}

// docs/reports/limits.md lists the headers that are never stored.
func TestHeadersInDocs(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("| never stored | headers |\n|---|---|\n")
	for why, names := range lambdahttp.ExchangeHeaders {
		fmt.Fprintf(&b, "| %s | `%s` |\n", why, strings.Join(names, "`, `"))
	}
	b.WriteString("| the key, if the handler repeats it | `Idempotency-Key`, or the profile's header |\n")
	b.WriteString("| a challenge that can be answered once | `Www-Authenticate` with a nonce, of the scheme Digest, or with data of Negotiate or NTLM |\n")
	kit.Part(t, "../docs/reports/limits.md", "headers", b.String(), *update)
}

// profilesTables returns what a profile declares besides its answers, and these.
func profilesTables(t *testing.T) (profiles, answers string) {
	const head = "| | `IETF` | `Stripe` | `UUID` |\n|---|---|---|---|\n"
	var b strings.Builder
	b.WriteString(head)
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
	line("a problem is", func(p *lambdahttp.Profile) string {
		return "`" + p.Render(lambdahttp.Problem{Status: 400}).Header.Get("Content-Type") + "`"
	})
	profiles = b.String()
	b.Reset()
	b.WriteString(head)
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
	return profiles, b.String()
}
