// SPDX-License-Identifier: Apache-2.0

package infra

import (
	"fmt"
	"slices"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
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

// reader returns a metric of a subject by its name.
type reader func(name *string, options *awscloudwatch.MetricOptions) awscloudwatch.Metric

// of reads the metrics of an operation, of all operations or of the gauges.
func (m metrics) of(operation string) reader {
	return func(name *string, options *awscloudwatch.MetricOptions) awscloudwatch.Metric {
		props := &awscloudwatch.MetricProps{Namespace: jsii.String(m.namespace), MetricName: name}
		if operation != allOperations {
			props.DimensionsMap = &map[string]*string{"operation": jsii.String(operation)}
		}
		return awscloudwatch.NewMetric(props).With(options)
	}
}
