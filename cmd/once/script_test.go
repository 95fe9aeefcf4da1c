// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/tabledef"
)

// The scripts in testdata/script show what the commands do. They are the examples of
// the pages in docs, too. docs/adr/0017 explains them. Besides the commands of package
// testscript, a script has these:
//
//	once ARGS                  runs a command line, which has to succeed
//	exit CODE TEXT... once ARGS
//	                           runs one that ends with the code and prints the texts
//	[!] says TEXT...           the last command printed the texts
//	json FILE                  it printed the JSON document of the file
//	seed FILE...               plants the records of files
//	changed [RECORD...]        the records that changed since the last seed or changed
//	                           are those whose ids begin with these texts
//	commands                   prints the commands and their flags
//	clock DURATION             advances the clock, which stands still
//
// and for the next command line only:
//
//	type [TEXT]                its standard input is a terminal, with this line or without an end
//	input FILE                 its standard input is a file
//	columns N                  the width of its output, which the harness checks
//	interrupt [TEXT]           its context ends once it prints the text, or before it begins
//	progress                   its standard error is a terminal, and the clock goes on by itself
//	full [N]                   the Nth write of its standard output fails
//	lose N                     its Nth line of the audit cannot be written
//	meanwhile TEXT FILE        another writer puts the records once it prints the text
//
// On a table there are also:
//
//	calls OPERATION[+N] CODE   calls of DynamoDB fail with an error code, after the first N;
//	                           * is any operation
//	races OPERATION FILE       another writer puts the records before the next call
//	table NAME KEY...          creates a table with these keys and another index
//	scans [stops]              a reconciler scans for abandoned runs, or stops at the first one
//	later RECORD [CHANGE]      gives a record the format of a later version, or changes its item
//	console, http, order, settle
//	                           see console_test.go

// The stores of scripts.
const (
	onFile  = "file"
	onTable = "table"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata/script")

func TestList(t *testing.T)      { script(t, "list", onFile) }
func TestShow(t *testing.T)      { script(t, "show", onFile, onTable) }
func TestTarget(t *testing.T)    { script(t, "target", onFile, onTable) }
func TestResolve(t *testing.T)   { script(t, "resolve", onFile, onTable) }
func TestEvidence(t *testing.T)  { script(t, "evidence", onFile, onTable) }
func TestShapes(t *testing.T)    { script(t, "shapes", onFile, onTable) }
func TestBulk(t *testing.T)      { script(t, "bulk", onFile, onTable) }
func TestAudit(t *testing.T)     { script(t, "audit", onFile, onTable) }
func TestRequeue(t *testing.T)   { script(t, "requeue", onFile, onTable) }
func TestForget(t *testing.T)    { script(t, "forget", onFile, onTable) }
func TestReconcile(t *testing.T) { script(t, "reconcile", onFile, onTable) }
func TestProgram(t *testing.T)   { script(t, "program", onTable) }
func TestStats(t *testing.T)     { script(t, "stats", onFile, onTable) }
func TestPurge(t *testing.T)     { script(t, "purge", onFile, onTable) }
func TestTables(t *testing.T)    { script(t, "tables", onTable) }
func TestFiles(t *testing.T)     { script(t, "files", onFile) }
func TestAWS(t *testing.T)       { script(t, "aws", onTable) }
func TestUsage(t *testing.T)     { script(t, "usage", onFile) }
func TestGuides(t *testing.T)    { script(t, "guides", onTable) }
func TestConsole(t *testing.T)   { script(t, "console", onTable) }
func TestDoor(t *testing.T)      { script(t, "door", onTable) }
func TestOrders(t *testing.T)    { script(t, "orders", onTable) }
func TestAdvise(t *testing.T)    { script(t, "advice", onTable) }
func TestIncidents(t *testing.T) { script(t, "incidents", onTable) }

// script runs a script on each of the stores.
func script(t *testing.T, name string, stores ...string) {
	t.Parallel()
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			testscript.Run(t, testscript.Params{
				Files:         []string{filepath.Join("testdata", "script", name+".txtar")},
				UpdateScripts: *update,
				Condition:     func(cond string) (bool, error) { return cond == store, nil },
				Setup: func(e *testscript.Env) error {
					d, err := newDesk(e.WorkDir, store)
					if err != nil {
						return err
					}
					end, ok := t.Deadline()
					if !ok {
						end = time.Now().Add(time.Hour)
					}
					d.deadline = end.Add(-2 * time.Second)
					e.Setenv("STORE", d.name())
					e.Setenv("LONG", strings.Repeat("v", 1025))
					e.Values[deskKey{}] = d
					return os.CopyFS(e.WorkDir, os.DirFS(filepath.Join("testdata", "records")))
				},
				Cmds: verbs,
			})
		})
	}
}

// Every script is run by a test.
func TestScriptsRun(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("script_test.go")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join("testdata", "script", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".txtar"))
	}
	var run []string
	for _, m := range regexp.MustCompile(`\{ script\(t, "(\w+)"`).FindAllSubmatch(source, -1) {
		run = append(run, string(m[1]))
	}
	if slices.Sort(run); !slices.Equal(names, run) {
		t.Errorf("the scripts are %q, and the tests run %q", names, run)
	}
}

// Each text of the program that names one of its commands is in advice.txtar, in a block
// that prints the text and then runs the command.
func TestAdvise_HasEveryText(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile(filepath.Join("testdata", "script", "advice.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := map[string]string{
		" (ONCE_SCAN_EVERY) in the reconciler, or delete them with once purge": "needs a table in three regions; purge.txtar has the command",
	}
	found := 0
	for _, text := range texts(t, ".", "internal/operate", "internal/console", "internal/output", "../../idempotent", "../../dynamostore") {
		for _, part := range regexp.MustCompile(`\n|%[a-z]`).Split(text, -1) {
			commands := namedCommand.FindAllStringSubmatch(part, -1)
			if len(commands) == 0 || slices.ContainsFunc(slices.Collect(maps.Keys(elsewhere)), func(known string) bool { return strings.Contains(part, known) }) {
				continue
			}
			found++
			runs := func(block string) bool {
				_, after, printed := strings.Cut(block, strings.ReplaceAll(part, "'", "''"))
				return printed && !slices.ContainsFunc(commands, func(c []string) bool {
					return !regexp.MustCompile(`(?m)^(once |exit \d .* once |)` + c[1] + `\b`).MatchString(after)
				})
			}
			if !slices.ContainsFunc(strings.Split(string(file), "\n\n"), runs) {
				t.Errorf("no block of advice.txtar prints %q and then runs the command that it names", part)
			}
		}
	}
	if found < 25 {
		t.Errorf("%d texts name a command", found)
	}
}

var namedCommand = regexp.MustCompile(`\bonce (lookup|list|show|console|resolve|requeue|forget|reconcile|scan|purge|stats|table)\b`)

// texts returns the texts in the code of packages, without the help of the commands.
func texts(t *testing.T, folders ...string) (all []string) {
	t.Helper()
	help := map[string]bool{"Long": true, "Short": true, "Example": true, "Use": true, "NewReplacer": true}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(folder, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.KeyValueExpr:
					key, ok := n.Key.(*ast.Ident)
					return !ok || !help[key.Name]
				case *ast.CallExpr:
					f, ok := n.Fun.(*ast.SelectorExpr)
					return !ok || !help[f.Sel.Name] && !strings.HasSuffix(f.Sel.Name, "Var")
				case *ast.ValueSpec:
					return !strings.HasSuffix(n.Names[0].Name, "Help") && n.Names[0].Name != "exitCodes"
				case *ast.BasicLit:
					if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
						all = append(all, text)
					}
				}
				return true
			})
		}
	}
	return all
}

// night is the time at which the clock of a script stands.
var night = time.Date(2026, 11, 21, 3, 12, 0, 0, time.UTC)

// tableName is the name of a script's table.
const tableName = "once-records"

// desk is an operator's environment in a script.
type desk struct {
	dir  string // of the script
	file string // "": a table
	db   *database

	deadline time.Time // of the test

	now    time.Time
	seen   map[idempotent.RecordID]driver.Version // at the last seed or changed
	next   upcoming
	window *window // an open console
}

type deskKey struct{}

// upcoming is what the next command line meets.
type upcoming struct {
	stdin     io.Reader
	terminal  bool
	typed     string // the line that is typed at the terminal, which echoes it
	columns   int
	interrupt *string
	progress  bool
	full      int
	lose      int
	meanwhile [2]string
}

func newDesk(dir, store string) (*desk, error) {
	d := &desk{dir: dir, now: night, db: &database{DB: dynamotest.New(tableName)}, next: upcoming{columns: 80}}
	if store == onFile {
		d.file = filepath.Join(dir, "once.db")
	}
	return d, d.use(func(testStore) error { return nil })
}

// name returns the store's name in output.
func (d *desk) name() string {
	if d.file != "" {
		return "file once.db"
	}
	return "table " + tableName + " in us-east-1"
}

// testStore is a store as scripts plant and compare records in it.
type testStore interface {
	driver.Store
	Delete(ctx context.Context, id idempotent.RecordID, was driver.Version) (*driver.Record, error)
	all(ctx context.Context, yield func(driver.Record) error) error
}

type fileStore struct{ *boltstore.Store }

func (s fileStore) all(ctx context.Context, f func(driver.Record) error) error {
	return each(s.All(ctx), f)
}

type tableStore struct{ *dynamostore.Store }

func (s tableStore) all(ctx context.Context, f func(driver.Record) error) error {
	return each(s.Scan(ctx), f)
}

func each(list func(func(driver.Record, error) bool), f func(driver.Record) error) (failed error) {
	list(func(r driver.Record, err error) bool {
		if failed = err; err == nil || r.ID != "" { // an unreadable record has an ID
			failed = f(r)
		}
		return failed == nil
	})
	return failed
}

// use opens the store for f, between two commands.
func (d *desk) use(f func(testStore) error) error {
	if d.file == "" {
		s, err := dynamostore.New(d.db.DB, tableName)
		if err != nil {
			return err
		}
		return f(tableStore{s})
	}
	s, err := boltstore.Open(d.file, func(o *boltstore.Options) { o.KeepExpired = true })
	if err != nil {
		return err
	}
	defer s.Close()
	return f(fileStore{s})
}

// plant puts the records of files into the store.
func (d *desk) plant(ctx context.Context, texts ...string) error {
	return d.use(func(s testStore) error {
		for _, text := range texts {
			list, err := parsePlanted(text, d.now)
			if err != nil {
				return err
			}
			for _, r := range list {
				met, err := s.Insert(ctx, r.Record, d.now)
				if err == nil && met != nil {
					r.Version[0] = met.Version[0] + 1
					met, err = s.Replace(ctx, r.Record, met.Version)
				}
				if err == nil && met == nil && r.gone {
					met, err = s.Delete(ctx, r.ID, r.Version)
				}
				if err != nil || met != nil {
					return fmt.Errorf("planting %s: met %v, %w", r.ID, met, err)
				}
			}
		}
		return nil
	})
}

// versions returns the version of each record.
func (d *desk) versions() (map[idempotent.RecordID]driver.Version, error) {
	all := map[idempotent.RecordID]driver.Version{}
	return all, d.use(func(s testStore) error {
		return s.all(context.Background(), func(r driver.Record) error { all[r.ID] = r.Version; return nil })
	})
}

// changes returns the records that changed since it was called last.
func (d *desk) changes() (changed []string, err error) {
	now, err := d.versions()
	if err != nil {
		return nil, err
	}
	for id := range now {
		if was, is := d.seen[id]; !is || was != now[id] {
			changed = append(changed, string(id))
		}
	}
	for id := range d.seen {
		if _, is := now[id]; !is {
			changed = append(changed, string(id))
		}
	}
	d.seen = now
	slices.Sort(changed)
	return changed, nil
}

// environment returns the environment of the next command line.
func (d *desk) environment(stdout, stderr io.Writer, cancel func()) *operate.Env {
	n := d.next
	d.next = upcoming{columns: 80}
	w := &operate.Env{
		Stdin: n.stdin, StdinTTY: n.terminal, Now: func() time.Time { return d.now }, Width: n.columns, User: "ada", Host: "ops-1",
		Dynamo: func(aws.Config) dynamostore.Client { return dynamotest.Intercept(d.db, d.db.call) },
		Getenv: func(name string) string {
			return map[bool]map[string]string{true: {"ONCE_FILE": d.file}, false: {"ONCE_TABLE": tableName, "ONCE_TABLE_OTHER": "other"}}[d.file != ""][name]
		},
	}
	if w.Stdin == nil {
		w.Stdin = strings.NewReader("")
	}
	watch := &watched{desk: d, next: n, cancel: cancel}
	w.Stdout, w.Stderr = watch.on(stdout), watch.on(stderr)
	if n.progress {
		start, seconds := d.now, &atomic.Int64{}
		w.StderrTTY, w.Now = true, func() time.Time { return start.Add(time.Duration(seconds.Add(1)) * time.Second) }
	}
	if n.full > 0 {
		w.Stdout = &fullDisk{stdout, n.full}
	}
	if n.interrupt != nil && *n.interrupt == "" {
		cancel()
	}
	return w
}

// watched watches the output of a command. It is safe for concurrent use, like a
// file.
type watched struct {
	desk   *desk
	next   upcoming
	cancel func()

	mu    sync.Mutex
	lines int // of the audit
}

type watchedWriter struct {
	*watched
	to io.Writer
}

func (w *watched) on(to io.Writer) io.Writer { return watchedWriter{w, to} }

// Write writes to the output what a command prints.
func (w watchedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if bytes.Contains(p, []byte(`"action"`)) {
		if w.lines++; w.lines == w.next.lose {
			return 0, io.ErrShortWrite
		}
	}
	if _, err := w.to.Write(p); err != nil {
		return 0, err
	}
	if bytes.HasSuffix(p, []byte(" to write it: ")) {
		io.WriteString(w.to, w.next.typed)
	}
	if text := w.next.interrupt; text != nil && bytes.Contains(p, []byte(*text)) {
		w.cancel()
	}
	if text := w.next.meanwhile[0]; text != "" && bytes.Contains(p, []byte(text)) {
		w.next.meanwhile[0] = ""
		if err := w.desk.plant(context.Background(), w.next.meanwhile[1]); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// local removes the folder of the script from its output, and the line break before a name
// that is long only because of that folder.
func (d *desk) local(text string) string {
	dir := regexp.QuoteMeta(d.dir + "/")
	text = regexp.MustCompile(`file\n +`+dir).ReplaceAllString(text, "file ")
	return strings.ReplaceAll(text, d.dir+"/", "")
}

// fullDisk is a file of which one write fails.
type fullDisk struct {
	io.Writer
	writes int
}

func (f *fullDisk) Write(p []byte) (int, error) {
	if f.writes--; f.writes == 0 {
		return 0, syscall.ENOSPC
	}
	return f.Writer.Write(p)
}

// verbs are the commands of scripts.
var verbs = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"once": func(ts *testscript.TestScript, _ bool, args []string) { deskOf(ts).once(ts, operate.ExitOK, args) },
	"exit": func(ts *testscript.TestScript, _ bool, args []string) {
		i := slices.Index(args, "once")
		said := deskOf(ts).once(ts, number(ts, args[0]), args[i+1:])
		find(ts, said, args[1:i], true)
	},
	"says": func(ts *testscript.TestScript, neg bool, args []string) {
		find(ts, ts.ReadFile("stdout")+ts.ReadFile("stderr"), args, !neg)
	},
	"json": func(ts *testscript.TestScript, _ bool, args []string) {
		var got bytes.Buffer
		ts.Check(json.Compact(&got, []byte(ts.ReadFile("stdout"))))
		if want := strings.TrimSpace(ts.ReadFile(args[0])); got.String() != want {
			ts.Fatalf("got\n%s\nwant\n%s", &got, want)
		}
	},
	"seed": func(ts *testscript.TestScript, _ bool, args []string) {
		d := deskOf(ts)
		for _, name := range args {
			ts.Check(d.plant(context.Background(), ts.ReadFile(name)))
		}
		_, err := d.changes()
		ts.Check(err)
	},
	"changed":  wantChanges,
	"commands": func(ts *testscript.TestScript, _ bool, _ []string) { io.WriteString(ts.Stdout(), allCommands()) },
	"clock": func(ts *testscript.TestScript, _ bool, args []string) {
		by, err := time.ParseDuration(args[0])
		ts.Check(err)
		deskOf(ts).now = deskOf(ts).now.Add(by)
	},
	"type": func(ts *testscript.TestScript, _ bool, args []string) {
		n := &deskOf(ts).next
		n.terminal = true
		if len(args) == 0 {
			n.stdin, _ = io.Pipe()
			return
		}
		n.typed = args[0] + "\n"
		n.stdin = strings.NewReader(n.typed)
	},
	"input": func(ts *testscript.TestScript, _ bool, args []string) {
		deskOf(ts).next.stdin = strings.NewReader(ts.ReadFile(args[0]))
	},
	"columns":  func(ts *testscript.TestScript, _ bool, args []string) { deskOf(ts).next.columns = number(ts, args[0]) },
	"lose":     func(ts *testscript.TestScript, _ bool, args []string) { deskOf(ts).next.lose = number(ts, args[0]) },
	"progress": func(ts *testscript.TestScript, _ bool, _ []string) { deskOf(ts).next.progress = true },
	"full": func(ts *testscript.TestScript, _ bool, args []string) {
		deskOf(ts).next.full = number(ts, append(args, "1")[0])
	},
	"interrupt": func(ts *testscript.TestScript, _ bool, args []string) {
		text := strings.Join(args, " ")
		deskOf(ts).next.interrupt = &text
	},
	"meanwhile": func(ts *testscript.TestScript, _ bool, args []string) {
		deskOf(ts).next.meanwhile = [2]string{args[0], ts.ReadFile(args[1])}
	},
	"calls": func(ts *testscript.TestScript, _ bool, args []string) { deskOf(ts).db.refuse(args) },
	"races": func(ts *testscript.TestScript, _ bool, args []string) { deskOf(ts).race(args[0], ts.ReadFile(args[1])) },
	"table": func(ts *testscript.TestScript, _ bool, args []string) {
		ts.Check(deskOf(ts).db.create(args[0], args[1:]))
	},
	"scans": func(ts *testscript.TestScript, _ bool, args []string) {
		d := deskOf(ts)
		s, err := dynamostore.New(d.db.DB, tableName)
		ts.Check(err)
		_, err = s.Abandoned(context.Background(), d.now, func([]driver.Listed) bool { return len(args) == 0 })
		ts.Check(err)
	},
	"later": func(ts *testscript.TestScript, _ bool, args []string) {
		ts.Check(deskOf(ts).db.later(args[0], append(args, "SET v = :later")[1]))
	},
	"console": openConsole,
	"close":   func(ts *testscript.TestScript, _ bool, args []string) { deskOf(ts).window.close(ts) },
	"http":    func(ts *testscript.TestScript, _ bool, args []string) { deskOf(ts).window.http(ts, args) },
	"order":   func(ts *testscript.TestScript, _ bool, args []string) { deskOf(ts).window.order(ts, args) },
	"settle":  func(ts *testscript.TestScript, _ bool, args []string) { deskOf(ts).window.settle(ts, args) },
}

func deskOf(ts *testscript.TestScript) *desk { return ts.Value(deskKey{}).(*desk) }

func number(ts *testscript.TestScript, text string) int {
	n, err := strconv.Atoi(text)
	ts.Check(err)
	return n
}

// once runs a command line, which has to end with the code, and returns what it prints.
func (d *desk) once(ts *testscript.TestScript, want int, args []string) (said string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var stdout, stderr bytes.Buffer
	w := d.environment(&stdout, &stderr, cancel)
	if slices.Contains(args, "--table") || slices.Contains(args, "--file") {
		w.Getenv = func(string) string { return "" }
	}
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, w, args) }()
	code := inTime(ts, ended)
	out, errs := d.local(stdout.String()), d.local(stderr.String())
	io.WriteString(ts.Stdout(), out)
	io.WriteString(ts.Stderr(), errs)
	if code != want {
		ts.Fatalf("exit code %d, want %d\n%s%s", code, want, out, errs)
	}
	if cmd, _, err := rootCommand(&operate.Env{}).Find(args); err == nil && cmd.Annotations != nil && !slices.Contains(strings.Fields(cmd.Annotations[exitsNote]), fmt.Sprint(code)) {
		ts.Fatalf("the help of %s does not have the exit code %d", cmd.CommandPath(), code)
	}
	if !slices.Contains([]string{"list", "show", "stats", "purge", "cost"}, args[0]) || w.Width == 0 || slices.Contains(args, "--json") || slices.Contains(args, "--full") {
		return out + errs
	}
	for line := range strings.Lines(out) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > w.Width && strings.Contains(line, "  ") { // of a table
			ts.Fatalf("a line of %d columns: %s", n, line)
		}
	}
	return out + errs
}

// inTime returns what a command line or a request ends with. Without an end the script
// fails shortly before the time of the test binary is over.
func inTime[T any](ts *testscript.TestScript, ended <-chan T) (v T) {
	select {
	case v = <-ended:
	case <-time.After(time.Until(deskOf(ts).deadline)):
		ts.Fatalf("it did not end")
	}
	return v
}

// find looks for each of the texts, which are all in what a command printed, or not.
func find(ts *testscript.TestScript, said string, texts []string, want bool) {
	for _, text := range texts {
		if strings.Contains(said, text) != want {
			ts.Fatalf("%q: found is %t in\n%s", text, !want, said)
		}
	}
}

func wantChanges(ts *testscript.TestScript, _ bool, args []string) {
	got, err := deskOf(ts).changes()
	ts.Check(err)
	slices.Sort(args)
	if !slices.EqualFunc(got, args, strings.HasPrefix) {
		ts.Fatalf("%q changed, want %q", got, args)
	}
}

// database is DynamoDB in memory, whose calls can fail or be late.
type database struct {
	*dynamotest.DB

	mu     sync.Mutex
	codes  map[string]string // by operation
	before map[string]func(context.Context)
}

func (db *database) refuse(args []string) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.codes = map[string]string{}
	for i := 0; i+1 < len(args); i += 2 {
		db.codes[args[i]] = args[i+1]
	}
}

// race puts records into the store before the next call of an operation.
func (d *desk) race(operation, text string) {
	d.db.first(operation, func(ctx context.Context) {
		if err := d.plant(ctx, text); err != nil {
			panic(err)
		}
	})
}

// first calls f before the next call of an operation. All calls of the operation wait
// for f, except those with its context.
func (db *database) first(operation string, f func(context.Context)) {
	var once sync.Once
	db.mu.Lock()
	defer db.mu.Unlock()
	db.before = map[string]func(context.Context){operation: func(ctx context.Context) {
		if ctx.Value(firstKey{}) == nil {
			once.Do(func() { f(context.WithValue(ctx, firstKey{}, true)) })
		}
	}}
}

type firstKey struct{}

// meet returns the error of a call.
func (db *database) meet(ctx context.Context, operation string) error {
	db.mu.Lock()
	f := db.before[operation]
	code := db.codes[operation]
	if code == "" {
		code = db.codes["*"]
	}
	for n := range 10 { // those that succeed before
		if key := fmt.Sprintf("%s+%d", operation, n); db.codes[key] != "" {
			db.codes[operation] = map[bool]string{true: db.codes[key]}[n <= 1]
			db.codes[fmt.Sprintf("%s+%d", operation, n-1)] = db.codes[key]
			delete(db.codes, key)
			break
		}
	}
	db.mu.Unlock()
	if f != nil {
		f(ctx)
	}
	if code == "" {
		return nil
	}
	return &smithy.OperationError{ServiceID: "DynamoDB", OperationName: operation, Err: &smithy.GenericAPIError{Code: code, Message: "the message of AWS about " + operation}}
}

// call makes a call, unless it is to fail.
func (db *database) call(ctx context.Context, c *dynamotest.Call) {
	if c.Err = db.meet(ctx, c.Op); c.Err != nil {
		return
	}
	c.Do(ctx)
	if out, ok := c.Out.(*dynamodb.DescribeTableOutput); ok {
		out.Table.TableSizeBytes = aws.Int64(8_192_000) // the package does not know it
	}
}

// create creates a table with string keys and an index that is not that of once.
func (db *database) create(name string, keys []string) error {
	in := &dynamodb.CreateTableInput{TableName: &name, BillingMode: types.BillingModePayPerRequest}
	for i, key := range keys {
		kind := []types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i]
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &key, AttributeType: types.ScalarAttributeTypeS})
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: &key, KeyType: kind})
	}
	in.GlobalSecondaryIndexes = []types.GlobalSecondaryIndex{{IndexName: aws.String("other"), KeySchema: in.KeySchema, Projection: &types.Projection{ProjectionType: types.ProjectionTypeAll}}}
	_, err := db.CreateTable(context.Background(), in)
	return err
}

// later changes the item of a record.
func (db *database) later(id, change string) error {
	in := &dynamodb.UpdateItemInput{
		TableName:        aws.String(tableName),
		Key:              map[string]types.AttributeValue{tabledef.PartitionKey: &types.AttributeValueMemberS{Value: id}},
		UpdateExpression: &change,
	}
	if strings.Contains(change, ":later") {
		in.ExpressionAttributeValues = map[string]types.AttributeValue{":later": &types.AttributeValueMemberN{Value: "2"}}
	}
	_, err := db.UpdateItem(context.Background(), in)
	return err
}

// TestMain gives the SDK credentials, a region and an STS: it reads the environment
// of the process, which tests cannot change in parallel.
func TestMain(m *testing.M) {
	caller := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), "/eu-west-1/") {
			w.WriteHeader(http.StatusForbidden) // the endpoint of a region that the account does not use
			return
		}
		io.WriteString(w, `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult><Arn>arn:aws:iam::123456789012:user/ada</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>`)
	}))
	for name, value := range map[string]string{
		"AWS_CONFIG_FILE": filepath.Join("testdata", "aws"), "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_PROFILE": "operator", "AWS_ENDPOINT_URL_STS": caller.URL,
	} {
		os.Setenv(name, value)
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(struct{ io.Writer }{}, nil))) // whose Write panics: no command logs
	code := m.Run()
	caller.Close()
	os.Exit(code)
}
