// SPDX-License-Identifier: Apache-2.0

// Package tofu runs OpenTofu on infra/terraform and on its example, and compares the
// result with the CDK. The provider has the schema of the AWS provider and creates
// nothing, so no account is needed: see provider. Compiling OpenTofu takes minutes, so
// this module is apart.
package tofu

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

const (
	root    = "../.."
	version = "6.25.0" // of the AWS provider with this schema
	modules = "infra/terraform"
	example = "examples/charge-lambda/stack/terraform"
)

// tofu is the program, and env its environment.
var (
	tofu string
	env  []string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tofu")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	provider := filepath.Join(dir, "registry.opentofu.org/hashicorp/aws", version, runtime.GOOS+"_"+runtime.GOARCH, "terraform-provider-aws_v"+version)
	if said, err := exec.Command("go", "build", "-o", provider, "./provider").CombinedOutput(); err != nil {
		panic(string(said))
	}
	path, err := exec.Command("go", "tool", "-n", "tofu").Output() // which builds it, once
	if err != nil {
		panic(err)
	}
	tofu = strings.TrimSpace(string(path))
	settings := filepath.Join(dir, "settings")
	if err := os.WriteFile(settings, []byte("provider_installation {\n  filesystem_mirror {\n    path = \""+dir+"\"\n  }\n}\n"), 0o600); err != nil {
		panic(err)
	}
	env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+settings, "TF_IN_AUTOMATION=1", "TF_VAR_provider_url=https://provider.test/v1")
	return m.Run()
}

// checkout copies the modules and the example, because OpenTofu writes beside
// them.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, part := range []string{modules, example} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(root, part))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// in runs OpenTofu in a folder and returns its standard output.
func in(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(tofu, args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr = dir, env, &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tofu %s in %s: %v\n%s%s", strings.Join(args, " "), dir, err, out, said.Bytes())
	}
	return out
}

func TestFormat(t *testing.T) {
	for _, part := range []string{modules, example} {
		if out := in(t, filepath.Join(root, part), "fmt", "-check", "-recursive", "-list=true"); len(out) > 0 {
			t.Errorf("not formatted (tofu fmt -recursive): %s", out)
		}
	}
}

var passed = regexp.MustCompile(`Success! [1-9]\d* passed, 0 failed\.`)

// Each module has tests that users can run with the AWS provider: tofu test. They
// contain the refusals.
func TestModules(t *testing.T) {
	dir := checkout(t)
	found, err := filepath.Glob(filepath.Join(dir, modules, "*/tests"))
	if err != nil || len(found) != 6 {
		t.Fatalf("modules with tests: %v (%v), want 6", found, err)
	}
	for _, tests := range found {
		module := filepath.Dir(tests)
		t.Run(filepath.Base(module), func(t *testing.T) {
			in(t, module, "init", "-no-color", "-backend=false")
			in(t, module, "validate", "-no-color")
			out := string(in(t, module, "test", "-no-color"))
			if !passed.MatchString(out) {
				t.Errorf("tofu test: %s", out)
			}
		})
	}
}

// What OpenTofu makes of the modules and of the example is what the CDK synthesises: the
// tests with the tag tofu compare them.
func TestTerraformIsTheCDK(t *testing.T) {
	for config, tests := range map[string]string{modules + "/testdata/watched": "./infra", example: "./" + filepath.Dir(example)} {
		t.Run(config, func(t *testing.T) {
			dir := filepath.Join(checkout(t), config)
			in(t, dir, "init", "-no-color", "-backend=false")
			in(t, dir, "apply", "-no-color", "-auto-approve")
			var state struct {
				Values struct {
					Root module `json:"root_module"`
				}
			}
			if err := json.Unmarshal(in(t, dir, "show", "-json"), &state); err != nil {
				t.Fatal(err)
			}
			resources := map[string]map[string]any{}
			state.Values.Root.collect(resources)
			text, err := json.Marshal(resources)
			if err != nil {
				t.Fatal(err)
			}
			applied := filepath.Join(t.TempDir(), "applied.json")
			if err := os.WriteFile(applied, text, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("go", "test", "-count=1", "-tags", "tofu", "-run", "^TestTerraform", "-v", tests)
			cmd.Dir, cmd.Env = root, append(os.Environ(), "GOWORK=", "APPLIED="+applied)
			if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestTerraform")) {
				t.Errorf("%s: %v\n%s", cmd, err, out)
			}
		})
	}
}

type module struct {
	Resources []struct {
		Address, Type string
		Values        map[string]any
	}
	Children []module `json:"child_modules"`
}

// collect adds the attributes that have a value, by address.
func (m module) collect(into map[string]map[string]any) {
	for _, r := range m.Resources {
		values := map[string]any{}
		for name, v := range r.Values {
			made, text := v.(string)
			if fromProvider := text && strings.HasPrefix(made, r.Type+".") && strings.HasSuffix(made, "."+name); empty(v) || fromProvider {
				continue
			}
			values[name] = compact(v)
		}
		into[r.Address] = values
	}
	for _, child := range m.Children {
		child.collect(into)
	}
}

// compact removes what has no value.
func compact(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if v[name] = compact(member); empty(member) {
				delete(v, name)
			}
		}
	case []any:
		for i := range v {
			v[i] = compact(v[i])
		}
	}
	return v
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}
