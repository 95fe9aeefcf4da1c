// SPDX-License-Identifier: Apache-2.0

// Package frozen compares what users rely on with the files of this folder: stored
// records and the names of metrics. RELEASING.md has the promises, and how to change
// one.
package frozen
