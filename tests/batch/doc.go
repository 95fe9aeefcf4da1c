// Package batch holds the batches of package lambdabatch to their accounts: a
// source that redelivers, a process that dies, a store that loses replies, and a
// book of what really happened.
package batch
