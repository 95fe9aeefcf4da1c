// SPDX-License-Identifier: Apache-2.0

package modules_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/tests/documents/modules"
)

// The modules for users build as dependencies: released into a module proxy of files
// in the order of RELEASING.md, required by a program elsewhere, without go.work and
// replace. Package
// tests/deployed/deploy does the same with an app of the CDK.
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
	for _, program := range []string{"api", "queue", "reconciler"} {
		if !strings.Contains(tested, "ok  \texample.com/consumer/"+program) {
			t.Errorf("the tests of %s did not run:\n%s", program, tested)
		}
	}
	// docs/oncevet.md shows this command. It finds nothing in these programs.
	command("go", "vet", "-vettool="+filepath.Join(bin, "oncevet"), "./...")
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
