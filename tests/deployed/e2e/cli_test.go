// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/httpform"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/internal/tabledef"
)

// A table is created, checked and used through LocalStack, which also knows the
// caller's identity. TestOperatorsGuide does more on DynamoDB Local.
func TestCommandLineOnLocalStack(t *testing.T) {
	t.Parallel()
	endpoint, err := cloud()
	if err != nil {
		t.Fatal(err)
	}
	table := tableName()
	o := newOperator(t, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_REGION=us-east-1", "ONCE_TABLE="+table, "AWS_ENDPOINT_URL="+endpoint)
	o.wants(1, []string{"connection refused"}, "list", "--endpoint", "http://127.0.0.1:1")
	o.wants(1, []string{"ResourceNotFoundException", "once table create"}, "table", "check")
	o.wants(1, []string{"once table create"}, "list")
	for range 2 {
		o.wants(0, []string{"can be used as a store"}, "table", "create")
	}
	client := dynamostore.NewClient(engine.Config(endpoint))
	s, err := dynamostore.New(client, table)
	if err != nil {
		t.Fatal(err)
	}
	strand(t, s, guideCharge, guideNoCharge, guideRefund)
	large := completeLarge(t, s)
	for _, more := range [][]string{nil, {"--no-index"}} {
		o.wants(0, []string{"POST /charges#4RexMqXSY3Lf", "refund#"}, append(more, "list", "--state", "unknown")...)
		o.wants(0, []string{"2 unknown outcomes left"}, append(more, "reconcile")...)
	}
	o.wants(0, []string{"is completed", `"outcome":"written"`}, "resolve", "#4RexMqXSY3Lf", "--status", "201", "--completed", "{}", "--reason", "why", "--yes")
	o.wants(0, []string{`"records": 4`, `"unknown": 2`, `"read_units": `}, "stats", "--json")

	// A record that is not on a list is found only by a full scan. After its outcome is
	// discarded, the parts of its result expire by themselves.
	o.wants(3, []string{"--scan"}, "show", "#"+large.KeyHash())
	shown := o.wants(0, nil, "show", "#"+large.KeyHash(), "--scan", "--result", "--json")
	var doc struct{ Result string }
	if err := json.Unmarshal([]byte(shown), &doc); err != nil || len(doc.Result) != largeResult {
		t.Errorf("a large result is shown as %d bytes, %v", len(doc.Result), err)
	}
	r, err := s.Get(t.Context(), large)
	if err != nil {
		t.Fatal(err)
	}
	o.wants(0, []string{"is discarded"}, "forget", string(large), "--token", r.Token(), "--yes", "--reason", "why")
	out, err := client.Scan(t.Context(), &dynamodb.ScanInput{
		TableName: &table, Select: types.SelectCount, FilterExpression: aws.String("attribute_exists(#part) AND attribute_exists(#ttl)"),
		ExpressionAttributeNames: map[string]string{"#part": "part", "#ttl": tabledef.TTLAttribute},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Chunks.Count < 2 || int(out.Count) != r.Chunks.Count {
		t.Errorf("%d parts are left with a time to live, want all %d", out.Count, r.Chunks.Count)
	}
}

// largeResult is larger than an item of DynamoDB, also compressed.
const largeResult = 800 << 10

// completeLarge leaves an old completed record with its result in chunks.
func completeLarge(t *testing.T, s *dynamostore.Store) idempotent.RecordID {
	t.Helper()
	g, err := idempotent.New(s, func(o *idempotent.Options) { o.Now = hourAgo })
	if err != nil {
		t.Fatal(err)
	}
	k := idempotent.Key{Operation: "report", Scope: "acme", ID: rand.Text(), Fingerprint: idempotent.FingerprintBytes(nil)}
	var text strings.Builder
	for text.Len() < largeResult {
		text.WriteString(rand.Text())
	}
	out, err := idempotent.DoOutcome(t.Context(), g, k, func(context.Context) (string, error) { return text.String()[:largeResult], nil })
	if err != nil || !out.Stored {
		t.Fatal(out.Stored, err)
	}
	return k.RecordID()
}

// The commands work on a table of other items, described by flags or by the
// environment, and leave the others as they are.
func TestCommandLineOnASharedTable(t *testing.T) {
	t.Parallel()
	endpoint, err := database()
	if err != nil {
		t.Fatal(err)
	}
	table, client := tableName(), dynamostore.NewClient(engine.Config(endpoint))
	engine.CreateShared(t, client, table)
	engine.FillShared(t, client, table, 500)
	s, err := dynamostore.New(client, table, engine.SharedLayout)
	if err != nil {
		t.Fatal(err)
	}
	strand(t, s, guideCharge, guideNoCharge, guideRefund)
	expire(t, s)
	large := completeLarge(t, s)

	layout := []string{"--partition-key", "PK", "--sort-key", "SK", "--prefix", "ONCE#", "--ttl-attribute", "expires_at"}
	flags := newOperator(t, dynamoEnv(t, "another")...)
	byFlags := func(args ...string) []string { return append(append(args, "--table", table), layout...) }
	byEnv := newOperator(t, append(dynamoEnv(t, table), "ONCE_PARTITION_KEY=PK", "ONCE_SORT_KEY=SK", "ONCE_PREFIX=ONCE#", "ONCE_TTL_ATTRIBUTE=expires_at")...)

	flags.wants(1, []string{"Options.PartitionKey and SortKey (ONCE_PARTITION_KEY, ONCE_SORT_KEY), with a Prefix", "Options.TTLAttribute"}, "table", "check", "--table", table)
	flags.wants(1, []string{"Check the table's keys with once table check"}, "show", string(guideCharge.RecordID()), "--table", table)
	flags.wants(2, []string{"without a Prefix"}, "list", "--table", table, "--sort-key", "SK")
	flags.wants(0, []string{"can be used as a store"}, byFlags("table", "check")...)
	byEnv.wants(0, []string{"can be used as a store"}, "table", "check")
	for _, more := range [][]string{nil, {"--no-index"}} {
		flags.wants(0, []string{"POST /charges#4RexMqXSY3Lf", "refund#"}, byFlags(append(more, "list", "--state", "unknown")...)...)
		if got := byEnv.wants(0, nil, append(more, "list", "--json")...); strings.Count(got, "\n") != 5 {
			t.Errorf("the whole list is\n%s", got)
		}
	}
	byEnv.wants(0, nil, "show", "#"+large.KeyHash(), "--scan", "--result")
	byEnv.wants(0, []string{"is completed"}, "resolve", "#4RexMqXSY3Lf", "--status", "201", "--completed", "{}", "--reason", "why", "--yes")
	byEnv.wants(0, []string{"1 record removed"}, "purge", "--yes")
	byEnv.wants(0, []string{`"records": 4`}, "stats", "--json")
}

// At a narrow terminal, a list has the columns that commands take as arguments. An
// interrupted command at its question writes nothing, and one that runs a program ends it.
func TestTerminated(t *testing.T) {
	t.Parallel()
	table := tableName()
	o := newOperator(t, dynamoEnv(t, table)...)
	o.wants(0, nil, "table", "create")
	strand(t, openTable(t, table), guideTransfer)
	shown, err := typing(t, o.command(o.bin, "list"), 40, nil)
	if err != nil || !strings.Contains(shown, "transfer#") || strings.Contains(shown, "REF") {
		t.Errorf("at 40 columns: %v\n%s", err, shown)
	}
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

// onceBinary builds the command line on first use.
var onceBinary = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(filepath.Dir(binary), "once")
	return path, engine.Build(path, "./cmd/once")
})

// operator runs command lines of once.
type operator struct {
	t   *testing.T
	bin string
	env []string
	dir string
}

// newOperator returns an operator in an empty directory, with env and nothing of
// this machine's AWS configuration.
func newOperator(t *testing.T, env ...string) *operator {
	t.Helper()
	bin, err := onceBinary()
	if err != nil {
		t.Fatalf("building once: %v", err)
	}
	env = append([]string{
		"PATH=" + filepath.Dir(bin) + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir(),
		"AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull, "AWS_EC2_METADATA_DISABLED=true",
	}, env...)
	return &operator{t, bin, env, t.TempDir()}
}

func (o *operator) command(name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(o.t.Context(), kit.Patience)
	o.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = o.env, o.dir
	return cmd
}

// once runs a command line in a script, and returns its exit code and its
// output.
func (o *operator) once(args ...string) (code int, stdout, stderr string) {
	o.t.Helper()
	var out, errs strings.Builder
	cmd := o.command(o.bin, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		o.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// wants runs a command line and checks its exit code, and that its output
// contains the words.
func (o *operator) wants(code int, words []string, args ...string) (stdout string) {
	o.t.Helper()
	got, stdout, stderr := o.once(args...)
	if got != code {
		o.t.Fatalf("once %q: exit code %d, want %d\n%s%s", args, got, code, stdout, stderr)
	}
	for _, w := range words {
		if !strings.Contains(stdout+stderr, w) {
			o.t.Errorf("once %q: no %q in\n%s%s", args, w, stdout, stderr)
		}
	}
	return stdout
}

// openTerminal returns the two ends of a new terminal.
func openTerminal(t *testing.T, columns uint16) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	control := func(request uintptr, arg unsafe.Pointer) {
		t.Helper()
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request, uintptr(arg)); errno != 0 {
			t.Fatal(errno)
		}
	}
	var unlock int32
	var number uint32
	size := struct{ rows, columns, x, y uint16 }{rows: 24, columns: columns}
	control(syscall.TIOCSPTLCK, unsafe.Pointer(&unlock))
	control(syscall.TIOCGPTN, unsafe.Pointer(&number))
	control(syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// question matches the question of once before it writes.
var question = regexp.MustCompile(`Type (\S+) to write it: $`)

// atTerminal runs cmd at a terminal of 80 columns, types the requested
// confirmation, and returns what the terminal shows.
func atTerminal(t *testing.T, cmd *exec.Cmd) (shown string, err error) {
	t.Helper()
	return typing(t, cmd, 80, func(word string) string { return word + "\n" })
}

// typing runs cmd at a terminal of so many columns. At each question it types what
// answer returns for the requested word.
func typing(t *testing.T, cmd *exec.Cmd, columns uint16, answer func(word string) string) (shown string, err error) {
	t.Helper()
	master, slave := openTerminal(t, columns)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	var out bytes.Buffer
	answered := 0
	for buf := make([]byte, 4096); ; {
		n, err := master.Read(buf)
		out.Write(buf[:n])
		if m := question.FindSubmatch(out.Bytes()[answered:]); m != nil {
			answered = out.Len()
			fmt.Fprint(master, answer(string(m[1])))
		}
		if err != nil { // the other end is closed
			break
		}
	}
	err = cmd.Wait()
	return strings.ReplaceAll(out.String(), "\r\n", "\n"), err
}

// The keys of the guide.
var (
	guideCharge   = idempotent.Key{Operation: "POST /charges", Scope: idempotent.Global, ID: "b7a36f90-1e4d-4d52-8c7f-92e5d0ab4613"}
	guideNoCharge = idempotent.Key{Operation: "POST /charges", Scope: idempotent.Global, ID: "41f0c8d3-9b62-4a17-a5e8-6d3f7b20c9e4"}
	guideTransfer = idempotent.Key{Operation: "transfer", Scope: "acme", ID: "t-17"}
	guideRefund   = idempotent.Key{Operation: "refund", Scope: "acme", ID: "r-9"}
	guideReport   = idempotent.Key{Operation: "report", Scope: "acme", ID: "2026-11"}
	guideOrder    = idempotent.Key{Operation: "order", Scope: "acme", ID: "o-8"}
)

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
		r.Codec = httpform.Encoding
	}
	change(&r)
	met, err := s.Insert(t.Context(), r, time.Now())
	if own := met != nil && met.Version == r.Version; err != nil || met != nil && !own { // own: sent twice, by a busy engine's client
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
			r.State, r.Reason, r.Since = driver.StateUnknown, driver.ReasonLeaseEnded, r.LeaseEnd
			r.Exhausted = k.Operation == "refund"
		})
	}
}

// expire creates a completed record that expired long ago.
func expire(t *testing.T, s driver.Store) {
	t.Helper()
	insert(t, s, idempotent.Key{Operation: "charge", Scope: "acme", ID: "old"}, func(r *driver.Record) {
		r.State, r.Reason, r.Due = driver.StateCompleted, driver.ReasonResult, time.Time{}
		r.Since = time.Now().UTC().AddDate(0, 0, -60).Truncate(time.Millisecond)
		r.Expires = r.Since.AddDate(0, 0, 1)
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
