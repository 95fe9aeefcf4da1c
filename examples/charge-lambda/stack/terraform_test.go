// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The functions of the Terraform example have the settings and permissions of the
// stack's functions. testdata/terraform.json is what OpenTofu made of it; infra
// compares the modules with the constructs.
func TestTerraform(t *testing.T) {
	text, err := os.ReadFile("testdata/terraform.json")
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.NewReplacer(
		"aws_dynamodb_table.charge-records.arn", "Records.Arn", `"charge-records"`, `{"Ref":"Records"}`,
		"aws_dynamodb_table.charge-shop.arn", "Shop.Arn", `"charge-shop"`, `{"Ref":"Shop"}`,
		"aws_sqs_queue.charge-reconciler-exhausted.arn", "Exhausted.Arn", `"aws_sqs_queue.charge-reconciler-exhausted.url"`, `{"Ref":"Exhausted"}`,
		"aws_sqs_queue.orders.arn", "OrderQueue.Arn", `"`+providerURL+`"`, `{"Ref":"ProviderURL"}`,
	).Replace(string(text)))
	var applied struct {
		Files     map[string]string
		Resources map[string]map[string]any
	}
	if err := json.Unmarshal(text, &applied); err != nil {
		t.Fatal(err)
	}
	const config = "terraform/main.tf"
	source, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(source); applied.Files["examples/charge-lambda/stack/"+config] != hex.EncodeToString(sum[:8]) {
		t.Errorf("%s changed after OpenTofu applied it: run make terraform ARGS=-update, and read the difference", config)
	}
	for function, name := range map[string]string{"charges": "Charges", "orders": "Orders", "reconciler": "Reconciler"} {
		got, want := applied.Resources[`aws_lambda_function.function["`+function+`"]`], synthesised().Resources[name].Properties
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
		if logs := applied.Resources[`aws_cloudwatch_log_group.function["`+function+`"]`]; logs["retention_in_days"] != 30.0 {
			t.Errorf("%s: the log group is %v", function, logs)
		}
		if program := filepath.Base(got["filename"].(string)); program != map[string]string{"Charges": "charge", "Orders": "orders", "Reconciler": "reconciler"}[name]+"-arm64.zip" {
			t.Errorf("%s runs %s", function, program)
		}
		var allowed []string
		for address, r := range applied.Resources {
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

// The snippets of the pages are parts of the examples, which other tests build and
// compare, or of what OpenTofu applies.
func TestSnippetsOfThePages(t *testing.T) {
	const watched = "../../../infra/terraform/testdata/watched/main.tf"
	for _, page := range []struct {
		file, language, source string
		modules                string // of Terraform, from the source
		least                  int    // snippets
	}{
		{"docs/deploy-terraform.md", "hcl", "terraform/main.tf", "../../../../infra/terraform/", 7},
		{"infra/terraform/README.md", "hcl", "terraform/main.tf", "../../../../infra/terraform/", 1},
		{"docs/deploy-company.md", "hcl", watched, "../../", 1},
		{"docs/regions.md", "hcl", watched, "../../", 1},
		{"docs/deploy-sam.md", "yaml", "sam.yaml", "", 7},
	} {
		text, err := os.ReadFile("../../../" + page.file)
		if err != nil {
			t.Fatal(err)
		}
		source, err := os.ReadFile(page.source)
		if err != nil {
			t.Fatal(err)
		}
		snippets := regexp.MustCompile("(?ms)^```"+page.language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
		for _, snippet := range snippets {
			local := regexp.MustCompile(`"github\.com/once-lambda/once//infra/terraform/(\w+)\?ref=v[\d.]+"`).ReplaceAllString(snippet[1], `"`+page.modules+`$1"`)
			if !strings.Contains(string(source), local) {
				t.Errorf("%s: not in %s:\n%s", page.file, page.source, local)
			}
		}
		if len(snippets) < page.least {
			t.Errorf("%s has %d snippets in %s", page.file, len(snippets), page.language)
		}
	}
}
