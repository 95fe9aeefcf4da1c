// SPDX-License-Identifier: Apache-2.0

// Package console serves the page of once console.
//
// Chapters, from the server to its answers:
//
//	server.go   the server, and what the page reads
//	orders.go   what the page changes
//	lists.go    the lists and counts that the page shows
//	links.go    links of a record to pages elsewhere
//	session.go  which requests the console accepts
//	answer.go   how it answers
package console
