// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit/engine"
)

// sites are the two kinds of store, each with an operator.
func sites(t *testing.T) map[string]func(t *testing.T) (o *operator, open func(f func(driver.Store))) {
	t.Helper()
	return map[string]func(t *testing.T) (*operator, func(func(driver.Store))){
		"table": func(t *testing.T) (*operator, func(func(driver.Store))) {
			table := tableName()
			o := newOperator(t, dynamoEnv(t, table)...)
			o.wants(0, nil, "table", "create")
			return o, func(f func(driver.Store)) { f(openTable(t, table)) }
		},
		"file": func(t *testing.T) (*operator, func(func(driver.Store))) {
			o := newOperator(t, "ONCE_FILE=once.db") // a short name, for short lines
			file := filepath.Join(o.dir, "once.db")
			o.wants(0, nil, "table", "create")
			return o, func(f func(driver.Store)) {
				s, err := boltstore.Open(file, func(o *boltstore.Options) { o.KeepExpired = true })
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				f(s)
			}
		},
	}
}

// An operator's night at a terminal: a file of evidence, a requeue, a wrong
// outcome. Each word that is typed wrongly changes nothing.
func TestVerbsAtATerminal(t *testing.T) {
	t.Parallel()
	for name, site := range sites(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, open := site(t)
			done := idempotent.Key{Operation: "transfer", Scope: "acme", ID: "t-1"}
			open(func(s driver.Store) {
				strand(t, s, guideTransfer, guideReport, guideRefund)
				insert(t, s, done, func(r *driver.Record) {
					r.State, r.Reason, r.Due, r.Since = driver.StateCompleted, driver.ReasonResult, time.Time{}, r.LeaseEnd
					r.Expires, r.Encoding, r.Result = time.Now().UTC().Add(time.Hour).Truncate(time.Millisecond), "json", []byte(`{"transfer_id":"tr_1"}`)
				})
			})
			want := func(all map[idempotent.Key]driver.State) {
				t.Helper()
				open(func(s driver.Store) { states(t, s, all) })
			}
			wrong := func(args ...string) {
				t.Helper()
				shown, err := typing(t, o.command(o.bin, args...), 80, func(string) string { return "y\n" })
				if err == nil || !strings.Contains(shown, "not confirmed; nothing was written") {
					t.Errorf("once %q: %v\n%s", args, err, shown)
				}
			}
			const file = "evidence.jsonl"
			write := func(result string) {
				t.Helper()
				text := fmt.Sprintf("{\"record\": %q, \"completed\": %s}\n{\"record\": %q, \"without_result\": true}\n", guideTransfer.RecordID(), result, guideReport.RecordID())
				if err := os.WriteFile(filepath.Join(o.dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			bulk := []string{"resolve", "--from", file, "--reason", "the statement"}
			write("[1]")
			o.wants(4, []string{"it is an array, not an object", "--force"}, append(bulk, "--yes")...)
			var id strings.Builder // so large that a table stores the result beside its record
			for id.Len() < 20_000 {
				id.WriteString(rand.Text())
			}
			write(`{"transfer_id":"` + id.String() + `"}`)
			o.wants(0, []string{"2 records: 2 would be written"}, append(bulk, "--dry-run")...)
			wrong(bulk...)
			want(map[idempotent.Key]driver.State{guideTransfer: driver.StateUnknown, guideReport: driver.StateUnknown})
			if shown := o.types(bulk...); !strings.Contains(shown, "2 records: 2 written") {
				t.Errorf("the file:\n%s", shown)
			}
			want(map[idempotent.Key]driver.State{guideTransfer: driver.StateCompleted, guideReport: driver.StateCompleted})
			o.wants(0, []string{"2 records: 2 unchanged"}, append(bulk, "--dry-run")...)
			o.wants(0, []string{"2 records: 2 unchanged"}, append(bulk, "--yes")...)

			wrong("requeue", "--exhausted", "--reason", "outage")
			if shown := o.types("requeue", "--exhausted", "--reason", "outage"); !strings.Contains(shown, "1 record: 1 written") {
				t.Errorf("requeue:\n%s", shown)
			}
			o.wants(0, []string{"no such records"}, "list", "--exhausted")
			o.wants(0, []string{"refund"}, "list", "--due")

			wrong("forget", "transfer", "--scope", "acme", "--key", "t-17", "--reason", "another key's")
			if shown := o.types("forget", "transfer", "--scope", "acme", "--key", "t-17", "--reason", "another key's"); !strings.Contains(shown, "is discarded") {
				t.Errorf("forget:\n%s", shown)
			}
			want(map[idempotent.Key]driver.State{guideTransfer: driver.StateRetryable, done: driver.StateCompleted})
			o.wants(7, []string{"retryable (forgotten)"}, "lookup", "transfer", "--scope", "acme", "--key", "t-17")
			// Without a terminal nothing is asked, and nothing is written.
			o.wants(2, []string{"needs a terminal"}, "forget", "transfer", "--scope", "acme", "--key", "t-1", "--reason", "why")
			o.wants(2, []string{"needs a terminal"}, bulk...)
			o.wants(2, []string{"needs a terminal"}, "requeue", "--exhausted", "--reason", "why")
			// A narrow terminal has the columns that commands take as arguments.
			shown, err := typing(t, o.command(o.bin, "list"), 40, nil)
			if err != nil || !strings.Contains(shown, "transfer#") || strings.Contains(shown, "REF") {
				t.Errorf("at 40 columns: %v\n%s", err, shown)
			}
		})
	}
}

// An interrupted command at its question writes nothing, and one that runs a
// program ends it.
func TestTerminated(t *testing.T) {
	t.Parallel()
	table := tableName()
	o := newOperator(t, dynamoEnv(t, table)...)
	o.wants(0, nil, "table", "create")
	strand(t, openTable(t, table), guideTransfer)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		cmd := o.command(o.bin, "resolve", "transfer", "--scope", "acme", "--key", "t-17", "--without-result", "--reason", "why")
		shown, _ := typing(t, cmd, 80, func(string) string { cmd.Process.Signal(signal); return "" })
		if cmd.ProcessState.ExitCode() != 4 || !strings.Contains(shown, "not confirmed; nothing was written") {
			t.Errorf("%s: exit code %d\n%s", signal, cmd.ProcessState.ExitCode(), shown)
		}
	}
	states(t, openTable(t, table), map[idempotent.Key]driver.State{guideTransfer: driver.StateUnknown})

	pipe := filepath.Join(o.dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := o.command(o.bin, "reconcile", "--timeout", "10m", "--exec", "(echo begun; sleep 600) >"+pipe+" & wait")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(pipe) // the program has begun
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	begun := make([]byte, len("begun\n"))
	if _, err := in.Read(begun); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if n, err := in.Read(begun); n != 0 || err == nil { // the child holds the pipe open while it runs
		t.Errorf("the program's child wrote %q, %v", begun[:n], err)
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d", code)
	}
}

// After an outcome with a large result is discarded, its parts expire by
// themselves.
func TestForgottenPartsExpire(t *testing.T) {
	t.Parallel()
	table := tableName()
	o := newOperator(t, dynamoEnv(t, table)...)
	o.wants(0, nil, "table", "create")
	s := openTable(t, table)
	large := completeLarge(t, s)
	r, err := s.Get(t.Context(), large.RecordID())
	if err != nil || r.Chunks.Count < 2 {
		t.Fatal(r, err)
	}
	aged := *r
	aged.LeaseEnd = time.Now().UTC().Add(-time.Second).Truncate(time.Millisecond)
	if met, err := s.Replace(t.Context(), aged, r.Version); met != nil || err != nil {
		t.Fatal(met, err)
	}
	o.wants(0, []string{"is discarded"}, "forget", string(r.ID), "--token", r.Token(), "--yes", "--reason", "why")
	endpoint, err := database()
	if err != nil {
		t.Fatal(err)
	}
	out, err := dynamostore.NewClient(engine.Config(endpoint)).Scan(t.Context(), &dynamodb.ScanInput{TableName: &table})
	if err != nil {
		t.Fatal(err)
	}
	parts := 0
	for _, item := range out.Items {
		key := item["pk"].(*types.AttributeValueMemberS).Value
		if _, expires := item[dynamostore.TTLAttribute]; !expires {
			t.Errorf("%s never expires", key)
		}
		if key != string(r.ID) {
			parts++
		}
	}
	if parts != r.Chunks.Count {
		t.Errorf("%d parts are left, want %d with a time to live", parts, r.Chunks.Count)
	}
	if _, err := s.Get(t.Context(), r.ID); err != nil {
		t.Error(err)
	}
}

// A wrong store is an error that says so, whatever the command asks for.
func TestVerbsOnAWrongStore(t *testing.T) {
	t.Parallel()
	endpoint, err := database()
	if err != nil {
		t.Fatal(err)
	}
	table := tableName()
	name, one := "pk", types.ScalarAttributeTypeS
	if _, err := dynamostore.NewClient(engine.Config(endpoint)).CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &name, AttributeType: one}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: &name, KeyType: types.KeyTypeHash}},
	}); err != nil {
		t.Fatal(err)
	}
	o := newOperator(t, dynamoEnv(t, table)...)
	record := string(guideTransfer.RecordID())
	for _, args := range [][]string{
		{"list"}, {"stats"}, {"show", record}, {"lookup", record},
		{"resolve", record, "--without-result", "--reason", "why", "--yes"},
		{"forget", record, "--token", "aa", "--reason", "why", "--yes"},
		{"requeue", record, "--reason", "why"},
	} {
		o.wants(1, []string{"table " + table + " in us-east-1 is not a table of once", "once table check"}, args...)
	}
	for _, args := range [][]string{{"list", "--state", "unknown"}, {"console"}, {"requeue", "--exhausted", "--reason", "why", "--yes"}, {"show", "#4RexMqXSY3Lf"}} {
		o.wants(1, []string{"index", "once table check", "--no-index"}, args...)
	}

	file := filepath.Join(t.TempDir(), "once.db")
	o = newOperator(t, "ONCE_FILE="+file)
	o.wants(0, nil, "table", "create")
	s, err := boltstore.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, args := range [][]string{{"lookup", record}, {"forget", record, "--token", "aa", "--reason", "why", "--yes"}} {
		o.wants(1, []string{"held by another process", "stop that process"}, args...)
	}
}
