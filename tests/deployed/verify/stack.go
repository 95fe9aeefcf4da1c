// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssnssubscriptions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/infra"
	"github.com/once-lambda/once/tests/deployed/verify/wire"
)

const (
	timeout      = 3           // of the functions, in seconds
	localTimeout = 30          // on LocalStack, whose machine may be busy
	visibility   = 6 * timeout // of the queue, in seconds
	mostReceive  = 2           // deliveries of a message before it is dead
)

// shape is what the stack depends on.
type shape struct {
	ID, Account, Region  string
	Arch                 string // arm64 or amd64
	Boundary, RolePrefix string
	KMS                  bool
	Local                bool     // on LocalStack
	Wrong                []string // names of wrongs
}

// Keys of objects in the bucket.
const (
	functionArchive  = "function.zip"
	extensionArchive = "extension.zip"
)

// synthesise returns the template of the stack, for an account without the
// resources of cdk bootstrap.
func synthesise(s shape) ([]byte, error) {
	defer jsii.Close()
	app := awscdk.NewApp(nil)
	props := &awscdk.StackProps{
		Env:                &awscdk.Environment{Account: &s.Account, Region: &s.Region},
		Synthesizer:        awscdk.NewBootstraplessSynthesizer(nil),
		AnalyticsReporting: jsii.Bool(false),
	}
	if s.Boundary != "" {
		props.PermissionsBoundary = awscdk.PermissionsBoundary_FromArn(&s.Boundary)
	}
	name := nameOf(s.ID)
	b := builder{shape: s, Stack: awscdk.NewStack(app, &name, props)}
	b.bucket = awss3.Bucket_FromBucketName(b.Stack, jsii.String("Bucket"), &name)
	b.build()
	artifact := app.Synth(nil).GetStackByName(&name)
	var refused []string
	for _, message := range *artifact.Messages() {
		//lint:ignore SA1019 the CDK for Go has no other type of a message
		level, entry := message.Level, message.Entry
		if strings.EqualFold(string(level), "error") {
			refused = append(refused, fmt.Sprint(entry.Data))
		}
	}
	if len(refused) > 0 {
		return nil, fmt.Errorf("the constructs refuse the stack: %s", strings.Join(refused, "; "))
	}
	return spoil(artifact.Template(), s.Wrong)
}

// builder builds the stack.
type builder struct {
	awscdk.Stack
	shape
	bucket awss3.IBucket // of the archives
}

func (b builder) build() {
	own := &awsdynamodb.TablePropsV2{
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY, DeletionProtection: jsii.Bool(false),
		// A deleted table with backups leaves one for 35 days.
		PointInTimeRecoverySpecification: &awsdynamodb.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: jsii.Bool(false)},
	}
	if b.KMS {
		key := awskms.NewKey(b.Stack, jsii.String("Key"), &awskms.KeyProps{
			RemovalPolicy: awscdk.RemovalPolicy_DESTROY, PendingWindow: awscdk.Duration_Days(jsii.Number(7)),
		})
		own.Encryption = awsdynamodb.TableEncryptionV2_CustomerManagedKey(key, nil)
		b.output("Key", key.KeyArn())
	}
	records := infra.NewIdempotencyTable(b.Stack, jsii.String("Records"), own)
	items, refused := b.table("Items"), b.table("Refused")
	b.output("Records", records.Table.TableName())
	b.output("Items", items.TableName())
	b.output("Refused", refused.TableName())

	function := func(id string, timeout float64, role string, layers ...awslambda.ILayerVersion) awslambda.Function {
		fn := b.function(id, timeout, layers)
		fn.AddEnvironment(jsii.String("ROLE"), &role, nil)
		fn.AddEnvironment(jsii.String("ITEMS_TABLE"), items.TableName(), nil)
		items.Grant(fn, *jsii.Strings("dynamodb:PutItem", "dynamodb:GetItem", "dynamodb:UpdateItem")...)
		b.output(id, fn.FunctionName())
		return fn
	}
	extension := awslambda.NewLayerVersion(b.Stack, jsii.String("Extension"), &awslambda.LayerVersionProps{
		Code: b.code(extensionArchive), LayerVersionName: jsii.String(nameOf(b.ID) + "-Extension"),
	})
	handler, extended := function("Handler", timeout, "handler"), function("Extended", timeout, "handler", extension)
	for _, fn := range []awslambda.Function{handler, extended} {
		records.GrantHandler(fn, *jsii.Strings(wire.Operation, wire.Counted, wire.Messages)...)
	}

	dead := awssqs.NewQueue(b.Stack, jsii.String("Dead"), &awssqs.QueueProps{RetentionPeriod: awscdk.Duration_Days(jsii.Number(14))})
	queue := awssqs.NewQueue(b.Stack, jsii.String("Queue"), &awssqs.QueueProps{
		VisibilityTimeout: awscdk.Duration_Seconds(jsii.Number(visibility)),
		DeadLetterQueue:   &awssqs.DeadLetterQueue{Queue: dead, MaxReceiveCount: jsii.Number(mostReceive)},
	})
	infra.NewQueueSource(b.Stack, jsii.String("Source"), &infra.QueueSourceProps{
		Function: handler, Queue: queue, Retention: awscdk.Duration_Days(jsii.Number(23)), // the default of lambdabatch
	})
	if b.Local { // it receives no message while the function has one, so this is not too long for the queue
		for _, fn := range []awslambda.Function{handler, extended} {
			fn.Node().DefaultChild().(awslambda.CfnFunction).SetTimeout(jsii.Number(localTimeout))
		}
	}
	b.output("Queue", queue.QueueUrl())
	b.output("Dead", dead.QueueUrl())

	reconciler := infra.NewReconciler(b.Stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
		Function: function("Reconcile", 60, "reconciler"), Table: records,
		Scan: &infra.ScanProps{Every: awscdk.Duration_Seconds(jsii.Number(0))}, // a killed run announces itself
	})
	topic, pages := awssns.NewTopic(b.Stack, jsii.String("Page"), nil), awssqs.NewQueue(b.Stack, jsii.String("Pages"), nil)
	topic.AddSubscription(awssnssubscriptions.NewSqsSubscription(pages, &awssnssubscriptions.SqsSubscriptionProps{RawMessageDelivery: jsii.Bool(true)}))
	b.output("Pages", pages.QueueUrl())
	infra.NewIdempotencyAlarms(b.Stack, jsii.String("Alarms"), &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String(nameOf(b.ID)), Operations: jsii.Strings(wire.Refused), Table: records,
		Functions: &[]awslambda.IFunction{handler, extended}, Reconciler: reconciler, DeadLetterQueues: &[]awssqs.IQueue{dead},
		Page: topic, Ticket: topic,
	})
}

// table creates a table that has no records.
func (b builder) table(id string) awsdynamodb.TableV2 {
	return awsdynamodb.NewTableV2(b.Stack, &id, &awsdynamodb.TablePropsV2{
		PartitionKey:  &awsdynamodb.Attribute{Name: jsii.String("pk"), Type: awsdynamodb.AttributeType_STRING},
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
}

// function creates a function with its own log group and role. A log group that
// Lambda would create, and a permission to create one, would outlive the stack.
func (b builder) function(id string, timeout float64, layers []awslambda.ILayerVersion) awslambda.Function {
	architecture := awslambda.Architecture_ARM_64()
	if b.Arch == "amd64" {
		architecture = awslambda.Architecture_X86_64()
	}
	logs := awslogs.NewLogGroup(b.Stack, jsii.String(id+"Logs"), &awslogs.LogGroupProps{
		LogGroupName: jsii.String(nameOf(b.ID) + "-" + id), Retention: awslogs.RetentionDays_ONE_DAY, RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
	role := awsiam.NewRole(b.Stack, jsii.String(id+"Role"), &awsiam.RoleProps{
		RoleName: jsii.String(b.RolePrefix + nameOf(b.ID) + "-" + id), AssumedBy: awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
	})
	awsiam.Grant_AddToPrincipal(&awsiam.GrantOnPrincipalOptions{
		Grantee: role, Actions: jsii.Strings("logs:CreateLogStream", "logs:PutLogEvents"), ResourceArns: &[]*string{logs.LogGroupArn()},
	})
	return awslambda.NewFunction(b.Stack, jsii.String(id), &awslambda.FunctionProps{
		Runtime: awslambda.Runtime_PROVIDED_AL2023(), Architecture: architecture, Handler: jsii.String("bootstrap"), Code: b.code(functionArchive),
		Timeout: awscdk.Duration_Seconds(&timeout), MemorySize: jsii.Number(128), Role: role, LogGroup: logs, Layers: &layers,
		// The claim "metrics" is about lines that this filter would drop.
		LoggingFormat: awslambda.LoggingFormat_JSON, ApplicationLogLevelV2: awslambda.ApplicationLogLevel_WARN,
	})
}

func (b builder) code(object string) awslambda.Code {
	return awslambda.Code_FromBucketV2(b.bucket, &object, nil)
}

func (b builder) output(name string, value *string) {
	awscdk.NewCfnOutput(b.Stack, jsii.String(name+"Output"), &awscdk.CfnOutputProps{Value: value}).OverrideLogicalId(jsii.String(name + "Output"))
}

// wrongs make a stack wrong. Each makes one claim false, so that tests can show that
// the claim sees it.
var wrongs = map[string]func(kind string, resource map[string]any){
	// The table does not grant the operation of the function.
	"grant": func(kind string, r map[string]any) {
		if kind == "AWS::IAM::Policy" {
			replace(r, wire.Operation+"#", "other#")
		}
	},
	// The index has another key than the records.
	"index": func(kind string, r map[string]any) {
		if kind == "AWS::DynamoDB::GlobalTable" {
			replace(r, "rk", "other")
		}
	},
	// The lease ends when Lambda begins to kill.
	"margin": func(kind string, r map[string]any) {
		if kind == "AWS::Lambda::Function" {
			r["Environment"].(map[string]any)["Variables"].(map[string]any)["MARGIN"] = "1ms"
		}
	},
	// A response about single messages acknowledges all of them.
	"queue": func(kind string, r map[string]any) {
		if kind == "AWS::Lambda::EventSourceMapping" {
			delete(r, "FunctionResponseTypes")
		}
	},
	// An alarm has no action.
	"alarm": func(kind string, r map[string]any) {
		if kind == "AWS::CloudWatch::Alarm" {
			delete(r, "AlarmActions")
		}
	},
}

// spoil returns the template as JSON, made wrong.
func spoil(template any, names []string) ([]byte, error) {
	text, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		var t map[string]any
		if err := json.Unmarshal(text, &t); err != nil {
			return nil, err
		}
		change, ok := wrongs[name]
		if !ok {
			return nil, fmt.Errorf("no wrong stack is called %q", name)
		}
		for _, r := range t["Resources"].(map[string]any) {
			resource := r.(map[string]any)
			properties, _ := resource["Properties"].(map[string]any)
			change(resource["Type"].(string), properties)
		}
		spoilt, err := json.Marshal(t)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(spoilt, text) {
			return nil, fmt.Errorf("the wrong stack %q is like the right one", name)
		}
		text = spoilt
	}
	return text, nil
}

// replace replaces the beginning of each text in v that begins with old.
func replace(v any, old, text string) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = replace(v[name], old, text)
		}
	case []any:
		for i := range v {
			v[i] = replace(v[i], old, text)
		}
	case string:
		if rest, ok := strings.CutPrefix(v, old); ok {
			return text + rest
		}
	}
	return v
}
