// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/tests/promised/published"
)

// patience is kit.Patience for the program timeout.
var patience = fmt.Sprint(kit.Patience.Seconds())

var shell = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// document returns a file of the repository.
func document(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{engine.Root()}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// guide is a document whose blocks of commands a test follows from top to
// bottom. They run unchanged, but for the example's address and the folder for
// scratch files.
type guide struct {
	t       *testing.T
	blocks  []string
	scratch string
}

func newGuide(t *testing.T, path ...string) *guide {
	g := &guide{t: t, scratch: t.TempDir()}
	for _, b := range shell.FindAllStringSubmatch(document(t, path...), -1) {
		g.blocks = append(g.blocks, b[1])
	}
	return g
}

// next returns the next block, which has to contain mark.
func (g *guide) next(mark string) string {
	g.t.Helper()
	if len(g.blocks) == 0 || !strings.Contains(g.blocks[0], mark) {
		g.t.Fatalf("the next block of commands is %q, want one with %q", g.blocks, mark)
	}
	b := g.blocks[0]
	g.blocks = g.blocks[1:]
	return b
}

// on returns the block for the example p.
func (g *guide) on(p *process, block string) string {
	return strings.NewReplacer("http://127.0.0.1:8080", p.url, "/tmp/", g.scratch+"/").Replace(block)
}

// wants checks that a block showed the texts.
func (g *guide) wants(block, shown string, texts ...string) {
	g.t.Helper()
	for _, w := range texts {
		if !strings.Contains(shown, w) {
			g.t.Fatalf("no %q in\n%s\nafter\n%s", w, shown, block)
		}
	}
}

// end checks that every block was followed.
func (g *guide) end() {
	g.t.Helper()
	if len(g.blocks) != 0 {
		g.t.Errorf("these blocks are not followed: %q", g.blocks)
	}
}

// The READMEs of the example and of the playground, followed from top to bottom: each
// block of commands runs unchanged, and does what the text around it states. TestProfiles
// starts the playground with make.
func TestExampleGuide(t *testing.T) {
	t.Parallel()
	g := newGuide(t, "examples", "charge-lambda", "README.md")
	data := t.TempDir()
	p := start(t, data, long, unhurried)
	run := func(block string, want ...string) {
		t.Helper()
		block = g.on(p, block)
		cmd := exec.Command("timeout", patience, "bash", "-euo", "pipefail", "-c", block)
		cmd.Dir = engine.Root()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, block, out)
		}
		g.wants(block, string(out), want...)
	}

	if block := g.next("make run"); block != "DATA=/tmp/charge make run\n" {
		t.Fatalf("the guide starts with %q", block)
	}
	charge := g.next("8e03978e-40d5-43e8-bc93-6894a57f9324")
	run(charge, "HTTP/1.1 201", "Location: /charges/ch_")
	run(charge, "HTTP/1.1 201", "Idempotent-Replayed: true")
	run(g.next("/provider/charges"), `[{`)
	p.wantCharges(1)
	run(g.next("9000"), "HTTP/1.1 422")
	declined := g.next("cus_declined")
	run(declined, "HTTP/1.1 402")
	run(declined, "HTTP/1.1 402", "Idempotent-Replayed: true")
	run(g.next(`"amount":0`), "HTTP/1.1 400", "amount")
	run(g.next("for i in 1 2"), "HTTP/1.1 201", "HTTP/1.1 409", "Retry-After: ")
	p.wantCharges(2)

	p.kill()
	p = start(t, data, long, stuck)
	slowCharge := strings.TrimSuffix(strings.TrimSpace(g.next("b7a36f90-1e4d-4d52-8c7f-92e5d0ab4613")), "&")
	broken := exec.Command("bash", "-c", g.on(p, slowCharge))
	if err := broken.Start(); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "the provider has booked", func() bool { return p.charges() == 3 })
	if block := g.next("kill -9"); strings.TrimSpace(block) != "kill -9 PID" {
		t.Fatalf("the guide kills with %q", block)
	}
	p.kill()
	p = start(t, data, long)
	broken.Wait()
	run(slowCharge, "HTTP/1.1 409", "in-progress")
	p.kill()
	store, closed := openFile(t, data)
	kit.SetLease(t, store, guideCharge.RecordID(), time.Now().Add(-time.Second))
	closed()
	p = p.restart()
	p.wantProblem(p.post(guideCharge.ID, slow), http.StatusConflict, "outcome-unknown")
	run(g.next("/admin/resolve"), "HTTP/1.1 200", "completed")
	run(slowCharge, "HTTP/1.1 201", "Idempotent-Replayed: true")
	p.wantCharges(3)

	inStripe, _, _ := strings.Cut(g.next("PROFILE=stripe"), " ")
	other := start(t, t.TempDir(), inStripe)
	other.want(other.post("", aCharge), http.StatusBadRequest)
	run(g.next("charge.sh"), "the provider booked 3 charges")
	run(g.next("./examples/charge-lambda/cmd/lambda"))
	g.end()

	g = newGuide(t, "playground", "README.md")
	if block := g.next("make run"); block != "make run\n" {
		t.Fatalf("the playground starts with %q", block)
	}
	run(g.next("policy openapi"), "# Idempotency keys", `"openapi": "3.1.0"`, "UUID")
	g.end()
}

// The operator's guide, followed from top to bottom at a terminal: each block of
// commands runs unchanged, and does what the text around it states.
func TestOperatorsGuide(t *testing.T) {
	t.Parallel()
	g := newGuide(t, "docs", "operate.md")
	const table = "once-records" // the name in the guide
	env := dynamoEnv(t, table)
	p := start(t, t.TempDir(), append(env, "ONCE_CREATE_TABLE=1")...)
	store := openTable(t, table)
	t.Cleanup(func() { // another run may use the same engine
		endpoint, _ := database()
		name := table
		if _, err := dynamostore.NewClient(engine.Config(endpoint)).DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &name}); err != nil {
			t.Error(err)
		}
	})
	o := newOperator(t, env...)
	next := func(mark string, want ...string) string {
		t.Helper()
		block := g.on(p, g.next(mark))
		cmd := o.command("bash", "-euo", "pipefail", "-c", block)
		if strings.HasPrefix(block, "go build") {
			cmd.Dir, cmd.Env = engine.Root(), os.Environ()
		}
		shown, err := atTerminal(t, cmd)
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, block, shown)
		}
		g.wants(block, shown, want...)
		return shown
	}
	next("go build")
	o.env = append(o.env, "PATH="+g.scratch+":"+os.Getenv("PATH"))
	next("export ONCE_TABLE", "table once-records in us-east-1 can be used as a store")

	// The records in the guide: unknown ones, one of which was given up.
	strand(t, store, guideCharge, guideNoCharge, guideTransfer, guideRefund, guideReport)
	insert(t, store, guideOrder, func(r *driver.Record) {
		r.State, r.Reason, r.Since = driver.StateUnknown, driver.ReasonInterrupted, r.LeaseEnd
		r.Recovery, r.StepNames = idempotent.Resume, []string{"charge", "ship"}
		r.Steps = []driver.StepRecord{{Name: "charge", Mode: driver.AtMostOnce, Attempt: 1, At: r.Created}}
	})
	short := func(k idempotent.Key) string { return k.Operation + "#" + k.RecordID().KeyHash() }
	next("--state unknown", short(guideCharge), short(guideNoCharge), short(guideTransfer), short(guideRefund))
	next("--exhausted", short(guideRefund), "given up", `"state":"unknown"`)
	shown := next("'#4RexMqXSY3Lf'")
	if n := strings.Count(shown, string(guideCharge.RecordID())+"\n"); n != 3 {
		t.Errorf("the record is shown %d times of 3:\n%s", n, shown)
	}
	next("--step capture", "capture: not recorded", guideCharge.RecordID().StepKey("capture"))

	next("--status 201", short(guideCharge)+" was unknown and is completed", `"reason":"charge ch_5 is in the ledger of the provider"`)
	next("once resolve transfer", short(guideTransfer)+" was unknown and is completed")
	next("--without-result", short(guideReport)+" was unknown and is completed")
	next("--step 'charge=", short(guideOrder)+" has a result for charge; it was unknown and is retryable")
	next("--final", short(guideRefund)+" was unknown and is completed")
	next("--not-executed", short(guideNoCharge)+" was unknown and is retryable")
	states(t, store, map[idempotent.Key]driver.State{
		guideCharge: driver.StateCompleted, guideTransfer: driver.StateCompleted,
		guideRefund: driver.StateCompleted, guideNoCharge: driver.StateRetryable,
		guideReport: driver.StateCompleted, guideOrder: driver.StateRetryable,
	})
	o.wants(0, []string{short(guideOrder)}, "list", "--table", table, "--state", "resumable")

	// A record whose lease has ended, and two for the program: one that the
	// provider knows, and one that it does not.
	ended := idempotent.Key{Operation: "mail", Scope: "acme", ID: "m-3"}
	claim(t, store, ended)
	next("once reconcile --dry-run\nonce reconcile\n", "1 marked unknown; nothing was written", short(ended)+"  its lease ended without an outcome: unknown")

	booked := idempotent.Key{Operation: "POST /charges", Scope: idempotent.Global, ID: "e3572ab8-c0d9-4e81-9f36-58b1a4c7d02e"}
	never := idempotent.Key{Operation: "POST /charges", Scope: idempotent.Global, ID: "76c9d4f1-285e-4039-8b5a-e1f64d0793bc"}
	strand(t, store, booked, never)
	p.book(booked.RecordID().DownstreamKey())
	next("ask-provider", short(booked)+"  completed, with the HTTP response 201", short(never)+"  not executed",
		"2 due, 1 completed, 1 not executed; nothing was written\n", "2 due, 1 completed, 1 not executed\n")
	states(t, store, map[idempotent.Key]driver.State{booked: driver.StateCompleted, never: driver.StateRetryable})
	if audit, err := os.ReadFile(filepath.Join(g.scratch, "audit.jsonl")); err != nil || strings.Count(string(audit), `"outcome":"written"`) != 2 {
		t.Errorf("%v, the audit is %s", err, audit)
	}

	next("once stats", "POST /charges  completed", "read units, about $0.0000")
	expire(t, store)
	next("once purge", "1 record would be removed", "1 record removed")
	// The rest of the page, about many records, is run by the scripts of cmd/once.
	if len(g.blocks) != 4 || !strings.HasPrefix(g.blocks[0], "once lookup") {
		t.Errorf("these blocks are not followed: %q", g.blocks)
	}
}

var profiles = []string{"ietf", "stripe", "uuid"}

func requestsDir() string {
	return filepath.Join(engine.Root(), "examples", "charge-lambda", "requests")
}

// unhurried leaves a busy machine the time for a second request while the provider works.
const unhurried = "SLOW=20s"

// F50: the curl script checks every answer itself, also that of a second request
// while the first one runs. It runs twice over one store, and fails for an API
// with another profile.
func TestCurlScript(t *testing.T) {
	t.Parallel()
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			p := start(t, t.TempDir(), "PROFILE="+profile, long, unhurried)
			run := func(told string) (string, error) {
				cmd := exec.Command("timeout", patience, filepath.Join(requestsDir(), "charge.sh"))
				cmd.Env = append(os.Environ(), "URL="+p.url, "PROFILE="+told)
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			for range 2 {
				if out, err := run(profile); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			p.wantCharges(6)
			for _, other := range profiles {
				out, err := run(other)
				if wrong := other != profile; wrong != (err != nil) || wrong && !strings.Contains(out, "charge.sh: ") {
					t.Errorf("with PROFILE=%s, the script ended with %v\n%s", other, err, out)
				}
			}
			if out, err := run("rest"); err == nil || !strings.Contains(out, "ietf, stripe or uuid") {
				t.Errorf("got %v\n%s", err, out)
			}
			p.kill()
			if out, err := run(profile); err == nil || !strings.Contains(out, "no answer from") {
				t.Errorf("got %v\n%s", err, out)
			}
		})
	}
}

// entry is one request of a .http file and the expected answer in the file.
type entry struct {
	title  string
	answer []string // the status, and other parts of the answer
	text   string   // method, address, header lines, empty line, body
}

// readEntries reads a .http file, as editors do: "###" begins a request, "#" a
// comment, "@" a variable.
func readEntries(t *testing.T, file, url string) (entries []entry) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(data), "{{url}}", url)
	if !strings.Contains(text, "\n@url = http://127.0.0.1:8080\n") {
		t.Errorf("%s does not contain the example's address", file)
	}
	for i, block := range strings.Split(text, "\n### ") {
		if i == 0 {
			continue // the file's own header
		}
		title, rest, _ := strings.Cut(block, "\n")
		comment, request, _ := strings.Cut(rest, "\n")
		answer, ok := strings.CutPrefix(comment, "# Answer: ")
		if !ok {
			t.Fatalf("%s: %s: the answer is missing", file, title)
		}
		entries = append(entries, entry{title, strings.Split(answer, ", "), strings.TrimSpace(request)})
	}
	return entries
}

// request returns the request, unchanged, and its body.
func (e entry) request(t *testing.T) (r *http.Request, body string) {
	t.Helper()
	head, body, _ := strings.Cut(e.text, "\n\n")
	line, headers, _ := strings.Cut(head, "\n")
	method, url, _ := strings.Cut(line, " ")
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(headers) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			t.Fatalf("%s: %q is not a header", e.title, line)
		}
		r.Header.Add(name, value)
	}
	return r, body
}

// G13: for each profile, `make run` starts the example as a newcomer does. The requests
// for editors, sent from top to bottom, get the answers in the files. The output of
// `policy` is a page, and a document that is valid OpenAPI and agrees with the requests.
func TestProfiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(requestsDir(), "*.http"))
	if err != nil || len(files) != len(profiles) {
		t.Fatalf("found %q (%v), want one for each of %q", files, err, profiles)
	}
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			printed := func(args ...string) string {
				cmd := exec.Command(binary, args...)
				cmd.Env = append(os.Environ(), "PROFILE="+profile)
				out, err := cmd.Output()
				if err != nil {
					t.Fatal(err)
				}
				return string(out)
			}
			if page := printed("policy"); !strings.HasPrefix(page, "# Idempotency keys\n") || strings.Count(page, "\n| 4") < 8 {
				t.Errorf("the page is\n%s", page)
			}
			api, err := published.New([]byte(printed("policy", "openapi")))
			if err != nil {
				t.Fatal(err)
			}
			p := makeRun(t, profile)
			refused, accepted := 0, 0
			for _, e := range readEntries(t, filepath.Join(requestsDir(), profile+".http"), p.url) {
				q, body := e.request(t)
				r := exchange(q)
				if r.err != nil || strconv.Itoa(r.status) != e.answer[0] {
					t.Errorf("%s: got %d (%v) %s, want %s", e.title, r.status, r.err, r.body, e.answer[0])
				}
				replayed := false
				for _, part := range e.answer[1:] {
					if part == "Idempotent-Replayed" {
						replayed = true
					} else if !strings.Contains(r.body, part) {
						t.Errorf("%s: got %s, want %s in it", e.title, r.body, part)
					}
				}
				if (r.header.Get("Idempotent-Replayed") == "true") != replayed {
					t.Errorf("%s: got %v, want a replay: %t", e.title, r.header, replayed)
				}
				if q.Method != http.MethodPost {
					continue
				}
				switch err := api.Request(q.Header, body); {
				case err == nil:
					accepted++
				case strings.Contains(strings.Join(e.answer, " "), "key"):
					refused++
				default:
					t.Errorf("%s: the document refuses it: %v", e.title, err)
				}
			}
			if refused < 3 || accepted < 7 {
				t.Errorf("the document refuses %d requests and accepts %d", refused, accepted)
			}
			p.wantCharges(2)
			p.End(syscall.SIGTERM)
			if r := p.send("GET", "/provider/charges", "", ""); r.err == nil {
				t.Errorf("make was stopped, and the example still answers with %d", r.status)
			}
		})
	}
}

// makeRun starts the example with make.
func makeRun(t *testing.T, profile string) *process {
	t.Helper()
	cmd := exec.Command("make", "--no-print-directory", "run", "BIN="+t.TempDir())
	cmd.Dir = engine.Root()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.Cleanup(func() {
		if cmd.Process != nil {
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // make's own children, if make died before them
		}
	})
	return launch(t, cmd, t.TempDir(), "PROFILE="+profile)
}
