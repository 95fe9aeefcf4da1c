package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// program finds out what became of records by asking another program.
type program struct {
	command string
	env     *env
	journal *journal
	store   *opened
	version string // Options.ResultVersion
	force   bool

	mu    sync.Mutex
	peers map[string]func() *peers // by operation
}

const (
	// maxAnswer bounds what a program may say, in bytes: Lambda's largest result,
	// in JSON of base64.
	maxAnswer = 16 << 20
	// killDelay is how long a program that was stopped may keep its output open.
	killDelay = time.Second
)

// resolve is an [idempotent.ResolveFunc].
func (p *program) resolve(ctx context.Context, r driver.Record) (idempotent.Resolution, error) {
	said, err := p.ask(ctx, &r)
	if err == nil {
		var ev *evidence
		var later time.Duration
		ev, later, err = parseAnswer(said)
		switch {
		case err != nil:
		case ev == nil:
			p.journal.note(short(r.ID), "no answer yet", nil)
			return idempotent.Later(later), nil
		default:
			if err = p.compare(ctx, &r, ev); err == nil {
				p.journal.answered(&r, ev)
				return ev.resolution, nil
			}
		}
	}
	if p.journal.dry { // the core observes nothing then
		p.journal.note(short(r.ID), "no answer", err)
	}
	return idempotent.Resolution{}, err
}

// ask runs the program for one record and returns what it says.
func (p *program) ask(ctx context.Context, r *driver.Record) ([]byte, error) {
	v := viewOf(r)
	if err := v.addStepResults(r); err != nil {
		return nil, err
	}
	var question bytes.Buffer
	if err := json.NewEncoder(&question).Encode(v); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", p.command)
	stopWithChildren(cmd)
	cmd.WaitDelay = killDelay
	said := &limited{left: maxAnswer}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &question, said, p.env.stderr
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, errors.New("the program took too long and was stopped")
	case said.left < 0:
		return nil, fmt.Errorf("the program says more than %s", size(maxAnswer))
	case err != nil:
		return nil, fmt.Errorf("the program failed: %w", err)
	}
	return said.buf.Bytes(), nil
}

// compare refuses an answer that retries could not get.
func (p *program) compare(ctx context.Context, r *driver.Record, ev *evidence) error {
	if p.force || ev.encoding == "" {
		return nil
	}
	operation := r.ID.Operation()
	p.mu.Lock()
	if p.peers == nil {
		p.peers = map[string]func() *peers{}
	}
	look := p.peers[operation]
	if look == nil {
		look = sync.OnceValue(func() *peers { return p.store.peersOf(context.WithoutCancel(ctx), operation) })
		p.peers[operation] = look
	}
	p.mu.Unlock()
	return look().contradict(ev, p.version)
}

// answer is what a program says: one of the members.
type answer struct {
	Completed   json.RawMessage `json:"completed"`
	Response    *response       `json:"response"`
	Final       *final          `json:"final"`
	NotExecuted bool            `json:"not_executed"`
	Later       string          `json:"later"`
}

// parseAnswer reads what a program says. Without evidence it is asked again
// later, after a pause that zero leaves to the backoff.
func parseAnswer(said []byte) (ev *evidence, later time.Duration, err error) {
	var a answer
	d := json.NewDecoder(bytes.NewReader(said))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return nil, 0, fmt.Errorf("the program's answer is not as it has to be: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, 0, errors.New("the program says more than one answer")
	}
	given := 0
	for _, is := range []bool{a.Completed != nil, a.Response != nil, a.Final != nil, a.NotExecuted, a.Later != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, 0, errors.New(`the program's answer has to have one of "completed", "response", "final", "not_executed" and "later"`)
	}
	switch {
	case a.Completed != nil:
		ev, err = completed(jsonEncoding, a.Completed)
	case a.Response != nil && a.Response.Body != "" && a.Response.BodyBase64 != nil:
		err = errors.New(`the program's response has both "body" and "body_base64"`)
	case a.Response != nil:
		body := a.Response.BodyBase64
		if body == nil {
			body = []byte(a.Response.Body)
		}
		ev, err = completedHTTP(a.Response.Status, a.Response.Header, body)
	case a.Final != nil:
		ev, err = completedFinal(*a.Final)
	case a.NotExecuted:
		ev = notExecuted()
	default:
		if later, err = time.ParseDuration(a.Later); err == nil && later <= 0 {
			err = fmt.Errorf("later is %s; it has to be positive", a.Later)
		}
	}
	return ev, later, err
}

// limited keeps so many bytes and refuses more.
type limited struct {
	buf  bytes.Buffer
	left int
}

// Write keeps data, or fails, which ends what the program can say.
func (l *limited) Write(data []byte) (int, error) {
	if l.left -= len(data); l.left < 0 {
		return 0, io.ErrShortWrite
	}
	return l.buf.Write(data)
}
