// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/interfaces/interfacesawscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/telemetry"
)

// IdempotencyDashboardProps are the properties of [NewIdempotencyDashboard].
type IdempotencyDashboardProps struct {
	// Namespace is the namespace of the functions' metrics. Required.
	Namespace *string

	// Operations are the functions' operations. Required.
	Operations *[]*string

	// Alarms are shown above the graphs. Default: none.
	Alarms *IdempotencyAlarms

	// DashboardName is the dashboard's name. Default: a name that
	// CloudFormation generates.
	DashboardName *string
}

// IdempotencyDashboard shows the outcomes of requests, how long they take, the
// records that wait for evidence, and failures.
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
	if len(or(props.Operations, nil)) == 0 {
		refuse(d.Construct, "Operations are not set: list the names of the functions' operations, with which record ids begin")
	}
	d.Dashboard = awscloudwatch.NewDashboard(d.Construct, jsii.String("Dashboard"), &awscloudwatch.DashboardProps{DashboardName: props.DashboardName})
	if props.Alarms != nil {
		var alarms []interfacesawscloudwatch.IAlarmRef
		for _, a := range props.Alarms.all() {
			alarms = append(alarms, a)
		}
		d.Dashboard.AddWidgets(awscloudwatch.NewAlarmStatusWidget(&awscloudwatch.AlarmStatusWidgetProps{
			Title: jsii.String("Alarms"), Alarms: &alarms, Width: jsii.Number(24),
		}))
	}
	for _, row := range [][]graph{
		{{"Requests", event.RequestEnded}, {"First requests", event.Reserved}, {"Replays", event.Replayed}, {"Refused: in progress", event.InProgress}},
		{{"Outcomes that became unknown", event.MarkedUnknown}, {"Refused: outcome unknown", event.Unresolved}, {"Settled by evidence", event.Resolved}, {"Given up by reconciliation", event.ReconcileExhausted}},
		{{"Keys used for other requests", event.Mismatch}, {"Store errors", event.StoreError}, {"Outcomes not stored", event.CompletionFailed}, {"Contradictions", event.Contradicted}},
	} {
		var widgets []awscloudwatch.IWidget
		for _, g := range row {
			widgets = append(widgets, widget(6, g.title, m.each(func(operation string) awscloudwatch.IMetric {
				return m.of(g.kind, operation, time.Minute)
			})))
		}
		d.Dashboard.AddWidgets(widgets...)
	}
	slowest := func(histogram string) *[]awscloudwatch.IMetric {
		return m.each(func(operation string) awscloudwatch.IMetric {
			return m.named(histogram, operation, jsii.String("p99"), time.Minute)
		})
	}
	d.Dashboard.AddWidgets(
		widget(8, "Claim, 99th percentile (seconds)", slowest(telemetry.ClaimDuration)),
		widget(8, "Handler, 99th percentile (seconds)", slowest(telemetry.HandlerDuration)),
		widget(8, "Storing the outcome, 99th percentile (seconds)", slowest(telemetry.SettleDuration)),
	)
	gauge := func(name string) *[]awscloudwatch.IMetric {
		return &[]awscloudwatch.IMetric{m.gauge(name, time.Minute)}
	}
	d.Dashboard.AddWidgets(
		widget(6, "Unknown outcomes", gauge(telemetry.UnknownRecords)),
		widget(6, "Age of the oldest unknown outcome (seconds)", gauge(telemetry.UnknownOldestAge)),
		widget(6, "Released runs that no request has continued", gauge(telemetry.ReleasedRecords)),
		widget(6, "Age of the oldest of them (seconds)", gauge(telemetry.ReleasedOldestAge)),
	)
	return d
}

type graph struct {
	title string
	kind  event.Kind
}

func widget(width float64, title string, left *[]awscloudwatch.IMetric) awscloudwatch.IWidget {
	return awscloudwatch.NewGraphWidget(&awscloudwatch.GraphWidgetProps{Title: jsii.String(title), Left: left, Width: jsii.Number(width)})
}
