// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
)

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
