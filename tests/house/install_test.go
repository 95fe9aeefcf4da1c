// SPDX-License-Identifier: Apache-2.0

package house

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/once-lambda/once/tests/engine"
)

// release is the version in which the modules require each other.
const release = "v0.1.0"

// The modules for users build as dependencies: released into a module proxy of
// files, required by a program elsewhere, without go.work and replace.
func TestModulesInstall(t *testing.T) {
	t.Parallel()
	proxy := t.TempDir()
	publish(t, proxy, "github.com/once-lambda/once", ".")
	publish(t, proxy, "github.com/once-lambda/once/boltstore", "boltstore")
	publish(t, proxy, "github.com/once-lambda/once/cmd/once", "cmd/once")
	publish(t, proxy, "github.com/once-lambda/once/telemetry/otelonce", "telemetry/otelonce")
	publish(t, proxy, "github.com/once-lambda/once/infra", "infra")

	dir := t.TempDir()
	write(t, dir, "go.mod", "module example.com/consumer\n\ngo 1.26.0\n\nrequire (\n\tgithub.com/once-lambda/once "+release+
		"\n\tgithub.com/once-lambda/once/boltstore "+release+"\n\tgithub.com/once-lambda/once/telemetry/otelonce "+release+
		"\n\tgithub.com/once-lambda/once/infra "+release+"\n)\n")
	write(t, dir, "main.go", `package main

import (
	"fmt"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/idempotent"
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
	fmt.Println(guard != nil, err)
}
`)
	// Use a separate module cache: the versions published here must not be
	// taken for real ones later. Everything else comes from the machine's
	// cache, whose content was verified when it was downloaded.
	cache := filepath.Join(t.TempDir(), "mod")
	bin := t.TempDir()
	env := append(os.Environ(),
		"GOWORK=off", "GOBIN="+bin, "GOFLAGS=-mod=mod -modcacherw", "GOMODCACHE="+cache, "GONOSUMDB=*",
		"GOPROXY=file://"+proxy+",file://"+goEnv(t, "GOMODCACHE")+"/cache/download,"+goEnv(t, "GOPROXY"))
	command := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir, cmd.Env = dir, env
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, &stderr)
		}
		return string(out)
	}
	// Without their paths, compiled packages do not depend on the module cache, so
	// that those of another run can be used again.
	command("go", "build", "-trimpath", "-o", "consumer", ".")
	if got := command("./consumer"); got != "true <nil>\n" {
		t.Errorf("the program printed %q", got)
	}
	// The operator's command line installs by its path, and prints its version.
	command("go", "install", "-trimpath", "github.com/once-lambda/once/cmd/once@"+release)
	if got := command(filepath.Join(bin, "once"), "--version"); got != "once version "+release+"\n" {
		t.Errorf("the command line prints the version %q", got)
	}
	// infra resolves with the CDK. Unpacking and compiling it takes minutes, and
	// go.work compiles the same sources anyway.
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
	for _, name := range tracked(t, ".go") {
		if inside, ok := strings.CutPrefix(name, "tests/programs/"); ok {
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(inside)), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, dir, inside, read(t, name))
		}
	}
	command("go", "mod", "tidy")
	tested := command("go", "test", "-mod=readonly", "-trimpath", "./...")
	for _, program := range []string{"api", "queue", "reconciler"} {
		if !strings.Contains(tested, "ok  \texample.com/consumer/"+program) {
			t.Errorf("the tests of %s did not run:\n%s", program, tested)
		}
	}
}

// publish adds a module of this tree to a proxy, as a release would.
func publish(t *testing.T, proxy, path, sub string) {
	t.Helper()
	var files []zip.File
	nested := map[string]bool{}
	all := tracked(t, "")
	for _, name := range all {
		if strings.HasSuffix(name, "go.mod") && filepath.Dir(name) != filepath.Clean(sub) {
			nested[filepath.Dir(name)+"/"] = true
		}
	}
	for _, name := range all {
		inside, ok := name, true
		if sub != "." {
			inside, ok = strings.CutPrefix(name, sub+"/")
		}
		for n := range nested {
			if strings.HasPrefix(name, n) && len(n) > len(sub) {
				ok = false
			}
		}
		if ok {
			files = append(files, zipFile{inside, filepath.Join(engine.Root(), name)})
		}
	}
	versions := filepath.Join(proxy, path, "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := zip.Create(&archive, module.Version{Path: path, Version: release}, files); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	info, err := json.Marshal(map[string]any{"Version": release, "Time": time.Now().UTC()})
	if err != nil {
		t.Fatal(err)
	}
	write(t, versions, release+".zip", archive.String())
	write(t, versions, release+".info", string(info))
	write(t, versions, release+".mod", read(t, filepath.Join(sub, "go.mod")))
	write(t, versions, "list", release+"\n")
}

type zipFile struct{ inside, file string }

func (f zipFile) Path() string                 { return f.inside }
func (f zipFile) Lstat() (os.FileInfo, error)  { return os.Lstat(f.file) }
func (f zipFile) Open() (io.ReadCloser, error) { return os.Open(f.file) }

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
