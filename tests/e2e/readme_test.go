package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/once-lambda/once/tests/engine"
)

var shell = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// The commands of the README work as stated: targets of make exist, and the
// curl lines work against the example unchanged.
func TestREADME(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(engine.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, t.TempDir())
	targets, curls := 0, 0
	for _, block := range shell.FindAllStringSubmatch(string(text), -1) {
		commands := block[1]
		if target, ok := strings.CutPrefix(strings.TrimSpace(commands), "make "); ok {
			targets++
			cmd := exec.Command("make", "--dry-run", target)
			cmd.Dir = engine.Root()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("make %s: %v\n%s", target, err, out)
			}
			continue
		}
		curls++
		commands = strings.ReplaceAll(commands, "http://127.0.0.1:8080", p.url)
		for round, want := range []string{"HTTP/1.1 201", "Idempotent-Replayed: true"} {
			out, err := exec.Command("bash", "-euo", "pipefail", "-c", commands).CombinedOutput()
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("round %d: %v, want %q in\n%s", round+1, err, want, out)
			}
		}
		p.wantCharges(1)
	}
	if targets != 3 || curls != 1 {
		t.Errorf("found %d targets and %d blocks of curl lines, want three commands and one block", targets, curls)
	}
}

// The loop for clients in the guide ends with the answer.
func TestClientLoop(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(engine.Root(), "docs", "http-answers.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := shell.FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 1 {
		t.Fatalf("found %d blocks of commands, want one", len(blocks))
	}
	p := start(t, t.TempDir())
	// Some machines have no uuidgen.
	commands := "uuidgen() { cat /proc/sys/kernel/random/uuid; }\nTOKEN=t\n" +
		strings.ReplaceAll(blocks[0][1], "https://api.example.com", p.url)
	cmd := exec.Command("timeout", "30", "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if answer, err := os.ReadFile(filepath.Join(cmd.Dir, "answer.json")); err != nil || !strings.Contains(string(answer), `"status":"succeeded"`) {
		t.Errorf("the answer is %s (%v)", answer, err)
	}
	p.wantCharges(1)
}
