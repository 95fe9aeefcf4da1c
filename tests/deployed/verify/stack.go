// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

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

// shape is what the stack depends on.
type shape struct {
	ID, Account, Region  string
	Arch                 string // arm64 or amd64
	Boundary, RolePrefix string
	Replicas             []string // two regions of a table in three; or empty
	Local                bool     // on LocalStack
	Wrong                []string // names of wrongs
}

// synthesise reads a shape as JSON and writes the template of its stack, for an account
// without the resources of cdk bootstrap.
func synthesise(in io.Reader, out io.Writer) error {
	var s shape
	if err := json.NewDecoder(in).Decode(&s); err != nil {
		return err
	}
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
	text, err := spoil(app.Synth(nil).GetStackByName(&name).Template(), s.Wrong)
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

// builder builds the stack.
type builder struct {
	awscdk.Stack
	shape
	bucket awss3.IBucket // of the archives
}

func (b builder) build() {
	key := awskms.NewKey(b.Stack, jsii.String("Key"), &awskms.KeyProps{
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY, PendingWindow: awscdk.Duration_Days(jsii.Number(7)),
	})
	encrypted := temporary()
	encrypted.Encryption = awsdynamodb.TableEncryptionV2_CustomerManagedKey(key, nil)
	records := infra.NewIdempotencyTable(b.Stack, jsii.String("Records"), encrypted)
	items, units := b.table("Items"), b.table("Units")
	if len(b.Replicas) > 0 {
		strong := temporary()
		strong.MultiRegionConsistency, strong.Replicas = awsdynamodb.MultiRegionConsistency_STRONG, new([]*awsdynamodb.ReplicaTableProps)
		for _, region := range b.Replicas {
			*strong.Replicas = append(*strong.Replicas, &awsdynamodb.ReplicaTableProps{Region: jsii.String(region)})
		}
		b.output("Strong", infra.NewIdempotencyTable(b.Stack, jsii.String("Strong"), strong).Table.TableName())
	}

	extension := awslambda.NewLayerVersion(b.Stack, jsii.String("Extension"), &awslambda.LayerVersionProps{
		Code: b.code("extension.zip"), LayerVersionName: jsii.String(nameOf(b.ID) + "-Extension"),
	})
	handler, extended := b.function("Handler"), b.function("Extended", extension)
	for _, fn := range []awslambda.Function{handler, extended} {
		records.GrantHandler(fn, jsii.String(wire.Operation), jsii.String(wire.Counted))
		fn.AddEnvironment(jsii.String("ITEMS_TABLE"), items.TableName(), nil)
		items.Grant(fn, *jsii.Strings("dynamodb:PutItem", "dynamodb:GetItem", "dynamodb:UpdateItem")...)
	}
	topic, pages := awssns.NewTopic(b.Stack, jsii.String("Page"), nil), awssqs.NewQueue(b.Stack, jsii.String("Pages"), nil)
	topic.AddSubscription(awssnssubscriptions.NewSqsSubscription(pages, &awssnssubscriptions.SqsSubscriptionProps{RawMessageDelivery: jsii.Bool(true)}))
	infra.NewIdempotencyAlarms(b.Stack, jsii.String("Alarms"), &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String(nameOf(b.ID)), Operations: jsii.Strings(wire.Refused), Table: records,
		Functions: &[]awslambda.IFunction{handler, extended}, Page: topic, Ticket: topic,
	})
	for name, value := range map[string]*string{
		"Records": records.Table.TableName(), "Items": items.TableName(), "Units": units.TableName(), "Key": key.KeyArn(),
		"Pages": pages.QueueUrl(), "Handler": handler.FunctionName(), "Extended": extended.FunctionName(),
	} {
		b.output(name, value)
	}
}

// temporary returns the properties of a table that goes with the stack. A deleted
// table with backups would leave one for 35 days.
func temporary() *awsdynamodb.TablePropsV2 {
	return &awsdynamodb.TablePropsV2{
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY, DeletionProtection: jsii.Bool(false),
		PointInTimeRecoverySpecification: &awsdynamodb.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: jsii.Bool(false)},
	}
}

// table creates a table that has no records.
func (b builder) table(id string) awsdynamodb.TableV2 {
	props := temporary()
	props.PartitionKey = &awsdynamodb.Attribute{Name: jsii.String("pk"), Type: awsdynamodb.AttributeType_STRING}
	return awsdynamodb.NewTableV2(b.Stack, &id, props)
}

// function creates a function with its own log group and role. A log group that
// Lambda would create, and a permission to create one, would outlive the stack.
func (b builder) function(id string, layers ...awslambda.ILayerVersion) awslambda.Function {
	timeout, architecture := 3.0, awslambda.Architecture_ARM_64()
	if b.Local { // whose machine may be busy
		timeout = 30
	}
	if b.Arch == "amd64" {
		architecture = awslambda.Architecture_X86_64()
	}
	name := nameOf(b.ID) + "-" + id
	logs := awslogs.NewLogGroup(b.Stack, jsii.String(id+"Logs"), &awslogs.LogGroupProps{
		LogGroupName: jsii.String("/aws/lambda/" + name), Retention: awslogs.RetentionDays_ONE_DAY, RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
	role := awsiam.NewRole(b.Stack, jsii.String(id+"Role"), &awsiam.RoleProps{
		RoleName: jsii.String(b.RolePrefix + name), AssumedBy: awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
	})
	awsiam.Grant_AddToPrincipal(&awsiam.GrantOnPrincipalOptions{
		Grantee: role, Actions: jsii.Strings("logs:CreateLogStream", "logs:PutLogEvents"), ResourceArns: &[]*string{logs.LogGroupArn()},
	})
	return awslambda.NewFunction(b.Stack, jsii.String(id), &awslambda.FunctionProps{
		FunctionName: &name, Runtime: awslambda.Runtime_PROVIDED_AL2023(), Architecture: architecture, Handler: jsii.String("bootstrap"), Code: b.code("function.zip"),
		Timeout: awscdk.Duration_Seconds(&timeout), MemorySize: jsii.Number(128), Role: role, LogGroup: logs, Layers: &layers,
		// The claim "metrics" is about lines that this filter would drop.
		LoggingFormat: awslambda.LoggingFormat_JSON, ApplicationLogLevelV2: awslambda.ApplicationLogLevel_WARN,
	})
}

// code is an archive that deploy has uploaded.
func (b builder) code(object string) awslambda.Code {
	return awslambda.Code_FromBucketV2(b.bucket, &object, nil)
}

func (b builder) output(name string, value *string) {
	awscdk.NewCfnOutput(b.Stack, jsii.String(name+"Output"), &awscdk.CfnOutputProps{Value: value}).OverrideLogicalId(&name)
}

// wrongs make a stack wrong by another text in its template. Each makes one claim
// false, so that tests can show that the claim sees it.
var wrongs = map[string]struct{ text, wrong string }{
	// The table does not grant the operation of the function.
	"grant": {`"` + wire.Operation + `#`, `"other#`},
	// The lease ends when Lambda begins to kill.
	"margin": {`"ITEMS_TABLE":`, `"MARGIN":"1ms","ITEMS_TABLE":`},
	// An alarm has no action when it rings.
	"alarm": {`"AlarmActions":`, `"InsufficientDataActions":`},
}

// spoil returns the template as JSON, made wrong.
func spoil(template any, names []string) ([]byte, error) {
	text, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		w, ok := wrongs[name]
		if !ok || !bytes.Contains(text, []byte(w.text)) {
			return nil, fmt.Errorf("the template cannot be made wrong by %q", name)
		}
		text = bytes.ReplaceAll(text, []byte(w.text), []byte(w.wrong))
	}
	return text, nil
}
