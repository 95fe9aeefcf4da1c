package infra

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/telemetry"
)

// allOperations is the operation of the metrics that are not about a single one.
const allOperations = "all"

// metrics are the metrics of package telemetry that the functions print
// through telemetry/emf, in one namespace.
type metrics struct {
	namespace  string
	operations []string
}

// metricsOf validates its arguments and reports missing ones as errors on scope.
func metricsOf(scope constructs.Construct, namespace *string, operations *[]*string) metrics {
	m := metrics{namespace: "not-set"} // so that the missing namespace is the only error
	if namespace != nil && *namespace != "" {
		m.namespace = *namespace
	} else {
		refuse(scope, "Namespace is not set: set it to the namespace that the functions pass to emf.New")
	}
	if operations != nil {
		for _, o := range *operations {
			switch {
			case o == nil || *o == "":
				refuse(scope, "one of Operations has no name: remove it")
			case slices.Contains(m.operations, *o):
				refuse(scope, fmt.Sprintf("%q is twice in Operations: remove one", *o))
			default:
				m.operations = append(m.operations, *o)
			}
		}
	}
	if len(m.operations) == 0 {
		refuse(scope, "Operations are not set: list the names of the functions' operations, with which record ids begin")
	}
	return m
}

// of returns the count of a kind of fact in one operation.
func (m metrics) of(kind event.Kind, operation string) awscloudwatch.IMetric {
	return m.named(telemetry.Metrics()[telemetry.Index(kind)].Name, operation, awscloudwatch.Stats_SUM())
}

// oldest returns a gauge of package telemetry: the age in seconds of a record.
func (m metrics) oldest(gauge string) awscloudwatch.IMetric {
	return m.named(gauge, allOperations, awscloudwatch.Stats_MAXIMUM())
}

func (m metrics) named(name, operation string, statistic *string) awscloudwatch.IMetric {
	return awscloudwatch.NewMetric(&awscloudwatch.MetricProps{
		Namespace:     jsii.String(m.namespace),
		MetricName:    jsii.String(name),
		DimensionsMap: &map[string]*string{"operation": jsii.String(operation)},
		Statistic:     statistic,
		Period:        aMinute(),
		Label:         jsii.String(operation),
	})
}

// each returns the count of a kind of fact in every operation.
func (m metrics) each(kind event.Kind) *[]awscloudwatch.IMetric {
	var all []awscloudwatch.IMetric
	for _, operation := range m.operations {
		all = append(all, m.of(kind, operation))
	}
	return &all
}

// sum returns how often any of the kinds happened in an operation.
func (m metrics) sum(operation string, kinds ...event.Kind) awscloudwatch.IMetric {
	using := map[string]awscloudwatch.IMetric{}
	return expression(m.add(using, operation, kinds...), using)
}

// share returns the percentage of an operation's requests in which the kind
// happened.
func (m metrics) share(operation string, kind event.Kind, requests ...event.Kind) awscloudwatch.IMetric {
	using := map[string]awscloudwatch.IMetric{}
	part, whole := m.add(using, operation, kind), m.add(using, operation, requests...)
	// Without requests the share is 0.
	return expression(fmt.Sprintf("IF(%[2]s > 0, 100 * %[1]s / (%[2]s), 0)", part, whole), using)
}

// add returns the sum of the kinds as an expression. A fact that never occurred
// has no metric, and counts as zero.
func (m metrics) add(using map[string]awscloudwatch.IMetric, operation string, kinds ...event.Kind) string {
	var terms []string
	for _, kind := range kinds {
		id := fmt.Sprintf("m%d", telemetry.Index(kind))
		using[id] = m.of(kind, operation)
		terms = append(terms, "FILL("+id+", 0)")
	}
	return "(" + strings.Join(terms, " + ") + ")"
}

func expression(text string, using map[string]awscloudwatch.IMetric) awscloudwatch.IMetric {
	return awscloudwatch.NewMathExpression(&awscloudwatch.MathExpressionProps{
		Expression: jsii.String(text), UsingMetrics: &using, Period: aMinute(),
	})
}

func aMinute() awscdk.Duration { return awscdk.Duration_Minutes(jsii.Number(1)) }
