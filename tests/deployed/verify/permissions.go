// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

// permissions tries calls with the role of the function.
var permissions = of(claim{
	name: "permissions", expected: "the calls of its own operation are allowed, all others refused", source: "docs/deploy.md, dynamodb:LeadingKeys",
}, func(ctx context.Context, w *world) (map[string]string, error) {
	var a wire.Answer
	err := w.ask(ctx, "Handler", wire.Request{Do: wire.Probe}, &a)
	return a.Probes, err
}, func(probes map[string]string) (string, verdict) {
	return judgeProbes(probes, map[string]bool{
		"PutItem own": true, "GetItem own": true, "TransactWriteItems own": true, "BatchWriteItem own": true, "BatchGetItem own": true,
		"PutItem foreign": false, "GetItem foreign": false, "TransactWriteItems foreign": false, "BatchWriteItem foreign": false,
		"BatchGetItem foreign": false, "UpdateItem own": false, "UpdateItem foreign": false, "DeleteItem own": false, "DeleteItem foreign": false,
		"Scan": false, "Query index": false,
	})
})

// key tries the table's key, through DynamoDB and directly.
var key = of(claim{
	name: "kms", expected: "DynamoDB may use the key for the role, which may not decrypt with it", source: "docs/encrypt.md", kms: true,
}, func(ctx context.Context, w *world) (map[string]string, error) {
	arn := w.outputs["Key"]
	sealed, err := kms.NewFromConfig(w.cfg).Encrypt(ctx, &kms.EncryptInput{KeyId: &arn, Plaintext: []byte("verify")})
	if err != nil {
		return nil, err
	}
	var a wire.Answer
	err = w.ask(ctx, "Handler", wire.Request{Do: wire.Probe, KeyID: arn, Ciphertext: sealed.CiphertextBlob}, &a)
	return a.Probes, err
}, func(probes map[string]string) (string, verdict) {
	return judgeProbes(probes, map[string]bool{"PutItem own": true, "GetItem own": true, "kms:Decrypt": false})
})

// judgeProbes compares calls with what the role must allow. A denial by something
// else than the role's own policy proves nothing about that policy.
func judgeProbes(probes map[string]string, want map[string]bool) (seen string, v verdict) {
	var wrong, unclear []string
	for _, call := range slices.Sorted(maps.Keys(want)) {
		got, tried := probes[call]
		denied := strings.Contains(got, "AccessDenied")
		switch {
		case !tried:
			unclear = append(unclear, call+" was not tried")
		case byOtherPolicy(got):
			unclear = append(unclear, call+" is denied by another policy: "+got)
		case got != wire.Allowed && !denied:
			unclear = append(unclear, call+" failed: "+got)
		case denied == want[call]:
			wrong = append(wrong, fmt.Sprintf("%s is %s", call, map[bool]string{true: "refused", false: "allowed"}[denied]))
		}
	}
	switch {
	case len(wrong) > 0:
		return strings.Join(wrong, "; "), fails
	case len(unclear) > 0:
		return strings.Join(unclear, "; "), notJudged
	}
	return fmt.Sprintf("%d calls as expected", len(want)), holds
}

// byOtherPolicy reports whether a denial names a policy that the stack does not set
// (IAM user guide, "Troubleshoot access denied error messages").
func byOtherPolicy(denial string) bool {
	return strings.Contains(denial, "AccessDenied") && slices.ContainsFunc(
		[]string{"permissions boundary", "service control policy", "resource control policy", "session policy", "VPC endpoint policy"},
		func(policy string) bool { return strings.Contains(denial, policy) })
}
