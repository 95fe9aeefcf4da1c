// SPDX-License-Identifier: Apache-2.0

// Package conformance exercises what five documents ask of a server with
// idempotency keys. It sends requests, reads answers and counts effects at the
// payment provider. docs/reports/conformance.md has the documents, the requirements and the
// results.
package conformance

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/exchange"
	"github.com/once-lambda/once/lambdahttp"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/reports/conformance.md")

// scratch is a folder for all tests of this run.
var scratch string

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	// Many checks wait: for the provider, for a time-out, for a process to start.
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	log.SetOutput(io.Discard) // the default of slog, for hints of the shops
	var err error
	if scratch, err = os.MkdirTemp("", "once-conformance-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}

// requirement is what one or more of the documents ask.
type requirement struct {
	name string
	text string // in the words of this project
	asks string // the documents and their sections: "D2.5 O4"; "D2.5(04)": since draft 04; "D2.1(–04)": until draft 04; "–": a promise of this project
	rows []exchange.Row
	run  func(*check) // after the rows

	profiles string // "ietf uuid": the others have another rule, see rule; "": all
	on       place
	// rule names the source that wins where the documents contradict each other, and
	// the reason.
	rule string

	// Of the service.
	options     func(*lambdahttp.Options) // of a shop
	steps       bool                      // a shop that works in two steps
	checked     bool                      // a shop that looks for a charge before it replays it
	alone       bool                      // a separate process, which may be killed
	env         []string                  // of that process
	unreachable bool                      // the provider cannot be reached before the first crash
}

// place is where a requirement can be exercised.
type place uint8

const (
	everywhere place = iota
	shops            // it needs a clock, callers, routes, options or a broken store
	example          // it needs a process
)

// guarded returns the option that changes the guard.
func guarded(f func(*idempotent.Operation)) func(*lambdahttp.Options) {
	return func(o *lambdahttp.Options) { o.Guard = f }
}

// of returns cases of package exchange, by their names.
func of(names string) (all []requirement) {
	for _, name := range strings.Fields(names) {
		c := exchange.Cases[slices.IndexFunc(exchange.Cases, func(c exchange.Case) bool { return c.Name == name })]
		r := requirement{name: c.Name, text: c.Text, asks: c.Asks, rule: c.Rule, rows: c.Rows}
		if c.Shop {
			r.on = shops
		}
		all = append(all, r)
	}
	return all
}

// and returns a case of package exchange that a client of a service can exercise further.
func and(name string, run func(*check)) []requirement {
	r := of(name)
	r[0].run = run
	return r
}

var requirements = slices.Concat(keyRequirements, scopeRequirements, payloadRequirements, replayRequirements, runningRequirements, outcomeRequirements, publishedRequirements)

// service is one service under test.
type service struct {
	column  string
	profile *exchange.Profile
	open    func(*check, *requirement) *api
	place   place
}

// appliesTo reports whether the requirement is exercised on the service.
func (r *requirement) appliesTo(s service) bool {
	return s.profile.In(r.profiles) && (r.on == everywhere || r.on == s.place) && (r.rows == nil || len(r.rowsOn(s)) > 0)
}

// rowsOn returns the rows that are exercised on the service.
func (r *requirement) rowsOn(s service) (rows []exchange.Row) {
	for _, row := range r.rows {
		if s.profile.In(row.Profiles) && (!row.Shop || s.place == shops) {
			rows = append(rows, row)
		}
	}
	return rows
}

// G07: every requirement on the example in each profile, and on each front in
// each profile. The results are in docs/reports/conformance.md.
func TestConformance(t *testing.T) {
	t.Parallel()
	provider := newProvider()
	t.Cleanup(provider.Close)
	var services []service
	for _, p := range exchange.Profiles {
		for _, f := range fronts {
			services = append(services, service{f.name, p, func(c *check, r *requirement) *api { return openShop(c, f, r) }, shops})
		}
		x, err := startProcess(t, p, provider.URL, "TIMEOUT=1m")
		if err != nil {
			t.Fatal(err)
		}
		services = append(services, service{p.Name, p, func(c *check, r *requirement) *api { return openProcess(c, x, r) }, example})
	}
	met := &results{columns: map[string][]string{}}
	t.Run("on", func(t *testing.T) {
		for _, s := range services {
			for _, r := range requirements {
				if !r.appliesTo(s) {
					continue
				}
				t.Run(s.column+"/"+s.profile.Name+"/"+r.name, func(t *testing.T) {
					t.Parallel()
					c := &check{t: t, provider: provider, profile: s.profile, customer: "cus_" + unique()}
					if why := c.run(s, &r); why != "" {
						t.Fatal(why)
					}
					met.add(r.name, s.column)
				})
			}
		}
	})
	if met.complete(services) {
		for _, q := range requirements {
			if len(met.columns[q.name]) == 0 {
				t.Errorf("%s applies to no service", q.name)
			}
		}
		kit.Part(t, "../../../docs/reports/conformance.md", "requirements", met.table(), *update)
		kit.Part(t, "../../../docs/reports/conformance.md", "rules", rulesTable(), *update)
		kit.Part(t, "../../../docs/reports/conformance.md", "drafts", draftsTable(), *update)
	}
}

// results are the services on which requirements were met.
type results struct {
	mu      sync.Mutex
	count   int
	columns map[string][]string // by the requirement's name
}

func (r *results) add(name, column string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	r.columns[name] = append(r.columns[name], column)
}

// complete reports whether every requirement was met on every service to which it
// applies. A flag can select some.
func (r *results) complete(services []service) bool {
	want := 0
	for _, s := range services {
		for _, q := range requirements {
			if q.appliesTo(s) {
				want++
			}
		}
	}
	return r.count == want
}

// marks returns one character for each of the columns.
func (r *results) marks(name string, columns ...string) string {
	var b strings.Builder
	for _, column := range columns {
		if slices.Contains(r.columns[name], column) {
			b.WriteString("✓")
		} else {
			b.WriteString("–")
		}
	}
	return b.String()
}

func (r *results) table() string {
	var example, front []string
	for _, p := range exchange.Profiles {
		example = append(example, p.Name)
	}
	for _, f := range fronts {
		front = append(front, f.name)
	}
	var b strings.Builder
	b.WriteString("|case|requirement|asked in|example|fronts|\n|---|---|---|---|---|\n")
	for _, q := range requirements {
		fmt.Fprintf(&b, "|%s|%s|%s|%s|%s|\n", q.name, q.text, strings.Join(strings.Fields(q.asks), ","),
			r.marks(q.name, example...), r.marks(q.name, front...))
	}
	return b.String()
}

func rulesTable() string {
	var b strings.Builder
	b.WriteString("|case|rule|\n|---|---|\n")
	for _, q := range requirements {
		if q.rule != "" {
			fmt.Fprintf(&b, "|%s|%s|\n", q.name, q.rule)
		}
	}
	return b.String()
}

// drafts are what a version of the draft changed for a server, and the cases about it.
var drafts = []struct{ version, date, change, cases string }{
	{"03", "July 2023", "the wording only", ""},
	{"04", "November 2023", "dropped: the result of a repeated operation *should* be the same", "replay"},
	{"04", "November 2023", "a retry while the first request runs *should*, no longer *must*, get the conflict", "at-once wait accepted"},
	{"04", "November 2023", "a client may send a key without knowing whether the server honours it", "put-delete read-with-key"},
	{"04", "November 2023", "422 is called Unprocessable Content, no longer Unprocessable Entity", "other-payload"},
	{"05", "March 2024", "dropped: duplicates of requests that move money *must not* be allowed, and repeated webhooks are not expected to be processed", "many-at-once client-gone lost-answer"},
	{"05", "March 2024", "dropped: \"not more than one header\", which follows from the syntax, one String", "one-key"},
	{"05", "March 2024", "a key is unique for every request that has one, not for POST alone", "patch put-delete-opt-in"},
	{"06", "February 2025", "a list of changes and an implementation", ""},
	{"07", "October 2025", "none; expired since April 2026", ""},
}

func draftsTable() string {
	var b strings.Builder
	b.WriteString("|version|date|change for a server|cases|\n|---|---|---|---|\n")
	for _, d := range drafts {
		fmt.Fprintf(&b, "|%s|%s|%s|%s|\n", d.version, d.date, d.change, strings.Join(strings.Fields(d.cases), ","))
	}
	return b.String()
}

// A requirement that not all versions of the draft have is named by the version that brought
// or dropped it, and each case of a version exists.
func TestDrafts(t *testing.T) {
	t.Parallel()
	in := map[string]string{} // cases of a version
	for _, d := range drafts {
		in[d.version] += " " + d.cases
		for _, name := range strings.Fields(d.cases) {
			if !slices.ContainsFunc(requirements, func(r requirement) bool { return r.name == name }) {
				t.Errorf("version %s has the case %s, which does not exist", d.version, name)
			}
		}
	}
	marked := regexp.MustCompile(`\bD[\d.]+\((–?)(\d\d)\)`)
	seen := 0
	for _, r := range requirements {
		for _, m := range marked.FindAllStringSubmatch(r.asks, -1) {
			seen++
			version, _ := strconv.Atoi(m[2])
			if m[1] != "" {
				version++ // the first without it
			}
			if cases := in[fmt.Sprintf("%02d", version)]; !slices.Contains(strings.Fields(cases), r.name) {
				t.Errorf("%s is marked %s, and version %02d has the cases %q", r.name, m[0], version, cases)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d marks were found", seen)
	}
}
