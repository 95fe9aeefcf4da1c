// SPDX-License-Identifier: Apache-2.0

// Package waiting settles many records with the real reconciler, and compares the
// time with the simulation of package scale. Some thousand records take seconds on
// DynamoDB Local; make measure-waiting settles 200,000.
package waiting
