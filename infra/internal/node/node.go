// Package node ends what the CDK runs on.
package node

import (
	"os"

	"github.com/aws/jsii-runtime-go"
)

// End ends the CDK's process of Node, waits for it and removes its files. It
// belongs at the end of a program, which cannot write to its standard error
// afterwards: the jsii runtime waits in two places at once, and the one that
// comes second says "exited abnormally: waitid: no child processes" (its
// process.go, ensureStarted and Close).
func End() {
	if silence, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		os.Stderr = silence
	}
	jsii.Close()
}
