// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"github.com/once-lambda/once/examples/charge-lambda/charge"
	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/memstore"
	"github.com/once-lambda/once/lambdahttp/policy"
)

// printPolicy prints what clients have to know about keys under the profile in
// the environment. It opens no store, because a policy does not depend on one.
func printPolicy(getenv func(string) string, stdout io.Writer, openAPI bool) error {
	c, err := readConfig(getenv)
	if err != nil {
		return err
	}
	guard, err := idempotent.New(memstore.New())
	if err != nil {
		return err
	}
	rules, err := charge.NewPolicy(guard, c.keys)
	if err != nil {
		return err
	}
	text := []byte(policy.Markdown(rules))
	if openAPI {
		text = policy.OpenAPI(rules)
	}
	_, err = stdout.Write(text)
	return err
}
