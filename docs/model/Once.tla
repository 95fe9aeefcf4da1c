-------------------------------- MODULE Once --------------------------------
(* The idempotency protocol of `once`, for ONE key: records of different     *)
(* keys never meet. It says in TLA+ what the package idempotent does, by the *)
(* names of its code, and what the design asks of Resume, Step, Commit and   *)
(* reconciliation. Read it in this order: the record, the store, the         *)
(* judgements of decide.go, the worker, the background, time, what must      *)
(* hold. README.md says how to run it, what TLC found, and what each clause  *)
(* in Drop is for.                                                           *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Attempts,   \* each is one request: one invocation, one random owner token, one lease
  Other,      \* the attempts whose request has another fingerprint
  Policy,     \* "Reconcile" | "Resume" | "Rerun": the declared Recovery
  Redeployed, \* the attempts of code that declares Reconcile instead of Policy
  Step,       \* "none" | "AtLeastOnce" | "AtMostOnce": the effect is inside a Step (Resume)
  Commit,     \* TRUE: the effect is a DynamoDB write in the transaction of the completion
  Dedupe,     \* TRUE: the provider honours DownstreamKey
  Stalled,    \* TRUE: a worker can outlive its lease (SIGSTOP, a platform that does not kill)
  Drop,       \* the clauses taken out: {} is the protocol, everything else a mutant
  None

VARIABLES
  rec,    \* the record in the store, or None
  net,    \* writes under way; the store may serve each late, often or never
  pc,     \* attempt -> idle | claim | run | checkpoint | failed | settle | done | dead
  want,   \* attempt -> the write it awaits; in run: want.new is the record it holds
  call,   \* attempt -> its effect: no | sent | landed | deduped (by the provider) | twice
  ended,  \* the attempts whose lease has ended
  epoch,  \* how often the key has expired: tells the generations of the record apart
  gen,    \* attempt -> the generation in which it entered the handler; 0: it did not
  rs,     \* history: retryable outcomes of this generation
  ans     \* history: attempt -> what its caller was told
vars == <<rec, net, pc, want, call, ended, epoch, gen, rs, ans>>

Has(clause)  == clause \notin Drop
Token(a)     == IF Has("token") THEN a ELSE "request id"
Fp(a)        == IF a \in Other THEN 2 ELSE 1
Recovery(a)  == IF a \in Redeployed THEN "Reconcile" ELSE Policy
Gone         == {"idle", "done", "dead"}
Waiting      == {"claim", "checkpoint", "settle"}
Happened     == {"landed", "deduped", "twice"}
Awaited      == {want[a] : a \in {x \in Attempts : pc[x] \in Waiting}}

------------------------------------------------------------ \* The record
\* As Record in record.go. st: I in_progress, C completed, R retryable, U unknown. lease: the attempt whose
\* lease it is. step: None | the attempt that started an AtMostOnce step | "done". past: Expires <= now.
\* gen and by (who wrote it: an attempt, "sweeper" for an ended lease, "resolver") are history, like Reason:
\* no condition and no decision reads them.

\* A write id is drawn fresh for every write. Write ids are only ever compared for equality, so the smallest
\* number of the writer that no record, write or worker holds is as good as 128 random bits.
InUse == LET of(q) == {q.was, q.new.wid}
         IN (IF rec = None THEN {} ELSE {rec.wid}) \cup UNION {of(q) : q \in net}
            \cup UNION {of(want[a]) : a \in {x \in Attempts : want[x] # None}}
Wid(who, st) ==
  LET used == InUse
      free(k) == <<who, st, k>> \notin used
  IN IF Has("fresh") THEN <<who, st, CHOOSE k \in 1..99 : free(k) /\ \A j \in 1..(k-1) : ~free(j)>> ELSE <<who>>

Blank == [st |-> "I", own |-> None, wid |-> None, att |-> 0, fp |-> 0, lease |-> None, recovery |-> None,
          res |-> None, step |-> None, past |-> FALSE, gen |-> 0, by |-> None]
Claimed(r, a) == [r EXCEPT !.st = "I", !.own = Token(a), !.wid = Wid(a, "I"), !.att = @ + 1, !.fp = Fp(a), !.lease = a,
                           !.recovery = IF r.att = 0 \/ Has("ownPromise") THEN Recovery(a) ELSE @,
                           !.res = None, !.past = FALSE, !.by = a]
Transition(r, st, who, by) == [r EXCEPT !.st = st, !.wid = Wid(who, st), !.past = FALSE, !.by = by]
Started(r) == r.step \in Attempts
Retryable(n) == IF n < Cardinality(Attempts) THEN n + 1 ELSE n   \* more make no difference

\* schedule in record.go. Expires: on what is settled, unless a step of it would be forgotten, and on Rerun's
\* in_progress, which no sweeper finds.
CarriesExpires(r) == CASE r.st = "C" -> TRUE
                       [] r.st = "R" -> r.step = None \/ ~Has("stepsKept")
                       [] r.st = "I" -> \/ r.recovery = "Rerun"
                                        \/ r.recovery = "Resume" /\ ~Has("stepsKept")
                                        \/ r.recovery = "Reconcile" /\ ~Has("noExpires")
                       [] r.st = "U" -> IF r.recovery = "Reconcile" THEN ~Has("noExpires") ELSE ~Has("unknownKept")
\* Due: reconciliation finds the record by itself.
Due(r) == CASE r.st = "I" -> r.recovery # "Rerun"
            [] r.st = "U" -> r.recovery # "Rerun" \/ Has("unknownListed")
            [] OTHER      -> FALSE

------------------------------------------------------------- \* The store
\* A write: its sender, the write id it replaces (None: Insert), the new record; domain: a domain write of the
\* sender's comes with it. free: Insert's `now` is the time of its first sending, so it wins only in the free
\* period in which it was sent (99: in none).
Free == rec = None \/ rec.past
Insert(a) == [from |-> a, was |-> None, new |-> Claimed(Blank, a), domain |-> FALSE, free |-> IF Free THEN epoch ELSE 99]
Replace(who, r, new) == [from |-> who, was |-> r.wid, new |-> [new EXCEPT !.gen = 0], domain |-> FALSE, free |-> 99]
IsInsert(q) == q.was = None

Cond(q) == CASE IsInsert(q) -> Has("insert") => Free /\ (q.free = epoch \/ (rec = None /\ ~Has("grace")))
             [] rec = None  -> ~Has("exists")                  \* Replace never creates
             [] OTHER       -> Has("wid") => rec.wid = q.was
\* A write that is under way for longer than the retention and the grace after it is not served (README).
TooOld(q) == Has("grace") /\ IsInsert(q) /\ rec = None /\ q.free # epoch

\* Two shortcuts keep the state space small; Drop = {"shortcuts"} takes them out. The first forgets writes that
\* can never apply: a Replace whose write id neither stands nor can come to stand. For the second see Background.
Shortcuts == Drop \cap {"wid", "fresh", "insert", "exists", "grace", "about", "round", "resolveRound", "shortcuts"} = {}
RECURSIVE CanStand(_, _)
CanStand(n, ids) == LET more == {q.new.wid : q \in {x \in n : IsInsert(x) \/ x.was \in ids}} \ ids
                    IN IF more = {} THEN ids ELSE CanStand(n, ids \cup more)
Prune(n, r, e) ==
  IF ~Shortcuts THEN n
  ELSE LET m   == {q \in n : IsInsert(q) => q.free = e /\ (r = None \/ r.past)}
           ids == CanStand(m, IF r = None THEN {} ELSE {r.wid})
       IN {q \in m : IsInsert(q) \/ q.was \in ids}

-------------------------------------------------- \* The judgements: decide.go
Decide(a, r) ==
  CASE r.past                                   -> "Reinsert"
    [] Has("fingerprint") /\ r.fp # Fp(a)       -> "Mismatch"
    [] r.st = "C"                               -> "Replay"
    [] r.st = "R"                               -> "TakeOver"
    [] r.st = "U"                               -> "Unresolved"
    [] r.lease \notin ended /\ Has("takeLease") -> "InProgress"
    [] (IF Has("storedPromise") THEN r.recovery ELSE Recovery(a)) = "Rerun" -> "TakeOver"
    [] r.recovery = "Resume" /\ (~Started(r) \/ ~Has("interrupted")) -> "TakeOver"
    [] OTHER                                    -> "MarkUnknown"

\* A record that an insert met is judged by the `now` of that insert: there it had not expired.
Met(q, r) == IF IsInsert(q) /\ Has("sameNow") THEN [r EXCEPT !.past = FALSE] ELSE r

DecideLate(a, r, st) ==
  CASE Has("lateFinal") /\ r.st = "C" /\ r.fp = Fp(a) /\ ~r.past -> "Standing"
    [] Has("lateFinal") /\ r.st = "C"           -> "Lost"
    [] Has("lateOwner") /\ r.own # Token(a)     -> "Lost"
    [] r.st = st /\ st # "C"                    -> "Agreed"
    [] r.st = "R" /\ st = "C" /\ ~Has("lateContradict") -> "Lost"
    [] r.st = "R" /\ st = "U" /\ ~Has("lateWithdraw")   -> "Agreed"
    [] r.st = "R"                               -> "Contradict"
    [] OTHER                                    -> "Write"

DecideResolution(r, about, st) ==   \* evidence about the work of the owner about
  CASE r.past /\ Has("resolveGone")             -> "Gone"
    [] st = "C" /\ r.st = "C" /\ Has("resolveFinal") -> "Compare"
    [] st = "C" /\ r.st = "R"                   -> "Contradict"
    [] st = "C"                                 -> "Write"
    [] r.st = "C" /\ Has("resolveFinal")        -> "Settled"
    [] r.st = "R"                               -> "Agreed"
    [] r.lease \notin ended /\ Has("resolveLease") -> "TooEarly"
    [] r.own # about /\ Has("about")            -> "TooEarly"
    [] OTHER                                    -> "Write"

DecideSweep(r) ==   \* what an ended lease makes of a record that was listed as due
  CASE r.past \/ ~Due(r)                        -> "Stale"
    [] r.st = "U"                               -> "Resolve"
    [] r.lease \notin ended /\ Has("sweepLease") -> "Stale"
    [] r.recovery = "Resume" /\ ~Started(r) /\ Has("resumeSweep") -> "Release"
    [] OTHER                                    -> "MarkUnknown"

\* foreign in attempt.go: a refusal that shows the write id we just wrote is our own success.
Own(a, q, r) ==
  /\ r # None
  /\ IF q.new.st = "I" /\ pc[a] = "claim"
     THEN /\ Has("ownClaim")
          /\ IF Has("claimWid") THEN r.wid = q.new.wid          \* the mutants go by the owner token
             ELSE r.own = Token(a) /\ (Has("claimState") => r.st = "I")
     ELSE IF Has("outcomeWid") THEN r.wid = q.new.wid
          ELSE r.own = q.new.own /\ r.st = q.new.st

------------------------------------------------------------ \* The worker
Say(a, k, r) ==   \* answer the caller and end
  /\ pc' = [pc EXCEPT ![a] = "done"] /\ want' = [want EXCEPT ![a] = None]
  /\ ans' = [ans EXCEPT ![a] = IF k = "Outcome" THEN [k |-> k, gen |-> r.gen, res |-> r.res]
                               ELSE [k |-> k, gen |-> 0, res |-> None]]
  /\ UNCHANGED gen
Send(a, q, p) == /\ pc' = [pc EXCEPT ![a] = p] /\ want' = [want EXCEPT ![a] = q] /\ UNCHANGED <<gen, ans>>
Run(a, q, g) == /\ pc' = [pc EXCEPT ![a] = "run"] /\ gen' = [gen EXCEPT ![a] = g] /\ UNCHANGED ans
                /\ want' = [want EXCEPT ![a] = [q EXCEPT !.was = None, !.free = 99]]

\* The reply reaches a: ok, or the condition failed and r is what stands.
HearClaim(a, q, ok, r) ==   \* claim.go; the verdicts' names for the caller's answers
  IF (ok \/ Own(a, q, r)) /\ q.new.st = "I" THEN Run(a, q, r.gen)
  ELSE LET v == IF r = None THEN "Reinsert" ELSE Decide(a, Met(q, r)) IN
    IF v \notin {"Reinsert", "TakeOver", "MarkUnknown"} THEN Say(a, IF v = "Replay" THEN "Outcome" ELSE v, r)
    ELSE IF a \in ended /\ v # "MarkUnknown" /\ Has("refuse") THEN Say(a, "Error", r)   \* past its own time: no claim
    ELSE Send(a, CASE v = "Reinsert" -> Insert(a)
                   [] v = "TakeOver" -> Replace(a, r, Claimed(r, a))
                   [] OTHER          -> Replace(a, r, Transition(r, "U", a, "sweeper")), "claim")
\* A handler whose checkpoint or transaction is not known to be stored holds the record it held before. Only if its
\* step is done it goes on (the next write takes that along); otherwise it has an error, and nothing to do but fail.
GoOn(a, q) == Send(a, [q EXCEPT !.was = None, !.domain = FALSE, !.new.wid = q.was, !.new.st = "I", !.new.res = None,
                                !.new.step = IF @ = "done" THEN @ ELSE None],
                   IF q.new.step = "done" THEN "run" ELSE "failed")
HearCheckpoint(a, q, ok, r) == IF ok \/ Own(a, q, r) THEN Run(a, q, r.gen) ELSE GoOn(a, q)
HearSettle(a, q, ok, r) ==  \* settle.go
  IF ok \/ Own(a, q, r)
  THEN IF q.new.st = "C" THEN Say(a, "Outcome", [r EXCEPT !.res = q.new.res]) ELSE Say(a, "Failed", r)
  ELSE IF r = None THEN Say(a, IF q.new.st = "C" /\ ~Commit THEN "NotStored" ELSE "Error", r)
  ELSE LET v == DecideLate(a, r, q.new.st) IN
    CASE v = "Standing" -> Say(a, "Outcome", r)
      [] v = "Lost"     -> Say(a, "LeaseLost", r)
      [] v = "Agreed"   -> Say(a, "Failed", r)
      [] OTHER          -> \* still ours: once more on the write id that stands, with the transaction if
           \* there is one. A completion keeps its write id, under which its chunks are: what is completed stays, so
           \* one that met another write has not been applied. Any other outcome may have stood meanwhile: a fresh id.
           Send(a, [Replace(a, r, [Transition(r, q.new.st, a, a)
                      EXCEPT !.wid = IF (q.new.st = "C" /\ ~q.domain) \/ ~Has("round") THEN q.new.wid ELSE @,
                             !.res = q.new.res, !.step = q.new.step])
                      EXCEPT !.domain = q.domain /\ Has("lateCommit")], "settle")
Hear(a, q, ok, r) == CASE pc[a] = "claim"      -> HearClaim(a, q, ok, r)
                       [] pc[a] = "checkpoint" -> HearCheckpoint(a, q, ok, r)
                       [] pc[a] = "settle"     -> HearSettle(a, q, ok, r)

\* The store serves a write, atomically; the reply is heard or lost. A lost reply and a second service of
\* the same write are the SDK's retry. heard: does the sender receive this reply?
Serve(q, heard) ==
  LET ok  == Cond(q)
      put == [q.new EXCEPT !.gen = IF IsInsert(q) \/ rec = None THEN epoch + 1 ELSE rec.gen]
      r   == IF ok THEN put ELSE rec
      a   == q.from
  IN /\ ~TooOld(q)
     /\ rec' = r
     /\ rs'   = CASE ok /\ IsInsert(q) -> 0 [] ok /\ r.st = "R" /\ r # rec -> Retryable(rs) [] OTHER -> rs
     /\ call' = IF ok /\ q.domain THEN [call EXCEPT ![a] = IF @ = "landed" THEN "twice" ELSE "landed"] ELSE call
     /\ IF heard THEN pc[a] \in Waiting /\ want[a] = q /\ Hear(a, q, ok, r) ELSE UNCHANGED <<pc, want, gen, ans>>
     /\ net' = Prune(net \cup (IF heard /\ pc'[a] \in Waiting THEN {want'[a]} ELSE {}), r, epoch)
     /\ UNCHANGED <<ended, epoch>>

Put(a, q, p) == /\ Send(a, q, p) /\ net' = Prune(net \cup {q}, rec, epoch)
                /\ UNCHANGED <<rec, call, ended, epoch, rs>>
Begin(a) == pc[a] = "idle" /\ Put(a, Insert(a), "claim")

Mine(a) == want[a].new
Call(a) == /\ pc[a] = "run" /\ ~Commit /\ call[a] = "no"
           /\ CASE Step = "none" -> TRUE [] Step = "AtLeastOnce" -> Mine(a).step = None
                [] Step = "AtMostOnce" -> Mine(a).step = a
           /\ call' = [call EXCEPT ![a] = "sent"]
           /\ UNCHANGED <<rec, net, pc, want, ended, epoch, gen, rs, ans>>
Checkpoint(a) ==
  /\ pc[a] = "run" /\ Step # "none"
  /\ LET to(s) == Put(a, Replace(a, Mine(a), [Transition(Mine(a), "I", a, a) EXCEPT !.step = s]), "checkpoint")
     IN \/ Step = "AtMostOnce" /\ Mine(a).step = None /\ to(a)
        \/ call[a] \in Happened /\ Mine(a).step = (IF Step = "AtMostOnce" THEN a ELSE None) /\ to("done")
Settle(a, st) ==   \* C: result or Final; R: NotExecuted, no time, an error where the policy says so; U: the rest
  /\ pc[a] = "run" \/ (pc[a] = "failed" /\ st # "C")
  /\ CASE st = "C" -> Commit \/ (IF Step = "none" THEN call[a] \in Happened ELSE Mine(a).step = "done")
       [] st = "R" -> ~Started(Mine(a)) /\ (Recovery(a) # "Reconcile" \/ call[a] = "no")
       [] st = "U" -> TRUE
  /\ Put(a, [Replace(a, Mine(a), [Transition(Mine(a), st, a, a) EXCEPT !.res = IF st = "C" THEN a ELSE None])
               EXCEPT !.domain = Commit /\ st = "C"], "settle")
GiveUp(a) ==       \* no reply in time
  /\ \/ /\ pc[a] = "claim" /\ Say(a, "Error", None)               \* ErrStore; giveUp in claim.go may release
        /\ net' \in {net, IF Mine(a).st # "I" THEN net
                          ELSE Prune(net \cup {Replace(a, Mine(a), Transition(Mine(a), "R", a, a))}, rec, epoch)}
     \/ pc[a] = "checkpoint" /\ GoOn(a, want[a]) /\ UNCHANGED net
     \/ pc[a] = "settle" /\ want[a].domain /\ GoOn(a, want[a]) /\ UNCHANGED net   \* Commit: the handler is told
     \/ /\ pc[a] = "settle" /\ UNCHANGED net                       \* the answer, not stored
        /\ Say(a, IF Mine(a).st = "C" /\ (~Commit \/ ~Has("commitAnswer")) THEN "NotStored" ELSE "Error", None)
  /\ UNCHANGED <<rec, call, ended, epoch, rs>>
Crash(a) ==        \* SIGKILL, out of memory, or the deadline
  /\ pc[a] \notin Gone
  /\ pc' = [pc EXCEPT ![a] = "dead"] /\ want' = [want EXCEPT ![a] = None]
  /\ UNCHANGED <<rec, net, call, ended, epoch, gen, rs, ans>>

---------------------------------- \* Background: provider, sweeper, resolver
CanLand(a) == a \notin ended \/ (Stalled /\ pc[a] \notin Gone) \/ ~Has("effectBound")
Land(a) ==   \* the effect happens; a request sent before the lease ends lands before it ends, or never
  /\ call[a] = "sent" /\ CanLand(a)
  /\ call' = [call EXCEPT ![a] = IF Dedupe /\ \E x \in Attempts : call[x] = "landed" THEN "deduped" ELSE "landed"]
  /\ UNCHANGED <<rec, net, pc, want, ended, epoch, gen, rs, ans>>

\* A write of the sweeper or the resolver is under way for a while; then it applies only if the record is still
\* the one it was judged by. What it was judged by (a lease has ended, an effect has happened, everybody is dead)
\* stays true, except that the record may expire meanwhile. So it may as well apply at once, to an expired record too.
Background(who, new) ==
  IF Shortcuts
  THEN /\ rec' = new /\ rs' = (IF new.st = "R" THEN Retryable(rs) ELSE rs) /\ net' = Prune(net, rec', epoch)
       /\ UNCHANGED <<pc, want, call, ended, epoch, gen, ans>>
  ELSE /\ \A q \in net : ~(q.from = who /\ q.was = rec.wid /\ q.new.st = new.st)   \* one of a kind
       /\ net' = net \cup {Replace(who, rec, new)}
       /\ UNCHANGED <<rec, pc, want, call, ended, epoch, gen, rs, ans>>
\* While a background write applies at once, it need not ask whether the record expired on the way.
Judged(r) == IF Shortcuts THEN [r EXCEPT !.past = FALSE] ELSE r
Sweep ==     \* Resume becomes retryable with its steps; Reconcile, and a started AtMostOnce step, unknown
  /\ rec # None /\ Has("sweep")
  /\ LET v == DecideSweep(Judged(rec)) IN
       /\ v \in {"Release", "MarkUnknown"}
       /\ Background("sweeper", Transition(rec, IF v = "Release" THEN "R" ELSE "U", "sweeper", "sweeper"))
\* The evidence there is. ProvenNotExecuted: nothing happened, and whoever could still do it is dead. The owner could
\* before it has heard of its own claim.
Evidence(r, st) ==
  IF st = "C" THEN \E a \in Attempts : gen[a] = r.gen /\ call[a] \in Happened
  ELSE \A a \in Attempts : gen[a] = r.gen \/ a = r.lease =>
         call[a] \notin Happened /\ (Stalled /\ Has("proof") => pc[a] \in Gone)
\* Whose work the evidence is about: the owner's, now; or, of a resolution that has met another write, the owner's
\* that it began with. Of an owner who stands, what was true stays true: with the shortcuts there is one round.
About(st) == (IF Evidence(rec, st) THEN {rec.own} ELSE {})
             \cup {q.new.own : q \in {x \in net : x.from = "resolver" /\ x.new.st = st}}
Resolve ==   \* resolve.go: a webhook, at any time, or the reconciler's question
  /\ rec # None
  /\ \E st \in {"C", "R"} : \E about \in About(st) :
       /\ DecideResolution(Judged(rec), about, st) \in {"Write", "Contradict"}
       /\ Background("resolver", [Transition(rec, st, "resolver", "resolver")
                                    EXCEPT !.wid = IF st = "C" \/ Has("resolveRound") THEN @ ELSE <<"resolver", st, 1>>,
                                           !.res = IF st = "C" THEN "resolved" ELSE None,
                                           !.step = IF st = "R" /\ Started(rec) THEN None ELSE @])

------------------------------------------------------------------ \* Time
LeaseEnds(a) == /\ rec # None /\ rec.lease = a /\ a \notin ended
                /\ Stalled \/ pc[a] \in Gone   \* killed at the deadline, and lease end = deadline + margin
                /\ ended' = ended \cup {a}
                /\ UNCHANGED <<rec, net, pc, want, call, epoch, gen, rs, ans>>
Expire == /\ rec # None /\ CarriesExpires(rec) /\ ~rec.past
          /\ (IF rec.st = "I" THEN Has("expiresLease") ELSE Has("expiresAll")) => rec.lease \in ended
          /\ rec' = [rec EXCEPT !.past = TRUE] /\ epoch' = epoch + 1 /\ net' = Prune(net, rec', epoch')
          /\ UNCHANGED <<pc, want, call, ended, gen, rs, ans>>
Delete == /\ rec # None /\ rec.past /\ rec' = None   \* the store removes it: Expires + grace
          /\ net' = Prune(net, None, epoch)
          /\ UNCHANGED <<pc, want, call, ended, epoch, gen, rs, ans>>

Init == /\ rec = None /\ net = {} /\ ended = {} /\ epoch = 0 /\ rs = 0
        /\ pc = [a \in Attempts |-> "idle"] /\ want = [a \in Attempts |-> None]
        /\ gen = [a \in Attempts |-> 0] /\ call = [a \in Attempts |-> "no"]
        /\ ans = [a \in Attempts |-> [k |-> "none", gen |-> 0, res |-> None]]
Next == \/ \E q \in net : Serve(q, FALSE)
        \/ \E q \in Awaited : Serve(q, TRUE)
        \/ \E a \in Attempts : \/ Begin(a) \/ Call(a) \/ Checkpoint(a) \/ GiveUp(a) \/ Crash(a)
                               \/ \E st \in {"C", "R", "U"} : Settle(a, st)
                               \/ Land(a) \/ LeaseEnds(a)
        \/ Sweep \/ Resolve \/ Expire \/ Delete
Spec == Init /\ [][Next]_vars

\* Fair: time passes, the sweeper sweeps, evidence is asked for.
Asked    == rec # None /\ rec.st = "U" /\ Due(rec) /\ Resolve
Retire   == Policy = "Rerun" /\ (Expire \/ Delete)   \* no sweeper: retention ends a Rerun record
FairSpec == /\ Spec /\ WF_vars(Sweep) /\ WF_vars(Asked) /\ WF_vars(Retire)
            /\ \A a \in Attempts : WF_vars(Crash(a)) /\ WF_vars(LeaseEnds(a))

------------------------------------------------------- \* What must hold
InHandler  == {a \in Attempts : pc[a] \in {"run", "checkpoint", "failed"}}
Entered(g) == {a \in Attempts : gen[a] = g}
Landed(as) == Cardinality({a \in as : call[a] \in {"landed", "twice"}}) + Cardinality({a \in as : call[a] = "twice"})
Oks        == {ans[a] : a \in {x \in Attempts : ans[x].k = "Outcome"}}
Answers(a) == ans'[a] # ans[a]   \* in this step

\* Of states.
INV1_Exclusion   == Cardinality(InHandler \ ended) <= 1
INV2_AtMostOnce  == \A g \in 1..(epoch + 1) : Landed(Entered(g)) <= 1            \* Reconcile, Commit, AtMostOnce
INV2_Entries     == rec # None => Cardinality(Entered(rec.gen)) <= 1 + rs        \* Reconcile
INV2_Provider    == Landed(Attempts) <= 1                                        \* Resume; over all generations
INV2_Redeployed  == \A g \in 1..(epoch + 1) : Landed(Entered(g) \cap Redeployed) <= 1
INV3_Replay      == \A x \in Oks :
                      /\ \A y \in Oks : x.gen = y.gen => x.res = y.res
                      /\ rec # None /\ rec.gen = x.gen /\ ~rec.past => rec.st = "C" /\ rec.res = x.res
INV10_Held       == \A a \in InHandler \ ended :   \* its claim stands; or evidence, or its own transaction, completed it
                      /\ rec # None /\ rec.lease = a /\ rec.own = Token(a) /\ ~rec.past
                      /\ rec.st = "I" \/ (rec.st = "C" /\ rec.by \in {"resolver", a})
ClaimsOnce       == rec # None => rec.att <= Cardinality(Attempts)               \* within one life of the record
RetryableClean   == rec # None /\ rec.st = "R" => ~Started(rec)
NotEmpty         == rec # None /\ rec.st = "C" => \E a \in Attempts : call[a] \in Happened
NotExecutedTrue  == rec # None /\ rec.st = "R" /\ rec.by = "resolver" => \A a \in Entered(rec.gen) : call[a] \notin Happened
AnswersTrue      == \A a \in Attempts : ans[a].k = "NotStored" => call[a] \in Happened \/ Step # "none"

\* Of steps.
Changed == rec' # rec /\ ~(rec # None /\ rec' = [rec EXCEPT !.past = TRUE])
INV4_Final     == [][Changed /\ rec # None /\ rec.st = "C" => rec.past]_vars
INV5_Fencing   == [][Changed /\ rec # None /\ rec' # None =>
                       \/ rec.past /\ rec'.gen > rec.gen                           \* a new generation
                       \/ /\ rec'.gen = rec.gen                                    \* or by whoever read this very write
                          /\ rec'.by \in Attempts => \E q \in net \cup Awaited : q.new.wid = rec'.wid /\ q.was = rec.wid
                          /\ IF rec'.att = rec.att                                \* the owner, or in its name
                             THEN rec'.lease = rec.lease /\ rec'.by \in {rec.lease, "sweeper", "resolver"}
                             ELSE rec'.att = rec.att + 1 /\ rec'.st = "I" /\ rec'.by = rec'.lease]_vars
INV5_Fresh     == [][Changed /\ rec' # None =>          \* nobody else can have read what was never there
                       \A q \in net : q.was = rec'.wid => q.from = rec'.by]_vars
INV6_Tells     == [][\A a \in Attempts : Answers(a) /\ ans'[a].k \in {"Outcome", "InProgress", "Unresolved"} =>
                       rec' # None /\ rec'.fp = Fp(a)]_vars
INV6_Bound     == [][Changed /\ rec # None /\ rec' # None /\ rec'.gen = rec.gen => rec'.fp = rec.fp]_vars
INV8_Absorbs   == [][Changed /\ rec # None /\ rec.st = "U" =>
                       rec' # None /\ rec'.gen = rec.gen /\ rec'.by \in {"resolver", rec.lease}]_vars
INV8_Started   == [][Changed /\ rec # None /\ rec.st = "I" /\ Started(rec) =>
                       rec' # None /\ rec'.gen = rec.gen /\ rec'.att = rec.att]_vars
INV10_Enters   == [][\A a \in Attempts : pc[a] = "claim" /\ pc'[a] = "run" =>
                       rec' # None /\ rec'.st = "I" /\ rec'.lease = a /\ gen'[a] = rec'.gen]_vars
INV11_Kept     == [][rec # None /\ rec.st # "C" /\ rec.step = "done" =>
                       rec' # None /\ rec'.gen = rec.gen /\ rec'.step = "done"]_vars
INV12_NoResurrection == [][rec = None /\ rec' # None => rec'.st = "I" /\ rec'.att = 1 /\ rec'.gen = epoch + 1]_vars
LeaseRespected == [][Changed /\ rec # None /\ rec' # None /\ rec.st = "I" /\ rec'.by # rec.lease =>
                       rec.lease \in ended \/ (rec'.st = "C" /\ rec'.by = "resolver")]_vars
PromiseKept    == [][Changed /\ rec # None /\ rec' # None /\ rec.st = "I" /\ rec'.gen = rec.gen =>
                       /\ rec'.st = "U" /\ rec'.by = "sweeper" => rec.recovery = "Reconcile" \/ Started(rec)
                       /\ rec'.att # rec.att => rec.recovery # "Reconcile"]_vars
AnswerStands   == [][\A a, b \in Attempts : ans[a].k = "NotStored" /\ gen[b] = 0 => gen'[b] # gen[a]]_vars
NotBlockedByItself == [][\A a \in Attempts : Answers(a) /\ ans'[a].k = "InProgress" => rec'.lease # a]_vars
FailedIsStored == [][\A a \in Attempts : Answers(a) /\ ans'[a].k = "Failed" =>
                       rec' # None /\ rec'.st = want[a].new.st /\ rec'.lease = a]_vars
LostIsLost     == [][\A a \in Attempts : pc[a] = "settle" /\ Answers(a) /\ ans'[a].k = "LeaseLost" =>
                       rec' # None /\ (rec'.lease # a \/ rec'.st = "C")]_vars

\* Liveness, under FairSpec.
INV9_Leaves    == (rec # None /\ rec.st = "I") ~> (rec = None \/ rec.st # "I")
INV9_Resolved  == (rec # None /\ rec.st = "U") ~> (rec = None \/ rec.st # "U")

\* Not vacuous: each denies something that has to be possible, and TLC has to find it broken.
Tells(a, k)       == Answers(a) /\ ans'[a].k = k
Moves(from, to)   == Changed /\ rec # None /\ rec' # None /\ rec'.gen = rec.gen /\ rec.st = from /\ rec'.st = to
Seen_Replay       == [][\A a \in Attempts : Tells(a, "Outcome") => pc[a] # "claim"]_vars
Seen_InProgress   == [][\A a \in Attempts : ~Tells(a, "InProgress")]_vars
Seen_Mismatch     == [][\A a \in Attempts : ~Tells(a, "Mismatch")]_vars
Seen_Unresolved   == [][\A a \in Attempts : ~Tells(a, "Unresolved")]_vars
Seen_LeaseLost    == [][\A a \in Attempts : ~Tells(a, "LeaseLost")]_vars
Seen_NotStored    == [][\A a \in Attempts : ans[a].k = "NotStored" => ~(Moves("U", "C") /\ rec'.by = "resolver")]_vars
Seen_OwnClaim     == [][\A a \in Attempts : pc[a] = "claim" /\ pc'[a] = "run" => Changed]_vars
Seen_OwnOutcome   == [][\A a \in Attempts : pc[a] = "settle" /\ Tells(a, "Outcome") =>
                       Changed \/ rec.wid # want[a].new.wid]_vars
Seen_LateOwner    == [][Moves("U", "C") => rec'.by = "resolver"]_vars
Seen_Contradicted == [][~Moves("R", "C")]_vars
Seen_Withdrawn    == [][~Moves("R", "U")]_vars
Seen_Webhook      == [][Moves("I", "C") => rec'.by # "resolver"]_vars
Seen_Retaken      == rec # None /\ rec.st = "C" => rec.att = 1
Seen_Reborn       == rec # None /\ rec.st = "C" => rec.gen = 1
Seen_StepReplayed == [][\A a \in Attempts : pc[a] = "claim" /\ pc'[a] = "run" => rec'.step # "done"]_vars
Seen_Interrupted  == [][Moves("I", "U") /\ Started(rec) => rec'.by # "sweeper"]_vars
Seen_Deduped      == \A a \in Attempts : call[a] # "deduped"

\* For TLC: which states are the same. Attempts of one kind are exchangeable; an attempt that answered and one that
\* died do no more; of the answers only two kinds are read; a request to the provider whose time is over is none.
Bounded  == epoch <= Cardinality(Attempts)   \* a resolver and a late owner may contradict each other for ever
OneLife  == epoch = 0                        \* of the record: what happens before its first expiry
Symmetry == Permutations(Attempts \ (Other \cup Redeployed)) \cup Permutations(Redeployed)
View == <<rec, net, want, ended, epoch, gen, rs,
          [a \in Attempts |-> IF pc[a] = "done" THEN "dead" ELSE pc[a]],
          [a \in Attempts |-> IF ans[a].k \in {"Outcome", "NotStored"} THEN ans[a] ELSE None],
          [a \in Attempts |-> IF call[a] = "sent" /\ ~CanLand(a) /\ pc[a] \in Gone THEN "no" ELSE call[a]]>>
=============================================================================
