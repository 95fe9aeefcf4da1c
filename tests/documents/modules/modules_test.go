// SPDX-License-Identifier: Apache-2.0

package modules_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/tests/documents/modules"
)

// The modules for users build as dependencies: released as RELEASING.md says, and
// required by a program elsewhere from a module proxy, without go.work and replace.
// Package tests/deployed/deploy does the same with an app of the CDK.
func TestModulesInstall(t *testing.T) {
	t.Parallel()
	const once = "github.com/once-lambda/once"
	var order []string
	for _, row := range regexp.MustCompile("(?m)^\\| [0-9] \\| `([^`]+)`").FindAllStringSubmatch(read(t, "RELEASING.md"), -1) {
		order = append(order, row[1])
	}
	if len(order) != 8 || order[0] != once {
		t.Fatalf("RELEASING.md has the order %v", order)
	}
	world, err := modules.New(t.Context(), t.TempDir(), order...)
	if err != nil {
		t.Fatal(err)
	}
	const release = modules.Release
	t.Run("FirstSteps", func(t *testing.T) { firstSteps(t, world) })

	dir := t.TempDir()
	write(t, dir, "go.mod", "module example.com/consumer\n\ngo 1.26.0\n\nrequire (\n\tgithub.com/once-lambda/once "+release+
		"\n\tgithub.com/once-lambda/once/boltstore "+release+"\n\tgithub.com/once-lambda/once/telemetry/otelonce "+release+
		"\n\tgithub.com/once-lambda/once/idempotencyclient "+release+
		"\n\tgithub.com/once-lambda/once/infra "+release+"\n\tgithub.com/once-lambda/once/lambdadurable "+release+"\n)\n")
	write(t, dir, "main.go", `package main

import (
	"fmt"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotencyclient"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/lambdadurable"
	"github.com/once-lambda/once/telemetry/otelonce"
)

func main() {
	store, err := boltstore.Open("once.db")
	if err != nil {
		panic(err)
	}
	defer store.Close()
	facts, err := otelonce.New()
	if err != nil {
		panic(err)
	}
	guard, err := idempotent.New(store, func(o *idempotent.Options) { o.Observer = facts })
	if _, err := idempotencyclient.New(func(o *idempotencyclient.Options) { o.Hosts = []string{"api.example.com"} }); err != nil {
		panic(err)
	}
	fmt.Println(guard != nil, err, lambdadurable.Step)
}
`)
	bin := t.TempDir()
	command := func(args ...string) string {
		t.Helper()
		out, err := world.Run(t.Context(), dir, []string{"GOBIN=" + bin}, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	// Without their paths, compiled packages do not depend on the module cache, so
	// that those of another run can be used again.
	command("go", "build", "-trimpath", "-o", "consumer", ".")
	if got := command("./consumer"); got != "true <nil> durable-execution\n" {
		t.Errorf("the program printed %q", got)
	}
	// The operator's command line installs by its path, and prints its version.
	command("go", "install", "-trimpath", "github.com/once-lambda/once/cmd/once@"+release)
	if got := command(filepath.Join(bin, "once"), "--version"); got != "once version "+release+"\n" {
		t.Errorf("the command line prints the version %q", got)
	}
	command("go", "install", "-trimpath", "github.com/once-lambda/once/oncevet/cmd/oncevet@"+release)
	// infra resolves with the CDK. The app of tests/deployed/deploy compiles it.
	if got := command("go", "list", "-m", "github.com/aws/aws-cdk-go/awscdk/v2"); !strings.Contains(read(t, "infra/go.mod"), strings.TrimSpace(got)) {
		t.Errorf("infra resolves with %s, which is not in its go.mod", got)
	}
	// The other packages of the root module resolve too.
	listed := command("go", "list", "-deps", "github.com/once-lambda/once/...")
	for _, pkg := range []string{"dynamostore", "lambdahttp", "lambdabatch", "telemetry/emf", "telemetry/audit", "idempotent/memstore", "idempotent/idempotenttest"} {
		if !strings.Contains(listed, "github.com/once-lambda/once/"+pkg+"\n") {
			t.Errorf("%s does not resolve", pkg)
		}
	}
	// The programs of the documentation compile and pass their tests, with the
	// checksums of exactly what they need.
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(engine.Root(), "tests/documents/programs"))); err != nil {
		t.Fatal(err)
	}
	command("go", "mod", "tidy")
	tested := command("go", "test", "-mod=readonly", "-trimpath", "./...")
	for _, name := range []string{"api", "first", "laptop", "outbox", "putitem", "queue", "reconciler"} {
		if !strings.Contains(tested, "ok  \texample.com/consumer/"+name) {
			t.Errorf("the tests of %s did not run:\n%s", name, tested)
		}
	}
	// docs/oncevet.md shows this command. It finds nothing in these programs.
	command("go", "vet", "-vettool="+filepath.Join(bin, "oncevet"), "./...")
}

var (
	shell   = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
	program = regexp.MustCompile("(?ms)^```go\n(package main\n.*?)^```$")
)

// firstSteps runs the blocks of commands of the README, and of the page that its program
// leads to, from empty folders. They run unchanged, but for the port. It prints the seconds
// of each: go test -v -run TestModulesInstall/FirstSteps ./tests/documents/modules
func firstSteps(t *testing.T, world *modules.World) {
	readme := read(t, "README.md")
	clone, address := t.TempDir(), ""
	own := filepath.Join(clone, "charges")
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	// As for a user: no command but go get and go mod changes go.mod.
	install := func(block string) {
		t.Helper()
		if out, err := world.Run(t.Context(), own, []string{"GOFLAGS=-modcacherw -trimpath"}, "bash", "-euo", "pipefail", "-c", block); err != nil {
			t.Fatal(err, out)
		}
	}
	steps := []struct {
		name string
		run  func(block string)
	}{
		{"make run", func(block string) {
			cmd := exec.Command("bash", "-euo", "pipefail", "-c", block)
			cmd.Dir, cmd.SysProcAttr = clone, &syscall.SysProcAttr{Setpgid: true}
			cmd.Env = append(append(os.Environ(), "MAKELEVEL=", "MAKEFLAGS=", "PORT=0"), world.Git...) // make of a user is no part of another one
			p, rest, err := engine.StartUntil(cmd, "listening on ")
			if err != nil {
				t.Fatal(err)
			}
			address = rest
			t.Cleanup(func() {
				syscall.Kill(-p.Pid, syscall.SIGKILL) // make, and what it started
				p.Wait()
			})
		}},
		{"curl", func(block string) {
			block = strings.ReplaceAll(block, "http://127.0.0.1:8080", address)
			for _, want := range []string{"HTTP/1.1 201", "Idempotent-Replayed: true"} {
				out, err := exec.Command("bash", "-euo", "pipefail", "-c", block).Output()
				_, ledger, _ := strings.Cut(string(out), "[")
				if err != nil || !strings.Contains(string(out), want) || strings.Count(ledger, `"ch_`) != 1 {
					t.Errorf("%v, want %q and one charge in\n%s", err, want, out)
				}
			}
		}},
		{"make test", func(block string) {
			cmd := exec.Command("bash", "-c", strings.Replace(block, "make", "make --dry-run", 1))
			cmd.Dir = filepath.Join(clone, "once")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", block, err, out)
			}
		}},
		{"-replace", install},
		{"go build", func(block string) {
			write(t, own, "main.go", program.FindStringSubmatch(readme)[1])
			install(block)
		}},
		{"go test", func(block string) {
			write(t, own, "main_test.go", read(t, "tests/documents/programs/first/main_test.go"))
			install(block)
		}},
	}
	blocks := shell.FindAllStringSubmatch(readme+read(t, "docs/test-your-handler.md"), -1)
	if len(blocks) != len(steps) {
		t.Fatalf("found %d blocks of commands, want %d", len(blocks), len(steps))
	}
	for i, step := range steps {
		block := blocks[i][1]
		if !strings.Contains(block, step.name) {
			t.Fatalf("block %d is %q, want %s", i+1, block, step.name)
		}
		began := time.Now()
		step.run(block)
		t.Logf("%6.1f s  %s", time.Since(began).Seconds(), step.name)
	}
	// With a release, without the clone.
	get := regexp.MustCompile("`(go get [^`]+)`").FindStringSubmatch(readme)
	if get == nil {
		t.Fatal("README.md does not name go get")
	}
	install("rm go.mod go.sum && go mod init example.com/charges && " + get[1] + " && go mod tidy && go build .")
}

// The handler of the README does not change: the line that does is of its program.
func TestBeforeAndAfter(t *testing.T) {
	t.Parallel()
	readme := read(t, "README.md")
	change := regexp.MustCompile(`(?s)\n-\tlambda\.Start\((\w+)\)\n\+\tlambda\.Start\((.+?)\)\n`).FindStringSubmatch(readme)
	first := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindStringSubmatch(readme)
	if change == nil || first == nil {
		t.Fatal("README.md has no change of one line, or no program")
	}
	if !strings.HasPrefix(first[1], "package main\n") || !strings.Contains(first[1], "\nfunc "+change[1]+"(") || !strings.Contains(first[1], "\treturn "+change[2]+"\n") {
		t.Errorf("the first code of README.md is no program with %q and %q:\n%s", change[1], change[2], first[1])
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(engine.Root(), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
