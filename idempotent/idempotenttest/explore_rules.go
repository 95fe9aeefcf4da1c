// SPDX-License-Identifier: Apache-2.0

package idempotenttest

import "github.com/once-lambda/once/idempotent/event"

// breakKind is what is broken.
type breakKind uint

const (
	atSetup      breakKind = 1 << iota // the test, or a call that Explore cannot judge
	atStandstill                       // nothing goes on
	atLate                             // no answer before the deadline
	atMissing                          // a success without the effect
	atRepeated                         // more effects than promised
	atCheck                            // a check of the user failed
	atAnswers                          // two successes differ
	atAnswer                           // a success has a wrong answer
	atFinal                            // a final refusal after the effect
	atEnd                              // no success at last
	atSameKey                          // another request with the same key succeeded
	atOtherKey                         // a request with another key did not, or has no effect
)

// Facts from which a story chooses the rule that was broken.
const (
	foreignContext   = "a call with another context"
	outsidePoint     = "an effect outside every point"
	wrongRequest     = "a request that never succeeds"
	nothingPromised  = "nothing promised"
	afterReturn      = "an effect after the handler returned"
	undone           = "an effect that was undone"
	remembered       = "a success without a call"
	outsideStep      = "an effect outside a step"
	notExecutedSent  = "NotExecuted after a request"
	noGuard          = "an effect without a record"
	newRecord        = "an effect under another record"
	expired          = "a key that counts as new after its record expired"
	changedStep      = "a step with another name"
	besideCommit     = "a write beside a Commit"
	provenTooEarly   = "evidence of no execution"
	twiceByTransport = "an effect repeated by the transport"
	twiceBySDK       = "an effect repeated by the SDK"
	otherHost        = "an effect of another provider"
	otherKey         = "an effect repeated under another key"
	keyIgnored       = "an effect repeated under one key"
	noKey            = "a request without the downstream key"
	withoutKey       = "an effect repeated without a key"
	finalAnswer      = "a final answer"
	idleRun          = "a run without a call"
	failingRun       = "a run that fails at last"
	sharedKey        = "two requests with one key"
	resolved         = string(event.Resolved)
)

// rules are what a story says at the end: the first one for what is broken whose fact was
// shown. The most special ones come first.
var rules = []struct {
	at         breakKind
	fact, text string
}{
	{atSetup, foreignContext, "Pass the handler's context to every call: with another context a call outlives its process, and DownstreamKey finds no key."},
	{atSetup, wrongRequest, "Without a fault the request must succeed: correct the event or the handler. Options.Logger of World.GuardOptions gets what the guard logs."},
	{atSetup, nothingPromised, "Say in the body what must hold: World.ExactlyOnce, World.AtMostOnce, World.AtLeastOnce or World.Check."},
	{atSetup, outsidePoint, "Explore can only crash what it sees: use World.Provider or World.Do for every effect."},
	{atStandstill, "", "Unlock a mutex in a defer. Explore cannot go on either while a mutex is held during a call: use a channel of one element there."},
	{atLate, "", "Return as soon as the handler's context ends: the rest of the time is for the outcome and for the answer."},

	{atMissing | atRepeated | atCheck, afterReturn, "Wait for every goroutine, and return its error, before the handler returns: Lambda stops the process then."},
	{atMissing | atCheck, undone, "Undo an effect only if it is certain that nothing counts on it: after an error of Commit that does not match ErrNotApplied, return the error."},
	{atMissing, resolved, "Answer Resolved only with evidence of the effect, such as the provider's own record of it."},
	{atMissing, remembered, "Remember an effect only after it has happened: an execution environment serves the retry too."},
	{atMissing, outsideStep, "Send the DownstreamKey of the step's own context: a provider takes two effects with one key for one."},
	{atMissing, "", "Return the error of every call, and take a reply with another status than success for an error."},

	{atRepeated | atCheck, notExecutedSent, "Return NotExecuted only if no request was sent. After a request, return the error itself: the outcome is unknown."},
	{atRepeated | atCheck, noGuard, "Wrap the handler with the guard that newHandler gets: idempotent.Wrap, or a function of lambdahttp or lambdabatch."},
	{atRepeated | atCheck, newRecord, "Take the key from the request, so that a retry has the same one: not from the clock, and not by chance."},
	{atRepeated | atCheck, outsideStep, "Under Resume, put every effect in a Step: the handler runs again, and only steps are skipped."},
	{atRepeated | atCheck, changedStep, "Name a step by a constant, or from the request: a step with another name is another step."},
	{atRepeated | atCheck, besideCommit, "Put every write into the transaction of Commit: another one is not undone with it."},
	{atRepeated | atCheck, provenTooEarly, "Answer ProvenNotExecuted only if nothing can follow: a request that is in flight can still arrive, and an error is no evidence."},
	{atRepeated | atCheck | atSameKey, expired, "Keep a record longer than any client or event source retries: Operation.Retention."},
	{atSameKey, "", "Let the fingerprint of the key cover every field that changes the effect."},
	{atRepeated | atCheck, twiceByTransport, "net/http repeats a request with the header Idempotency-Key after a lost connection: send that header only to a provider that honors it."},
	{atRepeated | atCheck, twiceBySDK, "The AWS SDK repeats a call after a lost reply: write with a condition, or put the write into Commit."},
	{atRepeated | atCheck, otherHost, "Do not ask another provider after a request was sent: the first one has perhaps made the effect, and does not share its keys."},
	{atRepeated | atCheck, otherKey, "Send the same key for the same effect on each attempt: idempotent.DownstreamKey(ctx)."},
	{atRepeated | atCheck, keyIgnored, "The provider has repeated an effect under the same key. If it knows no keys, or forgets them so early, declare the step AtMostOnce, or the operation Reconcile."},
	{atRepeated | atCheck, noKey, "Send idempotent.DownstreamKey(ctx) with the request."},
	{atRepeated | atCheck, "", "A run after a fault repeats an effect: give the effect a key, such as a unique column with DownstreamKey, or declare its step AtMostOnce, or the operation Reconcile."},

	{atAnswers, resolved, "Let the resolver return the value that the handler would have returned."},
	{atAnswers, "", "Take the answer from the request and from the provider's reply, not from the clock or by chance: a run can follow one that has answered, if its outcome was not stored."},
	{atAnswer, "", "Return the error of reading and decoding a reply, and only an answer that a client can use."},
	{atFinal | atEnd, finalAnswer, "Return Final only for an outcome that no retry can change, not for a temporary failure, and not after a request without a reply."},
	{atEnd | atOtherKey, idleRun, "An execution environment serves many requests: do not keep an error (sync.Once), a context or a deadline for the next one."},
	{atEnd, failingRun, "Take what an earlier run did for done, such as a row that exists: a run after a fault fails where the first one succeeded."},
	{atEnd, "", "Under Reconcile only evidence settles an unknown outcome: let a resolver for the operation return it, or promise AtMostOnce."},
	{atOtherKey, sharedKey, "Put all that distinguishes two requests into the key: the tenant (Scope), the operation and the ID."},
}
