// SPDX-License-Identifier: Apache-2.0

package frozen

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/telemetry"
)

// The metrics have their names. Dashboards and alarms of users contain them.
func TestMetrics(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for _, m := range telemetry.Metrics() {
		fmt.Fprintln(&text, m.Name)
	}
	compare(t, "metrics.txt", text.String())
}

// compare compares got with a file, line by line.
func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || len(want) == 0 {
		t.Fatalf("%s has %d bytes, %v", file, len(want), err)
	}
	lines := func(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }
	for _, line := range lines(string(want)) {
		if !slices.Contains(lines(got), line) {
			t.Errorf("%s: this is gone or has changed: %s", file, line)
		}
	}
	for _, line := range lines(got) {
		if !slices.Contains(lines(string(want)), line) {
			t.Errorf("%s: this is new: %s", file, line)
		}
	}
}
