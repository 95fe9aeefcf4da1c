// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/once-lambda/once/internal/kit"
)

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
