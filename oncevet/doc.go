// SPDX-License-Identifier: Apache-2.0

// Package oncevet finds mistakes in handlers that use the toolkit once before they
// run: an effect that can happen twice, a key that changes with each retry, an
// outcome that is lost. docs/oncevet.md explains each check.
//
// [Analyzer] works on one package at a time. It builds the SSA form of the package
// and reads it in this order:
//
//	functions ─► summary   what a call of the function does: requests, steps, commits
//	          ─► guarded   the handlers that the package passes to the toolkit
//	          ─► checks    each compares calls, values or paths with a rule
//	          ─► ignores   comments that accept a finding
//
// The summaries of functions are facts: a package that is imported is followed like
// a function of the same package. Only modules that are being checked have
// summaries, not their dependencies.
//
// A check reports what it can show. A call through an interface is not followed, and
// an option whose value is not constant is unknown; neither is a finding. Files of
// tests are checked only with the flag -oncevet.tests, because tests provoke failures.
package oncevet

// Chapters, in the order of reading:
//
//	oncevet.go   Analyzer: the order of the work, and comments that accept a finding
//	retries.go   checks notexecuted, joined, ignored: what errors declare
//	effects.go   checks outsidestep, downstreamkey, aftercommit, committype: what a crash repeats or loses
//	contexts.go  checks lostcontext, afterexit: what outlives the handler
//	keys.go      checks unstablekey, wholeevent, retention, stepname: what makes a retry a retry
//	guarded.go   guarded handlers and their options
//	summary.go   what a call of a function does
//	sends.go     calls of known clients
//	paths.go     which instructions can follow which
//	values.go    where a value comes from
//	toolkit.go   the names of the toolkit
