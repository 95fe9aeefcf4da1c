// SPDX-License-Identifier: Apache-2.0

// Package peers compares once with what its users could use instead: the bare SDK
// and Powertools. All run on one DynamoDB Local:
//
//	make bench-peers    installs, measures, and writes docs/reports/benchmarks.md
//
// A contestant is a process. Its commands and answers are lines of JSON, so it can
// be written in any language:
//
//	once, bare    in Go; contestant has what they share
//	python        Powertools for AWS Lambda (Python)
//	typescript    Powertools for AWS Lambda (TypeScript), as JavaScript
//	install       installs the last two at the versions of their lock files
//	run           the command that measures
//
// To change a version, change it in python/requirements.txt, with the hashes that
// pip hash prints, or in typescript/package.json, and run npm install there.
package peers

// Chapters, each of which refers only to those below it:
//
//	measure.go  what is measured, in which order
//	behave.go   the scenarios
//	report.go   the tables of the page
//	plot.go     the plot
//	prices.go   the dollars for a million operations
//	results.go  the figures of a run
//	process.go  a running contestant
//	proxy.go    bytes, calls and units
//	work.go     the contestants and their works
