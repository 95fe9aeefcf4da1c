// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/tabledef"
	"github.com/once-lambda/once/internal/view"
)

// A script can open one console at a time, with these commands:
//
//	console [FLAGS]             runs once console, and opens its session
//	http STATUS METHOD PATH [BODY] [NAME:VALUE]...
//	                            sends a request as the page does, with other headers. The
//	                            status gone means that the browser ends its connection
//	                            while the console writes.
//	order STATUS PATH RECORD [MEMBERS]
//	                            posts an order about a record as the page shows it, with
//	                            these members of JSON; TOKEN is that of its attempt
//	settle STATUS MEMBERS RECORD EVIDENCE...
//	                            posts an order about many records as the page shows them,
//	                            each with its evidence
//	close                       ends the console, and has what it printed as standard error
//
// The body of an answer is their standard output, and its headers are the standard
// error.

// window is the page of an open console.
type window struct {
	desk    *desk
	cancel  func()
	code    chan int
	stderr  sharedBuffer
	address string
	base    string // of the address
	cookie  string
	session string
}

// sharedBuffer is a buffer that is safe for concurrent use.
type sharedBuffer struct {
	audited chan struct{} // has a value after a line of the audit

	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *sharedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes.Contains(p, []byte(`"action"`)) {
		select {
		case b.audited <- struct{}{}:
		default:
		}
	}
	return b.buf.Write(p)
}

func (b *sharedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func console(ts *testscript.TestScript, _ bool, args []string) {
	d := deskOf(ts)
	ctx, cancel := context.WithCancel(context.Background())
	w := &window{desk: d, cancel: cancel, code: make(chan int, 1), stderr: sharedBuffer{audited: make(chan struct{}, 1)}}
	printed, out := io.Pipe()
	environment := d.environment(out, &w.stderr, cancel)
	go func() {
		w.code <- run(ctx, environment, append([]string{"console"}, args...))
		out.Close()
	}()
	ts.Defer(cancel)
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(printed).ReadString('\n')
		line <- text
	}()
	address := inTime(ts, line)
	if address == "" {
		ts.Fatalf("the console ended with the code %d\n%s", inTime(ts, w.code), &w.stderr)
	}
	io.WriteString(ts.Stdout(), address)
	var doc struct{ URL string }
	if json.Unmarshal([]byte(address), &doc) == nil {
		address = doc.URL
	}
	w.address = strings.TrimSpace(address)
	ticket := ""
	w.base, ticket, _ = strings.Cut(w.address, "/#")
	ts.Setenv("HOST", strings.TrimPrefix(w.base, "http://"))
	ts.Setenv("PORT", strings.TrimPrefix(w.base, "http://127.0.0.1:"))
	ts.Setenv("TICKET", ticket)
	d.window = w
	status, header, body := w.send(ts, context.Background(), http.MethodPost, "/api/session", fmt.Sprintf(`{"ticket": %q}`, ticket))
	var opened struct{ Session string }
	if err := json.Unmarshal(body, &opened); status != http.StatusOK || err != nil {
		ts.Fatalf("the session: %d %s", status, body)
	}
	w.cookie, _, _ = strings.Cut(header.Get("Set-Cookie"), ";")
	w.session = opened.Session
	ts.Setenv("COOKIE", w.cookie)
	ts.Setenv("SESSION", w.session)
	fmt.Fprintf(ts.Stderr(), "%s\n%s", header.Get("Set-Cookie"), d.local(w.stderr.String()))
}

// close ends the console, which has to succeed.
func (w *window) close(ts *testscript.TestScript) {
	w.cancel()
	if code := inTime(ts, w.code); code != exitOK {
		ts.Fatalf("the console ended with the code %d", code)
	}
	if _, err := http.Get(w.base); err == nil {
		ts.Fatalf("the console still answers")
	}
	io.WriteString(ts.Stderr(), w.desk.local(w.stderr.String()))
}

func (w *window) http(ts *testscript.TestScript, args []string) {
	body, headers := "", args[3:]
	if len(headers) > 0 && (headers[0] == "" || strings.ContainsAny(headers[0][:1], "{@")) {
		body, headers = headers[0], headers[1:]
	}
	if name, isFile := strings.CutPrefix(body, "@"); name == "large" {
		body = strings.Repeat(" ", maxAnswer) + "{}"
	} else if isFile {
		body = ts.ReadFile(name)
	}
	w.expect(ts, args[0], args[1], args[2], body, headers...)
}

func (w *window) order(ts *testscript.TestScript, args []string) {
	members := w.shown(ts, args[2], strings.Join(args[3:], ""))
	members["reason"] = cmp.Or(members["reason"], any("the provider's ledger has it"))
	body, err := json.Marshal(members)
	ts.Check(err)
	w.expect(ts, args[0], http.MethodPost, args[1], string(body))
}

// commandWords are words of the command line that a page does not have. How the console
// is started is no such word: the answer of a console that is read-only says it.
var commandWords = regexp.MustCompile(`[ (]--[a-z-]+|once (show|list|stats|forget|resolve|requeue|table)`)

// shown returns the members of an order about a record as the page shows it, with more of
// them.
func (w *window) shown(ts *testscript.TestScript, record, more string) map[string]any {
	_, _, data := w.send(ts, context.Background(), http.MethodGet, "/api/record?id="+url.QueryEscape(record), "")
	var shown struct {
		Record  struct{ Token string }
		Version string
	}
	if err := json.Unmarshal(data, &shown); err != nil {
		ts.Fatalf("%v: %s", err, data)
	}
	members := map[string]any{"record": record, "version": shown.Version}
	if more != "" {
		ts.Check(json.Unmarshal([]byte(strings.ReplaceAll(more, "TOKEN", shown.Record.Token)), &members))
	}
	return members
}

func (w *window) settle(ts *testscript.TestScript, args []string) {
	var items []map[string]any
	for i := 2; i+1 < len(args); i += 2 {
		items = append(items, w.shown(ts, args[i], args[i+1]))
	}
	members := map[string]any{"items": items, "reason": "the provider's ledger has them"}
	ts.Check(json.Unmarshal([]byte(args[1]), &members))
	body, err := json.Marshal(members)
	ts.Check(err)
	w.expect(ts, args[0], http.MethodPost, "/api/settle", string(body))
}

// expect sends a request, and checks the status of the answer, and that it has no words
// of the command line.
func (w *window) expect(ts *testscript.TestScript, want, method, path, body string, headers ...string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if want == "gone" {
		w.desk.db.first("PutItem", func(write context.Context) {
			cancel()
			select { // a write under the context of the request would end now
			case <-write.Done():
			case <-time.After(200 * time.Millisecond):
			}
		})
	}
	status, header, answer := w.send(ts, ctx, method, path, body, headers...)
	if want == "gone" {
		select {
		case <-w.stderr.audited:
		case <-time.After(time.Until(w.desk.deadline)):
			ts.Fatalf("the audit has no line about the order")
		}
	}
	if got := fmt.Sprint(status); got != want && (want != "gone" || status != 0) {
		ts.Fatalf("status %s, want %s\n%s", got, want, answer)
	}
	if words := commandWords.Find(answer); words != nil && status != http.StatusForbidden && strings.HasPrefix(path, apiPath) {
		ts.Fatalf("the page has no %s: %s", words, answer)
	}
	if strings.HasPrefix(header.Get("Content-Type"), "application/json") && !json.Valid(answer) {
		ts.Fatalf("not one document: %s", answer)
	}
	ts.Stdout().Write(answer)
	for name, values := range header {
		fmt.Fprintf(ts.Stderr(), "%s: %s\n", name, values[0])
	}
}

// send sends a request as the page does, with other headers. The status 0 means that
// ctx ended.
func (w *window) send(ts *testscript.TestScript, ctx context.Context, method, path, body string, headers ...string) (int, http.Header, []byte) {
	within, cancel := context.WithDeadline(ctx, w.desk.deadline)
	defer cancel()
	r, err := http.NewRequestWithContext(within, method, w.base+path, strings.NewReader(body))
	ts.Check(err)
	if method != http.MethodGet {
		r.Header.Set("Origin", w.base)
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Cookie", w.cookie)
	r.Header.Set(sessionHeader, w.session)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		if r.Header.Del(name); name == "Host" {
			r.Host = value
		} else if value != "" {
			r.Header.Set(name, value)
		}
	}
	reply, err := http.DefaultClient.Do(r)
	if ctx.Err() != nil {
		return 0, nil, nil
	}
	ts.Check(err)
	defer reply.Body.Close()
	data, err := io.ReadAll(reply.Body)
	ts.Check(err)
	return reply.StatusCode, reply.Header, data
}

// tableOf returns the store in the table of a database.
func tableOf(t *testing.T, client dynamostore.Client) *dynamostore.Store {
	t.Helper()
	s, err := dynamostore.New(client, tableName)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// browse decodes the answer of a console over a store to a request in its session.
func browse(t *testing.T, s *site, path string, v any) {
	t.Helper()
	reply := ask(t, s, http.MethodGet, path)
	if err := json.Unmarshal(reply.Body.Bytes(), v); err != nil || reply.Code != http.StatusOK {
		t.Fatalf("%d, %v: %s", reply.Code, err, reply.Body)
	}
}

// ask returns the answer of a console over a store to a request in its session.
func ask(t *testing.T, s *site, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	d, ticket := newDoor("127.0.0.1:4711")
	cookie, session, _ := d.enter(ticket)
	r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:4711"+path, nil)
	r.Header.Set("Origin", "http://127.0.0.1:4711")
	r.Header.Set("Content-Type", "application/json")
	r.AddCookie(&http.Cookie{Name: d.cookieName(), Value: cookie})
	r.Header.Set(sessionHeader, session)
	reply := httptest.NewRecorder()
	s.handler(d).ServeHTTP(reply, r)
	return reply
}

// No request of another origin reaches a route of the console, although the browser
// sends the secrets of the session with it. The console has no store, which every
// route needs but the page and the session, and the ticket stays good.
func TestConsole_Foreign(t *testing.T) {
	t.Parallel()
	page := newSite(t.Context(), &env{environment: nightEnvironment()}, &opened{}, nil, nil)
	d, ticket, own := serveSite(t, page)
	kit.Foreign(t, d.host, slices.Collect(maps.Keys(page.routes(d))), own)
	if _, _, ok := d.enter(ticket); !ok {
		t.Error("a foreign request has used the ticket")
	}
}

// An order that was not transferred completely is refused, although what arrived is complete.
func TestConsole_CutOff(t *testing.T) {
	t.Parallel()
	body := io.MultiReader(strings.NewReader("{}"), iotest.ErrReader(io.ErrUnexpectedEOF))
	if err := readJSON(httptest.NewRequest(http.MethodPost, "/", body), new(struct{})); exitCode(err) != exitUsage {
		t.Errorf("got %v", err)
	}
}

// The console remembers nothing of requests, also of those that have the secrets. Not
// parallel: it measures the memory of the process.
func TestConsole_Flood(t *testing.T) {
	o, err := openFile(filepath.Join(t.TempDir(), "once.db"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	page := newSite(t.Context(), &env{environment: nightEnvironment()}, o, nil, nil)
	d, _, own := serveSite(t, page)
	kit.Flood(t, d.host, slices.Collect(maps.Keys(page.routes(d))), own)
}

// serveSite serves a console. own returns a request of its session, with a ticket that
// was not used.
func serveSite(t *testing.T, s *site) (d *door, ticket string, own func(method, url string) *http.Request) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	d, ticket = newDoor(server.Listener.Addr().String())
	cookie, session, _ := d.enter(ticket)
	ticket, d.ticket = newSecret()
	server.Config.Handler = s.handler(d)
	server.Start()
	t.Cleanup(server.Close)
	return d, ticket, func(method, url string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(fmt.Sprintf(`{"ticket": %q}`, ticket)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(sessionHeader, session)
		r.AddCookie(&http.Cookie{Name: d.cookieName(), Value: cookie})
		return r
	}
}

func nightEnvironment() *environment { return &environment{now: func() time.Time { return night }} }

// moving is a store in which a record moves to the list of those that were given up,
// between the reads of the two lists.
type moving struct{ records }

// Exhausted also lists the records that are due.
func (m moving) Exhausted(ctx context.Context) iter.Seq2[driver.Listed, error] {
	return func(yield func(driver.Listed, error) bool) {
		for e, err := range m.Due(ctx, time.Time{}) {
			e.Due = e.Due.Add(time.Hour)
			if !yield(e, err) {
				return
			}
		}
	}
}

// A record that moves from one list to the other meanwhile is counted once, as it is
// in the later one.
func TestConsole_Moving(t *testing.T) {
	t.Parallel()
	s := tableOf(t, dynamotest.New(tableName))
	id := idempotent.Key{Operation: "refund", Scope: "acme", ID: "r-9"}.RecordID()
	r := driver.Record{ID: id, State: driver.StateUnknown, Reason: driver.ReasonUnknown, Version: driver.Version{1}, Created: night, Since: night, LeaseEnd: night, Due: night}
	if met, err := s.Insert(t.Context(), r, night); met != nil || err != nil {
		t.Fatal(met, err)
	}
	o := &opened{records: moving{s}, name: "table once"}
	for e, err := range o.waiting(t.Context()) {
		if err != nil || e.ID != id {
			t.Errorf("waiting lists %s, %v", e.ID, err)
		}
		id = ""
	}
	page := newSite(t.Context(), &env{environment: nightEnvironment()}, o, nil, nil)
	var first counts
	browse(t, page, "/api/overview", &first)
	if first.Unknown != 1 || first.Exhausted != 1 || len(first.Groups) != 1 || first.Groups[0].Records != 1 {
		t.Errorf("got %+v", first)
	}
}

// Two counts of all records are not made at once.
func TestConsole_OneCount(t *testing.T) {
	t.Parallel()
	page := newSite(t.Context(), &env{environment: nightEnvironment()}, &opened{}, nil, nil)
	page.counting.Lock()
	if reply := ask(t, page, http.MethodPost, "/api/count"); reply.Code != http.StatusConflict || !strings.Contains(reply.Body.String(), "reading the whole store already") {
		t.Errorf("%d %s", reply.Code, reply.Body)
	}
}

// A lease has ended, and a record is due, from the moment on that it names.
func TestConsole_Moment(t *testing.T) {
	t.Parallel()
	for left, want := range map[time.Duration]bool{-1: true, 0: true, 1: false} {
		at := view.Time{Time: night.Add(left)}
		r := row{viewed: viewed{State: "in_progress", LeaseEnd: at, Due: at}}
		if ended, due := r.in(listEnded, night), r.in(listDue, night); ended != want || due != want {
			t.Errorf("%d ns before: ended %t, due %t", left, ended, due)
		}
	}
}

// An outcome belongs to the hour in which it became unknown. The clock of the worker may
// be ahead.
func TestConsole_Hours(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]int{-2 * time.Hour: 23, 0: 23, time.Hour - 1: 23, time.Hour: 22, 24*time.Hour - 1: 0, 24 * time.Hour: -1} {
		w := waiting{at: night, rows: []row{{viewed: viewed{State: "unknown", Since: view.Time{Time: night.Add(-age)}}}}}
		if c := w.counts(); want >= 0 && c.Hours[want] != 1 || want < 0 && c.Earlier != 1 {
			t.Errorf("unknown for %s: %v, earlier %d", age, c.Hours, c.Earlier)
		}
	}
}

// The console keeps a bounded number of ended leases and of what a search found, and
// shows that there are more.
func TestConsole_ManyEnded(t *testing.T) {
	t.Parallel()
	for n, complete := range map[int]bool{listedAtMost: true, listedAtMost + 1: false} {
		o := &opened{
			records: tableOf(t, dynamotest.New(tableName)),
			items:   func(context.Context) int { return 0 },
			alien:   func(context.Context) error { return nil },
			all: func(context.Context, func(dynamostore.ScanProgress)) iter.Seq2[driver.Record, error] {
				return func(yield func(driver.Record, error) bool) {
					for i := range n {
						id := idempotent.Key{Operation: "mail", Scope: "acme", ID: strconv.Itoa(i)}.RecordID()
						yield(driver.Record{ID: id, State: driver.StateInProgress, Created: night, LeaseEnd: night, Due: night, Ref: "orders/" + strconv.Itoa(i)}, nil)
					}
				}
			},
		}
		page := newSite(t.Context(), &env{environment: nightEnvironment()}, o, nil, nil)
		if got, err := page.search(t.Context(), search{Ref: "orders/", Whole: true}); err != nil || got.Found != listedAtMost || got.Complete != complete {
			t.Errorf("of %d records the search found %+v, %v", n, got, err)
		}
		var first counts
		if browse(t, page, "/api/overview", &first); first.Ended != listedAtMost || first.Complete != complete {
			t.Errorf("of %d ended leases %d are listed, complete: %t", n, first.Ended, first.Complete)
		}
	}
}

// An order settles at most 100 records.
func TestConsole_SettledAtMost(t *testing.T) {
	t.Parallel()
	page := newSite(t.Context(), &env{environment: nightEnvironment()}, &opened{}, nil, nil)
	for n, want := range map[int]string{100: "invalid RecordID", 101: "invalid number of records 101: want 1 to 100"} {
		if _, err := page.settle(t.Context(), &order{Items: make([]order, n)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d records: %v, want %s", n, err, want)
		}
	}
}

// million is a table whose index has many unknown records. It answers only reads of
// one record, and bounded queries of the index, of which there are at most atMost: any
// other call ends the test.
type million struct {
	dynamostore.Client
	perShard, atMost int

	mu      sync.Mutex
	queries int
	entries int
	reads   int
}

// GetItem returns no item.
func (m *million) GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	return &dynamodb.GetItemOutput{}, nil
}

// Query returns a page of a shard.
func (m *million) Query(_ context.Context, in *dynamodb.QueryInput, _ ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	if aws.ToString(in.IndexName) != tabledef.IndexName || in.Limit == nil {
		return nil, fmt.Errorf("not a bounded query of the index: %+v", in)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queries++; m.queries > m.atMost {
		return nil, fmt.Errorf("more than %d queries", m.atMost)
	}
	shard := in.ExpressionAttributeValues[":shard"].(*types.AttributeValueMemberS).Value
	out := &dynamodb.QueryOutput{}
	if strings.HasPrefix(shard, "u#") { // due, not given up
		from := 0
		if start, ok := in.ExclusiveStartKey["n"].(*types.AttributeValueMemberN); ok {
			from, _ = strconv.Atoi(start.Value)
		}
		to := min(m.perShard, from+int(*in.Limit))
		for n := from; n < to; n++ {
			at := &types.AttributeValueMemberN{Value: fmt.Sprint(night.Add(-100*time.Hour).UnixMilli() + int64(n))}
			out.Items = append(out.Items, map[string]types.AttributeValue{
				tabledef.PartitionKey: &types.AttributeValueMemberS{Value: fmt.Sprintf("charge#%s%041d", shard[2:], n)},
				tabledef.IndexSortKey: at, tabledef.IndexAttributes()[1]: at,
				tabledef.IndexAttributes()[0]: &types.AttributeValueMemberS{Value: driver.StateUnknown.Code()},
			})
		}
		if to < m.perShard {
			out.LastEvaluatedKey = map[string]types.AttributeValue{"n": &types.AttributeValueMemberN{Value: strconv.Itoa(to)}}
		}
	}
	m.entries += len(out.Items)
	return out, nil
}

// The first screen of a table in which a million records are unknown takes a
// bounded number of queries of the index, and reads only the records that it shows.
func TestConsole_Million(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		perShard, queries, entries, unknown int
		complete                            bool
	}{
		{0, 128, 0, 0, true},
		{50, 128, 64 * 50, 64 * 50, true},
		{1_000_000 / 64, 3 * 64, 64 * 2 * 250, listedAtMost, false}, // a page of each shard, and one page ahead
	} {
		table := &million{perShard: row.perShard, atMost: row.queries}
		s := tableOf(t, table)
		page := newSite(t.Context(), &env{environment: nightEnvironment()}, &opened{records: s, whole: s, name: "table once"}, nil, nil)
		var first counts
		browse(t, page, "/api/overview", &first)
		type listPage struct {
			Rows     []json.RawMessage
			Total    int
			Complete bool
		}
		var p listPage
		browse(t, page, "/api/list?list=unknown&offset=0", &p)
		if first.Unknown != row.unknown || first.Complete != row.complete || p.Total != row.unknown || p.Complete != row.complete || len(p.Rows) != min(row.unknown, 20) {
			t.Errorf("%d in each shard: %d unknown (complete: %t), %d of %d rows", row.perShard, first.Unknown, first.Complete, len(p.Rows), p.Total)
		}
		var found listPage
		if browse(t, page, "/api/list?list=found&offset=0", &found); !found.Complete || found.Total > 0 {
			t.Errorf("%d in each shard: %d were found without a search (complete: %t)", row.perShard, found.Total, found.Complete)
		}
		reads := table.reads
		if got, err := page.search(t.Context(), search{Ref: "orders/1"}); err != nil || got.Complete != row.complete || got.Found+got.Damaged > 0 {
			t.Errorf("%d in each shard: the search found %+v, %v", row.perShard, got, err)
		}
		if table.entries > row.entries || table.queries == 0 || reads != len(p.Rows) {
			t.Errorf("%d in each shard: %d queries of %d entries, want at most %d; %d records were read", row.perShard, table.queries, table.entries, row.entries, reads)
		}
	}
}
