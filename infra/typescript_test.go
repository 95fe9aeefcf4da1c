// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The app in TypeScript of docs/deploy-cdk.md synthesises the table and the alarms of the
// templates, and a policy. Node runs it as JavaScript, because it has no types, with the
// CDK that the Go modules contain.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	installCDK(t, filepath.Join(dir, "node_modules"))
	for from, to := range map[string]string{"testdata/typescript/charges.ts": "charges.mjs", "table.json": "table.json", "alarms.json": "alarms.json", "doc.go": "bin/bootstrap"} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, to)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run(t, dir, "node", "charges.mjs")

	type template struct {
		Resources map[string]struct {
			Type       string
			Properties map[string]any
		}
	}
	read := func(name string) (made template) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &made); err != nil {
			t.Fatal(err)
		}
		return made
	}
	app := read(filepath.Join(dir, "out/Charges.template.json"))
	if got, want := app.Resources["Records"], read("table.json").Resources["Records"]; !reflect.DeepEqual(got, want) {
		t.Errorf("the table is %v, want %v", got, want)
	}
	for name, alarm := range read("alarms.json").Resources {
		if got := app.Resources[name]; got.Type != alarm.Type || got.Properties["Threshold"] != alarm.Properties["Threshold"] {
			t.Errorf("the alarm %s is %v, want %v", name, got, alarm)
		}
	}
	policies := 0
	for _, r := range app.Resources {
		if r.Type != "AWS::IAM::Policy" {
			continue
		}
		policies++
		text, err := json.Marshal(r.Properties["PolicyDocument"])
		if err != nil {
			t.Fatal(err)
		}
		hash := "#" + strings.Repeat("?", 43)
		statement := func(actions, keys string) string {
			return `{"Action":[` + actions + `],"Condition":{"ForAllValues:StringLike":{"dynamodb:LeadingKeys":` + keys +
				`},"Null":{"dynamodb:LeadingKeys":"false"}},"Effect":"Allow","Resource":{"Fn::GetAtt":["Records","Arn"]}}`
		}
		want := `{"Statement":[` + statement(`"dynamodb:PutItem","dynamodb:GetItem"`, `["pay`+hash+`","#open"]`) + "," +
			statement(`"dynamodb:BatchWriteItem","dynamodb:BatchGetItem"`, `["pay`+hash+`#*"]`) + `],"Version":"2012-10-17"}`
		if string(text) != want {
			t.Errorf("the policy is %s, want %s", text, want)
		}
	}
	if policies != 1 {
		t.Errorf("%d policies, want 1", policies)
	}
}

// installCDK puts the packages of Node that the modules of the CDK contain into a folder.
func installCDK(t *testing.T, folder string) {
	t.Helper()
	installed := 0
	modules := strings.Fields(run(t, ".", "go", "list", "-deps", "-f", "{{with .Module}}{{.Dir}}{{end}}", "."))
	slices.Sort(modules)
	for _, dir := range slices.Compact(modules) {
		archives, err := filepath.Glob(filepath.Join(dir, "jsii", "*.tgz"))
		if err != nil {
			t.Fatal(err)
		}
		for _, archive := range archives {
			unpacked := t.TempDir()
			run(t, unpacked, "tar", "-xzf", archive)
			text, err := os.ReadFile(filepath.Join(unpacked, "package/package.json"))
			if err != nil {
				t.Fatal(err)
			}
			var description struct{ Name string }
			if err := json.Unmarshal(text, &description); err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(folder, description.Name)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(unpacked, "package"), at); err != nil {
				t.Fatal(err)
			}
			installed++
		}
	}
	if installed < 4 {
		t.Fatalf("only %d packages of the CDK were found", installed)
	}
}

// run runs a program in a folder, and returns its standard output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CDK_OUTDIR=out", "CDK_VALIDATION=false")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return string(out)
}
