// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/once-lambda/once/idempotent"
)

// The outcomes of a write about one record, in the audit and in results.
const (
	outcomeWritten    = "written"
	outcomeUnchanged  = "unchanged" // the record already said so
	outcomeRefused    = "refused"
	outcomeFailed     = "failed"
	outcomeWouldWrite = "would_write" // in a dry run
	outcomeNotTried   = "not_tried"   // after an interruption
)

// outcomeOf returns the outcome of a write.
func outcomeOf(written bool, err error) string {
	switch code := exitCode(err); {
	case written:
		return outcomeWritten
	case err == nil:
		return outcomeUnchanged
	case code == exitRefused || code == exitNotFound:
		return outcomeRefused
	}
	return outcomeFailed
}

// rehearsed returns the outcome of a dry run.
func rehearsed(outcome string) string {
	if outcome == outcomeWritten {
		return outcomeWouldWrite
	}
	return outcome
}

// result is what a command did with one record, in the form of --json.
type result struct {
	Line     int                 `json:"line,omitempty"` // of the file
	Record   idempotent.RecordID `json:"record"`
	Evidence string              `json:"evidence,omitempty"`
	Step     string              `json:"step,omitempty"`
	From     string              `json:"from,omitempty"`
	To       string              `json:"to,omitempty"`
	Outcome  string              `json:"outcome"`
	Error    string              `json:"error,omitempty"`
}

// results prints the results of a command about many records, and counts them.
type results struct {
	env   *env
	table *table
	dry   bool // nothing is written
	list  []result
}

// results returns a printer of results. With lines they are those of a file.
func (e *env) results(lines, dry bool) *results {
	titles := []string{"RECORD", "OUTCOME", "STATE"}
	if lines {
		titles = append([]string{"LINE"}, titles...)
	}
	return &results{env: e, table: e.table(1, titles...), dry: dry}
}

// add prints a result. Its error goes to standard error, so that the table stays
// narrow. end returns the error of a write.
func (r *results) add(one result) {
	if r.dry {
		one.Outcome = rehearsed(one.Outcome)
	}
	r.list = append(r.list, one)
	if one.Error != "" && !r.env.json {
		text := strings.TrimPrefix(one.Error, "idempotent: ")
		if !strings.HasPrefix(text, short(one.Record)) {
			text = short(one.Record) + ": " + text
		}
		if one.Line > 0 {
			text = fmt.Sprintf("line %d: %s", one.Line, text)
		}
		fmt.Fprintf(r.env.stderr, "once: %s\n", plain(text))
	}
	state := one.From
	if one.To != one.From {
		state += " → " + one.To
	}
	cells := []string{short(one.Record), one.Outcome, state}
	if one.Line > 0 {
		cells = append([]string{fmt.Sprint(one.Line)}, cells...)
	}
	r.table.add(one, cells...) // the table repeats its first error in end
}

// problems returns the first results with an error.
func (r *results) problems() (list []result) {
	for _, one := range r.list {
		if one.Error != "" && len(list) < maxShown {
			list = append(list, one)
		}
	}
	return list
}

// summary is the last document of --json.
type summary struct {
	Records    int `json:"records"`
	Written    int `json:"written"`
	WouldWrite int `json:"would_write"`
	Unchanged  int `json:"unchanged"`
	Refused    int `json:"refused"`
	Failed     int `json:"failed"`
	NotTried   int `json:"not_tried"`
}

// summary returns the counts.
func (r *results) summary() summary {
	n := map[string]int{}
	for _, one := range r.list {
		n[one.Outcome]++
	}
	return summary{len(r.list), n[outcomeWritten], n[outcomeWouldWrite], n[outcomeUnchanged], n[outcomeRefused], n[outcomeFailed], n[outcomeNotTried]}
}

// end prints the summary and returns the error of the whole command.
func (r *results) end() error {
	s := r.summary()
	var err error
	if r.env.json {
		err = r.table.json.Encode(map[string]summary{"summary": s})
	} else if err = r.table.flush(); err == nil {
		_, err = fmt.Fprintln(r.env.stdout, s.text())
	}
	switch {
	case err != nil:
		return err
	case s.NotTried > 0:
		return fmt.Errorf("interrupted: %s of %s not tried; repeat the command, which writes nothing twice", grouped(s.NotTried), grouped(s.Records))
	case s.Failed > 0:
		return fmt.Errorf("%s of %s failed; repeat the command, which writes nothing twice", grouped(s.Failed), grouped(s.Records))
	case s.Refused > 0:
		return refuse("%s of %s refused", grouped(s.Refused), grouped(s.Records))
	}
	return nil
}

func (s summary) text() string {
	text := count(s.Records, "record") + ":"
	for _, part := range []struct {
		n    int
		what string
	}{
		{s.Written, "written"}, {s.WouldWrite, "would be written"}, {s.Unchanged, "unchanged"},
		{s.Refused, "refused"}, {s.Failed, "failed"}, {s.NotTried, "not tried"},
	} {
		if part.n > 0 {
			text += fmt.Sprintf(" %s %s,", grouped(part.n), part.what)
		}
	}
	return strings.TrimRight(text, ":,")
}

// maxShown is how many wrong lines or records an error names.
const maxShown = 20

// writeParallel is how many records are written at the same time.
const writeParallel = 8
