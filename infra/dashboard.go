// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/interfaces/interfacesawscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
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
	for _, row := range catalogue.Graphs {
		var widgets []awscloudwatch.IWidget
		for _, g := range row {
			shown, label := m.operations, jsii.String
			if g.Of == "gauges" {
				shown, label = []string{gauges}, func(string) *string { return nil }
			}
			var left []awscloudwatch.IMetric
			for _, operation := range shown {
				left = append(left, m.of(operation)(jsii.String(g.Metric), &awscloudwatch.MetricOptions{
					Statistic: jsii.String(g.Statistic), Period: lasting(time.Minute), Label: label(operation),
				}))
			}
			widgets = append(widgets, awscloudwatch.NewGraphWidget(&awscloudwatch.GraphWidgetProps{
				Title: jsii.String(g.Title), Left: &left, Width: jsii.Number(float64(24 / len(row))),
			}))
		}
		d.Dashboard.AddWidgets(widgets...)
	}
	return d
}
