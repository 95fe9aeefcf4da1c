// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/once-lambda/once/idempotent/event"
	"github.com/once-lambda/once/telemetry"
)

const (
	// gauges is the operation of the gauges.
	gauges = "all"
	// allOperations stands for the counts without a dimension.
	allOperations = ""
)

// metrics are the metrics of package telemetry that the functions print
// through telemetry/emf, in one namespace.
type metrics struct {
	namespace  string
	operations []string
}

// metricsOf validates its arguments and reports errors on scope. Operations can be
// missing.
func metricsOf(scope constructs.Construct, namespace *string, operations *[]*string) metrics {
	m := metrics{namespace: "not-set"} // so that the missing namespace is the only error
	if namespace != nil && *namespace != "" {
		m.namespace = *namespace
	} else {
		refuse(scope, "Namespace is not set: set it to the namespace of the functions' metrics")
	}
	if operations != nil {
		for _, o := range *operations {
			switch {
			case o == nil || *o == "":
				refuse(scope, "one of Operations has no name: remove it")
			case isToken(o):
				refuse(scope, "an element of Operations is not known at synthesis, and ids and names contain it: write the operation's name")
			case slices.Contains(m.operations, *o):
				refuse(scope, fmt.Sprintf("%q is twice in Operations: remove one", *o))
			default:
				m.operations = append(m.operations, *o)
			}
		}
	}
	return m
}

// of returns the count of a kind of event in an operation, or in all.
func (m metrics) of(kind event.Kind, operation string, period time.Duration) awscloudwatch.IMetric {
	return m.named(telemetry.Prefix+string(kind), operation, awscloudwatch.Stats_SUM(), period)
}

// gauge returns a gauge of package telemetry.
func (m metrics) gauge(name string, period time.Duration) awscloudwatch.IMetric {
	return m.named(name, gauges, awscloudwatch.Stats_MAXIMUM(), period)
}

func (m metrics) named(name, operation string, statistic *string, period time.Duration) awscloudwatch.IMetric {
	props := m.props(name, operation, statistic, period)
	if operation != gauges && operation != allOperations {
		props.Label = jsii.String(operation)
	}
	return awscloudwatch.NewMetric(props)
}

func (m metrics) props(name, operation string, statistic *string, period time.Duration) *awscloudwatch.MetricProps {
	props := &awscloudwatch.MetricProps{
		Namespace:  jsii.String(m.namespace),
		MetricName: jsii.String(name),
		Statistic:  statistic,
		Period:     lasting(period),
	}
	if operation != allOperations {
		props.DimensionsMap = &map[string]*string{"operation": jsii.String(operation)}
	}
	return props
}

// each returns a metric of every operation.
func (m metrics) each(of func(operation string) awscloudwatch.IMetric) *[]awscloudwatch.IMetric {
	var all []awscloudwatch.IMetric
	for _, operation := range m.operations {
		all = append(all, of(operation))
	}
	return &all
}

// count returns how often events of these kinds occurred in an operation.
func (m metrics) count(operation string, period time.Duration, kinds ...event.Kind) awscloudwatch.IMetric {
	using := map[string]awscloudwatch.IMetric{}
	return expression(m.add(using, operation, period, kinds...), using, period)
}

// share returns how many events of these kinds occurred for each 100 requests of
// an operation.
func (m metrics) share(operation string, period time.Duration, kinds ...event.Kind) awscloudwatch.IMetric {
	using := map[string]awscloudwatch.IMetric{}
	return percentage(m.add(using, operation, period, kinds...), m.add(using, operation, period, event.RequestEnded), using, period)
}

// add returns the sum of the kinds as an expression.
func (m metrics) add(using map[string]awscloudwatch.IMetric, operation string, period time.Duration, kinds ...event.Kind) string {
	var terms []string
	for _, kind := range kinds {
		id := string(kind)
		using[id] = m.of(kind, operation, period)
		terms = append(terms, filled(id))
	}
	if len(terms) == 1 {
		return terms[0]
	}
	return "(" + strings.Join(terms, " + ") + ")"
}

// filled returns a count as an expression. An event that never occurred has no
// metric, and counts as zero.
func filled(id string) string { return "FILL(" + id + ", 0)" }

// percentage returns part as a percentage of whole.
func percentage(part, whole string, using map[string]awscloudwatch.IMetric, period time.Duration) awscloudwatch.IMetric {
	return expression(share(part, whole), using, period)
}

// share is percentage as an expression. Without a whole, each part counts as 100 %: the
// reconciler reports events too, when no request comes.
func share(part, whole string) string {
	return fmt.Sprintf("IF(%[2]s > 0, 100 * %[1]s / %[2]s, 100 * %[1]s)", part, whole)
}

func expression(text string, using map[string]awscloudwatch.IMetric, period time.Duration) awscloudwatch.IMetric {
	return awscloudwatch.NewMathExpression(&awscloudwatch.MathExpressionProps{
		Expression: jsii.String(text), UsingMetrics: &using, Period: lasting(period),
	})
}
