package model

// bug is a mistake that somebody could make, as a switch of the model.
type bug uint8

const (
	noBug bug = iota

	sendBeforeClaim
	notFoundIsFinal
	windowTooShort
	reversalInSecondTransaction
	reversalWithoutOwnKey
	noFenceForHandlers
	drawnReference
	gatewaysAreBelieved
	answerBeforeStore
	recoveryFreesKey

	claimHasTwoOwners
	handlerRetries
	resetIsUnsent
	unknownSaysRetryAfter
	recoveryWritesNoReversal
	noRecovery

	noTombstone
	tombstoneIsFree
	tombstoneIgnoresBody
	cancelWritesNoReversal
	cancelIsOverwritten
	claimIgnoresCancel
	cancelIgnoresCapture
	reversalIgnoresCredits
	creditAfterCancel
	refusedReleaseIsRejected
	cancelledReleaseIsGivenUp

	reversalDoesNotLook
	notFoundEndsReversal
	windowAskedAtTheEnd
	lateCheckOnlyCounts
	refusedReversalEnds

	noFenceForWorkers
	newKeyAfterTakeOver
	noTakeOver
	twoEndsOfAHold
	refusedStillReserves
	refusalAfterDoubtIsFinal
	foundRefusalIsFinal
	doubtIsForgottenAtTakeOver
	capturedMeansRefused

	bugKinds = iota
)

// seeded is a bug, where it is looked for, and what it must be found to break.
type seeded struct {
	bug  bug
	what string
	in   string // the configuration
	by   []promise
}

// seededBugs is the table: the ten of the first small model, then by part.
var seededBugs = []seeded{ //nolint:gochecknoglobals // a table
	{sendBeforeClaim, "the wallet is called before the claim is stored", "decision", []promise{noOrphanMoney}},
	{notFoundIsFinal, "a handler's lookup that finds nothing ends it, without a reversal", "decision", []promise{openQuestionHasWork, declinedIsUndone}},
	{windowTooShort, "the settle window is shorter than a message lives", "decision", []promise{openQuestionHasWork, declinedIsUndone}},
	{reversalInSecondTransaction, "the decline and its reversal are two transactions", "decision", []promise{openQuestionHasWork, declinedIsUndone}},
	{reversalWithoutOwnKey, "each attempt of a reversal draws a key", "decision", []promise{oneKeyEach, noMoreBackThanTaken}},
	{noFenceForHandlers, "a handler that comes back overwrites what recovery has stored", "decision", []promise{answerIsStored}},
	{drawnReference, "references are drawn, and a failover loses a claim", "lagging standby", []promise{oneDebit}},
	{gatewaysAreBelieved, "502 and 503 mean not applied, without a reversal", "decision", []promise{unsentIsUnseen, openQuestionHasWork, declinedIsUndone}},
	{answerBeforeStore, "the till is answered before the decision is stored", "decision", []promise{answerIsStored}},
	{recoveryFreesKey, "recovery frees the key instead of declining", "decision", []promise{keyStays, noOrphanMoney, oneRequestInFront, declinedIsUndone}},

	{claimHasTwoOwners, "the claim reads first and inserts then: two requests own the key", "decision", []promise{oneRequestInFront, declinedIsUndone}},
	{handlerRetries, "a handler sends again when no answer comes", "decision", []promise{oneRequestInFront, declinedIsUndone}},
	{resetIsUnsent, "a connection that was reset after the write counts as refused", "decision", []promise{unsentIsUnseen, openQuestionHasWork, declinedIsUndone}},
	{unknownSaysRetryAfter, "a store that failed is answered as the gate answers", "decision", []promise{retryAfterIsProof}},
	{recoveryWritesNoReversal, "recovery declines without a reversal", "decision", []promise{openQuestionHasWork, declinedIsUndone}},
	{noRecovery, "nobody recovers", "decision", []promise{quiescence}},

	{noTombstone, "cancel of a key that was never seen stores nothing", "cancel", []promise{answerIsStored, cancelledIsUndone, approvalAfterCancel}},
	{tombstoneIsFree, "a late original does not find the tombstone in its way", "cancel", []promise{answerIsStored, cancelledIsUndone, approvalAfterCancel}},
	{tombstoneIgnoresBody, "a tombstone gets no reversal although the request was shown", "lagging standby, then a cancel", []promise{cancelledIsUndone}},
	{cancelWritesNoReversal, "cancel of what is in flight declines without a reversal", "cancel", []promise{openQuestionHasWork, cancelledIsUndone, declinedIsUndone}},
	{cancelIsOverwritten, "the handler overwrites a cancel", "cancel", []promise{answerIsStored}},
	{claimIgnoresCancel, "a replay of an approval does not ask whether it was cancelled", "cancel", []promise{approvalAfterCancel}},
	{cancelIgnoresCapture, "cancel reverses a hold that is being captured", "ends of a hold", []promise{holdEndsOnce}},
	{reversalIgnoresCredits, "the reversal of a cancelled debit does not wait for its credits", "credits in part", []promise{noMoreBackThanTaken}},
	{creditAfterCancel, "a credit is accepted although the debit is cancelled", "credits in part", []promise{noMoreBackThanTaken}},
	{refusedReleaseIsRejected, "a release is REJECTED although it must undo a cancelled hold", "ends of a hold", []promise{cancelledIsUndone}},
	{cancelledReleaseIsGivenUp, "such a release can be settled by hand as not applied", "operators of a hold", []promise{cancelledIsUndone}},

	{reversalDoesNotLook, "the reversal of a decline credits without looking", "decision", []promise{noMoreBackThanTaken}},
	{notFoundEndsReversal, "a reversal ends when its lookup finds nothing, whenever that is", "decision", []promise{openQuestionHasWork, declinedIsUndone}},
	{windowAskedAtTheEnd, "a reversal asks whether the window is over when it settles, not when it looks", "decision", []promise{openQuestionHasWork, declinedIsUndone}},
	{lateCheckOnlyCounts, "a late check that finds the payment does not reopen its reversal", "late check", []promise{declinedIsUndone}},
	{refusedReversalEnds, "a reversal that is refused ends as if there were nothing to undo", "decision", []promise{declinedIsUndone}},

	{noFenceForWorkers, "a worker that comes back overwrites what the one after it has settled", "credits", []promise{oneEnd}},
	{newKeyAfterTakeOver, "whoever takes over sends under a new key, and does not look first", "credits", []promise{oneKeyEach, noMoreBackThanTaken}},
	{noTakeOver, "a lease that ran out is not handed out again", "credits", []promise{quiescence}},
	{twoEndsOfAHold, "a capture and a release of one hold are both accepted", "ends of a hold", []promise{holdEndsOnce}},
	{refusedStillReserves, "what was refused goes on reserving", "credits", []promise{refusedFrees}},
	{refusalAfterDoubtIsFinal, "a refusal after a doubt gives back at once (ADR 0016)", "credits", []promise{approvedOnce, noMoreBackThanTaken}},
	{foundRefusalIsFinal, "so does one that is found, however often it was sent (ADR 0016)", "credits", []promise{approvedOnce, noMoreBackThanTaken}},
	{doubtIsForgottenAtTakeOver, "that a worker never reported does not count as a doubt (ADR 0016)", "credits", []promise{approvedOnce, noMoreBackThanTaken}},
	{capturedMeansRefused, "HOLD_ALREADY_CAPTURED ends a capture that was sent before, without a look", "hold at a forgetful wallet", []promise{approvedOnce}},
}

// residual is what the protocol does not prevent, because it cannot: it takes an
// assumption that is broken. With the assumption the same configuration holds.
type residual struct {
	what  string
	in    string // the configuration
	give  func(*configuration)
	up    string // the assumption that is given up
	by    promise
	where string // the document that says so
}

// residuals is the table.
var residuals = []residual{ //nolint:gochecknoglobals // a table
	{
		"a handler writes after its reversal has ended",
		"decision", func(c *configuration) { c.pausesOutlive = true },
		"a process is stopped between its look at the clock and its write for less than the settle window", declinedIsUndone, "docs/adr/0015-reversals.md",
	},
	{
		"a debit lands when its reversal has ended, and after the last late check",
		"decision", func(c *configuration) { c.messagesOutlive = true },
		"a message lives shorter than the settle window, or at least than the late checks", declinedIsUndone, "docs/adr/0015-reversals.md",
	},
	{
		"a lookup does not find a debit that was applied, and its reversal ends",
		"decision", func(c *configuration) { c.blindLooks = true },
		"the wallet's lookups show within the settle window what it has applied", declinedIsUndone, "docs/adr/0015-reversals.md",
	},
	{
		"a worker writes after its follow-up was refused",
		"credits", func(c *configuration) { c.pausesOutlive = true },
		"as above, of a worker", noMoreBackThanTaken, "docs/adr/0016-a-refusal-after-a-doubt.md",
	},
	{
		"a credit is applied twice",
		"credits", func(c *configuration) { c.walletForgets = true },
		"the wallet never forgets a reference", noMoreBackThanTaken, "docs/adr/0014-leases-and-fences.md",
	},
	{
		"a credit that is settled as not applied lands",
		"operators", func(c *configuration) { c.guesses = true },
		"operators do not guess", noMoreBackThanTaken, "docs/operators.md",
	},
	{
		"one copy of a debit is refused, hence declined without a reversal, and the other lands",
		"repeating network", func(c *configuration) { c.remembersRefusals = false },
		"nothing repeats our requests, or the wallet stays with its no", declinedIsUndone, "docs/topologies.md",
	},
	{
		"the same with a credit: what it reserved is given twice",
		"repeating network, credits", func(c *configuration) { c.remembersRefusals = false },
		"as above", noMoreBackThanTaken, "docs/topologies.md",
	},
	{
		"a decision that a till has heard is decided again",
		"replay", func(c *configuration) { c.lags = true },
		"no commit that was answered is lost", answerIsStored, "docs/adr/0006-keys-are-remembered-for-good.md",
	},
	{
		"the debit of a lost claim is booked, and the till never comes back",
		"replay", func(c *configuration) { c.lags = true },
		"as above", noOrphanMoney, "docs/adr/0003-derived-references.md",
	},
	{
		"a claim is lost, and the same key with another body is a second debit",
		"replay", func(c *configuration) { c.lags, c.otherBody = true, true },
		"as above, and the till repeats what it said", oneDebit, "docs/adr/0003-derived-references.md",
	},
	{
		"a claim is lost, and its repeat is declined as not sent, or by the wallet's no, without a reversal: but the first was booked, or lands",
		"replay", func(c *configuration) { c.lags = true },
		"as above", declinedIsUndone, "docs/adr/0003-derived-references.md",
	},
	{
		"a decline and its reversal are lost, and the payment is approved after all, by a debit that was given back",
		"replay", func(c *configuration) { c.lags = true },
		"as above", approvedOnce, "docs/adr/0003-derived-references.md",
	},
	{
		"a claim is lost, and the till cancels without the body",
		"lagging standby, then a cancel", func(c *configuration) { c.withoutBody = true },
		"the till sends the body with its cancel, if a failover may have lost the claim", cancelledIsUndone, "docs/adr/0013-cancel-by-key.md",
	},
	{
		"a credit that was applied is lost, and the debit is credited or cancelled again",
		"credits", func(c *configuration) { c.lags = true },
		"no commit that was answered is lost", noMoreBackThanTaken, "docs/adr/0003-derived-references.md",
	},
}
