// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/infra"
)

// parameters of alarms.json, and what the CDK has in their place.
var parameters = []struct{ name, cdk, description, otherwise string }{
	{"Namespace", "NAMESPACE", "The namespace of the function's metrics: its ONCE_METRICS_NAMESPACE", ""},
	{"Operation", "OPERATION", "An operation whose requests the alarms watch, or nothing for all operations of the namespace", "-"},
	{"Table", "RecordsTable", "The table of the records", ""},
	{"PageTopic", "arn:aws:sns:eu-west-1:123456789012:page", "The topic for conditions that need an operator at once", ""},
	{"TicketTopic", "arn:aws:sns:eu-west-1:123456789012:ticket", "The topic for single records that need an operator within a day", ""},
	{"Function", "Charge", "The name of the function whose errors raise an alarm, or nothing. FunctionFails sees only time-outs below 10 minutes", "-"},
	{"DeadLetterQueue", "Dead.QueueName", "The name of a queue that should stay empty, or nothing", "-"},
	{"Reconciler", "Reconcile", "The name of the function that settles unknown outcomes every minute, or nothing", "-"},
	{"ExhaustedQueue", "ReconcilerExhausted.QueueName", "The name of the queue of the records that it has given up, or nothing", "-"},
	{"UndeliveredQueue", "ReconcilerUndelivered.QueueName", "The name of the queue of the events that did not reach it, or nothing", "-"},
}

// G12: alarms.json has every property of the alarms of an operation or of all, as the CDK
// synthesises them with a reconciler and without. The simulations of
// tests/promised/alarms evaluate it.
func TestAlarmsTemplate(t *testing.T) {
	out := map[string]any{
		"AWSTemplateFormatVersion": "2010-09-09",
		"Description":              "The alarms of a service, or of one of its operations",
	}
	set := func(parameter string) map[string]any {
		return map[string]any{"Fn::Not": []any{unset(parameter)}}
	}
	out["Conditions"] = map[string]any{
		"Reconciled": set("Reconciler"), "NotReconciled": unset("Reconciler"), "HasDeadLetterQueue": set("DeadLetterQueue"),
		"HasFunction": set("Function"), "OfOneOperation": set("Operation"),
		"HasExhaustedQueue": set("ExhaustedQueue"), "HasUndeliveredQueue": set("UndeliveredQueue"),
	}
	in := map[string]any{}
	for _, p := range parameters {
		in[p.name] = map[string]any{"Type": "String", "Description": p.description}
		if p.otherwise != "" {
			in[p.name].(map[string]any)["Default"] = ""
		}
	}
	out["Parameters"] = in
	with, without := alarmsOf(t, true), alarmsOf(t, false)
	made := map[string]any{}
	for name, alarm := range with {
		switch {
		case name == "Unknown":
			made["UnknownOften"] = when("Reconciled", alarm)
		case name == "DeadLetters0":
			made["Exhaustion"] = when("HasExhaustedQueue", alarm)
		case name == "DeadLetters1":
			made["Undelivered"] = when("HasUndeliveredQueue", alarm)
		case without[name] == nil:
			made[name] = when("Reconciled", alarm)
		case strings.HasPrefix(name, "Function"):
			made[name] = when("HasFunction", alarm)
		case asJSON(t, alarm) != asJSON(t, without[name]):
			t.Errorf("%s is different without a reconciler", name)
		default:
			made[name] = alarm
		}
	}
	made["Unknown"] = when("NotReconciled", without["Unknown"])
	made["DeadLetters"] = when("HasDeadLetterQueue", without["DeadLetters0"])
	out["Resources"] = made
	wantFile(t, "alarms.json", out)
}

func unset(parameter string) map[string]any {
	return map[string]any{"Fn::Equals": []any{map[string]any{"Ref": parameter}, ""}}
}

func when(condition string, alarm map[string]any) map[string]any {
	alarm["Condition"] = condition
	return alarm
}

// alarmsOf returns the alarms by name, with references to the parameters.
func alarmsOf(t *testing.T, reconciled bool) map[string]map[string]any {
	t.Helper()
	made, ofAll := alarmsFor(t, reconciled, jsii.Strings("OPERATION")), alarmsFor(t, reconciled, nil)
	if len(made) != len(ofAll) {
		t.Fatalf("%d alarms of an operation, %d of all", len(made), len(ofAll))
	}
	for name := range made {
		made[name] = either("OfOneOperation", made[name], ofAll[name]).(map[string]any)
	}
	return made
}

// either returns what is yes under a condition and no otherwise. A member that only yes
// has is left out otherwise.
func either(condition string, yes, no any) any {
	if reflect.DeepEqual(yes, no) {
		return yes
	}
	y, object := yes.(map[string]any)
	n, also := no.(map[string]any)
	if object && also && y["Fn::Sub"] == nil {
		for member := range y {
			y[member] = either(condition, y[member], n[member])
		}
		return y
	}
	if y, list := yes.([]any); list && no != nil {
		for i := range y {
			y[i] = either(condition, y[i], no.([]any)[i])
		}
		return y
	}
	if no == nil {
		no = map[string]any{"Ref": "AWS::NoValue"}
	}
	return map[string]any{"Fn::If": []any{condition, yes, no}}
}

func alarmsFor(t *testing.T, reconciled bool, operations *[]*string) map[string]map[string]any {
	t.Helper()
	stack := newStack()
	topic := func(name string) awssns.ITopic {
		return awssns.Topic_FromTopicArn(stack, jsii.String(name), jsii.String("arn:aws:sns:eu-west-1:123456789012:"+name))
	}
	props := &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("NAMESPACE"), Operations: operations, Table: infra.NewIdempotencyTable(stack, jsii.String("Records"), nil),
		Functions: &[]awslambda.IFunction{newFunction(stack, "Charge", 10)}, Page: topic("page"), Ticket: topic("ticket"),
	}
	if reconciled {
		props.Reconciler = infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
			Function: newFunction(stack, "Reconcile", 60), Table: props.Table,
		})
	} else {
		props.DeadLetterQueues = &[]awssqs.IQueue{awssqs.NewQueue(stack, jsii.String("Dead"), nil)}
	}
	infra.NewIdempotencyAlarms(stack, jsii.String("Alarms"), props)
	out := map[string]map[string]any{}
	for _, r := range resources(t, stack, "AWS::CloudWatch::Alarm") {
		var properties map[string]any
		plainNames(t, r.Properties, &properties)
		id := strings.TrimPrefix(name(r.id), "Alarms")
		for _, suffix := range []string{"OPERATION", "Charge"} {
			id = strings.TrimSuffix(id, suffix)
		}
		out[id] = map[string]any{"Type": "AWS::CloudWatch::Alarm", "Properties": parameterised(properties)}
	}
	return out
}

// parameterised replaces values by references to the parameters.
func parameterised(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for member := range v {
			v[member] = parameterised(v[member])
		}
	case []any:
		for i := range v {
			v[i] = parameterised(v[i])
		}
	case string:
		for _, p := range parameters {
			if v == p.cdk {
				return map[string]any{"Ref": p.name}
			}
		}
		text := strings.NewReplacer("OPERATION: ", "${Operation}: ", "function Test/Charge ", "function ${Function} ", "in Test/Dead.", "in ${DeadLetterQueue}.",
			"in Test/Reconciler/Exhausted.", "in ${ExhaustedQueue}.", "in Test/Reconciler/Undelivered.", "in ${UndeliveredQueue}.").Replace(v)
		if text != v {
			return map[string]any{"Fn::Sub": text}
		}
	}
	return v
}

// The app in TypeScript of docs/deploy-cdk.md synthesises the table and the alarms of the
// templates, and a policy. Node runs it as JavaScript, because it has no types, with the
// CDK that the Go modules contain.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	installCDK(t, filepath.Join(dir, "node_modules"))
	for from, to := range map[string]string{"testdata/typescript/charges.ts": "charges.mjs", "table.json": "table.json", "alarms.json": "alarms.json", "doc.go": "bin/bootstrap"} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, to)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run(t, dir, "node", "charges.mjs")

	type template struct {
		Resources map[string]struct {
			Type       string
			Properties map[string]any
		}
	}
	read := func(name string) (made template) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &made); err != nil {
			t.Fatal(err)
		}
		return made
	}
	app := read(filepath.Join(dir, "out/Charges.template.json"))
	if got, want := app.Resources["Records"], read("table.json").Resources["Records"]; !reflect.DeepEqual(got, want) {
		t.Errorf("the table is %v, want %v", got, want)
	}
	for name, alarm := range read("alarms.json").Resources {
		if got := app.Resources[name]; got.Type != alarm.Type || got.Properties["Threshold"] != alarm.Properties["Threshold"] {
			t.Errorf("the alarm %s is %v, want %v", name, got, alarm)
		}
	}
	policies := 0
	for _, r := range app.Resources {
		if r.Type != "AWS::IAM::Policy" {
			continue
		}
		policies++
		text, err := json.Marshal(r.Properties["PolicyDocument"])
		if err != nil {
			t.Fatal(err)
		}
		hash := "#" + strings.Repeat("?", 43)
		statement := func(actions, keys string) string {
			return `{"Action":[` + actions + `],"Condition":{"ForAllValues:StringLike":{"dynamodb:LeadingKeys":` + keys +
				`},"Null":{"dynamodb:LeadingKeys":"false"}},"Effect":"Allow","Resource":{"Fn::GetAtt":["Records","Arn"]}}`
		}
		want := `{"Statement":[` + statement(`"dynamodb:PutItem","dynamodb:GetItem"`, `["pay`+hash+`","#open"]`) + "," +
			statement(`"dynamodb:BatchWriteItem","dynamodb:BatchGetItem"`, `["pay`+hash+`#*"]`) + `],"Version":"2012-10-17"}`
		if string(text) != want {
			t.Errorf("the policy is %s, want %s", text, want)
		}
	}
	if policies != 1 {
		t.Errorf("%d policies, want 1", policies)
	}
}

// installCDK puts the packages of Node that the modules of the CDK contain into a folder.
func installCDK(t *testing.T, folder string) {
	t.Helper()
	installed := 0
	modules := strings.Fields(run(t, ".", "go", "list", "-deps", "-f", "{{with .Module}}{{.Dir}}{{end}}", "."))
	slices.Sort(modules)
	for _, dir := range slices.Compact(modules) {
		archives, err := filepath.Glob(filepath.Join(dir, "jsii", "*.tgz"))
		if err != nil {
			t.Fatal(err)
		}
		for _, archive := range archives {
			unpacked := t.TempDir()
			run(t, unpacked, "tar", "-xzf", archive)
			text, err := os.ReadFile(filepath.Join(unpacked, "package/package.json"))
			if err != nil {
				t.Fatal(err)
			}
			var description struct{ Name string }
			if err := json.Unmarshal(text, &description); err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(folder, description.Name)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(unpacked, "package"), at); err != nil {
				t.Fatal(err)
			}
			installed++
		}
	}
	if installed < 4 {
		t.Fatalf("only %d packages of the CDK were found", installed)
	}
}

// run runs a program in a folder, and returns its standard output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CDK_OUTDIR=out", "CDK_VALIDATION=false")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return string(out)
}
