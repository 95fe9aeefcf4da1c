// SPDX-License-Identifier: Apache-2.0

// Package tabledef has what package dynamostore, the command line and infrastructure code
// must name alike about a table: its attributes, its index, and the environment variables
// that describe it.
package tabledef
