// SPDX-License-Identifier: Apache-2.0

package console

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

	"github.com/once-lambda/once/cmd/once/internal/operate"
	"github.com/once-lambda/once/cmd/once/internal/output"
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

	Evidence      operate.Answer `json:"evidence"`   // as a program of once reconcile --exec answers
	InsteadOf     string         `json:"instead_of"` // the token of the attempt whose stored outcome is wrong
	ResultVersion string         `json:"result_version"`
	Force         bool           `json:"force"`

	Items []order `json:"items"` // settle these, each with its own evidence

	Exhausted  bool     `json:"exhausted"` // requeue all that were given up
	Operations []string `json:"operations"`
}

// asked is the answer to an order without a confirmation.
type asked struct {
	Facts   []fact           `json:"facts"`
	Warning string           `json:"warning"`
	Word    string           `json:"word"` // the confirmation
	Notes   []string         `json:"notes,omitempty"`
	Outcome string           `json:"outcome"`           // would_write or unchanged
	Results []operate.Result `json:"results,omitempty"` // of each of many records
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

	Summary  *operate.Summary `json:"summary,omitempty"` // of many records
	Problems []operate.Result `json:"problems,omitempty"`
	Results  []operate.Result `json:"results,omitempty"` // of each record
}

// asking returns the answer to an order without a confirmation.
func asking(q operate.Question, outcome string, notes []string) *asked {
	a := &asked{Warning: onPage.Replace(q.Warning), Word: q.Word, Notes: notes, Outcome: outcome}
	for _, f := range q.Facts {
		a.Facts = append(a.Facts, fact{f[0], onPage.Replace(f[1])})
	}
	return a
}

func carried(l operate.AuditLine, notes []string) *carriedOut {
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
		if err := cmp.Or(s.audit.Check(), (&operate.Writing{Reason: in.Reason, Yes: true}).Ready(s.Env)); err != nil {
			return nil, err
		}
		return carryOut(s.ctx, &in) // not the context of r: the write and its audit line belong together
	})
}

// shown returns the record of an order, if it is as the operator has seen it.
func (s *site) shown(ctx context.Context, in *order) (*driver.Record, error) {
	id, err := idempotent.ParseRecordID(string(in.Record))
	if err != nil {
		return nil, operate.Usage("%v", err)
	}
	r, err := s.store.Get(ctx, id)
	if err == nil && versionOf(r) != in.Version {
		err = operate.Changed(r)
	}
	return r, err
}

// aside returns an environment for one request whose notes for the operator go to
// the page, and the function that returns them.
func (s *site) aside() (*operate.Env, func() []string) {
	var text bytes.Buffer
	e := *s.Env
	e.Stdout, e.Stderr = io.Discard, &text
	return &e, func() (notes []string) {
		for line := range strings.Lines(text.String()) {
			notes = append(notes, onPage.Replace(strings.TrimPrefix(strings.TrimSpace(line), "once: ")))
		}
		return notes
	}
}

// resolve settles a record by evidence.
func (s *site) resolve(ctx context.Context, in *order) (any, error) {
	ev, err := in.Evidence.Evidence()
	if err == nil && in.InsteadOf != "" {
		err = ev.Correct(in.InsteadOf)
	}
	if err != nil {
		return nil, operate.Usage("%v", err)
	}
	r, err := s.shown(ctx, in)
	if err != nil {
		return nil, err
	}
	e, notes := s.aside()
	c := &operate.Settler{Env: e, ResultVersion: in.ResultVersion, Force: in.Force}
	p := operate.Piece{Record: r, Evidence: ev}
	if err := c.Fit(ctx, s.store, p); err != nil {
		return nil, err
	}
	return s.confirmed(in, c.Question(s.store, p, in.Reason), notes, func(o operate.Store, a *operate.Auditor) (operate.AuditLine, error) {
		return c.Settle(ctx, o, p, in.Reason, a)
	})
}

// confirmed carries out an order about one record. Without a confirmation it rehearses it,
// and returns what the operator has to confirm.
func (s *site) confirmed(
	in *order, q operate.Question, notes func() []string, carryOut func(operate.Store, *operate.Auditor) (operate.AuditLine, error),
) (any, error) {
	o, a := s.store, s.audit
	if in.Confirm == nil {
		o, a = operate.Rehearse(o), nil
	} else if err := q.Check(*in.Confirm); err != nil {
		return nil, err
	}
	line, err := carryOut(o, a)
	switch {
	case err != nil:
		return nil, err
	case in.Confirm == nil:
		return asking(q, line.Outcome, notes()), nil
	}
	return carried(line, notes()), nil
}

// settledAtMost is how many records one order can settle.
const settledAtMost = 100

// settle settles many records, each by its own evidence. A record that cannot be
// settled does not stop the others.
func (s *site) settle(ctx context.Context, in *order) (any, error) {
	if n := len(in.Items); n == 0 || n > settledAtMost {
		return nil, operate.Usage("invalid number of records %d: want 1 to %d", n, settledAtMost)
	}
	e, notes := s.aside()
	c := &operate.Settler{Env: e, ResultVersion: in.ResultVersion, Force: in.Force}
	tasks, err := s.tasks(ctx, c, in)
	if err != nil {
		return nil, err
	}
	dry, said := in.Confirm == nil, notes()
	all, store, audit := e.Results(false), s.store, s.audit
	if dry {
		store, audit = operate.Rehearse(store), nil
	} else if err := (&operate.Question{Word: strconv.Itoa(len(tasks))}).Check(*in.Confirm); err != nil {
		return nil, err
	}
	failed := all.CarryOut(ctx, tasks, audit, func(t *operate.Task) { c.TryShown(ctx, store, t) })
	for i := range all.List {
		all.List[i].Error = onPage.Replace(all.List[i].Error)
	}
	if dry {
		q := c.QuestionAll(s.store, tasks)
		a := asking(q, operate.OutcomeWouldWrite, said)
		a.Results = all.List
		return a, nil
	}
	sum := all.Summary()
	out := &carriedOut{Outcome: operate.OutcomeWritten, Notes: said, Summary: &sum, Results: all.List}
	if failed != nil {
		out.Notes = append(out.Notes, failed.Error())
	}
	return out, nil
}

// tasks reads the records of an order about many, and checks each piece of evidence as
// once resolve does. What is wrong with one record is the error of its task.
func (s *site) tasks(ctx context.Context, c *operate.Settler, in *order) (tasks []*operate.Task, err error) {
	seen := map[idempotent.RecordID]bool{}
	for _, item := range in.Items {
		if seen[item.Record] {
			return nil, operate.Usage("%s is there twice", item.Record)
		}
		seen[item.Record] = true
		id, err := idempotent.ParseRecordID(string(item.Record))
		if err != nil {
			return nil, operate.Usage("%v", err)
		}
		ev, err := item.Evidence.Evidence()
		if err != nil {
			return nil, operate.Usage("%s: %v", output.Short(id), err)
		}
		tasks = append(tasks, &operate.Task{ID: id, Reason: in.Reason, Piece: operate.Piece{Evidence: ev}})
	}
	operate.Parallel(slices.All(tasks), operate.ReadParallel, func(i int, t *operate.Task) {
		item := in.Items[i]
		if t.Record, t.Err = s.shown(ctx, &item); t.Record == nil {
			t.Record = &driver.Record{ID: t.ID}
		}
		if t.Err == nil {
			t.Err = t.Evidence.Fit(t.Record)
		}
		t.Line = t.AuditLine("resolve", t.Reason)
	})
	var fit []*operate.Task
	var pieces []operate.Piece
	for _, t := range tasks {
		if t.Err == nil {
			fit, pieces = append(fit, t), append(pieces, t.Piece)
		}
	}
	wrong, err := c.Differing(ctx, s.store, pieces...)
	for i, t := range fit {
		if wrong[i] != "" {
			t.Err = operate.Refuse("%s", wrong[i])
		}
	}
	return tasks, err
}

// forget discards a stored outcome.
func (s *site) forget(ctx context.Context, in *order) (any, error) {
	r, err := s.shown(ctx, in)
	if err != nil {
		return nil, err
	}
	e, notes := s.aside()
	return s.confirmed(in, operate.ForgetQuestion(e, s.store, r, in.Reason), notes, func(o operate.Store, a *operate.Auditor) (operate.AuditLine, error) {
		line, err := operate.Forget(ctx, e, o, r, in.Token, in.Reason)
		return line, errors.Join(err, a.Write(line))
	})
}

// requeue requeues one record, or all that were given up. As on the command line,
// one record needs no confirmation.
func (s *site) requeue(ctx context.Context, in *order) (any, error) {
	e, notes := s.aside()
	if !in.Exhausted {
		r, err := s.shown(ctx, in)
		if err != nil {
			return nil, err
		}
		line, err := operate.Requeue(ctx, e, s.store, r, in.Reason)
		if err := errors.Join(err, s.audit.Write(line)); err != nil {
			return nil, err
		}
		return carried(line, nil), nil
	}
	list, err := operate.GivenUp(ctx, e, s.store, in.Operations)
	if err != nil {
		return nil, err
	}
	q := operate.RequeueQuestion(s.store, list, in.Reason)
	if in.Confirm == nil {
		return asking(q, operate.OutcomeWouldWrite, notes()), nil
	}
	if err := q.Check(*in.Confirm); err != nil {
		return nil, err
	}
	all, _ := operate.RequeueAll(ctx, e, s.store, list, in.Reason, s.audit) // its error is that of the audit
	if err := s.audit.Check(); err != nil {
		return nil, err
	}
	sum := all.Summary()
	return &carriedOut{Outcome: operate.OutcomeWritten, Summary: &sum, Problems: all.Problems()}, nil
}
