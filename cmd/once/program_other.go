//go:build !unix

package main

import "os/exec"

// stopWithChildren leaves it to the system to end what the shell started.
func stopWithChildren(*exec.Cmd) {}
