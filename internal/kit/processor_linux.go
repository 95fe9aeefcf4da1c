// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"syscall"
	"time"
	"unsafe"
)

// ProcessorTime returns the processor time that the process has used, on all its
// threads, in nanoseconds. Unlike the time of day it does not grow while other programs
// have the processors. The call itself takes less than a microsecond.
func ProcessorTime() time.Duration { return ProcessorTimeOf(0) }

// ProcessorTimeOf is [ProcessorTime] of the process pid. Zero is the calling process.
func ProcessorTimeOf(pid int) time.Duration {
	clock := uintptr(int32(^pid<<3 | 2)) // as clock_getcpuclockid(3) returns it
	var at syscall.Timespec
	if _, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&at)), 0); failed != 0 {
		panic(failed)
	}
	return time.Duration(at.Nano())
}
