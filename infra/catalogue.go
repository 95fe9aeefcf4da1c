// SPDX-License-Identifier: Apache-2.0

package infra

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// alarm is an alarm of the catalogue: what it compares, and when it rings.
//
// A share counts each event as 100 % if there are no requests: the reconciler reports
// events too. One message with a few deliveries is no page, so FunctionFails needs more
// than two errors. The alarms for services with few requests look back two hours and
// count bad periods, not errors: a period is long enough for some requests, and one
// request that fails with all its retries makes fewer periods bad than are needed.
type alarm struct {
	Name        string // of its procedure
	Of          string // the kind of [subject] that has it
	Notifies    string // page, ticket or look
	Reconciler  *bool  // set: it exists only with a reconciler, or only without one
	Description string // NAME stands for the subject

	Expression        string            // of Metrics
	Metrics           map[string]string // names by id
	Metric, Statistic string            // without an expression

	// Threshold is at least Intervals of the reconciler, and Scans of the longest pause
	// between two scans, in seconds.
	Threshold, Intervals, Scans float64
	Below                       bool    // it rings below the threshold; otherwise above
	Period                      float64 // in seconds; zero: the interval of the reconciler
	Periods, Breaching          float64
	Missing                     string // breaching: a period without data is as bad as a bad one
}

// looksBack is how far back the alarm looks.
func (c alarm) looksBack() time.Duration { return time.Duration(c.Period*c.Periods) * time.Second }

// graph is a graph of the dashboard.
type graph struct{ Of, Title, Metric, Statistic string }

// catalogue has the alarms, those of a subject in the order of their urgency, and the
// rows of the dashboard. The Terraform module reads the same file.
var catalogue = func() (c struct {
	Alarms []alarm
	Graphs [][]graph
}) {
	if err := json.Unmarshal(catalogueText, &c); err != nil {
		panic(err)
	}
	return c
}()

//go:embed terraform/alarms/catalogue.json
var catalogueText []byte

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
	switch given := or(namespace, ""); {
	case given == "":
		refuse(scope, "Namespace is not set: set it to the namespace of the functions' metrics")
	case strings.HasPrefix(given, "AWS/"):
		refuse(scope, fmt.Sprintf("Namespace is %q, and names that begin with AWS/ are for services of AWS: set it to another, or emf.New fails and the functions do not start", given))
	default:
		m.namespace = given
	}
	if operations != nil {
		for _, o := range *operations {
			wrong := misnamed(or(o, ""))
			switch {
			case wrong != "":
				refuse(scope, "one of Operations "+wrong)
			case *o == allOf:
				refuse(scope, fmt.Sprintf("one of Operations is %q, and no metric has that name: write the names of the operations", allOf))
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
