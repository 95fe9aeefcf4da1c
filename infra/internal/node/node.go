// Package node ends what the CDK runs on.
package node

import (
	"os"

	"github.com/aws/jsii-runtime-go"
)

// Run is a program that uses the CDK, from its beginning to its end: it exits
// with the code that main returns, after the CDK's process of Node has ended and
// its files are removed. The jsii runtime waits for that process in two places at
// once, and the one that comes second says "exited abnormally: waitid: no child
// processes" (its process.go, ensureStarted and Close), so nobody hears what is
// said after main.
func Run(main func() int) {
	code := main()
	if silence, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		os.Stderr = silence
	}
	jsii.Close()
	os.Exit(code)
}
