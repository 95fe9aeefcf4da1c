package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// patience limits the time for one order.
const patience = time.Minute

// fate is the history of one order.
type fate struct {
	moment string
	left   *driver.Record // the record after the kill; nil: none
	books  books          // the final state
}

// survive kills the process of an order at a moment, and then repeats the
// request as its client does. For an unknown outcome it also runs the
// reconciler.
func (d *demo) survive(ctx context.Context, f flow, moment string) (*fate, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	number := rand.Text()
	id := idempotent.Key{Operation: f.operation, Scope: customer, ID: number}.RecordID()
	if err := d.kill(ctx, f, number, moment); err != nil {
		return nil, err
	}
	left, err := d.store.Get(ctx, id)
	if err != nil && !errors.Is(err, idempotent.ErrNoRecord) {
		return nil, err
	}
	for {
		answer, err := d.send(ctx, f, number)
		switch {
		case err != nil:
			return nil, err
		case answer.Error == "":
			b, err := d.look(ctx, id, answer.Confirmation)
			return &fate{moment, left, b}, err
		case !answer.Again:
			return nil, errors.New(answer.Error)
		}
		if answer.Unresolved {
			if _, err := d.reconcile(ctx); err != nil {
				return nil, err
			}
		}
		if err := wait(ctx, max(answer.RetryAfter, reconcileAfter)); err != nil {
			return nil, fmt.Errorf("%w: %s", err, answer.Error)
		}
	}
}

// process returns the process of one request.
func (d *demo) process(ctx context.Context, f flow, number, moment string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), envFlow+"="+f.operation, envNumber+"="+number, envMoment+"="+moment,
		envEngine+"="+d.engine, envTables+"="+d.tables, envServices+"="+d.services)
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// kill starts a request, waits until it reaches the moment, and kills it.
func (d *demo) kill(ctx context.Context, f flow, number, moment string) error {
	cmd, err := d.process(ctx, f, number, moment)
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	said, _ := bufio.NewReader(out).ReadString('\n') // an error shows in the check below
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	_ = cmd.Wait() // it was killed
	if strings.TrimSpace(said) != reached {
		return fmt.Errorf("the process did not reach the moment; it printed %q", said)
	}
	return nil
}

// send sends a request and returns its answer.
func (d *demo) send(ctx context.Context, f flow, number string) (answer reply, err error) {
	cmd, err := d.process(ctx, f, number, "")
	if err != nil {
		return answer, err
	}
	out, err := cmd.Output()
	if err != nil {
		return answer, fmt.Errorf("a request ended with %w", err)
	}
	return answer, json.Unmarshal(out, &answer)
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
