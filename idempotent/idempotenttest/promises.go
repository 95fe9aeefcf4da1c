package idempotenttest

// promise is what a row guarantees under faults, besides the invariants, and
// what a run of it costs.
type promise struct {
	// effects is the most that the provider may see, including a last request
	// after the faults. Zero: one, which is what Reconcile guarantees.
	effects int
	// cost is the cost of a run, relative to the usual one. Zero: the same.
	cost int
	// calm rows run without faults only. Under faults they would take long and
	// show nothing new.
	calm bool
}

func promiseOf(row string) promise {
	p := promises[row]
	p.effects, p.cost = max(p.effects, 1), max(p.cost, 1)
	return p
}

// promises lists the rows in which the provider may see more than one effect,
// and the expensive rows.
var promises = map[string]promise{
	// One effect for each life of the record. After an expiry or a deletion,
	// another life begins.
	"FM18_ShortRetentionIsHonoured":               {effects: 2, calm: true}, // the clock decides
	"FM19_ExpiredButStillThere":                   {effects: 2},
	"FM20_RecordDeletedMeanwhile":                 {effects: 2},
	"FM21_SimultaneousReplacersOfAnExpiredRecord": {effects: 2, cost: racing},
	"FM38_CacheKnowsTheExpiry":                    {effects: 2},
	"FM66_ExpiryBetweenInsertAndJudgement":        {effects: 2},
	"FM66_ExpiryWhileTakingOver":                  {effects: 2},

	// Rerun guarantees at least one effect: those of the row, and one of
	// another run if the last outcome cannot be stored.
	"FM13_TakenOverAndCompleted":              {effects: 3},
	"FM13_TakenOverAndRunning":                {effects: 3},
	"FM31_PanicUnderRerun":                    {effects: 2},
	"FM60_OutcomeAgainstTakeover_Error":       {effects: 2},
	"FM60_OutcomeAgainstTakeover_NotExecuted": {effects: 2},

	// Resume guarantees one effect if the provider honours the downstream key.
	// This provider does not, and the last request, which has no steps, adds
	// its own effect.
	"FM28_ResumeAfterACrash":   {effects: 2},
	"FM60_StepAgainstTakeover": {effects: 2},

	// The handler reports NotExecuted although it had an effect.
	"FM32_LyingNotExecuted": {effects: 2},

	// The resolver reports NotExecuted although there was an effect. If its
	// better evidence, or the owner's report, does not reach the store, the key
	// runs again: here the guarantee depends on the evidence.
	"FM46_TheSameEvidenceTwice":             {effects: 2},
	"FM46_TwoReconcilers_NothingThenResult": {effects: 2},
	"FM61_NotExecutedButItWas":              {effects: 2},
	"FM61_NotExecutedButNobodyKnows":        {effects: 2},

	"FM05_SimultaneousRequests":              {cost: racing},
	"FM33_SimultaneousTakeovers":             {cost: racing},
	"FM51_ManyLoopsOneProcess":               {cost: racing},
	"FM51_ManyLoopsOneProcessWithACache":     {cost: racing},
	"FM34_ResultOf4KB":                       {cost: middling},
	"FM34_ResultOf4KBAndOneByte":             {cost: middling},
	"FM34_ResultOf399KB":                     {cost: large},
	"FM34_ResultOf400KB":                     {cost: large},
	"FM34_ResultOf401KB":                     {cost: large},
	"FM34_ResultOf1MB":                       {cost: 2 * large},
	"FM34_ResultOf6MB":                       {calm: true}, // as FM34_ResultOf1MB
	"FM34_NoTimeForAllOfIt":                  {cost: large},
	"FM35_ChunksWrittenAndTheCompletionLost": {cost: middling},
	"FM35_ChunkDeletedOrAltered":             {cost: middling},
	"FM35_PiecesOutliveTheRecord":            {cost: middling},
	"FM35_CommittedPiecesOutliveTheRecord":   {cost: middling},
	"FM35_ResolvedPiecesOutliveTheRecord":    {cost: middling},
	"FM63_LateChunksAgainstAResolution":      {cost: middling},
	"FM37_TwinCompletes":                     {cost: waiting},
	"FM37_TwinCrashes":                       {cost: waiting},
	"FM37_TwinLeavesNothing":                 {cost: waiting},
	"FM37_StoreFailsWhileWaiting":            {cost: waiting},
	"FM37_OwnDeadline":                       {cost: waiting},
	"FM37_CallerGoesAway":                    {cost: waiting},
}

// Relative costs of a run.
const (
	middling = 3  // tens of kilobytes
	racing   = 10 // dozens of requests
	waiting  = 10 // real time
	large    = 50 // hundreds of kilobytes
)
