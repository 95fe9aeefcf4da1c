// SPDX-License-Identifier: Apache-2.0

// Package scale simulates how many requests a second a table of records can serve,
// and what limits it first. docs/reports/scale.md has its tables and plots.
//
// The model follows what AWS publishes: 1,000 write units a second for each partition
// and for each key, a reserve of 300 seconds of unused throughput, on-demand
// tables that serve twice their earlier peak and update that peak every 30 minutes,
// a quota for each table, and indexes that slow down the writes of their table. AWS
// does not publish when a partition is split because it is busy: the model assumes
// after 10 minutes, and never if all of its writes are at one key, or at the end of
// one key's range.
package scale
