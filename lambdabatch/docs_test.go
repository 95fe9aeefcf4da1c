package lambdabatch_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/once-lambda/once/lambdabatch"
)

var update = flag.Bool("update", false, "write the generated parts of the documents")

// The table of outcomes in docs/batch.md is that of the tests.
func TestDocs(t *testing.T) {
	t.Parallel()
	says := map[bool]string{comesAgain: "comes again", acknowledged: "acknowledged"}
	recoveries := map[lambdabatch.Recovery]string{lambdabatch.Reconcile: "Reconcile", lambdabatch.Resume: "Resume", lambdabatch.Rerun: "Rerun"}
	var table strings.Builder
	table.WriteString("| the handler's end | declared | the message | its record | delivered once more | runs in all |\n| --- | --- | --- | --- | --- | --: |\n")
	for _, row := range outcomes {
		name, _, _ := strings.Cut(row.name, ", "+recoveries[row.declared])
		fmt.Fprintf(&table, "| %s | `%s` | %s | %s | %s | %d |\n", name, recoveries[row.declared], says[row.first], row.state, says[row.second], row.runs)
	}
	const file, begin, end = "../docs/batch.md", "<!-- outcomes -->\n", "<!-- /outcomes -->\n"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	got, after, ok2 := strings.Cut(rest, end)
	switch {
	case !ok || !ok2:
		t.Fatalf("%s has no %q and %q", file, begin, end)
	case got == table.String():
	case *update:
		if err := os.WriteFile(file, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has another table than the tests; write it with go test ./lambdabatch -run TestDocs -update\n%s", file, &table)
	}
}
