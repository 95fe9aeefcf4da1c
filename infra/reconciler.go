package infra

import (
	"fmt"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awseventstargets"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// ExhaustedVariable is the environment variable that tells a reconciler the URL
// of the queue for the records it gives up.
const ExhaustedVariable = "ONCE_EXHAUSTED_QUEUE_URL"

// ReconcilerProps are given to [NewReconciler].
type ReconcilerProps struct {
	// Function runs idempotent.Reconciler. Required. Its OnExhausted sends what it
	// gives up to the queue in ONCE_EXHAUSTED_QUEUE_URL.
	Function awslambda.Function

	// Table is what it works through. Required.
	Table *IdempotencyTable

	// Every is the pause between two runs, in whole minutes. Default: one minute.
	Every awscdk.Duration
}

// Reconciler runs a function on a schedule that settles what is due, and keeps
// what it cannot settle in front of people.
type Reconciler struct {
	constructs.Construct
	Function awslambda.Function
	// Exhausted holds a message for each record that reconciliation has given up.
	Exhausted awssqs.Queue
	// Undelivered holds the runs that never came to the function.
	Undelivered awssqs.Queue
}

// NewReconciler creates the schedule and the queues, and grants the function
// what it needs. Runs that overlap do no harm: every write is conditional.
func NewReconciler(scope constructs.Construct, id *string, props *ReconcilerProps) *Reconciler {
	if props == nil {
		props = &ReconcilerProps{}
	}
	r := &Reconciler{Construct: constructs.NewConstruct(scope, id), Function: props.Function}
	r.Exhausted = deadLetters(r.Construct, "Exhausted")
	r.Undelivered = deadLetters(r.Construct, "Undelivered")
	if props.Function == nil {
		refuse(r.Construct, "Function is not set; it is the one that runs idempotent.Reconciler")
	}
	if props.Table == nil {
		refuse(r.Construct, "Table is not set; it is the one that is reconciled")
	}
	if every := duration(props.Every, time.Minute); every < time.Minute || every%time.Minute != 0 {
		refuse(r.Construct, fmt.Sprintf("Every is %v and has to be whole minutes: EventBridge knows nothing in between", inWords(every)))
		return r
	}
	if props.Function == nil || props.Table == nil {
		return r
	}
	props.Table.GrantReconciler(props.Function)
	r.Exhausted.GrantSendMessages(props.Function)
	props.Function.AddEnvironment(jsii.String(ExhaustedVariable), r.Exhausted.QueueUrl(), nil)
	every := props.Every
	if every == nil {
		every = awscdk.Duration_Minutes(jsii.Number(1))
	}
	awsevents.NewRule(r.Construct, jsii.String("Schedule"), &awsevents.RuleProps{
		Schedule: awsevents.Schedule_Rate(every),
		Targets: &[]awsevents.IRuleTarget{awseventstargets.NewLambdaFunction(props.Function, &awseventstargets.LambdaFunctionProps{
			DeadLetterQueue: r.Undelivered,
			// The next run does what this one would have done.
			RetryAttempts: jsii.Number(0),
		})},
	})
	return r
}

// deadLetters creates a queue for people to look into: encrypted, and kept as
// long as SQS can.
func deadLetters(scope constructs.Construct, id string) awssqs.Queue {
	return awssqs.NewQueue(scope, jsii.String(id), &awssqs.QueueProps{
		RetentionPeriod: awscdk.Duration_Days(jsii.Number(14)),
		Encryption:      awssqs.QueueEncryption_SQS_MANAGED,
		EnforceSSL:      jsii.Bool(true),
	})
}
