// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/tests/deployed/browser"
)

// playground is the open page of a running example.
type playground struct {
	*browser.Page
	t    *testing.T
	url  string
	kill func() // ends the example
}

// shortLease is for a test that waits for the end of a lease. A busy machine needs the time
// for a charge.
const shortLease = "TIMEOUT=30s"

// longLease is for a test whose lease or request must not end by itself.
var longLease = "TIMEOUT=" + kit.Patience.String()

func open(t *testing.T, v browser.View, env ...string) *playground {
	t.Helper()
	url, kill := startExample(t, env...)
	p := &playground{chromium.Open(t, url+"/", v), t, url, kill}
	p.Wait(`!document.querySelector("main").hidden`)
	return p
}

// press presses the button of an action. What the client got is shown below it.
func (p *playground) press(action string) {
	p.t.Helper()
	p.Click(`[data-action="` + action + `"]`)
	p.Wait(`document.querySelector('[data-action="` + action + `"]').closest("li").contains(document.querySelector("#outcome"))`)
	p.inView(action)
}

// inView fails the test unless the button of an action and the outcome below it are seen
// without scrolling, and nothing covers them.
func (p *playground) inView(action string) {
	p.t.Helper()
	var hidden []string
	p.Eval(fmt.Sprintf(`[document.querySelector('[data-action=%q]'), document.querySelector("#got"), document.querySelector("#got-without"), document.querySelector("#next")].filter((e) => {
		const r = e.getBoundingClientRect();
		return ![r.top + 2, r.bottom - 2].every((y) => e.contains(document.elementFromPoint(r.left + r.width / 2, y)));
	}).map((e) => e.outerHTML + JSON.stringify(e.getBoundingClientRect()))`, action), &hidden)
	for _, e := range hidden {
		p.t.Errorf("after %s this is out of sight: %s", action, e)
	}
}

// wants waits until the page shows so many charges of its key, and these answers, in
// any order: two may be answered at once. An answer is its status, with " replayed" or " client had gone".
// Then it compares the page with the provider's ledgers.
func (p *playground) wants(state string, charges int, answers ...string) {
	p.t.Helper()
	p.Wait(fmt.Sprintf(`document.querySelector("#record .head .pill").innerText === %q`, state))
	p.counts("", charges, answers)
	p.agrees("")
}

// without is wants for the half without once, which has no record.
func (p *playground) without(charges int, answers ...string) {
	p.t.Helper()
	p.counts("-without", charges, answers)
	p.agrees("-without")
}

func (p *playground) counts(half string, charges int, answers []string) {
	p.t.Helper()
	sorted := append([]string{}, answers...)
	slices.Sort(sorted)
	want, _ := json.Marshal(sorted)
	p.Wait(fmt.Sprintf(`(() => {
		const shown = [...document.querySelectorAll("#answers%[1]s > li")].map((li) => [...li.querySelectorAll(".pill")].map((e) => e.textContent.replace(/^(\d+).*/, "$1")).join(" "));
		return JSON.stringify(shown.sort()) === %[2]s && document.querySelector("#of-key%[1]s").innerText === "%[3]d";
	})()`, half, quoted(string(want)), charges))
}

// booked is a line of a ledger.
type booked struct {
	ID       string
	Amount   int64
	Metadata struct{ Record idempotent.RecordID }
}

// agrees waits until the page shows what is in the ledger of a half.
func (p *playground) agrees(half string) {
	p.t.Helper()
	path := map[string]string{"": "/provider/charges", "-without": "/without-once/provider/charges"}[half]
	resp, err := http.Get(p.url + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var ledger []booked
	if err := json.NewDecoder(resp.Body).Decode(&ledger); err != nil {
		p.t.Fatal(err)
	}
	var key string
	p.Eval(`document.querySelector("#key").textContent`, &key)
	var sum int64
	rows := []string{}
	for _, c := range slices.Backward(ledger) {
		if c.Metadata.Record == charge.RecordIDOf(key) {
			rows = append(rows, c.ID[:13]+"…")
			sum += c.Amount
		}
	}
	n := len(rows)
	if half == "" && n > 1 {
		p.t.Errorf("with once the key was charged %d times", n)
	}
	verdict := append([]string{"Not charged", "✓ Charged once", "✕ Charged twice"}, fmt.Sprintf("✕ Charged %d times", n))[min(n, 3)]
	want, _ := json.Marshal([]any{fmt.Sprintf("%d in all", len(ledger)), strconv.Itoa(n), fmt.Sprintf("%.2f usd", float64(sum)/100), verdict, max(n-1, 0), rows})
	p.Wait(fmt.Sprintf(`(() => {
		const side = document.querySelector("#of-key%[1]s").closest(".side"), text = (s) => side.querySelector(s).textContent, ledger = document.querySelector("#ledger%[1]s");
		return JSON.stringify([document.querySelector("#booked%[1]s").textContent, text(".count"), text(".money"), text(".verdict"),
			ledger.innerText.split("✕ charged again").length - 1, [...ledger.querySelectorAll("code")].map((e) => e.textContent)]) === %[2]s;
	})()`, half, quoted(string(want))))
}

func quoted(s string) string {
	text, _ := json.Marshal(s) // a string always encodes
	return string(text)
}

// A newcomer presses the button that the page suggests, until it says that this was the
// last one. The customer is charged twice without once, and never with it. Every answer
// is below its button and in sight.
func TestTour(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		view     browser.View
		keyboard bool
	}{
		"mouse":    {browser.View{}, false},
		"keyboard": {browser.View{Width: 900, Height: 700, Dark: true}, true},
		"phone":    {browser.View{Width: 360, Height: 640}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t, row.view, shortLease)
			for i, step := range []struct {
				action        string
				with, without int // charges of the key afterwards
				says          string
			}{
				{"send", 1, 1, "lose the reply"},
				{"lose", 1, 1, "Send it again"},
				{"retry", 1, 2, "One charge with once, two charges without. Now kill"},
				{"kill", 1, 1, "Send it again"},
				{"retry", 1, 2, "One charge with once, two charges without. Reconcile"},
				{"reconcile", 1, 2, "gets its answer"},
				{"retry", 1, 3, "One charge with once, three charges without. Every retry"},
				{"two", 1, 2, "another amount"},
				{"other", 1, 3, "That was the last button. Start again"},
				{"send", 1, 1, "lose the reply"},
			} {
				button := `.suggested [data-action="` + step.action + `"]`
				p.Wait(`document.querySelector('` + button + `') && document.querySelectorAll(".suggested").length === 1`)
				if row.keyboard {
					p.TabToFromTop(button)
					p.Press("Enter")
				} else {
					p.Click(button)
				}
				p.Wait(fmt.Sprintf(`[["", %d], ["-without", %d]].every(([half, n]) => document.querySelector("#of-key" + half).textContent === String(n))
					&& document.querySelector("#next").textContent.includes(%q)`, step.with, step.without, step.says))
				p.inView(step.action)
				p.agrees("")
				p.agrees("-without")
				var heard, shown string
				p.Eval(`document.querySelector("#announce-next").textContent`, &heard)
				p.Eval(`document.querySelector("#next").textContent`, &shown)
				if !strings.HasPrefix(heard, shown) {
					t.Errorf("after %s screen readers hear %q, and the page shows %q", step.action, heard, shown)
				}
				if i == 4 { // two charges without once
					p.FitsWidth()
					p.Axe()
				}
			}
		})
	}
}

// A newcomer's way through the page, without a crash.
func TestPlayground(t *testing.T) {
	t.Parallel()
	p := open(t, browser.View{})
	p.wants("no record", 0)
	p.Axe()

	// What is shown only while the provider works.
	p.Eval(`new MutationObserver(() => {
		window.counted ||= document.querySelector("#record .lease .number")?.innerText.startsWith("ends in");
		window.worked ||= document.querySelector("#workers").innerText.includes("works");
	}).observe(document, {subtree: true, childList: true, attributes: true, characterData: true})`, nil)
	p.press("send")
	p.Wait(`window.counted && window.worked`)
	p.wants("completed", 1, "201")
	var lit string
	p.Eval(`document.querySelector("#record .diagram title").textContent`, &lit)
	if !strings.HasSuffix(lit, "is: completed.") {
		t.Errorf("the diagram says %q", lit)
	}

	p.press("retry")
	p.wants("completed", 1, "201", "201 replayed")
	p.without(2, "201", "201")
	p.press("other")
	p.wants("completed", 1, "201", "201 replayed", "422")
	p.without(3, "201", "201", "201")
	p.FitsWidth()

	p.press("lose")
	p.wants("completed", 1, "201 client had gone")
	p.press("retry")
	p.wants("completed", 1, "201 client had gone", "201 replayed")
	p.without(2, "201 client had gone", "201")

	p.press("two")
	p.Wait(`document.querySelectorAll("#answers > li").length === 2`)
	p.Wait(`["201", "409"].every((s) => document.querySelector("#answers").innerText.includes(s))`)
	p.Wait(`document.querySelector("#record .head .pill").innerText === "completed"`)
	p.agrees("")
	p.without(2, "201", "201")

	p.Eval(`document.querySelector("#customer").value = "cus_declined"`, nil)
	p.press("send")
	p.wants("completed", 0, "402")
	p.without(0, "402")
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
	store, table, env := tableStore(t)
	p := open(t, browser.View{}, append(env, "ONCE_TABLE="+table, longLease)...)
	p.press("kill")
	p.Wait(`document.querySelector("#answers").innerText.includes("SIGKILL")`)
	p.Wait(`document.querySelector("#answers-without").innerText.includes("SIGKILL")`)
	killed := regexp.MustCompile(`Process (\d+) got SIGKILL`)
	said := killed.FindStringSubmatch(p.Text("#answers"))
	for _, process := range []string{said[1], killed.FindStringSubmatch(p.Text("#answers-without"))[1]} {
		if pid, err := strconv.Atoi(process); err != nil || alive(pid) {
			t.Errorf("process %s runs, %v", process, err)
		}
	}
	p.wants("in progress", 1, "502", "200")
	p.without(1, "502", "200")
	if text := p.Text("#record"); !strings.Contains(text, "Written by worker "+said[1]) || !strings.Contains(text, "worker killed") || !strings.Contains(text, "lease ends") {
		t.Errorf("the record is shown as\n%s", text)
	}
	// Too early: it could still be running.
	p.press("retry")
	p.wants("in progress", 1, "502", "200", "409")
	p.press("reconcile")
	p.wants("in progress", 1, "502", "200", "409", "409")

	var key string
	p.Eval(`document.querySelector("#key").textContent`, &key)
	kit.SetLease(t, store, charge.RecordIDOf(key), time.Now().Add(-time.Second))
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
	p.without(4, "502", "200", "201", "201", "201")
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
	p.FitsWidth()
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
	// On the way back, the charges at the top of the screen cover nothing that has the focus.
	p.TabToFromTop("#answers-without summary")
	for at, i := false, 0; !at && i < 200; i++ {
		p.Press("Shift+Tab")
		var covered string
		p.Eval(`(() => { const e = document.activeElement; return e.getBoundingClientRect().top < document.querySelector(".compare").getBoundingClientRect().bottom ? e.outerHTML : ""; })()`, &covered)
		if covered != "" {
			t.Errorf("this has the focus, and is covered: %s", covered)
		}
		p.Eval(`document.activeElement.matches("#amount")`, &at)
	}
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

// The commands beside the buttons do what the buttons do.
func TestCommands(t *testing.T) {
	t.Parallel()
	for _, profile := range []string{"ietf", "stripe"} {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			reused := map[string]string{"ietf": "422", "stripe": "400"}[profile]
			p := open(t, browser.View{}, "PROFILE="+profile)
			run := func(action, half string) (out string, code int) {
				t.Helper()
				var command string
				p.Eval(`document.querySelector('[data-command="`+action+`"] [data-half="`+half+`"] pre').textContent`, &command)
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
			half := "with"
			wants := func(action string, code int, parts ...string) {
				t.Helper()
				out, got := run(action, half)
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
			p.agrees("")
			p.Click("#new-key")
			wants("lose", 28, "") // curl: the operation timed out
			p.wants("completed", 1, "201 client had gone")
			p.Click("#new-key")
			wants("kill", 0, "HTTP/1.1 502 Bad Gateway", `"signal":"SIGKILL"`)
			p.wants("in progress", 1, "502", "200")

			half = "without"
			wants("retry", 0, "HTTP/1.1 201 Created", `"status":"succeeded"`)
			wants("other", 0, "HTTP/1.1 201 Created", `"amount":9000`)
			p.without(2, "201", "201")
			p.Click("#new-key")
			wants("two", 0, "HTTP/1.1 201 Created", "HTTP/1.1 201 Created")
			p.without(2, "201", "201")
			p.Click("#new-key")
			wants("lose", 28, "")
			p.without(1, "201 client had gone")
			p.Click("#new-key")
			wants("kill", 0, "HTTP/1.1 502 Bad Gateway", `"signal":"SIGKILL"`)
			p.without(1, "502", "200")
		})
	}
}

// If the parent is killed, its workers end too, those that work and those that wait,
// and the page says that the server is gone.
func TestKillTheParent(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{})
	provider := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-answer }))
	t.Cleanup(func() { close(answer); provider.Close() })
	p := open(t, browser.View{}, "PROVIDER_URL="+provider.URL, longLease)
	p.Click(`[data-action="two"]`) // one of them waits for the provider
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
	kit.Eventually(t, fmt.Sprintf("the workers %d end with their parent", workers), func() bool { return !slices.ContainsFunc(workers, alive) })
}

// alive reports whether a process runs. One that has ended may still be listed.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
