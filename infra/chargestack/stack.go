// Package chargestack is the example as a CDK stack: a service with an HTTP API
// and a queue, built with the constructs of package infra.
//
//	REST API, with API keys ─┐
//	function URL ────────────┴► charge ──┐
//	queue ─► orders ─────────────────────┼► table of records ◄─ reconciler ◄─ every minute
//	         └► table of the shop        │
//	dashboard, alarms ◄──────────────────┘
package chargestack

import (
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigateway"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatchactions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambdaeventsources"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/infra"
	"github.com/once-lambda/once/infra/bundle"
)

// Props are the properties of [New]. The zero value of each field is its
// documented default.
type Props struct {
	awscdk.StackProps

	// Root is the folder of the repository, which contains the bundles. Required.
	Root string

	// Arch is the processor, arm64 or amd64. Default: arm64.
	Arch string

	// ProviderURL is the payment provider's address. Required.
	ProviderURL string

	// OrderTimeout is the time-out of the function that reads the queue, in
	// seconds. The queue's visibility time-out is six times as long. Default:
	// 30.
	OrderTimeout float64
}

// The namespaces of the functions' metrics, and their operations, as in their
// code.
const (
	chargeNamespace = "Charges"
	chargeOperation = "POST /charges"
	orderNamespace  = "OrderQueue"
	orderOperation  = "take-order"
)

// stack holds what the parts of the stack share.
type stack struct {
	awscdk.Stack
	props   Props
	records *infra.IdempotencyTable
}

// New creates the stack.
func New(scope constructs.Construct, id string, props Props) awscdk.Stack {
	if props.Arch == "" {
		props.Arch = "arm64"
	}
	if props.OrderTimeout == 0 {
		props.OrderTimeout = 30
	}
	s := &stack{Stack: awscdk.NewStack(scope, jsii.String(id), &props.StackProps), props: props}
	s.records = infra.NewIdempotencyTable(s.Stack, jsii.String("Records"), nil)
	s.output("RecordsTable", s.records.Table.TableName())
	s.charges()
	dead := s.orders()
	reconciler := s.reconciler()
	s.watch(reconciler, dead)
	return s.Stack
}

// function creates a function from its bundle, with its own log group.
func (s *stack) function(id, program string, timeout float64, env map[string]string) awslambda.Function {
	architecture := awslambda.Architecture_ARM_64()
	if s.props.Arch == "amd64" {
		architecture = awslambda.Architecture_X86_64()
	}
	variables := map[string]*string{"PROVIDER_URL": jsii.String(s.props.ProviderURL)}
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
		Architecture: architecture,
		Handler:      jsii.String("bootstrap"),
		Code:         awslambda.Code_FromAsset(jsii.String(filepath.Join(s.props.Root, bundle.Path(program, s.props.Arch))), nil),
		Timeout:      awscdk.Duration_Seconds(jsii.Number(timeout)),
		MemorySize:   jsii.Number(256),
		Environment:  &variables,
		Role:         role,
		LogGroup:     logs,
	})
}

// charges creates the functions that take charges: from a REST API, whose API
// keys are its tenants, and from a function URL, whose only client is another
// service.
func (s *stack) charges() {
	const timeout = 10 // seconds; API Gateway waits for 29
	rest := s.function("ChargesREST", "charge", timeout, map[string]string{"EVENTS": "rest", "CALLER": "api-key"})
	s.records.GrantHandler(rest)
	api := awsapigateway.NewLambdaRestApi(s.Stack, jsii.String("API"), &awsapigateway.LambdaRestApiProps{
		Handler:              rest,
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

	url := s.function("ChargesURL", "charge", timeout, nil)
	s.records.GrantHandler(url)
	s.output("FunctionURL", url.AddFunctionUrl(&awslambda.FunctionUrlOptions{AuthType: awslambda.FunctionUrlAuthType_AWS_IAM}).Url())
}

// orders creates the function that takes orders from a queue, and returns the
// dead-letter queue.
func (s *stack) orders() awssqs.Queue {
	fn := s.function("Orders", "orders", s.props.OrderTimeout, nil)
	s.records.GrantHandler(fn)
	shop := awsdynamodb.NewTableV2(s.Stack, jsii.String("Shop"), &awsdynamodb.TablePropsV2{
		PartitionKey:       &awsdynamodb.Attribute{Name: jsii.String("pk"), Type: awsdynamodb.AttributeType_STRING},
		DeletionProtection: jsii.Bool(true),
		PointInTimeRecoverySpecification: &awsdynamodb.PointInTimeRecoverySpecification{
			PointInTimeRecoveryEnabled: jsii.Bool(true),
		},
	})
	shop.Grant(fn, jsii.String("dynamodb:PutItem"), jsii.String("dynamodb:UpdateItem"))
	fn.AddEnvironment(jsii.String("SHOP_TABLE"), shop.TableName(), nil)
	dead := awssqs.NewQueue(s.Stack, jsii.String("DeadOrders"), &awssqs.QueueProps{
		RetentionPeriod: awscdk.Duration_Days(jsii.Number(14)), EnforceSSL: jsii.Bool(true),
	})
	queue := awssqs.NewQueue(s.Stack, jsii.String("OrderQueue"), &awssqs.QueueProps{
		VisibilityTimeout: awscdk.Duration_Seconds(jsii.Number(6 * s.props.OrderTimeout)),
		DeadLetterQueue:   &awssqs.DeadLetterQueue{Queue: dead, MaxReceiveCount: jsii.Number(3)},
		EnforceSSL:        jsii.Bool(true),
	})
	infra.NewQueueSource(s.Stack, jsii.String("OrderSource"), &infra.QueueSourceProps{
		Function: fn, Queue: queue,
		Retention: awscdk.Duration_Hours(jsii.Number(4*24 + 12)), // the default of lambdabatch
		Source:    &awslambdaeventsources.SqsEventSourceProps{BatchSize: jsii.Number(10)},
	})
	s.output("OrderQueueURL", queue.QueueUrl())
	s.output("DeadOrdersURL", dead.QueueUrl())
	s.output("ShopTable", shop.TableName())
	return dead
}

func (s *stack) reconciler() *infra.Reconciler {
	r := infra.NewReconciler(s.Stack, jsii.String("Reconciler"), &infra.ReconcilerProps{
		Function: s.function("ReconcilerFunction", "reconciler", 60, nil),
		Table:    s.records,
	})
	suppress(r.Exhausted, handedOverReasons)
	suppress(r.Undelivered, handedOverReasons)
	return r
}

// watch creates the alarms and dashboards.
func (s *stack) watch(r *infra.Reconciler, dead awssqs.Queue) {
	topic := awssns.NewTopic(s.Stack, jsii.String("Alarms"), &awssns.TopicProps{EnforceSSL: jsii.Bool(true)})
	s.output("AlarmTopic", topic.TopicArn())
	for _, w := range []struct {
		id, namespace, operation string
		reconciled               bool
		dead                     []awssqs.IQueue
	}{
		{"Charge", chargeNamespace, chargeOperation, true, []awssqs.IQueue{r.Exhausted, r.Undelivered}},
		{"Order", orderNamespace, orderOperation, false, []awssqs.IQueue{dead}}, // the next delivery continues an order
	} {
		alarms := infra.NewIdempotencyAlarms(s.Stack, jsii.String(w.id+"Alarms"), &infra.IdempotencyAlarmsProps{
			Namespace: jsii.String(w.namespace), Operations: jsii.Strings(w.operation), Table: s.records,
			Reconciled: jsii.Bool(w.reconciled), DeadLetterQueues: &w.dead, Action: awscloudwatchactions.NewSnsAction(topic),
		})
		infra.NewIdempotencyDashboard(s.Stack, jsii.String(w.id+"Dashboard"), &infra.IdempotencyDashboardProps{
			Namespace: jsii.String(w.namespace), Operations: jsii.Strings(w.operation), Alarms: alarms,
		})
	}
}

func (s *stack) output(name string, value *string) {
	awscdk.NewCfnOutput(s.Stack, jsii.String(name), &awscdk.CfnOutputProps{Value: value})
}
