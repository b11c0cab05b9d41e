package model

// aroundSteps is what happens around everybody: time, a failover, operators.
func (m *model) aroundSteps(w world, e emitter) {
	for op := range w.led.ops {
		if w.led.ops[op].window == openWindow {
			m.closeWindow(w, uint8(op), e)
		}
		m.operate(w, uint8(op), e)
	}
	m.failoverSteps(w, e)
}

// closeWindow is the time after which nothing that was begun before can land any
// more: every message lives shorter than that, and so does every pause between a look at
// the clock and the write behind it (docs/adr/0015). So it takes what is on its way,
// and whoever wakes up later finds that his time is over.
func (m *model) closeWindow(w world, op uint8, e emitter) {
	w.led.ops[op].window = closedWindow
	if op == reversal {
		if !m.messagesOutlive && m.bug != windowTooShort {
			m.land(&w, m.paid(&w))
		}
		e.to(windowCloses, op, w)
		return
	}
	if !m.messagesOutlive {
		w.wallet.flying[opReference(op)] = 0
	}
	for i := range w.workers {
		// The one whose attempt is not over may have begun just now.
		if k := &w.workers[i]; k.phase != idle && k.op == op && !k.current && !m.pausesOutlive {
			*k = worker{} // the look at the clock in attempt.transmit
		}
	}
	e.to(windowCloses, op, w)
}

// land ends all that is under way for the payment that the wallet knows by ref.
func (m *model) land(w *world, ref reference) {
	w.wallet.flying[ref] = 0
	for i := range w.requests {
		r := &w.requests[i]
		switch {
		case m.reference(r.claim, r.body) != ref:
		case r.phase == ready && !m.pausesOutlive:
			r.phase, r.verdict = concluded, declineUnavailable // budget.Deadline.EnoughToSend
		case r.wire == flying:
			r.wire = lost
		}
	}
}

// operate is an operator with what is parked, or, as far as the ledger lets him, with
// what waits.
func (m *model) operate(w world, op uint8, e emitter) {
	was := w.led.ops[op]
	if !m.operators || was.state != parked && (was.state != pending || was.leased) {
		return
	}
	if was.state == parked {
		w := w
		w.led.ops[op].state = pending
		e.to(operatorRedrives, op, w)
	}

	// By hand, and as he has found it to be: applied; or not, which he can only know when
	// nothing of it is under way any more.
	o := &w.led.ops[op]
	book := w.wallet.book[opReference(op)]
	if book == applied || book == appliedTwice {
		*o = operation{state: succeeded, cancelled: was.cancelled}
		e.to(operatorSettles, op, w)
		return
	}
	if was.cancelled && m.bug != cancelledReleaseIsGivenUp || !m.guesses && !m.landed(&w, op) {
		return
	}
	*o = operation{state: rejected, cancelled: was.cancelled}
	if op == reversal {
		*o = operation{state: notApplied}
	}
	e.to(operatorSettles, op, w)
}

// landed reports whether nothing of a follow-up is under way, and of a reversal
// whether there is nothing to undo either.
func (m *model) landed(w *world, op uint8) bool {
	for _, k := range w.workers {
		if k.phase != idle && k.op == op {
			return false
		}
	}
	if op == reversal && (m.paymentMayLand(w) || w.net() != 0) {
		return false
	}
	return w.wallet.flying[opReference(op)] == 0
}

// failoverSteps is an asynchronous standby: it has a beginning of all that was
// committed, and is promoted with that. (A synchronous one has everything that was
// answered; its promotion is a pause.) What of it are whole transactions.
func (m *model) failoverSteps(w world, e emitter) {
	if w.failovers == 0 {
		return
	}
	if w.standby != w.led {
		w := w
		w.standby = w.led
		e.to(standbyFollows, 0, w)
	}
	if w.standby != w.led {
		w.led = w.standby
		w.failovers--
		for i := range w.workers {
			if w.workers[i].phase != idle {
				w.workers[i].current, w.workers[i].astray = false, true
			}
		}
		e.to(standbyIsPromoted, 0, w)
	}
}
