// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit/exchange"
)

// api is a running service, as its clients and its operator reach it.
type api struct {
	url string
	// routes reports that the service has more than POST /charges and GET
	// /charges/{id}, and that a charge can have a note.
	routes   bool
	document func() []byte        // the published OpenAPI document
	settle   func(key string)     // an operator asks the provider about a key
	crash    func(...func(*life)) // the process dies, and another one starts over the same records
	// stored returns all that the store holds, as bytes, and fingerprints those of
	// all records. The example is ended for it.
	stored       func() string
	fingerprints func() []string

	// The following are nil if the service does not have them.
	now        func() time.Time // by the service's clock
	advance    func(time.Duration)
	breakStore func(broken bool)
	gone       chan struct{} // gets a value when a client disconnects
	refused    chan struct{} // gets a value when the store refuses a claim
}

// check is one requirement, exercised on one service.
type check struct {
	*api
	t        *testing.T
	provider *provider
	profile  *exchange.Profile
	customer string // of this check only
	keys     []string
}

// failure stops a check.
type failure struct{ text string }

func (c *check) failf(format string, args ...any) { panic(failure{fmt.Sprintf(format, args...)}) }

func (c *check) must(err error) {
	if err != nil {
		c.failf("%v", err)
	}
}

// run exercises a requirement on a service and returns why it is not met, or "".
func (c *check) run(s service, r *requirement) (why string) {
	defer func() {
		if p := recover(); p != nil {
			f, ok := p.(failure)
			if !ok {
				panic(p)
			}
			why = f.text
		}
	}()
	for _, row := range r.rowsOn(s) {
		if c.api == nil || row.Options != nil {
			with := *r
			with.options = row.Options
			c.api = s.open(c, &with)
		}
		c.customer = "cus_" + unique()
		c.play(row)
	}
	if r.run != nil {
		if c.api == nil {
			c.api = s.open(c, r)
		}
		c.customer = "cus_" + unique()
		r.run(c)
	}
	return ""
}

// play sends the requests of a row, and checks what each of them gets.
func (c *check) play(row exchange.Row) {
	key, other := c.newKey(), c.newKey()
	got := make([]answer, len(row.Sends))
	for i := 0; i < len(row.Sends); {
		first := i
		c.advanceBy(row.Sends[i].Later)
		if i++; i == len(row.Sends) || !row.Sends[i].During {
			got[first] = c.eventually("", c.sent(row.Sends[first], key, other))
			continue
		}
		h := c.hold()
		pending := c.start("", c.sent(row.Sends[first], key, other))
		c.wait(h.entered)
		for ; i < len(row.Sends) && row.Sends[i].During; i++ {
			got[i] = c.charge("", c.sent(row.Sends[i], key, other))
		}
		h.release()
		got[first] = c.finish(pending)
	}
	for i, s := range row.Sends {
		switch {
		case s.Gets == exchange.Created, s.Gets == exchange.Passed:
			c.created(got[i])
		case s.Gets == exchange.Replay:
			c.replays(got[i], got[s.Of])
		case s.Method == "HEAD": // without a body
			c.want(got[i], c.profile.Status(s.Gets))
		default:
			c.problem(got[i], s.Gets)
			if i > 0 && reflect.DeepEqual(s, row.Sends[i-1]) && got[i].body != got[i-1].body {
				c.failf("got %s, want the bytes of %s", got[i], got[i-1])
			}
		}
	}
	c.effects(row.Runs, row.Runs)
}

func (c *check) advanceBy(d time.Duration) {
	if d > 0 {
		c.advance(d)
	}
}

// sent makes a request of the table.
func (c *check) sent(s exchange.Send, key, other string) func(*call) {
	if s.Other {
		key, other = other, key
	}
	return func(r *call) {
		r.method, r.path, r.body = s.Target(c.customer, key)
		if r.caller = cmp.Or(s.Caller, exchange.Somebody); r.caller == exchange.Nobody {
			r.caller = ""
		}
		if s.Method == "GET" || s.Method == "HEAD" {
			r.body = ""
		}
		switch {
		case s.NoKey:
		case s.Name != "":
			withHeader(s.Name, c.profile.Spell(key))(r)
		case s.Lines == nil:
			r.key = key
		}
		for _, line := range s.Lines {
			r.lines = append(r.lines, c.profile.Line(line, key, other))
		}
	}
}

// newKey returns a key that is valid in every profile.
func (c *check) newKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	key := idempotent.AsUUID(string(b[:]))
	c.keys = append(c.keys, key)
	return key
}

// call is a request. The zero value of key sends no key.
type call struct {
	method, path, body, key string
	lines                   []string // the header lines with the key, instead of key in the profile's syntax
	caller                  string
	header                  map[string]string
}

func (c *check) body(amount int) string {
	return fmt.Sprintf(`{"amount":%d,"currency":"usd","customer":%q}`, amount, c.customer)
}

// charge sends a POST /charges for the customer, changed by mods.
func (c *check) charge(key string, mods ...func(*call)) answer {
	return c.finish(c.start(key, mods...))
}

// finish returns the answer to a request that was started.
func (c *check) finish(pending <-chan answer) answer {
	select {
	case a := <-pending:
		c.must(a.err)
		return a
	case <-c.t.Context().Done():
		panic(failure{"the test ended before the answer arrived"})
	}
}

// start is charge that does not wait for the answer.
func (c *check) start(key string, mods ...func(*call)) <-chan answer {
	return c.startIn(c.t.Context(), key, mods...)
}

func (c *check) startIn(ctx context.Context, key string, mods ...func(*call)) <-chan answer {
	r := call{method: "POST", path: "/charges", key: key, body: c.body(4200), caller: "merchant-1"}
	for _, f := range mods {
		f(&r)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.url+r.path, strings.NewReader(r.body))
	c.must(err)
	req.GetBody = nil // Go's client must not repeat the request by itself
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.caller != "" {
		req.Header.Set("Authorization", "Bearer "+r.caller)
	}
	if r.lines == nil && r.key != "" {
		r.lines = []string{c.profile.Spell(r.key)}
	}
	if r.lines != nil {
		req.Header["Idempotency-Key"] = r.lines
	}
	for name, value := range r.header {
		req.Header[name] = []string{value} // in this spelling
	}
	pending := make(chan answer, 1)
	go func() { pending <- roundTrip(req, slices.Clone(c.keys)) }()
	return pending
}

func withBody(body string) func(*call) { return func(r *call) { r.body = body } }
func at(method, path string) func(*call) {
	return func(r *call) { r.method, r.path = method, path }
}
func withHeader(name, value string) func(*call) {
	return func(r *call) {
		r.header = maps.Clone(r.header)
		if r.header == nil {
			r.header = map[string]string{}
		}
		r.header[name] = value
	}
}

// read sends a request without a body, with a key or without.
func (c *check) read(method, path, key string) answer {
	return c.charge(key, at(method, path), withBody(""))
}

// answer is a response. The client got none if err is set.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

// roundTrip sends a request. An answer with one of the keys in it is an error.
func roundTrip(req *http.Request, keys []string) answer {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	a := answer{resp.StatusCode, resp.Header, string(data), err}
	for _, key := range keys {
		if strings.Contains(strings.ToLower(fmt.Sprint(a.header, a.body)), strings.ToLower(key)) {
			a.err = fmt.Errorf("the answer contains the key: %s", a)
		}
	}
	return a
}

func (a answer) String() string { return fmt.Sprintf("%d %v %s", a.status, a.header, a.body) }

// want checks the status of an answer.
func (c *check) want(a answer, status int) {
	if a.status != status {
		c.failf("got %s, want status %d", a, status)
	}
}

// created checks that the request was executed: 201 with the charge, which is not
// a replay. It returns the answer.
func (c *check) created(a answer) answer {
	c.want(a, http.StatusCreated)
	if id := c.id(a); id == "" || a.header.Get("Location") != "/charges/"+id || a.header.Get("Idempotent-Replayed") != "" {
		c.failf("got %s, want a new charge", a)
	}
	return a
}

// id returns the id of the charge in an answer.
func (c *check) id(a answer) string {
	var charge struct{ ID string }
	if err := json.Unmarshal([]byte(a.body), &charge); err != nil {
		c.failf("the body is no charge: %v: %s", err, a)
	}
	return charge.ID
}

// ofExchange are headers that differ between two answers: of the HTTP exchange,
// and the marks.
var ofExchange = []string{"Date", "Set-Cookie", "Apigw-Requestid", "Idempotent-Replayed", "Idempotency-Status"}

// replays checks that an answer is first again, marked as a replay.
func (c *check) replays(a, first answer) {
	if a.header.Get("Idempotent-Replayed") != "true" {
		c.failf("got %s, want a replay", a)
	}
	got, want := a.header.Clone(), first.header.Clone()
	for _, name := range ofExchange {
		got.Del(name)
		want.Del(name)
	}
	if a.status != first.status || a.body != first.body || !maps.EqualFunc(got, want, slices.Equal) {
		c.failf("got %s, want the bytes of %s", a, first)
	}
}

// problem checks that an answer is the profile's answer in a situation.
func (c *check) problem(a answer, code string) {
	c.want(a, c.profile.Status(code))
	if c.profile.Name == "stripe" {
		c.stripeError(a, code)
	} else {
		c.problemDocument(a, code)
	}
	if linked := strings.Contains(a.header.Get("Link"), `<`+page+`>; rel="describedby"`); linked != (a.status == 400 || a.status == 409 || a.status == 422) {
		c.failf("the link to the documentation is wrong or missing: %s", a)
	}
	_, err := strconv.ParseUint(a.header.Get("Retry-After"), 10, 32)
	if exchange.Waits(code) != (err == nil) {
		c.failf("Retry-After is %q: %s", a.header.Get("Retry-After"), a)
	}
	if (a.header.Get("Location") != "") != (code == "accepted") {
		c.failf("only a request that is accepted has a place where its progress is: %s", a)
	}
	if a.header.Get("Idempotent-Replayed") != "" || a.header.Get("Idempotency-Key") != "" {
		c.failf("this is not a replay, and has no key: %s", a)
	}
}

// problemDocument checks a problem (RFC 9457).
func (c *check) problemDocument(a answer, code string) {
	p := members(c, a)
	media := "application/problem+json"
	if a.status < 400 {
		media = "application/json"
	}
	if a.header.Get("Content-Type") != media || a.header.Get("Content-Language") != "en" ||
		p["type"] != page+"#"+code || p["code"] != code || p["status"] != float64(a.status) || p["title"] != exchange.Title(code) {
		c.failf("got %s, want a problem of the type %s#%s", a, page, code)
	}
	if detail, _ := p["detail"].(string); !strings.HasSuffix(detail, ".") {
		c.failf("the problem's detail is not a sentence: %s", a)
	}
}

func members(c *check, a answer) (m map[string]any) {
	if err := json.Unmarshal([]byte(a.body), &m); err != nil {
		c.failf("the body is not a JSON object: %s", a)
	}
	return m
}

// stripeError checks an error in the form of Stripe's API.
func (c *check) stripeError(a answer, code string) {
	var body struct {
		Error struct{ Type, Code, Message string }
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil {
		c.failf("the body is not an error: %s", a)
	}
	kind, name := exchange.StripeError(code)
	if e := body.Error; name == "" || e.Type != kind || e.Code != name || !strings.HasSuffix(e.Message, ".") || a.header.Get("Content-Type") != "application/json" {
		c.failf("got %s, want the error %s %s", a, kind, name)
	}
}

// entriesOf returns what the provider has on a customer.
func (c *check) entriesOf(customer string) []entry {
	a := c.ask("GET", "/charges?customer="+url.QueryEscape(customer))
	var entries []entry
	c.must(json.Unmarshal([]byte(a.body), &entries))
	return entries
}

// ask sends a request to the provider.
func (c *check) ask(method, path string) answer {
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.provider.URL+path, nil)
	c.must(err)
	a := roundTrip(req, nil)
	c.must(a.err)
	c.want(a, http.StatusOK)
	return a
}

// effects checks how many charges the provider has booked, and how often it was
// asked.
func (c *check) effects(want, asked int) {
	entries, got := c.entriesOf(c.customer), 0
	for _, e := range entries {
		if e.Status == booked {
			got++
		}
	}
	if got != want || len(entries) != asked {
		c.failf("the provider was asked %d times and has booked %d charges, want %d and %d", len(entries), got, asked, want)
	}
}

// treat sets the conduct of the provider for the customer.
func (c *check) treat(conduct conduct) { c.provider.treat(c.customer, conduct) }

// hold makes the provider hold the customer's charges after they are booked.
func (c *check) hold() *hold {
	h := c.newHold()
	c.treat(conduct{hold: h})
	return h
}

// newHold returns a hold that is released at the end of the test: a server that
// closes waits for its requests.
func (c *check) newHold() *hold {
	h := &hold{entered: make(chan struct{}, 1), released: make(chan struct{})}
	c.t.Cleanup(h.release)
	return h
}

// wait waits for a signal.
func (c *check) wait(signal <-chan struct{}) {
	select {
	case <-signal:
	case <-c.t.Context().Done():
		c.failf("the test ended before the signal arrived")
	}
}

// held starts a request and returns when the provider has booked it and holds the
// answer.
func (c *check) held(key string) (*hold, <-chan answer) {
	h := c.hold()
	pending := c.start(key)
	c.wait(h.entered)
	return h, pending
}
