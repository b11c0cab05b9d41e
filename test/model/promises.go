package model

// promise is one thing that must hold: the invariants of the design by their
// numbers, those of cancel by key, and that everything ends.
type promise uint8

const (
	answerIsStored      promise = iota // I1
	oneDebit                           // I2
	noMoreBackThanTaken                // I3
	approvedOnce                       // I4
	declinedIsUndone                   // I5
	noOrphanMoney                      // I6
	keyStays                           // I7
	retryAfterIsProof                  // I8
	oneRequestInFront                  // I9
	unsentIsUnseen                     // I11
	oneKeyEach                         // I12
	oneEnd                             // I13, its first half
	openQuestionHasWork                // I13, its second half
	sumIsConstant                      // I14
	cancelledIsUndone                  // C1
	approvalAfterCancel                // C2
	holdEndsOnce                       // H1
	refusedFrees                       // R1
	basketPaidOnce                     // B1
	quiescence                         // Q
	promiseKinds        = iota
)

// promiseTable names and explains them.
var promiseTable = [promiseKinds]struct{ id, says string }{ //nolint:gochecknoglobals // a table
	answerIsStored:      {"I1", "an answer that a till has heard is what is stored for its key, for good"},
	oneDebit:            {"I2", "the wallet books at most one debit or hold for a key"},
	noMoreBackThanTaken: {"I3", "never more is given back than was taken"},
	approvedOnce:        {"I4", "approved: in the end the wallet has the amount once, less what follow-ups that SUCCEEDED gave back; and what was REJECTED did nothing"},
	declinedIsUndone:    {"I5", "declined: in the end the wallet has nothing, or a parked reversal says so"},
	noOrphanMoney:       {"I6", "nothing is booked for a key that has no row"},
	keyStays:            {"I7", "a key that was claimed is in flight until it is decided, and never free again"},
	retryAfterIsProof:   {"I8", "503 with Retry-After is said by nobody who has claimed"},
	oneRequestInFront:   {"I9", "while the till waits there is one request to the wallet for a key, and one lookup"},
	unsentIsUnseen:      {"I11", "declined as not sent, without a reversal: the wallet has not seen it, nor will it"},
	oneKeyEach:          {"I12", "every attempt at a follow-up has the same outbound key"},
	oneEnd:              {"I13a", "SUCCEEDED and REJECTED are final"},
	openQuestionHasWork: {"I13b", "as long as the wallet has money of a declined payment, or may yet, its reversal is at work or parked"},
	sumIsConstant:       {"I14", "balance, held, and taken less given add up to what there was"},
	cancelledIsUndone:   {"C1", "a cancel by key was answered 200: in the end the wallet has nothing, or something parked says so"},
	approvalAfterCancel: {"C2", "and whoever asks after that is not told an approval"},
	holdEndsOnce:        {"H1", "of capture, release and reversal of a hold at most one is not REJECTED"},
	refusedFrees:        {"R1", "what a refused follow-up had reserved can be asked for again"},
	basketPaidOnce:      {"B1", "a till that draws a new key after a decline that may be retried: in the end the customer has paid once at most, or something parked says so"},
	quiescence:          {"Q", "from everywhere it is possible that everything ends, when faults stop and nobody asks for more: no deadlock, no livelock"},
}

// promises is a set of them.
type promises uint32

func (p promise) bit() promises { return 1 << p }

func (p promise) String() string { return promiseTable[p].id }

// every is all of them.
const every promises = 1<<promiseKinds - 1

func (ps promises) has(p promise) bool { return ps&p.bit() != 0 }

func (ps promises) list() (all []promise) {
	if ps == 0 {
		return nil
	}
	for p := range promise(promiseKinds) {
		if ps.has(p) {
			all = append(all, p)
		}
	}
	return all
}

// broken are the promises that w breaks.
func (m *model) broken(w *world) promises {
	ps := w.broke
	for _, check := range []struct {
		promise promise
		holds   bool
	}{
		{answerIsStored, w.till.heard == noPayment || w.till.heard == w.led.pay.state && w.till.code == w.led.pay.code},
		{oneDebit, m.debits(w) <= 1},
		{noMoreBackThanTaken, w.wallet.given <= w.wallet.taken},
		{noOrphanMoney, w.led.pay.state != noPayment || m.debits(w) == 0},
		{keyStays, w.led.pay.state != noPayment || w.claims == 0 || m.bug == sendBeforeClaim},
		{oneRequestInFront, w.sends <= 1 && w.looks <= 1},
		{unsentIsUnseen, m.unsentIsUnseen(w)},
		{openQuestionHasWork, m.openQuestionHasWork(w)},
		{sumIsConstant, w.wallet.balance+w.wallet.held+w.wallet.taken-w.wallet.given == opening},
		{holdEndsOnce, m.holdEnds(w) <= 1},
		{refusedFrees, m.refusedFrees(w)},
	} {
		if !check.holds {
			ps |= check.promise.bit()
		}
	}
	if m.quiescent(w) {
		ps |= m.brokenInTheEnd(w)
	}
	return ps
}

// debits is how often the wallet has booked the key's payment, under any reference.
func (m *model) debits(w *world) (n int) {
	for _, ref := range []reference{refPayment, refOther} {
		switch w.wallet.book[ref] {
		case applied:
			n++
		case appliedTwice:
			n += 2
		case unknown, refused, refusedNotActive, refusedCaptured:
		}
	}
	return n
}

// paymentMayLand reports whether a request for the payment is on its way, or about to be.
func (m *model) paymentMayLand(w *world) bool {
	if w.wallet.flying[refPayment] > 0 || w.wallet.flying[refOther] > 0 {
		return true
	}
	for _, r := range w.requests {
		if r.phase == ready || r.wire == flying {
			return true
		}
	}
	return false
}

func (m *model) unsentIsUnseen(w *world) bool {
	p := w.led.pay
	if p.state != declined || p.code != walletUnavailable || w.led.ops[reversal].state != noOperation {
		return true
	}
	return m.debits(w) == 0 && !m.paymentMayLand(w)
}

// net is what the wallet keeps of the customer's for this key.
func (w *world) net() int8 { return w.wallet.taken - w.wallet.given + w.wallet.held }

func (m *model) openQuestionHasWork(w *world) bool {
	if w.led.pay.state != declined || w.net() == 0 && !m.paymentMayLand(w) {
		return true
	}
	o := w.led.ops[reversal]
	switch o.state {
	case pending, parked:
		return true
	case notApplied:
		return o.checks > 0 || o.leased
	case succeeded:
		return w.net() == 0 // what may still land is known to the wallet
	case noOperation, rejected:
	}
	return false
}

// holdEnds counts the follow-ups that may end the hold.
func (m *model) holdEnds(w *world) (n int) {
	if !m.hold || w.led.pay.state != approved {
		return 0
	}
	for _, o := range w.led.ops {
		if o.state != noOperation && o.state != rejected {
			n++
		}
	}
	return n
}

// refusedFrees compares what is accepted with what would be if every reservation were
// counted as it should.
func (m *model) refusedFrees(w *world) bool {
	correct := model{configuration: m.configuration}
	for op, may := range m.followUps {
		if may && w.led.ops[op].state == noOperation && correct.accepts(w, op) && !m.accepts(w, op) {
			return false
		}
	}
	return true
}

// quiescent reports whether everything that was begun has come to its end, or waits
// for a person. A request that is still on its way then is one that never arrives:
// there is no step for that, and where it does arrive this is not the end.
func (m *model) quiescent(w *world) bool {
	for _, r := range w.requests {
		if r.phase != notArrived && r.phase != gone {
			return false
		}
	}
	for _, k := range w.workers {
		if k.phase != idle {
			return false
		}
	}
	if w.led.pay.state == inFlight {
		return false
	}
	for op, o := range w.led.ops {
		waits := op == reversal && m.creditsOpen(w) // for a credit that is parked
		if o.leased || o.state == pending && !waits || o.state == notApplied && o.checks > 0 {
			return false
		}
	}
	return true
}

// brokenInTheEnd is what a quiescent world breaks.
func (m *model) brokenInTheEnd(w *world) (ps promises) {
	visible := w.waitsForSomebody()
	ops := &w.led.ops
	undone := ops[reversal].state == succeeded || m.hold && ops[release].cancelled && ops[release].state == succeeded

	switch w.led.pay.state {
	case declined:
		if w.net() != 0 && !visible {
			ps |= declinedIsUndone.bit()
		}
	case approved:
		switch {
		case visible:
		case undone:
			if w.net() != 0 {
				ps |= cancelledIsUndone.bit()
			}
		case !m.hold:
			if w.net() != m.amount-m.credited(w) {
				ps |= approvedOnce.bit()
			}
		case ops[capture].state == succeeded:
			if w.wallet.taken != m.amount || w.wallet.held != 0 {
				ps |= approvedOnce.bit()
			}
		case ops[release].state == succeeded:
			if w.net() != 0 {
				ps |= approvedOnce.bit()
			}
		default:
			if w.wallet.held != m.amount || w.wallet.taken != 0 {
				ps |= approvedOnce.bit()
			}
		}
	case noPayment, inFlight:
	}
	for _, op := range []uint8{first, second} {
		if ops[op].state == rejected && w.wallet.book[opReference(op)] == applied {
			ps |= approvedOnce.bit()
		}
	}
	if w.till.cancelled && w.net() != 0 && !visible {
		ps |= cancelledIsUndone.bit()
	}
	return ps
}

// waitsForSomebody reports whether a person is told that there is something to do.
func (w *world) waitsForSomebody() bool {
	for _, o := range w.led.ops {
		if o.state == parked || o.state == pending {
			return true
		}
	}
	return false
}
