package queue

import (
	"context"
	"time"

	"github.com/safeledger/safeledger/internal/crashpoint"
	"github.com/safeledger/safeledger/internal/payment"
)

// Why a person must look: Settlement.ParkReason.
const (
	parkOutOfTime   = "OUT_OF_TIME"   // QUEUE_PARK_AFTER went by and no attempt has ended it
	parkNoEvidence  = "NO_EVIDENCE"   // the same, and no lookup says whether there is anything left to do
	parkRefused     = "REFUSED"       // the wallet refuses a reversal: somebody's money is out
	parkUnsupported = "UNSUPPORTED"   // the configured wallet has no such call
	parkPanicked    = "ATTEMPT_PANIC" // a bug of ours: its attempts would go on for ever
)

// The wallet's codes that mean more than "no" (contract section 4).
const (
	holdNotActive       payment.Code = "HOLD_NOT_ACTIVE"
	holdAlreadyCaptured payment.Code = "HOLD_ALREADY_CAPTURED"
)

// attempt is one turn at one follow-up: at most one send, the lookups around it,
// and then what to write down. All of its calls together have one call's limit.
type attempt struct {
	*Queue
	w     payment.Work
	begun time.Time // before the lease was given, so that it ends later than we think

	resolve bool // the fate of an earlier send is open: begin with a lookup
	token   bool // a token of the retry budget is held
	told    bool // the observer has heard whether one was granted
	asked   bool // a lookup went over the wire, or may have
	sent    bool // a call went over the wire, or may have
	doubt   bool // and nobody knows what became of it
	calls   []call
}

// call is a line of the timeline, with the time as this process tells it.
type call struct {
	payment.WalletCall

	began time.Time
}

func (q *Queue) newAttempt(w payment.Work, begun time.Time) *attempt {
	a := &attempt{Queue: q, w: w, begun: begun, resolve: w.Resolve}
	if w.TakenOver {
		// Whoever had it may have sent it, however its row looks.
		a.w.Turn, a.resolve = payment.LookupTurn, true
	}
	return a
}

// perform makes the attempt and says what is to be written down. A panic parks
// the operation: it would come again with every attempt, and must not take the
// other workers along.
func (a *attempt) perform(ctx context.Context) (s payment.Settlement) {
	defer func() {
		if p := recover(); p != nil {
			a.log.ErrorContext(ctx, "attempt panicked", "id", a.w.ID, "kind", a.w.Kind, "panic", p)
			s = a.complete(a.park(parkPanicked, ""))
		}
	}()
	return a.complete(a.settlement(ctx))
}

func (a *attempt) settlement(ctx context.Context) payment.Settlement {
	leave, ok := a.wallet.Enter()
	if !ok {
		if a.w.State == payment.NotApplied {
			return a.lookAgain(a.backoffMin)
		}
		return a.postpone(a.w.Turn, a.backoffMin)
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, a.callLimit)
	defer cancel()

	if a.w.Kind == payment.Reversal && a.w.TargetID == "" {
		return a.look(ctx)
	}
	return a.apply(ctx)
}

// complete adds to s what is the same however an attempt ends.
func (a *attempt) complete(s payment.Settlement) payment.Settlement {
	if a.token {
		a.token = false
		a.budget.lost()
	}
	s.ID, s.Fence = a.w.ID, a.w.Fence
	s.Unspent = !a.sent
	s.Doubt = a.doubt
	s.TargetID, s.Lookups, s.LateChecks = a.w.TargetID, a.w.Lookups, a.w.LateChecks
	for _, c := range a.calls {
		c.Ago = time.Since(c.began)
		s.Calls = append(s.Calls, c.WalletCall)
	}
	return s
}

// apply sends what the follow-up is about, unless a lookup shows that it is done
// or there is nothing to send.
func (a *attempt) apply(ctx context.Context) payment.Settlement {
	in := a.instruction()
	if a.w.Kind == payment.Reversal && in.Operation == payment.Credit {
		// What a cancelled debit gives back is what its credits have not.
		switch {
		case a.w.CreditsOpen:
			return a.awaitCredits()
		case in.Amount.AmountMinor <= 0:
			a.giveBack()
			return payment.Settlement{State: payment.Succeeded}
		}
	}
	if a.w.Turn == payment.RetryTurn && !a.takeToken() {
		return a.postpone(payment.RetryTurn, a.backoffMin)
	}
	if !a.resolve {
		return a.transmit(ctx, in)
	}

	evidence := a.lookup(ctx, in)
	switch evidence.Finding {
	case payment.FoundApplied:
		a.answered()
		return succeed(evidence.WalletID)
	case payment.FoundRejected:
		if a.w.Kind == payment.Reversal {
			// Refused once and redriven: what stood in the way may be gone (an account that
			// was locked), and only a send finds out. It has the same key.
			return a.transmit(ctx, in)
		}
		a.answered()
		// Of several sends one was refused, not necessarily the last that may land.
		const thisAndTheOnlyOther = 2
		if a.w.Attempts > thisAndTheOnlyOther && a.mayLand(in, evidence.Code) {
			return a.awaitWindow()
		}
		return a.refused(in, evidence.Code)
	case payment.NotFound:
		// So far. What is sent now has the same key as what may still land: the wallet
		// applies it once.
		return a.transmit(ctx, in)
	case payment.NoEvidence:
	}
	return a.noEvidence(evidence)
}

// instruction is the wallet call that the follow-up stands for: the same on
// every attempt.
func (a *attempt) instruction() payment.Instruction {
	in := payment.Instruction{Reference: a.w.Outbound}
	switch a.w.Kind {
	case payment.Credit:
		in.Operation, in.Account, in.Amount = payment.Credit, a.w.Account, a.w.Amount
	case payment.Capture:
		in.Operation, in.HoldID, in.Amount = payment.Capture, a.w.Payment.WalletID, a.w.Amount
	case payment.Release:
		in.Operation, in.HoldID = payment.Release, a.w.Payment.WalletID
	case payment.Reversal:
		if a.w.Payment.Operation == payment.Hold {
			in.Operation, in.HoldID = payment.Release, a.w.TargetID
			break
		}
		in.Operation, in.Account, in.Amount = payment.Credit, a.w.Payment.Account, a.w.Payment.Amount
		in.Amount.AmountMinor -= a.w.Credited
	case payment.Debit, payment.Hold:
		// Not among Kinds, so never leased: nothing may send a payment a second time.
	}
	return in
}

// awaitCredits puts a reversal off until the credits of its payment have ended.
// Nobody is asked meanwhile, so it costs nothing but looks at the row; it looks
// as seldom as a reversal that waits for the wallet.
//
// It is never parked for that: it is the credit that a person must look at, and the
// reversal begins by itself when that has ended.
func (a *attempt) awaitCredits() payment.Settlement {
	a.w.Lookups++
	return a.postpone(a.w.Turn, lookupPause(a.w.Lookups, a.backoffMax))
}

// transmit sends, if a token or a first attempt's right allows it, and draws the
// conclusion.
func (a *attempt) transmit(ctx context.Context, in payment.Instruction) payment.Settlement {
	first := a.first()
	if !first && !a.takeToken() {
		return a.postpone(payment.RetryTurn, a.backoffMin)
	}
	// A worker that was stopped must not send beside the one that took over from it.
	if time.Since(a.begun) > a.lease-a.callLimit {
		return a.postpone(a.w.Turn, 0)
	}
	outcome := a.send(ctx, in)
	if first && !untried(outcome) {
		a.budget.first(time.Now())
	}
	return a.judge(ctx, in, outcome)
}

// first reports whether a send now is the operation's first attempt, which is
// free. For a reversal that has just found what it must undo it is one too.
func (a *attempt) first() bool {
	return a.w.Turn == payment.FirstTurn ||
		(a.w.Turn == payment.LookupTurn && a.w.Attempts == 1 && !a.resolve)
}

// judge is the table of contract section 4.
func (a *attempt) judge(ctx context.Context, in payment.Instruction, outcome payment.Outcome) payment.Settlement {
	switch outcome.Class {
	case payment.Success:
		a.answered()
		if outcome.Reason == payment.ReasonDuplicate && a.w.Attempts == 1 {
			a.observer.DuplicateOnFirstSend(string(a.w.Kind))
			a.log.ErrorContext(ctx, "the wallet calls a first send a duplicate: a claim was lost, or something repeats our requests",
				"id", a.w.ID, "kind", a.w.Kind)
		}
		return succeed(outcome.WalletID)
	case payment.Rejected:
		if !outcome.Verdict || outcome.NotAboutThis() {
			a.doubt = outcome.Unproven()
			return a.again(outcome.Unproven(), parkOutOfTime)
		}
		a.answered()
		return a.verdict(ctx, in, outcome.Code)
	case payment.Unavailable:
		a.doubt = outcome.Unproven()
		switch {
		case outcome.Reason == payment.ReasonUnsupported:
			a.giveBack()
			return a.park(parkUnsupported, "")
		case outcome.Reason == payment.ReasonBreakerOpen:
			return a.broken()
		case untried(outcome) && !a.asked:
			return a.postpone(a.w.Turn, a.backoffMin)
		}
		return a.again(outcome.Unproven(), parkOutOfTime)
	case payment.Ambiguous:
	}
	a.doubt = true
	return a.again(true, parkOutOfTime)
}

// verdict ends the follow-up with the wallet's no, unless that no may be about
// an earlier attempt of ours that did go through: a capture is "already
// captured", and an account may have been closed behind a credit.
func (a *attempt) verdict(ctx context.Context, in payment.Instruction, code payment.Code) payment.Settlement {
	if a.w.Attempts > 1 && !a.nothingHeld(in, code) {
		evidence := a.lookup(ctx, in)
		switch evidence.Finding {
		case payment.FoundApplied:
			return succeed(evidence.WalletID)
		case payment.FoundRejected, payment.NotFound:
			if a.mayLand(in, code) {
				return a.awaitWindow()
			}
			return a.refused(in, code)
		case payment.NoEvidence:
		}
		return a.again(true, parkNoEvidence)
	}
	return a.refused(in, code)
}

// mayLand reports whether an earlier send of ours can still be applied although
// this one was refused: not found is not proof (contract section 3), and what is
// given back now could be given a second time. A capture or release cannot land any
// more once its hold has ended.
func (a *attempt) mayLand(in payment.Instruction, code payment.Code) bool {
	holdEnded := in.Operation != payment.Credit && (code == holdNotActive || code == holdAlreadyCaptured)
	return a.w.Kind != payment.Reversal && a.w.InDoubt && a.w.SinceDoubt < a.settleWindow && !holdEnded
}

// awaitWindow keeps a refused operation, and what it has reserved, until nothing of
// it can land any more.
func (a *attempt) awaitWindow() payment.Settlement {
	if a.w.Tried >= a.parkAfter {
		return a.park(parkOutOfTime, "")
	}
	a.resolve = true
	return a.pending(payment.RetryTurn, min(a.settleWindow-a.w.SinceDoubt, a.backoffMax))
}

// refused is the end by the wallet's verdict. Nobody asked for a reversal and
// nobody hears its answer: one that is refused needs a person.
func (a *attempt) refused(in payment.Instruction, code payment.Code) payment.Settlement {
	switch {
	case a.w.Kind != payment.Reversal:
		return payment.Settlement{State: payment.Refused, Code: code}
	case a.nothingHeld(in, code):
		return payment.Settlement{State: payment.Succeeded}
	}
	return a.park(parkRefused, code)
}

// nothingHeld reports whether a refusal says that a reversal's hold is gone,
// which is all that was wanted, by whatever it went.
func (a *attempt) nothingHeld(in payment.Instruction, code payment.Code) bool {
	return a.w.Kind == payment.Reversal && in.Operation == payment.Release && code == holdNotActive
}

func succeed(walletID string) payment.Settlement {
	return payment.Settlement{State: payment.Succeeded, WalletID: walletID}
}

// noEvidence is for a lookup of our own reference that told nothing. Then nothing
// is sent.
func (a *attempt) noEvidence(evidence payment.Evidence) payment.Settlement {
	switch {
	case evidence.Reason == payment.ReasonUnsupported:
		a.giveBack()
		return a.park(parkUnsupported, "")
	case unasked(evidence) && a.w.Tried < a.parkAfter:
		return a.postpone(a.w.Turn, a.backoffMin)
	}
	return a.again(true, parkNoEvidence)
}

// again is for an attempt that was made and did not end it: the next one is a
// retry, after a pause that grows. reason is why it is parked if its time is up.
func (a *attempt) again(resolve bool, reason string) payment.Settlement {
	a.resolve = a.resolve || resolve
	if a.w.Tried >= a.parkAfter {
		return a.park(reason, "")
	}
	tries := a.w.Attempts
	if !a.sent {
		tries-- // this one is given back
		a.w.Lookups++
	}
	return a.pending(payment.RetryTurn, backoff(tries+a.w.Lookups, a.backoffMin, a.backoffMax, a.jitter))
}

// broken is for a call that the open breaker refused. It comes back through the
// retry budget, a first attempt too.
func (a *attempt) broken() payment.Settlement {
	a.sawBreaker(time.Now())
	if a.w.Tried >= a.parkAfter {
		return a.park(parkOutOfTime, "")
	}
	return a.postpone(payment.RetryTurn, a.backoffMin)
}

// postpone is for an attempt that was not made: that costs time, no attempt and
// no token. It never parks: what has only waited gets its attempt first.
func (a *attempt) postpone(turn payment.Turn, pause time.Duration) payment.Settlement {
	a.giveBack()
	return a.pending(turn, pause)
}

func (a *attempt) pending(turn payment.Turn, pause time.Duration) payment.Settlement {
	return payment.Settlement{State: payment.Pending, Due: true, Pause: pause, Turn: turn, Resolve: a.resolve}
}

// park keeps it for a person. Turn and Resolve are what it begins with when it is
// redriven, which may be next week: whatever may have been sent is looked for first.
func (a *attempt) park(reason string, code payment.Code) payment.Settlement {
	s := payment.Settlement{State: payment.Parked, ParkReason: reason, Code: code, Turn: payment.RetryTurn}
	s.Resolve = a.resolve || a.sent || a.w.Attempts > 1
	if a.w.Kind == payment.Reversal && a.w.TargetID == "" {
		s.Turn = payment.LookupTurn
	}
	return s
}

// takeToken makes sure that a token of the retry budget is held.
func (a *attempt) takeToken() bool {
	a.token = a.token || a.budget.take(time.Now())
	if a.told {
		return a.token
	}
	a.told = true
	if a.token {
		a.observer.RetryGranted()
	} else {
		a.observer.RetryRefused()
	}
	return a.token
}

// giveBack returns a token whose retry was not made.
func (a *attempt) giveBack() {
	if a.token {
		a.token = false
		a.budget.unused(time.Now())
	}
}

// answered tells the budget that a retry got through.
func (a *attempt) answered() {
	if a.token {
		a.token = false
		a.budget.answered(time.Now())
	}
}

func (a *attempt) send(ctx context.Context, in payment.Instruction) payment.Outcome {
	began := time.Now()
	a.sent = true // until it is known that it was not, even if Send does not return
	outcome := a.wallet.Send(ctx, in)
	crashpoint.Here(crashpoint.WorkerAfterSend)
	a.sent = outcome.Class != payment.Unavailable || outcome.Unproven()
	if !untried(outcome) {
		a.record(string(in.Operation), outcome.Class.String(), outcome.Reason, outcome.Status, began)
		a.observer.Attempt(a.w.Kind, outcome.Class, outcome.Reason)
	}
	return outcome
}

func (a *attempt) lookup(ctx context.Context, in payment.Instruction) payment.Evidence {
	if a.asked && a.w.Turn == payment.LookupTurn {
		a.lookups.ReserveN(time.Now(), 1) // the lease was counted as one lookup, and this is another
	}
	began := time.Now()
	evidence := a.wallet.Lookup(ctx, in)
	crashpoint.Here(crashpoint.WorkerAfterLookup)
	if !unasked(evidence) {
		a.asked = true
		a.record("lookup", evidence.Finding.String(), evidence.Reason, evidence.Status, began)
	}
	return evidence
}

// record keeps a line for the timeline. What was not tried leaves none: it would
// be a line a second for as long as a breaker is open.
func (a *attempt) record(name, outcome string, reason payment.Reason, status int, began time.Time) {
	a.calls = append(a.calls, call{
		payment.WalletCall{Call: name, Outcome: outcome, Reason: reason, Status: status, Took: time.Since(began)}, began,
	})
}

// untried reports whether our own side kept the call from being tried at all: a
// connection that was refused was tried.
func untried(o payment.Outcome) bool {
	return o.Class == payment.Unavailable && o.Status == 0 && ownDoing(o.Reason)
}

// unasked is the same of a lookup.
func unasked(e payment.Evidence) bool {
	return e.Finding == payment.NoEvidence && e.Status == 0 && ownDoing(e.Reason)
}

func ownDoing(reason payment.Reason) bool {
	switch reason {
	case payment.ReasonBreakerOpen, payment.ReasonBulkheadFull, payment.ReasonDeadlineSpent, payment.ReasonUnsupported:
		return true
	}
	return false
}
