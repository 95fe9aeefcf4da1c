// SPDX-License-Identifier: Apache-2.0

// Package worker runs a Lambda handler in separate processes, as Lambda does: a
// process handles one request at a time, waits for the next one, and is killed if
// it outlives the deadline of a request. So you can kill a worker while it works,
// and see what happens to its request.
//
//	[Pool], in the parent:  a request ─► a worker that is idle, or a new one ─► its response
//	[Serve], in the worker: the handler, and a store that calls the parent's
//
// The file of package boltstore can be open in one process only, so the parent has
// it. A write that a worker has sent happens even if the worker dies, as with a
// database on another machine. The two exchange JSON over pipes: the parent calls the
// handler over the worker's standard input and output, and the worker calls the store
// over the next two file descriptors. A worker ends when its standard input does,
// even in the middle of a request, so no worker outlives the parent.
package worker
