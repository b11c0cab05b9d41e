package checker

import (
	"slices"
	"time"
)

// judgePayment judges the key of a debit or hold, when everything has been read.
func (w *world) judgePayment(s *subject) {
	w.judgeTelling(s)
	w.judgeGate(s)
	w.judgeTimes(s)
	if p := s.payment; p != nil {
		w.judgeRow(s, p)
		w.judgeDeciding(s, p)
		w.judgeOwed(s, p)
		w.judgeReserved(s, p)
		w.judgeMoney(s, p)
	}
	w.judgeRegister(s)
}

// judgeTelling compares what was told under one key with itself.
func (w *world) judgeTelling(s *subject) {
	var first *call
	fresh := 0
	cancelled := func(until moment) bool {
		return slices.ContainsFunc(s.calls, func(c call) bool { return c.purpose == cancelling && c.sent < until && c.outcome != unsent })
	}
	for i := range s.calls {
		c := &s.calls[i]
		switch c.outcome {
		case toldDecision, toldAccepted:
			w.checked(same)
			if first == nil {
				first = c
			} else if c.digest != first.digest {
				w.violateAt(same, s, inTills(c.endPlace), "this answer is not the one that was given before")
			}
			w.checked(firstAnswer)
			if !c.replayed {
				fresh++
			}
		case toldWasCancelled:
			w.checked(cancelTold)
			if s.payment == nil || !s.payment.approved() || s.payment.reversal() == nil || !cancelled(c.ended) {
				w.violateAt(cancelTold, s, inTills(c.endPlace), "it is told as cancelled, and the till has not cancelled an approval")
			}
		case unknown, unsent, gateRefused, noClaim, toldCancelled, toldRead, toldInFlight, toldUndecided, toldMismatch, toldTooLate, toldNotFound, toldFree, readFailed:
		}
	}
	if fresh > 1 {
		w.violate(firstAnswer, s, "%d answers are not marked as replays", fresh)
	}
	// The other half of it: what the till has cancelled is not told as an approval again.
	for _, c := range s.calls {
		if c.purpose != cancelling || c.outcome != toldCancelled || s.payment == nil || !s.payment.approved() {
			continue
		}
		w.checked(cancelTold)
		for _, later := range s.calls {
			if later.sent > c.ended && later.outcome == toldDecision {
				w.violateAt(cancelTold, s, inTills(later.endPlace), "the approval is told to a request that was sent after its cancellation was answered")
			}
		}
	}
}

// judgeRow holds a row to what tills have asked for.
func (w *world) judgeRow(s *subject, p *payment) {
	w.checked(askedFor)
	switch {
	case s.key == "":
		w.violate(askedFor, s, "no till has asked for this payment")
	case p.tombstone():
		if !slices.ContainsFunc(s.calls, func(c call) bool { return c.purpose == cancelling }) {
			w.violate(askedFor, s, "no till has cancelled this key")
		}
	default:
		i := slices.IndexFunc(s.requests, func(r request) bool { return r.mark == p.mark })
		if i < 0 {
			w.violate(askedFor, s, "no till has sent the request that is stored")
			break
		}
		w.checked(derived)
		if s.requests[i].reference != p.reference {
			w.violate(derived, s, "its reference is %s, want %s", p.reference, s.requests[i].reference)
		}
	}
	w.checked(decidedAtLast)
	if p.state == "IN_FLIGHT" {
		if !w.opts.Unsettled {
			w.violate(decidedAtLast, s, "it is still in flight")
		}
		return
	}
	w.checked(inTime)
	horizon := w.opts.ServerBudget + w.opts.RecoveryGrace + sweepPeriod
	took := p.decided.sub(p.created) - w.disturbed.within(p.created, p.decided)
	w.report.longest(&w.report.InFlight, took)
	if took > horizon+w.opts.Slack {
		w.violate(inTime, s, "it was in flight for %v, without what was disturbed; want at most %v", took, horizon)
	}
}

// sweepPeriod is how often what was left in flight is looked for (contract section 2).
const sweepPeriod = time.Second

// judgeDeciding judges the calls by which a payment was decided, as they are recorded
// and as the wallet saw them.
func (w *world) judgeDeciding(s *subject, p *payment) {
	var call, lookup *walletCall
	mutations, lookups := 0, 0
	for i := range p.calls {
		if c := &p.calls[i]; c.call == "lookup" {
			lookup = c
			lookups++
		} else {
			call = c
			mutations++
		}
	}
	w.checked(oneMutation)
	for _, x := range s.wires {
		n := len(x.arrivals())
		if w.lossy && mutations <= 1 && n > mutations {
			s.lost = s.lost || n > 1 // claimed again, and sent again, when the first claim was gone
			continue
		}
		if n > 1 || mutations > 1 {
			w.violate(oneMutation, s, "%s was on the wire %d times, %d are recorded", x.reference, n, mutations)
			break
		}
	}

	early, reversed := 0, p.reversal() != nil // where there is a reversal, what comes after the decision is its own
	for _, x := range s.wires {
		early += len(x.of(func(l seen) bool {
			return l.lookup && l.event == arrival && (!reversed || l.at < p.decided.add(-w.opts.ClockSlack))
		}))
	}
	if early > 0 || lookups > 0 {
		w.checked(oneLookup)
	}
	switch {
	case w.lossy && lookups <= 1 && early > lookups && (early > 1 || call != nil):
		s.lost = true // decided again, as above
	case early > 1 || lookups > 1:
		w.violate(oneLookup, s, "%d lookups were on the wire while it was decided, %d are recorded", early, lookups)
	case lookup != nil && (call == nil || call.outcome != "ambiguous"):
		w.violate(oneLookup, s, "a lookup was made after a call that did not end in doubt")
	case early > 0 && lookup == nil && call != nil:
		w.violate(oneLookup, s, "a lookup was on the wire and none is recorded")
	}

	w.judgeLimits(s, p.calls, func(c *walletCall) time.Duration {
		if c.call == "lookup" {
			return w.opts.LookupCall
		}
		return w.opts.DecisionCall
	})
	if call != nil && call.sentAnything() {
		w.judgeSending(s, p, call)
	}
	w.judgeEvidence(s, p, call, lookup)
}

// sentAnything reports whether a recorded call can have been on the wire.
func (c *walletCall) sentAnything() bool { return c.outcome != "unavailable" || c.status != 0 }

// judgeLimits holds recorded calls to the time that they may take.
func (w *world) judgeLimits(s *subject, calls []walletCall, limit func(*walletCall) time.Duration) {
	for i := range calls {
		c := &calls[i]
		most := limit(c)
		if c.reason == "connect_timeout" || c.reason == "connect_failed" {
			most = w.opts.ConnectTimeout
		}
		if w.disturbed.overlap(c.at, c.at.add(c.took)) {
			continue
		}
		w.checked(callTime)
		if c.took > most+w.opts.Slack {
			w.violate(callTime, s, "%s (%s) took %v, want at most %v", c.call, c.reason, c.took, most)
		}
	}
}

// judgeSending holds the one send to the budget: it may not begin with less than the
// minimum left. The claim came after the request's arrival, so what is left is less. When
// a call began is stored as how long ago that was, by a statement that may have waited.
func (w *world) judgeSending(s *subject, p *payment, c *walletCall) {
	var budget time.Duration
	for _, q := range s.calls {
		if q.purpose == posting {
			budget = max(budget, q.effective)
		}
	}
	if w.disturbed.overlap(p.created, c.at) {
		return
	}
	w.checked(sendTime)
	if late := c.at.sub(p.created); late > budget-w.opts.MinToSend+w.opts.Slack {
		w.violate(sendTime, s, "the wallet was asked %v after the claim, the budget was %v", late, budget)
	}
}

// judgeEvidence holds a decision to what it was concluded from.
func (w *world) judgeEvidence(s *subject, p *payment, call, lookup *walletCall) {
	onWire := 0
	for _, x := range s.wires {
		onWire += len(x.arrivals())
	}
	switch {
	case w.lossy && onWire > 0 && call != nil && !call.sentAnything():
		s.lost = true // sent by a claim that is gone
	case call != nil && !call.sentAnything():
		w.checked(neverSeen)
		if onWire > 0 {
			w.violate(neverSeen, s, "%s is recorded as certainly not sent, and the wallet has seen it", call.reason)
		}
	case p.declined() && p.code == "WALLET_UNAVAILABLE" && p.reversal() == nil:
		w.checked(neverSeen)
		if onWire > 0 {
			w.violate(neverSeen, s, "it is declined without a reversal as not sent, and the wallet has seen it")
		}
	}
	if lookup != nil && (lookup.outcome == "not_found" || lookup.outcome == "no_evidence") {
		w.checked(noProof)
		if !p.declined() || p.reversal() == nil {
			w.violate(noProof, s, "the lookup said %s, and it is %s without a reversal", lookup.outcome, p.state)
		}
	}
}

// judgeReserved holds what was accepted to be given back to what was taken, by the
// ledger's own rows.
func (w *world) judgeReserved(s *subject, p *payment) {
	taken, promised, ends := p.amount, int64(0), 0
	for _, j := range p.jobs {
		if j.refused() {
			continue
		}
		switch j.kind {
		case credit:
			promised += j.amount
		case capture:
			taken = j.amount
			ends++
		case release:
			ends++
		case noKind, debit, hold, reversal:
		}
	}
	if promised == 0 && ends == 0 {
		return
	}
	w.checked(reserved)
	if promised > taken || ends > 1 {
		w.violate(reserved, s, "credits of %d are accepted of the %d that were taken, and %d captures and releases", promised, taken, ends)
	}
}
