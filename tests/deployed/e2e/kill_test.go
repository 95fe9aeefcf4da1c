// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit"
)

// The environment of an example that is killed during a charge, however busy the machine:
// the request has no time-out that matters, and the provider does not answer.
var long, stuck = "TIMEOUT=" + kit.Patience.String(), "SLOW=" + kit.Patience.String()

// F33, F36, F90, G02: SIGKILL while the provider works: the effect has happened,
// but no answer was received. The client's retries get 409 and are never charged
// again. An operator finds the charge by the client's key, looks it up at the
// provider by the downstream key, and settles it. The client's retry gets the
// replay. After another kill, other requests that were completed get theirs.
func TestOperatorSettlesAnUnknownCharge(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, env []string) {
		dir := t.TempDir()
		o := newOperator(t, env...)
		open := func() (driver.Store, func()) {
			return openTable(t, strings.TrimPrefix(env[0], "ONCE_TABLE=")), func() {}
		}
		if len(env) == 0 {
			open = func() (driver.Store, func()) { return openFile(t, dir) }
			o.dir, o.env = dir, append(o.env, "ONCE_FILE=once.db") // a line with the whole path would not fit a terminal
		}
		env = append(env, long, stuck)
		p := start(t, dir, env...)
		broken := make(chan reply, 1)
		go func() { broken <- p.post(key, slow) }()
		kit.Eventually(t, "the provider has booked", func() bool { return p.charges() == 1 })
		p.kill()
		if r := <-broken; r.err == nil {
			t.Fatalf("the first request was answered with %d before the kill", r.status)
		}
		byKey := []string{"POST /charges", "--global", "--key", key}
		// Too early: the owner may still be running.
		var running struct{ Token string }
		if err := json.Unmarshal([]byte(o.wants(0, nil, append(append([]string{"show"}, byKey...), "--json")...)), &running); err != nil {
			t.Fatal(err)
		}
		for _, more := range [][]string{{"--not-executed", "--token", running.Token}, {"--status", "201", "--completed", "{}"}} {
			o.wants(4, []string{"in progress; retry after"}, append(append(append([]string{"resolve"}, byKey...), more...), "--yes", "--reason", "a guess")...)
		}
		store, closed := open()
		kit.SetLease(t, store, charge.RecordIDOf(key), time.Now().Add(-time.Second))
		closed()
		o.wants(0, []string{"its lease ended without an outcome: unknown"}, "reconcile")
		p = start(t, dir, env...)
		refused := p.post(key, slow)
		p.wantProblem(refused, http.StatusConflict, "outcome-unknown")
		if s, err := strconv.Atoi(refused.header.Get("Retry-After")); err != nil || s < 1 {
			t.Errorf("409 with Retry-After %q", refused.header.Get("Retry-After"))
		}
		p.wantProblem(p.post(key, otherSlow), http.StatusUnprocessableEntity, "key-reused")
		p.wantCharges(1)
		p.kill()

		// Which record is it, and how old?
		listed := o.types("list", "--state", "unknown")
		id := regexp.MustCompile(`(?m)^(POST /charges#\S{12})  unknown  \d+\w+ .* lease_ended `).FindStringSubmatch(listed)
		if id == nil {
			t.Fatalf("the list does not show the charge:\n%s", listed)
		}
		// By which key does the provider know it?
		shown := o.types(append([]string{"show"}, byKey...)...)
		if again := o.types("show", id[1]); !strings.Contains(again, id[1]) || !strings.Contains(shown, id[1]) {
			t.Errorf("the client's key and the list show two records:\n%s\n%s", shown, again)
		}
		downstream := regexp.MustCompile(`(?m)^ +(once-\S+)$`).FindStringSubmatch(shown)
		if downstream == nil {
			t.Fatalf("no downstream key in\n%s", shown)
		}
		// The provider's ledger has it.
		body := inLedger(t, filepath.Join(dir, "ledger.jsonl"), downstream[1])
		var charged struct{ ID string }
		if err := json.Unmarshal(body, &charged); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(o.dir, "charge.json"), body, 0o600); err != nil {
			t.Fatal(err)
		}
		settled := o.types(append(append([]string{"resolve"}, byKey...),
			"--status", "201", "--header", "Location: /charges/"+charged.ID, "--completed", "@charge.json",
			"--reason", "the provider's ledger has "+charged.ID, "--audit", "audit.jsonl")...)
		if !strings.Contains(settled, "Every retry gets this.") || !strings.Contains(settled, id[1]+" was unknown and is completed") {
			t.Errorf("resolve shows\n%s", settled)
		}
		audit, err := os.ReadFile(filepath.Join(o.dir, "audit.jsonl"))
		if err != nil || strings.Count(string(audit), "\n") != 1 || !strings.Contains(string(audit), charged.ID) || strings.Contains(string(audit), key) {
			t.Errorf("%v, the audit is %s", err, audit)
		}
		o.wants(0, []string{"no such records"}, "list", "--state", "unknown")

		// The client tries again.
		p = start(t, dir, env...)
		r := p.post(key, slow)
		p.want(r, http.StatusCreated)
		if r.header.Get("Idempotent-Replayed") != "true" || r.header.Get("Location") != "/charges/"+charged.ID || r.body != string(body) ||
			r.header.Get("Content-Type") != "application/json" {
			t.Errorf("the retry got %v\n%s\nwant the replay of\n%s", r.header, r.body, body)
		}
		p.wantCharges(1)

		const other, refusedKey = "0c5b1e9a-52a7-4f0e-9b1d-7f3a86c2d415", "2f1c5a0e-6b7d-4c38-9a41-d05e8f3b7c62"
		first, refusal := p.post(other, aCharge), p.post(refusedKey, declined)
		p.want(first, http.StatusCreated)
		p.want(refusal, http.StatusPaymentRequired)
		p = p.restart()
		p.wantSame(p.post(other, aCharge), first)
		p.wantSame(p.post(refusedKey, declined), refusal)
		p.wantCharges(2)
	})
}

// openFile opens the store of an example that does not run.
func openFile(t *testing.T, dir string) (s driver.Store, closed func()) {
	t.Helper()
	file, err := boltstore.Open(filepath.Join(dir, "once.db"))
	if err != nil {
		t.Fatal(err)
	}
	return file, func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}

// inLedger returns the provider's charge of a key.
func inLedger(t *testing.T, file, key string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, `"idempotency_key":"`+key+`"`) {
			return []byte(strings.TrimSpace(line))
		}
	}
	t.Fatalf("the ledger has no charge of %s:\n%s", key, data)
	return nil
}
