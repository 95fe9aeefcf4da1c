// Package chaos tests that each promise holds while everything fails at once.
//
// A storm runs many client processes against DynamoDB Local through a proxy. The
// clients are killed with SIGKILL, stopped with SIGSTOP and continued with
// SIGCONT at random moments. The proxy loses, delays, cuts and repeats requests
// and replies. The engine itself is killed, started again on the same files, and
// paused. After the storm, a recovery phase repeats every request until it is
// answered and reconciles until nothing is due. Then the harness compares the
// answers that clients got with the effects, which are recorded outside the
// store.
//
// Each promise has its own operation and its own keys:
//
//   - Reconcile: the effect is one line in a ledger file. The resolver reports
//     "not executed" only about an attempt whose process the harness saw die
//     and that has no line in the ledger. At most one line per key.
//   - Commit under Rerun: the effect is an update of an item in the transaction
//     that completes the record. Exactly one update per key after recovery.
//   - Resume: two steps call a provider that honours the downstream key.
//     Exactly one effect per key and step after recovery.
//
// # Which promise needs the process to die
//
// A stopped process outlives its lease when it continues. The consequences
// differ:
//
//   - Under Rerun the next request runs as soon as the lease has ended. The late
//     process can change nothing: its Commit is conditional on the version of
//     its own claim.
//   - Under Resume the next request runs as soon as the lease has ended, and the
//     late process may call the provider at the same time. Both send the same
//     downstream key, so the provider acts once.
//   - Under Reconcile the effect itself has no fence. The evidence "not executed"
//     is only true of an attempt that can have no effect any more. On Lambda the
//     platform ends the process at the deadline, before the lease ends. The
//     harness does the same: it kills a client with a Reconcile request that
//     runs past its deadline, and never continues such a client.
//
// # Two corrections of DynamoDB Local
//
// DynamoDB Local 2.6.1 answers TransactWriteItems before it commits: its
// commitTransaction queues the COMMIT and returns. A kill in between loses an
// acknowledged transaction, which DynamoDB does not do. The queue is processed in
// order, so the proxy requests a table after each transaction and passes the
// reply on only if that request is answered.
//
// The database is in a memory file system if there is one: a SIGKILL loses
// nothing that a process has written to a file, and syncing to a disk would slow
// the storm down.
package chaos
