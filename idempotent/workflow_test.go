// SPDX-License-Identifier: Apache-2.0

package idempotent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/once-lambda/once/idempotent"
)

// The recipe of docs/steps.md for Step Functions.

const machine = "arn:aws:states:eu-west-1:123456789012:stateMachine:orders"

type order struct {
	ID    string `json:"id"`
	Count int    `json:"count"`
}

type receipt struct {
	Receipt string `json:"receipt"`
}

// workflows is your client of Step Functions.
type workflows interface {
	StartExecution(ctx context.Context, machine, name, input string) (arn string, err error)
	DescribeExecution(ctx context.Context, arn string) (status, output string, err error)
}

var errAlreadyExists = errors.New("ExecutionAlreadyExists")

// placeOrder runs one execution for each key, and returns its output.
func placeOrder(ctx context.Context, sfn workflows, o order) (r receipt, err error) {
	input, err := json.Marshal(o)
	if err != nil {
		return r, err
	}
	arn, err := idempotent.Step(ctx, "start", func(ctx context.Context) (string, error) {
		name := idempotent.DownstreamKey(ctx)
		arn, err := sfn.StartExecution(ctx, machine, name, string(input))
		if errors.Is(err, errAlreadyExists) { // an earlier attempt has started it
			return strings.Replace(machine, ":stateMachine:", ":execution:", 1) + ":" + name, nil
		}
		return arn, err
	})
	if err != nil {
		return r, err
	}
	status, output, err := sfn.DescribeExecution(ctx, arn)
	switch {
	case err != nil:
		return r, err
	case status == "SUCCEEDED":
		return r, json.Unmarshal([]byte(output), &r)
	case status == "FAILED", status == "TIMED_OUT", status == "ABORTED":
		return r, idempotent.Final(status, "The order was not placed.")
	}
	own, _ := idempotent.FromContext(ctx)
	return r, &idempotent.InProgressError{RecordID: own.RecordID(), RetryAfter: 5 * time.Second}
}

// startsWorkflows are the options of placeOrder's operation.
func startsWorkflows(o *idempotent.Options) {
	o.Recovery, o.Steps = idempotent.Resume, []string{"start"}
	o.DownstreamRetention = 90 * 24 * time.Hour // then Step Functions forgets the name
}

// stepFunctions stands in for Step Functions, by the documentation of StartExecution:
// a Standard workflow returns the running execution with that name and input, and
// refuses the name for 90 days after that, or with another input.
type stepFunctions struct {
	now        func() time.Time
	executions map[string]*workflow // by ARN
	starts     int
	lost       bool   // the reply of the next start
	status     string // with which new executions end, after an hour
}

type workflow struct {
	input  string
	ends   time.Time
	status string
}

var validName = regexp.MustCompile(`^[0-9A-Za-z_-]{1,80}$`) // with logging; without it, more is allowed

func (s *stepFunctions) StartExecution(_ context.Context, machine, name, input string) (string, error) {
	arn := strings.Replace(machine, "stateMachine", "execution", 1) + ":" + name
	e := s.executions[arn]
	switch {
	case !validName.MatchString(name):
		return "", errors.New("InvalidName")
	case e != nil && s.now().Before(e.ends.Add(90*24*time.Hour)):
		if s.now().After(e.ends) || e.input != input {
			return "", fmt.Errorf("operation error SFN: StartExecution: %w", errAlreadyExists)
		}
		return arn, nil
	}
	s.starts++
	s.executions[arn] = &workflow{input, s.now().Add(time.Hour), s.status}
	if s.lost {
		s.lost = false
		return "", errors.New("the reply was lost")
	}
	return arn, nil
}

func (s *stepFunctions) DescribeExecution(_ context.Context, arn string) (status, output string, err error) {
	e := s.executions[arn]
	switch {
	case e == nil:
		return "", "", errors.New("ExecutionDoesNotExist")
	case s.now().Before(e.ends):
		return "RUNNING", "", nil
	case e.status != "SUCCEEDED":
		return e.status, "", nil
	}
	return e.status, `{"receipt":"r-1"}`, nil
}

// One execution for each key: if the reply to its start is lost, while it runs and
// after its end, if it fails, and after Step Functions has forgotten the name.
func TestOneWorkflowForEachKey(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		lost   bool
		status string
		pauses []time.Duration // before each request
		want   []string
	}{
		"it runs":                   {false, "SUCCEEDED", []time.Duration{0, 30 * time.Minute, time.Hour, 0}, []string{"in progress", "in progress", "r-1", "r-1"}},
		"lost, and it runs":         {true, "SUCCEEDED", []time.Duration{0, 30 * time.Minute, time.Hour}, []string{"the reply was lost", "in progress", "r-1"}},
		"lost, and it has ended":    {true, "SUCCEEDED", []time.Duration{0, 2 * time.Hour, 0}, []string{"the reply was lost", "r-1", "r-1"}},
		"lost, and it is forgotten": {true, "SUCCEEDED", []time.Duration{0, 91 * day, 0}, []string{"the reply was lost", "unknown", "unknown"}},
		"it fails":                  {false, "FAILED", []time.Duration{0, 2 * time.Hour, 0}, []string{"in progress", "FAILED: The order was not placed.", "FAILED: The order was not placed."}},
	} {
		f := newFixture(t, startsWorkflows)
		sfn := &stepFunctions{now: f.clock.Now, executions: map[string]*workflow{}, lost: c.lost, status: c.status}
		for i, pause := range c.pauses {
			f.clock.Advance(pause)
			r, err := idempotent.Do(f.invocation(), f.guard, f.key, func(ctx context.Context) (receipt, error) {
				return placeOrder(ctx, sfn, order{"o-1", 2})
			})
			got := r.Receipt
			switch {
			case errors.As(err, new(*idempotent.InProgressError)):
				got = "in progress"
			case errors.As(err, new(*idempotent.UnresolvedError)), errors.As(err, new(*idempotent.StepError)):
				got = "unknown"
			case err != nil:
				got = err.Error()
			}
			if got != c.want[i] {
				t.Errorf("%s: request %d got %s, want %s", name, i+1, got, c.want[i])
			}
		}
		if sfn.starts != 1 {
			t.Errorf("%s: %d executions", name, sfn.starts)
		}
	}
}
