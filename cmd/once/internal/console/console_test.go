// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/dynamostore/dynamotest"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/tabledef"
	"github.com/once-lambda/once/internal/view"
)

// night is the time at which the clock of a test stands.
var night = time.Date(2026, 11, 21, 3, 12, 0, 0, time.UTC)

// tableOf returns the store in the table of a database.
func tableOf(t *testing.T, client dynamostore.Client) *dynamostore.Store {
	t.Helper()
	s, err := dynamostore.New(client, "once-records")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bare is a table of which nothing is known besides its records.
type bare struct{ *dynamostore.Store }

func (bare) Name() string                    { return "table once" }
func (bare) Size(context.Context) (int, int) { return 0, 0 }
func (bare) Caller(context.Context) string   { return "" }
func (bare) Alien(context.Context) error     { return nil }
func (b bare) Whole() operate.Store          { return b }
func (bare) Scheduled() *dynamostore.Store   { return nil }
func (bare) Close() error                    { return nil }

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
	d, ticket := newSession("127.0.0.1:4711")
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
	page := newSite(t.Context(), nightEnvironment(), nil, nil, nil)
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
	if err := readJSON(httptest.NewRequest(http.MethodPost, "/", body), new(struct{})); operate.ExitCode(err) != operate.ExitUsage {
		t.Errorf("got %v", err)
	}
}

// The console remembers nothing of requests, also of those that have the secrets. Not
// parallel: it measures the memory of the process.
func TestConsole_Flood(t *testing.T) {
	o, err := operate.OpenFile(filepath.Join(t.TempDir(), "once.db"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	page := newSite(t.Context(), nightEnvironment(), o, nil, nil)
	d, _, own := serveSite(t, page)
	kit.Flood(t, d.host, slices.Collect(maps.Keys(page.routes(d))), own)
}

// serveSite serves a console. own returns a request of its session, with a ticket that
// was not used.
func serveSite(t *testing.T, s *site) (d *session, ticket string, own func(method, url string) *http.Request) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	d, ticket = newSession(server.Listener.Addr().String())
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

func nightEnvironment() *operate.Env { return &operate.Env{Now: func() time.Time { return night }} }

// pipes is a listener whose connections are in memory.
type pipes struct {
	dialed chan net.Conn
	ended  chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialed:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	close(p.ended)
	return nil
}

func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// At Ctrl-C the console waits 5 seconds for a request that does not end, and reports it. It
// reports a listener that fails, too.
func TestConsole_Stuck(t *testing.T) {
	t.Parallel()
	for work, want := range map[time.Duration]string{endTimeout - time.Second: "", endTimeout + time.Second: "a request did not end: context deadline exceeded"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			p := pipes{make(chan net.Conn), make(chan struct{})}
			client, server := net.Pipe()
			ended := make(chan struct{})
			go func() {
				p.dialed <- server
				fmt.Fprint(client, "GET / HTTP/1.1\r\nHost: console\r\n\r\n")
				io.Copy(io.Discard, client)
			}()
			err := serve(ctx, io.Discard, p, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				defer close(ended)
				interrupt()
				<-r.Context().Done()
				time.Sleep(work)
			}))
			<-ended
			if got := fmt.Sprint(cmp.Or(err, errors.New(""))); got != want {
				t.Errorf("a request that takes %s: got %q, want %q", work, got, want)
			}
		})
	}
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	if err := serve(t.Context(), io.Discard, closed, nil); !errors.Is(err, net.ErrClosed) || !strings.HasPrefix(err.Error(), "the console ended: ") {
		t.Errorf("a listener that is closed: got %v", err)
	}
}

// moving is a store in which a record moves to the list of those that were given up,
// between the reads of the two lists.
type moving struct{ bare }

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
	s := tableOf(t, dynamotest.New("once-records"))
	id := idempotent.Key{Operation: "refund", Scope: "acme", ID: "r-9"}.RecordID()
	r := driver.Record{ID: id, State: driver.StateUnknown, Reason: driver.ReasonUnknown, Version: driver.Version{1}, Created: night, Since: night, LeaseEnd: night, Due: night}
	if met, err := s.Insert(t.Context(), r, night); met != nil || err != nil {
		t.Fatal(met, err)
	}
	o := moving{bare{s}}
	for e, err := range operate.Waiting(t.Context(), o) {
		if err != nil || e.ID != id {
			t.Errorf("waiting lists %s, %v", e.ID, err)
		}
		id = ""
	}
	page := newSite(t.Context(), nightEnvironment(), o, nil, nil)
	var first counts
	browse(t, page, "/api/overview", &first)
	if first.Unknown != 1 || first.Exhausted != 1 || len(first.Groups) != 1 || first.Groups[0].Records != 1 {
		t.Errorf("got %+v", first)
	}
}

// Two counts of all records are not made at once.
func TestConsole_OneCount(t *testing.T) {
	t.Parallel()
	page := newSite(t.Context(), nightEnvironment(), nil, nil, nil)
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
		w := index{at: night, rows: []row{{viewed: viewed{State: "unknown", Since: view.Time{Time: night.Add(-age)}}}}}
		if c := w.counts(); want >= 0 && c.Hours[want] != 1 || want < 0 && c.Earlier != 1 {
			t.Errorf("unknown for %s: %v, earlier %d", age, c.Hours, c.Earlier)
		}
	}
}

// abandoned is a store of n runs whose lease has ended.
type abandoned struct {
	bare
	n int
}

// Scan lists the runs.
func (e abandoned) Scan(context.Context, ...func(*dynamostore.ScanOptions)) iter.Seq2[driver.Record, error] {
	return func(yield func(driver.Record, error) bool) {
		for i := range e.n {
			id := idempotent.Key{Operation: "mail", Scope: "acme", ID: strconv.Itoa(i)}.RecordID()
			yield(driver.Record{ID: id, State: driver.StateInProgress, Created: night, LeaseEnd: night, Due: night, Ref: "orders/" + strconv.Itoa(i)}, nil)
		}
	}
}

// The console keeps a bounded number of ended leases and of what a search found, and
// shows that there are more.
func TestConsole_ManyEnded(t *testing.T) {
	t.Parallel()
	for n, complete := range map[int]bool{listedAtMost: true, listedAtMost + 1: false} {
		o := abandoned{bare{tableOf(t, dynamotest.New("once-records"))}, n}
		page := newSite(t.Context(), nightEnvironment(), o, nil, nil)
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
	page := newSite(t.Context(), nightEnvironment(), nil, nil, nil)
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
		page := newSite(t.Context(), nightEnvironment(), bare{s}, nil, nil)
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
