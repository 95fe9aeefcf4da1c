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
// Chapters, from the command line to what all commands share:
//
//	process.go        the process and its environment
//	main.go           the command line, and advice about errors of AWS
//	console.go        once console: the command and its server
//	api.go            what the page of the console reads
//	changes.go        what the page of the console changes
//	waiting.go        what the index shows to the console
//	links.go          links of a record to pages elsewhere
//	door.go           which requests the console accepts, and how it answers
//	lookup.go         once lookup: the state of a key
//	list.go           once list
//	show.go           once show
//	resolve.go        once resolve: evidence from an operator
//	bulk.go           once resolve --from: a file of evidence
//	shape.go          results whose shape differs from the stored ones
//	settle.go         one write of evidence
//	requeue.go        once requeue
//	forget.go         once forget
//	reconcile.go      once reconcile: evidence from a program
//	program.go        the program of --exec, its answers, and the journal of a run
//	children_unix.go  the processes that the program starts end with it
//	upkeep.go         once stats, purge, table create and table check
//	cost.go           once cost: a month of DynamoDB
//	evidence.go       evidence in the form that a record declares, and the audit
//	results.go        what a command did with many records
//	store.go          opening a file or a table, and finding a record
//	view.go           parts of a record as text
//	output.go         tables, progress and plain text
//	env.go            the environment of a command, exit codes and advice
package main
