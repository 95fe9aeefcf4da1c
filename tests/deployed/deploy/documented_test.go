// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

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

// documented are the programs of README.md, docs/reconciler.md, docs/batch.md and
// docs/observe.md. TestSnippetsAreCompiled in tests/documents/house compares them.
var documented = []string{"api", "reconciler", "queue", "metrics"}

// The programs of the pages, deployed together with the constructs, are used as the
// pages say: a charge is answered and replayed, a killed one is found with the command
// line and settled by the reconciler, an order is taken although its first delivery
// fails, and the alarms watch what the functions print.
func TestDocumentedTogether(t *testing.T) {
	t.Parallel()
	var kill, refused atomic.Bool // the function is killed after the next charge; one message was refused
	var function string
	charges := &kit.Provider{After: func() {
		if kill.Swap(false) {
			engine.SignalFunction(function, syscall.SIGKILL)
		}
	}}
	orders := &kit.Provider{Before: func(r *http.Request) int {
		if text, _ := io.ReadAll(r.Body); string(text) == `{"amount":77}` && !refused.Swap(true) {
			return http.StatusServiceUnavailable
		}
		return 0
	}}
	mux := http.NewServeMux()
	mux.Handle("/charges", charges)
	mux.Handle("/orders", orders)
	provider := httptest.NewServer(mux)
	t.Cleanup(provider.Close)
	d := deployDocumented(t, provider.URL)
	function = d.outputs["ChargeName"]
	d.invoices(t)
	t.Run("charges", func(t *testing.T) { t.Parallel(); d.charges(t, charges, &kill) })
	t.Run("orders", func(t *testing.T) {
		t.Parallel()
		d.orders(t)
		if n := orders.Asked(); !refused.Load() || n != 2 {
			t.Errorf("the provider refused a message: %t, and was then asked %d times, want 2", refused.Load(), n)
		}
		orders.Once(t, 2)
	})
	t.Run("alarms", func(t *testing.T) {
		t.Parallel()
		wantWatched(t, filepath.Join(d.dir, "cdk.out", d.name+".template.json"), d.outputs["ChargeName"], d.outputs["ReconcileName"], d.outputs["OrdersName"], d.outputs["InvoicesName"])
	})
}

// charges compares an answer that the handler gave with one that the reconciler
// settled, byte for byte.
func (d *documents) charges(t *testing.T, provider *kit.Provider, kill *atomic.Bool) {
	const body = `{"amount":4200,"currency":"usd"}`
	key := rand.Text()
	first := d.post(t, key, body)
	if first.StatusCode != http.StatusOK || first.Body != `{"id":"ch_1"}` {
		t.Fatalf("got %+v, want the charge", first)
	}
	replay := d.post(t, key, body)
	if replay.Headers["Idempotent-Replayed"] != "true" {
		t.Errorf("the retry got %+v", replay)
	}
	for name, r := range map[string]events.APIGatewayV2HTTPResponse{
		"key-reused": d.post(t, key, `{"amount":9900,"currency":"usd"}`), "invalid_amount": d.post(t, rand.Text(), `{"amount":0,"currency":"usd"}`),
	} {
		if r.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(r.Body, name) {
			t.Errorf("got %+v, want %s", r, name)
		}
	}

	// Lambda's process dies after the charge, and before its answer.
	kill.Store(true)
	killed := rand.Text()
	if r := d.post(t, killed, body); r.StatusCode != http.StatusInternalServerError {
		t.Fatalf("got %+v, want a killed function", r)
	}
	kit.Eventually(t, "the lease has ended", func() bool {
		r := d.post(t, killed, body)
		return r.StatusCode == http.StatusConflict && strings.Contains(r.Body, "outcome-unknown")
	})
	id := d.once(t, exitSuccess, "list", "--state", "unknown")
	_, hash, _ := strings.Cut(id, "POST /charges#")
	hash, _, _ = strings.Cut(hash, " ")
	if said := d.once(t, exitSuccess, "show", "#"+hash); !strings.Contains(said, "unknown (lease_ended)") || !strings.Contains(said, "once-") {
		t.Errorf("once show printed %s", said)
	}
	console := exec.Command(filepath.Join(stack.cdk.scratch, onceProgram), "console", "--json")
	console.Env = append(slices.Clone(stack.cdk.env), "ONCE_TABLE="+d.outputs["RecordsTable"])
	wantInConsole(t, console, "POST /charges#"+hash)
	if said := d.once(t, exitSuccess, "reconcile", "--dry-run"); !strings.Contains(said, "nothing was written") {
		t.Errorf("once reconcile printed %s", said)
	}
	var settled events.APIGatewayV2HTTPResponse
	kit.Eventually(t, "the reconciler settles the charge, on its schedule", func() bool {
		settled = d.post(t, killed, body)
		return settled.StatusCode != http.StatusConflict
	})
	provider.Once(t, 2)
	other := func(r events.APIGatewayV2HTTPResponse) string {
		text, _ := json.Marshal(r)
		return strings.ReplaceAll(string(text), "ch_2", "ch_1")
	}
	if got, want := other(settled), other(replay); got != want {
		t.Errorf("the settled charge is answered with\n%s\nand the other one with\n%s", got, want)
	}
	delete(settled.Headers, "Idempotent-Replayed")
	if got, want := other(settled), other(first); got != want {
		t.Errorf("the settled charge is answered with\n%s\nand the first answer was\n%s", got, want)
	}
	for _, command := range []string{"list --due", "list --exhausted", "stats", "table check", "reconcile"} {
		d.once(t, exitSuccess, strings.Fields(command)...)
	}
	if said := d.once(t, exitSuccess, "list", "--state", "unknown"); strings.Contains(said, hash) {
		t.Errorf("the settled record is listed: %s", said)
	}
}

// orders sends two messages, one of which fails at its first delivery.
func (d *documents) orders(t *testing.T) {
	s := &shift{}
	deliverSoon(t, d.outputs["QueueURL"], 5)
	s.send(t, d.outputs["QueueURL"], `{"order_id":"o-1","amount":42}`, `{"order_id":"o-2","amount":77}`)
	kit.Eventually(t, "both orders are taken", func() bool {
		out, err := stack.dynamodb.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String(d.outputs["ShopTable"])})
		if err != nil {
			t.Fatal(err)
		}
		return out.Count == 2 && depth(t, d.outputs["QueueURL"]) == 0
	})
}

// invoices sends an invoice, twice.
func (d *documents) invoices(t *testing.T) {
	for range 2 {
		if answer, failure := stack.invoke(t, d.outputs["InvoicesName"], []byte(`{"number":"2026-17"}`)); failure != "" || string(answer) != `{"pages":2}` {
			t.Errorf("got %s %s", answer, failure)
		}
	}
}

// documents is the stack with the programs of the pages.
type documents struct {
	outputs map[string]string
	dir     string
	name    string
}

func deployDocumented(t *testing.T, providerURL string) *documents {
	t.Helper()
	d := &documents{dir: t.TempDir(), name: "Documented" + rand.Text()[:8]}
	var err error
	d.outputs, err = stack.cdk.deployApp(t.Context(), d.dir, d.dir, d.name, "--app", filepath.Join(stack.cdk.scratch, documentedApp),
		"-c", "bundles="+stack.cdk.scratch, "-c", "providerUrl="+providerURL)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// post sends a request as an HTTP API with a JWT authorizer does, which LocalStack
// does not have. The answer of a killed function is the API's 500.
func (d *documents) post(t *testing.T, key, body string) (r events.APIGatewayV2HTTPResponse) {
	t.Helper()
	e := anEvent(key, body)
	e.RouteKey = "POST /charges"
	e.RequestContext.Authorizer = &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
		JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"sub": "merchant-1"}},
	}
	payload, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	answer, failure := stack.invoke(t, d.outputs["ChargeName"], payload)
	if failure != "" {
		return events.APIGatewayV2HTTPResponse{StatusCode: http.StatusInternalServerError, Body: failure}
	}
	if err := json.Unmarshal(answer, &r); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	return r
}

// wantInConsole starts once console, whose page has to list one unknown record.
func wantInConsole(t *testing.T, cmd *exec.Cmd, record string) {
	t.Helper()
	engine.EndWithParent(cmd)
	p, first, err := engine.StartUntil(cmd, "{")
	if err != nil {
		t.Fatal(err)
	}
	defer p.End(os.Interrupt)
	c, err := engine.OpenConsole(t.Context(), "{"+first)
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Rows []struct{ Record string } }
	if err := c.Call(t.Context(), http.MethodGet, "/api/list?list=unknown&offset=0", nil, &list); err != nil || len(list.Rows) != 1 || !strings.HasPrefix(list.Rows[0].Record, record) {
		t.Errorf("the console lists %+v (%v), want %s", list.Rows, err, record)
	}
}

const exitSuccess = 0

// once runs the command line on the table, and returns what it prints.
func (d *documents) once(t *testing.T, code int, args ...string) string {
	t.Helper()
	return runOnce(t, []string{"ONCE_TABLE=" + d.outputs["RecordsTable"]}, code, args...)
}

// runOnce runs the command line with additional variables. It has to end with the
// code.
func runOnce(t *testing.T, env []string, code int, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(stack.cdk.scratch, onceProgram), args...)
	cmd.Env = append(append(stack.cdk.env, "COLUMNS=200"), env...)
	said, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("once %s ended with %d (%v), want %d:\n%s", strings.Join(args, " "), got, err, code, said)
	}
	return string(said)
}
