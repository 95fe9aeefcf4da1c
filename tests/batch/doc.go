// Package batch tests the batch accounting of package lambdabatch: a source that
// redelivers, a process that dies, a store that loses replies, and a book of the
// real effects.
package batch
