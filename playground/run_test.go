// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/playground/provider"
	"github.com/once-lambda/once/playground/web"
)

// The workers of these tests are this program, started again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		main()
		return
	}
	os.Exit(m.Run())
}

func env(pairs ...string) func(string) string {
	m := map[string]string{"PORT": "0"}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

// started is a running example.
type started struct {
	url   string
	hints string // the text printed at the start
	stop  func() error
}

func start(t *testing.T, getenv func(string) string) started {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, getenv, in, io.Discard)
		in.CloseWithError(err)
		done <- err
	}()
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("the example did not start: %v", err)
	}
	s := started{url: strings.TrimPrefix(strings.TrimSpace(first), "listening on ")}
	for !strings.Contains(s.hints, "/provider/charges") {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		s.hints += line
	}
	go io.Copy(io.Discard, lines)
	stopped := false
	s.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() { s.stop() })
	return s
}

func post(t *testing.T, url, key, body string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest("POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", `"`+key+`"`)
	}
	return do(t, r)
}

func do(t *testing.T, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

const (
	key     = "8e03978e-40d5-43e8-bc93-6894a57f9324"
	aCharge = `{"amount":4200,"currency":"usd","customer":"cus_1"}`
)

// A newcomer's session: start it, charge twice, count, stop it, start it again,
// and charge a third time. Without once, every request is a charge, of another ledger.
func TestRun(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "data")
	s := start(t, env("DATA", dir))
	for line := range strings.Lines(s.hints) {
		if !strings.Contains(line, dir) && len(line) > 80 {
			t.Errorf("this line is wider than a terminal: %q", line)
		}
	}
	for _, part := range []string{s.url, dir, `-H 'Idempotency-Key: "8e03978e-40d5-43e8-bc93-6894a57f9324"' \`} {
		if !strings.Contains(s.hints, part) {
			t.Errorf("the hints do not contain %q:\n%s", part, s.hints)
		}
	}
	first, created := post(t, s.url+"/charges", key, aCharge)
	if first.StatusCode != http.StatusCreated {
		t.Fatalf("got %d %s", first.StatusCode, created)
	}
	for n := range 2 {
		resp, body := post(t, s.url+"/without-once/charges", key, aCharge)
		if resp.StatusCode != http.StatusCreated || resp.Header.Get("Idempotent-Replayed") != "" {
			t.Errorf("without once: got %d %s", resp.StatusCode, body)
		}
		resp, body = post(t, s.url+"/charges", key, aCharge)
		if resp.StatusCode != http.StatusCreated || body != created || resp.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("got %d %s, want the replay of %s", resp.StatusCode, body, created)
		}
		resp, body = post(t, s.url+"/admin/resolve", "", `{"idempotency_key":"`+key+`"}`)
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, "completed") {
			t.Errorf("got %d %s", resp.StatusCode, body)
		}
		for path, want := range map[string]int{"/provider/charges": 1, "/without-once/provider/charges": n + 1} {
			r, err := http.NewRequest("GET", s.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, ledger := do(t, r); strings.Count(ledger, `"id"`) != want || strings.Count(ledger, string(charge.RecordIDOf(key))) != want {
				t.Errorf("%s has %s, want %d charges of the key", path, ledger, want)
			}
		}
		if err := s.stop(); err != nil {
			t.Fatalf("stopped with %v", err)
		}
		s = start(t, env("DATA", dir))
	}
}

// The program serves the page to which the API's problems link: their type is an anchor
// of it.
func TestProblemsLinkToThePage(t *testing.T) {
	t.Parallel()
	s := start(t, env("DATA", t.TempDir()))
	refused, body := post(t, s.url+"/charges", "", aCharge)
	var problem struct{ Type string }
	if err := json.Unmarshal([]byte(body), &problem); err != nil {
		t.Fatal(err)
	}
	address, anchor, _ := strings.Cut(problem.Type, "#")
	if link := refused.Header.Get("Link"); link != "<"+address+`>; rel="describedby"; type="text/html"` {
		t.Errorf("got Link %q and type %q", link, problem.Type)
	}
	r, err := http.NewRequest("GET", s.url+address, nil)
	if err != nil {
		t.Fatal(err)
	}
	page, text := do(t, r)
	for _, part := range []string{`<a id="` + anchor + `">`, "16 to 255", "</table>"} {
		if page.StatusCode != http.StatusOK || !strings.Contains(text, part) {
			t.Errorf("got %d %s, want %q in it", page.StatusCode, text, part)
		}
	}
	if media := page.Header.Get("Content-Type"); media != "text/html; charset=utf-8" {
		t.Errorf("the page is %s", media)
	}
	if resp, _ := post(t, s.url+address, key, aCharge); resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET" {
		t.Errorf("POST to the page: got %d, Allow %q", resp.StatusCode, resp.Header.Get("Allow"))
	}
}

func TestProviderElsewhere(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"id":"ch_elsewhere"}`)
	}))
	defer elsewhere.Close()
	dir := t.TempDir()
	s := start(t, env("DATA", dir, "PROVIDER_URL", elsewhere.URL))
	for path, want := range map[string]bool{"/charges": true, "/without-once/charges": false} { // it must not charge twice there
		if resp, body := post(t, s.url+path, key, aCharge); resp.StatusCode != http.StatusCreated || strings.Contains(body, "ch_elsewhere") != want {
			t.Errorf("%s: got %d %s", path, resp.StatusCode, body)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ledger.jsonl")); err == nil {
		t.Error("there is a ledger although PROVIDER_URL is set")
	}
}

// wantRefusal checks that run ends with an error that contains the parts.
func wantRefusal(t *testing.T, getenv func(string) string, parts ...string) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), getenv, &out, io.Discard)
	if err == nil {
		t.Fatal("the example ran")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("got the error %q, want %q in it", err, part)
		}
	}
	if out.Len() > 0 {
		t.Errorf("it printed %q before it failed", &out)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, port := range []string{"http", "-1", "65536"} {
		wantRefusal(t, env("PORT", port), "PORT", port, "number from 1 to 65535")
	}
	for _, timeout := range []string{"10", "-1s", "0"} {
		wantRefusal(t, env("TIMEOUT", timeout), "TIMEOUT", "duration like 10s")
		wantRefusal(t, env("SLOW", timeout), "SLOW", "duration like 2s")
	}
	wantRefusal(t, env("PROFILE", "IETF"), "PROFILE", "IETF", "ietf, stripe or uuid")
	wantRefusal(t, env("ONCE_TABLE", "t", "ONCE_CREATE_TABLE", "yes"), "ONCE_CREATE_TABLE", "1 or 0")
	wantRefusal(t, env("ONCE_CREATE_TABLE", "1"), "ONCE_TABLE")

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	wantRefusal(t, env("PORT", port), "port "+port, "is taken", "set PORT")

	dir := t.TempDir()
	wantRefusal(t, env("DATA", dir, "PROVIDER_URL", "provider"), "PROVIDER_URL", "http://")
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("no store"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, env("DATA", filepath.Join(file, "data")), "set DATA")

	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "once.db"), bytes.Repeat([]byte("no store "), 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, env("DATA", broken), filepath.Join(broken, "once.db"), "not a bbolt file")

	torn := t.TempDir()
	if err := os.WriteFile(filepath.Join(torn, "ledger.jsonl"), []byte("no charge\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, env("DATA", torn), filepath.Join(torn, "ledger.jsonl"), "line 1")

	held := t.TempDir()
	start(t, env("DATA", held))
	wantRefusal(t, env("DATA", held), filepath.Join(held, "once.db"), "held by another process")
}

func TestListenErrors(t *testing.T) {
	t.Parallel()
	if err := listenError(80, os.NewSyscallError("bind", os.ErrPermission)); !strings.Contains(err.Error(), "PORT") {
		t.Error(err)
	}
}

// A missing table, and a missing region: one error each, which states what to
// do. Not parallel: dynamostore and the AWS SDK read the process's environment.
func TestTable(t *testing.T) {
	dynamo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException","message":"no"}`)
	}))
	defer dynamo.Close()
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": dynamo.URL, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
	} {
		t.Setenv(name, value)
	}
	table := func(name string, pairs ...string) func(string) string {
		t.Setenv("ONCE_TABLE", name) // dynamostore.Open reads it too
		return env(append(pairs, "DATA", t.TempDir(), "ONCE_TABLE", name)...)
	}
	wantRefusal(t, table("once-records"), "AWS_REGION")
	t.Setenv("AWS_REGION", "us-east-1")
	wantRefusal(t, table("once-records"), "once-records", "ONCE_CREATE_TABLE=1")
	wantRefusal(t, table("once-records", "ONCE_CREATE_TABLE", "1"), "once-records")
	wantRefusal(t, table("/"), "dynamostore")
}

// Under each profile the printed commands have the key as its header spells it, and the
// operator's endpoint finds the record by the key alone. The tests end to end have the answers.
func TestProfiles(t *testing.T) {
	t.Parallel()
	for profile, spelled := range map[string]string{"ietf": `"` + key + `"`, "stripe": key, "uuid": key} {
		s := start(t, env("DATA", t.TempDir(), "PROFILE", profile))
		if !strings.Contains(s.hints, "profile: "+profile+"\n") || !strings.Contains(s.hints, "-H 'Idempotency-Key: "+spelled+"'") {
			t.Errorf("the hints are\n%s", s.hints)
		}
		r := withKey(t, "", http.MethodPost, s.url+"/charges")
		r.Header.Set("Idempotency-Key", spelled)
		if resp, body := do(t, r); resp.StatusCode != http.StatusCreated {
			t.Errorf("%s: got %d %s", profile, resp.StatusCode, body)
		}
		if resp, body := post(t, s.url+"/admin/resolve", "", `{"idempotency_key":"`+key+`"}`); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: resolving the key: %d %s", profile, resp.StatusCode, body)
		}
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"polic"}, {"policy", "yaml"}, {"policy", "openapi", "more"}, {"--help"}, {""}} {
		var out strings.Builder
		if err := command(t.Context(), args, env(), &out, io.Discard); err == nil || !strings.Contains(err.Error(), `"policy openapi"`) || out.Len() > 0 {
			t.Errorf("%q: got error %v after %q", args, err, &out)
		}
	}
	if err := command(t.Context(), []string{"policy"}, env("PROFILE", "rest"), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "ietf, stripe or uuid") {
		t.Errorf("got error %v", err)
	}
	// Without arguments it serves, or returns an error with the reason.
	if err := command(t.Context(), nil, env("PORT", "http"), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "PORT") {
		t.Errorf("got error %v", err)
	}
}

// No request of a page of another origin reaches a route of the example: it books
// nothing, settles nothing, and is not remembered.
func TestForeign(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, env("DATA", dir))
	host := strings.TrimPrefix(s.url, "http://")
	own := func(method, url string) *http.Request { return withKey(t, key, method, url) }
	kit.Foreign(t, host, routesOf(t, s.url), own)

	watching, err := http.Get(s.url + "/playground/watch?idempotency_key=" + key)
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Body.Close()
	shown, err := bufio.NewReader(watching.Body).ReadString('\n')
	if err != nil || !strings.Contains(shown, `"record":null,"history":null,"exchanges":null,"with":{"ledger":[],"booked":0,"of_key":0,"amounts":{},"workers":null},"without":{"ledger":[],"booked":0,"of_key":0,"amounts":{},"workers":null}`) {
		t.Errorf("after foreign requests the page shows %s, %v", shown, err)
	}

	// The page itself can do all this, by each name of the address.
	for _, name := range []string{host, strings.Replace(host, "127.0.0.1", "localhost", 1), strings.Replace(host, "127.0.0.1", "[::1]", 1)} {
		r := own("POST", s.url+"/charges")
		r.Host = name
		r.Header.Set("Origin", "http://"+name)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		if resp, body := do(t, r); resp.StatusCode != http.StatusCreated {
			t.Errorf("at %s: %d %s", name, resp.StatusCode, body)
		}
	}
	r := own("GET", s.url+"/")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if resp, body := do(t, r); resp.StatusCode != http.StatusOK || !strings.Contains(body, "<!doctype html>") {
		t.Errorf("a link to the page: %d %s", resp.StatusCode, body)
	}
}

// withKey returns a request that has an effect if it is not refused.
func withKey(t *testing.T, key, method, url string) *http.Request {
	t.Helper()
	body := aCharge
	if !strings.Contains(url, "/charges") {
		body = `{"idempotency_key":"` + key + `"}`
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", `"`+key+`"`)
	return r
}

// What the example remembers of requests has a limit. Not parallel: it measures the
// memory of the process.
func TestFlood(t *testing.T) {
	s := start(t, env("DATA", t.TempDir()))
	n := 0
	kit.Flood(t, strings.TrimPrefix(s.url, "http://"), routesOf(t, s.url), func(method, url string) *http.Request {
		n++
		return withKey(t, fmt.Sprintf("%0253d", n/kit.Repeated), method, url)
	})
}

// routesOf returns the patterns of all that the example serves.
func routesOf(t *testing.T, url string) []string {
	t.Helper()
	c, err := readConfig(env())
	if err != nil {
		t.Fatal(err)
	}
	standIn, err := provider.New(filepath.Join(t.TempDir(), "ledger.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { standIn.Close() })
	routes := standIn.Routes("/provider")
	if _, err := mount(routes, &c, &web.Playground{History: web.NewHistory(memstore.New()), Exchanges: &web.Exchanges{}}, url, newLogger(io.Discard)); err != nil {
		t.Fatal(err)
	}
	return append(slices.Collect(maps.Keys(routes)), "POST /charges", "GET /charges/{id}")
}
