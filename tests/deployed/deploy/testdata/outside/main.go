// SPDX-License-Identifier: Apache-2.0

// Command outside is a CDK app outside this repository's workspace. It adds once to
// resources that exist: a table, a queue and a function of another app.
package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsecs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
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
	stack := awscdk.NewStack(app, get("stack"), &awscdk.StackProps{Env: &awscdk.Environment{Account: get("account"), Region: get("region")}})
	records := infra.IdempotencyTableFrom(stack, jsii.String("Records"),
		awsdynamodb.TableV2_FromTableName(stack, jsii.String("Table"), get("table")), nil)

	// A function of this app, behind an alias.
	architecture := awslambda.Architecture_X86_64()
	if *get("arch") == "arm64" {
		architecture = awslambda.Architecture_ARM_64()
	}
	charge := awslambda.NewFunction(stack, jsii.String("Charge"), &awslambda.FunctionProps{
		Runtime: awslambda.Runtime_PROVIDED_AL2023(), Architecture: architecture, Handler: jsii.String("bootstrap"),
		Code:    awslambda.Code_FromAsset(get("bundle"), nil),
		Timeout: awscdk.Duration_Seconds(jsii.Number(30)),
		Environment: &map[string]*string{
			"PROVIDER_URL": get("providerUrl"), "ONCE_METRICS_NAMESPACE": jsii.String("Outside"),
		},
	})
	live := charge.AddAlias(jsii.String("live"), nil)
	records.GrantHandler(live, jsii.String("POST /charges"))
	awscdk.NewCfnOutput(stack, jsii.String("Live"), &awscdk.CfnOutputProps{Value: live.FunctionArn()})

	// A function and a queue of another app.
	orders := awslambda.Function_FromFunctionAttributes(stack, jsii.String("Orders"), &awslambda.FunctionAttributes{
		FunctionArn: get("function"), SameEnvironment: jsii.Bool(true),
		Role: awsiam.Role_FromRoleArn(stack, jsii.String("OrdersRole"), get("role"), nil),
	})
	records.GrantHandler(orders, jsii.String("take-order"))
	infra.NewQueueSource(stack, jsii.String("OrderSource"), &infra.QueueSourceProps{
		Function: orders, Queue: awssqs.Queue_FromQueueArn(stack, jsii.String("OrderQueue"), get("queue")),
		Retention: awscdk.Duration_Days(jsii.Number(23)),
	})

	// A task of ECS, or a role for one where ECS is missing.
	var task awsiam.IRole
	if *get("ecs") == "yes" {
		definition := awsecs.NewFargateTaskDefinition(stack, jsii.String("Task"), nil)
		definition.AddContainer(jsii.String("Main"), &awsecs.ContainerDefinitionOptions{
			Image:       awsecs.ContainerImage_FromRegistry(jsii.String("refunds"), nil),
			Environment: &map[string]*string{"ONCE_TABLE": records.Table.TableName()},
		})
		task = definition.TaskRole()
	} else {
		task = awsiam.NewRole(stack, jsii.String("TaskRole"), &awsiam.RoleProps{
			AssumedBy: awsiam.NewServicePrincipal(jsii.String("ecs-tasks.amazonaws.com"), nil),
		})
	}
	records.GrantHandler(task, jsii.String("refund")).AssertSuccess()
	app.Synth(nil)
}
