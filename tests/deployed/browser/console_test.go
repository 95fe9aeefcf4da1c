// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/httpform"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/tests/deployed/browser"
)

// onceBinary builds the command line on first use.
var onceBinary = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(programs, "once")
	return path, engine.Build(path, "./cmd/once")
})

// console is a running once console.
type console struct {
	t       *testing.T
	address string // works once
	base    string
	audit   string // file
}

// startConsole starts the command with the arguments that name a store. The test
// fails unless SIGTERM ends it with the exit code 0.
func startConsole(t *testing.T, args ...string) *console {
	t.Helper()
	return startScript(t, "exec once console --file "+strings.Join(args, " "))
}

// guide returns the n-th block of commands of docs/console.md, about a table.
func guide(t *testing.T, n int, table string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(engine.Root(), "docs/console.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 3 || !strings.Contains(blocks[n][1], "--table once-records") {
		t.Fatalf("the guide has other blocks than this test expects: %q", blocks)
	}
	return "exec " + strings.ReplaceAll(blocks[n][1], "once-records", table)
}

// startScript starts a script that becomes the command.
func startScript(t *testing.T, script string, env ...string) *console {
	t.Helper()
	bin, err := onceBinary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = t.TempDir()
	c := &console{t: t, audit: filepath.Join(cmd.Dir, "console.jsonl")} // as in the guide
	cmd.Env = append(append(os.Environ(), "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"), "ONCE_AUDIT="+c.audit), env...)
	engine.EndWithParent(cmd)
	p, address, err := engine.StartUntil(cmd, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.End(syscall.SIGTERM); err != nil {
			t.Errorf("the console ended with %v\n%s", err, p.Log())
		}
	})
	c.address = address
	c.base, _, _ = strings.Cut(c.address, "#")
	return c
}

// open opens the page, and waits for its first screen.
func (c *console) open(v browser.View) *browser.Page {
	c.t.Helper()
	p := chromium.Open(c.t, c.address, v)
	p.Wait(`!document.querySelector("#desk").hidden && document.querySelector("#range").textContent !== ""`)
	return p
}

// audited returns the content of the audit.
func (c *console) audited() string {
	c.t.Helper()
	data, err := os.ReadFile(c.audit)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(data)
}

// tableStore returns a new table on DynamoDB Local, its name, and the environment in
// which the command line finds it.
func tableStore(t *testing.T) (store *dynamostore.Store, table string, env []string) {
	t.Helper()
	endpoint, stop, err := engine.DynamoDBLocal()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	table = "console-" + rand.Text()
	s, err := dynamostore.New(dynamostore.NewClient(engine.Config(endpoint)), table)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CreateTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, table, []string{
		"AWS_ENDPOINT_URL_DYNAMODB=" + endpoint, "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"AWS_ENDPOINT_URL_STS=http://127.0.0.1:1", "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=" + os.DevNull,
	}
}

// sentence says what was written of records, as the confirmation has said it before.
func sentence(t *testing.T, store driver.Store, reason string, ids ...idempotent.RecordID) string {
	t.Helper()
	said := map[string]bool{}
	for _, id := range ids {
		r, err := store.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		its := map[bool]string{true: "its result", false: "their results"}[len(ids) == 1]
		switch {
		case r.State != driver.StateCompleted || r.Reason != driver.ReasonResolved:
			t.Fatalf("%s was not settled by evidence: %s (%s)", id, r.State, r.Reason)
		case r.Encoding == driver.EncodingOmitted:
			said[fmt.Sprintf("completed, without %s: a retry learns that it was done", its)] = true
		case r.Encoding == "json" && len(ids) == 1:
			said[fmt.Sprintf("completed, with a result of %d B as JSON", len(r.Result))] = true
		default:
			t.Fatalf("%s has a result as %s", id, r.Encoding)
		}
	}
	if len(said) != 1 {
		t.Fatalf("different things were written: %v", said)
	}
	for what := range said {
		reason = fmt.Sprintf("%s: %s; reason: %s", map[bool]string{true: "1 record", false: fmt.Sprintf("%d records", len(ids))}[len(ids) == 1], what, reason)
	}
	return reason
}

// stated returns the sentence of the confirmation on the page.
func stated(p *browser.Page) (text string) {
	p.Eval(`[...document.querySelectorAll(".question dl div")].find((e) => e.querySelector("dt").textContent === "write").querySelector("dd").textContent`, &text)
	return text
}

// auditedReason returns the reason of the lines of the audit, which is the same in all.
func (c *console) auditedReason() string {
	c.t.Helper()
	reasons := map[string]bool{}
	for line := range strings.Lines(c.audited()) {
		var l struct{ Reason string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			c.t.Fatal(err)
		}
		reasons[l.Reason] = true
	}
	return strings.Join(slices.Collect(maps.Keys(reasons)), " / ")
}

// fileStore writes records to a new file, and returns its name.
func fileStore(t *testing.T, records ...driver.Record) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "once.db")
	s, err := boltstore.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, r := range records {
		if met, err := s.Insert(t.Context(), r, time.Now()); met != nil || err != nil {
			t.Fatal(met, err)
		}
	}
	return file
}

// unknownRecord returns a record whose outcome is unknown for that long.
func unknownRecord(operation, id string, age time.Duration, change func(*driver.Record)) driver.Record {
	at := time.Now().Add(-age)
	r := driver.Record{
		ID:    idempotent.Key{Operation: operation, Scope: "acme", ID: id}.RecordID(),
		State: driver.StateUnknown, Reason: driver.ReasonInterrupted, Attempt: 1, Fingerprint: idempotent.FingerprintBytes(nil),
		Created: at, Since: at, LeaseEnd: at, Due: at.Add(time.Minute),
	}
	copy(r.Version[:], r.ID.KeyHash())
	copy(r.Owner[:], r.ID.KeyHash())
	if change != nil {
		change(&r)
	}
	return r
}

// night returns records of every kind that the console shows.
func night() []driver.Record {
	given := func(r *driver.Record) {
		r.Exhausted, r.ReconcileAttempts, r.Due = true, 9, r.Created.Add(7*24*time.Hour)
	}
	list := []driver.Record{
		unknownRecord("transfer", "t-17", 40*time.Minute, func(r *driver.Record) {
			r.Recovery, r.Attempt, r.ReconcileAttempts, r.Ref = idempotent.Resume, 2, 5, "transfers/17"
			r.StepNames = []string{"reserve", "pay", "notify"}
			r.Steps = []driver.StepRecord{
				{Name: "pay", Mode: driver.AtMostOnce, Attempt: 2, At: r.Created},
				{Name: "reserve", Finished: true, By: driver.StepByRun, Attempt: 1, At: r.Created, Encoding: "json", Result: []byte(`{"hold":"h_1"}`)},
			}
		}),
		unknownRecord("POST /charges", "c-1", 12*time.Minute, func(r *driver.Record) { r.Codec = httpform.Encoding }),
		unknownRecord("refund", "r-9", 10*24*time.Hour, given),
		unknownRecord("invoice", "i-1", 5*time.Hour, func(r *driver.Record) {
			r.State, r.Reason, r.Encoding, r.Result, r.Due = driver.StateCompleted, driver.ReasonResult, "json", []byte(`{"number":7}`), time.Time{}
			r.Expires = time.Now().Add(19 * time.Hour)
		}),
	}
	for i := range 60 {
		list = append(list, unknownRecord("payout", fmt.Sprint(i), time.Duration(i*i)*time.Minute, func(r *driver.Record) { r.Ref = fmt.Sprintf("orders/%d", 1000+i) }))
	}
	return list
}

// The pictures of the documentation, see make screenshots.
func TestPictures_Console(t *testing.T) {
	t.Parallel()
	c := startConsole(t, fileStore(t, night()...), "--allow-resolve", "--link 'provider=https://dashboard.example/search?q={ref}'", "--link 'logs=https://logs.example/?key={downstream_key}'")
	p := c.open(browser.View{})
	p.Eval(`location.hash = "#r=" + encodeURIComponent(`+fmt.Sprintf("%q", idempotent.Key{Operation: "transfer", Scope: "acme", ID: "t-17"}.RecordID())+`)`, nil)
	p.Wait(`document.querySelector("#record").textContent.includes("reserve")`)
	p.Eval(`document.querySelector("#store").textContent = "table once-records in eu-central-1"; document.querySelector("#mode").textContent = "changes allowed, as ada@ops-1"`, nil)
	shoot(t, p, "console", "#record-title")
}

// A charge whose outcome is unknown is settled on the page, and the next request
// gets the result without running.
func TestConsole_Settles(t *testing.T) {
	t.Parallel()
	store, table, env := tableStore(t)
	g, err := idempotent.New(store)
	if err != nil {
		t.Fatal(err)
	}
	type charged struct {
		ID     string `json:"id"`
		Amount int64  `json:"amount"`
	}
	k := idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-17", Fingerprint: idempotent.FingerprintBytes(nil)}
	runs := 0
	charge := func() (charged, error) {
		return idempotent.Do(t.Context(), g, k, func(context.Context) (charged, error) {
			runs++
			return charged{}, idempotent.Unknown(errors.New("the reply was lost"))
		})
	}
	if _, err := charge(); err == nil {
		t.Fatal("the charge succeeded")
	}

	reader := startScript(t, guide(t, 0, table), env...).open(browser.View{})
	reader.Click("#rows a")
	reader.Wait(`document.querySelector("#changes").textContent.includes("read-only")`)
	c := startScript(t, guide(t, 2, table), env...)
	p := c.open(browser.View{})
	if p.Text("#tiles li:first-child strong") != "1" || !strings.Contains(p.Text("#rows"), "charge#") {
		t.Errorf("the first screen:\n%s", p.Text("body"))
	}
	p.Click("#rows a")
	p.Wait(`!document.querySelector("#record-panel").hidden`)
	if text := p.Text("#record-panel"); !strings.Contains(text, k.RecordID().DownstreamKey()) {
		t.Errorf("no downstream key:\n%s", text)
	}
	p.Click(`#changes input[value="completed"]`)
	p.Click("#changes textarea")
	p.Type(`{"id": "ch_5", "amount": 9007199254740993}`) // a number that JavaScript cannot hold
	p.Click(`#changes input[name="reason"]`)
	p.Type("ch_5 is in the provider's ledger")
	p.Click("#changes .form > .row button")
	p.Wait(`document.querySelector(".question input") === document.activeElement`)
	if c.audited() != "" {
		t.Errorf("something was written before the confirmation: %s", c.audited())
	}
	before := stated(p)
	p.Type("yes")
	p.Press("Enter")
	p.Wait(`document.querySelector("#problem").textContent.startsWith("Written: the record was unknown and is completed")`)
	p.Wait(`document.querySelector("#tiles strong").textContent === "0"`)

	if want := sentence(t, store, c.auditedReason(), k.RecordID()); before != want {
		t.Errorf("the confirmation says %q, and this was written: %q", before, want)
	}
	result, err := charge()
	if err != nil || result != (charged{"ch_5", 9007199254740993}) || runs != 1 {
		t.Errorf("the next request got %+v, %v after %d runs", result, err, runs)
	}
	for _, want := range []string{`"action":"resolve"`, `"outcome":"written"`, `"reason":"ch_5 is in the provider's ledger"`, string(k.RecordID())} {
		if !strings.Contains(c.audited(), want) {
			t.Errorf("no %s in %s", want, c.audited())
		}
	}
	p.Click("#results button")
	p.Wait(`document.querySelector("#results pre")?.textContent.includes("ch_5")`)
}

// A wrong stored outcome is found by the reference of its request and corrected on the page:
// nothing runs, and the next request gets what is right.
func TestConsole_Corrects(t *testing.T) {
	t.Parallel()
	store, table, env := tableStore(t)
	ago := time.Hour // until then, the lease of the first request has ended
	g, err := idempotent.New(store, func(o *idempotent.Options) { o.Now = func() time.Time { return time.Now().Add(-ago) } })
	if err != nil {
		t.Fatal(err)
	}
	k := idempotent.Key{Operation: "charge", Scope: "acme", ID: "order-17", Ref: "orders/17", Fingerprint: idempotent.FingerprintBytes(nil)}
	runs := 0
	charge := func() (map[string]string, error) {
		return idempotent.Do(t.Context(), g, k, func(context.Context) (map[string]string, error) {
			runs++
			return map[string]string{"id": "ch_4"}, nil
		})
	}
	if _, err := charge(); err != nil {
		t.Fatal(err)
	}
	ago = 0
	c := startScript(t, guide(t, 2, table), env...)
	p := c.open(browser.View{})
	p.Click("#find input")
	p.Type(k.Ref)
	p.Press("Enter")
	p.Wait(`document.querySelector("#nothing .primary") === document.activeElement`)
	p.Press("Enter")
	p.Wait(`document.querySelector("#changes").textContent.includes("Correct this outcome")`)
	if text := p.Text("#changes"); strings.Contains(text, "Nothing happened") || strings.Contains(text, "One step") {
		t.Errorf("the form offers what corrects no outcome:\n%s", text)
	}
	p.Click(`#changes input[value="completed"]`)
	p.Click("#changes textarea")
	p.Type(`{"id":"ch_5"}`)
	p.Click(`#changes .form:first-child input[name="reason"]`)
	p.Type("ch_4 is of another key")
	p.Press("Enter")
	p.Wait(`document.activeElement.matches(".question input")`)
	for _, v := range []browser.View{{Width: 360, Height: 740, Dark: true}, {}} {
		p.Show(v)
		p.FitsWidth()
		p.Axe()
	}
	before := stated(p)
	p.Type("yes")
	p.Press("Enter")
	p.Wait(`document.querySelector("#problem").textContent.startsWith("Written: the record was completed and is completed")`)
	want := strings.Replace(sentence(t, store, c.auditedReason(), k.RecordID()), "; reason", ", instead of the stored outcome; reason", 1)
	if result, err := charge(); before != want || err != nil || result["id"] != "ch_5" || runs != 1 {
		t.Errorf("the confirmation says %q, and this was written: %q; the next request got %v, %v after %d runs", before, want, result, err, runs)
	}
}

// crowd is how many records the table of a busy night has: 2,000, or as many as the
// environment variable NIGHT says.
var crowd = func() int {
	if n, err := strconv.Atoi(os.Getenv("NIGHT")); err == nil {
		return n
	}
	return 2000
}()

// The records of the table that wait.
const (
	stale     = 12 // unknown, older than all others, of one operation
	unknowns  = 388
	exhausted = 60 // of the unknown ones
	resumable = 100
	killed    = 15 // in progress, but the lease has ended
	announced = 3  // of the killed ones
)

// busyNight returns the records of a night, the same in each run.
func busyNight() (list []driver.Record) {
	random := mathrand.New(mathrand.NewPCG(37, 2))
	age := func(most time.Duration) time.Duration { return time.Minute + time.Duration(random.Int64N(int64(most))) }
	reasons := []driver.Reason{driver.ReasonLeaseEnded, driver.ReasonUnknown, driver.ReasonInterrupted}
	for i := range crowd {
		operation, old, change := "POST /charges", age(24*time.Hour), func(r *driver.Record) {
			r.State, r.Reason, r.Encoding, r.Result, r.Due, r.Expires = driver.StateCompleted, driver.ReasonResult, "json", []byte(`{"id":"ch_5"}`), time.Time{}, time.Now().Add(time.Hour)
		}
		switch n := i; {
		case n < stale:
			operation, old, change = "refund", 9*24*time.Hour+time.Duration(i)*time.Minute, func(r *driver.Record) { r.Reason = driver.ReasonUnknown }
		case n < stale+unknowns:
			change = func(r *driver.Record) {
				r.Reason, r.Exhausted, r.Attempt = reasons[i%3], i < stale+exhausted, 1+i%4
				if i%2 == 0 {
					r.Due = time.Now().Add(time.Hour)
				}
			}
		case n < stale+unknowns+resumable:
			operation, change = "transfer", func(r *driver.Record) {
				r.State, r.Reason, r.Recovery = driver.StateRetryable, driver.ReasonHandlerError, idempotent.Resume
			}
		case n < stale+unknowns+resumable+killed:
			change = func(r *driver.Record) {
				r.State, r.Reason, r.Since = driver.StateInProgress, driver.ReasonClaimed, time.Time{}
				r.LeaseEnd = r.Created.Add(12 * time.Second)
				r.Due, r.Announced = r.LeaseEnd, i < stale+unknowns+resumable+announced
			}
		case n%20 == 0:
			change = func(r *driver.Record) {
				r.State, r.Reason, r.Since, r.LeaseEnd = driver.StateInProgress, driver.ReasonClaimed, time.Time{}, time.Now().Add(time.Hour)
				r.Due = r.LeaseEnd
			}
		case n%20 == 1:
			change = func(r *driver.Record) {
				r.State, r.Reason, r.Due, r.Expires = driver.StateRetryable, driver.ReasonNotExecuted, time.Time{}, time.Now().Add(time.Hour)
			}
		}
		list = append(list, unknownRecord(operation, fmt.Sprint(i), old, func(r *driver.Record) {
			r.Ref = fmt.Sprintf("orders/%05d", i)
			change(r)
		}))
	}
	return list
}

// batches is a table that writes 25 items at once.
type batches struct {
	dynamostore.Client
	mu    sync.Mutex
	items []types.WriteRequest
}

// PutItem keeps the item for the next batch.
func (b *batches) PutItem(_ context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items = append(b.items, types.WriteRequest{PutRequest: &types.PutRequest{Item: in.Item}})
	return &dynamodb.PutItemOutput{}, nil
}

// fill writes new records to a table.
func fill(t *testing.T, client dynamostore.Client, table string, list []driver.Record) {
	t.Helper()
	b := &batches{Client: client}
	s, err := dynamostore.New(b, table)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		if met, err := s.Insert(t.Context(), r, time.Now()); met != nil || err != nil {
			t.Fatal(met, err)
		}
	}
	var writers sync.WaitGroup
	for part := range slices.Chunk(b.items, (len(b.items)+7)/8) {
		writers.Go(func() {
			for batch := range slices.Chunk(part, 25) {
				out, err := client.BatchWriteItem(t.Context(), &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: batch}})
				if err != nil || len(out.UnprocessedItems) > 0 {
					t.Errorf("items were not written: %v", err)
					return
				}
			}
		})
	}
	if writers.Wait(); t.Failed() {
		t.FailNow()
	}
}

// The questions of a night are answered by the clicks that the guide names, in a table
// with many records. The tiles count what the command line counts.
func TestConsole_Night(t *testing.T) {
	t.Parallel()
	store, table, env := tableStore(t)
	client := dynamostore.NewClient(engine.Config(strings.TrimPrefix(env[0], "AWS_ENDPOINT_URL_DYNAMODB=")))
	list := busyNight()
	fill(t, client, table, list)
	command := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(programs, "once"), args...)
		cmd.Env = append(append(os.Environ(), env...), "ONCE_TABLE="+table)
		out, err := engine.Output(cmd)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	page := startScript(t, guide(t, 1, table), env...).open(browser.View{})
	tile := func(p *browser.Page, name string) string {
		t.Helper()
		return p.Text(fmt.Sprintf(`#tiles a[href="#list=%s"] strong`, name))
	}
	lines := func(args ...string) string {
		return fmt.Sprint(strings.Count(command(append([]string{"list", "--limit", "0", "--json"}, args...)...), `{"record":`))
	}
	clicks := func(want int, question string) {
		t.Helper()
		if n := page.Clicks(); n != want {
			t.Errorf("%s %d clicks, want %d as in the guide", question, n, want)
		}
	}
	for name, want := range map[string]string{
		"unknown": lines("--state", "unknown"), "exhausted": lines("--exhausted"), "resumable": lines("--state", "resumable"), "due": lines("--due", "--no-scan"),
		"ended": fmt.Sprintf("at least %d", announced),
	} {
		if got := tile(page, name); got != want {
			t.Errorf("the tile %s shows %s, want %s", name, got, want)
		}
	}

	// What waits longest?
	oldest := list[stale-1]
	if text := page.Text("#rows tr:first-child"); !strings.Contains(text, oldest.Ref) || !strings.Contains(text, oldest.Since.UTC().Format("2006-01-02 15:04")) {
		t.Errorf("the first row is %s", text)
	}
	clicks(0, "What waits longest?")

	// Why is it not settled?
	page.Click("#rows a")
	page.Wait(`document.querySelector("#record .why")?.textContent.includes("Reconciliation has not asked yet.")`)
	clicks(1, "Why is it not settled?")
	var link, ages string
	page.Eval(`document.querySelector("#record a").href`, &link)
	if want := "https://dashboard.example/search?q=" + url.QueryEscape(oldest.Ref); link != want {
		t.Errorf("the link is %s, want %s", link, want)
	}
	page.Eval(`[...new Set([...document.querySelectorAll('#tiles li:first-child [data-since], #rows tr:first-child [data-since], #record [data-since]')].map((e) => e.textContent))].join()`, &ages)
	if ages != "9 d" {
		t.Errorf("the ages of one record are %s, want one", ages)
	}
	var form, diagram float64
	page.Eval(`document.querySelector("#changes").getBoundingClientRect().bottom`, &form)
	if page.Eval(`document.querySelector("#record .diagram").getBoundingClientRect().top`, &diagram); form > diagram {
		t.Error("the form stands below the diagram")
	}

	// What happened to this order?
	done := list[crowd-1]
	page.Click("#find input")
	page.Type(done.Ref)
	page.Press("Enter")
	page.Wait(`document.querySelector("#nothing .primary") === document.activeElement`)
	page.Click("#nothing .primary")
	page.Wait(`document.querySelector("#record").textContent.includes("The outcome is stored")`)
	clicks(2, "What happened to this order?")
	page.Click("#find input")
	page.Eval(`document.activeElement.value = ""`, nil)
	page.Type(list[stale].Ref)
	page.Press("Enter")
	page.Wait(fmt.Sprintf(`document.querySelector("#record-id").textContent === %q`, list[stale].ID))
	clicks(1, "What happened to this order, which waits?")

	// A search without a result shows no record, and not the one before.
	page.Click("#find input")
	page.Eval(`document.activeElement.value = ""`, nil)
	page.Type("orders/none")
	page.Press("Enter")
	page.Wait(`document.querySelector("#nothing .primary") === document.activeElement`)
	page.Wait(`document.querySelector("#record-panel").hidden && location.hash === "" && document.querySelector("#rows [aria-current]") === null`)

	// What was killed tonight?
	page.Go(page.Origin())
	page.Wait(`document.querySelector("#tiles a") !== null`)
	page.Clicks()
	page.Click(`#tiles a[href="#list=ended"]`)
	page.Wait(`document.querySelector("#ended-read") !== null`)
	page.Click("#ended-read")
	page.Wait(`document.querySelector("#note .primary") === document.activeElement`)
	page.Click("#note .primary")
	page.Wait(fmt.Sprintf(`document.querySelector("#range").textContent === "1 to %d of %d"`, killed, killed))
	clicks(3, "What was killed tonight?")
	var stats struct {
		Due        int `json:"due"`
		LeaseEnded int `json:"lease_ended"`
	}
	if err := json.Unmarshal([]byte(command("stats", "--json")), &stats); err != nil {
		t.Fatal(err)
	}
	if due, ended := tile(page, "due"), tile(page, "ended"); due != fmt.Sprint(stats.Due) || due != lines("--due") || ended != fmt.Sprint(stats.LeaseEnded) || ended != fmt.Sprint(killed) {
		t.Errorf("after a read of the table %s are due and %s ended, want %+v", due, ended, stats)
	}
	page.Click("#killed")
	page.Wait(`document.querySelector("#waiting-title").textContent === "Search result" && document.querySelector("#rows").textContent.includes("lease ended")`)
	clicks(1, "What was killed tonight and is unknown by now?")

	// Lists in another order, of other times and operations, by keyboard and on a phone.
	page.Show(browser.View{Width: 360, Height: 740})
	page.TabToFromTop(`#tiles a[href="#list=unknown"]`)
	page.Press("Enter")
	page.Wait(fmt.Sprintf(`document.querySelector("#range").textContent === "1 to 20 of %d"`, stale+unknowns))
	page.TabTo("#order")
	page.Press("End")
	page.Wait(`document.querySelector("#rows tr:first-child").innerText.includes(" min")`)
	page.FitsWidth()
	page.Axe()
	for _, row := range []string{"Reference", "State", "Age", "Next", "Reason", "Tries"} {
		var shown bool
		if page.Eval(fmt.Sprintf(`document.querySelector('#rows tr:first-child [data-label^="%s"]').checkVisibility()`, row), &shown); !shown {
			t.Errorf("%s is hidden on a narrow screen", row)
		}
	}
	page.TabToFromTop("#operation")
	page.Press("End") // the last one: transfer
	page.Wait(`document.querySelector("#range").textContent === "0 to 0 of 0"`)
	page.Press("ArrowUp") // refund
	page.Wait(fmt.Sprintf(`document.querySelector("#range").textContent === "1 to %d of %d"`, stale, stale))
	page.TabTo("#within")
	page.Press("ArrowDown")
	page.Wait(`document.querySelector("#range").textContent === "0 to 0 of 0"`)

	// Settle these twelve. Another writer settles one of them after the review.
	c := startScript(t, guide(t, 2, table), env...)
	page = c.open(browser.View{})
	page.Click("#rows tr:nth-child(1) input")
	page.ShiftClick(fmt.Sprintf("#rows tr:nth-child(%d) input", stale))
	page.Click("#settle")
	page.Wait(`document.querySelector("#batch-title").textContent === "Settle 12 records"`)
	page.Click(`input[value="without_result"]`)
	page.Click(`#batch input[name="reason"]`)
	page.Type("the statement has all twelve")
	page.Press("Enter")
	page.Wait(`document.activeElement.matches("#batch .question input")`)
	if text := page.Text("#batch"); strings.Count(text, "unknown → completed") != stale || c.audited() != "" {
		t.Errorf("the review is\n%s\nand the audit %s", text, c.audited())
	}
	before := stated(page)
	command("resolve", string(list[3].ID), "--without-result", "--yes", "--reason", "by telephone", "--audit", filepath.Join(t.TempDir(), "audit"))
	page.Type("12")
	page.Press("Enter")
	page.Wait(`document.querySelector("#batch-body h3").textContent.startsWith("11 of 12 records were written. Refused: 1;")`)
	clicks(5, "Settle these twelve:")
	if text := page.Text("#batch"); strings.Count(text, "refused") != 1 || !strings.Contains(text, "has changed since it was shown") {
		t.Errorf("the results are\n%s", text)
	}
	if a := c.audited(); strings.Count(a, `"action":"resolve"`) != stale || strings.Count(a, `"outcome":"written"`) != stale-1 || strings.Count(a, string(list[3].ID)) != 1 {
		t.Errorf("the audit is\n%s", a)
	}
	var twelve []idempotent.RecordID
	for _, r := range list[:stale] {
		twelve = append(twelve, r.ID)
	}
	if want := sentence(t, store, c.auditedReason(), twelve...); before != want {
		t.Errorf("the confirmation says %q, and this was written: %q", before, want)
	}
	page.Click("#batch-back")
	page.Wait(fmt.Sprintf(`document.querySelector("#range").textContent === "1 to 20 of %d"`, unknowns))
	if n := tile(page, "unknown"); n != fmt.Sprint(unknowns) {
		t.Errorf("the tile shows %s unknown records, want %d", n, unknowns)
	}
}

// Each function works with the keyboard alone.
func TestConsole_Keyboard(t *testing.T) {
	t.Parallel()
	c := startConsole(t, fileStore(t, night()...), "--allow-resolve")
	p := c.open(browser.View{})
	p.Press("Tab")
	p.Press("Enter") // skip to the records
	p.TabTo(`input[name="list"]`)
	p.Press("ArrowDown")
	p.Wait(`document.querySelector("#rows").textContent.includes("given up")`)
	p.Press("ArrowUp")
	p.Wait(`document.querySelector("#range").textContent === "1 to 20 of 63"`)
	p.TabTo("#later")
	p.Press("Enter")
	p.Wait(`document.querySelector("#range").textContent === "21 to 40 of 63"`)
	p.TabToFromTop(`#rows tr:nth-child(2) input`)
	p.Press(" ")
	p.TabTo(`#rows tr:nth-child(3) input`)
	p.Press(" ")
	p.TabToFromTop("#settle")
	p.Press("Enter")
	p.Wait(`document.activeElement.id === "batch-title"`)
	p.TabTo(`input[name="many"]`)
	p.Press(" ")
	p.Press("ArrowDown") // to the results
	p.TabTo("#batch textarea")
	p.Type(`{"payout":9007199254740993}`) // a number that JavaScript cannot hold
	p.TabTo("#batch textarea")
	p.Type("{}")
	p.TabTo(`#batch input[name="reason"]`)
	p.Type("both are in the ledger")
	p.Press("Enter")
	p.Wait(`document.activeElement.matches("#batch .question input")`)
	p.Type("2")
	p.Press("Enter")
	p.Wait(`document.activeElement.matches("#batch-body h3") && document.activeElement.textContent.startsWith("2 of 2 records were written.")`)
	if a := c.audited(); strings.Count(a, `"reason":"both are in the ledger","outcome":"written"`) != 2 || !strings.Contains(a, `"bytes":27`) {
		t.Errorf("the audit is %s", a)
	}
	p.TabToFromTop("#batch-back")
	p.Press("Enter")
	p.Wait(`document.activeElement.id === "waiting-title"`)
	p.Wait(`document.querySelector("#range").textContent === "21 to 40 of 61"`)

	p.TabToFromTop(`#find input[name="record"]`)
	p.Type("transfer")
	p.TabTo("#find summary")
	p.Press("Enter")
	p.TabTo(`#find input[name="key"]`)
	p.Type("t-17")
	p.TabTo(`#find input[name="scope"]`)
	p.Type("acme")
	p.Press("Enter")
	p.Wait(`document.activeElement.id === "record-title"`)
	var kept bool
	p.Eval(`document.querySelector('#find input[name="key"]').value !== "" || location.href.includes("t-17") || JSON.stringify({...sessionStorage, ...localStorage}).includes("t-17")`, &kept)
	if kept {
		t.Error("the page keeps the key")
	}

	p.TabTo(`input[name="kind"]`)
	p.Press(" ")
	for range 3 {
		p.Press("ArrowDown") // to "One step was done"
	}
	p.Wait(`document.querySelector("#changes select")?.value === "pay"`)
	p.TabTo("#changes textarea")
	p.Type(`{"id":"tr_17"}`)
	p.TabTo(`#changes input[name="reason"]`)
	p.Type("it is on the statement")
	p.Press("Enter")
	p.Wait(`document.activeElement.matches(".question input")`)
	p.Type("no")
	p.Press("Enter")
	p.Wait(`document.querySelector('.question [role="alert"]').textContent.includes("not confirmed")`)
	p.Press("Shift+Tab")
	p.Press("Tab")
	p.Eval(`document.activeElement.value = ""`, nil)
	p.Type("yes")
	p.Press("Enter")
	p.Wait(`document.querySelector("#problem").textContent.startsWith("Written")`)
	if !strings.Contains(c.audited(), `"step":"pay"`) {
		t.Errorf("the audit is %s", c.audited())
	}
}

// An answer that comes late does not replace the list that was asked for after it.
func TestConsole_LateAnswer(t *testing.T) {
	t.Parallel()
	p := startConsole(t, fileStore(t, night()...)).open(browser.View{})
	p.Wait(`document.querySelector("#range").textContent === "1 to 20 of 63"`)
	p.Eval(`(() => {
		const real = window.fetch, late = new Promise((go) => { window.release = go; });
		window.fetch = async (...request) => {
			const answer = await real(...request);
			if (!String(request[0]).includes("offset=20")) return answer;
			window.answered = true;
			await late;
			setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(() => { window.delivered = true; })));
			return answer;
		};
	})()`, nil)
	p.Click("#later")
	p.Wait(`window.answered === true`)
	p.Click(`input[value="exhausted"]`)
	p.Wait(`document.querySelector("#range").textContent === "1 to 1 of 1"`)
	p.Eval(`window.release()`, nil)
	p.Wait(`window.delivered === true`)
	var shown string
	if p.Eval(`document.querySelector("#range").textContent`, &shown); shown != "1 to 1 of 1" {
		t.Errorf("the late answer replaced the list: %s", shown)
	}
}

// All records that were given up are requeued, and a wrong outcome is discarded.
func TestConsole_RequeuesAndForgets(t *testing.T) {
	t.Parallel()
	c := startConsole(t, fileStore(t, night()...), "--allow-resolve")
	p := c.open(browser.View{})
	p.Click(`input[value="exhausted"]`)
	p.Wait(`document.querySelector("#bulk form") !== null`)
	p.Click(`#bulk input[name="reason"]`)
	p.Type("the bank answers again")
	p.Press("Enter")
	p.Wait(`document.activeElement.matches("#bulk .question input")`)
	p.Type("1")
	p.Press("Enter")
	p.Wait(`document.querySelector("#problem").textContent.startsWith("1 of 1 records were requeued")`)

	p.Click(`#find input[name="record"]`)
	p.Type("invoice")
	p.Click("#find summary")
	p.Click(`#find input[name="key"]`)
	p.Type("i-1")
	p.Click(`#find input[name="scope"]`)
	p.Type("acme")
	p.Press("Enter")
	p.Wait(`document.querySelector("#changes").textContent.includes("Discard this outcome")`)
	p.Click(`#changes .form:last-child input[name="reason"]`)
	p.Type("i-1 belongs to another key")
	p.Press("Enter")
	p.Wait(`document.activeElement.matches(".question input")`)
	p.Type(idempotent.Key{Operation: "invoice", Scope: "acme", ID: "i-1"}.RecordID().KeyHash())
	p.Press("Enter")
	p.Wait(`document.querySelector("#problem").textContent.includes("was completed and is retryable")`)

	p.Click("#count button")
	p.Wait(`document.querySelector("#count .primary") !== null`)
	p.Press("Enter")
	p.Wait(`document.querySelector("#groups-note").textContent.startsWith("all 64 records")`)
}

// The page has no fault that axe-core finds, dark or light, wide or narrow, and
// never scrolls sideways.
func TestConsole_Accessible(t *testing.T) {
	t.Parallel()
	c := startConsole(t, fileStore(t, night()...), "--allow-resolve")
	p := c.open(browser.View{})
	wide, narrow := browser.View{Width: 1280, Height: 900}, browser.View{Width: 360, Height: 740}
	check := func(what string, views ...browser.View) {
		for _, v := range views {
			p.Show(v)
			p.FitsWidth()
			p.Axe()
			if t.Failed() {
				t.Fatalf("%s, in %+v", what, v)
			}
		}
		p.Show(browser.View{})
	}
	dark := func(v browser.View) browser.View { v.Dark = true; return v }
	all := []browser.View{wide, narrow, dark(wide), dark(narrow)}
	check("overview", all...)
	p.Click(`#rows tr:last-child a`)
	p.Wait(`!document.querySelector("#record-panel").hidden`)
	check("record", wide, dark(narrow))
	p.Eval(`location.hash = "#r=" + encodeURIComponent(`+fmt.Sprintf("%q", idempotent.Key{Operation: "transfer", Scope: "acme", ID: "t-17"}.RecordID())+`)`, nil)
	p.Wait(`document.querySelector("#record").textContent.includes("reserve")`)
	p.Click("#results button")
	p.Wait(`document.querySelector("#results pre") !== null`)
	for _, kind := range []string{"completed", "final", "without_result", "step", "corrected_step", "not_executed"} {
		p.Click(`#changes input[value="` + kind + `"]`)
		if kind == "not_executed" {
			p.Click(`#changes input[name="reason"]`)
			p.Type("no transfer an hour after the lease had ended")
			p.Press("Enter")
			p.Wait(`document.activeElement.matches(".question input")`)
		}
		check(kind, narrow)
	}
	p.Type("wrong")
	p.Press("Enter")
	p.Wait(`!document.querySelector('.question [role="alert"]').hidden`)
	check("refused", all...)
	p.Click("#all")
	p.Click("#settle")
	p.Wait(`document.querySelector("#batch-title").textContent === "Settle 20 records"`)
	for _, kind := range []string{"without_result", "completed", "not_executed", "final"} {
		p.Click(`input[name="many"][value="` + kind + `"]`)
		check("many: "+kind, narrow)
	}
	p.Click("#batch .fields input")
	p.Type("refused")
	p.Press("Tab")
	p.Type("no")
	p.Click(`#batch input[name="reason"]`)
	p.Type("the bank, by telephone")
	p.Press("Enter")
	p.Wait(`document.activeElement.matches("#batch .question input")`)
	check("review of many", all...)
	p.Type("20")
	p.Press("Enter")
	p.Wait(`document.querySelector("#batch-body h3").textContent.startsWith("20 of 20")`)
	check("results of many", all...)
	p.Click("#find input")
	p.Type("orders/none")
	p.Press("Enter")
	p.Wait(`document.querySelector("#nothing .primary") !== null`)
	check("nothing was found", wide, dark(narrow))
}

// A page that is read again keeps the focus, what was typed, and what was counted.
func TestConsole_Refresh(t *testing.T) {
	t.Parallel()
	c := startConsole(t, fileStore(t, night()...), "--allow-resolve")
	p := c.open(browser.View{})
	p.Click("#count button")
	p.Wait(`document.querySelector("#count .primary") !== null`)
	p.Press("Enter")
	p.Wait(`document.querySelector("#groups-note").textContent.startsWith("all 64 records")`)
	p.Click("#rows tr:nth-child(3) a")
	p.Wait(`!document.querySelector("#record-panel").hidden`)
	p.Click(`#changes input[name="reason"]`)
	p.Type("I know it")
	p.Eval(`document.querySelector("#rows tr:nth-child(3) a").focus(); window.first = document.querySelector("#rows tr"); document.dispatchEvent(new Event("visibilitychange"))`, nil)
	p.Wait(`window.first !== document.querySelector("#rows tr")`)
	var kept bool
	if p.Eval(`document.activeElement === document.querySelector("#rows tr:nth-child(3) a") && document.querySelector('#changes input[name="reason"]').value === "I know it" &&
		document.querySelector("#groups-note").textContent.startsWith("all 64 records") && document.querySelector('#rows tr[aria-current="true"]') !== null`, &kept); !kept {
		t.Errorf("after a refresh:\n%s", p.Text("body"))
	}
}

// HTML in any stored text, and in what the operator types, is shown and not read.
func TestConsole_HTMLIsText(t *testing.T) {
	t.Parallel()
	const evil = `<img src=x onerror="window.ran=true"><b>`
	r := unknownRecord("refund "+evil, "r-1", time.Hour, func(r *driver.Record) {
		r.Reason, r.Ref, r.RequestID, r.TraceParent, r.ResultVersion, r.Codec = evil, evil, evil, evil, evil, "json"
		r.Recovery, r.StepNames = idempotent.Resume, []string{evil}
		r.Steps = []driver.StepRecord{{Name: evil, Finished: true, By: driver.StepByRun, Attempt: 1, At: r.Created, Encoding: "json", Result: []byte(`"<img src=x onerror=\"window.ran=true\">"`)}}
	})
	done := unknownRecord("done "+evil, "r-2", time.Hour, func(r *driver.Record) {
		r.State, r.Reason, r.Encoding, r.Due, r.Expires = driver.StateCompleted, driver.ReasonResult, httpform.Encoding, time.Time{}, time.Now().Add(time.Hour)
		r.Codec, r.Result = httpform.Encoding, []byte("{\"s\":201,\"h\":{\"X\":[\"<img src=x onerror=window.ran=true>\"]}}\n"+evil)
	})
	c := startConsole(t, fileStore(t, r, done), "--allow-resolve")
	p := c.open(browser.View{})
	inert := func(where string) {
		t.Helper()
		var ran bool
		p.Eval(`window.ran === true || document.querySelector("img, #desk b") !== null`, &ran)
		if ran {
			t.Errorf("%s: HTML was read as HTML", where)
		}
	}
	inert("the list")
	p.Click("#rows a")
	p.Wait(`!document.querySelector("#record-panel").hidden`)
	if text := p.Text("#record-panel"); strings.Count(text, evil) < 5 {
		t.Errorf("the texts of the record are not shown:\n%s", text)
	}
	inert("the record")
	p.Click("#results button")
	p.Wait(`document.querySelector("#results pre") !== null`)
	inert("the results")
	p.Click(`#changes input[value="final"]`)
	p.Click(`#changes .fields input`)
	p.Type(evil)
	p.Press("Tab")
	p.Type(evil)
	p.Click(`#changes input[name="reason"]`)
	p.Type(evil)
	p.Press("Enter")
	p.Wait(`document.querySelector(".question") !== null`)
	inert("the question")
	p.Click(`#find input[name="record"]`)
	p.Type(evil + " no record has this")
	p.Press("Enter")
	p.Wait(`document.querySelector("#nothing").textContent.includes("<img")`)
	inert("a search without a result")
	p.Eval(`location.hash = "#r=" + encodeURIComponent(`+fmt.Sprintf("%q", done.ID)+`)`, nil)
	p.Wait(`document.querySelector("#record").textContent.includes("The outcome is stored")`)
	p.Click("#results button")
	p.Wait(`document.querySelector("#results pre")?.textContent.includes("onerror")`)
	inert("a response")
}

// The address works once. The session survives a reload, and ends with the console.
func TestConsole_AddressWorksOnce(t *testing.T) {
	t.Parallel()
	c := startConsole(t, fileStore(t, night()...))
	p := c.open(browser.View{})
	var hash string
	p.Eval(`location.hash`, &hash)
	if hash != "" {
		t.Errorf("the address bar still has %s", hash)
	}
	p.Go(c.base)
	p.Wait(`document.querySelector("#rows a") !== null`)
	p.Click("#rows a")
	p.Wait(`document.querySelector("#changes").textContent.includes("read-only")`)
	for _, address := range []string{c.address, c.base} {
		other := chromium.Open(t, address, browser.View{})
		other.Wait(`!document.querySelector("#problem").hidden`)
		var hidden bool
		if other.Eval(`document.querySelector("#desk").hidden`, &hidden); !hidden || !strings.Contains(other.Text("#problem"), "once console") {
			t.Errorf("another browser with %s sees\n%s", address, other.Text("body"))
		}
	}
}
