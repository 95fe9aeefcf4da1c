// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
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

	Exhausted  bool     `json:"exhausted"` // requeue all that were given up
	Operations []string `json:"operations"`
}

// asked is the answer to an order without a confirmation.
type asked struct {
	Facts   []fact   `json:"facts"`
	Warning string   `json:"warning"`
	Word    string   `json:"word"` // the confirmation
	Notes   []string `json:"notes,omitempty"`
	Outcome string   `json:"outcome"` // would_write or unchanged
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
}

// asked returns the answer to an order without a confirmation.
func (q *question) asked(outcome string, notes []string) *asked {
	a := &asked{Warning: q.warning, Word: q.word, Notes: notes, Outcome: outcome}
	for _, f := range q.facts {
		a.Facts = append(a.Facts, fact{f[0], f[1]})
	}
	return a
}

func (l *auditLine) carriedOut(notes []string) *carriedOut {
	return &carriedOut{Record: l.Record, From: l.From, To: l.To, Outcome: l.Outcome, Notes: notes}
}

// change returns the handler of a kind of change.
func (s *site) change(carryOut func(context.Context, *order) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.audit == nil {
			reply(w, http.StatusForbidden, failure{Error: "the console is read-only: run once console with --allow-resolve"})
			return
		}
		var in order
		if !readJSON(w, r, &in) {
			return
		}
		err := s.audit.check()
		if err == nil {
			err = (&writing{reason: in.Reason, yes: true}).ready(s.env)
		}
		var done any
		if err == nil {
			done, err = carryOut(s.ctx, &in) // not the context of r: the write and its audit line belong together
		}
		s.outdate()
		if err != nil {
			fail(w, err)
			return
		}
		reply(w, http.StatusOK, done)
	}
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

// versionOf names the state of a record that a page shows.
func versionOf(r *driver.Record) string { return hex.EncodeToString(r.Version[:]) }

// aside returns an environment for one request whose notes for the operator go to
// the page, and the function that returns them.
func (s *site) aside() (*env, func() []string) {
	var text bytes.Buffer
	environment, e := *s.environment, *s.env
	environment.stdout, environment.stderr = io.Discard, &text
	e.environment = &environment
	return &e, func() (notes []string) {
		for line := range strings.Lines(text.String()) {
			notes = append(notes, strings.TrimPrefix(strings.TrimSpace(line), "once: "))
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
		outcome := outcomeUnchanged
		if written {
			outcome = outcomeWouldWrite
		}
		return q.asked(outcome, nil), nil
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
	all := e.results(false)
	c.requeue(ctx, s.store, list, s.audit, all) // its error is in the summary, or is that of the audit
	if err := s.audit.check(); err != nil {
		return nil, err
	}
	sum := all.summary()
	return &carriedOut{Outcome: outcomeWritten, Summary: &sum, Problems: all.problems}, nil
}
