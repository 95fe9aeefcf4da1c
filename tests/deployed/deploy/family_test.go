// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"github.com/once-lambda/once/internal/kit"
	"github.com/once-lambda/once/internal/kit/engine"
)

// family finds the descendants of this process by a variable in their
// environment. Functions do not inherit it; they are found by their LocalStack's.
type family struct {
	mark string
	runs map[string]bool // of this test's LocalStack
}

func newFamily() (family, error) {
	f := family{rand.Text(), map[string]bool{}}
	return f, os.Setenv("ONCE_DEPLOY_TEST", f.mark)
}

// members returns the running processes with their command lines.
func (f family) members() map[int]string {
	all := engine.Environments()
	mine := func(pid int) bool { return pid != os.Getpid() && all[pid]["ONCE_DEPLOY_TEST"] == f.mark }
	for pid, env := range all {
		if run := env["ONCE_LOCALSTACK_RUN"]; run != "" && mine(pid) {
			f.runs[run] = true
		}
	}
	found := map[int]string{}
	for pid, env := range all {
		if mine(pid) || f.runs[env["ONCE_LOCALSTACK_RUN"]] {
			command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			found[pid] = string(bytes.ReplaceAll(command, []byte{0}, []byte{' '}))
		}
	}
	return found
}

// waitForEnd returns the processes that do not end.
func (f family) waitForEnd() (left map[int]string) {
	for deadline := time.Now().Add(kit.Patience); ; time.Sleep(100 * time.Millisecond) {
		if left = f.members(); len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}
