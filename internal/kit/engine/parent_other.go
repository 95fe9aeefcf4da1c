// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package engine

import "os/exec"

// EndWithParent does nothing: only Linux supports it.
func EndWithParent(*exec.Cmd) {}
