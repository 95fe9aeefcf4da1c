// Package node ends the Node process of the CDK.
package node

import (
	"os"

	"github.com/aws/jsii-runtime-go"
)

// Run runs a program that uses the CDK: it exits with the code that main returns,
// after the CDK's Node process has ended and its files are removed. The jsii
// runtime waits for that process in two places at once, and the second one prints
// "exited abnormally: waitid: no child processes" (its process.go, ensureStarted
// and Close), so Run discards standard error after main.
func Run(main func() int) {
	code := main()
	if silence, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		os.Stderr = silence
	}
	jsii.Close()
	os.Exit(code)
}
