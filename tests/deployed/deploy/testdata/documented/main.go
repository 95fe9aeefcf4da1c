// SPDX-License-Identifier: Apache-2.0

// Command documented is a CDK app with the programs of the documentation, and the
// constructs as docs/deploy-cdk.md uses them.
package main

import (
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambdaeventsources"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/infra"
)

func main() {
	defer jsii.Close()
	app := awscdk.NewApp(nil)
	get := func(name string) *string {
		value, _ := app.Node().TryGetContext(jsii.String(name)).(string)
		return &value
	}
	stack := awscdk.NewStack(app, get("stack"), nil)
	output := func(name string, value *string) {
		awscdk.NewCfnOutput(stack, jsii.String(name), &awscdk.CfnOutputProps{Value: value})
	}
	architecture := awslambda.Architecture_X86_64()
	if *get("arch") == "arm64" {
		architecture = awslambda.Architecture_ARM_64()
	}
	const orderTimeout = 30
	function := func(id, program, path string, timeout float64) awslambda.Function {
		fn := awslambda.NewFunction(stack, jsii.String(id), &awslambda.FunctionProps{
			Runtime: awslambda.Runtime_PROVIDED_AL2023(), Architecture: architecture, Handler: jsii.String("bootstrap"),
			Code:          awslambda.Code_FromAsset(jsii.String(filepath.Join(*get("bundles"), program+"-"+*get("arch")+".zip")), nil),
			Timeout:       awscdk.Duration_Seconds(jsii.Number(timeout)),
			LoggingFormat: awslambda.LoggingFormat_JSON,
			Environment: &map[string]*string{
				"PROVIDER_URL":          jsii.String(*get("providerUrl") + path),
				"AWS_LAMBDA_LOG_FORMAT": jsii.String("JSON"), // Lambda sets it; LocalStack does not
			},
		})
		output(id+"Name", fn.FunctionName())
		return fn
	}
	topic := func(id string) awssns.Topic { return awssns.NewTopic(stack, jsii.String(id), nil) }

	charge := function("Charge", "api", "/charges", 30)              // README.md
	reconcile := function("Reconcile", "reconciler", "/charges", 60) // docs/reconciler.md
	orders := function("Orders", "queue", "/orders", orderTimeout)   // docs/batch.md
	invoices := function("Invoices", "metrics", "", 30)              // docs/observe.md
	shop := awsdynamodb.NewTableV2(stack, jsii.String("Shop"), &awsdynamodb.TablePropsV2{
		PartitionKey:  &awsdynamodb.Attribute{Name: jsii.String("pk"), Type: awsdynamodb.AttributeType_STRING},
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
	shop.Grant(orders, jsii.String("dynamodb:PutItem"))
	orders.AddEnvironment(jsii.String("ORDERS_TABLE"), shop.TableName(), nil)
	dead := awssqs.NewQueue(stack, jsii.String("Dead"), &awssqs.QueueProps{RetentionPeriod: awscdk.Duration_Days(jsii.Number(14))})
	queue := awssqs.NewQueue(stack, jsii.String("Queue"), &awssqs.QueueProps{
		VisibilityTimeout: awscdk.Duration_Seconds(jsii.Number(6 * orderTimeout)),
		DeadLetterQueue:   &awssqs.DeadLetterQueue{Queue: dead, MaxReceiveCount: jsii.Number(3)},
	})

	records := infra.NewIdempotencyTable(stack, jsii.String("Records"), nil)
	records.GrantHandler(charge, jsii.String("POST /charges"))
	records.GrantHandler(orders, jsii.String("take-order"))
	records.GrantHandler(invoices, jsii.String("send-invoice"))
	reconciler := infra.NewReconciler(stack, jsii.String("Reconciler"), &infra.ReconcilerProps{Function: reconcile, Table: records})
	infra.NewQueueSource(stack, jsii.String("OrderSource"), &infra.QueueSourceProps{
		Function: orders, Queue: queue,
		Retention: awscdk.Duration_Days(jsii.Number(23)),
		Source:    &awslambdaeventsources.SqsEventSourceProps{BatchSize: jsii.Number(10)},
	})
	infra.NewIdempotencyAlarms(stack, jsii.String("OnceAlarms"), &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("Documented"), Table: records,
		Functions:  &[]awslambda.IFunction{invoices},
		Reconciler: reconciler, DeadLetterQueues: &[]awssqs.IQueue{dead}, Page: topic("Pager"), Ticket: topic("Tickets"),
	})
	output("RecordsTable", records.Table.TableName())
	output("ShopTable", shop.TableName())
	output("QueueURL", queue.QueueUrl())
	app.Synth(nil)
}
