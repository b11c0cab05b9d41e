package model

import (
	"cmp"
	"slices"
)

// canonical gives worlds that differ in nothing that matters the same form. Each
// rule says why it may.
func (m *model) canonical(w *world) {
	for i := range w.workers {
		m.forget(w, &w.workers[i])
	}
	for i := range w.requests {
		r := &w.requests[i]
		if settled := w.led.pay.claim != r.claim || w.led.pay.state != inFlight; settled && w.failovers == 0 && !m.handlersOverwrite() {
			// Whatever comes of its call, it will find the payment decided and say that.
			switch r.phase { //nolint:exhaustive // the others do not know a verdict
			case waiting:
				w.abandon(m.reference(r.claim, r.body), r.wire)
				*r = request{phase: concluded, body: r.body, claim: r.claim}
			case concluded:
				r.verdict = noVerdict
			}
		}
		if r.phase == gone {
			*r = request{phase: gone}
		}
	}
	for ref := range w.wallet.flying {
		// The wallet knows the reference, so nothing comes of another request with it.
		known := w.wallet.book[ref] == applied && !m.walletForgets ||
			m.remembersRefusals && w.wallet.book[ref] >= refused
		if known {
			w.wallet.flying[ref] = 0
		}
	}
	for i := range w.led.ops {
		w.led.ops[i].trim()
		w.standby.ops[i].trim()
	}
	if w.failovers == 0 {
		w.standby = ledger{}
	}
	m.forgetCounts(w)
	m.orderCredits(w)
	// Who of the requests and workers is who makes no difference.
	slices.SortFunc(w.requests[:], func(a, b request) int { return cmp.Compare(a.rank(), b.rank()) })
	slices.SortFunc(w.workers[:], func(a, b worker) int {
		if a.phase != b.phase {
			return cmp.Compare(a.phase, b.phase)
		}
		return cmp.Compare(a.rank(), b.rank())
	})
}

// forget takes what can have no effect any more from a worker that was overtaken: it
// can only still send. What it learns, the fence keeps from being written.
func (m *model) forget(w *world, k *worker) {
	if k.phase == idle || k.current || k.astray || m.bug == noFenceForWorkers {
		return
	}
	switch ref := m.sentAs(*k); {
	case k.phase == awaiting:
		w.abandon(ref, k.wire)
		*k = worker{}
	case k.phase == comprehending || k.phase == settling:
		*k = worker{}
	case w.wallet.book[ref] == applied && !m.walletForgets:
		*k = worker{} // it would be told that this was done
	default:
		left := worker{phase: k.phase, op: k.op, amount: k.amount}
		if k.phase != sending {
			left.resolve = k.resolve
		}
		if m.drawsKeys(k.op) {
			left.before = k.before
		}
		*k = left
	}
}

// forgetCounts drops the counts of the decision path where nobody is on it any more.
func (m *model) forgetCounts(w *world) {
	if p := w.led.pay.state; p != approved && p != declined || w.failovers > 0 || w.sends > 1 || w.looks > 1 {
		return
	}
	for _, r := range w.requests {
		if r.phase == ready || r.phase == waiting {
			return
		}
	}
	w.sends, w.looks = 0, 0
}

// orderCredits swaps the two credits where they are of the same amount and the till
// may ask for both: which of them is which makes no difference then.
func (m *model) orderCredits(w *world) {
	if m.named || m.hold || m.followUps != [3]bool{first: true, second: true} || m.credits[first] != m.credits[second] {
		return
	}
	if m.creditRank(w, first) >= m.creditRank(w, second) {
		return
	}
	ops, b := &w.led.ops, &w.wallet
	ops[first], ops[second] = ops[second], ops[first]
	b.book[refFirst], b.book[refSecond] = b.book[refSecond], b.book[refFirst]
	b.flying[refFirst], b.flying[refSecond] = b.flying[refSecond], b.flying[refFirst]
	for i := range w.workers {
		switch k := &w.workers[i]; {
		case k.phase != idle && k.op == first:
			k.op = second
		case k.phase != idle && k.op == second:
			k.op = first
		}
	}
}

func (m *model) creditRank(w *world, op uint8) uint64 {
	o, ref := w.led.ops[op], opReference(op)
	return uint64(o.state)<<24 | uint64(o.attempts)<<20 | uint64(o.window)<<16 | uint64(bit(o.leased))<<12 | uint64(bit(o.resolve))<<8 |
		uint64(w.wallet.book[ref])<<4 | uint64(w.wallet.flying[ref])
}

// trim takes from an operation that has ended what nobody asks any more.
func (o *operation) trim() {
	switch o.state {
	case noOperation, succeeded, rejected:
		*o = operation{state: o.state, cancelled: o.cancelled}
	case notApplied:
		if o.checks == 0 && !o.leased {
			*o = operation{state: notApplied}
		}
	case pending, parked:
	}
}

func (r request) rank() uint32 {
	return uint32(r.phase)<<16 | uint32(r.body)<<12 | uint32(r.claim)<<8 | uint32(r.wire)<<4 | uint32(r.verdict)
}

func (k worker) rank() uint64 {
	rank := uint64(0)
	for _, v := range []uint8{
		uint8(k.phase), k.op, bit(k.astray)<<1 | bit(k.current), k.before, bit(k.resolve), bit(k.mayLand), bit(k.tooEarly), bit(k.late), bit(k.target),
		k.amount, uint8(k.wire), uint8(k.no), uint8(k.end.state), uint8(k.end.code),
		bit(k.end.resolve)<<2 | bit(k.end.doubt)<<1 | bit(k.end.unspent), k.end.checks<<1 | bit(k.end.early),
	} {
		rank = rank<<4 | uint64(v)
	}
	return rank
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
