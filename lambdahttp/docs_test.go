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
)

var update = flag.Bool("update", false, "rewrite the golden files and the table in docs/http.md")

const (
	docsFile  = "../docs/http.md"
	tableFrom = "<!-- rows: written by `go test ./lambdahttp -run TestDocs -update` -->\n"
	tableTo   = "<!-- end of rows -->"
)

// TestDocs keeps the table of docs/http.md equal to the rows.
func TestDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), tableFrom)
	table, after, ok2 := strings.Cut(rest, tableTo)
	if !ok || !ok2 {
		t.Fatalf("%s has no section between %q and %q", docsFile, tableFrom, tableTo)
	}
	for _, r := range rows {
		if r.problem != "" && !strings.Contains(string(page), "\n### "+r.problem+"\n") {
			t.Errorf("%s has no heading for the problem type %s", docsFile, r.problem)
		}
	}
	want := rowsTable()
	if table == want {
		return
	}
	if !*update {
		t.Fatalf("the table in %s is not that of the rows; run: go test ./lambdahttp -run TestDocs -update", docsFile)
	}
	if err := os.WriteFile(docsFile, []byte(before+tableFrom+want+tableTo+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func rowsTable() string {
	var b strings.Builder
	b.WriteString("| row | situation | answer | handler ran | record |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		answer := fmt.Sprintf("%d %s", r.status, http.StatusText(r.status))
		if r.problem != "" {
			answer += fmt.Sprintf(", [%s](#%s)", r.problem, r.problem)
		}
		if r.retryAfter != "" {
			answer += fmt.Sprintf(", `Retry-After: %s`", r.retryAfter)
		}
		if r.replayed {
			answer += ", `Idempotent-Replayed: true`"
		}
		if r.notStored {
			answer += ", `Idempotency-Status: not-stored`"
		}
		for _, k := range slices.Sorted(maps.Keys(r.member)) {
			answer += fmt.Sprintf(", member `%s`", k)
		}
		ran := [...]string{"no", "once", "twice"}[r.runs]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.id, r.situation, answer, ran, cmp.Or(r.record, "none"))
	}
	return b.String()
}
