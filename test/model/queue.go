package model

// queueSteps is internal/queue: the follow-ups that are due, and the workers that
// have one. What waits is always due here: pauses, the retry budget, the breaker and
// the lookup rate only put it off, and whatever can happen then can happen now.
func (m *model) queueSteps(w world, e emitter) {
	free := -1
	for i, k := range w.workers {
		switch k.phase {
		case idle:
			if i >= maxWorkers-m.workers { // those that are idle are in front, see canonical
				free = i
			}
			continue
		case lookingForIt:
			m.look(w, i, e)
		case resolving:
			m.resolve(w, i, e)
		case sending:
			m.transmit(w, i, e)
		case awaiting:
			m.judge(w, i, e)
		case comprehending:
			m.comprehend(w, i, e)
		case settling:
			m.settle(w, i, e)
		}
		// kill -9, or a stop that nobody ends. A settlement whose commit has an answer that
		// never came is a worker that dies before it or behind it.
		w := w
		w.abandon(m.sentAs(k), k.wire)
		w.workers[i] = worker{}
		e.to(workerDies, k.op, w)
	}
	if free < 0 {
		return
	}
	for op := range uint8(len(w.led.ops)) {
		o := w.led.ops[op]
		due := o.state == pending || o.state == notApplied && o.checks > 0
		if waits := op == reversal && m.creditsOpen(&w); due && !waits {
			m.lease(w, free, op, e)
		}
	}
}

// lease is ledger.Lease of one row, and what newAttempt and settlement do before
// anybody else can see it. A lease runs out at any time: so a row that is leased is
// due too, whether its worker is dead, slow or stopped.
func (m *model) lease(w world, i int, op uint8, e emitter) {
	o := &w.led.ops[op]
	kind, takenOver := workerLeases, o.leased
	if takenOver {
		if m.bug == noTakeOver {
			return
		}
		kind = workerTakesOver
		for n := range w.workers {
			if other := &w.workers[n]; other.phase != idle && other.op == op && other.current {
				other.current = false
				kind = workerIsOvertaken
			}
		}
	}
	k := worker{op: op, current: true, before: o.attempts, resolve: o.resolve || takenOver, target: o.target}
	if m.drawsKeys(op) {
		k.resolve = false
	}
	o.leased, o.attempts = true, min(2, o.attempts+1)
	if op == reversal {
		k.tooEarly, k.late = o.window == openWindow, o.state == notApplied
		k.amount = uint8(max(0, m.amount-m.credited(&w)))
	} else {
		if takenOver && m.bug != doubtIsForgottenAtTakeOver {
			o.window = openWindow // doubt_at
		}
		k.mayLand = o.window == openWindow
	}
	if k.late && o.checks == 1 && m.lastCheckIsLater {
		m.land(&w, m.paid(&w)) // it has taken a day
	}
	if op == reversal && !o.target && m.bug != reversalDoesNotLook {
		k.phase = lookingForIt
	} else {
		m.apply(&k)
	}
	w.workers[i] = k
	e.to(kind, op, w)
}

// creditsOpen is Work.CreditsOpen. A reversal that must wait for them is leased now
// and then, and put off (attempt.awaitCredits); as that changes nothing, it is not
// leased here.
func (m *model) creditsOpen(w *world) bool {
	if m.hold || m.bug == reversalIgnoresCredits {
		return false
	}
	for _, op := range []int{first, second} {
		if s := w.led.ops[op].state; s == pending || s == parked {
			return true
		}
	}
	return false
}

// credited is Work.Credited.
func (m *model) credited(w *world) (sum int8) {
	for _, op := range []int{first, second} {
		if w.led.ops[op].state == succeeded && !m.hold {
			sum += m.credits[op]
		}
	}
	return sum
}

// apply is attempt.apply up to its first call.
func (m *model) apply(k *worker) {
	k.tooEarly, k.late = false, false
	switch {
	case k.op == reversal && !m.hold && k.amount == 0:
		k.finish(settlement{state: succeeded}) // the credits have given everything back
	case k.resolve:
		k.phase = resolving
	default:
		k.phase = sending
	}
}

// finish is the attempt being over but for its settlement.
func (k *worker) finish(s settlement) {
	*k = worker{phase: settling, op: k.op, current: k.current, astray: k.astray, before: k.before, target: k.target, end: s}
}

// end is a step with which the attempt of worker i is over.
func (m *model) end(w world, i int, kind stepKind, s settlement, e emitter) {
	w.workers[i].finish(s)
	e.to(kind, w.workers[i].op, w)
}

// again is an end that is none: attempt.again, awaitWindow, broken. It is tried once
// more, or parked if QUEUE_PARK_AFTER has gone by.
func (m *model) again(w world, i int, kind stepKind, s settlement, e emitter) {
	s.state = pending
	m.end(w, i, kind, s, e)
	if m.parks {
		s.state = parked
		s.resolve = s.resolve || !s.unspent || w.workers[i].before > 0
		m.end(w, i, kind, s, e)
	}
}

// look is reversal.go: find out whether there is anything to undo.
func (m *model) look(w world, i int, e emitter) {
	k := w.workers[i]
	nothing := settlement{state: notApplied, resolve: k.resolve, unspent: true}

	if k.late { // noSight
		still := nothing
		still.checks = w.led.ops[reversal].checks
		m.end(w, i, workerSeesNothing, still, e)
		if m.parks {
			m.end(w, i, workerSeesNothing, nothing, e) // what ended it stands
		}
	} else {
		m.again(w, i, workerSeesNothing, nothing, e)
	}

	said := w.wallet.book[m.paid(&w)]
	if m.blindLooks && said != unknown {
		m.notFound(w, i, workerSeesTooLittle, e)
	}
	switch said {
	case applied, appliedTwice:
		if k.late && m.bug == lateCheckOnlyCounts {
			m.end(w, i, workerLooksForPayment, nothing, e)
			return
		}
		w.workers[i].target = true
		m.apply(&w.workers[i])
		e.to(workerLooksForPayment, k.op, w)
	case refused, refusedNotActive, refusedCaptured:
		m.end(w, i, workerLooksForPayment, nothing, e)
	case unknown:
		m.notFound(w, i, workerLooksForPayment, e)
	}
}

// notFound is attempt.notFound: it ends the reversal, or its late check, if the window
// was over when the row was leased. (Before that, a lookup that does not show yet what
// there is comes to the same.)
func (m *model) notFound(w world, i int, kind stepKind, e emitter) {
	k := w.workers[i]
	s := settlement{state: notApplied, resolve: k.resolve, unspent: true, checks: m.lateChecks}
	if k.late {
		s.checks = max(1, w.led.ops[reversal].checks) - 1
	}
	switch {
	case !k.tooEarly || m.bug == notFoundEndsReversal:
	case m.bug == windowAskedAtTheEnd:
		s.early = true
	default:
		s.state, s.checks = pending, 0
	}
	m.end(w, i, kind, s, e)
}

// resolve is the lookup of our own reference, before anything is sent.
func (m *model) resolve(w world, i int, e emitter) {
	k := w.workers[i]
	said := w.wallet.book[opReference(k.op)]
	unsent := settlement{resolve: true, unspent: true}

	m.again(w, i, workerSeesNothing, unsent, e) // noEvidence
	if m.slowLooks && said != unknown {
		w := w
		w.workers[i].phase = sending
		e.to(workerSeesTooLittle, k.op, w)
	}
	switch {
	case said == applied || said == appliedTwice:
		m.end(w, i, workerResolves, settlement{state: succeeded}, e)
	case said == unknown || k.op == reversal:
		// Of a reversal that was refused and redriven, what stood in the way may be gone.
		w.workers[i].phase = sending
		e.to(workerResolves, k.op, w)
	case k.before > 1 && m.mayLand(k, said.answer()) && m.bug != foundRefusalIsFinal:
		m.again(w, i, workerResolves, unsent, e) // awaitWindow
	default:
		m.end(w, i, workerResolves, m.refusal(k, said.answer()), e)
	}
}

// transmit is the write, unless the lease is nearly over or the wallet cannot be
// reached. As with a handler, whether it has looked at the clock yet only shows when a
// window closes.
func (m *model) transmit(w world, i int, e emitter) {
	k := &w.workers[i]
	if m.unsent && k.current {
		m.again(w, i, workerSendsNothing, settlement{resolve: k.resolve, unspent: true}, e)
	}
	k.phase, k.wire = awaiting, flying
	if k.op == reversal {
		w.wallet.undoes = k.amount
	}
	if m.sentAs(*k) == refAgain {
		w.broke |= oneKeyEach.bit()
	}
	e.to(workerWrites, k.op, w)
}

// sentAs is the outbound key of what k sends: the row's, on every attempt.
func (m *model) sentAs(k worker) reference {
	if k.before > 0 && m.drawsKeys(k.op) {
		return refAgain
	}
	return opReference(k.op)
}

// drawsKeys reports whether a bug gives every attempt at op a key of its own.
func (m *model) drawsKeys(op uint8) bool {
	return m.bug == newKeyAfterTakeOver || m.bug == reversalWithoutOwnKey && op == reversal
}

// judge is attempt.judge.
func (m *model) judge(w world, i int, e emitter) {
	k := w.workers[i]
	switch k.wire {
	case yes:
		m.end(w, i, workerIsAnswered, settlement{state: succeeded}, e)
	case notNow:
		m.again(w, i, workerIsAnswered, settlement{resolve: k.resolve}, e)
	case no, noNotActive, noCaptured:
		believed := m.nothingHeld(k, k.wire) || k.wire == noCaptured && m.bug == capturedMeansRefused
		if k.before > 0 && !believed {
			w := w
			w.workers[i].phase, w.workers[i].wire, w.workers[i].no = comprehending, silent, k.wire
			e.to(workerIsAnswered, k.op, w)
		} else {
			m.end(w, i, workerIsAnswered, m.refusal(k, k.wire), e)
		}
	case silent, flying, lost:
	}
	// A lost answer, a gateway's, or one that says nothing about this operation.
	w.abandon(m.sentAs(k), k.wire)
	m.again(w, i, workerEndsInDoubt, settlement{resolve: true, doubt: true}, e)
}

// comprehend is attempt.verdict after earlier sends: the no may be about one of them.
func (m *model) comprehend(w world, i int, e emitter) {
	k := w.workers[i]
	open := settlement{resolve: true}

	m.again(w, i, workerSeesNothing, open, e)
	switch w.wallet.book[opReference(k.op)] {
	case applied, appliedTwice:
		m.end(w, i, workerComprehends, settlement{state: succeeded}, e)
	case unknown, refused, refusedNotActive, refusedCaptured:
		if m.mayLand(k, k.no) && m.bug != refusalAfterDoubtIsFinal {
			m.again(w, i, workerComprehends, open, e) // awaitWindow
		} else {
			m.end(w, i, workerComprehends, m.refusal(k, k.no), e)
		}
	}
}

// mayLand is attempt.mayLand, see docs/adr/0016.
func (m *model) mayLand(k worker, said wire) bool {
	holdEnded := m.hold && (said == noNotActive || said == noCaptured)
	return k.op != reversal && k.mayLand && !holdEnded
}

// nothingHeld is attempt.nothingHeld.
func (m *model) nothingHeld(k worker, said wire) bool {
	return k.op == reversal && m.hold && said == noNotActive
}

// refusal is attempt.refused: the end by the wallet's verdict.
func (m *model) refusal(k worker, said wire) settlement {
	switch {
	case k.op != reversal:
		return settlement{state: rejected, code: said}
	case m.nothingHeld(k, said):
		return settlement{state: succeeded}
	case m.bug == refusedReversalEnds:
		return settlement{state: notApplied}
	}
	return settlement{state: parked, resolve: true, code: said}
}

// settle is ledger.Settle: one update, if the fence still holds.
func (m *model) settle(w world, i int, e emitter) {
	k := w.workers[i]
	w.workers[i] = worker{}
	o := &w.led.ops[k.op]
	if !k.current && m.bug != noFenceForWorkers {
		e.to(workerIsFenced, k.op, w)
		if !k.astray || !o.leased {
			return
		}
	}
	for n := range w.workers {
		if other := &w.workers[n]; other.phase != idle && other.op == k.op && k.astray {
			other.current = false // leased_turn is null
		}
	}
	if o.state == succeeded || o.state == rejected {
		w.broke |= oneEnd.bit() // the trigger operations_final would refuse it
	}
	end := k.end
	if end.early && o.window == openWindow {
		end.state, end.checks = pending, 0
	}
	if o.cancelled && end.state == rejected && m.bug != refusedReleaseIsRejected {
		// endsAs: the release is all that undoes a cancelled hold.
		end.state = parked
		if end.code == noNotActive {
			end.state = succeeded
		}
	}

	after := operation{
		state: end.state, resolve: end.resolve, attempts: k.before, window: o.window,
		target: k.target, cancelled: o.cancelled, checks: end.checks,
	}
	if !end.unspent {
		after.attempts = min(2, k.before+1)
	}
	switch {
	case k.op != reversal && end.doubt:
		after.window = openWindow
	case k.op == reversal && k.target:
		after.window = noWindow // nobody asks for it any more
	}
	*o = after
	e.to(workerSettles, k.op, w)
}
