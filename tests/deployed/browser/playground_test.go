// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/tests/deployed/browser"
)

// playground is the open page of a running example.
type playground struct {
	*browser.Page
	t    *testing.T
	url  string
	kill func() // ends the example
}

// shortLease is for a test that waits for the end of a lease: it ends 2 s later.
const shortLease = "TIMEOUT=4s"

func open(t *testing.T, v browser.View, env ...string) *playground {
	t.Helper()
	url, kill := startExample(t, env...)
	p := &playground{chromium.Open(t, url+"/", v), t, url, kill}
	p.Wait(`!document.querySelector("main").hidden`)
	return p
}

func (p *playground) press(action string) {
	p.t.Helper()
	p.Click(`[data-action="` + action + `"]`)
}

// wants waits until the page shows so many charges of its key, and these answers, in
// any order: two may be answered at once. An answer is its status, with " replayed" or " client had gone".
// Then it compares the page with the provider's ledger.
func (p *playground) wants(state string, charges int, answers ...string) {
	p.t.Helper()
	sorted := append([]string{}, answers...)
	slices.Sort(sorted)
	want, _ := json.Marshal(sorted)
	p.Wait(fmt.Sprintf(`(() => {
		const shown = [...document.querySelectorAll("#answers > li")].map((li) => [...li.querySelectorAll(".pill")].map((e) => e.textContent.replace(/^(\d+).*/, "$1")).join(" "));
		return JSON.stringify(shown.sort()) === %s && document.querySelector("#state").innerText === %q && document.querySelector("#of-key").innerText === "%d";
	})()`, quoted(string(want)), state, charges))
	p.agrees()
}

// charge is a line of the ledger.
type charge struct {
	ID  string
	Key string `json:"idempotency_key"`
}

// agrees compares the page with the provider's ledger.
func (p *playground) agrees() {
	p.t.Helper()
	resp, err := http.Get(p.url + "/provider/charges")
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var ledger []charge
	if err := json.NewDecoder(resp.Body).Decode(&ledger); err != nil {
		p.t.Fatal(err)
	}
	var shown struct {
		Booked, OfKey string
		Rows, Mine    []string
		Key           string
	}
	p.Eval(`({
		Booked: document.querySelector("#booked").innerText, OfKey: document.querySelector("#of-key").innerText,
		Rows: [...document.querySelectorAll("#ledger tr code")].map((e) => e.textContent),
		Mine: [...document.querySelectorAll("#ledger tr.mine code")].map((e) => e.textContent),
		Key: document.querySelector("#record .keys code")?.textContent ?? "",
	})`, &shown)
	var mine, rows []string
	for _, c := range slices.Backward(ledger) {
		text := c.ID[:13] + "…"
		if len(rows) < 8 {
			rows = append(rows, text)
		}
		if c.Key == shown.Key {
			mine = append(mine, text)
		}
	}
	if shown.Booked != fmt.Sprintf("%d in all", len(ledger)) || shown.OfKey != strconv.Itoa(len(mine)) ||
		!slices.Equal(shown.Rows, rows) || !slices.Equal(shown.Mine, mine) {
		p.t.Errorf("the page shows %+v; the ledger is %+v", shown, ledger)
	}
	if len(mine) > 1 {
		p.t.Errorf("the key was charged %d times", len(mine))
	}
}

func quoted(s string) string {
	text, _ := json.Marshal(s) // a string always encodes
	return string(text)
}

// A newcomer's way through the page, without a crash.
func TestPlayground(t *testing.T) {
	t.Parallel()
	p := open(t, browser.View{})
	p.wants("no record", 0)
	p.Axe()

	p.press("send")
	p.Wait(`document.querySelector("#record .lease .number").innerText.startsWith("ends in")`)
	p.Wait(`document.querySelector("#workers").innerText.includes("works")`)
	p.wants("completed", 1, "201")
	var lit string
	p.Eval(`document.querySelector("#record .diagram title").textContent`, &lit)
	if !strings.HasSuffix(lit, "is: completed.") {
		t.Errorf("the diagram says %q", lit)
	}

	p.press("retry")
	p.wants("completed", 1, "201", "201 replayed")
	p.press("other")
	p.wants("completed", 1, "201", "201 replayed", "422")

	p.press("lose")
	p.wants("completed", 1, "201 client had gone")
	p.press("retry")
	p.wants("completed", 1, "201 client had gone", "201 replayed")

	p.press("two")
	p.Wait(`document.querySelectorAll("#answers > li").length === 2`)
	p.Wait(`["201", "409"].every((s) => document.querySelector("#answers").innerText.includes(s))`)
	p.Wait(`document.querySelector("#state").innerText === "completed"`)
	p.agrees()

	p.Eval(`document.querySelector("#customer").value = "cus_declined"`, nil)
	p.press("send")
	p.wants("completed", 0, "402")
	p.press("retry")
	p.wants("completed", 0, "402", "402 replayed")
	p.press("reconcile") // the ledger has no charge, and the record is completed
	p.wants("completed", 0, "402", "402 replayed", "409")
	p.Axe()
	p.Show(browser.View{Dark: true})
	p.Axe()
}

// F33, F36: a worker is killed while it charges. The record stays in progress until
// its lease ends, and is unknown for the next request. The provider's evidence
// settles it, and the next request gets the answer. There is one charge.
func TestKillTheWorker(t *testing.T) {
	t.Parallel()
	p := open(t, browser.View{}, shortLease)
	p.press("kill")
	p.Wait(`document.querySelector("#answers").innerText.includes("SIGKILL")`)
	said := regexp.MustCompile(`Process (\d+) got SIGKILL`).FindStringSubmatch(p.Text("#answers"))
	pid, err := strconv.Atoi(said[1])
	if err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Errorf("process %d runs", pid)
	}
	p.wants("in progress", 1, "502", "200")
	if text := p.Text("#record"); !strings.Contains(text, "Written by worker "+said[1]) || !strings.Contains(text, "worker killed") || !strings.Contains(text, "lease ends") {
		t.Errorf("the record is shown as\n%s", text)
	}
	// Too early: it could still be running.
	p.press("retry")
	p.wants("in progress", 1, "502", "200", "409")
	p.press("reconcile")
	p.wants("in progress", 1, "502", "200", "409", "409")

	p.Wait(`document.querySelector("#record .sentence").innerText.includes("its lease has ended")`)
	p.press("retry")
	p.wants("unknown", 1, "502", "200", "409", "409", "409")
	if text := p.Text("#evidence"); !strings.Contains(text, "The charge was made") {
		t.Errorf("the evidence is %q", text)
	}
	p.Axe()
	p.Show(browser.View{Dark: true})
	p.Axe()
	p.press("reconcile")
	p.wants("completed", 1, "502", "200", "409", "409", "409", "200")
	p.press("retry")
	p.wants("completed", 1, "502", "200", "409", "409", "409", "200", "201 replayed")
	if text := p.Text("#record"); !strings.Contains(text, "Evidence settled it. Written by the operator's endpoint.") {
		t.Errorf("the record is shown as\n%s", text)
	}
}

// Everything works without a mouse, in a dark page of 360 pixels.
func TestKeyboardOnANarrowPage(t *testing.T) {
	t.Parallel()
	p := open(t, browser.View{Width: 360, Height: 740, Dark: true})
	p.Press("Tab")
	p.Press("Enter") // the link that skips the form
	p.Wait(`document.activeElement.id === "record-title"`)
	p.Go(p.url + "/")
	p.Wait(`!document.querySelector("main").hidden`)
	p.TabTo("#amount")
	p.Type("1")
	p.TabTo("#customer")
	p.Press("ArrowDown")
	p.TabTo(`[data-action="send"]`)
	p.Press("Enter")
	p.wants("completed", 1, "201")
	p.TabTo(`[data-command="send"] summary`)
	p.Press("Enter")
	p.Wait(`document.querySelector('[data-command="send"] pre').offsetHeight > 0`)
	p.TabTo(`[data-action="retry"]`)
	p.Press(" ")
	p.wants("completed", 1, "201", "201 replayed")
	p.TabTo(`[data-action="other"]`)
	p.Press("Enter")
	p.wants("completed", 1, "201", "201 replayed", "422")
	p.TabTo(`[data-action="reconcile"]`)
	p.Press("Enter")
	p.wants("completed", 1, "201", "201 replayed", "422", "200")
	p.TabTo("#answers summary")
	p.Press("Enter")
	p.Wait(`document.querySelector("#answers details").open`)
	p.Press("Shift+Tab")
	var said string
	p.Eval(`document.querySelector("#announce").textContent`, &said)
	if !strings.Contains(said, "/admin/resolve was answered with 200.") {
		t.Errorf("screen readers hear %q", said)
	}
	p.FitsWidth()
	p.Axe()
	// What has the focus is marked.
	for _, selector := range []string{`[data-action="send"]`, "#amount", "#customer", "#new-key", "nav a", `[data-command="send"] summary`} {
		p.TabToFromTop(selector)
		var outline string
		p.Eval(`getComputedStyle(document.activeElement).outlineStyle`, &outline)
		if outline != "solid" {
			t.Errorf("the focus on %s is not visible: its outline is %s", selector, outline)
		}
	}
}

// On a page of 360 pixels, every action is in reach.
func TestEveryActionOnANarrowPage(t *testing.T) {
	t.Parallel()
	p := open(t, browser.View{Width: 360, Height: 740})
	p.Eval(`document.querySelector("#customer").value = "cus_1"`, nil)
	p.press("send")
	p.wants("completed", 1, "201")
	p.press("retry")
	p.wants("completed", 1, "201", "201 replayed")
	p.press("other")
	p.wants("completed", 1, "201", "201 replayed", "422")
	p.press("reconcile")
	p.wants("completed", 1, "201", "201 replayed", "422", "200")
	p.press("two")
	p.Wait(`document.querySelectorAll("#answers > li").length === 2`)
	p.press("lose")
	p.wants("completed", 1, "201 client had gone")
	p.press("kill")
	p.wants("in progress", 1, "502", "200")
	p.Click("#new-key")
	p.wants("no record", 0)
	p.FitsWidth()
	p.Axe()
}

// The commands beside the buttons do what the buttons do.
func TestCommands(t *testing.T) {
	t.Parallel()
	for _, profile := range []string{"ietf", "stripe"} {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			reused := map[string]string{"ietf": "422", "stripe": "400"}[profile]
			p := open(t, browser.View{}, "PROFILE="+profile)
			run := func(action string) (out string, code int) {
				t.Helper()
				var command string
				p.Eval(`document.querySelector('[data-command="`+action+`"] pre').textContent`, &command)
				if !strings.HasPrefix(command, "curl ") && !strings.HasPrefix(command, "for ") {
					t.Fatalf("the command of %s is\n%s", action, command)
				}
				cmd := exec.Command("bash", "-c", command)
				text, err := cmd.Output()
				if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
					t.Fatal(err)
				}
				return string(text), cmd.ProcessState.ExitCode()
			}
			wants := func(action string, code int, parts ...string) {
				t.Helper()
				out, got := run(action)
				for _, part := range parts {
					if got != code || !strings.Contains(out, part) {
						t.Errorf("the command of %s ended with %d, want %d, and printed\n%s\nwant %q in it", action, got, code, out, part)
					}
				}
			}
			wants("send", 0, "HTTP/1.1 201 Created", `"status":"succeeded"`)
			p.wants("completed", 1, "201")
			wants("retry", 0, "HTTP/1.1 201 Created", "Idempotent-Replayed: true")
			p.wants("completed", 1, "201", "201 replayed")
			wants("other", 0, "HTTP/1.1 "+reused)
			p.wants("completed", 1, "201", "201 replayed", reused)
			wants("reconcile", 0, "HTTP/1.1 200 OK", `"resolution":"completed"`)
			p.wants("completed", 1, "201", "201 replayed", reused, "200")

			p.Click("#new-key")
			wants("two", 0, "HTTP/1.1 201 Created", "HTTP/1.1 409 Conflict")
			p.Wait(`document.querySelectorAll("#answers > li").length === 2`)
			p.agrees()
			p.Click("#new-key")
			wants("lose", 28, "") // curl: the operation timed out
			p.wants("completed", 1, "201 client had gone")
			p.Click("#new-key")
			wants("kill", 0, "HTTP/1.1 502 Bad Gateway", `"signal":"SIGKILL"`)
			p.wants("in progress", 1, "502", "200")
		})
	}
}

// If the parent is killed, its workers end too, those that work and those that wait,
// and the page says that the server is gone.
func TestKillTheParent(t *testing.T) {
	t.Parallel()
	p := open(t, browser.View{})
	p.press("two") // one of them waits for the provider
	p.Wait(`document.querySelector("#workers").innerText.includes("works") && document.querySelector("#workers").innerText.includes("idle")`)
	var workers []int
	for _, text := range strings.Split(p.Text("#workers"), "\n") {
		pid, err := strconv.Atoi(strings.Fields(text)[0])
		if err != nil || !alive(pid) {
			t.Fatalf("the workers are %q; %v, or one of them does not run", text, err)
		}
		workers = append(workers, pid)
	}
	p.kill()
	p.Wait(`!document.querySelector("#problem").hidden && document.querySelector("#problem").innerText.includes("does not answer")`)
	for deadline := time.Now().Add(time.Second); slices.ContainsFunc(workers, alive); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("one of the workers %d has outlived its parent", workers)
		}
	}
}

// alive reports whether a process runs. One that has ended may still be listed.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
