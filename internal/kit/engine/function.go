// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// SignalFunction sends a signal to the processes that run a Lambda function in a
// LocalStack on this machine, and returns them. The function's name must be unique.
func SignalFunction(name string, s syscall.Signal) (pids []int) {
	for pid, env := range Environments() {
		if env["AWS_LAMBDA_FUNCTION_NAME"] == name && env["AWS_LAMBDA_RUNTIME_API"] != "" && syscall.Kill(pid, s) == nil {
			pids = append(pids, pid)
		}
	}
	return pids
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
