// SPDX-License-Identifier: Apache-2.0

package infra_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/aws-cdk-go/awscdk/v2/cxapi"
	"github.com/aws/jsii-runtime-go"
)

// TestMain ends the CDK's Node process. The jsii runtime then prints a false error
// ("waitid: no child processes"), so standard error is closed before.
func TestMain(m *testing.M) {
	code := m.Run()
	os.Stderr.Close()
	jsii.Close()
	os.Exit(code)
}

// The tests of this package do not run in parallel: all their constructs live
// in one CDK process, which does one thing at a time.

func newStack() awscdk.Stack { return newStackOf(nil) }

// newStackIn returns a stack with a region and an account.
func newStackIn(region string) awscdk.Stack {
	return newStackOf(&awscdk.StackProps{
		Env: &awscdk.Environment{Region: jsii.String(region), Account: jsii.String("123456789012")},
	})
}

func newStackOf(props *awscdk.StackProps) awscdk.Stack {
	return awscdk.NewStack(awscdk.NewApp(nil), jsii.String("Test"), props)
}

// bucket returns a bucket with the code of functions.
func bucket(stack awscdk.Stack) awss3.IBucket {
	if found, ok := stack.Node().TryFindChild(jsii.String("Code")).(awss3.IBucket); ok {
		return found
	}
	return awss3.Bucket_FromBucketName(stack, jsii.String("Code"), jsii.String("code"))
}

// newFunction returns a function with a time-out in seconds.
func newFunction(stack awscdk.Stack, id string, timeout float64) awslambda.Function {
	return newFunctionOf(stack, id, awslambda.FunctionProps{Timeout: awscdk.Duration_Seconds(jsii.Number(timeout))})
}

func newFunctionOf(stack awscdk.Stack, id string, props awslambda.FunctionProps) awslambda.Function {
	props.Runtime, props.Handler = awslambda.Runtime_PROVIDED_AL2023(), jsii.String("bootstrap")
	props.Code = awslambda.Code_FromBucket(bucket(stack), jsii.String("code.zip"), jsii.String("1"))
	return awslambda.NewFunction(stack, jsii.String(id), &props)
}

// parameter returns a number that is known only at the deployment.
func parameter(stack awscdk.Stack, id string) *float64 {
	return awscdk.NewCfnParameter(stack, jsii.String(id), &awscdk.CfnParameterProps{Type: jsii.String("Number")}).ValueAsNumber()
}

// newTable returns a table that the app creates without the construct.
func newTable(stack awscdk.Stack, id string, props awsdynamodb.TablePropsV2) awsdynamodb.TableV2 {
	if props.PartitionKey == nil {
		props.PartitionKey = &awsdynamodb.Attribute{Name: jsii.String("pk"), Type: awsdynamodb.AttributeType_STRING}
	}
	return awsdynamodb.NewTableV2(stack, jsii.String(id), &props)
}

func newKey(stack awscdk.Stack, id string) awskms.Key {
	return awskms.NewKey(stack, jsii.String(id), nil)
}

// with is the encryption of a table with a key.
func with(key awskms.IKey) awsdynamodb.TableEncryptionV2 {
	return awsdynamodb.TableEncryptionV2_CustomerManagedKey(key, nil)
}

// newQueue returns a queue with a dead-letter queue.
func newQueue(stack awscdk.Stack, props awssqs.QueueProps) awssqs.Queue {
	if props.DeadLetterQueue == nil {
		props.DeadLetterQueue = &awssqs.DeadLetterQueue{Queue: awssqs.NewQueue(stack, jsii.String("Dead"), nil), MaxReceiveCount: jsii.Number(5)}
	}
	return awssqs.NewQueue(stack, jsii.String("Orders"), &props)
}

func days(n float64) awscdk.Duration { return awscdk.Duration_Days(jsii.Number(n)) }

type resource struct {
	id             string // in the template
	DeletionPolicy string `json:",omitempty"`
	DependsOn      any    `json:",omitempty"`
	Properties     map[string]any
}

// resources returns the synthesised resources of a type.
func resources(t *testing.T, stack awscdk.Stack, kind string) (list []resource) {
	t.Helper()
	var found map[string]resource
	decode(t, asJSON(t, assertions.Template_FromStack(stack, nil).FindResources(jsii.String(kind), nil)), &found)
	for id, r := range found {
		r.id = id
		list = append(list, r)
	}
	return list
}

// name returns the name of a CDK resource without the hash.
func name(id string) string { return regexp.MustCompile(`[0-9A-F]{8}$`).ReplaceAllString(id, "") }

// plainNames replaces references and joins by text: {"Fn::GetAtt": ["Queue0123ABCD",
// "Arn"]} by "Queue.Arn".
func plainNames(t *testing.T, in, into any) {
	t.Helper()
	var plain func(v any) any
	plain = func(v any) any {
		switch v := v.(type) {
		case []any:
			for i := range v {
				v[i] = plain(v[i])
			}
		case map[string]any:
			if ref, ok := v["Ref"].(string); ok {
				return name(ref)
			}
			if at, ok := v["Fn::GetAtt"].([]any); ok {
				return name(at[0].(string)) + "." + at[1].(string)
			}
			if join, ok := v["Fn::Join"].([]any); ok {
				text := ""
				for _, part := range join[1].([]any) {
					text += plain(part).(string)
				}
				return text
			}
			for member := range v {
				v[member] = plain(v[member])
			}
		}
		return v
	}
	var copied any
	decode(t, asJSON(t, in), &copied)
	decode(t, asJSON(t, plain(copied)), into)
}

// variablesOf returns the environment of the first function.
func variablesOf(t *testing.T, stack awscdk.Stack) map[string]any {
	t.Helper()
	return resources(t, stack, "AWS::Lambda::Function")[0].Properties["Environment"].(map[string]any)["Variables"].(map[string]any)
}

// wantProperties compares the properties that want names, given as JSON.
func wantProperties(t *testing.T, r resource, want string) {
	t.Helper()
	var properties map[string]any
	decode(t, want, &properties)
	for name, value := range properties {
		if got, want := asJSON(t, r.Properties[name]), asJSON(t, value); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// wantAlarms compares alarms with properties, given as JSON for a part of the id that
// one alarm has.
func wantAlarms(t *testing.T, stack awscdk.Stack, want map[string]string) {
	t.Helper()
	found := 0
	for _, alarm := range resources(t, stack, "AWS::CloudWatch::Alarm") {
		for part, properties := range want {
			if strings.Contains(alarm.id, part) {
				found++
				wantProperties(t, alarm, properties)
			}
		}
	}
	if found != len(want) {
		t.Errorf("%d alarms are compared, want %d", found, len(want))
	}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// wantNoMessages checks that synthesis has no errors and no warnings.
func wantNoMessages(t *testing.T, stack awscdk.Stack) {
	t.Helper()
	wantRefusals(t, stack)
	wantWarnings(t, stack)
}

// wantRefusals checks the errors of synthesis: one for each element of want,
// and containing it.
func wantRefusals(t *testing.T, stack awscdk.Stack, want ...string) {
	t.Helper()
	wantMessages(t, "refusals", assertions.Annotations_FromStack(stack).FindError(jsii.String("*"), assertions.Match_AnyValue()), want)
}

// wantWarnings is wantRefusals for warnings.
func wantWarnings(t *testing.T, stack awscdk.Stack, want ...string) {
	t.Helper()
	wantMessages(t, "warnings", assertions.Annotations_FromStack(stack).FindWarning(jsii.String("*"), assertions.Match_AnyValue()), want)
}

//lint:ignore SA1019 what finds messages returns this type
func wantMessages(t *testing.T, kind string, messages *[]*cxapi.SynthesisMessage, want []string) {
	t.Helper()
	var got []string
	for _, m := range *messages {
		got = append(got, m.Entry.Data.(string)) //lint:ignore SA1019 there is no other way to it in Go yet
	}
	if len(got) != len(want) {
		t.Errorf("%d %s, want %d: %q", len(got), kind, len(want), got)
		return
	}
	for _, w := range want {
		if !strings.Contains(strings.Join(got, "\n"), w) {
			t.Errorf("got %s %q, want one with %q", kind, got, w)
		}
	}
}

// wantFile compares a file with JSON, and writes it with -update.
func wantFile(t *testing.T, file string, v any) {
	t.Helper()
	want, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is out of date (%v); after reading the difference: go test ./infra -run %s -update", file, err, t.Name())
	}
}
