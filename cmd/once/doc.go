// SPDX-License-Identifier: Apache-2.0

// Command once is the operator's command line: it lists the records of a store,
// shows one record, settles unknown outcomes by evidence, and checks the table.
//
//	once list --state unknown --table once-records
//	once show charge --scope acme --key order-17
//	once resolve charge --scope acme --key order-17 --not-executed --reason '…'
//
// It works on a DynamoDB table (AWS, LocalStack, DynamoDB Local) and on a file of
// package boltstore. docs/operate.md shows all commands
// with examples; once --help lists the exit codes.
//
// Chapters, from the command line to what its commands share:
//
//	process.go            the process and its environment
//	main.go               the command line
//	lookup.go             once lookup: the state of a key
//	list.go               once list
//	show.go               once show
//	console.go            once console
//	resolve.go            once resolve: evidence from an operator
//	resolve_from.go       once resolve --from: a file of evidence
//	requeue.go            once requeue
//	forget.go             once forget
//	reconcile.go          once reconcile: evidence from a program
//	reconcile_program.go  the program of --exec, and the journal of a run
//	children_unix.go      the processes that the program starts end with it
//	scan.go               once scan
//	purge.go              once purge
//	stats.go              once stats
//	cost.go               once cost: a month of DynamoDB
//	table.go              once table create and once table check
//	version.go            once version
//	flags.go              flags, arguments and exit codes
//
// Package console serves the page of once console. It and the commands share package
// operate, which finds and changes records, and package output.
package main
