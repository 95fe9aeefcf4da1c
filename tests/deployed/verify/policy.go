// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	_ "embed"
	"io"
	"text/template"
)

// policy is what a principal needs for a run. CloudFormation uses the same
// permissions, because it gets no other role.
//
//go:embed policy.json
var policy string

func printPolicy(out io.Writer, s shape) error {
	s.Account, s.Region = cmp.Or(s.Account, "*"), cmp.Or(s.Region, "*")
	return template.Must(template.New("policy").Parse(policy)).Execute(out, s)
}
