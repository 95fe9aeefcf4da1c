// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/csv"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskinesis"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambdaeventsources"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssecretsmanager"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/aws-cdk-go/awscdk/v2/cloudformationinclude"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"

	"github.com/once-lambda/once/infra"
	"github.com/once-lambda/once/lambdabatch"
)

func TestMain(m *testing.M) { os.Exit(withCDK(m.Run)) }

const providerURL = "https://provider.test/v1"

// emptyBundles returns a folder with archives of the functions, which the CDK
// copies at once.
func emptyBundles() string {
	dir, err := os.MkdirTemp("", "bundles")
	if err != nil {
		panic(err)
	}
	for _, program := range []string{"charge", "orders", "reconciler"} {
		if err := os.WriteFile(filepath.Join(dir, program+"-arm64.zip"), nil, 0o644); err != nil {
			panic(err)
		}
	}
	return dir
}

// example is the stack, with empty bundles. The tests share it.
var example = sync.OnceValue(func() awscdk.Stack {
	p := props{bundles: emptyBundles(), arch: "arm64", providerURL: providerURL, orderTimeout: 30}
	defer os.RemoveAll(p.bundles)
	return newStack(awscdk.NewApp(nil), "Charge", p)
})

var templates = flag.String("templates", "", "a folder into which the stack's template is written, for tools/templates")

// The template is that of a deployment, except for the hashes of the bundles.
func TestTemplateIsWritten(t *testing.T) {
	if len(synthesised().Resources) < 60 {
		t.Errorf("the stack has only %d resources", len(synthesised().Resources))
	}
	if *templates == "" {
		return
	}
	text := asJSON(assertions.Template_FromStack(example(), nil).ToJSON())
	if err := os.WriteFile(filepath.Join(*templates, "stack.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The grants name the operations of the functions' code. DynamoDB would refuse
// records of another operation.
func TestOperationsAreThoseOfTheCode(t *testing.T) {
	for file, operation := range map[string]string{"../charge/handler.go": chargeOperation, "../../order-queue/orders/handler.go": orderOperation} {
		code, err := os.ReadFile(file)
		if declared := "const Operation = \"" + operation + "\""; err != nil || !strings.Contains(string(code), declared) {
			t.Errorf("%s does not contain %s (%v)", file, declared, err)
		}
	}
}

// Invalid context values are errors that name the value.
func TestInvalidContext(t *testing.T) {
	for want, context := range map[string]map[string]any{
		"provider's address is missing":  {},
		`invalid arch "x86_64"`:          {"providerUrl": providerURL, "arch": "x86_64"},
		`invalid orderTimeout "0"`:       {"providerUrl": providerURL, "orderTimeout": "0"},
		`invalid orderTimeout "901"`:     {"providerUrl": providerURL, "orderTimeout": "901"},
		`invalid orderTimeout "a while"`: {"providerUrl": providerURL, "orderTimeout": "a while"},
	} {
		if err := build(awscdk.NewApp(&awscdk.AppProps{Context: &context})); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// sam.yaml is the same service without the REST API. The CDK reads it, and
// refuses unknown properties and unresolved references.
var sam = sync.OnceValue(func() template {
	stack := awscdk.NewStack(awscdk.NewApp(nil), jsii.String("SAM"), nil)
	cloudformationinclude.NewCfnInclude(stack, jsii.String("Include"), &cloudformationinclude.CfnIncludeProps{TemplateFile: jsii.String("sam.yaml")})
	t := parse(asJSON(assertions.Template_FromStack(stack, nil).ToJSON()))
	for _, r := range t.Resources {
		if r.Type == "AWS::Serverless::Function" {
			for name, value := range t.Globals.Function {
				r.Properties[name] = value
			}
		}
	}
	return t
})

// synthesised is the template of the stack with the names of sam.yaml.
var synthesised = sync.OnceValue(func() template {
	text := asJSON(assertions.Template_FromStack(example(), nil).ToJSON())
	text = strings.ReplaceAll(text, `"`+providerURL+`"`, `{"Ref":"ProviderURL"}`)
	for cdk, name := range map[string]string{
		"RecordsTable": "Records", "ReconcilerExhausted": "Exhausted",
		"ChargesURL": "Charges", "ReconcilerFunction": "Reconciler", "Orders": "Orders", "Shop": "Shop", "OrderQueue": "OrderQueue",
		"DeadOrders": "DeadOrders", "ReconcilerUndelivered": "Undelivered", "Pager": "Pager", "Tickets": "Tickets",
	} {
		text = regexp.MustCompile(`\b`+cdk+`[0-9A-F]{8}\b`).ReplaceAllString(text, name)
	}
	return parse(text)
})

// template contains the parts of a CloudFormation template that the tests check.
type template struct {
	Globals   struct{ Function map[string]any }
	Resources map[string]struct {
		Type, DeletionPolicy, UpdateReplacePolicy string
		Metadata, Properties                      map[string]any
	}
}

func parse(text string) (t template) {
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		panic(err)
	}
	return t
}

func asJSON(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// A weak reference to a table of another stack exports nothing that CloudFormation would
// lock, as docs/deploy-company.md says.
func TestWeakReferences(t *testing.T) {
	for strength, want := range map[string]string{"strong": "Fn::ImportValue", "weak": "Fn::GetStackOutput"} {
		app := awscdk.NewApp(&awscdk.AppProps{Context: &map[string]any{"@aws-cdk/core:defaultCrossStackReferences": strength}})
		here := &awscdk.StackProps{Env: &awscdk.Environment{Region: jsii.String("eu-central-1"), Account: jsii.String("123456789012")}}
		records := infra.NewIdempotencyTable(awscdk.NewStack(app, jsii.String("Data"), here), jsii.String("Records"), nil)
		service := awscdk.NewStack(app, jsii.String("Service"), here)
		records.GrantHandler(awsiam.NewRole(service, jsii.String("Task"), &awsiam.RoleProps{
			AssumedBy: awsiam.NewServicePrincipal(jsii.String("ecs-tasks.amazonaws.com"), nil),
		}), jsii.String("charge"))
		template := asJSON(assertions.Template_FromStack(service, nil).ToJSON())
		for _, reference := range []string{"Fn::ImportValue", "Fn::GetStackOutput"} {
			if found := strings.Contains(template, reference); found != (reference == want) {
				t.Errorf("with %s references the template has %s: %v", strength, reference, found)
			}
		}
	}
}

func TestSAMTables(t *testing.T) {
	if got, want := asJSON(sam().Resources["Records"]), asJSON(synthesised().Resources["Records"]); got != want {
		t.Errorf("the table of records is\n%s\nwant\n%s", got, want)
	}
	for _, r := range []any{sam().Resources["Shop"], synthesised().Resources["Shop"]} {
		for _, protection := range []string{`"DeletionPolicy":"Retain"`, `"DeletionProtectionEnabled":true`, `"PointInTimeRecoveryEnabled":true`} {
			if text := asJSON(r); !strings.Contains(text, protection) {
				t.Errorf("the shop's table has no %s: %s", protection, text)
			}
		}
	}
}

// The functions have the settings of the stack's functions. They may do the same
// with the tables and the queue of exhausted records; SAM itself adds the
// permissions for logs and event sources.
func TestSAMFunctions(t *testing.T) {
	for name, program := range map[string]string{"Charges": "../cmd/lambda", "Orders": "../../order-queue/cmd/lambda", "Reconciler": "../cmd/reconciler"} {
		got, want := sam().Resources[name].Properties, synthesised().Resources[name].Properties
		for _, setting := range []string{"Handler", "Runtime", "Architectures", "MemorySize", "Timeout", "Environment"} {
			if got, want := asJSON(got[setting]), asJSON(want[setting]); got != want || want == "null" {
				t.Errorf("%s: %s is %s, want %s", name, setting, got, want)
			}
		}
		if got, want := got["LoggingConfig"].(map[string]any)["LogFormat"], want["LoggingConfig"].(map[string]any)["LogFormat"]; got != want || want != "JSON" {
			t.Errorf("%s logs as %v, and the stack's as %v", name, got, want)
		}
		if code, built := got["CodeUri"], sam().Resources[name].Metadata["BuildMethod"]; code != program || built != "go1.x" {
			t.Errorf("%s runs %v, built by %v", name, code, built)
		}
		if logs := sam().Resources[name+"Logs"].Properties["RetentionInDays"]; logs != 30.0 || got["Tracing"] != "Active" {
			t.Errorf("%s: logs are retained for %v days, and tracing is %v", name, logs, got["Tracing"])
		}
		var allowed []string
		needed := needed(want)
		for _, policy := range got["Policies"].([]any) {
			allowed = append(allowed, permissions(policy)...)
		}
		for _, p := range allowed {
			if !slices.Contains(needed, p) {
				t.Errorf("%s may do more than the stack's: %s", name, p)
			}
		}
		for _, p := range needed {
			own := strings.Contains(p, "dynamodb:") || strings.Contains(p, "sqs:SendMessage") || strings.Contains(p, "sqs:ChangeMessageVisibility")
			if own && !slices.Contains(allowed, p) {
				t.Errorf("%s may do less than the stack's: %s", name, p)
			}
		}
		if len(needed) < 4 {
			t.Errorf("%s: the stack's function may do only %q", name, needed)
		}
	}
}

// needed returns what the role of a function of the stack allows.
func needed(function map[string]any) (list []string) {
	for _, r := range synthesised().Resources {
		if r.Type == "AWS::IAM::Policy" && slices.Contains(words(r.Properties["Roles"]), words(function["Role"])[0]) {
			list = append(list, permissions(r.Properties["PolicyDocument"])...)
		}
	}
	return list
}

// permissions returns what a policy document allows or denies, a line for each
// action and resource, with the keys of a table to which it is limited.
func permissions(document any) (list []string) {
	for _, s := range document.(map[string]any)["Statement"].([]any) {
		s := s.(map[string]any)
		actions, several := s["Action"].([]any)
		if !several {
			actions = []any{s["Action"]}
		}
		for _, action := range actions {
			line := s["Effect"].(string) + " " + action.(string) + " " + strings.Join(words(s["Resource"]), " ")
			if strings.HasPrefix(action.(string), "dynamodb:") {
				line += " " + asJSON(s["Condition"])
			}
			list = append(list, line)
		}
	}
	return list
}

// words returns the words of a value without the names of functions, so that
// Fn::Sub, Fn::Join and both forms of Fn::GetAtt compare as equal.
func words(v any) []string {
	all := regexp.MustCompile(`[\w-]+`).FindAllString(asJSON(v), -1)
	return slices.DeleteFunc(all, func(w string) bool { return slices.Contains([]string{"Fn", "Sub", "Join", "GetAtt", "Ref"}, w) })
}

// QueueSource would accept the queue, and the reconciler has the schedule of
// Reconciler.
func TestSAMEvents(t *testing.T) {
	orders, reconciler := sam().Resources["Orders"].Properties, sam().Resources["Reconciler"].Properties
	if got := asJSON(orders["Events"]); got != `{"Queue":{"Properties":{"BatchSize":10,"FunctionResponseTypes":["ReportBatchItemFailures"],"Queue":{"Fn::GetAtt":"OrderQueue.Arn"}},"Type":"SQS"}}` {
		t.Errorf("the events of Orders are %s", got)
	}
	queue := sam().Resources["OrderQueue"].Properties
	visibility, retention := queue["VisibilityTimeout"].(float64), queue["MessageRetentionPeriod"].(float64)
	if visibility < 6*orders["Timeout"].(float64) {
		t.Errorf("the visibility time-out is %v s, and the function's %v", visibility, orders["Timeout"])
	}
	redelivery := 2*(visibility+retention) + sam().Resources["DeadOrders"].Properties["MessageRetentionPeriod"].(float64)
	if stored := lambdabatch.SQSRedelivery.Seconds(); stored < redelivery {
		t.Errorf("messages are delivered again for %v s, and outcomes are stored for %v s", redelivery, stored)
	}
	if !strings.Contains(asJSON(queue["RedrivePolicy"]), `"DeadOrders.Arn"`) {
		t.Errorf("the dead-letter queue is %v", queue["RedrivePolicy"])
	}
	if got := asJSON(reconciler["Events"]); got != `{"EveryMinute":{"Properties":{"DeadLetterConfig":{"Arn":{"Fn::GetAtt":"Undelivered.Arn"}},"Name":{"Fn::Sub":"${AWS::StackName}-reconciler"},"RetryPolicy":{"MaximumRetryAttempts":0},"Schedule":"rate(1 minute)"},"Type":"Schedule"}}` {
		t.Errorf("the events of Reconciler are %s", got)
	}
	if got := asJSON(reconciler["EventInvokeConfig"]); got != `{"MaximumEventAgeInSeconds":60,"MaximumRetryAttempts":0}` {
		t.Errorf("asynchronous invocations of Reconciler are %s", got)
	}
	for _, name := range []string{"DeadOrders", "Exhausted", "Undelivered"} {
		if got := sam().Resources[name].Properties["MessageRetentionPeriod"].(float64); got != (14 * 24 * time.Hour).Seconds() {
			t.Errorf("%s retains messages for %v s", name, got)
		}
	}
}

// The queues and topics have the policies of the stack's, and the alarms watch what
// the stack's watch. infra compares the template of the alarms with the constructs.
func TestSAMPoliciesAndAlarms(t *testing.T) {
	for name, r := range sam().Resources {
		if r.Type != "AWS::SQS::QueuePolicy" && r.Type != "AWS::SNS::TopicPolicy" {
			continue
		}
		got := permissions(r.Properties["PolicyDocument"])
		var want []string
		for _, other := range synthesised().Resources {
			list, _ := other.Properties[map[string]string{"AWS::SQS::QueuePolicy": "Queues", "AWS::SNS::TopicPolicy": "Topics"}[r.Type]].([]any)
			if other.Type == r.Type && slices.Equal(words(list), []string{strings.TrimSuffix(name, "Policy")}) {
				want = permissions(other.Properties["PolicyDocument"])
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	watched := map[string]map[string]bool{} // operations and queues, by namespace
	for id, r := range synthesised().Resources {
		namespace := map[bool]string{true: "Charges", false: "OrderQueue"}[strings.HasPrefix(id, "Charge")]
		if r.Type != "AWS::CloudWatch::Alarm" {
			continue
		}
		if watched[namespace] == nil {
			watched[namespace] = map[string]bool{}
		}
		for _, value := range regexp.MustCompile(`"Name":"(operation|QueueName|FunctionName)","Value":("[^"]+"|\{[^}]+\})`).FindAllStringSubmatch(asJSON(r.Properties), -1) {
			watched[namespace][value[2]] = true
		}
	}
	maps.DeleteFunc(watched["Charges"], func(value string, _ bool) bool { return strings.Contains(value, "ChargesREST") }) // not in sam.yaml
	for name, want := range map[string]int{"ChargeAlarms": 4, "OrderAlarms": 2} {
		parameters := sam().Resources[name].Properties["Parameters"].(map[string]any)
		all := watched[parameters["Namespace"].(string)]
		delete(all, `"all"`) // of the gauges
		found := 0
		for of, value := range parameters {
			text := asJSON(value)
			if at, ok := strings.CutPrefix(text, `{"Fn::GetAtt":"`); ok { // in the CDK's form
				id, attribute, _ := strings.Cut(strings.TrimSuffix(at, `"}`), ".")
				text = `{"Fn::GetAtt":["` + id + `","` + attribute + `"]}`
			}
			if all[text] {
				found++
			} else if of != "Namespace" && of != "Table" && of != "PageTopic" && of != "TicketTopic" {
				t.Errorf("%s watches %s, and the stack only %v", name, text, all)
			}
		}
		if found != want || len(all) != want {
			t.Errorf("%s watches %d of %v, want %d", name, found, all, want)
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

// topicReasons are the accepted findings of cdk-nag in the stack with every
// construct.
var topicReasons = map[string]string{
	"AwsSolutions-IAM4": "The CDK's source of a topic attaches the managed policy for MSK, whose actions are on the network and on clusters.",
}

// everything is a stack with every construct of infra, and with what each can be
// connected to. The tests share it.
var everything = sync.OnceValue(func() awscdk.Stack {
	app := awscdk.NewApp(nil)
	s := &stack{
		Stack: awscdk.NewStack(app, jsii.String("Everything"), &awscdk.StackProps{
			Env: &awscdk.Environment{Region: jsii.String("eu-central-1"), Account: jsii.String("123456789012")},
		}),
		props: props{bundles: emptyBundles(), arch: "arm64", providerURL: providerURL},
	}
	defer os.RemoveAll(s.bundles)
	key := awskms.NewKey(s.Stack, jsii.String("Key"), &awskms.KeyProps{EnableKeyRotation: jsii.Bool(true)})
	s.records = infra.NewIdempotencyTable(s.Stack, jsii.String("Records"), &awsdynamodb.TablePropsV2{
		Encryption:   awsdynamodb.TableEncryptionV2_CustomerManagedKey(key, &map[string]*string{"eu-west-1": jsii.String("arn:aws:kms:eu-west-1:123456789012:key/1")}),
		Replicas:     &[]*awsdynamodb.ReplicaTableProps{{Region: jsii.String("eu-west-1")}},
		DynamoStream: awsdynamodb.StreamViewType_NEW_AND_OLD_IMAGES,
	})
	imported := infra.IdempotencyTableFrom(s.Stack, jsii.String("ImportedRecords"),
		awsdynamodb.TableV2_FromTableName(s.Stack, jsii.String("Imported"), jsii.String("records")), nil)
	role := func(id string) awsiam.Role {
		return awsiam.NewRole(s.Stack, jsii.String(id), &awsiam.RoleProps{AssumedBy: awsiam.NewServicePrincipal(jsii.String("ecs-tasks.amazonaws.com"), nil)})
	}
	fn := func(id string) awslambda.Function { return s.function(id, "charge", 10, nil) }
	queue := func(id string, dead *awssqs.DeadLetterQueue) awssqs.Queue {
		return awssqs.NewQueue(s.Stack, jsii.String(id), &awssqs.QueueProps{
			EnforceSSL: jsii.Bool(true), VisibilityTimeout: awscdk.Duration_Minutes(jsii.Number(1)), DeadLetterQueue: dead,
		})
	}
	charge := fn("Charge")
	s.records.GrantHandler(charge, jsii.String("charge"))
	imported.GrantHandler(role("Task"), jsii.String("*"))
	s.records.GrantViewer(role("Viewer"))
	s.records.GrantOperator(role("Operator"))
	failed := &awssqs.DeadLetterQueue{Queue: queue("Failed", nil), MaxReceiveCount: jsii.Number(3)}
	to := awslambdaeventsources.NewSqsDlq(failed.Queue)
	age, from := awscdk.Duration_Hours(jsii.Number(1)), awslambda.StartingPosition_TRIM_HORIZON

	infra.NewQueueSource(s.Stack, jsii.String("QueueSource"), &infra.QueueSourceProps{
		Function: fn("Queued").AddAlias(jsii.String("live"), nil), Queue: queue("Orders", failed), Retention: awscdk.Duration_Days(jsii.Number(23)),
	})
	stream := awskinesis.NewStream(s.Stack, jsii.String("Stream"), &awskinesis.StreamProps{Encryption: awskinesis.StreamEncryption_MANAGED})
	infra.NewStreamSource(s.Stack, jsii.String("StreamSource"), &infra.StreamSourceProps{
		Function: fn("Streamed"), Stream: stream, Retention: awscdk.Duration_Hours(jsii.Number(24)),
		Kinesis: &awslambdaeventsources.KinesisEventSourceProps{StartingPosition: from, OnFailure: to, MaxRecordAge: age},
	})
	infra.NewStreamSource(s.Stack, jsii.String("TableSource"), &infra.StreamSourceProps{
		Function: fn("Changed"), Table: s.records.Table, Retention: awscdk.Duration_Hours(jsii.Number(24)),
		DynamoDB: &awslambdaeventsources.DynamoEventSourceProps{StartingPosition: from, OnFailure: to, MaxRecordAge: age},
	})
	pollers := &awslambdaeventsources.ProvisionedPollerConfig{MinimumPollers: jsii.Number(1), MaximumPollers: jsii.Number(2)}
	topic := fn("Topic")
	infra.NewKafkaSource(s.Stack, jsii.String("MSKSource"), &infra.KafkaSourceProps{
		Function: topic, TopicRetention: awscdk.Duration_Days(jsii.Number(7)), Retention: awscdk.Duration_Days(jsii.Number(7)),
		Managed: &awslambdaeventsources.ManagedKafkaEventSourceProps{
			ClusterArn: jsii.String("arn:aws:kafka:eu-central-1:123456789012:cluster/orders/1"), Topic: jsii.String("orders"),
			StartingPosition: from, OnFailure: to, MaxRecordAge: age, ProvisionedPollerConfig: pollers,
		},
	})
	infra.NewKafkaSource(s.Stack, jsii.String("KafkaSource"), &infra.KafkaSourceProps{
		Function: fn("OtherTopic"), TopicRetention: awscdk.Duration_Days(jsii.Number(7)), Retention: awscdk.Duration_Days(jsii.Number(7)),
		SelfManaged: &awslambdaeventsources.SelfManagedKafkaEventSourceProps{
			BootstrapServers: jsii.Strings("kafka.example.com:9092"), Topic: jsii.String("orders"), StartingPosition: from,
			Secret:    awssecretsmanager.Secret_FromSecretNameV2(s.Stack, jsii.String("Secret"), jsii.String("kafka")),
			OnFailure: to, MaxRecordAge: age, ProvisionedPollerConfig: pollers,
		},
	})
	s.rest, s.url, s.queued, s.dead = charge, fn("ChargeURL"), fn("Order"), queue("Dead", failed)
	s.watch()
	suppress(topic.Role(), topicReasons)
	awscdk.Aspects_Of(s.Stack).Add(cdknag.NewAwsSolutionsChecks(nil), nil)
	return s.Stack
})

// cdk-nag has no findings but those with a reason, and each reason is needed.
func TestNothingIsFoundByOthers(t *testing.T) {
	for name, row := range map[string]struct {
		stack   awscdk.Stack
		reasons []map[string]string
	}{
		"the example":     {example(), []map[string]string{apiReasons, handedOverReasons}},
		"every construct": {everything(), []map[string]string{topicReasons, handedOverReasons}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, m := range *assertions.Annotations_FromStack(row.stack).FindError(jsii.String("*"), assertions.Match_AnyValue()) {
				t.Errorf("%s: %v", *m.Id, m.Entry.Data) //lint:ignore SA1019 there is no other way to it in Go yet
			}
			for _, m := range *assertions.Annotations_FromStack(row.stack).FindWarning(jsii.String("*"), assertions.Match_AnyValue()) {
				if text := m.Entry.Data.(string); !strings.Contains(text, "once:replicas") { //lint:ignore SA1019 there is no other way to it in Go yet
					t.Errorf("%s: %v", *m.Id, text)
				}
			}
			want := map[string]string{}
			for _, reasons := range row.reasons {
				maps.Copy(want, reasons)
			}
			if got := suppressed(t, row.stack); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
				t.Errorf("findings of %q are suppressed, want of %q", got, slices.Sorted(maps.Keys(want)))
			}
		})
	}
}

// suppressed returns the rules with a finding that is suppressed, from cdk-nag's
// report.
func suppressed(t *testing.T, stack awscdk.Stack) []string {
	t.Helper()
	app := stack.Node().Root().(awscdk.App)
	files, err := filepath.Glob(filepath.Join(*app.Outdir(), "AwsSolutions-*-NagReport.csv"))
	if err != nil || len(files) != 1 {
		t.Fatalf("cdk-nag wrote the reports %q (%v), want 1", files, err)
	}
	text, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	rows, err := csv.NewReader(text).ReadAll()
	if err != nil || len(rows) < 20 || !slices.Equal(rows[0][:4], []string{"Rule ID", "Resource ID", "Compliance", "Exception Reason"}) {
		t.Fatalf("cdk-nag's report has %d rows (%v)", len(rows), err)
	}
	rules := map[string]bool{}
	for _, row := range rows[1:] {
		if row[2] == "Suppressed" {
			rules[row[0]] = true
		}
	}
	return slices.Sorted(maps.Keys(rules))
}
