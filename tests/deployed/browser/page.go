// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/once-lambda/once/internal/kit"
)

// View is how a page is shown.
type View struct {
	Width, Height int // in CSS pixels; default 1280 and 900
	Dark          bool
	Animated      bool    // without, the reader prefers reduced motion
	Scale         float64 // pixels of the device for each CSS pixel; default 1
}

// Page is an open page. Its methods fail the test if they cannot do what they
// should within [kit.Patience]. It is for one goroutine.
type Page struct {
	t       testing.TB
	b       *Browser
	session string
	origin  string

	clicks int

	mu   sync.Mutex
	bad  []string // errors on the page
	load chan struct{}
}

// Open opens a page and waits until it is loaded. The page is closed when the test
// ends. The test fails if the page has thrown an error, broken its own security
// policy, or asked another server for anything.
func (b *Browser) Open(t testing.TB, address string, v View) *Page {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	p := &Page{t: t, b: b, origin: u.Scheme + "://" + u.Host, load: make(chan struct{}, 1)}
	var apart struct{ BrowserContextID string }
	p.must(b.call(t.Context(), "", "Target.createBrowserContext", nil, &apart))
	var target struct{ TargetID string }
	p.must(b.call(t.Context(), "", "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": apart.BrowserContextID}, &target))
	var attached struct{ SessionID string }
	p.must(b.call(t.Context(), "", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached))
	p.session = attached.SessionID
	t.Cleanup(func() {
		for _, problem := range p.problems() {
			t.Errorf("the page %s: %s", address, problem)
		}
		b.on(p.session, nil)
		b.call(context.Background(), "", "Target.disposeBrowserContext", map[string]any{"browserContextId": apart.BrowserContextID}, nil)
	})
	b.on(p.session, p.event)
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.do(domain+".enable", nil, nil)
	}
	p.Show(v)
	p.Go(address)
	return p
}

// event notes what is wrong on the page.
func (p *Page) event(m message) {
	var e struct {
		Params struct {
			Entry            struct{ Source, Level, Text string }
			ExceptionDetails json.RawMessage
			Request          struct{ URL string }
		}
	}
	if json.Unmarshal(m.raw, &e) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case m.Method == "Page.loadEventFired":
		select {
		case p.load <- struct{}{}:
		default:
		}
	case m.Method == "Runtime.exceptionThrown":
		p.bad = append(p.bad, "it threw "+string(e.Params.ExceptionDetails))
	case m.Method == "Log.entryAdded" && e.Params.Entry.Level == "error" && e.Params.Entry.Source != "network": // a refusal by the server is no error of the page
		p.bad = append(p.bad, e.Params.Entry.Text)
	case m.Method == "Network.requestWillBeSent" && !strings.HasPrefix(e.Params.Request.URL, p.origin) && !strings.HasPrefix(e.Params.Request.URL, "about:"):
		p.bad = append(p.bad, "it asked for "+e.Params.Request.URL)
	}
}

func (p *Page) problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bad
}

// Go opens another address, or the same anew, and waits until it is loaded.
func (p *Page) Go(address string) {
	p.t.Helper()
	select {
	case <-p.load: // of the page before
	default:
	}
	var gone struct{ ErrorText string }
	p.do("Page.navigate", map[string]any{"url": address}, &gone)
	if gone.ErrorText != "" {
		p.t.Fatalf("%s was not opened: %s", address, gone.ErrorText)
	}
	select {
	case <-p.load:
	case <-time.After(kit.Patience):
		p.t.Fatalf("%s was not loaded within %s", address, kit.Patience)
	}
}

// Origin returns the address of the server of the page.
func (p *Page) Origin() string { return p.origin + "/" }

// Show changes the view.
func (p *Page) Show(v View) {
	p.t.Helper()
	if v.Width == 0 {
		v.Width, v.Height = 1280, 900
	}
	if v.Scale == 0 {
		v.Scale = 1
	}
	scheme, motion := "light", "reduce"
	if v.Dark {
		scheme = "dark"
	}
	if v.Animated {
		motion = "no-preference"
	}
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": v.Width, "height": v.Height, "deviceScaleFactor": v.Scale, "mobile": false}, nil)
	p.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": motion},
	}}, nil)
}

// Eval evaluates an expression of JavaScript, waits for its promise if it is one,
// and decodes its value into result unless that is nil.
func (p *Page) Eval(expression string, result any) {
	p.t.Helper()
	var value struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	p.do("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &value)
	if e := value.ExceptionDetails; e != nil {
		p.t.Fatalf("%s\n%s %s", expression, e.Text, e.Exception.Description)
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal(value.Result.Value, result); err != nil {
		p.t.Fatalf("%s\nis %s: %v", expression, value.Result.Value, err)
	}
}

// Wait waits until an expression of JavaScript is true. It is evaluated after each
// change of the page, and 20 times a second.
func (p *Page) Wait(expression string) {
	p.t.Helper()
	var state struct {
		OK   bool
		Text string
	}
	p.Eval(fmt.Sprintf(`new Promise((resolve) => {
		const end = (ok) => { clearInterval(tick); clearTimeout(late); seen.disconnect(); resolve({OK: ok, Text: document.body.innerText}); };
		const look = () => { if (%s) end(true); };
		const seen = new MutationObserver(look), tick = setInterval(look, 50), late = setTimeout(() => end(false), %d);
		seen.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
		look();
	})`, expression, (kit.Patience-time.Second).Milliseconds()), &state)
	if !state.OK {
		p.t.Fatalf("this was not true in time: %s\nThe page:\n%s", expression, state.Text)
	}
}

// Text returns the visible text of the first element that matches a CSS selector.
func (p *Page) Text(selector string) (text string) {
	p.t.Helper()
	p.Eval(fmt.Sprintf(`document.querySelector(%s).innerText`, quoted(selector)), &text)
	return text
}

// Click clicks on the middle of the first element that matches a CSS selector. The
// test fails if the element is not visible there, or if something covers it.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.click(selector, 0)
}

// ShiftClick is Click while the Shift key is held.
func (p *Page) ShiftClick(selector string) {
	p.t.Helper()
	p.click(selector, shift)
}

// Clicks returns how many clicks the page has got since the last call.
func (p *Page) Clicks() (n int) {
	n, p.clicks = p.clicks, 0
	return n
}

// shift is the Shift key among the modifiers of an event.
const shift = 8

func (p *Page) click(selector string, modifiers int) {
	p.t.Helper()
	p.clicks++
	for missed := true; missed; {
		var at struct{ X, Y float64 }
		// Until the mouse is pressed, the page can move the element away. Then nothing gets the click, and it is tried again.
		p.Eval(fmt.Sprintf(`(() => {
			const e = document.querySelector(%s), is = (at) => e.contains(at) || at.contains(e) && e.tagName === "OPTION";
			e.scrollIntoView({block: "center", behavior: "instant"});
			window.aimed = {missed: false, kinds: ["pointerdown", "mousedown", "pointerup", "mouseup", "click"]};
			window.aimed.guard = (event) => {
				if (event.type === "pointerdown") window.aimed.missed = !is(event.target);
				if (window.aimed.missed) { event.stopImmediatePropagation(); event.preventDefault(); }
			};
			for (const kind of window.aimed.kinds) window.addEventListener(kind, window.aimed.guard, true);
			const r = e.getBoundingClientRect(), x = r.x + r.width / 2, y = r.y + r.height / 2, top = document.elementFromPoint(x, y);
			return top && is(top) ? {X: x, Y: y} : {X: -1, Y: -1};
		})()`, quoted(selector)), &at)
		if at.X < 0 {
			p.t.Fatalf("%s cannot be clicked on", selector)
		}
		for _, kind := range []string{"mousePressed", "mouseReleased"} {
			p.do("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1, "modifiers": modifiers}, nil)
		}
		p.Eval(`(() => { // another page has no guard
			for (const kind of window.aimed?.kinds ?? []) window.removeEventListener(kind, window.aimed.guard, true);
			return window.aimed?.missed === true;
		})()`, &missed)
	}
}

// codes are the keys that Press knows, with what they type.
var codes = map[string]struct {
	code int
	text string
}{
	"Tab": {9, ""}, "Enter": {13, "\r"}, " ": {32, " "}, "Escape": {27, ""}, "ArrowDown": {40, ""}, "ArrowUp": {38, ""}, "End": {35, ""}, "Home": {36, ""},
}

// Press presses a key: Tab, Enter, " ", Escape, ArrowDown, ArrowUp, End or Home.
// "Shift+Tab" goes back.
func (p *Page) Press(key string) {
	p.t.Helper()
	name, shifted := strings.CutPrefix(key, "Shift+")
	k, ok := codes[name]
	if !ok {
		p.t.Fatalf("unknown key %q", key)
	}
	params := map[string]any{"type": "keyDown", "key": name, "windowsVirtualKeyCode": k.code}
	if k.text != "" {
		params["text"] = k.text
	}
	if shifted {
		params["modifiers"] = shift
	}
	p.do("Input.dispatchKeyEvent", params, nil)
	params["type"] = "keyUp"
	delete(params, "text")
	p.do("Input.dispatchKeyEvent", params, nil)
}

// Type types a text into the element that has the focus.
func (p *Page) Type(text string) {
	p.t.Helper()
	p.do("Input.insertText", map[string]any{"text": text}, nil)
}

// TabTo presses Tab until an element that matches a CSS selector has the focus.
func (p *Page) TabTo(selector string) {
	p.t.Helper()
	for range 200 {
		var there bool
		p.Press("Tab")
		p.Eval(fmt.Sprintf(`document.activeElement.matches(%s)`, quoted(selector)), &there)
		if there {
			return
		}
	}
	p.t.Fatalf("%s is not reached with the Tab key", selector)
}

// TabToFromTop is TabTo from the top of the page.
func (p *Page) TabToFromTop(selector string) {
	p.t.Helper()
	p.Eval(`document.activeElement.blur(); getSelection().removeAllRanges(); scrollTo(0, 0)`, nil)
	p.TabTo(selector)
}

// Axe checks the page as it is now with axe-core: WCAG 2.2 A and AA, and what axe
// calls best practices.
func (p *Page) Axe() {
	p.t.Helper()
	var there bool
	if p.Eval(`"axe" in window`, &there); !there {
		code, err := os.ReadFile(filepath.Join(p.b.home, "axe.min.js"))
		if err != nil {
			p.t.Fatal(err)
		}
		p.Eval(string(code), nil)
	}
	var found []struct {
		ID, Help string
		Nodes    []struct {
			HTML           string
			FailureSummary string
		}
	}
	var passed int
	p.Eval(`axe.run(document).then((r) => { window.axePassed = r.passes.length; return r.violations; })`, &found)
	p.Eval(`window.axePassed`, &passed)
	for _, v := range found {
		for _, n := range v.Nodes {
			p.t.Errorf("axe: %s: %s\n%s\n%s", v.ID, v.Help, n.HTML, n.FailureSummary)
		}
	}
	if passed < 10 {
		p.t.Errorf("axe: only %d rules apply to the page", passed)
	}
}

// FitsWidth fails the test if the page, or a table on it, scrolls sideways or is cut off, and
// names what is too wide; and if two pills overlap, apart from those of a heading that stays
// in view above the others.
func (p *Page) FitsWidth() {
	p.t.Helper()
	var wide []string
	p.Eval(`[...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() && !e.closest(".unseen, pre, thead, svg, .skip") &&
		(document.documentElement.scrollWidth > innerWidth || e.closest("table")) && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 120))`, &wide)
	for _, e := range wide {
		p.t.Errorf("wider than the page: %s", e)
	}
	var over []string
	p.Eval(`(() => {
		const pills = [...document.querySelectorAll(".pill")].filter((e) => e.checkVisibility() && !e.closest(".compare")).map((e) => [e.innerText, e.getBoundingClientRect()]);
		return pills.flatMap(([a, r], i) => pills.slice(i + 1)
			.filter(([, s]) => r.left < s.right - 1 && s.left < r.right - 1 && r.top < s.bottom - 1 && s.top < r.bottom - 1).map(([b]) => a + " and " + b));
	})()`, &over)
	for _, two := range over {
		p.t.Errorf("two pills overlap: %s", two)
	}
}

// Screenshot writes the visible part of the page to a PNG file.
func (p *Page) Screenshot(file string) {
	p.t.Helper()
	p.do("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": 0, "y": 0}, nil) // away from the buttons
	var shot struct{ Data string }
	p.do("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// do sends a command to the page.
func (p *Page) do(method string, params, result any) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
	defer cancel()
	p.must(p.b.call(ctx, p.session, method, params, result))
}

func (p *Page) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func quoted(s string) string {
	text, _ := json.Marshal(s) // a string always encodes
	return string(text)
}
