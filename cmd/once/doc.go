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
//	process.go        the process and its environment
//	main.go           the command line, and once version
//	list.go           once list
//	show.go           once lookup: the state of a key; and once show
//	console.go        once console
//	resolve.go        once resolve: evidence from an operator, and from a file
//	requeue.go        once requeue and once forget
//	reconcile.go      once reconcile: evidence from a program, and the journal of a run
//	children_unix.go  the processes that the program starts end with it
//	scan.go           once scan and once purge
//	stats.go          once stats, and once cost: a month of DynamoDB
//	table.go          once table create and once table check
//	flags.go          flags, arguments and exit codes
//
// Package console serves the page of once console. It and the commands share package
// operate, which finds and changes records, and package output.
package main
