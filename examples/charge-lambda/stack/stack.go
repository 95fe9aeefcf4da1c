// SPDX-License-Identifier: Apache-2.0

// Command stack is the CDK app of the example: a service with an HTTP API and a
// queue, built with the constructs of package infra.
//
//	REST API, with API keys ─┐
//	function URL ────────────┴► charge ──┐
//	queue ─► orders ─────────────────────┼► table of records ◄─ reconciler ◄─ every minute
//	         └► table of the shop        │
//	dashboard, alarms ◄──────────────────┘
//
// It reads the context values providerUrl, and optionally arch, orderTimeout and
// stack.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigateway"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambdaeventsources"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"

	"github.com/once-lambda/once/infra"
)

func main() {
	os.Exit(withCDK(func() int {
		app := awscdk.NewApp(nil)
		if err := build(app); err != nil {
			fmt.Fprintln(os.Stderr, "stack:", err)
			return 1
		}
		app.Synth(nil)
		return 0
	}))
}

// withCDK calls run, ends the CDK's Node process, and removes its files. The jsii
// runtime waits for that process in two places at once, and the second one prints
// "exited abnormally: waitid: no child processes" (its process.go, ensureStarted
// and Close), so withCDK closes standard error after run.
func withCDK(run func() int) int {
	code := run()
	os.Stderr.Close()
	jsii.Close()
	return code
}

// build adds the stack to the app.
func build(app awscdk.App) error {
	get := func(name, otherwise string) string {
		if value, ok := app.Node().TryGetContext(jsii.String(name)).(string); ok {
			return value
		}
		return otherwise
	}
	p := props{bundles: "../../../.cache/bundles", arch: get("arch", "arm64"), providerURL: get("providerUrl", "")}
	timeout := get("orderTimeout", "30")
	var err error
	switch p.orderTimeout, err = strconv.ParseFloat(timeout, 64); {
	case p.providerURL == "":
		return fmt.Errorf("the payment provider's address is missing: set it with -c providerUrl=https://…")
	case architectures[p.arch] == nil:
		return fmt.Errorf("invalid arch %q: must be arm64 or amd64", p.arch)
	case err != nil || p.orderTimeout < 1 || p.orderTimeout > 900:
		return fmt.Errorf("invalid orderTimeout %q: must be seconds from 1 to 900", timeout)
	}
	newStack(app, get("stack", "ChargeStack"), p)
	return nil
}

// architectures are the processors of the bundles.
var architectures = map[string]func() awslambda.Architecture{"arm64": awslambda.Architecture_ARM_64, "amd64": awslambda.Architecture_X86_64}

// props are the properties of [newStack]. All are required.
type props struct {
	bundles      string  // the folder that bundle writes
	arch         string  // arm64 or amd64
	providerURL  string  // the payment provider's address
	orderTimeout float64 // of the function that reads the queue, in seconds
}

// The operations of the functions, as in their code.
const (
	chargeOperation = "POST /charges"
	orderOperation  = "take-order"
)

// stack holds what the parts of the stack share.
type stack struct {
	awscdk.Stack
	props
	records *infra.IdempotencyTable

	rest, url awslambda.Function // take charges
	queued    awslambda.Function // takes orders
	dead      awssqs.Queue       // orders that were given up
}

// newStack creates the stack. Synthesis checks it with the rules of cdk-nag.
func newStack(scope constructs.Construct, id string, p props) awscdk.Stack {
	s := &stack{Stack: awscdk.NewStack(scope, jsii.String(id), nil), props: p}
	s.records = infra.NewIdempotencyTable(s.Stack, jsii.String("Records"), nil)
	s.output("RecordsTable", s.records.Table.TableName())
	s.charges()
	s.orders()
	s.watch()
	awscdk.Aspects_Of(s.Stack).Add(cdknag.NewAwsSolutionsChecks(nil), nil)
	return s.Stack
}

// charges creates the functions that take charges: from a REST API, whose API
// keys are its tenants, and from a function URL, whose only client is another
// service.
func (s *stack) charges() {
	const timeout = 10 // seconds; API Gateway waits for 29
	s.rest = s.function("ChargesREST", "charge", timeout, map[string]string{"EVENTS": "rest"})
	s.records.GrantHandler(s.rest, jsii.String(chargeOperation))
	api := awsapigateway.NewLambdaRestApi(s.Stack, jsii.String("API"), &awsapigateway.LambdaRestApiProps{
		Handler:              s.rest,
		CloudWatchRole:       jsii.Bool(false),
		DefaultMethodOptions: &awsapigateway.MethodOptions{ApiKeyRequired: jsii.Bool(true)},
		DeployOptions: &awsapigateway.StageOptions{
			AccessLogDestination: awsapigateway.NewLogGroupLogDestination(awslogs.NewLogGroup(s.Stack, jsii.String("APILogs"), &awslogs.LogGroupProps{
				Retention: awslogs.RetentionDays_ONE_MONTH, RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
			})),
			AccessLogFormat:      awsapigateway.AccessLogFormat_JsonWithStandardFields(nil),
			ThrottlingRateLimit:  jsii.Number(100),
			ThrottlingBurstLimit: jsii.Number(200),
		},
	})
	suppress(api, apiReasons)
	plan := api.AddUsagePlan(jsii.String("Tenants"), &awsapigateway.UsagePlanProps{
		ApiStages: &[]*awsapigateway.UsagePlanPerApiStage{{Stage: api.DeploymentStage()}},
	})
	for _, tenant := range []string{"TenantA", "TenantB"} {
		key := api.AddApiKey(jsii.String(tenant), nil)
		plan.AddApiKey(key, nil)
		s.output(tenant+"Key", key.KeyId())
	}
	s.output("APIURL", api.Url())

	s.url = s.function("ChargesURL", "charge", timeout, nil)
	s.records.GrantHandler(s.url, jsii.String(chargeOperation))
	s.output("FunctionURL", s.url.AddFunctionUrl(&awslambda.FunctionUrlOptions{AuthType: awslambda.FunctionUrlAuthType_AWS_IAM}).Url())
}

// orders creates the function that takes orders from a queue, and its dead-letter
// queue.
func (s *stack) orders() {
	s.queued = s.function("Orders", "orders", s.orderTimeout, nil)
	s.records.GrantHandler(s.queued, jsii.String(orderOperation))
	shop := awsdynamodb.NewTableV2(s.Stack, jsii.String("Shop"), &awsdynamodb.TablePropsV2{
		PartitionKey:       &awsdynamodb.Attribute{Name: jsii.String("pk"), Type: awsdynamodb.AttributeType_STRING},
		DeletionProtection: jsii.Bool(true),
		PointInTimeRecoverySpecification: &awsdynamodb.PointInTimeRecoverySpecification{
			PointInTimeRecoveryEnabled: jsii.Bool(true),
		},
	})
	shop.Grant(s.queued, jsii.String("dynamodb:PutItem"), jsii.String("dynamodb:UpdateItem"))
	s.queued.AddEnvironment(jsii.String("SHOP_TABLE"), shop.TableName(), nil)
	s.dead = awssqs.NewQueue(s.Stack, jsii.String("DeadOrders"), &awssqs.QueueProps{
		RetentionPeriod: awscdk.Duration_Days(jsii.Number(14)), EnforceSSL: jsii.Bool(true),
	})
	queue := awssqs.NewQueue(s.Stack, jsii.String("OrderQueue"), &awssqs.QueueProps{
		VisibilityTimeout: awscdk.Duration_Seconds(jsii.Number(6 * s.orderTimeout)),
		DeadLetterQueue:   &awssqs.DeadLetterQueue{Queue: s.dead, MaxReceiveCount: jsii.Number(3)},
		EnforceSSL:        jsii.Bool(true),
	})
	infra.NewQueueSource(s.Stack, jsii.String("OrderSource"), &infra.QueueSourceProps{
		Function: s.queued, Queue: queue,
		Retention: awscdk.Duration_Days(jsii.Number(23)), // the default of lambdabatch
		Source:    &awslambdaeventsources.SqsEventSourceProps{BatchSize: jsii.Number(10)},
	})
	s.output("OrderQueueURL", queue.QueueUrl())
	s.output("DeadOrdersURL", s.dead.QueueUrl())
	s.output("ShopTable", shop.TableName())
}

// watch creates the reconciler, the alarms, with a topic for each urgency, and the
// dashboards.
func (s *stack) watch() {
	topic := func(id string) awssns.Topic {
		t := awssns.NewTopic(s.Stack, jsii.String(id), &awssns.TopicProps{EnforceSSL: jsii.Bool(true)})
		s.output(id+"Topic", t.TopicArn())
		return t
	}
	pager, tickets := topic("Pager"), topic("Tickets")
	reconciler := infra.NewReconciler(s.Stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
		Function: s.function("ReconcilerFunction", "reconciler", 60, nil), Table: s.records,
	})
	suppress(reconciler.Exhausted, handedOverReasons)
	suppress(reconciler.Undelivered, handedOverReasons)
	s.watchOne("Charge", chargeOperation, &infra.IdempotencyAlarmsProps{
		Namespace: jsii.String("Charges"), Table: s.records,
		Functions: &[]awslambda.IFunction{s.rest, s.url}, Reconciler: reconciler, Page: pager, Ticket: tickets,
	})
	s.watchOne("Order", orderOperation, &infra.IdempotencyAlarmsProps{ // without a reconciler: the next delivery continues an order
		Namespace: jsii.String("OrderQueue"), Table: s.records,
		Functions: &[]awslambda.IFunction{s.queued}, DeadLetterQueues: &[]awssqs.IQueue{s.dead}, Page: pager, Ticket: tickets,
	})
}

func (s *stack) watchOne(id, operation string, props *infra.IdempotencyAlarmsProps) {
	infra.NewIdempotencyDashboard(s.Stack, jsii.String(id+"Dashboard"), &infra.IdempotencyDashboardProps{
		Namespace: props.Namespace, Operations: jsii.Strings(operation),
		Alarms: infra.NewIdempotencyAlarms(s.Stack, jsii.String(id+"Alarms"), props),
	})
}

// function creates a function from its bundle, with its own log group.
func (s *stack) function(id, program string, timeout float64, env map[string]string) awslambda.Function {
	variables := map[string]*string{"PROVIDER_URL": jsii.String(s.providerURL)}
	for name, value := range env {
		variables[name] = jsii.String(value)
	}
	logs := awslogs.NewLogGroup(s.Stack, jsii.String(id+"Logs"), &awslogs.LogGroupProps{
		Retention: awslogs.RetentionDays_ONE_MONTH, RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
	// The role that the CDK would create allows a function to write to every
	// log of the account.
	role := awsiam.NewRole(s.Stack, jsii.String(id+"Role"), &awsiam.RoleProps{
		AssumedBy: awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
	})
	awsiam.Grant_AddToPrincipal(&awsiam.GrantOnPrincipalOptions{
		Grantee: role, Actions: jsii.Strings("logs:CreateLogStream", "logs:PutLogEvents"),
		ResourceArns: &[]*string{logs.LogGroupArn()},
	})
	return awslambda.NewFunction(s.Stack, jsii.String(id), &awslambda.FunctionProps{
		Runtime:      awslambda.Runtime_PROVIDED_AL2023(),
		Architecture: architectures[s.arch](),
		Handler:      jsii.String("bootstrap"),
		Code:         awslambda.Code_FromAsset(jsii.String(filepath.Join(s.bundles, program+"-"+s.arch+".zip")), nil),
		Timeout:      awscdk.Duration_Seconds(jsii.Number(timeout)),
		MemorySize:   jsii.Number(256),
		Environment:  &variables,
		Role:         role,
		LogGroup:     logs,
		// The functions log with lambdacontext.NewLogger, which follows this setting.
		LoggingFormat: awslambda.LoggingFormat_JSON,
	})
}

func (s *stack) output(name string, value *string) {
	awscdk.NewCfnOutput(s.Stack, jsii.String(name), &awscdk.CfnOutputProps{Value: value})
}

// suppress records why rules of cdk-nag do not apply to a construct and its
// children.
func suppress(c constructs.IConstruct, reasons map[string]string) {
	for rule, reason := range reasons {
		cdknag.NagSuppressions_AddResourceSuppressions(c, &[]*cdknag.NagPackSuppression{
			{Id: jsii.String(rule), Reason: jsii.String(reason)},
		}, jsii.Bool(true))
	}
}

// The accepted findings of cdk-nag's AwsSolutions rules, with the reasons.
var (
	apiReasons = map[string]string{
		"AwsSolutions-APIG2": "The function validates requests itself and describes errors in problem documents.",
		"AwsSolutions-APIG3": "The web ACL of an API depends on its account; the example has none.",
		"AwsSolutions-APIG4": "The callers are services that hold an API key, which is also the scope of their idempotency keys.",
		"AwsSolutions-APIG6": "Access logs are on. Execution logs would contain payloads.",
		"AwsSolutions-COG4":  "The callers are services, not users of a pool.",
	}
	handedOverReasons = map[string]string{
		"AwsSolutions-SQS3": "Messages wait here for an operator, as in a dead-letter queue; an alarm reports each.",
	}
)
