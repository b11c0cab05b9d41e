package schedules

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/ledger/memory"
	"github.com/safeledger/safeledger/internal/payment"
)

// Marks say that something was reached: a fault that struck, a state that is rare. A run
// of many schedules in which one was never reached has tested less than it says, and
// fails.

// The marks that are put where it happens.
const (
	markStoodStill       = "event: stood still"
	markKilled           = "event: killed"
	markKilledInside     = "event: killed with requests inside"
	markDrained          = "event: drained"
	markRefused          = "event: wallet refused a connection"
	markSwallowed        = "event: wallet swallowed a connection"
	markIdleClosed       = "event: wallet closed an idle connection"
	markAway             = "event: ledger was away"
	markRecoveredBySweep = "recovery: by sweep"
	markRecoveredWhenMet = "recovery: when met"
	markNoToken          = "queue: no token"
	markFenced           = "queue: fenced"
	markReopened         = "queue: reopened by a late check"
	markRecognised       = "wallet: recognised a repetition"
	markLandedLate       = "wallet: landed late"

	markGivenBackAndTaken = "queue: a refusal gave back what another credit took"
)

// The marks that the oracle finds in what is left.
const (
	markReplayed        = "answer: replayed"
	markTombstoneHit    = "answer: a late original met a tombstone"
	markTombstoneOther  = "answer: another body met a tombstone"
	markMismatchFlight  = "answer: mismatch while in flight"
	markHungUp          = "answer: the till hung up"
	markHungUpDecided   = "answer: the till hung up, and it was decided"
	markConnectionLost  = "answer: the connection was lost"
	markAcceptedAgain   = "answer: accepted, replayed"
	markZombieDecline   = "answer: a zombie was told the stored decline"
	markCancelFlight    = "cancel: in flight"
	markCancelDebit     = "cancel: an approved debit"
	markCancelHold      = "cancel: an approved hold"
	markCancelReleased  = "cancel: a hold that is released"
	markCancelDeclined  = "cancel: a decline"
	markCancelTombstone = "cancel: what was never seen"
	markCancelShown     = "cancel: what was never seen, shown"
	markCancelTooLate   = "cancel: too late"
	markFoundApplied    = "decision: the lookup found it applied"
	markFoundRejected   = "decision: the lookup found it rejected"
	markNotFound        = "decision: the lookup found nothing"
	markBlind           = "decision: the lookup told nothing"
	markNoLookup        = "decision: no time for a lookup"
	markForeign4xx      = "decision: a 4xx without a verdict, reversed"
	markGateway         = "decision: a 502 or 503, reversed"
	markEdge            = "decision: approved with less than 50 ms left"
	markResolved        = "queue: a lookup found it done"
	markSentAgain       = "queue: sent again"
	markAwaitedWindow   = "queue: refused after a doubt, and waited"
	markCredited        = "reversal: credited"
	markReleased        = "reversal: released"
	markRest            = "reversal: gave back what credits had not"
	markNothingLeft     = "reversal: nothing was left to give back"
	markRedriven        = "reversal: redriven"
)

// everyMark is all that a long run must reach, in order.
var everyMark = allMarks()

func allMarks() []string {
	all := []string{
		markStoodStill, markKilled, markKilledInside, markDrained, markRefused, markSwallowed, markIdleClosed, markAway,
		markRecoveredBySweep, markRecoveredWhenMet, markNoToken, markFenced, markReopened, markRecognised, markLandedLate, markGivenBackAndTaken,
		markReplayed, markTombstoneHit, markTombstoneOther, markMismatchFlight, markHungUp, markHungUpDecided, markConnectionLost,
		markAcceptedAgain, markZombieDecline, markCancelFlight, markCancelDebit, markCancelHold, markCancelReleased, markCancelDeclined,
		markCancelTombstone, markCancelShown, markCancelTooLate, markFoundApplied, markFoundRejected, markNotFound, markBlind, markNoLookup,
		markForeign4xx, markGateway, markEdge, markResolved, markSentAgain, markAwaitedWindow, markCredited, markReleased, markRest,
		markNothingLeft, markRedriven,
		"decision: not sent: deadline_spent", "decision: not sent: bulkhead_full", "decision: breaker_open",
		"decision: connect_failed", "decision: connect_timeout",
		"queue: parked: REFUSED", "queue: parked: OUT_OF_TIME", "queue: parked: NO_EVIDENCE",
	}
	for _, lane := range []string{"decision", "worker", "lookup"} {
		for _, state := range []string{"open", "half-open", "closed"} {
			all = append(all, fmt.Sprintf("breaker of %ss: %s", lane, state))
		}
	}
	for _, kind := range []payment.Operation{payment.Credit, payment.Capture, payment.Release, payment.Reversal} {
		all = append(all, "queue: taken over: "+string(kind))
		for _, state := range []payment.FollowUpState{payment.Succeeded, payment.Refused, payment.NotApplied, payment.Parked} {
			switch {
			case kind == payment.Reversal && state == payment.Refused, kind != payment.Reversal && state == payment.NotApplied:
			default:
				all = append(all, fmt.Sprintf("queue: %s ended %s", kind, state))
			}
		}
	}
	for _, f := range walletFaults {
		all = append(all, f.mark())
	}
	for step := range stepNames {
		switch step {
		case memory.HandBack, memory.Operate: // the former is rare, the latter an operator's
		default:
			for _, h := range []how{refused, lost, slow, slowBack, late} {
				all = append(all, storageMark(step, h))
			}
		}
	}
	for _, answer := range []string{
		"201", "402", "424 WALLET_TIMEOUT", "424 WALLET_UNAVAILABLE", "402 CANCELLED", "200", "202",
		"403 FORBIDDEN", "404 PAYMENT_NOT_YET_DECIDED", "404 PAYMENT_NOT_FOUND", "404 HOLD_NOT_FOUND", "404 DEBIT_NOT_FOUND", "404 OPERATION_NOT_FOUND",
		"409 REQUEST_IN_FLIGHT", "409 HOLD_NOT_ACTIVE", "409 HOLD_ALREADY_CAPTURED", "409 NOT_REFUNDABLE", "409 PAYMENT_CANCELLED",
		"422 IDEMPOTENCY_KEY_REUSED", "422 AMOUNT_EXCEEDS_HOLD", "422 AMOUNT_EXCEEDS_DEBIT", "422 AMOUNT_EXCEEDS_CAPTURE", "422 ACCOUNT_MISMATCH",
		"501 HOLDS_UNSUPPORTED", "503 DRAINING", "503 OVERLOADED", "503 NOT_READY", "503 OUTCOME_UNKNOWN", "503 STORAGE_UNAVAILABLE",
	} {
		all = append(all, "answer: "+answer)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (f walletFault) mark() string { return "wallet: " + f.name }

func storageMark(step memory.Step, h how) string {
	return fmt.Sprintf("ledger: %s %s", stepNames[step], h)
}

// markAll marks what is found in what a schedule has left behind.
func (o *oracle) markAll() {
	j := &o.journal
	for _, e := range j.exchanges {
		o.markAnswer(e)
	}
	for i, row := range o.rows {
		o.markCancels(i, row.Payment)
		o.markReversals(row)
	}
	for _, c := range j.calls {
		if c.lane == "decision" {
			o.markDecision(c)
			continue
		}
		if c.lookup && c.evidence.Finding == payment.FoundApplied {
			j.mark(markResolved)
		}
	}
	for _, entries := range o.arrived {
		if len(entries) > 1 {
			j.mark(markSentAgain)
		}
	}
	for m := range j.seen {
		if _, known := slices.BinarySearch(everyMark, m); !known { // then a run could not tell that it is missing
			j.complain("harness", "%q is reached, and not in the list of marks", m)
		}
	}
}

func (o *oracle) markAnswer(e *exchange) {
	j := &o.journal
	p := o.rows[e.keyOf].Payment
	switch {
	case e.ended.IsZero() && e.act.HangUp > 0 && e.method == http.MethodPost && e.follow == "":
		j.mark(markHungUp)
		if p.DecidedAt.After(e.sent.Add(e.act.HangUp)) {
			j.mark(markHungUpDecided)
		}
		return
	case e.ended.IsZero():
		j.mark(markConnectionLost)
		return
	}
	text := fmt.Sprint(e.status)
	if e.told.Code != "" && (e.status != http.StatusPaymentRequired || e.told.Code == string(payment.Cancelled)) && e.status >= 300 {
		text += " " + e.told.Code
	}
	if !e.last {
		j.mark("answer: " + text)
	}
	tombstone := e.decided() && p.State == payment.Declined && p.Account == "" && !e.last
	switch {
	case tombstone && e.act.Deed == pay:
		j.mark(markTombstoneHit)
	case tombstone:
		j.mark(markTombstoneOther)
	case e.decided() && e.replayed && !e.last:
		j.mark(markReplayed)
	case e.status == http.StatusAccepted && e.replayed:
		j.mark(markAcceptedAgain)
	case e.told.Code == "IDEMPOTENCY_KEY_REUSED" && e.follow == "" && p.DecidedAt.After(e.ended):
		j.mark(markMismatchFlight)
	}
}

func (o *oracle) markCancels(i int, p payment.Payment) {
	j := &o.journal
	for _, e := range o.about(i) {
		if !e.isCancel() {
			continue
		}
		switch {
		case e.told.Code == "HOLD_ALREADY_CAPTURED":
			j.mark(markCancelTooLate)
		case e.status != http.StatusOK:
		case p.State == payment.Declined && p.Account == "" && e.act.Deed == cancel:
			j.mark(markCancelTombstone)
		case p.State == payment.Declined && p.Account == "":
			j.mark(markCancelShown)
		case p.State == payment.Declined && p.Code == payment.Cancelled:
			j.mark(markCancelFlight)
		case p.State == payment.Declined:
			j.mark(markCancelDeclined)
		case p.Operation == payment.Debit:
			j.mark(markCancelDebit)
		case !o.isReversed(i):
			j.mark(markCancelReleased)
		default:
			j.mark(markCancelHold)
		}
	}
}

func (o *oracle) markReversals(row payment.Timeline) {
	j := &o.journal
	for _, f := range row.FollowUps {
		if f.Kind != payment.Reversal {
			continue
		}
		effects := o.applied[f.Outbound.String()]
		switch {
		case len(effects) == 0 && f.State == payment.Succeeded && row.Payment.Operation == payment.Debit:
			j.mark(markNothingLeft)
		case len(effects) == 0:
		case row.Payment.Operation == payment.Hold:
			j.mark(markReleased)
		case effects[0].Effect.AmountMinor < f.Amount.AmountMinor:
			j.mark(markRest)
		default:
			j.mark(markCredited)
		}
		if len(row.Notes) > 0 && f.State == payment.Succeeded {
			j.mark(markRedriven)
		}
	}
	for _, f := range row.FollowUps {
		if f.Kind == payment.Reversal || f.State != payment.Refused {
			continue
		}
		// It was refused, asked about again, and only then given back.
		var refusals int
		for _, c := range row.Calls {
			if c.OperationID == f.ID && (c.Outcome == "rejected") {
				refusals++
			}
		}
		if refusals > 1 && f.EndedAt.Sub(f.CreatedAt) > 10*time.Minute {
			j.mark(markAwaitedWindow)
		}
	}
}

func (o *oracle) markDecision(c *call) {
	j := &o.journal
	at := slices.IndexFunc(o.rows, func(row payment.Timeline) bool {
		return row.Payment.ID != uuid.Nil && row.Payment.Reference == c.in.Reference
	})
	if at < 0 || c.ended.IsZero() {
		return
	}
	row := o.rows[at]
	p := row.Payment
	reversed := o.isReversed(at)
	if c.lookup {
		switch c.evidence.Finding {
		case payment.FoundApplied:
			j.mark(markFoundApplied)
		case payment.FoundRejected:
			j.mark(markFoundRejected)
		case payment.NotFound:
			j.mark(markNotFound)
		case payment.NoEvidence:
			j.mark(markBlind)
		}
		return
	}
	switch c.outcome.Class {
	case payment.Success:
		if c.ended.Add(50 * ms).After(c.deadline) {
			j.mark(markEdge)
		}
		told := slices.ContainsFunc(j.exchanges, func(e *exchange) bool {
			return e.n == c.exchange && e.decided() && !e.replayed && e.status != http.StatusCreated
		})
		if told && p.State == payment.Declined {
			j.mark(markZombieDecline)
		}
	case payment.Rejected:
		if !c.outcome.Verdict && reversed {
			j.mark(markForeign4xx)
		}
	case payment.Unavailable:
		switch {
		case c.outcome.Status != 0 && reversed:
			j.mark(markGateway)
		case c.outcome.Status == 0 && !strings.HasPrefix(string(c.outcome.Reason), "deadline"):
			j.mark("decision: " + string(c.outcome.Reason))
		}
	case payment.Ambiguous:
		looked := slices.ContainsFunc(j.calls, func(other *call) bool {
			return other.lookup && other.lane == c.lane && other.in.Reference == c.in.Reference
		})
		if !looked {
			j.mark(markNoLookup)
		}
	}
}
