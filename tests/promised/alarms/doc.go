// SPDX-License-Identifier: Apache-2.0

// Package alarms evaluates the alarms of a synthesised template as CloudWatch
// does, on metrics that a simulation writes.
//
// The rules are those of the CloudWatch user guide: "Alarm evaluation" (the most
// recent M of N periods, in a sliding window), "Configuring how CloudWatch alarms
// treat missing data" (with its tables of examples) and "Using math expressions".
// Two things are not published, and are settings of an [Evaluator]: how many
// periods CloudWatch retrieves beyond N, and how late data arrives.
package alarms
