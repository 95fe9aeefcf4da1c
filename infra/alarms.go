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
	// also ring if its code does not start. A function has one namespace, so alarms on
	// several of its tables need the same Namespace. Synthesis warns if the list is empty, because
	// alarms on metrics without data never ring; if a function is imported, because its
	// variable cannot be set; and if a function's application log level is above INFO.
	// The function of Reconciler need not be listed.
	Functions *[]awslambda.IFunction

	// Table is the table whose throttles raise an alarm. Required.
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
		a.watch(subject{of: "requests", read: m.of(allOperations)})
	}
	for _, operation := range m.operations {
		a.watch(subject{of: "requests", suffix: "-" + operation, about: operation + ": ", label: jsii.String(operation), read: m.of(operation)})
	}
	a.functions()
	if props.Reconciler != nil && props.Reconciler.Function != nil {
		a.reconciler(m, props.Reconciler)
	}
	if props.Table == nil {
		refuse(a.Construct, "Table is not set: set it to the table whose throttles raise an alarm")
	} else {
		a.watch(subject{of: "table", read: props.Table.Table.Metric})
		a.watch(subject{of: "index", read: props.Table.MetricForIndex})
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
		if !setVariables(a.Construct, fn, variable{metricsNamespace, jsii.String(namespace)}) {
			a.warn("once:imported-function", "the function "+*fn.Node().Path()+" is imported, so its variables cannot be set here: set "+metricsNamespace+" to "+namespace)
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
	if !ok {
		return ""
	}
	config, _ := property(resource, "loggingConfig").(map[string]any)
	level, _ := config["applicationLogLevel"].(string)
	if slices.Contains([]string{"WARN", "ERROR", "FATAL"}, level) {
		return level
	}
	return ""
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
		a.watch(subject{of: "function", suffix: "-" + path, name: *fn.Node().Path(), read: fn.Metric, without: func(c alarm) bool {
			blind := timeout.Duration+arrival >= c.looksBack()
			if c.Name == "FunctionFails" {
				return blind || timeout.unknown
			}
			if blind {
				refuse(a.Construct, fmt.Sprintf("the time-out of %s is %s, and %s would not see its errors: they are reported up to five minutes after it, and the alarm looks back %s",
					*fn.Node().Path(), inWords(timeout.Duration), c.Name, inWords(c.looksBack())))
			}
			return false
		}})
	}
}

// reconciler adds the alarms on a reconciler. A gauge or an invocation that is
// missing is as bad as a bad one: nothing settles unknown outcomes.
func (a *IdempotencyAlarms) reconciler(m metrics, r *Reconciler) {
	if r.every.unknown {
		refuse(a.Construct, "Every of Reconciler is not known at synthesis, and the alarms are computed from it: write its value")
		return
	}
	if lengthOf(a.props.OldestUnknown, 0).unknown {
		refuse(a.Construct, "OldestUnknown is not known at synthesis: write its value")
	}
	a.watch(subject{of: "gauges", read: m.of(gauges), without: func(c alarm) bool { return c.Scans > 0 && (r.scan == nil || r.scan.off()) }})
	a.watch(subject{of: "reconciler", read: r.Function.Metric})
}

// deadLetters adds an alarm for each queue that should stay empty.
func (a *IdempotencyAlarms) deadLetters() {
	queues := or(a.props.DeadLetterQueues, nil)
	if r := a.props.Reconciler; r != nil {
		queues = append([]awssqs.IQueue{r.Exhausted, r.Undelivered}, queues...)
	}
	for i, queue := range queues {
		a.watch(subject{of: "queue", suffix: fmt.Sprint(i), name: *queue.Node().Path(), read: queue.Metric})
	}
}

// subject is what the alarms of a kind watch.
type subject struct {
	of      string           // the kind, as in the catalogue
	suffix  string           // makes the ids of its alarms unique
	about   string           // begins their descriptions
	name    string           // in their descriptions
	label   *string          // of their metrics
	read    reader           // of its metrics
	without func(alarm) bool // the alarm is not for this subject; nil: each is
}

// watch adds the alarms of a subject.
func (a *IdempotencyAlarms) watch(s subject) {
	reconciled := a.props.Reconciler != nil
	for _, c := range catalogue.Alarms {
		if c.Of == s.of && (c.Reconciler == nil || *c.Reconciler == reconciled) && (s.without == nil || !s.without(c)) {
			a.add(c, s)
		}
	}
}

// add creates an alarm of a subject.
func (a *IdempotencyAlarms) add(c alarm, s subject) {
	operator := awscloudwatch.ComparisonOperator_GREATER_THAN_THRESHOLD
	if c.Below {
		operator = awscloudwatch.ComparisonOperator_LESS_THAN_THRESHOLD
	}
	missing := awscloudwatch.TreatMissingData_NOT_BREACHING // an event that never occurred has no metric
	if c.Missing == "breaching" {
		missing = awscloudwatch.TreatMissingData_BREACHING
	}
	runbook := or(a.props.RunbookURL, "https://github.com/once-lambda/once/blob/main/docs/alarms.md")
	made := awscloudwatch.NewAlarm(a.Construct, jsii.String(c.Name+s.suffix), &awscloudwatch.AlarmProps{
		Metric:             a.metric(c, s),
		Threshold:          jsii.Number(a.threshold(c)),
		ComparisonOperator: operator,
		EvaluationPeriods:  jsii.Number(c.Periods),
		DatapointsToAlarm:  jsii.Number(c.Breaching),
		TreatMissingData:   missing,
		AlarmDescription:   jsii.String(s.about + strings.ReplaceAll(c.Description, "NAME", s.name) + " " + runbook + "#" + strings.ToLower(c.Name)),
	})
	list, topic := &a.Page, a.props.Page
	switch c.Notifies {
	case "ticket":
		list, topic = &a.Ticket, a.props.Ticket
	case "look":
		list, topic = &a.Look, a.props.Look
	}
	*list = append(*list, made)
	if topic != nil {
		a.allow(topic)
		action := awscloudwatchactions.NewSnsAction(topic)
		made.AddAlarmAction(action)
		made.AddOkAction(action)
	}
}

// metric returns what an alarm of a subject compares.
func (a *IdempotencyAlarms) metric(c alarm, s subject) awscloudwatch.IMetric {
	period := time.Duration(c.Period) * time.Second
	if c.Period == 0 {
		period = a.props.Reconciler.every.Duration
	}
	read := func(name, statistic string) awscloudwatch.IMetric {
		return s.read(jsii.String(name), &awscloudwatch.MetricOptions{Statistic: jsii.String(statistic), Period: lasting(period), Label: s.label})
	}
	if c.Expression == "" {
		return read(c.Metric, c.Statistic)
	}
	using := map[string]awscloudwatch.IMetric{}
	for id, name := range c.Metrics {
		using[id] = read(name, c.Statistic)
	}
	return awscloudwatch.NewMathExpression(&awscloudwatch.MathExpressionProps{
		Expression: jsii.String(c.Expression), UsingMetrics: &using, Period: lasting(period),
	})
}

// threshold returns the threshold of an alarm: that of the properties, or that of the
// catalogue.
func (a *IdempotencyAlarms) threshold(c alarm) float64 {
	threshold := c.Threshold
	if r := a.props.Reconciler; c.Intervals > 0 {
		threshold = max(threshold, c.Intervals*r.every.Seconds())
	} else if c.Scans > 0 {
		threshold = max(threshold, c.Scans*r.scan.every.Seconds())
	}
	switch c.Name {
	case "OldestUnknown":
		return lengthOf(a.props.OldestUnknown, time.Duration(threshold)*time.Second).Seconds()
	case "StoreErrors":
		return or(a.props.StoreErrorRate, threshold)
	case "Misuse":
		return or(a.props.MisuseRate, threshold)
	}
	return threshold
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
	read := a.metrics.of(or(operation, allOperations))
	metric := read(jsii.String(telemetry.Prefix+string(kind)), &awscloudwatch.MetricOptions{Statistic: awscloudwatch.Stats_SUM()})
	if options != nil {
		metric = metric.With(options)
	}
	return metric
}

// all returns the alarms, the most urgent first.
func (a *IdempotencyAlarms) all() []awscloudwatch.Alarm {
	return append(append(append([]awscloudwatch.Alarm{}, a.Page...), a.Ticket...), a.Look...)
}
