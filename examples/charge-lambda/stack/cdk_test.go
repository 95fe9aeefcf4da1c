// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// stand writes a shell script that replaces another program.
func stand(t *testing.T, dir, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// The script reports missing requirements before it begins. Otherwise it builds
// the bundles, installs the CDK at its locked version, once, and runs it. All
// tools are fakes here.
func TestDeploy(t *testing.T) {
	const url, key = "PROVIDER_URL=https://payments.example.com/v1", "AWS_ACCESS_KEY_ID=test"
	for _, row := range []struct {
		name, args string
		env        []string
		without    string // a tool
		want       string // part of its output
		ran        string // the calls of the fakes, line by line
	}{
		{name: "no verb", env: []string{url, key}, want: "unknown command '': use install, bootstrap, deploy or destroy"},
		{name: "no provider", args: "deploy", env: []string{key}, want: "PROVIDER_URL is '': set it"},
		{name: "no address", args: "deploy", env: []string{key, "PROVIDER_URL=payments"}, want: "PROVIDER_URL is 'payments': set it"},
		{name: "no credentials", args: "deploy", env: []string{url}, want: "no AWS credentials: set AWS_PROFILE"},
		{name: "no credentials to destroy with", args: "destroy", want: "no AWS credentials"},
		{name: "no npm", args: "deploy", env: []string{url, key}, without: "npm", want: "npm is missing"},
		{name: "deploy", args: "deploy --require-approval never", env: []string{url, key},
			ran: "npm ci\ngo run ./bundle\ncdk deploy -c providerUrl=https://payments.example.com/v1 --require-approval never\n"},
		{name: "destroy", args: "destroy", env: []string{"AWS_PROFILE=acme"},
			ran: "npm ci\ngo run ./bundle\ncdk destroy -c providerUrl=https://none.invalid\n"},
		{name: "install, without credentials", args: "install", ran: "npm ci\n"},
		{name: "bootstrap", args: "bootstrap", env: []string{key}, ran: "npm ci\ngo run ./bundle\ncdk bootstrap -c providerUrl=https://none.invalid\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir, bin := t.TempDir(), t.TempDir()
			log := filepath.Join(dir, "ran")
			stand(t, bin, "go", `echo "go $*" >>`+log)
			stand(t, bin, "node", "")
			stand(t, bin, "npm", `echo "npm $1" >>`+log+`
while [ "$1" != --prefix ]; do shift; done
mkdir -p "$2/node_modules/.bin" && printf '#!/bin/sh\necho "cdk $*" >>`+log+`\n' >"$2/node_modules/.bin/cdk" && chmod +x "$2/node_modules/.bin/cdk"`)
			path := bin + ":/usr/bin:/bin"
			if row.without != "" { // a PATH with only the tools that the script needs
				os.Remove(filepath.Join(bin, row.without))
				for _, tool := range []string{"bash", "dirname"} {
					found, err := exec.LookPath(tool)
					if err != nil {
						t.Fatal(err)
					}
					if err := os.Symlink(found, filepath.Join(bin, tool)); err != nil {
						t.Fatal(err)
					}
				}
				path = bin
			}
			run := func() string {
				cmd := exec.Command("./cdk", strings.Fields(row.args)...)
				cmd.Env = append(row.env, "AWS_EC2_METADATA_DISABLED=true", "HOME="+dir, "ONCE_CACHE="+filepath.Join(dir, "cache"), "PATH="+path)
				said, err := cmd.CombinedOutput()
				if failed := err != nil; failed != (row.want != "") {
					t.Fatalf("%v: %s", err, said)
				}
				return string(said)
			}
			if said := run(); !strings.Contains(said, row.want) {
				t.Errorf("got output %q, want %q", said, row.want)
			}
			ran, err := os.ReadFile(log)
			if err != nil && row.ran != "" {
				t.Fatal(err)
			}
			if string(ran) != row.ran {
				t.Errorf("got calls\n%swant\n%s", ran, row.ran)
			}
			if row.ran != "" { // it is installed now
				run()
				if again, err := os.ReadFile(log); err != nil || strings.Count(string(again), "npm ci") != 1 || strings.Count(string(again), "cdk ") != 2*strings.Count(row.ran, "cdk ") {
					t.Errorf("after the second run the calls are (%v)\n%s", err, again)
				}
			}
			if parts, _ := filepath.Glob(filepath.Join(dir, "cache", "cdk-part-*")); len(parts) != 0 {
				t.Errorf("%v was not removed", parts)
			}
		})
	}
}
