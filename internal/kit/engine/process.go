// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/once-lambda/once/internal/kit"
)

// Process is a program that a test started. Its methods are safe for concurrent use.
type Process struct {
	In  io.WriteCloser // its standard input
	Out *bufio.Reader  // its standard output

	*os.Process
	wait func() error
	mu   sync.Mutex
	log  bytes.Buffer
}

// Start starts cmd.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{wait: sync.OnceValue(cmd.Wait)}
	cmd.Stderr = (*processLog)(p)
	cmd.WaitDelay = time.Second // a child that outlives cmd keeps the log open
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.Process, p.In, p.Out = cmd.Process, in, bufio.NewReader(out)
	return p, nil
}

// StartUntil starts cmd, waits for its first line, which must begin with prefix, and
// returns the rest of the line. The output after it is ignored.
func StartUntil(cmd *exec.Cmd, prefix string) (p *Process, rest string, err error) {
	if p, err = Start(cmd); err != nil {
		return nil, "", err
	}
	line, err := p.Out.ReadString('\n')
	rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), prefix)
	if err != nil || !ok {
		return nil, "", fmt.Errorf("engine: %s printed %q, not %q: %w\n%s", cmd.Path, line, prefix, errors.Join(err, p.End(syscall.SIGKILL)), p.Log())
	}
	go io.Copy(io.Discard, p.Out)
	return p, rest, nil
}

// End sends the process a signal, and waits as [Process.Wait] does.
func (p *Process) End(s os.Signal) error {
	_ = p.Signal(s) // it may have ended
	return p.Wait()
}

// Wait waits until the process has ended, and returns how, as [exec.Cmd.Wait] does.
// A caller that reads Out calls it after the last read.
func (p *Process) Wait() error { return p.wait() }

// Log returns what the process has written to its standard error.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// processLog is a Process that writes its log.
type processLog Process

func (p *processLog) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(data)
}

// Build builds a package of this repository, such as "./cmd/once", into a file.
func Build(program, pkg string) error {
	build := exec.Command("go", "build", "-o", program, pkg)
	build.Dir = Root()
	_, err := Output(build)
	return err
}

// Output runs cmd with a time limit, and returns its standard output without the
// space around it.
func Output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return "", err
	}
	timer := time.AfterFunc(kit.Patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd.Path, err, &stderr)
	}
	return strings.TrimSpace(stdout.String()), nil
}

// SignalFunction sends a signal to the processes that run a Lambda function in a
// LocalStack on this machine, and returns them. The function's name must be unique. After
// SIGSTOP it waits until they have stopped: on a busy machine, other threads of a process
// run on until the one that has the signal gets a processor.
func SignalFunction(name string, s syscall.Signal) (pids []int) {
	for pid, env := range Environments() {
		if env["AWS_LAMBDA_FUNCTION_NAME"] == name && env["AWS_LAMBDA_RUNTIME_API"] != "" && syscall.Kill(pid, s) == nil {
			pids = append(pids, pid)
		}
	}
	for end := time.Now().Add(kit.Patience); s == syscall.SIGSTOP && slices.ContainsFunc(pids, runs) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return pids
}

// runs reports whether a thread of a process has neither stopped nor ended.
func runs(pid int) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return slices.ContainsFunc(files, func(file string) bool {
		text, _ := os.ReadFile(file)
		_, rest, ok := bytes.Cut(text, []byte(") ")) // after the name of the program
		return ok && !bytes.ContainsAny(rest[:1], "TtZX")
	})
}

// Environments returns the environments of all processes that this one may read.
func Environments() map[int]map[string]string {
	all := map[int]map[string]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		text, readErr := os.ReadFile(file)
		if err != nil || readErr != nil {
			continue // the process has ended
		}
		env := map[string]string{}
		for _, variable := range bytes.Split(text, []byte{0}) {
			name, value, _ := bytes.Cut(variable, []byte("="))
			env[string(name)] = string(value)
		}
		all[pid] = env
	}
	return all
}
