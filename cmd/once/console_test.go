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
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/once-lambda/once/cmd/once/internal/operate"
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

func openConsole(ts *testscript.TestScript, _ bool, args []string) {
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
	if code := inTime(ts, w.code); code != operate.ExitOK {
		ts.Fatalf("the console ended with the code %d", code)
	}
	// The console of another script may have the port already. It knows no such session.
	r, err := http.NewRequest(http.MethodGet, w.base+"/api/overview", nil)
	ts.Check(err)
	r.Header = http.Header{"Sec-Fetch-Site": {"same-origin"}, "Cookie": {w.cookie}, "Once-Session": {w.session}}
	if reply, err := http.DefaultClient.Do(r); err == nil {
		if reply.Body.Close(); reply.StatusCode == http.StatusOK {
			ts.Fatalf("the console still answers")
		}
	}
	io.WriteString(ts.Stderr(), w.desk.local(w.stderr.String()))
}

func (w *window) http(ts *testscript.TestScript, args []string) {
	body, headers := "", args[3:]
	if len(headers) > 0 && (headers[0] == "" || strings.ContainsAny(headers[0][:1], "{@")) {
		body, headers = headers[0], headers[1:]
	}
	if name, isFile := strings.CutPrefix(body, "@"); name == "large" {
		body = strings.Repeat(" ", operate.MaxAnswer) + "{}"
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
	if words := commandWords.Find(answer); words != nil && status != http.StatusForbidden && strings.HasPrefix(path, "/api/") {
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
	r.Header.Set("Once-Session", w.session)
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
