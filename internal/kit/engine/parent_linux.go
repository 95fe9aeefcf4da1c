// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"os/exec"
	"syscall"
)

// EndWithParent makes the kernel kill the process that cmd starts when this
// process ends, even if one of the two is stopped or killed. It does so on
// Linux only, where the engines run.
func EndWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
