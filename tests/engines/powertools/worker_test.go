// SPDX-License-Identifier: Apache-2.0

package powertools

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/once-lambda/once/dynamostore/powertools"
	"github.com/once-lambda/once/internal/kit/engine"
)

// installed are the interpreter of Python, Node, and the folder from which Node finds its
// packages.
var installed = sync.OnceValues(func() (at [3]string, err error) {
	out, err := engine.Output(exec.Command(filepath.Join(engine.Root(), "tests/measured/bench/peers/install")))
	copy(at[:], strings.Split(out, "\n"))
	at[2] = filepath.Dir(at[2])
	return at, err
})

// command is one request to a worker, and answer a line of its answers.
type command struct {
	N       int             `json:"n"`
	OrderID json.RawMessage `json:"orderId"`
	Amount  json.Number     `json:"amount"`
	Mode    string          `json:"mode"`
}

type answer struct {
	N      int             `json:"n"`
	Effect bool            `json:"effect"`
	Result json.RawMessage `json:"result"`
	Error  string          `json:"error"`
	Key    string          `json:"key"`
}

// worker is a process that runs a function with Powertools.
type worker struct {
	*engine.Process
	effect func(command)

	mu      sync.Mutex
	pending map[int]*call
	failed  error
}

type call struct {
	command
	answer answer
	done   chan struct{}
}

// startWorker starts the function of a folder, before or shared. It reports effects
// to effect, from one goroutine.
func startWorker(t *testing.T, l powertools.Language, folder, endpoint, table string, effect func(command)) *worker {
	t.Helper()
	at, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{effect: effect, pending: map[int]*call{}}
	var cmd *exec.Cmd
	if l == powertools.Python {
		cmd = exec.Command(at[0], "python/worker.py", "python/"+folder)
	} else {
		cmd = exec.Command(at[1], filepath.Join(besidePackages(t, at[2], folder), "worker.mjs"))
	}
	cmd.Env = append(os.Environ(), "AWS_REGION=us-east-1", "AWS_DEFAULT_REGION=us-east-1", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
		"AWS_EC2_METADATA_DISABLED=true", "AWS_ENDPOINT_URL_DYNAMODB="+endpoint, "AWS_LAMBDA_FUNCTION_NAME=charge", "IDEMPOTENCY_TABLE="+table, "PYTHONDONTWRITEBYTECODE=1")
	engine.EndWithParent(cmd)
	if w.Process, err = engine.Start(cmd); err != nil {
		t.Fatal(err)
	}
	_, readyErr := w.Out.ReadBytes('\n')
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.read()
	}()
	t.Cleanup(func() {
		w.In.Close()
		<-ended
		_ = w.Wait() // the answers show whether it did its work
	})
	if readyErr != nil {
		t.Fatalf("the worker of %s ended: %v, %v\n%s", l, readyErr, w.End(os.Kill), w.Log())
	}
	return w
}

// besidePackages copies the worker of TypeScript into a folder from which Node
// finds the packages. The code of the guide is TypeScript without a type, which is
// JavaScript.
func besidePackages(t *testing.T, node, folder string) string {
	t.Helper()
	dir, err := os.MkdirTemp(node, "worker-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for to, from := range map[string]string{"worker.mjs": "worker.mjs", "provider.js": "provider.js", "app.mjs": folder + "/app.ts"} {
		data, err := os.ReadFile("typescript/" + from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type": "module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// read passes the answers on until the worker ends.
func (w *worker) read() {
	for {
		line, err := w.Out.ReadBytes('\n')
		var a answer
		if err == nil {
			err = json.Unmarshal(line, &a)
		}
		w.mu.Lock()
		if err != nil {
			w.failed = fmt.Errorf("the worker ended: %w\n%s", err, w.Log())
			for _, c := range w.pending {
				close(c.done)
			}
			clear(w.pending)
			w.mu.Unlock()
			return
		}
		c := w.pending[a.N]
		if c != nil && !a.Effect {
			delete(w.pending, a.N)
		}
		w.mu.Unlock()
		switch {
		case c == nil:
		case a.Effect:
			w.effect(c.command)
		default:
			c.answer = a
			close(c.done)
		}
	}
}

// ask sends a command and waits for its answer.
func (w *worker) ask(c command) (answer, error) {
	pending := &call{command: c, done: make(chan struct{})}
	line, err := json.Marshal(c)
	if err != nil {
		return answer{}, err
	}
	w.mu.Lock()
	if err = w.failed; err == nil {
		w.pending[c.N] = pending
		_, err = w.In.Write(append(line, '\n'))
	}
	w.mu.Unlock()
	if err != nil {
		return answer{}, err
	}
	<-pending.done
	w.mu.Lock()
	defer w.mu.Unlock()
	if pending.answer.N != c.N {
		return answer{}, w.failed
	}
	return pending.answer, nil
}
