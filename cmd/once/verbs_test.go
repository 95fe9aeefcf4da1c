// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// The line of each state, and its exit code.
func TestLookup(t *testing.T) {
	t.Parallel()
	resumed := record(key("order", "acme", "o-8"), time.Hour, func(r *driver.Record) {
		settled(r, driver.StateRetryable, driver.ReasonHandlerError, time.Hour)
		r.Recovery, r.Due, r.Expires = idempotent.Resume, night.Add(time.Minute), time.Time{}
	})
	d := newDesk(t, append(aNight(t), resumed)...)
	for _, row := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"POST /charges", "--global", "--key", paidKey.ID}, exitOK, "POST /charges#ty7jY4HjuNMR completed (result) since 2026-11-21 00:12:00Z\n"},
		{[]string{"POST /charges", "--global", "--key", declinedKey.ID}, exitOK, "completed (final)"},
		{[]string{"POST /charges", "--global", "--key", runningKey.ID}, exitInProgress, "in_progress (claimed) since 2026-11-21 03:11:56Z\n"},
		{[]string{"#4RexMqXSY3Lf"}, exitUnknown, "unknown (lease_ended)"},
		{[]string{"invoice", "--scope", "acme", "--key", "i-2"}, exitRetryable, "retryable (handler_error)"},
		{[]string{string(resumed.ID)}, exitResumable, "resumable (handler_error) since 2026-11-21 02:12:00Z\n"},
		{[]string{"invoice", "--scope", "acme", "--key", "i-0"}, exitNotFound, "expired at 2026-08-24 03:12:00Z (89d ago), so the key is new"},
		{[]string{"invoice", "--scope", "acme", "--key", "i-7"}, exitNotFound, "no such record"},
	} {
		got := d.once(append([]string{"lookup"}, row.args...)...).exits(row.code).says(row.says)
		if lines := strings.Count(got.out+got.err, "\n"); lines != 1 {
			t.Errorf("%q: %d lines", row.args, lines)
		}
	}
	d.once("lookup", "#4RexMqXSY3Lf").exits(exitUnknown).golden("lookup")
	d.once("lookup", string(chargeKey.RecordID()), "--json").exits(exitUnknown).says(`"state":"unknown"`).saysNot("once:")
}

// Records that reconciliation gave up become due again, one or all, and the audit
// has a line for each.
func TestRequeue(t *testing.T) {
	t.Parallel()
	second := record(key("mail", "acme", "m-9"), time.Hour, func(r *driver.Record) {
		settled(r, driver.StateUnknown, driver.ReasonUnknown, time.Hour)
		r.Exhausted, r.ReconcileAttempts = true, 3
	})
	newDesk(t, aNight(t)...).once("requeue", "--exhausted", why, "--dry-run").ok().golden("requeue-dry-run")
	resumes := record(key("mail", "acme", "m-10"), 20*time.Minute, func(r *driver.Record) {
		r.Recovery, r.StepNames, r.Due = idempotent.Resume, []string{"send"}, r.LeaseEnd
	})
	d := newDesk(t, append(aNight(t), second, resumes)...)
	d.unchanged(func() {
		d.once("requeue", "--exhausted", why, "--dry-run").ok().says("2 records: 2 would be written")
		d.once("requeue", "--exhausted", why, "--dry-run", "--operation", "transfer").ok().says("0 records")
		d.once("requeue", "--exhausted", why).exits(exitUsage).says("needs a terminal")
		d.typing("1\n")
		d.once("requeue", "--exhausted", why).exits(exitRefused).says("requeue  2 records", "refund: 1", "mail: 1", "Type 2 to write it", "not confirmed")
	})
	d.typing("1\n")
	d.once("requeue", "--exhausted", "--operation", "mail", why).ok().says("1 record: 1 written", `"action":"requeue"`, `"record":"`+string(second.ID), `"reason":"the provider's ledger has it"`, `"user":"ada"`)
	if r := d.get(second.ID); r.Exhausted || r.ReconcileAttempts != 0 || !r.Due.Equal(night) {
		t.Errorf("the record is %+v", r)
	}
	if r := d.get(refundKey.RecordID()); !r.Exhausted {
		t.Error("a record of another operation was requeued")
	}
	d.once("requeue", "#Xvk3zSc6bVqW", why).ok().says("refund#Xvk3zSc6bVqW  written")
	d.once("requeue", "--exhausted", why, "--yes", "--json").ok().says(`"summary":{"records":0,`)
	// A long pause ends too. A record that does not wait for evidence is refused.
	d.once("requeue", string(transferKey.RecordID()), why).ok()
	// A run that was abandoned is judged first, and the audit has what it became.
	d.once("requeue", string(strandedKey.RecordID()), why).ok().says("written", `"from":"in_progress","to":"unknown"`)
	d.once("requeue", string(resumes.ID), why).ok().says("written", `"from":"in_progress","to":"retryable"`)
	d.unchanged(func() {
		d.once("requeue", string(paidKey.RecordID()), why).exits(exitRefused).says("is completed and does not wait for evidence", `"outcome":"refused"`)
		d.once("requeue", string(runningKey.RecordID()), why).exits(exitRefused).says("in progress")
		d.once("requeue", string(key("no", "such", "key").RecordID()), why).exits(exitNotFound)
	})
	for _, row := range []struct {
		says string
		args []string
	}{
		{"want one RECORD, or --exhausted", []string{why}},
		{"omit RECORD", []string{"--exhausted", "refund", why}},
		{"is for --exhausted", []string{"#Xvk3zSc6bVqW", "--operation", "refund", why}},
		{"were all set", []string{"--exhausted", "--key", "k", why}},
		{`"reason" not set`, []string{"--exhausted"}},
	} {
		d.once(append([]string{"requeue"}, row.args...)...).exits(exitUsage).says(row.says)
	}
}

// A wrong outcome is discarded only after the record's hash is typed, or with the
// token of its attempt.
func TestForget(t *testing.T) {
	t.Parallel()
	d := newDesk(t, aNight(t)...)
	forget := func(more ...string) said {
		return d.once(append([]string{"forget", string(paidKey.RecordID()), why}, more...)...)
	}
	paid := d.get(paidKey.RecordID())
	d.unchanged(func() {
		forget().exits(exitUsage).says("needs a terminal")
		forget("--yes").exits(exitUsage).says("--yes needs --token")
		forget("--dry-run").ok().says("POST /charges#ty7jY4HjuNMR: the outcome would be discarded; nothing was written").saysNot(`"action"`)
		forget("--yes", "--token", "00").exits(exitRefused).says("the token is not that of its current attempt", `"action":"forget"`, `"outcome":"refused"`)
		d.typing("yes\n")
		forget().exits(exitRefused).golden("forget")
	})
	d.typing("ty7jY4HjuNMR\n")
	forget().ok().says("is discarded; the next request runs", `"action":"forget"`, `"from":"completed","to":"retryable"`, `"token":"`+paid.Token(), `"outcome":"written"`, `"reason":"the provider's ledger has it"`).saysNot("ch_1\"}")
	if r := d.get(paid.ID); r.State != driver.StateRetryable || r.Reason != driver.ReasonForgotten || r.Result != nil {
		t.Errorf("the record is %+v", r)
	}
	d.world.stdin, d.world.stdinTTY = nil, false
	d.unchanged(func() {
		forget("--yes", "--token", paid.Token()).ok().says("no outcome is stored; the next request runs", `"outcome":"unchanged"`)
		d.once("forget", string(chargeKey.RecordID()), why, "--yes", "--token", tokenOf(unknownCharge())).exits(exitRefused).says("is unknown and has no stored outcome")
		d.once("forget", string(runningKey.RecordID()), why, "--yes", "--token", d.get(runningKey.RecordID()).Token()).exits(exitRefused).says("in progress")
		d.once("forget", string(oldKey.RecordID()), why, "--yes", "--token", d.get(oldKey.RecordID()).Token()).exits(exitNotFound).says("expired")
	})
}

func TestVersion(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.once("version").ok().says("once version ", "go1.")
	d.once("version", "--json").ok().says(`"version": "`, `"platform": "`)
}

// The help of each command and the guide have the same exit codes. [desk.once]
// checks that no command returns another one.
func TestExitCodesAreDocumented(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "operate-bulk.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	walk(rootCommand(&env{}), func(cmd *cobra.Command) {
		codes := cmd.Annotations[exitsNote]
		if cmd.HasSubCommands() || cmd.Name() == "help" || cmd.Parent().Name() == "completion" {
			return
		}
		commands++
		name := strings.TrimPrefix(cmd.CommandPath(), "once ")
		if codes == "" || !strings.Contains(cmd.Long, "Exit codes: "+strings.ReplaceAll(codes, " ", ", ")) {
			t.Errorf("the help of once %s has no exit codes", name)
		}
		if row := fmt.Sprintf("\n| `%s` | %s |\n", name, strings.ReplaceAll(codes, " ", ", ")); !bytes.Contains(guide, []byte(row)) {
			t.Errorf("docs/operate-bulk.md has no row %s", strings.TrimSpace(row))
		}
	})
	if commands < 12 {
		t.Errorf("only %d commands were found", commands)
	}
	for line := range strings.Lines(exitCodes) {
		code, text, found := strings.Cut(strings.TrimSpace(line), "  ")
		if found && !bytes.Contains(guide, []byte("\n| "+code+" | "+text+" |\n")) {
			t.Errorf("docs/operate-bulk.md does not explain exit code %s as %q", code, text)
		}
	}
}

// Each error of AWS says what failed, why, and what to do.
func TestAnswersOfAWS(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		code, message string
		args          []string
		says          []string
	}{
		{"AccessDeniedException", "User is not authorized to perform: dynamodb:Query", []string{"list", "--due", "--no-scan"}, []string{"allow dynamodb:Query on the table", "index too", "Grant the permissions"}},
		{"AccessDeniedException", "User is not authorized to perform: dynamodb:GetItem", []string{"show", string(chargeKey.RecordID())}, []string{"allow dynamodb:GetItem on the table", "--profile"}},
		{"ResourceNotFoundException", "Requested resource not found", []string{"lookup", string(chargeKey.RecordID())}, []string{"Check --table, --region"}},
		{"ValidationException", "The table does not have the specified index: recovery", []string{"list", "--state", "unknown"}, []string{"index", "once table check", "--no-index"}},
		{"ValidationException", "The provided key element does not match the schema", []string{"show", string(chargeKey.RecordID())}, []string{"keys", "once table check"}},
		{"ExpiredTokenException", "The security token is expired", []string{"list"}, []string{"log in again"}},
		{"UnrecognizedClientException", "The security token is invalid", []string{"list"}, []string{"log in again"}},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			respond(w, http.StatusBadRequest, fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":%q}`, row.code, row.message))
		}))
		defer server.Close()
		code, text := onTable(t, server.URL, row.args...)
		if code != exitFailure {
			t.Errorf("%s: exit code %d\n%s", row.code, code, text)
		}
		for _, w := range append(row.says, row.message, "records") {
			if !strings.Contains(text, w) {
				t.Errorf("%s, once %s: no %q in\n%s", row.code, row.args[0], w, text)
			}
		}
	}
}

// respond answers as DynamoDB does.
func respond(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set("X-Amz-Crc32", fmt.Sprint(crc32.ChecksumIEEE([]byte(body))))
	w.WriteHeader(status)
	io.WriteString(w, body)
}

// onTable runs a command on a table behind an endpoint, and returns its exit code
// and its output.
func onTable(t *testing.T, endpoint string, args ...string) (int, string) {
	t.Helper()
	var out sharedBuffer
	w := &world{stdin: strings.NewReader(""), stdout: &out, stderr: &out, getenv: func(string) string { return "" }, now: time.Now}
	code := run(t.Context(), w, append(args, "--table", "records", "--region", "us-east-1", "--endpoint", endpoint, "--profile", "once-test"))
	return code, out.String()
}

// TestMain gives the SDK a profile with credentials: it reads the environment of
// the process, which tests cannot change in parallel.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "once-aws-")
	if err != nil {
		panic(err)
	}
	file := filepath.Join(dir, "credentials")
	if err := os.WriteFile(file, []byte("[once-test]\naws_access_key_id = test\naws_secret_access_key = test\n"), 0o600); err != nil {
		panic(err)
	}
	os.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	os.Setenv("AWS_CONFIG_FILE", os.DevNull)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// A table of another program is not reported as empty.
func TestWrongTable(t *testing.T) {
	t.Parallel()
	answer := func(described string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			table := described
			if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".DescribeTable") {
				table = `{"Items":[],"Count":0}`
			}
			respond(w, http.StatusOK, table)
		}
	}
	const ours = `{"Table":{"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}],"GlobalSecondaryIndexes":[{"IndexName":"recovery"}]}}`
	for _, row := range []struct {
		table string
		code  int
		says  string
		args  []string
	}{
		{`{"Table":{"KeySchema":[{"AttributeName":"id","KeyType":"HASH"}]}}`, exitFailure, "table records in us-east-1 is not a table of once", []string{"list"}},
		{`{"Table":{"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"},{"AttributeName":"sk","KeyType":"RANGE"}]}}`, exitFailure, "is not a table of once", []string{"list", "--no-index"}},
		{`{"Table":{"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}]}}`, exitFailure, "is not a table of once", []string{"stats"}},
		{`{"Table":{"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}]}}`, exitOK, "no such records in table records in us-east-1", []string{"list", "--no-index"}},
		{`{"Table":{"KeySchema":[{"AttributeName":"id","KeyType":"HASH"}]}}`, exitFailure, "is not a table of once", []string{"requeue", "--exhausted", why, "--dry-run"}},
		{`{"Table":{"KeySchema":[{"AttributeName":"id","KeyType":"HASH"}]}}`, exitFailure, "is not a table of once", []string{"show", "#4RexMqXSY3Lf"}},
		{`{"Table":{"KeySchema":[{"AttributeName":"id","KeyType":"HASH"}]}}`, exitFailure, "is not a table of once", []string{"lookup", string(chargeKey.RecordID())}},
		{`{"Table":{"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"},{"AttributeName":"sk","KeyType":"RANGE"}]}}`, exitOK, "no such records in table records in us-east-1",
			[]string{"list", "--no-index", "--sort-key", "sk", "--prefix", "ONCE#"}},
		{`{"Table":{"KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}]}}`, exitFailure, "is not a table of once", []string{"list", "--no-index", "--sort-key", "sk", "--prefix", "ONCE#"}},
		{ours, exitFailure, "is not a table of once", []string{"list", "--partition-key", "PK"}},
		{ours, exitUsage, "SortKey is set without a Prefix", []string{"list", "--sort-key", "sk"}},
		{ours, exitOK, "no such records in table records in us-east-1", []string{"list"}},
		{ours, exitNotFound, "no such record", []string{"lookup", string(chargeKey.RecordID())}},
	} {
		server := httptest.NewServer(answer(row.table))
		defer server.Close()
		if code, text := onTable(t, server.URL, row.args...); code != row.code || !strings.Contains(text, row.says) {
			t.Errorf("once %q: exit code %d, want %d and %q in\n%s", row.args, code, row.code, row.says, text)
		}
	}
}
