// SPDX-License-Identifier: Apache-2.0

//go:build tofu

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The functions of the Terraform example have the settings and permissions of the
// stack's functions. The tests of tools/tofu run this one on what OpenTofu made of it;
// infra compares the modules with the constructs.
func TestTerraform(t *testing.T) {
	text, err := os.ReadFile(os.Getenv("APPLIED"))
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.NewReplacer(
		"aws_dynamodb_table.charge-records.arn", "Records.Arn", `"charge-records"`, `{"Ref":"Records"}`,
		"aws_dynamodb_table.charge-shop.arn", "Shop.Arn", `"charge-shop"`, `{"Ref":"Shop"}`,
		"aws_sqs_queue.charge-reconciler-exhausted.arn", "Exhausted.Arn", `"aws_sqs_queue.charge-reconciler-exhausted.url"`, `{"Ref":"Exhausted"}`,
		"aws_sqs_queue.orders.arn", "OrderQueue.Arn", `"`+providerURL+`"`, `{"Ref":"ProviderURL"}`,
	).Replace(string(text)))
	var applied map[string]map[string]any // by address
	if err := json.Unmarshal(text, &applied); err != nil {
		t.Fatal(err)
	}
	for function, name := range map[string]string{"charges": "Charges", "orders": "Orders", "reconciler": "Reconciler"} {
		got, want := applied[`aws_lambda_function.function["`+function+`"]`], synthesised().Resources[name].Properties
		for ours, cdk := range map[string]string{
			"handler": "Handler", "runtime": "Runtime", "architectures": "Architectures", "memory_size": "MemorySize", "timeout": "Timeout",
		} {
			if got, want := asJSON(got[ours]), asJSON(want[cdk]); got != want || want == "null" {
				t.Errorf("%s: %s is %s, want %s", function, ours, got, want)
			}
		}
		environment := got["environment"].([]any)[0].(map[string]any)["variables"]
		if got, want := asJSON(environment), asJSON(want["Environment"].(map[string]any)["Variables"]); got != want {
			t.Errorf("%s: the environment is %s, want %s", function, got, want)
		}
		if logging := got["logging_config"].([]any)[0].(map[string]any); logging["log_format"] != "JSON" || logging["log_group"] != "/aws/lambda/"+function {
			t.Errorf("%s: logging is %v", function, logging)
		}
		if logs := applied[`aws_cloudwatch_log_group.function["`+function+`"]`]; logs["retention_in_days"] != 30.0 {
			t.Errorf("%s: the log group is %v", function, logs)
		}
		if program := filepath.Base(got["filename"].(string)); program != map[string]string{"Charges": "charge", "Orders": "orders", "Reconciler": "reconciler"}[name]+"-arm64.zip" {
			t.Errorf("%s runs %s", function, program)
		}
		var allowed []string
		for address, r := range applied {
			if policy, ok := r["policy"].(string); ok && r["role"] == function {
				var document any
				if err := json.Unmarshal([]byte(policy), &document); err != nil {
					t.Fatalf("%s: %v", address, err)
				}
				allowed = append(allowed, permissions(document)...)
			}
		}
		observed := func(p string) bool { return strings.HasPrefix(p, "Allow logs:") || strings.HasPrefix(p, "Allow xray:") }
		allowed, needed := slices.DeleteFunc(allowed, observed), slices.DeleteFunc(needed(want), observed)
		slices.Sort(allowed)
		slices.Sort(needed)
		if len(needed) < 4 || !slices.Equal(allowed, needed) {
			t.Errorf("%s may\n%q, want\n%q", function, allowed, needed)
		}
	}
}
