// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/csv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

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
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"

	"github.com/once-lambda/once/infra"
)

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
