// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
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

	"github.com/once-lambda/once/internal/tabledef"
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

// ScanProps are how a reconciler finds runs whose process ended without a warning,
// and whose request never came again. It reads the whole table, part by part, in its
// runs. It finds a run that was killed at its deadline without a scan.
type ScanProps struct {
	// Every is the longest pause between two scans. After one that found such a run, the
	// next one begins after an hour, and each that finds none doubles the pause. In a
	// table with a Prefix the pause is always Every. Zero: no scans, and no permission
	// for them; the next request with the key finds the run. Default: a day, or the
	// interval between two runs if that is longer. It must not be zero in a table with
	// strong consistency across regions, where the scan also deletes expired items.
	Every awscdk.Duration

	// Segments is how many parts of the table are read in parallel, each at 8 MB a
	// second. Default: 1.
	Segments *float64

	// RequestsPerMonth, Retention and RecordBytes estimate the size of the table: how
	// many first requests there are, for how long the functions store outcomes, and the
	// average size of a record with its result, if that is in the same table. A longer
	// Retention of an event source counts, if its function has a grant of the table. They
	// decide whether the segments can keep to the interval, and the price that synthesis
	// prints. Defaults: one million, 24 hours, and 450 bytes.
	RequestsPerMonth *float64
	Retention        awscdk.Duration
	RecordBytes      *float64

	// OtherBytes is the size of the other items in a table with a TableLayout, because
	// a scan reads all items. Synthesis warns without it. Default: 0.
	OtherBytes *float64
}

const (
	// scanUnits is how many read units a segment takes in a second, see
	// dynamostore.Store.Abandoned.
	scanUnits = 1000
	// defaultScanEvery is the default of dynamostore.Options.ScanEvery, and
	// pauseAfterFind the pause after a scan that found something.
	defaultScanEvery, pauseAfterFind = 24 * time.Hour, time.Hour
	// defaultRetention is the default of idempotent.Operation.Retention, and
	// deletedWithin is how long DynamoDB keeps an expired item: it "typically deletes
	// expired items within 48 hours" (AWS Knowledge Center, 2022-08-26; the developer
	// guide says "within a few days" since).
	defaultRetention, deletedWithin = 24 * time.Hour, 48 * time.Hour
	// unitBytes is what an eventually consistent read unit reads.
	unitBytes = 8 << 10
	// month has 730 hours.
	month = 730 * time.Hour
	// inline is the largest result that is in its record.
	inline = 4 << 10
	// The price of a million read units, in dollars, on demand, us-east-1, 2026-11-21.
	readPrice = 0.125
	// listUnits is what a run of the reconciler reads if nothing is due.
	listUnits = 32.5
)

// scan is the scan of a reconciler's table.
type scan struct {
	on       constructs.Construct // the reconciler
	props    ScanProps
	function awslambda.IFunction
	table    *IdempotencyTable
	runs     length // the interval between two runs, at least a minute
	every    length
	segments float64

	scheduled bool // the settings can work
}

func newScan(on constructs.Construct, function awslambda.IFunction, table *IdempotencyTable, props *ScanProps, runs length) *scan {
	s := &scan{on: on, props: or(props, ScanProps{}), function: function, table: table, runs: runs}
	s.runs.Duration = max(s.runs.Duration, time.Minute)
	s.segments = or(s.props.Segments, 1)
	s.every = lengthOf(s.props.Every, max(defaultScanEvery, s.runs.Duration))
	return s
}

// off reports whether there are no scans.
func (s *scan) off() bool { return !s.every.unknown && s.every.Duration == 0 }

// schedule passes the settings that are not the store's defaults to the function. It
// refuses those that cannot work, as far as they are known at synthesis.
func (s *scan) schedule() {
	whenComplete(s.on, s.judgeAll)
	switch {
	case s.off() && s.props != ScanProps{Every: s.props.Every}:
		refuse(s.on, "Scan.Every is zero, so there are no scans, and another property of Scan is set: remove it, or set Scan.Every")
		return
	case s.off() && s.table.strong:
		refuse(s.on, "Scan.Every is zero, and the table has strong consistency across regions, so it has no time to live and only the scan deletes expired items: remove it, or set another interval")
		return
	case s.off():
		s.set("off", 1)
		return
	case s.every.unknown || s.props.Segments != nil && isToken(s.props.Segments):
		refuse(s.on, "Scan.Every or Scan.Segments is known only at the deployment: set it to a value that synthesis can check")
		return
	case s.segments < 1 || s.segments > 1000 || s.segments != math.Trunc(s.segments):
		refuse(s.on, fmt.Sprintf("Scan.Segments is %v: set it to a whole number from 1 to 1,000", s.segments))
		return
	case s.every.under(s.runs.Duration):
		refuse(s.on, fmt.Sprintf("Scan.Every is %s, which is shorter than the interval between two runs (%s): set it to that at least", inWords(s.every.Duration), inWords(s.runs.Duration)))
		return
	}
	s.set(s.every.String(), int(s.segments))
	if s.besideOthers() && s.props.OtherBytes == nil {
		warn(s.on, "once:other-items", "the table has other items, and each scan reads them: set Scan.OtherBytes to their size, or Scan.Every to zero")
	}
	s.scheduled = true
}

// set sets the variables of the function, without those that have the store's
// defaults.
func (s *scan) set(every string, segments int) {
	setVariables(s.on, s.function,
		unless(defaultScanEvery.String(), s.table.variable("ONCE_SCAN_EVERY"), every),
		unless("1", s.table.variable("ONCE_SCAN_SEGMENTS"), strconv.Itoa(segments)))
}

// besideOthers reports whether the table has other items.
func (s *scan) besideOthers() bool { return *s.table.layout.Prefix != "" }

// judgeAll judges the table when its indexes and every source of its functions are known.
func (s *scan) judgeAll() {
	if s.table.lacksIndex() {
		refuse(s.on, "the table has no index "+tabledef.IndexName+", in which a reconciler finds due records: add it, see docs/deploy-company.md")
	}
	if s.scheduled {
		s.judge()
	}
}

// judge refuses segments that cannot keep to the interval, and prints the price.
func (s *scan) judge() {
	retention := lengthOf(s.props.Retention, defaultRetention)
	for _, fn := range s.table.functions {
		of := retentionOf(fn)
		retention = length{max(retention.Duration, of.Duration), retention.unknown || of.unknown}
	}
	if retention.unknown || s.anyToken() {
		return
	}
	requests, size := or(s.props.RequestsPerMonth, 1e6), or(s.props.RecordBytes, 450)
	if size > inline && s.table.Chunks == nil && !s.table.strong {
		warn(s.on, "once:scan", fmt.Sprintf(
			"results are large (RecordBytes is %v), and each scan reads them: call KeepLargeResultsIn of the table and set RecordBytes without the results", size))
	}
	kept := retention.Duration + deletedWithin
	if s.table.strong { // the scan deletes expired items
		kept = retention.Duration + s.every.Duration
	}
	units := (requests*per(kept, month)*size + or(s.props.OtherBytes, 0)) / unitBytes
	takes := ""
	if fn := functionBehind(s.function); fn != nil {
		if timeOut := lengthOf(fn.Timeout(), defaultTimeout); !timeOut.unknown {
			// A run scans for half of its time.
			speed := s.segments * scanUnits * per(min(timeOut.Duration, s.runs.Duration)/2, s.runs.Duration)
			needs := time.Duration(units / speed * float64(time.Second))
			if needs > s.every.Duration {
				enough, atLeast := math.Ceil(s.segments*per(needs, s.every.Duration)), needs.Truncate(time.Minute)+time.Minute
				longer := ""
				if timeOut.Duration < s.runs.Duration {
					longer = ", or raise the function's time-out of " + inWords(timeOut.Duration) + ", for half of which a run scans"
				}
				refuse(s.on, fmt.Sprintf("a scan of %s takes %s, which is longer than Scan.Every (%s): set Scan.Segments to %.0f or more, or Scan.Every to %s or more%s",
					inBytes(units*unitBytes), inWords(needs.Round(time.Minute)), inWords(s.every.Duration), enough, inWords(atLeast), longer))
				return
			}
			takes = ", which takes " + inWords(needs.Round(time.Second))
		}
	}
	monthly := func(every time.Duration) float64 { return readPrice / 1e6 * units * per(month, every) }
	price := fmt.Sprintf("about $%.2f a month", monthly(s.every.Duration))
	if s.every.Duration > pauseAfterFind && !s.besideOthers() {
		price += fmt.Sprintf(", and $%.2f if each finds one", monthly(pauseAfterFind))
	}
	awscdk.Annotations_Of(s.on).AddInfoV2(jsii.String("once:price"), jsii.String(fmt.Sprintf(
		"a scan for runs that ended without a warning reads %s (outcomes of %s) every %s%s: %s; the lists of the reconciler cost $%.2f (on demand, us-east-1; see docs/cost.md)",
		inBytes(units*unitBytes), inWords(kept), inWords(s.every.Duration), takes, price, readPrice/1e6*listUnits*per(month, s.runs.Duration))))
}

// anyToken reports whether a number of the estimate is known only at the deployment.
func (s *scan) anyToken() bool {
	return s.runs.unknown || slices.ContainsFunc([]*float64{s.props.RequestsPerMonth, s.props.RecordBytes, s.props.OtherBytes},
		func(n *float64) bool { return n != nil && isToken(n) })
}

// per returns how often b is in a.
func per(a, b time.Duration) float64 { return float64(a) / float64(b) }

// inBytes formats a size.
func inBytes(n float64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.0f MB", n/(1<<20))
	}
	return fmt.Sprintf("%.1f GB", n/(1<<30))
}
