package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/tests/engine"
)

// onceBinary builds the command line on first use.
var onceBinary = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(filepath.Dir(binary), "once")
	build := exec.Command("go", "build", "-o", path, "./cmd/once")
	build.Dir = engine.Root()
	out, err := build.CombinedOutput()
	if err != nil {
		err = errors.New(string(out))
	}
	return path, err
})

// operator runs command lines of once.
type operator struct {
	t   *testing.T
	bin string
	env []string
	dir string
}

// newOperator returns an operator in an empty directory, with env and nothing of
// this machine's AWS configuration.
func newOperator(t *testing.T, env ...string) *operator {
	t.Helper()
	bin, err := onceBinary()
	if err != nil {
		t.Fatalf("building once: %v", err)
	}
	env = append([]string{
		"PATH=" + filepath.Dir(bin) + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir(),
		"AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull, "AWS_EC2_METADATA_DISABLED=true",
	}, env...)
	return &operator{t, bin, env, t.TempDir()}
}

// patience limits the time of one command line.
const patience = 2 * time.Minute

func (o *operator) command(name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(o.t.Context(), patience)
	o.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = o.env, o.dir
	return cmd
}

// once runs a command line in a script, and returns its exit code and its
// output.
func (o *operator) once(args ...string) (code int, stdout, stderr string) {
	o.t.Helper()
	var out, errs strings.Builder
	cmd := o.command(o.bin, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		o.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// wants runs a command line and checks its exit code, and that its output
// contains the words.
func (o *operator) wants(code int, words []string, args ...string) (stdout string) {
	o.t.Helper()
	got, stdout, stderr := o.once(args...)
	if got != code {
		o.t.Fatalf("once %q: exit code %d, want %d\n%s%s", args, got, code, stdout, stderr)
	}
	for _, w := range words {
		if !strings.Contains(stdout+stderr, w) {
			o.t.Errorf("once %q: no %q in\n%s%s", args, w, stdout, stderr)
		}
	}
	return stdout
}

// types runs a command line at a terminal, answers its questions, and checks
// that its lines fit.
func (o *operator) types(args ...string) (shown string) {
	o.t.Helper()
	shown, err := atTerminal(o.t, o.command(o.bin, args...))
	if err != nil {
		o.t.Fatalf("once %q: %v\n%s", args, err, shown)
	}
	for line := range strings.Lines(shown) {
		if n := len([]rune(strings.TrimSpace(line))); n > 80 && line[0] != '{' {
			o.t.Errorf("once %q: a line of %d columns: %s", args, n, line)
		}
	}
	return shown
}

// F33, G02: an operator's session. A charge was cut off, and its client gets
// 409. The operator finds it by the client's key, looks it up at the provider by
// the downstream key, and settles it. The client's retry gets the replay, and no
// customer was charged twice.
func TestOperatorSettlesAnUnknownCharge(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, env []string) {
		dir := t.TempDir()
		o := newOperator(t, env...)
		if len(env) == 0 {
			o.env = append(o.env, "ONCE_FILE="+filepath.Join(dir, "once.db"))
		}
		p := start(t, dir, append(env, "TIMEOUT=6s")...)
		broken := make(chan reply, 1)
		go func() { broken <- p.post(key, slow) }()
		eventually(t, 10*time.Second, "the provider has booked", func() bool { return p.charges() == 1 })
		p.kill()
		if r := <-broken; r.err == nil {
			t.Fatalf("the first request was answered with %d before the kill", r.status)
		}
		byKey := []string{"POST /charges", "--global", "--key", key}
		// Too early: the owner may still be running.
		var running struct{ Token string }
		if err := json.Unmarshal([]byte(o.wants(0, nil, append(append([]string{"show"}, byKey...), "--json")...)), &running); err != nil {
			t.Fatal(err)
		}
		for _, more := range [][]string{{"--not-executed", "--token", running.Token}, {"--status", "201", "--completed", "{}"}} {
			o.wants(4, []string{"in progress; retry after"}, append(append(append([]string{"resolve"}, byKey...), more...), "--yes", "--reason", "a guess")...)
		}
		eventually(t, 30*time.Second, "the lease has ended", func() bool {
			return strings.Contains(o.wants(0, nil, "reconcile"), "its lease ended without an outcome: unknown")
		})

		// Which record is it, and how old?
		listed := o.types("list", "--state", "unknown")
		id := regexp.MustCompile(`(?m)^(POST /charges#\S{12})  unknown  \d+s .* lease_ended `).FindStringSubmatch(listed)
		if id == nil {
			t.Fatalf("the list does not show the charge:\n%s", listed)
		}
		// By which key does the provider know it?
		shown := o.types(append([]string{"show"}, byKey...)...)
		if again := o.types("show", id[1]); !strings.Contains(again, id[1]) || !strings.Contains(shown, id[1]) {
			t.Errorf("the client's key and the list show two records:\n%s\n%s", shown, again)
		}
		downstream := regexp.MustCompile(`(?m)^ +(once-\S+)$`).FindStringSubmatch(shown)
		if downstream == nil {
			t.Fatalf("no downstream key in\n%s", shown)
		}
		// The provider's ledger has it.
		body := inLedger(t, filepath.Join(dir, "ledger.jsonl"), downstream[1])
		var charge struct{ ID string }
		if err := json.Unmarshal(body, &charge); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(o.dir, "charge.json"), body, 0o600); err != nil {
			t.Fatal(err)
		}
		settled := o.types(append(append([]string{"resolve"}, byKey...),
			"--status", "201", "--header", "Location: /charges/"+charge.ID, "--completed", "@charge.json",
			"--reason", "the provider's ledger has "+charge.ID, "--audit", "audit.jsonl")...)
		if !strings.Contains(settled, "Every retry gets this.") || !strings.Contains(settled, id[1]+" was unknown and is completed") {
			t.Errorf("resolve shows\n%s", settled)
		}
		audit, err := os.ReadFile(filepath.Join(o.dir, "audit.jsonl"))
		if err != nil || strings.Count(string(audit), "\n") != 1 || !strings.Contains(string(audit), charge.ID) || strings.Contains(string(audit), key) {
			t.Errorf("%v, the audit is %s", err, audit)
		}
		o.wants(0, []string{"no such records"}, "list", "--state", "unknown")

		// The client tries again.
		p = start(t, dir, append(env, "TIMEOUT=6s")...)
		r := p.post(key, slow)
		p.want(r, http.StatusCreated)
		if r.header.Get("Idempotent-Replayed") != "true" || r.header.Get("Location") != "/charges/"+charge.ID || r.body != string(body) ||
			r.header.Get("Content-Type") != "application/json" {
			t.Errorf("the retry got %v\n%s\nwant the replay of\n%s", r.header, r.body, body)
		}
		p.wantCharges(1)
	})
}

// inLedger returns the provider's charge of a key.
func inLedger(t *testing.T, file, key string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, `"idempotency_key":"`+key+`"`) {
			return []byte(strings.TrimSpace(line))
		}
	}
	t.Fatalf("the ledger has no charge of %s:\n%s", key, data)
	return nil
}
