// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatchactions"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/telemetry"
)

// IdempotencyAlarmsProps are the properties of [NewIdempotencyAlarms].
type IdempotencyAlarmsProps struct {
	// Namespace is the namespace of the functions' metrics. Required.
	Namespace *string

	// Operations are operations that get a set of alarms on their requests each, so
	// that an alarm names the operation and has its own shares. A set has eleven
	// alarms. Default: one set for all operations of the namespace.
	Operations *[]*string

	// Functions are the functions whose code prints the metrics with package
	// telemetry/emf. The construct sets their variable ONCE_METRICS_NAMESPACE to
	// Namespace; pass it to emf.New. Each function has alarms on its own errors, which
	// also ring if its code does not start. Synthesis warns if the list is empty, because
	// alarms on metrics without data never ring; if a function is imported, because its
	// variable cannot be set; and if a function's application log level is above INFO.
	// The function of Reconciler need not be listed.
	Functions *[]awslambda.IFunction

	// Table is the table whose throttles raise an alarm. If it has a name, the variable
	// of Functions ends with it. Required.
	Table *IdempotencyTable

	// Reconciler is the reconciler of these operations. There are alarms if it
	// fails, is throttled or does not run, on the age of unknown outcomes, and on its
	// queues. Default: no reconciler; every unknown outcome then raises a ticket.
	Reconciler *Reconciler

	// DeadLetterQueues are other queues that should stay empty. Default: none.
	DeadLetterQueues *[]awssqs.IQueue

	// Page is notified of conditions that need an operator at once: requests are
	// refused, or nothing settles unknown outcomes. Ticket is notified of single
	// records that need an operator within a day, and Look of what is unusual and
	// may be a client's mistake. Each is notified when an alarm starts and when it
	// ends. The construct allows CloudWatch to publish to the topic and to use its
	// key; synthesis warns if the topic is imported, because its policy cannot be
	// changed. Default: no notification. Synthesis warns if Page or Ticket is not set.
	Page, Ticket, Look awssns.ITopic

	// RunbookURL is the page with a procedure for each alarm, which descriptions
	// link to. Default: docs/alarms.md of this project.
	RunbookURL *string

	// OldestUnknown is the age of an unknown outcome above which there is an alarm,
	// if it is exceeded in three runs of the reconciler. Default: 15 minutes, or
	// three times the interval of the reconciler if that is longer.
	OldestUnknown awscdk.Duration

	// StoreErrorRate is how many calls to the store may fail for each 100 requests.
	// There is an alarm if it is exceeded in three of five minutes. Default: 5.
	StoreErrorRate *float64

	// MisuseRate is how many of 100 requests in an hour may use a key with another
	// payload. Default: 1.
	MisuseRate *float64
}

// IdempotencyAlarms are the alarms for conditions that need an operator. The
// description of each alarm says what happened, and links to a procedure. Add
// other actions than topics to the alarms in Page, Ticket and Look.
type IdempotencyAlarms struct {
	constructs.Construct
	Page, Ticket, Look []awscloudwatch.Alarm

	props   *IdempotencyAlarmsProps
	metrics metrics
}

// NewIdempotencyAlarms creates the alarms.
func NewIdempotencyAlarms(scope constructs.Construct, id *string, props *IdempotencyAlarmsProps) *IdempotencyAlarms {
	if props == nil {
		props = &IdempotencyAlarmsProps{}
	}
	a := &IdempotencyAlarms{Construct: constructs.NewConstruct(scope, id), props: props}
	m := metricsOf(a.Construct, props.Namespace, props.Operations)
	a.metrics = m
	a.connect(m.namespace)
	if len(m.operations) == 0 {
		a.requests(m, allOperations)
	}
	for _, operation := range m.operations {
		a.requests(m, operation)
	}
	a.functions()
	if props.Reconciler != nil && props.Reconciler.Function != nil {
		a.reconciler(m, props.Reconciler)
	}
	if props.Table == nil {
		refuse(a.Construct, "Table is not set: set it to the table whose throttles raise an alarm")
	} else {
		a.throttles(props.Table)
	}
	a.deadLetters()
	return a
}

// connect passes the namespace to the functions, and warns about metrics and
// alarms that reach no one.
func (a *IdempotencyAlarms) connect(namespace string) {
	functions := slices.Clone(or(a.props.Functions, nil))
	if len(functions) == 0 {
		a.warn("once:metrics", "Functions are not set, so no function is known to print the metrics of these alarms, and they would never ring: list the functions whose code calls emf.New")
	}
	if r := a.props.Reconciler; r != nil && r.Function != nil {
		functions = append(functions, r.Function)
	}
	for _, fn := range functions {
		name := a.props.Table.variable("ONCE_METRICS_NAMESPACE")
		if !setVariables(a.Construct, fn, variable{name, jsii.String(namespace)}) {
			a.warn("once:imported-function", "the function "+*fn.Node().Path()+" is imported, so its variables cannot be set here: set "+name+" to "+namespace)
		}
		if level := logFilter(fn); level != "" {
			a.warn("once:log-level", "the function "+*fn.Node().Path()+" has the application log level "+level+
				": package telemetry writes each line of the metrics and of the audit with that level, so that Lambda does not drop it, and what looks for errors in the log finds these lines; set the level to INFO")
		}
	}
	if a.props.Page == nil {
		a.warn("once:page", "Page is not set, so no one is notified when requests are refused or when nothing settles unknown outcomes: set it to a topic")
	}
	if a.props.Ticket == nil {
		a.warn("once:ticket", "Ticket is not set, so no one is notified of single records that need an operator: set it to a topic")
	}
}

func (a *IdempotencyAlarms) warn(id, message string) { warn(a.Construct, id, message) }

// logFilter returns the application log level of a function of this app if that is
// above INFO.
func logFilter(fn awslambda.IFunction) string {
	created := functionBehind(fn)
	if created == nil {
		return ""
	}
	resource, ok := created.Node().DefaultChild().(awslambda.CfnFunction)
	if !ok || resource.LoggingConfig() == nil {
		return ""
	}
	config, _ := awscdk.Stack_Of(created).Resolve(resource.LoggingConfig()).(map[string]any)
	level, _ := config["applicationLogLevel"].(string)
	if slices.Contains([]string{"WARN", "ERROR", "FATAL"}, level) {
		return level
	}
	return ""
}

// requests adds the alarms on the requests of an operation, or of all.
func (a *IdempotencyAlarms) requests(m metrics, operation string) {
	suffix, about := "", ""
	if operation != allOperations {
		suffix, about = "-"+operation, operation+": "
	}
	add := func(severity severity, name string, c condition, description string) {
		a.add(severity, name, suffix, c, about+description)
	}
	percent := func(threshold float64, kinds ...event.Kind) condition {
		return condition{metric: m.share(operation, time.Hour, kinds...), threshold: threshold, periods: 1}
	}
	occurs := func(kind event.Kind) condition {
		return condition{metric: m.count(operation, time.Hour, kind), periods: 1}
	}
	add(page, "StoreErrors", condition{
		metric: m.share(operation, time.Minute, event.StoreError), threshold: or(a.props.StoreErrorRate, 5), periods: 5, breaching: 3,
	}, "Too many calls to the table fail. Requests are refused, not run unguarded.")
	add(page, "StoreErrorsLong", slow(m.share(operation, slowPeriod, event.StoreError), 20),
		"Calls to the table fail again and again. Requests are refused, not run unguarded.")
	add(page, "NoOutcome", slow(m.share(operation, slowPeriod, event.NoOutcome), 90),
		"Nearly no request gets an outcome: no handler runs, and nothing is replayed.")
	add(page, "ContradictedOften", percent(0.1, event.Contradicted),
		"Evidence contradicts too many records: effects may happen twice, or a resolver is wrong.")
	add(ticket, "Contradicted", occurs(event.Contradicted),
		"Evidence contradicts a record: an effect may have happened twice, or a resolver is wrong.")
	add(ticket, "ReplayFailed", occurs(event.ReplayFailed),
		"A stored outcome could not be returned: the code cannot read what it stored.")
	add(ticket, "NotStored", percent(0.1, event.CompletionFailed),
		"Handlers did their work, and too many outcomes or results could not be stored.")
	add(ticket, "Late", percent(1, event.LateCompletion, event.LeaseLost),
		"Too many handlers outlived their lease.")
	if a.props.Reconciler == nil {
		add(ticket, "Unknown", occurs(event.MarkedUnknown),
			"A run ended with an unknown outcome, and no reconciler settles it. Its key does not run again.")
	} else {
		add(ticket, "Unknown", percent(1, event.MarkedUnknown),
			"Too many runs end with an unknown outcome. Their keys do not run again before the reconciler has settled them.")
		add(ticket, "Exhausted", occurs(event.ReconcileExhausted),
			"Reconciliation has given up a record. Its key does not run again before an operator has settled it.")
	}
	add(look, "Misuse", percent(or(a.props.MisuseRate, 1), event.Mismatch),
		"Too many requests use the key of another request.")
}

// The alarms of services with few requests count bad periods, not errors: a period
// is long enough for some requests, and one request that fails with all its retries
// makes fewer periods bad than are needed.
const (
	slowPeriod  = 10 * time.Minute
	slowPeriods = 12
)

// slow returns the condition that a share over slowPeriod is exceeded in three of
// slowPeriods.
func slow(share awscloudwatch.IMetric, threshold float64) condition {
	return condition{metric: share, threshold: threshold, periods: slowPeriods, breaching: 3}
}

// functions adds the alarms on the functions' own errors: time-outs, crashes, and
// errors that a handler returns. Lambda reports an error after the invocation has
// ended, with the time at which it began. So an alarm must look further back than an
// invocation can last, and five minutes more for the report to arrive.
func (a *IdempotencyAlarms) functions() {
	const arrival = 5 * time.Minute
	known := map[string]bool{}
	for _, fn := range or(a.props.Functions, nil) {
		path := strings.TrimPrefix(*fn.Node().Path(), *awscdk.Stack_Of(a.Construct).Node().Path()+"/")
		if known[path] {
			refuse(a.Construct, *fn.Node().Path()+" is twice in Functions: remove one")
			continue
		}
		known[path] = true
		timeout := length{unknown: true}
		if created := functionBehind(fn); created != nil {
			timeout = lengthOf(created.Timeout(), defaultTimeout)
		}
		errors := func(format string, period time.Duration) awscloudwatch.IMetric {
			options := &awscloudwatch.MetricOptions{Statistic: awscloudwatch.Stats_SUM(), Period: lasting(period)}
			using := map[string]awscloudwatch.IMetric{"errors": fn.MetricErrors(options), "invocations": fn.MetricInvocations(options)}
			return expression(fmt.Sprintf(format, share(filled("errors"), filled("invocations"))), using, period)
		}
		add := func(name string, c condition) {
			a.add(page, name, "-"+path, c, "Most invocations of the function "+*fn.Node().Path()+" fail: they crash, time out, or return an error.")
		}
		const period, periods = 5 * time.Minute, 3
		if !timeout.unknown && timeout.Duration+arrival < periods*period {
			// One message with a few deliveries is no page.
			add("FunctionFails", condition{metric: errors("IF("+filled("errors")+" > 2, %s, 0)", period), threshold: 50, periods: periods, breaching: 2})
		}
		if seen := slowPeriods * slowPeriod; timeout.Duration+arrival >= seen {
			refuse(a.Construct, fmt.Sprintf("the time-out of %s is %s, and FunctionFailsLong would not see its errors: they are reported up to five minutes after it, and the alarm looks back %s",
				*fn.Node().Path(), inWords(timeout.Duration), inWords(seen)))
		}
		add("FunctionFailsLong", slow(errors("%s", slowPeriod), 50))
	}
}

// reconciler adds the alarms on a reconciler. A gauge or an invocation that is
// missing is as bad as a bad one: nothing settles unknown outcomes.
func (a *IdempotencyAlarms) reconciler(m metrics, r *Reconciler) {
	const runs = 3
	if r.every.unknown {
		refuse(a.Construct, "Every of Reconciler is not known at synthesis, and the alarms are computed from it: write its value")
		return
	}
	every := r.every.Duration
	options := &awscloudwatch.MetricOptions{Statistic: awscloudwatch.Stats_SUM(), Period: lasting(every)}
	oldest := lengthOf(a.props.OldestUnknown, max(15*time.Minute, runs*every))
	if oldest.unknown {
		refuse(a.Construct, "OldestUnknown is not known at synthesis: write its value")
	}
	a.add(page, "OldestUnknown", "", condition{
		metric: m.gauge(telemetry.UnknownOldestAge, every), threshold: oldest.Seconds(), periods: runs, missing: awscloudwatch.TreatMissingData_BREACHING,
	}, "An outcome has been unknown for too long, or the reconciler does not report ages.")
	if r.scan != nil && !r.scan.off() {
		a.add(page, "ScanLate", "", condition{metric: m.gauge(telemetry.ScanAge, every), threshold: 2 * r.scan.every.Seconds(), periods: runs},
			"No scan for abandoned runs has ended for too long: they wait, and nothing settles them.")
	}
	a.add(page, "ReconcilerErrors", "", condition{metric: r.Function.MetricErrors(options), periods: runs},
		"The reconciler fails in every run: it cannot list records, or cannot settle any of them.")
	a.add(page, "ReconcilerThrottled", "", condition{metric: r.Function.MetricThrottles(options), periods: runs},
		"Lambda throttles the reconciler.")
	a.add(page, "ReconcilerSilent", "", condition{
		metric: r.Function.MetricInvocations(options), below: true, threshold: 1, periods: runs, missing: awscloudwatch.TreatMissingData_BREACHING,
	}, "The reconciler does not run. After the first deployment this rings until its first run.")
}

// throttles adds the alarms for the table and its index.
func (a *IdempotencyAlarms) throttles(table *IdempotencyTable) {
	for _, throttled := range []struct {
		name   string
		metric func(*string, *awscloudwatch.MetricOptions) awscloudwatch.Metric
	}{
		{"Throttles", table.Table.Metric},
		{"IndexThrottles", table.MetricForIndex},
	} {
		sum := func(name string) awscloudwatch.IMetric {
			return throttled.metric(jsii.String(name), &awscloudwatch.MetricOptions{Statistic: awscloudwatch.Stats_SUM(), Period: lasting(time.Hour)})
		}
		using := map[string]awscloudwatch.IMetric{"throttles": sum("WriteThrottleEvents"), "units": sum("ConsumedWriteCapacityUnits")}
		a.add(ticket, throttled.name, "", condition{metric: percentage(filled("throttles"), filled("units"), using, time.Hour), threshold: 1, periods: 1},
			"DynamoDB throttles too many writes of records.")
	}
}

// deadLetters adds an alarm for each queue that should stay empty.
func (a *IdempotencyAlarms) deadLetters() {
	queues := or(a.props.DeadLetterQueues, nil)
	if r := a.props.Reconciler; r != nil {
		queues = append([]awssqs.IQueue{r.Exhausted, r.Undelivered}, queues...)
	}
	for i, queue := range queues {
		a.add(ticket, "DeadLetters", fmt.Sprint(i), condition{
			metric: queue.MetricApproximateNumberOfMessagesVisible(&awscloudwatch.MetricOptions{
				Statistic: awscloudwatch.Stats_MAXIMUM(), Period: lasting(time.Minute),
			}), periods: 1,
		}, "Messages were given up and wait for an operator in "+*queue.Node().Path()+".")
	}
}

// severity is who is notified of an alarm.
type severity int

const (
	page severity = iota
	ticket
	look
)

// condition is when an alarm rings.
type condition struct {
	metric    awscloudwatch.IMetric
	below     bool // the alarm rings if the metric is below the threshold; otherwise if it is above
	threshold float64
	periods   float64 // that are evaluated
	breaching float64 // of these; zero: all
	// missing is how a period without data counts. Empty: as good, because an event
	// that never occurred has no metric.
	missing awscloudwatch.TreatMissingData
}

// add creates an alarm. Its name is that of its procedure; the suffix makes its id
// unique.
func (a *IdempotencyAlarms) add(severity severity, name, suffix string, c condition, description string) {
	operator := awscloudwatch.ComparisonOperator_GREATER_THAN_THRESHOLD
	if c.below {
		operator = awscloudwatch.ComparisonOperator_LESS_THAN_THRESHOLD
	}
	if c.breaching == 0 {
		c.breaching = c.periods
	}
	if c.missing == "" {
		c.missing = awscloudwatch.TreatMissingData_NOT_BREACHING
	}
	runbook := or(a.props.RunbookURL, "https://github.com/once-lambda/once/blob/main/docs/alarms.md")
	alarm := awscloudwatch.NewAlarm(a.Construct, jsii.String(name+suffix), &awscloudwatch.AlarmProps{
		Metric:             c.metric,
		Threshold:          jsii.Number(c.threshold),
		ComparisonOperator: operator,
		EvaluationPeriods:  jsii.Number(c.periods),
		DatapointsToAlarm:  jsii.Number(c.breaching),
		TreatMissingData:   c.missing,
		AlarmDescription:   jsii.String(description + " " + runbook + "#" + strings.ToLower(name)),
	})
	list, topic := &a.Page, a.props.Page
	switch severity {
	case page:
	case ticket:
		list, topic = &a.Ticket, a.props.Ticket
	case look:
		list, topic = &a.Look, a.props.Look
	}
	*list = append(*list, alarm)
	if topic != nil {
		a.allow(topic)
		action := awscloudwatchactions.NewSnsAction(topic)
		alarm.AddAlarmAction(action)
		alarm.AddOkAction(action)
	}
}

// allow lets CloudWatch publish to a topic. A topic with its own policy, such
// as one that requires TLS, has lost the default policy that allowed it.
func (a *IdempotencyAlarms) allow(topic awssns.ITopic) {
	const service = "cloudwatch.amazonaws.com"
	if added := topic.AddToResourcePolicy(serviceMay(a.Construct, service, topic.TopicArn(), "sns:Publish")); !*added.StatementAdded {
		a.warn("once:topic", "the policy of the imported topic "+*topic.Node().Path()+
			" cannot be changed here: make sure that it allows "+service+" to publish, and its key to be used")
	}
	if key := topic.MasterKey(); key != nil {
		key.AddToResourcePolicy(serviceMay(a.Construct, service, jsii.String("*"), "kms:Decrypt", "kms:GenerateDataKey*"), jsii.Bool(true))
	}
}

// MetricForEvent returns how often an event occurred in an operation, or in all if
// operation is nil, for alarms and graphs of your own. Its default statistic is the
// sum, and its period is five minutes.
func (a *IdempotencyAlarms) MetricForEvent(kind event.Kind, operation *string, options *awscloudwatch.MetricOptions) awscloudwatch.Metric {
	metric := awscloudwatch.NewMetric(a.metrics.props(telemetry.Prefix+string(kind), or(operation, ""), awscloudwatch.Stats_SUM(), 5*time.Minute))
	if options != nil {
		metric = metric.With(options)
	}
	return metric
}

// all returns the alarms, the most urgent first.
func (a *IdempotencyAlarms) all() []awscloudwatch.Alarm {
	return append(append(append([]awscloudwatch.Alarm{}, a.Page...), a.Ticket...), a.Look...)
}
