// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit/engine"
)

// At a terminal the operator types the word of the question. A narrow one has the
// columns that commands take as arguments.
func TestTerminal(t *testing.T) {
	t.Parallel()
	table := tableName()
	o := newOperator(t, dynamoEnv(t, table)...)
	o.wants(0, nil, "table", "create")
	s := openTable(t, table)
	strand(t, s, guideTransfer, guideRefund)
	requeue := []string{"requeue", "--exhausted", "--reason", "outage"}
	shown, err := typing(t, o.command(o.bin, requeue...), 80, func(string) string { return "y\n" })
	if err == nil || !strings.Contains(shown, "not confirmed; nothing was written") {
		t.Errorf("a wrong word: %v\n%s", err, shown)
	}
	if shown := o.types(requeue...); !strings.Contains(shown, "1 record: 1 written") {
		t.Errorf("the right word:\n%s", shown)
	}
	shown, err = typing(t, o.command(o.bin, "list"), 40, nil)
	if err != nil || !strings.Contains(shown, "transfer#") || strings.Contains(shown, "REF") {
		t.Errorf("at 40 columns: %v\n%s", err, shown)
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
