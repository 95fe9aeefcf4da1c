// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package kit

import "time"

var began = time.Now()

// ProcessorTime returns the time since the start of the process, because the standard
// library does not give the processor time in fine enough steps here.
func ProcessorTime() time.Duration { return time.Since(began) }
