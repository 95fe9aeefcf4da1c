package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/tests/engine"
)

// The example's README, followed from top to bottom: each block of commands
// runs unchanged, and does what the text around it states.
func TestExampleGuide(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(engine.Root(), "examples", "charge-lambda")
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, b := range shell.FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, b[1])
	}
	next := func(mark string) string {
		t.Helper()
		if len(blocks) == 0 || !strings.Contains(blocks[0], mark) {
			t.Fatalf("the next block of commands is %q, want one with %q", blocks, mark)
		}
		b := blocks[0]
		blocks = blocks[1:]
		return b
	}
	p := start(t, t.TempDir(), "TIMEOUT=3s")
	scratch := t.TempDir()
	run := func(block string, want ...string) {
		t.Helper()
		block = strings.ReplaceAll(block, "http://127.0.0.1:8080", p.url)
		block = strings.ReplaceAll(block, "/tmp/", scratch+"/")
		cmd := exec.Command("timeout", "600", "bash", "-euo", "pipefail", "-c", block)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, block, out)
		}
		for _, w := range want {
			if !strings.Contains(string(out), w) {
				t.Fatalf("no %q in\n%s\nafter\n%s", w, out, block)
			}
		}
	}

	build, _, _ := strings.Cut(next("./cmd/local"), "&&")
	run(build)

	charge := next("order-2026-000001")
	run(charge, "HTTP/1.1 201", "Location: /charges/ch_")
	run(charge, "HTTP/1.1 201", "Idempotent-Replayed: true")
	run(next("/provider/charges"), `[{`)
	p.wantCharges(1)
	run(next("9000"), "HTTP/1.1 422")
	declined := next("cus_declined")
	run(declined, "HTTP/1.1 402")
	run(declined, "HTTP/1.1 402", "Idempotent-Replayed: true")
	run(next(`"amount":0`), "HTTP/1.1 400", "amount")
	run(next("for i in 1 2"), "HTTP/1.1 201", "HTTP/1.1 409", "Retry-After: ")
	p.wantCharges(2)

	slowCharge := strings.TrimSuffix(strings.TrimSpace(next("order-2026-000005")), "&")
	broken := exec.Command("bash", "-c", strings.ReplaceAll(slowCharge, "http://127.0.0.1:8080", p.url))
	if err := broken.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the provider has booked", func() bool { return p.charges() == 3 })
	if block := next("kill -9"); strings.TrimSpace(block) != "kill -9 PID" {
		t.Fatalf("the guide kills with %q", block)
	}
	p = p.restart()
	broken.Wait()
	run(slowCharge, "HTTP/1.1 409", "in-progress")
	eventually(t, 15*time.Second, "the lease has ended", func() bool {
		r := p.post("order-2026-000005", slow)
		return r.status == http.StatusConflict && strings.Contains(r.body, "outcome-unknown")
	})
	run(next("/admin/resolve"), "HTTP/1.1 200", "completed")
	run(slowCharge, "HTTP/1.1 201", "Idempotent-Replayed: true")
	p.wantCharges(3)

	inStripe, _, _ := strings.Cut(next("PROFILE=stripe"), " ")
	other := start(t, t.TempDir(), inStripe)
	other.want(other.post("", aCharge), http.StatusBadRequest)
	run(next("charge.sh"), "the provider booked 3 charges")
	run(next("policy openapi"), "# Idempotency keys", `"openapi": "3.1.0"`, "UUID")

	run(next("./cmd/lambda"))
	if len(blocks) != 0 {
		t.Errorf("these blocks are not followed: %q", blocks)
	}
}
