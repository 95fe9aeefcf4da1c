package infra_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/cloudformationinclude"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/dynamostore"
	"github.com/once-lambda/once/infra"
	"github.com/once-lambda/once/infra/bundle"
	"github.com/once-lambda/once/lambdabatch"
)

var update = flag.Bool("update", false, "write what is generated")

// template contains the parts of a CloudFormation template that the tests check.
type template struct {
	Resources map[string]struct {
		Type, DeletionPolicy, UpdateReplacePolicy string
		Properties                                map[string]any
	}
	Outputs map[string]any
}

// wantUpToDate compares a file with its generated content, or writes it with
// -update.
func wantUpToDate(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("%s is out of date (%v): run go test ./infra -run %s -update", path, err, t.Name())
	}
}

// The table for CloudFormation is the one that the CDK synthesises.
func TestTableTemplate(t *testing.T) {
	app := awscdk.NewApp(&awscdk.AppProps{Outdir: jsii.String(t.TempDir()), AnalyticsReporting: jsii.Bool(false)})
	stack := awscdk.NewStack(app, jsii.String("Test"), &awscdk.StackProps{
		Description: jsii.String("The table of package dynamostore"),
		Synthesizer: awscdk.NewDefaultStackSynthesizer(&awscdk.DefaultStackSynthesizerProps{GenerateBootstrapVersionRule: jsii.Bool(false)}),
	})
	table := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	table.Table.Node().DefaultChild().(awsdynamodb.CfnGlobalTable).OverrideLogicalId(jsii.String("Records"))
	awscdk.NewCfnOutput(stack, jsii.String("TableName"), &awscdk.CfnOutputProps{Value: table.Table.TableName()})
	awscdk.NewCfnOutput(stack, jsii.String("TableArn"), &awscdk.CfnOutputProps{Value: table.Table.TableArn()})
	want, err := json.MarshalIndent(assertions.Template_FromStack(stack, nil).ToJSON(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	wantUpToDate(t, filepath.Join("templates", "table.json"), string(want)+"\n")
}

// readSAM reads the SAM example with the CDK, which refuses unknown properties
// and unresolved references.
func readSAM(t *testing.T) (sam template) {
	t.Helper()
	stack := newStack(t)
	cloudformationinclude.NewCfnInclude(stack, jsii.String("SAM"), &cloudformationinclude.CfnIncludeProps{
		TemplateFile: jsii.String(filepath.Join("templates", "sam.yaml")),
	})
	decode(t, asJSON(t, assertions.Template_FromStack(stack, nil).ToJSON()), &sam)
	return sam
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

// The SAM example has the table of the CDK.
func TestSAMTable(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("templates", "table.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want template
	decode(t, string(text), &want)
	if got, want := asJSON(t, readSAM(t).Resources["Records"]), asJSON(t, want.Resources["Records"]); got != want {
		t.Errorf("the table of sam.yaml is\n%s\nwant that of table.json\n%s", got, want)
	}
}

// function contains the parts of a SAM function that the tests check.
type function struct {
	CodeUri     string
	Handler     string
	Runtime     string
	Timeout     float64
	Environment struct{ Variables map[string]any }
	Policies    []struct {
		Statement []struct {
			Effect   string
			Action   []string
			Resource map[string]any
		}
	}
	Events map[string]struct {
		Type       string
		Properties map[string]any
	}
}

// The functions of the example use bundles that are built, and are allowed the
// actions of their code and nothing else.
func TestSAMFunctions(t *testing.T) {
	records, index := `{"Fn::GetAtt":"Records.Arn"}`, `{"Fn::Sub":"${Records.Arn}/index/`+dynamostore.IndexName+`"}`
	handler, sam := map[string][]string{records: infra.HandlerActions}, readSAM(t)
	for name, want := range map[string]struct {
		bundle string
		may    map[string][]string
	}{
		"Charges": {"charge", handler},
		"Orders": {"orders", map[string][]string{
			records: infra.HandlerActions, `{"Fn::GetAtt":"Shop.Arn"}`: {"dynamodb:PutItem", "dynamodb:UpdateItem"},
		}},
		"Reconciler": {"reconciler", map[string][]string{
			records: infra.ReconcilerActions, index: infra.IndexActions, `{"Fn::GetAtt":"Exhausted.Arn"}`: {"sqs:SendMessage"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var fn function
			decode(t, asJSON(t, sam.Resources[name].Properties), &fn)
			if !slices.ContainsFunc(bundle.Functions, func(f bundle.Function) bool { return f.Name == want.bundle }) {
				t.Errorf("package bundle does not build %s", want.bundle)
			}
			if got := fn.CodeUri; got != "../../"+bundle.Path(want.bundle, "arm64") || fn.Handler != "bootstrap" || fn.Runtime != "provided.al2023" {
				t.Errorf("it runs %q of %s on %s", fn.Handler, got, fn.Runtime)
			}
			if got := asJSON(t, fn.Environment.Variables[infra.TableVariable]); got != `{"Ref":"Records"}` {
				t.Errorf("%s is %s", infra.TableVariable, got)
			}
			seen := 0
			for _, policy := range fn.Policies {
				for _, s := range policy.Statement {
					seen++
					resource := asJSON(t, s.Resource)
					if s.Effect != "Allow" || !slices.Equal(s.Action, want.may[resource]) {
						t.Errorf("it may %v on %s, want %v", s.Action, resource, want.may[resource])
					}
				}
			}
			if seen != len(want.may) {
				t.Errorf("%d statements, want %d", seen, len(want.may))
			}
		})
	}
}

// QueueSource would accept the queue of the example, and the reconciler has the
// schedule and settings of Reconciler.
func TestSAMEvents(t *testing.T) {
	sam := readSAM(t)
	var orders, reconciler function
	decode(t, asJSON(t, sam.Resources["Orders"].Properties), &orders)
	decode(t, asJSON(t, sam.Resources["Reconciler"].Properties), &reconciler)

	if got := orders.Events["Queue"]; got.Type != "SQS" || asJSON(t, got.Properties["FunctionResponseTypes"]) != `["ReportBatchItemFailures"]` {
		t.Errorf("the event is %v", got)
	}
	queue := sam.Resources["OrderQueue"].Properties
	visibility, retention := queue["VisibilityTimeout"].(float64), queue["MessageRetentionPeriod"].(float64)
	if visibility < 6*orders.Timeout {
		t.Errorf("the visibility time-out is %v s, and the function's %v", visibility, orders.Timeout)
	}
	if kept := lambdabatch.SQSRedelivery.Seconds(); kept < visibility+retention {
		t.Errorf("messages are delivered again for %v s, and outcomes are stored for %v s", visibility+retention, kept)
	}
	if !strings.Contains(asJSON(t, queue["RedrivePolicy"]), `"DeadOrders.Arn"`) {
		t.Errorf("the dead-letter queue is %v", queue["RedrivePolicy"])
	}
	for name, event := range reconciler.Events {
		if got := asJSON(t, event); got != `{"Type":"Schedule","Properties":{"DeadLetterConfig":{"Type":"SQS"},"RetryPolicy":{"MaximumRetryAttempts":0},"Schedule":"rate(1 minute)"}}` {
			t.Errorf("%s is %s", name, got)
		}
	}
	if len(reconciler.Events) != 1 || asJSON(t, reconciler.Environment.Variables[infra.ExhaustedVariable]) != `{"Ref":"Exhausted"}` {
		t.Errorf("the reconciler has %d events and the variables %v", len(reconciler.Events), reconciler.Environment.Variables)
	}
	for _, name := range []string{"DeadOrders", "Exhausted"} {
		if got := sam.Resources[name].Properties["MessageRetentionPeriod"].(float64); got != (14 * 24 * time.Hour).Seconds() {
			t.Errorf("%s retains messages for %v s", name, got)
		}
	}
}
