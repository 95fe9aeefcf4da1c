// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/once-lambda/once/tests/measured/bench/peers/contestant"
)

// scenario is a promise: what a contestant does when something goes wrong.
type scenario struct {
	name string
	run  func(h *harness, s side) (string, error)
}

// What a contestant does with a promise.
const (
	kept   = "yes"
	broken = "no"
)

var scenarios = []scenario{
	{"of 64 callers on one key, one runs the handler", (*harness).concurrent},
	{"a retry gets the stored result", (*harness).retried},
	{"the same key with another payload is refused", (*harness).mismatched},
	{"after a kill at the time-out, the effect is not repeated", (*harness).killed},
	{"after a kill at the time-out, the key is free again", (*harness).freed},
	{"after an error whose effect is unknown, the effect is not repeated", (*harness).failed},
	{"a late run does not overwrite the result of its successor", (*harness).late},
	{"a result of 600 KB is stored and replayed", (*harness).large},
}

// ask is a command for one request.
type ask struct {
	Request contestant.Request `json:"request"`
	Mode    string             `json:"mode,omitempty"`
	Timeout int                `json:"timeout,omitempty"` // in milliseconds
	Note    string             `json:"note,omitempty"`
}

// answer is what became of a request.
type answer struct {
	Runs    int    `json:"runs"` // of its handler
	Note    string `json:"note"` // of its result
	Error   string `json:"error"`
	Entered bool   `json:"entered"` // the handler waits
}

const inProgress = "in progress"

// shortTimeout is the time limit of a request that does not end in time, in
// milliseconds.
const shortTimeout = 1500

func charge(size string) contestant.Request {
	return contestant.Request{ID: rand.Text(), Amount: 4200, Size: size}
}

// behave plays the scenarios, each with each contestant on a plain table.
func (h *harness) behave(r *Results) error {
	r.Behaviour = map[string]map[string]string{}
	for _, c := range scenarios {
		r.Behaviour[c.name] = map[string]string{}
		for _, s := range h.sides {
			if s.Table != plain {
				continue
			}
			said, err := c.run(h, s)
			if err != nil {
				return fmt.Errorf("peers: %s: %s: %w", s.Contestant, c.name, err)
			}
			r.Behaviour[c.name][s.Contestant] = said
		}
	}
	return nil
}

// request makes one request in a new process.
func (h *harness) request(s side, a ask) (got answer, err error) {
	p, err := h.begin(s, h.engine)
	if err != nil {
		return got, err
	}
	defer p.stop()
	err = p.ask(a, &got)
	return got, err
}

// concurrent fails if the handler does not run once: the contestant counts that
// itself.
func (h *harness) concurrent(s side) (string, error) {
	p, err := h.begin(s, h.engine)
	if err != nil {
		return "", err
	}
	defer p.stop()
	return kept, p.ask(work{task: task{Work: "64-callers"}}.of(5), &turn{})
}

func (h *harness) retried(s side) (string, error) {
	a := ask{Request: charge("small"), Note: "first"}
	first, err := h.request(s, a)
	if err != nil {
		return "", err
	}
	a.Note = "second"
	second, err := h.request(s, a)
	if first.Runs == 1 && second.Runs == 0 && second.Note == "first" {
		return kept, err
	}
	return broken, err
}

func (h *harness) mismatched(s side) (string, error) {
	a := ask{Request: charge("small")}
	if _, err := h.request(s, a); err != nil {
		return "", err
	}
	a.Request.Amount++
	got, err := h.request(s, a)
	if got.Error != "" && got.Runs == 0 {
		return kept, err
	}
	s.env = append(s.env, "VALIDATE=1")
	a = ask{Request: charge("small")}
	if _, err := h.request(s, a); err != nil {
		return "", err
	}
	a.Request.Amount++
	if got, err = h.request(s, a); got.Error != "" && got.Runs == 0 {
		return "if payload validation is configured", err
	}
	return broken, err
}

// patience is how long a retry is repeated while it is answered as in progress: a
// lease ends a little after the time-out.
const patience = 5 * time.Second

// retry repeats a request until it is not in progress any more.
func (h *harness) retry(s side, a ask) (got answer, err error) {
	for end := time.Now().Add(patience); ; time.Sleep(250 * time.Millisecond) {
		got, err = h.request(s, a)
		if err != nil || got.Error != inProgress || time.Now().After(end) {
			return got, err
		}
	}
}

// afterKill kills a handler that does not return, and returns the answer to a retry
// after the request's time-out. It does that once for each contestant.
func (h *harness) afterKill(s side) (got answer, err error) {
	if got, done := h.kills[s.Contestant]; done {
		return got, nil
	}
	a := ask{Request: charge("small"), Mode: "wait", Timeout: shortTimeout}
	p, err := h.begin(s, h.engine)
	if err != nil {
		return got, err
	}
	err = p.ask(a, &got)
	p.kill()
	if err != nil {
		return got, err
	}
	if !got.Entered {
		return got, errors.New("the handler was not entered")
	}
	if got, err = h.retry(s, ask{Request: a.Request}); err == nil {
		h.kills[s.Contestant] = got
	}
	return got, err
}

func (h *harness) killed(s side) (string, error) {
	got, err := h.afterKill(s)
	if got.Runs == 0 {
		return kept, err
	}
	return broken, err
}

func (h *harness) freed(s side) (string, error) {
	got, err := h.afterKill(s)
	if got.Runs == 1 {
		return kept, err
	}
	return broken, err
}

func (h *harness) failed(s side) (string, error) {
	a := ask{Request: charge("small"), Mode: "fail"}
	if _, err := h.request(s, a); err != nil {
		return "", err
	}
	got, err := h.request(s, ask{Request: a.Request})
	if got.Runs == 0 {
		return kept, err
	}
	return broken, err
}

// late lets a run outlive its time-out, as on a managed instance. A second one
// takes over if the contestant allows that, and then the first one returns.
func (h *harness) late(s side) (string, error) {
	p, err := h.begin(s, h.engine)
	if err != nil {
		return "", err
	}
	defer p.stop()
	a := ask{Request: charge("small"), Mode: "wait", Timeout: shortTimeout, Note: "first"}
	var entered, first answer
	if err := p.ask(a, &entered); err != nil {
		return "", err
	}
	successor, err := h.retry(s, ask{Request: a.Request, Note: "second"})
	if err != nil {
		return "", err
	}
	if err := p.ask("return", &first); err != nil {
		return "", err
	}
	third, err := h.request(s, ask{Request: a.Request, Note: "third"})
	switch {
	case successor.Runs == 0:
		return "yes: no run takes over", err
	case third.Note == "second" && third.Runs == 0:
		return kept, err
	}
	return broken, err
}

func (h *harness) large(s side) (string, error) {
	a := ask{Request: charge("600KB"), Note: "first"}
	first, err := h.request(s, a)
	if err != nil {
		return "", err
	}
	second, err := h.request(s, a)
	if first.Error == "" && second.Error == "" && second.Runs == 0 {
		return kept, err
	}
	return broken, err
}
