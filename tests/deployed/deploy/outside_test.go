// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/once-lambda/once/internal/kit/engine"
	"github.com/once-lambda/once/tests/documents/modules"
)

// An app outside the workspace requires infra as a user does, and adds it to
// resources of another app: a table, a function and a queue that exist, an alias,
// and the role of a task. It synthesises, and deploys where ECS is missing.
func TestAnAppOutside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	app := buildOutside(t, dir)
	context := outsideContext(t)

	context["ecs"] = "yes"
	text, err := json.Marshal(context)
	if err != nil {
		t.Fatal(err)
	}
	env := append(stack.cdk.env, "CDK_OUTDIR="+filepath.Join(dir, "ecs"), "CDK_CONTEXT_JSON="+string(text))
	if err := command(t.Context(), dir, env, app); err != nil {
		t.Fatal(err)
	}
	template, err := os.ReadFile(filepath.Join(dir, "ecs", context["stack"]+".template.json"))
	if err != nil || !strings.Contains(string(template), "AWS::ECS::TaskDefinition") {
		t.Fatalf("the template has no task (%v)", err)
	}
	if policies := regexp.MustCompile(`"refund#\?{43}"`).FindAll(template, -1); len(policies) != 1 {
		t.Errorf("%d policies allow the records of refunds, want 1", len(policies))
	}

	delete(context, "ecs")
	var args []string
	for name, value := range context {
		args = append(args, "-c", name+"="+value)
	}
	outputs, err := stack.cdk.deployApp(t.Context(), dir, dir, context["stack"], append(args, "--app", app)...)
	if err != nil {
		t.Fatal(err)
	}
	alias := stubborn{name: outputs["Live"], ending: sleep}
	customer, key := newCustomer(), rand.Text()
	first, _ := alias.post(t, key, aCharge(customer))
	if again, _ := alias.post(t, key, aCharge(customer)); first.status != http.StatusCreated || again.status != first.status || again.body != first.body {
		t.Errorf("got %v and %v, want a charge and its replay", first, again)
	}
	wantCharges(t, customer, 1)
	// The record is in the table of the other app, which knows the key.
	wantReplay(t, byFunctionURL().post(t, key, aCharge(customer)), first)

	mappings, err := stack.lambda.ListEventSourceMappings(t.Context(), &lambda.ListEventSourceMappingsInput{EventSourceArn: aws.String(context["queue"])})
	if err != nil || len(mappings.EventSourceMappings) != 1 || len(mappings.EventSourceMappings[0].FunctionResponseTypes) != 1 {
		t.Errorf("the mappings of the queue are %+v (%v), want one that reports failures", mappings, err)
	}
}

// buildOutside builds the app with the modules of this tree, and returns its path.
func buildOutside(t *testing.T, dir string) string {
	t.Helper()
	const once = "github.com/once-lambda/once"
	world, err := modules.New(t.Context(), dir, once, once+"/infra")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("testdata/outside/main.go")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(engine.Root(), "infra", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	// A user gets the versions that infra requires.
	requires := regexp.MustCompile(`(?m)^\tgithub\.com/aws/(?:aws-cdk-go|jsii-runtime-go)\S* v\S+$`).FindAllString(string(mod), -1)
	goMod := "module example.com/outside\n\ngo 1.26.0\n\nrequire (\n" + strings.Join(requires, "\n") + "\n\t" + once + "/infra " + modules.Release + "\n)\n"
	for name, content := range map[string]string{"go.mod": goMod, "main.go": string(source)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	app := filepath.Join(dir, "app")
	if _, err := world.Run(t.Context(), dir, nil, "go", "build", "-o", app, "."); err != nil {
		t.Fatal(err)
	}
	return app
}

// outsideContext creates what the app imports besides the deployed stack, and
// returns the app's context.
func outsideContext(t *testing.T) map[string]string {
	t.Helper()
	queue, err := stack.sqs.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("outside-" + strings.ToLower(rand.Text()))})
	if err != nil {
		t.Fatal(err)
	}
	orders := stack.configuration(t, stack.ordersFunction)
	return map[string]string{
		"stack": "Outside" + rand.Text()[:8], "account": account, "region": region, "arch": runtime.GOARCH,
		"bundle":      filepath.Join(engine.Root(), ".cache/bundles/charge-"+runtime.GOARCH+".zip"),
		"providerUrl": pay.address("v1"), "table": stack.records, "queue": *arnOf(t, *queue.QueueUrl),
		"function": *orders.FunctionArn, "role": *orders.Role,
	}
}
