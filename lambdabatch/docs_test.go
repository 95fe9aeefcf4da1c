// SPDX-License-Identifier: Apache-2.0

package lambdabatch_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit"
)

var update = flag.Bool("update", false, "write the generated parts of the documents")

// TestDocs compares the table of outcomes in docs/reports/failure-modes.md with the tests.
func TestDocs(t *testing.T) {
	t.Parallel()
	says := map[bool]string{comesAgain: "redelivered", acknowledged: "acknowledged"}
	recoveries := map[idempotent.Recovery]string{idempotent.Reconcile: "Reconcile", idempotent.Resume: "Resume", idempotent.Rerun: "Rerun"}
	var table strings.Builder
	table.WriteString("| how the handler ends | recovery | the message | its record | on redelivery | total runs |\n| --- | --- | --- | --- | --- | --: |\n")
	for _, row := range outcomes {
		name, _, _ := strings.Cut(row.name, ", "+recoveries[row.declared])
		fmt.Fprintf(&table, "| %s | `%s` | %s | %s | %s | %d |\n", name, recoveries[row.declared], says[row.first], row.state, says[row.second], row.runs)
	}
	kit.Part(t, "../docs/reports/failure-modes.md", "outcomes", table.String(), *update)
}
