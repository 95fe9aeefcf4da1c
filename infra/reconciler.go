// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awseventstargets"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// ReconcilerProps are the properties of [NewReconciler].
type ReconcilerProps struct {
	// Function runs idempotent.Reconciler. Required. Its OnExhausted must send the
	// records that it gives up to the queue whose URL is in
	// ONCE_EXHAUSTED_QUEUE_URL. The construct sets that variable and ONCE_TABLE, which
	// end with the name of the table if it has one; of an imported function it cannot,
	// and synthesis warns.
	Function awslambda.IFunction

	// Table is the table to reconcile. Required.
	Table *IdempotencyTable

	// Every is the interval between two runs, in whole minutes. Default: one
	// minute.
	Every awscdk.Duration

	// Scan is how often and how fast the table is read for runs whose process ended
	// without a warning, which the index does not show. The function must use
	// dynamostore.Open. Default: see [ScanProps].
	Scan *ScanProps

	// Queues are the settings of the two queues. Default: see [ReconcilerQueues].
	Queues *ReconcilerQueues
}

// ReconcilerQueues are settings of the queues of a [Reconciler]. The queues retain
// messages for 14 days and refuse requests without TLS.
type ReconcilerQueues struct {
	// Name begins the names of the queues, NAME-exhausted and NAME-undelivered. It has
	// 1 to 68 letters, digits, hyphens and underscores. Default: names that
	// CloudFormation generates.
	Name *string

	// Key encrypts the messages. The construct allows the function and EventBridge to
	// use it; synthesis warns if the key is imported, because its policy cannot be
	// changed. Default: a key that SQS owns, without cost.
	Key awskms.IKey

	// RemovalPolicy is what happens to the queues when they are removed from the
	// stack. Default: DESTROY, with their messages.
	RemovalPolicy awscdk.RemovalPolicy
}

// Reconciler runs a function on a schedule, which settles due records and
// passes the records that it cannot settle to a queue.
type Reconciler struct {
	constructs.Construct
	// Function is the function of the properties.
	Function awslambda.IFunction
	// Exhausted holds a message for each record that reconciliation has given up.
	Exhausted awssqs.Queue
	// Undelivered holds the scheduled events that did not reach the function.
	Undelivered awssqs.Queue

	every length // the interval between two runs
	scan  *scan  // nil if the table or the function is missing
}

// NewReconciler creates the schedule and the queues, and grants the function the
// permissions it needs. Overlapping runs do no harm: every write is conditional.
func NewReconciler(scope constructs.Construct, id *string, props *ReconcilerProps) *Reconciler {
	if props == nil {
		props = &ReconcilerProps{}
	}
	r := &Reconciler{Construct: constructs.NewConstruct(scope, id), Function: props.Function, every: lengthOf(props.Every, time.Minute)}
	r.createQueues(or(props.Queues, ReconcilerQueues{}))
	if props.Function == nil {
		refuse(r.Construct, "Function is not set: set it to the function that runs idempotent.Reconciler")
	}
	if props.Table == nil {
		refuse(r.Construct, "Table is not set: set it to the table to reconcile")
	}
	if given := r.notMinutes(props.Every); given != "" {
		refuse(r.Construct, "Every is "+given+": set it to whole minutes, because EventBridge schedules support nothing else")
		r.every = length{Duration: time.Minute} // so that this is the only error
		return r
	}
	if props.Function == nil || props.Table == nil || lacksRole(r.Construct, props.Function) || !r.isHere(props.Function) {
		return r
	}
	every := props.Every
	if every == nil {
		every = lasting(r.every.Duration)
	}
	r.scan = newScan(r.Construct, props.Function, props.Table, props.Scan, r.every)
	props.Table.grantReconciler(props.Function, !r.scan.off())
	r.scan.schedule()
	r.Exhausted.GrantSendMessages(props.Function)
	url := props.Table.variable("ONCE_EXHAUSTED_QUEUE_URL")
	if !setVariables(r.Construct, props.Function, variable{url, r.Exhausted.QueueUrl()}) {
		others := ""
		for _, v := range props.Table.settings() {
			if v.value != nil {
				others += " " + v.name + " to " + *v.value + ","
			}
		}
		warn(r.Construct, "once:imported-function", "the function is imported, so its variables cannot be set here: set "+props.Table.variable("ONCE_TABLE")+" to the table's name,"+
			others+" and "+url+" to the URL of the queue Exhausted")
	}
	if props.Function.Node().TryFindChild(jsii.String("EventInvokeConfig")) == nil {
		// A run that fails or waits too long is not repeated: the next run does the same
		// work, and old runs would pile up.
		props.Function.ConfigureAsyncInvoke(&awslambda.EventInvokeConfigOptions{
			RetryAttempts: jsii.Number(0), MaxEventAge: lasting(time.Minute),
		})
	}
	awsevents.NewRule(r.Construct, jsii.String("Schedule"), &awsevents.RuleProps{
		Schedule: awsevents.Schedule_Rate(every),
		Targets: &[]awsevents.IRuleTarget{awseventstargets.NewLambdaFunction(props.Function, &awseventstargets.LambdaFunctionProps{
			DeadLetterQueue: r.Undelivered,
			// The next run does the same work.
			RetryAttempts: jsii.Number(0),
		})},
	})
	return r
}

// notMinutes describes an interval that is not in whole minutes. If it is
// unknown, only its unit is known.
func (r *Reconciler) notMinutes(every awscdk.Duration) string {
	switch {
	case !r.every.unknown && (r.every.Duration < time.Minute || r.every.Duration%time.Minute != 0):
		return inWords(r.every.Duration)
	case r.every.unknown && !slices.Contains([]string{"minutes", "hours", "days"}, *every.UnitLabel()):
		return "in " + *every.UnitLabel()
	}
	return ""
}

// isHere reports whether a function is in the account and the region of the reconciler, as
// far as synthesis knows, and refuses any other: its schedule would need an event bus there.
func (r *Reconciler) isHere(fn awslambda.IFunction) bool {
	theirs, ours := fn.Env(), awscdk.Stack_Of(r.Construct)
	for _, pair := range [][2]*string{{theirs.Account, ours.Account()}, {theirs.Region, ours.Region()}} {
		if awscdk.Token_CompareStrings(pair[0], pair[1]) == awscdk.TokenComparison_DIFFERENT() {
			refuse(r.Construct, fmt.Sprintf("the function %s is in %s and this construct in %s, and a schedule starts functions of its own account and region only:"+
				" create the reconciler in a stack there, with IdempotencyTableFrom", *fn.Node().Path(), *pair[0], *pair[1]))
			return false
		}
	}
	return true
}

// createQueues creates the queues for operators, encrypted and with the longest
// retention that SQS allows.
func (r *Reconciler) createQueues(own ReconcilerQueues) {
	if own.Name != nil && !isToken(own.Name) && !queueName.MatchString(*own.Name) {
		refuse(r.Construct, fmt.Sprintf("Queues.Name is %q: want 1 to 68 letters, digits, hyphens and underscores", *own.Name))
		own.Name = nil
	}
	create := func(id string) awssqs.Queue {
		props := &awssqs.QueueProps{
			RetentionPeriod: awscdk.Duration_Days(jsii.Number(14)),
			Encryption:      awssqs.QueueEncryption_SQS_MANAGED,
			EnforceSSL:      jsii.Bool(true),
			RemovalPolicy:   own.RemovalPolicy,
		}
		if own.Name != nil {
			props.QueueName = jsii.String(*own.Name + "-" + strings.ToLower(id))
		}
		if own.Key != nil {
			props.Encryption, props.EncryptionMasterKey = awssqs.QueueEncryption_KMS, own.Key
		}
		return awssqs.NewQueue(r.Construct, jsii.String(id), props)
	}
	r.Exhausted, r.Undelivered = create("Exhausted"), create("Undelivered")
	if own.Key == nil {
		return
	}
	// EventBridge sends to an encrypted queue only if the policy of the key allows it.
	added := own.Key.AddToResourcePolicy(
		serviceMay(r.Construct, "events.amazonaws.com", jsii.String("*"), "kms:Decrypt", "kms:GenerateDataKey*"), jsii.Bool(true))
	if !*added.StatementAdded {
		warn(r.Construct, "once:queue-key", "the policy of the imported key "+*own.Key.Node().Path()+
			" cannot be changed here: make sure that it allows events.amazonaws.com and the role of the function to use the key")
	}
}

// queueName matches the beginning of a queue's name, whose limit is 80 characters.
var queueName = regexp.MustCompile("^[a-zA-Z0-9_-]{1,68}$")
