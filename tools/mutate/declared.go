package main

// What people have found out about mutants, by name. A declaration that fits no
// mutant is an error.

// equivalents change nothing that anybody could observe, each with the reason.
// One that a test notices is an error.
var equivalents = map[string]string{
	"idempotent.random.draw: r.used == 0 is always true":                              "fresh randomness sooner than needed",
	"idempotent.random.draw: r.used is not set to (r.used + len(out)) % len(r.bytes)": "fresh randomness sooner than needed",

	"idempotent.newCache: o.CacheEntries == 0 is never true": "a cache for no entries keeps nothing",

	"idempotent.schedule: r.Expires is not set to time.Time{}":                           "each case below sets it",
	"idempotent.keepUntilLeaseEnd: r.Expires.Before(r.LeaseEnd) includes the equal time": "sets the value that it has",

	"idempotent.attempt.await: a.opts.WaitFor == 0 is never true":                          "no patience is over before its first pause",
	"idempotent.attempt.await: w.until.After(a.window.handlerEnd) includes the equal time": "sets the value that it has",
	"idempotent.attempt.await: now.Add(pause).Before(w.until) includes the equal time":     "the pause is random to the nanosecond",

	"idempotent.Guard.remember: g.cache == nil is never true": "a nil cache keeps nothing",

	"idempotent.Execution.leave: !e.sealed is always true":                                     "only a race gets there: sealed between the step's write and this",
	"idempotent.reconciler.walk: err != nil && record.ID == \"\" loses err != nil &&":          "every record has an id",
	"idempotent.reconciler.unresolved: record.Created.Before(*oldest) includes the equal time": "sets the value that it has",
	"idempotent.reconciler.walk: r.opts.Concurrency == 1 is never true":                        "one at a time also on another goroutine, which only the explorer's coroutines notice",
	"idempotent.reconciler.pause: pause >= r.opts.MaxBackoff has >":                            "the bound is the bound either way",
	"idempotent.decodeStep: err == nil is always true":                                         "what was not unpacked does not decode",
	"idempotent.withoutStep: !found is never true":                                             "a step that is forgotten was begun",

	"dynamostore.Store.Insert: err != nil || !refused loses err != nil ||":                 "with an error nothing is refused",
	"dynamostore.Store.Replace: err != nil || !refused loses err != nil ||":                "with an error nothing is refused",
	"dynamostore.ScanningStore.Exhausted: r.Exhausted is always true":                      "the filter lets nothing else through",
	"dynamostore.Store.list: e.err == nil && !still(&e.record) || found(e) is always true": "a list that nobody reads ends with its context",
	"dynamostore.Store.listShard: !found(e) is never true":                                 "a list that nobody reads ends with its context",
	"dynamostore.Store.scan: e.err == nil && !match(&e.record) || found(e) is always true": "a list that nobody reads ends with its context",
	"dynamostore.Store.scanSegment: !found(entryOf(it)) is never true":                     "a list that nobody reads ends with its context",
	"dynamostore.gather: ctx.Err() != nil is never true":                                   "the client looks at the context too",
	"dynamostore.Store.scan: o.Segments > 1_000_000 has >=":                                "nobody waits for a million segments",

	"dynamostore.Store.GetChunks: length is not set to length+len(part)": "a capacity: append grows without it",
	"dynamostore.decoder.time: d.missing(name, p) is not called":         "no time is required",
	"dynamostore.Store.pause: time.Until(deadline) <= delay has <":       "the pause is random to the nanosecond",
	"dynamostore.Store.waits: time.Until(deadline) <= delay has <":       "the pause is random to the nanosecond",
	"dynamostore.backoff: doublings < 32 has <=":                         "a base doubled so often is above every limit already",

	"lambdabatch.order.Less: o[i].message < o[j].message has <=": "no two lanes begin with the same message",
	"lambdabatch.Options.validate: o.Redelivery < 0 has <=":      "zero has become the default",
	"lambdabatch.Options.validate: o.Reserve < 0 has <=":         "zero has become the default",

	"boltstore.Store.Insert: err != nil is never true":                                       "every record encodes",
	"boltstore.Store.Insert: err != nil is never true (2)":                                   "the count can be set in every writing transaction",
	"boltstore.Store.Insert: err != nil && !errors.Is(err, errRefused) loses err != nil &&":  "without an error nothing is returned",
	"boltstore.Store.Replace: err != nil is never true":                                      "the transaction looks at the context too",
	"boltstore.Store.Replace: err != nil is never true (2)":                                  "every record encodes",
	"boltstore.Store.Replace: err != nil && !errors.Is(err, errRefused) loses err != nil &&": "without an error nothing is returned",

	"boltstore.Store.Delete: err != nil && !errors.Is(err, errRefused) loses err != nil &&": "without an error nothing is returned",
	"boltstore.Store.collect: err != nil is never true":                                     "the list looks at the context too",

	"boltstore.Store.scan: after != nil && string(key) == string(after) is never true":         "the last record is looked at twice",
	"boltstore.Store.scan: after != nil && string(key) == string(after) loses after != nil &&": "no key is empty",
	"boltstore.Store.scan: after != nil is negated":                                            "the last record is looked at twice",
	"boltstore.Store.scan: last is not set to nil":                                             "a look behind the end finds nothing",
	"boltstore.Store.drop: err != nil is never true (2)":                                       "a key can be deleted in every writing transaction",

	"boltstore.encodeFields: delete(doc, f.name) is not called":     "what is known is never among the members of a later version",
	"boltstore.encodeFields: err is not set to json.Marshal(value)": "the value of every field can be written as JSON",
	"boltstore.duration: *p < 0 has <=":                             "a duration of zero is absent, so its value is not asked for",
	"boltstore.steps: !unmarshal(raw, &stored) is never true":       "what is not an object of objects has no steps, or one without a mode",
	"boltstore.encode: err != nil is never true (2)":                "every document encodes",
	"boltstore.coded: !unmarshal(raw, &code) is never true":         "no code is empty, and what is not read stays so",
}

// endless are mutants that never end, which is all that a test can notice of
// them, each with what goes on. Whatever else only a time-out ends is an error:
// it may be a mutant that no test notices and a machine that is busy.
var endless = map[string]string{
	"idempotent.cache.put: c.drop(c.recent.Back()) is not called":                                                     "what is over the bound is never dropped",
	"idempotent.attempt.claim: round < maxClaimRounds is always true":                                                 "a record that changes at every look is looked at for ever",
	"idempotent.attempt.claim: round++ is gone":                                                                       "a record that changes at every look is looked at for ever",
	"idempotent.attempt.claim: now is not set to a.opts.now()":                                                        "patience never ends",
	"idempotent.attempt.claim: !again is never true":                                                                  "patience never ends",
	"idempotent.attempt.claim: !again is not negated":                                                                 "patience never ends",
	"idempotent.reconciler.walk: workers.Go(func() { defer func() { <-slots }() r.one(ctx, &record) }) is not called": "a slot that was taken is never free again",
	"idempotent.reconciler.walk: defer func() { <-slots }() is gone":                                                  "a slot that was taken is never free again",

	"idempotent/driver.ParseState: s++ is gone":      "the first state is compared for ever",
	"idempotent/driver.ParseStepSource: s++ is gone": "the first source is compared for ever",

	"dynamostore.Store.persist: attempt++ is gone":                                                                                                   "a conflict that does not pass is met for ever",
	"dynamostore.Store.pause: attempt >= s.opts.ConflictAttempts || ok && time.Until(deadline) <= delay is never true":                               "a conflict that does not pass is met for ever",
	"dynamostore.Store.pause: attempt >= s.opts.ConflictAttempts || ok && time.Until(deadline) <= delay loses attempt >= s.opts.ConflictAttempts ||": "a conflict that does not pass is met for ever",

	"dynamostore.Store.listShard: len(out.LastEvaluatedKey) == 0 is never true":                        "the last page is asked for again and again",
	"dynamostore.Store.listShard: len(out.LastEvaluatedKey) == 0 is negated":                           "the last page is asked for again and again",
	"dynamostore.Store.listShard: in.ExclusiveStartKey is not set to out.LastEvaluatedKey":             "the first page is asked for again and again",
	"dynamostore.Store.scanSegment: len(out.LastEvaluatedKey) == 0 is negated":                         "the last page is asked for again and again",
	"dynamostore.Store.scanSegment: len(out.LastEvaluatedKey) == 0 is never true":                      "the last page is asked for again and again",
	"dynamostore.Store.scanSegment: in.ExclusiveStartKey is not set to out.LastEvaluatedKey":           "the first page is asked for again and again",
	"dynamostore.gather: close(numbers) is not called":                                                 "a producer waits for another number",
	"dynamostore.gather: close(entries) is not called":                                                 "the reader waits for another entry",
	"dynamostore.Store.scan: o.Segments < 1 || o.Segments > 1_000_000 loses || o.Segments > 1_000_000": "a million segments are asked",
	"dynamostore.Store.scan: o.Segments > 1_000_000 is negated":                                        "a million segments are asked",

	"lambdabatch.engine.run: defer func() { // also when the handler ends its goroutine mu.Lock() defer mu.Unlock() ... is gone": "no message is ever worked through",
	"lambdabatch.engine.run: working-- is gone":           "no message is ever worked through",
	"lambdabatch.engine.run: free.Signal() is not called": "nobody hears that a message is worked through",
	"lambdabatch.engine.run: free.Wait() is not called":   "it keeps the lock while it waits",
	"lambdabatch.engine.run: ok is always true":           "the first message is handed out for ever",
	"lambdabatch.engine.run: working > 0 is always true":  "it waits with nothing under way",
	"lambdabatch.engine.run: working > 0 has >=":          "it waits with nothing under way",

	"boltstore.Store.Purge: last == nil is never true": "the end is looked for behind the end",
	"boltstore.Store.Purge: last == nil is negated":    "the end is looked for behind the end",
	"boltstore.Store.Purge: after is not set to last":  "the first records are looked at for ever",
}
