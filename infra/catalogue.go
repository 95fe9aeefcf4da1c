// SPDX-License-Identifier: Apache-2.0

package infra

import (
	_ "embed"
	"encoding/json"
	"time"
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
