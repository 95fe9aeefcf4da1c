// SPDX-License-Identifier: Apache-2.0

package main

// Declarations about mutants, by name. A declaration that matches no mutant is
// an error.

// equivalents are mutants that change nothing observable, each with the reason.
// It is an error if a test notices one.
var equivalents = map[string]string{
	"idempotent.Guard.options: len(optFns) == 0 is never true":                    "copies options that are complete",
	"idempotent.FingerprintBytes: size += binary.MaxVarintLen64 + len(p) is gone": "only a capacity: append grows the slice without it",
	"idempotent.Options.validate: o.CacheBytes < 0 has <=":                        "zero was replaced by the default before",
	"idempotent.Options.observe: o.Observer != nil is always true":                "emit checks it too; this check only saves building the event",
	"idempotent.attempt.lap: a.opts.Observer == nil is never true":                "without an observer, no event has the durations",
	"idempotent.attempt.ended: a.opts.Observer == nil is never true":              "emit checks it too; this check only saves building the event",
	"idempotent.escapesReplacement: i < 0 has <=":                                 "the text begins with a quote",

	"idempotent/driver.Record.Schedule: r.Expires is not set to time.Time{}":             "each case below sets it",
	"idempotent.keepUntilLeaseEnd: r.Expires.Before(r.LeaseEnd) includes the equal time": "sets the value that the field already has",

	"idempotent.attempt.await: a.opts.WaitFor == 0 is never true":                          "with WaitFor 0, the wait ends before its first pause",
	"idempotent.attempt.await: w.until.After(a.window.handlerEnd) includes the equal time": "sets the value that the variable already has",
	"idempotent.attempt.await: now.Add(pause).Before(w.until) includes the equal time":     "the pause is random to the nanosecond",

	"idempotent.Guard.remember: g.cache == nil is never true": "a nil cache stores nothing",

	"idempotent.Execution.leave: !e.ended is always true":                                       "only reachable in a race: ended between the step's write and this check",
	"idempotent.reconciler.pause: pause >= r.opts.MaxBackoff has >":                             "the result is MaxBackoff either way",
	"idempotent.reconciler.plan: half < r.share has <=":                                         "sets the values that the fields already have",
	"idempotent.earlier: other.Before(t) includes the equal time":                               "the two times are equal",
	"idempotent.ReconcileOptions.validate: min(o.GiveUpAfter, o.ReleasedFor) < 0 has <=":        "zero was replaced by the default before",
	"idempotent.Reconciler: err != nil is never true (2)":                                       "the same arguments were valid when the handler was made",
	"idempotent.listRunning: err != nil && e.ID == \"\" loses err != nil &&":                    "an entry without an id comes with an error",
	"idempotent.reconciler.list: err != nil && e.ID == \"\" loses err != nil &&":                "an entry without an id comes with an error",
	"idempotent.Guard.RequeueExhausted: listErr != nil && e.ID == \"\" loses listErr != nil &&": "an entry without an id comes with an error",
	"idempotent.withoutStep: !found is never true":                                              "only a step that was begun is removed",
	"idempotent.Wrap: inspected && suspends(req) loses inspected &&":                            "only saves looking at the request",
	"idempotent.suspends: !bytes.Contains(v.Bytes(), []byte(executionMember)) is never true":    "only saves decoding",

	"internal/jsontypes.writeShape: case reflect.Int is gone": "the default clause writes int too",
	"idempotent.encodeResult: !copies is always true":         "a result of the JSON codec is already a copy",

	"dynamostore.Store.Insert: err != nil || !refused loses err != nil ||":                                    "refused is false if there is an error",
	"dynamostore.Store.Replace: err != nil || !refused loses err != nil ||":                                   "refused is false if there is an error",
	"dynamostore.Store.scanSegment: !found(s.entryOf(it)) is never true":                                      "a list without a reader ends with its context",
	"dynamostore.Store.Abandoned: s.opts.ScanEvery < 0 has <=":                                                "zero was replaced by the default before",
	"dynamostore.pace.wait: p.next.Before(now) includes the equal time":                                       "sets the value that the field already has",
	"dynamostore.Store.merged: e.err != nil && e.listed.ID == \"\" loses e.err != nil &&":                     "an entry without an id has an error",
	"dynamostore.ScanningStore.sorted: err != nil && r.ID == \"\" loses err != nil &&":                        "a record without an id has an error",
	"dynamostore.shard.before: h.page[0].listed.Due.Before(other.page[0].listed.Due) includes the equal time": "entries of the same time have no order",
	"dynamostore.Store.readChunks: length is not set to length+len(part)":                                     "only a capacity: append grows the slice without it",
	"dynamostore.gather: ctx.Err() != nil is never true":                                                      "the client checks the context too",
	"dynamostore.Store.PurgeChunks: o.Segments > 1_000_000 has >=":                                            "a test with a million segments would take too long",
	"dynamostore.Store.scan: o.Segments > 1_000_000 has >=":                                                   "a test with a million segments would take too long",

	"dynamostore.decoder.time: d.missing(name, p) is not called":   "no time is required",
	"dynamostore.Store.waits: time.Until(deadline) <= delay has <": "the pause is random to the nanosecond",
	"dynamostore.backoff: doublings < 32 has <=":                   "a base doubled 32 times is already above every limit",

	"lambdabatch.order.Less: o[i].message < o[j].message has <=": "no two lanes begin with the same message",
	"lambdabatch.Options.validate: o.Redelivery < 0 has <=":      "zero was replaced by the default before",
	"lambdabatch.Options.validate: o.Reserve < 0 has <=":         "zero was replaced by the default before",

	"lambdabatch.engine.hide: limit <= 0 has <":                               "a context without time left has ended",
	"lambdabatch.engine.hide: min(len(refused), hideCalls) becomes hideCalls": "a goroutine without a message ends",

	"boltstore.Store.Insert: err != nil is never true":                                       "every record encodes",
	"boltstore.Store.Insert: err != nil is never true (2)":                                   "the count can always be set in a writing transaction",
	"boltstore.Store.Insert: err != nil && !errors.Is(err, errRefused) loses err != nil &&":  "without an error, the next return returns nil too",
	"boltstore.Store.Replace: err != nil is never true":                                      "the transaction checks the context too",
	"boltstore.Store.Replace: err != nil is never true (2)":                                  "every record encodes",
	"boltstore.Store.Replace: err != nil && !errors.Is(err, errRefused) loses err != nil &&": "without an error, the next return returns nil too",

	"boltstore.Store.Delete: err != nil && !errors.Is(err, errRefused) loses err != nil &&": "without an error, the next return returns nil too",
	"boltstore.Store.collect: err != nil is never true":                                     "the list checks the context too",

	"boltstore.Store.scan: after != nil && string(key) == string(after) is never true":         "only reads the last record twice",
	"boltstore.Store.scan: after != nil && string(key) == string(after) loses after != nil &&": "no key is empty",
	"boltstore.Store.scan: after != nil is negated":                                            "only reads the last record twice",
	"boltstore.Store.scan: last is not set to nil":                                             "a read after the end finds nothing",
	"boltstore.Store.drop: err != nil is never true (2)":                                       "a key can always be deleted in a writing transaction",

	"idempotent/driver.duration: *p < 0 has <=":                       "a zero duration is absent, so nothing reads its value",
	"idempotent/driver.steps: !unmarshal(raw, &stored) is never true": "a text that is not an object of objects has no steps, or a step without a mode",
	"idempotent/driver.coded: !unmarshal(raw, &code) is never true":   "no code is empty, and a code that cannot be read stays empty",

	"internal/canonical.JSON: defer p.release() is gone":                                                                                         "only costs memory: the next call makes another parser",
	"internal/canonical.JSON: p.out is not set to slices.Grow(p.out, len(doc))":                                                                  "only a capacity: append grows the slice without it",
	"internal/canonical.parser.release: cap(p.out) > maxKept is always true":                                                                     "only costs memory: the next call makes another parser",
	"internal/canonical.parser.release: cap(p.out) > maxKept is never true":                                                                      "only costs memory that the pool keeps until a collection",
	"internal/canonical.parser.release: cap(p.out) > maxKept has >=":                                                                             "only costs memory: the next call makes another parser",
	"internal/canonical.parser.release: cap(p.out) > maxKept is negated":                                                                         "only costs memory that the pool keeps until a collection",
	"internal/canonical.parser.release: parsers.Put(p) is not called":                                                                            "only costs memory: the next call makes another parser",
	"internal/canonical.parseDecimal: i >= 0 has >":                                                                                              "no number begins with its exponent",
	"internal/canonical.decimal.isShortest: len(d.digits) > doubleDigits is never true":                                                          "only saves parsing: no shortest text has so many digits",
	"internal/canonical.decimal.isShortest: len(d.digits) <= plainDigits is never true":                                                          "only saves parsing: so few digits are always the shortest text",
	"internal/canonical.decimal.isShortest: len(d.digits) <= plainDigits has <":                                                                  "only saves parsing: so few digits are always the shortest text",
	"internal/canonical.decimal.appendDouble: d.exp < 0 has <=":                                                                                  "the clause before has every shortest text with exponent 0",
	"internal/canonical.decimal.appendDouble: n > 0 has >= (2)":                                                                                  "the clause before has every text of magnitude 0",
	"internal/canonical.layout.named: i > o.names && bytes.Compare(l.key(i-1), l.key(i)) >= 0 is always true":                                    "only sorts members that are sorted",
	"internal/canonical.layout.named: i > o.names && bytes.Compare(l.key(i-1), l.key(i)) >= 0 loses && bytes.Compare(l.key(i-1), l.key(i)) >= 0": "only sorts members that are sorted",
	"internal/canonical.layout.named: i-1 becomes i":                                                                                             "only sorts members that are sorted",
	"internal/canonical.layout.close: l.keys is not set to l.keys[:o.keys]":                                                                      "only costs memory: names have the positions of their keys",
	"internal/canonical.layout.sort: len(l.names) - o.names becomes len(l.names)":                                                                "only a capacity",
	"internal/canonical.layout.sort: l.members is not set to room(l.members, n)":                                                                 "only a capacity: append grows the slice without it",
	"internal/canonical.layout.sort: copy(prefix[:], l.key(i)) is not called":                                                                    "only saves comparing the whole keys",
	"internal/canonical.layout.compare: a.prefix != b.prefix is never true":                                                                      "only saves comparing the whole keys",
	"internal/canonical.room: cap(s)-len(s) < n is always true":                                                                                  "only a capacity",
	"internal/canonical.room: cap(s)-len(s) < n is never true":                                                                                   "only a capacity: append grows the slice without it",
	"internal/canonical.room: cap(s)-len(s) < n has <=":                                                                                          "only a capacity",
	"internal/canonical.room: cap(s)-len(s) < n is negated":                                                                                      "only a capacity",
	"internal/canonical.room: cap(s)-len(s) becomes cap(s)":                                                                                      "only a capacity",
	"internal/canonical.room: max(n, len(s)) becomes n":                                                                                          "only a capacity",
	"internal/canonical.room: max(n, len(s)) becomes len(s)":                                                                                     "only a capacity",
	"internal/canonical.appendKey: bytes.IndexByte(text, '\\\\') >= 0 is always true":                                                            "a text without escapes is its own unquoted form",
	"internal/canonical.parser.text: c < ' ' has <=":                                                                                             "a space is copied before",
	"internal/canonical.parser.number: integer && p.pos-whole <= plainDigits && (p.doc[whole] != '0' || start == whole) is never true":           "only saves parsing: a short integer is its own canonical form",
	"internal/canonical.parser.number: p.pos-whole <= plainDigits has <":                                                                         "only saves parsing: a short integer is its own canonical form",
	"internal/canonical.parser.number: p.doc[whole] != '0' || start == whole loses || start == whole":                                            "only saves parsing: 0 is its own canonical form",
	"internal/canonical.parser.number: p.doc[whole] != '0' || start == whole loses p.doc[whole] != '0' ||":                                       "only saves parsing: a short integer is its own canonical form",
	"internal/canonical.parser.number: p.pos-whole becomes p.pos":                                                                                "only saves parsing: a short integer is its own canonical form",

	"telemetry/otelonce.Observer.Observe: span.IsRecording() is always true": "another span ignores events and links; this check only saves making them",
	"telemetry/otelonce.Observer.Observe: ran.IsValid() is always true":      "the SDK ignores a link to no span",
	"telemetry/otelonce.received: sender.IsValid() is always true":           "the SDK ignores a link to no span",
	"telemetry/otelonce.Observer.of: ok is never true":                       "only saves taking the lock",
	"telemetry/otelonce.Observer.of: ok is never true (2)":                   "only reachable in a race: another goroutine added the operation between the two locks",
}

// endless are mutants that run for ever, which a test can notice only by its
// time-out. Each has the reason why it does not end. Any other mutant that only
// a time-out ends is an error: tests may miss it on a machine that is merely
// busy.
var endless = map[string]string{
	"idempotent.escapesReplacement: i-slashes becomes i":                                                                      "looks at the same byte for ever",
	"idempotent.escapesReplacement: slashes++ is gone":                                                                        "looks at the same byte for ever",
	"idempotent.escapesReplacement: doc is not set to doc[i+1:]":                                                              "finds the same text for ever",
	"idempotent.cache.put: c.drop(c.recent.Back()) is not called":                                                             "entries above the limit are never dropped",
	"idempotent.attempt.claim: round < maxClaimRounds is always true":                                                         "a record that changes on every read is read for ever",
	"idempotent.attempt.claim: round++ is gone":                                                                               "a record that changes on every read is read for ever",
	"idempotent.attempt.claim: now is not set to a.opts.now()":                                                                "the wait never ends",
	"idempotent.attempt.claim: !again is never true":                                                                          "the wait never ends",
	"idempotent.attempt.claim: !again is not negated":                                                                         "the wait never ends",
	"idempotent.reconciler.rounds: !again || r.worked == worked is never true":                                                "an empty list is read for ever",
	"idempotent.reconciler.rounds: !again || r.worked == worked loses !again ||":                                              "an empty list is read for ever",
	"idempotent.reconciler.rounds: !again || r.worked == worked loses || r.worked == worked":                                  "an outdated list is read for ever",
	"idempotent.queue.take: q.working > 0 && q.doubtful() loses q.working > 0 &&":                                             "it waits although no record is worked on",
	"idempotent.queue.take: q.working > 0 && q.doubtful() && q.failures+q.working >= maxFailures is always true":              "it waits although no record is worked on",
	"idempotent.limited: defer func() { if p := recover(); p != nil { got.err = fmt.Errorf(\"idempotent: the %s p... is gone": "no answer is ever handed over",
	"idempotent.reconciler.next: !ok is not negated":                                                                          "an empty queue is worked on for ever",
	"idempotent.queue.take: q.changed.Wait() is not called":                                                                   "the goroutine holds the lock while it waits",
	"idempotent.queue.take: q.entries is not set to q.entries[1:]":                                                            "the first record is taken for ever",
	"idempotent.reconciler.drain: r.next(ctx, q) is always true":                                                              "an empty queue is worked on for ever",
	"idempotent.reconciler.drain: r.next(ctx, q) is negated":                                                                  "an empty queue is worked on for ever",
	"idempotent.reconciler.drain: r.next(ctx, q) is always true (2)":                                                          "an empty queue is worked on for ever",
	"idempotent.reconciler.next: !ok is never true":                                                                           "an empty queue is worked on for ever",
	"idempotent.Guard.RequeueExhausted: defer func() { <-slots }() is gone":                                                   "the ninth record waits for ever",
	"internal/jsontypes.walk.value: w.seen[visit{t, at}] is never true":                                                       "a type that contains itself is visited again and again",
	"internal/jsontypes.walk.value: w.seen[visit{t, at}] is not set to true":                                                  "a type that contains itself is visited again and again",
	"internal/jsontypes.collector.add: c.embedding[t] is never true":                                                          "a struct that embeds itself is walked again and again",
	"internal/jsontypes.collector.add: c.embedding[t] is not set to true":                                                     "a struct that embeds itself is walked again and again",
	"idempotent.suspendable: t is not set to t.Elem()":                                                                        "a pointer is followed for ever",
	"idempotent.suspends: v is not set to v.Elem()":                                                                           "a pointer is followed for ever",
	"internal/jsontypes.writeShape: i >= 0 is never true":                                                                     "a type that contains itself is written again and again",
	"internal/jsontypes.writeShape: around is not set to append(slices.Clip(around), t)":                                      "a type that contains itself is written again and again",

	"idempotent/driver.ParseStepSource: s++ is gone": "only the first source is compared, for ever",

	"dynamostore.Store.persist: attempt++ is gone":                                                                                                   "a permanent conflict is retried for ever",
	"dynamostore.Store.waits: attempt >= s.opts.ConflictAttempts || ok && time.Until(deadline) <= delay is never true":                               "a permanent conflict is retried for ever",
	"dynamostore.Store.waits: attempt >= s.opts.ConflictAttempts || ok && time.Until(deadline) <= delay loses attempt >= s.opts.ConflictAttempts ||": "a permanent conflict is retried for ever",

	"dynamostore.Store.scanSegment: len(out.LastEvaluatedKey) == 0 is negated":                            "the last page is requested again and again",
	"dynamostore.Store.scanSegment: len(out.LastEvaluatedKey) == 0 is never true":                         "the last page is requested again and again",
	"dynamostore.Store.scanSegment: in.ExclusiveStartKey is not set to out.LastEvaluatedKey":              "the first page is requested again and again",
	"dynamostore.pass.read: p.mark.starts[i] != nil && p.pace.wait(ctx) loses p.mark.starts[i] != nil &&": "the segment begins again after its end",
	"dynamostore.pass.page: in.ExclusiveStartKey is not set to start":                                     "the first page is read again and again",
	"dynamostore.pass.page: p.mark.starts[segment] is not set to out.LastEvaluatedKey":                    "the same page is read again and again",
	"dynamostore.Store.merged: !ok is never true":                                                         "it yields empty entries after the end",
	"dynamostore.Store.merged: break is gone":                                                             "it yields empty entries after the end",
	"dynamostore.shard.next: h.page is not set to h.page[1:]":                                             "it yields the same entry for ever",
	"dynamostore.shard.turn: !more is never true":                                                         "a closed channel yields empty pages for ever",
	"dynamostore.gather: close(numbers) is not called":                                                    "a producer waits for another number",
	"dynamostore.gather: close(entries) is not called":                                                    "the reader waits for another entry",

	"lambdabatch.engine.run: defer func() { // also when the handler ends its goroutine mu.Lock() defer mu.Unlock() ... is gone": "no message is ever completed",
	"lambdabatch.engine.hide: close(refused) is not called":                                                                      "each goroutine waits for another message",
	"lambdabatch.engine.run: working-- is gone":                                                                                  "no message is ever completed",
	"lambdabatch.engine.run: free.Signal() is not called":                                                                        "the waiting goroutine is not woken when a message is completed",
	"lambdabatch.engine.run: free.Wait() is not called":                                                                          "the goroutine holds the lock while it waits",
	"lambdabatch.engine.run: ok is always true":                                                                                  "the first message is handed out for ever",
	"lambdabatch.engine.run: working > 0 is always true":                                                                         "it waits although no message is in progress",
	"lambdabatch.engine.run: working > 0 has >=":                                                                                 "it waits although no message is in progress",

	"lambdabatch.lanes.next: l.waiting[h.lane] is not set to l.waiting[h.lane][1:]": "the first message of a lane is handed out for ever",

	"boltstore.Store.Purge: last == nil is never true": "it reads on after the end for ever",
	"boltstore.Store.Purge: last == nil is negated":    "it reads on after the end for ever",
	"boltstore.Store.Purge: after is not set to last":  "the first records are read for ever",

	"internal/canonical.layout.sort: i++ is gone":              "the first name is added for ever",
	"internal/canonical.parser.text: err != nil is never true": "the same escape is read for ever",

	"telemetry/emf.Observer.of: len(o.operations) >= maxOperations && operation != other && operation != all loses len(o.operations) >= maxOperations && operation != other &&": "it calls itself for ever",
	"telemetry/emf.Observer.of: len(o.operations) >= maxOperations && operation != other loses && operation != other":                                                           "it calls itself for ever",
	"telemetry/emf.Observer.of: operation != other is negated":                                                                                                                  "it calls itself for ever",
	"telemetry/otelonce.Observer.of: o.mu.RUnlock() is not called":                                                                                                              "the lock is never free again",
}
