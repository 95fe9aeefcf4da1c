// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/internal/page"
)

// order is a request for a change. Without a confirmation, nothing is written, and
// the answer is what the operator has to confirm.
type order struct {
	Record  idempotent.RecordID `json:"record"`
	Version string              `json:"version"` // of the record as it was shown
	Token   string              `json:"token"`   // of the attempt as it was shown
	Reason  string              `json:"reason"`
	Confirm *string             `json:"confirm"`

	Evidence      answer `json:"evidence"` // as a program of once reconcile --exec answers
	ResultVersion string `json:"result_version"`
	Force         bool   `json:"force"`

	Items []order `json:"items"` // settle these, each with its own evidence

	Exhausted  bool     `json:"exhausted"` // requeue all that were given up
	Operations []string `json:"operations"`
}

// asked is the answer to an order without a confirmation.
type asked struct {
	Facts   []fact   `json:"facts"`
	Warning string   `json:"warning"`
	Word    string   `json:"word"` // the confirmation
	Notes   []string `json:"notes,omitempty"`
	Outcome string   `json:"outcome"`           // would_write or unchanged
	Results []result `json:"results,omitempty"` // of each of many records
}

// fact is one of the facts of a question.
type fact struct {
	Label string `json:"label"`
	Text  string `json:"text"`
}

// carriedOut is the answer to an order that was carried out.
type carriedOut struct {
	Record  idempotent.RecordID `json:"record,omitempty"`
	From    string              `json:"from,omitempty"`
	To      string              `json:"to,omitempty"`
	Outcome string              `json:"outcome"`
	Notes   []string            `json:"notes,omitempty"`

	Summary  *summary `json:"summary,omitempty"` // of many records
	Problems []result `json:"problems,omitempty"`
	Results  []result `json:"results,omitempty"` // of each record
}

// asked returns the answer to an order without a confirmation.
func (q *question) asked(outcome string, notes []string) *asked {
	a := &asked{Warning: onPage.Replace(q.warning), Word: q.word, Notes: notes, Outcome: outcome}
	for _, f := range q.facts {
		a.Facts = append(a.Facts, fact{f[0], onPage.Replace(f[1])})
	}
	return a
}

func (l *auditLine) carriedOut(notes []string) *carriedOut {
	return &carriedOut{Record: l.Record, From: l.From, To: l.To, Outcome: l.Outcome, Notes: notes}
}

// change returns the handler of a kind of change.
func (s *site) change(carryOut func(context.Context, *order) (any, error)) http.HandlerFunc {
	if s.audit == nil {
		return func(w http.ResponseWriter, _ *http.Request) {
			page.Reply(w, http.StatusForbidden, failure{Error: "the console is read-only: run once console with --allow-resolve"})
		}
	}
	return answered(func(r *http.Request) (any, error) {
		var in order
		if err := readJSON(r, &in); err != nil {
			return nil, err
		}
		defer s.outdate()
		if err := cmp.Or(s.audit.check(), (&writing{reason: in.Reason, yes: true}).ready(s.env)); err != nil {
			return nil, err
		}
		return carryOut(s.ctx, &in) // not the context of r: the write and its audit line belong together
	})
}

// shown returns the record of an order, if it is as the operator has seen it.
func (s *site) shown(ctx context.Context, in *order) (*driver.Record, error) {
	id, err := idempotent.ParseRecordID(string(in.Record))
	if err != nil {
		return nil, usage("%v", err)
	}
	r, err := s.store.Get(ctx, id)
	if err == nil && versionOf(r) != in.Version {
		err = changed(r)
	}
	return r, err
}

// aside returns an environment for one request whose notes for the operator go to
// the page, and the function that returns them.
func (s *site) aside() (*env, func() []string) {
	var text bytes.Buffer
	environment, e := *s.environment, *s.env
	environment.stdout, environment.stderr = io.Discard, &text
	e.environment = &environment
	return &e, func() (notes []string) {
		for line := range strings.Lines(text.String()) {
			notes = append(notes, onPage.Replace(strings.TrimPrefix(strings.TrimSpace(line), "once: ")))
		}
		return notes
	}
}

// resolve settles a record by evidence.
func (s *site) resolve(ctx context.Context, in *order) (any, error) {
	ev, err := in.Evidence.evidence()
	if err != nil {
		return nil, usage("%v", err)
	}
	r, err := s.shown(ctx, in)
	if err != nil {
		return nil, err
	}
	e, notes := s.aside()
	c := &settler{env: e, resultVersion: in.ResultVersion, force: in.Force}
	p := piece{r, ev}
	if err := c.fit(ctx, s.store, p); err != nil {
		return nil, err
	}
	q := c.question(s.store, p)
	if in.Confirm == nil {
		line, err := c.rehearse(ctx, s.store, p, in.Reason)
		if err != nil {
			return nil, err
		}
		return q.asked(line.Outcome, notes()), nil
	}
	if err := q.check(*in.Confirm); err != nil {
		return nil, err
	}
	line, err := c.settle(ctx, s.store, p, in.Reason, s.audit)
	if err != nil {
		return nil, err
	}
	return line.carriedOut(notes()), nil
}

// settledAtMost is how many records one order can settle.
const settledAtMost = 100

// settle settles many records, each by its own evidence. A record that cannot be
// settled does not stop the others.
func (s *site) settle(ctx context.Context, in *order) (any, error) {
	if n := len(in.Items); n == 0 || n > settledAtMost {
		return nil, usage("invalid number of records %d: want 1 to %d", n, settledAtMost)
	}
	e, notes := s.aside()
	c := &bulk{settler: settler{env: e, resultVersion: in.ResultVersion, force: in.Force}}
	tasks, err := s.tasks(ctx, c, in)
	if err != nil {
		return nil, err
	}
	dry, said := in.Confirm == nil, notes()
	all, store, audit := e.results(false, dry), s.store, s.audit
	if dry {
		store, audit = store.rehearse(), nil
	} else if err := (&question{word: strconv.Itoa(len(tasks))}).check(*in.Confirm); err != nil {
		return nil, err
	}
	failed := all.carryOut(ctx, tasks, audit, func(t *task) { c.attempt(ctx, store, t) })
	for i := range all.list {
		all.list[i].Error = onPage.Replace(all.list[i].Error)
	}
	if dry {
		q := c.question(s.store, tasks)
		a := q.asked(outcomeWouldWrite, said)
		a.Results = all.list
		return a, nil
	}
	sum := all.summary()
	out := &carriedOut{Outcome: outcomeWritten, Notes: said, Summary: &sum, Results: all.list}
	if failed != nil {
		out.Notes = append(out.Notes, failed.Error())
	}
	return out, nil
}

// tasks reads the records of an order about many, and checks each piece of evidence as
// once resolve does. What is wrong with one record is the error of its task.
func (s *site) tasks(ctx context.Context, c *bulk, in *order) (tasks []*task, err error) {
	seen := map[idempotent.RecordID]bool{}
	for _, item := range in.Items {
		if seen[item.Record] {
			return nil, usage("%s is there twice", item.Record)
		}
		seen[item.Record] = true
		id, err := idempotent.ParseRecordID(string(item.Record))
		if err != nil {
			return nil, usage("%v", err)
		}
		ev, err := item.Evidence.evidence()
		if err != nil {
			return nil, usage("%s: %v", short(id), err)
		}
		tasks = append(tasks, &task{id: id, reason: in.Reason, piece: piece{ev: ev}})
	}
	parallel(slices.All(tasks), readParallel, func(i int, t *task) {
		item := in.Items[i]
		if t.record, t.err = s.shown(ctx, &item); t.record == nil {
			t.record = &driver.Record{ID: t.id}
		}
		if t.err == nil {
			t.err = t.ev.fit(t.record)
		}
		t.line = t.auditLine("resolve", t.reason)
	})
	var fit []*task
	var pieces []piece
	for _, t := range tasks {
		if t.err == nil {
			fit, pieces = append(fit, t), append(pieces, t.piece)
		}
	}
	wrong, err := c.differing(ctx, s.store, pieces...)
	for i, t := range fit {
		if wrong[i] != "" {
			t.err = refuse("%s", wrong[i])
		}
	}
	return tasks, err
}

// attempt writes the evidence of a task if nothing is wrong with it, and sets its line
// for the audit.
func (c *bulk) attempt(ctx context.Context, o *opened, t *task) {
	if t.err == nil {
		t.written, t.err = c.writeShown(ctx, o, t.piece, t.reason)
	}
	t.line = t.wrote(ctx, o, "resolve", t.reason, t.written, t.err)
}

// forget discards a stored outcome.
func (s *site) forget(ctx context.Context, in *order) (any, error) {
	r, err := s.shown(ctx, in)
	if err != nil {
		return nil, err
	}
	c := &forgetCmd{env: s.env, writing: writing{reason: in.Reason}}
	q := c.question(s.store, r)
	if in.Confirm == nil {
		written, err := c.forget(ctx, s.store.rehearse(), r, in.Token)
		if err != nil {
			return nil, err
		}
		return q.asked(rehearsed(outcomeOf(written, nil)), nil), nil
	}
	if err := q.check(*in.Confirm); err != nil {
		return nil, err
	}
	line, err := c.audited(ctx, s.store, r, in.Token)
	if err := errors.Join(err, s.audit.write(line)); err != nil {
		return nil, err
	}
	return line.carriedOut(nil), nil
}

// requeue requeues one record, or all that were given up. As on the command line,
// one record needs no confirmation.
func (s *site) requeue(ctx context.Context, in *order) (any, error) {
	e, notes := s.aside()
	c := &requeueCmd{env: e, writing: writing{reason: in.Reason}, exhausted: in.Exhausted, operations: in.Operations}
	if !in.Exhausted {
		r, err := s.shown(ctx, in)
		if err != nil {
			return nil, err
		}
		line, err := c.requeueOne(ctx, s.store, r)
		if err := errors.Join(err, s.audit.write(line)); err != nil {
			return nil, err
		}
		return line.carriedOut(nil), nil
	}
	list, err := c.given(ctx, s.store)
	if err != nil {
		return nil, err
	}
	q := c.question(s.store, list)
	if in.Confirm == nil {
		return q.asked(outcomeWouldWrite, notes()), nil
	}
	if err := q.check(*in.Confirm); err != nil {
		return nil, err
	}
	all := e.results(false, false)
	c.requeue(ctx, s.store, list, s.audit, all) // its error is in the summary, or is that of the audit
	if err := s.audit.check(); err != nil {
		return nil, err
	}
	sum := all.summary()
	return &carriedOut{Outcome: outcomeWritten, Summary: &sum, Problems: all.problems()}, nil
}
