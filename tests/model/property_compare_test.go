package model_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
	"github.com/once-lambda/once/tests/model"
)

// compare compares the answer of r with the model's.
func (m *machine) compare(rt *rapid.T, r *run, want model.Answer) {
	rt.Helper()
	m.same(rt, fmt.Sprintf("request %d", r.request.Owner), r.told(), want, r.reply.err)
}

// same compares an operation's answer with the model's. The error is printed
// separately: the text of a failure has to be the same in every run, and an
// error contains its key.
func (m *machine) same(rt *rapid.T, what string, got, want model.Answer, err error) {
	rt.Helper()
	if got != want {
		rt.Logf("%s: %v", what, err)
		rt.Fatalf("%s got\n%+v, the model got\n%+v", what, got, want)
	}
	m.seen.Add("answer "+string(want.Verdict), 1)
	for event := range strings.FieldsSeq(want.Events) {
		m.seen.Add("event "+event, 1)
	}
}

// check compares the records with the model's, at first and after every
// operation.
func (m *machine) check(rt *rapid.T) {
	m.steps++
	for i, s := range m.subjects {
		s.check(rt, i, m.store)
	}
}

func (s *subject) check(rt *rapid.T, name int, store driver.Store) {
	r, err := store.Get(context.Background(), s.key(1).RecordID())
	if err != nil && !errors.Is(err, idempotent.ErrNoRecord) {
		rt.Fatal(err)
	}
	got, want, version := seen(r), s.model, driver.Version{}
	got.Version = want.Version
	if r != nil {
		got.Fingerprint, got.Owner, got.Outcome = s.fingerprint(r.Fingerprint), s.owner(r.Owner, want.Owner), want.Outcome
		version = r.Version
	}
	if got != want {
		rt.Fatalf("the record of key %d is\n%+v, in the model\n%+v", name, got, want)
	}
	if wrote := version != s.version; wrote != (s.model != s.before) {
		rt.Fatalf("key %d: a write happened: %v; the model went from\n%+v to\n%+v", name, wrote, s.before, s.model)
	}
	s.version, s.before = version, s.model
}

func (s *subject) fingerprint(f idempotent.Fingerprint) int {
	for n := 1; n <= 2; n++ {
		if s.key(n).Fingerprint == f {
			return n
		}
	}
	return 0
}

// owner returns the model's name for an owner token: the one under which it was
// first seen. No two attempts may have the same.
func (s *subject) owner(token driver.Owner, expected int) int {
	if name, ok := s.owners[token]; ok {
		return name
	}
	for _, taken := range s.owners {
		if taken == expected {
			return -1 // a new token for an attempt that had one
		}
	}
	if s.oldest == 0 {
		s.oldest = expected
	}
	s.owners[token] = expected
	return expected
}

// token returns the token of a known attempt, in the guard's form.
func (s *subject) token(owner int) string {
	for token, name := range s.owners {
		if name == owner {
			r := driver.Record{Owner: token}
			return r.Token()
		}
	}
	return ""
}
