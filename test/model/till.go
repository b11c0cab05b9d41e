package model

// tillSteps is what the till does: requests and cancels with the key in any order,
// at any time, and follow-ups of what it has.
func (m *model) tillSteps(w world, e emitter) {
	for i, r := range w.requests {
		if r.phase != notArrived || m.lags && m.cancelLast && w.failovers == 0 {
			continue
		}
		m.arrive(w, i, askedFor, e)
		if m.otherBody {
			m.arrive(w, i, different, e)
		}
		break // they are all alike
	}
	if w.till.cancels > 0 && (!m.cancelLast || w.failovers == 0) {
		if m.withBody {
			m.cancel(w, askedFor, e)
		}
		if m.withoutBody {
			m.cancel(w, noBody, e)
		}
	}
	for op, may := range m.followUps {
		if may && w.led.ops[op].state == noOperation && m.accepts(&w, op) {
			after := w
			after.led.ops[op] = operation{state: pending}
			e.to(tillAsksForFollowUp, uint8(op), after)
		}
	}
}

// arrive is ledger.Claim for request i, and what follows at once where the key has a
// row. The insert and, on conflict, the read are two statements: but a row that was
// in the way is never gone again, so together they are one moment.
//
// A request that is on its way and one that was never sent are the same here: it
// arrives at any time, or never. So is one that the gate refuses, or of which the
// commit failed; and a claim whose commit has an answer that never came is a handler
// that is killed behind it, because nothing is sent then.
func (m *model) arrive(w world, i int, b body, e emitter) {
	p := w.led.pay
	r := &w.requests[i]
	switch {
	case p.state == noPayment || m.bug == tombstoneIsFree && p.state == declined && p.body == noBody:
		w.claims++
		*r = request{phase: ready, body: b, claim: w.claims}
		if m.bug != sendBeforeClaim {
			w.led.pay = payment{state: inFlight, body: b, claim: w.claims}
		}
		e.to(tillAsks, uint8(b), w)
	case m.bug == claimHasTwoOwners && p.state == inFlight && p.body == b:
		*r = request{phase: ready, body: b, claim: p.claim}
		e.to(tillAsks, uint8(b), w)
	case p.body != noBody && p.body != b, // 422: ClaimMismatch
		p.state == inFlight, // 409: ClaimInFlight
		m.cancelled(&w):     // 409: ClaimCancelled
		*r = request{phase: gone}
		e.to(tillIsTurnedAway, uint8(b), w)
	default:
		*r = request{phase: gone}
		if p.state == approved && w.till.cancelled {
			w.broke |= approvalAfterCancel.bit()
		}
		m.hear(&w, p.state, p.code)
		e.to(tillHearsAgain, uint8(b), w)
	}
}

// cancelled is what statement `claimed` asks of an approval.
func (m *model) cancelled(w *world) bool {
	if m.bug == claimIgnoresCancel {
		return false
	}
	return w.led.pay.state == approved && (w.led.ops[reversal].state != noOperation || m.hold && w.led.ops[release].cancelled)
}

// hear is the till being told a decision. That it is not, because the answer is lost or
// nobody listens, needs no step of its own: whoever has heard something can do all that
// he could do otherwise, and there is more that must hold. Where it need not, because
// what was stored may be lost, nobody listens.
func (m *model) hear(w *world, state payState, c code) {
	if !m.promised.has(answerIsStored) {
		return
	}
	if w.till.heard != noPayment && (w.till.heard != state || w.till.code != c) {
		w.broke |= answerIsStored.bit()
	}
	w.till.heard, w.till.code = state, c
}

// cancel is ledger.CancelByKey: statements `entomb` and `cancel`, under the payment's
// row, hence one moment.
func (m *model) cancel(w world, with body, e emitter) {
	w.till.cancels--
	p := &w.led.pay
	ops := &w.led.ops
	if p.state == noPayment {
		if m.bug == noTombstone {
			m.answerCancel(w, payment{state: declined, code: cancelledByKey}, e)
			return
		}
		*p = payment{state: declined, code: cancelledByKey}
	}
	if with != noBody && p.body != noBody && p.body != with {
		return // 422: UNKNOWN_BODY
	}
	if captured := m.hold && ops[capture].reserves(m); captured && m.bug != cancelIgnoresCapture {
		return // 409: TOO_LATE
	}
	// undone_by: the reversal, or a release that has ended the hold.
	released := m.hold && ops[release].reserves(m)
	undone := ops[reversal].state != noOperation || released

	switch {
	case p.state == inFlight:
		p.state, p.code = declined, cancelledByKey
		if !undone && m.bug != cancelWritesNoReversal {
			ops[reversal] = operation{state: pending, window: openWindow}
		}
	case p.state == approved && !undone:
		ops[reversal] = operation{state: pending, target: true}
	case p.state == declined && p.body == noBody && with != noBody && !undone && m.bug != tombstoneIgnoresBody:
		ops[reversal] = operation{state: pending, window: openWindow}
	}
	if released {
		ops[release].cancelled = true
	}
	m.answerCancel(w, *p, e)
}

// answerCancel is the 200, which tells the decision too.
func (m *model) answerCancel(w world, told payment, e emitter) {
	w.till.cancelled = true
	m.hear(&w, told.state, told.code)
	e.to(tillCancels, 0, w)
}

// reserves reports whether o counts in what is taken of its payment: the row is the
// reservation, until the wallet's no gives it back.
func (o operation) reserves(m *model) bool {
	if m.bug == refusedStillReserves {
		return o.state != noOperation
	}
	return o.state != noOperation && o.state != rejected
}

// accepts is what statement `accept` decides about a follow-up that is asked for.
func (m *model) accepts(w *world, op int) bool {
	ops := &w.led.ops
	if w.led.pay.state != approved || ops[reversal].state != noOperation && m.bug != creditAfterCancel {
		return false
	}
	if !m.hold {
		return m.reserved(w, m)+m.credits[op] <= m.amount
	}
	if ops[release].cancelled {
		return false
	}
	return m.bug == twoEndsOfAHold || !ops[capture].reserves(m) && !ops[release].reserves(m)
}

// reserved is the sum of the credits that are not refused, as rules counts them.
func (m *model) reserved(w *world, rules *model) int8 {
	sum := int8(0)
	for _, op := range []int{first, second} {
		if w.led.ops[op].reserves(rules) {
			sum += m.credits[op]
		}
	}
	return sum
}
