// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
)

// procedure is the section of an alarm in docs/alarms.md.
type procedure struct {
	t    *testing.T
	text string
}

var (
	aSection = regexp.MustCompile(`(?m)^## (\w+)$`)
	aQuery   = regexp.MustCompile("(?ms)^```logs-insights\n(.*?)^```$")
)

// sections returns the sections of the page, by alarm.
func sections(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(engine.Root(), "docs", "alarms.md"))
	if err != nil {
		t.Fatal(err)
	}
	page, all := string(data), map[string]string{}
	heads := aSection.FindAllStringSubmatchIndex(page, -1)
	for i, at := range heads {
		end := len(page)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		all[page[at[2]:at[3]]] = page[at[1]:end]
	}
	return all
}

// once runs a command of the section, in which an argument can differ from that of the
// page. It has to end with the code, and one of its lines has to contain want.
func (p *procedure) once(env []string, code int, want string, command string, arg ...string) {
	p.t.Helper()
	if !strings.Contains(p.text, "once "+command) {
		p.t.Fatalf("the section has no command once %s", command)
	}
	p.line(strings.Split(runOnce(p.t, env, code, append(strings.Fields(command), arg...)...), "\n"), want)
}

// query calls a function and runs the query of the section on its log, until one of the
// rows contains want.
func (p *procedure) query(f function, want string) {
	p.t.Helper()
	var rows []string
	p.t.Cleanup(func() {
		if p.t.Failed() {
			p.t.Logf("the query found:\n%s", strings.Join(rows, "\n"))
		}
	})
	kit.Eventually(p.t, "a row of the query names the cause, "+want, func() bool {
		rows = p.rows(p.logged(f))
		return slices.ContainsFunc(rows, func(row string) bool { return strings.Contains(row, want) })
	})
	p.line(rows, want)
}

// queryLines is query on lines that a guard logged in this process.
func (p *procedure) queryLines(lines []string, want string) {
	p.t.Helper()
	p.line(p.rows(lines), want)
}

// nothing fails if the query of the section finds a row in the lines.
func (p *procedure) nothing(lines []string) {
	p.t.Helper()
	if rows := p.rows(lines); len(rows) > 0 {
		p.t.Errorf("the query finds %q, want nothing", rows)
	}
}

// logHas calls a function until a line of its log contains want.
func (p *procedure) logHas(f function, want string) {
	p.t.Helper()
	var lines []string
	kit.Eventually(p.t, "the log has "+want, func() bool {
		lines = p.logged(f)
		return slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, want) })
	})
	p.line(lines, want)
}

// logged returns the log of a function after a call, if it has one. The log comes after
// the answer.
func (p *procedure) logged(f function) (lines []string) {
	p.t.Helper()
	lines = logs(p.t, f.name)
	if f.call == nil {
		return lines
	}
	before := calls(lines)
	f.call()
	kit.Eventually(p.t, "the log has the end of the call", func() bool {
		lines = logs(p.t, f.name)
		return calls(lines) > before
	})
	return lines
}

// calls counts the calls whose end a log has.
func calls(lines []string) (n int) {
	for _, line := range lines {
		if strings.HasPrefix(line, "REPORT RequestId: ") {
			n++
		}
	}
	return n
}

func (p *procedure) rows(lines []string) []string {
	p.t.Helper()
	q := aQuery.FindStringSubmatch(p.text)
	if q == nil {
		p.t.Fatal("the section has no query")
	}
	return insights(p.t, q[1], lines)
}

func (p *procedure) line(lines []string, want string) {
	p.t.Helper()
	i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, want) })
	if i < 0 {
		p.t.Fatalf("no line names the cause, %q:\n%s", want, strings.Join(lines, "\n"))
	}
	p.t.Logf("%s", strings.TrimSpace(lines[i]))
}

// insights evaluates a query of CloudWatch Logs Insights, which LocalStack does not
// have, as far as the page uses its language: fields, a filter of comparisons that are
// joined by or, a pattern for a field, counts with the last value of a field, and an order,
// which it ignores.
func insights(t *testing.T, query string, lines []string) (rows []string) {
	t.Helper()
	var filter, shown, counted, parsed, example string
	var pattern *regexp.Regexp
	for _, clause := range strings.Split(strings.ReplaceAll(query, "\n", " "), " | ") {
		switch verb, rest, _ := strings.Cut(strings.TrimSpace(clause), " "); verb {
		case "filter":
			filter = rest
		case "fields":
			shown = rest
		case "stats":
			var made string
			made, counted, _ = strings.Cut(rest, " by ")
			if latest := aLatest.FindStringSubmatch(made); latest != nil {
				example = latest[1]
			}
		case "parse":
			parsed, rest, _ = strings.Cut(rest, " ")
			pattern = regexp.MustCompile(strings.Trim(strings.TrimSpace(rest), "/"))
		case "sort":
		default:
			t.Fatalf("unknown clause %q", clause)
		}
	}
	counts, examples := map[string]int{}, map[string]string{}
	for _, line := range lines {
		members := map[string]any{}
		json.Unmarshal([]byte(line), &members) // an error: the line has no fields but these
		members["@message"] = line
		if !slices.ContainsFunc(strings.Split(filter, " or "), func(c string) bool { return meets(t, c, members) }) {
			continue
		}
		if pattern != nil {
			if m := pattern.FindStringSubmatch(fmt.Sprint(members[parsed])); m != nil {
				members[pattern.SubexpNames()[1]] = m[1]
			}
		}
		var row []string
		for _, name := range strings.Split(shown+counted, ",") {
			if value, is := members[strings.TrimSpace(name)]; is {
				row = append(row, fmt.Sprintf("%s=%v", strings.TrimSpace(name), value))
			}
		}
		group := strings.Join(row, " ")
		counts[group]++
		if value, is := members[example]; is {
			examples[group] = fmt.Sprintf(" example=%v", value)
		}
	}
	for group, n := range counts {
		rows = append(rows, fmt.Sprintf("%d %s%s", n, group, examples[group]))
	}
	slices.Sort(rows)
	return rows
}

var aLatest = regexp.MustCompile(`latest\((\w+)\)`)

var comparison = regexp.MustCompile(`^\s*(@?\w+) (=|like) "(.*)"\s*$`)

func meets(t *testing.T, condition string, members map[string]any) bool {
	t.Helper()
	c := comparison.FindStringSubmatch(condition)
	if c == nil {
		t.Fatalf("unknown condition %q", condition)
	}
	value, is := members[c[1]]
	if c[2] == "=" {
		return is && fmt.Sprint(value) == c[3]
	}
	return is && strings.Contains(fmt.Sprint(value), c[3])
}
