package model

// decisionSteps is internal/decision, one handler for each request, and recovery.
func (m *model) decisionSteps(w world, e emitter) {
	for i, r := range w.requests {
		switch r.phase {
		case notArrived, gone:
			continue
		case ready:
			m.send(w, i, e)
		case waiting:
			m.listen(w, i, e)
		case concluded:
			if m.bug == answerBeforeStore {
				m.answerFirst(w, i, e)
			} else {
				m.store(w, i, e)
			}
		case answeredFirst:
			m.store(w, i, e)
		case halfStored:
			m.writeReversal(w, i, e)
		}
		// kill -9, or a stop that nobody ends. What is on its way stays there.
		w := w
		w.abandon(m.reference(r.claim, r.body), r.wire)
		w.requests[i] = request{phase: gone}
		e.to(handlerDies, 0, w)
	}

	// Recover, or whoever meets the payment: at any time, that is when its handler is
	// dead, when it is slow, and when it has been stopped.
	if w.led.pay.state == inFlight && m.bug != noRecovery {
		w := w
		w.led.pay.state, w.led.pay.code = declined, walletTimeout
		if m.bug != recoveryWritesNoReversal {
			w.led.ops[reversal] = operation{state: pending, window: openWindow}
		}
		if m.bug == recoveryFreesKey {
			w.led.pay, w.led.ops[reversal] = payment{}, operation{}
		}
		e.to(recoveryDeclines, 0, w)
	}
}

// send is the part of decision.ask up to the write. A handler in phase ready either
// has not looked at its deadline yet, or has and is about to write: the difference
// only shows when the window closes, see closeWindow.
func (m *model) send(w world, i int, e emitter) {
	if m.unsent {
		w := w
		w.requests[i].phase, w.requests[i].verdict = concluded, declineUnavailable
		e.to(handlerSendsNothing, uint8(declineUnavailable), w)
	}
	w.requests[i].phase, w.requests[i].wire = waiting, flying
	w.sends = min(2, w.sends+1)
	e.to(handlerWrites, 0, w)
}

// listen is the rest of decision.ask, and decision.conclude.
func (m *model) listen(w world, i int, e emitter) {
	r := w.requests[i]
	ref := m.reference(r.claim, r.body)
	conclude := func(kind stepKind, v verdict) {
		w := w
		w.abandon(ref, r.wire)
		w.requests[i] = request{phase: concluded, body: r.body, claim: r.claim, verdict: v}
		e.to(kind, uint8(v), w)
	}

	// An answer that was read ends it. A lost answer is one that is not read.
	switch r.wire {
	case yes:
		conclude(handlerIsAnswered, approve)
	case no, noNotActive, noCaptured:
		conclude(handlerIsAnswered, declineRejected)
	case silent, flying, notNow, lost:
	}

	// Something in between answers, whatever the wallet does. (A 4xx without the
	// wallet's own verdict is the same, with another code.)
	if m.gateways {
		if m.bug == gatewaysAreBelieved {
			conclude(handlerMeetsGateway, declineUnavailable)
		} else {
			conclude(handlerMeetsGateway, declineUnavailableAndReverse)
		}
	}
	if m.bug == resetIsUnsent {
		conclude(handlerSendsNothing, declineUnavailable)
	}
	if m.bug == handlerRetries && w.sends < 2 {
		w := w
		w.abandon(ref, r.wire)
		w.requests[i].wire = flying
		w.sends++
		e.to(handlerWrites, 0, w)
	}

	// It is over: a lookup, if there is time for it and it says anything. That it has
	// given up concerns nobody else, so that both are one step.
	conclude(handlerGivesUp, declineTimeoutAndReverse)
	w.looks = min(2, w.looks+1)
	switch w.wallet.book[ref] {
	case applied, appliedTwice:
		conclude(handlerLooksUp, approve)
	case refused, refusedNotActive, refusedCaptured:
		conclude(handlerLooksUp, declineRejected)
	case unknown:
		if m.bug == notFoundIsFinal {
			conclude(handlerLooksUp, declineTimeout)
		} else {
			conclude(handlerLooksUp, declineTimeoutAndReverse)
		}
	}
}

// store is ledger.Decide, and the answer. The update is conditional on what is
// there, and the reversal is in the same statement. A store whose commit has an
// answer that never came is a handler that stores late, or dies before.
func (m *model) store(w world, i int, e emitter) {
	r := w.requests[i]
	p := &w.led.pay
	w.requests[i] = request{phase: gone}

	if m.bug == sendBeforeClaim && p.state == noPayment {
		*p = payment{state: inFlight, body: r.body, claim: r.claim}
	}
	if p.state == noPayment || p.claim != r.claim {
		// A failover has lost the claim.
		e.to(handlerCannotStore, 0, w)
		return
	}
	mine := p.state == inFlight ||
		m.bug == noFenceForHandlers ||
		m.bug == cancelIsOverwritten && p.code == cancelledByKey
	if mine {
		state, c, reverse := r.verdict.decision()
		p.state, p.code = state, c
		if reverse && w.led.ops[reversal].state == noOperation {
			if m.bug == reversalInSecondTransaction {
				w.requests[i] = request{phase: halfStored, body: r.body, claim: r.claim}
			} else {
				w.led.ops[reversal] = operation{state: pending, window: openWindow}
			}
		}
	}
	if r.phase == answeredFirst {
		e.to(handlerStores, 0, w)
		return
	}
	if m.bug == unknownSaysRetryAfter {
		// It claimed, and says what the gate says: that nothing has begun.
		w.broke |= retryAfterIsProof.bit()
		e.to(handlerCannotStore, 0, w)
		return
	}
	m.hear(&w, p.state, p.code)
	e.to(handlerStores, 0, w)
}

// decision is what v stores.
func (v verdict) decision() (state payState, c code, reverse bool) {
	switch v {
	case approve:
		return approved, noCode, false
	case declineRejected:
		return declined, walletRejected, false
	case declineUnavailable:
		return declined, walletUnavailable, false
	case declineUnavailableAndReverse:
		return declined, walletUnavailable, true
	case declineTimeout:
		return declined, walletTimeout, false
	case noVerdict, declineTimeoutAndReverse:
	}
	return declined, walletTimeout, true
}

// answerFirst is a bug: the till hears what is not stored yet.
func (m *model) answerFirst(w world, i int, e emitter) {
	state, c, _ := w.requests[i].verdict.decision()
	w.requests[i].phase = answeredFirst
	m.hear(&w, state, c)
	e.to(handlerAnswersFirst, 0, w)
}

// writeReversal is a bug: what should have been one transaction is two.
func (m *model) writeReversal(w world, i int, e emitter) {
	w.requests[i] = request{phase: gone}
	w.led.ops[reversal] = operation{state: pending, window: openWindow}
	e.to(handlerWritesReversal, 0, w)
}

// handlersOverwrite reports whether what a handler concludes matters although its
// payment is decided.
func (m *model) handlersOverwrite() bool {
	switch m.bug { //nolint:exhaustive // the others do not
	case noFenceForHandlers, cancelIsOverwritten, answerBeforeStore, sendBeforeClaim, recoveryFreesKey:
		return true
	}
	return false
}
