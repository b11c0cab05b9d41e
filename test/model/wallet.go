package model

// walletSteps is the wallet as contract section 3 has it, and the network before it.
// It gets a request once, late, or never; what it answers is read, or not: that is
// for the sender to say, see listen and hearken.
func (m *model) walletSteps(w world, e emitter) {
	for i, r := range w.requests {
		if r.wire != flying {
			continue
		}
		ref := m.reference(r.claim, r.body)
		m.receive(w, ref, func(after world, answer wire) {
			after.requests[i].wire = answer
			e.to(walletIsReached, uint8(ref), after)
		})
		m.repeat(w, ref, e)
	}
	for i, k := range w.workers {
		if k.wire != flying {
			continue
		}
		ref := m.sentAs(k)
		m.receive(w, ref, func(after world, answer wire) {
			after.workers[i].wire = answer
			e.to(walletIsReached, uint8(ref), after)
		})
		if m.putsOff {
			w := w
			w.workers[i].wire = notNow
			e.to(walletPutsOff, uint8(ref), w)
		}
		m.repeat(w, ref, e)
	}
	for ref := range reference(references) {
		if w.wallet.flying[ref] == 0 {
			continue
		}
		less := w
		less.wallet.flying[ref]--
		m.receive(less, ref, func(after world, _ wire) { e.to(requestArrivesLate, uint8(ref), after) })
		m.repeat(w, ref, e)
	}
}

// repeat is something in between that sends a request of ours a second time.
func (m *model) repeat(w world, ref reference, e emitter) {
	if m.duplicates && w.wallet.flying[ref] < 2 {
		w.wallet.flying[ref]++
		e.to(requestIsRepeated, uint8(ref), w)
	}
}

// receive is the wallet with a request: all that it may do. A reference that it has
// applied is answered as it was the first time; one that it has refused is decided
// again, for the contract only has it repeat a 2xx (internal/walletsim/money.go recognise).
func (m *model) receive(w world, ref reference, then func(after world, answer wire)) {
	book := w.wallet.book[ref]
	if book == applied {
		then(w, yes)
		if !m.walletForgets {
			return
		}
	}
	if m.remembersRefusals && book >= refused {
		then(w, book.answer())
		return
	}
	if said := w.wallet.holdRefusal(m, ref); said != unknown {
		w.wallet.note(ref, said)
		then(w, said.answer())
		return
	}
	after := w
	after.wallet.apply(m, ref, w.wallet.undoes)
	then(after, yes)
	if m.refusals && book != applied {
		w.wallet.note(ref, refused)
		then(w, no)
	}
}

// note keeps what the wallet has said no to. What it has applied stays applied.
func (b *wallet) note(ref reference, said standing) {
	if b.book[ref] != applied && b.book[ref] != appliedTwice {
		b.book[ref] = said
	}
}

// answer is how the wallet says it.
func (s standing) answer() wire {
	switch s {
	case refused:
		return no
	case refusedNotActive:
		return noNotActive
	case refusedCaptured:
		return noCaptured
	case applied, appliedTwice:
		return yes
	case unknown:
	}
	return silent
}

// holdRefusal is why the wallet must refuse what ends a hold: it has ended. It is
// unknown where there is no reason.
func (b *wallet) holdRefusal(m *model, ref reference) standing {
	switch {
	case !m.hold || ref == refPayment || ref == refOther || b.held > 0:
		return unknown
	case b.taken > 0:
		return refusedCaptured
	}
	return refusedNotActive
}

// apply moves the money.
func (b *wallet) apply(m *model, ref reference, undoes uint8) {
	switch b.book[ref] {
	case applied, appliedTwice:
		b.book[ref] = appliedTwice
	case unknown, refused, refusedNotActive, refusedCaptured:
		b.book[ref] = applied
	}
	payment := ref == refPayment || ref == refOther
	switch {
	case payment && m.hold:
		b.balance, b.held = b.balance-m.amount, b.held+m.amount
	case payment:
		b.balance, b.taken = b.balance-m.amount, b.taken+m.amount
	case m.hold && ref == refFirst: // the capture
		b.held, b.taken = b.held-m.amount, b.taken+m.amount
	case m.hold: // the release, or the reversal
		b.held, b.balance = b.held-m.amount, b.balance+m.amount
	default:
		credit := m.credits[first]
		switch {
		case ref == refSecond:
			credit = m.credits[second]
		case ref == refReversal || ref == refAgain && m.bug == reversalWithoutOwnKey:
			credit = int8(undoes)
		}
		b.balance, b.given = b.balance+credit, b.given+credit
	}
}
