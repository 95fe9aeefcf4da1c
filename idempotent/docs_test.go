package idempotent

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated parts of the documents")

// answers says what a request gets by each verdict.
var answers = map[verdict]string{
	verdictReplay:       "the stored outcome; nothing runs",
	verdictInProgress:   "`ErrInProgress`, with the time until the lease ends; or it waits (`WaitFor`)",
	verdictMismatch:     "`ErrMismatch`",
	verdictIncomparable: "`ErrReplayUnavailable`: nobody can tell whether it is the same request",
	verdictReinsert:     "the record counts as absent: it claims the key and runs",
	verdictTakeOver:     "it takes the record over and runs",
	verdictMarkUnknown:  "the record becomes unknown; `ErrUnresolved`",
	verdictUnresolved:   "`ErrUnresolved`, with the time of the next reconciliation",
	verdictUnreadable:   "`ErrStore`; nothing runs",
}

// The decision table of docs/concepts.md is the table of the tests.
func TestDecisionTable(t *testing.T) {
	var table strings.Builder
	table.WriteString("| a request meets a record that is | and gets |\n| --- | --- |\n")
	for _, row := range decisions {
		fmt.Fprintf(&table, "| %s | %s |\n", row.meets, answers[row.want])
	}
	const file, begin, end = "../docs/concepts.md", "<!-- decide -->\n", "<!-- /decide -->\n"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	if !ok {
		t.Fatalf("%s has no %q", file, begin)
	}
	got, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no %q", file, end)
	}
	if got == table.String() {
		return
	}
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s has another decision table than the tests; write it with go test ./idempotent -run TestDecisionTable -update\n%s", file, &table)
}
