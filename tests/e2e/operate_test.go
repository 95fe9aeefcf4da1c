package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/lambdahttp"
	"github.com/once-lambda/once/tests/engine"
)

// The keys of the guide.
var (
	guideCharge   = idempotent.Key{Operation: "POST /charges", Scope: idempotent.Global, ID: "order-2026-000005"}
	guideNoCharge = idempotent.Key{Operation: "POST /charges", Scope: idempotent.Global, ID: "order-2026-000006"}
	guideTransfer = idempotent.Key{Operation: "transfer", Scope: "acme", ID: "t-17"}
	guideRefund   = idempotent.Key{Operation: "refund", Scope: "acme", ID: "r-9"}
	guideReport   = idempotent.Key{Operation: "report", Scope: "acme", ID: "2026-11"}
	guideOrder    = idempotent.Key{Operation: "order", Scope: "acme", ID: "o-8"}
)

// The operator's guide, followed from top to bottom at a terminal: each block of
// commands runs unchanged, and does what the text around it states.
func TestOperatorsGuide(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(engine.Root(), "docs", "operate.md"))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, b := range shell.FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, b[1])
	}
	const table = "once-records" // the name in the guide
	env := dynamoEnv(t, table)
	p := start(t, t.TempDir(), append(env, "ONCE_CREATE_TABLE=1", "TIMEOUT=3s")...)
	store := openTable(t, table)
	o := newOperator(t, env...)
	scratch := t.TempDir()

	next := func(mark string, want ...string) string {
		t.Helper()
		if len(blocks) == 0 || !strings.Contains(blocks[0], mark) {
			t.Fatalf("the next block of commands is %q, want one with %q", blocks, mark)
		}
		block := strings.ReplaceAll(strings.ReplaceAll(blocks[0], "http://127.0.0.1:8080", p.url), "/tmp/", scratch+"/")
		blocks = blocks[1:]
		cmd := o.command("bash", "-euo", "pipefail", "-c", block)
		if strings.HasPrefix(block, "go build") {
			cmd.Dir, cmd.Env = engine.Root(), os.Environ()
		}
		shown, err := atTerminal(t, cmd)
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, block, shown)
		}
		for _, w := range want {
			if !strings.Contains(shown, w) {
				t.Fatalf("no %q in\n%s\nafter\n%s", w, shown, block)
			}
		}
		return shown
	}
	next("go build")
	o.env = append(o.env, "PATH="+scratch+":"+os.Getenv("PATH"))
	next("export ONCE_TABLE", "table once-records in us-east-1 can be used as a store")

	// The records in the guide: unknown ones, one of which was given up.
	strand(t, store, guideCharge, guideNoCharge, guideTransfer, guideRefund, guideReport)
	insert(t, store, guideOrder, func(r *driver.Record) {
		r.State, r.Reason, r.Settled = driver.StateUnknown, driver.ReasonInterrupted, r.LeaseEnd
		r.Recovery, r.StepNames = idempotent.Resume, []string{"charge", "ship"}
		r.Steps = []driver.StepRecord{{Name: "charge", Mode: driver.AtMostOnce, Attempt: 1, At: r.Created}}
	})
	short := func(k idempotent.Key) string { return k.Operation + "#" + k.RecordID().KeyHash() }
	next("--state unknown", short(guideCharge), short(guideNoCharge), short(guideTransfer), short(guideRefund))
	next("--exhausted", short(guideRefund), "given up", `"state":"unknown"`)
	shown := next("'#wiF9Nlkg_8wN'")
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

	booked := idempotent.Key{Operation: "POST /charges", Scope: idempotent.Global, ID: "order-2026-000007"}
	never := idempotent.Key{Operation: "POST /charges", Scope: idempotent.Global, ID: "order-2026-000008"}
	strand(t, store, booked, never)
	p.book(booked.RecordID().DownstreamKey())
	next("ask-provider", short(booked)+"  completed, with the HTTP response 201", short(never)+"  not executed",
		"2 due, 1 completed, 1 not executed; nothing was written\n", "2 due, 1 completed, 1 not executed\n")
	states(t, store, map[idempotent.Key]driver.State{booked: driver.StateCompleted, never: driver.StateRetryable})
	if audit, err := os.ReadFile(filepath.Join(scratch, "audit.jsonl")); err != nil || strings.Count(string(audit), `"outcome":"written"`) != 2 {
		t.Errorf("%v, the audit is %s", err, audit)
	}

	next("once stats", "POST /charges  completed", "read units, about $0.0000")
	expire(t, store)
	next("once purge", "1 record would be removed", "1 record removed")
	if len(blocks) != 0 {
		t.Errorf("these blocks are not followed: %q", blocks)
	}
}

var sample = regexp.MustCompile("(?ms)^```text\n(.*?)^```$")

// The samples in the guide are the output of the commands: each one is an
// expected output in the command line's own tests. The same holds for the exit
// codes.
func TestOperatorsGuideShowsTheTruth(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(engine.Root(), "docs", "operate.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(engine.Root(), "cmd", "once", "testdata", "*.golden"))
	if err != nil {
		t.Fatal(err)
	}
	var golden []string
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		golden = append(golden, string(data))
	}
	samples := sample.FindAllStringSubmatch(string(text), -1)
	if len(samples) == 0 {
		t.Error("no sample was found")
	}
	for _, s := range samples {
		if !slices.Contains(golden, s[1]) {
			t.Errorf("no command prints\n%s", s[1])
		}
	}
	help := newOperator(t).wants(0, nil, "--help")
	codes := regexp.MustCompile(`(?m)^    (\d)  (.*)$`).FindAllStringSubmatch(help, -1)
	if len(codes) != 5 {
		t.Errorf("%d exit codes in the help", len(codes))
	}
	for _, c := range codes {
		if !strings.Contains(string(text), "\n| "+c[1]+" | "+c[2]+" |\n") {
			t.Errorf("the guide does not list exit code %s as %q", c[1], c[2])
		}
	}
}

// book makes the provider charge under a key.
func (p *process) book(key string) {
	p.t.Helper()
	req, err := http.NewRequest("POST", p.url+"/provider/charges", strings.NewReader(aCharge))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		p.t.Fatalf("the provider answered %s", resp.Status)
	}
}

// openTable returns the store on a table of the engine.
func openTable(t *testing.T, table string) *dynamostore.Store {
	t.Helper()
	endpoint, err := database()
	if err != nil {
		t.Fatal(err)
	}
	s, err := dynamostore.New(dynamostore.NewClient(engine.Config(endpoint)), table)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// hourAgo is a guard's clock, so that its records are old.
func hourAgo() time.Time { return time.Now().Add(-time.Hour) }

func insert(t *testing.T, s driver.Store, k idempotent.Key, change func(*driver.Record)) {
	t.Helper()
	at := hourAgo().UTC().Truncate(time.Millisecond)
	r := driver.Record{
		ID: k.RecordID(), State: driver.StateInProgress, Reason: driver.ReasonClaimed, Attempt: 1,
		Version: driver.Version{1}, Owner: driver.Owner{2}, Fingerprint: idempotent.FingerprintBytes(nil),
		Created: at, LeaseEnd: at.Add(10 * time.Second), Due: at.Add(10 * time.Second),
	}
	if k.Operation == guideCharge.Operation {
		r.Codec = lambdahttp.Encoding
	}
	change(&r)
	if met, err := s.Insert(t.Context(), r, time.Now()); met != nil || err != nil {
		t.Fatal(met, err)
	}
}

// claim creates records whose owner died while it was running.
func claim(t *testing.T, s driver.Store, keys ...idempotent.Key) {
	t.Helper()
	for _, k := range keys {
		insert(t, s, k, func(*driver.Record) {})
	}
}

// strand creates unknown records; the refunds are exhausted.
func strand(t *testing.T, s driver.Store, keys ...idempotent.Key) {
	t.Helper()
	for _, k := range keys {
		insert(t, s, k, func(r *driver.Record) {
			r.State, r.Reason, r.Settled = driver.StateUnknown, driver.ReasonLeaseEnded, r.LeaseEnd
			r.Exhausted = k.Operation == "refund"
		})
	}
}

// expire creates a completed record that expired long ago.
func expire(t *testing.T, s driver.Store) {
	t.Helper()
	insert(t, s, idempotent.Key{Operation: "charge", Scope: "acme", ID: "old"}, func(r *driver.Record) {
		r.State, r.Reason, r.Due = driver.StateCompleted, driver.ReasonResult, time.Time{}
		r.Settled = time.Now().UTC().AddDate(0, 0, -60).Truncate(time.Millisecond)
		r.Expires = r.Settled.AddDate(0, 0, 1)
		r.Encoding, r.Result = "json", []byte("1")
	})
}

func states(t *testing.T, s driver.Store, want map[idempotent.Key]driver.State) {
	t.Helper()
	for k, state := range want {
		if r, err := s.Get(t.Context(), k.RecordID()); err != nil || r.State != state {
			t.Errorf("%s %s: got %+v, %v, want it %s", k.Operation, k.ID, r, err, state)
		}
	}
}
