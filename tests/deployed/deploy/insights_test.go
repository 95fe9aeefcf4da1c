// SPDX-License-Identifier: Apache-2.0

package deploy

import (
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

var aSection = regexp.MustCompile(`(?m)^## (\w+)$`)

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
	queries := kit.Queries(p.text)
	if len(queries) == 0 {
		p.t.Fatal("the section has no query")
	}
	return kit.Insights(p.t, queries[0], lines)
}

func (p *procedure) line(lines []string, want string) {
	p.t.Helper()
	i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, want) })
	if i < 0 {
		p.t.Fatalf("no line names the cause, %q:\n%s", want, strings.Join(lines, "\n"))
	}
	p.t.Logf("%s", strings.TrimSpace(lines[i]))
}
