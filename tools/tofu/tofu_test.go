// SPDX-License-Identifier: Apache-2.0

// Package tofu runs OpenTofu on infra/terraform and on its example. The provider
// has the schema of the AWS provider and creates nothing, so no account is needed:
// see provider. Compiling OpenTofu takes minutes, so the tests of infra only read
// what it made of the modules; update that with
//
//	make terraform ARGS=-update
package tofu

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what OpenTofu made of the modules")

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

// What OpenTofu makes of the modules is what the files say, with which the tests
// of infra and of the stack compare the CDK.
func TestApplied(t *testing.T) {
	for _, row := range []struct {
		config, golden string
		sources        []string
		except         string // a type of resources that the file does not have
	}{
		{modules + "/testdata/watched", modules + "/testdata/watched.json", []string{modules}, ""},
		// The alarms of the modules are in the first file, and the stack's test reads none.
		{example, "examples/charge-lambda/stack/testdata/terraform.json", []string{modules, example}, "aws_cloudwatch_metric_alarm"},
	} {
		t.Run(row.config, func(t *testing.T) {
			config := filepath.Join(checkout(t), row.config)
			in(t, config, "init", "-no-color", "-backend=false")
			in(t, config, "apply", "-no-color", "-auto-approve")
			want := applied{Files: map[string]string{}, Resources: map[string]map[string]any{}}
			for _, source := range row.sources {
				sums(t, source, want.Files)
			}
			var state struct {
				Values struct {
					Root module `json:"root_module"`
				}
			}
			if err := json.Unmarshal(in(t, config, "show", "-json"), &state); err != nil {
				t.Fatal(err)
			}
			state.Values.Root.collect(want.Resources, row.except)
			text, err := json.MarshalIndent(want, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, '\n')
			golden := filepath.Join(root, row.golden)
			if *update {
				if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(golden, text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := os.ReadFile(golden); err != nil || !bytes.Equal(got, text) {
				t.Errorf("%s is out of date (%v); after reading the difference: make terraform ARGS=-update", row.golden, err)
			}
		})
	}
}

// applied is the content of a golden file.
type applied struct {
	// Files are the hashes of the configuration by path: a test of infra notices a
	// change without OpenTofu.
	Files map[string]string
	// Resources are the attributes that have a value, by address.
	Resources map[string]map[string]any
}

type module struct {
	Resources []struct {
		Address, Type string
		Values        map[string]any
	}
	Children []module `json:"child_modules"`
}

func (m module) collect(into map[string]map[string]any, except string) {
	for _, r := range m.Resources {
		if r.Type == except {
			continue
		}
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
		child.collect(into, except)
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

func sums(t *testing.T, folder string, into map[string]string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".tf" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		into[filepath.ToSlash(name)] = hex.EncodeToString(sum[:8])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
