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
  Commit,     \* "no" | "alone": the effect is a DynamoDB write in the transaction of the completion, or of the
              \* Step | "after": a call to a provider comes first, then the transaction of the completion
  Tries,      \* how many transactions of one run may be in doubt at a time
  Announces,  \* TRUE: a run whose handler is late announces itself
  Dedupe,     \* TRUE: the provider honours DownstreamKey
  Stalled,    \* TRUE: a worker can outlive its lease (SIGSTOP, a platform that does not kill)
  Corrections, \* how often operators correct the stored outcome
  Long,       \* the attempts that declare a retention longer than requests are repeated
  Drop,       \* the clauses taken out: {} is the protocol, everything else a mutant
  None

VARIABLES
  rec,    \* the record in the store, or None
  net,    \* writes under way; the store may serve each late, often or never
  pc,     \* attempt -> idle | claim | run | checkpoint | announce | failed | settle | done | dead
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
Keep(a)      == IF a \in Long THEN "long" ELSE "short"
Foreign      == IF Policy = "Reconcile" THEN "Resume" ELSE "Reconcile"   \* what the guard of a sweeper declares
Tx           == Commit # "no" /\ Step = "none"                           \* the completion is a transaction
TxStep       == Commit # "no" /\ Step # "none"                           \* the step is one
Gone         == {"idle", "done", "dead"}
Evidenced    == {"resolver", "step", "new step"}
Operator(n)  == <<"operator", n>>   \* the result of the n-th correction, and the token that the record then has
Given        == {"Outcome", "Settled"}   \* the caller gets the stored outcome; "Settled": the run's own is another one
Waiting      == {"claim", "checkpoint", "announce", "settle"}
Happened     == {"landed", "deduped", "twice"}
Awaited      == {want[a] : a \in {x \in Attempts : pc[x] \in Waiting}}

------------------------------------------------------------ \* The record
\* As Record in driver/record.go. st: I in_progress, C completed, R retryable, U unknown. lease: the attempt whose
\* lease it is. recovery and keep: what the attempt declared that claimed it. step: None | the attempt that started an
\* AtMostOnce step | "begun", an AtLeastOnce step of a run that has ended | who finished it: "done" by a run, "evidence".
\* open: OpenSince is set because a run has ended whose unfinished step may have had an effect; false once the step is
\* finished. announced: the record is in the list of due records although it is in progress. (The code sets OpenSince at the claim, and an owner that began nothing takes it back.) past: Expires <= now.
\* gen, by (who wrote it: an attempt, "sweeper" for an ended lease, "resolver", "step" for evidence about a step, "new
\* step" if the record did not show it and the state changed) and declared (the handler declared the outcome unknown)
\* are history, like Reason: no condition and no decision of another party reads them. So are cor, how often the outcome
\* was corrected; fixed, the tokens that these corrections named; and twice, whether two of them named one.

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
          keep |-> "short", res |-> None, step |-> None, open |-> FALSE, announced |-> FALSE, past |-> FALSE, declared |-> FALSE, gen |-> 0, by |-> None,
          cor |-> 0, fixed |-> {}, twice |-> FALSE]
Finished(r) == r.step \in {"done", "evidence"}
\* A run that reported nothing may have begun a step: the record stays due under Resume.
Opened(r) == r.recovery = "Resume" /\ ~Finished(r) /\ Has("stayDue")
Claimed(r, a) == [r EXCEPT !.st = "I", !.own = Token(a), !.wid = Wid(a, "I"), !.att = @ + 1, !.fp = Fp(a), !.lease = a,
                           !.recovery = IF r.att = 0 \/ Has("ownPromise") THEN Recovery(a) ELSE @,
                           !.keep = IF r.att = 0 \/ Has("ownPromise") THEN Keep(a) ELSE @,
                           !.open = @ \/ (r.att > 0 /\ r.st = "I" /\ Opened(r)),
                           !.announced = @ /\ ~Has("claimClears"),
                           !.res = None, !.past = FALSE, !.declared = FALSE, !.by = a]
Transition(r, st, who, by) == [r EXCEPT !.st = st, !.wid = Wid(who, st), !.past = FALSE, !.declared = @ /\ st = "U",
                                         !.announced = @ /\ (IF st = "I" THEN Has("announcedKept") ELSE ~Has("settleClears")), !.by = by]
Started(r) == r.step \in Attempts
Begun(r)   == Started(r) \/ r.step = "begun"   \* the record shows the step as begun and open
Retryable(n) == IF n < Cardinality(Attempts) THEN n + 1 ELSE n   \* more make no difference

\* schedule in record.go. Expires: on what is settled, unless a step of it would be forgotten, and on Rerun's
\* in_progress, which no sweeper finds.
Remembers(r) == r.step # None \/ r.open
CarriesExpires(r) == CASE r.st = "C" -> TRUE
                       [] r.st = "R" -> ~Remembers(r) \/ ~Has("stepsKept")
                       [] r.st = "I" -> \/ r.recovery = "Rerun"
                                        \/ r.recovery = "Resume" /\ ~Has("stepsKept")
                                        \/ r.recovery = "Reconcile" /\ ~Has("noExpires")
                       [] r.st = "U" -> IF r.recovery = "Reconcile" THEN ~Has("noExpires") ELSE ~Has("unknownKept")
\* Due: reconciliation finds the record by itself.
Due(r) == CASE r.st = "I" -> r.recovery # "Rerun"
            [] r.st = "U" -> r.recovery # "Rerun" \/ Has("unknownListed")
            [] r.st = "R" -> Remembers(r)
            [] OTHER      -> FALSE
\* The list of due records has it, once its lease has ended. The scan finds the others.
Listed(r) == Due(r) /\ (r.st = "I" => r.announced)

------------------------------------------------------------- \* The store
\* A write: its sender, the write id it replaces (None: Insert), the new record; domain: a domain write of the
\* sender's comes with it. doubt: an earlier transaction of this run has no answer. free: Insert's `now` is the time of its
\* first sending, so it wins only in the free period in which it was sent (99: in none).
Free == rec = None \/ rec.past
Insert(a) == [from |-> a, was |-> None, new |-> Claimed(Blank, a), domain |-> FALSE, doubt |-> FALSE, free |-> IF Free THEN epoch ELSE 99]
Replace(who, r, new) == [from |-> who, was |-> r.wid, new |-> [new EXCEPT !.gen = 0], domain |-> FALSE, doubt |-> FALSE, free |-> 99]
IsInsert(q) == q.was = None

Cond(q) == CASE IsInsert(q) -> Has("insert") => Free /\ (q.free = epoch \/ (rec = None /\ ~Has("grace")))
             [] rec = None  -> ~Has("exists")                  \* Replace never creates
             [] OTHER       -> Has("wid") => rec.wid = q.was
\* A write that is under way for longer than the retention and the grace after it is not served (README).
TooOld(q) == Has("grace") /\ IsInsert(q) /\ rec = None /\ q.free # epoch

\* Two shortcuts keep the state space small; Drop = {"shortcuts"} takes them out. The first forgets writes that
\* can never apply: a Replace whose write id neither stands nor can come to stand. For the second see Background.
Shortcuts == Drop \cap {"wid", "fresh", "insert", "exists", "grace", "round", "resolveRound", "shortcuts"} = {}
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

\* new: what the owner would write. A step that is finished in the record is finished for the owner too.
SameSteps(new, r) == Finished(r) \/ new.step = r.step
\* A run that ended with an open AtMostOnce step, and did not declare more, is unknown for that reason alone: evidence
\* that it meets may have finished the step.
Recomputed(new, r) ==
  IF new.st = "U" /\ (~new.declared \/ ~Has("declared")) /\ Finished(r) /\ r.recovery # "Reconcile" /\ Has("recompute")
  THEN [new EXCEPT !.st = "R"] ELSE new
DecideLate(a, r, new) ==
  LET st == new.st IN
  CASE Has("lateFinal") /\ r.st = "C" /\ r.fp = Fp(a) /\ ~r.past -> "Standing"
    [] Has("lateFinal") /\ r.st = "C"           -> "Lost"
    [] Has("lateOwner") /\ r.own # Token(a)     -> "Lost"
    [] r.st = st /\ st # "C" /\ (SameSteps(new, r) \/ ~Has("agreedSteps")) -> "Agreed"
    [] r.st = "R" /\ st = "C" /\ ~Has("lateContradict") -> "Lost"
    [] r.st = "R" /\ st = "U" /\ ~Has("lateWithdraw")   -> "Agreed"
    [] r.st = "R" /\ st # "R"                   -> "Contradict"
    [] OTHER                                    -> "Write"

DecideResolution(r, about, st) ==   \* evidence; "not executed" names the attempt that it is about by its token
  CASE r.past /\ Has("resolveGone")             -> "Gone"
    [] r.st = "C" /\ Has("resolveFinal")        -> IF st = "C" THEN "Compare" ELSE "Settled"
    [] st = "R" /\ r.own # about /\ Has("about") -> "Stale"
    [] r.st = "R" /\ ~r.open                    -> IF st = "C" THEN "Contradict" ELSE "Agreed"
    [] r.lease \in ended                        -> "Write"
    [] st = "C" /\ r.st = "I" /\ Has("wholeLease") -> "TooEarly"     \* the outcome is the owner's to report
    [] st = "R" /\ Has("resolveLease") -> "TooEarly"     \* a call may be under way
    [] OTHER                                    -> "Write"

DecideCorrection(r, about, same) == \* a correction names the attempt whose outcome is wrong
  CASE r.past /\ Has("resolveGone")              -> "Gone"
    [] r.st # "C"                               -> "Nothing"
    [] same                                     -> "Agreed"
    [] r.own # about /\ Has("correctAbout")     -> "Stale"
    [] r.lease \notin ended /\ Has("correctLease") -> "TooEarly"    \* its handler can run on after a transaction
    [] OTHER                                    -> "Write"

DecideStep(r) ==                    \* evidence about one step: the result that was recorded first stays
  CASE r.step = "evidence"                      -> "Agreed"
    [] r.step = "done" /\ Has("stepFirst")      -> "Settled"
    [] OTHER                                    -> "Write"
\* The state in which evidence about a step leaves a record. begun: the record shows that step as begun and open; other:
\* another AtMostOnce step is open.
StateAfterStep(r, begun, other) ==
  IF /\ r.st = "U" /\ (begun \/ ~Has("stepOpen"))
     /\ (IF Has("guardPromise") THEN r.recovery ELSE Foreign) # "Reconcile"
     /\ other => ~Has("otherStep")
  THEN "R" ELSE r.st

DecideSweep(r) ==                   \* what an ended lease makes of a record that was listed as due
  CASE r.past \/ ~Due(r)                        -> "Stale"
    [] r.st \in {"U", "R"}                      -> "Resolve"
    [] r.lease \notin ended /\ Has("sweepLease") -> "Stale"
    [] (IF Has("guardPromise") THEN r.recovery ELSE Foreign) = "Resume" /\ ~Started(r) /\ Has("resumeSweep") -> "Release"
    [] OTHER                                    -> "MarkUnknown"

\* r is a completion that a transaction of this run has made: the run keeps the ids of all its transactions in doubt.
\* (A write id names its writer.)
Applied(a, r) == Tx /\ r.st = "C" /\ r.wid[1] = a

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
  /\ ans' = [ans EXCEPT ![a] = IF k \in Given THEN [k |-> k, gen |-> r.gen, cor |-> r.cor, res |-> r.res]
                               ELSE [k |-> k, gen |-> 0, cor |-> 0, res |-> None]]
  /\ UNCHANGED gen
Send(a, q, p) == /\ pc' = [pc EXCEPT ![a] = p] /\ want' = [want EXCEPT ![a] = q] /\ UNCHANGED <<gen, ans>>
Run(a, q, g) == /\ pc' = [pc EXCEPT ![a] = "run"] /\ gen' = [gen EXCEPT ![a] = g] /\ UNCHANGED ans
                /\ want' = [want EXCEPT ![a] = [q EXCEPT !.was = None, !.free = 99, !.doubt = FALSE]]

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
\* step is done it goes on (the next write takes that along); otherwise it has an error. Then it fails, or it repeats
\* the transaction. doubt: it was told that a transaction may have been applied, otherwise that nothing was written.
GoOn(a, q, doubt) ==
  LET done == q.new.step = "done" /\ ~(q.domain /\ TxStep)
  IN Send(a, [q EXCEPT !.was = None, !.domain = FALSE, !.new.wid = q.was, !.new.st = "I", !.new.res = None, !.doubt = doubt,
                       !.new.step = CASE done -> @ [] TxStep /\ doubt -> "begun" [] OTHER -> None],
          IF done THEN "run" ELSE "failed")
HearCheckpoint(a, q, ok, r) ==  \* checkpoint.go, commitstep.go
  IF ok \/ Own(a, q, r) THEN Run(a, q, r.gen)
  ELSE IF r = None \/ r.st # "I" \/ r.own # Token(a) THEN GoOn(a, q, q.doubt)
  \* Still ours: an earlier write of ours, or evidence, stands there. A step that is finished stays as it is.
  ELSE IF Finished(r) /\ Has("stepMet") THEN Run(a, [q EXCEPT !.new = r, !.domain = FALSE], r.gen)
  ELSE Send(a, [Replace(a, r, [Transition(r, "I", a, a) EXCEPT !.step = q.new.step])
                       EXCEPT !.domain = q.domain, !.doubt = q.doubt], "checkpoint")
HearSettle(a, q, ok, r) ==  \* settle.go
  IF ok \/ Own(a, q, r)
  THEN IF q.new.st = "C" THEN Say(a, "Outcome", [r EXCEPT !.res = q.new.res]) ELSE Say(a, "Failed", r)
  ELSE IF r = None THEN Say(a, IF q.new.st = "C" /\ ~Tx THEN "NotStored" ELSE "Error", r)
  ELSE IF Applied(a, r)   \* the stored outcome is the run's outcome; Commit returns nil only if its result is equal
  THEN Say(a, IF q.domain /\ r.res # q.new.res /\ Has("compare") THEN "Settled" ELSE "Outcome",
              IF q.domain /\ ~Has("stored") THEN [r EXCEPT !.res = q.new.res] ELSE r)
  ELSE LET new == Recomputed(q.new, r)  v == DecideLate(a, r, new) IN
    CASE v = "Standing" -> Say(a, IF q.domain THEN "Settled" ELSE "Outcome", r)
      [] v = "Lost"     -> Say(a, "LeaseLost", r)
      [] v = "Agreed"   -> Say(a, "Failed", r)
      [] OTHER          -> \* still ours: once more on the write id that stands, with the transaction if
           \* there is one. A completion keeps its write id, under which its chunks are: what is completed stays, so
           \* one that met another write has not been applied. Any other outcome may have stood meanwhile: a fresh id.
           Send(a, [Replace(a, r, [Transition(r, new.st, a, a)
                      EXCEPT !.wid = IF (new.st = "C" /\ ~q.domain) \/ ~Has("round") THEN new.wid ELSE @,
                             !.res = new.res, !.step = IF Finished(r) THEN @ ELSE new.step,
                             !.open = new.open /\ ~Finished(r), !.declared = new.declared])
                      EXCEPT !.domain = q.domain /\ Has("lateCommit"), !.doubt = q.doubt], "settle")
\* A run whose handler is late announces itself. In the code the handler goes on meanwhile, and its other writes wait for
\* this one; here the handler waits, and its effect can still happen. What the announcement met, the next write meets.
Announced(a, r, s) == Replace(a, r, [Transition(r, "I", a, a) EXCEPT !.step = s, !.announced = TRUE])
Back(a, q, new) == /\ pc' = [pc EXCEPT ![a] = "run"] /\ want' = [want EXCEPT ![a] = [q EXCEPT !.was = None, !.new = new]]
                   /\ UNCHANGED <<gen, ans>>
Unheard(a, q)   == Back(a, q, [q.new EXCEPT !.wid = q.was, !.announced = FALSE])
HearAnnounce(a, q, ok, r) ==
  IF ok \/ Own(a, q, r) THEN Back(a, q, q.new)
  ELSE IF r = None \/ (Has("announceMine") /\ (r.st # "I" \/ r.own # Token(a))) THEN Unheard(a, q)
  ELSE LET s == IF Finished(r) THEN r.step ELSE q.new.step   \* the run goes on from r with what it knows
       IN IF r.announced THEN Back(a, q, [r EXCEPT !.step = s])
          ELSE Send(a, [Announced(a, r, s) EXCEPT !.doubt = q.doubt], "announce")
Hear(a, q, ok, r) == CASE pc[a] = "claim"      -> HearClaim(a, q, ok, r)
                       [] pc[a] = "checkpoint" -> HearCheckpoint(a, q, ok, r)
                       [] pc[a] = "announce"   -> HearAnnounce(a, q, ok, r)
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
     /\ rs'   = CASE ok /\ IsInsert(q) -> 0 [] ok /\ r.st = "R" /\ (rec = None \/ rec.st # "R") -> Retryable(rs) [] OTHER -> rs
     /\ call' = IF ok /\ q.domain /\ Commit = "alone" THEN [call EXCEPT ![a] = IF @ = "landed" THEN "twice" ELSE "landed"] ELSE call
     /\ IF heard THEN pc[a] \in Waiting /\ want[a] = q /\ Hear(a, q, ok, r) ELSE UNCHANGED <<pc, want, gen, ans>>
     /\ net' = Prune(net \cup (IF heard /\ pc'[a] \in Waiting THEN {want'[a]} ELSE {}), r, epoch)
     /\ UNCHANGED <<ended, epoch>>

Put(a, q, p) == /\ Send(a, q, p) /\ net' = Prune(net \cup {q}, rec, epoch)
                /\ UNCHANGED <<rec, call, ended, epoch, rs>>
Begin(a) == pc[a] = "idle" /\ Put(a, Insert(a), "claim")

Mine(a) == want[a].new
InDoubt(a) == Cardinality({q \in net : q.from = a /\ q.domain})
Call(a) == /\ pc[a] = "run" /\ Commit # "alone" /\ call[a] = "no"
           /\ CASE Step = "none" -> TRUE [] Step = "AtLeastOnce" -> ~Finished(Mine(a))
                [] Step = "AtMostOnce" -> Mine(a).step = a
           /\ call' = [call EXCEPT ![a] = "sent"]
           /\ want' = IF Step = "AtLeastOnce" THEN [want EXCEPT ![a].new.step = "begun"] ELSE want
           /\ UNCHANGED <<rec, net, pc, ended, epoch, gen, rs, ans>>
Checkpoint(a) ==
  /\ Step # "none" /\ (pc[a] = "run" \/ (pc[a] = "failed" /\ TxStep))
  /\ LET to(s) == Put(a, [Replace(a, Mine(a), [Transition(Mine(a), "I", a, a) EXCEPT !.step = s, !.open = @ /\ s # "done"])
                           EXCEPT !.domain = TxStep /\ s = "done", !.doubt = want[a].doubt], "checkpoint")
     IN \/ Step = "AtMostOnce" /\ ~Finished(Mine(a)) /\ Mine(a).step # a /\ to(a)
        \/ /\ IF TxStep THEN InDoubt(a) < Tries ELSE call[a] \in Happened
           /\ (IF Step = "AtMostOnce" THEN Mine(a).step = a ELSE ~Finished(Mine(a))) /\ to("done")
Announce(a) ==   \* once in a run
  /\ Announces /\ (pc[a] = "run" \/ (pc[a] = "failed" /\ Tx))
  /\ Due(Mine(a)) /\ ~Mine(a).announced /\ ~\E q \in net : q.from = a /\ q.new.announced
  /\ Put(a, [Announced(a, Mine(a), Mine(a).step) EXCEPT !.doubt = want[a].doubt], "announce")
\* C: result or Final; R: NotExecuted, no time, an error where the policy says so; U: declared, or an error while an
\* AtMostOnce step is open.
Settle(a, st) ==
  /\ pc[a] = "run" \/ (pc[a] = "failed" /\ (st = "C" => Tx))
  /\ CASE st = "C" -> /\ Tx => InDoubt(a) < Tries
                      /\ CASE Step # "none" -> Finished(Mine(a)) [] Commit = "alone" -> TRUE [] OTHER -> call[a] \in Happened
       [] st = "R" -> /\ ~Started(Mine(a))
                      /\ Recovery(a) # "Reconcile" \/ (call[a] = "no" /\ ~want[a].doubt) \/ (pc[a] = "failed" /\ ~Has("refusal"))
       [] st = "U" -> TRUE
  \* n: a Commit after one without an answer has another result; or the same, which changes nothing but its answer.
  /\ \E n \in (CASE ~(Tx /\ st = "C" /\ want[a].doubt) -> {1} [] Tries = 1 -> {2} [] OTHER -> 1..2),
        declared \in (CASE st # "U" -> {FALSE} [] Started(Mine(a)) -> BOOLEAN [] OTHER -> {TRUE}) :
     Put(a, [Replace(a, Mine(a), [Transition(Mine(a), st, a, a)
                EXCEPT !.res = IF st = "C" THEN <<a, n>> ELSE None, !.declared = declared,
                       !.open = IF st = "C" THEN FALSE ELSE @ \/ (Begun(Mine(a)) /\ Opened(Mine(a)))])
               EXCEPT !.domain = Tx /\ st = "C", !.doubt = want[a].doubt], "settle")
\* The store refuses a transaction for good: nothing of it was written, or will be. That says nothing of an earlier
\* transaction of the run, and nothing of what else the handler has done.
Refuse(a) ==
  /\ pc[a] \in {"checkpoint", "settle"} /\ want[a].domain
  /\ call[a] \notin Happened \/ Commit # "alone" \/ want[a].doubt
  /\ rec # None => rec.wid # want[a].new.wid
  /\ GoOn(a, want[a], want[a].doubt /\ Has("doubt")) /\ net' = Prune(net \ {want[a]}, rec, epoch)
  /\ UNCHANGED <<rec, call, ended, epoch, rs>>
GiveUp(a) ==       \* no reply in time
  /\ \/ /\ pc[a] = "claim" /\ Say(a, "Error", None)               \* StoreError; giveUp in claim.go may release
        /\ net' \in {net, IF Mine(a).st # "I" THEN net
                          ELSE Prune(net \cup {Replace(a, Mine(a), Transition(Mine(a), "R", a, a))}, rec, epoch)}
     \/ pc[a] = "announce" /\ Unheard(a, want[a]) /\ UNCHANGED net
     \/ pc[a] = "checkpoint" /\ GoOn(a, want[a], TRUE) /\ UNCHANGED net
     \/ pc[a] = "settle" /\ want[a].domain /\ GoOn(a, want[a], TRUE) /\ UNCHANGED net   \* Commit: the handler is told
     \/ /\ pc[a] = "settle" /\ UNCHANGED net                       \* the answer, not stored
        /\ Say(a, IF Mine(a).st = "C" /\ (~Tx \/ ~Has("commitAnswer")) THEN "NotStored" ELSE "Error", None)
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
Background(who, record) ==
  LET new == [record EXCEPT !.keep = IF Has("guardRetention") THEN @ ELSE "short"] IN
  IF Shortcuts
  THEN /\ rec' = new /\ rs' = (IF new.st = "R" /\ rec.st # "R" THEN Retryable(rs) ELSE rs) /\ net' = Prune(net, rec', epoch)
       /\ UNCHANGED <<pc, want, call, ended, epoch, gen, ans>>
  ELSE /\ \A q \in net : ~(q.from = who /\ q.was = rec.wid /\ q.new.st = new.st /\ q.new.step = new.step)   \* one of a kind
       /\ net' = net \cup {Replace(who, rec, new)}
       /\ UNCHANGED <<rec, pc, want, call, ended, epoch, gen, rs, ans>>
\* While a background write applies at once, it need not ask whether the record expired on the way.
Judged(r) == IF Shortcuts THEN [r EXCEPT !.past = FALSE] ELSE r
Sweep ==     \* Resume becomes retryable with its steps; Reconcile, and a started AtMostOnce step, unknown
  /\ rec # None /\ Has("sweep") /\ (Has("scan") \/ Listed(rec))
  /\ LET v == DecideSweep(Judged(rec)) IN
       /\ v \in {"Release", "MarkUnknown"}
       /\ Background("sweeper", [Transition(rec, IF v = "Release" THEN "R" ELSE "U", "sweeper", "sweeper")
                                   EXCEPT !.open = @ \/ Opened(rec)])
\* The evidence there is. ProvenNotExecuted: nothing happened, and every worker that could still do it is dead, also
\* an owner that has not heard of its own claim. No call in a step of an earlier attempt is under way any more; for
\* the owner's calls that follows from the end of its lease.
Idle(a) == call[a] \notin Happened /\ (Stalled /\ Has("proof") => pc[a] \in Gone)
Evidence(r, st) ==
  IF st = "C" THEN \E a \in Attempts : gen[a] = r.gen /\ call[a] \in Happened
  ELSE \A a \in Attempts : gen[a] = r.gen \/ a = r.lease => Idle(a) /\ (Step # "none" /\ a # r.lease /\ call[a] # "no" => ~CanLand(a))
\* Whose attempts the evidence "not executed" may be about: the owner's, or an earlier one's. What was true of a dead
\* attempt stays true, however late it is delivered. It says nothing of a later attempt.
About(st) == (IF Evidence(rec, st) THEN {rec.own} ELSE {})
             \cup (IF st = "R" THEN {Token(a) : a \in {x \in Attempts : gen[x] = rec.gen /\ x # rec.lease /\ Idle(x)}} ELSE {})
Resolve ==   \* resolve.go: a webhook, at any time, or the reconciler's question
  /\ rec # None
  /\ \E st \in {"C", "R"} : \E about \in About(st) :
       /\ DecideResolution(Judged(rec), about, st) \in {"Write", "Contradict"}
       /\ Background("resolver", [Transition(rec, st, "resolver", "resolver")
                                    EXCEPT !.wid = IF st = "C" \/ Has("resolveRound") THEN @ ELSE <<"resolver", st, 1>>,
                                           !.res = IF st = "C" THEN <<"resolver", 1>> ELSE None, !.open = FALSE,
                                           !.step = IF st = "R" /\ ~Finished(rec) THEN None ELSE @])
\* InsteadOf: an operator replaces an outcome that is wrong. The record gets another token.
Correct ==
  /\ rec # None /\ rec.cor < Corrections
  /\ \E about \in {Token(a) : a \in Attempts} \cup {Operator(n) : n \in 1..Corrections} :
       /\ DecideCorrection(Judged(rec), about, FALSE) = "Write"
       /\ Background("operator", [Transition(rec, "C", "operator", "operator")
                                    EXCEPT !.res = Operator(rec.cor + 1), !.own = IF Has("newToken") THEN Operator(rec.cor + 1) ELSE @,
                                           !.cor = @ + 1, !.fixed = @ \cup {about}, !.twice = @ \/ about \in rec.fixed])
\* ResolvedStep: evidence about the step, or about another one, which the model's record does not show: begun says whether
\* the real one shows it as begun and open. What a transaction would do is shown by nothing but the record: there the
\* evidence is that a person has done it.
ResolveStep ==
  /\ rec # None /\ rec.st # "C"
  /\ LET to(begun, other) == Transition(rec, StateAfterStep(rec, begun, other), "resolver",
                                       IF begun \/ StateAfterStep(rec, begun, other) = rec.st THEN "step" ELSE "new step")
     IN \/ /\ Step # "none" /\ DecideStep(rec) = "Write"
           /\ IF TxStep THEN \A a \in Attempts : gen[a] = rec.gen => call[a] \notin Happened ELSE Evidence(rec, "C")
           /\ Background("resolver", [to(Begun(rec), FALSE) EXCEPT !.step = "evidence", !.open = FALSE])
        \/ \E begun \in (IF Step = "none" THEN {FALSE} ELSE BOOLEAN) :
             /\ StateAfterStep(rec, begun, Started(rec)) # rec.st
             /\ Background("resolver", [to(begun, Started(rec)) EXCEPT !.open = @ \/ Opened(rec)])

------------------------------------------------------------------ \* Time
LeaseEnds(a) == /\ a \notin ended   \* of a former owner only where a call of its may still be under way
                /\ \/ rec # None /\ rec.lease = a
                   \/ Step # "none" /\ pc[a] \in Gone /\ call[a] = "sent"
                /\ Stalled \/ pc[a] \in Gone   \* killed at the deadline, and lease end = deadline + margin
                /\ ended' = ended \cup {a}
                /\ UNCHANGED <<rec, net, pc, want, call, epoch, gen, rs, ans>>
Expire == /\ rec # None /\ CarriesExpires(rec) /\ ~rec.past
          /\ (IF rec.st = "I" THEN Has("expiresLease") ELSE Has("expiresAll")) => rec.lease \in ended
          /\ rec.keep = "long" => \A a \in Attempts : pc[a] \in {"done", "dead"}   \* no request is repeated any more
          /\ rec' = [rec EXCEPT !.past = TRUE] /\ epoch' = epoch + 1 /\ net' = Prune(net, rec', epoch')
          /\ UNCHANGED <<pc, want, call, ended, gen, rs, ans>>
Delete == /\ rec # None /\ rec.past /\ rec' = None   \* the store removes it: Expires + grace
          /\ net' = Prune(net, None, epoch)
          /\ UNCHANGED <<pc, want, call, ended, epoch, gen, rs, ans>>

Init == /\ rec = None /\ net = {} /\ ended = {} /\ epoch = 0 /\ rs = 0
        /\ pc = [a \in Attempts |-> "idle"] /\ want = [a \in Attempts |-> None]
        /\ gen = [a \in Attempts |-> 0] /\ call = [a \in Attempts |-> "no"]
        /\ ans = [a \in Attempts |-> [k |-> "none", gen |-> 0, cor |-> 0, res |-> None]]
Next == \/ \E q \in net : Serve(q, FALSE)
        \/ \E q \in Awaited : Serve(q, TRUE)
        \/ \E a \in Attempts : \/ Begin(a) \/ Call(a) \/ Checkpoint(a) \/ Announce(a) \/ Refuse(a) \/ GiveUp(a) \/ Crash(a)
                               \/ \E st \in {"C", "R", "U"} : Settle(a, st)
                               \/ Land(a) \/ LeaseEnds(a)
        \/ Sweep \/ Resolve \/ Correct \/ ResolveStep \/ Expire \/ Delete
Spec == Init /\ [][Next]_vars

\* Fair: time passes, the sweeper sweeps, evidence is asked for.
Asked    == rec # None /\ rec.st \in (IF Has("listed") THEN {"U", "R"} ELSE {"U"}) /\ Due(rec) /\ Resolve
Retire   == Policy = "Rerun" /\ (Expire \/ Delete)   \* no sweeper: retention ends a Rerun record
FairSpec == /\ Spec /\ WF_vars(Sweep) /\ WF_vars(Asked) /\ WF_vars(Retire)
            /\ \A a \in Attempts : WF_vars(Crash(a)) /\ WF_vars(LeaseEnds(a))

\* A request that is repeated until it is answered, of an operation that does a Commit and nothing else: Last is the
\* last time it is sent. It comes when the earlier ones are over, is not cut short, and waits while a lease is live. No
\* handler returns Unknown, and there is no evidence.
Last    == CHOOSE a \in Attempts : TRUE
Patient == /\ pc[Last] = "idle" \/ \A a \in Attempts \ {Last} : pc[a] = "idle" => pc'[a] = "idle"
           /\ pc'[Last] # "idle" => \A a \in Attempts \ {Last} : pc'[a] \in Gone
           /\ pc'[Last] \notin {"dead", "failed"} /\ ans'[Last].k \in {"none"} \cup Given /\ Last \notin ended'
           /\ pc'[Last] = "settle" => want'[Last].new.st = "C"
           /\ \A a \in Attempts : pc[a] # "settle" /\ pc'[a] = "settle" => want'[a].new.st # "U"
           /\ rec' # None => rec'.by \notin Evidenced
Proceed == Begin(Last) \/ Settle(Last, "C") \/ \E q \in Awaited : q = want[Last] /\ Serve(q, TRUE)
PatientSpec == /\ Init /\ [][Next /\ Patient]_vars /\ WF_vars(Proceed /\ Patient)
               /\ \A a \in Attempts \ {Last} : WF_vars(Crash(a) /\ Patient) /\ WF_vars(LeaseEnds(a) /\ Patient)

\* An operation that may run again after any failure, but for one: a handler whose call was sent either completes or
\* declares Unknown, and that is stored.
Declares     == \A a \in Attempts : call[a] # "no" /\ pc[a] \notin Gone =>
                  /\ pc'[a] # "dead" /\ ans'[a].k \in {"none", "Outcome", "Failed"}
                  /\ pc'[a] = "settle" => want'[a].new.st # "R"
DeclaredSpec == Init /\ [][Next /\ Declares]_vars

------------------------------------------------------- \* What must hold
InHandler  == {a \in Attempts : pc[a] \in {"run", "checkpoint", "announce", "failed"}}
Entered(g) == {a \in Attempts : gen[a] = g}
Landed(as) == Cardinality({a \in as : call[a] \in {"landed", "twice"}}) + Cardinality({a \in as : call[a] = "twice"})
Oks        == {ans[a] : a \in {x \in Attempts : ans[x].k \in Given}}
Answers(a) == ans'[a] # ans[a]   \* in this step

\* Of states.
INV1_Exclusion   == Cardinality(InHandler \ ended) <= 1
INV2_AtMostOnce  == \A g \in 1..(epoch + 1) : Landed(Entered(g)) <= 1            \* Reconcile, Commit, AtMostOnce
INV2_Entries     == rec # None => Cardinality(Entered(rec.gen)) <= 1 + rs        \* Reconcile
INV2_Provider    == Landed(Attempts) <= 1                                        \* Resume; over all generations
INV2_Redeployed  == Landed(Redeployed) <= 1                                      \* their retention is long
INV3_Replay      == \A x \in Oks :
                      /\ \A y \in Oks : x.gen = y.gen /\ x.cor = y.cor => x.res = y.res
                      /\ rec # None /\ rec.gen = x.gen /\ ~rec.past => rec.st = "C" /\ (rec.cor = x.cor => rec.res = x.res)
INV4_First       == rec # None => ~rec.twice                                     \* the first correction that names a token stands
INV10_Held       == \A a \in InHandler \ ended :   \* its claim stands, or its own transaction completed it
                      /\ rec # None /\ rec.lease = a /\ rec.own = Token(a) /\ ~rec.past
                      /\ rec.st = "I" \/ (rec.st = "C" /\ rec.by = a)
ClaimsOnce       == rec # None => rec.att <= Cardinality(Attempts)               \* within one life of the record
RetryableClean   == rec # None /\ rec.st = "R" => ~Started(rec)
InterruptedOpen  == rec # None /\ rec.st = "U" /\ ~rec.declared /\ rec.recovery = "Resume" => Started(rec)
NotEmpty         == rec # None /\ rec.st = "C" /\ rec.step # "evidence" => \E a \in Attempts : call[a] \in Happened
NotExecutedTrue  == rec # None /\ rec.st = "R" /\ rec.by = "resolver" => \A a \in Entered(rec.gen) : call[a] \notin Happened
AnswersTrue      == \A a \in Attempts : ans[a].k = "NotStored" => call[a] \in Happened \/ Step # "none"
\* Under Resume: if a step may have had an effect, the record is completed, or it does not expire and is listed as due.
MayHave(a)       == call[a] \in Happened \/ (call[a] = "sent" /\ CanLand(a))
ResumeListed     == rec # None /\ rec.recovery = "Resume" /\ rec.st # "C" /\ (\E a \in Entered(rec.gen) : MayHave(a)) =>
                      Due(rec) /\ ~rec.past

AnnouncedListed  == rec # None /\ rec.announced => rec.st = "I" /\ Due(rec)

\* Of steps.
Changed == rec' # rec /\ ~(rec # None /\ rec' = [rec EXCEPT !.past = TRUE])
Corrected      == rec' # None /\ rec'.by = "operator" /\ rec'.gen = rec.gen /\ rec'.st = "C" /\ rec.lease \in ended
INV4_Final     == [][Changed /\ rec # None /\ rec.st = "C" => rec.past \/ Corrected]_vars
INV2_ByHand    == [][call' # call => rec = None \/ rec.step # "evidence"]_vars  \* CommitStep: a person has written the rows
INV5_Fencing   == [][Changed /\ rec # None /\ rec' # None =>
                       \/ rec.past /\ rec'.gen > rec.gen                           \* a new generation
                       \/ /\ rec'.gen = rec.gen                                    \* or by whoever read this very write
                          /\ rec'.by \in Attempts => \E q \in net \cup Awaited : q.new.wid = rec'.wid /\ q.was = rec.wid
                          /\ IF rec'.att = rec.att                                \* the owner, or in its name
                             THEN rec'.lease = rec.lease /\ rec'.by \in {rec.lease, "sweeper", "operator"} \cup Evidenced
                             ELSE rec'.att = rec.att + 1 /\ rec'.st = "I" /\ rec'.by = rec'.lease]_vars
INV5_Fresh     == [][Changed /\ rec' # None =>          \* no other writer can have read what was never there
                       \A q \in net : q.was = rec'.wid => q.from = rec'.by]_vars
INV6_Tells     == [][\A a \in Attempts : Answers(a) /\ ans'[a].k \in {"InProgress", "Unresolved"} \cup Given =>
                       rec' # None /\ rec'.fp = Fp(a)]_vars
INV6_Bound     == [][Changed /\ rec # None /\ rec' # None /\ rec'.gen = rec.gen => rec'.fp = rec.fp]_vars
INV8_Absorbs   == [][Changed /\ rec # None /\ rec.st = "U" =>
                       rec' # None /\ rec'.gen = rec.gen /\ rec'.by \in {rec.lease} \cup Evidenced]_vars
INV8_Started   == [][Changed /\ rec # None /\ rec.st = "I" /\ Started(rec) =>
                       rec' # None /\ rec'.gen = rec.gen /\ rec'.att = rec.att]_vars
INV10_Enters   == [][\A a \in Attempts : pc[a] = "claim" /\ pc'[a] = "run" =>
                       rec' # None /\ rec'.st = "I" /\ rec'.lease = a /\ gen'[a] = rec'.gen]_vars
INV11_Kept     == [][rec # None /\ rec.st # "C" /\ Finished(rec) =>
                       rec' # None /\ rec'.gen = rec.gen /\ rec'.step = rec.step]_vars
INV12_NoResurrection == [][rec = None /\ rec' # None => rec'.st = "I" /\ rec'.att = 1 /\ rec'.gen = epoch + 1]_vars
LeaseRespected == [][Changed /\ rec # None /\ rec' # None /\ rec.st = "I" /\ rec'.by # rec.lease =>
                       rec.lease \in ended \/ (rec'.st = "I" /\ rec'.by = "step" /\ rec'.step = "evidence")]_vars
PromiseKept    == [][Changed /\ rec # None /\ rec' # None /\ rec.st = "I" /\ rec'.gen = rec.gen =>
                       /\ rec'.st = "U" /\ rec'.by = "sweeper" => rec.recovery = "Reconcile" \/ Started(rec)
                       /\ rec'.st = "R" /\ rec'.by = "sweeper" => rec.recovery # "Reconcile"
                       /\ rec'.att # rec.att => rec.recovery # "Reconcile"]_vars
AnswerStands   == [][\A a, b \in Attempts : ans[a].k = "NotStored" /\ gen[b] = 0 => gen'[b] # gen[a]]_vars
NotBlockedByItself == [][\A a \in Attempts : Answers(a) /\ ans'[a].k = "InProgress" =>
                       rec'.lease # a \/ rec'.by = "step"]_vars   \* evidence about a step came in between
FailedIsStored == [][\A a \in Attempts : Answers(a) /\ ans'[a].k = "Failed" =>
                       /\ rec' # None /\ rec'.lease = a
                       /\ Finished(want[a].new) => Finished(rec')
                       /\ rec'.st = (IF want[a].new.declared THEN "U" ELSE Recomputed(want[a].new, rec').st)]_vars
\* What a handler declared unknown is released by an outcome, by "not executed" of the current token, or by evidence
\* about a step that was open in it.
DeclaredStays  == [][Changed /\ rec # None /\ rec.st = "U" /\ rec.declared =>
                       /\ rec' # None /\ rec'.gen = rec.gen
                       /\ \/ rec'.st = "C" \/ (rec'.st = "U" /\ rec'.declared)
                          \/ rec'.st = "R" /\ rec'.by \in {"resolver", "step"}]_vars
\* Commit returns nil only if the stored result is the one that it was given. Whatever says that nothing of the run was
\* written is true in this life of the record, and stays true: an answer, or what the handler was told of a Commit.
ToldNotApplied(a) == pc[a] = "settle" /\ want[a].domain /\ pc'[a] = "failed" /\ ~want'[a].doubt
SaysNothing(a)    == \/ ToldNotApplied(a)
                     \/ Answers(a) /\ (ans'[a].k \in {"Failed", "LeaseLost"} \/ (ans'[a].k = "Settled" /\ ~Applied(a, rec')))
CommitTrue     == [][\A a \in Attempts : Tx =>
                       /\ pc[a] = "settle" /\ want[a].domain /\ Answers(a) /\ ans'[a].k = "Outcome" => ans'[a].res = want[a].new.res
                       /\ SaysNothing(a) =>
                            /\ call'[a] \notin Happened \/ Commit # "alone" \/ epoch >= gen[a]
                            /\ rec' # None => ~Applied(a, rec')
                            /\ \A q \in net' : q.from = a /\ q.domain =>
                                 q.was \notin CanStand(net', IF rec' = None THEN {} ELSE {rec'.wid})]_vars
\* An announcement stays while the run may be alive, and is of this run.
AnnouncedStays == [][Changed /\ rec # None /\ rec' # None /\ rec'.gen = rec.gen /\ rec'.att = rec.att /\ rec'.st = "I" /\ rec.announced =>
                       rec'.announced]_vars
AnnouncedByRun == [][Changed /\ rec' # None /\ (rec = None \/ rec'.gen # rec.gen \/ rec'.att # rec.att) => ~rec'.announced]_vars
LostIsLost     == [][\A a \in Attempts : pc[a] = "settle" /\ Answers(a) /\ ans'[a].k = "LeaseLost" =>
                       rec' # None /\ (rec'.lease # a \/ rec'.st = "C")]_vars

\* Liveness, under FairSpec.
INV9_Leaves    == (rec # None /\ rec.st = "I") ~> (rec = None \/ rec.st # "I")
INV9_Announced == (rec # None /\ rec.announced) ~> ~(rec # None /\ rec.announced)   \* without a scan
INV9_Resolved  == (rec # None /\ rec.st = "U") ~> (rec = None \/ rec.st # "U")
INV9_Listed    == (rec # None /\ rec.st = "R" /\ Due(rec)) ~> ~(rec # None /\ rec.st = "R" /\ Due(rec))
\* Under PatientSpec: the request that is repeated is answered, and the rows are written exactly once.
INV9_Exactly   == <>[](ans[Last].k \in Given /\ Landed(Attempts) = 1)

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
Seen_Corrected    == [][Moves("C", "C") => rec'.cor < 2]_vars
Seen_Retaken      == rec # None /\ rec.st = "C" => rec.att = 1
Seen_Reborn       == rec # None /\ rec.st = "C" => rec.gen = 1
Seen_StepReplayed == [][\A a \in Attempts : pc[a] = "claim" /\ pc'[a] = "run" => ~Finished(rec')]_vars
Seen_StepEvidence == [][\A a \in Attempts : pc[a] = "checkpoint" /\ pc'[a] = "run" => rec'.step # "evidence"]_vars
Seen_StepReleased == [][Moves("U", "R") => rec'.step # "evidence"]_vars
Seen_ReleasedEarly == [][Moves("U", "R") /\ rec'.by = "step" => rec.lease \in ended]_vars
Seen_Recomputed   == [][\A a \in Attempts : pc[a] = "settle" /\ pc'[a] = "settle" => want'[a].new.st = want[a].new.st]_vars
Seen_Listed       == rec # None => ~(rec.st = "R" /\ rec.open)
Seen_Settled      == rec # None /\ rec.st = "R" /\ rec.by = "resolver" => rec.recovery # "Resume" \/ Due(rec)
Seen_NotApplied   == [][\A a \in Attempts : ~ToldNotApplied(a)]_vars
Seen_RefusedInDoubt == [][\A a \in Attempts : Refuse(a) => call[a] \notin Happened]_vars
Seen_AnotherResult == [][\A a \in Attempts : Tells(a, "Settled") => ~Applied(a, rec')]_vars
Seen_SameResult   == [][\A a \in Attempts : Tells(a, "Outcome") /\ want[a].doubt /\ want[a].domain => rec'.wid = want[a].new.wid]_vars
Seen_CommitAgain  == [][\A a \in Attempts : pc[a] = "failed" /\ pc'[a] = "settle" => want'[a].new.st # "C"]_vars
Seen_Interrupted  == [][Moves("I", "U") /\ Started(rec) => rec'.by # "sweeper"]_vars
Seen_Announced    == [][Moves("I", "U") /\ rec'.by = "sweeper" => ~rec.announced]_vars
Seen_TooLate      == [][\A a \in Attempts : pc[a] = "announce" /\ pc'[a] = "run" => rec' # None /\ rec'.lease = a /\ rec'.st = "I"]_vars
Seen_TakenOver    == [][Changed /\ rec # None /\ rec' # None /\ rec.announced => rec'.att = rec.att]_vars
Seen_Deduped      == \A a \in Attempts : call[a] # "deduped"

\* For TLC: which states are the same. Attempts of one kind are exchangeable; an attempt that answered and one that
\* died do no more; of the answers only two kinds are read; a request to the provider whose time is over is none.
Bounded  == epoch <= Cardinality(Attempts)   \* a resolver and a late owner may contradict each other for ever
OneLife  == epoch = 0                        \* of the record: what happens before its first expiry
Symmetry == Permutations(Attempts \ (Other \cup Redeployed)) \cup Permutations(Redeployed)
View == <<rec, net, want, ended, epoch, gen, rs,
          [a \in Attempts |-> IF pc[a] = "done" THEN "dead" ELSE pc[a]],
          [a \in Attempts |-> IF ans[a].k \in {"NotStored"} \cup Given THEN [ans[a] EXCEPT !.k = IF @ \in Given THEN "Outcome" ELSE @] ELSE None],
          [a \in Attempts |-> IF call[a] = "sent" /\ ~CanLand(a) /\ pc[a] \in Gone THEN "no" ELSE call[a]]>>
=============================================================================
