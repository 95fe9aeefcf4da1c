// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/once-lambda/once/internal/kit/engine"
)

// process is a running contestant. Its commands and answers are lines of JSON.
type process struct {
	*engine.Process
	name string
}

// start starts a contestant and waits until it is ready. It returns the time that
// took.
func start(s side, env ...string) (*process, time.Duration, error) {
	cmd := exec.Command(s.command[0], s.command[1:]...)
	cmd.Env = append(append(os.Environ(),
		"AWS_REGION=us-east-1", "AWS_DEFAULT_REGION=us-east-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_LAMBDA_FUNCTION_NAME=charge", "POWERTOOLS_SERVICE_NAME=charge", "NODE_ENV=production"), s.env...)
	cmd.Env = append(cmd.Env, env...)
	engine.EndWithParent(cmd)
	began := time.Now()
	running, err := engine.Start(cmd)
	if err != nil {
		return nil, 0, err
	}
	p := &process{running, s.String()}
	err = p.read(&struct{}{})
	return p, time.Since(began), err
}

// ask sends a command and reads its answer.
func (p *process) ask(command, answer any) error {
	if err := p.send(command); err != nil {
		return err
	}
	return p.read(answer)
}

func (p *process) send(command any) error {
	line, err := json.Marshal(command)
	if err != nil {
		return err
	}
	_, err = p.In.Write(append(line, '\n'))
	return err
}

func (p *process) read(answer any) error {
	line, err := p.Out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, answer)
	}
	if err != nil {
		p.kill()
		return fmt.Errorf("peers: %s ended or answered %q: %w\n%s", p.name, line, err, p.Log())
	}
	return nil
}

// peak returns the largest resident memory of the process so far, in bytes.
func (p *process) peak() (int64, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.Pid) + "/status")
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kb, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	n, err := strconv.ParseInt(kb, 10, 64)
	return n << 10, err
}

// stop ends the process in order.
func (p *process) stop() {
	p.In.Close()
	_ = p.Wait() // it has done its work
}

// kill ends the process at once, as Lambda does at the time-out.
func (p *process) kill() { _ = p.End(os.Kill) } // reports the signal

// side is a contestant with its table.
type side struct {
	Contestant, Table string
	command, env      []string
}

func (s side) String() string { return s.Contestant + "/" + s.Table }

// The contestants, in the order of the page.
const (
	bare       = "bare"
	rerun      = "once, Rerun"
	reconcile  = "once, Reconcile"
	python     = "Powertools Python"
	typescript = "Powertools TypeScript"
)

// The two kinds of tables. Only once uses the index, and only under Reconcile.
const (
	plain   = "plain"   // a partition key
	indexed = "indexed" // and the index of the toolkit
)

// work is what the contestants do in turns of n operations. A turn is long enough for
// collections of garbage. The heavier works have fewer turns, one for each round that is
// divided by every.
type work struct {
	name, title string
	n, every    int
	task        task
}

// task is the command for a turn.
type task struct {
	Work   string `json:"work"`
	N      int    `json:"n"`
	Body   int    `json:"body"`   // the size of the request, in bytes
	Result string `json:"result"` // the size of the result
	Flight int    `json:"flight"` // operations at the same time
	Steps  int    `json:"steps"`  // that the handler records
}

var works = []work{
	{"first", "first request", 120, 1, task{Work: "first"}},
	{"replay", "replay", 120, 1, task{Work: "replay"}},
	{"first-60B", "first request of 60 bytes", 120, 2, task{Work: "first", Body: 60}},
	{"replay-60B", "replay for 60 bytes", 120, 2, task{Work: "replay", Body: 60}},
	{"first-20KB", "first request of 20 KB", 120, 3, task{Work: "first", Body: 20_000}},
	{"replay-20KB", "replay for 20 KB", 120, 3, task{Work: "replay", Body: 20_000}},
	{"first-16", "first requests, 16 in flight", 192, 1, task{Work: "first", Flight: 16}},
	{"replay-16", "replays, 16 in flight", 192, 1, task{Work: "replay", Flight: 16}},
	{"in-progress", "refused: in progress", 60, 3, task{Work: "in-progress"}},
	{"first-result-1KB", "first request, result of 1 KB", 120, 3, task{Work: "first", Result: "1KB"}},
	{"replay-result-1KB", "replay of 1 KB", 120, 3, task{Work: "replay", Result: "1KB"}},
	{"first-result-20KB", "first request, result of 20 KB", 60, 2, task{Work: "first", Result: "20KB"}},
	{"replay-result-20KB", "replay of 20 KB", 60, 3, task{Work: "replay", Result: "20KB"}},
	{"first-result-300KB", "first request, result of 300 KB", 60, 6, task{Work: "first", Result: "300KB"}},
	{"replay-result-300KB", "replay of 300 KB", 60, 6, task{Work: "replay", Result: "300KB"}},
	{"steps-1", "first request with one step", 60, 4, task{Work: "first", Steps: 1}},
	{"steps-5", "first request with five steps", 60, 6, task{Work: "first", Steps: 5}},
	{"steps-20", "first request with twenty steps", 60, 12, task{Work: "first", Steps: 20}},
	{"64-callers", "64 callers on one key", 2, 6, task{Work: "64-callers"}},
	{"batch-10", "batch of 10 messages", 6, 6, task{Work: "batch-10"}},
}

// of returns the command for n operations.
func (w work) of(n int) task {
	t := w.task
	t.N, t.Body, t.Result, t.Flight = n, cmp.Or(t.Body, 1000), cmp.Or(t.Result, "small"), min(n, cmp.Or(t.Flight, 1))
	return t
}

// takes reports whether a side does a work: only clients in Go have steps, and on the
// table with the index only the usual requests are compared.
func (s side) takes(w work) bool {
	switch {
	case s.Table == indexed:
		return w.name == "first" || w.name == "replay"
	case w.task.Steps > 0:
		return s.Contestant != python && s.Contestant != typescript
	}
	return true
}

// isSmall reports whether request and result have at most 1 KB.
func (w work) isSmall() bool {
	return w.task.Body <= 1000 && (w.task.Result == "" || w.task.Result == "1KB")
}

// isCompressed reports whether once compresses the result.
func (w work) isCompressed() bool { return w.task.Result != "" }

// turn is the cost of one turn of a side, in nanoseconds per operation.
type turn struct{ Wall, CPU float64 }
