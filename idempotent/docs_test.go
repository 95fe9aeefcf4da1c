package idempotent

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/doctest"
)

var update = flag.Bool("update", false, "write the generated parts of the documents")

// answers is what a request gets for each verdict.
var answers = map[verdict]string{
	verdictReplay:       "the stored outcome; nothing runs",
	verdictInProgress:   "`*InProgressError`, with the time until the lease ends; or it waits (`WaitFor`)",
	verdictMismatch:     "`*MismatchError`",
	verdictIncomparable: "`*ReplayUnavailableError`: the fingerprints cannot be compared",
	verdictReinsert:     "the record counts as absent: it claims the key and runs",
	verdictTakeOver:     "it takes over the record and runs",
	verdictMarkUnknown:  "the record becomes unknown; `*UnresolvedError`",
	verdictUnresolved:   "`*UnresolvedError`, with the time of the next reconciliation",
	verdictUnreadable:   "`*StoreError`; nothing runs",
}

// The decision table of docs/concepts.md is the table of the tests.
func TestDecisionTable(t *testing.T) {
	var table strings.Builder
	table.WriteString("| record of the key | answer to the request |\n| --- | --- |\n")
	for _, row := range decisions {
		fmt.Fprintf(&table, "| %s | %s |\n", row.meets, answers[row.want])
	}
	doctest.Part(t, "../docs/concepts.md", "decide", table.String(), *update)
}
