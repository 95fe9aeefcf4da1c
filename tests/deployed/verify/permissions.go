// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/template"

	"github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

// permissions tries calls with the role of the function.
var permissions = of(claim{
	name:     "permissions",
	expected: "the calls of its own operation are allowed, all others and the use of the table's key refused",
	source:   "docs/deploy.md, dynamodb:LeadingKeys; docs/encrypt.md", units: 20,
}, func(ctx context.Context, w *world) (map[string]string, error) {
	key := w.outputs["Key"]
	sealed, err := kms.NewFromConfig(w.cfg).Encrypt(ctx, &kms.EncryptInput{KeyId: &key, Plaintext: []byte("verify")})
	if err != nil {
		return nil, err
	}
	a, err := w.ask(ctx, "Handler", wire.Request{Do: wire.Probe, KeyID: key, Ciphertext: sealed.CiphertextBlob})
	return a.Probes, err
}, judgeProbes)

// allowed has the calls of wire.Probe, and whether the role allows them. The key is
// only for DynamoDB, which uses it for the role.
var allowed = map[string]bool{
	"PutItem own": true, "GetItem own": true, "TransactWriteItems own": true, "BatchWriteItem own": true, "BatchGetItem own": true,
	"PutItem foreign": false, "GetItem foreign": false, "TransactWriteItems foreign": false, "BatchWriteItem foreign": false,
	"BatchGetItem foreign": false, "UpdateItem own": false, "UpdateItem foreign": false, "DeleteItem own": false, "DeleteItem foreign": false,
	"Scan": false, "Query index": false, "kms:Decrypt": false,
}

// judgeProbes compares calls with what the role must allow. A denial by something
// else than the role's own policy proves nothing about that policy.
func judgeProbes(probes map[string]string) (seen string, v verdict) {
	var wrong, unclear []string
	for _, call := range slices.Sorted(maps.Keys(allowed)) {
		got, tried := probes[call]
		denied := strings.Contains(got, "AccessDenied")
		switch {
		case !tried:
			unclear = append(unclear, call+" was not tried")
		case denied && byOtherPolicy(got):
			unclear = append(unclear, call+" is denied by another policy: "+got)
		case got != wire.Allowed && !denied:
			unclear = append(unclear, call+" failed: "+got)
		case denied && allowed[call]:
			wrong = append(wrong, call+" is refused")
		case !denied && !allowed[call]:
			wrong = append(wrong, call+" is allowed")
		}
	}
	switch {
	case len(wrong) > 0:
		return strings.Join(wrong, "; "), fails
	case len(unclear) > 0:
		return strings.Join(unclear, "; "), notJudged
	}
	return fmt.Sprintf("%d calls as expected", len(allowed)), holds
}

// byOtherPolicy reports whether a denial names a policy that the stack does not set
// (IAM user guide, "Troubleshoot access denied error messages").
func byOtherPolicy(denial string) bool {
	return slices.ContainsFunc(
		[]string{"permissions boundary", "service control policy", "resource control policy", "session policy", "VPC endpoint policy"},
		func(policy string) bool { return strings.Contains(denial, policy) })
}

// policy is what a principal needs for a run. CloudFormation uses the same
// permissions, because it gets no other role.
//
//go:embed policy.json
var policy string

func printPolicy(out io.Writer, s shape) error {
	s.Account, s.Region = cmp.Or(s.Account, "*"), cmp.Or(s.Region, "*")
	return template.Must(template.New("policy").Parse(policy)).Execute(out, s)
}
