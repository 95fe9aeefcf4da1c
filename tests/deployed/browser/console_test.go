// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"context"
	"crypto/rand"
	"errors"
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

	"github.com/once-lambda/once/boltstore"
	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/lambdahttp"
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
	if len(blocks) != 2 || !strings.Contains(blocks[n][1], "--table once-records") {
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
		unknownRecord("POST /charges", "c-1", 12*time.Minute, func(r *driver.Record) { r.Codec = lambdahttp.Encoding }),
		unknownRecord("refund", "r-9", 10*24*time.Hour, given),
		unknownRecord("invoice", "i-1", 5*time.Hour, func(r *driver.Record) {
			r.State, r.Reason, r.Encoding, r.Result, r.Due = driver.StateCompleted, driver.ReasonResult, "json", []byte(`{"number":7}`), time.Time{}
			r.Expires = time.Now().Add(19 * time.Hour)
		}),
	}
	for i := range 60 {
		list = append(list, unknownRecord("payout", fmt.Sprint(i), time.Duration(i*i)*time.Minute, nil))
	}
	return list
}

// The pictures of the documentation, see make screenshots.
func TestPictures_Console(t *testing.T) {
	t.Parallel()
	c := startConsole(t, fileStore(t, night()...), "--allow-resolve")
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
	c := startScript(t, guide(t, 1, table), env...)
	p := c.open(browser.View{})
	if p.Text("#tiles li:first-child strong") != "1" || !strings.Contains(p.Text("#rows"), "charge#") {
		t.Errorf("the first screen:\n%s", p.Text("body"))
	}
	p.Click("#rows a")
	p.Wait(`!document.querySelector("#shown").hidden`)
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
	p.Type("yes")
	p.Press("Enter")
	p.Wait(`document.querySelector("#problem").textContent.startsWith("Written: the record was unknown and is completed")`)
	p.Wait(`document.querySelector("#tiles strong").textContent === "0"`)

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

	p.TabTo(`#find input[name="record"]`)
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
	p.Click(`#changes input[name="reason"]`)
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
	p.Wait(`!document.querySelector("#shown").hidden`)
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
	p.Wait(`!document.querySelector("#shown").hidden`)
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
		r.State, r.Reason, r.Encoding, r.Due, r.Expires = driver.StateCompleted, driver.ReasonResult, lambdahttp.Encoding, time.Time{}, time.Now().Add(time.Hour)
		r.Codec, r.Result = lambdahttp.Encoding, []byte("{\"s\":201,\"h\":{\"X\":[\"<img src=x onerror=window.ran=true>\"]}}\n"+evil)
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
	p.Wait(`!document.querySelector("#shown").hidden`)
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
	p.Type(evil)
	p.Press("Enter")
	p.Wait(`!document.querySelector('#find [role="alert"]').hidden`)
	inert("an error")
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
