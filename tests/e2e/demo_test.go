package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/tests/engine"
)

// demoLimit limits the duration of the demo.
const demoLimit = time.Minute

// make demo, on a running engine: every kill has its row, and the books agree on
// every order. The demo itself fails if they do not.
func TestDemo(t *testing.T) {
	t.Parallel()
	endpoint, err := database()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "charge-demo")
	build := exec.Command("go", "build", "-o", bin, "./examples/charge-lambda/cmd/demo")
	build.Dir = engine.Root()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the demo: %v\n%s", err, out)
	}
	began := time.Now()
	cmd := exec.CommandContext(t.Context(), "timeout", "120", bin)
	cmd.Env = append(os.Environ(), "DYNAMODB_ENDPOINT="+endpoint)
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := string(out)
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
	for moment, rows := range map[string]int{
		"before the payment  in_progress": 2, "after the payment   in_progress": 2, "before the order    in_progress": 2,
		"after the order     in_progress  2 of 3": 1, "after the order     completed    outcome": 1,
		"before the receipt  in_progress  2 of 3": 1, "after the receipt   in_progress  2 of 3": 1, "before the answer   completed    outcome": 2,
	} {
		if n := strings.Count(text, moment); n != rows {
			t.Errorf("%d rows of %q, want %d", n, moment, rows)
		}
	}
	// Paid, written, receipts.
	if n := len(regexp.MustCompile(`(?m)  1 +1 +1 +completed$`).FindAllString(text, -1)); n != 12 {
		t.Errorf("%d rows of one of each, want 12", n)
	}
	if n := len(regexp.MustCompile(`(?m)^ord_\S+ +(ch_\S+)  ch_\S+  ch_\S+$`).FindAllString(text, -1)); n != 12 {
		t.Errorf("%d orders, want 12", n)
	}
	if !strings.Contains(text, "12 kills, 12 orders: each is paid once, written once, and has one receipt.") {
		t.Error("the last line is missing")
	}
	if took > demoLimit {
		t.Errorf("it took %s, want %s at most", took.Round(time.Second), demoLimit)
	}
	t.Logf("%s\n%s", took.Round(time.Millisecond), text)
}
