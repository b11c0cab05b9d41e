package queue

import (
	"context"
	"time"

	"github.com/safeledger/safeledger/internal/payment"
)

// look is the first half of the reversal of a decline: find out whether there is
// anything to undo (contract section 4). Not found is not proof, because a message
// may still be on its way: only a not-found that was asked for after the settle
// window ends it, and even then it is looked at again, an hour and a day later.
func (a *attempt) look(ctx context.Context) payment.Settlement {
	evidence := a.lookup(ctx, a.w.Payment.Instruction())
	switch evidence.Finding {
	case payment.FoundApplied:
		// From here on it is an operation like any other, with a backoff of its own; and
		// one that a late check has reopened is not out of time for having ended before.
		a.w.TargetID, a.w.Lookups = evidence.WalletID, 0
		if a.w.State == payment.NotApplied {
			a.w.Tried = 0
		}
		return a.apply(ctx)
	case payment.FoundRejected:
		a.w.Lookups++
		return payment.Settlement{State: payment.NotApplied}
	case payment.NotFound:
		a.w.Lookups++
		return a.notFound()
	case payment.NoEvidence:
	}
	return a.noSight(evidence)
}

// notFound keeps looking until the settle window is over, and then ends the
// reversal, or its late check.
func (a *attempt) notFound() payment.Settlement {
	late := a.w.State == payment.NotApplied
	// Age is of the moment at which the lease was given, and the lookup began later.
	if left := a.settleWindow - a.w.Age; !late && left > 0 {
		// The lookup that can end it must begin after the window: be there when it closes.
		return a.lookAgain(min(lookupPause(a.w.Lookups, a.backoffMax), left))
	}
	var sinceEnd time.Duration
	if late {
		sinceEnd = a.w.SinceEnd
		a.w.LateChecks++
		// A check that found no answer for so long stands for those it has overtaken.
		for a.w.LateChecks < len(a.lateChecks) && a.lateChecks[a.w.LateChecks] <= sinceEnd {
			a.w.LateChecks++
		}
	}
	s := payment.Settlement{State: payment.NotApplied, Turn: payment.LookupTurn, Resolve: a.resolve}
	if a.w.LateChecks < len(a.lateChecks) {
		s.Due, s.Pause = true, a.lateChecks[a.w.LateChecks]-sinceEnd
	}
	return s
}

// noSight keeps looking: a lookup that failed, was refused or said PENDING says
// nothing about the money. One that an open breaker kept from being made does not
// move the schedule on.
func (a *attempt) noSight(evidence payment.Evidence) payment.Settlement {
	pause := a.backoffMin
	if !unasked(evidence) {
		a.w.Lookups++
		pause = lookupPause(a.w.Lookups, a.backoffMax)
	}
	switch {
	case a.w.State == payment.NotApplied:
		// It ended long ago. The check is what is repeated, for as long as any operation
		// is tried; then what ended it stands.
		if last := len(a.lateChecks) - 1; last < 0 || a.w.SinceEnd >= a.lateChecks[last]+a.parkAfter {
			return payment.Settlement{State: payment.NotApplied}
		}
	case evidence.Reason == payment.ReasonUnsupported:
		return a.park(parkUnsupported, "")
	case a.w.Tried >= a.parkAfter:
		return a.park(parkNoEvidence, "")
	}
	return a.lookAgain(pause)
}

// lookAgain is another lookup after pause. What ended NOT_APPLIED stays so until
// something is found.
func (a *attempt) lookAgain(pause time.Duration) payment.Settlement {
	s := a.pending(payment.LookupTurn, pause)
	if a.w.State == payment.NotApplied {
		s.State = payment.NotApplied
	}
	return s
}
