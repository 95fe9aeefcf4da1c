package lambdahttp_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/lambdahttp"
)

var update = flag.Bool("update", false, "rewrite the tables in docs/http.md")

const docsFile = "../docs/http.md"

// tables are the generated parts of docs/http.md, by the name in their marks.
var tables = map[string]func() string{"rows": rowsTable, "profiles": profilesTable}

// TestDocs compares the tables of docs/http.md with the rows and the profiles.
func TestDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	for s := lambdahttp.MissingKey; s <= lambdahttp.FinalOutcome; s++ {
		if !strings.Contains(string(page), "\n### "+s.String()+"\n") {
			t.Errorf("%s has no heading for the problem type %s", docsFile, s)
		}
	}
	written := string(page)
	for name, table := range tables {
		from := "<!-- " + name + ": written by `go test ./lambdahttp -run TestDocs -update` -->\n"
		to := "<!-- end of " + name + " -->"
		before, rest, ok := strings.Cut(written, from)
		_, after, ok2 := strings.Cut(rest, to)
		if !ok || !ok2 {
			t.Fatalf("%s has no section between %q and %q", docsFile, from, to)
		}
		written = before + from + table() + to + after
	}
	if written == string(page) {
		return
	}
	if !*update {
		t.Fatalf("the tables in %s are out of date; run: go test ./lambdahttp -run TestDocs -update", docsFile)
	}
	if err := os.WriteFile(docsFile, []byte(written), 0o644); err != nil {
		t.Fatal(err)
	}
}

// profilesTable compares the profiles' data.
func profilesTable() string {
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
		return map[bool]string{true: "one request of the whole API", false: "one request of a method and route"}[p.Operation != ""]
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

func rowsTable() string {
	var b strings.Builder
	b.WriteString("| row | profile | situation | response | handler ran | record |\n|---|---|---|---|---|---|\n")
	for _, r := range rows {
		answer := fmt.Sprintf("%d %s", r.status, http.StatusText(r.status))
		if r.problem != "" {
			answer += fmt.Sprintf(", [%s](#%s)", r.problem, r.problem)
		}
		if r.retryAfter != "" {
			answer += ", `" + strings.TrimSuffix("Retry-After: "+r.retryAfter, ": *") + "`"
		}
		if r.replayed {
			answer += ", `Idempotent-Replayed: true`"
		}
		if r.says != "" {
			answer += fmt.Sprintf(", `Idempotency-Status: %s`", r.says)
		}
		for _, name := range slices.Sorted(maps.Keys(r.header)) {
			answer += ", `" + strings.TrimSuffix(name+": "+r.header[name], ": *") + "`"
		}
		for _, k := range slices.Sorted(maps.Keys(r.member)) {
			answer += fmt.Sprintf(", member `%s`", k)
		}
		ran := [...]string{"no", "once", "twice"}[r.runs]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", r.id, cmp.Or(r.profile, "IETF"), r.situation, answer, ran, cmp.Or(r.record, "none"))
	}
	return b.String()
}
