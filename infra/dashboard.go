package infra

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/interfaces/interfacesawscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/telemetry"
)

// IdempotencyDashboardProps are the properties of [NewIdempotencyDashboard].
type IdempotencyDashboardProps struct {
	// Namespace is the namespace that the functions pass to emf.New. Required.
	Namespace *string

	// Operations are the functions' operations. Required.
	Operations *[]*string

	// Alarms are shown above the graphs. Default: none.
	Alarms *IdempotencyAlarms

	// DashboardName is the dashboard's name. Default: a name that
	// CloudFormation generates.
	DashboardName *string
}

// IdempotencyDashboard shows the outcomes of requests, the records that wait
// for evidence, and failures.
type IdempotencyDashboard struct {
	constructs.Construct
	Dashboard awscloudwatch.Dashboard
}

// NewIdempotencyDashboard creates the dashboard.
func NewIdempotencyDashboard(scope constructs.Construct, id *string, props *IdempotencyDashboardProps) *IdempotencyDashboard {
	if props == nil {
		props = &IdempotencyDashboardProps{}
	}
	d := &IdempotencyDashboard{Construct: constructs.NewConstruct(scope, id)}
	m := metricsOf(d.Construct, props.Namespace, props.Operations)
	d.Dashboard = awscloudwatch.NewDashboard(d.Construct, jsii.String("Dashboard"), &awscloudwatch.DashboardProps{DashboardName: props.DashboardName})
	if props.Alarms != nil {
		var alarms []interfacesawscloudwatch.IAlarmRef
		for _, a := range props.Alarms.Alarms {
			alarms = append(alarms, a)
		}
		d.Dashboard.AddWidgets(awscloudwatch.NewAlarmStatusWidget(&awscloudwatch.AlarmStatusWidgetProps{
			Title: jsii.String("Alarms"), Alarms: &alarms, Width: jsii.Number(24),
		}))
	}
	for _, row := range [][]graph{
		{{"First requests", event.Reserved}, {"Replays", event.Replayed}, {"Refused: in progress", event.InProgress}},
		{{"Outcomes that became unknown", event.MarkedUnknown}, {"Refused: outcome unknown", event.Unresolved}, {"Settled by evidence", event.Resolved}},
		{{"Keys used for other requests", event.Mismatch}, {"Store errors", event.StoreError}, {"Outcomes not stored", event.CompletionFailed}},
		{{"Late completions", event.LateCompletion}, {"Contradictions", event.Contradicted}, {"Given up by reconciliation", event.ReconcileExhausted}},
	} {
		var widgets []awscloudwatch.IWidget
		for _, g := range row {
			widgets = append(widgets, widget(g.title, m.each(g.kind)))
		}
		d.Dashboard.AddWidgets(widgets...)
	}
	d.Dashboard.AddWidgets(
		widget("Age of the oldest unknown outcome (seconds)", &[]awscloudwatch.IMetric{m.oldest(telemetry.OldestUnresolved)}),
		widget("Age of the oldest released run that no request has continued (seconds)", &[]awscloudwatch.IMetric{m.oldest(telemetry.OldestReleased)}),
	)
	return d
}

type graph struct {
	title string
	kind  event.Kind
}

func widget(title string, left *[]awscloudwatch.IMetric) awscloudwatch.IWidget {
	return awscloudwatch.NewGraphWidget(&awscloudwatch.GraphWidgetProps{Title: jsii.String(title), Left: left, Width: jsii.Number(8)})
}
