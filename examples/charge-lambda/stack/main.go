// SPDX-License-Identifier: Apache-2.0

// Command stack is the CDK app of the example: a service with an HTTP API and a
// queue, built with the constructs of package infra.
//
//	REST API, with API keys ─┐
//	function URL ────────────┴► charge ──┐
//	queue ─► orders ─────────────────────┼► table of records ◄─ reconciler ◄─ every minute
//	         └► table of the shop        │
//	dashboard, alarms ◄──────────────────┘
//
// It reads the context values providerUrl, and optionally arch, orderTimeout and
// stack.
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
)

func main() {
	os.Exit(withCDK(func() int {
		app := awscdk.NewApp(nil)
		if err := build(app); err != nil {
			fmt.Fprintln(os.Stderr, "stack:", err)
			return 1
		}
		app.Synth(nil)
		return 0
	}))
}

// withCDK calls run, ends the CDK's Node process, and removes its files. The jsii
// runtime waits for that process in two places at once, and the second one prints
// "exited abnormally: waitid: no child processes" (its process.go, ensureStarted
// and Close), so withCDK closes standard error after run.
func withCDK(run func() int) int {
	code := run()
	os.Stderr.Close()
	jsii.Close()
	return code
}

// build adds the stack to the app.
func build(app awscdk.App) error {
	get := func(name, otherwise string) string {
		if value, ok := app.Node().TryGetContext(jsii.String(name)).(string); ok {
			return value
		}
		return otherwise
	}
	p := props{bundles: "../../../.cache/bundles", arch: get("arch", "arm64"), providerURL: get("providerUrl", "")}
	if p.providerURL == "" {
		return fmt.Errorf("the payment provider's address is missing: set it with -c providerUrl=https://…")
	}
	if p.arch != "arm64" && p.arch != "amd64" {
		return fmt.Errorf("invalid arch %q: must be arm64 or amd64", p.arch)
	}
	var err error
	timeout := get("orderTimeout", "30")
	if p.orderTimeout, err = strconv.ParseFloat(timeout, 64); err != nil || p.orderTimeout < 1 || p.orderTimeout > 900 {
		return fmt.Errorf("invalid orderTimeout %q: must be seconds from 1 to 900", timeout)
	}
	newStack(app, get("stack", "ChargeStack"), p)
	return nil
}
