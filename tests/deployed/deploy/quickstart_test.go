// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/tests/documents/modules"
)

// A new user follows docs/quickstart.md from an empty folder. Commands and programs are
// those of the page, but for the processor and the time-out: a busy machine needs more. The
// log has the seconds of each step: go test -v -run TestQuickstart ./tests/deployed/deploy
func TestQuickstart(t *testing.T) {
	t.Parallel()
	u := newUser(t, "docs/quickstart.md")
	u.run("git clone")
	u.save("charges/main.go", "FunctionURL")
	u.save("charges/deploy/main.go", "GrantHandler")
	u.run("go build")
	u.wants(u.run("cdk@2 deploy"), "✅  Charges")
	template, err := os.ReadFile(filepath.Join(u.dir, "charges/cdk.out/Charges.template.json"))
	if err != nil || !regexp.MustCompile(`"pay#\?{43}"`).Match(template) { // LocalStack allows everything
		t.Errorf("the template does not allow the records of the operation (%v)", err)
	}
	if !regexp.MustCompile(`(?s)"AWS::DynamoDB::GlobalTable".*?"DeletionPolicy": "Retain"`).Match(template) { // LocalStack deletes every table
		t.Error("the table does not stay")
	}
	u.run("export URL")

	id := regexp.MustCompile(`\{"id":"ch_[A-Z2-7]{26}"\}`)
	pay := u.blocks[0][1]
	first := u.wants(u.run(`"amount":4200`), " 200 ", id.String())
	u.wants(u.shell(pay), " 200 ", "Idempotent-Replayed: true", regexp.QuoteMeta(id.FindString(first)))
	u.wants(u.shell(strings.Replace(pay, "4200", "4300", 1)), " 422 ")

	kill := u.blocks[0][1]
	u.wants(u.run(`"hang":true`), " 502 ")
	kit.Eventually(t, "the lease has ended", func() bool {
		said := u.wants(u.shell(kill), " 409 ", `"in-progress"|"outcome-unknown"`)
		return strings.Contains(said, `"outcome-unknown"`)
	})
	list := u.wants(u.run("once list"), `pay#[\w-]+ .*lease_ended`)
	record := regexp.MustCompile(`pay#[\w-]+`).FindAllString(list, -1)
	if len(record) != 1 {
		t.Fatalf("%q are listed, want one record", record)
	}
	console := u.command("exec " + strings.TrimSpace(u.next("sh", "once console")) + " --json")
	wantInConsole(t, console, record[0])

	var charged []string
	functions, err := stack.functions(t.Context(), "Charges-Pay")
	if err != nil || len(functions) != 1 {
		t.Fatalf("got the functions %q, %v, want one", functions, err)
	}
	kit.Eventually(t, "the log has the second charge", func() bool {
		charged = nil
		for _, line := range logs(t, functions[0]) {
			if _, after, ok := strings.Cut(line, "charged "); ok {
				charged = append(charged, strings.Fields(after)[0])
			}
		}
		return len(charged) == 2
	})
	u.shell(strings.Replace(u.next("sh", "once resolve"), "ch_1", charged[1], 1))
	u.wants(u.shell(kill), " 200 ", "Idempotent-Replayed: true", charged[1])

	u.run("cdk@2 destroy")
	u.end()
}

// user follows a page with programs and commands, in an empty folder.
type user struct {
	t      *testing.T
	dir    string
	env    []string
	blocks [][]string // the rest of the page: each one's language and content
}

var block = regexp.MustCompile("(?ms)^```(sh|go)\n(.*?)^```$")

func newUser(t *testing.T, page string) *user {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(engine.Root(), page))
	if err != nil {
		t.Fatal(err)
	}
	u := &user{t: t, dir: t.TempDir()}
	for _, b := range block.FindAllStringSubmatch(string(text), -1) {
		u.blocks = append(u.blocks, b[1:])
	}
	home := t.TempDir()
	cloned, err := modules.Snapshot(t.Context(), filepath.Join(home, "snapshot"))
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(stack.cdk.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	// npx is LocalStack's command line of the CDK, and curl finds every host there.
	u.write(filepath.Join(home, "npx"), "#!/bin/sh\n[ \"$1 $2\" = '--yes aws-cdk@2' ] && shift 2 && exec "+stack.cdk.program+" \"$@\" --no-notices\n", 0o755)
	u.write(filepath.Join(home, ".curlrc"), fmt.Sprintf("connect-to = \"::%s\"\nnoproxy = \"*\"\n", at.Host), 0o644)
	u.write(filepath.Join(home, "state"), fmt.Sprintf("cd '%s'\n", u.dir), 0o644)
	u.env = append(append(slices.Clone(stack.cdk.env), cloned...), "CURL_HOME="+home, "STATE="+filepath.Join(home, "state"))
	for i, variable := range u.env {
		if path, ok := strings.CutPrefix(variable, "PATH="); ok {
			u.env[i] = "PATH=" + home + ":" + path
		}
	}
	return u
}

func (u *user) write(name, content string, mode os.FileMode) {
	u.t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		u.t.Fatal(err)
	}
}

// next returns the next block of the page, which has to contain mark.
func (u *user) next(language, mark string) string {
	u.t.Helper()
	if len(u.blocks) == 0 || u.blocks[0][0] != language || !strings.Contains(u.blocks[0][1], mark) {
		u.t.Fatalf("the rest of the page is %q, want a block of %s with %q", u.blocks, language, mark)
	}
	b := u.blocks[0][1]
	u.blocks = u.blocks[1:]
	return b
}

// save saves the next block, which is a program.
func (u *user) save(name, mark string) {
	u.t.Helper()
	processor := map[string]string{"amd64": "X86_64", "arm64": "ARM_64"}[runtime.GOARCH]
	here := strings.NewReplacer("ARM_64", processor, "Number(10)", fmt.Sprintf("Number(%d)", slowest))
	u.write(filepath.Join(u.dir, name), here.Replace(u.next("go", mark)), 0o644)
}

// run runs the next block, and returns what it prints.
func (u *user) run(mark string) string {
	u.t.Helper()
	began, b := time.Now(), u.next("sh", mark)
	said := u.shell(b)
	line, _, _ := strings.Cut(b, "\n")
	u.t.Logf("%6.1f s  %s", time.Since(began).Seconds(), line)
	return said
}

// shell runs commands as if all were typed in one shell.
func (u *user) shell(commands string) string {
	u.t.Helper()
	cmd := u.command(commands + "\n{ export -p; printf 'cd %q\\n' \"$PWD\"; } > \"$STATE\"")
	said, err := cmd.CombinedOutput()
	if err != nil {
		u.t.Fatalf("%v\n%s\n%s", err, commands, said)
	}
	return string(said)
}

func (u *user) command(commands string) *exec.Cmd {
	commands = strings.ReplaceAll(commands, "GOARCH=arm64", "GOARCH="+runtime.GOARCH)
	cmd := exec.CommandContext(u.t.Context(), "bash", "-euo", "pipefail", "-c", "source \"$STATE\"\n"+commands)
	cmd.Env = u.env
	return cmd
}

// wants checks that output matches each pattern, and returns it.
func (u *user) wants(said string, patterns ...string) string {
	u.t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(said) {
			u.t.Fatalf("no %s in\n%s", p, said)
		}
	}
	return said
}

// end checks that the page was followed to its end.
func (u *user) end() {
	u.t.Helper()
	if len(u.blocks) > 0 {
		u.t.Errorf("these blocks are not followed: %q", u.blocks)
	}
}
